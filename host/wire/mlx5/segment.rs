//! The 16-byte segments of work queue entries (rdma-core `mlx5dv.h`, `struct mlx5_wqe_*_seg`).

use super::{BLOCK_SEGMENTS, MAX_24, SEGMENT_BYTES};
use crate::wire::be::{Be16, Be32, Be64};
use bytemuck::{Pod, Zeroable};
use core::mem::offset_of;

/// The first segment of every entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct ControlSegment {
    /// Modifier in 31:24, index of the entry's first block in 23:8, opcode in 7:0.
    pub opmod_index_opcode: Be32,
    /// Queue pair in 31:8, number of segments in 5:0.
    pub qpn_ds: Be32,
    /// Checksum, for queue pairs that request it; else 0.
    pub signature: u8,
    /// Stream of a dynamically connected initiator with streams; else 0.
    pub dci_stream: Be16,
    /// Fence, completion, solicited event: [`super::Flags`].
    pub flags: u8,
    /// Immediate data, or the key to invalidate.
    pub immediate: Be32,
}

impl ControlSegment {
    /// Returns the opcode modifier.
    pub const fn opmod(&self) -> u8 {
        (self.opmod_index_opcode.get() >> 24) as u8
    }
    /// Returns the number of the entry's first block, modulo 65,536, counted from the queue's creation.
    pub const fn index(&self) -> u16 {
        (self.opmod_index_opcode.get() >> 8) as u16
    }
    /// Returns the opcode's code.
    pub const fn opcode(&self) -> u8 {
        self.opmod_index_opcode.get() as u8
    }
    /// Returns the queue pair number.
    pub const fn qpn(&self) -> u32 {
        self.qpn_ds.get() >> 8
    }
    /// Returns the number of segments, including this one.
    pub const fn ds(&self) -> usize {
        (self.qpn_ds.get() & Self::MAX_DS) as usize
    }
    /// Returns the number of blocks that the entry fills.
    pub const fn blocks(&self) -> usize {
        blocks_of(self.ds())
    }

    pub(super) const MAX_DS: u32 = 0x3f;
    pub(super) const DS_RESERVED: u32 = 0xc0;
}

/// Returns the number of blocks that `ds` segments fill.
pub const fn blocks_of(ds: usize) -> usize {
    ds.div_ceil(BLOCK_SEGMENTS)
}

/// Address and key of the peer's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct RemoteSegment {
    /// Address in the remote memory region's own address range.
    pub address: Be64,
    /// The region's remote key.
    pub key: Be32,
    /// Must be 0.
    pub reserved: Be32,
}

/// A piece of local memory (scatter/gather element).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct DataSegment {
    /// Length in bytes: 1 to [`DataSegment::MAX_BYTES`].
    pub bytes: Be32,
    /// Local key.
    pub key: Be32,
    /// Address in the memory region's own address range.
    pub address: Be64,
}

impl DataSegment {
    /// Largest length of a piece. Bit 31 marks inline data.
    pub const MAX_BYTES: u32 = 0x7fff_ffff;
    /// The invalid local key. It ends the list of a receive entry (`MLX5_INVALID_LKEY`).
    pub const INVALID_KEY: u32 = 0x100;
    /// End marker of a receive entry.
    pub const END: Self = Self { bytes: Be32::new(0), key: Be32::new(Self::INVALID_KEY), address: Be64::new(0) };

    /// Creates a segment for `bytes` bytes of memory at `address`.
    pub const fn new(address: u64, key: u32, bytes: u32) -> Self {
        Self { bytes: Be32::new(bytes), key: Be32::new(key), address: Be64::new(address) }
    }
}

/// Header of inline data. The data follows it directly, as bytes, padded to whole segments.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct InlineHeader {
    /// [`InlineHeader::MARK`] and the length in bytes.
    pub bytes: Be32,
}

impl InlineHeader {
    /// Bit 31. It distinguishes inline data from a data segment.
    pub const MARK: u32 = 1 << 31;

    /// Returns the number of segments that the header and `bytes` bytes of data fill.
    pub const fn segments(bytes: usize) -> usize {
        (size_of::<Self>() + bytes).div_ceil(SEGMENT_BYTES)
    }
}

/// Operands of 64-bit compare-swap and fetch-add.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct AtomicSegment {
    /// The value to swap in or to add.
    pub swap_add: Be64,
    /// The value to compare with; 0 for fetch-add.
    pub compare: Be64,
}

/// Operands of a masked 32-bit fetch-add.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct MaskedAdd32Segment {
    /// Addend.
    pub add: Be32,
    /// Most significant bit of each field. No carry leaves it.
    pub boundary: Be32,
    /// Must be 0.
    pub reserved: Be64,
}

/// Operands of a masked 64-bit fetch-add.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct MaskedAdd64Segment {
    /// Addend.
    pub add: Be64,
    /// Most significant bit of each field. No carry leaves it.
    pub boundary: Be64,
}

/// Operands of a masked 32-bit compare-swap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct MaskedSwap32Segment {
    /// The value to swap in.
    pub swap: Be32,
    /// The value to compare with.
    pub compare: Be32,
    /// Bits that are swapped.
    pub swap_mask: Be32,
    /// Bits that are compared.
    pub compare_mask: Be32,
}

/// Operands of a masked 64-bit compare-swap: two segments.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct MaskedSwap64Segments {
    /// The value to swap in.
    pub swap: Be64,
    /// The value to compare with.
    pub compare: Be64,
    /// Bits that are swapped.
    pub swap_mask: Be64,
    /// Bits that are compared.
    pub compare_mask: Be64,
}

/// Operands of a wait entry: a completion of a queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct WaitSegment {
    /// Must be 0.
    pub reserved: Be64,
    /// Number of the completion.
    pub index: Be32,
    /// Completion queue.
    pub cqn: Be32,
}

/// Destination of a dynamically connected entry within one InfiniBand subnet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct HalfAddressVector {
    /// Access key of the target.
    pub dc_key: Be64,
    /// Number of the target in 23:0; [`HalfAddressVector::FULL`] is set if a full vector follows.
    pub dct: Be32,
    /// Static rate in 7:4, service level in 3:0.
    pub rate_level: u8,
    /// Force loopback in 7, source path bits in 6:0.
    pub loopback_path: u8,
    /// Destination LID.
    pub rlid: Be16,
}

impl HalfAddressVector {
    /// Bit 31 of `dct`: the vector has all 48 bytes.
    pub const FULL: u32 = 1 << 31;

    /// Returns the target's number.
    pub const fn target(&self) -> u32 {
        self.dct.get() & MAX_24
    }
    /// Returns true if a full vector follows.
    pub const fn is_full(&self) -> bool {
        self.dct.get() & Self::FULL != 0
    }
}

/// Second and third segment of a full address vector.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct GlobalAddress {
    /// Must be 0.
    pub reserved: Be32,
    /// Destination MAC address.
    pub rmac: [u8; 6],
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Global route present in 30, source GID index in 27:20, flow label in 19:0.
    pub grh_gid_flow: Be32,
    /// Destination GID.
    pub rgid: [u8; 16],
}

/// A full address vector: 48 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct AddressVector {
    /// First segment, with [`HalfAddressVector::FULL`] set.
    pub half: HalfAddressVector,
    /// Second and third segment.
    pub global: GlobalAddress,
}

const _: () = {
    assert!(size_of::<ControlSegment>() == 16);
    assert!(offset_of!(ControlSegment, qpn_ds) == 4);
    assert!(offset_of!(ControlSegment, signature) == 8);
    assert!(offset_of!(ControlSegment, dci_stream) == 9);
    assert!(offset_of!(ControlSegment, flags) == 11);
    assert!(offset_of!(ControlSegment, immediate) == 12);
    assert!(size_of::<RemoteSegment>() == 16);
    assert!(offset_of!(RemoteSegment, key) == 8);
    assert!(size_of::<DataSegment>() == 16);
    assert!(offset_of!(DataSegment, key) == 4);
    assert!(offset_of!(DataSegment, address) == 8);
    assert!(size_of::<InlineHeader>() == 4);
    assert!(size_of::<AtomicSegment>() == 16);
    assert!(offset_of!(AtomicSegment, compare) == 8);
    assert!(size_of::<MaskedAdd32Segment>() == 16);
    assert!(offset_of!(MaskedAdd32Segment, boundary) == 4);
    assert!(size_of::<MaskedAdd64Segment>() == 16);
    assert!(offset_of!(MaskedAdd64Segment, boundary) == 8);
    assert!(size_of::<MaskedSwap32Segment>() == 16);
    assert!(offset_of!(MaskedSwap32Segment, compare) == 4);
    assert!(offset_of!(MaskedSwap32Segment, swap_mask) == 8);
    assert!(offset_of!(MaskedSwap32Segment, compare_mask) == 12);
    assert!(size_of::<MaskedSwap64Segments>() == 32);
    assert!(offset_of!(MaskedSwap64Segments, compare) == 8);
    assert!(offset_of!(MaskedSwap64Segments, swap_mask) == 16);
    assert!(offset_of!(MaskedSwap64Segments, compare_mask) == 24);
    assert!(size_of::<WaitSegment>() == 16);
    assert!(offset_of!(WaitSegment, index) == 8);
    assert!(offset_of!(WaitSegment, cqn) == 12);
    assert!(size_of::<HalfAddressVector>() == 16);
    assert!(offset_of!(HalfAddressVector, dct) == 8);
    assert!(offset_of!(HalfAddressVector, rate_level) == 12);
    assert!(offset_of!(HalfAddressVector, loopback_path) == 13);
    assert!(offset_of!(HalfAddressVector, rlid) == 14);
    assert!(size_of::<AddressVector>() == 48);
    assert!(offset_of!(AddressVector, global) == 16);
    assert!(offset_of!(GlobalAddress, rmac) == 4);
    assert!(offset_of!(GlobalAddress, traffic_class) == 10);
    assert!(offset_of!(GlobalAddress, hop_limit) == 11);
    assert!(offset_of!(GlobalAddress, grh_gid_flow) == 12);
    assert!(offset_of!(GlobalAddress, rgid) == 16);
    // Entries are cut out of rings at any byte.
    assert!(align_of::<ControlSegment>() == 1 && align_of::<DataSegment>() == 1 && align_of::<AddressVector>() == 1);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_segment_is_read_where_its_fields_are() {
        let c: ControlSegment =
            bytemuck::cast([0x09u8, 0xff, 0xfe, 0x14, 0x12, 0x34, 0x56, 0x05, 0, 0, 7, 0x48, 0xde, 0xad, 0xbe, 0xef]);
        assert_eq!((c.opmod(), c.index(), c.opcode()), (9, 0xfffe, 0x14));
        assert_eq!((c.qpn(), c.ds(), c.blocks()), (0x12_3456, 5, 2));
        assert_eq!((c.signature, c.dci_stream.get(), c.flags, c.immediate.get()), (0, 7, 0x48, 0xdead_beef));
    }

    #[test]
    fn segments_fill_blocks() {
        assert_eq!([1, 4, 5, 8, 9, 19, 63].map(blocks_of), [1, 1, 2, 2, 3, 5, 16]);
        // A write of a warp's values of 1, 2, 4 and 8 bytes: control and remote segment come first.
        assert_eq!([12, 28, 32, 64, 128, 256].map(|b| 2 + InlineHeader::segments(b)), [3, 4, 5, 7, 11, 19]);
    }
}
