//! Random sequences of operations on copies and stripes, most of them with a fault or two, against a model. The model knows
//! which states may be found after each operation, and which copies hold the last one.

mod check;
mod disturbance;

use crate::campaign::{Campaign, Outcome};
use crate::program::folder_in_memory;
use crate::random::Random;
use disturbance::Fault;
use std::collections::BTreeMap;
use std::path::PathBuf;
use warpbell::engine::Engine;
use warpbell::storage::{Drive, Plan, StorageError, Volume, VolumeWriter};

/// Steps of a sequence.
const STEPS: usize = 14;
const BYTES: u64 = 832 << 10;
/// Blocks of the superblocks, and of the whole device.
const HEAD: u64 = 128;
const BLOCKS: u64 = BYTES >> 9;
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Random programs of operations on a volume.
pub struct Sequences;

impl Campaign for Sequences {
    fn kind(&self, seed: u64) -> String {
        match Layout::of(&mut Random::new(seed)) {
            Layout::Copies(n) => format!("{n} copies"),
            Layout::Stripes(1) => "1 device".to_owned(),
            Layout::Stripes(n) => format!("{n} stripes"),
        }
    }

    fn run(&self, seed: u64) -> Outcome {
        // An engine of its own: the errors of kernels are in its log.
        let engine = Engine::builder().threads(2).cpu().map_err(|e| e.to_string())?;
        let mut sequence = Sequence::new(seed);
        for _ in 0..STEPS {
            sequence.step(&engine);
        }
        sequence.end(&engine);
        Ok("consistent")
    }
}

/// Relation of the devices of a volume.
#[derive(Clone, Copy)]
enum Layout {
    Copies(usize),
    Stripes(usize),
}

impl Layout {
    fn of(random: &mut Random) -> Self {
        match random.below(8) {
            0..=2 => Self::Copies(2),
            3 | 4 => Self::Copies(3),
            n => Self::Stripes(n as usize - 4),
        }
    }

    fn devices(self) -> usize {
        match self {
            Self::Copies(n) | Self::Stripes(n) => n,
        }
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

/// Knowledge about one device.
#[derive(Clone, Copy, Debug, Default)]
struct Device {
    /// The volume has left this copy out.
    is_lost: bool,
    /// It may hold wrong or old data.
    is_damaged: bool,
    /// Faults that may have damaged its superblocks.
    damaged_heads: u32,
    /// It may hold a volume that was stored before the present one. A repair does not overwrite data of others.
    is_foreign: bool,
    /// It was put back to what it held some steps ago. If the copies went on without each other since, they are refused together.
    went_back: bool,
}

impl Device {
    fn is_whole(&self) -> bool {
        !self.is_lost && !self.is_damaged
    }
}

struct Sequence {
    number: u64,
    layout: Layout,
    random: Random,
    _folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
    page_checksums: bool,
    /// States that may be found: the last that was acknowledged, and those of operations that failed after it.
    allowed: Vec<State>,
    devices: Vec<Device>,
    /// Files of devices as they were some steps ago, and the number of volumes that had been stored by then.
    old: Vec<Option<(Vec<u8>, u32)>>,
    /// Number of volumes that were stored in place of another.
    stores: u32,
    steps: Vec<String>,
}

impl Sequence {
    fn new(number: u64) -> Self {
        let mut random = Random::new(number);
        let layout = Layout::of(&mut random);
        let folder = folder_in_memory();
        let count = layout.devices();
        let paths: Vec<_> = (0..count).map(|i| folder.path().join(format!("{i}.img"))).collect();
        paths.iter().for_each(|p| std::fs::File::create(p).unwrap().set_len(BYTES).unwrap());
        let page_checksums = random.once_in(2);
        let (devices, old) = (vec![Device::default(); count], vec![None; count]);
        let (allowed, steps) = (vec![State::new()], Vec::new());
        Self { number, layout, random, _folder: folder, paths, page_checksums, allowed, devices, old, stores: 0, steps }
    }

    fn fail(&self, what: &str) -> ! {
        panic!("sequence {}: {what}\n{}\n{:?}", self.number, self.steps.join("\n"), self.devices)
    }

    /// Opens the volume on some of its devices.
    fn open(&self, engine: &Engine, devices: &[usize], faults: &[Fault]) -> Result<Volume, StorageError> {
        let spec = |&device: &usize| {
            let of_this = faults.iter().filter(|f| f.device.is_none_or(|d| d == device));
            let options: String = of_this.map(|f| &*f.options).collect();
            Drive::open(&format!("soft:{},threads=1{options}", self.paths[device].display()))
        };
        let drives = devices.iter().map(spec).collect::<Result<Vec<_>, _>>()?;
        let is_replicated = matches!(self.layout, Layout::Copies(_));
        let builder = Volume::on(engine, drives).replicated(is_replicated).chunk(4096).queues(1).depth(16);
        if self.page_checksums { builder.page_checksums(true).build() } else { builder.build() }
    }

    fn open_all(&self, engine: &Engine, faults: &[Fault]) -> Result<Volume, StorageError> {
        self.open(engine, &(0..self.paths.len()).collect::<Vec<_>>(), faults)
    }

    fn values(&mut self) -> Vec<u64> {
        let (count, seed) = (1 + self.random.below(12_000), self.random.next());
        (0..count).map(|i| (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
    }

    fn operation(&mut self) -> Operation {
        let name = self.random.of(&NAMES);
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

    /// Runs an operation. Returns the state after it, if it has succeeded.
    fn run(&self, v: &Volume, operation: &Operation) -> Result<Option<State>, StorageError> {
        let held = |name: &str| v.manifest().is_ok_and(|m| m.find(name).is_ok());
        let mut states;
        let write = |arrays: &State, writer: &mut VolumeWriter<'_>| {
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
        // Together with a fault of the other copies, nothing would show that a copy is damaged or old.
        let is_disturbed = self.disturb(engine);
        let operation = self.operation();
        let faults = if is_disturbed { Vec::new() } else { self.faults() };
        self.stores += u32::from(matches!(operation, Operation::Store(_)));
        let volume = self.open_all(engine, &faults);
        let outcome = volume
            .as_ref()
            .map_err(ToString::to_string)
            .and_then(|v| self.run(v, &operation).map_err(|e| e.to_string()));
        let lost = volume.as_ref().map_or_else(|_| Vec::new(), lost);
        let text = match &operation {
            Operation::Store(new) => format!("store {:?}", new.iter().map(|(n, v)| (n, v.len())).collect::<Vec<_>>()),
            Operation::Replace(name, values) => format!("replace {name} by {}", values.len()),
            other => format!("{other:?}"),
        };
        let ended = outcome.as_ref().map(|_| "ok").map_err(|e| e.chars().take(400).collect::<String>());
        self.steps.push(format!("{text} with {faults:?}: {ended:?}, lost {lost:?}"));
        drop(volume);
        match outcome {
            Ok(None) if matches!(operation, Operation::Replace(..) | Operation::Delete(_)) => {
                self.allowed = self.left_by(&operation);
            }
            Ok(None) => {
                if matches!(operation, Operation::Repair) && lost.is_empty() {
                    self.devices.iter_mut().for_each(|d| d.is_damaged = false);
                }
            }
            Ok(Some(state)) => {
                self.allowed = vec![state];
                if matches!(operation, Operation::Store(_)) {
                    self.devices.iter_mut().for_each(|d| d.is_damaged = false);
                }
            }
            Err(_) => self.allowed.extend(self.left_by(&operation)),
        }
        lost.iter().for_each(|device| self.devices[*device].is_lost = true);
        for fault in faults.iter().filter(|f| f.is_silent) {
            fault.device.into_iter().for_each(|device| self.damage(device, true));
        }
        self.check(engine);
    }
}

/// Returns the copies that a volume has left out.
fn lost(v: &Volume) -> Vec<usize> {
    v.redundancy().map(|r| r.lost.iter().map(|l| l.device).collect()).unwrap_or_default()
}
