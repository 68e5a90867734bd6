//! The size of a PE's network: queue pairs, their rings, and the staging memory for data that is in no heap.

use super::super::ShmemError;
use crate::engine::abi;
use crate::rdma::MAX_LOG_BLOCKS;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// Variable for the number of queue pairs to each PE.
const QUEUES_VARIABLE: &str = "WARPBELL_QUEUES_PER_PEER";
/// Variable for the number of 64-byte blocks in each send ring.
const BLOCKS_VARIABLE: &str = "WARPBELL_QUEUE_BLOCKS";
/// Variable for the bytes of staging memory for each block.
const STAGING_VARIABLE: &str = "WARPBELL_STAGING_BYTES";

/// The largest number of queue pairs to one PE.
const MOST_QUEUES: usize = abi::MAX_QUEUES;
/// The smallest number of blocks of a ring: enough for a few of the largest work requests.
const FEWEST_BLOCKS: u32 = 16;
/// Staging memory is a multiple of this, so that the staging of two blocks never shares a cache line.
const STAGING_UNIT: usize = 64;
/// The largest staging memory of one block, in bytes.
const MOST_STAGING: usize = 1 << 20;
/// The largest default staging memory of one PE, in bytes. Worlds with so many PEs that this is exceeded get shorter
/// rings.
const STAGING_BUDGET: usize = 256 << 20;
/// The shortest rings that this limit leads to.
const SHORT_RING: u32 = 64;

/// Settings of a PE's network. The library chooses those that are `None`: see [`NetworkPlan`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NetworkSettings {
    /// Queue pairs to each PE, a power of two from 1 to 64.
    pub queues_per_peer: Option<usize>,
    /// Blocks of 64 bytes in each send ring, a power of two from 16 to 32768.
    pub queue_blocks: Option<u32>,
    /// Bytes of staging memory for each block, a multiple of 64 up to 1 MiB.
    pub staging_bytes: Option<usize>,
}

impl NetworkSettings {
    /// Returns these settings, with those that are `None` taken from the environment.
    pub(in super::super) fn or_from_env(self) -> Result<Self, ShmemError> {
        self.or_from(|name| std::env::var(name).ok())
    }

    fn or_from(self, variable: impl Fn(&'static str) -> Option<String>) -> Result<Self, ShmemError> {
        let read = |name: &'static str| -> Result<Option<u64>, ShmemError> {
            let Some(text) = variable(name).filter(|t| !t.trim().is_empty()) else { return Ok(None) };
            let value: Bytes = text.parse().map_err(|e| ShmemError::Setting { name, reason: format!("{e}") })?;
            Ok(Some(value.0))
        };
        let queues = self.queues_per_peer.map(|n| n as u64).or(read(QUEUES_VARIABLE)?);
        let blocks = self.queue_blocks.map(u64::from).or(read(BLOCKS_VARIABLE)?);
        let staging = self.staging_bytes.map(|n| n as u64).or(read(STAGING_VARIABLE)?);
        let wrong = |name, value: Option<u64>, least: u64, most: u64, unit: &str, fits: fn(u64) -> bool| match value {
            Some(n) if !(least..=most).contains(&n) || !fits(n) => {
                Err(ShmemError::Setting { name, reason: format!("{n} is not {unit} from {least} to {most}") })
            }
            _ => Ok(()),
        };
        let most_blocks = 1 << MAX_LOG_BLOCKS;
        wrong(QUEUES_VARIABLE, queues, 1, MOST_QUEUES as u64, "a power of two", u64::is_power_of_two)?;
        wrong(BLOCKS_VARIABLE, blocks, FEWEST_BLOCKS.into(), most_blocks, "a power of two", u64::is_power_of_two)?;
        let fits = |n: u64| n.is_multiple_of(STAGING_UNIT as u64);
        wrong(STAGING_VARIABLE, staging, STAGING_UNIT as u64, MOST_STAGING as u64, "a multiple of 64", fits)?;
        Ok(Self {
            queues_per_peer: queues.map(|n| n as usize),
            queue_blocks: blocks.map(|n| n as u32),
            staging_bytes: staging.map(|n| n as usize),
        })
    }
}

/// The size of the network of every PE of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NetworkPlan {
    /// Queue pairs to each PE, including the PE itself.
    pub queues_per_peer: usize,
    /// Blocks of 64 bytes in each send ring.
    pub queue_blocks: u32,
    /// Bytes of staging memory for each block.
    pub staging_bytes: usize,
}

impl NetworkPlan {
    /// Plans the network for a world of `pes` PEs.
    ///
    /// The default on CPU engines is one queue pair of 256 blocks to each PE, with 4 KiB of staging for each block:
    /// their few threads wait for what they send. The default on GPUs is four queue pairs of 1024 blocks, with 2 KiB of
    /// staging. Worlds of very many PEs get shorter rings, so that staging stays within 256 MiB.
    pub(in super::super) fn new(settings: NetworkSettings, pes: usize, on_gpus: bool) -> Self {
        let (queues, blocks, staging) = if on_gpus { (4, 1024, 2 << 10) } else { (1, 256, 4 << 10) };
        let queues_per_peer = settings.queues_per_peer.unwrap_or(queues);
        let staging_bytes = settings.staging_bytes.unwrap_or(staging);
        let mut queue_blocks: u32 = settings.queue_blocks.unwrap_or(blocks);
        if settings.queue_blocks.is_none() {
            let all = |blocks: u32| pes.saturating_mul(queues_per_peer * blocks as usize * staging_bytes);
            while queue_blocks > SHORT_RING && all(queue_blocks) > STAGING_BUDGET {
                queue_blocks /= 2;
            }
        }
        Self { queues_per_peer, queue_blocks, staging_bytes }
    }

    /// Returns the bytes of staging memory of one queue pair.
    pub(in super::super) fn staging_of_queue(&self) -> usize {
        self.queue_blocks as usize * self.staging_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_have_room_for_every_pe() {
        let open = NetworkSettings::default();
        let few = NetworkPlan::new(open, 4, false);
        assert_eq!((few.queues_per_peer, few.queue_blocks, few.staging_bytes), (1, 256, 4096));
        let gpus = NetworkPlan::new(open, 8, true);
        assert_eq!((gpus.queues_per_peer, gpus.queue_blocks, gpus.staging_of_queue()), (4, 1024, 2 << 20));
        let many = NetworkPlan::new(open, 1024, false);
        assert_eq!(many.queue_blocks, SHORT_RING);
        let asked = NetworkSettings { queue_blocks: Some(512), ..open };
        assert_eq!(NetworkPlan::new(asked, 1024, false).queue_blocks, 512, "a setting overrides the default");
    }

    #[test]
    fn settings_come_from_the_program_and_then_the_environment() {
        let variable = |name| match name {
            QUEUES_VARIABLE => Some("8".to_owned()),
            BLOCKS_VARIABLE => Some("1k".to_owned()),
            _ => Some(" ".to_owned()),
        };
        let given = NetworkSettings { queues_per_peer: Some(2), ..Default::default() };
        let read = given.or_from(variable).unwrap();
        assert_eq!((read.queues_per_peer, read.queue_blocks, read.staging_bytes), (Some(2), Some(1024), None));
        for (name, value, word) in [
            (QUEUES_VARIABLE, "3", "power of two"),
            (QUEUES_VARIABLE, "0", "from 1 to 64"),
            (BLOCKS_VARIABLE, "65536", "to 32768"),
            (STAGING_VARIABLE, "100", "multiple of 64"),
            (STAGING_VARIABLE, "much", "much"),
        ] {
            let only = |asked: &'static str| (asked == name).then(|| value.to_owned());
            let e = NetworkSettings::default().or_from(only).unwrap_err().to_string();
            assert!(e.contains(name) && e.contains(word), "{e}");
        }
    }
}
