//! Measurement of a job of a fio job file: what kernels do for it.

use crate::job_file::FioJob;
use crate::job_file::access::{Direction, Order, PerDirection};
use crate::job_file::blocks::Blocks;
use crate::job_file::distribution::{Distribution as FioDistribution, Zone};
use crate::job_file::number::Amount;
use crate::job_file::steady_state::{Limit, Metric};
use crate::workloads::nvme::distribution::Distribution;
use crate::workloads::nvme::sizes::{Sizes, Split};
use crate::workloads::nvme::steady::{Criterion, SteadyState};
use crate::workloads::nvme::{NvmeJob, Pattern, Rates};
use warpbell::units::grouped;

/// Returns the job for a device of `device_bytes` bytes with blocks of `block_bytes`.
///
/// # Errors
/// A text that names the option, and what to write instead, if kernels do not make such accesses, or the device is too
/// small. Nothing is ever enlarged.
pub fn of(fio: &FioJob, device_bytes: u64, block_bytes: u64) -> Result<NvmeJob, String> {
    let (random, skip_bytes, run) = match fio.rw.order {
        Order::Sequential { gap } => match u64::try_from(gap) {
            Ok(gap) => (false, gap, 1),
            Err(_) => {
                return Err(format!(
                    "rw with {gap}: kernels do not run backwards; give rw=read, or read:N with N above 0"
                ));
            }
        },
        Order::Random { run } => (true, 0, run),
    };
    let rw = match (fio.rw.direction, random) {
        (Direction::Read, false) => Pattern::Read,
        (Direction::Write, false) => Pattern::Write,
        (Direction::Both, false) => Pattern::Mixed,
        (Direction::Read, true) => Pattern::Randread,
        (Direction::Write, true) => Pattern::Randwrite,
        (Direction::Both, true) => Pattern::Randrw,
    };
    let sizes = sizes_of(fio)?;
    let most = sizes.most(fio.reads(), fio.writes());
    let (offset_bytes, size_bytes) = region(fio, device_bytes, most, block_bytes)?;
    let mut job = NvmeJob::new(rw, sizes, size_bytes);
    job.read_percent = rw.read_percent(fio.read_percent);
    job.iodepth = fio.iodepth;
    job.numjobs = fio.numjobs;
    job.offset_bytes = offset_bytes;
    job.skip_bytes = skip_bytes;
    job.run = run;
    job.norandommap = fio.norandommap;
    job.distribution = distribution(&fio.distribution)?;
    job.io_bytes = (!fio.time_based).then(|| amount(fio, &job));
    job.runtime = fio.runtime;
    job.ramp = fio.ramp_time;
    job.rate = rates(fio, &job);
    job.steady_state = fio.steady_state.map(|s| SteadyState {
        criterion: Criterion::new(
            s.criterion.of == Metric::Iops,
            s.criterion.slope,
            match s.criterion.limit {
                Limit::Percent(percent) => (percent, true),
                Limit::Rate(rate) => (rate, false),
            },
        ),
        window: s.duration,
    });
    if !fio.percentiles.is_empty() {
        job.percentiles.clone_from(&fio.percentiles);
    }
    job.verify = match &fio.verify {
        Some(_) if !fio.writes() => {
            return Err(
                "verify of a job that only reads expects data that fio wrote; leave it out, or give a job that writes"
                    .to_owned(),
            );
        }
        verify => verify.is_some(),
    };
    job.seed = fio.seed.unwrap_or(job.seed);
    Ok(job)
}

/// Returns the sizes of a job's commands.
///
/// # Errors
/// A text that names the option, if kernels do not make such sizes.
pub fn sizes_of(fio: &FioJob) -> Result<Sizes, String> {
    let blocks: &PerDirection<Blocks> = &fio.blocks;
    let split = |blocks: &Blocks| match blocks {
        Blocks::Fixed(bytes) => Split::new(vec![(*bytes, 100.0)]),
        Blocks::Split(shares) => Split::new(shares.iter().map(|s| (s.bytes, f64::from(s.percent))).collect()),
        Blocks::Range { least, most } => Split::range(*least, *most),
    };
    match (&blocks.read, &blocks.write) {
        (Blocks::Fixed(read), Blocks::Fixed(write)) => Ok(Sizes::Fixed { read: *read, write: *write }),
        (read, write) => {
            let named = |of: &Blocks| split(of).map_err(|e| format!("{}={of}: {e}", of.option()));
            Ok(Sizes::Split { read: named(read)?, write: named(write)? })
        }
    }
}

/// Returns start and length of the region, in bytes.
fn region(fio: &FioJob, device_bytes: u64, most: u64, block_bytes: u64) -> Result<(u64, u64), String> {
    let share = |percent: u32| (u128::from(device_bytes) * u128::from(percent) / 100) as u64;
    let offset = match fio.offset {
        Amount::Bytes(bytes) => bytes,
        // fio rounds a share up to a block of the job.
        Amount::Percent(percent) => share(percent).next_multiple_of(most.max(1)),
    };
    let Some(rest) = device_bytes.checked_sub(offset) else {
        return Err(format!("offset={offset}: the device has {} bytes; give less", grouped(device_bytes)));
    };
    let size = match fio.size {
        None => rest,
        Some(Amount::Percent(percent)) => share(percent).min(rest),
        Some(Amount::Bytes(bytes)) if bytes <= rest => bytes,
        Some(Amount::Bytes(bytes)) => {
            let from = if offset > 0 { format!(" from offset={offset} on") } else { String::new() };
            return Err(format!(
                "size={bytes}{from}: the device has {} bytes, and is not enlarged; give size={rest} or less, or leave it out",
                grouped(device_bytes)
            ));
        }
    };
    Ok((offset, size / block_bytes * block_bytes))
}

/// Returns the bytes that all clones move in all loops, as fio counts them.
fn amount(fio: &FioJob, job: &NvmeJob) -> u64 {
    let loops = |bytes: u64| bytes.saturating_mul(fio.loops);
    let each = match (fio.number_ios, fio.io_size) {
        (Some(commands), _) => (job.mean_bytes() * commands as f64 * fio.loops as f64).round() as u64,
        (None, None) => loops(job.pass_bytes()),
        (None, Some(io_size)) => {
            let io = match io_size {
                Amount::Bytes(bytes) => bytes,
                Amount::Percent(percent) => (u128::from(job.size_bytes) * u128::from(percent) / 100) as u64,
            };
            if io <= job.size_bytes { loops(io) } else { io.max(loops(job.pass_bytes())) }
        }
    };
    each.saturating_mul(fio.numjobs.into())
}

/// Returns the limits of all clones together.
fn rates(fio: &FioJob, job: &NvmeJob) -> Rates {
    let (read, write) = job.sizes.means();
    let of = |bytes: Option<u64>, iops: Option<u64>, mean: f64| {
        let by_iops = iops.map(|n| (n as f64 * mean) as u64);
        let least = [bytes, by_iops].into_iter().flatten().min();
        least.map(|rate| rate.saturating_mul(fio.numjobs.into()).max(1))
    };
    Rates {
        read: of(fio.rate.read, fio.rate_iops.read, read).filter(|_| fio.reads()),
        write: of(fio.rate.write, fio.rate_iops.write, write).filter(|_| fio.writes()),
    }
}

fn distribution(fio: &FioDistribution) -> Result<Distribution, String> {
    Ok(match fio {
        FioDistribution::Uniform => Distribution::Uniform,
        FioDistribution::Zipf { theta, center } => Distribution::Zipf { theta: *theta, center: *center },
        FioDistribution::Pareto { h, center } => Distribution::Pareto { h: *h, center: *center },
        FioDistribution::Normal { .. } => {
            return Err("random_distribution=normal: kernels do not draw it; give zipf, pareto or zoned".to_owned());
        }
        FioDistribution::Zoned(zones) if zones.read != zones.write => {
            return Err(
                "random_distribution=zoned with other zones for writes: kernels have one table; give the same zones"
                    .to_owned(),
            );
        }
        FioDistribution::Zoned(zones) => Distribution::Zoned(zones.read.iter().map(zone).collect::<Result<_, _>>()?),
    })
}

fn zone(zone: &Zone) -> Result<(f64, f64), String> {
    match zone.length {
        Amount::Percent(area) => Ok((f64::from(zone.percent), f64::from(area))),
        Amount::Bytes(bytes) => {
            Err(format!("random_distribution=zoned_abs with {bytes} bytes: give zoned with shares of the region"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_file::{self, Environment, JobFile};
    use std::io;
    use std::path::Path;

    const DEVICE: u64 = 1 << 20;

    struct Nothing;

    impl Environment for Nothing {
        fn exists(&self, _: &Path) -> bool {
            false
        }
        fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
            Err(io::ErrorKind::NotFound.into())
        }
        fn variable(&self, _: &str) -> Option<String> {
            None
        }
    }

    fn job(options: &str) -> Result<NvmeJob, String> {
        let text = format!("[a]\nfilename=x\n{}\n", options.replace(' ', "\n"));
        let JobFile { jobs, .. } = job_file::parse(Path::new("a.fio"), text.as_bytes(), &Nothing).unwrap();
        of(&jobs[0], DEVICE, 512)
    }

    /// The amounts are those that fio 3.33 was seen to move.
    #[test]
    fn amounts_are_fio_s() {
        let io_bytes = |options: &str| job(options).unwrap().io_bytes;
        assert_eq!(io_bytes("rw=read"), Some(DEVICE));
        assert_eq!(io_bytes("rw=read time_based runtime=1"), None);
        assert_eq!(io_bytes("rw=read size=10k"), Some(8192));
        assert_eq!(io_bytes("rw=read size=64k loops=3"), Some(192 << 10));
        assert_eq!(io_bytes("rw=read size=64k io_size=32k loops=3"), Some(96 << 10));
        for (loops, moved) in [(1, 128), (2, 128), (3, 192)] {
            let options = format!("rw=read size=64k io_size=128k loops={loops}");
            assert_eq!(io_bytes(&options), Some(moved << 10), "{loops}");
        }
        assert_eq!(io_bytes("rw=read number_ios=10 loops=2"), Some(20 * 4096));
        assert_eq!(io_bytes("rw=randread numjobs=3 size=64k"), Some(192 << 10));
    }

    #[test]
    fn regions_are_within_the_device() {
        let region = |options: &str| job(options).map(|j| (j.offset_bytes, j.size_bytes));
        assert_eq!(region("size=50%"), Ok((0, DEVICE / 2)));
        assert_eq!(region("offset=25%"), Ok((DEVICE / 4, DEVICE * 3 / 4)));
        // 30 % are 314,572 bytes, rounded up to a block of the job.
        assert_eq!(region("offset=30%").map(|r| r.0), Ok(315_392));
        assert_eq!(region("size=90% offset=25%"), Ok((DEVICE / 4, DEVICE * 3 / 4)));
        assert!(region("size=2m").unwrap_err().contains("is not enlarged; give size=1048576 or less"));
        assert!(region("size=1m offset=4k").unwrap_err().contains("from offset=4096 on"));
        assert!(region("offset=2m").unwrap_err().contains("offset=2097152"));
    }

    #[test]
    fn patterns_sizes_and_rates_are_those_of_the_job() {
        let skip = job("rw=read:4k").unwrap();
        assert_eq!((skip.rw, skip.skip_bytes, skip.run), (Pattern::Read, 4096, 1));
        let run = job("rw=randrw:8 rwmixread=30").unwrap();
        assert_eq!((run.rw, run.run, run.read_percent), (Pattern::Randrw, 8, 30));
        assert_eq!(job("rw=rw bs=4k,8k").unwrap().sizes, Sizes::Fixed { read: 4096, write: 8192 });
        let split = job("rw=randread bssplit=4k/20:8k/90:16k/50").unwrap();
        // The largest percentage gets what the others leave.
        assert_eq!(split.sizes.setting().1.split(" of ").next(), Some("4k/20:8k/30:16k/50"), "{:?}", split.sizes);
        let rates = job("rw=rw rate=1m,2m numjobs=2").unwrap().rate;
        assert_eq!((rates.read, rates.write), (Some(2 << 20), Some(4 << 20)));
        let iops = job("rw=randread rate_iops=100").unwrap().rate;
        assert_eq!((iops.read, iops.write), (Some(409_600), None));
        let steady = job("rw=read runtime=60 time_based steadystate=iops:5% steadystate_duration=10").unwrap();
        assert_eq!(steady.steady_state.unwrap().to_string(), "iops:5% for 10s");
    }

    #[test]
    fn jobs_that_kernels_do_not_make_are_refused() {
        for (options, told) in [
            ("rw=read:-8k", "do not run backwards"),
            ("rw=randread random_distribution=normal:10", "give zipf, pareto or zoned"),
            ("rw=read verify=md5", "only reads"),
        ] {
            let error = job(options).unwrap_err();
            assert!(error.contains(told), "{options}: {error}");
        }
    }
}
