//! Atomic operations on one word of a PE (OpenSHMEM 1.5, 9.7).

use crate::args;
use crate::engine::{Args, KernelArg, Stream};
use crate::shmem::{ShmemError, SymSlice, World};
use bytemuck::Pod;

mod sealed {
    pub trait Sealed {}
}

/// A word that can be fetched, set and swapped atomically: integers of 32 and 64 bits, `f32`, `f64`.
pub trait AtomicWord: Pod + sealed::Sealed {
    /// The unsigned integer of the same size.
    #[doc(hidden)]
    type Bits: Pod + KernelArg;
    #[doc(hidden)]
    const KERNEL: &'static str;
}

/// An integer word: also supports arithmetic, bitwise operations and compare-and-swap.
pub trait AtomicInteger: AtomicWord {
    #[doc(hidden)]
    const ONE: Self;
}

macro_rules! words {
    ($($t:ty: $bits:ty, $kernel:literal;)*) => {$(
        impl sealed::Sealed for $t {}
        impl AtomicWord for $t {
            type Bits = $bits;
            const KERNEL: &'static str = $kernel;
        }
    )*};
}
words! {
    u32: u32, "wb_shmem_atomic_u32";
    i32: u32, "wb_shmem_atomic_u32";
    f32: u32, "wb_shmem_atomic_u32";
    u64: u64, "wb_shmem_atomic_u64";
    i64: u64, "wb_shmem_atomic_u64";
    f64: u64, "wb_shmem_atomic_u64";
}

macro_rules! integers {
    ($($t:ty),*) => {$(impl AtomicInteger for $t { const ONE: Self = 1; })*};
}
integers!(u32, i32, u64, i64);

/// The operation of a kernel; the numbers of `kernels/shmem/host.cu`.
#[derive(Clone, Copy)]
#[repr(u32)]
enum AtomicOp {
    Fetch = 0,
    Set = 1,
    Swap = 2,
    CompareSwap = 3,
    FetchAdd = 4,
    FetchAnd = 5,
    FetchOr = 6,
    FetchXor = 7,
}

macro_rules! calls {
    ($($(#[$doc:meta])* $bound:ident $what:ident: $name:ident, $name_on:ident, $fetch:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// - [`ShmemError::NoPe`] if the world has no PE `pe`, [`ShmemError::Foreign`] if `to` belongs to another
        ///   world.
        /// - [`ShmemError::OutOfBounds`] if `to` has no elements.
        /// - [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if
        ///   it fails.
        pub fn $name<'a, T: $bound>(&self, to: impl Into<SymSlice<'a, T>>, value: T, pe: usize) -> Result<(), ShmemError> {
            self.change(None, AtomicOp::$what, to.into(), value, pe)
        }

        /// Enqueues the operation of the call without `_on` on `stream`.
        ///
        /// # Errors
        /// The argument errors of the call without `_on`, and [`ShmemError::Engine`] if the stream belongs to another
        /// engine or the kernel cannot be launched.
        pub fn $name_on<'a, T: $bound>(
            &self,
            stream: &Stream,
            to: impl Into<SymSlice<'a, T>>,
            value: T,
            pe: usize,
        ) -> Result<(), ShmemError> {
            self.change(Some(stream), AtomicOp::$what, to.into(), value, pe)
        }

        /// Performs the operation of the call without `fetch_` and returns the word's previous value.
        ///
        /// # Errors
        /// The errors of [`World::atomic_fetch`].
        pub fn $fetch<'a, T: $bound>(&self, to: impl Into<SymSlice<'a, T>>, value: T, pe: usize) -> Result<T, ShmemError> {
            self.answered(AtomicOp::$what, to.into(), value, T::zeroed(), pe)
        }
    )*};
}

/// Atomic operations. Each acts on the first element of its array.
impl World {
    calls! {
        /// Adds `value` to the word; integers wrap.
        AtomicInteger FetchAdd: atomic_add, atomic_add_on, atomic_fetch_add;
        /// Replaces the word by its bitwise and with `value`.
        AtomicInteger FetchAnd: atomic_and, atomic_and_on, atomic_fetch_and;
        /// Replaces the word by its bitwise or with `value`.
        AtomicInteger FetchOr: atomic_or, atomic_or_on, atomic_fetch_or;
        /// Replaces the word by its bitwise exclusive or with `value`.
        AtomicInteger FetchXor: atomic_xor, atomic_xor_on, atomic_fetch_xor;
    }

    /// Sets the word to `value`.
    ///
    /// # Errors
    /// - [`ShmemError::NoPe`] if the world has no PE `pe`, [`ShmemError::Foreign`] if `to` belongs to another world.
    /// - [`ShmemError::OutOfBounds`] if `to` has no elements.
    /// - [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    ///   fails.
    pub fn atomic_set<'a, T: AtomicWord>(
        &self,
        to: impl Into<SymSlice<'a, T>>,
        value: T,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.change(None, AtomicOp::Set, to.into(), value, pe)
    }

    /// Enqueues [`World::atomic_set`] on `stream`.
    ///
    /// # Errors
    /// The argument errors of [`World::atomic_set`], and [`ShmemError::Engine`] if the stream belongs to another engine
    /// or the kernel cannot be launched.
    pub fn atomic_set_on<'a, T: AtomicWord>(
        &self,
        stream: &Stream,
        to: impl Into<SymSlice<'a, T>>,
        value: T,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.change(Some(stream), AtomicOp::Set, to.into(), value, pe)
    }

    /// Returns the word.
    ///
    /// # Errors
    /// - [`ShmemError::NoPe`] if the world has no PE `pe`, [`ShmemError::Foreign`] if the array belongs to another
    ///   world.
    /// - [`ShmemError::OutOfBounds`] if the array has no elements.
    /// - [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    ///   fails.
    /// - [`ShmemError::Memory`] if the result cannot be read.
    pub fn atomic_fetch<'a, T: AtomicWord>(
        &self,
        from: impl Into<SymSlice<'a, T>>,
        pe: usize,
    ) -> Result<T, ShmemError> {
        self.answered(AtomicOp::Fetch, from.into(), T::zeroed(), T::zeroed(), pe)
    }

    /// Sets the word to `value` and returns its previous value.
    ///
    /// # Errors
    /// The errors of [`World::atomic_fetch`].
    pub fn atomic_swap<'a, T: AtomicWord>(
        &self,
        to: impl Into<SymSlice<'a, T>>,
        value: T,
        pe: usize,
    ) -> Result<T, ShmemError> {
        self.answered(AtomicOp::Swap, to.into(), value, T::zeroed(), pe)
    }

    /// Sets the word to `value` if it equals `expected`. Returns its previous value.
    ///
    /// # Errors
    /// The errors of [`World::atomic_fetch`].
    pub fn atomic_compare_swap<'a, T: AtomicInteger>(
        &self,
        to: impl Into<SymSlice<'a, T>>,
        expected: T,
        value: T,
        pe: usize,
    ) -> Result<T, ShmemError> {
        self.answered(AtomicOp::CompareSwap, to.into(), value, expected, pe)
    }

    /// Adds 1 to the word.
    ///
    /// # Errors
    /// The errors of [`World::atomic_add`].
    pub fn atomic_inc<'a, T: AtomicInteger>(
        &self,
        to: impl Into<SymSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.atomic_add(to, T::ONE, pe)
    }

    /// Enqueues [`World::atomic_inc`] on `stream`.
    ///
    /// # Errors
    /// The errors of [`World::atomic_add_on`].
    pub fn atomic_inc_on<'a, T: AtomicInteger>(
        &self,
        stream: &Stream,
        to: impl Into<SymSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.atomic_add_on(stream, to, T::ONE, pe)
    }

    /// Adds 1 to the word and returns its previous value.
    ///
    /// # Errors
    /// The errors of [`World::atomic_fetch`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::shmem::World;
    ///
    /// # fn on_each(worlds: Vec<World>, work: fn(&World) -> Result<(), Failure>) -> Result<(), Failure> {
    /// #     let pes: Vec<_> = worlds.into_iter().map(|world| std::thread::spawn(move || work(&world))).collect();
    /// #     pes.into_iter().try_for_each(|pe| pe.join().expect("no panic"))
    /// # }
    /// # type Failure = Box<dyn std::error::Error + Send + Sync>;
    /// // Two PEs with CPU engines; a closure runs for each PE, in a thread of its own.
    /// on_each(World::local(2)?, |world| {
    ///     let counter = world.calloc::<u64>(1)?;
    ///     // Both PEs draw numbers from the counter of PE 0.
    ///     let drawn = world.atomic_fetch_inc(&counter, 0)?;
    ///     assert!(drawn < 2);
    ///     world.barrier_all()?;
    ///     assert_eq!(world.g(&counter, 0)?, 2);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn atomic_fetch_inc<'a, T: AtomicInteger>(
        &self,
        to: impl Into<SymSlice<'a, T>>,
        pe: usize,
    ) -> Result<T, ShmemError> {
        self.atomic_fetch_add(to, T::ONE, pe)
    }

    fn change<'a, T: AtomicWord>(
        &self,
        on: Option<&Stream>,
        what: AtomicOp,
        to: SymSlice<'a, T>,
        value: T,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let args = self.arguments(what, to, value, T::zeroed(), pe, 0)?;
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(on, T::KERNEL, self.small_grid(), args) }
    }

    fn answered<T: AtomicWord>(
        &self,
        what: AtomicOp,
        to: SymSlice<'_, T>,
        value: T,
        expected: T,
        pe: usize,
    ) -> Result<T, ShmemError> {
        let answer = self.teams().answer();
        let args = self.arguments(what, to, value, expected, pe, answer.address())?;
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(None, T::KERNEL, self.small_grid(), args) }?;
        Ok(answer.get(0)?)
    }

    fn arguments<'a, T: AtomicWord>(
        &self,
        what: AtomicOp,
        to: SymSlice<'a, T>,
        value: T,
        expected: T,
        pe: usize,
        answer: u64,
    ) -> Result<Args, ShmemError> {
        let word = self.remote(to, 1, pe)?;
        let bits = |v: T| bytemuck::cast::<T, T::Bits>(v);
        Ok(args!(self, what as u32, word, bits(value), bits(expected), pe as u32, answer))
    }
}
