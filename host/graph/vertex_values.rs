//! Values of all vertices in the engine's memory, as algorithms leave them.

use super::edges::{GraphError, GraphOnEngine};
use super::paths::path_by;
use crate::engine::{Args, KernelArg};
use crate::graph::parallel;
use crate::memory::{MemoryError, Place, Region};
use crate::storage::{Element, ElementType};

/// One value for each vertex, in the order of the vertices, in the engine's memory. Kernels get the address of the first
/// value. Clones share the memory, and no later run changes the values.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{BfsOptions, Csr, CsrOptions, Graph, Placement};
/// use warpbell::storage::ElementType;
///
/// let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 3)], CsrOptions::default())?;
/// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
/// let depth = graph.bfs_on_device(0, &BfsOptions::default())?.depth;
/// assert_eq!((depth.element_type(), depth.len()), (ElementType::U32, 4));
/// // Another kernel takes `&depth` among its arguments. The host copies what it needs.
/// assert_eq!(depth.region().get_slice::<u32>(4, 2)?, [1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct VertexValues {
    /// Where algorithms keep the values, in the order of the lists.
    region: Region,
    /// Where programs find them, if the lists are in an order of their own.
    outside: Option<Region>,
    element_type: ElementType,
    vertices: usize,
}

impl VertexValues {
    pub(super) fn allocate<T: Element>(graph: &GraphOnEngine) -> Result<Self, MemoryError> {
        let vertices = graph.vertices as usize;
        let allocate = || graph.engine.allocate(Place::Device, vertices * size_of::<T>());
        let outside = graph.order.as_ref().map(|_| allocate()).transpose()?;
        Ok(Self { region: allocate()?, outside, element_type: T::TYPE, vertices })
    }

    /// Allocates identifiers of vertices, of the width of the graph's neighbours.
    pub(super) fn allocate_ids(graph: &GraphOnEngine) -> Result<Self, MemoryError> {
        if graph.wide { Self::allocate::<u64>(graph) } else { Self::allocate::<u32>(graph) }
    }

    /// Returns true if nothing else has this memory.
    pub(super) fn is_unique(&mut self) -> bool {
        self.region.is_unique() && self.outside.as_mut().is_none_or(Region::is_unique)
    }

    /// Gives the next run memory of its own if the result of an earlier one still has this memory.
    pub(super) fn unshare(&mut self, graph: &GraphOnEngine) -> Result<(), MemoryError> {
        for region in std::iter::once(&mut self.region).chain(&mut self.outside) {
            if !region.is_unique() {
                *region = graph.engine.allocate(Place::Device, region.len())?;
            }
        }
        Ok(())
    }

    /// Returns the memory. It may be longer than the values, which are at its beginning.
    pub fn region(&self) -> &Region {
        self.outside.as_ref().unwrap_or(&self.region)
    }

    /// Returns the type of a value.
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// Returns the number of values, which is the number of vertices.
    pub fn len(&self) -> usize {
        self.vertices
    }

    /// Returns true if the graph has no vertices.
    pub fn is_empty(&self) -> bool {
        self.vertices == 0
    }

    /// Returns the vertices of a path from the source of a search to `target`, both included, for values that are the
    /// predecessors of its vertices. Copies one value for each vertex of the path. Returns `None` if the search did not
    /// reach `target`, or if the values are not predecessors.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if the engine's memory cannot be read.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::graph::{BfsOptions, Csr, CsrOptions, Graph, Placement};
    ///
    /// let csr = Csr::from_edges(4, &[(0, 1), (1, 2)], CsrOptions::default())?;
    /// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
    /// let parent = graph.bfs_on_device(0, &BfsOptions::default())?.parent.expect("found by default");
    /// assert_eq!(parent.path_to(2)?, Some(vec![0, 1, 2]));
    /// assert_eq!(parent.path_to(3)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn path_to(&self, target: u64) -> Result<Option<Vec<u64>>, GraphError> {
        let narrow = match self.element_type {
            ElementType::U32 => true,
            ElementType::U64 => false,
            _ => return Ok(None),
        };
        path_by(self.vertices, target, |v| {
            Ok(if narrow {
                self.region().get::<u32>(v * size_of::<u32>())?.into()
            } else {
                self.region().get(v * size_of::<u64>())?
            })
        })
    }

    /// Returns the address of the values in the order of the lists.
    pub(super) fn address(&self) -> u64 {
        self.region.address()
    }

    /// Returns the memory of the values in the order of the lists.
    pub(super) fn inside(&self) -> &Region {
        &self.region
    }

    /// Returns the address to which an algorithm brings its values at the end, if lists are in an order of their own.
    pub(super) fn outside_address(&self) -> Option<u64> {
        self.outside.as_ref().map(Region::address)
    }

    /// Copies values of type `T` to the host.
    pub(super) fn read<T: Element>(&self) -> Result<Vec<T>, GraphError> {
        debug_assert_eq!(T::TYPE, self.element_type);
        Ok(self.region().get_slice(0, self.vertices)?)
    }

    /// Copies integers to the host as 64-bit ones. The largest value stays the largest one: it stands for "none".
    pub(super) fn read_wide(&self) -> Result<Vec<u64>, GraphError> {
        if self.element_type == ElementType::U64 {
            return self.read();
        }
        let widen = |v: u32| if v == u32::MAX { u64::MAX } else { u64::from(v) };
        let narrow = self.read::<u32>()?;
        Ok(parallel::map(narrow.len(), |v| widen(narrow[v])))
    }
}

/// Passes the address of the first value.
impl KernelArg for VertexValues {
    fn push(&self, args: &mut Args) {
        self.region().push(args);
    }
}
