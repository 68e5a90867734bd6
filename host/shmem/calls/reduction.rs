//! What can be reduced, and how.

use bytemuck::Pod;

mod sealed {
    pub trait Sealed {}
}

/// An element of reductions: integers of 8 to 64 bits, `f32`, `f64`.
pub trait Reducible: Pod + sealed::Sealed {
    /// As in the kernels' names, which take signed integers for unsigned ones.
    #[doc(hidden)]
    const NAME: &'static str;
    /// What a kernel is told of the elements: `REDUCE_SIGNED` of `kernels/shmem/collective.cu`, or nothing.
    #[doc(hidden)]
    const SIGNED: u32;
}

/// An element of and, or and xor.
pub trait ReducibleInteger: Reducible {}

const SIGNED: u32 = 8;

macro_rules! reducible {
    ($($t:ty: $name:literal $signed:expr),*) => {$(
        impl sealed::Sealed for $t {}
        impl Reducible for $t {
            const NAME: &'static str = $name;
            const SIGNED: u32 = $signed;
        }
    )*};
}
reducible!(
    u8: "u8" 0, u16: "u16" 0, u32: "u32" 0, u64: "u64" 0, i8: "u8" SIGNED, i16: "u16" SIGNED, i32: "u32" SIGNED,
    i64: "u64" SIGNED, f32: "f32" 0, f64: "f64" 0
);

macro_rules! integers {
    ($($t:ty),*) => {$(impl ReducibleInteger for $t {})*};
}
integers!(u8, u16, u32, u64, i8, i16, i32, i64);

/// How elements are combined: [`Sum`], [`Prod`], [`Min`], [`Max`], and of integers [`And`], [`Or`], [`Xor`] (OpenSHMEM 1.5, 9.11.8).
///
/// Sums and products of integers wrap. Elements are combined in the order of the members, so that floating-point results have the
/// same bits on every PE.
pub trait Reduction<T: Reducible>: sealed::Sealed {
    /// The kernel: `wb_shmem_reduce_` and this.
    #[doc(hidden)]
    fn kernel(&self) -> &'static str;
    /// What the kernel is told to do: `reducing` of `kernels/shmem/collective.cu`.
    #[doc(hidden)]
    fn number(&self) -> u32;
    /// What the kernel takes for one element.
    #[doc(hidden)]
    fn units(&self) -> usize;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident $number:expr, $bound:ident by $by:expr, $units:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl sealed::Sealed for $name {}
        impl<T: $bound> Reduction<T> for $name {
            fn kernel(&self) -> &'static str {
                $by
            }
            fn number(&self) -> u32 {
                $number
            }
            fn units(&self) -> usize {
                $units
            }
        }
    )*};
}
operations! {
    /// Sum.
    Sum 0, Reducible by T::NAME, 1;
    /// Product.
    Prod 1, Reducible by T::NAME, 1;
    /// Least.
    Min 2 | T::SIGNED, Reducible by T::NAME, 1;
    /// Greatest.
    Max 3 | T::SIGNED, Reducible by T::NAME, 1;
    /// Bits that all have.
    And 4, ReducibleInteger by "bits", size_of::<T>();
    /// Bits that any has.
    Or 5, ReducibleInteger by "bits", size_of::<T>();
    /// Bits that an odd number has.
    Xor 6, ReducibleInteger by "bits", size_of::<T>();
}
