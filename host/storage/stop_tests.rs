//! Runs that are cancelled, or stopped at their limit, while a device holds their reads: they end with that outcome, and
//! not as operations that failed.

use super::{Cache, Drive, LandingChoice, StorageError, StreamQueue, Table, Volume};
use crate::args;
use crate::engine::{Engine, Run, RunError, testing};
use std::time::Duration;

/// Time after which nothing in a test ends by itself.
const LONG: Duration = Duration::from_secs(3600);
/// Limit of a run that a test stops.
const LIMIT: Duration = Duration::from_millis(50);
/// Blocks of a volume that the faulty devices do not complete.
const LOST: u64 = 512;
/// Devices that complete no read of the blocks from `LOST` on: one never, one after the test.
const DEVICES: [&str; 2] = ["soft:mem:1M,lose-completion=512-2047", "soft:mem:1M,latency=3600s"];

fn volume(spec: &str, landing: LandingChoice) -> Volume {
    let builder = Volume::on(&Engine::cpu().unwrap(), [Drive::open(spec).unwrap()]);
    builder.queues(2).depth(16).landing(landing).deadline(LONG).build().unwrap()
}

/// The ways in which a run reads.
#[derive(Clone, Copy, Debug)]
enum Reads {
    /// Into a buffer, block by block.
    Blocks,
    /// Through a page cache, in which several warps wait for one page.
    Pages,
}

/// Starts a run whose reads a device holds, and waits until it has begun them.
fn started(v: &Volume, reads: Reads) -> (Run, Option<Cache>) {
    match reads {
        Reads::Blocks => {
            let buffer = v.allocate_data(256 << 10).unwrap();
            (v.start_read(LOST, 512, 8, &buffer).unwrap(), None)
        }
        Reads::Pages => {
            let cache = Cache::on(v).bytes(64 << 10).build().unwrap();
            let engine = v.engine();
            // All blocks of the grid read the same pages.
            let first = LOST * 512 / cache.page_bytes() as u64;
            let arguments = args!(&cache, first, first + 8);
            let run = testing::start(engine, "wb_cache_touch", engine.grid(64, 4), arguments).unwrap();
            while cache.occupancy().unwrap().busy == 0 {
                std::thread::yield_now();
            }
            (run, Some(cache))
        }
    }
}

/// Lets commands in flight be given up soon: dropping a cache waits for its pages.
fn give_up(v: &Volume) {
    v.set_deadline(LIMIT).unwrap();
}

/// Starts runs of each kind on each device, ends them by `end`, and checks their error by `is_right`.
fn each(end: impl Fn(&Volume, Run) -> RunError, is_right: impl Fn(&RunError) -> bool) {
    for spec in DEVICES {
        for landing in [LandingChoice::Bounce, LandingChoice::Direct] {
            for reads in [Reads::Blocks, Reads::Pages] {
                let v = volume(spec, landing);
                let (run, cache) = started(&v, reads);
                let e = end(&v, run);
                assert!(v.engine().is_idle());
                give_up(&v);
                drop(cache);
                assert!(is_right(&e), "{spec} {landing:?} {reads:?}: {e:?}");
            }
        }
    }
}

#[test]
fn a_cancelled_run_with_reads_in_flight_was_stopped() {
    let cancel = |v: &Volume, run: Run| {
        v.engine().cancel().unwrap();
        run.finish_within(LONG).unwrap_err()
    };
    each(cancel, |e| matches!(e, RunError::Stopped { .. }) && e.to_string().contains("cancelled"));
}

#[test]
fn a_run_at_its_limit_with_reads_in_flight_has_timed_out() {
    each(|_, run| run.finish_within(LIMIT).unwrap_err(), |e| matches!(e, RunError::TimedOut { within: LIMIT, .. }));
}

#[test]
fn a_read_of_an_array_that_is_cancelled_was_stopped() {
    for spec in DEVICES {
        let v = volume(spec, LandingChoice::Bounce);
        let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
        let array = cache.array::<u64>(0, v.bytes() / 8).unwrap();
        let read = std::thread::scope(|scope| {
            let read = scope.spawn(|| array.read(LOST * 64..LOST * 64 + 4096));
            while cache.occupancy().unwrap().busy == 0 {
                std::thread::yield_now();
            }
            v.engine().cancel().unwrap();
            read.join().unwrap()
        });
        give_up(&v);
        drop((array, cache));
        assert!(matches!(read, Err(StorageError::Run(RunError::Stopped { .. }))), "{spec}: {read:?}");
    }
}

/// Returns a table whose last rows a device does not return.
fn table(file: &std::path::Path) -> Table {
    let spec = format!("soft:{}", file.display());
    let rows: Vec<u32> = (0..2000 * 64).collect();
    Table::from_rows(&volume(&spec, LandingChoice::Bounce), "t", &rows, 64).unwrap();
    Table::open(&volume(&format!("{spec},lose-completion=1000-2047"), LandingChoice::Bounce), "t").build().unwrap()
}

#[test]
fn a_batch_of_rows_is_stopped_or_has_timed_out() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let table = table(file.path());
    let engine = table.volume().engine().clone();
    let lost: Vec<u64> = (1500..1600).collect();
    let late = table.prefetch(&lost).unwrap().take(LIMIT).map(|rows| rows.rows()).unwrap_err();
    assert!(matches!(late, StorageError::Run(RunError::TimedOut { .. })), "{late:?}");
    let flying = table.prefetch(&lost).unwrap();
    std::thread::sleep(LIMIT);
    engine.cancel().unwrap();
    let stopped = flying.take(LONG).map(|rows| rows.rows()).unwrap_err();
    assert!(matches!(stopped, StorageError::Run(RunError::Stopped { .. })), "{stopped:?}");
}

#[test]
fn transfers_of_a_stream_are_stopped_or_have_timed_out() {
    let v = volume("soft:mem:1M,lose-completion=512-2047", LandingChoice::Auto);
    let stream = v.engine().stream().unwrap();
    let queue = StreamQueue::new(&stream, &v).unwrap();
    let data = v.allocate_data(4096).unwrap();
    let read = || {
        queue.prepare_read(LOST, 8, &data, 0).unwrap();
        queue.trigger().unwrap();
    };
    read();
    let late = stream.synchronize(LIMIT).unwrap_err();
    assert!(matches!(late, RunError::TimedOut { .. }), "{late:?}");
    read();
    v.engine().cancel().unwrap();
    let begun = std::time::Instant::now();
    let stopped = stream.synchronize(LONG).unwrap_err();
    assert!(matches!(stopped, RunError::Stopped { .. }), "{stopped:?}");
    assert!(begun.elapsed() < Duration::from_secs(5), "the steps saw that they should end");
    v.engine().resume().unwrap();
    queue.prepare_read(0, 8, &data, 0).unwrap();
    queue.trigger().unwrap();
    stream.synchronize(LONG).unwrap();
}
