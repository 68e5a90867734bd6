//! Compares mlx5 entries that the device library builds and reads with those of the host and with golden bytes, byte
//! for byte. Runs on CPU threads at each warp width, and on a GPU with the image of `device/mlx5_entries.cu` that
//! `MLX5_ENTRIES_FATBIN` names.
#![cfg(feature = "shmem")]

mod drawn;
mod engine;
#[allow(dead_code)]
#[path = "../common/mlx5_vectors.rs"]
mod vectors;

use crate::{harness, image};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::hash::{BuildHasher, Hasher, RandomState};
use vectors::Vector;
use warpbell::wire::mlx5::BLOCK_BYTES;

const WIDTHS: [u32; 3] = [1, 4, 32];

/// Environment variable that names the GPU's image.
const FATBIN: &str = "MLX5_ENTRIES_FATBIN";

/// Returns the golden vectors, which the host must build too, and random ones.
fn all() -> Vec<Vector> {
    // Kernels write no receive entries: the host does, once.
    let golden: Vec<Vector> = vectors::all().filter(|v| v.what != "receive").collect();
    for v in &golden {
        let Some(built) = v.wqe() else { continue };
        let mut literal = v.bytes.clone();
        literal.resize(literal.len().next_multiple_of(BLOCK_BYTES), 0);
        assert_eq!(built, literal, "{v:x?}");
    }
    let seed = RandomState::new().build_hasher().finish();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    [
        golden,
        drawn::entries(&mut rng),
        drawn::completions(&mut rng),
        drawn::received(&mut rng),
        drawn::questions(&mut rng),
    ]
    .concat()
}

#[test]
fn cpu_threads_build_and_read_what_the_host_does() {
    let vectors = all();
    for width in WIDTHS {
        let engine = engine::cpu_engine(width);
        let (entries, questions) = engine::check(&engine, &vectors).unwrap_or_else(|e| panic!("width {width}: {e}"));
        println!("CPU threads, width {width}: {entries} entries, {questions} questions");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_gpu_builds_and_reads_what_the_host_does() {
    let (_, fatbin) = image::gpu_image(FATBIN, "mlx5_entries.cu", &[]);
    let engine = engine::gpu_engine(&fatbin);
    let (entries, questions) = engine::check(&engine, &all()).unwrap_or_else(|e| panic!("{engine}: {e}"));
    println!("{engine}: {entries} entries, {questions} questions");
}

#[test]
fn rings_know_where_they_are_over_many_laps() {
    for width in WIDTHS {
        harness::stress("mlx5_rings.cpp", width, false, &[]);
    }
}

/// Runs where rdma-core's header is installed; elsewhere the program prints that the header is not.
#[test]
fn layouts_are_rdma_cores() {
    print!("{}", harness::stress("mlx5_parity.cpp", 1, false, &[]));
}
