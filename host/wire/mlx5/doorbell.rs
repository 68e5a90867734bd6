//! Doorbells: records in memory, and registers in the adapter's page (rdma-core `mlx5dv.h`, `cq.c`, `qp.c`).

use super::MAX_24;
use super::segment::{ControlSegment, blocks_of};
use crate::wire::be::Be32;
use bytemuck::{Pod, Zeroable};
use core::mem::offset_of;

/// Byte offsets in a user access region (UAR), a page of registers with a single owner.
pub mod uar {
    /// Arms a completion queue; 64 bits.
    pub const ARM: usize = 0x20;
    /// Send doorbell of queue pairs without a doorbell record ([`super::RecordMode::NoneExternal`]).
    pub const SEND_WITHOUT_RECORD: usize = 0x600;
    /// The first send doorbell.
    pub const SEND: usize = 0x800;
    /// Distance between send doorbells of a region that is not write-combining.
    pub const SEND_STRIDE: usize = 0x100;
}

/// The doorbell record of a queue pair: 8 bytes, aligned to 8.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct QpRecord {
    /// Number of posted receive entries, modulo 65,536.
    pub receive: Be32,
    /// Next free block of the send queue, modulo 65,536. The adapter reads this word again when the queue pair fails.
    /// With a wrong word, everything works until then, and no error completion ever arrives.
    pub send: Be32,
}

/// The doorbell record of a completion queue: 8 bytes, aligned to 8.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct CqRecord {
    /// Number of consumed entries, modulo 2^24.
    pub consumed: Be32,
    /// [`arm_word`], or 0 if no event was ever requested.
    pub arm: Be32,
}

const _: () = {
    assert!(size_of::<QpRecord>() == 8 && size_of::<CqRecord>() == 8);
    assert!(offset_of!(QpRecord, receive) == 0 && offset_of!(QpRecord, send) == 4);
    assert!(offset_of!(CqRecord, consumed) == 0 && offset_of!(CqRecord, arm) == 4);
};

impl QpRecord {
    /// Creates the record of a queue pair with `receive` posted receive entries. `send` is its next free block.
    pub const fn new(receive: u64, send: u64) -> Self {
        Self { receive: Be32::new(receive as u16 as u32), send: Be32::new(send as u16 as u32) }
    }
}

impl CqRecord {
    /// Creates the record of a completion queue with `consumed` consumed entries and no event request.
    pub const fn new(consumed: u64) -> Self {
        Self { consumed: Be32::new(consumed as u32 & MAX_24), arm: Be32::new(0) }
    }
}

/// Returns the second word of a completion queue's record for an event request. `serial` numbers the requests.
/// `solicited` limits the request to solicited completions.
pub const fn arm_word(serial: u32, solicited: bool, consumed: u64) -> u32 {
    (serial & 3) << 28 | (solicited as u32) << 24 | consumed as u32 & MAX_24
}

/// Returns the value for [`uar::ARM`], as bytes in memory order. The record must already contain the arm word.
pub fn arm_doorbell(arm: u32, cqn: u32) -> [u8; 8] {
    (u64::from(arm) << 32 | u64::from(cqn)).to_be_bytes()
}

/// A send doorbell: the 64-bit store that announces work on a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendDoorbell {
    /// Queue pair.
    pub qpn: u32,
    /// Next free block of the send queue, modulo 65,536.
    pub next: u16,
}

impl SendDoorbell {
    /// Creates a doorbell that announces all blocks before `next`.
    pub const fn new(qpn: u32, next: u64) -> Self {
        Self { qpn, next: next as u16 }
    }
    /// Returns the bytes in memory order, for a single store.
    pub const fn to_bytes(self) -> [u8; 8] {
        ((self.next as u64) << 40 | (self.qpn as u64 & MAX_24 as u64) << 8).to_be_bytes()
    }
    /// Decodes stored bytes. They are in one of two forms. In this crate's form, opcode and number of segments are 0,
    /// and the index is the next block. libibverbs stores the first half of the last entry's control segment.
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        let v = u64::from_be_bytes(bytes);
        let (index, opcode, ds) = ((v >> 40) as u16, (v >> 32) as u8, v as usize & ControlSegment::MAX_DS as usize);
        let after = if opcode == 0 && ds == 0 { 0 } else { blocks_of(ds) as u16 };
        Self { qpn: (v >> 8) as u32 & MAX_24, next: index.wrapping_add(after) }
    }
}

/// Doorbell record mode of a queue pair (`send_dbr_mode` of its context).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordMode {
    /// The queue pair has a doorbell record.
    #[default]
    Valid = 0,
    /// The queue pair has no record. Doorbells go to [`uar::SEND_WITHOUT_RECORD`]. Needs a capability.
    NoneExternal = 1,
    /// The queue pair has no record; for the adapter's own use.
    NoneInternal = 2,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_records_and_doorbells() {
        let d = SendDoorbell::new(0xabcd, 0x1235);
        assert_eq!(d.to_bytes(), [0, 0x12, 0x35, 0, 0, 0xab, 0xcd, 0]);
        assert_eq!(u64::from_le_bytes(d.to_bytes()), 0x00cd_ab00_0035_1200);
        assert_eq!(SendDoorbell::new(0xabcd, 0x1_0000).to_bytes(), [0, 0, 0, 0, 0, 0xab, 0xcd, 0]);
        assert_eq!(bytemuck::bytes_of(&QpRecord::new(0, 0x1235)), [0, 0, 0, 0, 0, 0, 0x12, 0x35]);
        assert_eq!(bytemuck::bytes_of(&QpRecord::new(0x2_0003, 0x1_0000)), [0, 0, 0, 3, 0, 0, 0, 0]);
        assert_eq!(bytemuck::bytes_of(&CqRecord::new(0x15)), [0, 0, 0, 0x15, 0, 0, 0, 0]);
        assert_eq!(bytemuck::bytes_of(&CqRecord::new(0x100_0015)), [0, 0, 0, 0x15, 0, 0, 0, 0]);
    }

    #[test]
    fn arming_says_which_completions_and_how_often() {
        assert_eq!(arm_word(1, false, 0x100_0007), 0x1000_0007);
        assert_eq!(arm_word(6, true, 0), 0x2100_0000);
        assert_eq!(arm_doorbell(0x1000_0007, 0x77), [0x10, 0, 0, 7, 0, 0, 0, 0x77]);
    }

    proptest! {
        #[test]
        fn both_forms_of_a_doorbell_are_read(qpn in 0..=MAX_24, index: u16, ds in 1u8..64, opcode: u8) {
            let next = u64::from(index);
            prop_assert_eq!(SendDoorbell::from_bytes(SendDoorbell::new(qpn, next).to_bytes()), SendDoorbell { qpn, next: index });
            let control = [index.to_be_bytes().as_slice(), &[opcode], &(qpn << 8 | u32::from(ds)).to_be_bytes()].concat();
            let bytes = [0, control[0], control[1], control[2], control[3], control[4], control[5], control[6]];
            let after = index.wrapping_add(u16::from(ds).div_ceil(4));
            prop_assert_eq!(SendDoorbell::from_bytes(bytes), SendDoorbell { qpn, next: after });
        }
    }
}
