//! Random sequences of operations on two and three copies, each with one fault, against a model. The model knows which
//! states may be found after each operation, and which copies hold the last one. It compares data that is read with
//! these states, and the files of copies in use with the arrays' bytes, without reading superblocks.

use super::plan::Plan;
use crate::engine::Engine;
use crate::pci::fixture::folder_in_memory;
use crate::storage::cache::Cache;
use crate::storage::disk::Drive;
use crate::storage::error::{ManifestError, StorageError};
use crate::storage::volume::Volume;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Number of sequences: `.ci/run long` has many more.
const SEQUENCES: &str = "WARPBELL_SEQUENCES";
const STEPS: usize = 14;
const BYTES: u64 = 832 << 10;
/// Blocks of the superblocks, and of the whole device.
const HEAD: u64 = 128;
const BLOCKS: u64 = BYTES >> 9;
const NAMES: [&str; 3] = ["a", "b", "c"];

/// SplitMix64 (Steele, Lea, Flood 2014), so that a sequence depends on nothing but its number.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns a block: as often one of the superblocks as one of the data.
    fn block(&mut self) -> u64 {
        if self.below(2) == 0 { self.below(HEAD) } else { HEAD + self.below(BLOCKS - HEAD) }
    }
}

/// Arrays of the volume, by name.
type State = BTreeMap<&'static str, Vec<u64>>;

#[derive(Debug)]
enum Operation {
    /// Stores arrays in place of all.
    Store(State),
    /// Stores one array beside the others, in place of the one that has its name.
    Replace(&'static str, Vec<u64>),
    Delete(&'static str),
    Read,
    Verify,
    Repair,
}

/// A fault of one device, or of all at once.
struct Fault {
    options: String,
    device: Option<usize>,
    /// True if the device may hold wrong data afterwards without having said so.
    is_silent: bool,
}

/// Knowledge about one copy.
#[derive(Clone, Copy, Debug, Default)]
struct Copy {
    /// The volume has left it out.
    is_lost: bool,
    /// It may hold wrong data.
    is_damaged: bool,
    /// Faults that may have damaged its superblocks.
    damaged_heads: u32,
}

struct Sequence {
    number: u64,
    random: Random,
    folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
    page_checksums: bool,
    /// States that may be found: the last that was acknowledged, and those of operations that failed after it.
    allowed: Vec<State>,
    copies: Vec<Copy>,
    steps: Vec<String>,
}

impl Sequence {
    fn new(number: u64) -> Self {
        let mut random = Random(number);
        let folder = folder_in_memory();
        let count = 2 + random.below(2) as usize;
        let paths: Vec<_> = (0..count).map(|i| folder.path().join(format!("{i}.img"))).collect();
        paths.iter().for_each(|p| std::fs::File::create(p).unwrap().set_len(BYTES).unwrap());
        let page_checksums = random.below(2) == 0;
        let copies = vec![Copy::default(); count];
        Self { number, random, folder, paths, page_checksums, allowed: vec![State::new()], copies, steps: Vec::new() }
    }

    fn fail(&self, what: &str) -> ! {
        panic!("sequence {}: {what}\n{}\n{:?}", self.number, self.steps.join("\n"), self.copies)
    }

    fn open(&self, engine: &Engine, fault: &Fault) -> Result<Volume, StorageError> {
        let spec = |(i, p): (usize, &PathBuf)| {
            let has_fault = fault.device.is_none_or(|device| device == i);
            Drive::open(&format!("soft:{},threads=1{}", p.display(), if has_fault { &*fault.options } else { "" }))
        };
        let drives = self.paths.iter().enumerate().map(spec).collect::<Result<Vec<_>, _>>()?;
        let builder = Volume::on(engine, drives).replicated(true).chunk(4096).queues(1).depth(16);
        if self.page_checksums { builder.page_checksums(true).build() } else { builder.build() }
    }

    fn values(&mut self) -> Vec<u64> {
        let (count, seed) = (1 + self.random.below(12_000), self.random.next());
        (0..count).map(|i| (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
    }

    fn operation(&mut self) -> Operation {
        let name = NAMES[self.random.below(3) as usize];
        match self.random.below(12) {
            0 | 1 => {
                let count = 1 + self.random.below(3) as usize;
                Operation::Store(NAMES[..count].iter().map(|n| (*n, self.values())).collect())
            }
            2..=4 => Operation::Replace(name, self.values()),
            5 | 6 => Operation::Delete(name),
            7 | 8 => Operation::Read,
            9 => Operation::Verify,
            _ => Operation::Repair,
        }
    }

    fn fault(&mut self) -> Fault {
        let device = self.random.below(self.paths.len() as u64) as usize;
        let (block, n) = (self.random.block(), self.random.below(60));
        let options = match self.random.below(16) {
            0 | 1 => format!(",media-error=read:{block}"),
            2 | 3 => format!(",media-error=write:{block}"),
            4 => format!(",media-error={block}"),
            5 | 6 => format!(",disappear=after:{n}"),
            7 => return Fault { options: format!(",disappear=after:{n}"), device: None, is_silent: false },
            8 | 9 => format!(",corrupt=read:{block}"),
            10 => format!(",corrupt=write:{block}"),
            11 => format!(",torn-write=silent:{block}"),
            12 => format!(",fail-flush=every:{}", 1 + n % 4),
            _ => String::new(),
        };
        let is_silent = options.contains("corrupt=write") || options.contains("silent");
        Fault { options, device: Some(device), is_silent }
    }

    /// Flips a bit of a file that nobody has open.
    fn rot(&mut self) {
        let device = self.random.below(self.paths.len() as u64) as usize;
        let at = (self.random.block() << 9) + self.random.below(512);
        let bit = self.random.below(8);
        let file = std::fs::File::options().read(true).write(true).open(&self.paths[device]).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
        self.damage(device, at >> 9 < HEAD);
        self.steps.push(format!("rot of byte {at} of {device}"));
    }

    fn damage(&mut self, device: usize, is_head: bool) {
        self.copies[device].is_damaged = true;
        self.copies[device].damaged_heads += u32::from(is_head);
    }

    /// Compares everything that can be read with the states that are allowed. Returns the states that fit, and true if
    /// all could be read.
    fn compare(&self, v: &Volume, by_kernels: bool) -> (Vec<State>, Result<(), StorageError>) {
        let names: Vec<String> = match v.manifest() {
            Ok(manifest) => manifest.entries().iter().map(|e| e.name.clone()).collect(),
            Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => Vec::new(),
            Err(e) => return (self.allowed.clone(), Err(e)),
        };
        let has_names = |s: &&State| s.len() == names.len() && names.iter().all(|n| s.contains_key(n.as_str()));
        let mut fits: Vec<State> = self.allowed.iter().filter(has_names).cloned().collect();
        let mut outcome = Ok(());
        for name in &names {
            let by_kernel = || Cache::on(v).bytes(64 << 10).build()?.open::<u64>(name).and_then(|a| a.read(0..a.len()));
            let reads = [Some(v.read_array::<u64>(name)), (by_kernels && v.has_page_checksums()).then(by_kernel)];
            for read in reads.into_iter().flatten() {
                match read {
                    Ok(values) => fits.retain(|s| s[name.as_str()] == values),
                    Err(e) => outcome = Err(e),
                }
            }
        }
        if fits.is_empty() {
            self.fail(&format!("what is there, {names:?}, is no state that may be there"));
        }
        (fits, outcome)
    }

    /// Runs an operation. Returns the state after it, if it has succeeded.
    fn run(&self, v: &Volume, operation: &Operation) -> Result<Option<State>, StorageError> {
        let held = |name: &str| v.manifest().is_ok_and(|m| m.find(name).is_ok());
        let mut states;
        let write = |arrays: &State, writer: &mut super::VolumeWriter<'_>| {
            arrays.iter().try_for_each(|(name, values)| values.chunks(3000).try_for_each(|p| writer.append(name, p)))
        };
        match operation {
            Operation::Store(new) => {
                let plan = new.iter().fold(Plan::new(), |p, (name, values)| p.array::<u64>(name, values.len() as u64));
                let mut writer = v.store(plan, "it")?;
                write(new, &mut writer)?;
                writer.finish()?;
                return Ok(Some(new.clone()));
            }
            Operation::Replace(name, values) => {
                states = self.compare(v, false).0;
                let old: &[&str] = if held(name) { &[name] } else { &[] };
                let plan = Plan::new().array::<u64>(name, values.len() as u64);
                let mut writer = v.replace(plan, "it", old)?;
                write(&State::from([(*name, values.clone())]), &mut writer)?;
                writer.finish()?;
                states.iter_mut().for_each(|s| drop(s.insert(name, values.clone())));
            }
            Operation::Delete(name) => {
                states = self.compare(v, false).0;
                v.remove(&[name])?;
                states.iter_mut().for_each(|s| drop(s.remove(name)));
            }
            Operation::Read => {
                let (_, outcome) = self.compare(v, self.number.is_multiple_of(2));
                v.flush()?;
                outcome?;
                return Ok(None);
            }
            Operation::Verify => {
                v.verify(false)?;
                return Ok(None);
            }
            Operation::Repair => {
                let is_intact = v.verify(true)?.is_intact();
                return if is_intact { Ok(None) } else { Err(StorageError::Option("not all is intact".to_owned())) };
            }
        }
        // Only one state can have been there, since all names and values that could be read fit.
        Ok(states.first().filter(|_| states.len() == 1).cloned())
    }

    /// Returns the states that an operation which failed may leave.
    fn left_by(&self, operation: &Operation) -> Vec<State> {
        let after = |change: &dyn Fn(&mut State)| {
            let mut states = self.allowed.clone();
            states.iter_mut().for_each(change);
            states
        };
        match operation {
            // Without space for both, the old arrays are removed first.
            Operation::Store(new) => vec![new.clone(), State::new()],
            Operation::Replace(name, values) => after(&|s| drop(s.insert(name, values.clone()))),
            Operation::Delete(name) => after(&|s| drop(s.remove(name))),
            Operation::Read | Operation::Verify | Operation::Repair => Vec::new(),
        }
    }

    fn step(&mut self, engine: &Engine) {
        let is_rot = self.random.below(6) == 0;
        if is_rot {
            self.rot();
        }
        let operation = self.operation();
        let fault =
            if is_rot { Fault { options: String::new(), device: None, is_silent: false } } else { self.fault() };
        let volume = self.open(engine, &fault);
        let outcome = volume
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|v| self.run(v, &operation).map_err(|e| e.to_string()));
        let lost: Vec<usize> = match &volume {
            Ok(v) => v.redundancy().unwrap().lost.iter().map(|l| l.device).collect(),
            Err(_) => Vec::new(),
        };
        let text = match &operation {
            Operation::Store(new) => format!("store {:?}", new.iter().map(|(n, v)| (n, v.len())).collect::<Vec<_>>()),
            Operation::Replace(name, values) => format!("replace {name} by {}", values.len()),
            other => format!("{other:?}"),
        };
        let ended = outcome.as_ref().map(|_| "ok").map_err(|e| e.chars().take(400).collect::<String>());
        self.steps.push(format!("{text} with `{}` on {:?}: {ended:?}, lost {lost:?}", fault.options, fault.device));
        drop(volume);
        match outcome {
            Ok(None) if matches!(operation, Operation::Replace(..) | Operation::Delete(_)) => {
                self.allowed = self.left_by(&operation);
            }
            Ok(None) => {
                if matches!(operation, Operation::Repair) && lost.is_empty() {
                    self.copies.iter_mut().for_each(|c| c.is_damaged = false);
                }
            }
            Ok(Some(state)) => {
                self.allowed = vec![state];
                if matches!(operation, Operation::Store(_)) {
                    self.copies.iter_mut().for_each(|c| c.is_damaged = false);
                }
            }
            Err(_) => self.allowed.extend(self.left_by(&operation)),
        }
        lost.iter().for_each(|device| self.copies[*device].is_lost = true);
        if let (Some(device), true) = (fault.device, fault.is_silent) {
            self.damage(device, true);
        }
        self.check(engine);
    }

    /// Opens the volume without faults. What a copy holds must be there, and no copy in use may lack anything.
    fn check(&mut self, engine: &Engine) {
        let none = Fault { options: String::new(), device: None, is_silent: false };
        let v = self.open(engine, &none).unwrap();
        let is_whole = |c: &Copy| !c.is_lost && !c.is_damaged;
        let is_held = self.copies.iter().any(is_whole) && self.copies.iter().all(|c| c.damaged_heads < 3);
        let by_kernels = self.random.below(3) == 0;
        let (mut fits, mut outcome) = self.compare(&v, by_kernels);
        if let (Err(e), true, true) = (&outcome, is_held, self.copies.iter().any(|c| c.is_damaged)) {
            // Reads of the host take no other copy where the data is damaged; a repair does.
            self.steps.push(format!("repaired because of: {e}"));
            let found = v.verify(true).unwrap_or_else(|e| self.fail(&format!("repair: {e}")));
            if !found.is_intact() {
                self.fail(&format!("not repaired: {found:?}"));
            }
            (fits, outcome) = self.compare(&v, by_kernels);
            self.copies.iter_mut().for_each(|c| c.is_damaged = false);
        }
        if let (Err(e), true) = (&outcome, is_held) {
            self.fail(&format!("a copy holds all data, and it cannot be read: {e}"));
        }
        if outcome.is_err() {
            return;
        }
        let lost: Vec<usize> = v.redundancy().unwrap().lost.iter().map(|l| l.device).collect();
        let flushed = self.random.below(2) == 0 && v.flush().is_ok();
        drop(v);
        if flushed {
            self.allowed = fits.clone();
        }
        for device in 0..self.copies.len() {
            let copy = &mut self.copies[device];
            copy.is_lost = lost.contains(&device);
            if is_whole(copy) && !fits.iter().any(|s| self.has_bytes(device, s)) {
                self.fail(&format!("copy {device} is in use and lacks data"));
            }
        }
    }

    /// Returns true if the file of a copy has the bytes of all arrays.
    fn has_bytes(&self, device: usize, state: &State) -> bool {
        let held = std::fs::read(&self.paths[device]).unwrap();
        state.values().all(|values| {
            let bytes: &[u8] = bytemuck::cast_slice(values);
            (0..held.len()).step_by(64 << 10).any(|at| held[at..].starts_with(bytes))
        })
    }

    /// Repairs everything without faults, if a copy holds all data. All copies have to hold all data then.
    fn end(&mut self, engine: &Engine) {
        let none = Fault { options: String::new(), device: None, is_silent: false };
        let is_held = self.copies.iter().any(|c| !c.is_lost && !c.is_damaged) && self.allowed[0] != State::new();
        if !is_held || self.allowed.len() > 1 || self.copies.iter().any(|c| c.damaged_heads > 2) {
            return;
        }
        let v = self.open(engine, &none).unwrap();
        let found = v.verify(true).unwrap_or_else(|e| self.fail(&format!("repair: {e}")));
        let lost = v.redundancy().unwrap().lost;
        if !found.is_intact() || !lost.is_empty() {
            self.fail(&format!("not repaired: {found:?}, {lost:?}"));
        }
        drop(v);
        for device in 0..self.copies.len() {
            if !self.has_bytes(device, &self.allowed[0]) {
                self.fail(&format!("copy {device} was repaired and lacks data"));
            }
        }
        self.copies.fill(Copy::default());
        self.steps.push("all repaired".to_owned());
        self.check(engine);
    }
}

#[test]
fn no_sequence_of_faults_gives_wrong_data_or_loses_a_copy() {
    let count = std::env::var(SEQUENCES).ok().map_or(6, |n| n.parse().unwrap());
    let engine = Engine::builder().threads(2).cpu().unwrap();
    for number in 0..count {
        let mut sequence = Sequence::new(number);
        for _ in 0..STEPS {
            sequence.step(&engine);
        }
        sequence.end(&engine);
        drop(sequence.folder);
    }
}
