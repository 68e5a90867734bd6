//! Jobs of a job file, with the values that fio 3.33 would run them with.

use super::access::{Access, PerDirection};
use super::blocks::Blocks;
use super::distribution::Distribution;
use super::error::{Note, Place};
use super::number::Amount;
use super::steady_state::SteadyState;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One section of a job file, with the global options before it.
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// Name in reports: `name`, or that of the section.
    pub name: String,
    /// Name of the section, which names the files of a job without `filename`.
    pub section: String,
    /// Line of the section.
    pub place: Place,
    /// Description in words.
    pub description: Option<String>,
    /// Directions and order of the accesses.
    pub rw: Access,
    /// Sizes of the accesses.
    pub blocks: PerDirection<Blocks>,
    /// Length of the region that is accessed, of all files together; `None` for all.
    pub size: Option<Amount>,
    /// Length of each file; `None` for the one that the file has.
    pub filesize: Option<u64>,
    /// Files of `filename`, in `directory`. Clones share them.
    pub files: Vec<PathBuf>,
    /// Folders for the files of a job without `filename`, one for each clone in turn.
    pub directories: Vec<String>,
    /// Start of the region.
    pub offset: Amount,
    /// Bytes to access in one loop; `None` for `size`.
    pub io_size: Option<Amount>,
    /// Most accesses of one loop.
    pub number_ios: Option<u64>,
    /// Number of loops, at least 1.
    pub loops: u64,
    /// Commands in flight of each clone.
    pub iodepth: u32,
    /// Number of clones, which run at the same time.
    pub numjobs: u32,
    /// Longest duration, or the duration if the job is `time_based`.
    pub runtime: Option<Duration>,
    /// True if the job begins again until `runtime` is over.
    pub time_based: bool,
    /// Time at the beginning that is not measured.
    pub ramp_time: Duration,
    /// Time between the start of the whole run and that of the job.
    pub startdelay: Duration,
    /// Percentage of reads in a job that reads and writes.
    pub read_percent: u32,
    /// Most bytes per second.
    pub rate: PerDirection<Option<u64>>,
    /// Most accesses per second.
    pub rate_iops: PerDirection<Option<u64>>,
    /// Distribution of random places.
    pub distribution: Distribution,
    /// True if random places may repeat before each block was accessed once. A distribution other than the uniform one
    /// implies it.
    pub norandommap: bool,
    /// Seed of the places; `None` for another one in each run.
    pub seed: Option<u64>,
    /// Verification of blocks.
    pub verify: Option<Verify>,
    /// True if the reports of the jobs of a group are one.
    pub group_reporting: bool,
    /// Number of the group, from 0. A group ends before a job with `stonewall` or `new_group`.
    pub group: u32,
    /// True if the job waits for all before it.
    pub stonewall: bool,
    /// Percentiles to report, ascending.
    pub percentiles: Vec<f64>,
    /// Steady state that ends the job.
    pub steady_state: Option<SteadyState>,
    /// Remarks about the values.
    pub notes: Vec<Note>,
}

/// Verification of a job's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verify {
    /// Method of fio, such as `md5`.
    pub method: String,
    /// True if blocks are read and checked after a job's writes.
    pub after_writes: bool,
}

impl FioJob {
    /// Returns true if the job reads.
    pub fn reads(&self) -> bool {
        self.rw.reads()
    }

    /// Returns true if the job writes. A job that does not write must leave its files as they are, unlike with fio,
    /// which replaces a file that is too short.
    pub fn writes(&self) -> bool {
        self.rw.writes()
    }

    /// Returns the files of a clone, which counts from 0. A job without `filename` has one: the device with the name of
    /// the section, or `SECTION.CLONE.0`.
    pub fn paths(&self, clone: u32) -> Vec<PathBuf> {
        if !self.files.is_empty() {
            return self.files.clone();
        }
        let is_device = Path::new(&self.section).symlink_metadata().is_ok_and(|file| !file.is_file());
        let name = if is_device { self.section.clone() } else { format!("{}.{clone}.0", self.section) };
        vec![in_directory(&self.directories, clone, &name)]
    }

    /// Returns the options that make this job, with values in bytes and seconds. In a section of a job file they make the
    /// same job again.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![("name", self.name.clone()), ("rw", self.rw.to_string())];
        let mut add = |key, value: Option<String>| all.extend(value.map(|value| (key, value)));
        add("description", self.description.clone());
        let PerDirection { read, write } = &self.blocks;
        match self.rw.reads() && self.rw.writes() && read != write {
            true if read.option() == write.option() => add(read.option(), Some(format!("{read},{write}"))),
            true => {
                add(read.option(), Some(format!("{read},")));
                add(write.option(), Some(format!(",{write}")));
            }
            false => {
                let blocks = if self.rw.reads() { read } else { write };
                add(blocks.option(), Some(blocks.to_string()));
            }
        }
        add("iodepth", Some(self.iodepth.to_string()));
        add("numjobs", Some(self.numjobs.to_string()));
        let has_default_file = self.files.is_empty() && !self.directories.is_empty();
        add("directory", has_default_file.then(|| list(&self.directories)));
        let names: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        add("filename", (!names.is_empty()).then(|| list(&names)));
        add("size", self.size.map(show));
        add("filesize", self.filesize.map(|bytes| bytes.to_string()));
        add("offset", (self.offset != Amount::Bytes(0)).then(|| show(self.offset)));
        add("io_size", self.io_size.map(show));
        add("number_ios", self.number_ios.map(|n| n.to_string()));
        add("loops", (self.loops > 1).then(|| self.loops.to_string()));
        add("runtime", self.runtime.map(seconds));
        add("time_based", self.time_based.then(|| "1".to_owned()));
        add("ramp_time", (!self.ramp_time.is_zero()).then(|| seconds(self.ramp_time)));
        add("startdelay", (!self.startdelay.is_zero()).then(|| seconds(self.startdelay)));
        add("rwmixread", (self.rw.reads() && self.rw.writes()).then(|| self.read_percent.to_string()));
        add("rate", limits(&self.rate));
        add("rate_iops", limits(&self.rate_iops));
        if self.rw.is_random() {
            add(
                "random_distribution",
                (self.distribution != Distribution::Uniform).then(|| self.distribution.to_string()),
            );
            add("norandommap", self.norandommap.then(|| "1".to_owned()));
            match self.seed {
                Some(seed) => add("randseed", Some(seed.to_string())),
                None => add("randrepeat", Some("0".to_owned())),
            }
        }
        if let Some(verify) = &self.verify {
            add("verify", Some(verify.method.clone()));
            add("do_verify", (!verify.after_writes).then(|| "0".to_owned()));
        }
        add("group_reporting", self.group_reporting.then(|| "1".to_owned()));
        add("stonewall", self.stonewall.then(|| "1".to_owned()));
        let percentiles: Vec<String> = self.percentiles.iter().map(f64::to_string).collect();
        add("percentile_list", Some(percentiles.join(":")));
        if let Some(steady) = &self.steady_state {
            add("steadystate", Some(steady.criterion.to_string()));
            add("steadystate_duration", Some(seconds(steady.duration)));
            add("steadystate_ramp_time", (!steady.ramp_time.is_zero()).then(|| seconds(steady.ramp_time)));
        }
        all
    }
}

/// Returns the path of a file in the folder of a clone, as fio joins them.
pub fn in_directory(directories: &[String], clone: u32, name: &str) -> PathBuf {
    match directories {
        [] => PathBuf::from(name),
        folders => PathBuf::from(format!("{}/{name}", folders[clone as usize % folders.len()])),
    }
}

/// Returns names as a list of fio.
fn list(names: &[String]) -> String {
    names.iter().map(|name| name.replace(':', "\\:")).collect::<Vec<_>>().join(":")
}

fn show(amount: Amount) -> String {
    match amount {
        Amount::Bytes(bytes) => bytes.to_string(),
        Amount::Percent(percent) => format!("{percent}%"),
    }
}

/// Returns a duration in seconds if they are whole, and in a smaller unit otherwise.
fn seconds(time: Duration) -> String {
    let micros = time.as_micros();
    match (micros % 1_000_000, micros % 1000) {
        (0, _) => format!("{}s", micros / 1_000_000),
        (_, 0) => format!("{}ms", micros / 1000),
        _ => format!("{micros}us"),
    }
}

/// Returns limits for reads and writes; `None` without any.
fn limits(rates: &PerDirection<Option<u64>>) -> Option<String> {
    let show = |rate: Option<u64>| rate.map_or_else(String::new, |rate| rate.to_string());
    match (rates.read, rates.write) {
        (None, None) => None,
        (read, write) if read == write => Some(show(read)),
        (read, write) => Some(format!("{},{}", show(read), show(write))),
    }
}

impl fmt::Display for FioJob {
    /// Prints the options in one line. Values with blanks are in quotes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |value: &str| match value.contains([' ', '\t', '"']) {
            true => format!("{value:?}"),
            false => value.to_owned(),
        };
        let options = self.options();
        let words = options.iter().map(|(key, value)| format!("{key}={}", quoted(value)));
        f.write_str(&words.collect::<Vec<_>>().join(" "))
    }
}
