//! Compiles the device headers as a user has them: a copy of `kernels/include` without the rest of the tree, each header
//! by itself, and together with CUDA's own headers.

use crate::harness;
use crate::tree;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use tempfile::TempDir;

/// Files that other headers include in their midst, and that nobody includes alone.
const PARTS: [&str; 4] =
    ["warpbell/abi_fields.h", "warpbell/order/bulk.cuh", "warpbell/order/cpu.cuh", "warpbell/order/gpu.cuh"];
/// Folder of the headers for CPU threads, which nvcc never sees.
const CPU_ONLY: &str = "warpbell/cpu/";
/// Environment variable with the folder of a CUDA toolkit, for the tests that need one.
const TOOLKIT: &str = "WARPBELL_TEST_CUDA";

fn copy(from: &Path, to: &Path, below: &Path, names: &mut Vec<String>) {
    fs::create_dir_all(to.join(below)).unwrap();
    for entry in fs::read_dir(from.join(below)).unwrap() {
        let name = below.join(entry.unwrap().file_name());
        if from.join(&name).is_dir() {
            copy(from, to, &name, names);
        } else {
            fs::copy(from.join(&name), to.join(&name)).unwrap();
            names.push(name.to_str().unwrap().to_owned());
        }
    }
}

/// A copy of the headers in an empty folder, and their names in the order of the alphabet.
struct Installed {
    folder: TempDir,
    headers: Vec<String>,
}

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut headers = Vec::new();
        copy(&tree::root().join("kernels/include"), &folder.path().join("include"), Path::new(""), &mut headers);
        headers.sort();
        Self { folder, headers }
    }

    fn include(&self) -> PathBuf {
        self.folder.path().join("include")
    }

    /// Writes a source file beside the headers.
    fn source(&self, name: &str, text: &str) -> PathBuf {
        let source = self.folder.path().join(name);
        fs::write(&source, text).unwrap();
        source
    }

    /// Calls `compile` with a source for each header that includes that header alone, from two threads. Returns the number of
    /// sources.
    fn each_alone(
        &self,
        extension: &str,
        is_public: impl Fn(&str) -> bool,
        compile: impl Fn(&Path) -> Result<(), Output> + Sync,
    ) -> usize {
        let public: Vec<&String> =
            self.headers.iter().filter(|h| !PARTS.contains(&h.as_str()) && is_public(h)).collect();
        let next = Mutex::new(public.iter());
        let wrong = Mutex::new(Vec::new());
        let worker = || {
            while let Some(header) = { next.lock().unwrap().next() } {
                let name = format!("{}.{extension}", header.replace(['/', '.'], "_"));
                let source = self.source(&name, &format!("#include <{header}>\n"));
                if let Err(output) = compile(&source) {
                    wrong.lock().unwrap().push(format!("{header}:\n{}", harness::text(&output)));
                }
            }
        };
        std::thread::scope(|s| {
            s.spawn(worker);
            s.spawn(worker);
        });
        let wrong = wrong.into_inner().unwrap();
        assert!(
            wrong.is_empty(),
            "{} of {} headers do not compile alone:\n{}",
            wrong.len(),
            public.len(),
            wrong.join("\n")
        );
        public.len()
    }

    /// Compiles a source for CPU threads without writing code, with warnings as errors.
    fn check(&self, source: &Path, more: &[&str]) -> Result<(), Output> {
        let options = [&["-fsyntax-only", "-Werror"], more].concat();
        harness::compile_with(&options, &self.include(), source, 1, Path::new("/dev/null")).map(drop)
    }
}

#[test]
fn each_header_compiles_alone_for_cpu_threads() {
    let installed = Installed::new();
    let count = installed.each_alone("cpp", |_| true, |source| installed.check(source, &[]));
    assert!(count > 40, "{count} headers");
}

#[test]
fn no_header_names_a_file_outside_of_its_folder() {
    let installed = Installed::new();
    for header in &installed.headers {
        let text = fs::read_to_string(installed.include().join(header)).unwrap();
        let outside: Vec<&str> = text.lines().filter(|l| l.starts_with("#include") && l.contains("..")).collect();
        assert!(outside.is_empty(), "{header}: {outside:?}");
    }
}

/// A host file that passes views of arrays and worlds on, with CUDA's headers before or behind warpbell's.
fn host_files(installed: &Installed) -> [PathBuf; 2] {
    let cuda = "#include <cuda_runtime.h>\n";
    let warpbell = "#include <warpbell/array.cuh>\n#include <warpbell/shmem.cuh>\n";
    let rest = "float first(const float4& v) { return v.x; }\n\
                unsigned blocks() { return dim3(7, 2).x; }\n\
                unsigned threads(uint3 block) { return block.x * block.y * block.z; }\n\
                uint64_t bytes() { return sizeof(warpbell::array_ref<float>) + sizeof(warpbell::world_ref); }\n";
    [("cuda_first.cpp", [cuda, warpbell]), ("cuda_last.cpp", [warpbell, cuda])]
        .map(|(name, includes)| installed.source(name, &(includes.concat() + rest)))
}

/// A kernel for CPU threads that uses CUDA's vector types.
const KERNEL: &str = "#include <cuda_runtime.h>\n#include <warpbell/kernel.h>\n\
                      WB_KERNEL void __launch_bounds__(256) scale(WB_PARAM float4 by, float* to) {\n\
                      \x20 dim3 shape(2, 3);\n  __syncthreads();\n  atomicAdd(to, by.x * threadIdx.x * shape.y);\n}\n\
                      WB_EXPORT(scale)\nWB_IMAGE(image)\n";

/// Compiles host files and a kernel for CPU threads with the CUDA headers in a folder.
fn compiles_beside(cuda: &Path) {
    let installed = Installed::new();
    let [first, last] = host_files(&installed);
    let kernel = installed.source("kernel.cpp", KERNEL);
    // Programs may be C++17, and pass views on.
    for (source, standard) in [(first, "c++17"), (last, "c++20"), (kernel, "c++20")] {
        let options = [&*format!("-std={standard}"), "-I", cuda.to_str().unwrap()];
        if let Err(output) = installed.check(&source, &options) {
            panic!("{}:\n{}", source.display(), harness::text(&output));
        }
    }
}

#[test]
fn a_host_file_has_cuda_s_names_beside_the_headers() {
    compiles_beside(&tree::root().join("tests/device/stand_in"));
}

/// Returns the folder of the CUDA toolkit.
fn toolkit() -> PathBuf {
    let named = std::env::var_os(TOOLKIT);
    named.unwrap_or_else(|| panic!("{TOOLKIT} is not set; set it to the folder of a CUDA toolkit")).into()
}

#[test]
#[ignore = "needs the CUDA toolkit: .ci/run kernels"]
fn a_host_file_has_the_names_of_the_cuda_toolkit() {
    compiles_beside(&toolkit().join("include"));
}

#[test]
#[ignore = "needs the CUDA toolkit: .ci/run kernels"]
fn each_header_compiles_alone_for_gpus() {
    let installed = Installed::new();
    let nvcc = toolkit().join("bin/nvcc");
    let compile = |source: &Path| {
        let mut command = Command::new(&nvcc);
        command.args(["-std=c++17", "-arch=sm_90", "-Werror", "all-warnings", "-c", "-I"]).arg(installed.include());
        command.arg("-o").arg(source.with_extension("o")).arg(source);
        let output = command.output().unwrap_or_else(|e| panic!("{} cannot be run: {e}", nvcc.display()));
        if output.status.success() { Ok(()) } else { Err(output) }
    };
    let count = installed.each_alone("cu", |header| !header.starts_with(CPU_ONLY), compile);
    assert!(count > 40, "{count} headers");
}
