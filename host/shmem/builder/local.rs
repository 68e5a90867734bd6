//! Worlds whose PEs are all in this process.

use super::{SIZE_VARIABLE, TRANSPORT_VARIABLE, WorldBuilder, size};
use crate::engine::Engine;
use crate::shmem::bootstrap::{Bootstrap, BootstrapError, DEFAULT_TIMEOUT, LocalBootstrap};
use crate::shmem::heap::{HEAP_ALIGN, Heap, HostMemory};
use crate::shmem::path::{Handover, Link, WorldPath};
use crate::shmem::peer_info::{DEFAULT_HEAP, HostId};
use crate::shmem::symmetric_allocator::ALIGN;
use crate::shmem::team_slots::own_bytes;
use crate::shmem::variable::or_read;
use crate::shmem::world::{OwnMemory, WorldParts};
use crate::shmem::{NetworkSettings, ShmemError, Transport, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;

impl World {
    /// Creates `n` PEs in this process, each on its own CPU threads, for tests and examples. Use each PE in its own
    /// thread, since collective calls wait for the other PEs.
    ///
    /// # Errors
    /// [`ShmemError::Engine`] if a CPU engine cannot be created, and the errors of [`World::local_on`].
    pub fn local(n: usize) -> Result<Vec<Self>, ShmemError> {
        let engines = (0..n).map(|_| Engine::cpu()).collect::<Result<Vec<_>, _>>()?;
        Self::local_on(engines, DEFAULT_HEAP)
    }

    /// Creates `n` PEs like [`World::local`], with the given transport between them.
    ///
    /// # Errors
    /// [`ShmemError::Engine`] if a CPU engine cannot be created, and the errors of [`World::local_on_over`].
    pub fn local_over(n: usize, transport: Transport) -> Result<Vec<Self>, ShmemError> {
        let engines = (0..n).map(|_| Engine::cpu()).collect::<Result<Vec<_>, _>>()?;
        Self::local_on_over(engines, DEFAULT_HEAP, transport)
    }

    /// Creates one PE in this process for each engine, with heaps of `heap_bytes` bytes. The transport is that of
    /// `WARPBELL_TRANSPORT`.
    ///
    /// Several PEs may be on one GPU, each with its own engine: up to 7, or 31 if the program was started with
    /// `CUDA_DEVICE_MAX_CONNECTIONS=32` ([`crate::cuda::Context::kernels_side_by_side`]).
    ///
    /// # Errors
    /// [`ShmemError::Setting`] if `WARPBELL_TRANSPORT` is invalid, and the errors of [`World::local_on_over`].
    pub fn local_on(engines: Vec<Engine>, heap_bytes: usize) -> Result<Vec<Self>, ShmemError> {
        let transport = or_read(None, TRANSPORT_VARIABLE, str::parse)?;
        Self::local_on_over(engines, heap_bytes, transport.unwrap_or_default())
    }

    /// Creates one PE for each engine like [`World::local_on`], with the given transport between the PEs.
    ///
    /// # Errors
    /// [`ShmemError::Crowded`] if a GPU has too many PEs, and the errors of
    /// [`WorldBuilder::build`](super::WorldBuilder::build).
    pub fn local_on_over(
        engines: Vec<Engine>,
        heap_bytes: usize,
        transport: Transport,
    ) -> Result<Vec<Self>, ShmemError> {
        let builder = |engine: &Engine| Self::builder(engine).heap_bytes(heap_bytes).transport(transport);
        Self::local_from(engines.iter().map(builder).collect())
    }

    /// Creates one PE in this process for each builder, with the builder's settings. The PEs find each other without a
    /// bootstrap; one that a builder has is not used.
    ///
    /// PEs on CPU engines share one mapping for all heaps, unless the builders set another transport than loads and
    /// stores, a kind of heap, a host, or something of the network.
    ///
    /// # Errors
    /// [`ShmemError::Crowded`] if a GPU has too many PEs, and the errors of
    /// [`WorldBuilder::build`](super::WorldBuilder::build).
    pub fn local_from(builders: Vec<WorldBuilder>) -> Result<Vec<Self>, ShmemError> {
        check_room(builders.iter().map(|b| &b.engine))?;
        if let Some(shared) = one_mapping(&builders)? {
            return Self::threads(builders, shared);
        }
        let bootstraps = LocalBootstrap::all(builders.len());
        std::thread::scope(|s| {
            let build = |(builder, bootstrap): (WorldBuilder, LocalBootstrap)| {
                let builder = builder.bootstrap(Box::new(bootstrap));
                let thread = std::thread::Builder::new().name("wb-pe".to_owned());
                thread.spawn_scoped(s, move || builder.build())
            };
            let all: Vec<_> = builders.into_iter().zip(bootstraps).map(build).collect();
            // A PE without a thread is lost for the others, whose errors say only that.
            let not_started = all.iter().find_map(|t| t.as_ref().err());
            let failed = not_started.map(|e| BootstrapError::system("a thread for a PE cannot be started", e));
            let join = |t: ScopedJoinHandle<'_, _>| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e));
            let built: Vec<_> = all.into_iter().flatten().map(join).collect();
            failed.map_or_else(|| built.into_iter().collect(), |e| Err(e.into()))
        })
    }

    /// Creates PEs on CPU engines of this process. All of them see the heaps at the same addresses.
    fn threads(builders: Vec<WorldBuilder>, heap_bytes: usize) -> Result<Vec<Self>, ShmemError> {
        let pes = builders.len();
        let no_heap = |reason: String| ShmemError::Heap { bytes: heap_bytes, pes, reason };
        let bytes = heap_bytes.checked_add(own_bytes(heap_bytes, pes)).and_then(|b| b.checked_next_multiple_of(ALIGN));
        let stride = bytes.and_then(|b| b.checked_next_multiple_of(HEAP_ALIGN));
        let total = stride.and_then(|s| s.checked_mul(pes)).filter(|all| isize::try_from(*all).is_ok());
        let (Some(bytes), Some(stride), Some(total)) = (bytes, stride, total) else {
            return Err(no_heap("the heaps together exceed 64-bit addresses; use a smaller heap".to_owned()));
        };
        let all = Arc::new(HostMemory::private(total).map_err(|e| no_heap(e.to_string()))?);
        let path = |via: String| WorldPath {
            transport: "peer",
            pes,
            hosts: 1,
            link: if pes == 1 { Link::Alone } else { Link::Threads },
            handover: Handover::OneMapping,
            heap_bytes,
            on_device: false,
            atomics: true,
            network: None,
            note: None,
            via,
        };
        let one = |(builder, bootstrap): (WorldBuilder, LocalBootstrap)| {
            let WorldBuilder { engine, checked, timeout, .. } = builder;
            let heap = Heap::in_host_memory(engine.space(), all.clone(), bootstrap.rank(), bytes, stride)?;
            let own = OwnMemory::new(&engine, &heap, heap_bytes, (bootstrap.rank(), pes), checked, 0)?;
            let parts =
                WorldParts { heap, own, path: path(bootstrap.via()), hosts: vec![HostId::here(); pes], network: None };
            Self::new(engine, parts, Box::new(bootstrap), timeout.unwrap_or(DEFAULT_TIMEOUT))
        };
        builders.into_iter().zip(LocalBootstrap::all(pes)).map(one).collect()
    }
}

/// Returns the bytes of each heap if one mapping can hold the heaps of these PEs.
fn one_mapping(builders: &[WorldBuilder]) -> Result<Option<usize>, ShmemError> {
    let plain = |b: &WorldBuilder| {
        let adapter = b.transport.and_then(Transport::adapter);
        let set = adapter.is_some() || b.adapter.is_some() || b.heap.is_some() || b.host.is_some();
        b.engine.space().gpu_context().is_none() && !set && b.network == NetworkSettings::default()
    };
    let like_first = |b: &WorldBuilder| b.heap_bytes == builders[0].heap_bytes && b.transport == builders[0].transport;
    if builders.is_empty() || !builders.iter().all(|b| plain(b) && like_first(b)) {
        return Ok(None);
    }
    if builders[0].transport.is_none() {
        let set: Option<Transport> = or_read(None, TRANSPORT_VARIABLE, str::parse)?;
        if set.and_then(Transport::adapter).is_some() {
            return Ok(None);
        }
    }
    let bytes = or_read(builders[0].heap_bytes, SIZE_VARIABLE, size)?;
    Ok(Some(bytes.unwrap_or(DEFAULT_HEAP)))
}

/// Checks that the kernels of all PEs on one GPU can run at the same time. They must, since they wait for each other.
fn check_room<'a>(engines: impl Iterator<Item = &'a Engine>) -> Result<(), ShmemError> {
    let mut on: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for gpu in engines.filter_map(|e| e.space().gpu_context()) {
        on.entry(gpu.info().ordinal).or_insert((0, gpu.kernels_side_by_side())).0 += 1;
    }
    match on.into_iter().find(|(_, (pes, most))| pes > most) {
        Some((gpu, (pes, most))) => Err(ShmemError::Crowded { gpu, pes, most }),
        None => Ok(()),
    }
}
