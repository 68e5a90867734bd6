//! The PEs of an example: ranks of a launcher, or threads of this process.

use crate::support::{Failure, Options, engine};
use std::sync::Mutex;
use warpbell::cuda::DeviceInfo;
use warpbell::engine::Engine;
use warpbell::shmem::World;
use warpbell::shmem::bootstrap::Launched;

/// Number of PEs without a launcher, without `--pes` and with at most one GPU.
const FEW: usize = 2;

/// Runs `work` on every PE of this process: one PE under a launcher (`warpbell run -n 4 -- PROGRAM`), `--pes` threads
/// otherwise. Threads take GPUs in turn. PE 0 prints its engine and path.
///
/// # Errors
///
/// Fails with the first error of `work`, or with the reason why engine or world cannot be created.
pub fn on_each(
    options: &Options,
    heap_bytes: usize,
    work: impl Fn(&World) -> Result<(), Failure> + Sync,
) -> Result<(), Failure> {
    let gpus = match options.get("engine", String::new())?.as_str() {
        "cpu" => 0,
        _ => DeviceInfo::all().map_or(0, |all| all.len()),
    };
    let engine_of = |place: usize| engine(options, place % gpus.max(1));
    let variables = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let launched = Launched::find(&variables.collect())?.filter(|l| l.size > 1);
    if let Some(launched) = launched {
        let engine = engine_of(launched.local_rank.unwrap_or(launched.rank))?;
        let world = World::builder(&engine).heap_bytes(heap_bytes).build()?;
        say(&world);
        return work(&world);
    }
    let pes: usize = options.get("pes", gpus.max(FEW))?;
    if pes == 0 {
        return Err("--pes 0: a world has at least one PE".into());
    }
    let engines = (0..pes).map(engine_of).collect::<Result<Vec<_>, _>>()?;
    let worlds = World::local_on(engines.clone(), heap_bytes)?;
    say(&worlds[0]);
    let failure = Mutex::new(None);
    std::thread::scope(|s| {
        for world in worlds {
            let (work, failure, engines) = (&work, &failure, &engines);
            s.spawn(move || {
                if let Err(e) = work(&world) {
                    failure.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(e);
                    // The other PEs may be waiting for this one. Engines that cannot be stopped end at their deadline.
                    engines.iter().map(Engine::cancel).for_each(drop);
                }
            });
        }
    });
    match failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

fn say(world: &World) {
    if world.my_pe() == 0 {
        println!("engine {}\n{}", world.engine(), world.path());
    }
}
