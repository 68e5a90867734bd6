//! A job while its lines are read: keeps the values of options, and makes the job of them.

use super::access::{Access, PerDirection, for_read_and_write};
use super::blocks::{self, BlockOptions};
use super::distribution::Distribution;
use super::engines;
use super::error::{Fault, JobFileError, Note, Place};
use super::given::{Given, LARGEST, Noun};
use super::job::{FioJob, Verify, in_directory};
use super::lines::Section;
use super::number::{Amount, KbBase};
use super::steady_state::{Criterion, SteadyState};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Most commands in flight, as many as `--iodepth` takes.
const MOST_IN_FLIGHT: u64 = 1 << 20;
/// Most jobs, as in fio.
pub const MOST_JOBS: u64 = 4096;
/// Most percentiles, as in fio.
const MOST_PERCENTILES: usize = 20;
/// Percentiles of fio.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];
/// Seed of fio.
const SEED: u64 = 0x89;
/// Methods of `verify` that check something.
const METHODS: [&str; 17] = [
    "md5",
    "crc64",
    "crc32",
    "crc32c-intel",
    "crc32c",
    "crc16",
    "crc7",
    "sha1",
    "sha256",
    "sha512",
    "sha3-224",
    "sha3-256",
    "sha3-384",
    "sha3-512",
    "xxhash",
    "meta",
    "pattern",
];

/// Values of the options so far.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Base of the numbers of the next lines.
    pub base: KbBase,
    /// I/O engine.
    pub engine: String,
    /// True if threads submit for the I/O engine, so that a synchronous one has several commands in flight.
    pub offloads: bool,
    name: Option<String>,
    description: Option<String>,
    rw: Access,
    blocks: PerDirection<BlockOptions>,
    size: Option<Amount>,
    filesize: Option<u64>,
    files: Vec<PathBuf>,
    directories: Vec<String>,
    offset: Amount,
    io_size: Option<Amount>,
    number_ios: Option<u64>,
    loops: u64,
    iodepth: u32,
    numjobs: u32,
    runtime: Option<Duration>,
    time_based: bool,
    ramp_time: Duration,
    startdelay: Duration,
    read_percent: u32,
    rate: PerDirection<Option<u64>>,
    rate_iops: PerDirection<Option<u64>>,
    distribution: Distribution,
    norandommap: bool,
    randseed: Option<u64>,
    randrepeat: bool,
    /// Method of `verify`; `None` if the option is not given.
    verify: Option<String>,
    do_verify: bool,
    group_reporting: bool,
    stonewall: bool,
    new_group: bool,
    percentiles: Vec<f64>,
    criterion: Option<Criterion>,
    steady_duration: Duration,
    steady_ramp_time: Duration,
    /// Options with a line of their own: the number of lines before it, and the line.
    given: BTreeMap<&'static str, (usize, Place)>,
    lines: usize,
    notes: Vec<(&'static str, Note)>,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            base: KbBase::default(),
            engine: engines::DEFAULT.to_owned(),
            offloads: false,
            name: None,
            description: None,
            rw: Access::default(),
            blocks: PerDirection::default(),
            size: None,
            filesize: None,
            files: Vec::new(),
            directories: Vec::new(),
            offset: Amount::Bytes(0),
            io_size: None,
            number_ios: None,
            loops: 1,
            iodepth: 1,
            numjobs: 1,
            runtime: None,
            time_based: false,
            ramp_time: Duration::ZERO,
            startdelay: Duration::ZERO,
            read_percent: 50,
            rate: PerDirection::default(),
            rate_iops: PerDirection::default(),
            distribution: Distribution::default(),
            norandommap: false,
            randseed: None,
            randrepeat: true,
            verify: None,
            do_verify: true,
            group_reporting: false,
            stonewall: false,
            new_group: false,
            percentiles: PERCENTILES.to_vec(),
            criterion: None,
            steady_duration: Duration::ZERO,
            steady_ramp_time: Duration::ZERO,
            given: BTreeMap::new(),
            lines: 0,
            notes: Vec::new(),
        }
    }
}

/// Returns `None` for an amount of nothing, which fio takes for an option that is not given.
fn something(amount: Amount) -> Option<Amount> {
    (!matches!(amount, Amount::Bytes(0) | Amount::Percent(0))).then_some(amount)
}

/// Returns the names of a list, which colons separate. `\:` is a colon of a name.
fn names(list: &str) -> Vec<String> {
    let (mut names, mut name, mut letters) = (Vec::new(), String::new(), list.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if letters.peek() == Some(&':') => name.extend(letters.next()),
            ':' => names.push(std::mem::take(&mut name)),
            letter => name.push(letter),
        }
    }
    names.push(name);
    names.retain(|name| !name.is_empty());
    names
}

/// Returns the numbers for reads and writes of a limit. 0 is none.
fn limits(
    given: &mut Given<'_>,
    noun: Noun,
    most: u64,
    old: PerDirection<Option<u64>>,
) -> Result<PerDirection<Option<u64>>, Fault> {
    let (read, write) = for_read_and_write(given.directions(noun, 0..=most)?);
    let limit = |new: Option<u64>, old| new.map_or(old, |new| (new > 0).then_some(new));
    Ok(PerDirection { read: limit(read, old.read), write: limit(write, old.write) })
}

impl Draft {
    /// Returns the beginning of a job after global options. Their `name` is not that of the job.
    pub fn of_job(&self) -> Self {
        Self { name: None, ..self.clone() }
    }

    /// Applies an option, and keeps its notes instead of those of an earlier line with the option.
    ///
    /// # Errors
    /// The value is refused.
    pub fn apply(&mut self, mut given: Given<'_>, place: &Place) -> Result<(), Fault> {
        let key = given.key;
        self.set(&mut given)?;
        self.notes.retain(|(of, _)| *of != key);
        let notes = given.into_notes().into_iter().map(|text| (key, Note { place: place.clone(), text }));
        self.notes.extend(notes);
        self.given.insert(key, (self.lines, place.clone()));
        self.lines += 1;
        Ok(())
    }

    fn set(&mut self, given: &mut Given<'_>) -> Result<(), Fault> {
        let u32_of = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        match given.key {
            "name" => self.name = Some(given.text()?.to_owned()),
            "description" => self.description = Some(given.text()?.to_owned()),
            "rw" => self.rw = Access::read(given)?,
            "bs" => blocks::read_bs(&mut self.blocks, given)?,
            "bsrange" => blocks::read_range(&mut self.blocks, given)?,
            "bssplit" => blocks::read_split(&mut self.blocks, given)?,
            "size" => self.size = something(given.amount()?),
            "filesize" => self.filesize = Some(given.number(Noun::Bytes, 1..=LARGEST)?),
            "filename" => self.add_files(given)?,
            "directory" => self.directories = names(given.text()?),
            "offset" => self.offset = given.amount()?,
            "io_size" => self.io_size = something(given.amount()?),
            "number_ios" => self.number_ios = Some(given.number(Noun::Count, 0..=LARGEST)?).filter(|n| *n > 0),
            "loops" => self.loops = given.number(Noun::Count, 0..=u64::from(u32::MAX))?.max(1),
            "iodepth" => self.iodepth = u32_of(given.number(Noun::Count, 1..=MOST_IN_FLIGHT)?),
            "numjobs" => self.numjobs = u32_of(given.number(Noun::Count, 1..=MOST_JOBS)?),
            "runtime" => self.runtime = Some(given.time()?).filter(|time| !time.is_zero()),
            "time_based" => self.time_based = given.flag()?,
            "ramp_time" => self.ramp_time = given.time()?,
            "startdelay" => self.startdelay = given.time()?,
            "rwmixread" => self.read_percent = u32_of(given.number(Noun::Count, 0..=100)?),
            "rwmixwrite" => self.read_percent = 100 - u32_of(given.number(Noun::Count, 0..=100)?),
            "rate" => self.rate = limits(given, Noun::Bytes, LARGEST, self.rate)?,
            "rate_iops" => self.rate_iops = limits(given, Noun::Count, u64::from(u32::MAX), self.rate_iops)?,
            "random_distribution" => self.distribution = Distribution::read(given)?,
            "norandommap" => self.norandommap = given.flag()?,
            "randseed" => self.randseed = Some(given.number(Noun::Count, 0..=LARGEST)?),
            "randrepeat" => self.randrepeat = given.boolean()?,
            "verify" => self.verify = Some(method(given)?),
            "do_verify" => self.do_verify = given.boolean()?,
            "verify_pattern" => self.verify_pattern(given)?,
            "group_reporting" => self.group_reporting = given.flag()?,
            "stonewall" => self.stonewall = given.flag()?,
            "new_group" => self.new_group = given.flag()?,
            "percentile_list" => self.percentiles = percentiles(given)?,
            "steadystate" => self.criterion = Some(Criterion::read(given)?),
            "steadystate_duration" => self.steady_duration = steady_duration(given)?,
            "steadystate_ramp_time" => self.steady_ramp_time = given.time()?,
            "kb_base" => self.base = kb_base(given)?,
            _ => return Err(given.fault("no option of a job", "leave it out")),
        }
        Ok(())
    }

    /// Adds the files of a `filename`. fio adds them to those of earlier lines, too.
    fn add_files(&mut self, given: &mut Given<'_>) -> Result<(), Fault> {
        // fio looks for comments again, behind the variables.
        let list = given.text()?.split([';', '#']).next().unwrap_or_default().trim();
        let names = names(list);
        if names.is_empty() {
            return Err(given.fault("no name", "write the name of a file or of a device"));
        }
        if !self.files.is_empty() {
            let before = self.files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
            given.note(format_args!(
                "is added to the files of earlier lines, so that the job has {before}, too; name files in one line alone"
            ));
        }
        self.files.extend(names.iter().map(|name| in_directory(&self.directories, 0, name)));
        Ok(())
    }

    fn verify_pattern(&mut self, given: &mut Given<'_>) -> Result<(), Fault> {
        given.text()?;
        if self.verify.is_none() {
            self.verify = Some("pattern".to_owned());
        }
        given.note("switches verification on; blocks have the pattern of bench nvme instead");
        Ok(())
    }

    /// Returns the line of an option, or that of the section.
    fn place<'a>(&'a self, key: &str, section: &'a Section) -> &'a Place {
        self.given.get(key).map_or(&section.place, |(_, place)| place)
    }

    /// Returns true if the line of an option is behind those of the others.
    fn is_behind(&self, key: &str, others: &[&str]) -> bool {
        let line = |key: &str| self.given.get(key).map(|(line, _)| *line);
        line(key).is_some_and(|own| others.iter().filter_map(|other| line(other)).all(|other| other < own))
    }

    /// Returns the job of a section. `group` is that of the job before it, and `None` for the first one.
    ///
    /// # Errors
    /// Two options contradict each other.
    pub fn job(mut self, section: &Section, group: Option<u32>) -> Result<FioJob, JobFileError> {
        self.check(section)?;
        self.note_effects(section);
        let read_write = PerDirection { read: self.blocks.read.blocks(), write: self.blocks.write.blocks() };
        let begins_group = self.stonewall || self.new_group;
        let verify = self.verify.filter(|method| METHODS.contains(&method.as_str()));
        let steady_state = (!self.steady_duration.is_zero()).then(|| SteadyState {
            criterion: self.criterion.unwrap_or_default(),
            duration: self.steady_duration,
            ramp_time: self.steady_ramp_time,
        });
        Ok(FioJob {
            name: self.name.unwrap_or_else(|| section.name.clone()),
            section: section.name.clone(),
            place: section.place.clone(),
            description: self.description,
            rw: self.rw,
            blocks: read_write,
            size: self.size,
            filesize: self.filesize,
            files: self.files,
            directories: self.directories,
            offset: self.offset,
            io_size: self.io_size,
            number_ios: self.number_ios,
            loops: self.loops,
            iodepth: self.iodepth,
            numjobs: self.numjobs,
            runtime: self.runtime,
            time_based: self.time_based,
            ramp_time: self.ramp_time,
            startdelay: self.startdelay,
            read_percent: self.read_percent,
            rate: self.rate,
            rate_iops: self.rate_iops,
            norandommap: self.norandommap || self.distribution != Distribution::Uniform,
            distribution: self.distribution,
            seed: self.randseed.or(self.randrepeat.then_some(SEED)),
            verify: verify.map(|method| Verify { method, after_writes: self.do_verify }),
            group_reporting: self.group_reporting,
            group: group.map_or(0, |group| group + u32::from(begins_group)),
            stonewall: self.stonewall,
            percentiles: self.percentiles,
            steady_state,
            notes: self.notes.into_iter().map(|(_, note)| note).collect(),
        })
    }

    /// Refuses what fio refuses when it has all options of a job.
    fn check(&self, section: &Section) -> Result<(), JobFileError> {
        let blocks = PerDirection { read: self.blocks.read.blocks(), write: self.blocks.write.blocks() };
        let least = blocks.of(&self.rw).map(blocks::Blocks::least).min().unwrap_or(0);
        if let Some(Amount::Bytes(size)) = self.size
            && size < least
        {
            let text = format!("size={size}: less than a block of {least} bytes; write a larger size, or a smaller bs");
            return Err(Fault(text).at(self.place("size", section)));
        }
        let is_limited = |rate: &PerDirection<Option<u64>>| rate.read.is_some() || rate.write.is_some();
        if is_limited(&self.rate) && is_limited(&self.rate_iops) {
            let text = "rate and rate_iops: fio takes one of them; leave the other out";
            return Err(Fault(text.to_owned()).at(self.place("rate_iops", section)));
        }
        Ok(())
    }

    /// Adds notes about options without effect.
    fn note_effects(&mut self, section: &Section) {
        let mut notes = Vec::new();
        let mut note = |key, text: String| notes.push((key, Note { place: self.place(key, section).clone(), text }));
        let (reads, writes) = (self.rw.reads(), self.rw.writes());
        let overridden = self.blocks.of(&self.rw).any(BlockOptions::overrides_bs);
        if overridden && self.is_behind("bs", &["bsrange", "bssplit"]) {
            let text = "bs has no effect, because an earlier bsrange or bssplit has precedence; leave one out";
            note("bs", text.to_owned());
        }
        if self.time_based && self.runtime.is_none() {
            note("time_based", "time_based has no effect without runtime; fio makes one pass".to_owned());
        }
        if self.iodepth > 1 && engines::is_synchronous(&self.engine) && !self.offloads {
            let text = format!(
                "ioengine={} keeps 1 command in flight in fio, whatever iodepth says; kernels keep {}",
                self.engine, self.iodepth
            );
            note("iodepth", text);
        }
        if self.criterion.is_some() && self.steady_duration.is_zero() {
            note("steadystate", "steadystate has no effect without steadystate_duration".to_owned());
        }
        let verifies = self.verify.as_deref().is_some_and(|method| METHODS.contains(&method)) && self.do_verify;
        if verifies && writes && self.numjobs > 1 && !self.files.is_empty() {
            let text = format!("{} clones write the same blocks, which verify may then find wrong", self.numjobs);
            note("numjobs", text);
        }
        if verifies && writes && !reads && self.time_based && self.runtime.is_some() {
            let text = "verify never checks the written blocks in fio, because the writes use all of runtime";
            note("verify", text.to_owned());
        }
        self.time_based &= self.runtime.is_some();
        self.notes.extend(notes);
    }
}

/// Returns the method of `verify`.
fn method(given: &mut Given<'_>) -> Result<String, Fault> {
    match given.text()? {
        "0" => Ok("0".to_owned()),
        "null" => {
            given.note("pretends to verify in fio; no block is checked");
            Ok("null".to_owned())
        }
        name if METHODS.contains(&name) => Ok(name.to_owned()),
        name => Err(given.unknown(name, &METHODS)),
    }
}

fn percentiles(given: &mut Given<'_>) -> Result<Vec<f64>, Fault> {
    let mut percentiles = Vec::new();
    for part in given.text()?.split(':') {
        match given.real_of(part, 0.0..=100.0)? {
            0.0 => return Err(given.fault("a percentile of 0, which ends the list of fio", "write numbers above 0")),
            percentile => percentiles.push(percentile),
        }
    }
    if percentiles.len() > MOST_PERCENTILES {
        let fact = format!("{} percentiles", percentiles.len());
        return Err(given.fault(fact, format_args!("write at most {MOST_PERCENTILES}")));
    }
    percentiles.sort_by(f64::total_cmp);
    Ok(percentiles)
}

fn steady_duration(given: &mut Given<'_>) -> Result<Duration, Fault> {
    match given.time()? {
        time if time.is_zero() => Ok(time),
        time if time.as_secs() == 0 => {
            Err(given.fault("less than a second, and fio counts seconds", "write at least 1s"))
        }
        time => Ok(Duration::from_secs(time.as_secs())),
    }
}

fn kb_base(given: &Given<'_>) -> Result<KbBase, Fault> {
    match given.text()? {
        "1024" => Ok(KbBase::Binary),
        "1000" => Ok(KbBase::Decimal),
        other => Err(given.unknown(other, &["1024", "1000"])),
    }
}
