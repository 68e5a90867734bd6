//! Streams: the engine's, and CUDA streams of the program.

use crate::engine::{wb_engine_t, wb_grid};
use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::options;
use crate::pointer::{In, Out, Owned, Text};
use crate::region::{Foreign, wb_release_function};
use crate::run::{arguments, wb_argument};
use std::ffi::c_void;
use std::ptr;
use warpbell::engine::{NO_LIMIT, Stream};

/// Kernels that run one after another: a CUDA stream, or a queue of an engine on CPU threads.
pub struct wb_stream_t {
    _private: (),
}

object!(wb_stream_t: Stream, "stream");

/// Creates an empty stream.
///
/// @param stream Receives the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_stream_create(engine: In<wb_engine_t>, stream: Out<*mut wb_stream_t>) -> wb_code {
    guard(|| {
        stream.check("stream")?;
        let made = engine.get()?.stream()?;
        stream.give(made)
    })
}

/// Uses a CUDA stream of the program: kernels of the engine run on it in order with the program's own work.
///
/// @param raw A `cudaStream_t` or `CUstream` of the primary context of the engine's GPU; null for the legacy default stream.
/// @param release Called when the library no longer uses the stream; may be null. It is not called if this call fails.
/// @param argument Passed to `release`.
/// @param stream Receives the stream.
/// @return `WB_OK`; `WB_ERR_UNSUPPORTED` on CPU threads, for the default stream of a thread, and for streams of other contexts.
/// @note The CUDA stream stays valid until `release` is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_stream_adopt(
    engine: In<wb_engine_t>,
    raw: *mut c_void,
    release: wb_release_function,
    argument: *mut c_void,
    stream: Out<*mut wb_stream_t>,
) -> wb_code {
    guard(|| {
        stream.check("stream")?;
        let foreign = Foreign::new(release, argument);
        // SAFETY: the program promises that the stream stays valid until it is released.
        let made = unsafe { engine.get()?.adopt_stream(raw, foreign.clone()) }?;
        foreign.arm();
        stream.give(made)
    })
}

/// Adds a reference to a stream.
///
/// @return The stream; null with an error if it is no stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_stream_retain(stream: Owned<wb_stream_t>) -> *mut wb_stream_t {
    stream.retain()
}

/// Gives a reference to a stream back. The last one tells its kernels to stop; call `wb_stream_synchronize` before.
///
/// @param stream The stream; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_stream_release(stream: Owned<wb_stream_t>) {
    stream.release()
}

/// Returns the `cudaStream_t` of a stream, for the program's own launches, copies and events.
///
/// @param raw Receives the stream; null on CPU threads. It is valid while the program holds a reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_stream_raw(stream: In<wb_stream_t>, raw: Out<*mut c_void>) -> wb_code {
    guard(|| {
        let found = stream.get()?.raw().unwrap_or(ptr::null_mut());
        raw.write("raw", found)
    })
}

/// Launches a kernel of the engine's images on a stream, behind the work that is there.
///
/// @param kernel Name of the kernel.
/// @param grid Blocks and threads.
/// @param arguments The kernel's parameters in their order.
/// @param count Number of arguments.
/// @return As `wb_launch`; `WB_ERR_UNSUPPORTED` if the stream is being captured into a CUDA graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_stream_launch(
    stream: In<wb_stream_t>,
    kernel: Text,
    grid: wb_grid,
    arguments: In<wb_argument>,
    count: usize,
) -> wb_code {
    guard(|| {
        let stream = stream.get()?;
        let kernel = kernel.text("kernel")?;
        let args = self::arguments(arguments, count)?;
        // SAFETY: the program passes what the kernel takes; sizes are checked.
        Ok(unsafe { stream.launch(kernel, grid.into(), args) }?)
    })
}

/// Makes later work on a stream wait for all work that is on another one now. The host does not wait.
///
/// @param other A stream of the same engine.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the streams belong to different engines; `WB_ERR_UNSUPPORTED` if one is being captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_stream_wait_for(stream: In<wb_stream_t>, other: In<wb_stream_t>) -> wb_code {
    guard(|| Ok(stream.get()?.wait_for(other.get()?)?))
}

/// Waits for the kernels of a stream, and returns the errors of their operations.
///
/// @param seconds Limit of the wait; 0 for none. After the limit the kernels are told to stop.
/// @return As `wb_run_finish`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_stream_synchronize(stream: In<wb_stream_t>, seconds: f64) -> wb_code {
    guard(|| {
        let within = options::seconds(seconds, "seconds")?.unwrap_or(NO_LIMIT);
        let stream = stream.get()?;
        let done = stream.synchronize(within);
        done.map(drop).map_err(|e| Error::from(e).on_engine(stream.engine()))
    })
}
