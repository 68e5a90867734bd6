//! What a controller says about itself: Identify data structures and log pages, read field by field.

use std::fmt;

/// Bytes of the SMART / Health Information log page (NVMe Base 2.1, 5.1.12.1.3).
pub const HEALTH_BYTES: usize = 512;
/// Bytes of one Error Information log entry (NVMe Base 2.1, 5.1.12.1.2).
pub const ERROR_ENTRY_BYTES: usize = 64;
/// Namespace identifiers in one active namespace list (NVMe Base 2.1, 5.1.13.2.2).
pub const NAMESPACE_LIST_ENTRIES: usize = 1024;

fn le<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(from) = bytes.get(offset..offset + N) {
        out.copy_from_slice(from);
    }
    out
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(le(bytes, offset))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(le(bytes, offset))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(le(bytes, offset))
}

fn u128_at(bytes: &[u8], offset: usize) -> u128 {
    u128::from_le_bytes(le(bytes, offset))
}

/// ASCII padded with spaces (NVMe Base 2.1, 1.4.2); what is not printable becomes `?`.
fn text(bytes: &[u8]) -> String {
    let s: String =
        bytes.iter().map(|&b| if b == 0 || b.is_ascii_graphic() || b == b' ' { b as char } else { '?' }).collect();
    s.trim_matches(|c: char| c == ' ' || c == '\0').to_owned()
}

/// The Identify Controller data structure (NVMe Base 2.1, 5.1.13.2.1).
#[derive(Clone, PartialEq, Eq)]
pub struct IdentifyController(Box<[u8]>);

impl IdentifyController {
    /// From the 4096 bytes that the controller wrote; bytes that are missing read as zero.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
    /// The bytes as they came.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
    /// PCI vendor (VID).
    pub fn vendor(&self) -> u16 {
        u16_at(&self.0, 0)
    }
    /// Serial number (SN).
    pub fn serial(&self) -> String {
        text(self.0.get(4..24).unwrap_or_default())
    }
    /// Model number (MN).
    pub fn model(&self) -> String {
        text(self.0.get(24..64).unwrap_or_default())
    }
    /// Firmware revision (FR).
    pub fn firmware(&self) -> String {
        text(self.0.get(64..72).unwrap_or_default())
    }
    /// Largest data transfer as a power of two of the smallest memory page, 0 for no limit (MDTS).
    pub fn mdts(&self) -> u8 {
        le::<1>(&self.0, 77)[0]
    }
    /// Controller identifier within the subsystem (CNTLID).
    pub fn controller_id(&self) -> u16 {
        u16_at(&self.0, 78)
    }
    /// Version, as the VS register has it (VER).
    pub fn version(&self) -> u32 {
        u32_at(&self.0, 80)
    }
    /// Microseconds that a normal shutdown may take, 0 if not reported (RTD3E).
    pub fn shutdown_us(&self) -> u32 {
        u32_at(&self.0, 88)
    }
    /// Optional admin commands (OACS).
    pub fn oacs(&self) -> u16 {
        u16_at(&self.0, 256)
    }
    /// Abort commands that may be outstanding (ACL, made one-based).
    pub fn abort_limit(&self) -> u16 {
        u16::from(le::<1>(&self.0, 258)[0]) + 1
    }
    /// Entries in the error log (ELPE, made one-based).
    pub fn error_log_entries(&self) -> u16 {
        u16::from(le::<1>(&self.0, 262)[0]) + 1
    }
    /// log2 of the required and of the largest submission entry (SQES, 3:0 and 7:4).
    pub fn sq_entry_shift(&self) -> (u8, u8) {
        let b = le::<1>(&self.0, 512)[0];
        (b & 0xf, b >> 4)
    }
    /// log2 of the required and of the largest completion entry (CQES, 3:0 and 7:4).
    pub fn cq_entry_shift(&self) -> (u8, u8) {
        let b = le::<1>(&self.0, 513)[0];
        (b & 0xf, b >> 4)
    }
    /// Largest namespace identifier (NN).
    pub fn namespace_count(&self) -> u32 {
        u32_at(&self.0, 516)
    }
    /// Optional NVM commands (ONCS): 0 compare, 1 write uncorrectable, 2 dataset management, 3 write zeroes.
    pub fn oncs(&self) -> u16 {
        u16_at(&self.0, 520)
    }
    /// A volatile write cache is present (VWC bit 0).
    pub fn volatile_write_cache(&self) -> bool {
        le::<1>(&self.0, 525)[0] & 1 != 0
    }
    /// NVM subsystem qualified name (SUBNQN).
    pub fn subsystem_name(&self) -> String {
        let b = self.0.get(768..1024).unwrap_or_default();
        text(b.split(|&c| c == 0).next().unwrap_or_default())
    }
}

impl fmt::Debug for IdentifyController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentifyController")
            .field("model", &self.model())
            .field("serial", &self.serial())
            .field("firmware", &self.firmware())
            .field("vendor", &format_args!("{:#06x}", self.vendor()))
            .field("mdts", &self.mdts())
            .field("namespace_count", &self.namespace_count())
            .field("oacs", &format_args!("{:#06x}", self.oacs()))
            .field("oncs", &format_args!("{:#06x}", self.oncs()))
            .field("volatile_write_cache", &self.volatile_write_cache())
            .finish()
    }
}

/// One LBA format (NVM Command Set 1.1, figure "LBA Format Data Structure").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LbaFormat {
    /// Metadata bytes for each block.
    pub metadata_bytes: u16,
    /// log2 of the data bytes in a block.
    pub data_shift: u8,
}

/// The Identify Namespace data structure of the NVM command set (NVM Command Set 1.1, 4.1.5.1).
#[derive(Clone, PartialEq, Eq)]
pub struct IdentifyNamespace(Box<[u8]>);

impl IdentifyNamespace {
    /// From the 4096 bytes that the controller wrote; bytes that are missing read as zero.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
    /// The bytes as they came.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
    /// Size in logical blocks (NSZE); 0 for an identifier that is not active.
    pub fn blocks(&self) -> u64 {
        u64_at(&self.0, 0)
    }
    /// Blocks that may be allocated (NCAP).
    pub fn capacity(&self) -> u64 {
        u64_at(&self.0, 8)
    }
    /// Blocks allocated (NUSE).
    pub fn used(&self) -> u64 {
        u64_at(&self.0, 16)
    }
    /// Index of the format in use (FLBAS 3:0, and 6:5 above them where there are more than 16 formats).
    pub fn format_index(&self) -> usize {
        let flbas = le::<1>(&self.0, 26)[0];
        let formats = le::<1>(&self.0, 25)[0];
        let low = usize::from(flbas & 0xf);
        if formats >= 16 { low | usize::from(flbas >> 5 & 3) << 4 } else { low }
    }
    /// The format in use.
    pub fn format(&self) -> LbaFormat {
        let word = u32_at(&self.0, 128 + 4 * self.format_index());
        LbaFormat { metadata_bytes: word as u16, data_shift: (word >> 16) as u8 }
    }
    /// Type of end-to-end protection, 0 for none (DPS 2:0).
    pub fn protection(&self) -> u8 {
        le::<1>(&self.0, 29)[0] & 7
    }
    /// The namespace is write protected now (NSATTR bit 0).
    pub fn write_protected(&self) -> bool {
        le::<1>(&self.0, 99)[0] & 1 != 0
    }
}

impl fmt::Debug for IdentifyNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentifyNamespace")
            .field("blocks", &self.blocks())
            .field("format", &self.format())
            .field("protection", &self.protection())
            .finish()
    }
}

/// The SMART / Health Information log page (NVMe Base 2.1, 5.1.12.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Critical warning bits.
    pub critical_warning: u8,
    /// Composite temperature in kelvin.
    pub temperature_k: u16,
    /// Spare capacity left, in percent.
    pub available_spare: u8,
    /// Endurance used, in percent; may pass 100.
    pub percentage_used: u8,
    /// Thousands of 512-byte units read.
    pub data_units_read: u128,
    /// Thousands of 512-byte units written.
    pub data_units_written: u128,
    /// Read commands completed.
    pub read_commands: u128,
    /// Write commands completed.
    pub write_commands: u128,
    /// Power cycles.
    pub power_cycles: u128,
    /// Hours powered on.
    pub power_on_hours: u128,
    /// Power lost without a shutdown.
    pub unsafe_shutdowns: u128,
    /// Unrecovered data integrity errors.
    pub media_errors: u128,
    /// Entries ever put into the error log.
    pub error_log_entries: u128,
}

impl Health {
    /// From the 512 bytes of the log page.
    pub fn new(b: &[u8]) -> Self {
        Self {
            critical_warning: le::<1>(b, 0)[0],
            temperature_k: u16_at(b, 1),
            available_spare: le::<1>(b, 3)[0],
            percentage_used: le::<1>(b, 5)[0],
            data_units_read: u128_at(b, 32),
            data_units_written: u128_at(b, 48),
            read_commands: u128_at(b, 64),
            write_commands: u128_at(b, 80),
            power_cycles: u128_at(b, 112),
            power_on_hours: u128_at(b, 128),
            unsafe_shutdowns: u128_at(b, 144),
            media_errors: u128_at(b, 160),
            error_log_entries: u128_at(b, 176),
        }
    }
}

/// One entry of the Error Information log page (NVMe Base 2.1, 5.1.12.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorLogEntry {
    /// Counts every error of the controller's life; 0 marks an entry that is not in use.
    pub count: u64,
    /// Submission queue.
    pub sqid: u16,
    /// Command identifier.
    pub cid: u16,
    /// Status.
    pub status: super::Status,
    /// First logical block that failed.
    pub lba: u64,
    /// Namespace.
    pub nsid: u32,
}

impl ErrorLogEntry {
    /// From the 64 bytes of an entry.
    pub fn new(b: &[u8]) -> Self {
        Self {
            count: u64_at(b, 0),
            sqid: u16_at(b, 8),
            cid: u16_at(b, 10),
            // Bit 0 is the phase tag of the completion.
            status: super::Status(u16_at(b, 12) >> 1),
            lba: u64_at(b, 16),
            nsid: u32_at(b, 24),
        }
    }
}

/// The identifiers in an active namespace list: ascending, the first 0 ends it.
pub fn namespace_list(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes(le(c, 0))).take_while(|&id| id != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::{IDENTIFY_BYTES, status};

    #[test]
    fn controller_fields_are_where_the_specification_has_them() {
        let mut b = vec![0u8; IDENTIFY_BYTES];
        b[0..2].copy_from_slice(&0x1b36u16.to_le_bytes());
        b[4..24].copy_from_slice(b"SN-1                ");
        b[24..32].copy_from_slice(b"A model ");
        b[64..72].copy_from_slice(b"1.0\x07    ");
        b[77] = 7;
        b[256] = 0x2a;
        b[512] = 0x66;
        b[513] = 0x44;
        b[516] = 5;
        b[520] = 8;
        b[525] = 1;
        b[768..776].copy_from_slice(b"nqn.x\0zz");
        let c = IdentifyController::new(&b);
        assert_eq!((c.vendor(), c.serial().as_str(), c.model().as_str()), (0x1b36, "SN-1", "A model"));
        assert_eq!(c.firmware(), "1.0?");
        assert_eq!((c.mdts(), c.oacs(), c.oncs(), c.namespace_count()), (7, 0x2a, 8, 5));
        assert_eq!((c.sq_entry_shift(), c.cq_entry_shift()), ((6, 6), (4, 4)));
        assert!(c.volatile_write_cache());
        assert_eq!(c.subsystem_name(), "nqn.x");
    }

    #[test]
    fn the_format_in_use_is_found_beyond_sixteen() {
        let mut b = vec![0u8; IDENTIFY_BYTES];
        b[0] = 100;
        b[25] = 20;
        b[26] = 0x21;
        b[128 + 4 * 17..][..4].copy_from_slice(&(12u32 << 16 | 8).to_le_bytes());
        let n = IdentifyNamespace::new(&b);
        assert_eq!((n.blocks(), n.format_index()), (100, 17));
        assert_eq!(n.format(), LbaFormat { metadata_bytes: 8, data_shift: 12 });
        b[25] = 0;
        b[26] = 0x20;
        b[130] = 9;
        assert_eq!(IdentifyNamespace::new(&b).format(), LbaFormat { metadata_bytes: 0, data_shift: 9 });
    }

    #[test]
    fn logs_and_lists_decode() {
        let mut e = [0u8; ERROR_ENTRY_BYTES];
        e[0] = 3;
        e[8] = 2;
        e[10] = 7;
        e[12..14].copy_from_slice(&(status::LBA_OUT_OF_RANGE.0 << 1 | 1).to_le_bytes());
        e[16] = 9;
        e[24] = 1;
        let e = ErrorLogEntry::new(&e);
        assert_eq!((e.count, e.sqid, e.cid, e.status, e.lba, e.nsid), (3, 2, 7, status::LBA_OUT_OF_RANGE, 9, 1));
        let mut list = [0u8; 16];
        list[0] = 1;
        list[4] = 3;
        assert_eq!(namespace_list(&list), [1, 3]);
        let mut h = [0u8; HEALTH_BYTES];
        h[1..3].copy_from_slice(&300u16.to_le_bytes());
        h[64] = 5;
        assert_eq!((Health::new(&h).temperature_k, Health::new(&h).read_commands), (300, 5));
    }

    #[test]
    fn truncated_data_reads_as_zero() {
        assert_eq!(IdentifyController::new(&[1]).serial(), "");
        assert_eq!(IdentifyNamespace::new(&[]).blocks(), 0);
    }
}
