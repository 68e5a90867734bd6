//! Options of queue pairs.

use crate::data_path::DoorbellChoice;
use crate::memory::Place;
use crate::nvme::NvmeError;
use crate::nvme::controller::{Controller, PAGE_BYTES, Ready};
use crate::nvme::layout::{self, DEPTHS};
use crate::setters::setters;
use std::fmt;

/// Place where the data of a command lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// The memory that the kernel names. The device must be able to access it.
    Direct,
    /// A host buffer of the command's slot. Lanes copy the data from there.
    Bounce {
        /// Size of each slot's buffer in bytes: 512, 1024, 2048, or whole pages of 4096 up to 2 MiB.
        bytes_per_slot: usize,
    },
}

impl fmt::Display for Landing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Bounce { .. } => "bounce",
        })
    }
}

/// Options for creating queues.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueOptions {
    /// Number of queue pairs.
    pub count: u32,
    /// Entries of each queue: a power of two from 2 to 65,536, and at most the controller's limit (CAP.MQES).
    pub depth: u32,
    /// Place of the rings. `Device` needs a device that can access the kernels' memory.
    pub memory: Place,
    /// Puts submission rings into the controller memory buffer. Completion rings stay where `memory` says.
    pub submission_in_buffer: bool,
    /// Place where data lands.
    pub landing: Landing,
    /// Writer of the doorbells.
    pub doorbell: DoorbellChoice,
    /// Kernels post the commands to a remote controller themselves, if its transport is RDMA. The host cannot borrow such
    /// queues ([`HostQueue::on`](crate::nvme::HostQueue::on)). Otherwise host threads carry the commands.
    pub capsules: bool,
    /// First ticket that kernels take, a multiple of twice the depth. The device starts at slot 0 with phase 1.
    /// Kernels derive the expected phase from the ticket's lap, which must be even at the start. Values other than 0
    /// are for tests of the wrap-around.
    pub first_ticket: u32,
}

setters!(QueueOptions {
    count: u32,
    depth: u32,
    memory: Place,
    submission_in_buffer: bool,
    landing: Landing,
    doorbell: DoorbellChoice,
    capsules: bool,
    first_ticket: u32,
});

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            count: 1,
            depth: 256,
            memory: Place::Host,
            submission_in_buffer: false,
            doorbell: DoorbellChoice::Auto,
            capsules: true,
            landing: Landing::Bounce { bytes_per_slot: PAGE_BYTES },
            first_ticket: 0,
        }
    }
}

impl Controller<Ready> {
    pub(super) fn check_options(&self, options: &QueueOptions) -> Result<(), NvmeError> {
        let device = || self.name().to_owned();
        let refuse = |reason: String| Err(NvmeError::Options { device: device(), reason });
        let QueueOptions { count, depth, landing, first_ticket, .. } = *options;
        if !depth.is_power_of_two() || !DEPTHS.contains(&depth) {
            return Err(NvmeError::Depth { device: device(), depth });
        }
        let most = self.cap().max_queue_entries();
        if depth > most {
            let fits = 1 << most.ilog2();
            return Err(NvmeError::TooDeep { device: device(), depth, most, fits });
        }
        if count == 0 {
            return refuse("0 queue pairs were requested; ask for one or more".to_owned());
        }
        // Twice 65,536 still divides the range of tickets.
        if !first_ticket.is_multiple_of(2 * depth) {
            return refuse(format!(
                "the first ticket {first_ticket} is not a multiple of {}, twice the depth",
                2 * depth
            ));
        }
        match landing {
            Landing::Direct => Ok(()),
            Landing::Bounce { bytes_per_slot } => layout::check_bounce(bytes_per_slot).or_else(refuse),
        }
    }
}
