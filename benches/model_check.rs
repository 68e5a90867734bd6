//! Compares the software controller with the model of a drive whose timing it has: rates and median times, by size, mix and depth.
//!
//! ```text
//! cargo bench -p warpbell-benches --profile dist --bench model_check -- optane-p5800x threads=4 hosts=4 seconds=1
//! ```
//!
//! Each row has a figure of the model, which is that of a simulated clock, and the same figure of commands that run. A host thread
//! keeps its part of the commands in flight on a queue pair of its own, and only polls. Threads of the host and of the controller
//! need a processor each: with fewer, the figures are those of the machine. The program fails if a rate differs by more than 5 %, or
//! the median at depth 1 by more than 10 %.

use nvme_driver::{Driver, PAGE, Pair, command};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use warpbell::memory::DmaRegion;
use warpbell::soft::model::{DriveModel, Load, ModelSource, SHIPPED, Simulated, simulate};
use warpbell::soft::nvme::{SoftConfig, SoftController};
use warpbell::wire::nvme::{SqEntry, admin, io, status};

const SIZES: [u64; 3] = [512, 4096, 65536];
const MIXES: [u32; 3] = [100, 0, 70];
const DEPTHS: [u32; 6] = [1, 4, 16, 64, 256, 1024];
const MEMORY: u64 = 64 << 20;
const SIMULATED: u32 = 100_000;
const RATE_LIMIT: f64 = 0.05;
const MEDIAN_LIMIT: f64 = 0.10;
/// Part of the time before the measurement: it fills the buffer of writes.
const WARM_UP: f64 = 0.25;

struct Settings {
    models: Vec<ModelSource>,
    threads: usize,
    hosts: usize,
    seconds: f64,
    /// Rows that are wanted: sizes, percentages of reads, depths.
    bytes: Vec<u64>,
    reads: Vec<u32>,
    depths: Vec<u32>,
}

/// Reads `MODEL`, `threads=N`, `hosts=N` and `seconds=S`; `bytes=N`, `reads=PERCENT` and `depth=N` for single rows.
fn settings() -> Result<Settings, String> {
    let half = (warpbell::processors::count() / 2).max(1);
    let (bytes, reads, depths) = (SIZES.to_vec(), MIXES.to_vec(), DEPTHS.to_vec());
    let mut all = Settings { models: Vec::new(), threads: half, hosts: half, seconds: 0.5, bytes, reads, depths };
    for argument in std::env::args().skip(1).filter(|a| a != "--bench") {
        let number = |text: &str| text.parse::<f64>().map_err(|_| format!("`{argument}`: give a number"));
        match argument.split_once('=') {
            Some(("threads", n)) => all.threads = number(n)? as usize,
            Some(("hosts", n)) => all.hosts = (number(n)? as usize).max(1),
            Some(("seconds", s)) => all.seconds = number(s)?,
            Some(("bytes", n)) => all.bytes = vec![(number(n)? as u64).next_multiple_of(512)],
            Some(("reads", n)) => all.reads = vec![number(n)? as u32],
            Some(("depth", n)) => all.depths = vec![(number(n)? as u32).clamp(1, 1 << 15)],
            _ => all.models.push(ModelSource::named(&argument).ok_or_else(|| ModelSource::unknown(&argument))?),
        }
    }
    if all.models.is_empty() {
        all.models = SHIPPED.iter().filter_map(|(name, _)| ModelSource::named(name)).collect();
    }
    Ok(all)
}

/// Commands that a host thread keeps in flight, and their times.
struct Host {
    pair: Pair,
    /// A command of the load without opcode, identifier and block, and its memory. All commands have the same: nobody looks at the
    /// data.
    template: SqEntry,
    _memory: [DmaRegion; 2],
    load: Load,
    depth: u16,
    random: u64,
    /// Time at which each command was submitted, and if it is a read.
    submitted: Vec<(Instant, bool)>,
    /// Times of reads and of writes.
    times: [Vec<u64>; 2],
    count: u64,
}

impl Host {
    fn new(driver: &mut Driver, id: u16, load: Load, depth: u16) -> Self {
        let mut pair = driver.pair(id, u32::from(depth) + 1);
        // As kernels do.
        pair.by_memory = true;
        let bytes = load.bytes as usize;
        let (data, lists) = (driver.memory(bytes.next_multiple_of(PAGE)), driver.memory(PAGE));
        let template = command(0, 0, (bytes / 512) as u32, bytes, &data, Some((&lists, 0)));
        let submitted = vec![(Instant::now(), true); usize::from(depth)];
        let random = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self {
            pair,
            template,
            _memory: [data, lists],
            load,
            depth,
            random,
            submitted,
            times: [Vec::new(), Vec::new()],
            count: 0,
        }
    }

    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Writes at each of these blocks.
    fn write_all(&mut self, driver: &Driver, blocks: &mut dyn Iterator<Item = u64>) {
        let (mut free, mut in_flight): (Vec<u16>, u16) = ((0..self.depth).collect(), 0);
        loop {
            while let Some(cid) = free.pop() {
                let Some(slba) = blocks.next() else { break };
                self.place_at(cid, io::WRITE, slba);
                in_flight += 1;
            }
            if in_flight == 0 {
                return;
            }
            self.pair.ring(driver);
            let c = self.pair.wait(driver);
            assert_eq!(c.status(), status::SUCCESS);
            free.push(c.cid());
            in_flight -= 1;
        }
    }

    /// Places a command.
    fn place(&mut self, cid: u16, now: Instant) {
        let random = self.next();
        let is_read = (random >> 40) % 100 < u64::from(self.load.read_percent);
        let slba = random % (MEMORY / self.load.bytes) * (self.load.bytes / 512);
        self.submitted[usize::from(cid)] = (now, is_read);
        self.place_at(cid, if is_read { io::READ } else { io::WRITE }, slba);
    }

    fn place_at(&mut self, cid: u16, opcode: u8, slba: u64) {
        let mut e = self.template;
        e.set_range(slba, (self.load.bytes / 512) as u32);
        e.cdw0 |= u32::from(cid) << 16 | u32::from(opcode);
        self.pair.place(e);
    }

    /// Keeps commands in flight until `end`, and keeps the times of those that complete from `begin` on.
    fn run(&mut self, driver: &Driver, begin: Instant, end: Instant) {
        let now = Instant::now();
        (0..self.depth).for_each(|cid| self.place(cid, now));
        self.pair.ring(driver);
        let (mut in_flight, mut is_over) = (self.depth, false);
        while in_flight > 0 {
            let Some(mut c) = self.pair.poll(driver) else {
                std::hint::spin_loop();
                continue;
            };
            let now = Instant::now();
            let measures = now >= begin && !is_over;
            is_over = now >= end;
            loop {
                assert_eq!(c.status(), status::SUCCESS);
                let (submitted, is_read) = self.submitted[usize::from(c.cid())];
                if measures {
                    self.count += 1;
                    self.times[usize::from(!is_read)].push((now - submitted).as_nanos() as u64);
                }
                match is_over {
                    true => in_flight -= 1,
                    false => self.place(c.cid(), now),
                }
                match self.pair.poll(driver) {
                    Some(next) => c = next,
                    None => break,
                }
            }
            if !is_over {
                self.pair.ring(driver);
            }
        }
    }
}

/// Commands of the host that writes all memory first: the system provides memory when it is written for the first time.
const FILL: Load = Load { read_percent: 0, bytes: 65536, depth: 16, span: MEMORY };
/// Time between two rows, in which the drive empties its buffer.
const REST: Duration = Duration::from_millis(100);

/// A running controller with the timing of a model.
struct Drive {
    driver: Driver,
    _controller: SoftController,
}

impl Drive {
    fn start(settings: &Settings, source: &ModelSource) -> Result<Self, String> {
        let config = SoftConfig::memory(MEMORY).threads(settings.threads).model(source.clone());
        let controller = SoftController::start(config).map_err(|e| e.to_string())?;
        let mut driver = Driver::new(&controller);
        driver.enable();
        let mut host = Host::new(&mut driver, 1, FILL, FILL.depth as u16);
        let mut blocks = (0..MEMORY / 512).step_by(FILL.bytes as usize / 512);
        host.write_all(&driver, &mut blocks);
        let mut drive = Self { driver, _controller: controller };
        drive.delete(1)?;
        Ok(drive)
    }

    /// Deletes the queues up to this identifier, whose memory is still there.
    fn delete(&mut self, last: u16) -> Result<(), String> {
        for id in 1..=last {
            for opcode in [admin::DELETE_SQ, admin::DELETE_CQ] {
                let command = self.driver.delete(opcode, id);
                let status = self.driver.admin_status(command);
                if !status.is_success() {
                    return Err(format!("queue {id} is not deleted: {status}"));
                }
            }
        }
        Ok(())
    }

    /// Returns the figures of a load.
    fn measure(&mut self, settings: &Settings, load: Load) -> Result<Simulated, String> {
        std::thread::sleep(REST);
        let hosts = (settings.hosts as u32).min(load.depth);
        // The first queues have a command more if the depth is no multiple.
        let depth = |i: u32| (load.depth / hosts + u32::from(i < load.depth % hosts)) as u16;
        let mut all: Vec<Host> =
            (0..hosts).map(|i| Host::new(&mut self.driver, i as u16 + 1, load, depth(i))).collect();
        let begin = Instant::now() + Duration::from_secs_f64(WARM_UP * settings.seconds);
        let end = begin + Duration::from_secs_f64(settings.seconds);
        let driver = &self.driver;
        std::thread::scope(|scope| {
            for host in &mut all {
                scope.spawn(move || host.run(driver, begin, end));
            }
        });
        self.delete(hosts as u16)?;
        let iops = all.iter().map(|host| host.count).sum::<u64>() as f64 / settings.seconds;
        let median = |which: usize| {
            let mut times: Vec<u64> = all.iter().flat_map(|host| host.times[which].iter().copied()).collect();
            let middle = times.len() / 2;
            (!times.is_empty()).then(|| *times.select_nth_unstable(middle).1)
        };
        Ok(Simulated { iops, read_ns: median(0), write_ns: median(1) })
    }
}

/// Measures one load, prints its row, and returns true if it is within the limits.
fn row(settings: &Settings, drive: &mut Drive, model: &DriveModel, load: Load) -> Result<bool, String> {
    let expected = simulate(model, &load, SIMULATED.max(200 * load.depth), 1);
    let found = drive.measure(settings, load)?;
    let median = |s: &Simulated| s.read_ns.or(s.write_ns).unwrap_or(0) as f64;
    let error = |found: f64, expected: f64| found / expected - 1.0;
    let (rate, time) = (error(found.iops, expected.iops), error(median(&found), median(&expected)));
    let holds = rate.abs() <= RATE_LIMIT && (load.depth > 1 || time.abs() <= MEDIAN_LIMIT);
    println!(
        "{:>5} {:>5} % {:>5}  {:>10.0} {:>10.0} {:>7.2} %  {:>9.2} {:>9.2} {:>7.2} %{}",
        load.bytes,
        load.read_percent,
        load.depth,
        expected.iops,
        found.iops,
        100.0 * rate,
        median(&expected) / 1e3,
        median(&found) / 1e3,
        100.0 * time,
        if holds { "" } else { "  OUTSIDE" }
    );
    Ok(holds)
}

/// Checks all rows of a model. A model that is refused, or whose file is invalid, is an error.
fn rows(settings: &Settings, source: &ModelSource) -> Result<bool, String> {
    let model = source.load().map_err(|e| e.to_string())?;
    println!("# {model}: {}", model.drive);
    println!("# {} service threads, {} hosts, {} s a row", settings.threads, settings.hosts, settings.seconds);
    println!("bytes   reads depth  model IOPS   achieved     error  model p50  achieved     error");
    let mut drive = Drive::start(settings, source)?;
    let mut holds = true;
    for &bytes in &settings.bytes {
        for &read_percent in &settings.reads {
            for &depth in &settings.depths {
                holds &= row(settings, &mut drive, &model, Load { read_percent, bytes, depth, span: MEMORY })?;
            }
        }
    }
    Ok(holds)
}

fn main() -> ExitCode {
    let settings = match settings() {
        Ok(settings) => settings,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::FAILURE;
        }
    };
    let mut holds = true;
    for source in &settings.models {
        holds &= rows(&settings, source).unwrap_or_else(|reason| {
            println!("# {reason}");
            false
        });
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
