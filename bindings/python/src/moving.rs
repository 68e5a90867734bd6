//! Transfers of segments that are in flight: their streams, their end, their outcome.

use crate::call::{self, InFlight, Shared};
use crate::engine::seconds;
use crate::error::{Failure, Kind};
use crate::fork;
use crate::held::Held;
use crate::stream::{self, Stream};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use warpbell::engine::NO_LIMIT;
use warpbell::storage::{KvLoad, KvStoring, SegmentQueue, SegmentTransfer};

/// Time in which a transfer ends that was told to stop.
const STOP_WITHIN: Duration = Duration::from_secs(5);
/// Waits of the kernel, each with the engine's deadline, that follow each other once a device is late.
const LATE_WAITS: u32 = 4;
/// Longest time from the end of a transfer to that of its kernel.
const END_WITHIN: Duration = Duration::from_millis(20);
/// Shortest and longest time between two looks at a transfer.
const LOOK: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// Looks until `is_over` returns true, at most `within`. Returns true if it did.
fn look_until(within: Duration, mut is_over: impl FnMut() -> bool) -> bool {
    let (begun, (mut pause, longest)) = (Instant::now(), LOOK);
    while !is_over() {
        let left = within.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return false;
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(longest);
    }
    true
}

/// Returns true if the work of a stream is over, or has failed.
fn has_ended(stream: &warpbell::engine::Stream) -> bool {
    stream.is_finished().unwrap_or(true)
}

/// A queue of the library, with the streams that its transfers concern.
pub(crate) struct Queue {
    queue: SegmentQueue,
    /// True if the program has the stream, too, and waits for it.
    is_shared: bool,
    /// Transfers that were not finished.
    flying: AtomicUsize,
    /// Streams of other libraries that wait for groups. To drop one before its waits are over stops all kernels of the engine.
    waiting: Mutex<Vec<warpbell::engine::Stream>>,
    /// Likewise streams of the engine that the program has, too, and may drop at any time. Their errors are the program's.
    waiting_own: Mutex<Vec<warpbell::engine::Stream>>,
}

impl Queue {
    pub(crate) fn new(queue: SegmentQueue, is_shared: bool) -> Self {
        Self { queue, is_shared, flying: AtomicUsize::new(0), waiting: Mutex::default(), waiting_own: Mutex::default() }
    }

    pub(crate) fn get(&self) -> &SegmentQueue {
        &self.queue
    }

    /// Makes later transfers wait for all work that is on a stream now.
    pub(crate) fn begin_behind(&self, other: Option<&warpbell::engine::Stream>) -> Result<(), Failure> {
        let stream = self.queue.stream();
        match other {
            Some(other) if stream.raw().is_none() || other.raw() != stream.raw() => Ok(stream.wait_for(other)?),
            _ => Ok(()),
        }
    }

    /// Makes a stream wait for a group of a transfer.
    fn wait_group(
        &self,
        transfer: &SegmentTransfer,
        stream: warpbell::engine::Stream,
        is_own: bool,
        group: u32,
    ) -> Result<(), Failure> {
        if is_own {
            let added = transfer.wait_group(&stream, group);
            let mut own = self.waiting_own.lock();
            if !own.iter().any(|known| known.is_same(&stream)) {
                own.push(stream);
            }
            return Ok(added?);
        }
        let mut waiting = self.waiting.lock();
        let known = waiting.iter().find(|known| known.raw() == stream.raw()).cloned();
        let is_known = known.is_some();
        let stream = known.unwrap_or(stream);
        let added = transfer.wait_group(&stream, group);
        if !is_known {
            waiting.push(stream);
        }
        Ok(added?)
    }

    /// Notes that nobody waits for a transfer any more. Releases what streams keep for those that have ended, and lets the engine be idle.
    fn note_end(&self, has_ended: bool) {
        let is_last = self.flying.fetch_sub(1, Ordering::AcqRel) == 1;
        let tell = |stream: &warpbell::engine::Stream| {
            stream.collect().unwrap_or_else(|error| {
                tracing::warn!(%error, "other work on the stream of a queue failed");
                true
            })
        };
        if !self.is_shared {
            // A kernel says that its transfer has ended, and ends a moment later.
            let within = if is_last && has_ended { END_WITHIN } else { Duration::ZERO };
            look_until(within, || tell(self.queue.stream()));
        }
        self.waiting.lock().retain(|stream| !tell(stream));
        self.release_own();
    }

    /// Drops the streams of the engine whose work is over, without the lock.
    fn release_own(&self) {
        let mut own = self.waiting_own.lock();
        let (over, busy) = own.drain(..).partition::<Vec<_>, _>(has_ended);
        *own = busy;
        drop(own);
        drop(over);
    }

    /// Returns the longest time for which the end of an object waits for its transfers.
    fn limit(&self) -> Duration {
        self.queue.volume().engine().deadline().saturating_mul(LATE_WAITS)
    }
}

impl InFlight for Held<Queue> {
    fn wait(&self, _: Duration) -> bool {
        true
    }

    fn complete(&self) {
        let streams: Vec<_> = self.waiting.lock().drain(..).collect();
        for stream in streams.iter().chain((!self.is_shared).then(|| self.queue.stream())) {
            // Transfers tell of their errors themselves.
            let _ = stream.synchronize(STOP_WITHIN);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let limit = self.limit();
        // The end of a stream with work in flight stops all kernels of its engine.
        if !self.is_shared {
            look_until(limit, || has_ended(self.queue.stream()));
        }
        let waiting = self.waiting.get_mut();
        look_until(limit, || waiting.iter().all(has_ended));
        // These may have other work, too, which the program has to wait for.
        let own = self.waiting_own.get_mut();
        look_until(END_WITHIN, || own.iter().all(has_ended));
    }
}

/// A transfer of the library.
pub(crate) enum Moving {
    /// Bytes of a stored array, and their number.
    Array(SegmentTransfer, u64),
    Load(KvLoad),
    /// Objects, and the bytes of each.
    Store(KvStoring, Vec<u64>),
}

/// Bytes of each object, or its error.
type Moved = Vec<Result<u64, Failure>>;

impl Moving {
    fn transfer(&self) -> &SegmentTransfer {
        match self {
            Self::Array(transfer, _) => transfer,
            Self::Load(load) => load.transfer(),
            Self::Store(storing, _) => storing.transfer(),
        }
    }

    fn finish(self, within: Duration) -> Result<Moved, Failure> {
        match self {
            Self::Array(transfer, bytes) => {
                transfer.finish_array(bytes, within)?;
                Ok(vec![Ok(bytes)])
            }
            Self::Load(load) => Ok(load.finish(within)?.into_iter().map(|one| one.map_err(Failure::from)).collect()),
            Self::Store(storing, bytes) => {
                storing.finish(within)?;
                Ok(bytes.into_iter().map(Ok).collect())
            }
        }
    }
}

enum State {
    Flying(Box<Moving>),
    Landed(Result<Moved, Failure>),
    Taken,
}

/// A transfer in flight.
pub(crate) struct Flight {
    state: Mutex<State>,
    /// Set before a thread takes the lock to finish the transfer: it may have it for long.
    is_landing: AtomicBool,
    groups: u32,
    queue: Arc<Held<Queue>>,
}

impl Flight {
    /// Returns true if the transfer has ended, or never will.
    fn is_over(&self) -> bool {
        // Other threads that look have the lock for a moment.
        let state = loop {
            if self.is_landing.load(Ordering::Acquire) {
                return true;
            }
            if let Some(state) = self.state.try_lock_for(LOOK.1) {
                break state;
            }
        };
        match &*state {
            State::Flying(moving) => {
                moving.transfer().is_ended() || self.queue.queue.stream().is_finished().unwrap_or(true)
            }
            _ => true,
        }
    }

    /// Waits at most `within` for the transfer, checks and publishes what it has moved.
    fn land(&self, within: Duration) {
        self.is_landing.store(true, Ordering::Release);
        let mut state = self.state.lock();
        *state = match std::mem::replace(&mut *state, State::Taken) {
            State::Flying(moving) => {
                let volume = self.queue.queue.volume();
                let moved = moving.finish(within).map_err(|failure| failure.on(volume));
                let named = |one: Result<u64, Failure>| one.map_err(|failure| failure.on(volume));
                self.queue.note_end(true);
                State::Landed(moved.map(|all| all.into_iter().map(named).collect()))
            }
            other => other,
        };
    }

    fn take(&self) -> Result<Moved, Failure> {
        match std::mem::replace(&mut *self.state.lock(), State::Taken) {
            State::Landed(moved) => moved,
            _ => Err(Failure::new(Kind::Internal, "a transfer without outcome")),
        }
    }

    fn wait_group(&self, stream: warpbell::engine::Stream, is_own: bool, group: u32) -> Result<(), Failure> {
        if group >= self.groups {
            let text = format!("group {group} of a transfer that has {}; give less", self.groups);
            return Err(Failure::invalid(text));
        }
        match &*self.state.lock() {
            State::Flying(moving) => self.queue.wait_group(moving.transfer(), stream, is_own, group),
            // It has ended.
            _ => Ok(()),
        }
    }
}

impl InFlight for Held<Flight> {
    fn wait(&self, within: Duration) -> bool {
        look_until(within, || self.is_over())
    }

    fn complete(&self) {
        self.land(STOP_WITHIN);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Objects are pinned, or their space is reserved, until then. An array keeps its place without this.
        if matches!(self.state.get_mut(), State::Flying(moving) if !matches!(**moving, Moving::Array(..))) {
            look_until(self.queue.limit(), || self.is_over());
        }
        if let State::Flying(moving) = std::mem::replace(self.state.get_mut(), State::Taken) {
            let has_ended = moving.transfer().is_ended();
            drop(moving);
            self.queue.note_end(has_ended);
        }
    }
}

/// A transfer that Python has.
pub(crate) struct Pending {
    flight: Arc<Held<Flight>>,
    shared: Arc<Shared>,
    publishes: bool,
    /// Set when the transfer is finished. Locked with the interpreter, which making exceptions needs.
    outcome: std::sync::Mutex<Option<Result<Vec<Py<PyAny>>, Failure>>>,
}

impl Pending {
    pub(crate) fn new(moving: Moving, groups: u32, queue: &Arc<Held<Queue>>, shared: &Arc<Shared>) -> Self {
        let publishes = matches!(moving, Moving::Store(..));
        queue.flying.fetch_add(1, Ordering::AcqRel);
        let flight = Flight {
            state: Mutex::new(State::Flying(Box::new(moving))),
            is_landing: AtomicBool::new(false),
            groups,
            queue: queue.clone(),
        };
        let flight = Arc::new(Held::new(flight));
        Self { flight, shared: shared.clone(), publishes, outcome: std::sync::Mutex::default() }
    }

    pub(crate) fn is_ended(&self, py: Python<'_>) -> PyResult<bool> {
        fork::check()?;
        Ok(py.detach(|| self.flight.is_over()))
    }

    pub(crate) fn wait_group(&self, py: Python<'_>, stream: &Bound<'_, PyAny>, group: u32) -> PyResult<()> {
        fork::check()?;
        let is_own = stream.cast::<Stream>().is_ok();
        let stream = stream::given(&self.shared, stream)?;
        Ok(py.detach(|| self.flight.wait_group(stream, is_own, group))?)
    }

    /// Waits at most `timeout` seconds, and returns the number of bytes, or the exception, of each object. A transfer that takes
    /// longer goes on.
    pub(crate) fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Vec<Py<PyAny>>> {
        let within = timeout.map(|t| seconds(t, "timeout")).transpose()?.unwrap_or(NO_LIMIT);
        if !call::await_in_flight(py, &self.shared, &*self.flight, within)? {
            let text = format!("a transfer has not ended within {within:?}, and goes on; allow more time");
            return Err(Failure::new(Kind::Timeout, text).into());
        }
        if self.publishes {
            let flight = self.flight.clone();
            call::finish(py, &self.shared, move |_| {
                flight.land(STOP_WITHIN);
                Ok(())
            })?;
        } else {
            py.detach(|| self.flight.land(STOP_WITHIN));
        }
        let mut outcome = self.outcome.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let known = match &mut *outcome {
            Some(known) => known,
            none => none.insert(self.flight.take().and_then(|moved| Ok(in_python(py, moved)?))),
        };
        match known {
            Ok(all) => Ok(all.iter().map(|one| one.clone_ref(py)).collect()),
            // An exception of its own. One that was raised has this transfer in its frames, and would keep it for ever.
            Err(failure) => Err(failure.again(py).into()),
        }
    }
}

fn in_python(py: Python<'_>, moved: Moved) -> PyResult<Vec<Py<PyAny>>> {
    let one = |one: Result<u64, Failure>| match one {
        Ok(bytes) => Ok(bytes.into_pyobject(py)?.into_any().unbind()),
        Err(failure) => Ok(PyErr::from(failure).into_value(py).into_any()),
    };
    moved.into_iter().map(one).collect()
}
