//! Kernel arguments: plain values, passed by copy, and handles, whose memory the launch keeps alive.

use bytemuck::Pod;
use std::any::Any;
use std::sync::Arc;

/// Arguments of one launch, in the order of the kernel's parameters, and references to the owners of the memory they
/// point to.
#[derive(Default)]
pub struct Args {
    values: Vec<Box<[u64]>>,
    bytes: Vec<u32>,
    kept: Kept,
}

/// Owners of the memory that a kernel may use. They keep it alive until the kernel has ended, even if the host drops
/// its own handles.
pub(crate) type Kept = Vec<Arc<dyn Any + Send + Sync>>;

/// An argument of a kernel.
///
/// An argument that stands for memory pushes its address and a reference to its owner ([`Args::keep`]).
pub trait KernelArg {
    /// Appends the argument's bytes, as the kernel's parameter has them.
    fn push(&self, args: &mut Args);
}

impl Args {
    /// Returns an empty list of arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one argument.
    pub fn with(mut self, arg: impl KernelArg) -> Self {
        arg.push(&mut self);
        self
    }

    /// Appends the bytes of a plain value.
    pub fn push_value<T: Pod>(&mut self, value: T) {
        self.push_bytes(bytemuck::bytes_of(&value));
    }

    /// Appends a value as the bytes of the kernel's parameter. For structures that only the kernel's compiler knows.
    pub fn push_bytes(&mut self, value: &[u8]) {
        // Stored in 8-byte words, so that every parameter has the alignment that the kernel expects. That is 16 at
        // most, which a large allocation of Box<[u64]> also has on the supported systems.
        let mut words = vec![0u64; value.len().div_ceil(8).max(1)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..value.len()].copy_from_slice(value);
        self.values.push(words.into_boxed_slice());
        self.bytes.push(value.len() as u32);
    }

    /// Keeps `owner` alive until the kernel has ended. `owner` owns memory whose address is among the values.
    pub fn keep(&mut self, owner: Arc<dyn Any + Send + Sync>) {
        self.kept.push(owner);
    }

    /// Returns the sizes of the arguments in bytes.
    pub(crate) fn sizes(&self) -> &[u32] {
        &self.bytes
    }

    /// Returns the addresses of the values, in the form that a launch takes. They are valid while `self` lives.
    pub(super) fn pointers(&mut self) -> Vec<*mut core::ffi::c_void> {
        self.values.iter_mut().map(|v| v.as_mut_ptr().cast()).collect()
    }

    /// Takes the owners out. The run keeps them, not the threads that the kernel runs on.
    pub(crate) fn take_kept(&mut self) -> Kept {
        std::mem::take(&mut self.kept)
    }
}

impl std::fmt::Debug for Args {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Args({:?} bytes, {} kept)", self.bytes, self.kept.len())
    }
}

impl<A: KernelArg + ?Sized> KernelArg for &A {
    fn push(&self, args: &mut Args) {
        (**self).push(args);
    }
}

/// Implements [`KernelArg`] for plain values, which are passed by copy.
macro_rules! plain {
    ($($t:ty),*) => {$(
        impl $crate::engine::KernelArg for $t {
            fn push(&self, args: &mut $crate::engine::Args) {
                args.push_value(*self);
            }
        }
    )*};
}
pub(crate) use plain;
plain!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

/// Passes the address of the region's first byte.
impl KernelArg for crate::memory::Region {
    fn push(&self, args: &mut Args) {
        args.push_value(self.address());
        args.keep(self.owner());
    }
}

/// Builds [`Args`]: `args!(count, &region, &array)`.
///
/// # Examples
///
/// ```
/// use warpbell::args;
/// use warpbell::engine::Engine;
/// use warpbell::memory::Place;
///
/// let engine = Engine::cpu()?;
/// let out = engine.allocate(Place::Device, 64)?;
/// // By reference: memory, arrays, caches, worlds. By value: numbers, in the types of the kernel's parameters.
/// let args = args!(&out, 8u64, 0u64, 1u64);
/// // SAFETY: these are the types of the parameters of `wb_iota`.
/// unsafe { engine.launch("wb_iota", engine.grid(32, 1), args) }?.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! args {
    ($($a:expr),* $(,)?) => { $crate::engine::Args::new()$(.with($a))* };
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_passed_is_kept() {
        let region = crate::memory::Space::cpu().allocate(crate::memory::Place::Host, 8).unwrap();
        let mut a = args!(&region, 1u32, &region);
        assert_eq!(a.sizes(), [8, 4, 8]);
        assert_eq!(a.take_kept().len(), 2);
        assert!(a.take_kept().is_empty());
    }

    #[test]
    fn values_keep_their_bytes_and_sizes() {
        let mut a = args!(7u32, -1i64, 1.5f32);
        assert_eq!(a.sizes(), [4, 8, 4]);
        let p = a.pointers();
        // SAFETY: the pointers are to live values of these sizes.
        unsafe {
            assert_eq!(*p[0].cast::<u32>(), 7);
            assert_eq!(*p[1].cast::<i64>(), -1);
            assert_eq!(*p[2].cast::<f32>(), 1.5);
        }
    }
}
