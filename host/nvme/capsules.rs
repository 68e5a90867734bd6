//! Queues of remote controllers that kernels drive themselves: kernels post command capsules (NVMe over Fabrics by
//! RDMA), and host threads only connect the queues.

use crate::memory::{DmaRegion, Space};
use std::fmt;
use std::sync::Arc;

/// Commands of a queue whose capsules kernels post.
#[derive(Clone, Debug)]
pub struct CapsulePlan {
    /// Address space of the kernels.
    pub space: Space,
    /// Memory of the submission ring, which is the ring of capsules.
    pub ring: DmaRegion,
    /// Offset of the ring in that memory, in bytes.
    pub offset: usize,
    /// Number of entries.
    pub entries: u32,
    /// Next ticket of kernels.
    pub ticket: u32,
}

/// A queue whose capsules kernels post. It keeps the memory that kernels use, also after the controller has dropped the
/// queue.
pub trait CapsuleQueue: Send + Sync + fmt::Debug {
    /// Returns the address of the `wb_capsules` that kernels start with; `None` before the queue is connected.
    fn address(&self) -> Option<u64>;
}

/// Kernels' access to the queues of a remote controller.
pub trait CapsuleQueues: Send + Sync + fmt::Debug {
    /// Announces that kernels post the capsules of a queue. The Create I/O Submission Queue command that follows
    /// connects the queue, and the Delete command ends it.
    fn announce(&self, queue: u16, plan: CapsulePlan) -> Arc<dyn CapsuleQueue>;

    /// Returns the adapter that carries the capsules and its data path, in words.
    fn path(&self) -> String;
}
