//! Reads the facts that the NVIDIA kernel module reports under `/proc/driver/nvidia`.

use crate::pci::Sysfs;
use std::collections::HashMap;

/// The kernel module, as its files describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Version, as in `580.159.04`; `None` without a module, or without a version in the file.
    pub version: Option<String>,
    /// True for the open kernel modules, false for the proprietary ones.
    pub open: Option<bool>,
    /// Module parameters; `None` if they cannot be read.
    pub parameters: Option<Parameters>,
}

/// Parameters with which the module was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    values: HashMap<String, String>,
}

impl Module {
    /// Reads `/proc/driver/nvidia`.
    pub fn read(sysfs: &Sysfs) -> Self {
        let version = sysfs.text("/proc/driver/nvidia/version").unwrap_or_default();
        let line = version.lines().find(|l| l.starts_with("NVRM version:"));
        let number = line.and_then(|l| {
            l.split_whitespace().find(|w| {
                w.contains('.') && w.split('.').all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
            })
        });
        Self {
            version: number.map(str::to_owned),
            open: number.and(line).map(|l| l.contains("Open Kernel Module")),
            parameters: sysfs.text("/proc/driver/nvidia/params").ok().filter(|t| t.contains(':')).map(|t| parse(&t)),
        }
    }

    /// Returns true if the module is loaded.
    pub fn is_loaded(&self) -> bool {
        self.version.is_some()
    }

    /// Returns the numbers of the version, most significant first.
    pub fn release(&self) -> Option<Vec<u32>> {
        release(self.version.as_deref()?)
    }
}

/// Returns the numbers of a driver version such as `580.159.04`; `None` if a part is no number.
pub fn release(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|p| p.parse().ok()).collect()
}

impl Parameters {
    /// Returns a parameter's number, as in `DmaRemapPeerMmio: 1`.
    pub fn number(&self, name: &str) -> Option<u64> {
        number(self.values.get(name)?)
    }

    /// Returns the number of a key in `RegistryDwords`, as in `"PeerMappingOverride=1;RMForceStaticBar1=1"`.
    pub fn registry(&self, key: &str) -> Option<u64> {
        let all = self.values.get("RegistryDwords")?.trim_matches('"');
        all.split(';')
            .filter_map(|pair| pair.split_once('='))
            .find(|(k, _)| k.trim() == key)
            .and_then(|(_, v)| number(v))
    }
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn parse(text: &str) -> Parameters {
    let pairs = text.lines().filter_map(|l| l.split_once(':'));
    Parameters { values: pairs.map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned())).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fixture::Fixture;
    use proptest::prelude::*;

    #[test]
    fn version_and_parameters_are_read() {
        let tree = Fixture::new();
        tree.file(
            "/proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x@y)\nGCC version: 12\n",
        );
        tree.file(
            "/proc/driver/nvidia/params",
            "DmaRemapPeerMmio: 1\nGrdmaPciTopoCheckOverride: 0\nRegistryDwords: \"PeerMappingOverride=0x1; A=2;\"\n",
        );
        let m = Module::read(&Sysfs::at(tree.root()));
        assert_eq!((m.version.as_deref(), m.open), (Some("580.159.04"), Some(true)));
        assert_eq!(m.release(), Some(vec![580, 159, 4]));
        let p = m.parameters.unwrap();
        assert_eq!(p.number("DmaRemapPeerMmio"), Some(1));
        assert_eq!(p.registry("PeerMappingOverride"), Some(1));
        assert_eq!((p.registry("A"), p.registry("B"), p.number("C")), (Some(2), None, None));
    }

    #[test]
    fn no_files_or_nonsense_is_unknown() {
        assert_eq!(Module::read(&Sysfs::at("/nowhere")), Module::default());
        let tree = Fixture::new();
        tree.file("/proc/driver/nvidia/version", [0xff, 0xfe, b'\n']).file("/proc/driver/nvidia/params", "nonsense");
        assert_eq!(Module::read(&Sysfs::at(tree.root())), Module::default());
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String) {
            let p = parse(&text);
            let _ = (p.registry("PeerMappingOverride"), p.number("DmaRemapPeerMmio"));
        }
    }
}
