//! Opening of tables.

use super::geometry::Parts;
use super::{Inner, Table, stored};
use crate::engine::abi;
use crate::memory::Place;
use crate::storage::{StorageError, Volume};
use bytemuck::Zeroable;
use parking_lot::Mutex;
use std::sync::Arc;

/// Options of a table that is opened. See [`Table::open`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct TableBuilder {
    volume: Volume,
    name: String,
    in_flight: Option<u32>,
}

impl TableBuilder {
    pub(super) fn new(volume: &Volume, name: &str) -> Self {
        Self { volume: volume.clone(), name: name.to_owned(), in_flight: None }
    }

    /// Sets the number of reads that a batch has in flight, all warps of its kernel together. The default is 8192, or
    /// as many as the queues of the volume hold. Rows that need staging memory have fewer: it takes 64 MiB at most.
    pub fn in_flight(mut self, reads: u32) -> Self {
        self.in_flight = Some(reads);
        self
    }

    /// Opens the table.
    ///
    /// # Errors
    /// * [`StorageError::Table`] if the volume holds no such table, or a damaged one.
    /// * [`StorageError::Manifest`] if the volume's content cannot be read; [`StorageError::Nvme`] if a device fails.
    /// * [`StorageError::Memory`] if memory cannot be allocated.
    pub fn build(self) -> Result<Table, StorageError> {
        let Self { volume, name, in_flight } = self;
        let place = stored::place(&volume, &name)?;
        let layout = place.layout;
        let parts = Parts::new(&volume, &layout);
        let stats = volume.engine().allocate(Place::Device, size_of::<abi::TableStats>() * abi::STATS_STRIPES)?;
        let view = abi::TableView {
            volume: volume.address(),
            stats: stats.address(),
            first: place.first,
            rows: layout.rows(),
            row_bytes: layout.row_bytes() as u32,
            part_blocks: parts.blocks,
            parts: parts.count,
            ..abi::TableView::zeroed()
        };
        let (batches, _memory) = (Mutex::default(), vec![stats]);
        Ok(Table(Arc::new(Inner { name, layout, parts, view, in_flight, batches, _memory, volume })))
    }
}
