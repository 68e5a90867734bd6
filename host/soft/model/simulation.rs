//! A host on a simulated clock, which keeps a number of commands in flight on a modelled drive: the rates and times that the model
//! has by itself, without threads, copies and polls.

use super::parameters::DriveModel;
use super::timing::{Command, Flow, Kind, Timing};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most writes that are taken to fill a buffer.
const MOST_BUFFERED: u64 = 1 << 18;

/// Commands of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Percentage of reads, 0 to 100.
    pub read_percent: u32,
    /// Size of a command in bytes.
    pub bytes: u64,
    /// Number of commands in flight.
    pub depth: u32,
    /// Bytes of the drive that commands access at random.
    pub span: u64,
}

/// Rates and times of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Simulated {
    /// Commands per second.
    pub iops: f64,
    /// Median time of reads in nanoseconds, if there were any.
    pub read_ns: Option<u64>,
    /// Median time of writes in nanoseconds, if there were any.
    pub write_ns: Option<u64>,
}

/// Returns the rate and the times of `commands` commands, after as many that fill queues and buffer. The result depends on the
/// arguments alone.
pub fn simulate(model: &DriveModel, load: &Load, commands: u32, seed: u64) -> Simulated {
    let timing = Timing::new(model.clone());
    let (mut flow, mut random) = (Flow::new(seed, 1), SmallRng::seed_from_u64(!seed));
    let mut in_flight = BinaryHeap::new();
    let mut submit = |now: u64| {
        let is_read = random.random_range(0..100) < load.read_percent;
        let kind = if is_read { Kind::Read } else { Kind::Write };
        let offset = random.random_range(0..(load.span / load.bytes).max(1)) * load.bytes;
        let done = timing.completion(&mut flow, now, &Command { kind, offset, bytes: load.bytes });
        Reverse((done, now, is_read))
    };
    // Time 0 is long before: a drive has been idle.
    let begin = 1_000_000_000;
    in_flight.extend((0..load.depth).map(|_| submit(begin)));
    let skipped = commands / 4 + filling(model, load);
    let (mut started, mut ended) = (begin, begin);
    let mut times = [Vec::new(), Vec::new()];
    for count in 0..commands + skipped {
        let Some(Reverse((now, submitted, is_read))) = in_flight.pop() else { break };
        if count < skipped {
            started = now;
        } else {
            times[usize::from(!is_read)].push(now - submitted);
        }
        ended = now;
        in_flight.push(submit(now));
    }
    let [read_ns, write_ns] = times.map(median);
    Simulated { iops: f64::from(commands) * 1e9 / (ended - started).max(1) as f64, read_ns, write_ns }
}

/// Returns a number of commands that fill the buffer of writes, also if little more comes than the drive completes.
fn filling(model: &DriveModel, load: &Load) -> u32 {
    const TIMES: u32 = 8;
    let writes = (model.buffer.bytes / load.bytes.max(1)).min(MOST_BUFFERED) as u32;
    match 100u32.saturating_sub(load.read_percent) {
        0 => 0,
        percent => TIMES * writes * 100 / percent,
    }
}

fn median(mut times: Vec<u64>) -> Option<u64> {
    let middle = times.len() / 2;
    (!times.is_empty()).then(|| *times.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::super::parameters::tests::slow;
    use super::super::reader::{ModelSource, SHIPPED};
    use super::*;

    const SPAN: u64 = 64 << 30;
    const COMMANDS: u32 = 60_000;

    fn models() -> Vec<DriveModel> {
        let shipped = SHIPPED.map(|(name, _)| ModelSource::Shipped(name).load().unwrap());
        shipped.into_iter().chain([slow()]).collect()
    }

    fn load(read_percent: u32, bytes: u64, depth: u32) -> Load {
        Load { read_percent, bytes, depth, span: SPAN }
    }

    fn check(what: &str, found: f64, stated: f64, tolerance: f64) {
        let error = found / stated - 1.0;
        assert!(error.abs() < tolerance, "{what}: {found:.0} instead of {stated:.0} ({:.2} %)", 100.0 * error);
    }

    #[test]
    fn a_saturated_drive_has_the_stated_rates() {
        for model in models() {
            let largest = u64::from(model.queues.transfer_bytes);
            for (percent, direction) in [(100, &model.read), (0, &model.write)] {
                let stated = direction.iops.iter().map(|(bytes, _)| *bytes).chain([65536, largest]);
                for bytes in stated {
                    let commands = if bytes <= 65536 { COMMANDS } else { COMMANDS / 6 };
                    let found = simulate(&model, &load(percent, bytes, 1024), commands, 3).iops;
                    let stated = 1e9 / direction.interval(bytes);
                    check(&format!("{model}, {percent} % reads of {bytes} bytes"), found, stated, 0.01);
                }
            }
            let percent = model.mixed.read_percent as u32;
            let found = simulate(&model, &load(percent, 4096, 1024), 4 * COMMANDS, 3).iops;
            check(&format!("{model}, mixed"), found, model.mixed.iops, 0.01);
        }
    }

    #[test]
    fn one_command_at_a_time_has_the_stated_times() {
        for model in models() {
            for (percent, direction) in [(100, &model.read), (0, &model.write)] {
                let run = |bytes| simulate(&model, &load(percent, bytes, 1), COMMANDS, 5);
                let time = |found: Simulated| found.read_ns.or(found.write_ns).unwrap() as f64;
                check(&format!("{model}, {percent} % reads"), time(run(4096)), direction.latency.p50, 0.01);
                let longer = direction.latency.p50 + (65536.0 - 4096.0) / model.link;
                let longer = longer.max(direction.interval(65536));
                check(&format!("{model}, {percent} % reads of 64 KiB"), time(run(65536)), longer, 0.02);
            }
        }
    }

    #[test]
    fn the_990_pro_has_its_rates_at_depth_1() {
        let model = ModelSource::Shipped("990-pro").load().unwrap();
        check("reads", simulate(&model, &load(100, 4096, 1), COMMANDS, 1).iops, 22e3, 0.02);
        check("writes", simulate(&model, &load(0, 4096, 1), COMMANDS, 1).iops, 80e3, 0.02);
    }

    #[test]
    fn a_deeper_queue_is_not_slower() {
        for model in models() {
            for percent in [0, 70, 100] {
                let rates =
                    [1, 4, 16, 64, 256].map(|depth| simulate(&model, &load(percent, 4096, depth), 20_000, 9).iops);
                assert!(rates.windows(2).all(|pair| pair[1] > 0.98 * pair[0]), "{model} {percent}: {rates:.0?}");
            }
        }
    }

    #[test]
    fn units_limit_what_is_in_flight() {
        let mut model = slow();
        // All commands on one stripe, and so on one unit.
        let one = Load { span: 4096, ..load(100, 4096, 64) };
        check("one unit", simulate(&model, &one, 10_000, 1).iops, 1e9 / model.units.read_ns, 0.01);
        model.units.count = 1;
        check(
            "a drive of one unit",
            simulate(&model, &load(100, 4096, 64), 10_000, 1).iops,
            1e9 / model.units.read_ns,
            0.01,
        );
    }

    #[test]
    fn the_result_depends_on_the_arguments_alone() {
        let run = |seed| simulate(&slow(), &load(70, 4096, 32), 20_000, seed);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
