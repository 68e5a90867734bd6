//! Tests of measurements on software devices.

use super::sizes::Sizes;
use super::steady::SteadyState;
use super::*;
use warpbell::storage::{Drive, LandingChoice, OverwritePolicy};

#[test]
fn memory_that_is_not_there_is_not_filled() {
    let check = |needed, free| check_memory(needed, free, "--size");
    assert!(check(100, Some(100)).is_ok() && check(u64::MAX, None).is_ok());
    let text = check(1 << 40, Some(3 << 30)).unwrap_err().to_string();
    let says = "the job fills 1 TiB of memory, and 3 GiB is free; give a smaller --size, or free memory";
    assert_eq!(text, says);
    let volume = volume();
    assert_eq!((volume.is_in_memory(), volume.memory_bytes(4096)), (true, 4096));
}

#[test]
fn only_what_is_read_is_filled_and_that_in_parts() {
    let volume = volume();
    let bench = |job| NvmeBench::new(&volume, job).unwrap();
    for (read_percent, verify, needed) in [(0, true, false), (0, false, false), (100, false, true), (50, true, true)] {
        let job = NvmeJob { verify, ..job(4096, read_percent) };
        assert_eq!(bench(job).needs_fill(), needed, "{read_percent} {verify}");
    }
    let half = bench(NvmeJob { size_bytes: 512 << 10, ..job(4096, 100) });
    let mut seen = Vec::new();
    let before = volume.stats().unwrap();
    half.fill(|done, all| seen.push((done, all))).unwrap();
    // The host's large commands are not among the kernels'.
    assert_eq!((volume.stats().unwrap() - before).writes, 0);
    assert_eq!(seen, [(0, 512 << 10), (512 << 10, 512 << 10)]);
    let mut rest = vec![1; 512 << 10];
    volume.read_bytes(512 << 10, &mut rest).unwrap();
    assert!(rest.iter().all(|byte| *byte == 0));
    half.run().unwrap();
}

/// Each way of filling writes what the kernels expect.
#[test]
fn kernels_fill_where_the_host_cannot() {
    let volume = volume();
    let bench = NvmeBench::new(&volume, job(4096, 100)).unwrap();
    let content = || {
        let mut bytes = vec![0; 1 << 20];
        volume.read_bytes(0, &mut bytes).map(|()| bytes).unwrap()
    };
    bench.fill(|_, _| {}).unwrap();
    let by_host = content();
    volume.write_bytes(0, &vec![0; 1 << 20]).unwrap();
    bench.fill_by_kernels(|_, _| {}).unwrap();
    assert!(content() == by_host);
    assert!(bench.run().unwrap().verified);
}

#[test]
fn a_fill_ends_when_the_engine_is_told_to_end() {
    let volume = volume();
    let bench = NvmeBench::new(&volume, job(4096, 100)).unwrap();
    volume.engine().cancel().unwrap();
    assert!(matches!(bench.fill(|_, _| {}), Err(MeasureError::Stopped)));
}

fn job(command_bytes: u64, read_percent: u32) -> NvmeJob {
    let rw = match read_percent {
        100 => Pattern::Randread,
        0 => Pattern::Randwrite,
        _ => Pattern::Randrw,
    };
    let plain = NvmeJob::new(rw, Sizes::all(command_bytes), 1 << 20);
    NvmeJob { read_percent, iodepth: 8, runtime: Some(Duration::from_millis(50)), verify: true, seed: 7, ..plain }
}

fn volume() -> Volume {
    let engine = Engine::cpu().unwrap();
    let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none()).unwrap();
    Volume::on(&engine, [drive]).transfer(8192).build().unwrap()
}

#[test]
fn reads_and_writes_are_counted_timed_and_checked() {
    let volume = volume();
    for percent in [0, 50, 100] {
        let bench = NvmeBench::new(&volume, job(8192, percent)).unwrap();
        bench.fill(|_, _| {}).unwrap();
        let before = volume.stats().unwrap();
        let run = bench.run().unwrap();
        let counted = volume.stats().unwrap() - before;
        let of = |d: &Option<Direction>| d.as_ref().map_or(0, |d| d.commands);
        assert_eq!((of(&run.read), of(&run.write)), (counted.reads, counted.writes));
        assert_eq!((run.read.is_some(), run.write.is_some()), (percent > 0, percent < 100));
        for d in [run.read, run.write].into_iter().flatten() {
            assert_eq!(d.latency.unwrap().samples, d.commands);
            assert!(d.commands > 0);
        }
    }
}

/// With many commands in flight, the thread that owns a failed read repeats it on the other copy, even if another
/// thread found its completion.
#[test]
fn reads_that_one_copy_fails_are_made_on_the_other() {
    for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
        let specs = ["soft:mem:1M", "soft:mem:1M,media-error=read:100-1000"];
        let drives = specs.map(|s| Drive::open(s).unwrap());
        let engine = Engine::builder().threads(4).cpu().unwrap();
        let builder = Volume::on(&engine, drives).replicated(true).chunk(8192).landing(landing);
        let volume = builder.transfer(8192).build().unwrap();
        for iodepth in [1, 64] {
            let bench = NvmeBench::new(&volume, NvmeJob { iodepth, ..job(4096, 100) }).unwrap();
            bench.fill(|_, _| {}).unwrap();
            // On a busy machine a run may end before it has read one of the many bad blocks.
            let r = loop {
                assert!(bench.run().unwrap().verified, "{landing}");
                let r = volume.redundancy().unwrap();
                if r.redirected_reads > 0 {
                    break r;
                }
            };
            assert!(r.lost.is_empty(), "{landing}: {r}");
            assert_eq!(volume.stats().unwrap().errors, 0, "{landing}");
            volume.repair().unwrap();
            volume.reset_stats().unwrap();
        }
    }
}

#[test]
fn other_data_than_was_written_is_an_error() {
    let volume = volume();
    let bench = NvmeBench::new(&volume, job(4096, 100)).unwrap();
    bench.fill(|_, _| {}).unwrap();
    bench.run().unwrap();
    volume.write_blocks(0, &vec![0; 1 << 20]).unwrap();
    assert!(matches!(bench.run(), Err(MeasureError::Wrong(_))));
}

#[test]
fn sizes_that_do_not_fit_are_named() {
    let volume = volume();
    let refused = |job| NvmeBench::new(&volume, job).err().unwrap().to_string();
    assert!(refused(job(1000, 100)).contains("commands of 1000 bytes: give whole blocks of 512"));
    assert!(refused(job(1 << 30, 100)).contains("commands of 1073741824 bytes"));
    let large = NvmeJob { size_bytes: 1 << 40, ..job(4096, 100) };
    assert!(refused(large).contains("the device has"));
    let small = NvmeJob { size_bytes: 100, ..job(4096, 100) };
    assert!(refused(small).contains("holds 0 commands"));
}

/// Runs a job on a new volume of zeros and returns it with the blocks that hold the pattern, in order.
fn written(job: &NvmeJob) -> (NvmeRun, Vec<u64>) {
    let volume = volume();
    let run = NvmeBench::new(&volume, job.clone()).unwrap().run().unwrap();
    (run, patterned(&volume))
}

/// Returns the blocks whose content is what a kernel writes there.
fn patterned(volume: &Volume) -> Vec<u64> {
    let block = volume.block_bytes();
    let geometry = Geometry { command_bytes: block, block_bytes: block };
    let mut bytes = vec![0; 1 << 20];
    volume.read_bytes(0, &mut bytes).unwrap();
    let blocks = bytes.chunks_exact(block).enumerate();
    blocks.filter(|(i, data)| geometry.is(*i as u64, data)).map(|(i, _)| i as u64).collect()
}

/// A job that ends when its work is done.
fn amount(rw: Pattern, sizes: Sizes, io_bytes: u64) -> NvmeJob {
    let whole = NvmeJob::new(rw, sizes, 1 << 20);
    NvmeJob { io_bytes: Some(io_bytes), runtime: None, verify: true, iodepth: 8, ..whole }
}

fn commands(run: &NvmeRun) -> (u64, u64) {
    let of = |d: &Option<Direction>| d.as_ref().map_or(0, |d| d.commands);
    (of(&run.read), of(&run.write))
}

#[test]
fn each_place_comes_once_before_one_comes_again() {
    for (iodepth, size_bytes) in [(1, 1 << 20), (7, 333 * 512), (64, 1000 * 512), (200, 50 * 512), (3, 512)] {
        let once = NvmeJob { iodepth, size_bytes, ..amount(Pattern::Randwrite, Sizes::all(512), size_bytes) };
        let (run, blocks) = written(&once);
        assert_eq!(commands(&run), (0, size_bytes / 512));
        assert!(blocks.iter().copied().eq(0..size_bytes / 512), "{iodepth} {size_bytes}: {} blocks", blocks.len());
        let drawn = NvmeJob { norandommap: true, ..once };
        let (run, blocks) = written(&drawn);
        assert_eq!(commands(&run), (0, size_bytes / 512));
        // Of independent draws, a third of the places is left out.
        assert!(size_bytes < 1000 || (blocks.len() as u64) < size_bytes / 512 * 4 / 5, "{} blocks", blocks.len());
    }
}

#[test]
fn a_job_keeps_to_its_region_and_its_amount() {
    let part =
        NvmeJob { offset_bytes: 128 << 10, size_bytes: 64 << 10, ..amount(Pattern::Write, Sizes::all(4096), 40 << 10) };
    let (run, blocks) = written(&part);
    assert_eq!(commands(&run), (0, 10));
    assert!(blocks.iter().copied().eq(256..256 + 80), "{blocks:?}");
    let around = NvmeJob { io_bytes: Some(1 << 20), ..part };
    let (run, blocks) = written(&around);
    assert_eq!(commands(&run), (0, 256));
    assert!(blocks.iter().copied().eq(256..256 + 128), "{blocks:?}");
}

#[test]
fn sequential_jobs_leave_out_what_they_are_told_to() {
    let gaps = NvmeJob { skip_bytes: 1024, size_bytes: 10_240, ..amount(Pattern::Write, Sizes::all(512), 7 * 512) };
    let (_, blocks) = written(&gaps);
    assert_eq!(blocks, [0, 3, 6, 9, 12, 15, 18]);
}

#[test]
fn runs_follow_their_first_command() {
    let runs = NvmeJob { run: 8, iodepth: 1, ..amount(Pattern::Randwrite, Sizes::all(512), 32 * 512) };
    let (run, blocks) = written(&runs);
    assert_eq!(commands(&run), (0, 32));
    let neighbours = blocks.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    assert!(blocks.len() <= 32 && neighbours >= blocks.len() - 5, "{blocks:?}");
}

#[test]
fn sizes_are_mixed_as_they_are_told_to() {
    for rw in [Pattern::Randrw, Pattern::Mixed] {
        let split = amount(rw, "512/50:4k/50,1k/100".parse().unwrap(), 4 << 20);
        let bench_volume = volume();
        let bench = NvmeBench::new(&bench_volume, split.clone()).unwrap();
        bench.fill(|_, _| {}).unwrap();
        let run = bench.run().unwrap();
        assert!(run.verified);
        let mean = |d: &Option<Direction>| d.as_ref().map_or(0.0, |d| d.io_bytes as f64 / d.commands as f64);
        // The mean of 1,300 reads has a standard deviation of 50.
        assert!((mean(&run.read) - 2304.0).abs() < 300.0, "{rw} {}", mean(&run.read));
        assert_eq!(mean(&run.write), 1024.0);
        let fixed = NvmeJob { sizes: Sizes::Fixed { read: 4096, write: 512 }, ..split };
        let run = NvmeBench::new(&bench_volume, fixed).unwrap().run().unwrap();
        assert_eq!((mean(&run.read), mean(&run.write)), (4096.0, 512.0));
    }
}

#[test]
fn random_addresses_have_their_distribution() {
    let distinct = |text: &str| {
        let job =
            NvmeJob { distribution: text.parse().unwrap(), ..amount(Pattern::Randwrite, Sizes::all(512), 1 << 20) };
        written(&job).1
    };
    let zoned = distinct("zoned:100/10:0/90");
    assert!(zoned.iter().all(|block| *block < 205) && zoned.len() > 150, "{zoned:?}");
    let (zipf, mild) = (distinct("zipf:2"), distinct("zipf:0.1"));
    assert!(zipf.len() * 4 < mild.len(), "{} {}", zipf.len(), mild.len());
    // The ranks are scattered: most of the few blocks are beyond the first ones.
    assert!(zipf.iter().filter(|block| **block > 512).count() > zipf.len() / 2, "{zipf:?}");
    assert!(distinct("zipf:2:0").iter().filter(|block| **block < 512).count() > zipf.len() / 2);
}

#[test]
fn rates_are_not_exceeded() {
    let volume = volume();
    for (iodepth, rate) in [(1, "1M"), (8, "1M/2M"), (300, "4M")] {
        let rate: Rates = rate.parse().unwrap();
        let runtime = Some(Duration::from_millis(300));
        let limited =
            NvmeJob { rate, runtime, iodepth, verify: false, ..amount(Pattern::Randrw, Sizes::all(4096), u64::MAX) };
        let bench = NvmeBench::new(&volume, limited).unwrap();
        bench.fill(|_, _| {}).unwrap();
        let run = bench.run().unwrap();
        for (d, rate) in [(&run.read, rate.read), (&run.write, rate.write)] {
            // Each thread may be ahead by its first commands.
            let most = rate.unwrap() as f64 * 0.3 + 4096.0 * f64::from(iodepth) + 8192.0;
            let moved = d.as_ref().map_or(0, |d| d.io_bytes);
            assert!(moved > 0 && moved as f64 <= most, "{iodepth} {moved} {most}");
        }
    }
}

#[test]
fn the_time_before_a_measurement_is_not_counted() {
    let volume = volume();
    let ramp = NvmeJob { ramp: Duration::from_millis(50), ..job(4096, 100) };
    let bench = NvmeBench::new(&volume, ramp).unwrap();
    bench.fill(|_, _| {}).unwrap();
    volume.reset_stats().unwrap();
    let run = bench.run().unwrap();
    let counted = commands(&run).0;
    assert!(counted > 0 && counted < volume.stats().unwrap().reads, "{counted}");
    assert_eq!(run.read.unwrap().latency.unwrap().samples, counted);
}

#[test]
fn a_time_series_has_what_completed_in_each_interval() {
    let volume = volume();
    let interval = Duration::from_millis(5);
    let timed = NvmeJob { interval: Some(interval), verify: false, ..job(4096, 50) };
    let bench = NvmeBench::new(&volume, timed).unwrap();
    bench.fill(|_, _| {}).unwrap();
    let run = bench.run().unwrap();
    for d in [run.read.unwrap(), run.write.unwrap()] {
        let series = d.time_series.unwrap();
        assert_eq!(series.interval_ns, 5_000_000);
        assert!((9..=10).contains(&series.iops.len()), "{}", series.iops.len());
        let counted: f64 = series.iops.iter().map(|rate| rate * 0.005).sum();
        assert!(counted > 0.0 && counted.round() as u64 <= d.commands, "{counted} {}", d.commands);
        for (bytes, iops) in series.bytes_per_s.iter().zip(&series.iops) {
            assert!((bytes - iops * 4096.0).abs() < 1.0);
        }
    }
}

#[test]
fn a_steady_rate_ends_the_measurement() {
    let volume = volume();
    let steady = |limit: &str| SteadyState { criterion: limit.parse().unwrap(), window: Duration::from_millis(40) };
    let of = |limit: &str, runtime| {
        let job = NvmeJob {
            steady_state: Some(steady(limit)),
            runtime: Some(Duration::from_millis(runtime)),
            ..job(4096, 100)
        };
        let bench = NvmeBench::new(&volume, job).unwrap();
        bench.fill(|_, _| {}).unwrap();
        bench.run().unwrap()
    };
    let run = of("iops:1000000%", 600_000);
    assert!(run.steadiness.unwrap().attained && run.read.unwrap().runtime_ns < 600_000_000_000);
    let run = of("iops:0.000001%", 200);
    assert!(!run.steadiness.unwrap().attained);
}
