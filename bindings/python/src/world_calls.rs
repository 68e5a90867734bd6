//! Calls of a world: transfers, signals, atomic operations, order, and the collective calls of all PEs.

use crate::atomic::{self, Operands, Operation};
use crate::transfer::{self, Signal};
use crate::world::World;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

#[pymethods]
impl World {
    /// Copies ``source`` to ``dest`` on a PE. ``source`` is memory of this PE's engine of the same shape and type, or values of the host, which
    /// are cast and repeated as numpy does. Without ``stream`` the elements are there when the call returns; the PE learns of them by a
    /// barrier or a signal.
    #[pyo3(signature = (dest, source, pe, *, stream = None))]
    fn put(
        &self,
        py: Python<'_>,
        dest: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        pe: i64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        transfer::put(py, self, dest, source, pe, None, stream)
    }

    /// Copies ``source`` on a PE to this one. Returns a new tensor in the engine's memory, or ``out``: an array of numpy, or a tensor of another
    /// library on the engine's GPU.
    #[pyo3(signature = (source, pe, out = None, *, stream = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        source: &Bound<'py, PyAny>,
        pe: i64,
        out: Option<&Bound<'py, PyAny>>,
        stream: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        transfer::get(py, self, source, pe, out, stream)
    }

    /// Copies ``source`` to ``dest`` on a PE as ``put`` does, then updates ``signal`` there: an element of ``uint64``. ``op`` is ``"set"`` or
    /// ``"add"``. A PE that sees the signal also sees the elements.
    #[pyo3(signature = (dest, source, signal, value, pe, op = "set", *, stream = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn put_signal(
        &self,
        py: Python<'_>,
        dest: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        signal: &Bound<'_, PyAny>,
        value: u64,
        pe: i64,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let signal = Signal::of(self, signal, value, op)?;
        transfer::put(py, self, dest, source, pe, Some(signal), stream)
    }

    /// Updates ``signal`` on a PE. The elements of this PE's earlier puts arrive before.
    #[pyo3(signature = (signal, value, pe, op = "set", *, stream = None))]
    fn signal_op(
        &self,
        py: Python<'_>,
        signal: &Bound<'_, PyAny>,
        value: u64,
        pe: i64,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        transfer::signal_op(py, self, Signal::of(self, signal, value, op)?, pe, stream)
    }

    /// Waits until a comparison of ``signal`` of this PE with ``value`` holds: ``"eq"``, ``"ne"``, ``"gt"``, ``"le"``, ``"lt"``, ``"ge"``.
    /// Elements that were put before the signal have then arrived. The wait ends by the engine's deadline. ``pe`` is the PE that should
    /// signal: the error of a wait that fails names it. The signal of another PE ends the wait, too.
    #[pyo3(signature = (signal, value, cmp = "ge", *, pe = None, stream = None))]
    fn signal_wait(
        &self,
        py: Python<'_>,
        signal: &Bound<'_, PyAny>,
        value: u64,
        cmp: &str,
        pe: Option<i64>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        transfer::signal_wait(py, self, signal, (cmp, value), pe, stream)
    }

    /// ``signal_wait`` with the operands in OpenSHMEM's order.
    #[pyo3(signature = (signal, cmp, value, *, pe = None, stream = None))]
    fn wait_until(
        &self,
        py: Python<'_>,
        signal: &Bound<'_, PyAny>,
        cmp: &str,
        value: u64,
        pe: Option<i64>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        transfer::signal_wait(py, self, signal, (cmp, value), pe, stream)
    }

    /// Waits until at least ``n`` signals have arrived in ``signal`` of this PE that ``shadow`` does not count. Returns ``shadow`` plus
    /// ``n``, for the next wait; with a stream at once. The shadow is the sum of the signals that were consumed, 0 at first. Word and
    /// shadow wrap at 2**64. Elements that were put before these signals have then arrived. ``pe`` as of ``signal_wait``.
    #[pyo3(signature = (signal, shadow, n = 1, *, pe = None, stream = None))]
    fn signal_wait_shadow(
        &self,
        py: Python<'_>,
        signal: &Bound<'_, PyAny>,
        shadow: u64,
        n: u64,
        pe: Option<i64>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        transfer::signal_wait_shadow(py, self, signal, (shadow, n), pe, stream)
    }

    /// Returns the first element on a PE, read in one piece. Atomic words are integers and floats of 32 or 64 bits.
    fn atomic_fetch(&self, py: Python<'_>, word: &Bound<'_, PyAny>, pe: i64) -> PyResult<Py<PyAny>> {
        atomic::perform(
            py,
            self,
            Operation::Fetch,
            word,
            Operands { value: None, expected: None, fetch: true },
            pe,
            None,
        )
    }

    /// Sets the first element on a PE to ``value`` in one piece.
    #[pyo3(signature = (word, value, pe, *, stream = None))]
    fn atomic_set(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let operands = Operands { value: Some(value), expected: None, fetch: false };
        atomic::perform(py, self, Operation::Set, word, operands, pe, stream).map(drop)
    }

    /// Sets the first element on a PE to ``value``, and returns the previous value.
    fn atomic_swap(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
    ) -> PyResult<Py<PyAny>> {
        let operands = Operands { value: Some(value), expected: None, fetch: true };
        atomic::perform(py, self, Operation::Swap, word, operands, pe, None)
    }

    /// Sets the first element on a PE to ``value`` if it equals ``expected``. Returns the previous value. Integers only, as those below.
    fn atomic_compare_swap(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        expected: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
    ) -> PyResult<Py<PyAny>> {
        let operands = Operands { value: Some(value), expected: Some(expected), fetch: true };
        atomic::perform(py, self, Operation::CompareSwap, word, operands, pe, None)
    }

    /// Adds 1 to the first element on a PE.
    #[pyo3(signature = (word, pe, *, stream = None))]
    fn atomic_inc(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        pe: i64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.atomic_add(py, word, &1.into_bound_py_any(py)?, pe, stream)
    }

    /// Adds 1 to the first element on a PE, and returns the previous value.
    fn atomic_fetch_inc(&self, py: Python<'_>, word: &Bound<'_, PyAny>, pe: i64) -> PyResult<Py<PyAny>> {
        self.atomic_fetch_add(py, word, &1.into_bound_py_any(py)?, pe)
    }

    /// Adds ``value`` to the first element on a PE; integers wrap.
    #[pyo3(signature = (word, value, pe, *, stream = None))]
    fn atomic_add(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let operands = Operands { value: Some(value), expected: None, fetch: false };
        atomic::perform(py, self, Operation::Add, word, operands, pe, stream).map(drop)
    }

    /// ``atomic_add``, and returns the previous value.
    fn atomic_fetch_add(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
    ) -> PyResult<Py<PyAny>> {
        let operands = Operands { value: Some(value), expected: None, fetch: true };
        atomic::perform(py, self, Operation::Add, word, operands, pe, None)
    }

    /// Replaces the first element on a PE by its bitwise and with ``value``.
    #[pyo3(signature = (word, value, pe, *, stream = None))]
    fn atomic_and(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let operands = Operands { value: Some(value), expected: None, fetch: false };
        atomic::perform(py, self, Operation::And, word, operands, pe, stream).map(drop)
    }

    /// ``atomic_and``, and returns the previous value.
    fn atomic_fetch_and(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
    ) -> PyResult<Py<PyAny>> {
        let operands = Operands { value: Some(value), expected: None, fetch: true };
        atomic::perform(py, self, Operation::And, word, operands, pe, None)
    }

    /// Replaces the first element on a PE by its bitwise or with ``value``.
    #[pyo3(signature = (word, value, pe, *, stream = None))]
    fn atomic_or(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let operands = Operands { value: Some(value), expected: None, fetch: false };
        atomic::perform(py, self, Operation::Or, word, operands, pe, stream).map(drop)
    }

    /// ``atomic_or``, and returns the previous value.
    fn atomic_fetch_or(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
    ) -> PyResult<Py<PyAny>> {
        let operands = Operands { value: Some(value), expected: None, fetch: true };
        atomic::perform(py, self, Operation::Or, word, operands, pe, None)
    }

    /// Replaces the first element on a PE by its bitwise exclusive or with ``value``.
    #[pyo3(signature = (word, value, pe, *, stream = None))]
    fn atomic_xor(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let operands = Operands { value: Some(value), expected: None, fetch: false };
        atomic::perform(py, self, Operation::Xor, word, operands, pe, stream).map(drop)
    }

    /// ``atomic_xor``, and returns the previous value.
    fn atomic_fetch_xor(
        &self,
        py: Python<'_>,
        word: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        pe: i64,
    ) -> PyResult<Py<PyAny>> {
        let operands = Operands { value: Some(value), expected: None, fetch: true };
        atomic::perform(py, self, Operation::Xor, word, operands, pe, None)
    }

    /// Orders this PE's earlier puts before its later ones. Calls without ``stream`` are complete when they return, and a stream runs its calls
    /// in order, so that there is nothing left to do.
    fn fence(&self) -> PyResult<()> {
        self.held()?.fence();
        Ok(())
    }

    /// Waits until all puts, gets and atomic operations of this PE are complete: also those of its kernels.
    #[pyo3(signature = (*, stream = None))]
    fn quiet(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let on = self.on(py, stream, &[])?;
        self.run(py, on, |world, on| on.map_or_else(|| world.quiet(), |stream| world.quiet_on(stream)))
    }

    /// Waits until all PEs have called it. All that they have put before has arrived then. Collective.
    #[pyo3(signature = (*, stream = None))]
    fn barrier(slf: &Bound<'_, Self>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        Self::all(slf)?.barrier(slf.py(), stream)
    }

    /// Waits until all PEs have called it. Each can get what the others wrote to their own memory before. Collective.
    #[pyo3(signature = (*, stream = None))]
    fn sync(slf: &Bound<'_, Self>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        Self::all(slf)?.sync(slf.py(), stream)
    }

    /// Waits on the host, without a kernel, until all PEs have called it. Frees the memory that all of them have dropped. Collective.
    fn barrier_host(&self, py: Python<'_>) -> PyResult<()> {
        self.meet(py, |world| Ok(world.barrier_host()?))
    }

    /// Returns the bytes that each PE gives, in the order of the PEs. Collective, on the host.
    fn allgather<'py>(&self, py: Python<'py>, data: Vec<u8>) -> PyResult<Bound<'py, PyList>> {
        let all = self.meet(py, move |world| Ok(world.allgather(&data)?))?;
        PyList::new(py, all.iter().map(|bytes| PyBytes::new(py, bytes)))
    }

    /// ``Team.broadcast`` of all PEs.
    #[pyo3(signature = (dest, source = None, root = 0, *, stream = None))]
    fn broadcast(
        slf: &Bound<'_, Self>,
        dest: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        root: i64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Self::all(slf)?.broadcast(slf.py(), dest, source, root, stream)
    }

    /// ``Team.all_gather`` of all PEs.
    #[pyo3(signature = (dest, source, *, stream = None))]
    fn all_gather(
        slf: &Bound<'_, Self>,
        dest: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Self::all(slf)?.all_gather(slf.py(), dest, source, stream)
    }

    /// ``Team.alltoall`` of all PEs.
    #[pyo3(signature = (dest, source, *, stream = None))]
    fn alltoall(
        slf: &Bound<'_, Self>,
        dest: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Self::all(slf)?.alltoall(slf.py(), dest, source, stream)
    }

    /// ``Team.all_reduce`` of all PEs.
    #[pyo3(signature = (dest, source = None, op = "sum", *, stream = None))]
    fn all_reduce(
        slf: &Bound<'_, Self>,
        dest: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Self::all(slf)?.all_reduce(slf.py(), dest, source, op, stream)
    }

    /// ``Team.reduce_scatter`` of all PEs.
    #[pyo3(signature = (dest, source, op = "sum", *, scratch = None, stream = None))]
    fn reduce_scatter(
        slf: &Bound<'_, Self>,
        dest: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        op: &str,
        scratch: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        Self::all(slf)?.reduce_scatter(slf.py(), dest, source, op, scratch, stream)
    }
}
