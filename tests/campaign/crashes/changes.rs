//! Changes of stored arrays: pages that a cache writes back, and rows that are scattered. After a loss of power each element has the
//! value of the last flush, or the one that was being written.

use super::image::Progress;
use super::recorder::Log;
use super::scenario::{Scenario, Snapshot, repair, snapshot, values};
use crate::random::Random;
use std::fmt::Display;
use warpbell::storage::{Cache, Combine, ManifestError, StorageError, Table, Volume};

const ELEMENTS: u64 = 12_000;
/// Array of the elements that change.
const ARRAY: &str = "a";
/// Array of the rows of the table `t`.
const ROWS: &str = "t:rows";

/// Method by which elements are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Elements of an array in a cache, which a flush of the cache writes back.
    Cache,
    /// Rows of a table with as many elements.
    Scatter(u64),
}

pub(super) struct Changes {
    method: Method,
    rounds: usize,
    random: Random,
    /// Elements before the first round, and after each.
    versions: Vec<Vec<u64>>,
    /// Arrays that do not change.
    others: Snapshot,
}

impl Changes {
    pub(super) fn new(method: Method, random: &mut Random) -> Self {
        let rounds = 1 + random.below(3) as usize;
        Self { method, rounds, random: Random::new(random.next()), versions: Vec::new(), others: Snapshot::new() }
    }

    fn name(&self) -> &'static str {
        if self.method == Method::Cache { ARRAY } else { ROWS }
    }

    /// Reads the array that changes, and compares all others with what they were.
    fn read(&self, v: &Volume) -> Result<Vec<u64>, StorageError> {
        let bytes = {
            let manifest = v.manifest()?;
            let entry = manifest
                .find(self.name())
                .map_err(|source| StorageError::Manifest { device: v.name().to_owned(), source })?;
            let mut bytes = vec![0; entry.bytes() as usize];
            v.read_array_bytes(&entry.name, entry.element_type, &mut bytes)?;
            bytes
        };
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    /// Returns an error if an element has no value that it may have.
    fn compare(&self, found: &[u64], at: Progress, how: &str) -> Result<(), String> {
        let allowed = &self.versions[at.done..=at.begun];
        let wrong = (0..found.len()).find(|i| allowed.iter().all(|version| version[*i] != found[*i]));
        if found.len() != allowed[0].len() {
            return Err(format!("{} elements instead of {}", found.len(), allowed[0].len()));
        }
        wrong.map_or(Ok(()), |i| {
            let version = self.versions.iter().position(|version| version[i] == found[i]);
            Err(format!("element {i} read {how} is not that of round {at:?}, but of {version:?}"))
        })
    }

    fn by_kernel(&self, v: &Volume) -> Result<Vec<u64>, StorageError> {
        match self.method {
            Method::Cache => {
                let array = Cache::on(v).bytes(64 << 10).build()?.open::<u64>(ARRAY)?;
                array.read(0..array.len())
            }
            Method::Scatter(each) => {
                let table = Table::open(v, "t").build()?;
                table.gather_to_vec::<u64>(&(0..ELEMENTS / each).collect::<Vec<_>>())
            }
        }
    }
}

fn text(e: impl Display) -> String {
    e.to_string()
}

impl Scenario for Changes {
    fn prepare(&mut self, v: &Volume) -> Result<(), String> {
        let elements = values(self.random.next(), ELEMENTS);
        match self.method {
            Method::Cache => drop(v.store_array(ARRAY, &elements).map_err(text)?),
            Method::Scatter(each) => {
                Table::from_rows(v, "t", &elements[..(ELEMENTS / each * each) as usize], each).map_err(text)?;
            }
        }
        let plan = warpbell::storage::Plan::new().array::<u64>("other", 5000);
        let mut writer = v.add(plan, "it").map_err(text)?;
        writer.append("other", &values(7, 5000)).map_err(text)?;
        writer.finish().map(drop).map_err(text)
    }

    fn run(&mut self, v: &Volume, log: &Log) -> Result<(), String> {
        let mut elements = self.read(v).map_err(text)?;
        self.others = snapshot(v).map_err(text)?.unwrap_or_default();
        self.others.remove(self.name());
        self.versions.push(elements.clone());
        let cache = Cache::on(v).bytes(32 << 10).build().map_err(text)?;
        let array = if self.method == Method::Cache { Some(cache.open::<u64>(ARRAY).map_err(text)?) } else { None };
        let table = if self.method == Method::Cache { None } else { Some(Table::open(v, "t").build().map_err(text)?) };
        for _ in 0..self.rounds {
            let (mut new, mut writes) = (elements.clone(), Vec::new());
            for _ in 0..1 + self.random.below(4) {
                let each = if let Method::Scatter(each) = self.method { each } else { 1 };
                let rows = elements.len() as u64 / each;
                let first = self.random.below(rows);
                let count = (1 + self.random.below(3000 / each + 1)).min(rows - first);
                let fresh = values(self.random.next(), count * each);
                new[(first * each) as usize..][..fresh.len()].copy_from_slice(&fresh);
                writes.push((first, count, fresh));
            }
            // A later write of the round wins, and no element has a value that was overwritten in between.
            for (first, count, fresh) in &mut writes {
                let (bytes, each) = (fresh.len(), fresh.len() / *count as usize);
                fresh.copy_from_slice(&new[*first as usize * each..][..bytes]);
            }
            self.versions.push(new.clone());
            log.begun();
            for (first, count, fresh) in &writes {
                if let Some(array) = &array {
                    array.write(*first, fresh).map_err(text)?;
                } else if let Some(table) = &table {
                    let indices: Vec<u64> = (*first..first + count).collect();
                    table.scatter(&indices, fresh, Combine::Last).map_err(text)?;
                }
            }
            if array.is_some() { cache.flush() } else { v.flush() }.map_err(text)?;
            log.done();
            elements = new;
        }
        Ok(())
    }

    fn check(&self, v: &Volume, at: Progress) -> Result<&'static str, String> {
        let is_idle = at.begun == at.done;
        let mut class = if is_idle { "acknowledged" } else { "changing" };
        match self.read(v) {
            Ok(found) => self.compare(&found, at, "by the host")?,
            Err(StorageError::Manifest { source: ManifestError::Interrupted { .. }, .. }) if !is_idle => {
                class = "interrupted";
            }
            Err(e) => return Err(format!("what was acknowledged cannot be read: {e}")),
        }
        match self.by_kernel(v) {
            Ok(found) => self.compare(&found, at, "by a kernel")?,
            Err(e) => return Err(format!("kernels cannot read it: {e}")),
        }
        for (name, bytes) in &self.others {
            let manifest = v.manifest().map_err(text)?;
            let entry = manifest.find(name).map_err(text)?;
            let mut found = vec![0; entry.bytes() as usize];
            v.read_array_bytes(name, entry.element_type, &mut found).map_err(|e| format!("{name}: {e}"))?;
            if found != *bytes {
                return Err(format!("{name}, which nobody has changed, has other bytes"));
            }
        }
        Ok(class)
    }

    fn follow_up(&self, v: &Volume, random: &mut Random) -> Result<Box<dyn Scenario>, String> {
        v.accept_changes().map_err(|e| format!("changes are not accepted: {e}"))?;
        repair(v)?;
        Ok(Box::new(Self::new(self.method, random)))
    }
}
