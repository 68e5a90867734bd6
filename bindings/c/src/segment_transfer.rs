//! Transfers of objects on a stream: waits for their groups and their end, outcomes of their objects.

use crate::error::{Error, WB_ERR_STATE, guard, wb_code};
use crate::object::object;
use crate::options;
use crate::pointer::{In, Out, Owned};
use crate::stream::wb_stream_t;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use warpbell::engine::{Engine, NO_LIMIT, RunError};
use warpbell::storage::{KvLoad, KvStoring, SegmentOutcome, SegmentQueue, SegmentTransfer, StorageError};

/// Objects on their way between a volume and memory. `wb_segment_queue_load`, `wb_segment_queue_store`, `wb_kv_load` and
/// `wb_kv_store` make it.
pub struct wb_segment_transfer_t {
    _private: (),
}

object!(wb_segment_transfer_t: Transfer, "segment transfer");

pub(crate) struct Transfer {
    engine: Engine,
    objects: usize,
    /// Number of groups that are complete from the beginning, as no object is transferred; otherwise 0.
    idle_groups: u32,
    state: Mutex<State>,
}

/// A transfer in flight, with the bytes of each object where the transfer itself does not know them.
pub(crate) enum Flight {
    Plain(SegmentTransfer, Vec<u64>),
    KvLoad(KvLoad),
    KvStore(KvStoring, Vec<u64>),
}

enum State {
    Flying(Flight),
    /// A thread waits in `wb_segment_transfer_finish`.
    Finishing,
    /// The outcome of each object.
    Finished(Vec<Result<u64, Error>>),
    Failed(Error),
    /// The kernel did not end when it was told to stop, and may still run.
    Stuck(Error),
}

impl Flight {
    fn transfer(&self) -> &SegmentTransfer {
        match self {
            Self::Plain(transfer, _) => transfer,
            Self::KvLoad(load) => load.transfer(),
            Self::KvStore(storing, _) => storing.transfer(),
        }
    }

    /// Waits for the transfer, and returns the outcome of each object.
    fn finish(self, within: Duration) -> Result<Vec<Result<u64, StorageError>>, StorageError> {
        match self {
            Self::Plain(transfer, sizes) => {
                let outcomes = transfer.finish(within)?;
                let check =
                    |outcome: &SegmentOutcome, bytes| outcome.check("a transfer of segments", bytes).map(|()| bytes);
                Ok(outcomes.iter().zip(sizes).map(|(outcome, bytes)| Ok(check(outcome, bytes)?)).collect())
            }
            Self::KvLoad(load) => load.finish(within),
            Self::KvStore(storing, sizes) => {
                storing.finish(within)?;
                Ok(sizes.into_iter().map(Ok).collect())
            }
        }
    }
}

impl Transfer {
    /// Makes a transfer of `objects` objects. `idle_groups` is the number of its groups if none of the objects is transferred.
    pub(crate) fn new(queue: &SegmentQueue, flight: Flight, objects: usize, idle_groups: u32) -> Self {
        let engine = queue.volume().engine().clone();
        Self { engine, objects, idle_groups, state: Mutex::new(State::Flying(flight)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a kernel between blocks and segments of memory of the program. Those of stores are waited for as they are dropped.
impl Drop for Transfer {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let State::Flying(flight @ Flight::Plain(..)) = mem::replace(state, State::Finishing) {
            // Each wait of the kernel has the deadline, and few follow each other. The outcomes are of no interest any more.
            let _ = flight.finish(self.engine.deadline().saturating_mul(4));
        }
    }
}

fn wrong_state(why: &str) -> Error {
    Error::new(WB_ERR_STATE, why)
}

/// Makes later work on a stream wait until a group of a transfer is complete: for loads, until its bytes are in memory; for stores,
/// until its memory may change again. It goes on, too, once the transfer has ended with an error. The host does not wait.
///
/// @param stream A stream of the engine of the transfer.
/// @param group A group of the memory of the transfer, such as a layer.
/// @return `WB_OK`, also for a load whose objects are all absent; `WB_ERR_ARGUMENT` if the transfer has no such group, or the stream
///   belongs to another engine; `WB_ERR_STATE` if the transfer is finished, or another thread finishes it; `WB_ERR_UNSUPPORTED` if the
///   stream is being captured.
/// @note `wb_segment_transfer_finish` says whether the bytes are what was stored. As with other work, the last release of a stream before
///   the wait is over stops the kernels of the engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_transfer_wait_group(
    transfer: In<wb_segment_transfer_t>,
    stream: In<wb_stream_t>,
    group: u32,
) -> wb_code {
    guard(|| {
        let (transfer, stream) = (transfer.get()?, stream.get()?);
        match &*transfer.state() {
            State::Flying(_) if (1..=group).contains(&transfer.idle_groups) => {
                let has = transfer.idle_groups;
                Err(Error::argument(format!("group {group} of a transfer that has {has}; give less")))
            }
            State::Flying(flight) => Ok(flight.transfer().wait_group(stream, group)?),
            State::Finishing => {
                Err(wrong_state("another thread finishes the transfer; wait for groups before it is finished"))
            }
            State::Finished(_) | State::Failed(_) | State::Stuck(_) => {
                Err(wrong_state("the transfer is finished; wait for groups before"))
            }
        }
    })
}

/// Returns true if a transfer has ended. Its outcomes are known after `wb_segment_transfer_finish`.
///
/// @param ended Receives 1 or 0. It stays 0 while another thread waits in `wb_segment_transfer_finish`, if the kernel did not end when it
///   was told to stop, and if the kernel did not run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_transfer_has_ended(
    transfer: In<wb_segment_transfer_t>,
    ended: Out<u32>,
) -> wb_code {
    guard(|| {
        let now = match &*transfer.get()?.state() {
            State::Flying(flight) => flight.transfer().is_ended(),
            State::Finishing | State::Stuck(_) => false,
            State::Finished(_) | State::Failed(_) => true,
        };
        ended.write("ended", u32::from(now))
    })
}

/// Waits for a transfer. The transfer is finished then, and `wb_segment_transfer_outcome` has the outcome of each object.
///
/// A load of a KV store compares each object with its checksum. A store of a KV store makes its objects durable and visible, all at
/// once, or none of them.
///
/// @param seconds Limit of the wait; 0 for none: waits inside kernels have deadlines. After the limit the kernel is told to stop. Objects
///   that are not transferred as a whole then have the error `WB_ERR_STOPPED`, as after `wb_engine_cancel`.
/// @param failed Receives the number of objects with an error. Objects that a load of a KV store did not find are among them; a store of a
///   KV store has none.
/// @return `WB_OK`, also if some objects have an error; `WB_ERR_TIMEOUT` or `WB_ERR_STOPPED` if the kernel did not begin before it was
///   told to stop, or an earlier wait for the stream has failed; `WB_ERR_STATE` if the transfer is finished already; `WB_ERR_KERNEL` if
///   the kernel broke, or did not end when it was told to stop. For a store of a KV store also the error of an object that was not
///   written: `WB_ERR_OPERATION` with device and LBA, `WB_ERR_TIMEOUT` if a device does not respond, `WB_ERR_STOPPED`; and otherwise as
///   `wb_kv_write`.
/// @note Unless the transfer has ended, this waits for all kernels of the stream of the queue. After an error the contents of the memory are
///   undefined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_transfer_finish(
    transfer: In<wb_segment_transfer_t>,
    seconds: f64,
    failed: Out<usize>,
) -> wb_code {
    guard(|| {
        failed.check("failed")?;
        let within = options::seconds(seconds, "seconds")?.unwrap_or(NO_LIMIT);
        let transfer = transfer.get()?;
        let flight = {
            let mut state = transfer.state();
            match mem::replace(&mut *state, State::Finishing) {
                State::Flying(flight) => flight,
                State::Finishing => {
                    return Err(wrong_state("another thread finishes the transfer; it is finished once"));
                }
                other => {
                    *state = other;
                    return Err(wrong_state("the transfer is finished already; a transfer is finished once"));
                }
            }
        };
        let convert = |e: StorageError| Error::from(e).on_engine(&transfer.engine);
        let (state, result) = match flight.finish(within) {
            Ok(outcomes) => {
                let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.map_err(convert)).collect();
                let count = outcomes.iter().filter(|outcome| outcome.is_err()).count();
                (State::Finished(outcomes), Ok(count))
            }
            Err(e) => {
                let is_stuck = matches!(e, StorageError::Run(RunError::Stuck { .. }));
                let error = convert(e);
                let state = if is_stuck { State::Stuck } else { State::Failed };
                (state(error.clone()), Err(error))
            }
        };
        *transfer.state() = state;
        failed.write("failed", result?)
    })
}

/// Returns the number of objects of a transfer: for a KV store that of the keys, whether or not there are objects.
///
/// @param objects Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_transfer_objects(
    transfer: In<wb_segment_transfer_t>,
    objects: Out<usize>,
) -> wb_code {
    guard(|| {
        let found = transfer.get()?.objects;
        objects.write("objects", found)
    })
}

/// Returns the bytes of an object of a finished transfer, or fails with the error of the object.
///
/// @param object Number of the object, from 0: its place in the list of objects or keys of the call.
/// @param bytes Receives the bytes, all of which were transferred.
/// @return `WB_OK`; the error of `wb_segment_transfer_finish` if that has failed; `WB_ERR_STATE` before; `WB_ERR_ARGUMENT` if there
///   are not so many objects. Errors of an object: `WB_ERR_NOT_FOUND` if the KV store has none with this key; `WB_ERR_DAMAGED` if the data
///   is not what was stored, whose memory has undefined content then; `WB_ERR_OPERATION`, or `WB_ERR_TIMEOUT` for a device that does not
///   respond, with device and LBA; `WB_ERR_STOPPED` if the object was not transferred as a whole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_transfer_outcome(
    transfer: In<wb_segment_transfer_t>,
    object: usize,
    bytes: Out<u64>,
) -> wb_code {
    guard(|| {
        bytes.check("bytes")?;
        let transfer = transfer.get()?;
        let found = match &*transfer.state() {
            State::Flying(_) | State::Finishing => {
                Err(wrong_state("the transfer is in flight; finish it before its outcomes are read"))
            }
            State::Failed(error) | State::Stuck(error) => Err(error.clone()),
            State::Finished(outcomes) => outcomes.get(object).cloned().unwrap_or_else(|| {
                let count = outcomes.len();
                Err(Error::argument(format!("`object` is {object}, and the transfer has {count} objects; give less")))
            }),
        };
        bytes.write("bytes", found?)
    })
}

/// Adds a reference to a transfer.
///
/// @return The transfer; null with an error if it is no segment transfer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_transfer_retain(
    transfer: Owned<wb_segment_transfer_t>,
) -> *mut wb_segment_transfer_t {
    transfer.retain()
}

/// Gives a reference to a transfer back. The last one of a transfer that is not finished waits for the kernel, at most four deadlines of
/// the engine. Objects that it was to store in a KV store do not appear.
///
/// @param transfer The transfer; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_segment_transfer_release(transfer: Owned<wb_segment_transfer_t>) {
    transfer.release()
}
