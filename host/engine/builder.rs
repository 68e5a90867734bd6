//! Settings of an engine: its images and its threads.

use super::image::SHIPPED;
use super::{Backend, CpuImage, Engine, EngineError, Image, cpu, gpu};
use crate::memory::Space;

/// Settings of an engine, from [`Engine::builder`].
///
/// An engine has the kernels that ship with the crate and those of all added images. Graph algorithms, host calls of a
/// world, and host access to arrays run shipped kernels on the engine of a program's own kernels.
#[derive(Clone, Debug)]
#[must_use]
pub struct EngineBuilder {
    images: Vec<Image>,
    is_shipped_wanted: bool,
    threads: usize,
    note: Option<String>,
}

impl EngineBuilder {
    pub(super) fn new() -> Self {
        Self { images: Vec::new(), is_shipped_wanted: true, threads: 0, note: None }
    }

    /// Adds the kernels of a program. No two kernels of an engine have the same name.
    pub fn image(mut self, image: Image) -> Self {
        self.images.push(image);
        self
    }

    /// Includes or excludes the kernels that ship with the crate. They are included by default, unless the crate was
    /// built without them (features `cpu-image` and `gpu-image`) and another image is added.
    pub fn shipped(mut self, include: bool) -> Self {
        self.is_shipped_wanted = include;
        self
    }

    /// Sets the number of threads of a CPU engine. The default, 0, stands for the number of processors
    /// ([`processors::checked`](crate::processors::checked)).
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Opens the first GPU if it works, otherwise CPU threads. [`Engine::note`] then returns the reason.
    ///
    /// # Errors
    /// As [`EngineBuilder::cpu`], if no GPU can be used.
    pub fn auto(self) -> Result<Engine, EngineError> {
        self.auto_on(0)
    }

    /// Opens the GPU at position `ordinal` of the driver's list if it works, otherwise CPU threads. [`Engine::note`]
    /// then returns the reason.
    ///
    /// # Errors
    /// As [`EngineBuilder::cpu`], if the GPU cannot be used.
    pub fn auto_on(self, ordinal: usize) -> Result<Engine, EngineError> {
        match self.open_gpu(ordinal) {
            Ok(engine) => Ok(engine),
            Err(e) => {
                let reason = e.reason();
                tracing::info!(gpu = ordinal, reason, "kernels run on CPU threads: the GPU cannot be used");
                Self { note: Some(reason), ..self }.cpu()
            }
        }
    }

    /// Opens CPU threads.
    ///
    /// # Errors
    /// - [`EngineError::NoCpuImage`] if the crate was built without its kernels and no image is added.
    /// - [`EngineError::MissingImage`] if an added image has no kernels for CPU threads.
    /// - [`EngineError::AbiMismatch`] if the shipped kernels were compiled against other headers.
    /// - [`EngineError::DuplicateKernel`] if two kernels have one name, [`EngineError::WarpWidth`] if the images have
    ///   warps of different widths.
    /// - [`EngineError::Processors`] if the environment gives an invalid number of processors.
    /// - [`EngineError::Memory`] if the flags and the error log cannot be allocated.
    pub fn cpu(self) -> Result<Engine, EngineError> {
        let mut images = Vec::new();
        match self.is_shipped_wanted.then(CpuImage::shipped) {
            Some(Ok(shipped)) => images.push((SHIPPED.to_owned(), shipped)),
            Some(Err(EngineError::NoCpuImage)) if !self.images.is_empty() => {}
            Some(Err(e)) => return Err(e),
            None => {}
        }
        for image in &self.images {
            images.push((image.name().to_owned(), image.for_cpu()?));
        }
        Engine::with(Space::cpu(), Backend::Cpu(cpu::CpuEngine::new(self.threads, images, self.note)?))
    }

    /// Opens the GPU at position `ordinal` of the driver's list, from 0.
    ///
    /// # Errors
    /// - [`EngineError::Cuda`] if there is no driver or no such GPU, if a driver call fails, or if the driver does not
    ///   load an image.
    /// - [`EngineError::NoDeviceImage`] if the crate was built without nvcc and no image is added.
    /// - [`EngineError::MissingImage`] if an added image has no kernels for GPUs, and [`EngineError::EmptyImage`] if the
    ///   driver finds none in a part of it.
    /// - [`EngineError::AbiMismatch`] if an image was compiled against other headers.
    /// - [`EngineError::DuplicateKernel`] if two kernels have one name.
    /// - [`EngineError::Memory`] if the flags and the error log cannot be allocated.
    pub fn gpu(self, ordinal: usize) -> Result<Engine, EngineError> {
        self.open_gpu(ordinal)
    }

    fn open_gpu(&self, ordinal: usize) -> Result<Engine, EngineError> {
        let (space, backend) = gpu::GpuEngine::open(ordinal, self.is_shipped_wanted, &self.images)?;
        Engine::with(space, Backend::Gpu(backend))
    }
}
