//! Common parts of the examples: their kernels, options, and the engine that `--engine` names.

use std::collections::BTreeMap;
use std::error::Error;
use std::str::FromStr;
use warpbell::engine::{Engine, Image};

/// Any error, from any thread.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Image of `examples/kernels`, compiled by build.rs with warpbell-build.
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/warpbell_examples_image.rs"));
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
    let (threads, gpus) = (kernels::cpu_image()?, kernels::FAT_BINARY.unwrap_or_default());
    let builder = Engine::builder().image(Image::new("examples").cpu(threads).gpu(gpus));
    match options.get("engine", "auto".to_owned())?.as_str() {
        "gpu" => Ok(builder.gpu(gpu)?),
        "cpu" => Ok(builder.cpu()?),
        "auto" => Ok(builder.auto_on(gpu)?),
        other => Err(format!("--engine {other}: there are auto, gpu and cpu").into()),
    }
}
