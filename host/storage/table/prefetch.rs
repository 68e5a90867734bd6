//! Batches that are gathered while the program does something else.

use super::batch::Batch;
use super::{RowIndices, RowOutput, Table};
use crate::engine::{EngineError, NO_LIMIT, Stream};
use crate::storage::{DataBuffer, Element, StorageError};
use std::fmt;
use std::time::Duration;

/// A batch and its table. Dropping it waits for the batch, whose memory then serves another one.
struct InFlight {
    table: Table,
    batch: Option<Batch>,
    rows: u64,
}

impl InFlight {
    fn start(
        table: &Table,
        rows: u64,
        start: impl FnOnce(&mut Batch) -> Result<(), StorageError>,
    ) -> Result<Self, StorageError> {
        let mut batch = table.take_batch()?;
        let started = start(&mut batch);
        // Also after an error: then nothing is in flight, and the memory is used again.
        let this = Self { table: table.clone(), batch: Some(batch), rows };
        started.map(|()| this)
    }

    fn is_finished(&self) -> Result<bool, StorageError> {
        self.batch.as_ref().map_or(Ok(true), |batch| batch.is_finished(&self.table))
    }

    fn finish(&mut self, within: Duration) -> Result<(), StorageError> {
        self.batch.as_mut().map_or(Ok(()), |batch| batch.finish(&self.table, within))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(mut batch) = self.batch.take() else { return };
        // Waits inside the kernel have deadlines.
        if let Err(error) = batch.finish(&self.table, NO_LIMIT) {
            tracing::debug!(table = self.table.name(), %error, "a batch that nobody waited for failed");
        }
        self.table.give_back(batch);
    }
}

/// Rows on their way to memory of the table: [`Table::prefetch`]. Dropping it waits for the batch.
#[must_use = "dropping it waits for the rows; call take"]
pub struct Prefetch(InFlight);

/// Rows on their way to memory of the caller: [`Table::start`]. Dropping it waits for the batch, and loses its error.
#[must_use = "dropping it waits for the rows; call finish"]
pub struct Gathering(InFlight);

/// Rows of a batch, one behind the other, in memory near the kernels. Dropping it gives the memory back to the table, for
/// another batch. Drop it after the kernels that read it have ended.
pub struct GatheredRows(InFlight);

impl Prefetch {
    /// Returns true if [`Prefetch::take`] would not wait.
    ///
    /// # Errors
    /// As for [`Table::gather`], if the kernel broke.
    pub fn is_finished(&self) -> Result<bool, StorageError> {
        self.0.is_finished()
    }

    /// Waits at most `within` for the rows. Reads that have not ended by then are told to stop, and the call fails.
    ///
    /// # Errors
    /// As for [`Table::gather`]. [`StorageError::Run`] with [`RunError::TimedOut`](crate::engine::RunError::TimedOut) after
    /// the time limit.
    pub fn take(mut self, within: Duration) -> Result<GatheredRows, StorageError> {
        self.0.finish(within)?;
        Ok(GatheredRows(self.0))
    }
}

impl Gathering {
    /// Returns true if [`Gathering::finish`] would not wait.
    ///
    /// # Errors
    /// As for [`Table::gather`], if the kernel broke.
    pub fn is_finished(&self) -> Result<bool, StorageError> {
        self.0.is_finished()
    }

    /// Waits at most `within` for the rows, or for an error. Returns true if [`Gathering::finish`] is to be called. Reads that
    /// have not ended go on, so that a program can do something else in between.
    ///
    /// # Errors
    /// As for [`Gathering::is_finished`].
    pub fn wait(&self, within: Duration) -> Result<bool, StorageError> {
        self.0.batch.as_ref().map_or(Ok(true), |batch| batch.wait_for(&self.0.table, within))
    }

    /// Waits at most `within` for the rows. Reads that have not ended by then are told to stop, and the call fails. On a
    /// stream of the caller this waits for all kernels of the stream.
    ///
    /// # Errors
    /// As for [`Prefetch::take`]. [`RunError::Stopped`](crate::engine::RunError::Stopped) also if an earlier wait for the
    /// stream, of another batch or of the program, has returned an error: the rows may be incomplete then.
    pub fn finish(mut self, within: Duration) -> Result<(), StorageError> {
        self.0.finish(within)
    }
}

impl GatheredRows {
    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.0.rows
    }

    /// Returns the memory of the rows, which may be longer than they are; `None` without rows. Kernels get it as an
    /// argument.
    pub fn buffer(&self) -> Option<&DataBuffer> {
        self.0.batch.as_ref().and_then(Batch::own).filter(|_| self.0.rows > 0)
    }

    /// Returns the elements of all rows.
    ///
    /// # Errors
    /// [`TableError::Type`](super::TableError::Type) if the table holds elements of another type;
    /// [`StorageError::Memory`] if the copy fails.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, StorageError> {
        self.0.table.check_type(T::TYPE)?;
        let count = (self.rows() * self.0.table.layout().row_elements()) as usize;
        self.buffer().map_or_else(|| Ok(Vec::new()), |buffer| buffer.get_slice(0, count))
    }
}

impl Table {
    /// Starts to gather rows into memory of the table, on a stream of its own, and returns at once. Several batches may be
    /// in flight: each has memory of its own, which later batches use again.
    ///
    /// # Errors
    /// As for [`Table::gather`], as far as the call itself can tell.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use warpbell::engine::Engine;
    /// use warpbell::storage::{Drive, ElementType, OverwritePolicy, Table, Volume};
    ///
    /// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
    /// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
    /// let table = Table::create(&volume, "vectors", ElementType::F32, 64, 1000)?;
    ///
    /// let batches = [[1u64, 2, 3], [4, 5, 6], [7, 8, 9]];
    /// let mut next = table.prefetch(&batches[0])?;
    /// for batch in 1..=batches.len() {
    ///     let rows = next.take(Duration::from_secs(10))?;
    ///     if batch == batches.len() {
    ///         break;
    ///     }
    ///     // The next batch is read while a model works on this one.
    ///     next = table.prefetch(&batches[batch])?;
    ///     assert_eq!(rows.to_vec::<f32>()?, [0.0; 3 * 64]);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch<'a>(&self, indices: impl Into<RowIndices<'a>>) -> Result<Prefetch, StorageError> {
        let indices = indices.into();
        Ok(Prefetch(InFlight::start(self, indices.len(), |batch| batch.gather_to_own(self, indices))?))
    }

    /// Starts to gather rows into `out`, on a stream of its own, and returns at once. The memory is kept until the batch is
    /// over; its contents are undefined until then.
    ///
    /// # Errors
    /// As for [`Table::gather`], as far as the call itself can tell.
    pub fn start<'a>(
        &self,
        indices: impl Into<RowIndices<'a>>,
        out: impl Into<RowOutput<'a>>,
    ) -> Result<Gathering, StorageError> {
        let (indices, out) = (indices.into(), out.into());
        let start = |batch: &mut Batch| batch.start_gather(self, &self.0.view, indices, out, None);
        Ok(Gathering(InFlight::start(self, indices.len(), start)?))
    }

    /// Starts to gather rows into `out` behind all work on `stream`, and returns at once. Later work on the stream finds
    /// the rows there.
    ///
    /// # Errors
    /// [`StorageError::Engine`] if the stream belongs to another engine; otherwise as for [`Table::start`].
    pub fn start_on<'a>(
        &self,
        stream: &Stream,
        indices: impl Into<RowIndices<'a>>,
        out: impl Into<RowOutput<'a>>,
    ) -> Result<Gathering, StorageError> {
        if !stream.engine().is_same(self.volume().engine()) {
            return Err(EngineError::ForeignStream.into());
        }
        let (indices, out) = (indices.into(), out.into());
        let start = |batch: &mut Batch| batch.start_gather(self, &self.0.view, indices, out, Some(stream));
        Ok(Gathering(InFlight::start(self, indices.len(), start)?))
    }
}

impl fmt::Debug for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefetch({} rows of {:?})", self.0.rows, self.0.table)
    }
}

impl fmt::Debug for Gathering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gathering({} rows of {:?})", self.0.rows, self.0.table)
    }
}

impl fmt::Debug for GatheredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GatheredRows({} rows of {:?})", self.0.rows, self.0.table)
    }
}
