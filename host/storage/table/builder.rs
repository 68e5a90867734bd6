//! Opening of tables.

use super::geometry::RowReads;
use super::staging::Staging;
use super::tiers::{HotRows, RowCache, TableMemory};
use super::{Inner, Table, stats, stored};
use crate::engine::abi;
use crate::memory::Place;
use crate::storage::{StorageError, Volume};
use bytemuck::Zeroable;
use parking_lot::Mutex;
use std::sync::Arc;

/// Options of a table that is opened. See [`Table::open`].
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Drive, ElementType, OverwritePolicy, Table, Volume};
///
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
/// Table::create(&volume, "vectors", ElementType::F32, 64, 1000)?;
///
/// // Row 0 stays in memory near the kernels, beside a cache of 64 KiB. Another cache of 128 KiB is in host memory.
/// let table = Table::open(&volume, "vectors").hot_rows(&[0]).cache_bytes(64 << 10).host_cache_bytes(128 << 10).build()?;
/// table.gather_to_vec::<f32>(&[0u64, 1, 0])?;
/// let stats = table.stats()?;
/// assert_eq!((stats.hot_hits, stats.device_reads), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct TableBuilder {
    volume: Volume,
    name: String,
    in_flight: Option<u32>,
    warps: Option<u32>,
    cache: u64,
    host_cache: u64,
    hot: Vec<u64>,
}

impl TableBuilder {
    pub(super) fn new(volume: &Volume, name: &str) -> Self {
        let (volume, name) = (volume.clone(), name.to_owned());
        Self { volume, name, in_flight: None, warps: None, cache: 0, host_cache: 0, hot: Vec::new() }
    }

    /// Sets the number of reads that a batch has in flight, all warps of its kernel together. The default is 8192, or
    /// as many as the queues of the volume hold. Rows that need staging memory have fewer: a batch gets 64 MiB
    /// of it at most, and less while others are in flight.
    pub fn in_flight(mut self, reads: u32) -> Self {
        self.in_flight = Some(reads);
        self
    }

    /// Sets the number of warps of a batch's kernel, at least 1. The default is 8 for each multiprocessor of a GPU, which
    /// leave room for other kernels, and the warps that run at once on CPU threads. With fewer warps each has more reads
    /// in flight, up to 32.
    pub fn warps(mut self, warps: u32) -> Self {
        self.warps = Some(warps);
        self
    }

    /// Sets the memory of the row cache near the kernels, in bytes of rows. The default is 0: there is none. Metadata
    /// takes another 9 bytes for each row. A row enters a full cache when it is missed the second time, in place of the
    /// least used one.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache = bytes;
        self
    }

    /// Sets the memory of a row cache in pinned host memory, in bytes of rows. The default is 0: there is none. Its
    /// metadata is near the kernels and takes 9 bytes for each row. Rows that are often found there enter the cache
    /// near the kernels.
    pub fn host_cache_bytes(mut self, bytes: u64) -> Self {
        self.host_cache = bytes;
        self
    }

    /// Sets the rows that stay in memory near the kernels. [`TableBuilder::build`] reads them. The default is none.
    pub fn hot_rows(mut self, rows: &[u64]) -> Self {
        self.hot = rows.to_vec();
        self
    }

    /// Opens the table.
    ///
    /// # Errors
    /// * [`StorageError::Table`] if the volume holds no such table, or a damaged one, or not one of the hot rows.
    /// * [`StorageError::Option`] if the memory of a cache holds fewer than 16 rows.
    /// * [`StorageError::Manifest`] if the volume's content cannot be read; [`StorageError::Nvme`] if a device fails.
    /// * [`StorageError::Memory`] if memory cannot be allocated; [`StorageError::Run`] if the hot rows cannot be read.
    pub fn build(self) -> Result<Table, StorageError> {
        let Self { volume, name, in_flight, warps, cache, host_cache, hot } = self;
        let place = stored::place(&volume, &name)?;
        let layout = place.layout;
        let reads = RowReads::new(&volume, &layout);
        let engine = volume.engine();
        let mut memory = TableMemory::new(engine)?;
        let mut view = abi::TableView {
            volume: volume.address(),
            stats: memory.stats.address(),
            first: place.first,
            rows: layout.rows(),
            row_bytes: layout.row_bytes() as u32,
            part_blocks: reads.blocks,
            parts: reads.count,
            ..abi::TableView::zeroed()
        };
        for (tier, (bytes, place)) in [(cache, Place::Device), (host_cache, Place::Host)].into_iter().enumerate() {
            if bytes > 0 {
                let cache = RowCache::new(engine, &name, &layout, bytes, place)?;
                view.cache[tier] = cache.view();
                memory.caches.push(cache);
            }
        }
        if !hot.is_empty() {
            let hot = HotRows::new(engine, &name, &layout, &hot)?;
            hot.enter(&mut view);
            memory.hot = Some(hot);
        }
        let (batches, writer, stale) = (Mutex::default(), Mutex::default(), Mutex::new(false));
        let staging = Staging::default();
        let _metrics = stats::register(&name, volume.name(), memory.stats.clone());
        let inner = Inner {
            _metrics,
            name,
            layout,
            reads,
            view,
            in_flight,
            warps,
            batches,
            staging,
            writer,
            stale,
            memory,
            volume,
        };
        let table = Table(Arc::new(inner));
        table.read_hot_rows()?;
        table.reset_stats()?;
        Ok(table)
    }
}
