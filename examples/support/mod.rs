//! Common parts of the examples: their kernels, options, and the engine that `--engine` names.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::c_void;
use std::str::FromStr;
use warpbell::engine::{CpuImage, Engine, Image};

/// Any error, from any thread.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Fat binary of `examples/kernels`, compiled by nvcc; empty without nvcc.
static FATBIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/examples.fatbin"));

#[link(name = "warpbell_examples", kind = "static")]
unsafe extern "C" {
    // Image of `examples/kernels`, compiled for CPU threads: WB_IMAGE in image.cu.
    fn warpbell_examples_image() -> *const c_void;
}

/// The options of the command line, each `--NAME VALUE`.
pub struct Options(BTreeMap<String, String>);

impl Options {
    /// Reads the command line. `usage` names every option, as in `--engine auto|gpu|cpu --pes N`.
    ///
    /// # Errors
    ///
    /// Fails with a text for an option that `usage` does not name, or one without a value.
    pub fn parse(usage: &str) -> Result<Self, Failure> {
        let known: Vec<&str> = usage.split_whitespace().filter(|word| word.starts_with("--")).collect();
        let mut given = BTreeMap::new();
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            if !known.contains(&arg.as_str()) {
                return Err(format!("`{arg}`: there are {usage}").into());
            }
            let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
            given.insert(arg.trim_start_matches('-').to_owned(), value);
        }
        Ok(Self(given))
    }

    /// Returns the value of `--NAME`, or the default.
    ///
    /// # Errors
    ///
    /// Fails with a text that names option and value if the value is not valid.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> Result<T, Failure> {
        match self.0.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("--{name} {text}: this is no value for it").into()),
        }
    }
}

/// Returns the engine that `--engine` names, with the examples' kernels beside the shipped ones, on GPU `gpu` if it is a GPU.
///
/// # Errors
///
/// Fails with an `EngineError` if the engine cannot be created, or with a text for a value that is none of `auto`,
/// `gpu` and `cpu`.
pub fn engine(options: &Options, gpu: usize) -> Result<Engine, Failure> {
    // SAFETY: image.cu defines the symbol with WB_IMAGE, compiled by build.rs against this crate's headers.
    let for_threads = unsafe { CpuImage::from_symbol(warpbell_examples_image) }?;
    let builder = Engine::builder().image(Image::new("examples").cpu(for_threads).gpu(FATBIN));
    match options.get("engine", "auto".to_owned())?.as_str() {
        "gpu" => Ok(builder.gpu(gpu)?),
        "cpu" => Ok(builder.cpu()?),
        "auto" => Ok(builder.auto_on(gpu)?),
        other => Err(format!("--engine {other}: there are auto, gpu and cpu").into()),
    }
}
