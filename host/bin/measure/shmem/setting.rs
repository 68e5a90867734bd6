//! What was asked for, and what becomes of it on an engine.

use super::test::{AtomicOp, Datatype, Family, Scope, Test};
use crate::measure::error::{MeasureError, refuse};
use serde::Serialize;
use warpbell::engine::abi::CHANNELS;
use warpbell::engine::{Engine, Grid};

/// What to measure. What is `None` is chosen by `shape`.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Which test.
    pub test: Test,
    /// Who makes the calls together.
    pub scope: Option<Scope>,
    /// Least message.
    pub min_bytes: Option<u64>,
    /// Greatest message.
    pub max_bytes: Option<u64>,
    /// From one size to the next.
    pub factor: u64,
    /// Operations in the timed part: messages, or elements of each thread.
    pub iterations: Option<u32>,
    /// Operations before it.
    pub warmup: Option<u32>,
    /// Blocks.
    pub blocks: Option<u32>,
    /// Threads in each.
    pub threads: Option<u32>,
    /// Which atomic operation.
    pub op: AtomicOp,
    /// What single elements are; all that there are if `None`.
    pub datatype: Option<Datatype>,
    /// Bytes of each PE's heap that single elements are spread over, and that messages of a bandwidth test go round in (`None`: each
    /// goes to where the one before it went).
    pub window_bytes: Option<u64>,
    /// Every PE puts to, or gets from, the next one; otherwise PE 0 alone.
    pub bidirectional: bool,
    /// The same with plain loads and stores.
    pub raw: bool,
    /// Times to measure.
    pub runs: u32,
}

/// Bytes behind a message that must not change.
pub(super) const GUARD: u64 = 64;
/// Room for a world's own words and what alignment takes.
const HEAP_SLACK: u64 = 8 << 20;
const HEAP_SLACK_PER_PE: u64 = 64 << 10;
/// The least message unless told otherwise.
const MIN_BYTES: u64 = 8;

/// What suits a kind of engine.
struct Suited {
    /// The greatest message unless told otherwise.
    max_bytes: u64,
    window_bytes: u64,
    /// Bytes that a bandwidth test moves, and a test of single messages.
    stream_bytes: u64,
    message_bytes: u64,
    /// Most messages; operations of each thread; rounds of a ping-pong or a barrier.
    messages: u64,
    elements: u32,
    rounds: u64,
    /// Least number of messages.
    least: u64,
    blocks: u32,
    threads: u32,
    /// A team's scratch grows with the heap, and with it what collectives do by their short way.
    least_heap: usize,
}

const GPU: Suited = Suited {
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

const CPU: Suited = Suited {
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

/// Threads in a block of single elements on a GPU, and of a barrier.
const RATE_THREADS: u32 = 256;
const MEETING_THREADS: u32 = 256;
/// And of a collective, of which each block does a part: so many bytes, until there are so many blocks.
const COLLECTIVE_THREADS: u32 = 256;
const COLLECTIVE_PART: u64 = 2 << 10;
const COLLECTIVE_BLOCKS: u64 = 64;
/// The most operations that 32 bits of a sample buffer are kept for.
const MOST_SAMPLED: u32 = 1 << 24;

/// How one size is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Who makes the calls together.
    pub scope: Scope,
    /// Bytes of one operation.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u32,
    /// Threads in each.
    pub threads: u32,
    /// Operations in the timed part.
    pub iterations: u32,
    /// Operations before it.
    pub warmup: u32,
    /// Elements of the window, or messages; 0 where there is none.
    pub elements: u64,
}

impl Shape {
    pub(super) fn grid(&self) -> Grid {
        Grid { blocks: self.blocks, threads: self.threads }
    }

    /// Bytes that messages are put to, or got from: warm-up and timing both begin at the window's first place.
    pub(super) fn written(&self) -> u64 {
        self.bytes * self.elements.min(self.warmup.max(self.iterations).into()).max(1)
    }

    /// Threads of the grid.
    pub fn all_threads(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.threads)
    }
}

/// What a PE's source and target hold, without the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spans {
    pub source: u64,
    pub target: u64,
}

impl Setting {
    /// A test with everything else as suits the engine.
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
            op: AtomicOp::Inc,
            datatype: None,
            window_bytes: None,
            bidirectional: false,
            raw: false,
            runs: 3,
        }
    }

    /// The same for another test, without what that does not take.
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

    /// Who makes the calls together.
    pub fn scope(&self) -> Scope {
        if self.test.has_scopes() { self.scope.unwrap_or(Scope::Block) } else { Scope::Thread }
    }

    /// Every PE takes part, and begins when all are ready.
    pub(super) fn everybody(&self) -> bool {
        match self.test.family() {
            Family::PingPong | Family::Meeting | Family::Collective => true,
            Family::Bandwidth | Family::Rate => self.bidirectional,
            Family::Latency => false,
        }
    }

    /// Whether this PE puts or gets.
    pub(super) fn is_active(&self, pe: usize) -> bool {
        pe == 0 || self.everybody()
    }

    /// What the elements of a reduction are.
    pub(super) fn reduced(&self) -> Datatype {
        self.datatype.unwrap_or(Datatype::Float)
    }

    /// Bytes that messages are whole multiples of.
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
            _ => Spans { source: one, target: one },
        }
    }

    /// Refuses what the test does not take.
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
            return refuse("--raw", "plain loads and stores have nothing of the kind");
        }
        if self.raw && test == Test::AtomicRate && self.op as u32 > AtomicOp::FetchAdd as u32 {
            return refuse("--raw with this operation", "by hand there are inc, add, fetch_inc and fetch_add");
        }
        if !test.has_window() && self.window_bytes.is_some() {
            return refuse("--window", "it is for bandwidths and for the rates of single elements");
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
                refuse!("messages from {min} to {max} bytes: the least is the greater one")
            }
            _ => Ok(()),
        }
    }

    /// Bytes of the operations that are measured, in order.
    pub fn sizes(&self, engine: &Engine) -> Vec<u64> {
        if self.test.family() == Family::Rate {
            return self.datatype.map_or_else(|| vec![4, 8], |d| vec![d.bytes()]);
        }
        match self.test {
            Test::PPingPong => return vec![8],
            Test::Barrier | Test::Sync => return vec![0],
            _ => {}
        }
        let max = self.max_bytes.unwrap_or(suited(engine).max_bytes.max(self.min_bytes.unwrap_or(0)));
        let min = self.min_bytes.unwrap_or(MIN_BYTES.min(max));
        std::iter::successors(Some(min), |s| s.max(&1).checked_mul(self.factor)).take_while(|s| *s <= max).collect()
    }

    /// What the heap of each PE has to hold.
    pub fn heap_bytes(&self, engine: &Engine, pes: usize) -> usize {
        let most = self.sizes(engine).into_iter().max().unwrap_or(0);
        let window = match self.test.family() {
            Family::Rate => self.window(engine),
            _ => self.window_bytes.unwrap_or(0),
        };
        // Whoever asks for more than there is hears it from the heap: numbers that fit nowhere stay where they are.
        let (most, window, pes) = (u128::from(most), u128::from(window), pes as u128);
        // Source and target. A window is rounded up to the threads' number, and has an element for each.
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
        bytes.unwrap_or(usize::MAX).max(suited(engine).least_heap)
    }

    fn window(&self, engine: &Engine) -> u64 {
        self.window_bytes.unwrap_or(suited(engine).window_bytes)
    }

    /// How a size is measured on `engine`, of which this PE has one part in `sharing`.
    pub(super) fn shape(
        &self,
        engine: &Engine,
        sharing: usize,
        kernel: &str,
        bytes: u64,
    ) -> Result<Shape, MeasureError> {
        let (s, family, scope) = (suited(engine), self.test.family(), self.scope());
        let element = self.element_bytes();
        if !bytes.is_multiple_of(element) {
            return refuse!(
                "{} moves whole elements of {element} bytes, and messages of {bytes} bytes are none: choose other sizes (-b, -e, -f)",
                self.test
            );
        }
        let gpu = engine.info().gpu;
        let width = engine.info().warp_width;
        let threads = self.threads.unwrap_or_else(|| match (family, scope) {
            _ if gpu.is_none() => s.threads * width,
            (Family::Rate, _) => RATE_THREADS,
            (Family::Meeting, Scope::Block) => MEETING_THREADS,
            (Family::Collective, Scope::Block) => COLLECTIVE_THREADS,
            (Family::Bandwidth, _) | (_, Scope::Block) => s.threads,
            _ => width,
        });
        let blocks = match &gpu {
            None => self.blocks.unwrap_or(s.blocks),
            Some(gpu) => {
                let resident = engine.occupancy(kernel, threads)?;
                if resident == 0 {
                    return refuse!(
                        "blocks of {threads} threads do not fit: the kernel of {} has too many registers for that; give fewer (-t)",
                        self.test
                    );
                }
                let most = (resident * gpu.processors / sharing as u32).max(1);
                let blocks = self.blocks.unwrap_or(match family {
                    Family::Bandwidth => s.blocks.min(most),
                    Family::Rate => most,
                    Family::Collective => (bytes / COLLECTIVE_PART).clamp(1, COLLECTIVE_BLOCKS) as u32,
                    _ => 1,
                });
                if blocks > most {
                    let shared = if sharing > 1 { format!(" for each of {sharing} PEs") } else { String::new() };
                    return refuse!(
                        "{blocks} blocks of {threads} threads do not run at once, as the test needs: the GPU holds {most}{shared}; give fewer (-c)"
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
            Family::Meeting => s.rounds as u32,
        });
        let warmup = self.warmup.unwrap_or((iterations / 10).clamp(1, 100));
        let mut shape = Shape { scope, bytes, blocks, threads, iterations, warmup, elements: 0 };
        if family == Family::Rate {
            let elements = (self.window(engine) / bytes).max(1);
            // Drawn from 32 random bits; side by side each thread has as many.
            let each = (elements / shape.all_threads()).max(1);
            shape.elements = if self.test == Test::PRate { each * shape.all_threads() } else { elements.min(1 << 32) };
        } else if let Some(window) = self.window_bytes {
            shape.elements = (window / bytes.max(1)).max(1);
        }
        Ok(shape)
    }
}

fn suited(engine: &Engine) -> &'static Suited {
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
