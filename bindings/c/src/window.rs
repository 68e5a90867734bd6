//! Windows: memory of each PE that was allocated elsewhere and registered as symmetric.

use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::pointer::{In, Out, Owned};
use crate::region::wb_region_t;
use crate::symmetric::{part, share, wb_symmetric_t};
use crate::world::wb_world_t;
use crate::world_error::of_world;
use std::ffi::c_void;
use warpbell::engine::abi::Window as wb_window;
use warpbell::memory::Place;
use warpbell::shmem::calls::{LocalSlice, RemoteSlice};
use warpbell::shmem::{ShmemError, Sym, Window, World};

/// Memory of each PE that all PEs have registered together. `wb_symmetric_put_from`, `wb_symmetric_get_into` and
/// `wb_symmetric_put_signal` take it as the memory of another PE.
pub struct wb_window_t {
    _private: (),
}

object!(wb_window_t: Window<u8>, "window");

/// The end of a put or get that each PE has.
pub(crate) enum Remote {
    Symmetric(Sym<u8>),
    Window(Window<u8>),
}

impl Remote {
    pub(crate) fn of(handle: In<c_void>) -> Result<Self, Error> {
        if handle.is::<wb_window_t>()? {
            return Ok(Self::Window(handle.handle::<wb_window_t>().get()?.clone()));
        }
        Ok(Self::Symmetric(share(handle.handle::<wb_symmetric_t>())?))
    }

    pub(crate) fn world(&self) -> &World {
        match self {
            Self::Symmetric(memory) => memory.world(),
            Self::Window(window) => window.world(),
        }
    }

    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Result<RemoteSlice<'_, u8>, ShmemError> {
        match self {
            Self::Symmetric(memory) => part(memory, offset, bytes).map(Into::into),
            Self::Window(window) => window.slice(offset..offset.saturating_add(bytes)).map(Into::into),
        }
    }
}

/// Takes part in a registration without memory, which is an error on all PEs.
fn tell_others(world: &World) -> Result<(), Error> {
    let nothing = of_world(world, world.engine().allocate(Place::Host, 1).map_err(ShmemError::from))?;
    let nothing = of_world(world, LocalSlice::<u8>::in_region(world, &nothing, 0, 0))?;
    // The caller returns why this PE has no memory.
    let _ = world.symmetric_from(nothing);
    Ok(())
}

/// Registers a part of a region as symmetric, so that the PEs put to it and get from it. Collective; an error on one PE is an error
/// on all. The region may be memory of the program (`wb_region_import_device`).
///
/// @param region Memory of the world's engine, which the window keeps.
/// @param offset First byte.
/// @param bytes Number of bytes, the same on all PEs.
/// @param window Receives the window, with one reference.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the range lies outside the region, or the region is of another engine; `WB_ERR_WORLD` if the
///   PEs pass different numbers of bytes, a PE cannot get to the memory of another, a rank is lost or the ranks make different calls;
///   `WB_ERR_TIMEOUT` if a rank does not call within the world's timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_window_register(
    world: In<wb_world_t>,
    region: In<wb_region_t>,
    offset: usize,
    bytes: usize,
    window: Out<*mut wb_window_t>,
) -> wb_code {
    guard(|| {
        window.check("window")?;
        let (world, region) = (world.get()?, region.get()?);
        let memory = match LocalSlice::<u8>::in_region(world, region, offset, bytes) {
            Ok(memory) => memory,
            Err(e) => {
                tell_others(world)?;
                return of_world(world, Err(e));
            }
        };
        window.give(of_world(world, world.symmetric_from(memory))?)
    })
}

/// Adds a reference to a window.
///
/// @return The window; null with an error if it is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_window_retain(window: Owned<wb_window_t>) -> *mut wb_window_t {
    window.retain()
}

/// Gives a reference to a window back. Not collective: the memory stays registered until all PEs have released theirs, which the
/// next collective call finds out. Runs and streams keep the windows of their kernels.
///
/// @param window The window; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_window_release(window: Owned<wb_window_t>) {
    window.release()
}

/// Returns the structure that kernels take as the window: `warpbell::window<T>` is made from it.
///
/// @param view Receives the structure. It is valid while the program holds a reference and until kernels with it have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_window_get_view(window: In<wb_window_t>, view: Out<wb_window>) -> wb_code {
    guard(|| view.write("view", window.get()?.view()))
}
