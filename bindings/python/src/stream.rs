//! Streams: the engine's, and CUDA streams of other libraries.

use crate::call::{self, Shared};
use crate::engine::{Engine, seconds};
use crate::error::{Failure, wrong_type};
use crate::fork;
use crate::held::Held;
use pyo3::intern;
use pyo3::prelude::*;
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;
use warpbell::engine::NO_LIMIT;

/// Work that runs in order, on a GPU a CUDA stream. ``Engine.stream`` makes one.
///
/// Other libraries take it by ``__cuda_stream__``, for example ``torch.cuda.ExternalStream(stream.handle)``.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct Stream {
    stream: Held<warpbell::engine::Stream>,
    shared: Arc<Shared>,
}

/// Number of the legacy default stream in protocols of Python. Its handle is null.
const DEFAULT: usize = 1;

/// The object that owns a stream of another library.
struct Owner(#[expect(dead_code, reason = "only kept")] Py<PyAny>);

impl Stream {
    pub(crate) fn get(&self) -> &warpbell::engine::Stream {
        &self.stream
    }

    pub(crate) fn create(py: Python<'_>, shared: &Arc<Shared>) -> PyResult<Self> {
        let engine = shared.engine().clone();
        let stream = call::call(py, shared, move |_| Ok(engine.stream()?))?;
        Ok(Self { stream: Held::new(stream), shared: shared.clone() })
    }
}

/// Returns the handle of a stream: a number, or an object with `__cuda_stream__`, `cuda_stream` (torch) or `ptr` (cupy).
fn handle_of(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = object.py();
    if let Some(protocol) = object.getattr_opt(intern!(py, "__cuda_stream__"))? {
        let pair = if protocol.is_callable() { protocol.call0()? } else { protocol };
        let (version, handle): (u32, usize) = pair.extract()?;
        if version != 0 {
            return Err(
                Failure::invalid(format!("`__cuda_stream__` has version {version}, and version 0 is known")).into()
            );
        }
        return Ok(handle);
    }
    for name in ["cuda_stream", "ptr"] {
        if let Some(handle) = object.getattr_opt(name)? {
            return handle.extract();
        }
    }
    object.extract().map_err(|_| {
        wrong_type("a stream is a warpbell.Stream, an object with `__cuda_stream__`, or the number of a CUDA stream")
    })
}

/// Makes a stream that Python passes one of the engine's: its own, or a CUDA stream of another library.
pub(crate) fn given(shared: &Arc<Shared>, object: &Bound<'_, PyAny>) -> PyResult<warpbell::engine::Stream> {
    if let Ok(own) = object.cast::<Stream>() {
        return Ok(own.get().stream.clone());
    }
    adopt(shared, handle_of(object)?, object)
}

fn adopt(shared: &Arc<Shared>, handle: usize, owner: &Bound<'_, PyAny>) -> PyResult<warpbell::engine::Stream> {
    let raw = (if handle == DEFAULT { 0 } else { handle }) as *mut c_void;
    let keep: Arc<dyn Any + Send + Sync> = Arc::new(Owner(owner.clone().unbind()));
    // SAFETY: the object says that this is its stream, and lives as long as the adopted one. Who passes a number vouches for it.
    Ok(unsafe { shared.engine().adopt_stream(raw, keep) }.map_err(Failure::from)?)
}

/// Returns the module of an array's type.
fn library_of(array: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(array.get_type().getattr(intern!(array.py(), "__module__"))?.extract().unwrap_or_default())
}

fn is_of_torch(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(library_of(array)?.split('.').next() == Some("torch"))
}

/// Returns the stream behind which the content of an array of a GPU is complete: torch's or cupy's current one, or the one that the array
/// names; `None` if there is no such work.
pub(crate) fn of_array(shared: &Arc<Shared>, array: &Bound<'_, PyAny>) -> PyResult<Option<warpbell::engine::Stream>> {
    let py = array.py();
    let current = match library_of(array)?.split('.').next() {
        Some("torch") => {
            let device = array.getattr(intern!(py, "device"))?;
            Some(py.import("torch.cuda")?.call_method1("current_stream", (device,))?)
        }
        Some("cupy") => Some(py.import("cupy.cuda")?.call_method0("get_current_stream")?),
        _ => None,
    };
    if let Some(current) = current {
        return given(shared, &current).map(Some);
    }
    let Some(interface) = array.getattr_opt(intern!(py, "__cuda_array_interface__"))? else {
        // DLPack has made the default stream wait for the content.
        return adopt(shared, DEFAULT, array).map(Some);
    };
    let named = interface.call_method1(intern!(py, "get"), (intern!(py, "stream"),))?;
    if named.is_none() {
        return Ok(None);
    }
    adopt(shared, named.extract()?, array).map(Some)
}

/// Returns a stream behind which the content of all these arrays is complete. The flags say which of them are on a GPU.
pub(crate) fn behind(
    shared: &Arc<Shared>,
    arrays: &[(&Bound<'_, PyAny>, bool)],
) -> PyResult<Option<warpbell::engine::Stream>> {
    let mut found: Option<warpbell::engine::Stream> = None;
    // Devices of torch whose current stream is among them: tensors come by the hundred.
    let mut known: Vec<Bound<'_, PyAny>> = Vec::new();
    for (array, _) in arrays.iter().filter(|(_, on_gpu)| *on_gpu) {
        if is_of_torch(array)? {
            let device = array.getattr(intern!(array.py(), "device"))?;
            if known.iter().map(|other| device.eq(other)).collect::<PyResult<Vec<_>>>()?.contains(&true) {
                continue;
            }
            known.push(device);
        }
        match (&found, of_array(shared, array)?) {
            (Some(first), Some(other)) if first.raw() != other.raw() => {
                first.wait_for(&other).map_err(Failure::from)?;
            }
            (None, other) => found = other,
            _ => {}
        }
    }
    Ok(found)
}

/// Returns torch's current stream on the engine's GPU, if the program uses torch there.
pub(crate) fn of_torch(shared: &Arc<Shared>, py: Python<'_>) -> PyResult<Option<warpbell::engine::Stream>> {
    let Some(ordinal) = shared.ordinal() else { return Ok(None) };
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let module = modules.call_method1(intern!(py, "get"), (intern!(py, "torch.cuda"),))?;
    if module.is_none() || !module.call_method0(intern!(py, "is_initialized"))?.is_truthy()? {
        return Ok(None);
    }
    given(shared, &module.call_method1(intern!(py, "current_stream"), (ordinal,))?).map(Some)
}

/// Waits for all work that is on a stream, also that of other libraries.
pub(crate) fn finish(shared: &Shared, stream: Option<&warpbell::engine::Stream>) -> Result<(), Failure> {
    let Some(stream) = stream else { return Ok(()) };
    // A run on the stream ends behind all work that is there.
    Ok(shared.engine().external("work of another library", stream)?.finish().map(drop)?)
}

#[pymethods]
impl Stream {
    /// Uses a CUDA stream of another library: an object with ``__cuda_stream__``, a torch or cupy stream, or a number.
    #[staticmethod]
    fn adopt(engine: &Engine, stream: &Bound<'_, PyAny>) -> PyResult<Self> {
        fork::check()?;
        let shared = engine.shared();
        Ok(Self { stream: Held::new(given(shared, stream)?), shared: shared.clone() })
    }

    /// Number of the CUDA stream, or ``None`` on CPU threads.
    #[getter]
    fn handle(&self) -> Option<usize> {
        self.stream.raw().map(|raw| raw as usize)
    }

    fn __cuda_stream__(&self) -> PyResult<(u32, usize)> {
        let handle = self.handle().ok_or_else(|| Failure::invalid("an engine on CPU threads has no CUDA streams"))?;
        Ok((0, handle))
    }

    /// Makes later work of this stream wait for all work that is on another one now.
    fn wait_for(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        fork::check()?;
        let other = given(&self.shared, other)?;
        Ok(py.detach(|| self.stream.wait_for(&other).map_err(Failure::from))?)
    }

    /// Waits for all work of the stream, at most ``timeout`` seconds.
    #[pyo3(signature = (timeout = None))]
    fn synchronize(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let within = timeout.map(|t| seconds(t, "timeout")).transpose()?.unwrap_or(NO_LIMIT);
        let stream = self.stream.clone();
        call::call(py, &self.shared, move |_| Ok(stream.synchronize(within).map(drop)?))
    }

    fn __repr__(&self) -> String {
        match self.handle() {
            Some(handle) => format!("Stream({handle:#x})"),
            None => "Stream(cpu)".to_owned(),
        }
    }
}
