//! NVMe: registers, queue entries, identify data and status codes (NVMe Base Specification 2.1, NVM Command Set 1.1).
//! All integers on the wire are little-endian.

pub mod ana;
pub mod fabrics;
pub mod fields;
pub mod identify;
pub mod log;
pub mod rdma;
#[cfg(feature = "storage")]
pub mod tcp;

use bytemuck::{Pod, Zeroable};
use std::fmt;

/// Register offsets (NVMe Base 2.1, 3.1.4).
pub mod register {
    /// Controller Capabilities, 64 bits (3.1.4.1).
    pub const CAP: u32 = 0x00;
    /// Version (3.1.4.2).
    pub const VS: u32 = 0x08;
    /// Interrupt Mask Set (3.1.4.3).
    pub const INTMS: u32 = 0x0c;
    /// Interrupt Mask Clear (3.1.4.4).
    pub const INTMC: u32 = 0x10;
    /// Controller Configuration (3.1.4.5).
    pub const CC: u32 = 0x14;
    /// Controller Status (3.1.4.6).
    pub const CSTS: u32 = 0x1c;
    /// Admin Queue Attributes (3.1.4.8).
    pub const AQA: u32 = 0x24;
    /// Admin Submission Queue base, 64 bits (3.1.4.9).
    pub const ASQ: u32 = 0x28;
    /// Admin Completion Queue base, 64 bits (3.1.4.10).
    pub const ACQ: u32 = 0x30;
    /// Controller Ready Timeouts (3.1.4.21).
    pub const CRTO: u32 = 0x68;
    /// Controller Memory Buffer Location (3.1.4.11).
    pub const CMBLOC: u32 = 0x38;
    /// Controller Memory Buffer Size (3.1.4.12).
    pub const CMBSZ: u32 = 0x3c;
    /// Controller Memory Buffer Memory Space Control, 64 bits (3.1.4.16).
    pub const CMBMSC: u32 = 0x50;
    /// Controller Memory Buffer Status (3.1.4.17).
    pub const CMBSTS: u32 = 0x58;
    /// First doorbell (PCIe Transport 1.1, 3.1.2).
    pub const DOORBELLS: u32 = 0x1000;

    /// Returns the offset of a queue's submission tail doorbell. `stride` is CAP.DSTRD.
    pub const fn sq_tail(queue: u16, stride: u8) -> u32 {
        DOORBELLS + (2 * queue as u32) * (4 << stride)
    }
    /// Returns the offset of a queue's completion head doorbell. `stride` is CAP.DSTRD.
    pub const fn cq_head(queue: u16, stride: u8) -> u32 {
        DOORBELLS + (2 * queue as u32 + 1) * (4 << stride)
    }
}

/// The register Controller Capabilities (NVMe Base 2.1, 3.1.4.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cap(pub u64);

impl Cap {
    /// Returns the largest queue size in entries (MQES + 1).
    pub const fn max_queue_entries(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }
    /// Returns true if queues must be physically contiguous (CQR).
    pub const fn contiguous_queues(self) -> bool {
        self.0 >> 16 & 1 != 0
    }
    /// Returns the longest wait for CSTS.RDY in units of 500 ms (TO).
    pub const fn timeout_units(self) -> u8 {
        (self.0 >> 24) as u8
    }
    /// Returns the doorbell stride: 4 bytes * 2^n (DSTRD).
    pub const fn doorbell_stride(self) -> u8 {
        (self.0 >> 32 & 0xf) as u8
    }
    /// Returns the supported command sets (CSS).
    pub const fn command_sets(self) -> u8 {
        (self.0 >> 37) as u8
    }
    /// Returns true if CRTO reports the time to enable (CRMS bit 0, Controller Ready With Media Support).
    pub const fn ready_timeouts(self) -> bool {
        self.0 >> 59 & 1 != 0
    }
    /// Returns true if the controller supports an NVM subsystem reset (NSSRS).
    pub const fn subsystem_reset(self) -> bool {
        self.0 >> 36 & 1 != 0
    }
    /// Returns true if there may be a controller memory buffer (CMBS). CMBMSC.CRE enables its registers.
    pub const fn memory_buffer(self) -> bool {
        self.0 >> 57 & 1 != 0
    }
    /// Returns log2 of the smallest memory page (MPSMIN + 12).
    pub const fn min_page_shift(self) -> u32 {
        (self.0 >> 48 & 0xf) as u32 + 12
    }
    /// Returns log2 of the largest memory page (MPSMAX + 12).
    pub const fn max_page_shift(self) -> u32 {
        (self.0 >> 52 & 0xf) as u32 + 12
    }
}

impl fmt::Debug for Cap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cap")
            .field("raw", &format_args!("{:#018x}", self.0))
            .field("max_queue_entries", &self.max_queue_entries())
            .field("timeout_ms", &(u32::from(self.timeout_units()) * 500))
            .field("doorbell_stride", &self.doorbell_stride())
            .finish()
    }
}

/// Controller Configuration bits (NVMe Base 2.1, 3.1.4.5).
pub mod cc {
    /// Enable.
    pub const EN: u32 = 1;
    /// Normal shutdown notification in SHN.
    pub const SHN_NORMAL: u32 = 1 << 14;
    /// Abrupt shutdown notification in SHN.
    pub const SHN_ABRUPT: u32 = 2 << 14;
    /// Mask of SHN.
    pub const SHN_MASK: u32 = 3 << 14;
    /// I/O submission entries of 64 bytes (IOSQES = 6).
    pub const IOSQES_64: u32 = 6 << 16;
    /// I/O completion entries of 16 bytes (IOCQES = 4).
    pub const IOCQES_16: u32 = 4 << 20;
    /// Returns the memory page size field (MPS) for pages of `1 << shift` bytes; `shift` is at least 12.
    pub const fn mps(shift: u32) -> u32 {
        (shift - 12) << 7
    }
}

/// Controller Status bits (NVMe Base 2.1, 3.1.4.6).
pub mod csts {
    /// Ready.
    pub const RDY: u32 = 1;
    /// Controller fatal status.
    pub const CFS: u32 = 2;
    /// Mask of SHST.
    pub const SHST_MASK: u32 = 3 << 2;
    /// Shutdown processing occurring.
    pub const SHST_OCCURRING: u32 = 1 << 2;
    /// Shutdown processing complete.
    pub const SHST_COMPLETE: u32 = 2 << 2;
}

/// Admin opcodes (NVMe Base 2.1, figure "Opcodes for Admin Commands").
pub mod admin {
    #![allow(missing_docs)]
    pub const DELETE_SQ: u8 = 0x00;
    pub const CREATE_SQ: u8 = 0x01;
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const DELETE_CQ: u8 = 0x04;
    pub const CREATE_CQ: u8 = 0x05;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// I/O opcodes (NVM Command Set 1.1, figure "Opcodes for NVM Commands").
pub mod io {
    #![allow(missing_docs)]
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE_UNCORRECTABLE: u8 = 0x04;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// Identify CNS values (NVMe Base 2.1, figure "Identify - CNS Values").
pub mod cns {
    #![allow(missing_docs)]
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
}

/// Feature identifiers (NVMe Base 2.1, figure "Feature Identifiers").
pub mod feature {
    #![allow(missing_docs)]
    pub const ARBITRATION: u8 = 0x01;
    pub const POWER_MANAGEMENT: u8 = 0x02;
    pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
    pub const ERROR_RECOVERY: u8 = 0x05;
    pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
    pub const NUMBER_OF_QUEUES: u8 = 0x07;
    pub const INTERRUPT_COALESCING: u8 = 0x08;
    pub const INTERRUPT_VECTOR_CONFIG: u8 = 0x09;
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    pub const ASYNC_EVENT_CONFIG: u8 = 0x0b;
}

/// Log page identifiers (NVMe Base 2.1, figure "Get Log Page - Log Page Identifiers").
pub mod log_page {
    #![allow(missing_docs)]
    pub const ERROR: u8 = 0x01;
    pub const HEALTH: u8 = 0x02;
    pub const FIRMWARE_SLOT: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const ASYMMETRIC_ACCESS: u8 = 0x0c;
}

/// A submission queue entry of 64 bytes (NVMe Base 2.1, 4.1.1).
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct SqEntry {
    /// Opcode in 7:0, fused in 9:8, PRP or SGL in 15:14, command identifier in 31:16.
    pub cdw0: u32,
    /// Namespace.
    pub nsid: u32,
    /// Command dword 2.
    pub cdw2: u32,
    /// Command dword 3.
    pub cdw3: u32,
    /// Metadata pointer.
    pub mptr: u64,
    /// First physical region page (PRP) entry.
    pub prp1: u64,
    /// Second PRP entry, or the address of a PRP list.
    pub prp2: u64,
    /// Command dword 10.
    pub cdw10: u32,
    /// Command dword 11.
    pub cdw11: u32,
    /// Command dword 12.
    pub cdw12: u32,
    /// Command dword 13.
    pub cdw13: u32,
    /// Command dword 14.
    pub cdw14: u32,
    /// Command dword 15.
    pub cdw15: u32,
}

const _: () = {
    assert!(size_of::<SqEntry>() == 64);
    assert!(core::mem::offset_of!(SqEntry, prp1) == 24);
    assert!(core::mem::offset_of!(SqEntry, cdw10) == 40);
};

impl SqEntry {
    /// Creates a command with its identifier; all other fields are zero.
    pub fn new(opcode: u8, cid: u16, nsid: u32) -> Self {
        Self { cdw0: u32::from(opcode) | u32::from(cid) << 16, nsid, ..Self::default() }
    }
    /// Returns the opcode.
    pub const fn opcode(&self) -> u8 {
        self.cdw0 as u8
    }
    /// Returns the command identifier.
    pub const fn cid(&self) -> u16 {
        (self.cdw0 >> 16) as u16
    }
    /// Returns the PRP or SGL selector (PSDT): 0 for PRPs.
    pub const fn psdt(&self) -> u8 {
        (self.cdw0 >> 14 & 3) as u8
    }
    /// Returns the fused operation: 0 for a normal command.
    pub const fn fuse(&self) -> u8 {
        (self.cdw0 >> 8 & 3) as u8
    }
    /// Returns the starting LBA of a read, write, compare or write zeroes (dwords 10 and 11).
    pub const fn slba(&self) -> u64 {
        self.cdw10 as u64 | (self.cdw11 as u64) << 32
    }
    /// Returns the number of logical blocks (dword 12, bits 15:0; zero-based on the wire).
    pub const fn blocks(&self) -> u32 {
        (self.cdw12 & 0xffff) + 1
    }
    /// Sets starting LBA and number of blocks (1 to 65,536).
    pub fn set_range(&mut self, slba: u64, blocks: u32) {
        self.cdw10 = slba as u32;
        self.cdw11 = (slba >> 32) as u32;
        self.cdw12 = (self.cdw12 & !0xffff) | (blocks - 1);
    }
}

/// A completion queue entry of 16 bytes (NVMe Base 2.1, 4.2.1).
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct CqEntry {
    /// Command-specific result.
    pub result: u32,
    /// Reserved, or command specific.
    pub dw1: u32,
    /// Submission queue head in 15:0, submission queue identifier in 31:16.
    pub sq: u32,
    /// Command identifier in 15:0, phase in 16, status in 31:17.
    pub status: u32,
}

const _: () = assert!(size_of::<CqEntry>() == 16);

impl CqEntry {
    /// Creates an entry.
    pub const fn new(result: u32, sq_head: u16, sqid: u16, cid: u16, phase: bool, status: Status) -> Self {
        Self {
            result,
            dw1: 0,
            sq: sq_head as u32 | (sqid as u32) << 16,
            status: cid as u32 | (phase as u32) << 16 | (status.0 as u32) << 17,
        }
    }
    /// Returns the phase tag.
    pub const fn phase(&self) -> bool {
        self.status >> 16 & 1 != 0
    }
    /// Returns the command identifier.
    pub const fn cid(&self) -> u16 {
        self.status as u16
    }
    /// Returns the entry with another command identifier.
    pub const fn of_command(mut self, cid: u16) -> Self {
        self.status = self.status & 0xffff_0000 | cid as u32;
        self
    }
    /// Returns the status field.
    pub const fn status(&self) -> Status {
        Status((self.status >> 17) as u16)
    }
    /// Returns the submission queue head as the controller saw it.
    pub const fn sq_head(&self) -> u16 {
        self.sq as u16
    }
    /// Returns the identifier of the command's submission queue.
    pub const fn sqid(&self) -> u16 {
        (self.sq >> 16) as u16
    }
}

/// The 15-bit status field of a completion (NVMe Base 2.1, 4.2.3). Code in 7:0, type in 10:8, more in 13, do not retry
/// in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(pub u16);

impl Status {
    /// The do-not-retry bit.
    pub const DNR: u16 = 1 << 14;

    /// Creates a status from its type and code.
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self((sct as u16 & 7) << 8 | sc as u16)
    }
    /// Returns the status with the do-not-retry bit set.
    pub const fn dnr(self) -> Self {
        Self(self.0 | Self::DNR)
    }
    /// Returns the status code type.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }
    /// Returns the status code.
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }
    /// Returns type and code without the flags, to compare with the constants of [`status`].
    pub const fn without_flags(self) -> Self {
        Self(self.0 & 0x7ff)
    }
    /// Returns true if type and code are 0.
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }
    /// Returns true if the controller reports that a retry is useless.
    pub const fn do_not_retry(self) -> bool {
        self.0 & Self::DNR != 0
    }
    /// Returns the specification's name of the status.
    pub fn name(self) -> &'static str {
        STATUS_NAMES.iter().find(|(s, _)| s.0 == self.0 & 0x7ff).map_or("status not listed", |(_, n)| n)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (type {:#x}, code {:#04x}", self.name(), self.sct(), self.sc())?;
        if self.do_not_retry() {
            f.write_str(", do not retry")?;
        }
        f.write_str(")")
    }
}

macro_rules! statuses {
    ($($name:ident = $sct:literal, $sc:literal, $text:literal;)*) => {
        /// Status codes by name (NVMe Base 2.1, 4.2.3; NVM Command Set 1.1, 3.2).
        pub mod status {
            use super::Status;
            $(#[doc = $text] pub const $name: Status = Status::new($sct, $sc);)*
        }
        const STATUS_NAMES: &[(Status, &str)] = &[$((status::$name, $text),)*];
    };
}

statuses! {
    SUCCESS = 0, 0x00, "success";
    INVALID_OPCODE = 0, 0x01, "invalid command opcode";
    INVALID_FIELD = 0, 0x02, "invalid field in command";
    CID_CONFLICT = 0, 0x03, "command identifier conflict";
    DATA_TRANSFER_ERROR = 0, 0x04, "data transfer error";
    POWER_LOSS = 0, 0x05, "commands aborted due to power loss";
    INTERNAL_ERROR = 0, 0x06, "internal error";
    ABORT_REQUESTED = 0, 0x07, "command abort requested";
    SQ_DELETION = 0, 0x08, "command aborted due to submission queue deletion";
    INVALID_NAMESPACE = 0, 0x0b, "invalid namespace or format";
    SEQUENCE_ERROR = 0, 0x0c, "command sequence error";
    SGL_LENGTH_INVALID = 0, 0x0f, "data SGL length invalid";
    SGL_TYPE_INVALID = 0, 0x11, "SGL descriptor type invalid";
    INVALID_PRP_OFFSET = 0, 0x13, "PRP offset invalid";
    NAMESPACE_WRITE_PROTECTED = 0, 0x20, "namespace is write protected";
    TRANSIENT_TRANSPORT_ERROR = 0, 0x22, "transient transport error";
    LBA_OUT_OF_RANGE = 0, 0x80, "LBA out of range";
    CAPACITY_EXCEEDED = 0, 0x81, "capacity exceeded";
    NAMESPACE_NOT_READY = 0, 0x82, "namespace not ready";
    INVALID_CQ = 1, 0x00, "completion queue invalid";
    INVALID_QUEUE_ID = 1, 0x01, "invalid queue identifier";
    INVALID_QUEUE_SIZE = 1, 0x02, "invalid queue size";
    ABORT_LIMIT = 1, 0x03, "abort command limit exceeded";
    ASYNC_EVENT_LIMIT = 1, 0x05, "asynchronous event request limit exceeded";
    INVALID_INTERRUPT_VECTOR = 1, 0x08, "invalid interrupt vector";
    INVALID_LOG_PAGE = 1, 0x09, "invalid log page";
    INVALID_QUEUE_DELETION = 1, 0x0c, "invalid queue deletion";
    FEATURE_NOT_SAVEABLE = 1, 0x0d, "feature identifier not saveable";
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, "feature not changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 1, 0x0f, "feature not namespace specific";
    CONFLICTING_ATTRIBUTES = 1, 0x80, "conflicting attributes";
    READ_ONLY_RANGE = 1, 0x82, "attempted write to read only range";
    WRITE_FAULT = 2, 0x80, "write fault";
    UNRECOVERED_READ_ERROR = 2, 0x81, "unrecovered read error";
    COMPARE_FAILURE = 2, 0x85, "compare failure";
    ANA_PERSISTENT_LOSS = 3, 0x01, "asymmetric access persistent loss";
    ANA_INACCESSIBLE = 3, 0x02, "asymmetric access inaccessible";
    ANA_TRANSITION = 3, 0x03, "asymmetric access transition";
    CONTROLLER_PATHING_ERROR = 3, 0x60, "controller pathing error";
    HOST_PATHING_ERROR = 3, 0x70, "host pathing error";
    ABORTED_BY_HOST = 3, 0x71, "command aborted by host";
    ACCESS_DENIED = 2, 0x86, "access denied";
    DEALLOCATED_BLOCK = 2, 0x87, "deallocated or unwritten logical block";
}

/// Bytes of an Identify data structure (NVMe Base 2.1, 5.1.13).
pub const IDENTIFY_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doorbells_follow_the_stride() {
        assert_eq!(register::sq_tail(0, 0), 0x1000);
        assert_eq!(register::cq_head(0, 0), 0x1004);
        assert_eq!(register::sq_tail(3, 0), 0x1018);
        assert_eq!(register::cq_head(3, 2), 0x1000 + 7 * 16);
    }

    /// Compares constants with the numbers of NVMe Base 2.1. Tests' controllers share the driver's constants, so they
    /// cannot detect a wrong one.
    #[test]
    fn numbers_are_those_of_the_specification() {
        use register as r;
        // 3.1.4: controller properties.
        assert_eq!([r::CAP, r::VS, r::INTMS, r::INTMC, r::CC, r::CSTS], [0x00, 0x08, 0x0c, 0x10, 0x14, 0x1c]);
        assert_eq!([r::AQA, r::ASQ, r::ACQ, r::CMBLOC, r::CMBSZ], [0x24, 0x28, 0x30, 0x38, 0x3c]);
        assert_eq!([r::CMBMSC, r::CMBSTS, r::CRTO, r::DOORBELLS], [0x50, 0x58, 0x68, 0x1000]);
        // 3.1.4.5 and 3.1.4.6: fields of CC and CSTS.
        assert_eq!(
            [cc::EN, cc::SHN_NORMAL, cc::SHN_MASK, cc::IOSQES_64, cc::IOCQES_16],
            [1, 0x4000, 0xc000, 0x6_0000, 0x40_0000]
        );
        assert_eq!((cc::mps(12), cc::mps(13)), (0, 1 << 7));
        assert_eq!([csts::RDY, csts::CFS, csts::SHST_MASK, csts::SHST_COMPLETE], [1, 2, 0xc, 8]);
        // Opcodes of admin commands, opcodes of I/O commands (NVM Command Set 1.1), feature identifiers.
        assert_eq!(
            [admin::DELETE_SQ, admin::CREATE_SQ, admin::GET_LOG_PAGE, admin::DELETE_CQ, admin::CREATE_CQ],
            [0, 1, 2, 4, 5]
        );
        assert_eq!([admin::IDENTIFY, admin::ABORT, admin::SET_FEATURES, admin::GET_FEATURES], [6, 8, 9, 0xa]);
        assert_eq!([admin::ASYNC_EVENT_REQUEST, admin::KEEP_ALIVE], [0xc, 0x18]);
        assert_eq!([io::FLUSH, io::WRITE, io::READ, io::WRITE_UNCORRECTABLE, io::COMPARE], [0, 1, 2, 4, 5]);
        assert_eq!([io::WRITE_ZEROES, io::DATASET_MANAGEMENT], [8, 9]);
        assert_eq!(
            [feature::VOLATILE_WRITE_CACHE, feature::NUMBER_OF_QUEUES, feature::ASYNC_EVENT_CONFIG],
            [6, 7, 0xb]
        );
        // 4.1.1 and 4.2.1: the entries of submission and completion queues, byte by byte.
        let mut read =
            SqEntry { prp1: 0x1122_3344_5566_7788, prp2: 0x99aa_bbcc_ddee_ff00, ..SqEntry::new(io::READ, 0x0b0a, 0xd) };
        read.set_range(0x0102_0304_0506, 8);
        let bytes = bytemuck::bytes_of(&read);
        assert_eq!((bytes.len(), &bytes[..8]), (64, &[2, 0, 0x0a, 0x0b, 0xd, 0, 0, 0][..]));
        assert_eq!(bytes[24..32], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!(bytes[32..40], 0x99aa_bbcc_ddee_ff00u64.to_le_bytes());
        assert_eq!(bytes[40..52], [6, 5, 4, 3, 2, 1, 0, 0, 7, 0, 0, 0]);
        let done = CqEntry::new(0x0403_0201, 0x0605, 0x0807, 0x0a09, true, status::LBA_OUT_OF_RANGE);
        assert_eq!(bytemuck::bytes_of(&done), [1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8, 9, 0xa, 1, 1]);
    }

    #[test]
    fn completion_fields_come_back() {
        let c = CqEntry::new(7, 0x1234, 5, 0xabcd, true, status::LBA_OUT_OF_RANGE.dnr());
        assert_eq!((c.sq_head(), c.sqid(), c.cid(), c.phase()), (0x1234, 5, 0xabcd, true));
        assert_eq!(c.status(), status::LBA_OUT_OF_RANGE.dnr());
        assert!(!c.status().is_success() && c.status().do_not_retry());
        assert_eq!(c.status().to_string(), "LBA out of range (type 0x0, code 0x80, do not retry)");
    }

    #[test]
    fn a_command_keeps_its_range() {
        let mut c = SqEntry::new(io::READ, 9, 1);
        c.set_range(0x1_2345_6789, 65_536);
        assert_eq!((c.opcode(), c.cid(), c.slba(), c.blocks()), (io::READ, 9, 0x1_2345_6789, 65_536));
    }
}
