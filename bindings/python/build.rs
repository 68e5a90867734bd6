//! Copies what maturin takes from the build's folder (`include` of `pyproject.toml`): headers for kernels, and device functions for other
//! compilers, which `bindings/device/make` builds where there is nvcc.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};
use warpbell_build::Nvcc;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let from = variable("DEP_WARPBELL_INCLUDE");
    let from = Path::new(&from);
    println!("cargo::rerun-if-changed={}", from.display());
    let out = PathBuf::from(variable("OUT_DIR"));
    let to = out.join("include");
    // Files that are gone from the sources would stay.
    let _ = fs::remove_dir_all(&to);
    copy(from, &to).expect("OUT_DIR is writable");
    let device = out.join("device");
    let _ = fs::remove_dir_all(&device);
    fs::create_dir_all(&device).expect("OUT_DIR is writable");
    if let Err(text) = device_functions(&device) {
        eprintln!("error: {text}");
        std::process::exit(1);
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|e| panic!("cargo and the package `warpbell` set {name}: {e}"))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Builds the device functions for the generations of GPUs that the kernels are compiled for: none without nvcc.
fn device_functions(to: &Path) -> Result<(), String> {
    let archs = variable("DEP_WARPBELL_IMAGE_ARCHS").replace(' ', ",");
    let folder = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("../device");
    println!("cargo::rerun-if-changed={}", folder.display());
    // The description of the functions, which is there in any case: maturin takes the folder.
    fs::copy(folder.join("warpbell_device.h"), to.join("warpbell_device.h")).map_err(|e| e.to_string())?;
    if archs.is_empty() {
        return Ok(());
    }
    let Some(nvcc) = Nvcc::find().map_err(|e| e.to_string())? else { return Ok(()) };
    let path = nvcc.path.canonicalize().map_err(|e| format!("{}: {e}", nvcc.path.display()))?;
    let toolkit = path.ancestors().nth(2).unwrap_or(Path::new("/"));
    // maturin names the interpreter that the wheel is built with.
    let python = env::var_os("PYO3_PYTHON").unwrap_or_else(|| "python3".into());
    let mut make = Command::new(&python);
    make.arg(folder.join("make")).arg(to).args(["--archs", &archs, "--bitcode-if-clang", "--cuda"]).arg(toolkit);
    let done = make.output().map_err(|e| format!("{} cannot be run: {e}", python.display()))?;
    let printed = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    if !done.status.success() {
        return Err(format!("the device functions for other compilers were not built:\n{printed}"));
    }
    // The cubins again: half of the bytes.
    fs::remove_file(to.join("libwarpbell_device.fatbin")).map_err(|e| e.to_string())?;
    for line in printed.lines().filter(|line| line.starts_with("no bitcode")) {
        println!("cargo::warning={line}");
        // A file that does not exist: the next build tries again.
        println!("cargo::rerun-if-changed={}", to.join("bitcode").display());
    }
    Ok(())
}
