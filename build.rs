//! Compiles the families of `kernels/` whose features are on, twice, with the crate `warpbell-build`: by nvcc, when there is one (feature
//! `gpu-image`), to a fat binary for each file, which are embedded; with the C++ compiler for the CPU engine (`cpu-image`).
//! `examples/kernels/` likewise, for the examples alone, and only where somebody works on this crate itself.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};
use warpbell_build::{BuildError, FatBinary, Image, Kernels, Nvcc};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rustc-check-cfg=cfg(cpu_image)");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let include = root.join("kernels/include");
    println!("cargo::metadata=include={}", include.display());
    println!("cargo::rustc-env=WARPBELL_INCLUDE_DIR={}", include.display());

    let image = compile(&root, &include).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        std::process::exit(1)
    });
    // For this package, and as metadata for packages that compile the program into themselves.
    let fact = |name: &str, value: &str| {
        println!("cargo::rustc-env=WARPBELL_{}={value}", name.to_uppercase());
        println!("cargo::metadata={name}={value}");
    };
    fact("nvcc", &image.nvcc.map_or("none".to_owned(), |nvcc| nvcc.release));
    fact("commit", &commit(&root));
    fact("target", &env::var("TARGET").expect("cargo sets TARGET"));
    fact("image_archs", &image.architectures.iter().map(u32::to_string).collect::<Vec<_>>().join(" "));
    let list: String =
        image.fat_binaries.iter().map(|f| format!("    include_bytes!({:?}),\n", f.display().to_string())).collect();
    fs::write(out.join("kernels.rs"), format!("&[\n{list}]\n")).expect("OUT_DIR is writable");
}

/// Compiles the shipped kernels, and those of the examples. Returns the shipped image.
fn compile(root: &Path, include: &Path) -> Result<Image, BuildError> {
    let fat_binary = match (feature("gpu-image"), feature("require-cuda")) {
        (false, _) => FatBinary::Never,
        (true, true) => FatBinary::Required,
        // Without nvcc there is no warning: `warpbell info` says so, and what an engine prints.
        (true, false) => Nvcc::find()?.map_or(FatBinary::Never, |_| FatBinary::IfNvcc),
    };
    let kernels = || {
        Kernels::new()
            .headers(include)
            .image_in_files(true)
            .checked(feature("checked"))
            // Of nvcc alone: C++ compilers that are newer than this version may have new warnings.
            .nvcc_flag("-Werror")
            .nvcc_flag("all-warnings")
            .cpu(feature("cpu-image"))
            .fat_binary(fat_binary)
    };
    let shipped = kernels().files(kernel_files(&root.join("kernels"))).separate_fat_binaries(true);
    let mut images = vec![("warpbell_image", shipped)];
    // Cargo sets the variable while it compiles the build script of a package that was asked for, not of a dependency. The examples' image
    // is linked into programs that have the shipped ones too.
    if option_env!("CARGO_PRIMARY_PACKAGE").is_some() && feature("cpu-image") && feature("storage") {
        images.push(("warpbell_examples_image", kernels().file(root.join("examples/kernels/image.cu")).link(false)));
    }
    let mut images = warpbell_build::try_compile_all(images)?;
    if feature("cpu-image") && env::var_os("DOCS_RS").is_none() {
        println!("cargo::rustc-cfg=cpu_image");
    }
    Ok(images.swap_remove(0))
}

/// Returns true if a feature of the crate is on.
fn feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase().replace('-', "_"))).is_some()
}

/// Returns true if the kernels below this folder, or in this file, belong to a family whose feature is on.
fn is_wanted(path: &Path) -> bool {
    match path.file_name().and_then(|name| name.to_str()) {
        Some("storage") => feature("storage"),
        Some("shmem") => feature("shmem"),
        Some("graph") => feature("graph"),
        Some("partitioned.cu" | "mirrors.cu" | "sssp_claims.cu") => feature("shmem"),
        // The program measures with them.
        Some("bench") => feature("cli"),
        Some("include") => false,
        _ => true,
    }
}

/// Returns the files of kernels below a folder that are wanted. The one with the image's list of kernels comes last.
fn kernel_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the package") {
            let path = entry.expect("a folder of the package").path();
            if !is_wanted(&path) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "cu") {
                files.push(path);
            }
        }
    }
    files.sort_by_key(|f| (f.ends_with("kernels/image.cu"), f.clone()));
    files
}

/// Returns the commit that is built: of a package the one that it was made from, of a checkout its newest. Only release builds look
/// at a checkout: others would be built again after each commit.
fn commit(root: &Path) -> String {
    if let Ok(facts) = fs::read_to_string(root.join(".cargo_vcs_info.json")) {
        let sha1 = facts.split("\"sha1\": \"").nth(1).and_then(|rest| rest.split('"').next());
        return sha1.unwrap_or("unknown").to_owned();
    }
    if env::var("PROFILE").as_deref() != Ok("release") {
        return "unknown (a development build)".to_owned();
    }
    let log = root.join(".git/logs/HEAD");
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    let told = Command::new("git").arg("-C").arg(root).args(["rev-parse", "HEAD"]).output();
    let told = told.ok().filter(|o| o.status.success()).and_then(|o| String::from_utf8(o.stdout).ok());
    told.map_or("unknown (no checkout)".to_owned(), |commit| commit.trim().to_owned())
}
