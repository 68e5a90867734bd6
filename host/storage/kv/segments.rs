//! Objects that kernels move between the volume and segments of memory, without the host.

use super::checksum::of_terms;
use super::layout::slab_of;
use super::{KvKey, KvObject, KvPins, KvReservation, KvStore};
use crate::storage::error::{KvError, StorageError};
use crate::storage::volume::{Extent, SegmentList, SegmentOutcome, SegmentQueue, SegmentTransfer};
use std::time::Duration;

/// Objects on their way into segments of memory. They are pinned until then. Dropping it waits for the kernel.
#[must_use = "`finish` compares what was loaded with its checksums"]
pub struct KvLoad {
    store: KvStore,
    keys: Vec<KvKey>,
    /// `None` once they are kept until the volume is opened again.
    pins: Option<KvPins>,
    under_way: UnderWay,
}

/// Objects on their way from segments of memory into reserved space. Dropping it waits for the kernel, and gives the space back.
#[must_use = "`finish` makes the objects appear"]
pub struct KvStoring {
    reservation: Option<KvReservation>,
    bytes: Vec<u64>,
    under_way: UnderWay,
}

/// A transfer that is waited for when it is dropped.
struct UnderWay {
    transfer: SegmentTransfer,
    was_waited_for: bool,
    /// Longest time for which a drop waits.
    limit: Duration,
}

impl UnderWay {
    fn new(transfer: SegmentTransfer, queue: &SegmentQueue) -> Self {
        // Every wait of the kernel has the deadline, and few follow each other once a device is late.
        let limit = queue.volume().engine().deadline().saturating_mul(4);
        Self { transfer, was_waited_for: false, limit }
    }

    /// Waits at most `within`, or the limit. An error says that the kernel may not have ended.
    fn wait(&mut self, within: Option<Duration>) -> Result<Vec<SegmentOutcome>, StorageError> {
        self.was_waited_for = true;
        self.transfer.wait(within.unwrap_or(self.limit))
    }
}

impl KvStore {
    /// Adds to the queue's stream a kernel that loads objects into segments of memory. `list` adds each object that is there to the list:
    /// by [`SegmentList::page`] or [`SegmentList::object`], with the object's extents. It gets the place of the key among `keys`. Each key
    /// counts as a hit or a miss.
    ///
    /// Kernels that are launched on the stream afterwards find the data. Whether it is what was stored is known once
    /// [`KvLoad::finish`] returns.
    ///
    /// # Errors
    /// * [`StorageError::Option`] if the queue is of another volume, or `list` does not add each object once with its bytes; whatever `list`
    ///   returns.
    /// * [`KvError::Removed`] if the volume holds the store no more; as for [`KvStore::pin`] and [`SegmentQueue::load`].
    pub fn load(
        &self,
        queue: &SegmentQueue,
        keys: &[KvKey],
        mut list: impl FnMut(&mut SegmentList, usize, &KvObject) -> Result<(), StorageError>,
    ) -> Result<KvLoad, StorageError> {
        self.check_queue(queue)?;
        let pins = self.pin(keys)?;
        let mut segments = SegmentList::new();
        let mut added = 0;
        for (i, object) in pins.objects().iter().enumerate() {
            let Some(object) = object else { continue };
            list(&mut segments, i, object)?;
            added += 1;
            self.check_listed(&segments, added, (i, &keys[i], object.bytes))?;
        }
        let transfer = self.launch(queue, true, segments)?;
        let under_way = UnderWay::new(transfer, queue);
        Ok(KvLoad { store: self.clone(), keys: keys.to_vec(), pins: Some(pins), under_way })
    }

    /// Reserves space for objects and adds to the queue's stream a kernel that stores them from segments of memory. `list` adds each
    /// object to the list, with its extents, as for [`Self::load`]. The objects appear when [`KvStoring::finish`] returns.
    ///
    /// # Errors
    /// As for [`Self::load`], [`KvStore::reserve`] and [`SegmentQueue::store`].
    pub fn store(
        &self,
        queue: &SegmentQueue,
        objects: &[(KvKey, u64)],
        mut list: impl FnMut(&mut SegmentList, usize, &[Extent]) -> Result<(), StorageError>,
    ) -> Result<KvStoring, StorageError> {
        self.check_queue(queue)?;
        let reservation = self.reserve(objects)?;
        let mut segments = SegmentList::new();
        for (i, (extents, (key, bytes))) in reservation.extents().iter().zip(objects).enumerate() {
            list(&mut segments, i, extents)?;
            self.check_listed(&segments, i + 1, (i, key, *bytes))?;
        }
        let transfer = self.launch(queue, false, segments)?;
        let bytes = objects.iter().map(|(_, bytes)| *bytes).collect();
        Ok(KvStoring { reservation: Some(reservation), bytes, under_way: UnderWay::new(transfer, queue) })
    }

    /// Launches a transfer of objects. The volume keeps the store's place until it has ended.
    fn launch(&self, queue: &SegmentQueue, loads: bool, list: SegmentList) -> Result<SegmentTransfer, StorageError> {
        let medium = &self.0.medium;
        medium.check()?;
        queue.launch_within(&slab_of(self.name()), loads, |entry| match medium.data_is_at(entry.offset) {
            true => Ok(list),
            false => Err(KvError::Removed { name: self.name().to_owned() }.into()),
        })
    }

    fn check_queue(&self, queue: &SegmentQueue) -> Result<(), StorageError> {
        if queue.volume().is_same(self.volume()) {
            return Ok(());
        }
        let (ours, theirs) = (self.volume().name(), queue.volume().name());
        Err(StorageError::Option(format!(
            "KV store `{}` is on {ours}, and the queue is for {theirs}; make a queue for the store's volume",
            self.name()
        )))
    }

    /// Checks that the last object of a list, which has so many then, is that of a key: its place among the keys, and its bytes.
    fn check_listed(
        &self,
        list: &SegmentList,
        objects: usize,
        (place, key, bytes): (usize, &KvKey, u64),
    ) -> Result<(), StorageError> {
        let wrong = match list.last_bytes() {
            Some(last) if list.len() == objects && last == bytes => return Ok(()),
            Some(last) if list.len() == objects => format!(
                "has {bytes} bytes, and its memory {last}; give memory of its size, like that which it was stored from"
            ),
            _ => format!("was to be object {objects} of a list that has {}; add each object once", list.len()),
        };
        let name = self.name();
        Err(StorageError::Option(format!("KV store `{name}`: the object of key {place}, {key}, {wrong}")))
    }
}

impl KvLoad {
    /// Returns the transfer: its groups, and whether it has ended.
    pub fn transfer(&self) -> &SegmentTransfer {
        &self.under_way.transfer
    }

    /// Waits at most `within` for the stream, compares each object with its checksum, and returns its bytes in the order of the keys.
    ///
    /// # Errors
    /// The outer error is that of [`SegmentTransfer::finish`]. The inner one is [`KvError::Absent`] for a key without an object,
    /// [`KvError::Data`] for one whose data is damaged, and [`StorageError::Run`] for one of which a command failed. The memory of
    /// such an object has undefined content.
    pub fn finish(mut self, within: Duration) -> Result<Vec<Result<u64, StorageError>>, StorageError> {
        let outcomes = self.wait(Some(within))?;
        let mut outcomes = outcomes.iter();
        let objects = self.pins.as_ref().map_or(&[][..], KvPins::objects);
        let judged = self.keys.iter().zip(objects).map(|(key, object)| {
            let (name, key) = (self.store.name().to_owned(), key.to_string());
            // Outcomes are those of the objects that are there.
            let Some((object, outcome)) = object.as_ref().and_then(|object| Some((object, outcomes.next()?))) else {
                return Err(KvError::Absent { name, key }.into());
            };
            let (bytes, stored) = (object.bytes, object.checksum);
            outcome.check("a load of objects", bytes)?;
            let computed = of_terms(bytes, outcome.terms);
            if computed == stored {
                return Ok(bytes);
            }
            let offset = object.extents.first().map_or(0, |extent| extent.block << self.store.volume().block_shift());
            Err(KvError::Data { name, key, bytes, offset, stored, computed }.into())
        });
        Ok(judged.collect())
    }

    /// Waits for the kernel. If it may not have ended, the objects stay pinned: it would read what takes their place.
    fn wait(&mut self, within: Option<Duration>) -> Result<Vec<SegmentOutcome>, StorageError> {
        self.under_way.wait(within).inspect_err(|error| {
            if self.under_way.transfer.is_over() {
                return;
            }
            tracing::warn!(store = self.store.name(), %error, "objects stay pinned: a load of them may not have ended");
            self.pins.take().into_iter().for_each(KvPins::abandon);
        })
    }
}

impl Drop for KvLoad {
    fn drop(&mut self) {
        if !self.under_way.was_waited_for {
            // The outcomes are of no interest any more, and `wait` has told of an error.
            let _ = self.wait(None);
        }
    }
}

impl KvStoring {
    /// Returns the transfer: its groups, whose segments may change again once they are complete, and whether it has ended.
    pub fn transfer(&self) -> &SegmentTransfer {
        &self.under_way.transfer
    }

    /// Waits at most `within` for the stream, and makes the objects durable and visible, all at once.
    ///
    /// # Errors
    /// That of [`SegmentTransfer::finish`]; [`StorageError::Run`] if a command failed; as for [`KvReservation::commit`]. No object appears
    /// then.
    pub fn finish(mut self, within: Duration) -> Result<(), StorageError> {
        let outcomes = self.wait(Some(within))?;
        outcomes.iter().zip(&self.bytes).try_for_each(|(o, bytes)| o.check("a store of objects", *bytes))?;
        let checksums: Vec<u64> =
            outcomes.iter().zip(&self.bytes).map(|(o, bytes)| of_terms(*bytes, o.terms)).collect();
        self.reservation.take().map_or(Ok(()), |reservation| reservation.commit(&checksums))
    }

    /// Waits for the kernel. The space stays reserved if that may not have ended, or a device may still write to it.
    fn wait(&mut self, within: Option<Duration>) -> Result<Vec<SegmentOutcome>, StorageError> {
        let waited = self.under_way.wait(within);
        let has_ended = waited.as_ref().is_ok_and(|outcomes| outcomes.iter().all(|outcome| outcome.given_up == 0));
        if let Some(reservation) = self.reservation.take_if(|_| !has_ended) {
            tracing::warn!(
                ?reservation,
                "space stays reserved until the volume is opened again: a device may still write to it"
            );
            reservation.abandon();
        }
        waited
    }
}

impl Drop for KvStoring {
    fn drop(&mut self) {
        if !self.under_way.was_waited_for {
            // The outcomes are of no interest any more: no object appears.
            let _ = self.wait(None);
        }
    }
}

impl std::fmt::Debug for KvLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KvLoad({} keys of {:?})", self.keys.len(), self.store)
    }
}

impl std::fmt::Debug for KvStoring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KvStoring({} objects, {:?})", self.bytes.len(), self.reservation)
    }
}
