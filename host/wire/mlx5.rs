//! mlx5: work queue entries, completions, doorbells and DevX commands of ConnectX adapters (layouts as in rdma-core's
//! `mlx5dv.h` and `mlx5_ifc.h`). All integers on the wire are big-endian, except payload, which is bytes.
//!
//! The send queue is a ring of 64-byte blocks. A work queue entry (WQE) has up to 63 segments of 16 bytes, the first of them
//! the control segment, and fills whole blocks; an entry of several blocks may begin at the ring's end and go on at its start.

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

pub use cq::{Collapsed, CompletionRing};
pub use cqe::{Completion, Cqe, CqeError, CqeOpcode, ErrorCqe, Failure};
pub use opcode::{Fence, Flags, Opcode, Signal};
pub use send_ring::SendRing;
pub use syndrome::{Syndrome, VendorSyndrome};
pub use wqe::{Atomic, Operation, Payload, Remote, Transport, Wqe, WqeError};

/// Bytes of a block of the send queue (WQEBB).
pub const BLOCK_BYTES: usize = 64;
/// Bytes of a segment; `ds` counts them.
pub const SEGMENT_BYTES: usize = 16;
/// Segments in a block.
pub const BLOCK_SEGMENTS: usize = BLOCK_BYTES / SEGMENT_BYTES;
/// Bytes of a completion queue entry.
pub const CQE_BYTES: usize = 64;
/// The largest queue number, key index, or counter of 24 bits.
pub const MAX_24: u32 = 0xff_ffff;
