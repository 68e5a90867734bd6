//! Identify data structures: a controller's description of itself and its namespaces, read field by field.

use std::fmt;

/// Largest number of LBA formats in the data structure (NVM Command Set 1.1, 4.1.5.1).
const MAX_FORMATS: usize = 64;
/// Number of namespace identifiers in one active namespace list (NVMe Base 2.1, 5.1.13.2.2).
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

/// Decodes ASCII padded with spaces (NVMe Base 2.1, 1.4.2). Characters that are not printable become `?`.
pub(super) fn text(bytes: &[u8]) -> String {
    let s: String =
        bytes.iter().map(|&b| if b == 0 || b.is_ascii_graphic() || b == b' ' { b as char } else { '?' }).collect();
    s.trim_matches(|c: char| c == ' ' || c == '\0').to_owned()
}

/// The Identify Controller data structure (NVMe Base 2.1, 5.1.13.2.1).
#[derive(Clone, PartialEq, Eq)]
pub struct IdentifyController(Box<[u8]>);

impl IdentifyController {
    /// Wraps the 4096 bytes that the controller wrote. Missing bytes read as zero.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
    /// Returns the raw bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
    /// Returns the PCI vendor identifier (VID).
    pub fn vendor(&self) -> u16 {
        u16_at(&self.0, 0)
    }
    /// Returns the serial number (SN).
    pub fn serial(&self) -> String {
        text(self.0.get(4..24).unwrap_or_default())
    }
    /// Returns the model number (MN).
    pub fn model(&self) -> String {
        text(self.0.get(24..64).unwrap_or_default())
    }
    /// Returns the firmware revision (FR).
    pub fn firmware(&self) -> String {
        text(self.0.get(64..72).unwrap_or_default())
    }
    /// Returns log2 of the largest data transfer in units of the smallest memory page; 0 for no limit (MDTS).
    pub fn mdts(&self) -> u8 {
        le::<1>(&self.0, 77)[0]
    }
    /// Returns true if the controller reports Asymmetric Namespace Access (CMIC bit 3).
    pub fn reports_access(&self) -> bool {
        le::<1>(&self.0, 76)[0] & 1 << 3 != 0
    }
    /// Returns the number of groups of namespaces for Asymmetric Namespace Access (NANAGRPID).
    pub fn access_groups(&self) -> u32 {
        u32_at(&self.0, 348)
    }
    /// Returns the largest number of namespaces that the subsystem has (MNAN); 0 for that of NN.
    pub fn most_namespaces(&self) -> u32 {
        u32_at(&self.0, 540)
    }
    /// Returns the controller identifier within the subsystem (CNTLID).
    pub fn controller_id(&self) -> u16 {
        u16_at(&self.0, 78)
    }
    /// Returns the version in the encoding of the VS register (VER).
    pub fn version(&self) -> u32 {
        u32_at(&self.0, 80)
    }
    /// Returns the duration of a normal shutdown in microseconds, at most; 0 if not reported (RTD3E).
    pub fn shutdown_us(&self) -> u32 {
        u32_at(&self.0, 88)
    }
    /// Returns the supported notices (OAES), in the layout of the Asynchronous Event Configuration feature.
    pub fn optional_events(&self) -> u32 {
        u32_at(&self.0, 92)
    }
    /// Returns the kind of controller (CNTRLTYPE).
    pub fn controller_type(&self) -> ControllerType {
        match le::<1>(&self.0, 111)[0] {
            0 => ControllerType::NotReported,
            1 => ControllerType::Io,
            2 => ControllerType::Discovery,
            3 => ControllerType::Administrative,
            _ => ControllerType::Reserved,
        }
    }
    /// Returns the optional admin commands (OACS).
    pub fn oacs(&self) -> u16 {
        u16_at(&self.0, 256)
    }
    /// Returns the largest number of outstanding Abort commands (ACL, one-based).
    pub fn abort_limit(&self) -> u16 {
        u16::from(le::<1>(&self.0, 258)[0]) + 1
    }
    /// Returns the largest number of outstanding Asynchronous Event Requests (AERL, one-based).
    pub fn event_limit(&self) -> u16 {
        u16::from(le::<1>(&self.0, 259)[0]) + 1
    }
    /// Returns the capabilities of Get Log Page (LPA). Bit 2: offsets.
    pub fn log_attributes(&self) -> u8 {
        le::<1>(&self.0, 261)[0]
    }
    /// Returns the composite temperature from which the controller warns, in kelvin; 0 if not reported (WCTEMP).
    pub fn warning_temperature_k(&self) -> u16 {
        u16_at(&self.0, 266)
    }
    /// Returns the critical composite temperature in kelvin; 0 if not reported (CCTEMP).
    pub fn critical_temperature_k(&self) -> u16 {
        u16_at(&self.0, 268)
    }
    /// Returns the capacity of non-volatile memory in bytes; 0 if not reported (TNVMCAP).
    pub fn capacity_bytes(&self) -> u128 {
        u128_at(&self.0, 280)
    }
    /// Returns the number of entries in the error log (ELPE, one-based).
    pub fn error_log_entries(&self) -> u16 {
        u16::from(le::<1>(&self.0, 262)[0]) + 1
    }
    /// Returns log2 of the required and of the largest submission entry (SQES, 3:0 and 7:4).
    pub fn sq_entry_shift(&self) -> (u8, u8) {
        let b = le::<1>(&self.0, 512)[0];
        (b & 0xf, b >> 4)
    }
    /// Returns log2 of the required and of the largest completion entry (CQES, 3:0 and 7:4).
    pub fn cq_entry_shift(&self) -> (u8, u8) {
        let b = le::<1>(&self.0, 513)[0];
        (b & 0xf, b >> 4)
    }
    /// Returns the largest namespace identifier (NN).
    pub fn namespace_count(&self) -> u32 {
        u32_at(&self.0, 516)
    }
    /// Returns the optional NVM commands (ONCS). Bit 0: compare, 1: write uncorrectable, 2: dataset management, 3:
    /// write zeroes.
    pub fn oncs(&self) -> u16 {
        u16_at(&self.0, 520)
    }
    /// Returns true if there is a volatile write cache (VWC bit 0).
    pub fn volatile_write_cache(&self) -> bool {
        le::<1>(&self.0, 525)[0] & 1 != 0
    }
    /// Returns true if the controller supports Dataset Management (ONCS bit 2).
    pub fn dataset_management(&self) -> bool {
        self.oncs() & 1 << 2 != 0
    }
    /// Returns true if the controller supports Write Zeroes (ONCS bit 3).
    pub fn write_zeroes(&self) -> bool {
        self.oncs() & 1 << 3 != 0
    }
    /// Returns the effect of a Flush of all namespaces at once (VWC bits 2:1).
    pub fn flush_of_all(&self) -> FlushOfAll {
        match le::<1>(&self.0, 525)[0] >> 1 & 3 {
            2 => FlushOfAll::Refused,
            3 => FlushOfAll::Flushes,
            _ => FlushOfAll::NotReported,
        }
    }
    /// Returns the support of scatter-gather lists (SGLS): 0 for none. PRPs, which this crate uses, always work on PCI
    /// Express.
    pub fn sgls(&self) -> u32 {
        u32_at(&self.0, 536)
    }
    /// Returns the NVM subsystem qualified name (SUBNQN).
    pub fn subsystem_name(&self) -> String {
        let b = self.0.get(768..1024).unwrap_or_default();
        text(b.split(|&c| c == 0).next().unwrap_or_default())
    }
}

/// Kind of controller (NVMe Base 2.1, 5.1.13.2.1, CNTRLTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerType {
    /// Not reported: older controllers, which are I/O controllers.
    NotReported,
    /// I/O controller: has namespaces.
    Io,
    /// Discovery controller: only lists other controllers.
    Discovery,
    /// Administrative controller: only manages.
    Administrative,
    /// A value that is not defined.
    Reserved,
}

/// Effect of a Flush with the broadcast namespace identifier (NVMe Base 2.1, 5.1.13.2.1, VWC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushOfAll {
    /// Not reported: controllers before NVMe 1.4.
    NotReported,
    /// The command fails with "invalid namespace or format".
    Refused,
    /// The command flushes every namespace.
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
    /// Metadata bytes of each block.
    pub metadata_bytes: u16,
    /// log2 of the data bytes in a block; 0 for a format that is not available.
    pub data_shift: u8,
    /// Relative performance: 0 is best, 3 is degraded.
    pub performance: u8,
}

impl LbaFormat {
    fn new(word: u32) -> Self {
        Self { metadata_bytes: word as u16, data_shift: (word >> 16) as u8, performance: (word >> 24) as u8 & 3 }
    }
    /// Returns the data bytes in a block; `None` if the format is not available or the size exceeds 64 bits.
    pub fn data_bytes(&self) -> Option<u64> {
        if self.data_shift == 0 { None } else { 1u64.checked_shl(self.data_shift.into()) }
    }
}

/// The Identify Namespace data structure of the NVM command set (NVM Command Set 1.1, 4.1.5.1).
#[derive(Clone, PartialEq, Eq)]
pub struct IdentifyNamespace(Box<[u8]>);

impl IdentifyNamespace {
    /// Wraps the 4096 bytes that the controller wrote. Missing bytes read as zero.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
    /// Returns the raw bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
    /// Returns the size in logical blocks (NSZE); 0 for an inactive identifier.
    pub fn blocks(&self) -> u64 {
        u64_at(&self.0, 0)
    }
    /// Returns the largest number of allocated blocks (NCAP).
    pub fn capacity(&self) -> u64 {
        u64_at(&self.0, 8)
    }
    /// Returns the number of allocated blocks (NUSE).
    pub fn used(&self) -> u64 {
        u64_at(&self.0, 16)
    }
    /// Returns the index of the format in use (FLBAS 3:0; with more than 16 formats, 6:5 are its upper bits).
    pub fn format_index(&self) -> usize {
        let flbas = le::<1>(&self.0, 26)[0];
        let formats = le::<1>(&self.0, 25)[0];
        let low = usize::from(flbas & 0xf);
        if formats >= 16 { low | usize::from(flbas >> 5 & 3) << 4 } else { low }
    }
    /// Returns the format in use.
    pub fn format(&self) -> LbaFormat {
        self.format_at(self.format_index())
    }
    fn format_at(&self, index: usize) -> LbaFormat {
        LbaFormat::new(u32_at(&self.0, 128 + 4 * index))
    }
    /// Returns all formats in the order of their indices (NLBAF, one-based).
    pub fn formats(&self) -> Vec<LbaFormat> {
        let count = usize::from(le::<1>(&self.0, 25)[0]) + 1;
        (0..count.min(MAX_FORMATS)).map(|i| self.format_at(i)).collect()
    }
    /// Returns true if metadata is transferred within the data of a block, not separately (FLBAS bit 4).
    pub fn metadata_in_blocks(&self) -> bool {
        le::<1>(&self.0, 26)[0] >> 4 & 1 != 0
    }
    /// Returns the content of deallocated blocks (DLFEAT bits 2:0): 1 for zeros, 2 for all ones; other values do not
    /// specify it.
    pub fn deallocated_reads_as(&self) -> u8 {
        le::<1>(&self.0, 33)[0] & 7
    }
    /// Returns true if Write Zeroes may deallocate (DLFEAT bit 3).
    pub fn write_zeroes_deallocates(&self) -> bool {
        le::<1>(&self.0, 33)[0] >> 3 & 1 != 0
    }
    /// Returns the optimal boundary in blocks: commands should not cross its multiples. 0 if not reported (NOIOB).
    pub fn optimal_boundary(&self) -> u16 {
        u16_at(&self.0, 46)
    }
    /// Returns true if several controllers may use the namespace (NMIC bit 0).
    pub fn shared(&self) -> bool {
        le::<1>(&self.0, 30)[0] & 1 != 0
    }
    /// Returns the globally unique identifier; all zero if there is none (NGUID).
    pub fn nguid(&self) -> [u8; 16] {
        le(&self.0, 104)
    }
    /// Returns the IEEE extended unique identifier; all zero if there is none (EUI64).
    pub fn eui64(&self) -> [u8; 8] {
        le(&self.0, 120)
    }
    /// Returns the type of end-to-end protection; 0 for none (DPS 2:0).
    pub fn protection(&self) -> u8 {
        le::<1>(&self.0, 29)[0] & 7
    }
    /// Returns true if the namespace is write protected at present (NSATTR bit 0).
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

/// Returns the identifiers in an active namespace list. They are ascending; the first 0 ends the list.
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
