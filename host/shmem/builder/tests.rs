//! Tests of building worlds.

use super::heaps::Group;
use super::reach::{denied, one_host, path_check, reach, source};
use super::*;
use crate::cuda::{FABRIC_HANDLE_BYTES, OVERRIDE_VARIABLE, PeerLink};
use crate::engine::testing::start;
use crate::memory::Place;
use crate::pci::Sysfs;
use crate::pci::fixture::pcie_gpus;
use crate::shmem::bootstrap::LocalBootstrap;
use crate::shmem::heap::Source;
use crate::shmem::peer_info::PeerInfo;
use crate::shmem::variable::value;

fn settings(world: LocalBootstrap) -> WorldBuilder {
    World::builder(&Engine::cpu().unwrap()).bootstrap(Box::new(world)).timeout(Duration::from_secs(30))
}

/// Builds a world of threads in the way of processes: each rank maps the memory of the others for itself.
fn each<T: Send>(n: usize, work: impl Fn(usize, WorldBuilder) -> T + Sync) -> Vec<T> {
    let work = &work;
    std::thread::scope(|s| {
        let all: Vec<_> = LocalBootstrap::all(n)
            .into_iter()
            .enumerate()
            .map(|(rank, b)| s.spawn(move || work(rank, settings(b))))
            .collect();
        all.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn ranks_reach_each_other_through_shared_memory() {
    each(3, |rank, builder| {
        let world = builder.heap_bytes(1 << 20).build().unwrap();
        let text = world.path().to_string();
        assert_eq!(text, "peer 3 PEs (shared memory), heap 1 MiB host, atomics native");
        let sym = world.malloc::<u32>(10).unwrap();
        sym.put(rank, &[rank as u32 + 1], (rank + 1) % 3).unwrap();
        world.barrier_all().unwrap();
        let before = (rank + 2) % 3;
        assert_eq!(sym.read(before, 1).unwrap(), [before as u32 + 1]);
        assert_eq!(sym.get(rank, 1, (rank + 1) % 3).unwrap(), [rank as u32 + 1]);
        // Stores of a kernel to the others' memory arrive too.
        let out = world.engine().allocate(Place::Device, 8).unwrap();
        out.set(0, 70 + rank as u64).unwrap();
        let (to, flag) = (world.malloc::<u64>(1).unwrap(), world.malloc::<u64>(1).unwrap());
        let grid = crate::engine::Grid { blocks: 1, threads: world.engine().info().warp_width };
        let args = crate::args!(&world, &to, &out, 1u64, &flag, 1u64);
        start(world.engine(), "wb_shmem_ring", grid, args).unwrap().finish().unwrap();
        assert_eq!(to.read(0, 1).unwrap(), [70 + before as u64]);
        world.barrier_host().unwrap();
    });
}

#[test]
fn different_sizes_are_an_error_on_all() {
    let errors = each(3, |rank, builder| {
        builder.heap_bytes(if rank == 1 { 2 << 20 } else { 1 << 20 }).build().unwrap_err().to_string()
    });
    for e in errors {
        assert!(e.contains("ranks 0, 2: 1 MiB") && e.contains("rank 1: 2 MiB"), "{e}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let mut all = LocalBootstrap::all(2);
    let absent = all.pop().unwrap();
    let builder = settings(all.pop().unwrap()).timeout(Duration::from_millis(20));
    let e = builder.build().unwrap_err().to_string();
    assert!(e.contains("rank 1"), "{e}");
    drop(absent);
}

#[test]
fn a_world_of_one_needs_nobody() {
    let world = World::builder(&Engine::cpu().unwrap()).bootstrap(Box::new(LocalBootstrap::all(1).remove(0)));
    let world = world.heap_bytes(1 << 20).build().unwrap();
    assert_eq!((world.my_pe(), world.n_pes()), (0, 1));
    assert!(world.path().to_string().contains("1 PE (alone), heap 1 MiB"));
    world.barrier_all().unwrap();
}

#[test]
fn hosts_out_of_reach_are_named() {
    let peer_info = |host: &str| {
        let mut peer_info = PeerInfo::of(&Engine::cpu().unwrap(), None, HeapKind::Auto).unwrap();
        peer_info.host.name = host.to_owned();
        peer_info
    };
    let e = one_host(&[peer_info("a"), peer_info("a"), peer_info("b")]).unwrap_err();
    assert!(e.contains("rank 0-1 on a") && e.contains("rank 2 on b"), "{e}");
    assert!(one_host(&[peer_info("a"), peer_info("a")]).is_ok());
    assert!(
        reach(&[peer_info("a"), peer_info("a")], 0, &Group::new(vec![0, 1], 2)).unwrap_err().contains("CPU engine")
    );
    assert!(matches!(source(&[peer_info("a"), peer_info("a")], 0, 0, None), Ok(Source::OwnMemory)));
    assert!(matches!(source(&[peer_info("a"), peer_info("a")], 0, 1, None), Ok(Source::Here(_))));
    let mut peer_infos = [peer_info("a"), peer_info("a"), peer_info("b")];
    peer_infos[1].process = "another".to_owned();
    peer_infos[2].process = "another".to_owned();
    assert!(matches!(source(&peer_infos, 0, 1, None), Ok(Source::Host(p)) if p.rank == 1));
    assert!(source(&peer_infos, 0, 2, None).is_err());
    assert!(matches!(source(&peer_infos, 0, 2, Some(&[1; FABRIC_HANDLE_BYTES])), Ok(Source::Fabric(_))));
}

#[test]
fn gpus_behind_translation_and_redirection_are_told_why() {
    let tree = pcie_gpus(Some(0x1d), "DMA-FQ");
    let bdfs = ["0000:01:00.0", "0000:81:00.0"].map(|b| Some(b.parse().unwrap()));
    let pcie = PeerLink { access: false, native_atomics: false, performance_rank: 0, link_atomics: false };
    let check = |link, version, variable| path_check(&Sysfs::at(tree.root()), link, version, bdfs, variable);
    let path = check(pcie, (13, 5), None).unwrap();
    let e = denied("NVIDIA L40S of rank 0", "NVIDIA L40S of rank 1", Some(&path));
    for words in [
        "NVIDIA L40S of rank 0 cannot reach the memory of NVIDIA L40S of rank 1 (cuDeviceCanAccessPeer); from CUDA 13.5 on",
        "the IOMMU translates for 0000:01:00.0 0000:81:00.0, ACS redirects at 0000:00:01.0 0000:80:01.0: iommu=pt",
        "disable_acs_redir=0000:00:01.0;0000:80:01.0",
        "data may be lost or corrupted",
        "; or use GPUs that NVLink",
        "WARPBELL_HEAP=host",
    ] {
        assert!(e.contains(words), "no `{words}` in {e}");
    }
    assert!(e.contains(&format!("{OVERRIDE_VARIABLE}=1")), "{e}");
    // An older driver, the variable, and NVLink each exclude the cause.
    assert_eq!(check(pcie, (13, 4), None), None);
    assert_eq!(check(pcie, (13, 5), Some("1")), None);
    assert_eq!(check(PeerLink { link_atomics: true, ..pcie }, (13, 5), None), None);
    let e = denied("A of rank 0", "B of rank 1", None);
    assert!(
        e.starts_with("A of rank 0 cannot reach the memory of B of rank 1 (cuDeviceCanAccessPeer): use GPUs"),
        "{e}"
    );
    assert!(!e.contains(OVERRIDE_VARIABLE), "{e}");
}

#[test]
fn settings_of_the_environment_are_read() {
    assert_eq!(size("64M").unwrap(), 64 << 20);
    let e = value(SIZE_VARIABLE, "much", size).unwrap_err().to_string();
    assert!(e.contains("WARPBELL_SYMMETRIC_SIZE") && e.contains("much"), "{e}");
}
