//! Passes on what the build of the package `warpbell` has found out, as its own build script does for the program.

use std::env;

fn main() {
    for name in ["NVCC", "COMMIT", "TARGET", "IMAGE_ARCHS"] {
        let value = env::var(format!("DEP_WARPBELL_{name}")).unwrap_or_default();
        println!("cargo::rustc-env=WARPBELL_{name}={value}");
    }
}
