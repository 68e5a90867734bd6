//! Errors of a build.

use std::path::PathBuf;

/// An error that ends a build. The text of each has the cause and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No build script is running: cargo did not set this variable.
    #[error("cargo has not set {0}; call warpbell-build from a build script")]
    NoBuildScript(&'static str),
    /// The name of an image is no identifier of C.
    #[error("`{0}` cannot be the name of an image; use letters, digits and `_`, with no digit at the front")]
    Name(String),
    /// The name of the crate `warpbell` is no path of Rust.
    #[error(
        "`{0}` cannot be the name of the crate `warpbell`; use the key of the dependency, with `_` for `-`, or a path such as \
         `my_engine::warpbell`"
    )]
    CrateName(String),
    /// The image has no file.
    #[error("image `{0}` has no kernels; name their files with `Kernels::file`")]
    NoFiles(String),
    /// A file of the image does not exist.
    #[error("image `{image}`: {} is not a file; paths are relative to the folder of Cargo.toml", file.display())]
    NoFile {
        /// Name of the image.
        image: String,
        /// Path as the build script named it.
        file: PathBuf,
    },
    /// The folder of the device headers is not known.
    #[error(
        "the device headers were not found: cargo has not set DEP_WARPBELL_INCLUDE; add `warpbell` to [dependencies] of this \
         package, or name the folder with `Kernels::headers`"
    )]
    NoHeaders,
    /// The folder that should have the device headers does not have them.
    #[error("{} has no warpbell/kernel.h; name the folder that `warpbell include-dir` prints", .0.display())]
    NotHeaders(PathBuf),
    /// `NVCC` names a program that does not exist.
    #[error("NVCC is `{}`, which is not a program; set NVCC to the path of nvcc, or unset it", .0.display())]
    NvccMissing(PathBuf),
    /// The image requires a fat binary, and the machine has no nvcc.
    #[error(
        "image `{0}` requires a fat binary for GPUs, and there is no nvcc (looked at {LOOKED_AT}); install the CUDA toolkit, or \
         set NVCC to the path of nvcc"
    )]
    NvccRequired(String),
    /// `WARPBELL_CUDA_ARCHS` is not a list of numbers.
    #[error("WARPBELL_CUDA_ARCHS: `{0}` is not a number; write compute capabilities without a dot, as in \"80 90\"")]
    ArchitectureList(String),
    /// nvcc does not compile for any of the architectures, or not for one that was asked for.
    #[error(
        "{} {release} does not compile for {}; it knows {}; choose among them with WARPBELL_CUDA_ARCHS or \
         `Kernels::architectures`, or install another CUDA toolkit",
        nvcc.display(), names(wanted), names(known)
    )]
    Architectures {
        /// Path of nvcc.
        nvcc: PathBuf,
        /// Release of nvcc, as in `13.0`.
        release: String,
        /// Architectures that nvcc does not know, as in 90.
        wanted: Vec<u32>,
        /// Architectures that nvcc knows.
        known: Vec<u32>,
    },
    /// There is no C++ compiler.
    #[error("no C++ compiler: {0}; install a C++20 compiler (g++ 11, clang++ 14, or newer), or set CXX to one")]
    NoCompiler(String),
    /// A compiler could not be started.
    #[error("{} cannot be run: {source}; {remedy}\ncommand: {command}", compiler.display())]
    Start {
        /// Path of the compiler.
        compiler: PathBuf,
        /// Command line.
        command: String,
        /// Setting that names another compiler.
        remedy: &'static str,
        /// Reason of the operating system.
        source: std::io::Error,
    },
    /// A compiler found errors in a source.
    #[error(
        "{} failed to compile {} ({status})\ncommand: {command}\n{output}\ncorrect the source where the compiler points, \
         or run the command by itself to try",
        compiler.display(), file.display()
    )]
    Compile {
        /// Path of the compiler.
        compiler: PathBuf,
        /// Source that it compiled.
        file: PathBuf,
        /// Exit status.
        status: std::process::ExitStatus,
        /// Command line.
        command: String,
        /// Standard output and standard error.
        output: String,
    },
    /// The object for CPU threads could not be put into a static library.
    #[error(
        "the static library of image `{image}` cannot be made: {reason}; install binutils, or set AR to an archiver"
    )]
    Archive {
        /// Name of the image.
        image: String,
        /// Reason that the archiver gave.
        reason: String,
    },
    /// A file could not be read or written.
    #[error("{}: {source}; check that cargo's target folder can be written, and that the disk has space", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the operating system.
        source: std::io::Error,
    },
}

/// Places where nvcc is looked for, in this order.
pub(crate) const LOOKED_AT: &str = "$NVCC, $CUDA_HOME/bin, $CUDA_PATH/bin and $PATH";

fn names(architectures: &[u32]) -> String {
    if architectures.is_empty() {
        return "none".to_owned();
    }
    architectures.iter().map(|a| format!("sm_{a}")).collect::<Vec<_>>().join(", ")
}
