//! mlx5: work queue entries, completions, doorbells and DevX commands of ConnectX adapters. Layouts are those of
//! rdma-core's `mlx5dv.h` and `mlx5_ifc.h`. All integers on the wire are big-endian; payload is bytes.
//!
//! The send queue is a ring of 64-byte blocks. A work queue entry (WQE) has up to 63 segments of 16 bytes. The first is
//! the control segment. An entry fills whole blocks; one of several blocks may wrap around the ring's end.

mod atomic;
pub mod cq;
pub mod cqe;
pub mod devx;
pub mod doorbell;
pub mod opcode;
pub mod receive;
pub mod segment;
pub mod send_ring;
pub mod syndrome;
pub mod wqe;

#[cfg(test)]
#[path = "../../tests/common/entry_bytes.rs"]
mod bytes;
#[cfg(test)]
#[path = "../../tests/common/mlx5_vectors.rs"]
mod vectors;

internal!(cq::{Collapsed, CompletionRing});
internal!(cqe::{Completion, Cqe, CqeError, CqeOpcode, ErrorCqe, Failure});
internal!(opcode::{Fence, Flags, Opcode, Signal});
internal!(send_ring::SendRing);
internal!(syndrome::{Syndrome, VendorSyndrome});
internal!(wqe::{Atomic, Operation, Payload, Remote, Transport, Wqe, WqeError});

/// Bytes of a send queue block (WQEBB).
pub const BLOCK_BYTES: usize = 64;
/// Bytes of a segment, the unit of `ds`.
pub const SEGMENT_BYTES: usize = 16;
/// Number of segments in a block.
pub const BLOCK_SEGMENTS: usize = BLOCK_BYTES / SEGMENT_BYTES;
/// Bytes of a completion queue entry.
pub const CQE_BYTES: usize = 64;
/// Largest value of a 24-bit queue number, key index or counter.
pub const MAX_24: u32 = 0xff_ffff;
