//! Registration of memory that was allocated elsewhere as symmetric.

use super::slices::LocalSlice;
use crate::memory::Region;
use crate::shmem::{ShmemError, Window, World};
use bytemuck::Pod;

impl World {
    /// Registers memory of each PE as symmetric, so that kernels and host calls put to it and get from it by the PE's
    /// number. Collective: each PE passes memory of its engine, of the same number of elements. An error on one PE is an
    /// error on all.
    ///
    /// The memory is that of a region: of [`Engine::allocate`](crate::engine::Engine::allocate), or of another library
    /// ([`Space::import_device`](crate::memory::Space::import_device)). The window shares its ownership. It stays
    /// registered until every PE has dropped its [`Window`] and the clones of it; the next collective call finds that
    /// out, or the end of the world.
    ///
    /// # Errors
    /// - [`ShmemError::Unequal`] if the PEs pass different numbers of bytes.
    /// - [`ShmemError::OnRanks`] if the memory of a PE cannot be registered, or another PE cannot get to it: the reason
    ///   names both, and the next step.
    /// - [`ShmemError::Memory`] if the window's table cannot be allocated.
    /// - [`ShmemError::Bootstrap`] if a rank is gone or does not call within [`World::timeout`],
    ///   [`ShmemError::OutOfStep`] if the ranks make different calls.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::memory::Place;
    /// use warpbell::shmem::World;
    /// use warpbell::shmem::calls::LocalSlice;
    ///
    /// # fn on_each(worlds: Vec<World>, work: fn(&World) -> Result<(), Failure>) -> Result<(), Failure> {
    /// #     let pes: Vec<_> = worlds.into_iter().map(|world| std::thread::spawn(move || work(&world))).collect();
    /// #     pes.into_iter().try_for_each(|pe| pe.join().expect("no panic"))
    /// # }
    /// # type Failure = Box<dyn std::error::Error + Send + Sync>;
    /// // Two PEs with CPU engines; a closure runs for each PE, in a thread of its own.
    /// on_each(World::local(2)?, |world| {
    ///     let memory = world.engine().allocate(Place::Device, 400)?;
    ///     let window = world.symmetric_from(LocalSlice::<u32>::in_region(world, &memory, 0, 100)?)?;
    ///     let next = (world.my_pe() + 1) % 2;
    ///     world.put(window.slice(3..5)?, &[7, 8], next)?;
    ///     world.barrier_all()?;
    ///     assert_eq!(memory.get_slice::<u32>(4 * 3, 2)?, [7, 8]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn symmetric_from<T: Pod>(&self, memory: LocalSlice<'_, T>) -> Result<Window<T>, ShmemError> {
        self.register(self.registrable(memory), memory.len())
    }

    /// Returns the memory as a region of its own; or says why it cannot be registered.
    fn registrable<T: Pod>(&self, memory: LocalSlice<'_, T>) -> Result<Region, String> {
        let (at, bytes, align) = (memory.address(), memory.len() * size_of::<T>(), align_of::<T>() as u64);
        let whole =
            memory.region().ok_or("the memory is in the symmetric heap; use the array itself, which is symmetric")?;
        if bytes == 0 {
            return Err("there is no memory to register; pass at least one element".to_owned());
        }
        if !whole.space().same(self.engine().space()) {
            return Err("the memory is that of another engine; pass memory of the world's engine".to_owned());
        }
        if !at.is_multiple_of(align) {
            return Err(format!(
                "address {at:#x} is no multiple of {align}, the alignment of the elements; pass aligned memory"
            ));
        }
        whole.part((at - whole.address()) as usize, bytes).map_err(|e| e.to_string())
    }
}
