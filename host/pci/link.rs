//! The PCIe link of a function: current and maximum speed and width.

use super::{Bdf, Sysfs};
use serde::Serialize;
use std::fmt;

/// Transfer rates of the PCIe generations in tenths of GT/s (PCI Express Base 6.0, 1.2).
const GENERATIONS: [u32; 6] = [25, 50, 80, 160, 320, 640];

/// Transfer rate in tenths of GT/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Rate(pub u32);

impl Rate {
    /// Parses `16.0 GT/s PCIe` and the older form `16 GT/s`; `None` for `Unknown` and other texts.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.split_whitespace().next()?;
        let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
        let tenth: u32 = tenth.get(..1)?.parse().ok()?;
        let rate = whole.parse::<u32>().ok()?.checked_mul(10)?.checked_add(tenth)?;
        (rate > 0).then_some(Self(rate))
    }

    /// Returns the PCIe generation, from 1; `None` for a rate of no generation.
    pub fn generation(self) -> Option<usize> {
        GENERATIONS.iter().position(|g| *g == self.0).map(|i| i + 1)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.generation() {
            Some(g) => write!(f, "Gen{g}"),
            None => write!(f, "{}.{} GT/s", self.0 / 10, self.0 % 10),
        }
    }
}

/// Speed and width of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Lanes {
    /// Transfer rate.
    #[serde(rename = "tenths_of_gt_per_s")]
    pub rate: Rate,
    /// Number of lanes.
    pub width: u32,
}

impl fmt::Display for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x{}", self.rate, self.width)
    }
}

/// A function's link, as far as the kernel shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Current state. GPUs slow down while they are idle.
    pub now: Option<Lanes>,
    /// Maximum of the function.
    pub max: Option<Lanes>,
}

impl Link {
    /// Reads a function's link. Virtual machines often show nothing, or a link without lanes.
    pub fn read(sysfs: &Sysfs, bdf: Bdf) -> Self {
        let lanes = |prefix: &str| {
            let file = |name| format!("/sys/bus/pci/devices/{bdf}/{prefix}_link_{name}");
            let rate = Rate::parse(&sysfs.text(file("speed")).ok()?)?;
            // The kernel shows 255 for an unknown width.
            let width = u32::try_from(sysfs.number(file("width"))?).ok().filter(|w| (1..=32).contains(w))?;
            Some(Lanes { rate, width })
        };
        Self { now: lanes("current"), max: lanes("max") }
    }

    /// Returns true if fewer lanes are in use than the function has.
    pub fn is_narrow(self) -> bool {
        matches!((self.now, self.max), (Some(now), Some(max)) if now.width < max.width)
    }

    /// Returns true if the link is slower than the function's maximum.
    pub fn is_slow(self) -> bool {
        matches!((self.now, self.max), (Some(now), Some(max)) if now.rate < max.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Device, Fixture};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_are_read_in_both_forms() {
        assert_eq!(Rate::parse("32.0 GT/s PCIe"), Some(Rate(320)));
        assert_eq!(Rate::parse("2.5 GT/s").unwrap().to_string(), "Gen1");
        assert_eq!(Rate::parse("8 GT/s").unwrap().generation(), Some(3));
        assert_eq!(Rate::parse("3.0 GT/s").unwrap().to_string(), "3.0 GT/s");
        for text in ["", "Unknown", "Unknown speed", ".", "0.0 GT/s", "-1", "5.\u{e9}"] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_narrow_link_is_seen() {
        let tree = Fixture::new();
        let device = |link| Device { link: Some(link), ..Device::default() };
        tree.pci("pci0000:00/0000:01:00.0", &device(("16.0", 2, "16.0", 4)))
            .pci("pci0000:00/0000:02:00.0", &device(("2.5", 16, "32.0", 16)))
            .pci("pci0000:00/0000:03:00.0", &device(("Unknown", 0, "Unknown", 255)));
        let link = |text: &str| Link::read(&Sysfs::at(tree.root()), text.parse().unwrap());
        assert!(link("01:00.0").is_narrow() && !link("01:00.0").is_slow());
        assert_eq!(link("01:00.0").now.unwrap().to_string(), "Gen4 x2");
        assert!(!link("02:00.0").is_narrow() && link("02:00.0").is_slow());
        assert_eq!(link("03:00.0"), Link { now: None, max: None });
        assert_eq!(link("04:00.0"), Link { now: None, max: None });
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String) {
            let _ = Rate::parse(&text).map(|r| r.to_string());
        }
    }
}
