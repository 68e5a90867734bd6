//! Compiles `kernels/` twice: with nvcc, when there is one, to a fat binary for each file, which are embedded; always with the C++
//! compiler as C++20 for the CPU engine. `examples/kernels/` likewise, for the examples alone, and only where somebody works on this
//! crate itself. docs/device-library.md shows the same steps for a crate that brings its own kernels.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{env, fs};

/// GPU generations that get machine code; the newest also gets PTX, which later GPUs compile when they load it.
const DEFAULT_ARCHS: &[u32] = &[80, 90, 100];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=kernels");
    for v in ["NVCC", "CUDA_HOME", "CUDA_PATH", "PATH", "WARPBELL_CUDA_ARCHS", "DOCS_RS"] {
        println!("cargo::rerun-if-env-changed={v}");
    }
    println!("cargo::rustc-check-cfg=cfg(cpu_image)");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let include = root.join("kernels/include");
    println!("cargo::metadata=include={}", include.display());
    println!("cargo::rustc-env=WARPBELL_INCLUDE_DIR={}", include.display());

    let docs = env::var_os("DOCS_RS").is_some();
    let nvcc = (!docs).then(find_nvcc).flatten();
    assert!(
        nvcc.is_some() || docs || env::var_os("CARGO_FEATURE_REQUIRE_CUDA").is_none(),
        "feature `require-cuda`: no nvcc (looked at $NVCC, $CUDA_HOME/bin, $CUDA_PATH/bin and $PATH)"
    );
    // Cargo sets this while it compiles the build script of a package that was asked for, not of a dependency.
    let examples = option_env!("CARGO_PRIMARY_PACKAGE").is_some() && !docs;
    if examples {
        println!("cargo::rerun-if-changed=examples/kernels");
    }
    // An empty file keeps `include_bytes!` valid where there is no image.
    let examples_fatbin = out.join("examples.fatbin");
    fs::write(&examples_fatbin, []).expect("OUT_DIR is writable");
    let archs = nvcc.as_deref().map(known_archs).unwrap_or_default();
    // The longest first: what the C++ compiler has for the processor, then what nvcc has.
    let mut jobs: Vec<Job> = Vec::new();
    if !docs {
        // The C++ compiler goes by the ending, so the shipped image enters through a `.cpp` file that includes the sources.
        let (source, include) = (root.join("kernels/cpu/image.cpp"), &include);
        jobs.push(Box::new(move || compile_for_cpu(&source, include, "warpbell_cpu", true)));
        println!("cargo::rustc-cfg=cpu_image");
    }
    if examples {
        // The library does not link it: examples/support/mod.rs does.
        let (source, include) = (root.join("examples/kernels/image.cu"), &include);
        jobs.push(Box::new(move || compile_for_cpu(&source, include, "warpbell_examples", false)));
    }
    let mut shipped = Vec::new();
    if let Some(nvcc) = &nvcc {
        let mut images = Vec::new();
        for source in kernel_files(&root.join("kernels")) {
            let name =
                source.strip_prefix(root.join("kernels")).expect("it is in there").to_string_lossy().replace('/', "-");
            let fatbin = out.join("kernels").join(name).with_extension("fatbin");
            shipped.push(fatbin.clone());
            images.push((source, fatbin));
        }
        fs::create_dir_all(out.join("kernels")).expect("OUT_DIR is writable");
        if examples {
            images.push((root.join("examples/kernels/image.cu"), examples_fatbin));
        }
        for (source, fatbin) in images {
            let (include, archs) = (&include, &archs);
            jobs.push(Box::new(move || compile_for_gpu(nvcc, &source, include, archs, &fatbin)));
        }
    }
    side_by_side(jobs);
    let archs = archs.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    println!("cargo::rustc-env=WARPBELL_IMAGE_ARCHS={archs}");
    let list: String =
        shipped.iter().map(|f| format!("    include_bytes!({:?}),\n", f.display().to_string())).collect();
    fs::write(out.join("kernels.rs"), format!("&[\n{list}]\n")).expect("OUT_DIR is writable");
}

/// The files of kernels below a folder, but for the one that is all of them together, the longest first.
fn kernel_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the package") {
            let path = entry.expect("a folder of the package").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "cu") && path != folder.join("all.cu") {
                files.push(path);
            }
        }
    }
    files.sort_by_key(|f| (std::cmp::Reverse(fs::metadata(f).map_or(0, |m| m.len())), f.clone()));
    files
}

fn compile_for_cpu(source: &Path, include: &Path, name: &str, link: bool) {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .include(include)
        .define("WB_WARP_WIDTH", "1")
        .define("WB_CHECKED", if checked_calls() { "1" } else { "0" })
        .opt_level(if env::var("PROFILE").as_deref() == Ok("release") { 3 } else { 1 })
        // `#pragma unroll` is a word of nvcc and clang; g++ says that it ignores it.
        .flag_if_supported("-Wno-unknown-pragmas")
        // Batches are loaded and used under the same condition, which g++ loses sight of at -O3.
        .flag_if_supported("-Wno-maybe-uninitialized")
        .debug(false)
        .cargo_metadata(link);
    // Lines, as in `[profile.dev]`: all of `-g` would take a quarter of the compiler's time.
    if env::var("DEBUG").is_ok_and(|d| !matches!(d.as_str(), "false" | "0" | "none")) {
        build.flag_if_supported("-g1");
    }
    if source.extension().is_some_and(|e| e == "cu") {
        build.flag("-xc++");
    }
    build.file(source).compile(name);
}

/// Whether a world's calls look at their addresses: wherever feature `checked` is on, and on CPU threads in a debug build.
fn checked_calls() -> bool {
    checked_everywhere() || env::var("PROFILE").as_deref() == Ok("debug")
}

fn checked_everywhere() -> bool {
    env::var_os("CARGO_FEATURE_CHECKED").is_some()
}

fn find_nvcc() -> Option<PathBuf> {
    let named = env::var_os("NVCC").map(PathBuf::from);
    let homes = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os).map(|h| PathBuf::from(h).join("bin/nvcc"));
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|d| d.join("nvcc")).collect::<Vec<_>>();
    named.into_iter().chain(homes).chain(on_path).find(|p| p.is_file())
}

/// The generations to compile for, as in 80, 90, 100.
fn known_archs(nvcc: &Path) -> Vec<u32> {
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
    wanted
}

type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Compiles, as many files side by side as cargo gives jobs.
fn side_by_side(jobs: Vec<Job<'_>>) {
    let workers = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1).clamp(1, jobs.len().max(1));
    let next = Mutex::new(jobs.into_iter());
    std::thread::scope(|s| {
        for _ in 0..workers {
            s.spawn(|| {
                loop {
                    let job = next.lock().expect("no thread panics with it").next();
                    let Some(job) = job else { break };
                    job();
                }
            });
        }
    });
}

/// Compiles a source to a fat binary.
fn compile_for_gpu(nvcc: &Path, source: &Path, include: &Path, archs: &[u32], fatbin: &Path) {
    let mut command = Command::new(nvcc);
    command.args([
        "-std=c++17",
        "-O3",
        "-lineinfo",
        "--fatbin",
        "-Xfatbin",
        "-compress-all",
        "-Werror",
        "all-warnings",
    ]);
    command.arg("-I").arg(include);
    if checked_everywhere() {
        command.arg("-DWB_CHECKED=1");
    }
    for a in archs {
        command.arg("-gencode").arg(format!("arch=compute_{a},code=sm_{a}"));
    }
    let newest = archs.iter().max().expect("not empty");
    command.arg("-gencode").arg(format!("arch=compute_{newest},code=compute_{newest}"));
    // Two generations at a time: so the last file keeps more than one processor busy.
    command.args(["--threads", "2"]);
    command.arg("-o").arg(fatbin).arg(source);
    let output = command.output().unwrap_or_else(|e| panic!("{} cannot be run: {e}", nvcc.display()));
    assert!(
        output.status.success(),
        "{} failed on {}:\n{}{}",
        nvcc.display(),
        source.display(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
