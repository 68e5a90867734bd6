//! What a controller says about itself: Identify data structures, read field by field.

use std::fmt;

/// LBA formats in the data structure (NVM Command Set 1.1, 4.1.5.1).
const MAX_FORMATS: usize = 64;
/// Namespace identifiers in one active namespace list (NVMe Base 2.1, 5.1.13.2.2).
pub const NAMESPACE_LIST_ENTRIES: usize = 1024;

pub(super) fn le<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(from) = bytes.get(offset..offset + N) {
        out.copy_from_slice(from);
    }
    out
}

pub(super) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(le(bytes, offset))
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(le(bytes, offset))
}

pub(super) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(le(bytes, offset))
}

pub(super) fn u128_at(bytes: &[u8], offset: usize) -> u128 {
    u128::from_le_bytes(le(bytes, offset))
}

/// ASCII padded with spaces (NVMe Base 2.1, 1.4.2); what is not printable becomes `?`.
pub(super) fn text(bytes: &[u8]) -> String {
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
    /// Notices that it can report (OAES), laid out as the Asynchronous Event Configuration feature.
    pub fn optional_events(&self) -> u32 {
        u32_at(&self.0, 92)
    }
    /// What kind of controller it is (CNTRLTYPE).
    pub fn controller_type(&self) -> ControllerType {
        match le::<1>(&self.0, 111)[0] {
            0 => ControllerType::NotReported,
            1 => ControllerType::Io,
            2 => ControllerType::Discovery,
            3 => ControllerType::Administrative,
            _ => ControllerType::Reserved,
        }
    }
    /// Optional admin commands (OACS).
    pub fn oacs(&self) -> u16 {
        u16_at(&self.0, 256)
    }
    /// Abort commands that may be outstanding (ACL, made one-based).
    pub fn abort_limit(&self) -> u16 {
        u16::from(le::<1>(&self.0, 258)[0]) + 1
    }
    /// Asynchronous Event Requests that may be outstanding (AERL, made one-based).
    pub fn event_limit(&self) -> u16 {
        u16::from(le::<1>(&self.0, 259)[0]) + 1
    }
    /// What Get Log Page can do (LPA): bit 2, offsets.
    pub fn log_attributes(&self) -> u8 {
        le::<1>(&self.0, 261)[0]
    }
    /// Composite temperature from which the controller warns, in kelvin, 0 if not reported (WCTEMP).
    pub fn warning_temperature_k(&self) -> u16 {
        u16_at(&self.0, 266)
    }
    /// Composite temperature that is critical, in kelvin, 0 if not reported (CCTEMP).
    pub fn critical_temperature_k(&self) -> u16 {
        u16_at(&self.0, 268)
    }
    /// Bytes of non-volatile memory, 0 if not reported (TNVMCAP).
    pub fn capacity_bytes(&self) -> u128 {
        u128_at(&self.0, 280)
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
    /// Dataset Management can be used (ONCS bit 2).
    pub fn dataset_management(&self) -> bool {
        self.oncs() & 1 << 2 != 0
    }
    /// Write Zeroes can be used (ONCS bit 3).
    pub fn write_zeroes(&self) -> bool {
        self.oncs() & 1 << 3 != 0
    }
    /// What a Flush of all namespaces at once does (VWC bits 2:1).
    pub fn flush_of_all(&self) -> FlushOfAll {
        match le::<1>(&self.0, 525)[0] >> 1 & 3 {
            2 => FlushOfAll::Refused,
            3 => FlushOfAll::Flushes,
            _ => FlushOfAll::NotReported,
        }
    }
    /// Scatter-gather lists (SGLS): 0 for none. PRPs, which this crate uses, work in every case on PCI Express.
    pub fn sgls(&self) -> u32 {
        u32_at(&self.0, 536)
    }
    /// NVM subsystem qualified name (SUBNQN).
    pub fn subsystem_name(&self) -> String {
        let b = self.0.get(768..1024).unwrap_or_default();
        text(b.split(|&c| c == 0).next().unwrap_or_default())
    }
}

/// What kind of controller this is (NVMe Base 2.1, 5.1.13.2.1, CNTRLTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerType {
    /// Older controllers do not say; they are I/O controllers.
    NotReported,
    /// Has namespaces.
    Io,
    /// Only names other controllers.
    Discovery,
    /// Only manages.
    Administrative,
    /// A value that is not defined.
    Reserved,
}

/// What a Flush with the namespace identifier of all does (NVMe Base 2.1, 5.1.13.2.1, VWC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOfAll {
    /// Not said: controllers before 1.4.
    NotReported,
    /// It fails with "invalid namespace or format".
    Refused,
    /// It flushes every namespace.
    Flushes,
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
    /// log2 of the data bytes in a block; 0 for a format that is not available.
    pub data_shift: u8,
    /// Relative performance: 0 best, 3 degraded.
    pub performance: u8,
}

impl LbaFormat {
    fn new(word: u32) -> Self {
        Self { metadata_bytes: word as u16, data_shift: (word >> 16) as u8, performance: (word >> 24) as u8 & 3 }
    }
    /// Data bytes in a block, `None` where the format is not available or beyond 64 bits.
    pub fn data_bytes(&self) -> Option<u64> {
        if self.data_shift == 0 { None } else { 1u64.checked_shl(self.data_shift.into()) }
    }
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
        self.format_at(self.format_index())
    }
    fn format_at(&self, index: usize) -> LbaFormat {
        LbaFormat::new(u32_at(&self.0, 128 + 4 * index))
    }
    /// All formats, in the order of their indices (NLBAF, made one-based).
    pub fn formats(&self) -> Vec<LbaFormat> {
        let count = usize::from(le::<1>(&self.0, 25)[0]) + 1;
        (0..count.min(MAX_FORMATS)).map(|i| self.format_at(i)).collect()
    }
    /// Metadata is moved with the data of a block, not beside it (FLBAS bit 4).
    pub fn metadata_in_blocks(&self) -> bool {
        le::<1>(&self.0, 26)[0] >> 4 & 1 != 0
    }
    /// What deallocated blocks read as (DLFEAT bits 2:0): 1 zeros, 2 all ones, anything else is not said.
    pub fn deallocated_reads_as(&self) -> u8 {
        le::<1>(&self.0, 33)[0] & 7
    }
    /// Write Zeroes may deallocate (DLFEAT bit 3).
    pub fn write_zeroes_deallocates(&self) -> bool {
        le::<1>(&self.0, 33)[0] >> 3 & 1 != 0
    }
    /// Blocks that commands should not cross a multiple of, 0 if not reported (NOIOB).
    pub fn optimal_boundary(&self) -> u16 {
        u16_at(&self.0, 46)
    }
    /// Several controllers may use the namespace (NMIC bit 0).
    pub fn shared(&self) -> bool {
        le::<1>(&self.0, 30)[0] & 1 != 0
    }
    /// Globally unique identifier, all zero if there is none (NGUID).
    pub fn nguid(&self) -> [u8; 16] {
        le(&self.0, 104)
    }
    /// IEEE extended unique identifier, all zero if there is none (EUI64).
    pub fn eui64(&self) -> [u8; 8] {
        le(&self.0, 120)
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

/// The identifiers in an active namespace list: ascending, the first 0 ends it.
pub fn namespace_list(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes(le(c, 0))).take_while(|&id| id != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::IDENTIFY_BYTES;

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
        assert_eq!(n.format(), LbaFormat { metadata_bytes: 8, data_shift: 12, performance: 0 });
        b[25] = 0;
        b[26] = 0x20;
        b[130] = 9;
        assert_eq!(IdentifyNamespace::new(&b).format(), LbaFormat { metadata_bytes: 0, data_shift: 9, performance: 0 });
    }

    #[test]
    fn lists_decode() {
        let mut list = [0u8; 16];
        list[0] = 1;
        list[4] = 3;
        assert_eq!(namespace_list(&list), [1, 3]);
    }

    #[test]
    fn what_a_driver_asks_for_is_found() {
        let mut b = vec![0u8; IDENTIFY_BYTES];
        (b[111], b[259], b[520], b[525], b[536]) = (1, 3, 0b1100, 0b111, 1);
        b[266..268].copy_from_slice(&343u16.to_le_bytes());
        b[268..270].copy_from_slice(&353u16.to_le_bytes());
        b[280..288].copy_from_slice(&(1u64 << 40).to_le_bytes());
        let c = IdentifyController::new(&b);
        assert_eq!((c.controller_type(), c.event_limit(), c.sgls()), (ControllerType::Io, 4, 1));
        assert_eq!((c.warning_temperature_k(), c.critical_temperature_k(), c.capacity_bytes()), (343, 353, 1 << 40));
        assert!(c.dataset_management() && c.write_zeroes() && c.volatile_write_cache());
        assert_eq!(c.flush_of_all(), FlushOfAll::Flushes);
        let mut b = vec![0u8; IDENTIFY_BYTES];
        (b[25], b[26], b[30], b[33], b[46]) = (1, 0x11, 1, 0b1001, 8);
        b[128..136].copy_from_slice(&[0, 0, 9, 2, 8, 0, 12, 0]);
        let n = IdentifyNamespace::new(&b);
        let formats = n.formats();
        assert_eq!(formats.len(), 2);
        assert_eq!((formats[0].data_bytes(), formats[0].performance), (Some(512), 2));
        assert_eq!((n.format().data_bytes(), n.format().metadata_bytes), (Some(4096), 8));
        assert!(n.metadata_in_blocks() && n.shared() && n.write_zeroes_deallocates());
        assert_eq!((n.deallocated_reads_as(), n.optimal_boundary()), (1, 8));
        assert_eq!(LbaFormat::new(200 << 16).data_bytes(), None);
    }

    #[test]
    fn truncated_data_reads_as_zero() {
        assert_eq!(IdentifyController::new(&[1]).serial(), "");
        assert_eq!(IdentifyNamespace::new(&[]).blocks(), 0);
    }
}
