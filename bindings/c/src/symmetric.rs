//! Memory in the symmetric heap, put and get.

use crate::error::{Error, WB_ERR_STATE, guard, wb_code};
use crate::object::{Keepable, Object, Owner, object};
use crate::pointer::{In, Out, Owned};
use crate::region::wb_region_t;
use crate::stream::wb_stream_t;
use crate::window::Remote;
use crate::world::wb_world_t;
use crate::world_error::{number, of_world};
use bytemuck::Pod;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use warpbell::engine::Stream;
use warpbell::memory::Region;
use warpbell::shmem::calls::LocalSlice;
use warpbell::shmem::{ShmemError, Sym, SymSlice, World};

/// Memory in the symmetric heap: as many bytes on every PE, at one offset of its heap.
pub struct wb_symmetric_t {
    _private: (),
}

object!(wb_symmetric_t: Symmetric, "symmetric memory");

/// The memory until a collective call frees it.
pub(crate) struct Symmetric(Mutex<Option<Sym<u8>>>);

/// Entry for lists of objects that runs keep: the memory itself, so that `wb_symmetric_free` sees the run.
pub(crate) const KEEPABLE: Keepable = {
    fn owner(handle: In<c_void>) -> Result<Owner, Error> {
        Ok(Owner(share(handle.handle())?.owner()))
    }
    (wb_symmetric_t::TAG, owner)
};

/// Returns a share of the memory.
pub(crate) fn share(memory: In<wb_symmetric_t>) -> Result<Sym<u8>, Error> {
    let held = memory.get()?.0.lock().unwrap_or_else(PoisonError::into_inner);
    held.clone().ok_or_else(freed)
}

fn freed() -> Error {
    Error::new(
        WB_ERR_STATE,
        "`wb_symmetric_free` has given this memory up already; release the handle, and allocate anew",
    )
}

/// Returns a part of the memory as elements of a type.
pub(crate) fn part<T: Pod>(memory: &Sym<u8>, offset: usize, bytes: usize) -> Result<SymSlice<'_, T>, ShmemError> {
    memory.slice(offset..offset.saturating_add(bytes))?.cast()
}

/// The other end of a put or get: memory that this PE's kernels access.
pub(crate) enum Local {
    Region(Region),
    Symmetric(Sym<u8>),
}

impl Local {
    pub(crate) fn of(handle: In<c_void>) -> Result<Self, Error> {
        if handle.is::<wb_symmetric_t>()? {
            return Ok(Self::Symmetric(share(handle.handle())?));
        }
        Ok(Self::Region(handle.handle::<wb_region_t>().get()?.clone()))
    }

    pub(crate) fn part(&self, world: &World, offset: usize, bytes: usize) -> Result<LocalSlice<'_, u8>, ShmemError> {
        match self {
            Self::Region(region) => LocalSlice::in_region(world, region, offset, bytes),
            // Kernels reach the heaps of their own PE only, also those of another world.
            Self::Symmetric(memory) if !memory.world().engine().is_same(world.engine()) => Err(ShmemError::Foreign),
            Self::Symmetric(memory) => part(memory, offset, bytes).map(Into::into),
        }
    }
}

/// Allocates memory, filled with zeroes, on every PE. Collective; an error on one PE is an error on all.
///
/// @param bytes Bytes on each PE, the same on all.
/// @param align Alignment in bytes, a power of two up to 2 MiB; 0 for 128.
/// @param memory Receives the memory, with one reference.
/// @return `WB_OK`; `WB_ERR_SPACE` if the heap has no free range that is large enough; `WB_ERR_WORLD` if a rank is lost or the
///   ranks make different calls; `WB_ERR_TIMEOUT` if a rank does not call within the world's timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_allocate(
    world: In<wb_world_t>,
    bytes: usize,
    align: usize,
    memory: Out<*mut wb_symmetric_t>,
) -> wb_code {
    guard(|| {
        memory.check("memory")?;
        let world = world.get()?;
        let made = if align == 0 { world.malloc::<u8>(bytes) } else { world.align::<u8>(bytes, align) };
        let made = Symmetric(Mutex::new(Some(of_world(world, made)?)));
        memory.give(made)
    })
}

/// Frees memory at once on all PEs. Collective. The handle remains, and has to be released.
///
/// @return `WB_OK`; `WB_ERR_BUSY` on all PEs if a run, a stream or a call of another thread uses the memory on one of them: it is
///   then freed when those have ended, without another call; `WB_ERR_STATE` if it is freed already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_free(memory: In<wb_symmetric_t>) -> wb_code {
    guard(|| {
        let held = memory.get()?;
        let taken = held.0.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(freed)?;
        let world = taken.world().clone();
        of_world(&world, world.free(taken))
    })
}

/// Adds a reference to symmetric memory.
///
/// @return The memory; null with an error if it is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_retain(memory: Owned<wb_symmetric_t>) -> *mut wb_symmetric_t {
    memory.retain()
}

/// Gives a reference to symmetric memory back. Not collective: the memory is free again when all PEs have released theirs, which
/// the next collective call finds out. Runs and streams keep the memory of their kernels.
///
/// @param memory The memory; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_release(memory: Owned<wb_symmetric_t>) {
    memory.release()
}

/// Returns the address of this PE's part, as its kernels see it. Kernels name the memory of every PE by this address.
///
/// @param address Receives the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_address(memory: In<wb_symmetric_t>, address: Out<*mut c_void>) -> wb_code {
    guard(|| {
        let found = share(memory)?.address();
        address.write("address", found as *mut c_void)
    })
}

/// Returns the bytes on each PE.
///
/// @param bytes Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_bytes(memory: In<wb_symmetric_t>, bytes: Out<usize>) -> wb_code {
    guard(|| bytes.write("bytes", share(memory)?.len()))
}

/// Returns the offset of the first byte in the heap, which is the same on all PEs.
///
/// @param offset Receives the offset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_offset(memory: In<wb_symmetric_t>, offset: Out<usize>) -> wb_code {
    guard(|| offset.write("offset", share(memory)?.offset()))
}

/// Returns the address of the part of another PE, as this PE's kernels see it, for plain loads and stores.
///
/// @param pe The PE.
/// @param pointer Receives the address; null if loads and stores do not reach that PE.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if there is no such PE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_pointer(
    memory: In<wb_symmetric_t>,
    pe: u32,
    pointer: Out<*mut c_void>,
) -> wb_code {
    guard(|| {
        let memory = share(memory)?;
        let size = memory.world().n_pes();
        if number(pe) >= size {
            return Err(ShmemError::NoPe { pe: number(pe), size }.into());
        }
        let found = memory.ptr(number(pe)).map_or(ptr::null_mut(), |address| address as *mut c_void);
        pointer.write("pointer", found)
    })
}

/// Copies bytes of this PE's part to the host.
///
/// @param offset First byte.
/// @param data Destination.
/// @param bytes Number of bytes.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the range lies outside the memory.
/// @note Waits for no kernel: finish runs that write the bytes first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_read(
    memory: In<wb_symmetric_t>,
    offset: usize,
    mut data: Out<c_void>,
    bytes: usize,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        let memory = share(memory)?;
        of_world(memory.world(), SymSlice::from(&memory).get_to(offset, data, memory.world().my_pe()))
    })
}

/// Copies bytes of the host to this PE's part.
///
/// @param offset First byte.
/// @param data Source.
/// @param bytes Number of bytes.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the range lies outside the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_write(
    memory: In<wb_symmetric_t>,
    offset: usize,
    data: In<c_void>,
    bytes: usize,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        let memory = share(memory)?;
        of_world(memory.world(), memory.write(offset, data))
    })
}

/// Copies bytes of a PE's part to the host. They are there on return.
///
/// @param offset First byte.
/// @param data Destination.
/// @param bytes Number of bytes.
/// @param pe The PE.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if there is no such PE, or the range lies outside the memory; `WB_ERR_OPERATION` if the
///   network fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_get(
    memory: In<wb_symmetric_t>,
    offset: usize,
    mut data: Out<c_void>,
    bytes: usize,
    pe: u32,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        let memory = share(memory)?;
        of_world(memory.world(), SymSlice::from(&memory).get_to(offset, data, number(pe)))
    })
}

/// Copies bytes of the host to a PE's part. They are there on return; the PE learns of them by a barrier or a signal.
///
/// @param offset First byte.
/// @param data Source.
/// @param bytes Number of bytes.
/// @param pe The PE.
/// @return As of `wb_symmetric_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_put(
    memory: In<wb_symmetric_t>,
    offset: usize,
    data: In<c_void>,
    bytes: usize,
    pe: u32,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        let memory = share(memory)?;
        of_world(memory.world(), memory.put(offset, data, number(pe)))
    })
}

/// Copies memory of this PE to a PE's part by a kernel.
///
/// @param dest Destination: symmetric memory or a window, a handle of either type.
/// @param dest_offset Its first byte.
/// @param source A region of the world's engine, or symmetric memory: a handle of either type.
/// @param source_offset First byte of the source.
/// @param bytes Number of bytes.
/// @param pe The PE.
/// @param stream Null: the copy is complete on return. Otherwise it runs behind the work of the stream.
/// @return As of `wb_symmetric_get`; `WB_ERR_HANDLE` if a handle is of another type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_put_from(
    dest: In<c_void>,
    dest_offset: usize,
    source: In<c_void>,
    source_offset: usize,
    bytes: usize,
    pe: u32,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| {
        let (dest, source, stream) = (Remote::of(dest)?, Local::of(source)?, stream.optional()?);
        let world = dest.world();
        let (to, from) = (dest.part(dest_offset, bytes)?, source.part(world, source_offset, bytes)?);
        let done = match stream {
            None => world.put_from::<u8>(to, from, number(pe)),
            Some(on) => world.put_from_on::<u8>(on, to, from, number(pe)),
        };
        of_world(world, done)
    })
}

/// Copies a PE's part to memory of this PE by a kernel.
///
/// @param dest A region of the world's engine, or symmetric memory: a handle of either type.
/// @param dest_offset First byte of the destination.
/// @param source Source: symmetric memory or a window, a handle of either type.
/// @param source_offset Its first byte.
/// @param bytes Number of bytes.
/// @param pe The PE.
/// @param stream Null: the copy is complete on return. Otherwise it runs behind the work of the stream.
/// @return As of `wb_symmetric_get`; `WB_ERR_HANDLE` if a handle is of another type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_get_into(
    dest: In<c_void>,
    dest_offset: usize,
    source: In<c_void>,
    source_offset: usize,
    bytes: usize,
    pe: u32,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| {
        let (dest, source, stream) = (Local::of(dest)?, Remote::of(source)?, stream.optional()?);
        let world = source.world();
        let (to, from) = (dest.part(world, dest_offset, bytes)?, source.part(source_offset, bytes)?);
        let done = match stream {
            None => world.get_into::<u8>(to, from, number(pe)),
            Some(on) => world.get_into_on::<u8>(on, to, from, number(pe)),
        };
        of_world(world, done)
    })
}

/// Runs a call that returns a result at once, which excludes a stream.
pub(crate) fn without<T>(stream: Option<&Stream>, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    match stream {
        None => call(),
        Some(_) => Err(Error::argument("a call on a stream returns before the result exists; pass null for `stream`")),
    }
}
