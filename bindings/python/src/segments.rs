//! Transfers between stored arrays and memory, which kernels make on a stream.

use crate::call::{self, Shared};
use crate::dtype;
use crate::error::{Failure, wrong_type};
use crate::held::Held;
use crate::moving::{Moving, Pending, Queue};
use crate::stream;
use crate::view::{self, View};
use crate::volume::Volume;
use pyo3::intern;
use pyo3::prelude::*;
use std::sync::{Arc, Weak};
use warpbell::engine::Engine;
use warpbell::memory::Region;
use warpbell::storage::{ElementType, StorageError};

/// Transfers between stored arrays, or objects of a KV store, and memory, one after the other on a stream.
///
/// ``stream`` is a stream of the engine or of another library, by default a new one. The kernels keep to ``multiprocessors``
/// multiprocessors of a GPU (16), have ``in_flight`` commands of each warp in flight (1), and commands of at most ``command_bytes`` bytes
/// (128 KiB).
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct SegmentQueue {
    queue: Arc<Held<Queue>>,
    volume: Py<Volume>,
}

/// Returns the memory of an array that kernels of the engine read, or write to if `fills` is true.
pub(crate) fn memory(object: &Bound<'_, PyAny>, engine: &Engine, fills: bool, what: &str) -> PyResult<(View, Region)> {
    let py = object.py();
    let protocols =
        [intern!(py, "__cuda_array_interface__"), intern!(py, "__array_interface__"), intern!(py, "__dlpack__")];
    // numpy would make a new array of anything else, which nobody has.
    let mut is_array = false;
    for name in protocols {
        is_array = is_array || object.hasattr(name)?;
    }
    if !is_array {
        let found = object.get_type().name()?;
        return Err(wrong_type(format!(
            "{what}: an object of type {found} is no array; pass one of numpy, torch or cupy"
        )));
    }
    if let Some(dtype) = object.getattr_opt(intern!(py, "dtype"))?
        && let Some(has) = dtype.getattr_opt(intern!(py, "hasobject"))?
        && has.is_truthy()?
    {
        return Err(
            Failure::invalid(format!("{what}: its elements are objects of Python; pass an array of numbers")).into()
        );
    }
    let view = view::of(&as_bytes(object)?)?;
    if fills {
        view.check_writable(what)?;
    }
    if view.bytes() == 0 {
        return Err(Failure::invalid(format!("{what}: it has no elements; pass one with some")).into());
    }
    let region = view.on_engine(engine, what)?;
    Ok((view, region))
}

/// Returns the bytes of a tensor of torch whose type the protocols of arrays lack, such as floats of 8 bits, and other arrays as they are.
fn as_bytes<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let Some(dtype) = array.getattr_opt(intern!(py, "dtype"))? else { return Ok(array.clone()) };
    let name = dtype.str()?;
    let known = name.to_str()?.strip_prefix("torch.").map(dtype::from_name);
    if known.is_none_or(|known| known.is_ok_and(|element| element != ElementType::Bf16)) {
        return Ok(array.clone());
    }
    array.call_method1(intern!(py, "view"), (py.import(intern!(py, "torch"))?.getattr(intern!(py, "uint8"))?,))
}

impl SegmentQueue {
    /// Returns the queue for work on a thread without the interpreter.
    pub(crate) fn held(&self) -> &Arc<Held<Queue>> {
        &self.queue
    }

    fn shared(&self) -> &Arc<Shared> {
        self.volume.get().shared()
    }

    fn begin(
        &self,
        array: &Bound<'_, PyAny>,
        fills: bool,
        start: impl FnOnce(
            &warpbell::storage::SegmentQueue,
            &Region,
        ) -> Result<warpbell::storage::SegmentTransfer, StorageError>
        + Send,
    ) -> PyResult<SegmentTransfer> {
        let (py, shared, queue) = (array.py(), self.shared(), &self.queue);
        let (view, region) = memory(array, shared.engine(), fills, if fills { "into" } else { "source" })?;
        let behind = stream::behind(shared, &[(array, view.on_gpu)])?;
        let bytes = region.len() as u64;
        let pending = call::begin(py, shared, || {
            queue.begin_behind(behind.as_ref())?;
            let transfer = start(queue.get(), &region).map_err(|e| Failure::from(e).on(queue.get().volume()))?;
            Ok(Pending::new(Moving::Array(transfer, bytes), 1, queue, shared))
        })?;
        Ok(SegmentTransfer { pending })
    }
}

#[pymethods]
impl SegmentQueue {
    #[new]
    #[pyo3(signature = (volume, *, stream = None, multiprocessors = None, in_flight = None, command_bytes = None))]
    fn new(
        volume: &Bound<'_, Volume>,
        stream: Option<&Bound<'_, PyAny>>,
        multiprocessors: Option<u32>,
        in_flight: Option<u32>,
        command_bytes: Option<usize>,
    ) -> PyResult<Self> {
        let (py, this) = (volume.py(), volume.get());
        let shared = this.shared();
        let is_shared = stream.is_some_and(|stream| stream.cast::<stream::Stream>().is_ok());
        let given = stream.map(|stream| stream::given(shared, stream)).transpose()?;
        let queue = this.call(py, move |volume, _| {
            let stream = given.map_or_else(|| volume.engine().stream(), Ok)?;
            let mut builder = warpbell::storage::SegmentQueue::on(&stream, volume);
            if let Some(count) = multiprocessors {
                builder = builder.multiprocessors(count);
            }
            if let Some(commands) = in_flight {
                builder = builder.in_flight(commands);
            }
            if let Some(bytes) = command_bytes {
                builder = builder.command_bytes(bytes);
            }
            Ok(Queue::new(builder.build()?, is_shared))
        })?;
        let queue = Arc::new(Held::new(queue));
        let weak: Weak<Held<Queue>> = Arc::downgrade(&queue);
        shared.enter_in_flight(weak);
        Ok(Self { queue, volume: volume.clone().unbind() })
    }

    /// The volume.
    #[getter]
    fn volume(&self, py: Python<'_>) -> Py<Volume> {
        self.volume.clone_ref(py)
    }

    /// Begins to read bytes of a stored array, from its byte ``offset`` on, into all of ``into``, behind the work on the stream of the queue
    /// and the work that the array's library has on its current stream.
    ///
    /// The offset is a multiple of the volume's block, the bytes of ``into`` are a multiple of 16. An array whose bytes are none ends at
    /// the next one, with zeros. Data is not compared with its checksum. The stored array cannot be removed or replaced meanwhile.
    fn load(&self, name: String, offset: u64, into: &Bound<'_, PyAny>) -> PyResult<SegmentTransfer> {
        self.begin(into, true, move |queue, region| queue.load_array(&name, offset, region))
    }

    /// Begins to write all of ``source`` to a stored array, from its byte ``offset`` on, as ``load`` reads it. The bytes are whole blocks of
    /// the volume, or end with the array. They are durable after ``Volume.flush``; the array then counts as changed.
    fn store(&self, name: String, offset: u64, source: &Bound<'_, PyAny>) -> PyResult<SegmentTransfer> {
        self.begin(source, false, move |queue, region| queue.store_array(&name, offset, region))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.queue.get())
    }
}

/// A transfer between a stored array and memory. Dropping it does not wait; the memory is kept until it has ended.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct SegmentTransfer {
    pending: Pending,
}

#[pymethods]
impl SegmentTransfer {
    /// Returns true if ``finish`` would not wait.
    fn is_ended(&self, py: Python<'_>) -> PyResult<bool> {
        self.pending.is_ended(py)
    }

    /// Makes later work on another stream wait for the transfer. The host does not wait.
    #[pyo3(signature = (stream, group = 0))]
    fn wait_group(&self, py: Python<'_>, stream: &Bound<'_, PyAny>, group: u32) -> PyResult<()> {
        self.pending.wait_group(py, stream, group)
    }

    /// Waits at most ``timeout`` seconds, and returns the number of bytes. A transfer that takes longer goes on: ``finish`` may be called
    /// again. Later calls have the result of the first one that has waited long enough.
    #[pyo3(signature = (timeout = None))]
    fn finish(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let all = self.pending.finish(py, timeout)?;
        all.into_iter().next().ok_or_else(|| wrong_type("a transfer without outcome"))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("SegmentTransfer(ended: {})", self.is_ended(py)?))
    }
}
