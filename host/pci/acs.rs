//! Access Control Services (ACS): a port forwards peer-to-peer requests, or redirects them to the root complex.

use super::config::{ConfigSpace, Found};
use super::{Bdf, Sysfs};
use serde::Serialize;
use std::fmt;

/// Identifier of the extended capability (PCI Express Base 6.0, 7.7.11.1).
const CAPABILITY: u16 = 0x000d;
/// Offset of the ACS Capability Register from the start of the capability (7.7.11.2).
const CAPABILITY_REGISTER: usize = 4;
/// Offset of the ACS Control Register from the start of the capability (7.7.11.3).
const CONTROL_REGISTER: usize = 6;

/// Bits of both registers, lowest first, with `lspci`'s names.
const BITS: [(u16, &str); 7] = [
    (1 << 0, "SrcValid"),
    (1 << 1, "TransBlk"),
    (1 << 2, "ReqRedir"),
    (1 << 3, "CmpltRedir"),
    (1 << 4, "UpstreamFwd"),
    (1 << 5, "EgressCtrl"),
    (1 << 6, "DirectTrans"),
];

/// Bits that prevent direct transfers between peers: P2P Request Redirect, P2P Completion Redirect and P2P Egress
/// Control, as in the kernel's own peer-to-peer code (Linux, drivers/pci/p2pdma.c, `pci_bridge_has_acs_redir`).
const REDIRECT: u16 = 1 << 2 | 1 << 3 | 1 << 5;

/// ACS registers of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acs {
    /// Functions that the port supports.
    pub capability: u16,
    /// Functions that are switched on.
    pub control: u16,
}

impl Acs {
    /// Returns true if the port redirects peer requests or completions to the root complex, or blocks them.
    pub fn redirects(self) -> bool {
        self.control & REDIRECT != 0
    }
}

impl fmt::Display for Acs {
    /// Prints the functions that are switched on, by `lspci`'s names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on: Vec<_> = BITS.iter().filter(|(bit, _)| self.control & bit != 0).map(|(_, word)| *word).collect();
        if on.is_empty() { f.write_str("none") } else { f.write_str(&on.join(" ")) }
    }
}

/// Reads the ACS registers of a port.
pub fn acs(sysfs: &Sysfs, port: Bdf) -> Found<Acs> {
    of(&ConfigSpace::read(sysfs, port))
}

fn of(config: &ConfigSpace) -> Found<Acs> {
    match config.extended_capability(CAPABILITY) {
        Found::Yes(at) => match (config.word(at + CAPABILITY_REGISTER), config.word(at + CONTROL_REGISTER)) {
            (Some(capability), Some(control)) => Found::Yes(Acs { capability, control }),
            _ => Found::Hidden,
        },
        Found::No => Found::No,
        Found::Hidden => Found::Hidden,
    }
}

/// Effect of ACS on a path through several ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AcsPath {
    /// Ports that redirect or block.
    #[serde(serialize_with = "as_texts")]
    pub redirecting: Vec<Bdf>,
    /// Ports whose registers the kernel did not show.
    #[serde(serialize_with = "as_texts")]
    pub hidden: Vec<Bdf>,
}

fn as_texts<S: serde::Serializer>(all: &[Bdf], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(all.iter().map(Bdf::to_string))
}

impl AcsPath {
    /// Reads the ACS registers of every port.
    pub fn read(sysfs: &Sysfs, ports: &[Bdf]) -> Self {
        let mut this = Self::default();
        for &port in ports {
            match acs(sysfs, port) {
                Found::Yes(acs) if acs.redirects() => this.redirecting.push(port),
                Found::Yes(_) | Found::No => {}
                Found::Hidden => this.hidden.push(port),
            }
        }
        this
    }

    /// Returns the steps that switch redirection off at the ports that redirect.
    pub fn switch_off(&self) -> String {
        let ports: Vec<_> = self.redirecting.iter().map(Bdf::to_string).collect();
        let (spaced, joined) = (ports.join(" "), ports.join(";"));
        format!(
            "pci=disable_acs_redir={joined} on the kernel command line and reboot; until then, as root: for p in {spaced}; do setpci -s $p ECAP_ACS+6.w=0; done"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Config, Device, Fixture};
    use super::*;

    #[test]
    fn redirection_is_told_from_other_bits() {
        let of_control = |control| Acs { capability: 0x5f, control };
        // Bits that the kernel sets if there is an IOMMU: source validation, both redirects, upstream forwarding.
        assert!(of_control(0x1d).redirects());
        assert!(of_control(0x20).redirects());
        assert!(!of_control(0x11).redirects());
        assert_eq!(of_control(0x1d).to_string(), "SrcValid ReqRedir CmpltRedir UpstreamFwd");
        assert_eq!(of_control(0).to_string(), "none");
    }

    #[test]
    fn every_port_of_a_path_is_sorted() {
        let tree = Fixture::new();
        let port = |config| Device { class: 0x06_04_00, config, ..Device::default() };
        let with = |control| Some(Config { port: 6, acs: Some((0x5f, control)), ..Config::default() });
        tree.pci("pci0000:00/0000:00:01.0", &port(with(0x1d)))
            .pci("pci0000:00/0000:00:02.0", &port(with(0)))
            .pci("pci0000:00/0000:00:03.0", &port(Some(Config { port: 6, ..Config::default() })))
            .pci("pci0000:00/0000:00:04.0", &port(Some(Config { header_only: true, ..Config::default() })))
            .pci("pci0000:00/0000:00:05.0", &port(None));
        let ports: Vec<Bdf> = (1..=5).map(|d| format!("00:{d:02x}.0").parse().unwrap()).collect();
        let path = AcsPath::read(&Sysfs::at(tree.root()), &ports);
        assert_eq!(path, AcsPath { redirecting: vec![ports[0]], hidden: vec![ports[3], ports[4]] });
        assert_eq!(acs(&Sysfs::at(tree.root()), ports[2]), Found::No);
    }

    #[test]
    fn a_capability_that_is_cut_off_is_hidden() {
        let mut bytes = Config { acs: Some((0x5f, 0x1d)), ..Config::default() }.bytes();
        bytes.truncate(0x145);
        assert_eq!(of(&ConfigSpace::from_bytes(bytes)), Found::Hidden);
    }
}
