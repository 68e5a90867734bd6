//! Kernel arguments: plain values by copy, and handles that keep what they point to borrowed.

use bytemuck::Pod;
use std::marker::PhantomData;

/// The arguments of one launch, in the kernel's order.
#[derive(Debug, Default)]
pub struct Args<'a> {
    values: Vec<Box<[u64]>>,
    bytes: Vec<u32>,
    _borrowed: PhantomData<&'a ()>,
}

/// Something that can be passed to a kernel.
///
/// `'a` is how long the thing that it points to stays borrowed.
pub trait KernelArg<'a> {
    /// The bytes as the kernel's parameter has them.
    fn push(&self, args: &mut Args<'a>);
}

impl<'a> Args<'a> {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one argument.
    pub fn with(mut self, arg: impl KernelArg<'a>) -> Self {
        arg.push(&mut self);
        self
    }

    /// Adds the bytes of a plain value.
    pub fn push_value<T: Pod>(&mut self, value: T) {
        // Kept in 8-byte words so that every parameter is aligned as the kernel expects (16 at most, which Box<[u64]> of a
        // large allocation also satisfies on the systems supported).
        let mut words = vec![0u64; size_of::<T>().div_ceil(8).max(1)];
        bytemuck::cast_slice_mut::<u64, u8>(&mut words)[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(&value));
        self.values.push(words.into_boxed_slice());
        self.bytes.push(size_of::<T>() as u32);
    }

    /// Sizes of the arguments in bytes.
    pub fn sizes(&self) -> &[u32] {
        &self.bytes
    }

    /// Addresses of the values, as a launch wants them. Valid while `self` is.
    pub(super) fn pointers(&mut self) -> Vec<*mut core::ffi::c_void> {
        self.values.iter_mut().map(|v| v.as_mut_ptr().cast()).collect()
    }
}

macro_rules! plain {
    ($($t:ty),*) => {$(
        impl<'a> KernelArg<'a> for $t {
            fn push(&self, args: &mut Args<'a>) {
                args.push_value(*self);
            }
        }
    )*};
}
plain!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

/// A region is passed as the address of its first byte.
impl<'a> KernelArg<'a> for &'a crate::memory::Region {
    fn push(&self, args: &mut Args<'a>) {
        args.push_value(self.address());
    }
}

/// Builds [`Args`]: `args!(count, &region, array.lend())`.
#[macro_export]
macro_rules! args {
    ($($a:expr),* $(,)?) => { $crate::engine::Args::new()$(.with($a))* };
}

#[cfg(test)]
mod tests {
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
