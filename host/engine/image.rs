//! Images: kernels that were compiled together. An engine runs the kernels of several.

use super::{CpuImage, EngineError, EngineKind};
use std::borrow::Cow;
use std::collections::HashMap;

/// Kernels of a program, compiled for CPU threads, for GPUs, or for both. Its name appears in messages.
///
/// # Examples
///
/// ```no_run
/// use std::ffi::c_void;
/// use warpbell::engine::{CpuImage, Engine, Image};
///
/// unsafe extern "C" {
///     // WB_IMAGE(my_image) in a C++ source of this program defines the symbol.
///     fn my_image() -> *const c_void;
/// }
/// // Made by nvcc from the same source; empty if there was no nvcc.
/// static FATBIN: &[u8] = &[];
///
/// // SAFETY: compiled against the headers of the crate that is linked.
/// let mine = Image::new("mine").cpu(unsafe { CpuImage::from_symbol(my_image) }?).gpu(FATBIN);
/// // The engine has the shipped kernels beside these.
/// let engine = Engine::builder().image(mine).auto()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Image {
    name: String,
    cpu: Option<CpuImage>,
    gpu: Vec<Cow<'static, [u8]>>,
}

/// Name of the image that ships with the crate, in messages.
pub(super) const SHIPPED: &str = "warpbell";

/// Kernel of every GPU image that returns the fingerprint and the flags of the image.
pub(super) const IDENTIFY: &str = "wb_abi_fingerprint";

impl Image {
    /// Creates an image without kernels. `name` is for messages.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), cpu: None, gpu: Vec::new() }
    }

    /// Sets the kernels for CPU threads.
    pub fn cpu(mut self, image: CpuImage) -> Self {
        self.cpu = Some(image);
        self
    }

    /// Adds kernels for GPUs: a fat binary, a cubin or PTX. An image may have several such parts; at least one ends with
    /// `WB_IMAGE`. Empty bytes add nothing: a build without nvcc has them.
    pub fn gpu(mut self, part: impl Into<Cow<'static, [u8]>>) -> Self {
        let part = part.into();
        if !part.is_empty() {
            self.gpu.push(part);
        }
        self
    }

    /// Returns the name that was given to [`Image::new`].
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn for_cpu(&self) -> Result<CpuImage, EngineError> {
        self.cpu.ok_or_else(|| EngineError::MissingImage { image: self.name.clone(), kind: EngineKind::Cpu })
    }

    pub(super) fn for_gpu(&self) -> Result<&[Cow<'static, [u8]>], EngineError> {
        match &self.gpu[..] {
            [] => Err(EngineError::MissingImage { image: self.name.clone(), kind: EngineKind::Gpu }),
            parts => Ok(parts),
        }
    }
}

/// Fails with [`EngineError::DuplicateKernel`] if two kernels have one name. `kernels` yields pairs of an image's name
/// and a kernel's name.
pub(super) fn check_names<'a>(kernels: impl IntoIterator<Item = (&'a str, String)>) -> Result<(), EngineError> {
    let mut images = HashMap::new();
    for (image, kernel) in kernels {
        if kernel == IDENTIFY {
            continue;
        }
        if let Some(first) = images.insert(kernel.clone(), image) {
            return Err(EngineError::DuplicateKernel { kernel, images: [first, image].map(str::to_owned) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_two_images_is_named_with_both() {
        let of = |image: &'static str, kernels: &[&str]| {
            kernels.iter().map(move |k| (image, (*k).to_owned())).collect::<Vec<_>>()
        };
        let apart = [of("a", &["x", IDENTIFY]), of("b", &["y", IDENTIFY])].concat();
        assert!(check_names(apart).is_ok());
        let e = check_names([of("a", &["x", "y"]), of("b", &["z", "y"])].concat()).unwrap_err();
        assert!(
            matches!(&e, EngineError::DuplicateKernel { kernel, images } if kernel == "y" && images == &["a", "b"]),
            "{e}"
        );
        let text = e.to_string();
        assert!(text.contains("`y`") && text.contains("`a`") && text.contains("`b`"), "{text}");
    }

    #[test]
    fn an_image_without_kernels_for_the_engine_is_named() {
        let image = Image::new("mine").gpu(&[][..]);
        assert!(image.for_cpu().unwrap_err().to_string().contains("`mine` has no kernels for cpu engines"));
        assert!(image.for_gpu().unwrap_err().to_string().contains("`mine` has no kernels for gpu engines"));
        assert_eq!(Image::new("mine").gpu(vec![1, 2]).gpu(&[3][..]).for_gpu().unwrap().len(), 2);
    }
}
