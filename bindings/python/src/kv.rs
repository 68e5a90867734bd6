//! KV stores: objects under keys.

use crate::call;
use crate::engine::as_python;
use crate::error::Failure;
use crate::fork;
use crate::held::Held;
use crate::host_array::{Fresh, Source};
use crate::kv_pages::{Pages, key_of, keys_of};
use crate::moving::{Moving, Pending};
use crate::segments::SegmentQueue;
use crate::volume::Volume;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList};
use warpbell::storage::{ElementType, KvError, KvKey, KvOptions};

/// Objects under keys on a volume, such as parts of the KV cache of a language model. New objects take the place of those that were not
/// used for longest. ``KvStore.create`` and ``KvStore.open`` make it.
///
/// A store is open once. All objects are there again after a restart.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct KvStore {
    store: Held<warpbell::storage::KvStore>,
    volume: Py<Volume>,
}

impl KvStore {
    /// Runs `work` that moves no data, without the interpreter.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&warpbell::storage::KvStore) -> Result<T, KvError> + Send,
    ) -> PyResult<T> {
        fork::check()?;
        Ok(py.detach(|| work(&self.store).map_err(Failure::from))?)
    }

    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&warpbell::storage::KvStore) -> Result<T, Failure> + Send + 'static,
    ) -> PyResult<T> {
        let store = self.store.clone();
        self.volume.get().call(py, move |_, _| work(&store))
    }
}

fn bytes_of<'py>(py: Python<'py>, keys: &[KvKey]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, keys.iter().map(|key| PyBytes::new(py, key.as_bytes())))
}

/// Copies the bytes of an object that Python passes.
fn data_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(bytes.to_vec());
    }
    let source = Source::of(object, None, "an object")?;
    source.element()?;
    Ok(source.to_vec::<u8>()?)
}

#[pymethods]
impl KvStore {
    /// Creates an empty store beside everything that the volume holds: ``bytes`` bytes for data, in units of 4096, ``objects`` objects at
    /// the same time, and keys of 16 or 32 bytes.
    #[staticmethod]
    #[pyo3(signature = (volume, name, *, bytes, objects, key_bytes = 32))]
    fn create(volume: &Bound<'_, Volume>, name: String, bytes: u64, objects: u64, key_bytes: u32) -> PyResult<Self> {
        let options = KvOptions { key_bytes, bytes, objects };
        let made = move |v: &warpbell::storage::Volume, _: &call::Stop| {
            Ok(Held::new(warpbell::storage::KvStore::create(v, &name, &options)?))
        };
        Ok(Self { store: volume.get().call(volume.py(), made)?, volume: volume.clone().unbind() })
    }

    /// Opens a store. Reads the records of its objects.
    #[staticmethod]
    fn open(volume: &Bound<'_, Volume>, name: String) -> PyResult<Self> {
        let opened = move |v: &warpbell::storage::Volume, _: &call::Stop| {
            Ok(Held::new(warpbell::storage::KvStore::open(v, &name)?))
        };
        Ok(Self { store: volume.get().call(volume.py(), opened)?, volume: volume.clone().unbind() })
    }

    /// Name of the store.
    #[getter]
    fn name(&self) -> &str {
        self.store.name()
    }

    /// The volume.
    #[getter]
    fn volume(&self, py: Python<'_>) -> Py<Volume> {
        self.volume.clone_ref(py)
    }

    /// Bytes of the space for data.
    #[getter]
    fn bytes(&self) -> u64 {
        self.store.options().bytes
    }

    /// Most objects at the same time.
    #[getter]
    fn objects(&self) -> u64 {
        self.store.options().objects
    }

    /// Bytes of each key.
    #[getter]
    fn key_bytes(&self) -> u32 {
        self.store.options().key_bytes
    }

    /// Number of objects.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, |store| Ok(store.stats().objects as usize))
    }

    /// Returns the bytes of each object, or ``None`` where there is none with that key. Counts as a use; the first key counts as the one
    /// that was used last.
    fn lookup(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<Option<u64>>> {
        let keys = keys_of(keys)?;
        self.ask(py, |store| store.lookup(&keys))
    }

    /// Returns the number of keys before the first one without an object. Counts as no use.
    fn prefix(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<usize> {
        let keys = keys_of(keys)?;
        self.ask(py, |store| store.prefix(&keys))
    }

    /// Counts a use of each object that is there, in the order of ``lookup``.
    fn touch(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = keys_of(keys)?;
        self.ask(py, |store| store.touch(&keys))
    }

    /// Deletes objects. Returns how many were there.
    fn delete(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<u64> {
        let keys = keys_of(keys)?;
        self.call(py, move |store| Ok(store.delete(&keys)?))
    }

    /// Reads an object into a new array of bytes, and compares it with its checksum.
    fn read<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let key = key_of(key)?;
        let data = self.call(py, move |store| Ok(store.read_whole(&key)?))?;
        let mut fresh = Fresh::new(py, &[data.len() as u64], ElementType::U8, 1)?;
        fresh.bytes().copy_from_slice(&data);
        Ok(fresh.into_array(py))
    }

    /// Stores objects: pairs of a key and data of the host, each key once. All of them are durable when this returns, or none is there.
    fn write(&self, py: Python<'_>, objects: &Bound<'_, PyAny>) -> PyResult<()> {
        let one = |pair: PyResult<Bound<'_, PyAny>>| -> PyResult<(KvKey, Vec<u8>)> {
            let (key, data) = pair?.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
            Ok((key_of(&key)?, data_of(&data)?))
        };
        let objects = objects.try_iter()?.map(one).collect::<PyResult<Vec<_>>>()?;
        self.call(py, move |store| {
            let objects: Vec<(KvKey, &[u8])> = objects.iter().map(|(key, data)| (*key, &data[..])).collect();
            Ok(store.write(&objects)?)
        })
    }

    /// Reads all objects, and returns the keys of those that are damaged or cannot be read. Counts as no use.
    fn verify<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        bytes_of(py, &self.call(py, |store| Ok(store.verify()?))?)
    }

    /// Returns sizes and counters as a dict.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        as_python(py, &self.ask(py, |store| Ok(store.stats()))?)
    }

    /// Returns the keys of objects that were evicted since the last call, at most the last 65,536.
    fn take_evictions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        bytes_of(py, &self.ask(py, |store| Ok(store.take_evictions()))?)
    }

    /// Begins to load objects into pages of tensors: arrays of the shape ``(pages, ...)`` in memory that the queue's kernels reach.
    ///
    /// ``pages`` has one page number for each key, or as many for each. An object has, for each tensor in turn, the bytes of these
    /// pages. Each tensor belongs to a group, by default one of its own, and groups with small numbers come first. The kernel begins
    /// behind the work on the queue's stream and on the current stream of the tensors' library.
    #[pyo3(signature = (queue, keys, tensors, pages, *, groups = None))]
    fn load(
        &self,
        queue: &Bound<'_, SegmentQueue>,
        keys: &Bound<'_, PyAny>,
        tensors: &Bound<'_, PyAny>,
        pages: &Bound<'_, PyAny>,
        groups: Option<Vec<u32>>,
    ) -> PyResult<KvTransfer> {
        let (py, queue, shared) = (queue.py(), queue.get().held(), self.volume.get().shared());
        let keys = keys_of(keys)?;
        let (pages, behind) = Pages::of(shared, keys.len(), tensors, pages, groups, true)?;
        let pending = call::begin(py, shared, || {
            queue.begin_behind(behind.as_ref())?;
            let mut lister = pages.lister();
            let load = self.store.load(queue.get(), &keys, |list, i, object| lister.add(list, i, &object.extents))?;
            Ok(Pending::new(Moving::Load(load), pages.groups(), queue, shared))
        })?;
        Ok(KvTransfer { pending })
    }

    /// Begins to store objects from pages of tensors, described as for ``load``. They are durable, and found by their keys, when
    /// ``finish`` has returned.
    #[pyo3(signature = (queue, keys, tensors, pages, *, groups = None))]
    fn store(
        &self,
        queue: &Bound<'_, SegmentQueue>,
        keys: &Bound<'_, PyAny>,
        tensors: &Bound<'_, PyAny>,
        pages: &Bound<'_, PyAny>,
        groups: Option<Vec<u32>>,
    ) -> PyResult<KvTransfer> {
        let (py, queue, shared) = (queue.py(), queue.get().held().clone(), self.volume.get().shared().clone());
        let keys = keys_of(keys)?;
        let (pages, behind) = Pages::of(&shared, keys.len(), tensors, pages, groups, false)?;
        let pending = self.call(py, move |store| {
            queue.begin_behind(behind.as_ref())?;
            let bytes = pages.object_bytes();
            let objects: Vec<(KvKey, u64)> = keys.iter().map(|key| (*key, bytes)).collect();
            let mut lister = pages.lister();
            let storing = store.store(queue.get(), &objects, |list, i, extents| lister.add(list, i, extents))?;
            Ok(Pending::new(Moving::Store(storing, vec![bytes; keys.len()]), pages.groups(), &queue, &shared))
        })?;
        Ok(KvTransfer { pending })
    }

    fn __repr__(&self) -> String {
        format!("{:?}", &*self.store)
    }
}

/// Objects on their way between a KV store and pages of tensors: ``KvStore.load`` and ``KvStore.store``. Dropping it waits for the kernel.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct KvTransfer {
    pending: Pending,
}

#[pymethods]
impl KvTransfer {
    /// Returns true if the kernel has ended.
    fn is_ended(&self, py: Python<'_>) -> PyResult<bool> {
        self.pending.is_ended(py)
    }

    /// Makes later work on another stream wait for a group, such as a layer. The host does not wait. ``finish`` says whether the data is
    /// what was stored.
    fn wait_group(&self, py: Python<'_>, stream: &Bound<'_, PyAny>, group: u32) -> PyResult<()> {
        self.pending.wait_group(py, stream, group)
    }

    /// Waits at most ``timeout`` seconds for the kernel. Returns for each key the bytes of its object; a load returns the exception of an
    /// object that is absent, damaged, or of which a command failed. A store makes its objects durable and visible, or raises an
    /// exception, and none of them appears.
    ///
    /// A transfer that takes longer goes on: ``finish`` may be called again. Later calls have the result of the first one that has waited
    /// long enough.
    #[pyo3(signature = (timeout = None))]
    fn finish<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.pending.finish(py, timeout)?)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("KvTransfer(ended: {})", self.is_ended(py)?))
    }
}
