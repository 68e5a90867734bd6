//! Packages with kernels, built by cargo as their users build them: with and without nvcc, with mistakes, and one that runs.

mod package;

use package::{Package, root};
use std::fs;

/// Program that doubles numbers with the kernel of the package, on CPU threads.
const PROGRAM: &str = r#"
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/my_image.rs"));
}

fn main() {
    let threads = kernels::cpu_image().expect("kernels for CPU threads");
    let image = warpbell::engine::Image::new("mine").cpu(threads);
    let engine = warpbell::engine::Engine::builder().image(image).threads(2).cpu().expect("an engine");
    let numbers = engine.allocate(warpbell::memory::Place::Device, 4000).expect("memory");
    numbers.set_slice(0, &(0..1000).collect::<Vec<u32>>()).expect("in the memory");
    // SAFETY: the parameters of the kernel `scale` have these types, in this order.
    let run = unsafe { engine.launch("scale", engine.grid(64, 1), warpbell::args!(&1000u32, &numbers)) };
    run.expect("a launch").finish().expect("a run");
    println!("last {} gpu {}", numbers.get::<u32>(3996).expect("in the memory"), kernels::FAT_BINARY.is_some());
}
"#;

#[test]
fn kernels_of_a_dependant_run_on_cpu_threads() {
    let warpbell = format!("warpbell = {{ path = {:?}, default-features = false }}", root());
    let build = "Kernels::new().file(\"kernels/scale.cu\").compile(\"my_image\")";
    let package = Package::new("runs", &warpbell, build);
    package.write("src/main.rs", PROGRAM);
    let first = package.cargo(&["run"]);
    first.has(
        true,
        &["last 1998 gpu false", "warning: runs@0.1.0: image `my_image` has no fat binary", "set NVCC to the path"],
    );
    // Nothing has changed.
    let second = package.cargo(&["run"]);
    second.has(true, &["last 1998"]);
    assert!(!second.text.contains("Compiling"), "{}", second.text);
    // The kernel includes this header, which no line of the build script names.
    package.write("kernels/factor.h", "#define FACTOR 3\n");
    package.cargo(&["run"]).has(true, &["last 2997"]);
}

#[test]
fn a_renamed_dependency_is_called_by_its_name() {
    let warpbell = format!("wb = {{ package = \"warpbell\", path = {:?}, default-features = false }}", root());
    let build = |name| {
        format!(
            "Kernels::new().file(\"kernels/scale.cu\").crate_name({name:?}).fat_binary(FatBinary::Never).compile(\"my_image\")"
        )
    };
    let package = Package::new("renamed", &warpbell, &build("wb"));
    package.write("src/main.rs", &PROGRAM.replace("warpbell::", "wb::"));
    package.cargo(&["run"]).has(true, &["last 1998 gpu false"]);
    assert!(!package.module().contains("::warpbell::"), "{}", package.module());
    let wrong = Package::new("wrong_name", &warpbell, &build("w-b"));
    wrong.cargo(&["build"]).has(false, &["error: `w-b` cannot be the name of the crate", "with `_` for `-`"]);
}

#[test]
fn nvcc_compiles_for_the_architectures_it_knows() {
    let mut package = Package::of_kernels_alone(
        "architectures",
        ".include(\"more\").define(\"TILE\", \"7\").nvcc_flag(\"--expt-x\")",
    );
    let nvcc = package.stand_in_nvcc();
    package.set("NVCC", &nvcc).cargo(&["check"]).has(true, &["compiled [80, 90] with Some(\"99.1\")"]);
    let log = package.nvcc_log();
    assert_eq!(log.len(), 1, "{log:?}");
    let headers = format!("-I {}", root().join("kernels/include").display());
    for part in [
        "-std=c++17 -O3",
        "--fatbin",
        &headers,
        "-I more",
        "-DTILE=7",
        "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90",
        "--expt-x",
        "my_image.cu",
    ] {
        assert!(log[0].contains(part), "`{part}` is missing: {}", log[0]);
    }
    assert!(package.module().contains("FAT_BINARY: Option<&[u8]> = Some(include_bytes!("), "{}", package.module());
    // The environment is stronger than the build script. An architecture that nvcc does not know is named.
    package.set("WARPBELL_CUDA_ARCHS", "90").cargo(&["check"]).has(true, &["compiled [90]"]);
    package.set("WARPBELL_CUDA_ARCHS", "90,101").cargo(&["check"]).has(
        false,
        &["bin/nvcc 99.1 does not compile for sm_101; it knows sm_75, sm_80, sm_90; choose", "WARPBELL_CUDA_ARCHS"],
    );
    assert_eq!(package.nvcc_log().len(), 2);
}

#[test]
fn nvcc_is_found_as_documented() {
    let mut package = Package::of_kernels_alone("finds", ".architectures([75])");
    let nvcc = package.stand_in_nvcc();
    // With a folder that has no nvcc, the next place is asked.
    let toolkit = package.folder.clone();
    package.set("CUDA_HOME", "/nowhere").set("CUDA_PATH", toolkit);
    package.cargo(&["check"]).has(true, &["compiled [75] with Some(\"99.1\")"]);
    package.set("NVCC", "/nowhere/nvcc");
    package
        .cargo(&["check"])
        .has(false, &["error: NVCC is `/nowhere/nvcc`, which is not a program; set NVCC to the path"]);
    package.set("NVCC", nvcc);
    package.cargo(&["check"]).has(true, &["compiled [75]"]);
    assert_eq!(package.nvcc_log().len(), 1, "the same command was run again");
}

#[test]
fn separate_fat_binaries_have_the_image_too() {
    let mut package = Package::of_kernels_alone("separate", ".file(\"other.cu\").separate_fat_binaries(true)");
    package.write("other.cu", "#include <warpbell/kernel.h>\nWB_KERNEL void other() {}\nWB_EXPORT(other)\n");
    let nvcc = package.stand_in_nvcc();
    package.set("NVCC", nvcc).cargo(&["check"]).has(true, &["compiled [80, 90]"]);
    let module = package.module();
    for name in ["kernels-scale.fatbin", "other.fatbin", "image.fatbin"] {
        assert!(module.contains(name), "{module}");
    }
    assert!(module.contains("FAT_BINARIES: &[&[u8]]"), "{module}");
    assert_eq!(package.nvcc_log().len(), 3);
}

#[test]
fn a_required_fat_binary_needs_nvcc() {
    let package = Package::of_kernels_alone("requires", ".fat_binary(FatBinary::Required)");
    package.cargo(&["build"]).has(
        false,
        &[
            "error: image `my_image` requires a fat binary for GPUs, and there is no nvcc (looked at $NVCC",
            "install the CUDA toolkit",
        ],
    );
}

#[test]
fn a_missing_compiler_is_named() {
    let mut package = Package::of_kernels_alone("no_compiler", "");
    package.set("CXX", "/nowhere/c++").cargo(&["build"]).has(false, &["error: ", "/nowhere/c++", "set CXX to one"]);
}

#[test]
fn a_mistake_in_a_kernel_is_shown_with_the_compilers_words() {
    let mut package = Package::of_kernels_alone("mistakes", "");
    package.write("kernels/factor.h", "#define FACTOR missing_number\n");
    let common = ["error: ", "failed to compile", "my_image.cu", "command: ", "correct the source"];
    let outcome = package.cargo(&["build"]);
    outcome.has(false, &common);
    outcome.has(false, &["missing_number", "scale.cu:5", "-std=c++20"]);
    // nvcc likewise.
    package.write("kernels/factor.h", "#define FACTOR 2\n");
    let nvcc = package.program(
        "bin/nvcc",
        "case $1 in --version) ;; --list-gpu-code) echo sm_90 ;; *) echo 'scale.cu(5): error: no such thing' >&2; exit 2 ;; esac\n",
    );
    let outcome = package.set("NVCC", nvcc).cargo(&["build"]);
    outcome.has(false, &common);
    outcome.has(false, &["bin/nvcc", "(exit status: 2)", "scale.cu(5): error: no such thing", "--fatbin"]);
}

#[test]
fn warnings_are_shown_or_end_the_build() {
    let kernel = format!("static int unused_number;\n{}", package::KERNEL);
    let package = Package::of_kernels_alone("warnings", "");
    package.write("kernels/scale.cu", &kernel);
    package.cargo(&["check"]).has(true, &["warning: warnings@0.1.0:", "unused_number"]);
    let package = Package::of_kernels_alone("no_warnings", ".warnings_as_errors(true)");
    package.write("kernels/scale.cu", &kernel);
    package.cargo(&["build"]).has(false, &["failed to compile", "unused_number"]);
}

#[test]
fn documentation_needs_no_compiler() {
    let mut package = Package::of_kernels_alone("documents", ".fat_binary(FatBinary::Required)");
    package.set("DOCS_RS", "1").set("CXX", "/nowhere/c++").cargo(&["check"]).has(true, &["compiled [] with None"]);
    let module = package.module();
    assert!(module.contains("FAT_BINARY: Option<&[u8]> = None") && module.contains("NoCpuImage"), "{module}");
}

#[test]
fn the_headers_are_those_of_warpbell_or_named() {
    let build = "Kernels::new().file(\"kernels/scale.cu\").compile(\"my_image\")";
    let package = Package::new("no_headers", "", build);
    package.cargo(&["build"]).has(false, &["DEP_WARPBELL_INCLUDE", "add `warpbell` to [dependencies]"]);
    let package = Package::new("wrong_headers", "", &build.replace(".file", ".headers(\"kernels\").file"));
    package.cargo(&["build"]).has(false, &["kernels has no warpbell/kernel.h", "warpbell include-dir"]);
}

#[test]
fn settings_that_cannot_be_are_named() {
    let build = |build: &str| Package::new("settings", "", build).cargo(&["build"]);
    build("Kernels::new().file(\"a.cu\").compile(\"7th-image\")")
        .has(false, &["`7th-image` cannot be the name of an image"]);
    build("Kernels::new().compile(\"mine\")").has(false, &["image `mine` has no kernels; name their files"]);
    build("Kernels::new().file(\"a.cu\").compile(\"mine\")")
        .has(false, &["image `mine`: a.cu is not a file; paths are relative"]);
}

#[test]
fn an_image_may_be_defined_in_its_files_and_linked_by_programs() {
    let package = Package::of_kernels_alone("own_image", ".image_in_files(true).cache_kernels(true).link(false)");
    package.write("kernels/scale.cu", &format!("{}WB_IMAGE(my_image)\n", package::KERNEL));
    package.cargo(&["build"]).has(true, &["compiled []"]);
    let module = package.module();
    assert!(module.contains("#[link(name = \"my_image\", kind = \"static\")]"), "{module}");
    let archive = fs::read_to_string(package.folder.join("module")).unwrap().replace("my_image.rs", "libmy_image.a");
    let library = fs::read(&archive).expect("a static library");
    let holds = |name: &[u8]| library.windows(name.len()).any(|w| w == name);
    assert!(holds(b"wb_cache_flush") && holds(b"scale"), "{archive} has not all kernels");
}
