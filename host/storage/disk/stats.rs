//! Counters of kernels and of the host.

use crate::engine::abi;
use crate::memory::{MemoryError, Place, Region, Space};
use crate::metrics::{self, Registration, Wide, family};
use crate::nvme::QueueWords;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Defines a structure of counters with the names of a stripe's fields.
macro_rules! counters {
    ($(#[$about:meta])* $counters:ident of $stripe:ty { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$about])*
        #[repr(C)]
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, bytemuck::Pod, bytemuck::Zeroable,
        )]
        #[non_exhaustive]
        pub struct $counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            pub(in crate::storage) fn add_stripe(&mut self, stripe: &$stripe) {
                $(self.$name = self.$name.wrapping_add(stripe.$name);)*
            }
        }

        impl std::ops::Add for $counters {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name.wrapping_add(other.$name),)* }
            }
        }

        impl std::ops::Sub for $counters {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }
        }
    };
}
pub(in crate::storage) use counters;

counters! {
    /// Counters of a volume and its caches, since the volume was made or the counters were last reset. The
    /// difference of two values counts the events between them. The sum of two values counts those of both volumes.
    Stats of abi::Stats {
    /// Read commands.
    reads,
    /// Bytes of the read commands.
    read_bytes,
    /// Write commands.
    writes,
    /// Bytes of the write commands.
    write_bytes,
    /// Cache accesses that found their page.
    hits,
    /// Cache accesses that did not find their page.
    misses,
    /// Pages that caches read.
    fills,
    /// Dirty pages that caches wrote.
    write_backs,
    /// Pages that caches replaced.
    evictions,
    /// Pages requested ahead of their use.
    prefetches,
    /// Optimistic reads that had to be repeated.
    retries,
    /// Writes to submission doorbells.
    doorbells,
    /// Operations that failed.
    errors,
    /// Reads that one copy failed and another one completed.
    redirects,
    /// Blocks that were written back to a copy that could not read them.
    repairs,
    }
}

impl Stats {
    /// Returns the share of cache accesses that found their page, 0 to 1, or `None` before the first access.
    pub fn hit_ratio(&self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0).then(|| self.hits as f64 / all as f64)
    }

    /// Returns the number of commands per doorbell write, or `None` before the first.
    pub fn commands_per_doorbell(&self) -> Option<f64> {
        (self.doorbells > 0).then(|| (self.reads + self.writes) as f64 / self.doorbells as f64)
    }
}

/// The stripes of counters to which kernels add: `wb_stats[WB_STATS_STRIPES]`.
#[derive(Debug)]
pub(in crate::storage) struct Counters {
    stripes: Region,
    /// Counters of the host's own operations.
    redirects: AtomicU64,
    repairs: AtomicU64,
}

impl Counters {
    pub(in crate::storage) fn new(space: &Space) -> Result<Self, MemoryError> {
        let stripes = space.allocate(Place::Device, size_of::<abi::Stats>() * abi::STATS_STRIPES)?;
        Ok(Self { stripes, redirects: AtomicU64::new(0), repairs: AtomicU64::new(0) })
    }

    pub(in crate::storage) fn address(&self) -> u64 {
        self.stripes.address()
    }

    pub(in crate::storage) fn read(&self) -> Result<Stats, MemoryError> {
        let mut sum = Stats::default();
        self.stripes.get_slice::<abi::Stats>(0, abi::STATS_STRIPES)?.iter().for_each(|s| sum.add_stripe(s));
        sum.redirects += self.redirects.load(Ordering::Relaxed);
        sum.repairs += self.repairs.load(Ordering::Relaxed);
        Ok(sum)
    }

    pub(in crate::storage) fn reset(&self) -> Result<(), MemoryError> {
        self.redirects.store(0, Ordering::Relaxed);
        self.repairs.store(0, Ordering::Relaxed);
        self.stripes.fill(0, size_of::<abi::Stats>() * abi::STATS_STRIPES, 0)
    }

    /// Counts a read of the host that one copy failed and another completed.
    pub(in crate::storage) fn redirected(&self) {
        self.redirects.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts blocks that were written back to a copy.
    pub(in crate::storage) fn repaired(&self, blocks: u64) {
        self.repairs.fetch_add(blocks, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn set(&self, stripe: usize, stats: abi::Stats) {
        self.stripes.set(stripe * size_of::<abi::Stats>(), stats).unwrap();
    }
}

/// Registers the counters of a volume, and those of the queues of each of its devices.
pub(in crate::storage) fn register(
    volume: &str,
    counters: Arc<Counters>,
    devices: Vec<(String, QueueWords)>,
) -> Registration {
    let mut devices: Vec<_> =
        devices.into_iter().map(|(name, words)| (name, vec![Wide::default(); words.count()], words)).collect();
    metrics::register("volume", volume, move |to| {
        let Ok(s) = counters.read() else { return false };
        let queues: Result<Vec<_>, _> = devices.iter().map(|(_, _, words)| words.read()).collect();
        let Ok(queues) = queues else { return false };
        let (reads, writes) = ([("op", "read")], [("op", "write")]);
        for (family, labels, value) in [
            (&family::VOLUME_COMMANDS, &reads[..], s.reads),
            (&family::VOLUME_COMMANDS, &writes[..], s.writes),
            (&family::VOLUME_BYTES, &reads[..], s.read_bytes),
            (&family::VOLUME_BYTES, &writes[..], s.write_bytes),
            (&family::VOLUME_ERRORS, &[], s.errors),
            (&family::VOLUME_DOORBELLS, &[], s.doorbells),
            (&family::VOLUME_REDIRECTS, &[], s.redirects),
            (&family::VOLUME_REPAIRS, &[], s.repairs),
            (&family::CACHE_HITS, &[], s.hits),
            (&family::CACHE_MISSES, &[], s.misses),
            (&family::CACHE_FILLS, &[], s.fills),
            (&family::CACHE_EVICTIONS, &[], s.evictions),
            (&family::CACHE_WRITE_BACKS, &[], s.write_backs),
            (&family::CACHE_PREFETCHES, &[], s.prefetches),
            (&family::CACHE_RETRIES, &[], s.retries),
        ] {
            to.add(family, labels, value);
        }
        for (number, ((device, submitted, words), queues)) in devices.iter_mut().zip(queues).enumerate() {
            let number = number.to_string();
            for (index, (queue, submitted)) in queues.iter().zip(submitted).enumerate() {
                let index = index.to_string();
                let labels = [("device", &**device), ("number", &*number), ("queue", &*index)];
                to.add(&family::QUEUE_SUBMITTED, &labels, submitted.at(queue.submitted));
                // Kernels may have taken tickets between the reads of the two words.
                to.add(&family::QUEUE_IN_FLIGHT, &labels, u64::from(queue.in_flight().min(words.depth())));
                to.add(&family::QUEUE_DEPTH, &labels, u64::from(words.depth()));
            }
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_added_up() {
        let c = Counters::new(&Space::cpu()).unwrap();
        assert_eq!(c.read().unwrap(), Stats::default());
        c.set(0, abi::Stats { reads: 3, hits: 9, doorbells: 2, ..Default::default() });
        c.set(abi::STATS_STRIPES - 1, abi::Stats { reads: 4, misses: 1, errors: 5, ..Default::default() });
        let s = c.read().unwrap();
        assert_eq!((s.reads, s.hits, s.misses, s.errors), (7, 9, 1, 5));
        assert_eq!(s.hit_ratio(), Some(0.9));
        assert_eq!(s.commands_per_doorbell(), Some(3.5));
        assert_eq!((s - Stats { reads: 2, ..Stats::default() }).reads, 5);
        c.reset().unwrap();
        assert_eq!(c.read().unwrap(), Stats::default());
        assert_eq!(Stats::default().hit_ratio(), None);
    }
}
