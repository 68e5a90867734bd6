//! The C++ compiler, which compiles kernels for CPU threads.

use crate::error::BuildError;
use crate::unit::Unit;
use crate::{Kernels, on_path};
use std::env;
use std::path::{Path, PathBuf};

/// Describes the compilation of a source for CPU threads.
pub(crate) fn unit(kernels: &Kernels, headers: &Path, source: &Path, object: PathBuf) -> Result<Unit, BuildError> {
    let is_profile = |name| env::var("PROFILE").as_deref() == Ok(name);
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .include(headers)
        .includes(&kernels.includes)
        .define("WB_WARP_WIDTH", "1")
        .define("WB_CHECKED", if kernels.checked || is_profile("debug") { "1" } else { "0" })
        .opt_level(if is_profile("release") { 3 } else { 1 })
        // `#pragma unroll` is a word of nvcc and clang; g++ says that it ignores it.
        .flag_if_supported("-Wno-unknown-pragmas")
        // Batches are loaded and used under the same condition, which g++ loses sight of at -O3.
        .flag_if_supported("-Wno-maybe-uninitialized")
        .warnings_into_errors(kernels.warnings_as_errors)
        .debug(false);
    // Lines, as in `[profile.dev]`: all of `-g` would take a quarter of the compiler's time.
    if env::var("DEBUG").is_ok_and(|d| !matches!(d.as_str(), "false" | "0" | "none")) {
        build.flag_if_supported("-g1");
    }
    for (name, value) in &kernels.definitions {
        build.define(name, value.as_str());
    }
    let compiler = build.try_get_compiler().map_err(|e| BuildError::NoCompiler(e.to_string()))?;
    let mut command = compiler.to_command();
    command.args(&kernels.cpp_flags).args(["-xc++", "-c"]);
    let program = on_path(compiler.path());
    println!("cargo::rerun-if-changed={}", program.display());
    let remedy = "install a C++20 compiler (g++ 11, clang++ 14, or newer), or set CXX to one";
    Ok(Unit::new(command, program, remedy, source, object)?.that_is_kept())
}

/// Makes the static library `name` of an object. A library that is `linked` becomes part of the package.
pub(crate) fn archive(object: &Path, name: &str, linked: bool) -> Result<(), BuildError> {
    let mut build = cc::Build::new();
    build.cpp(true).object(object).cargo_metadata(linked);
    build.try_compile(name).map_err(|e| BuildError::Archive { image: name.to_owned(), reason: e.to_string() })
}
