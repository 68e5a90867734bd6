//! What can be reduced, and how.

use bytemuck::Pod;

mod sealed {
    pub trait Sealed {}
}

/// An element of reductions: integers of 8 to 64 bits, `f32`, `f64`.
pub trait Reducible: Pod + sealed::Sealed {
    /// As in the kernels' names.
    #[doc(hidden)]
    const NAME: &'static str;
    /// The type that does the same where signs make no difference.
    #[doc(hidden)]
    const UNSIGNED: &'static str;
}

/// An element of and, or and xor.
pub trait ReducibleInteger: Reducible {}

macro_rules! reducible {
    ($($t:ty: $name:literal $unsigned:literal),*) => {$(
        impl sealed::Sealed for $t {}
        impl Reducible for $t {
            const NAME: &'static str = $name;
            const UNSIGNED: &'static str = $unsigned;
        }
    )*};
}
reducible!(
    u8: "u8" "u8", u16: "u16" "u16", u32: "u32" "u32", u64: "u64" "u64", i8: "i8" "u8", i16: "i16" "u16",
    i32: "i32" "u32", i64: "i64" "u64", f32: "f32" "f32", f64: "f64" "f64"
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
    /// The kernel.
    #[doc(hidden)]
    fn kernel(&self) -> String;
    /// What the kernel takes for one element.
    #[doc(hidden)]
    fn units(&self) -> usize;
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident $word:literal: $bound:ident by $by:expr, $units:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;
        impl sealed::Sealed for $name {}
        impl<T: $bound> Reduction<T> for $name {
            fn kernel(&self) -> String {
                format!("wb_shmem_reduce_{}_{}", $word, $by)
            }
            fn units(&self) -> usize {
                $units
            }
        }
    )*};
}
operations! {
    /// Sum.
    Sum "sum": Reducible by T::UNSIGNED, 1;
    /// Product.
    Prod "prod": Reducible by T::UNSIGNED, 1;
    /// Least.
    Min "min": Reducible by T::NAME, 1;
    /// Greatest.
    Max "max": Reducible by T::NAME, 1;
    /// Bits that all have.
    And "and": ReducibleInteger by "u8", size_of::<T>();
    /// Bits that any has.
    Or "or": ReducibleInteger by "u8", size_of::<T>();
    /// Bits that an odd number has.
    Xor "xor": ReducibleInteger by "u8", size_of::<T>();
}
