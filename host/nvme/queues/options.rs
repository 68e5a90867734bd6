//! What queue pairs can be asked for.

use crate::data_path::DoorbellChoice;
use crate::memory::Place;
use crate::nvme::NvmeError;
use crate::nvme::controller::{Controller, PAGE_BYTES, Ready};
use crate::nvme::layout::{self, DEPTHS};
use crate::setters::setters;
use std::fmt;

/// Where the data of a command lands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// In the memory that the kernel names: the device reaches it.
    Direct,
    /// In a host buffer that belongs to the command's slot; lanes copy it from there.
    Bounce {
        /// Bytes of each slot's buffer: 512, 1024, 2048, or whole pages of 4096 up to 2 MiB.
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

/// What queues to create.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueOptions {
    /// Queue pairs.
    pub count: u32,
    /// Entries of each: a power of two from 2 to 65,536, and not more than the controller has (CAP.MQES).
    pub depth: u32,
    /// Where the rings are. `Device` needs a device that reaches the kernels' memory.
    pub memory: Place,
    /// Submission rings go to the controller memory buffer; completion rings stay where `memory` says.
    pub submission_in_buffer: bool,
    /// Where data lands.
    pub landing: Landing,
    /// Who is to ring.
    pub doorbell: DoorbellChoice,
    /// The first ticket that kernels take, a multiple of twice the depth: the device starts at slot 0 with phase 1, and
    /// the phase that kernels expect follows from the ticket's lap, which must be even. Anything but 0 is for tests
    /// of the wrap-around.
    pub first_ticket: u32,
}

setters!(QueueOptions {
    count: u32,
    depth: u32,
    memory: Place,
    submission_in_buffer: bool,
    landing: Landing,
    doorbell: DoorbellChoice,
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
            return refuse("no queue pairs were asked for; ask for one or more".to_owned());
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
