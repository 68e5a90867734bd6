//! Configuration space, as the kernel shows it, and its capability lists.

use super::{Bdf, Sysfs};

/// Size in bytes of the extended configuration space (PCI Express Base 6.0, 7.2).
const EXTENDED_BYTES: usize = 4096;
/// Number of bytes that the kernel shows to users without CAP_SYS_ADMIN (Linux, drivers/pci/pci-sysfs.c,
/// `pci_read_config`).
const HEADER_BYTES: usize = 64;
/// Offset of the first extended capability (PCI Express Base 6.0, 7.6.1).
const FIRST_EXTENDED: usize = 0x100;
/// Offset of the status register (7.5.1.1.4).
const STATUS: usize = 0x06;
/// Bit 4 of the status register: there is a capability list.
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Offset of the Capabilities Pointer (7.5.1.1.11).
const CAPABILITIES_POINTER: usize = 0x34;
/// Identifier of the PCI Express Capability (7.5.3.1).
const CAPABILITY_PCI_EXPRESS: u8 = 0x10;

/// Bytes of a function's configuration space, as many as the kernel shows.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: Vec<u8>,
}

/// Result of a search in configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// The function has it.
    Yes(T),
    /// The function does not have it.
    No,
    /// Unknown: the kernel did not show that part. This user sees 64 bytes, or there is no such file.
    Hidden,
}

/// Device/Port Type (PCI Express Base 6.0, 7.5.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg(feature = "internals")]
pub enum PortKind {
    /// Endpoint of any kind.
    Endpoint,
    /// Root port of a host bridge.
    Root,
    /// Upstream port of a switch.
    Upstream,
    /// Downstream port of a switch.
    Downstream,
    /// Another kind, by its number.
    Other(u8),
}

impl ConfigSpace {
    /// Reads a function's configuration space; empty if the kernel shows none.
    pub fn read(sysfs: &Sysfs, bdf: Bdf) -> Self {
        let name = format!("/sys/bus/pci/devices/{bdf}/config");
        Self { bytes: sysfs.bytes(name, EXTENDED_BYTES as u64).unwrap_or_default() }
    }

    /// Creates a configuration space from its bytes.
    #[cfg(feature = "internals")]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    /// Returns the two bytes at offset `at`; `None` if the kernel did not show them.
    pub fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes.get(at..at + 2)?.try_into().ok()?))
    }

    /// Returns the four bytes at offset `at`; `None` if the kernel did not show them.
    pub fn dword(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes.get(at..at + 4)?.try_into().ok()?))
    }

    fn byte(&self, at: usize) -> Option<u8> {
        self.bytes.get(at).copied()
    }

    /// Returns true if the function was removed or powered down: reads then return all bits set.
    pub fn is_gone(&self) -> bool {
        self.word(0) == Some(0xffff)
    }

    /// Returns the offset of the capability with this identifier.
    pub fn capability(&self, id: u8) -> Found<usize> {
        let Some(status) = self.word(STATUS) else { return Found::Hidden };
        if self.is_gone() {
            return Found::Hidden;
        }
        if status & STATUS_CAPABILITIES == 0 {
            return Found::No;
        }
        let Some(mut at) = self.byte(CAPABILITIES_POINTER).map(|p| usize::from(p & !3)) else { return Found::Hidden };
        // A capability takes at least four bytes, so a longer list contains a loop.
        for _ in 0..256 / 4 {
            if at < HEADER_BYTES {
                return Found::No;
            }
            let (Some(found), Some(next)) = (self.byte(at), self.byte(at + 1)) else { return Found::Hidden };
            if found == id {
                return Found::Yes(at);
            }
            at = usize::from(next & !3);
        }
        Found::No
    }

    /// Returns the offset of the extended capability with this identifier.
    pub fn extended_capability(&self, id: u16) -> Found<usize> {
        if self.bytes.len() <= HEADER_BYTES || self.is_gone() {
            return Found::Hidden;
        }
        // A function without PCI Express has 256 bytes and no extended capabilities.
        if self.bytes.len() <= FIRST_EXTENDED {
            return match self.capability(CAPABILITY_PCI_EXPRESS) {
                Found::No => Found::No,
                _ => Found::Hidden,
            };
        }
        let mut at = FIRST_EXTENDED;
        for _ in 0..(EXTENDED_BYTES - FIRST_EXTENDED) / 4 {
            let Some(header) = self.dword(at) else { return Found::Hidden };
            if header == 0 || header == u32::MAX {
                return Found::No;
            }
            if header as u16 == id {
                return Found::Yes(at);
            }
            at = (header >> 20) as usize & !3;
            if at < FIRST_EXTENDED {
                return Found::No;
            }
        }
        Found::No
    }

    /// Returns the function's role on its link.
    #[cfg(feature = "internals")]
    pub fn port_kind(&self) -> Found<PortKind> {
        let at = match self.capability(CAPABILITY_PCI_EXPRESS) {
            Found::Yes(at) => at,
            Found::No => return Found::No,
            Found::Hidden => return Found::Hidden,
        };
        let Some(register) = self.word(at + 2) else { return Found::Hidden };
        Found::Yes(match (register >> 4) as u8 & 0xf {
            0 | 1 | 9 => PortKind::Endpoint,
            4 => PortKind::Root,
            5 => PortKind::Upstream,
            6 => PortKind::Downstream,
            n => PortKind::Other(n),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::Config;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_lists_are_walked() {
        let c = ConfigSpace::from_bytes(Config { port: 6, acs: Some((0x5f, 0x1d)), ..Config::default() }.bytes());
        assert_eq!(c.capability(0x10), Found::Yes(0x60));
        assert_eq!(c.capability(0x11), Found::No);
        assert_eq!(c.port_kind(), Found::Yes(PortKind::Downstream));
        assert_eq!(c.extended_capability(0x000d), Found::Yes(0x140));
        assert_eq!(c.extended_capability(0x0015), Found::No);
    }

    #[test]
    fn what_is_not_shown_is_hidden_and_not_absent() {
        let c = ConfigSpace::from_bytes(Config { header_only: true, acs: Some((1, 1)), ..Config::default() }.bytes());
        assert_eq!(c.extended_capability(0x000d), Found::Hidden);
        assert_eq!(c.port_kind(), Found::Hidden);
        assert_eq!(ConfigSpace::from_bytes(Vec::new()).extended_capability(0x000d), Found::Hidden);
        assert_eq!(ConfigSpace::from_bytes(vec![0xff; 4096]).extended_capability(0x000d), Found::Hidden);
    }

    #[test]
    fn a_list_in_a_circle_ends() {
        let mut bytes = Config::default().bytes();
        bytes[0x100..0x104].copy_from_slice(&(1u32 | 1 << 16 | 0x100 << 20).to_le_bytes());
        bytes[0x61] = 0x40;
        let c = ConfigSpace::from_bytes(bytes);
        assert_eq!(c.extended_capability(0x000d), Found::No);
        assert_eq!(c.capability(0x11), Found::No);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..4200), id: u16) {
            let c = ConfigSpace::from_bytes(bytes);
            let _ = (c.extended_capability(id), c.capability(id as u8), c.port_kind());
        }
    }
}
