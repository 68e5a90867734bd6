//! Whole contents that come and go: graphs, tables and arrays. After a loss of power all is as before a step or as after it.

use super::image::Progress;
use super::recorder::Log;
use super::scenario::{Scenario, Snapshot, repair, snapshot, values};
use crate::random::Random;
use std::fmt::Display;
use warpbell::graph::import::{ListForm, LoadOptions, load_bytes};
use warpbell::graph::stored::{GraphToStore, StoredGraph, remove_stored_graph, stored_graphs};
use warpbell::storage::{ElementType, ManifestError, Plan, StorageError, Table, TableLayout, TableWriter, Volume};

/// A step that stores or removes something as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Imports a graph, in place of the one that has its name.
    Import(u64),
    DeleteGraph,
    /// Stores a table, in place of the one that has its name.
    Table(u64),
    DeleteTable,
    /// Stores arrays in place of everything.
    Store(u64),
    /// Writes all data to copies that lack it.
    Repair,
}

pub(super) struct Contents {
    prepared: Vec<Step>,
    steps: Vec<Step>,
    /// Contents before the first step, and after each.
    snapshots: Vec<Option<Snapshot>>,
    /// Steps that have no space for the old contents beside the new ones.
    erases: Vec<bool>,
    /// Change of the last copy before the steps.
    damage: Option<u64>,
    overwrites: bool,
}

impl Contents {
    pub(super) fn new(prepared: Vec<Step>, steps: Vec<Step>) -> Self {
        let damage = steps.iter().find(|s| **s == Step::Repair).map(|_| 0);
        Self { prepared, steps, snapshots: Vec::new(), erases: Vec::new(), damage, overwrites: false }
    }

    /// Sets what happens to the last copy before a repair.
    pub(super) fn damaged_by(self, seed: u64) -> Self {
        Self { damage: Some(seed), ..self }
    }

    fn is_repair(&self) -> bool {
        self.damage.is_some()
    }
}

fn text(e: impl Display) -> String {
    e.to_string()
}

impl Step {
    /// Runs the step. Returns true if it erases the old contents first.
    fn run(self, v: &Volume) -> Result<bool, String> {
        match self {
            Self::Import(seed) => graph(seed)?.store(v, true, &mut |_| ()).map_err(text)?,
            Self::DeleteGraph => remove_stored_graph(v, &"g".parse().map_err(text)?).map_err(text)?,
            Self::DeleteTable => Table::remove(v, "t").map_err(text)?,
            Self::Table(seed) => {
                let each = 16 + seed % 200;
                let rows = values(seed, each * (20 + seed % 60));
                let layout = TableLayout::new(ElementType::U64, &[each], rows.len() as u64 / each).map_err(text)?;
                let mut writer = TableWriter::new(v, "t", &layout, true).map_err(text)?;
                rows.chunks(1000).try_for_each(|part| writer.append(part)).map_err(text)?;
                writer.finish().map_err(text)?;
            }
            Self::Store(seed) => return store(v, seed).map_err(text),
            Self::Repair => repair(v)?,
        }
        Ok(false)
    }
}

/// Returns a small graph, which the seed determines.
fn graph(seed: u64) -> Result<GraphToStore, String> {
    let mut random = Random::new(seed);
    let vertices = 20 + random.below(400);
    let edges: String =
        (0..vertices * 3).map(|_| format!("{} {}\n", random.below(vertices), random.below(vertices))).collect();
    let options = LoadOptions::default();
    let loaded = load_bytes("g.el", edges.as_bytes(), &options).map_err(text)?;
    let lists = if random.once_in(2) { ListForm::Plain } else { ListForm::default() };
    Ok(GraphToStore::with_lists("g".parse().map_err(text)?, loaded, lists))
}

/// Stores arrays in place of everything. Returns true if that erases the old contents first.
fn store(v: &Volume, seed: u64) -> Result<bool, StorageError> {
    let mut random = Random::new(seed);
    // Every fourth has more than half of a device.
    let largest = if seed.is_multiple_of(4) { 170_000 } else { 12_000 };
    let arrays: Vec<(String, Vec<u64>)> = (0..1 + random.below(3))
        .map(|i| (format!("s{i}"), values(random.next(), if i == 0 { largest } else { 1 + random.below(9000) })))
        .collect();
    let plan = arrays.iter().fold(Plan::new(), |plan, (name, values)| plan.array::<u64>(name, values.len() as u64));
    let mut writer = v.store(plan, "the arrays")?;
    let erases = !writer.keeps_old();
    for (name, values) in &arrays {
        values.chunks(50_000).try_for_each(|part| writer.append(name, part))?;
    }
    writer.finish()?;
    Ok(erases)
}

impl Scenario for Contents {
    fn prepare(&mut self, v: &Volume) -> Result<(), String> {
        self.prepared.iter().try_for_each(|step| step.run(v).map(drop))
    }

    fn overwrites(&self) -> bool {
        self.overwrites
    }

    fn disturb(&self, files: &mut [Vec<u8>]) {
        let (Some(seed), Some(last)) = (self.damage, files.last_mut()) else { return };
        let mut random = Random::new(seed);
        match random.below(3) {
            // An empty device in its place.
            0 => last.fill(0),
            // One that was there before everything but the superblocks' first bytes.
            1 => last[..1024].fill(0),
            _ => {
                for _ in 0..1 + random.below(8) {
                    // Behind the superblocks.
                    let at = 65_536 + random.below(200_000) as usize;
                    last[at..at + 512].iter_mut().for_each(|byte| *byte ^= 0x5a);
                }
            }
        }
    }

    fn run(&mut self, v: &Volume, log: &Log) -> Result<(), String> {
        if !self.is_repair() {
            self.snapshots.push(if self.overwrites { None } else { snapshot(v).map_err(text)? });
        }
        for step in self.steps.clone() {
            log.begun();
            let erases = step.run(v).map_err(|e| format!("{step:?} fails: {e}"))?;
            log.done();
            self.erases.push(erases);
            self.snapshots.push(snapshot(v).map_err(text)?);
        }
        if self.is_repair() {
            // Reads find damage before the repair. A repair changes no contents.
            self.snapshots.insert(0, self.snapshots[0].clone());
        }
        Ok(())
    }

    fn check(&self, v: &Volume, at: Progress) -> Result<&'static str, String> {
        if self.is_repair() {
            repair(v)?;
        }
        let allowed = &self.snapshots[at.done..=at.begun];
        let may_be_absent = allowed.iter().any(|s| s.is_none()) || self.erases[at.done..at.begun].contains(&true);
        let found = match snapshot(v) {
            Ok(found) => found,
            // The first superblock of all was torn. Then the user decides.
            Err(StorageError::Manifest {
                source: ManifestError::Checksum { .. } | ManifestError::Truncated { .. } | ManifestError::Member { .. },
                ..
            })
            | Err(StorageError::Unread { .. })
                if self.snapshots[..=at.done].iter().all(Option::is_none) =>
            {
                return Ok("refused");
            }
            Err(e) => return Err(format!("what was acknowledged cannot be read: {e}")),
        };
        let is_empty = found.as_ref().is_none_or(Snapshot::is_empty);
        let class = if found == allowed[0] {
            if at.begun == at.done { "acknowledged" } else { "before" }
        } else if allowed.last() == Some(&found) {
            "after"
        } else if is_empty && may_be_absent {
            "absent"
        } else {
            let names = |s: &Option<Snapshot>| s.as_ref().map(|s| s.keys().cloned().collect::<Vec<_>>());
            let allowed: Vec<_> = allowed.iter().map(names).collect();
            return Err(format!("{:?} is there, with other bytes or names than those of {allowed:?}", names(&found)));
        };
        if is_empty {
            return Ok(class);
        }
        let verified = v.verify(false).map_err(|e| format!("verification: {e}"))?;
        if !verified.is_intact() {
            return Err(format!("not intact: {verified:?}"));
        }
        for entry in stored_graphs(v).map_err(text)? {
            StoredGraph::open(v, &entry.name).and_then(|g| g.verify(v)).map_err(|e| format!("graph: {e}"))?;
        }
        for table in Table::list(v).map_err(text)? {
            let table = Table::open(v, &table.name).build().map_err(text)?;
            table.gather_to_vec::<u64>(&[0u64]).map_err(text)?;
        }
        Ok(class)
    }

    fn follow_up(&self, v: &Volume, random: &mut Random) -> Result<Box<dyn Scenario>, String> {
        let Ok(held) = snapshot(v) else {
            let steps = vec![Step::Store(random.below(1000))];
            return Ok(Box::new(Self { overwrites: true, ..Self::new(Vec::new(), steps) }));
        };
        let held = held.unwrap_or_default();
        let has = |name: &str| held.keys().any(|n| n.starts_with(name));
        let mut choices = self.steps.clone();
        choices.retain(|step| match step {
            Step::DeleteGraph => has("g/"),
            Step::DeleteTable => has("t:"),
            Step::Repair => false,
            _ => true,
        });
        choices.extend([Step::Import(random.below(1000)), Step::Table(random.below(1000))]);
        // The arrays of a large store leave no space beside them.
        if held.values().map(Vec::len).sum::<usize>() > 1 << 20 {
            choices = vec![Step::Store(random.below(1000))];
        }
        Ok(Box::new(Self::new(Vec::new(), vec![choices[random.below(choices.len() as u64) as usize]])))
    }
}
