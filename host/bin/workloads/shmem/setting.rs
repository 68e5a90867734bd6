//! Parameters of a test, and the grid and numbers of operations that follow from them on an engine.

use super::test::{AtomicOp, CopyPath, Datatype, Family, Scope, Test};
use crate::workloads::error::{MeasureError, refuse};
use crate::workloads::multiprocessors;
use crate::workloads::params::SHMEM_SHARED_BYTES as SHARED_BYTES;
use serde::Serialize;
use warpbell::engine::abi::CHANNELS;
use warpbell::engine::{Engine, Grid};

/// Parameters of a test. `shape` chooses values for those that are `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Test to run.
    pub test: Test,
    /// Threads that make a call together.
    pub scope: Option<Scope>,
    /// Size of the smallest message in bytes.
    pub min_bytes: Option<u64>,
    /// Size of the largest message in bytes.
    pub max_bytes: Option<u64>,
    /// Factor from one size to the next.
    pub factor: u64,
    /// Operations in the timed part: messages, or elements of each thread.
    pub iterations: Option<u32>,
    /// Operations before the timed part.
    pub warmup: Option<u32>,
    /// Number of blocks.
    pub blocks: Option<u32>,
    /// Threads per block.
    pub threads: Option<u32>,
    /// Multiprocessors of each GPU that the kernels are kept to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
    /// Operation of `atomic_rate`.
    pub op: AtomicOp,
    /// Type of single elements, or of the elements of a reduction; `None` measures all types of a rate.
    pub datatype: Option<Datatype>,
    /// Bytes of each PE's heap that single elements are spread over, or that messages of a bandwidth test cycle
    /// through. For bandwidth, `None` sends every message to the same place.
    pub window_bytes: Option<u64>,
    /// Path of the messages of a bandwidth test, if it is not that of the library's plain call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyPath>,
    /// True if every PE puts to, or gets from, the next one; false if only PE 0 does.
    pub bidirectional: bool,
    /// True to measure plain loads and stores, too.
    pub raw: bool,
    /// Number of measurements.
    pub runs: u32,
}

/// Bytes behind a message that must not change.
pub(super) const GUARD: u64 = 64;
/// Number of places of a ping-pong's flag and message: one for each run, in turn. How far an address is from a
/// multiprocessor differs, and with it the time of one word by a quarter.
pub(super) const PLACES: u64 = 32;
/// Bytes from one place to the next: another page of 4 KiB, and another line of it.
pub(super) const PLACE_BYTES: u64 = 4096 + 128;
/// Bytes of all places before the last one.
pub(super) const PLACES_BYTES: u64 = (PLACES - 1) * PLACE_BYTES;
/// Extra bytes of a heap for the world's own words and for alignment.
const HEAP_SLACK: u64 = 8 << 20;
/// Extra bytes of a heap for each PE of the world.
const HEAP_SLACK_PER_PE: u64 = 64 << 10;
/// Default size of the smallest message in bytes.
const MIN_BYTES: u64 = 8;

/// Defaults for a kind of engine.
struct EngineDefaults {
    /// Size of the largest message in bytes.
    max_bytes: u64,
    /// Bytes of each PE's heap that single elements are spread over.
    window_bytes: u64,
    /// Total bytes of a bandwidth test.
    stream_bytes: u64,
    /// Total bytes of a test of single messages.
    message_bytes: u64,
    /// Maximum number of messages.
    messages: u64,
    /// Operations per thread in a test of single elements.
    elements: u32,
    /// Maximum number of rounds of a ping-pong, a barrier or a collective.
    rounds: u64,
    /// Minimum number of messages.
    least: u64,
    /// Maximum default number of blocks.
    blocks: u32,
    /// Threads per block; on the CPU engine in units of the warp width.
    threads: u32,
    /// Minimum size of a heap in bytes. A team's scratch memory grows with the heap, and with it the largest size for
    /// which collectives take their short path.
    least_heap: usize,
}

const GPU: EngineDefaults = EngineDefaults {
    max_bytes: 4 << 20,
    window_bytes: 256 << 20,
    stream_bytes: 4 << 30,
    message_bytes: 256 << 20,
    messages: 10_000,
    elements: 1024,
    rounds: 10_000,
    least: 20,
    blocks: 64,
    threads: 512,
    least_heap: 256 << 20,
};

const CPU: EngineDefaults = EngineDefaults {
    max_bytes: 64 << 10,
    window_bytes: 1 << 20,
    stream_bytes: 8 << 20,
    message_bytes: 2 << 20,
    messages: 1000,
    elements: 10_000,
    rounds: 100,
    least: 4,
    blocks: 1,
    threads: 1,
    least_heap: 0,
};

/// Default threads per block for single elements on a GPU.
const RATE_THREADS: u32 = 256;
/// Default threads per block for a barrier on a GPU.
const BARRIER_THREADS: u32 = 256;
/// Default threads per block for a collective on a GPU.
const COLLECTIVE_THREADS: u32 = 256;
/// Bytes of a collective per block, up to [`COLLECTIVE_BLOCKS`] blocks.
const COLLECTIVE_PART: u64 = 2 << 10;
/// Maximum default number of blocks for a collective.
const COLLECTIVE_BLOCKS: u64 = 64;
/// Maximum number of places of messages that all have the same data: each is verified on its own.
const MOST_SHARED_PLACES: u64 = 4096;
/// Maximum number of sampled operations: each takes 32 bits of the sample buffer.
const MOST_SAMPLED: u32 = 1 << 24;

/// Grid and numbers of operations for one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Threads that make a call together.
    pub scope: Scope,
    /// Bytes per operation.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Threads per block.
    pub threads: u32,
    /// Operations in the timed part.
    pub iterations: u32,
    /// Operations before the timed part.
    pub warmup: u32,
    /// Number of elements of the window, or of messages in it; 0 without a window.
    pub elements: u64,
}

impl Shape {
    pub(super) fn grid(&self) -> Grid {
        Grid { blocks: self.blocks, threads: self.threads }
    }

    /// Returns the number of bytes that messages cover. Warm-up and timed part both begin at the window's first place.
    pub(super) fn written(&self) -> u64 {
        self.bytes * self.elements.min(self.warmup.max(self.iterations).into()).max(1)
    }

    /// Returns the number of threads of the grid.
    pub fn all_threads(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.threads)
    }
}

/// Sizes of a PE's source and target in bytes, without the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spans {
    pub source: u64,
    pub target: u64,
}

impl Setting {
    /// Creates a setting for `test` with defaults for everything else.
    pub fn new(test: Test) -> Self {
        Self {
            test,
            scope: None,
            min_bytes: None,
            max_bytes: None,
            factor: 2,
            iterations: None,
            warmup: None,
            blocks: None,
            threads: None,
            sms: None,
            op: AtomicOp::Inc,
            datatype: None,
            window_bytes: None,
            copy: None,
            bidirectional: false,
            raw: false,
            runs: 3,
        }
    }

    /// Returns the setting for another test, without the parameters that `test` does not take.
    pub fn without_what_does_not_apply(mut self, test: Test) -> Self {
        self.test = test;
        if !test.has_sizes() {
            (self.min_bytes, self.max_bytes) = (None, None);
        }
        if !test.has_scopes() {
            self.scope = None;
        }
        if !test.has_window() {
            self.window_bytes = None;
        }
        if test.family() != Family::Bandwidth {
            self.copy = None;
        }
        if !test.has_blocks() {
            self.blocks = None;
        }
        if test.family() == Family::Collective {
            self.blocks = self.blocks.map(|n| n.min(CHANNELS as u32));
        }
        if test.is_sampled() {
            self.iterations = self.iterations.map(|n| n.min(MOST_SAMPLED));
        }
        self.datatype = self.datatype.filter(|d| test.datatypes().contains(d));
        self.bidirectional &= test.has_directions();
        self.raw &= test.has_raw() && (test != Test::AtomicRate || self.op as u32 <= AtomicOp::FetchAdd as u32);
        self
    }

    /// Returns the threads that make a call together.
    pub fn scope(&self) -> Scope {
        if self.test.has_scopes() { self.scope.unwrap_or(Scope::Block) } else { Scope::Thread }
    }

    /// Returns true if every PE takes part. All PEs then begin when all are ready.
    pub(super) fn everybody(&self) -> bool {
        match self.test.family() {
            Family::PingPong | Family::Barrier | Family::Collective => true,
            Family::Bandwidth | Family::Rate => self.bidirectional,
            Family::Latency => false,
        }
    }

    /// Returns true if `pe` puts or gets.
    pub(super) fn is_active(&self, pe: usize) -> bool {
        pe == 0 || self.everybody()
    }

    /// Returns the type of the elements of a reduction.
    pub(super) fn reduced(&self) -> Datatype {
        self.datatype.unwrap_or(Datatype::Float)
    }

    /// Returns the number of bytes of which messages are whole multiples.
    fn element_bytes(&self) -> u64 {
        match self.test.family() {
            Family::Collective if self.test == Test::Reduce => self.reduced().bytes(),
            Family::Collective => Datatype::Uint32.bytes(),
            _ => 1,
        }
    }

    pub(super) fn spans(&self, shape: &Shape, pes: usize) -> Spans {
        let one = shape.elements.saturating_mul(shape.bytes).max(shape.bytes);
        let all = one.saturating_mul(pes as u64);
        match self.test {
            Test::Alltoall => Spans { source: all, target: all },
            Test::Fcollect => Spans { source: one, target: all },
            Test::PutSignalPingPong => Spans { source: one, target: one.saturating_add(PLACES_BYTES) },
            _ => Spans { source: one, target: one },
        }
    }

    /// Checks that the test takes all parameters.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] with the first parameter that the test does not take.
    pub fn check(&self) -> Result<(), MeasureError> {
        let test = self.test;
        let refuse = |flag: &str, reason: &str| refuse!("{test} does not take {flag}: {reason}");
        if !test.has_sizes() && (self.min_bytes.is_some() || self.max_bytes.is_some()) {
            return refuse("a size", "it has no messages; the elements of a rate are chosen by --datatype");
        }
        if !test.has_scopes() && self.scope.is_some_and(|s| s != Scope::Thread) {
            return refuse("this scope", "every thread makes its own calls");
        }
        if self.bidirectional && !test.has_directions() {
            return refuse("--bidirectional", "it has one direction, or both already");
        }
        if self.raw && !test.has_raw() {
            return refuse("--raw", "plain loads and stores cannot do this test");
        }
        if self.raw && test == Test::AtomicRate && self.op as u32 > AtomicOp::FetchAdd as u32 {
            return refuse("--raw with this operation", "use inc, add, fetch_inc or fetch_add");
        }
        if !test.has_window() && self.window_bytes.is_some() {
            return refuse("--window", "it is for bandwidths and for the rates of single elements");
        }
        if self.copy.is_some() && test.family() != Family::Bandwidth {
            return refuse("--copy", "it is for put_bw and get_bw");
        }
        if self.copy == Some(CopyPath::Shared) && test != Test::PutBw {
            return refuse("--copy shared", "shared memory is the source of puts; use bulk or buffer");
        }
        if !test.has_blocks() && self.blocks.is_some_and(|n| n != 1) {
            return refuse("more than one block", "one operation is measured after the other");
        }
        if test.family() == Family::Collective && self.blocks.is_some_and(|n| n > CHANNELS as u32) {
            return refuse("so many blocks", &format!("each uses a channel of its own, and there are {CHANNELS}"));
        }
        if test.is_sampled() && self.iterations.is_some_and(|n| n > MOST_SAMPLED) {
            return refuse("so many iterations", &format!("at most {MOST_SAMPLED} are sampled"));
        }
        if let Some(d) = self.datatype
            && !test.datatypes().contains(&d)
        {
            let names: Vec<_> = test.datatypes().iter().map(|d| d.name()).collect();
            let reason =
                if names.is_empty() { "it moves bytes".to_owned() } else { format!("there are {}", names.join(", ")) };
            return refuse("this datatype", &reason);
        }
        if self.factor < 2 {
            return refuse("this factor", "sizes grow by 2 or more");
        }
        match (self.min_bytes, self.max_bytes) {
            (Some(min), Some(max)) if min > max => {
                refuse!(
                    "messages from {min} to {max} bytes: the first size is larger than the last; give a smaller -b, or a larger -e"
                )
            }
            _ => Ok(()),
        }
    }

    /// Returns the sizes of the measured operations in bytes, in ascending order.
    pub fn sizes(&self, engine: &Engine) -> Vec<u64> {
        if self.test.family() == Family::Rate {
            return self.datatype.map_or_else(|| vec![4, 8], |d| vec![d.bytes()]);
        }
        match self.test {
            Test::PPingPong | Test::PSignalPingPong => return vec![8],
            Test::Barrier | Test::Sync => return vec![0],
            _ => {}
        }
        let max = self.max_bytes.unwrap_or(engine_defaults(engine).max_bytes.max(self.min_bytes.unwrap_or(0)));
        let min = self.min_bytes.unwrap_or(MIN_BYTES.min(max));
        std::iter::successors(Some(min), |s| s.max(&1).checked_mul(self.factor)).take_while(|s| *s <= max).collect()
    }

    /// Returns the size in bytes that each PE's heap needs.
    pub fn heap_bytes(&self, engine: &Engine, pes: usize) -> usize {
        let most = self.sizes(engine).into_iter().max().unwrap_or(0);
        let window = match self.test.family() {
            Family::Rate => self.window(engine),
            _ => self.window_bytes.unwrap_or(0),
        };
        // Sizes are computed in 128 bits and saturate at the end: the heap's allocation then reports a size that is too
        // large.
        let (most, window, pes) = (u128::from(most), u128::from(window), pes as u128);
        // Source and target. A window is rounded up to a multiple of the threads, and has at least one element for
        // each.
        let one = most.max(window + window / 4 + u128::from(HEAP_SLACK) * u128::from(window > 0));
        let all = one * pes;
        let data = match self.test {
            Test::Alltoall => 2 * all,
            Test::Fcollect => one + all,
            _ => 2 * one,
        };
        let data = data + 2 * u128::from(GUARD);
        let bytes = data + u128::from(HEAP_SLACK) + pes * u128::from(HEAP_SLACK_PER_PE);
        let bytes = usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(2 << 20));
        bytes.unwrap_or(usize::MAX).max(engine_defaults(engine).least_heap)
    }

    fn window(&self, engine: &Engine) -> u64 {
        self.window_bytes.unwrap_or(engine_defaults(engine).window_bytes)
    }

    /// Returns the grid and numbers of operations for one size on `engine`, which `sharing` PEs share.
    pub(super) fn shape(
        &self,
        engine: &Engine,
        sharing: usize,
        kernel: &str,
        bytes: u64,
    ) -> Result<Shape, MeasureError> {
        let (s, family, scope) = (engine_defaults(engine), self.test.family(), self.scope());
        let element = self.element_bytes();
        if !bytes.is_multiple_of(element) {
            return refuse!(
                "{} moves whole elements of {element} bytes, and {bytes} bytes are not a multiple of that: choose other sizes (-b, -e, -f)",
                self.test
            );
        }
        let processors = multiprocessors::checked(engine, self.sms)?;
        if let (Some(sms), 2..) = (self.sms, sharing) {
            return refuse!("--sms {sms}: {sharing} PEs share a GPU; give each one of its own, or leave --sms out");
        }
        let width = engine.info().warp_width;
        let threads = self.threads.unwrap_or_else(|| match (family, scope) {
            _ if processors.is_none() => s.threads * width,
            (Family::Rate, _) => RATE_THREADS,
            (Family::Barrier, Scope::Block) => BARRIER_THREADS,
            (Family::Collective, Scope::Block) => COLLECTIVE_THREADS,
            (Family::Bandwidth, _) | (_, Scope::Block) => s.threads,
            _ => width,
        });
        let blocks = match processors {
            None => self.blocks.unwrap_or(s.blocks),
            Some(processors) => {
                let resident = engine.occupancy(kernel, threads)?;
                if resident == 0 {
                    return refuse!(
                        "blocks of {threads} threads do not fit: the kernel of {} has too many registers for that; give fewer (-t)",
                        self.test
                    );
                }
                let most = (resident * processors / sharing as u32).max(1);
                let blocks = self.blocks.unwrap_or(match family {
                    Family::Bandwidth => s.blocks.min(most),
                    Family::Rate => most,
                    Family::Collective => (bytes / COLLECTIVE_PART).clamp(1, COLLECTIVE_BLOCKS) as u32,
                    _ => 1,
                });
                if blocks > most {
                    let shared = if sharing > 1 { format!(" for each of {sharing} PEs") } else { String::new() };
                    let who = self.sms.map_or_else(|| "the GPU".to_owned(), |sms| format!("--sms {sms}"));
                    return refuse!(
                        "{blocks} blocks of {threads} threads cannot run concurrently, as the test requires: {who} holds {most}{shared}; give fewer (-c)"
                    );
                }
                blocks
            }
        };
        let messages = |bytes_in_all: u64, most: u64| (bytes_in_all / bytes.max(1)).clamp(s.least, most) as u32;
        let iterations = self.iterations.unwrap_or_else(|| match family {
            Family::Bandwidth => messages(s.stream_bytes, s.messages),
            Family::Latency => messages(s.message_bytes, s.messages),
            Family::Collective => messages(s.stream_bytes / 2, s.rounds),
            Family::PingPong => messages(s.message_bytes, s.rounds),
            Family::Rate => s.elements,
            Family::Barrier => s.rounds as u32,
        });
        let warmup = self.warmup.unwrap_or((iterations / 10).clamp(1, 100));
        let mut shape = Shape { scope, bytes, blocks, threads, iterations, warmup, elements: 0 };
        if family == Family::Rate {
            let elements = (self.window(engine) / bytes).max(1);
            // Random elements are chosen by 32 random bits. For `p_rate` every thread has the same number of adjacent
            // elements.
            let each = (elements / shape.all_threads()).max(1);
            shape.elements = if self.test == Test::PRate { each * shape.all_threads() } else { elements.min(1 << 32) };
        } else if let Some(window) = self.window_bytes {
            shape.elements = (window / bytes.max(1)).max(1);
        }
        self.check_shared_memory(&shape, width)?;
        Ok(shape)
    }

    /// Checks that the messages of `--copy shared` fit into the blocks' shared memory, and their places into what is
    /// verified one by one.
    fn check_shared_memory(&self, shape: &Shape, width: u32) -> Result<(), MeasureError> {
        if self.copy != Some(CopyPath::Shared) {
            return Ok(());
        }
        let scopes = match shape.scope {
            Scope::Thread => shape.threads,
            Scope::Warp => shape.threads.div_ceil(width),
            Scope::Block => 1,
        };
        // The kernel rounds both to whole units.
        let part = shape.bytes.div_ceil(u64::from(scopes) * u64::from(shape.blocks) * 16) * 16;
        let share = u64::from(SHARED_BYTES / scopes / 128 * 128);
        if part > share {
            return refuse!(
                "--copy shared: the part of each {} is {part} bytes, and its share of the {SHARED_BYTES} bytes of shared memory is {share}; give smaller messages (-e), more blocks (-c) or another scope (-s)",
                shape.scope
            );
        }
        if shape.elements > MOST_SHARED_PLACES {
            return refuse!(
                "--copy shared: a window of {} messages of {} bytes, and at most {MOST_SHARED_PLACES} are verified; give a smaller --window",
                shape.elements,
                shape.bytes
            );
        }
        Ok(())
    }
}

fn engine_defaults(engine: &Engine) -> &'static EngineDefaults {
    if engine.is_gpu() { &GPU } else { &CPU }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_by_the_factor() {
        let engine = Engine::cpu().unwrap();
        let sizes = |min, max, factor| {
            Setting { min_bytes: min, max_bytes: max, factor, ..Setting::new(Test::PutBw) }.sizes(&engine)
        };
        assert_eq!(sizes(Some(4), Some(64), 4), [4, 16, 64]);
        assert_eq!(sizes(Some(3), Some(20), 2), [3, 6, 12]);
        assert_eq!(sizes(Some(0), Some(4), 2), [0, 2, 4]);
        assert_eq!(sizes(Some(1 << 20), None, 2), [1 << 20]);
        assert_eq!(sizes(None, Some(4), 2), [4]);
        assert_eq!(sizes(None, None, 1 << 20), [8]);
        assert_eq!(Setting::new(Test::GRate).sizes(&engine), [4, 8]);
    }

    #[test]
    fn what_a_test_does_not_take_is_refused() {
        let refused = |s: Setting| s.check().unwrap_err().to_string();
        let new = Setting::new;
        let e = refused(Setting { max_bytes: Some(64), ..new(Test::GRate) });
        assert!(e.contains("g_rate") && e.contains("--datatype"), "{e}");
        let e = refused(Setting { blocks: Some(2), ..new(Test::PutLatency) });
        assert!(e.contains("put_latency") && e.contains("one block"), "{e}");
        let e = refused(Setting { min_bytes: Some(64), max_bytes: Some(8), ..new(Test::PutBw) });
        assert!(e.contains("64") && e.contains("8"), "{e}");
        for s in [
            Setting { scope: Some(Scope::Block), ..new(Test::PRate) },
            Setting { bidirectional: true, ..new(Test::Barrier) },
            Setting { raw: true, ..new(Test::Barrier) },
            Setting { window_bytes: Some(1), ..new(Test::PutLatency) },
            Setting { datatype: Some(Datatype::Uint64), ..new(Test::PutBw) },
            Setting { datatype: Some(Datatype::Float), ..new(Test::GRate) },
            Setting { blocks: Some(65), ..new(Test::Broadcast) },
            Setting { copy: Some(CopyPath::Bulk), ..new(Test::PutLatency) },
            Setting { copy: Some(CopyPath::Shared), ..new(Test::GetBw) },
            Setting { factor: 1, ..new(Test::PutBw) },
            Setting { iterations: Some(u32::MAX), ..new(Test::Barrier) },
        ] {
            assert!(refused(s).contains("does not take"));
        }
        for test in Test::ALL {
            new(*test).check().unwrap();
            let given = Setting {
                scope: Some(Scope::Block),
                min_bytes: Some(1),
                iterations: Some(u32::MAX),
                blocks: Some(2),
                window_bytes: Some(1),
                copy: Some(CopyPath::Bulk),
                bidirectional: true,
                raw: true,
                ..new(Test::PutBw)
            };
            given.without_what_does_not_apply(*test).check().unwrap();
        }
    }

    #[test]
    fn sizes_that_no_heap_has_are_no_panic() {
        let engine = Engine::cpu().unwrap();
        for test in Test::ALL {
            let most = Some(u64::MAX - 7);
            let given = Setting { min_bytes: most, max_bytes: most, window_bytes: most, ..Setting::new(*test) };
            let setting = given.without_what_does_not_apply(*test);
            let heap = setting.heap_bytes(&engine, 1 << 20);
            for bytes in setting.sizes(&engine) {
                let shape = setting.shape(&engine, 1, "", bytes).unwrap();
                assert!(heap as u64 >= setting.spans(&shape, 8).target, "{test}");
            }
        }
    }

    #[test]
    fn the_heap_holds_what_is_measured() {
        let engine = Engine::cpu().unwrap();
        let plain = Test::ALL.iter().map(|test| Setting::new(*test));
        let windows =
            [1, 3 << 20, 50 << 20].map(|window| Setting { window_bytes: Some(window), ..Setting::new(Test::GetBw) });
        for setting in plain.chain(windows) {
            let test = setting.test;
            let setting = Setting { max_bytes: test.has_sizes().then_some(3 << 20), ..setting };
            let heap = setting.heap_bytes(&engine, 4) as u64;
            for bytes in setting.sizes(&engine) {
                let shape = setting.shape(&engine, 1, "", bytes).unwrap();
                let Spans { source, target } = setting.spans(&shape, 4);
                assert!(heap >= source + target + 2 * GUARD + (4 << 20), "{test}: {heap}");
            }
        }
    }
}
