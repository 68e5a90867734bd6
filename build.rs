//! Compiles `kernels/` twice: with nvcc, when there is one, to a fat binary that is embedded; always with the C++ compiler
//! as C++20 for the CPU engine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// GPU generations that get machine code; the newest also gets PTX, which later GPUs compile when they load it.
const DEFAULT_ARCHS: &[u32] = &[80, 90, 100];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=kernels");
    for v in ["NVCC", "CUDA_HOME", "CUDA_PATH", "PATH", "WARPBELL_CUDA_ARCHS", "DOCS_RS"] {
        println!("cargo::rerun-if-env-changed={v}");
    }
    println!("cargo::rustc-check-cfg=cfg(device_image)");
    println!("cargo::rustc-check-cfg=cfg(cpu_image)");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let include = root.join("kernels/include");
    println!("cargo::metadata=include={}", include.display());
    println!("cargo::rustc-env=WARPBELL_INCLUDE_DIR={}", include.display());

    let docs = env::var_os("DOCS_RS").is_some();
    if !docs {
        compile_for_cpu(&root, &include);
    }
    let fatbin = out.join("kernels.fatbin");
    match (!docs).then(find_nvcc).flatten() {
        Some(nvcc) => {
            let archs = compile_for_gpu(&nvcc, &root, &include, &fatbin);
            println!("cargo::rustc-cfg=device_image");
            println!("cargo::rustc-env=WARPBELL_IMAGE_ARCHS={archs}");
        }
        None => {
            assert!(
                env::var_os("CARGO_FEATURE_REQUIRE_CUDA").is_none() || docs,
                "feature `require-cuda`: no nvcc (looked at $NVCC, $CUDA_HOME/bin, $CUDA_PATH/bin and $PATH)"
            );
            // An empty file keeps `include_bytes!` valid; the cfg says that there is no image.
            fs::write(&fatbin, []).expect("OUT_DIR is writable");
            println!("cargo::rustc-env=WARPBELL_IMAGE_ARCHS=");
        }
    }
}

fn compile_for_cpu(root: &Path, include: &Path) {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .include(include)
        .define("WB_WARP_WIDTH", "1")
        .opt_level(if env::var("PROFILE").as_deref() == Ok("release") { 3 } else { 1 })
        .flag_if_supported("-Wno-unknown-pragmas")
        .flag_if_supported("-Wno-unused-parameter")
        .file(wrapper(root));
    build.compile("warpbell_cpu");
    println!("cargo::rustc-cfg=cpu_image");
}

/// The C++ compiler goes by the ending, so the CPU build enters through a `.cpp` file that includes the same sources.
fn wrapper(root: &Path) -> PathBuf {
    root.join("kernels/cpu/image.cpp")
}

fn find_nvcc() -> Option<PathBuf> {
    let named = env::var_os("NVCC").map(PathBuf::from);
    let homes = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os).map(|h| PathBuf::from(h).join("bin/nvcc"));
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|d| d.join("nvcc")).collect::<Vec<_>>();
    named.into_iter().chain(homes).chain(on_path).find(|p| p.is_file())
}

/// Compiles the fat binary and answers the generations in it, as in `80 90 100`.
fn compile_for_gpu(nvcc: &Path, root: &Path, include: &Path, fatbin: &Path) -> String {
    let known =
        Command::new(nvcc).arg("--list-gpu-code").output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let known = known.unwrap_or_default();
    let wanted: Vec<u32> = match env::var("WARPBELL_CUDA_ARCHS") {
        Ok(list) => list
            .split([',', ' '])
            .filter(|a| !a.is_empty())
            .map(|a| a.parse().unwrap_or_else(|_| panic!("WARPBELL_CUDA_ARCHS: `{a}` is not a number such as 90")))
            .collect(),
        Err(_) => {
            DEFAULT_ARCHS.iter().copied().filter(|a| known.lines().any(|l| l.trim() == format!("sm_{a}"))).collect()
        }
    };
    assert!(!wanted.is_empty(), "{} knows none of {DEFAULT_ARCHS:?}; set WARPBELL_CUDA_ARCHS", nvcc.display());
    let mut command = Command::new(nvcc);
    command.args(["-std=c++17", "-O3", "-lineinfo", "--fatbin", "-Werror", "all-warnings", "--threads", "0"]);
    command.arg("-I").arg(include);
    for a in &wanted {
        command.arg("-gencode").arg(format!("arch=compute_{a},code=sm_{a}"));
    }
    let newest = wanted.iter().max().expect("not empty");
    command.arg("-gencode").arg(format!("arch=compute_{newest},code=compute_{newest}"));
    command.arg("-o").arg(fatbin).arg(root.join("kernels/all.cu"));
    let output = command.output().unwrap_or_else(|e| panic!("{} cannot be run: {e}", nvcc.display()));
    assert!(
        output.status.success(),
        "{} failed on kernels/all.cu:\n{}{}",
        nvcc.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    wanted.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}
