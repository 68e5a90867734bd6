//! All states that a power failure can leave of a few small arrays: after each command of an operation, with each subset of the
//! blocks that were not flushed. Also while one device fails at each step, and again during the repair of each such state.
//!
//! The operations run once, and the journal of the devices has what they change. Every state is opened by the library. What was
//! acknowledged is there, what was not is there as a whole or not at all, and no copy in use lacks it. No state is left out:
//! a scene with too many of them fails.

use super::plan::Plan;
use crate::engine::Engine;
use crate::pci::fixture::folder_in_memory;
use crate::soft::nvme::journal::{Change, Cut, Journal};
use crate::storage::disk::Drive;
use crate::storage::error::{ManifestError, StorageError};
use crate::storage::format::ARRAY_ALIGN;
use crate::storage::volume::Volume;
use crate::test_cases;
use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use xxhash_rust::xxh3::Xxh3;

/// Bytes of each device: superblocks, and space for as many arrays of copies.
const BYTES: u64 = (1 + SPACE as u64) * ARRAY_ALIGN;
const SPACE: usize = 2;
const BLOCK: usize = 512;
/// Blocks that may be there or not at one time: 2 to the power of this states.
const MOST_CHOICES: usize = 12;

/// Arrays of the volume, by name.
type State = BTreeMap<&'static str, Vec<u64>>;
type Files = Vec<Vec<u8>>;

/// A change of the arrays.
#[derive(Clone, Copy, Debug)]
enum Operation {
    /// Stores arrays in place of all.
    Store(&'static [(&'static str, u64)]),
    /// Stores an array beside the others, in place of the one that has its name.
    Put(&'static str, u64),
    Remove(&'static str),
}

/// Returns the elements of an array: as many as a block has.
fn values(seed: u64) -> Vec<u64> {
    (0..BLOCK as u64 / 8).map(|i| (i + seed * 1000).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

impl Operation {
    fn run(self, v: &Volume) -> Result<(), StorageError> {
        let planned = |name: &str| Plan::new().array::<u64>(name, BLOCK as u64 / 8);
        match self {
            Self::Store(arrays) => {
                let plan = arrays.iter().fold(Plan::new(), |p, (name, _)| p.array::<u64>(name, BLOCK as u64 / 8));
                let mut writer = v.store(plan, "it")?;
                arrays.iter().try_for_each(|(name, seed)| writer.append(name, &values(*seed)))?;
                writer.finish()?;
            }
            Self::Put(name, seed) => {
                let old: &[&str] = if v.manifest()?.find(name).is_ok() { &[name] } else { &[] };
                let mut writer = v.replace(planned(name), "it", old)?;
                writer.append(name, &values(seed))?;
                writer.finish()?;
            }
            Self::Remove(name) => drop(v.remove(&[name])?),
        }
        Ok(())
    }

    fn applied_to(self, state: &State) -> State {
        let mut state = state.clone();
        match self {
            Self::Store(arrays) => state = arrays.iter().map(|(name, seed)| (*name, values(*seed))).collect(),
            Self::Put(name, seed) => drop(state.insert(name, values(seed))),
            Self::Remove(name) => drop(state.remove(name)),
        }
        state
    }

    /// Returns the states that may be found while the operation runs. Without space for both, the old arrays are removed first.
    fn passes(self, before: &State) -> Vec<State> {
        let mut states = vec![before.clone(), self.applied_to(before)];
        if let Self::Store(new) = self
            && before.len() + new.len() > SPACE
        {
            states.push(State::new());
        }
        states
    }
}

/// Devices of a volume: one, a stripe, or copies.
struct Devices {
    _folder: tempfile::TempDir,
    paths: Vec<PathBuf>,
    replicated: bool,
    engine: Engine,
    /// Hashes of files that were checked, with what was allowed.
    checked: HashSet<u128>,
    /// Number of these files that a repair can leave.
    repairs: usize,
}

impl Devices {
    fn new(count: usize, replicated: bool) -> Self {
        let folder = folder_in_memory();
        let paths = (0..count).map(|i| folder.path().join(format!("{i}.img"))).collect();
        let engine = Engine::builder().threads(1).cpu().unwrap();
        Self { _folder: folder, paths, replicated, engine, checked: HashSet::new(), repairs: 0 }
    }

    fn set(&self, files: &Files) {
        self.paths.iter().zip(files).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    }

    fn get(&self) -> Files {
        self.paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    /// Opens the volume; device `fault.0` has the fault options `fault.1`.
    fn open(&self, fault: Option<(usize, &str)>) -> Result<Volume, StorageError> {
        let spec = |(i, path): (usize, &PathBuf)| {
            let options = fault.filter(|(device, _)| *device == i).map_or("", |(_, options)| options);
            Drive::open(&format!("soft:{},threads=1{options}", path.display()))
        };
        let drives = self.paths.iter().enumerate().map(spec).collect::<Result<Vec<_>, _>>()?;
        Volume::on(&self.engine, drives).replicated(self.replicated).chunk(8192).queues(1).depth(16).build()
    }

    /// Returns the arrays that the volume holds: none if it never held any.
    fn found(v: &Volume) -> Result<State, StorageError> {
        let manifest = match v.manifest() {
            Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => return Ok(State::new()),
            other => other?,
        };
        let name = |name: &str| ["a", "b", "c"].into_iter().find(|n| *n == name).unwrap();
        manifest.entries().iter().map(|e| Ok((name(&e.name), v.read_array::<u64>(&e.name)?))).collect()
    }

    fn lost(v: &Volume) -> Vec<usize> {
        v.redundancy().unwrap().lost.iter().map(|l| l.device).collect()
    }

    /// Returns true if the file of each of these copies has the bytes of all arrays.
    fn hold(&self, state: &State, is_used: impl Fn(usize) -> bool) -> bool {
        let has = |file: &[u8], values: &[u64]| {
            (0..file.len()).step_by(64 << 10).any(|at| file[at..].starts_with(bytemuck::cast_slice(values)))
        };
        self.get().iter().enumerate().all(|(i, f)| !is_used(i) || state.values().all(|values| has(f, values)))
    }

    /// Opens the volume with these files, which must hold one of these states. Returns the state, or `None` if that was checked
    /// before.
    ///
    /// # Errors
    /// Returns what is wrong.
    fn judge(&mut self, files: &Files, allowed: &[State]) -> Result<Option<State>, String> {
        let mut hash = Xxh3::new();
        files.iter().for_each(|f| hash.update(f));
        allowed.iter().flatten().for_each(|(name, values)| {
            hash.update(name.as_bytes());
            hash.update(bytemuck::cast_slice(values));
        });
        hash.update(&[allowed.len() as u8]);
        if !self.checked.insert(hash.digest128()) {
            return Ok(None);
        }
        self.set(files);
        let v = self.open(None).unwrap();
        let found = match Self::found(&v) {
            // The drives of a stripe are erased one after the other.
            Err(StorageError::Manifest { .. }) if !self.replicated && allowed.contains(&State::new()) => State::new(),
            other => other.map_err(|e| e.to_string())?,
        };
        if !allowed.contains(&found) {
            return Err(format!("{:?} are there", found.keys()));
        }
        let lost = if self.replicated { Self::lost(&v) } else { Vec::new() };
        if self.replicated && !self.hold(&found, |i| !lost.contains(&i)) {
            return Err(format!("a copy in use lacks data; {lost:?} are left out"));
        }
        Ok(Some(found))
    }

    fn check(&mut self, files: &Files, allowed: &[State], what: &str) -> Option<State> {
        self.judge(files, allowed).unwrap_or_else(|wrong| panic!("{what}: {wrong}"))
    }

    /// Repairs these files, which hold `state`, and checks that all copies hold it then. Returns the changes that this makes.
    fn repair(&mut self, files: &Files, state: &State, what: &str) -> Vec<Change> {
        self.set(files);
        let v = self.open(None).unwrap();
        let journal = Journal::of(&self.paths);
        if !state.is_empty() {
            let found = v.verify(true).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(found.is_intact(), "{what}: {found:?}");
            assert_eq!(Self::lost(&v), [0; 0], "{what}: a copy is left out after the repair");
        }
        v.flush().unwrap();
        assert!(Self::found(&v).unwrap() == *state, "{what}: a repair changed the arrays");
        drop(v);
        assert!(!self.replicated || self.hold(state, |_| true), "{what}: a copy was repaired and lacks data");
        journal.take()
    }

    /// Repairs these files, which hold `state`, and interrupts that after each change, too.
    fn interrupt_repair(&mut self, files: &Files, state: &State, what: &str) {
        let changes = self.repair(files, state, what);
        every_state(&changes, files, 1, |done, cut| {
            let what = format!("{what}, and after {done} of {} changes of a repair", changes.len());
            let checked = self.check(&cut, std::slice::from_ref(state), &what);
            self.repairs += usize::from(checked.is_some());
        });
    }
}

/// Calls `each` with the files of every state that a power failure can leave after each of the first changes, from `first` on, and the
/// number of these changes.
fn every_state(changes: &[Change], base: &Files, first: usize, mut each: impl FnMut(usize, Files)) {
    for done in first..=changes.len() {
        let cut = Cut::after(&changes[..done], base, BLOCK);
        assert!(cut.choices() <= MOST_CHOICES, "{} blocks are not flushed after {done} changes", cut.choices());
        for kept in 0..1u32 << cut.choices() {
            each(done, cut.files(|i| kept >> i & 1 != 0));
        }
    }
}

/// Parts of a scene.
struct Scene {
    devices: usize,
    replicated: bool,
    operations: &'static [Operation],
    /// True if the repair of each state is interrupted, too.
    repairs: bool,
    /// True if each device fails at each of its commands.
    faults: bool,
}

/// Checks all states of a scene.
fn explore(scene: &Scene) {
    let mut devices = Devices::new(scene.devices, scene.replicated);
    let base: Files = vec![vec![0; BYTES as usize]; scene.devices];
    // Changes of the operations so far, and their result.
    let (mut history, mut files, mut state) = (Vec::new(), base.clone(), State::new());
    for operation in scene.operations {
        let after = operation.applied_to(&state);
        let run = |devices: &mut Devices, fault: Option<(usize, &str)>| {
            devices.set(&files);
            let journal = Journal::of(&devices.paths);
            let outcome = devices.open(fault).and_then(|v| operation.run(&v).map(|()| Devices::lost(&v)));
            let changes = [&*history, &*journal.take()].concat();
            let ended = devices.get();
            let allowed = (operation.passes(&state), std::slice::from_ref(&after));
            every_state(&changes, &base, history.len(), |done, cut| {
                let allowed = if outcome.is_ok() && done == changes.len() { allowed.1 } else { &allowed.0 };
                let what =
                    format!("{operation:?} with {fault:?}: {outcome:?}, after {done} of {} changes", changes.len());
                let Some(found) = devices.check(&cut, allowed, &what) else { return };
                if scene.repairs {
                    devices.interrupt_repair(&cut, &found, &what);
                }
            });
            (outcome, changes, ended)
        };
        let (outcome, changes, ended) = run(&mut devices, None);
        assert_eq!(outcome.unwrap(), [0; 0]);
        for device in (0..scene.devices).filter(|_| scene.faults) {
            let fails = |step: usize| run(&mut devices, Some((device, &format!(",disappear=after:{step}"))));
            // Until the device has more commands left than the operation sends.
            let unharmed = (0..).map(fails).find(|(outcome, ..)| outcome.as_ref().is_ok_and(Vec::is_empty));
            assert!(unharmed.is_some());
        }
        (history, files, state) = (changes, ended, after);
    }
    println!(
        "{} devices, replicated {}: {} states, of which {} are of repairs",
        scene.devices,
        scene.replicated,
        devices.checked.len(),
        devices.repairs
    );
}

const ALL: &[Operation] = &[
    Operation::Store(&[("a", 1)]),
    Operation::Put("a", 2),
    Operation::Put("b", 3),
    Operation::Remove("a"),
    Operation::Store(&[("c", 4)]),
    Operation::Store(&[("a", 5), ("b", 6)]),
];

/// Returns the operations of a scene, of which every day has the first `daily`.
fn operations(daily: usize) -> &'static [Operation] {
    if test_cases::all_are_wanted() { ALL } else { &ALL[..daily] }
}

#[test]
fn every_power_failure_leaves_the_old_arrays_or_the_new_ones() {
    for (devices, replicated, daily) in [(1, false, ALL.len()), (2, false, 2), (2, true, 3)] {
        explore(&Scene { devices, replicated, operations: operations(daily), repairs: false, faults: false });
    }
}

#[test]
fn a_repair_that_power_failures_interrupt_keeps_the_arrays() {
    explore(&Scene { devices: 2, replicated: true, operations: operations(1), repairs: true, faults: false });
    if test_cases::all_are_wanted() {
        explore(&Scene { devices: 3, replicated: true, operations: &ALL[..3], repairs: true, faults: false });
    }
}

#[test]
fn a_device_that_fails_before_a_power_failure_loses_nothing() {
    explore(&Scene { devices: 2, replicated: true, operations: operations(2), repairs: false, faults: true });
    if test_cases::all_are_wanted() {
        for (devices, replicated, count) in [(1, false, ALL.len()), (2, false, ALL.len()), (3, true, 3)] {
            explore(&Scene { devices, replicated, operations: &ALL[..count], repairs: false, faults: true });
        }
        explore(&Scene { devices: 2, replicated: true, operations: &ALL[..3], repairs: true, faults: true });
    }
}

/// Commands in a wrong order, as faults of the library would send them. An operation writes data, flushes, writes superblocks,
/// flushes, and writes commits.
#[test]
fn a_wrong_order_of_commands_is_found() {
    let is_flush = |c: &Change| matches!(c, Change::Flush { .. });
    let is_head = |c: &Change| matches!(c, Change::Write { offset, .. } if *offset < ARRAY_ALIGN as usize);
    let is_data = |c: &Change| !is_flush(c) && !is_head(c);
    for (count, replicated) in [(1, false), (2, true)] {
        let mut devices = Devices::new(count, replicated);
        devices.set(&vec![vec![0; BYTES as usize]; count]);
        let v = devices.open(None).unwrap();
        ALL[0].run(&v).unwrap();
        let base = devices.get();
        let journal = Journal::of(&devices.paths);
        ALL[1].run(&v).unwrap();
        drop(v);
        let changes = journal.take();
        let state = ALL[0].applied_to(&State::new());
        let (passes, after) = (ALL[1].passes(&state), ALL[1].applied_to(&state));
        let head = changes.iter().position(is_head).unwrap();
        let data = changes.iter().position(is_data).unwrap();
        // Superblocks and commits are one block for each device.
        let commits = changes.len() - count;
        assert!(
            changes[..head].iter().filter(|c| is_data(c)).count() == count && changes[commits..].iter().all(is_head)
        );
        let wrong: [(&str, Vec<Change>); 4] = [
            ("nothing", changes.clone()),
            ("superblocks that no flush precedes", {
                let is_kept = |(i, c): &(usize, &Change)| *i < data || *i > head || !is_flush(c);
                changes.iter().enumerate().filter(is_kept).map(|(_, c)| c.clone()).collect()
            }),
            ("superblocks ahead of the data", {
                let (superblocks, flushes) = changes[head..commits].split_at(count);
                [&changes[..data], superblocks, flushes, &changes[data..head], &changes[commits..]].concat()
            }),
            ("superblocks that no flush follows", { [&changes[..head + count], &changes[commits..]].concat() }),
        ];
        for (mistake, changes) in wrong {
            devices.checked.clear();
            let mut found = None;
            every_state(&changes, &base, 0, |done, cut| {
                let allowed = if done == changes.len() { std::slice::from_ref(&after) } else { &passes };
                if found.is_none() {
                    found = devices.judge(&cut, allowed).err();
                }
            });
            println!("{count} devices, {mistake}: {found:?}");
            assert_eq!(found.is_some(), mistake != "nothing", "{count} devices, {mistake}: {found:?}");
        }
    }
}
