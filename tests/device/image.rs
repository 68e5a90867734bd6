//! Compiles kernels of this folder for CPU threads with the C++ compiler, and loads them.

use crate::compiled::{Compilation, compiler};
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use warpbell::engine::CpuImage;

/// Compiles a source of this folder to a library, with warps of `width` lanes.
pub fn compile(source: &str, width: u32, options: &[&str], library: &Path) {
    let root = crate::tree::root();
    let width_is = format!("-DWB_WARP_WIDTH={width}");
    // `#pragma unroll` is known to nvcc and clang; g++ warns that it ignores the pragma.
    let own = ["-std=c++20", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"];
    let all = [&own, options, &[&width_is, "-xc++"]].concat();
    let (headers, source) = (root.join("kernels/include"), root.join("tests/device").join(source));
    let compilation = Compilation { compiler: &compiler(), options: &all, headers: &headers, source: &source };
    let made = compilation.run(library).unwrap_or_else(|output| {
        panic!("{}, width {width}:\n{}", source.display(), String::from_utf8_lossy(&output.stderr))
    });
    // A library of its own, with its own static data, for each test that loads one.
    if made != library {
        std::fs::copy(&made, library).expect("the library's folder can be written");
    }
}

/// Returns the path that an environment variable names and the file's content: an image for GPUs, compiled by nvcc from
/// a source of this folder.
pub fn gpu_image(variable: &str, source: &str, defines: &[&str]) -> (PathBuf, Vec<u8>) {
    let make = nvcc_command(source, defines);
    let named = std::env::var_os(variable);
    let path = PathBuf::from(named.unwrap_or_else(|| panic!("{variable} names no image; make one with `{make}`")));
    let image =
        std::fs::read(&path).unwrap_or_else(|e| panic!("{variable}: {}: {e}; make it with `{make}`", path.display()));
    (path, image)
}

/// Returns the command that makes such an image for this machine's GPUs, to be run in the tree's root.
pub fn nvcc_command(source: &str, defines: &[&str]) -> String {
    let defines: String = defines.iter().map(|d| format!("{d} ")).collect();
    format!(
        "nvcc -std=c++17 -O3 --fatbin -arch=native {defines}-I kernels/include -o {} tests/device/{source}",
        source.replace(".cu", ".fatbin")
    )
}

/// Loads such a library; `symbol` is the name in its `WB_IMAGE`.
pub fn load(library: &Path, symbol: &CStr) -> CpuImage {
    let found = find(library, symbol);
    // SAFETY: WB_IMAGE in the library's source defines it as a function of this type.
    let found = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_void>(found) };
    // SAFETY: WB_IMAGE's function, compiled against this crate's headers.
    unsafe { CpuImage::from_symbol(found) }.expect("the same headers")
}

/// Returns the address of a symbol in such a library.
pub fn find(library: &Path, symbol: &CStr) -> *mut c_void {
    let name = CString::new(library.as_os_str().as_encoded_bytes()).expect("a path");
    // SAFETY: loads a library that was just compiled; it is never closed, so its contents live as long as the program.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{}", library.display());
    // SAFETY: looks up a name in a loaded library.
    let found = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
    assert!(!found.is_null(), "no {symbol:?} in {}", library.display());
    found
}
