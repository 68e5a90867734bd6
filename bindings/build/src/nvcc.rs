//! nvcc: where it is, what it knows, and its command line.

use crate::error::BuildError;
use crate::unit::Unit;
use crate::{Kernels, on_path};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Architectures that get machine code unless a build names others. The newest also gets PTX, which later GPUs compile when they
/// load it.
const DEFAULT_ARCHITECTURES: &[u32] = &[80, 90, 100];

/// The CUDA compiler of this machine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Nvcc {
    /// Path of the program.
    pub path: PathBuf,
    /// Release, as in `13.0`; `unknown` if nvcc does not tell.
    pub release: String,
}

impl Nvcc {
    /// Returns the nvcc that `$NVCC` names, or else the first of `$CUDA_HOME/bin`, `$CUDA_PATH/bin` and `$PATH`. Returns `None` if
    /// there is none.
    ///
    /// Cargo runs the build script again when one of the first three variables or the program changes.
    ///
    /// # Errors
    /// [`BuildError::NvccMissing`] if `$NVCC` names a program that does not exist.
    pub fn find() -> Result<Option<Self>, BuildError> {
        for variable in ["NVCC", "CUDA_HOME", "CUDA_PATH"] {
            println!("cargo::rerun-if-env-changed={variable}");
        }
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = if let Some(named) = set("NVCC") {
            let path = on_path(&named);
            if !path.is_file() {
                return Err(BuildError::NvccMissing(named));
            }
            path
        } else {
            let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(set).map(|home| home.join("bin/nvcc"));
            match homes.chain([on_path(Path::new("nvcc"))]).find(|path| path.is_file()) {
                Some(path) => path,
                None => return Ok(None),
            }
        };
        println!("cargo::rerun-if-changed={}", path.display());
        let told = output_of(&path, "--version");
        let release = told.split("release ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("unknown");
        Ok(Some(Self { release: release.to_owned(), path }))
    }

    /// Returns the architectures to compile for: those of `WARPBELL_CUDA_ARCHS`, or `wanted`, or of the default ones those that
    /// this nvcc knows.
    pub(crate) fn architectures(&self, wanted: &[u32]) -> Result<Vec<u32>, BuildError> {
        println!("cargo::rerun-if-env-changed=WARPBELL_CUDA_ARCHS");
        let listed = env::var("WARPBELL_CUDA_ARCHS").map_or(Ok(Vec::new()), |list| parsed(&list))?;
        let told = output_of(&self.path, "--list-gpu-code");
        let known: Vec<u32> = told.lines().filter_map(|line| line.trim().strip_prefix("sm_")?.parse().ok()).collect();
        let fails = |wanted: Vec<u32>| {
            let (nvcc, release) = (self.path.clone(), self.release.clone());
            Err(BuildError::Architectures { nvcc, release, wanted, known: known.clone() })
        };
        let named = if listed.is_empty() { wanted } else { &listed };
        if named.is_empty() {
            let usable: Vec<u32> = DEFAULT_ARCHITECTURES.iter().copied().filter(|a| known.contains(a)).collect();
            return if usable.is_empty() { fails(DEFAULT_ARCHITECTURES.to_vec()) } else { Ok(usable) };
        }
        let unknown: Vec<u32> = named.iter().copied().filter(|a| !known.contains(a)).collect();
        if unknown.is_empty() { Ok(named.to_vec()) } else { fails(unknown) }
    }

    /// Describes the compilation of a source to a fat binary.
    pub(crate) fn unit(
        &self,
        kernels: &Kernels,
        headers: &Path,
        architectures: &[u32],
        source: &Path,
        fat_binary: PathBuf,
    ) -> Result<Unit, BuildError> {
        let mut command = Command::new(&self.path);
        command.args(["-std=c++17", "-O3", "-lineinfo", "--fatbin", "-Xfatbin", "-compress-all"]);
        if kernels.warnings_as_errors {
            command.args(["-Werror", "all-warnings"]);
        }
        for folder in [headers].into_iter().chain(kernels.includes.iter().map(PathBuf::as_path)) {
            command.arg("-I").arg(folder);
        }
        if kernels.checked {
            command.arg("-DWB_CHECKED=1");
        }
        command.args(kernels.definitions.iter().map(|(name, value)| format!("-D{name}={value}")));
        for a in architectures {
            command.arg("-gencode").arg(format!("arch=compute_{a},code=sm_{a}"));
        }
        if let Some(newest) = architectures.iter().max() {
            command.arg("-gencode").arg(format!("arch=compute_{newest},code=compute_{newest}"));
        }
        command.args(&kernels.nvcc_flags);
        let remedy = "set NVCC to the path of another nvcc";
        Ok(Unit::new(command, self.path.clone(), remedy, source, fat_binary)?.that_forks())
    }
}

/// Returns the numbers of a list as in `80, 90`.
fn parsed(list: &str) -> Result<Vec<u32>, BuildError> {
    let words = list.split([',', ' ']).filter(|word| !word.is_empty());
    words.map(|word| word.parse().map_err(|_| BuildError::ArchitectureList(word.to_owned()))).collect()
}

/// Returns the standard output of a program with one argument; empty if it cannot be run.
fn output_of(program: &Path, argument: &str) -> String {
    Command::new(program)
        .arg(argument)
        .output()
        .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_architectures_has_commas_or_spaces() {
        assert_eq!(parsed("80, 90,100").unwrap(), [80, 90, 100]);
        assert_eq!(parsed(" ").unwrap(), []);
        let error = parsed("80 sm_90").unwrap_err().to_string();
        assert!(error.contains("`sm_90` is not a number") && error.contains("\"80 90\""), "{error}");
    }
}
