//! Element types and operations of reductions.

use bytemuck::Pod;

mod sealed {
    pub trait Sealed {}
}

/// An element of reductions: integers of 8 to 64 bits, `f32`, `f64`.
pub trait Reducible: Pod + sealed::Sealed {
    /// The element's part of kernel names. Kernels for unsigned integers also take signed ones.
    #[doc(hidden)]
    const NAME: &'static str;
    /// Flag that tells a kernel that the elements are signed: `REDUCE_SIGNED` of `kernels/shmem/collective.cu`, or 0.
    #[doc(hidden)]
    const SIGNED: u32;
}

/// An element of the bitwise reductions [`And`], [`Or`] and [`Xor`].
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

/// An operation that combines elements: [`Sum`], [`Prod`], [`Min`], [`Max`], and for integers [`And`], [`Or`], [`Xor`]
/// (OpenSHMEM 1.5, 9.9.9).
///
/// Sums and products of integers wrap. Elements are combined in the order of the members, so that floating-point
/// results have the same bits on every PE.
pub trait Reduction<T: Reducible>: sealed::Sealed {
    /// The suffix of the kernel's name after `wb_shmem_reduce_`.
    #[doc(hidden)]
    fn kernel(&self) -> &'static str;
    /// The operation's number: `reducing` of `kernels/shmem/collective.cu`.
    #[doc(hidden)]
    fn number(&self) -> u32;
    /// Number of kernel elements for one element of `T`.
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
    /// Minimum.
    Min 2 | T::SIGNED, Reducible by T::NAME, 1;
    /// Maximum.
    Max 3 | T::SIGNED, Reducible by T::NAME, 1;
    /// Bitwise and.
    And 4, ReducibleInteger by "bits", size_of::<T>();
    /// Bitwise or.
    Or 5, ReducibleInteger by "bits", size_of::<T>();
    /// Bitwise exclusive or.
    Xor 6, ReducibleInteger by "bits", size_of::<T>();
}
