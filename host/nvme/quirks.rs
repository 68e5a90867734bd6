//! Controllers that need other treatment than the specification says.
//!
//! The table has only what concerns a driver that polls, moves data by PRPs and never puts a drive to sleep. The source
//! of every row is the table `nvme_id_table` of Linux (`drivers/nvme/host/pci.c`); each field names its flag there.

use std::fmt;
use std::time::Duration;

/// Vendor and device identifiers of a PCI function (PCI Local Bus 3.0, 6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PciId {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
}

impl fmt::Display for PciId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

/// Deviations from the specification for one controller. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quirks {
    /// Time after the clearing of CC.EN during which CSTS must not be read (`NVME_QUIRK_DELAY_BEFORE_CHK_RDY`).
    /// Meanwhile CSTS reads as ready or as fatal, or the reset fails.
    pub delay_before_ready: Duration,
    /// The controller offers Write Zeroes, but it does not work, or takes far longer than writing
    /// (`NVME_QUIRK_DISABLE_WRITE_ZEROES`).
    pub no_write_zeroes: bool,
    /// Identify works only for a controller or a namespace (`NVME_QUIRK_IDENTIFY_CNS`): the driver
    /// tries namespaces one by one.
    pub no_namespace_list: bool,
    /// Commands that cross a multiple of 128 KiB take twice as long (`NVME_QUIRK_STRIPE_SIZE`). For reports only:
    /// transfers that begin on their own multiple, as those of volumes and caches do, never cross one.
    pub stripe_of_128k: bool,
    /// Submission entries have 128 bytes (`NVME_QUIRK_128_BYTES_SQES`), which this driver does not support.
    pub long_entries: bool,
}

/// `NVME_QUIRK_DELAY_AMOUNT`.
const DELAY: Duration = Duration::from_millis(2300);
const NONE: Quirks = Quirks {
    delay_before_ready: Duration::ZERO,
    no_write_zeroes: false,
    no_namespace_list: false,
    stripe_of_128k: false,
    long_entries: false,
};
const SLOW: Quirks = Quirks { delay_before_ready: DELAY, ..NONE };
const SLOW_ZEROES: Quirks = Quirks { delay_before_ready: DELAY, no_write_zeroes: true, ..NONE };
const ZEROES: Quirks = Quirks { no_write_zeroes: true, ..NONE };
const STRIPE: Quirks = Quirks { stripe_of_128k: true, ..NONE };

/// Vendor ID, device ID, deviations and product name.
const TABLE: &[(u16, u16, Quirks, &str)] = &[
    (0x106b, 0x2005, Quirks { long_entries: true, ..NONE }, "Apple T2"),
    (0x144d, 0xa821, SLOW, "Samsung PM1725"),
    (0x144d, 0xa822, SLOW_ZEROES, "Samsung PM1725a"),
    (0x1bb1, 0x0100, SLOW, "Seagate Nytro"),
    (0x1c58, 0x0003, SLOW, "HGST"),
    (0x1c58, 0x0023, SLOW, "WDC SN200"),
    (0x1c5f, 0x0540, SLOW, "Memblaze Pblaze4"),
    (0x8086, 0x0953, STRIPE, "Intel P3500, P3600, P3700"),
    (0x8086, 0x0a53, STRIPE, "Intel P3520"),
    (0x8086, 0x0a54, STRIPE, "Intel P4500, P4600"),
    (0x8086, 0x0a55, STRIPE, "Intel P4600"),
    (0x8086, 0x5845, Quirks { no_write_zeroes: true, no_namespace_list: true, ..NONE }, "QEMU before 5.0"),
    (0x8086, 0xf1a5, ZEROES, "Intel 600p, P3100"),
];

impl Quirks {
    /// Returns the deviations that the table lists for a PCI function.
    pub fn of(id: PciId) -> Self {
        Self::entry(id).map_or(NONE, |(quirks, _)| quirks)
    }

    fn entry(id: PciId) -> Option<(Self, &'static str)> {
        TABLE.iter().find(|row| (row.0, row.1) == (id.vendor, id.device)).map(|row| (row.2, row.3))
    }

    /// Returns true if there are no deviations.
    pub fn is_empty(&self) -> bool {
        *self == NONE
    }

    /// Returns a description of each deviation.
    pub fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if !self.delay_before_ready.is_zero() {
            words.push(format!("waits {:?} before it checks that a reset is done", self.delay_before_ready));
        }
        for (set, text) in [
            (self.no_write_zeroes, "does not use Write Zeroes"),
            (self.no_namespace_list, "looks for namespaces one by one"),
            (self.stripe_of_128k, "commands that cross a multiple of 128 KiB are slow"),
            (self.long_entries, "submission entries of 128 bytes are not supported"),
        ] {
            if set {
                words.push(text.to_owned());
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_says_something() {
        assert!(TABLE.windows(2).all(|w| (w[0].0, w[0].1) < (w[1].0, w[1].1)));
        assert!(TABLE.iter().all(|row| !row.2.is_empty() && !row.2.words().is_empty() && !row.3.is_empty()));
    }

    #[test]
    fn a_controller_is_found_by_its_function() {
        let quirks = Quirks::of(PciId { vendor: 0x144d, device: 0xa822 });
        assert_eq!(quirks.delay_before_ready, Duration::from_millis(2300));
        assert!(quirks.no_write_zeroes && !quirks.long_entries);
        assert!(Quirks::of(PciId { vendor: 0x1b36, device: 0x0010 }).is_empty());
        assert_eq!(PciId { vendor: 0x144d, device: 0xa822 }.to_string(), "144d:a822");
    }
}
