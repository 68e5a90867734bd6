//! Commands that use devices, and their right results.

use super::Layout;
use super::plans::Plan;
use crate::program::{self, Ended};
use crate::random::Random;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time of a command without faults.
const FAULTLESS: Duration = Duration::from_secs(120);
const GRAPH: &str = "urand:9:12";
/// Algorithms with the options that make their results comparable.
const ALGORITHMS: [&[&str]; 9] = [
    &["sssp", "--source", "1"],
    &["bfs", "--source", "1"],
    &["cc"],
    &["pagerank"],
    &["tc"],
    &["lcc"],
    &["kcore"],
    &["cdlp"],
    &["bc", "--source", "1"],
];

/// Measurements that compare every byte that they move: rows gathered through a cache, objects stored and loaded by kernels, blocks written
/// and read.
const MEASUREMENTS: [&[&str]; 4] = [
    &["gather", "--rows", "2048", "--batch", "256", "--batches", "2", "--warmup", "1", "--cache", "20%"],
    &[
        "gather",
        "--rows",
        "1024",
        "--row-size",
        "4096",
        "--batch",
        "128",
        "--batches",
        "2",
        "--warmup",
        "1",
        "--indices",
        "zipf:1.1",
    ],
    &["kv", "--tokens", "64", "--layers", "2", "--kv-heads", "2", "--head-dim", "16"],
    &["nvme", "--size", "512k", "--io-size", "512k", "--runtime", "0", "--verify", "--rw", "randrw"],
];

/// Results of commands without faults, and images of stored volumes, made once.
pub struct Work {
    results: Mutex<HashMap<String, Vec<u8>>>,
    images: Mutex<HashMap<(usize, bool), Images>>,
}

/// Files of the devices of a volume.
type Images = Vec<Vec<u8>>;

/// A command, without its deadline.
pub struct Command {
    pub args: Vec<String>,
    expects: Expects,
    /// Devices of the stored volume, as options without faults.
    volume: Option<Vec<String>>,
    is_silent: bool,
}

/// Condition of a command that succeeds.
enum Expects {
    /// The file has this content.
    Result(PathBuf, Vec<u8>),
    /// Only that it is true what the command says, which the stored volume shows.
    Volume,
}

impl Work {
    pub fn new() -> Self {
        Self { results: Mutex::default(), images: Mutex::default() }
    }

    /// Returns a random command whose devices have the faults of a plan.
    ///
    /// # Errors
    /// What was wrong with a command without faults.
    pub fn command(&self, random: &mut Random, plan: &Plan, layout: Layout, folder: &Path) -> Result<Command, String> {
        let faulty = random.below(layout.devices() as u64) as usize;
        let out = folder.join("out");
        let is_stored = random.below(3) > 0;
        // The stored graph has no weights.
        let algorithm = random.of(if is_stored { &ALGORITHMS[1..] } else { &ALGORITHMS });
        let mut args: Vec<String> = Vec::new();
        let add = |args: &mut Vec<String>, words: &[&str]| args.extend(words.iter().map(|w| (*w).to_owned()));
        let page_checksums = random.once_in(2);
        let volume = if is_stored { Some(self.place(layout, folder)?) } else { None };
        let mut expects = Expects::Volume;
        let named = |random: &mut Random| random.of(&["g", "h"]);
        match (is_stored, random.below(12)) {
            (false, 0..=3) => {
                add(&mut args, &["bench"]);
                add(&mut args, random.of(&MEASUREMENTS));
                add(&mut args, &["--runs", "1"]);
            }
            (false, _) | (true, 0..=3) => {
                let input = if is_stored { "stored:g" } else { GRAPH };
                add(&mut args, &["graph", algorithm[0], input]);
                add(&mut args, &algorithm[1..]);
                add(&mut args, &["--out", name(&out)]);
                if !is_stored && page_checksums {
                    add(&mut args, &["--page-checksums"]);
                }
                if random.once_in(2) {
                    add(&mut args, &["--cache", "64k"]);
                }
                expects = Expects::Result(out, self.result(algorithm)?);
            }
            (true, 4) => add(&mut args, &["graph", "verify", "g"]),
            (true, 5) => add(&mut args, &["graph", "delete", named(random)]),
            (true, 6 | 7) => add(&mut args, &["graph", "import", "kron:7", "--name", "i"]),
            (true, 8) => {
                let rows = folder.join("rows.npy");
                fs::write(&rows, npy()).map_err(|e| e.to_string())?;
                add(&mut args, &["table", "import", name(&rows), "--name", "t"]);
            }
            (true, 9) => add(&mut args, &["table", "verify", "rows"]),
            (true, 10) => add(&mut args, &["volume", "verify"]),
            (true, _) => add(&mut args, &["volume", "verify", "--repair"]),
        }
        let plain = volume.clone().unwrap_or_else(|| vec!["soft:mem".to_owned(); layout.devices()]);
        let with_fault =
            |(i, spec): (usize, &String)| format!("{spec}{}", if i == faulty { plan.options() } else { "" });
        let options = on(&plain.iter().enumerate().map(with_fault).collect::<Vec<_>>(), layout);
        // `volume` takes devices without an option's name.
        let is_volume = args[0] == "volume";
        args.extend(options.into_iter().filter(|word| !is_volume || word != "--device"));
        Ok(Command { args, expects, volume, is_silent: plan.is_silent })
    }

    /// Returns the result of an algorithm without faults.
    fn result(&self, algorithm: &[&str]) -> Result<Vec<u8>, String> {
        let mut results = self.results.lock();
        if let Some(result) = results.get(algorithm[0]) {
            return Ok(result.clone());
        }
        let folder = program::folder_in_memory();
        let out = folder.path().join("out");
        let mut words = vec!["graph", algorithm[0], GRAPH, "--device", "soft:mem", "--out", name(&out)];
        words.extend(&algorithm[1..]);
        succeeds(words)?;
        let result = fs::read(&out).map_err(|e| e.to_string())?;
        results.insert(algorithm[0].to_owned(), result.clone());
        Ok(result)
    }

    /// Puts the files of a volume with graph `g`, graph `h` and table `rows` into a folder. Returns the devices.
    fn place(&self, layout: Layout, folder: &Path) -> Result<Vec<String>, String> {
        let files = |folder: &Path| (0..layout.devices()).map(|i| folder.join(format!("{i}.img"))).collect::<Vec<_>>();
        let key = (layout.devices(), matches!(layout, Layout::Copies(_)));
        let mut images = self.images.lock();
        let paths = files(folder);
        let image = match images.get(&key) {
            Some(image) => image,
            None => {
                let image = Self::make(layout, files)?;
                images.entry(key).or_insert(image)
            }
        };
        for (path, bytes) in paths.iter().zip(image) {
            fs::write(path, bytes).map_err(|e| e.to_string())?;
        }
        Ok(paths.iter().map(|p| format!("soft:{}", name(p))).collect())
    }

    /// Makes the files of a volume.
    fn make(layout: Layout, files: impl Fn(&Path) -> Vec<PathBuf>) -> Result<Images, String> {
        let made = program::folder_in_memory();
        let paths = files(made.path());
        let devices: Vec<String> = paths.iter().map(|p| format!("soft:{}", name(p))).collect();
        for path in &paths {
            fs::File::create(path).and_then(|f| f.set_len(1 << 20)).map_err(|e| e.to_string())?;
        }
        let rows = made.path().join("rows.npy");
        fs::write(&rows, npy()).map_err(|e| e.to_string())?;
        for words in [
            &["graph", "import", GRAPH, "--name", "g", "--weights", "none"][..],
            &["graph", "import", "kron:6", "--name", "h"],
            &["table", "import", name(&rows), "--name", "rows"],
        ] {
            let of_volume = on(&devices, layout);
            succeeds(words.iter().copied().chain(of_volume.iter().map(String::as_str)))?;
        }
        let read = paths.iter().map(fs::read).collect::<Result<Vec<_>, _>>();
        read.map_err(|e| e.to_string())
    }
}

/// Compares two results. Real numbers may differ in their last digits: threads add them in any order.
fn is_same(got: &[u8], expected: &[u8]) -> bool {
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (got, expected) = (words(got), words(expected));
    let is_near = |(a, b): (&String, &String)| {
        let real = |w: &str| w.contains(['.', 'e']).then(|| w.parse::<f64>().ok()).flatten();
        a == b || matches!((real(a), real(b)), (Some(a), Some(b)) if (a - b).abs() <= 1e-6 * a.abs().max(b.abs()))
    };
    got.len() == expected.len() && got.iter().zip(&expected).all(is_near)
}

/// Returns the options that name the devices of a volume.
fn on(devices: &[String], layout: Layout) -> Vec<String> {
    let mut args: Vec<String> = devices.iter().flat_map(|d| ["--device".to_owned(), d.clone()]).collect();
    if matches!(layout, Layout::Copies(_)) {
        args.push("--replicate".to_owned());
    }
    if layout.devices() > 1 {
        args.extend(["--stripe-chunk".to_owned(), "8k".to_owned()]);
    }
    args
}

/// Returns a table of 64 rows of 64 bytes.
fn npy() -> Vec<u8> {
    let text = format!("{:117}\n", "{'descr': '<u4', 'fortran_order': False, 'shape': (64, 16), }");
    let rows = (0..64u32 * 16).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes());
    b"\x93NUMPY\x01\x00\x76\x00".iter().copied().chain(text.into_bytes()).chain(rows).collect()
}

fn name(path: &Path) -> &str {
    path.to_str().expect("temporary folders have UTF-8 names")
}

/// Runs a command without faults. Returns its output.
fn succeeds<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<String, String> {
    let mut command = program::command(args);
    let ended = program::run(&mut command, FAULTLESS)?;
    if ended.status.success() {
        Ok(ended.out)
    } else {
        Err(format!("without faults {command:?} failed: {}", ended.text()))
    }
}

impl Command {
    /// Returns the class of an end, if it is right.
    ///
    /// # Errors
    /// What was wrong.
    pub fn judge(&self, ended: &Ended, folder: &Path) -> Result<&'static str, String> {
        let told = |what: &str| format!("{what}: {:?}\n{}", self.args.join(" "), ended.text());
        if let Some(disorder) = ended.disorder() {
            return Err(told(&disorder));
        }
        match (&self.expects, ended.status.success()) {
            (Expects::Result(out, expected), true) => {
                let got = fs::read(out).map_err(|e| told(&e.to_string()))?;
                if !is_same(&got, expected) {
                    return Err(told("a wrong result was called right"));
                }
            }
            (Expects::Result(out, _), false) if out.exists() => return Err(told("a failed command left a result")),
            _ => {}
        }
        if self.args[0] == "bench" && ended.status.success() && !ended.out.contains("verified") {
            return Err(told("a measurement did not compare its data"));
        }
        if let Some(devices) = &self.volume {
            self.check_volume(devices, ended.status.success(), folder).map_err(|what| told(&what))?;
        }
        Ok(if ended.status.success() { "right" } else { "refused" })
    }

    /// Checks a stored volume without faults: what no command was to change is there, unless a device changed data silently.
    fn check_volume(&self, devices: &[String], succeeded: bool, folder: &Path) -> Result<(), String> {
        let layout = match devices.len() {
            1 => Layout::One,
            n if self.args.iter().any(|a| a == "--replicate") => Layout::Copies(n),
            n => Layout::Stripe(n),
        };
        let devices = on(devices, layout);
        let run = |words: &[&str]| {
            let args = words.iter().copied().chain(devices.iter().map(String::as_str));
            program::run(&mut program::command(args), FAULTLESS)
        };
        let target = |verb: &str| self.args.windows(3).any(|w| w[1] == verb);
        for graph in ["g", "h"] {
            let is_changed = (target("delete") || target("import")) && self.args.iter().any(|a| a == graph);
            let export = folder.join(format!("{graph}.el"));
            let ended = run(&["graph", "export", graph, "--out", name(&export)])?;
            if let Some(disorder) = ended.disorder() {
                return Err(disorder);
            }
            let is_there = ended.status.success();
            if is_changed && target("delete") && succeeded && is_there {
                return Err(format!("graph `{graph}` is there after it was deleted"));
            }
            let may_lack = self.is_silent || is_changed && (target("delete") || !succeeded);
            if !is_there && !may_lack {
                return Err(format!("graph `{graph}` cannot be read any more: {}", ended.text()));
            }
            if is_there && !is_changed {
                let source = if graph == "g" { GRAPH } else { "kron:6" };
                check_edges(&export, source)?;
            }
        }
        Ok(())
    }
}

/// Compares exported edges with those of the generator that the graph was imported from.
fn check_edges(export: &Path, source: &str) -> Result<(), String> {
    static EXPECTED: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);
    let mut all = EXPECTED.lock();
    let known = all.get_or_insert_with(HashMap::new);
    let expected = if let Some(edges) = known.get(source) {
        edges.clone()
    } else {
        let folder = program::folder_in_memory();
        let (device, out) = (format!("soft:{}", name(&folder.path().join("d"))), folder.path().join("out.el"));
        succeeds(["graph", "import", source, "--name", "x", "--weights", "none", "--device", &device])?;
        succeeds(["graph", "export", "x", "--device", &device, "--out", name(&out)])?;
        let edges = fs::read_to_string(&out).map_err(|e| e.to_string())?;
        known.insert(source.to_owned(), edges.clone());
        edges
    };
    let got = fs::read_to_string(export).map_err(|e| e.to_string())?;
    // The first lines may name the graph and its device.
    let edges = |text: &str| text.lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    if edges(&got) == edges(&expected) {
        Ok(())
    } else {
        Err(format!("{} has other edges than {source}", export.display()))
    }
}
