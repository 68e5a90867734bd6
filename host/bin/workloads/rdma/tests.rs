//! Measures between two threads of this process, over a minimal adapter: one thread that carries out requests.

use super::*;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use warpbell::memory::Place;
use warpbell::rdma::ring_service::{Fetched, RingService};
use warpbell::rdma::{
    MemoryRange, QueueAddress, QueuePair, QueuePlan, QueueRings, RdmaError, Registration, Rights, Transport,
};
use warpbell::shmem::bootstrap::LocalBootstrap;
use warpbell::wire::mlx5::{Atomic as Action, Failure, Operation, Payload, Syndrome, VendorSyndrome};

#[derive(Debug, Default)]
struct Shared {
    rings: Mutex<Vec<RingService>>,
    numbers: AtomicU32,
    over: AtomicBool,
    /// Number of requests that succeed before one fails; `None` if all succeed.
    fails_after: Mutex<Option<u64>>,
    /// True to invert the last byte that a write or a read delivers.
    garbles: AtomicBool,
    /// Registered memory: address, bytes, place.
    memory: Mutex<Vec<(u64, u64, Place)>>,
    carried_out: AtomicU64,
}

#[derive(Debug)]
struct Loopback(Arc<Shared>, Option<std::thread::JoinHandle<()>>);

#[derive(Debug)]
struct Pair(u32, Arc<QueueRings>);

#[derive(Debug)]
struct Registered(u64, u32);

impl Registration for Registered {
    fn address(&self) -> u64 {
        self.0
    }
    fn local_key(&self) -> u32 {
        self.1
    }
    fn remote_key(&self) -> u32 {
        self.1 + 1
    }
}

impl QueuePair for Pair {
    fn number(&self) -> u32 {
        self.0
    }
    fn address(&self) -> QueueAddress {
        QueueAddress(self.0.to_le_bytes().to_vec())
    }
    fn connect(&mut self, _: &QueueAddress) -> Result<(), RdmaError> {
        Ok(())
    }
    fn memory(&self) -> &QueueRings {
        &self.1
    }
    fn flags(&self) -> u32 {
        0
    }
    fn failure(&self) -> Option<String> {
        Some("as planned".to_owned())
    }
    fn reset(&mut self) -> Result<(), RdmaError> {
        self.1.clear()
    }
}

impl Adapter for Loopback {
    fn path(&self) -> AdapterPath {
        AdapterPath::new(Transport::Soft, "loopback")
    }
    unsafe fn register(&self, memory: MemoryRange, _: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        assert!(memory.host.is_some());
        self.0.memory.lock().push((memory.address, memory.bytes as u64, memory.place));
        Ok(Box::new(Registered(memory.address, 0x100)))
    }
    fn create(&self, plan: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError> {
        let memory = Arc::new(QueueRings::new(plan, Place::Host)?);
        let number = 0x40 + self.0.numbers.fetch_add(1, Ordering::Relaxed);
        self.0.rings.lock().push(RingService::new(memory.clone(), number)?);
        Ok(Box::new(Pair(number, memory)))
    }
}

impl Loopback {
    fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::spawn(move || {
            while !theirs.over.load(Ordering::Relaxed) {
                for ring in theirs.rings.lock().iter_mut() {
                    while serve(&theirs, ring) {}
                }
                std::thread::yield_now();
            }
        });
        Self(shared, Some(thread))
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
        self.1.take().unwrap().join().unwrap();
    }
}

/// Carries out one request. Returns true if there was one.
fn serve(shared: &Shared, ring: &mut RingService) -> bool {
    let memory = ring.memory().clone();
    match ring.fetch() {
        Fetched::Request(posted, entry) => {
            let failure = Failure::new(Syndrome::REMOTE_ACCESS, VendorSyndrome::REMOTE_ACCESS);
            let failed = match shared.fails_after.lock().as_mut() {
                Some(0) => true,
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            };
            if !failed {
                check_promise(shared, memory.plan().data, &entry.operation);
                carry_out(entry.operation, shared.garbles.load(Ordering::Relaxed));
                shared.carried_out.fetch_add(1, Ordering::Relaxed);
            }
            let index = posted.index;
            if failed {
                ring.fail(index, failure)
            } else {
                ring.complete(index)
            }
            true
        }
        Fetched::Refused(posted, why) => panic!("{why}: {posted:?}"),
        _ => false,
    }
}

/// Checks that all local memory of a request is registered, and is in the place that the queue pair's plan promises.
fn check_promise(shared: &Shared, data: Place, operation: &Operation<'_>) {
    let pieces = match operation {
        Operation::Write { payload: Payload::Pieces(pieces), .. } => *pieces,
        Operation::Read { into, .. } => *into,
        Operation::Atomic { landing, .. } => std::slice::from_ref(landing),
        _ => &[],
    };
    for piece in pieces {
        let (from, bytes) = (piece.address.get(), u64::from(piece.bytes.get()));
        let holds = |&(base, length, place): &(u64, u64, Place)| {
            place == data && from.checked_sub(base).is_some_and(|at| at + bytes <= length)
        };
        assert!(shared.memory.lock().iter().any(holds), "{bytes} bytes at {from:#x} are not in {data:?} memory");
    }
}

fn carry_out(operation: Operation<'_>, garbles: bool) {
    let copy = |from: u64, to: u64, bytes: usize| {
        // SAFETY: both are addresses in memory that the test registered, which lives until the measurement is over.
        unsafe {
            // The last byte is written last: the other side waits for it.
            std::ptr::copy(from as *const u8, to as *mut u8, bytes - 1);
            let last = (from as *const u8).add(bytes - 1).read_volatile();
            let to = std::sync::atomic::AtomicU8::from_ptr((to as *mut u8).add(bytes - 1));
            to.store(if garbles { !last } else { last }, Ordering::Release);
        }
    };
    match operation {
        Operation::Write { remote, payload: Payload::Pieces(pieces), .. } => {
            let piece = pieces[0];
            assert_eq!((remote.key, piece.key.get()), (0x101, 0x100));
            copy(piece.address.get(), remote.address, piece.bytes.get() as usize);
        }
        Operation::Write { remote, payload: Payload::Inline(data), .. } => {
            copy(data.as_ptr() as u64, remote.address, data.len());
        }
        Operation::Read { remote, into } => copy(remote.address, into[0].address.get(), into[0].bytes.get() as usize),
        Operation::Atomic { remote, action, landing } => {
            // SAFETY: an address in memory that the test registered, which lives until the measurement is over. The
            // address is aligned, and only this thread changes the word.
            let word = unsafe { AtomicU64::from_ptr(remote.address as *mut u64) };
            let old = match action {
                Action::FetchAdd { add } => word.fetch_add(add, Ordering::AcqRel),
                Action::CompareSwap { swap, compare } => word
                    .compare_exchange(compare, swap, Ordering::AcqRel, Ordering::Acquire)
                    .unwrap_or_else(|other| other),
                other => panic!("{other:?}"),
            };
            // SAFETY: an aligned address in memory that the test registered, which lives until the measurement is over.
            unsafe { AtomicU64::from_ptr(landing.address.get() as *mut u64) }.store(old, Ordering::Release);
        }
        other => panic!("{other:?}"),
    }
}

fn engine(deadline: Duration) -> Engine {
    let engine = Engine::builder().threads(1).cpu().unwrap();
    engine.set_deadline(deadline).unwrap();
    engine
}

/// Returns the results of both sides.
fn between(
    adapter: &dyn Adapter,
    setting: &Setting,
    initiator: Initiator,
    deadline: Duration,
) -> Vec<Result<Vec<Row>, MeasureError>> {
    let one = |ranks: LocalBootstrap| {
        let engine = engine(deadline);
        let side = Side { adapter, engine: &engine, ranks: &ranks, client: 0, deadline };
        let mut bench = RdmaBench::new(side, setting.clone(), initiator)?;
        let rows = setting.sizes.iter().map(|bytes| bench.measure(*bytes)).collect();
        ranks.leave();
        rows
    };
    std::thread::scope(|s| {
        let sides: Vec<_> = LocalBootstrap::all(2).into_iter().map(|ranks| s.spawn(|| one(ranks))).collect();
        sides.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

const DEADLINE: Duration = Duration::from_secs(60);

fn setting(name: &str, change: impl FnOnce(&mut Setting)) -> Setting {
    let mut setting = Setting { iterations: 50, ..Setting::new(name.parse().unwrap()) };
    change(&mut setting);
    setting.with_defaults()
}

/// Checks that both sides have the same rows without wrong data, and that `messages` were verified in total.
fn measures(setting: &Setting, initiator: Initiator, messages: u64) -> Vec<Row> {
    let mut sides = between(&Loopback::new(), setting, initiator, DEADLINE).into_iter().map(|side| side.unwrap());
    let (a, b) = (sides.next().unwrap(), sides.next().unwrap());
    assert_eq!(a.len(), setting.sizes.len());
    for (a, b) in a.iter().zip(&b) {
        assert_eq!((a.figures, a.verified, a.wrong), (b.figures, b.verified, b.wrong));
        assert_eq!(a.wrong, 0, "{a:?}");
    }
    assert_eq!(a.iter().map(|r| r.verified).sum::<u64>(), messages, "{a:?}");
    a
}

const INITIATORS: [Initiator; 2] = [Initiator::Kernel, Initiator::Host];

#[test]
fn bandwidth_of_writes_and_reads() {
    for name in ["write_bw", "read_bw"] {
        for initiator in INITIATORS {
            // 16 messages of 1 byte or 4 KiB have separate places; messages of 100,000 bytes share one.
            let s = setting(name, |s| {
                s.sizes = vec![1, 4096, 100_000];
                s.tx_depth = 16;
            });
            let rows = measures(&s, initiator, 16 + 16 + 1);
            for (row, bytes) in rows.iter().zip(&s.sizes) {
                let Figures::Bandwidth(b) = row.figures else { panic!("{row:?}") };
                assert_eq!((b.bytes, b.iterations), (*bytes, 50));
                assert!(b.average_bytes_per_s > 0.0 && b.messages_per_s > 0.0);
                assert!(b.peak_bytes_per_s * 1.0001 >= b.average_bytes_per_s, "{b:?}");
            }
        }
    }
}

#[test]
fn several_queue_pairs_lists_and_both_directions() {
    for initiator in INITIATORS {
        let s = setting("write_bw", |s| {
            s.sizes = vec![64];
            s.queue_pairs = 3;
            s.post_list = 4;
            s.tx_depth = 8;
            s.bidirectional = true;
            s.inline_bytes = 28;
        });
        let rows = measures(&s, initiator, 2 * 3 * 8);
        let Figures::Bandwidth(b) = rows[0].figures else { panic!("{rows:?}") };
        assert_eq!(b.iterations, 150);
    }
}

#[test]
fn atomics_are_each_done_once() {
    for initiator in INITIATORS {
        for atomic in [Atomic::FetchAdd, Atomic::CompareSwap] {
            let s = setting("atomic_bw", |s| {
                s.atomic = atomic;
                s.queue_pairs = 2;
                s.tx_depth = 16;
            });
            // The words, and the places for the old values.
            measures(&s, initiator, 2 + 2 * 16);
        }
    }
}

#[test]
fn latencies_have_all_their_columns() {
    for name in ["write_lat", "read_lat", "atomic_lat"] {
        for initiator in INITIATORS {
            let s = setting(name, |s| {
                if name != "atomic_lat" {
                    s.sizes = vec![1, 2, 28, 29, 5000];
                }
            });
            let each = if name == "read_lat" { 1 } else { 2 };
            for row in measures(&s, initiator, each * s.sizes.len() as u64) {
                let Figures::Latency(l) = row.figures else { panic!("{row:?}") };
                assert_eq!(l.iterations, 50);
                assert!(0.0 < l.min_us && l.min_us <= l.typical_us && l.typical_us <= l.p99_us && l.p99_us <= l.max_us);
            }
        }
    }
}

#[test]
fn tests_that_run_for_a_time_end() {
    for name in ["write_bw", "write_lat", "read_lat"] {
        for initiator in INITIATORS {
            let s = setting(name, |s| {
                s.sizes = vec![256];
                s.duration = Some(Duration::from_millis(20));
            });
            let sides = between(&Loopback::new(), &s, initiator, DEADLINE);
            for side in sides {
                let row = side.unwrap()[0];
                assert_eq!(row.wrong, 0);
                match row.figures {
                    Figures::Bandwidth(b) => assert!(b.iterations > 0 && b.peak_bytes_per_s == 0.0),
                    Figures::MeanLatency(l) => assert!(l.iterations > 0 && l.avg_us > 0.0),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[test]
fn a_failed_request_is_named_on_both_sides() {
    for name in ["write_bw", "read_lat"] {
        for initiator in INITIATORS {
            let adapter = Loopback::new();
            *adapter.0.fails_after.lock() = Some(20);
            let s = setting(name, |_| ());
            let sides = between(&adapter, &s, initiator, DEADLINE);
            let texts: Vec<String> = sides.into_iter().map(|side| side.unwrap_err().to_string()).collect();
            for text in &texts {
                assert!(text.contains("remote access error") && text.contains("as planned"), "{text}");
                assert!(text.contains("after 20 of them"), "{text}");
            }
            assert!(texts[1].starts_with("the other side (rank 0)"), "{}", texts[1]);
        }
    }
}

#[test]
fn what_arrives_garbled_is_counted() {
    for initiator in INITIATORS {
        let adapter = Loopback::new();
        adapter.0.garbles.store(true, Ordering::Relaxed);
        let s = setting("write_bw", |s| s.tx_depth = 16);
        let sides = between(&adapter, &s, initiator, DEADLINE);
        for side in sides {
            let row = side.unwrap()[0];
            assert_eq!((row.verified, row.wrong), (1, 1));
        }
    }
}

#[test]
fn sides_that_measure_different_things_notice() {
    let adapter = Loopback::new();
    let (a, b) = (setting("write_bw", |_| ()), setting("read_bw", |_| ()));
    let engine = engine(DEADLINE);
    let one = |ranks: &LocalBootstrap, setting: &Setting| {
        let side = Side { adapter: &adapter, engine: &engine, ranks, client: 0, deadline: DEADLINE };
        RdmaBench::new(side, setting.clone(), Initiator::Host).map(drop).unwrap_err().to_string()
    };
    let all = LocalBootstrap::all(2);
    std::thread::scope(|s| {
        let other = s.spawn(|| one(&all[1], &b));
        let text = one(&all[0], &a);
        assert!(text.contains("here test write_bw") && text.contains("there test read_bw"), "{text}");
        assert!(other.join().unwrap().contains("here test read_bw"));
    });
}

#[test]
fn the_other_side_that_does_nothing_is_not_waited_for_for_ever() {
    for initiator in INITIATORS {
        let adapter = Loopback::new();
        *adapter.0.fails_after.lock() = Some(0);
        let s = setting("write_lat", |_| ());
        let sides = between(&adapter, &s, initiator, Duration::from_millis(200));
        let texts: Vec<String> = sides.into_iter().map(|side| side.unwrap_err().to_string()).collect();
        assert!(texts[0].contains("remote access error"), "{}", texts[0]);
        assert!(texts[1].contains("timed out") || texts[1].contains("did not arrive"), "{}", texts[1]);
    }
}
