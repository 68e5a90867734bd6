//! Log pages and asynchronous events, read field by field (NVMe Base 2.1, 5.1.12 and 5.1.2).

use super::Status;
use super::identify::{le, text, u16_at, u32_at, u64_at, u128_at};
use serde::Serialize;
use std::fmt;

/// Bytes of the SMART / Health Information log page (NVMe Base 2.1, 5.1.12.1.3).
pub const HEALTH_BYTES: usize = 512;
/// Bytes of one Error Information log entry (NVMe Base 2.1, 5.1.12.1.2).
pub const ERROR_ENTRY_BYTES: usize = 64;
/// Bytes of the Firmware Slot Information log page (NVMe Base 2.1, 5.1.12.1.4).
pub const FIRMWARE_BYTES: usize = 512;
/// Largest number of firmware slots of a controller.
const FIRMWARE_SLOTS: usize = 7;
/// Number of temperature sensors in the health log.
const SENSORS: usize = 8;
/// 0 degrees Celsius in kelvin, as the health log rounds it.
const CELSIUS_ZERO: i32 = 273;

/// The SMART / Health Information log page (NVMe Base 2.1, 5.1.12.1.3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// Critical warning bits; [`Health::warnings`] returns them as text.
    pub critical_warning: u8,
    /// Composite temperature in kelvin.
    pub temperature_k: u16,
    /// Remaining spare capacity, in percent.
    pub available_spare: u8,
    /// Threshold of spare capacity below which the controller warns, in percent.
    pub available_spare_threshold: u8,
    /// Used endurance, in percent; may exceed 100.
    pub percentage_used: u8,
    /// Thousands of 512-byte units read.
    pub data_units_read: u128,
    /// Thousands of 512-byte units written.
    pub data_units_written: u128,
    /// Read commands completed.
    pub read_commands: u128,
    /// Write commands completed.
    pub write_commands: u128,
    /// Minutes in which the controller had commands.
    pub busy_minutes: u128,
    /// Power cycles.
    pub power_cycles: u128,
    /// Hours powered on.
    pub power_on_hours: u128,
    /// Number of power losses without a shutdown.
    pub unsafe_shutdowns: u128,
    /// Unrecovered data integrity errors.
    pub media_errors: u128,
    /// Number of entries ever written to the error log.
    pub error_log_entries: u128,
    /// Minutes above the warning temperature (WCTEMP).
    pub warning_temperature_minutes: u32,
    /// Minutes above the critical temperature (CCTEMP).
    pub critical_temperature_minutes: u32,
    /// Temperature sensors in kelvin; 0 for a missing one.
    pub sensors_k: [u16; SENSORS],
}

impl Health {
    /// Decodes the 512 bytes of the log page. Missing bytes read as zero.
    pub fn new(b: &[u8]) -> Self {
        Self {
            critical_warning: le::<1>(b, 0)[0],
            temperature_k: u16_at(b, 1),
            available_spare: le::<1>(b, 3)[0],
            available_spare_threshold: le::<1>(b, 4)[0],
            percentage_used: le::<1>(b, 5)[0],
            data_units_read: u128_at(b, 32),
            data_units_written: u128_at(b, 48),
            read_commands: u128_at(b, 64),
            write_commands: u128_at(b, 80),
            busy_minutes: u128_at(b, 96),
            power_cycles: u128_at(b, 112),
            power_on_hours: u128_at(b, 128),
            unsafe_shutdowns: u128_at(b, 144),
            media_errors: u128_at(b, 160),
            error_log_entries: u128_at(b, 176),
            warning_temperature_minutes: u32_at(b, 192),
            critical_temperature_minutes: u32_at(b, 196),
            sensors_k: std::array::from_fn(|i| u16_at(b, 200 + 2 * i)),
        }
    }

    /// Returns the composite temperature in degrees Celsius.
    pub fn celsius(&self) -> i32 {
        i32::from(self.temperature_k) - CELSIUS_ZERO
    }

    /// Returns the active critical warnings as text.
    pub fn warnings(&self) -> Vec<&'static str> {
        const WORDS: [&str; 6] = [
            "spare capacity is below its threshold",
            "a temperature is beyond its threshold",
            "the subsystem's reliability is degraded",
            "the media are read only",
            "the backup of volatile memory has failed",
            "the persistent memory region is read only or unreliable",
        ];
        WORDS.into_iter().enumerate().filter(|(i, _)| self.critical_warning >> i & 1 != 0).map(|(_, w)| w).collect()
    }
}

/// One entry of the Error Information log page (NVMe Base 2.1, 5.1.12.1.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorLogEntry {
    /// Number of the error since the controller was made; 0 marks an unused entry.
    pub count: u64,
    /// Submission queue identifier; 0xffff if the error belongs to none.
    pub sqid: u16,
    /// Command identifier; 0xffff if the error belongs to none.
    pub cid: u16,
    /// Status of the command.
    pub status: Status,
    /// Location of the faulty command parameter: its byte in 7:0, its bit in 10:8; 0xffff if not reported.
    pub parameter: u16,
    /// First logical block that failed.
    pub lba: u64,
    /// Namespace identifier.
    pub nsid: u32,
    /// Log page with more details; 0 for none.
    pub vendor_log: u8,
    /// Command-specific information.
    pub command_specific: u64,
}

impl ErrorLogEntry {
    /// Decodes the 64 bytes of an entry. Missing bytes read as zero.
    pub fn new(b: &[u8]) -> Self {
        Self {
            count: u64_at(b, 0),
            sqid: u16_at(b, 8),
            cid: u16_at(b, 10),
            // Bit 0 is the phase tag of the completion.
            status: Status(u16_at(b, 12) >> 1),
            parameter: u16_at(b, 14),
            lba: u64_at(b, 16),
            nsid: u32_at(b, 24),
            vendor_log: le::<1>(b, 28)[0],
            command_specific: u64_at(b, 32),
        }
    }
}

/// The Firmware Slot Information log page (NVMe Base 2.1, 5.1.12.1.4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FirmwareSlots {
    /// The slot of the running firmware, from 1.
    pub active: u8,
    /// The slot that the next reset activates; 0 if none is selected.
    pub next: u8,
    /// Revisions in slots 1, 2, ...; empty for an empty slot.
    pub revisions: [String; FIRMWARE_SLOTS],
}

impl FirmwareSlots {
    /// Decodes the 512 bytes of the log page. Missing bytes read as zero.
    pub fn new(b: &[u8]) -> Self {
        const AT: usize = 8;
        let slots = le::<1>(b, 0)[0];
        let revision = |i: usize| text(b.get(AT + 8 * i..AT + 8 * i + 8).unwrap_or_default());
        Self { active: slots & 7, next: slots >> 4 & 7, revisions: std::array::from_fn(revision) }
    }
}

/// An asynchronous event: dword 0 of the completion of an Asynchronous Event Request (NVMe Base 2.1, 5.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AsyncEvent(pub u32);

/// Type of an event. It determines the log page, and which further events reading that page permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// An error that belongs to no command.
    Error,
    /// A condition in the health log.
    Health,
    /// A change that concerns the host.
    Notice,
    /// An event that needs immediate handling.
    Immediate,
    /// An event of an I/O command set.
    Command,
    /// A vendor-specific event.
    Vendor,
    /// A type that is not defined.
    Reserved,
}

impl AsyncEvent {
    /// Returns the type (bits 2:0).
    pub const fn kind(self) -> EventKind {
        match self.0 & 7 {
            0 => EventKind::Error,
            1 => EventKind::Health,
            2 => EventKind::Notice,
            3 => EventKind::Immediate,
            6 => EventKind::Command,
            7 => EventKind::Vendor,
            _ => EventKind::Reserved,
        }
    }
    /// Returns the event within its type (bits 15:8).
    pub const fn information(self) -> u8 {
        (self.0 >> 8) as u8
    }
    /// Returns the log page that describes the event (bits 23:16). Reading it permits the next event of this type.
    pub const fn log_page(self) -> u8 {
        (self.0 >> 16) as u8
    }
    /// Returns the specification's name of the event (NVMe Base 2.1, figures "Asynchronous Event Information").
    pub const fn name(self) -> &'static str {
        match (self.kind(), self.information()) {
            (EventKind::Error, 0) => "write to an invalid doorbell register",
            (EventKind::Error, 1) => "invalid doorbell write value",
            (EventKind::Error, 2) => "diagnostic failure",
            (EventKind::Error, 3) => "persistent internal error",
            (EventKind::Error, 4) => "transient internal error",
            (EventKind::Error, 5) => "firmware image load error",
            (EventKind::Health, 0) => "subsystem reliability degraded",
            (EventKind::Health, 1) => "temperature beyond a threshold",
            (EventKind::Health, 2) => "spare below its threshold",
            (EventKind::Notice, 0) => "namespace attribute changed",
            (EventKind::Notice, 1) => "firmware activation starting",
            (EventKind::Notice, 2) => "telemetry log changed",
            (EventKind::Notice, 3) => "asymmetric namespace access changed",
            (EventKind::Notice, 4) => "predictable latency event log changed",
            (EventKind::Notice, 5) => "LBA status information alert",
            (EventKind::Notice, 6) => "endurance group event log changed",
            (EventKind::Vendor, _) => "vendor specific",
            _ => "not listed",
        }
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, information, page) = (self.0 & 7, self.information(), self.log_page());
        write!(f, "{} (type {kind:#x}, information {information:#04x}, log page {page:#04x})", self.name())
    }
}

impl fmt::Debug for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::status;

    #[test]
    fn error_entries_decode() {
        let mut e = [0u8; ERROR_ENTRY_BYTES];
        (e[0], e[8], e[10], e[16], e[24], e[28], e[32]) = (3, 2, 7, 9, 1, 0xc1, 5);
        e[12..14].copy_from_slice(&(status::LBA_OUT_OF_RANGE.0 << 1 | 1).to_le_bytes());
        e[14..16].copy_from_slice(&40u16.to_le_bytes());
        let e = ErrorLogEntry::new(&e);
        assert_eq!((e.count, e.sqid, e.cid, e.status, e.lba, e.nsid), (3, 2, 7, status::LBA_OUT_OF_RANGE, 9, 1));
        assert_eq!((e.parameter, e.vendor_log, e.command_specific), (40, 0xc1, 5));
        assert_eq!(ErrorLogEntry::new(&[]), ErrorLogEntry::default());
    }

    #[test]
    fn health_decodes() {
        let mut h = [0u8; HEALTH_BYTES];
        h[0] = 0b1010;
        h[1..3].copy_from_slice(&300u16.to_le_bytes());
        (h[3], h[4], h[5], h[64], h[96], h[112], h[192], h[196], h[202]) = (100, 10, 3, 5, 6, 7, 8, 9, 44);
        let h = Health::new(&h);
        assert_eq!((h.temperature_k, h.celsius(), h.read_commands), (300, 27, 5));
        assert_eq!((h.available_spare, h.available_spare_threshold, h.percentage_used), (100, 10, 3));
        assert_eq!((h.busy_minutes, h.power_cycles), (6, 7));
        assert_eq!((h.warning_temperature_minutes, h.critical_temperature_minutes, h.sensors_k[1]), (8, 9, 44));
        assert_eq!(h.warnings(), ["a temperature is beyond its threshold", "the media are read only"]);
    }

    #[test]
    fn firmware_slots_decode() {
        let mut b = [0u8; FIRMWARE_BYTES];
        b[0] = 0x21;
        b[8..16].copy_from_slice(b"1.0     ");
        b[16..24].copy_from_slice(b"2.0b    ");
        let f = FirmwareSlots::new(&b);
        assert_eq!((f.active, f.next), (1, 2));
        assert_eq!((f.revisions[0].as_str(), f.revisions[1].as_str(), f.revisions[2].as_str()), ("1.0", "2.0b", ""));
    }

    #[test]
    fn events_decode() {
        let e = AsyncEvent(1 | 1 << 8 | 2 << 16);
        assert_eq!((e.kind(), e.information(), e.log_page()), (EventKind::Health, 1, 2));
        assert_eq!(e.to_string(), "temperature beyond a threshold (type 0x1, information 0x01, log page 0x02)");
        assert_eq!(AsyncEvent(5).kind(), EventKind::Reserved);
        assert_eq!(AsyncEvent(2 | 99 << 8).name(), "not listed");
    }
}
