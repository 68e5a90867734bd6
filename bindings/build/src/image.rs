//! One image: the sources that are generated for it, its compilations, and the Rust module that hands it over.

use crate::error::{BuildError, LOOKED_AT};
use crate::unit::Unit;
use crate::{FatBinary, Kernels, Nvcc, cpu};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// An image that was compiled.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Image {
    /// Module to `include!`: `FAT_BINARY` (or `FAT_BINARIES`) and `cpu_image()`.
    pub module: PathBuf,
    /// Fat binaries; none without nvcc.
    pub fat_binaries: Vec<PathBuf>,
    /// Compute capabilities with machine code in the fat binaries, as in 90.
    pub architectures: Vec<u32>,
    /// Compiler of the fat binaries.
    pub nvcc: Option<Nvcc>,
}

/// An image before and during its compilation.
pub(crate) struct Plan {
    name: String,
    kernels: Kernels,
    out: PathBuf,
    for_cpu: Option<Unit>,
    for_gpu: Vec<Unit>,
    image: Image,
}

impl Plan {
    /// Checks the settings, finds the compilers, and writes the sources.
    pub(crate) fn new(
        name: &str,
        kernels: Kernels,
        root: &Path,
        out: &Path,
        only_docs: bool,
    ) -> Result<Self, BuildError> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_identifier =
            |t: &str| !t.is_empty() && !t.starts_with(|c: char| c.is_ascii_digit()) && t.chars().all(is_word);
        if !is_identifier(name) {
            return Err(BuildError::Name(name.to_owned()));
        }
        if !kernels.crate_name.split("::").all(is_identifier) {
            return Err(BuildError::CrateName(kernels.crate_name.clone()));
        }
        if kernels.files.is_empty() {
            return Err(BuildError::NoFiles(name.to_owned()));
        }
        for file in &kernels.files {
            println!("cargo::rerun-if-changed={}", file.display());
            if !root.join(file).is_file() {
                return Err(BuildError::NoFile { image: name.to_owned(), file: file.clone() });
            }
        }
        let module = out.join(name).with_extension("rs");
        let image = Image { module, fat_binaries: Vec::new(), architectures: Vec::new(), nvcc: None };
        let mut plan =
            Self { name: name.to_owned(), kernels, out: out.to_owned(), for_cpu: None, for_gpu: Vec::new(), image };
        if !only_docs {
            plan.add_units(root)?;
        }
        Ok(plan)
    }

    fn add_units(&mut self, root: &Path) -> Result<(), BuildError> {
        let headers = headers(&self.kernels)?;
        let files: Vec<PathBuf> = self.kernels.files.iter().map(|file| root.join(file)).collect();
        let whole = self.write_source("cu", &files)?;
        if self.kernels.for_cpu {
            let object = self.out.join(&self.name).with_extension("o");
            self.for_cpu = Some(cpu::unit(&self.kernels, &headers, &whole, object)?);
        }
        let Some(nvcc) = self.nvcc()? else { return Ok(()) };
        let architectures = nvcc.architectures(&self.kernels.architectures)?;
        let mut sources = vec![(whole, self.out.join(&self.name).with_extension("fatbin"))];
        if self.kernels.separate {
            let folder = self.out.join(&self.name);
            let output = |file: &Path| {
                let inside = file.strip_prefix(root).unwrap_or(file).with_extension("fatbin");
                folder.join(inside.to_string_lossy().trim_start_matches('/').replace('/', "-"))
            };
            sources = longest_first(files).into_iter().map(|file| (file.clone(), output(&file))).collect();
            if self.kernels.cache_kernels || !self.kernels.image_in_files {
                sources.push((self.write_source("image.cu", &[])?, folder.join("image.fatbin")));
            }
        }
        for (source, fat_binary) in sources {
            self.image.fat_binaries.push(fat_binary.clone());
            self.for_gpu.push(nvcc.unit(&self.kernels, &headers, &architectures, &source, fat_binary)?);
        }
        self.image.architectures = architectures;
        self.image.nvcc = Some(nvcc);
        Ok(())
    }

    /// Returns the compiler for GPUs, if the image is to have a fat binary.
    fn nvcc(&self) -> Result<Option<Nvcc>, BuildError> {
        let choice = self.kernels.fat_binary;
        if choice == FatBinary::Never {
            return Ok(None);
        }
        let nvcc = Nvcc::find()?;
        if nvcc.is_none() && choice == FatBinary::Required {
            return Err(BuildError::NvccRequired(self.name.clone()));
        }
        if nvcc.is_none() {
            println!(
                "cargo::warning=image `{}` has no fat binary, so its kernels run on CPU threads only: no nvcc (looked at {LOOKED_AT}); \
                 install the CUDA toolkit, or set NVCC to the path of nvcc",
                self.name
            );
        }
        Ok(nvcc)
    }

    /// Writes a source that includes these files, and has what the settings add to them.
    fn write_source(&self, extension: &str, files: &[PathBuf]) -> Result<PathBuf, BuildError> {
        let mut text = "// Generated by warpbell-build.\n#include <warpbell/kernel.h>\n".to_owned();
        if self.kernels.cache_kernels {
            text += "#include <warpbell/cache_kernels.cuh>\n";
        }
        for file in files {
            text += &format!("#include \"{}\"\n", file.display());
        }
        if !self.kernels.image_in_files {
            text += &format!("WB_IMAGE({})\n", self.name);
        }
        let source = self.out.join(&self.name).with_extension(extension);
        // One that has not changed is not compiled again.
        if fs::read_to_string(&source).ok().as_deref() != Some(&text) {
            write(&source, &text)?;
        }
        Ok(source)
    }

    /// Returns the compilations that have to run, the longest first.
    pub(crate) fn stale_units(&mut self) -> impl Iterator<Item = &mut Unit> {
        self.for_cpu.iter_mut().chain(&mut self.for_gpu).filter(|unit| unit.is_stale())
    }

    /// Makes the static library and the module, and tells cargo which files the image depends on.
    pub(crate) fn finish(self) -> Result<Image, BuildError> {
        let mut read = BTreeSet::new();
        for unit in self.for_cpu.iter().chain(&self.for_gpu) {
            read.extend(unit.dependencies());
        }
        // Generated files are younger than the build that generates them.
        for file in read.iter().filter(|file| !file.starts_with(&self.out)) {
            println!("cargo::rerun-if-changed={}", file.display());
        }
        if let Some(unit) = &self.for_cpu {
            cpu::archive(unit.output(), &self.name, self.kernels.linked)?;
            println!("cargo::rustc-link-search=native={}", self.out.display());
        }
        write(&self.image.module, &self.module_text())?;
        Ok(self.image)
    }

    fn module_text(&self) -> String {
        let include = |binary: &PathBuf| {
            let inside = binary.strip_prefix(&self.out).unwrap_or(binary);
            format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{}\"))", inside.display())
        };
        let included: Vec<String> = self.image.fat_binaries.iter().map(include).collect();
        let binaries = if self.kernels.separate {
            format!(
                "/// Fat binaries with kernels for GPUs; none: this package was built without nvcc.\n#[allow(dead_code)]\n\
                 pub static FAT_BINARIES: &[&[u8]] = &[{}];\n",
                included.join(", ")
            )
        } else {
            let binary = included.first().map_or("None".to_owned(), |bytes| format!("Some({bytes})"));
            format!(
                "/// Fat binary with kernels for GPUs; `None`: this package was built without nvcc.\n#[allow(dead_code)]\n\
                 pub static FAT_BINARY: Option<&[u8]> = {binary};\n"
            )
        };
        let (name, of) = (&self.name, &self.kernels.crate_name);
        let link = if self.kernels.linked {
            String::new()
        } else {
            format!("    #[link(name = \"{name}\", kind = \"static\")]\n")
        };
        let body = match self.for_cpu {
            Some(_) => format!(
                "{link}    unsafe extern \"C\" {{\n        fn {name}() -> *const ::core::ffi::c_void;\n    }}\n    \
                 // SAFETY: WB_IMAGE defines the function, compiled against the headers of this warpbell.\n    \
                 unsafe {{ ::{of}::engine::CpuImage::from_symbol({name}) }}\n"
            ),
            None => format!("    Err(::{of}::engine::EngineError::NoCpuImage)\n"),
        };
        format!(
            "// Generated by warpbell-build.\n\n{binaries}\n/// Returns the kernels for CPU threads.\n///\n/// # Errors\n/// \
             `EngineError::NoCpuImage` if they were not compiled, `EngineError::AbiMismatch` if they were compiled against other\n/// \
             headers.\n#[allow(dead_code)]\n\
             pub fn cpu_image() -> Result<::{of}::engine::CpuImage, ::{of}::engine::EngineError> {{\n{body}}}\n"
        )
    }
}

/// Returns the folder of the device headers.
fn headers(kernels: &Kernels) -> Result<PathBuf, BuildError> {
    const VARIABLE: &str = "DEP_WARPBELL_INCLUDE";
    let named = kernels.headers.clone().or_else(|| env::var_os(VARIABLE).map(PathBuf::from));
    let folder = named.ok_or(BuildError::NoHeaders)?;
    if folder.join("warpbell/kernel.h").is_file() { Ok(folder) } else { Err(BuildError::NotHeaders(folder)) }
}

/// Sorts files by their length: the last to be compiled is a short one.
fn longest_first(mut files: Vec<PathBuf>) -> Vec<PathBuf> {
    files.sort_by_key(|f| (std::cmp::Reverse(fs::metadata(f).map_or(0, |m| m.len())), f.clone()));
    files
}

fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    fs::write(path, text).map_err(|source| BuildError::Io { path: path.to_owned(), source })
}
