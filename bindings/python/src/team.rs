//! Teams: subsets of a world's PEs, and their collective calls.

use crate::call::Shared;
use crate::dtype;
use crate::error::Failure;
use crate::external::DeviceView;
use crate::fork;
use crate::held::Held;
use crate::symmetric::{Elements, pe_of};
use crate::world::{On, World, on_stream, run_on};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;
use warpbell::engine::Stream;
use warpbell::shmem::calls::{And, Max, Min, Or, Prod, Reducible, ReducibleInteger, Reduction, Sum, Xor};
use warpbell::shmem::{ShmemError, SymSlice};
use warpbell::storage::ElementType;

/// Some PEs of a world, numbered from 0. ``World.team`` is the team of all.
///
/// Every member makes the same collective calls, in the same order and with the same arguments. Without ``stream`` a call is complete when
/// it returns. With a ``warpbell.Stream`` it runs behind the work that is there, and the call returns at once.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct Team {
    team: Arc<Held<warpbell::shmem::Team>>,
    world: Py<World>,
}

#[derive(Clone, Copy)]
enum Op {
    Sum,
    Prod,
    Min,
    Max,
    And,
    Or,
    Xor,
}

impl Op {
    fn of(name: &str) -> Result<Self, Failure> {
        Ok(match name {
            "sum" => Self::Sum,
            "prod" => Self::Prod,
            "min" => Self::Min,
            "max" => Self::Max,
            "and" => Self::And,
            "or" => Self::Or,
            "xor" => Self::Xor,
            other => {
                let text = format!("op is `{other}`; use sum, prod, min, max, and for integers and, or, xor");
                return Err(Failure::invalid(text));
            }
        })
    }
}

impl Team {
    pub(crate) fn new(team: warpbell::shmem::Team, world: Py<World>) -> Self {
        Self { team: Arc::new(Held::new(team)), world }
    }

    /// Returns the library's team.
    pub(crate) fn held(&self) -> Arc<Held<warpbell::shmem::Team>> {
        self.team.clone()
    }

    fn shared(&self) -> &Arc<Shared> {
        self.world.get().shared()
    }

    /// Runs a call of the host that takes no arrays.
    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&warpbell::shmem::Team) -> Result<T, ShmemError> + Send + 'static,
    ) -> PyResult<T> {
        self.run(py, On::Host(None), move |team, _| work(team))
    }

    fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        on: On,
        work: impl FnOnce(&warpbell::shmem::Team, Option<&Stream>) -> Result<T, ShmemError> + Send + 'static,
    ) -> PyResult<T> {
        // A world that is closed has no calls any more, those of its teams included.
        drop(self.world.get().held()?);
        let team = self.team.clone();
        run_on(py, self.shared(), on, move |on| (work(&team, on), team.world().clone()))
    }

    /// Finds the arrays of a collective call. Both are of one type.
    fn pair(&self, dest: &Bound<'_, PyAny>, source: Option<&Bound<'_, PyAny>>) -> PyResult<(Elements, Elements)> {
        let blocks = self.world.get().blocks();
        let to = blocks.find(dest, "dest")?;
        let from = source.map_or_else(|| Ok(to.clone()), |source| blocks.find(source, "source"))?;
        if to.element != from.element {
            let text = format!("dest has {}, and source {}; both need the same type", to.text(), from.text());
            return Err(Failure::invalid(text).into());
        }
        Ok((to, from))
    }

    fn on(
        &self,
        py: Python<'_>,
        stream: Option<&Bound<'_, PyAny>>,
        arrays: &[Option<&Bound<'_, PyAny>>],
    ) -> PyResult<On> {
        let arrays: Vec<_> = arrays.iter().flatten().copied().collect();
        on_stream(py, self.shared(), stream, &arrays)
    }

    /// Runs a call that moves elements as they are. `dest` has `times` as many as `source`.
    fn exchange(
        &self,
        py: Python<'_>,
        (dest, source): (&Bound<'_, PyAny>, Option<&Bound<'_, PyAny>>),
        times: usize,
        stream: Option<&Bound<'_, PyAny>>,
        work: impl FnOnce(
            &warpbell::shmem::Team,
            Option<&Stream>,
            SymSlice<'_, u8>,
            SymSlice<'_, u8>,
        ) -> Result<(), ShmemError>
        + Send
        + 'static,
    ) -> PyResult<()> {
        let (to, from) = self.pair(dest, source)?;
        if to.part.bytes() != from.part.bytes() * times {
            let text =
                format!("dest has {}, and source {}; dest needs {times} times the elements", to.text(), from.text());
            return Err(Failure::invalid(text).into());
        }
        let on = self.on(py, stream, &[Some(dest), source])?;
        self.run(py, on, move |team, on| work(team, on, to.part.elements()?, from.part.elements()?))
    }

    fn reduce_to(&self, py: Python<'_>, op: Op, to: Elements, from: Elements, on: On) -> PyResult<()> {
        match (op, to.element) {
            (Op::And | Op::Or | Op::Xor, ElementType::F32 | ElementType::F64) => Err(Failure::invalid(format!(
                "bitwise reductions are for integers, and the elements are {}",
                to.dtype()
            ))
            .into()),
            (_, ElementType::U8) => self.reduce_integers::<u8>(py, op, to, from, on),
            (_, ElementType::U16) => self.reduce_integers::<u16>(py, op, to, from, on),
            (_, ElementType::U32) => self.reduce_integers::<u32>(py, op, to, from, on),
            (_, ElementType::U64) => self.reduce_integers::<u64>(py, op, to, from, on),
            (_, ElementType::I8) => self.reduce_integers::<i8>(py, op, to, from, on),
            (_, ElementType::I16) => self.reduce_integers::<i16>(py, op, to, from, on),
            (_, ElementType::I32) => self.reduce_integers::<i32>(py, op, to, from, on),
            (_, ElementType::I64) => self.reduce_integers::<i64>(py, op, to, from, on),
            (_, ElementType::F32) => self.reduce_numbers::<f32>(py, op, to, from, on),
            (_, ElementType::F64) => self.reduce_numbers::<f64>(py, op, to, from, on),
            _ => {
                let text = format!("elements of {} cannot be reduced; reduce copies of float32", to.dtype());
                Err(Failure::invalid(text).into())
            }
        }
    }

    fn reduce_integers<T: ReducibleInteger>(
        &self,
        py: Python<'_>,
        op: Op,
        to: Elements,
        from: Elements,
        on: On,
    ) -> PyResult<()> {
        match op {
            Op::And => self.reduce_by::<T>(py, And, to, from, on),
            Op::Or => self.reduce_by::<T>(py, Or, to, from, on),
            Op::Xor => self.reduce_by::<T>(py, Xor, to, from, on),
            op => self.reduce_numbers::<T>(py, op, to, from, on),
        }
    }

    fn reduce_numbers<T: Reducible>(
        &self,
        py: Python<'_>,
        op: Op,
        to: Elements,
        from: Elements,
        on: On,
    ) -> PyResult<()> {
        match op {
            Op::Prod => self.reduce_by::<T>(py, Prod, to, from, on),
            Op::Min => self.reduce_by::<T>(py, Min, to, from, on),
            Op::Max => self.reduce_by::<T>(py, Max, to, from, on),
            _ => self.reduce_by::<T>(py, Sum, to, from, on),
        }
    }

    fn reduce_by<T: Reducible>(
        &self,
        py: Python<'_>,
        how: impl Reduction<T> + Send + 'static,
        to: Elements,
        from: Elements,
        on: On,
    ) -> PyResult<()> {
        self.run(py, on, move |team, on| match on {
            None => team.reduce(how, to.part.elements::<T>()?, from.part.elements()?),
            Some(stream) => team.reduce_on(stream, how, to.part.elements::<T>()?, from.part.elements()?),
        })
    }
}

#[pymethods]
impl Team {
    /// Number of this PE in the team, from 0.
    #[getter]
    fn my_pe(&self) -> usize {
        self.team.my_pe()
    }

    /// Number of members.
    #[getter]
    fn n_pes(&self) -> usize {
        self.team.n_pes()
    }

    /// The world of the team.
    #[getter]
    fn world(&self, py: Python<'_>) -> Py<World> {
        self.world.clone_ref(py)
    }

    /// Returns the number of a member in the world.
    fn world_pe(&self, member: i64) -> PyResult<usize> {
        let member = pe_of(member, self.team.n_pes())?;
        Ok(self.team.world_pe(member).unwrap_or(member))
    }

    /// Returns the number that a member has in another team, or ``None`` if it is not there.
    fn translate_pe(&self, member: i64, other: &Self) -> PyResult<Option<usize>> {
        Ok(self.team.translate_pe(pe_of(member, self.team.n_pes())?, &other.team))
    }

    /// Makes a team of ``size`` members of this one: ``start``, ``start + stride``, and so on. Returns ``None`` on the others. Collective.
    fn split_strided(&self, py: Python<'_>, start: usize, stride: usize, size: usize) -> PyResult<Option<Self>> {
        let made = self.call(py, move |team| team.split_strided(start, stride, size))?;
        Ok(made.map(|team| Self::new(team, self.world.clone_ref(py))))
    }

    /// Lays the members out in rows of ``width``, and returns the teams of this member's row and column. Collective.
    fn split_2d(&self, py: Python<'_>, width: usize) -> PyResult<(Self, Self)> {
        let (row, column) = self.call(py, move |team| team.split_2d(width))?;
        Ok((Self::new(row, self.world.clone_ref(py)), Self::new(column, self.world.clone_ref(py))))
    }

    /// Waits until all members have called it. All that they have put before has arrived then. Collective.
    #[pyo3(signature = (*, stream = None))]
    pub(crate) fn barrier(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let on = self.on(py, stream, &[])?;
        self.run(py, on, |team, on| on.map_or_else(|| team.barrier(), |stream| team.barrier_on(stream)))
    }

    /// Waits until all members have called it. Each can get what the others wrote to their own memory before. Collective.
    #[pyo3(signature = (*, stream = None))]
    pub(crate) fn sync(&self, py: Python<'_>, stream: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let on = self.on(py, stream, &[])?;
        self.run(py, on, |team, on| on.map_or_else(|| team.sync(), |stream| team.sync_on(stream)))
    }

    /// Copies ``source`` of member ``root`` to ``dest`` of every member: by default ``dest`` of that member. Collective.
    ///
    /// No PE may still read or write ``dest`` on any member: a ``barrier`` before ensures that.
    #[pyo3(signature = (dest, source = None, root = 0, *, stream = None))]
    pub(crate) fn broadcast(
        &self,
        py: Python<'_>,
        dest: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        root: i64,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let root = pe_of(root, self.team.n_pes())?;
        self.exchange(py, (dest, source), 1, stream, move |team, on, to, from| match on {
            None => team.broadcast(to, from, root),
            Some(stream) => team.broadcast_on(stream, to, from, root),
        })
    }

    /// Concatenates ``source`` of all members, in their order, in ``dest`` of every member. Collective.
    ///
    /// ``source`` may be its own place in ``dest``. No PE may still read or write ``dest`` on any member.
    #[pyo3(signature = (dest, source, *, stream = None))]
    pub(crate) fn all_gather(
        &self,
        py: Python<'_>,
        dest: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.exchange(py, (dest, Some(source)), self.team.n_pes(), stream, |team, on, to, from| match on {
            None => team.fcollect(to, from),
            Some(stream) => team.fcollect_on(stream, to, from),
        })
    }

    /// ``all_gather`` by its name in OpenSHMEM.
    #[pyo3(signature = (dest, source, *, stream = None))]
    fn fcollect(
        &self,
        py: Python<'_>,
        dest: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.all_gather(py, dest, source, stream)
    }

    /// Copies this member's part of each member's ``source`` to that member's part of ``dest``. Collective.
    ///
    /// Both have one part for each member. No PE may still read or write ``dest`` on any member.
    #[pyo3(signature = (dest, source, *, stream = None))]
    pub(crate) fn alltoall(
        &self,
        py: Python<'_>,
        dest: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (to, members) = (self.world.get().blocks().find(dest, "dest")?, self.team.n_pes());
        if !to.shape.iter().product::<u64>().is_multiple_of(members as u64) {
            let text = format!("dest has {}, which are no {members} equal parts, one for each member", to.text());
            return Err(Failure::invalid(text).into());
        }
        self.exchange(py, (dest, Some(source)), 1, stream, |team, on, to, from| match on {
            None => team.alltoall(to, from),
            Some(stream) => team.alltoall_on(stream, to, from),
        })
    }

    /// Combines ``source`` of all members, element by element, in ``dest`` of every member: by default ``dest`` itself. Collective.
    ///
    /// ``op`` is ``"sum"``, ``"prod"``, ``"min"``, ``"max"``, and for integers ``"and"``, ``"or"``, ``"xor"``. Floating-point results have
    /// the same bits on every PE.
    #[pyo3(signature = (dest, source = None, op = "sum", *, stream = None))]
    pub(crate) fn all_reduce(
        &self,
        py: Python<'_>,
        dest: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let op = Op::of(op)?;
        let (to, from) = self.pair(dest, source)?;
        let on = self.on(py, stream, &[Some(dest), source])?;
        self.reduce_to(py, op, to, from, on)
    }

    /// ``all_reduce`` by its name in OpenSHMEM.
    #[pyo3(signature = (dest, source = None, op = "sum", *, stream = None))]
    fn reduce(
        &self,
        py: Python<'_>,
        dest: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.all_reduce(py, dest, source, op, stream)
    }

    /// Combines ``source`` of all members, and stores this member's part of the result in ``dest``. Collective.
    ///
    /// ``source`` has one part for each member. ``scratch`` is symmetric memory of its size and type, which the call overwrites; it may be
    /// ``source`` itself. A team of all PEs allocates it if it is not given, and then no ``stream`` is possible.
    #[pyo3(signature = (dest, source, op = "sum", *, scratch = None, stream = None))]
    pub(crate) fn reduce_scatter(
        &self,
        py: Python<'_>,
        dest: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        op: &str,
        scratch: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let op = Op::of(op)?;
        let (to, from) = self.pair(dest, Some(source))?;
        let (me, members, bytes) = (self.team.my_pe(), self.team.n_pes(), to.part.bytes());
        if from.part.bytes() != bytes * members {
            let text = format!(
                "dest has {}, and source {}; source needs as many elements for each of {members} members",
                to.text(),
                from.text()
            );
            return Err(Failure::invalid(text).into());
        }
        let world = self.world.get();
        let all = match scratch {
            Some(scratch) => self.pair(scratch, Some(source))?.0,
            None if members == world.pes() && stream.is_none() => {
                let shape = from.shape.clone();
                let made = world.allocate(py, shape, from.element)?;
                world.blocks().find(made.as_any(), "scratch")?
            }
            None => {
                let text = "reduce_scatter of a team of some PEs, or on a stream, needs scratch=: symmetric memory of the source's size";
                return Err(Failure::invalid(text).into());
            }
        };
        let on = self.on(py, stream, &[Some(dest), Some(source), scratch])?;
        let my_part = all.part.part(me * bytes, bytes);
        self.reduce_to(py, op, all, from, on.clone())?;
        self.run(py, on, move |team, on| {
            let (world, pe) = (team.world(), team.world().my_pe());
            match on {
                None => world.put_from(to.part.elements::<u8>()?, my_part.elements()?, pe),
                Some(stream) => world.put_from_on(stream, to.part.elements::<u8>()?, my_part.elements()?, pe),
            }
        })
    }

    /// Returns the bytes of the ``wb_team_view`` that kernels make a ``team_ref`` of. They are valid while this object lives.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        fork::check()?;
        Ok(PyBytes::new(py, bytemuck::bytes_of(&self.team.view())))
    }

    /// Copies the view to memory that the engine's kernels see, for kernels that take its address.
    fn device_view(slf: &Bound<'_, Self>) -> PyResult<DeviceView> {
        let this = slf.get();
        DeviceView::new(this.shared(), slf.clone().into_any(), bytemuck::bytes_of(&this.team.view()))
    }

    fn __repr__(&self) -> String {
        let members: Vec<u64> =
            (0..self.team.n_pes()).filter_map(|m| self.team.world_pe(m)).map(|pe| pe as u64).collect();
        format!(
            "Team(PE {} of {}, PEs {} of the world)",
            self.team.my_pe(),
            self.team.n_pes(),
            dtype::shape_text(&members)
        )
    }
}
