//! Copies between host memory and the memory of any PE.

use super::rma::Direction;
use super::slices::{LocalSlice, Remote, RemoteSlice};
use crate::memory::Place;
use crate::shmem::{ShmemError, World};
use bytemuck::Pod;

/// Most bytes that a call moves at once between host memory and a window of another process.
const PIECE_BYTES: usize = 1 << 20;

impl World {
    /// Copies `source` from host memory to the first elements of `dest` on PE `pe`. The copy is complete on return.
    ///
    /// # Errors
    /// [`ShmemError::Foreign`] if `dest` belongs to another world, and the errors of [`SymSlice::put`](crate::shmem::SymSlice::put).
    pub fn put<'a, T: Pod>(
        &self,
        dest: impl Into<RemoteSlice<'a, T>>,
        source: &[T],
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.write_remote(dest.into(), source, pe)
    }

    /// Copies the elements of `source` on PE `pe` to host memory.
    ///
    /// # Errors
    /// [`ShmemError::Foreign`] if `source` belongs to another world, and the errors of [`SymSlice::get`](crate::shmem::SymSlice::get).
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::shmem::World;
    ///
    /// # fn on_each(worlds: Vec<World>, work: fn(&World) -> Result<(), Failure>) -> Result<(), Failure> {
    /// #     let pes: Vec<_> = worlds.into_iter().map(|world| std::thread::spawn(move || work(&world))).collect();
    /// #     pes.into_iter().try_for_each(|pe| pe.join().expect("no panic"))
    /// # }
    /// # type Failure = Box<dyn std::error::Error + Send + Sync>;
    /// // Two PEs with CPU engines; a closure runs for each PE, in a thread of its own.
    /// on_each(World::local(2)?, |world| {
    ///     let squares = world.malloc::<u64>(1)?;
    ///     squares.write(0, &[(world.my_pe() as u64 + 3).pow(2)])?;
    ///     world.barrier_all()?;
    ///     assert_eq!(world.get(&squares, 1)?, [16]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn get<'a, T: Pod>(&self, source: impl Into<RemoteSlice<'a, T>>, pe: usize) -> Result<Vec<T>, ShmemError> {
        let source = source.into();
        self.read_remote(source, source.len(), pe)
    }

    /// Writes the first element of `dest` on PE `pe`. The write is complete on return.
    ///
    /// # Errors
    /// The errors of [`World::put`].
    pub fn p<'a, T: Pod>(&self, dest: impl Into<RemoteSlice<'a, T>>, value: T, pe: usize) -> Result<(), ShmemError> {
        self.put(dest, &[value], pe)
    }

    /// Returns the first element of `source` on PE `pe`.
    ///
    /// # Errors
    /// The errors of [`World::get`].
    pub fn g<'a, T: Pod>(&self, source: impl Into<RemoteSlice<'a, T>>, pe: usize) -> Result<T, ShmemError> {
        Ok(self.read_remote(source.into(), 1, pe)?[0])
    }

    /// Copies values from host memory to the first elements of `dest` on PE `pe`.
    fn write_remote<T: Pod>(&self, dest: RemoteSlice<'_, T>, values: &[T], pe: usize) -> Result<(), ShmemError> {
        let dest = self.remote_end(dest, values.len(), pe)?;
        let window = match dest.0 {
            Remote::Heap(s) => return s.put(0, values, pe),
            Remote::Window(window) => window,
        };
        if values.is_empty() || window.write(pe, values)? {
            return Ok(());
        }
        let piece = pieces_of::<T>();
        let bounce = self.engine().allocate(Place::Host, piece.min(values.len()) * size_of::<T>())?;
        for (nth, some) in values.chunks(piece).enumerate() {
            bounce.set_slice(0, some)?;
            let from = LocalSlice::in_region(self, &bounce, 0, some.len())?;
            self.copy(None, Direction::Put, window.slice(nth * piece..)?.into(), from, pe)?;
        }
        Ok(())
    }

    /// Copies the first `n` elements of `source` on PE `pe` to host memory.
    fn read_remote<T: Pod>(&self, source: RemoteSlice<'_, T>, n: usize, pe: usize) -> Result<Vec<T>, ShmemError> {
        let source = self.remote_end(source, n, pe)?;
        let window = match source.0 {
            Remote::Heap(s) => return s.get(0, n, pe),
            Remote::Window(window) => window,
        };
        let mut out = vec![T::zeroed(); n];
        if out.is_empty() || window.read(pe, &mut out)? {
            return Ok(out);
        }
        let piece = pieces_of::<T>();
        let bounce = self.engine().allocate(Place::Host, piece.min(n) * size_of::<T>())?;
        for (nth, some) in out.chunks_mut(piece).enumerate() {
            let to = LocalSlice::in_region(self, &bounce, 0, some.len())?;
            self.copy(None, Direction::Get, window.slice(nth * piece..)?.into(), to, pe)?;
            bounce.read(0, bytemuck::cast_slice_mut(some))?;
        }
        Ok(out)
    }
}

/// Returns the number of elements that are moved at once.
fn pieces_of<T>() -> usize {
    (PIECE_BYTES / size_of::<T>().max(1)).max(1)
}
