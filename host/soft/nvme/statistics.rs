//! Counters of the I/O queues.

use crate::wire::nvme::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one submission queue since the controller was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStatistics {
    /// Identifier of the submission queue; 0 for a total.
    pub queue: u16,
    /// Commands fetched.
    pub commands: u64,
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes that read commands requested.
    pub read_bytes: u64,
    /// Bytes of the data of write commands.
    pub written_bytes: u64,
    /// Commands that failed.
    pub errors: u64,
}

/// Counters of a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg(feature = "internals")]
pub struct Statistics {
    /// I/O submission queues with at least one command, by identifier.
    pub queues: Vec<QueueStatistics>,
}

#[cfg(feature = "internals")]
impl Statistics {
    /// Returns the sum over all queues.
    #[cfg(feature = "internals")]
    pub fn total(&self) -> QueueStatistics {
        self.queues.iter().fold(QueueStatistics::default(), |a, q| QueueStatistics {
            queue: 0,
            commands: a.commands + q.commands,
            reads: a.reads + q.reads,
            writes: a.writes + q.writes,
            read_bytes: a.read_bytes + q.read_bytes,
            written_bytes: a.written_bytes + q.written_bytes,
            errors: a.errors + q.errors,
        })
    }
}

/// Counters of a queue's service thread since it last published them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueCounters {
    commands: u64,
    reads: u64,
    writes: u64,
    read_bytes: u64,
    written_bytes: u64,
    errors: u64,
}

impl QueueCounters {
    #[inline]
    pub(super) fn command(&mut self) {
        self.commands += 1;
    }

    #[inline]
    pub(super) fn transfer(&mut self, opcode: u8, bytes: usize) {
        match opcode {
            io::READ => {
                self.reads += 1;
                self.read_bytes += bytes as u64;
            }
            io::WRITE => {
                self.writes += 1;
                self.written_bytes += bytes as u64;
            }
            _ => {}
        }
    }

    pub(super) fn error(&mut self) {
        self.errors += 1;
    }
}

/// Published counters of one queue. Only its service thread writes them, so plain loads and stores are enough.
#[derive(Debug, Default)]
pub(super) struct Counters {
    commands: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
}

impl Counters {
    /// Adds the counters of a thread, and clears those.
    pub(super) fn publish(&self, counters: &mut QueueCounters) {
        let t = std::mem::take(counters);
        for (to, n) in [
            (&self.commands, t.commands),
            (&self.reads, t.reads),
            (&self.writes, t.writes),
            (&self.read_bytes, t.read_bytes),
            (&self.written_bytes, t.written_bytes),
            (&self.errors, t.errors),
        ] {
            if n != 0 {
                to.store(to.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
            }
        }
    }

    pub(super) fn read(&self, queue: u16) -> QueueStatistics {
        QueueStatistics {
            queue,
            commands: self.commands.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up() {
        let c = Counters::default();
        let mut t = QueueCounters::default();
        for _ in 0..2 {
            t.command();
            t.transfer(io::READ, 4096);
            t.command();
            t.transfer(io::WRITE, 512);
            t.error();
            c.publish(&mut t);
        }
        let s = Statistics { queues: vec![c.read(1), c.read(2)] };
        assert_eq!(s.queues[0].read_bytes, 8192);
        let sum = s.total();
        assert_eq!((sum.commands, sum.reads, sum.writes, sum.written_bytes, sum.errors), (8, 4, 4, 2048, 4));
    }
}
