//! Compiles `kernels/image.cu` twice: for CPU threads, and by nvcc for GPUs if nvcc is installed.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-env-changed=NVCC");
    // warpbell passes the folder of its headers to the build scripts of crates that depend on it.
    let include = std::env::var("DEP_WARPBELL_INCLUDE").expect("warpbell is a dependency");

    let mut for_threads = cc::Build::new();
    for_threads.cpp(true).std("c++20").opt_level(3).include(&include);
    for_threads.flag("-xc++").flag("-Wno-unknown-pragmas");
    for_threads.file("kernels/image.cu").compile("my_image");

    let fatbin = Path::new(&std::env::var("OUT_DIR").expect("cargo sets it")).join("image.fatbin");
    let nvcc = std::env::var("NVCC").unwrap_or("nvcc".to_owned());
    // PTX of compute capability 8.0 runs on every GPU that warpbell supports.
    let result = Command::new(nvcc)
        .args(["-std=c++17", "-O3", "--fatbin", "-gencode", "arch=compute_80,code=compute_80", "-I", &include, "-o"])
        .arg(&fatbin)
        .arg("kernels/image.cu")
        .status();
    match result {
        Ok(status) => assert!(status.success(), "nvcc failed"),
        // No nvcc: the program runs on CPU threads only.
        Err(_) => std::fs::write(&fatbin, []).expect("OUT_DIR is writable"),
    }
}
