//! Volumes: devices and the arrays that they hold.

use crate::call::{self, Shared, Stop};
use crate::dtype;
use crate::engine::{Engine, as_python, seconds, word};
use crate::error::{Failure, wrong_type};
use crate::external::DeviceView;
use crate::fork;
use crate::held::Held;
use crate::host_array::{Fresh, Source};
use crate::progress::Progress;
use crate::volume_buffer::VolumeBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use warpbell::graph::stored;
use warpbell::storage::{
    Drive, DriveSpec, ElementType, Entry, KvStore, ManifestError, OverwritePolicy, Plan, StorageError, StoredKv, Table,
    VolumeBuilder,
};

/// Devices with queues to which kernels submit commands: NVMe drives, or files and memory behind a software controller.
///
/// ``Volume.open`` and ``Volume.create`` make it.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct Volume {
    volume: Held<warpbell::storage::Volume>,
    shared: Arc<Shared>,
}

/// One device, or several.
#[derive(FromPyObject)]
enum Devices {
    One(String),
    Several(Vec<String>),
}

/// An option, to be applied when the drives are open.
type Choice = Box<dyn FnOnce(VolumeBuilder) -> VolumeBuilder + Send>;

const OPTIONS: &str = "landing, queue_memory, doorbell, queues, depth, chunk_bytes, transfer_bytes, for_segments, replicated, page_checksums, deadline";

fn choices(options: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<Choice>> {
    let choice = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| -> PyResult<Choice> {
        let name: String = name.extract()?;
        Ok(match name.as_str() {
            "landing" => word(&value, &name).map(|v| Box::new(move |b: VolumeBuilder| b.landing(v)) as Choice)?,
            "queue_memory" => word(&value, &name).map(|v| Box::new(move |b: VolumeBuilder| b.queue_memory(v)))?,
            "doorbell" => word(&value, &name).map(|v| Box::new(move |b: VolumeBuilder| b.doorbell(v)))?,
            "queues" => value.extract().map(|v| Box::new(move |b: VolumeBuilder| b.queues(v)))?,
            "depth" => value.extract().map(|v| Box::new(move |b: VolumeBuilder| b.depth(v)))?,
            "chunk_bytes" => value.extract().map(|v| Box::new(move |b: VolumeBuilder| b.chunk(v)))?,
            "transfer_bytes" => value.extract().map(|v| Box::new(move |b: VolumeBuilder| b.transfer(v)))?,
            "for_segments" => value.extract().map(|v| Box::new(move |b: VolumeBuilder| b.for_segments(v)))?,
            "replicated" => value.extract().map(|v| Box::new(move |b: VolumeBuilder| b.replicated(v)))?,
            "page_checksums" => value.extract().map(|v| Box::new(move |b: VolumeBuilder| b.page_checksums(v)))?,
            "deadline" => {
                let limit = seconds(value.extract()?, &name)?;
                Box::new(move |b: VolumeBuilder| b.deadline(limit))
            }
            _ => return Err(wrong_type(format!("`{name}` is no option of a volume; there are {OPTIONS}"))),
        })
    };
    options.into_iter().flat_map(|options| options.iter()).map(choice).collect()
}

impl Volume {
    fn make(
        py: Python<'_>,
        engine: &Engine,
        devices: Devices,
        options: Option<&Bound<'_, PyDict>>,
        drive: impl Fn(DriveSpec) -> Result<Drive, StorageError> + Send + 'static,
    ) -> PyResult<Self> {
        let choices = choices(options)?;
        let devices = match devices {
            Devices::One(device) => vec![device],
            Devices::Several(devices) => devices,
        };
        let shared = engine.shared().clone();
        let opened = shared.engine().clone();
        let volume = call::call(py, &shared, move |_| {
            let specs = devices.iter().map(|device| device.parse()).collect::<Result<Vec<DriveSpec>, _>>()?;
            DriveSpec::check_distinct(&specs)?;
            let drives = specs.into_iter().map(drive).collect::<Result<Vec<_>, _>>()?;
            let builder = warpbell::storage::Volume::on(&opened, drives);
            Ok(choices.into_iter().fold(builder, |builder, choice| choice(builder)).build()?)
        })?;
        Ok(Self { volume: Held::new(volume), shared })
    }

    pub(crate) fn get(&self) -> &warpbell::storage::Volume {
        &self.volume
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Runs `work` with the volume, as [`call::call`] does. Errors name the volume's devices.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&warpbell::storage::Volume, &Stop) -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        let volume = self.volume.clone();
        call::call(py, &self.shared, move |stop| work(&volume, stop).map_err(|e| e.on(&volume)))
    }
}

/// Returns the arrays that a volume holds.
fn entries(volume: &warpbell::storage::Volume) -> Result<Vec<Entry>, Failure> {
    match volume.manifest() {
        Ok(manifest) => Ok(manifest.entries().to_vec()),
        Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => Ok(Vec::new()),
        Err(e) => Err(e.into()),
    }
}

#[pymethods]
impl Volume {
    /// Opens devices that hold data: ``"soft:FILE"`` or ``"nvme:0000:65:00.0"``, or a list of them. Creates no file.
    #[staticmethod]
    #[pyo3(signature = (engine, devices, *, read_only = false, **options))]
    fn open(
        py: Python<'_>,
        engine: &Engine,
        devices: Devices,
        read_only: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Self::make(py, engine, devices, options, move |mut spec| {
            if read_only {
                spec.set_read_only();
            }
            spec.open()
        })
    }

    /// Opens devices to store data on. A file that does not exist is created with ``bytes`` bytes; so is memory (``"soft:mem"``).
    ///
    /// A file that exists, or the namespace of a drive, is taken if it is warpbell's own or empty, or if ``overwrite`` names it. A new
    /// file gets its name with the first data that is stored, or by ``keep``.
    #[staticmethod]
    #[pyo3(signature = (engine, devices, bytes, *, overwrite = Vec::new(), **options))]
    fn create(
        py: Python<'_>,
        engine: &Engine,
        devices: Devices,
        bytes: u64,
        overwrite: Vec<PathBuf>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let policy = OverwritePolicy::to_destroy(overwrite);
        Self::make(py, engine, devices, options, move |spec| spec.create(bytes, &policy))
    }

    /// Name of the volume.
    #[getter]
    fn name(&self) -> &str {
        self.volume.name()
    }

    /// Size in bytes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.volume.bytes()
    }

    /// Size of a logical block in bytes.
    #[getter]
    fn block_bytes(&self) -> usize {
        self.volume.block_bytes()
    }

    /// Names of the devices.
    #[getter]
    fn devices(&self) -> Vec<&str> {
        (0..self.volume.devices() as usize).filter_map(|i| self.volume.device_name(i)).collect()
    }

    /// Returns data path, sizes and queues as a dict.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let facts = self.call(py, |v, _| {
            Ok(json!({
                "name": v.name(), "path": v.path(), "bytes": v.bytes(), "blocks": v.blocks(), "block_bytes": v.block_bytes(),
                "queues": v.queues(), "depth": v.depth(), "max_transfer_bytes": v.max_transfer_bytes(),
                "chunk_bytes": v.chunk_bytes(), "replicated": v.is_replicated(), "in_memory": v.is_in_memory(),
                "redundancy": v.redundancy()?,
            }))
        })?;
        as_python(py, &facts)
    }

    /// Gives files that ``create`` made their names, before anything is stored.
    fn keep(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |v, _| Ok(v.keep()?))
    }

    /// Returns the arrays that the volume holds, each as a dict.
    fn arrays<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_python(py, &self.call(py, |v, _| entries(v))?)
    }

    /// Returns the names of the tables that the volume holds.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.call(py, |v, _| Ok(Table::list(v)?.into_iter().map(|t| t.name).collect()))
    }

    /// Returns the names of the graphs that the volume holds.
    fn graphs(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.call(py, |v, _| Ok(stored::stored_graphs(v)?.iter().map(|g| g.name.as_str().to_owned()).collect()))
    }

    /// Stores the elements of an array under a name, beside everything that the volume holds. With ``replace`` it takes the place of an
    /// array of the same name, which is whole until then.
    #[pyo3(signature = (name, array, *, replace = false, progress = None))]
    fn store(
        &self,
        py: Python<'_>,
        name: String,
        array: &Bound<'_, PyAny>,
        replace: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let source = Source::of(array, None, "array")?;
        let (element, bytes) = stored_type(&source)?;
        let (total, progress) = (source.bytes(), Progress::new(progress));
        self.call(py, move |v, stop| {
            let plan = Plan::new().untyped(&name, element, bytes, (total / bytes as usize) as u64);
            let what = format!("array `{name}`");
            let old = entries(v)?.iter().any(|e| e.name == name);
            let replaced = [name.as_str()];
            let mut writer = v.replace(plan, &what, if replace && old { &replaced } else { &[] })?;
            source.each_piece(|at, piece| {
                stop.check()?;
                writer.append_bytes(&name, element, piece)?;
                progress.report("store", (at + piece.len()) as u64, total as u64)
            })?;
            Ok(writer.finish().map(drop)?)
        })
    }

    /// Reads a stored array completely, and compares it with its checksum. Returns a numpy array.
    fn load<'py>(&self, py: Python<'py>, name: String) -> PyResult<Bound<'py, PyAny>> {
        let asked = name.clone();
        let entry = self.call(py, move |v, _| {
            let manifest = v.manifest()?;
            let found = manifest.find(&asked).cloned();
            found.map_err(|source| StorageError::Manifest { device: v.name().to_owned(), source }.into())
        })?;
        let mut fresh = Fresh::new(py, &[entry.count], entry.element_type, entry.element_bytes.into())?;
        let filled = self.call(py, move |v, _| {
            v.read_array_bytes(&name, entry.element_type, fresh.bytes())?;
            Ok(fresh)
        })?;
        Ok(filled.into_array(py))
    }

    /// Removes arrays. Their space can be used again; their data is not erased.
    #[pyo3(signature = (*names))]
    fn remove(&self, py: Python<'_>, names: Vec<String>) -> PyResult<()> {
        self.call(py, move |v, _| {
            v.remove(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
            Ok(())
        })
    }

    /// Removes a table.
    fn remove_table(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.call(py, move |v, _| Ok(Table::remove(v, &name)?))
    }

    /// Removes a graph.
    fn remove_graph(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.call(py, move |v, _| Ok(stored::remove_stored_graph(v, &name.parse()?)?))
    }

    /// Returns the KV stores that the volume holds, each as a dict. One that cannot be opened has the reason as ``error``.
    fn kv_stores<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stores = self.call(py, |v, _| Ok(KvStore::list(v)?))?;
        let one = |store: &StoredKv| {
            let (options, error) = match &store.options {
                Ok(options) => (Some(options), None),
                Err(e) => (None, Some(e.to_string())),
            };
            json!({
                "name": store.name, "stored_bytes": store.bytes, "bytes": options.map(|o| o.bytes),
                "objects": options.map(|o| o.objects), "key_bytes": options.map(|o| o.key_bytes), "error": error,
            })
        };
        as_python(py, &stores.iter().map(one).collect::<Vec<_>>())
    }

    /// Removes a KV store, with all objects.
    fn remove_kv_store(&self, py: Python<'_>, name: String) -> PyResult<()> {
        self.call(py, move |v, _| Ok(KvStore::remove(v, &name)?))
    }

    /// Makes completed writes durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |v, _| Ok(v.flush()?))
    }

    /// Checks the state of all devices. Raises an exception with the reason if one has failed.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |v, _| Ok(v.check()?))
    }

    /// Makes the devices usable again after lost commands or a failed controller. Returns the steps as a dict.
    fn recover<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let report = self.call(py, |v, _| {
            let done = v.recover()?;
            Ok(json!({
                "stopped_runs": done.stopped_runs,
                "devices": done.devices.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "pages_emptied": done.pages_emptied, "pages_dirty": done.pages_dirty,
            }))
        })?;
        as_python(py, &report)
    }

    /// Reads everything that is stored, and compares it with its checksums. Returns the findings as a dict; ``intact`` is the result.
    #[pyo3(signature = (*, repair = false))]
    fn verify<'py>(&self, py: Python<'py>, repair: bool) -> PyResult<Bound<'py, PyAny>> {
        let found = self.call(py, move |v, _| Ok(v.verify(repair)?))?;
        let report = as_python(py, &found)?;
        report.set_item("intact", found.is_intact())?;
        Ok(report)
    }

    /// Accepts the arrays as they are, after a program ended while it changed them: computes their checksums anew.
    fn accept_changes(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |v, _| Ok(v.accept_changes().map(drop)?))
    }

    /// Returns the counters of devices and caches as a dict.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_python(py, &self.call(py, |v, _| Ok(v.stats()?))?)
    }

    /// Sets all counters to 0.
    fn reset_stats(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |v, _| Ok(v.reset_stats()?))
    }

    /// Returns the bytes of the ``wb_volume_view`` that kernels make a ``volume_ref`` of. They are valid while this object lives.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        fork::check()?;
        Ok(PyBytes::new(py, bytemuck::bytes_of(&self.volume.view())))
    }

    /// Copies the view to memory that the engine's kernels see, for kernels that take its address.
    fn device_view(slf: &Bound<'_, Self>) -> PyResult<DeviceView> {
        let this = slf.get();
        DeviceView::new(&this.shared, slf.clone().into_any(), bytemuck::bytes_of(&this.volume.view()))
    }

    /// Makes an array memory that own kernels name in reads and writes of blocks. The buffer keeps the array.
    ///
    /// The array is on the engine's GPU, or in memory of the host for CPU threads, C-contiguous, and begins at a multiple of 4. A volume
    /// has 16 buffers at a time.
    fn map(slf: &Bound<'_, Self>, array: &Bound<'_, PyAny>) -> PyResult<VolumeBuffer> {
        VolumeBuffer::new(slf, array)
    }

    fn __repr__(&self) -> String {
        format!("Volume({}, {})", self.volume.name(), &*self.volume)
    }
}

/// Returns the type by which elements are stored, and its bytes. Structures of numpy are records.
fn stored_type(source: &Source) -> Result<(ElementType, u32), Failure> {
    if let Some(bytes) = source.typestr.strip_prefix("|V").and_then(|b| b.parse().ok()) {
        return Ok((ElementType::Record, bytes));
    }
    let element = source.element()?;
    Ok((element, dtype::bytes_of(element) as u32))
}
