//! Traffic class: the byte of an IP header that determines a RoCE packet's priority.

use crate::pci::Sysfs;
use serde::Serialize;
use std::fmt;

/// Traffic class of IPv6, type of service of IPv4: six bits of differentiated services code point, two of congestion
/// notification (RFC 2474, 3; RFC 3168, 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TrafficClass(pub u8);

/// Low bits of a sender that supports congestion marks: ECT(0) (RFC 3168, 5).
const ECT_0: u8 = 0b10;
/// Number of bits below the differentiated services code point.
const ECN_BITS: u32 = 2;
/// Low bits of the customary code point within a priority. RoCE guides recommend AF31 (26) in priority 3, and its
/// counterparts in the others.
const ASSURED: u8 = 2;

impl TrafficClass {
    /// Returns the customary class of a priority: 106 for priority 3.
    pub fn customary(priority: u8) -> Self {
        Self::of_dscp(priority % 8 * 8 + ASSURED)
    }

    /// Returns the class of a code point (0 to 63) whose sender supports congestion marks.
    pub fn of_dscp(dscp: u8) -> Self {
        Self(dscp << ECN_BITS | ECT_0)
    }

    /// Returns the differentiated services code point, 0 to 63.
    pub fn dscp(self) -> u8 {
        self.0 >> ECN_BITS
    }

    /// Returns the default priority of the code point in devices: its three high bits (RFC 2474, 4.2.2).
    pub fn default_priority(self) -> u8 {
        self.dscp() >> 3
    }
}

impl fmt::Display for TrafficClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (DSCP {})", self.0, self.dscp())
    }
}

/// The class that mlx5's driver forces on queue pairs created through verbs, whatever their programs request. The
/// driver does not force it on queue pairs created by firmware commands (DevX). They need the same class explicitly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassOverride {
    /// The driver has no such file: only NVIDIA's driver packages have it.
    NoFile,
    /// The file exists and forces no class.
    Unset,
    /// The driver forces this class.
    Forced(TrafficClass),
    /// The file cannot be read or parsed.
    Unknown,
}

impl ClassOverride {
    /// Returns the path of the file that forces a class, for example for `mlx5_0` and port 1.
    pub fn file(device: &str, port: u32) -> String {
        format!("/sys/class/infiniband/{device}/tc/{port}/traffic_class")
    }

    /// Reads the file of a port.
    pub fn read(sysfs: &Sysfs, device: &str, port: u32) -> Self {
        let file = Self::file(device, port);
        if !sysfs.exists(&file) {
            return Self::NoFile;
        }
        sysfs.text(&file).map_or(Self::Unknown, |t| parse(&t))
    }

    /// Returns the forced class; `None` if there is none.
    pub fn forced(self) -> Option<TrafficClass> {
        match self {
            Self::Forced(class) => Some(class),
            _ => None,
        }
    }
}

/// Parses the line `Global tclass=106`. Lines after it hold rules for single peers. Without a global class the line is
/// missing.
fn parse(text: &str) -> ClassOverride {
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty()).peekable();
    let global = lines.clone().find_map(|l| l.strip_prefix("Global tclass="));
    match (global, lines.peek()) {
        (Some(number), _) => {
            number.trim().parse().map_or(ClassOverride::Unknown, |n| ClassOverride::Forced(TrafficClass(n)))
        }
        (None, None) => ClassOverride::Unset,
        (None, Some(rule)) if rule.contains("tclass") => ClassOverride::Unset,
        (None, Some(_)) => ClassOverride::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fixture::Fixture;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_lines_are_read() {
        assert_eq!(parse("Global tclass=106\n"), ClassOverride::Forced(TrafficClass(106)));
        assert_eq!(parse("Global tclass=0\ntclass=5 src_ip=1.1.1.1"), ClassOverride::Forced(TrafficClass(0)));
        assert_eq!(parse(""), ClassOverride::Unset);
        assert_eq!(parse("tclass=5 dst_ip=1.1.1.1\n"), ClassOverride::Unset);
        for text in ["Global tclass=256", "Global tclass=x", "nonsense"] {
            assert_eq!(parse(text), ClassOverride::Unknown, "{text}");
        }
    }

    #[test]
    fn a_driver_without_the_file_is_not_one_without_a_class() {
        let tree = Fixture::new();
        let read = || ClassOverride::read(&Sysfs::at(tree.root()), "mlx5_0", 1);
        assert_eq!(read(), ClassOverride::NoFile);
        tree.file(&ClassOverride::file("mlx5_0", 1), "");
        assert_eq!(read(), ClassOverride::Unset);
        tree.file(&ClassOverride::file("mlx5_0", 1), [0xff]);
        assert_eq!(read(), ClassOverride::Unknown);
    }

    #[test]
    fn bits_have_their_places() {
        let class = TrafficClass(106);
        assert_eq!((class.dscp(), class.default_priority()), (26, 3));
        assert_eq!(class.to_string(), "106 (DSCP 26)");
        assert_eq!(TrafficClass::customary(3), class);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(Global tclass=[0-9]{0,4}|tclass=.*|.*)\n?") {
            let _ = parse(&text);
        }

        #[test]
        fn the_customary_class_is_in_its_priority(priority in 0u8..8) {
            prop_assert_eq!(TrafficClass::customary(priority).default_priority(), priority);
        }
    }
}
