//! Work queue entries: types, encoding and decoding.
//!
//! Decoding is strict. It rejects everything that the layout does not define, as an adapter does with
//! [`Syndrome::LOCAL_QP_OPERATION`]. It does not check keys, ranges and access rights.

use super::atomic::{OPMOD_32, OPMOD_64};
use super::segment::*;
use super::{BLOCK_BYTES, Flags, MAX_24, Opcode, SEGMENT_BYTES, Syndrome};
use crate::wire::be::{Be16, Be32, Be64};
use bytemuck::Pod;

pub use super::atomic::Atomic;

/// Largest number of segments of an entry on a queue pair with a reliable connection: the field's largest value.
pub const MAX_SEGMENTS: usize = ControlSegment::MAX_DS as usize;
/// Largest number of segments of an entry on a dynamically connected initiator.
pub const MAX_SEGMENTS_DC: usize = 16;

/// Kind of queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// Reliable connection. All entries go to the queue pair's peer.
    ReliableConnection,
    /// Dynamically connected initiator. An entry to a peer names it in an address vector behind the control segment.
    DynamicInitiator,
}

/// A location in the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address in the memory region's own address range.
    pub address: u64,
    /// Remote key.
    pub key: u32,
}

/// Source or destination of an operation's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Pieces of local memory; none for an empty message.
    Pieces(&'a [DataSegment]),
    /// Bytes in the entry itself. Not allowed for reads.
    Inline(&'a [u8]),
}

impl Payload<'_> {
    /// Returns the length of the message in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Pieces(pieces) => pieces.iter().map(|p| u64::from(p.bytes.get())).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// Operation of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Does nothing, but may make a completion.
    Nop,
    /// Writes to the peer's memory.
    Write {
        /// Destination.
        remote: Remote,
        /// Data.
        payload: Payload<'a>,
        /// Immediate data, if any. It consumes a receive of the peer, which delivers it.
        immediate: Option<u32>,
    },
    /// Reads from the peer's memory.
    Read {
        /// Source.
        remote: Remote,
        /// Destination.
        into: &'a [DataSegment],
    },
    /// Sends a message to a receive of the peer.
    Send {
        /// Data.
        payload: Payload<'a>,
        /// Extra information of the message.
        with: SendWith,
    },
    /// Executes an atomic operation on the peer's memory.
    Atomic {
        /// The target word.
        remote: Remote,
        /// The operation.
        action: Atomic,
        /// Destination of the old value; its length is that of the operand.
        landing: DataSegment,
    },
    /// Reads local memory and discards the data. The read pushes earlier writes of the adapter to memory.
    Dump {
        /// Memory to read.
        piece: DataSegment,
    },
    /// Waits for a completion.
    Wait {
        /// Completion queue.
        cqn: u32,
        /// Number of the completion.
        index: u32,
    },
}

/// Extra information of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendWith {
    /// Nothing.
    Nothing,
    /// Immediate data.
    Immediate(u32),
    /// A key of the peer, which the message invalidates.
    Invalidate(u32),
}

impl Operation<'_> {
    /// Returns the opcode.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Nop => Opcode::Nop,
            Self::Write { immediate: None, .. } => Opcode::Write,
            Self::Write { immediate: Some(_), .. } => Opcode::WriteImm,
            Self::Read { .. } => Opcode::Read,
            Self::Send { with: SendWith::Nothing, .. } => Opcode::Send,
            Self::Send { with: SendWith::Immediate(_), .. } => Opcode::SendImm,
            Self::Send { with: SendWith::Invalidate(_), .. } => Opcode::SendInval,
            Self::Atomic { action, .. } => action.opcode(),
            Self::Dump { .. } => Opcode::Dump,
            Self::Wait { .. } => Opcode::Wait,
        }
    }
    /// Returns true if the operation goes to the peer.
    pub const fn is_remote(&self) -> bool {
        !matches!(self, Self::Nop | Self::Dump { .. } | Self::Wait { .. })
    }
    /// Returns the length of the message in bytes.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Write { payload, .. } | Self::Send { payload, .. } => payload.bytes(),
            Self::Read { into, .. } => Payload::Pieces(into).bytes(),
            Self::Atomic { action, .. } => action.operand_bytes().into(),
            Self::Dump { piece } => piece.bytes.get().into(),
            Self::Nop | Self::Wait { .. } => 0,
        }
    }
}

/// Destination of an entry on a dynamically connected initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The target and its LID. `global` determines whether a full vector follows.
    pub half: HalfAddressVector,
    /// Rest of a full vector.
    pub global: Option<GlobalAddress>,
}

/// A work queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wqe<'a> {
    /// Number of its first block, modulo 65,536.
    pub index: u16,
    /// Queue pair number.
    pub qpn: u32,
    /// Fence, completion and solicited event.
    pub flags: Flags,
    /// Destination on a dynamically connected initiator. `None` on other queue pairs, and for operations that do not go
    /// to a peer.
    pub target: Option<Target>,
    /// Operation.
    pub operation: Operation<'a>,
}

/// Error: a work queue entry violates the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WqeError {
    /// The opcode is not defined.
    #[error("opcode {0:#04x} does not exist")]
    UnknownOpcode(u8),
    /// The opcode is not a data path operation of RC or DC queue pairs.
    #[error("{0} is not an operation of this kind of queue pair")]
    Unsupported(Opcode),
    /// The opcode does not have this modifier.
    #[error("{opcode} with the undefined modifier {opmod:#04x}")]
    Modifier {
        /// The opcode.
        opcode: Opcode,
        /// Bits 31:24 of the first word.
        opmod: u8,
    },
    /// The entry has fewer or more segments than the operation's layout.
    #[error("{opcode} in {ds} segments, which its layout does not allow: segment {at} is {what}")]
    Segments {
        /// The opcode.
        opcode: Opcode,
        /// Number of segments in the entry, or the number that it would need.
        ds: usize,
        /// Number of the first wrong segment.
        at: usize,
        /// The fault of that segment.
        what: &'static str,
    },
    /// The given bytes are shorter than the entry's segments.
    #[error("an entry of {ds} segments does not fit into {bytes} bytes")]
    Truncated {
        /// Number of segments.
        ds: usize,
        /// Number of given bytes.
        bytes: usize,
    },
    /// A reserved field is not zero, or a field has an undefined value.
    #[error("{field} is {value:#x}, which the layout does not define")]
    Undefined {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The entry names another queue pair or another block.
    #[error("an entry of queue pair {qpn:#x}, block {index:#x}, is at block {at:#x} of queue pair {of:#x}")]
    Misplaced {
        /// Queue pair that it names.
        qpn: u32,
        /// Block that it names.
        index: u16,
        /// Queue pair that it is on.
        of: u32,
        /// Block at which it begins.
        at: u16,
    },
    /// The length of a piece is 0 or above [`DataSegment::MAX_BYTES`].
    #[error("a data segment of {0:#x} bytes; use 1 to 0x7fffffff, and no segment for an empty message")]
    PieceLength(u32),
    /// The destination of an old value is not as long as the operand.
    #[error("{opcode} on {operand} bytes returns its result in a piece of {bytes} bytes")]
    Landing {
        /// The opcode.
        opcode: Opcode,
        /// Bytes of the operand.
        operand: u32,
        /// Bytes of the piece.
        bytes: u32,
    },
}

impl WqeError {
    /// Returns the syndrome of the entry's error completion.
    pub const fn syndrome(&self) -> Syndrome {
        Syndrome::LOCAL_QP_OPERATION
    }
}

/// Reads the segments of an entry one after the other.
struct Reader<'a> {
    opcode: Opcode,
    ds: usize,
    at: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn wrong(&self, what: &'static str) -> WqeError {
        WqeError::Segments { opcode: self.opcode, ds: self.ds, at: self.at, what }
    }
    fn take<T: Pod>(&mut self) -> Result<T, WqeError> {
        const { assert!(size_of::<T>().is_multiple_of(SEGMENT_BYTES)) };
        let (head, rest) = self.rest.split_at_checked(size_of::<T>()).ok_or_else(|| self.wrong("missing"))?;
        self.rest = rest;
        self.at += size_of::<T>() / SEGMENT_BYTES;
        Ok(bytemuck::pod_read_unaligned(head))
    }
    fn remote(&mut self) -> Result<Remote, WqeError> {
        let s: RemoteSegment = self.take()?;
        zero("the remote segment's last word", s.reserved.get().into())?;
        Ok(Remote { address: s.address.get(), key: s.key.get() })
    }
    fn piece(&mut self) -> Result<DataSegment, WqeError> {
        check_piece(self.take()?)
    }
    fn pieces(&mut self) -> Result<&'a [DataSegment], WqeError> {
        let pieces: &[DataSegment] = bytemuck::try_cast_slice(self.rest).map_err(|_| self.wrong("cut off"))?;
        for p in pieces {
            check_piece(*p)?;
        }
        self.at += pieces.len();
        self.rest = &[];
        Ok(pieces)
    }
    fn payload(&mut self) -> Result<Payload<'a>, WqeError> {
        let Some((header, rest)) = self.rest.split_first_chunk::<{ size_of::<InlineHeader>() }>() else {
            return Ok(Payload::Pieces(&[]));
        };
        let header = u32::from_be_bytes(*header);
        if header & InlineHeader::MARK == 0 {
            return Ok(Payload::Pieces(self.pieces()?));
        }
        let length = (header & !InlineHeader::MARK) as usize;
        let bytes = rest.get(..length).ok_or_else(|| self.wrong("shorter than its inline data"))?;
        let segments = InlineHeader::segments(length);
        self.at += segments;
        self.rest = self.rest.get(segments * SEGMENT_BYTES..).unwrap_or_default();
        Ok(Payload::Inline(bytes))
    }
    fn target(&mut self) -> Result<Target, WqeError> {
        let half: HalfAddressVector = self.take()?;
        zero(
            "bits 30:24 of the address vector's target",
            (half.dct.get() & !HalfAddressVector::FULL & !MAX_24).into(),
        )?;
        let global = half.is_full().then(|| self.take::<GlobalAddress>()).transpose()?;
        if let Some(g) = global {
            zero("the reserved word of the address vector", g.reserved.get().into())?;
        }
        Ok(Target { half, global })
    }
    fn atomic(&mut self, opmod: u8) -> Result<Atomic, WqeError> {
        Ok(match (self.opcode, opmod) {
            (Opcode::AtomicFa, _) => {
                let s: AtomicSegment = self.take()?;
                zero("the compare word of a fetch and add", s.compare.get())?;
                Atomic::FetchAdd { add: s.swap_add.get() }
            }
            (Opcode::AtomicCs, _) => {
                let s: AtomicSegment = self.take()?;
                Atomic::CompareSwap { swap: s.swap_add.get(), compare: s.compare.get() }
            }
            (Opcode::MaskedFa, OPMOD_32) => {
                let s: MaskedAdd32Segment = self.take()?;
                zero("the last 8 bytes of a masked 32-bit fetch and add", s.reserved.get())?;
                Atomic::MaskedAdd32 { add: s.add.get(), boundary: s.boundary.get() }
            }
            (Opcode::MaskedFa, _) => {
                let s: MaskedAdd64Segment = self.take()?;
                Atomic::MaskedAdd64 { add: s.add.get(), boundary: s.boundary.get() }
            }
            (_, OPMOD_32) => {
                let s: MaskedSwap32Segment = self.take()?;
                Atomic::MaskedSwap32 {
                    swap: s.swap.get(),
                    compare: s.compare.get(),
                    swap_mask: s.swap_mask.get(),
                    compare_mask: s.compare_mask.get(),
                }
            }
            _ => {
                let s: MaskedSwap64Segments = self.take()?;
                Atomic::MaskedSwap64 {
                    swap: s.swap.get(),
                    compare: s.compare.get(),
                    swap_mask: s.swap_mask.get(),
                    compare_mask: s.compare_mask.get(),
                }
            }
        })
    }
}

fn zero(field: &'static str, value: u64) -> Result<(), WqeError> {
    if value == 0 { Ok(()) } else { Err(WqeError::Undefined { field, value }) }
}

fn check_piece(piece: DataSegment) -> Result<DataSegment, WqeError> {
    match piece.bytes.get() {
        1..=DataSegment::MAX_BYTES => Ok(piece),
        other => Err(WqeError::PieceLength(other)),
    }
}

fn check_landing(action: &Atomic, landing: DataSegment) -> Result<DataSegment, WqeError> {
    let (operand, bytes) = (action.operand_bytes(), landing.bytes.get());
    if bytes == operand { Ok(landing) } else { Err(WqeError::Landing { opcode: action.opcode(), operand, bytes }) }
}

fn check_opmod(opcode: Opcode, opmod: u8) -> Result<(), WqeError> {
    let good = match opcode {
        Opcode::MaskedFa | Opcode::MaskedCs => matches!(opmod, OPMOD_32 | OPMOD_64),
        _ => opmod == 0,
    };
    if good { Ok(()) } else { Err(WqeError::Modifier { opcode, opmod }) }
}

impl<'a> Wqe<'a> {
    /// Decodes the entry at the start of `bytes`, which holds all its blocks in order (see
    /// [`super::SendRing::gather`]). Bytes behind its last segment are ignored.
    ///
    /// # Errors
    /// * [`WqeError::UnknownOpcode`], [`WqeError::Unsupported`] or [`WqeError::Modifier`] for an invalid opcode or
    ///   modifier.
    /// * [`WqeError::Truncated`] if `bytes` is shorter than the entry's segments.
    /// * [`WqeError::Segments`] if the number of segments does not fit the operation.
    /// * [`WqeError::Undefined`] if a reserved field is not zero, or a field has an undefined value.
    /// * [`WqeError::PieceLength`] or [`WqeError::Landing`] if a piece has an invalid length.
    pub fn parse(bytes: &'a [u8], transport: Transport) -> Result<Self, WqeError> {
        let Some(first) = bytes.get(..SEGMENT_BYTES) else {
            return Err(WqeError::Truncated { ds: 1, bytes: bytes.len() });
        };
        let control: ControlSegment = bytemuck::pod_read_unaligned(first);
        let opcode = Opcode::from_code(control.opcode()).ok_or(WqeError::UnknownOpcode(control.opcode()))?;
        check_opmod(opcode, control.opmod())?;
        let ds = control.ds();
        let most = if transport == Transport::DynamicInitiator { MAX_SEGMENTS_DC } else { MAX_SEGMENTS };
        if ds == 0 || ds > most {
            return Err(WqeError::Undefined { field: "ds", value: ds as u64 });
        }
        zero(
            "bits 7:6 of the control segment's second word",
            (control.qpn_ds.get() & ControlSegment::DS_RESERVED).into(),
        )?;
        zero("signature", control.signature.into())?;
        if transport != Transport::DynamicInitiator {
            zero("DCI stream", control.dci_stream.get().into())?;
        }
        let flags = Flags::from_byte(control.flags)
            .ok_or(WqeError::Undefined { field: "fm_ce_se", value: control.flags.into() })?;
        let rest =
            bytes.get(SEGMENT_BYTES..ds * SEGMENT_BYTES).ok_or(WqeError::Truncated { ds, bytes: bytes.len() })?;
        let mut r = Reader { opcode, ds, at: 1, rest };
        let goes_to_peer = !matches!(opcode, Opcode::Nop | Opcode::Dump | Opcode::Wait);
        let target = (transport == Transport::DynamicInitiator && goes_to_peer).then(|| r.target()).transpose()?;
        let immediate = control.immediate.get();
        if !matches!(opcode, Opcode::WriteImm | Opcode::SendImm | Opcode::SendInval) {
            zero("the immediate of an entry without one", immediate.into())?;
        }
        let operation = match opcode {
            Opcode::Nop => Operation::Nop,
            Opcode::Write => Operation::Write { remote: r.remote()?, payload: r.payload()?, immediate: None },
            Opcode::WriteImm => {
                Operation::Write { remote: r.remote()?, payload: r.payload()?, immediate: Some(immediate) }
            }
            Opcode::Read => Operation::Read { remote: r.remote()?, into: r.pieces()? },
            Opcode::Send => Operation::Send { payload: r.payload()?, with: SendWith::Nothing },
            Opcode::SendImm => Operation::Send { payload: r.payload()?, with: SendWith::Immediate(immediate) },
            Opcode::SendInval => Operation::Send { payload: r.payload()?, with: SendWith::Invalidate(immediate) },
            Opcode::AtomicFa | Opcode::AtomicCs | Opcode::MaskedFa | Opcode::MaskedCs => {
                let (remote, action) = (r.remote()?, r.atomic(control.opmod())?);
                Operation::Atomic { remote, action, landing: check_landing(&action, r.piece()?)? }
            }
            Opcode::Dump => Operation::Dump { piece: r.piece()? },
            Opcode::Wait => {
                let s: WaitSegment = r.take()?;
                zero("the first 8 bytes of a wait segment", s.reserved.get())?;
                zero("bits 31:24 of the completion queue number", (s.cqn.get() & !MAX_24).into())?;
                Operation::Wait { cqn: s.cqn.get(), index: s.index.get() }
            }
            other => return Err(WqeError::Unsupported(other)),
        };
        if !r.rest.is_empty() {
            return Err(r.wrong("one too many"));
        }
        Ok(Self { index: control.index(), qpn: control.qpn(), flags, target, operation })
    }

    /// Checks that the entry names the queue pair `qpn` and the block `index` (modulo 65,536) where it begins. Adapters
    /// reportedly count blocks themselves and may ignore a wrong index, but it is an error all the same.
    ///
    /// # Errors
    /// [`WqeError::Misplaced`] if the entry names another queue pair or block.
    pub fn expect_at(&self, qpn: u32, index: u16) -> Result<(), WqeError> {
        if (self.qpn, self.index) == (qpn, index) {
            Ok(())
        } else {
            Err(WqeError::Misplaced { qpn: self.qpn, index: self.index, of: qpn, at: index })
        }
    }

    /// Encodes the entry as whole blocks, padded with zeroes.
    ///
    /// # Errors
    /// * [`WqeError::Segments`] if the entry needs too many segments.
    /// * [`WqeError::PieceLength`] or [`WqeError::Landing`] if a piece has an invalid length.
    /// * [`WqeError::Undefined`] if a queue number has more than 24 bits.
    pub fn to_bytes(&self) -> Result<Vec<u8>, WqeError> {
        let opcode = self.operation.opcode();
        let mut b = vec![0; SEGMENT_BYTES];
        if let Some(Target { half, global }) = self.target.filter(|_| self.operation.is_remote()) {
            let mut half = half;
            half.dct = Be32::new(half.target() | if global.is_some() { HalfAddressVector::FULL } else { 0 });
            push(&mut b, &half);
            if let Some(g) = global {
                push(&mut b, &g);
            }
        }
        let (mut immediate, mut opmod) = (0, 0);
        match self.operation {
            Operation::Nop => {}
            Operation::Write { remote, payload, immediate: with } => {
                push_remote(&mut b, remote);
                push_payload(&mut b, payload)?;
                immediate = with.unwrap_or(0);
            }
            Operation::Read { remote, into } => {
                push_remote(&mut b, remote);
                push_payload(&mut b, Payload::Pieces(into))?;
            }
            Operation::Send { payload, with } => {
                push_payload(&mut b, payload)?;
                if let SendWith::Immediate(v) | SendWith::Invalidate(v) = with {
                    immediate = v;
                }
            }
            Operation::Atomic { remote, action, landing } => {
                opmod = action.opmod();
                push_remote(&mut b, remote);
                push_atomic(&mut b, &action);
                push(&mut b, &check_landing(&action, landing)?);
            }
            Operation::Dump { piece } => push(&mut b, &check_piece(piece)?),
            Operation::Wait { cqn, index } => {
                zero("bits 31:24 of the completion queue number", (cqn & !MAX_24).into())?;
                push(&mut b, &WaitSegment { reserved: Be64::new(0), index: index.into(), cqn: cqn.into() });
            }
        }
        let ds = b.len() / SEGMENT_BYTES;
        let most = if self.target.is_some() { MAX_SEGMENTS_DC } else { MAX_SEGMENTS };
        if ds > most {
            return Err(WqeError::Segments { opcode, ds, at: most, what: "the last that is possible" });
        }
        zero("bits 31:24 of the queue pair number", (self.qpn & !MAX_24).into())?;
        let control = ControlSegment {
            opmod_index_opcode: Be32::new(
                u32::from(opmod) << 24 | u32::from(self.index) << 8 | u32::from(opcode.code()),
            ),
            qpn_ds: Be32::new(self.qpn << 8 | ds as u32),
            signature: 0,
            dci_stream: Be16::new(0),
            flags: self.flags.to_byte(),
            immediate: Be32::new(immediate),
        };
        b[..SEGMENT_BYTES].copy_from_slice(bytemuck::bytes_of(&control));
        b.resize(blocks_of(ds) * BLOCK_BYTES, 0);
        Ok(b)
    }
}

fn push<T: Pod>(b: &mut Vec<u8>, segment: &T) {
    b.extend_from_slice(bytemuck::bytes_of(segment));
}

fn push_remote(b: &mut Vec<u8>, remote: Remote) {
    push(b, &RemoteSegment { address: remote.address.into(), key: remote.key.into(), reserved: Be32::new(0) });
}

fn push_payload(b: &mut Vec<u8>, payload: Payload<'_>) -> Result<(), WqeError> {
    match payload {
        Payload::Pieces(pieces) => {
            for p in pieces {
                push(b, &check_piece(*p)?);
            }
        }
        Payload::Inline(bytes) => {
            push(b, &InlineHeader { bytes: Be32::new(bytes.len() as u32 | InlineHeader::MARK) });
            b.extend_from_slice(bytes);
            b.resize(b.len().next_multiple_of(SEGMENT_BYTES), 0);
        }
    }
    Ok(())
}

fn push_atomic(b: &mut Vec<u8>, action: &Atomic) {
    match *action {
        Atomic::FetchAdd { add } => push(b, &AtomicSegment { swap_add: add.into(), compare: Be64::new(0) }),
        Atomic::CompareSwap { swap, compare } => {
            push(b, &AtomicSegment { swap_add: swap.into(), compare: compare.into() });
        }
        Atomic::MaskedAdd32 { add, boundary } => {
            push(b, &MaskedAdd32Segment { add: add.into(), boundary: boundary.into(), reserved: Be64::new(0) });
        }
        Atomic::MaskedAdd64 { add, boundary } => {
            push(b, &MaskedAdd64Segment { add: add.into(), boundary: boundary.into() });
        }
        Atomic::MaskedSwap32 { swap, compare, swap_mask, compare_mask } => {
            let (swap_mask, compare_mask) = (swap_mask.into(), compare_mask.into());
            push(b, &MaskedSwap32Segment { swap: swap.into(), compare: compare.into(), swap_mask, compare_mask });
        }
        Atomic::MaskedSwap64 { swap, compare, swap_mask, compare_mask } => {
            let (swap_mask, compare_mask) = (swap_mask.into(), compare_mask.into());
            push(b, &MaskedSwap64Segments { swap: swap.into(), compare: compare.into(), swap_mask, compare_mask });
        }
    }
}

#[cfg(test)]
mod tests;
