//! Engines: a GPU, or CPU threads.

use crate::call::{self, Shared};
use crate::error::{Failure, Kind};
use crate::external::ExternalRun;
use crate::fork;
use crate::stream::Stream;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use warpbell::engine::EngineBuilder;

/// A GPU, or CPU threads, that runs kernels.
///
/// ``kind`` is ``"auto"`` (the first GPU if it works, otherwise CPU threads), ``"cpu"``, ``"gpu"`` or ``"gpu:1"``. ``threads`` is the
/// number of CPU threads, by default one for each processor. ``deadline`` is the longest time of one wait for a device, in seconds.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// Returns a time limit that Python gives in seconds.
pub(crate) fn seconds(value: f64, name: &str) -> Result<Duration, Failure> {
    let refuse = || Failure::invalid(format!("{name} is {value}; give a number of seconds above 0"));
    if value > 0.0 { Duration::try_from_secs_f64(value).map_err(|_| refuse()) } else { Err(refuse()) }
}

/// Returns an option that Python gives as a word.
pub(crate) fn word<T: FromStr<Err: std::fmt::Display>>(value: &Bound<'_, PyAny>, name: &str) -> PyResult<T> {
    let parsed = value.extract::<String>()?.parse();
    Ok(parsed.map_err(|e: T::Err| Failure::invalid(format!("{name}: {e}")))?)
}

/// Returns a value as Python's dicts, lists and numbers.
pub(crate) fn as_python<'py>(py: Python<'py>, value: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(|e| Failure::new(Kind::Internal, format!("no JSON: {e}")))?;
    py.import(intern!(py, "json"))?.call_method1(intern!(py, "loads"), (text,))
}

#[pymethods]
impl Engine {
    #[new]
    #[pyo3(signature = (kind = "auto", *, threads = None, deadline = None))]
    fn new(py: Python<'_>, kind: &str, threads: Option<usize>, deadline: Option<f64>) -> PyResult<Self> {
        let deadline = deadline.map(|s| seconds(s, "deadline")).transpose()?;
        let mut builder = warpbell::engine::Engine::builder();
        if let Some(threads) = threads {
            builder = builder.threads(threads);
        }
        type Open = Box<dyn FnOnce(EngineBuilder) -> Result<warpbell::engine::Engine, Failure> + Send>;
        let open: Open = match (kind, kind.strip_prefix("gpu:").map(str::parse)) {
            ("auto", _) => Box::new(|b| Ok(b.auto()?)),
            ("cpu", _) => Box::new(|b| Ok(b.cpu()?)),
            ("gpu", _) => Box::new(|b| Ok(b.gpu(0)?)),
            (_, Some(Ok(ordinal))) => Box::new(move |b| Ok(b.gpu(ordinal)?)),
            _ => {
                let text = format!("`{kind}` is no kind of engine; use auto, cpu, gpu, or gpu:1 for the second GPU");
                return Err(Failure::invalid(text).into());
            }
        };
        let engine = call::call_alone(py, move |_| {
            let engine = open(builder)?;
            deadline.map(|d| engine.set_deadline(d)).transpose()?;
            Ok(engine)
        })?;
        Ok(Self { shared: Arc::new(Shared::new(engine)) })
    }

    /// ``cpu`` or ``gpu``.
    #[getter]
    fn kind(&self) -> String {
        self.shared.engine().kind().to_string()
    }

    /// The reason why ``auto`` chose CPU threads, or ``None``.
    #[getter]
    fn note(&self) -> Option<&str> {
        self.shared.engine().note()
    }

    /// Returns the properties of the engine as a dict.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_python(py, &self.shared.engine().info())
    }

    /// Longest time of one wait for a device, in seconds.
    #[getter]
    fn deadline(&self) -> f64 {
        self.shared.engine().deadline().as_secs_f64()
    }

    #[setter]
    fn set_deadline(&self, py: Python<'_>, value: f64) -> PyResult<()> {
        fork::check()?;
        let deadline = seconds(value, "deadline")?;
        let engine = self.shared.engine();
        Ok(py.detach(|| engine.set_deadline(deadline).map_err(Failure::from))?)
    }

    /// Makes a stream: work that runs in order.
    fn stream(&self, py: Python<'_>) -> PyResult<Stream> {
        Stream::create(py, &self.shared)
    }

    /// Begins a run around kernels that another library launches on a stream, for a ``with`` statement.
    ///
    /// The run keeps the objects of ``keep`` until it is finished: arrays, tables, volumes, caches and views that the kernels use. The
    /// end of the block waits for the kernels, at most ``timeout`` seconds, and raises the errors of their operations.
    #[pyo3(signature = (name, stream = None, *, keep = None, timeout = None))]
    fn external<'py>(
        &self,
        py: Python<'py>,
        name: String,
        stream: Option<&Bound<'py, PyAny>>,
        keep: Option<&Bound<'py, PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<ExternalRun> {
        let none = PyTuple::empty(py).into_any();
        ExternalRun::begin(py, self, name, stream, keep.unwrap_or(&none), timeout)
    }

    /// Stops all calls of the engine that run on other threads: they raise ``CancelledError``. Later calls work.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        fork::check()?;
        Ok(py.detach(|| self.shared.cancel())?)
    }

    fn __repr__(&self) -> String {
        format!("Engine({})", self.shared.engine())
    }
}
