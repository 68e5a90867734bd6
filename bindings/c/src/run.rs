//! Runs: kernels of the engine's images, and kernels that the program launches itself.

use crate::array::wb_array_t;
use crate::buffer::wb_buffer_t;
use crate::cache::wb_cache_t;
use crate::engine::{wb_engine_t, wb_grid};
use crate::error::{Error, WB_ERR_STATE, guard, wb_code};
use crate::graph::wb_graph_t;
use crate::object::{Keepable, keepable, object};
use crate::options;
use crate::pointer::{In, Out, Owned, Text};
use crate::region::wb_region_t;
use crate::stream::wb_stream_t;
use crate::symmetric;
use crate::table::wb_table_t;
use crate::table_batch::wb_batch_t;
use crate::table_scratch::wb_table_scratch_t;
use crate::team::wb_team_t;
use crate::values::wb_values_t;
use crate::volume::wb_volume_t;
use crate::window::wb_window_t;
use crate::world::wb_world_t;
use std::ffi::c_void;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpbell::engine::{Args, Engine, NO_LIMIT, Run, RunError};

/// Kernels in flight. The last release stops them, and waits a bounded time for them to end.
pub struct wb_run_t {
    _private: (),
}

object!(wb_run_t: Flight, "run");

/// A run and its engine, which is apart, so that another thread stops a run that one waits for.
pub(crate) struct Flight {
    engine: Engine,
    state: Mutex<State>,
}

enum State {
    Running(Run),
    /// A thread waits in `wb_run_finish`.
    Finishing,
    Finished,
    /// The kernel did not end when it was told to stop, and may still run.
    Stuck,
}

impl Flight {
    fn new(engine: &Engine, run: Run) -> Self {
        Self { engine: engine.clone(), state: Mutex::new(State::Running(run)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the error of a call that needs a running run.
fn not_running(state: &State) -> Error {
    Error::new(
        WB_ERR_STATE,
        match state {
            State::Finishing => "another thread finishes the run; a run is finished once",
            _ => "the run is finished already; a run is finished once",
        },
    )
}

/// Types of objects whose memory kernels use.
const KEEPABLE: &[Keepable] = &[
    keepable::<wb_region_t>(),
    keepable::<wb_volume_t>(),
    keepable::<wb_buffer_t>(),
    keepable::<wb_cache_t>(),
    keepable::<wb_array_t>(),
    keepable::<wb_graph_t>(),
    keepable::<wb_table_t>(),
    keepable::<wb_table_scratch_t>(),
    keepable::<wb_batch_t>(),
    keepable::<wb_values_t>(),
    keepable::<wb_world_t>(),
    keepable::<wb_team_t>(),
    symmetric::KEEPABLE,
    keepable::<wb_window_t>(),
];

/// An argument of a kernel: the bytes of one parameter.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_argument {
    /// The parameter's value. Null with 0 bytes passes nothing: such an entry only keeps `keep`.
    pub value: In<c_void>,
    /// Size of the parameter in bytes.
    pub bytes: usize,
    /// Handle of the object whose memory the kernel uses through the value: a region, an array, a table, a batch of rows, a
    /// volume, a cache, a world, a team and others. It lives until the kernel has ended, also if the program releases it before. May be null.
    pub keep: In<c_void>,
}

pub(crate) fn arguments(list: In<wb_argument>, count: usize) -> Result<Args, Error> {
    let mut args = Args::new();
    for (i, one) in list.list(count, "arguments")?.iter().enumerate() {
        if !one.keep.is_null() {
            let owner = one.keep.keep(KEEPABLE);
            args = args.with(owner.map_err(|e| e.within(&format!("`keep` of argument {i}")))?);
        }
        if one.bytes != 0 {
            args.push_bytes(one.value.bytes(one.bytes, "value of an argument")?);
        } else if !one.value.is_null() {
            return Err(Error::argument(format!("argument {i} has a value of 0 bytes; set the size of the parameter")));
        }
    }
    Ok(args)
}

/// Launches a kernel of the engine's images. The caller goes on while it runs.
///
/// @param kernel Name of the kernel, exported by `WB_EXPORT` in its source.
/// @param grid Blocks and threads.
/// @param arguments The kernel's parameters in their order.
/// @param count Number of arguments.
/// @param run Receives the run; finish it with `wb_run_finish`.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if no image has the kernel; `WB_ERR_ARGUMENT` if sizes differ from those of the
///   parameters, or the grid cannot be launched; `WB_ERR_STOPPED` on a cancelled engine.
/// @note Sizes are checked, types cannot be: pass what the kernel takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_launch(
    engine: In<wb_engine_t>,
    kernel: Text,
    grid: wb_grid,
    arguments: In<wb_argument>,
    count: usize,
    run: Out<*mut wb_run_t>,
) -> wb_code {
    guard(|| {
        run.check("run")?;
        let engine = engine.get()?;
        let kernel = kernel.text("kernel")?;
        let args = self::arguments(arguments, count)?;
        // SAFETY: the program passes what the kernel takes; sizes are checked.
        let started = unsafe { engine.launch(kernel, grid.into(), args) }?;
        run.give(Flight::new(engine, started))
    })
}

/// Begins a run for kernels that the program launches itself on a stream, by `<<<>>>`, `cuLaunchKernel` or a CUDA graph;
/// on CPU threads, for functions that it calls. Finish it with `wb_run_finish`, which reports their failed operations.
///
/// @param name Name for messages.
/// @param stream The stream: `wb_stream_adopt` makes one of the program's, `wb_stream_raw` returns the `cudaStream_t` of others.
/// @param run Receives the run.
/// @return `WB_OK`; `WB_ERR_STOPPED` on a cancelled engine; `WB_ERR_UNSUPPORTED` if the stream is being captured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_run_begin(
    engine: In<wb_engine_t>,
    name: Text,
    stream: In<wb_stream_t>,
    run: Out<*mut wb_run_t>,
) -> wb_code {
    guard(|| {
        run.check("run")?;
        let engine = engine.get()?;
        let name = name.text("name")?;
        let begun = engine.external(name, stream.get()?)?;
        run.give(Flight::new(engine, begun))
    })
}

/// Keeps an object until the run has ended, whose view is among the arguments of the program's kernels.
///
/// @param handle A region, an array, a table, a volume, a cache, a world, a team or another handle of this library.
/// @return `WB_OK`; `WB_ERR_STATE` if the run is finished, or another thread finishes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_run_keep(run: In<wb_run_t>, handle: In<c_void>) -> wb_code {
    guard(|| {
        let flight = run.get()?;
        let owner = handle.keep(KEEPABLE)?;
        match &mut *flight.state() {
            State::Running(run) => {
                run.keep(&owner);
                Ok(())
            }
            other => Err(not_running(other)),
        }
    })
}

/// Waits for the kernels of a run, and returns the errors of their operations. The run is finished then.
///
/// @param seconds Limit of the wait; 0 for none: waits inside kernels have deadlines. After the limit the kernels are told
///   to stop.
/// @param elapsed Receives the time from the launch to the end of the last thread in seconds, the GPU's own; may be null.
/// @return `WB_OK`; `WB_ERR_OPERATION` if operations failed; `WB_ERR_TIMEOUT`; `WB_ERR_STOPPED`; `WB_ERR_KERNEL` if the
///   kernel broke; `WB_ERR_WORLD` if a PE that it may wait for is lost; `WB_ERR_STATE` if the run is finished already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_run_finish(run: In<wb_run_t>, seconds: f64, elapsed: Out<f64>) -> wb_code {
    guard(|| {
        let within = options::seconds(seconds, "seconds")?.unwrap_or(NO_LIMIT);
        let flight = run.get()?;
        let run = {
            let mut state = flight.state();
            match mem::replace(&mut *state, State::Finishing) {
                State::Running(run) => run,
                other => {
                    let error = not_running(&other);
                    *state = other;
                    return Err(error);
                }
            }
        };
        let done = run.finish_within(within);
        *flight.state() = if matches!(done, Err(RunError::Stuck { .. })) { State::Stuck } else { State::Finished };
        let report = done.map_err(|e| Error::from(e).on_engine(&flight.engine))?;
        if elapsed.is_null() {
            return Ok(());
        }
        elapsed.write("elapsed", report.elapsed.as_secs_f64())
    })
}

/// Returns true if the kernels of a run have ended. Their errors are known after `wb_run_finish`.
///
/// @param ended Receives 1 or 0. It stays 0 while another thread waits in `wb_run_finish`, and if the kernels did not end when they
///   were told to stop.
/// @return `WB_OK`; `WB_ERR_KERNEL` if the kernel broke.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_run_has_ended(run: In<wb_run_t>, ended: Out<u32>) -> wb_code {
    guard(|| {
        let flight = run.get()?;
        let now = match &mut *flight.state() {
            State::Running(run) => run.is_finished()?,
            State::Finishing | State::Stuck => false,
            State::Finished => true,
        };
        ended.write("ended", u32::from(now))
    })
}

/// Tells every wait inside the running kernels of the run's engine to end. `wb_run_finish` has to be called all the same.
///
/// @note Also while another thread waits in `wb_run_finish`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_run_stop(run: In<wb_run_t>) -> wb_code {
    guard(|| Ok(run.get()?.engine.stop_runs()?))
}

/// Adds a reference to a run.
///
/// @return The run; null with an error if it is no run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_run_retain(run: Owned<wb_run_t>) -> *mut wb_run_t {
    run.retain()
}

/// Gives a reference to a run back. The last one of an unfinished run stops its kernels.
///
/// @param run The run; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_run_release(run: Owned<wb_run_t>) {
    run.release()
}
