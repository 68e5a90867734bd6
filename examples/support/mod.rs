//! What the examples share: their kernels, and `--engine` and `--device`.

use std::error::Error;
use std::ffi::c_void;
use warpbell::engine::{CpuImage, Engine};

/// `examples/kernels`, compiled by nvcc; empty where there was none.
static FATBIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/examples.fatbin"));

#[link(name = "warpbell_examples", kind = "static")]
unsafe extern "C" {
    // `examples/kernels`, compiled for CPU threads: WB_IMAGE in image.cu.
    fn warpbell_examples_image() -> *const c_void;
}

/// The value of `--NAME VALUE` on the command line, or the default.
pub fn option(name: &str, default: &str) -> Result<String, Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut value = default.to_owned();
    while let Some(arg) = args.next() {
        match arg.strip_prefix("--") {
            Some("engine" | "device") => {
                let given = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
                if arg[2..] == *name {
                    value = given;
                }
            }
            _ => return Err(format!("`{arg}`: there are --engine auto|gpu|cpu and --device SPEC").into()),
        }
    }
    Ok(value)
}

/// The engine that `--engine` names, with the examples' kernels.
pub fn engine() -> Result<Engine, Box<dyn Error>> {
    // SAFETY: image.cu defines the symbol with WB_IMAGE, compiled by build.rs against this crate's headers.
    let image = unsafe { CpuImage::from_symbol(warpbell_examples_image) }?;
    let gpu = || {
        if FATBIN.is_empty() {
            return Err("built without nvcc".into());
        }
        Engine::gpu_with(0, FATBIN).map_err(Box::<dyn Error>::from)
    };
    let engine = match option("engine", "auto")?.as_str() {
        "gpu" => gpu()?,
        "cpu" => Engine::cpu_with(0, &image, None)?,
        "auto" => match gpu() {
            Ok(engine) => engine,
            Err(reason) => Engine::cpu_with(0, &image, Some(reason.to_string()))?,
        },
        other => return Err(format!("--engine {other}: there are auto, gpu and cpu").into()),
    };
    println!("engine {engine}");
    Ok(engine)
}
