//! Base address registers (BARs): addresses and sizes of a function's memory, and how large it can be made.

use super::config::{ConfigSpace, Found};
use super::{Bdf, Sysfs};
use serde::Serialize;

/// Number of lines of the file `resource` for BARs; the expansion ROM and bridge windows follow (linux/pci.h,
/// PCI_STD_NUM_BARS).
const BARS: usize = 6;
/// `IORESOURCE_MEM` (linux/ioport.h).
const FLAG_MEMORY: u64 = 0x200;

/// Identifier of the Resizable BAR Extended Capability (PCI Express Base 6.0, 7.8.6.1).
const CAPABILITY_RESIZABLE: u16 = 0x0015;
/// Size in bytes of the capability and the control register of each resizable BAR (7.8.6.2, 7.8.6.3).
const ENTRY_BYTES: usize = 8;
/// Maximum number of resizable BARs.
const MAX_ENTRIES: u32 = 6;

/// One memory BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bar {
    /// Index, from 0. A 64-bit BAR takes two indices.
    pub index: usize,
    /// Physical address; 0 if the kernel hides addresses.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// Returns the memory BARs of a function, by index; `None` if the kernel does not show them.
pub fn memory_bars(sysfs: &Sysfs, bdf: Bdf) -> Option<Vec<Bar>> {
    let text = sysfs.text(format!("/sys/bus/pci/devices/{bdf}/resource")).ok()?;
    let mut bars = Vec::new();
    for (index, line) in text.lines().take(BARS).enumerate() {
        let mut numbers = line.split_whitespace().map(|w| u64::from_str_radix(w.strip_prefix("0x")?, 16).ok());
        let (start, end, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if flags & FLAG_MEMORY != 0 && end >= start {
            bars.push(Bar { index, start, bytes: (end - start).saturating_add(1) });
        }
    }
    Some(bars)
}

/// A BAR whose size software can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ResizableBar {
    /// Index of the BAR.
    pub index: usize,
    /// Current size in bytes.
    pub bytes: u64,
    /// Largest size that the function offers, in bytes.
    pub max_bytes: u64,
}

/// Returns the resizable BARs of a function.
pub fn resizable_bars(sysfs: &Sysfs, bdf: Bdf) -> Found<Vec<ResizableBar>> {
    resizable(&ConfigSpace::read(sysfs, bdf))
}

fn resizable(config: &ConfigSpace) -> Found<Vec<ResizableBar>> {
    let start = match config.extended_capability(CAPABILITY_RESIZABLE) {
        Found::Yes(at) => at,
        Found::No => return Found::No,
        Found::Hidden => return Found::Hidden,
    };
    let registers = |i: usize| {
        let at = start + 4 + i * ENTRY_BYTES;
        Some((config.dword(at)?, config.dword(at + 4)?))
    };
    let Some((_, first)) = registers(0) else { return Found::Hidden };
    // Bits 7:5 of the first control register hold the number of resizable BARs.
    let count = (first >> 5 & 7).clamp(1, MAX_ENTRIES);
    let mut found = Vec::new();
    for i in 0..count as usize {
        let Some((capability, control)) = registers(i) else { return Found::Hidden };
        // Bits 31:4 of the capability stand for the sizes 1 MiB to 128 TiB; the upper half of the control for 256 TiB
        // and more.
        let sizes = u64::from(capability >> 4) | u64::from(control >> 16) << 28;
        let bytes = |power: u32| 1u64.checked_shl(power + 20).unwrap_or(u64::MAX);
        found.push(ResizableBar {
            index: (control & 7) as usize,
            bytes: bytes(control >> 8 & 0x3f),
            max_bytes: sizes.checked_ilog2().map_or(0, bytes),
        });
    }
    Found::Yes(found)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Config, Device, Fixture};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bars_are_read_with_their_sizes() {
        let tree = Fixture::new();
        let bars = &[16 << 20, 0, 256 << 30, 0, 32 << 20];
        tree.pci("pci0000:00/0000:01:00.0", &Device { bars, ..Device::default() });
        let sysfs = Sysfs::at(tree.root());
        let read = memory_bars(&sysfs, "01:00.0".parse().unwrap()).unwrap();
        assert_eq!(
            read.iter().map(|b| (b.index, b.bytes)).collect::<Vec<_>>(),
            [(0, 16 << 20), (2, 256 << 30), (4, 32 << 20)]
        );
        assert_eq!(memory_bars(&sysfs, "02:00.0".parse().unwrap()), None);
    }

    #[test]
    fn a_garbled_file_is_unknown() {
        let tree = Fixture::new();
        tree.file("/sys/bus/pci/devices/0000:01:00.0/resource", "0x0 nonsense\n");
        assert_eq!(memory_bars(&Sysfs::at(tree.root()), "01:00.0".parse().unwrap()), None);
    }

    #[test]
    fn what_a_bar_can_become_is_read() {
        // 256 MiB now, up to 32 GiB: bits 8 to 15 of the sizes.
        let config = Config { resizable: Some((1, 0xff00, 8)), ..Config::default() };
        let read = resizable(&ConfigSpace::from_bytes(config.bytes()));
        assert_eq!(read, Found::Yes(vec![ResizableBar { index: 1, bytes: 256 << 20, max_bytes: 32 << 30 }]));
        let none = resizable(&ConfigSpace::from_bytes(Config::default().bytes()));
        assert_eq!(none, Found::No);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(tail in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = Config { resizable: Some((1, 0xff00, 8)), ..Config::default() }.bytes();
            let at = 0x144;
            bytes.truncate(at);
            bytes.extend(tail);
            let _ = resizable(&ConfigSpace::from_bytes(bytes));
        }
    }
}
