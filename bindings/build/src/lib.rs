//! Compiles CUDA kernels that use warpbell's device library, in the build script of a package: with the C++ compiler for CPU threads,
//! and with nvcc, if there is one, into a fat binary for GPUs.
//!
//! In `Cargo.toml`:
//!
//! ```toml
//! [dependencies]
//! # Without the features `cpu-image` and `gpu-image`, warpbell compiles none of its own kernels.
//! warpbell = { version = "0.1", default-features = false, features = ["storage", "soft"] }
//!
//! [build-dependencies]
//! warpbell-build = "0.1"
//! ```
//!
//! In `build.rs`:
//!
//! ```no_run
//! warpbell_build::Kernels::new().file("kernels/sum.cu").compile("my_image");
//! ```
//!
//! In the program, a module of the kernels:
//!
//! ```ignore
//! mod kernels {
//!     include!(concat!(env!("OUT_DIR"), "/my_image.rs"));
//! }
//!
//! // `FAT_BINARY` has type `Option<&[u8]>`; `cpu_image` returns a `CpuImage`.
//! let mine = Image::new("mine").cpu(kernels::cpu_image()?).gpu(kernels::FAT_BINARY.unwrap_or_default());
//! let engine = Engine::builder().image(mine).auto()?;
//! ```
//!
//! The C++ compiler gets C++20, `-O3` in a release build and `-O1` otherwise, and lines for debuggers as the profile says. nvcc gets
//! C++17 and `-O3`. A file is compiled again only if its command, its compiler, or a file that it includes has changed. Objects for CPU
//! threads are kept in `target/warpbell-build`: builds with other features or profiles find those of equal text and options there. Files
//! are compiled side by side as far as cargo's jobserver allows.
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `NVCC`, `CUDA_HOME`, `CUDA_PATH`, `PATH` | places of nvcc, in this order |
//! | `WARPBELL_CUDA_ARCHS` | compute capabilities to compile for, as in `80 90`; overrides [`Kernels::architectures`] |
//! | `CXX`, `CXXFLAGS`, `AR` | C++ compiler, its options, and the archiver, as for the crate `cc` |
//! | `DOCS_RS` | set: nothing is compiled, so that documentation needs neither compiler |
//! | `DEP_WARPBELL_INCLUDE` | folder of the device headers; cargo sets it for packages that depend on `warpbell` |

mod cpu;
mod error;
mod image;
mod kept;
mod nvcc;
mod pool;
mod unit;

pub use error::BuildError;
pub use image::Image;
pub use nvcc::Nvcc;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Choice between images with and without a fat binary for GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FatBinary {
    /// Compiles one if there is nvcc; otherwise a warning of cargo says that there is none.
    #[default]
    IfNvcc,
    /// Compiles one; the build fails without nvcc.
    Required,
    /// Compiles none.
    Never,
}

/// The kernels of one image, and how they are compiled.
///
/// # Examples
///
/// ```no_run
/// use warpbell_build::{FatBinary, Kernels};
///
/// Kernels::new()
///     .files(["kernels/sum.cu", "kernels/ring.cu"])
///     .include("kernels/common")
///     .define("TILE", "128")
///     .architectures([90, 100])
///     .cache_kernels(true)
///     .fat_binary(FatBinary::Required)
///     .compile("my_image");
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is compiled without a call of `compile`"]
pub struct Kernels {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) headers: Option<PathBuf>,
    pub(crate) crate_name: String,
    pub(crate) includes: Vec<PathBuf>,
    pub(crate) definitions: Vec<(String, String)>,
    pub(crate) cpp_flags: Vec<OsString>,
    pub(crate) nvcc_flags: Vec<OsString>,
    pub(crate) architectures: Vec<u32>,
    pub(crate) fat_binary: FatBinary,
    pub(crate) separate: bool,
    pub(crate) for_cpu: bool,
    pub(crate) linked: bool,
    pub(crate) cache_kernels: bool,
    pub(crate) image_in_files: bool,
    pub(crate) checked: bool,
    pub(crate) warnings_as_errors: bool,
}

impl Default for Kernels {
    fn default() -> Self {
        Self::new()
    }
}

impl Kernels {
    /// Starts an image without kernels.
    pub fn new() -> Self {
        Self {
            files: Vec::new(),
            headers: None,
            crate_name: "warpbell".to_owned(),
            includes: Vec::new(),
            definitions: Vec::new(),
            cpp_flags: Vec::new(),
            nvcc_flags: Vec::new(),
            architectures: Vec::new(),
            fat_binary: FatBinary::IfNvcc,
            separate: false,
            for_cpu: true,
            linked: true,
            cache_kernels: false,
            image_in_files: false,
            checked: false,
            warnings_as_errors: false,
        }
    }

    /// Adds a file with kernels. The path is relative to the folder of `Cargo.toml`.
    ///
    /// All files of an image are one translation unit, in the order in which they were added. Each includes the headers that it uses.
    /// None has `WB_IMAGE`, unless [`image_in_files`](Self::image_in_files) is set.
    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(path.into());
        self
    }

    /// Adds several files, as [`file`](Self::file) does.
    pub fn files(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.files.extend(paths.into_iter().map(Into::into));
        self
    }

    /// Adds the kernels that the host's `Cache` and `Array` launch when they read, write, flush or reset
    /// (`<warpbell/cache_kernels.cuh>`). By default an image does not have them.
    pub fn cache_kernels(mut self, with: bool) -> Self {
        self.cache_kernels = with;
        self
    }

    /// Adds a folder where `#include` looks, behind that of the device headers.
    pub fn include(mut self, folder: impl Into<PathBuf>) -> Self {
        self.includes.push(folder.into());
        self
    }

    /// Names the folder of the device headers. By default it is that of the package `warpbell`, on which this package depends.
    pub fn headers(mut self, folder: impl Into<PathBuf>) -> Self {
        self.headers = Some(folder.into());
        self
    }

    /// Sets the name by which this package calls `warpbell`, for the generated module. It differs from `warpbell` if the dependency is
    /// renamed, as in `wb = { package = "warpbell", version = "0.1" }`, or is reached through another crate, as in
    /// `my_engine::warpbell`.
    pub fn crate_name(mut self, name: impl Into<String>) -> Self {
        self.crate_name = name.into();
        self
    }

    /// Defines a macro for both compilers.
    pub fn define(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.definitions.push((name.into(), value.into()));
        self
    }

    /// Adds an option for the C++ compiler.
    pub fn cpp_flag(mut self, flag: impl Into<OsString>) -> Self {
        self.cpp_flags.push(flag.into());
        self
    }

    /// Adds an option for nvcc.
    pub fn nvcc_flag(mut self, flag: impl Into<OsString>) -> Self {
        self.nvcc_flags.push(flag.into());
        self
    }

    /// Sets the compute capabilities of the fat binary, as in 90 for 9.0. Each gets machine code; the newest also gets PTX, which later
    /// GPUs compile when they load it. By default they are those of 80, 90 and 100 that nvcc knows. The variable `WARPBELL_CUDA_ARCHS`
    /// overrides them.
    pub fn architectures(mut self, capabilities: impl IntoIterator<Item = u32>) -> Self {
        self.architectures = capabilities.into_iter().collect();
        self
    }

    /// Chooses between an image with a fat binary and one without.
    pub fn fat_binary(mut self, choice: FatBinary) -> Self {
        self.fat_binary = choice;
        self
    }

    /// Makes a fat binary of each file instead of one of all, so that nvcc compiles them side by side. [`Image::fat_binaries`] lists
    /// them, and the module has `FAT_BINARIES` instead of `FAT_BINARY`.
    pub fn separate_fat_binaries(mut self, separate: bool) -> Self {
        self.separate = separate;
        self
    }

    /// Chooses whether kernels are compiled for CPU threads. By default they are.
    pub fn cpu(mut self, with: bool) -> Self {
        self.for_cpu = with;
        self
    }

    /// Chooses whether the kernels for CPU threads become part of this package's library, or of its programs if it has no library. By
    /// default they do. Otherwise each program that includes the generated module links them, such as tests and examples.
    pub fn link(mut self, linked: bool) -> Self {
        self.linked = linked;
        self
    }

    /// Leaves the definition of the image to the files: one of them has `WB_IMAGE(name)`, with the name that `compile` gets.
    pub fn image_in_files(mut self, in_files: bool) -> Self {
        self.image_in_files = in_files;
        self
    }

    /// Sets whether a world's calls in kernels check their addresses (`WB_CHECKED`). By default they do so on CPU threads in a debug
    /// build.
    pub fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// Sets whether a warning of a compiler ends the build. By default cargo shows warnings.
    pub fn warnings_as_errors(mut self, errors: bool) -> Self {
        self.warnings_as_errors = errors;
        self
    }

    /// Compiles the image `name`, and writes its module to `OUT_DIR`, in a file of that name with the extension `rs`.
    ///
    /// An error is printed to standard error and ends the build script with status 1. [`try_compile`](Self::try_compile) returns it.
    pub fn compile(self, name: &str) -> Image {
        self.try_compile(name).unwrap_or_else(|error| {
            eprintln!("error: {error}");
            std::process::exit(1)
        })
    }

    /// Compiles the image `name`, as [`compile`](Self::compile) does.
    ///
    /// # Errors
    /// A [`BuildError`] that names the compiler, its command and its output, or the setting that is wrong.
    pub fn try_compile(self, name: &str) -> Result<Image, BuildError> {
        let mut images = try_compile_all([(name, self)])?;
        Ok(images.remove(0))
    }
}

/// Compiles several images side by side: each a name and its kernels. Returns them in the same order.
///
/// # Examples
///
/// ```no_run
/// use warpbell_build::{Kernels, try_compile_all};
///
/// # fn main() -> Result<(), warpbell_build::BuildError> {
/// let sums = Kernels::new().file("kernels/sum.cu");
/// let rings = Kernels::new().file("kernels/ring.cu");
/// let images = try_compile_all([("sums", sums), ("rings", rings)])?;
/// println!("cargo::rustc-env=SUMS={}", images[0].module.display());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`Kernels::try_compile`].
pub fn try_compile_all<'a>(images: impl IntoIterator<Item = (&'a str, Kernels)>) -> Result<Vec<Image>, BuildError> {
    let variable = |name| env::var_os(name).ok_or(BuildError::NoBuildScript(name));
    let out = PathBuf::from(variable("OUT_DIR")?);
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let only_docs = env::var_os("DOCS_RS").is_some();
    let mut planned = Vec::new();
    for (name, kernels) in images {
        planned.push(image::Plan::new(name, kernels, &root, &out, only_docs)?);
    }
    let units = planned.iter_mut().flat_map(image::Plan::stale_units).collect();
    for warning in pool::compile(units)? {
        println!("cargo::warning={warning}");
    }
    planned.into_iter().map(image::Plan::finish).collect()
}

/// Returns the file that a program's name stands for.
fn on_path(program: &Path) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|d| d.join(program)).find(|p| p.is_file()).unwrap_or_else(|| program.to_owned())
}
