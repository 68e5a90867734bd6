//! Kernel arguments: plain values by copy, and handles whose memory the launch keeps.

use bytemuck::Pod;
use std::any::Any;
use std::sync::Arc;

/// The arguments of one launch, in the kernel's order, and shares of what they point to.
#[derive(Default)]
pub struct Args {
    values: Vec<Box<[u64]>>,
    bytes: Vec<u32>,
    kept: Kept,
}

/// Shares of what a kernel may use, so that it stays until the kernel has ended, whatever the host drops or forgets.
pub(super) type Kept = Vec<Arc<dyn Any + Send + Sync>>;

/// An argument of a kernel.
///
/// One that stands for memory pushes its address, and a share of its owner ([`Args::keep`]).
pub trait KernelArg {
    /// Adds the bytes as the kernel's parameter has them.
    fn push(&self, args: &mut Args);
}

impl Args {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one argument.
    pub fn with(mut self, arg: impl KernelArg) -> Self {
        arg.push(&mut self);
        self
    }

    /// Adds the bytes of a plain value.
    pub fn push_value<T: Pod>(&mut self, value: T) {
        self.push_bytes(bytemuck::bytes_of(&value));
    }

    /// Adds a value as the bytes that the kernel's parameter has: of a struct that only the kernel's compiler knows.
    pub fn push_bytes(&mut self, value: &[u8]) {
        // Kept in 8-byte words so that every parameter is aligned as the kernel expects (16 at most, which Box<[u64]> of a
        // large allocation also satisfies on the systems supported).
        let mut words = vec![0u64; value.len().div_ceil(8).max(1)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..value.len()].copy_from_slice(value);
        self.values.push(words.into_boxed_slice());
        self.bytes.push(value.len() as u32);
    }

    /// Keeps something until the kernel has ended: the owner of memory whose address is among the values.
    pub fn keep(&mut self, owner: Arc<dyn Any + Send + Sync>) {
        self.kept.push(owner);
    }

    /// Sizes of the arguments in bytes.
    pub fn sizes(&self) -> &[u32] {
        &self.bytes
    }

    /// Addresses of the values, as a launch wants them. Valid while `self` is.
    pub(super) fn pointers(&mut self) -> Vec<*mut core::ffi::c_void> {
        self.values.iter_mut().map(|v| v.as_mut_ptr().cast()).collect()
    }

    /// Takes the shares out: the run has them, not the threads that the kernel runs on.
    pub(super) fn take_kept(&mut self) -> Kept {
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

/// Lets plain values be passed by copy.
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

/// A region is passed as the address of its first byte.
impl KernelArg for crate::memory::Region {
    fn push(&self, args: &mut Args) {
        args.push_value(self.address());
        args.keep(self.owner());
    }
}

/// Builds [`Args`]: `args!(count, &region, &array)`.
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
