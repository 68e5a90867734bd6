//! Worlds: processing elements (PEs) that reach each other's memory.

use crate::bootstrap::{Callback, wb_allgather_function, wb_unique_id};
use crate::engine::{as_json, wb_engine_t};
use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::options::{self, Options, owned_text};
use crate::pointer::{In, Out, Owned, Text};
use crate::region::{Foreign, wb_release_function};
use crate::stream::wb_stream_t;
use crate::world_error::{number, of_world};
use serde_json::json;
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use warpbell::engine::Engine;
use warpbell::engine::abi::World as wb_world;
use warpbell::shmem::bootstrap::UniqueId;
use warpbell::shmem::{HeapKind, Transport, World, WorldBuilder};

/// One PE of a world. All PEs make the same collective calls, in the same order and with the same arguments.
pub struct wb_world_t {
    _private: (),
}

object!(wb_world_t: World, "world");

/// The kind of `WARPBELL_HEAP`, otherwise `WB_HEAP_AUTO`.
pub const WB_HEAP_DEFAULT: u32 = 0;
/// GPU memory if all GPUs reach each other's memory, otherwise host memory.
pub const WB_HEAP_AUTO: u32 = 1;
/// GPU memory.
pub const WB_HEAP_DEVICE: u32 = 2;
/// Host memory.
pub const WB_HEAP_HOST: u32 = 3;

/// The transport of `WARPBELL_TRANSPORT`, otherwise `WB_TRANSPORT_AUTO`.
pub const WB_TRANSPORT_DEFAULT: u32 = 0;
/// Loads and stores where they reach, otherwise the first of the other three that every PE has.
pub const WB_TRANSPORT_AUTO: u32 = 1;
/// Loads and stores on mapped heaps.
pub const WB_TRANSPORT_PEER: u32 = 2;
/// An mlx5 NIC that kernels drive directly.
pub const WB_TRANSPORT_MLX5: u32 = 3;
/// Any RDMA device of libibverbs; a CPU thread makes the verbs calls.
pub const WB_TRANSPORT_VERBS: u32 = 4;
/// The software NIC.
pub const WB_TRANSPORT_SOFT: u32 = 5;

/// No PE of a team or world.
pub const WB_NO_MEMBER: u32 = u32::MAX;

/// Options of `wb_world_create` and `wb_world_create_local`. All fields but `size` may be zero.
///
/// The other PEs come from the launcher's environment (mpirun, srun, torchrun, `warpbell run`) if neither `id` nor `allgather`
/// is set. Without a launcher the world has one PE.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_world_options {
    /// `sizeof(wb_world_options)`.
    pub size: usize,
    /// Bytes of each PE's heap, the same on all; 0 for `WARPBELL_SYMMETRIC_SIZE`, otherwise 64 MiB. A heap does not grow.
    pub heap_bytes: usize,
    /// One of `WB_HEAP_DEFAULT` to `WB_HEAP_HOST`.
    pub heap: u32,
    /// One of `WB_TRANSPORT_DEFAULT` to `WB_TRANSPORT_SOFT`.
    pub transport: u32,
    /// Longest time that collective host calls wait for other PEs in seconds; 0 for `WARPBELL_TIMEOUT`, otherwise 60 s.
    pub timeout: f64,
    /// Map of allocated memory for kernels with checks (`WB_CHECKED`): 1 on, 2 off, 0 as the library was built.
    pub checked: u32,
    /// Queue pairs to each PE out of reach of loads and stores, a power of two up to 64; 0 for the default.
    pub queues_per_peer: u32,
    /// Blocks of 64 bytes in each send ring, a power of two from 16 to 32768; 0 for the default.
    pub queue_blocks: u32,
    /// Bytes of staging memory for each block, a multiple of 64 up to 1 MiB; 0 for the default.
    pub staging_bytes: u32,
    /// Name of this PE's host: PEs share memory only with those of one name. Null for the host's own.
    pub host: Text,
    /// Number of this PE, with `id` or `allgather`.
    pub rank: u32,
    /// Number of PEs, with `id` or `allgather`.
    pub ranks: u32,
    /// Id that rank 0 has created and the program has passed to all ranks; or null.
    pub id: In<wb_unique_id>,
    /// Exchange of the program; or null. `wb_mpi_allgather` of warpbell/mpi.h is one.
    pub allgather: wb_allgather_function,
    /// Passed to `allgather`. It stays valid until `allgather_release` is called, or the world is gone.
    pub allgather_argument: *mut c_void,
    /// Called with `allgather_argument` when the library no longer uses it; may be null. Not called if the call fails.
    pub allgather_release: wb_release_function,
}

// SAFETY: numbers, pointers and optional functions; the size comes first.
unsafe impl Options for wb_world_options {
    const NAME: &str = "wb_world_options";
}

/// Returns a builder with all options but those of the peers.
fn builder(engine: &Engine, options: &wb_world_options) -> Result<WorldBuilder, Error> {
    let mut made = World::builder(engine);
    if options.heap_bytes != 0 {
        made = made.heap_bytes(options.heap_bytes);
    }
    made = match options.heap {
        WB_HEAP_DEFAULT => made,
        WB_HEAP_AUTO => made.heap(HeapKind::Auto),
        WB_HEAP_DEVICE => made.heap(HeapKind::Device),
        WB_HEAP_HOST => made.heap(HeapKind::Host),
        other => return Err(Error::argument(format!("`heap` is {other}; use WB_HEAP_DEFAULT to WB_HEAP_HOST"))),
    };
    made = match options.transport {
        WB_TRANSPORT_DEFAULT => made,
        WB_TRANSPORT_AUTO => made.transport(Transport::Auto),
        WB_TRANSPORT_PEER => made.transport(Transport::Peer),
        WB_TRANSPORT_MLX5 => made.transport(Transport::Mlx5),
        WB_TRANSPORT_VERBS => made.transport(Transport::Verbs),
        WB_TRANSPORT_SOFT => made.transport(Transport::Soft),
        other => {
            return Err(Error::argument(format!(
                "`transport` is {other}; use WB_TRANSPORT_DEFAULT to WB_TRANSPORT_SOFT"
            )));
        }
    };
    if let Some(timeout) = options::seconds(options.timeout, "timeout")? {
        made = made.timeout(timeout);
    }
    made = match options.checked {
        0 => made,
        1 => made.checked(true),
        2 => made.checked(false),
        other => return Err(Error::argument(format!("`checked` is {other}; use 1 for on, 2 for off, or 0"))),
    };
    if options.queues_per_peer != 0 {
        made = made.queues_per_peer(options.queues_per_peer as usize);
    }
    if options.queue_blocks != 0 {
        made = made.queue_blocks(options.queue_blocks);
    }
    if options.staging_bytes != 0 {
        made = made.staging_bytes(options.staging_bytes as usize);
    }
    Ok(match options.host.optional("host")? {
        Some(host) => made.host_id(host),
        None => made,
    })
}

/// Sets the origin of the other PEs. Returns the program's argument of its exchange, if there is one.
fn with_peers(made: WorldBuilder, options: &wb_world_options) -> Result<(WorldBuilder, Option<Arc<Foreign>>), Error> {
    let place = (number(options.rank), number(options.ranks));
    match (options.id.is_null(), options.allgather) {
        (true, None) if place != (0, 0) => Err(Error::argument(format!(
            "`rank` is {} and `ranks` {}, which belong to `id` or `allgather`; set one of them, or none of the four",
            place.0, place.1
        ))),
        (true, None) => Ok((made, None)),
        (false, None) => {
            let id = options.id.list(1, "id")?;
            let id = UniqueId::from_bytes(&id[0].bytes)?;
            Ok((made.unique_id(&id, place.0, place.1), None))
        }
        (true, Some(function)) => {
            let (argument, release) = (options.allgather_argument, options.allgather_release);
            let (callback, used) = Callback::meet(place, function, argument, release)?;
            Ok((made.bootstrap(Box::new(callback)), Some(used)))
        }
        (false, Some(_)) => Err(Error::argument("both `id` and `allgather` are set; set one of them")),
    }
}

/// Creates a world of which this process, or thread, is one PE. Collective: all PEs call it at the same time.
///
/// @param engine Engine that runs this PE's kernels.
/// @param options Options, or null for the defaults.
/// @param world Receives the world, with one reference.
/// @return `WB_OK`; `WB_ERR_TIMEOUT` if ranks do not come in time; `WB_ERR_WORLD` if a rank is lost or asks for something else;
///   `WB_ERR_SPACE` if there is no memory for the heaps; `WB_ERR_UNSUPPORTED` if the transport is not available;
///   `WB_ERR_IO` if `allgather` fails; `WB_ERR_ARGUMENT` if an option or an environment variable is invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_create(
    engine: In<wb_engine_t>,
    options: In<wb_world_options>,
    world: Out<*mut wb_world_t>,
) -> wb_code {
    guard(|| {
        world.check("world")?;
        let (engine, options) = (engine.get()?, options.read()?);
        let (builder, used) = with_peers(builder(engine, &options)?, &options)?;
        let made = builder.build()?;
        if let Some(used) = used {
            used.arm();
        }
        world.give(made)
    })
}

/// Creates a world whose PEs are all in this process, one for each engine. Each PE is used by a thread of its own, since
/// collective calls wait for the others.
///
/// @param engines The engines; each PE has its own.
/// @param count Number of engines, at least 1.
/// @param options Options, or null for the defaults. `rank`, `ranks`, `id` and `allgather` have to be zero.
/// @param worlds Receives the worlds of the PEs: space for `count`.
/// @return As of `wb_world_create`; `WB_ERR_UNSUPPORTED` if a GPU has more PEs than kernels that run on it at the same time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_create_local(
    engines: In<Owned<wb_engine_t>>,
    count: usize,
    options: In<wb_world_options>,
    worlds: Out<*mut wb_world_t>,
) -> wb_code {
    guard(|| {
        worlds.check("worlds")?;
        let (engines, options) = (engines.list(count, "engines")?, options.read()?);
        if count == 0 {
            return Err(Error::argument("`count` is 0; a world has at least one PE"));
        }
        if options.rank != 0 || options.ranks != 0 || !options.id.is_null() || options.allgather.is_some() {
            return Err(Error::argument(
                "`rank`, `ranks`, `id` and `allgather` are for PEs of several processes; leave them zero",
            ));
        }
        let one = |engine: &Owned<wb_engine_t>| builder(engine.get()?, &options);
        let builders = engines.iter().map(one).collect::<Result<Vec<_>, Error>>()?;
        for (pe, made) in World::local_from(builders)?.into_iter().enumerate() {
            worlds.at(pe).give(made)?;
        }
        Ok(())
    })
}

/// Adds a reference to a world.
///
/// @return The world; null with an error if it is no world.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_retain(world: Owned<wb_world_t>) -> *mut wb_world_t {
    world.retain()
}

/// Gives a reference to a world back. Teams, memory and runs keep the world that they use. When all of them are released, this
/// PE leaves the world in order; a process that ends without that is lost for the others.
///
/// With PEs out of reach of loads and stores, the last release waits for the other PEs to do so, up to 30 s; with
/// `allgather` as long as that function takes.
///
/// @param world The world; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_release(world: Owned<wb_world_t>) {
    world.release()
}

/// Returns the number of this PE, from 0.
///
/// @param pe Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_my_pe(world: In<wb_world_t>, pe: Out<u32>) -> wb_code {
    guard(|| pe.write("pe", world.get()?.my_pe() as u32))
}

/// Returns the number of PEs.
///
/// @param count Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_n_pes(world: In<wb_world_t>, count: Out<u32>) -> wb_code {
    guard(|| count.write("count", world.get()?.n_pes() as u32))
}

/// Returns the structure that kernels take as the world: `warpbell::world_ref` is made from it.
///
/// @param view Receives the structure. It is valid while the program holds a reference and until kernels with it have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_get_view(world: In<wb_world_t>, view: Out<wb_world>) -> wb_code {
    guard(|| view.write("view", world.get()?.view()))
}

/// Describes a world as JSON: `pe`, `pes`, `path` with the links between the PEs, `summary` of them in one line, `hosts` of the
/// PEs, `heap_free` in bytes, `timeout` in seconds.
///
/// @param json Receives the text. Free it with `wb_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_info(world: In<wb_world_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let world = world.get()?;
        let hosts: Vec<_> = (0..world.n_pes()).map(|pe| world.host_name(pe).unwrap_or_default()).collect();
        let info = json!({
            "pe": world.my_pe(),
            "pes": world.n_pes(),
            "path": world.path(),
            "summary": world.path().to_string(),
            "hosts": hosts,
            "heap_free": world.heap_free(),
            "timeout": world.timeout().as_secs_f64(),
        });
        json.write("json", owned_text(as_json(&info)?))
    })
}

/// Returns the free bytes of this PE's heap, which may not be contiguous.
///
/// @param bytes Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_heap_free(world: In<wb_world_t>, bytes: Out<usize>) -> wb_code {
    guard(|| bytes.write("bytes", world.get()?.heap_free()))
}

/// Returns the longest time that collective host calls wait for other PEs. Calls that run a kernel wait up to the deadline of
/// the engine (`wb_engine_set_deadline`).
///
/// @param seconds Receives the time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_timeout(world: In<wb_world_t>, seconds: Out<f64>) -> wb_code {
    guard(|| seconds.write("seconds", world.get()?.timeout().as_secs_f64()))
}

/// Runs a kernel in which all PEs meet. Afterwards all earlier puts of all PEs have arrived. Collective.
///
/// @param stream Null: the call returns when all PEs have met. Otherwise the kernel runs behind the work of the stream.
/// @return `WB_OK`; `WB_ERR_OPERATION` if a PE does not come before the engine's deadline; `WB_ERR_WORLD` if a rank is lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_barrier_all(world: In<wb_world_t>, stream: In<wb_stream_t>) -> wb_code {
    guard(|| {
        let (world, stream) = (world.get()?, stream.optional()?);
        of_world(world, stream.map_or_else(|| world.barrier_all(), |on| world.barrier_all_on(on)))
    })
}

/// Waits until all puts, gets and atomic operations of this PE are complete and visible to all PEs.
///
/// @param stream Null: the call returns then. Otherwise later work of the stream waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_quiet(world: In<wb_world_t>, stream: In<wb_stream_t>) -> wb_code {
    guard(|| {
        let (world, stream) = (world.get()?, stream.optional()?);
        of_world(world, stream.map_or_else(|| world.quiet(), |on| world.quiet_on(on)))
    })
}

/// Waits on the host until every PE has called it. Does not wait for kernels. Collective.
///
/// @return `WB_OK`; `WB_ERR_TIMEOUT` if a PE does not call within the world's timeout; `WB_ERR_WORLD` if a rank is lost or
///   makes another call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_barrier_host(world: In<wb_world_t>) -> wb_code {
    guard(|| {
        let world = world.get()?;
        of_world(world, world.barrier_host())
    })
}

/// Sends bytes of host memory to all PEs and receives as many from each. Collective.
///
/// @param bytes The bytes of this PE; null if `count` is 0.
/// @param count Number of bytes, the same on all PEs.
/// @param all Receives the bytes of all PEs in their order: space for `count` bytes of each, apart from `bytes`.
/// @return As of `wb_world_barrier_host`; `WB_ERR_ARGUMENT` on all PEs if the numbers of bytes differ.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_allgather(
    world: In<wb_world_t>,
    bytes: In<c_void>,
    count: usize,
    mut all: Out<c_void>,
) -> wb_code {
    guard(|| {
        let world = world.get()?;
        let bytes = bytes.bytes(count, "bytes")?;
        let total = count.saturating_mul(world.n_pes());
        let all = all.bytes(total, "all")?;
        let parts = of_world(world, world.allgather(bytes))?;
        if let Some((pe, part)) = parts.iter().enumerate().find(|(_, part)| part.len() != parts[0].len()) {
            return Err(Error::argument(format!(
                "the PEs give different numbers of bytes: {} on PE 0, {} on PE {pe}",
                parts[0].len(),
                part.len()
            )));
        }
        parts.iter().enumerate().for_each(|(pe, part)| all[pe * count..][..count].copy_from_slice(part));
        Ok(())
    })
}

/// Returns the first rank that is known to have ended too early. Calls of its world then return `WB_ERR_WORLD`.
///
/// @param rank Receives the rank, or `WB_NO_MEMBER` if none is lost.
/// @param reason Receives the reason, or null if none is lost; may be null. Free the text with `wb_string_free`.
/// @note With an exchange of the program (`allgather`) no loss is noticed: calls fail when the exchange does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_lost(world: In<wb_world_t>, rank: Out<u32>, reason: Out<*mut c_char>) -> wb_code {
    guard(|| {
        rank.check("rank")?;
        let lost = world.get()?.lost();
        if !reason.is_null() {
            let text = lost.map_or(std::ptr::null_mut(), |lost| owned_text(lost.reason.clone()));
            reason.write("reason", text)?;
        }
        rank.write("rank", lost.map_or(WB_NO_MEMBER, |lost| lost.rank as u32))
    })
}

/// Makes failed connections of a world that uses adapters again. Collective; no kernel of the world may run on any PE.
///
/// Operations in flight at the time of the failure may have completed, partly completed, or not. Heaps keep their contents.
///
/// @param json Receives the connections that were made again: `{"pes":[{"pe":1,"queue_pairs":4,"reasons":["..."]}]}`. May be
///   null. Free the text with `wb_string_free`.
/// @return `WB_OK`, also if all connections work; `WB_ERR_WORLD` on all PEs with the reasons of the ranks that failed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_recover(world: In<wb_world_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        let world = world.get()?;
        let recovered = of_world(world, world.recover())?;
        if json.is_null() {
            return Ok(());
        }
        json.write("json", owned_text(as_json(&recovered)?))
    })
}

/// Returns the failed connections of this PE, each with its reason, as a JSON list of texts.
///
/// @param json Receives the text. Free it with `wb_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_world_network_failures(world: In<wb_world_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let failures = world.get()?.network_failures();
        json.write("json", owned_text(as_json(&failures)?))
    })
}
