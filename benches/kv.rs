//! Costs of the index of a store of objects: time to open it, memory, and look-ups of a second.
//!
//! ```text
//! cargo bench -p warpbell-benches --bench kv -- [OBJECTS] [FOLDER]
//! ```
//!
//! Objects of 4 KiB, a million by default, in a file of the folder, by default that for temporary files. Their data is not written, so that the
//! file is sparse: it takes 128 bytes for each object.

use std::error::Error;
use std::time::{Duration, Instant};
use warpbell::engine::Engine;
use warpbell::storage::{Drive, KvKey, KvOptions, KvStore, OverwritePolicy, Volume};

const OBJECT: u64 = 4096;
/// Objects of one reservation.
const BATCH: u64 = 4096;
/// Keys of one look-up.
const KEYS: usize = 256;
const RUNS: usize = 5;
const SECOND: Duration = Duration::from_secs(1);

/// Returns the key of an object: a hash of its number by SplitMix64.
fn key(n: u64) -> KvKey {
    let mut bytes = [0; 16];
    for (half, n) in bytes.chunks_exact_mut(8).zip([2 * n + 1, 2 * n + 2]) {
        let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        half.copy_from_slice(&(z ^ z >> 31).to_le_bytes());
    }
    KvKey::from(bytes)
}

/// Returns the look-ups that `threads` threads make in a second, all of keys that are there.
fn lookups(store: &KvStore, objects: u64, threads: u64) -> f64 {
    let begun = Instant::now();
    let count: u64 = std::thread::scope(|scope| {
        let run = |t: u64| {
            let mut made = 0u64;
            let mut next = t.wrapping_mul(0x9e37_79b9);
            while begun.elapsed() < SECOND {
                let keys: [KvKey; KEYS] = std::array::from_fn(|_| {
                    next = next.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    key((next >> 33) % objects)
                });
                let found = store.lookup(&keys).map_or(0, |found| found.iter().flatten().count());
                assert_eq!(found, KEYS);
                made += KEYS as u64;
            }
            made
        };
        let threads: Vec<_> = (0..threads).map(|t| scope.spawn(move || run(t))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or(0)).sum()
    });
    count as f64 / begun.elapsed().as_secs_f64()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let objects: u64 = arguments.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let folder = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let path = folder.join(format!("warpbell-kv-{}.img", std::process::id()));
    let measured = measure(&path.display().to_string(), objects);
    std::fs::remove_file(&path)?;
    measured
}

fn measure(path: &str, objects: u64) -> Result<(), Box<dyn Error>> {
    let options = KvOptions { key_bytes: 16, bytes: objects * OBJECT, objects };
    let bytes = objects * (OBJECT + 128) + (4 << 20);
    let drive = Drive::create(&format!("soft:{path},block=4096"), bytes, &OverwritePolicy::none())?;
    let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
    let store = KvStore::create(&volume, "kv", &options)?;
    let begun = Instant::now();
    for first in (0..objects).step_by(BATCH as usize) {
        let batch: Vec<(KvKey, u64)> = (first..objects.min(first + BATCH)).map(|n| (key(n), OBJECT)).collect();
        let sums = vec![0; batch.len()];
        store.reserve(&batch)?.commit(&sums)?;
    }
    let stored = objects as f64 / begun.elapsed().as_secs_f64();
    println!("{objects} objects of {OBJECT} bytes, {stored:.0} reserved and committed a second, {BATCH} at once");
    let index = store.stats().index_bytes as f64;
    println!("index: {:.1} MB, {:.0} bytes an object", index / 1e6, index / objects as f64);
    drop(store);
    for (bytes, name) in [(1 << 20, "1 MiB"), (4 << 20, "4 MiB")] {
        let mut piece = vec![0; bytes];
        let begun = Instant::now();
        for at in (0..objects * 128).step_by(bytes) {
            volume.read_blocks(at >> volume.block_shift(), &mut piece)?;
        }
        println!("reading as much in pieces of {name}: {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    }
    for run in 1..=RUNS {
        let begun = Instant::now();
        let store = KvStore::open(&volume, "kv")?;
        let opened = begun.elapsed();
        assert_eq!((store.stats().objects, store.stats().damaged_records), (objects, 0));
        println!("run {run}: opened in {:.1} ms", opened.as_secs_f64() * 1e3);
    }
    let store = KvStore::open(&volume, "kv")?;
    for threads in [1, 2, 4] {
        let rate = lookups(&store, objects, threads);
        println!("{threads} thread(s), {KEYS} keys a call: {:.2} million look-ups a second", rate / 1e6);
    }
    drop(store);
    let store = KvStore::open(&volume, "kv")?;
    let begun = Instant::now();
    let evicted = store.reserve(&[(key(objects), OBJECT)])?.evicted().len();
    println!("first eviction, which sorts by age: {:.1} ms, {evicted} evicted", begun.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
