//! Sorted runs of arcs in a temporary file.

use super::spill::{Spill, SpillError};
use crate::graph::build::{Arc, EdgeWeight};
use crate::graph::csr::VertexId;
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::path::Path;

/// Arcs between two samples of a run.
pub(super) const SAMPLE: u64 = 1 << 10;

/// Both ends of an arc: what runs are sorted by, and what makes two arcs duplicates.
pub(crate) type Key<V> = [V; 2];

pub(super) fn key<V: VertexId, W>(arc: &Arc<V, W>) -> Key<V> {
    [arc.from, arc.to]
}

/// Compares arcs by their ends, and equal ones by weight, so that the lightest of several comes first.
pub(super) fn order<V: VertexId, W: EdgeWeight>(a: &Arc<V, W>, b: &Arc<V, W>) -> Ordering {
    // End by end: comparing them as arrays takes several times as long where the compiler does not inline.
    match a.from.cmp(&b.from) {
        Ordering::Equal => match a.to.cmp(&b.to) {
            // Weights are never NaN, so comparing them is a total order.
            Ordering::Equal => a.weight.partial_cmp(&b.weight).unwrap_or(Ordering::Equal),
            ends => ends,
        },
        ends => ends,
    }
}

/// Returns the size of an arc in the file.
fn arc_bytes<V: VertexId, W: EdgeWeight>() -> usize {
    2 * size_of::<V>() + size_of::<W>()
}

/// Runs of arcs, each sorted and without duplicates.
pub(crate) struct Runs<V, W> {
    file: Spill,
    runs: Mutex<Vec<Run<V>>>,
    of: PhantomData<W>,
}

/// Place of a run in the file.
struct Run<V> {
    at: u64,
    len: u64,
    /// Key of each [`SAMPLE`]-th arc, beginning with the first.
    samples: Vec<Key<V>>,
}

impl<V: VertexId, W: EdgeWeight> Runs<V, W> {
    pub(crate) fn create(folder: &Path) -> Result<Self, SpillError> {
        Ok(Self { file: Spill::create(folder)?, runs: Mutex::default(), of: PhantomData })
    }

    /// Sorts arcs, drops duplicates, and writes the rest as a run.
    pub(crate) fn add(&self, arcs: &mut Vec<Arc<V, W>>) -> Result<(), SpillError> {
        arcs.sort_unstable_by(order);
        arcs.dedup_by_key(|arc| key(arc));
        if arcs.is_empty() {
            return Ok(());
        }
        // A share at a time is encoded, so that the arcs are not there twice. The place is reserved as a whole.
        let samples = arcs.iter().step_by(SAMPLE as usize).map(key).collect();
        let mut writer = self.file.reserve((arcs.len() * arc_bytes::<V, W>()) as u64);
        let at = writer.offset();
        let mut bytes = Vec::with_capacity(arc_bytes::<V, W>() << 14);
        for share in arcs.chunks(1 << 14) {
            bytes.clear();
            for arc in share {
                bytes.extend_from_slice(bytemuck::bytes_of(&arc.from));
                bytes.extend_from_slice(bytemuck::bytes_of(&arc.to));
                bytes.extend_from_slice(bytemuck::bytes_of(&arc.weight));
            }
            writer.write(&bytes)?;
        }
        self.runs.lock().push(Run { at, len: arcs.len() as u64, samples });
        Ok(())
    }

    /// Ends writing.
    pub(crate) fn finish(self) -> Sorted<V, W> {
        Sorted { file: self.file, runs: self.runs.into_inner(), of: self.of }
    }
}

/// Runs that are complete.
pub(crate) struct Sorted<V, W> {
    file: Spill,
    runs: Vec<Run<V>>,
    of: PhantomData<W>,
}

impl<V: VertexId, W: EdgeWeight> Sorted<V, W> {
    /// Returns the keys of all samples, each of which stands for at most [`SAMPLE`] arcs.
    pub(super) fn samples(&self) -> impl Iterator<Item = Key<V>> + '_ {
        self.runs.iter().flat_map(|run| run.samples.iter().copied())
    }

    /// Returns the arcs of all runs whose keys are at least `low` and below `high`, sorted and without duplicates. `None`
    /// sets no bound.
    pub(super) fn between(&self, low: Option<Key<V>>, high: Option<Key<V>>) -> Result<Vec<Arc<V, W>>, SpillError> {
        let mut arcs = Vec::new();
        self.runs.iter().try_for_each(|run| self.load(run, low, high, &mut arcs))?;
        // A stable sort finds the runs and merges them.
        arcs.sort_by(order);
        arcs.dedup_by_key(|arc| key(arc));
        Ok(arcs)
    }

    /// Appends the arcs of a run within bounds.
    fn load(
        &self,
        run: &Run<V>,
        low: Option<Key<V>>,
        high: Option<Key<V>>,
        to: &mut Vec<Arc<V, W>>,
    ) -> Result<(), SpillError> {
        // The first arc of at least a bound lies in front of the first sample of at least the bound.
        let first = low.map_or(0, |low| run.samples.partition_point(|s| *s < low).saturating_sub(1) as u64 * SAMPLE);
        let last = high.map_or(run.len, |high| run.len.min(run.samples.partition_point(|s| *s < high) as u64 * SAMPLE));
        if first >= last {
            return Ok(());
        }
        let (width, size) = (size_of::<V>(), arc_bytes::<V, W>());
        let mut bytes = vec![0; (last - first) as usize * size];
        self.file.read(run.at + first * size as u64, &mut bytes)?;
        let arcs = bytes.chunks_exact(size).map(|b| Arc {
            from: bytemuck::pod_read_unaligned(&b[..width]),
            to: bytemuck::pod_read_unaligned(&b[width..2 * width]),
            weight: bytemuck::pod_read_unaligned(&b[2 * width..]),
        });
        to.extend(
            arcs.skip_while(|a| low.is_some_and(|low| key(a) < low))
                .take_while(|a| high.is_none_or(|high| key(a) < high)),
        );
        Ok(())
    }
}
