//! Signals of the host: put with a signal, updates of a signal, and waits (OpenSHMEM 1.5, 9.8 and 9.10).

use super::rma::Direction;
use super::slices::{LocalSlice, RemoteSlice};
use crate::args;
use crate::engine::{Stream, abi};
use crate::shmem::{ShmemError, SymSlice, World};
use bytemuck::Pod;

/// Up to this many bytes, one block puts both the data and the signal. More data is put by many blocks, and the signal
/// follows.
const ONE_BLOCK_BYTES: usize = 16 << 10;

/// The update of a signal word (OpenSHMEM 1.5, 9.8.3; the numbers of `warpbell::signal`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SignalOp {
    /// Sets the word to the value.
    Set = 9,
    /// Adds the value to the word.
    Add = 10,
}

/// The comparison of a wait (OpenSHMEM 1.5, 9.10; the numbers of `warpbell::cmp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Cmp {
    /// Equal.
    Eq = 0,
    /// Not equal.
    Ne = 1,
    /// Greater.
    Gt = 2,
    /// Less than or equal.
    Le = 3,
    /// Less.
    Lt = 4,
    /// Greater than or equal.
    Ge = 5,
}

impl World {
    /// Copies all elements of `source` on this PE to `dest` on PE `pe`, then updates the first word of `signal` there.
    /// A PE that sees the signal also sees the elements.
    ///
    /// # Errors
    /// - [`ShmemError::NoPe`] if the world has no PE `pe`, [`ShmemError::Foreign`] if `dest` or `signal` belongs to
    ///   another world.
    /// - [`ShmemError::OutOfBounds`] if `dest` has fewer elements than `source`, or `signal` has none.
    /// - [`ShmemError::Engine`] if a kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    ///   fails.
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
    ///     use warpbell::shmem::calls::{Cmp, SignalOp};
    ///
    ///     let mine = world.malloc::<f32>(3)?;
    ///     mine.write(0, &[1.0, 2.0, 3.0])?;
    ///     let data = world.calloc::<f32>(3)?;
    ///     let arrived = world.calloc::<u64>(1)?;
    ///     if world.my_pe() == 0 {
    ///         world.put_signal(&data, &mine, &arrived, (1, SignalOp::Set), 1)?;
    ///     } else {
    ///         // Whoever sees the signal sees the data.
    ///         world.signal_wait_until(&arrived, Cmp::Ge, 1)?;
    ///         assert_eq!(data.read(0, 3)?, [1.0, 2.0, 3.0]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn put_signal<'a, T: Pod>(
        &self,
        dest: impl Into<RemoteSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        signal: impl Into<SymSlice<'a, u64>>,
        (value, how): (u64, SignalOp),
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.put_signal_how(None, dest.into(), source.into(), signal.into(), (value, how), pe)
    }

    /// Enqueues [`World::put_signal`] on `stream`.
    ///
    /// # Errors
    /// The argument errors of [`World::put_signal`], and [`ShmemError::Engine`] if the stream belongs to another engine
    /// or a kernel cannot be launched.
    pub fn put_signal_on<'a, T: Pod>(
        &self,
        stream: &Stream,
        dest: impl Into<RemoteSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        signal: impl Into<SymSlice<'a, u64>>,
        (value, how): (u64, SignalOp),
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.put_signal_how(Some(stream), dest.into(), source.into(), signal.into(), (value, how), pe)
    }

    fn put_signal_how<'a, T: Pod>(
        &self,
        on: Option<&Stream>,
        dest: RemoteSlice<'a, T>,
        source: LocalSlice<'a, T>,
        signal: SymSlice<'a, u64>,
        (value, how): (u64, SignalOp),
        pe: usize,
    ) -> Result<(), ShmemError> {
        let dest = self.remote_end(dest, source.len(), pe)?;
        let word = self.remote(signal, 1, pe)?;
        let bytes = source.len() * size_of::<T>();
        if bytes > ONE_BLOCK_BYTES {
            self.copy(on, Direction::Put, dest, source, pe)?;
            return self.signal_how(on, word, (value, how), pe);
        }
        let grid = crate::engine::Grid { blocks: 1, ..self.call_grid(bytes) };
        let args = args!(self, dest, source, bytes as u64, word, value, how as u32, pe as u32);
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(on, dest.kernel("wb_shmem_put_signal", "wb_shmem_window_put_signal"), grid, args) }
    }

    /// Updates the first word of `signal` on PE `pe`. The data of this PE's earlier puts arrives before the update.
    ///
    /// # Errors
    /// - [`ShmemError::NoPe`] if the world has no PE `pe`, [`ShmemError::Foreign`] if `signal` belongs to another
    ///   world.
    /// - [`ShmemError::OutOfBounds`] if `signal` has no elements.
    /// - [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    ///   fails.
    pub fn signal_op<'a>(
        &self,
        signal: impl Into<SymSlice<'a, u64>>,
        value: u64,
        how: SignalOp,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let word = self.remote(signal.into(), 1, pe)?;
        self.signal_how(None, word, (value, how), pe)
    }

    /// Enqueues [`World::signal_op`] on `stream`.
    ///
    /// # Errors
    /// The argument errors of [`World::signal_op`], and [`ShmemError::Engine`] if the stream belongs to another engine
    /// or the kernel cannot be launched.
    pub fn signal_op_on<'a>(
        &self,
        stream: &Stream,
        signal: impl Into<SymSlice<'a, u64>>,
        value: u64,
        how: SignalOp,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let word = self.remote(signal.into(), 1, pe)?;
        self.signal_how(Some(stream), word, (value, how), pe)
    }

    fn signal_how<'a>(
        &self,
        on: Option<&Stream>,
        word: SymSlice<'a, u64>,
        (value, how): (u64, SignalOp),
        pe: usize,
    ) -> Result<(), ShmemError> {
        let args = args!(self, word, value, how as u32, pe as u32);
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(on, "wb_shmem_signal", self.small_grid(), args) }
    }

    /// Waits until the comparison of the first word of `signal` on this PE with `value` holds. Data that was put before
    /// the signal has then arrived.
    ///
    /// # Errors
    /// - [`ShmemError::Foreign`] if `signal` belongs to another world, [`ShmemError::OutOfBounds`] if it has no
    ///   elements.
    /// - [`ShmemError::Engine`] if the kernel cannot be launched.
    /// - [`ShmemError::Run`] or [`ShmemError::Network`] if the kernel fails, for example at the engine's deadline.
    pub fn signal_wait_until<'a>(
        &self,
        signal: impl Into<SymSlice<'a, u64>>,
        how: Cmp,
        value: u64,
    ) -> Result<(), ShmemError> {
        self.wait_how(None, signal.into(), how, value, None)
    }

    /// Enqueues [`World::signal_wait_until`] on `stream`. Later work in the stream starts after the signal has arrived.
    ///
    /// # Errors
    /// The argument errors of [`World::signal_wait_until`], and [`ShmemError::Engine`] if the stream belongs to another
    /// engine or the kernel cannot be launched.
    pub fn signal_wait_until_on<'a>(
        &self,
        stream: &Stream,
        signal: impl Into<SymSlice<'a, u64>>,
        how: Cmp,
        value: u64,
    ) -> Result<(), ShmemError> {
        self.wait_how(Some(stream), signal.into(), how, value, None)
    }

    /// Waits as [`World::signal_wait_until`] does, for a signal of PE `pe`. The error of a wait that fails names that PE.
    /// The signal of another PE ends the wait, too.
    ///
    /// # Errors
    /// [`ShmemError::NoPe`] if the world has no PE `pe`, and the errors of [`World::signal_wait_until`].
    pub fn signal_wait_until_from<'a>(
        &self,
        signal: impl Into<SymSlice<'a, u64>>,
        how: Cmp,
        value: u64,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.wait_how(None, signal.into(), how, value, Some(pe))
    }

    /// Enqueues [`World::signal_wait_until_from`] on `stream`. Later work in the stream starts after the signal has
    /// arrived.
    ///
    /// # Errors
    /// [`ShmemError::NoPe`] if the world has no PE `pe`, and the errors of [`World::signal_wait_until_on`].
    pub fn signal_wait_until_from_on<'a>(
        &self,
        stream: &Stream,
        signal: impl Into<SymSlice<'a, u64>>,
        how: Cmp,
        value: u64,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.wait_how(Some(stream), signal.into(), how, value, Some(pe))
    }

    fn wait_how<'a>(
        &self,
        on: Option<&Stream>,
        signal: SymSlice<'a, u64>,
        how: Cmp,
        value: u64,
        from: Option<usize>,
    ) -> Result<(), ShmemError> {
        let word = self.remote(signal, 1, self.my_pe())?;
        let args = args!(self, word, how as u32, value, self.awaited(from)?);
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(on, "wb_shmem_signal_wait", self.small_grid(), args) }
    }

    /// Waits until at least `n` signals have arrived in the first word of `signal` on this PE that `shadow` does not
    /// count. Then adds `n` to `shadow`; after an error it is unchanged. Data that was put before these signals has then
    /// arrived.
    ///
    /// The shadow is the sum of the signals that were consumed, from the word's first value on: 0 in fresh memory. The
    /// word and the shadow wrap. An addition of k to the word is k signals.
    ///
    /// With `from`, the error of a wait that fails names that PE. The signals of other PEs count, too.
    ///
    /// # Errors
    /// - [`ShmemError::Signals`] if `n` is 2^63 or more, [`ShmemError::NoPe`] if the world has no PE `from`.
    /// - The errors of [`World::signal_wait_until`].
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
    ///     use warpbell::shmem::calls::SignalOp;
    ///
    ///     let arrived = world.calloc::<u64>(1)?;
    ///     let other = 1 - world.my_pe();
    ///     for _ in 0..5 {
    ///         world.signal_op(&arrived, 1, SignalOp::Add, other)?;
    ///     }
    ///     let mut consumed = 0;
    ///     world.signal_wait_shadow(&arrived, &mut consumed, 2, Some(other))?;
    ///     world.signal_wait_shadow(&arrived, &mut consumed, 3, Some(other))?;
    ///     assert_eq!(consumed, 5);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn signal_wait_shadow<'a>(
        &self,
        signal: impl Into<SymSlice<'a, u64>>,
        shadow: &mut u64,
        n: u64,
        from: Option<usize>,
    ) -> Result<(), ShmemError> {
        self.wait_shadow_how(None, signal.into(), shadow, n, from)
    }

    /// Enqueues [`World::signal_wait_shadow`] on `stream`, and adds `n` to `shadow` at once: the next wait in the stream
    /// is for later signals. Later work in the stream starts after the signals have arrived.
    ///
    /// # Errors
    /// The argument errors of [`World::signal_wait_shadow`], and [`ShmemError::Engine`] if the stream belongs to another
    /// engine or the kernel cannot be launched.
    pub fn signal_wait_shadow_on<'a>(
        &self,
        stream: &Stream,
        signal: impl Into<SymSlice<'a, u64>>,
        shadow: &mut u64,
        n: u64,
        from: Option<usize>,
    ) -> Result<(), ShmemError> {
        self.wait_shadow_how(Some(stream), signal.into(), shadow, n, from)
    }

    fn wait_shadow_how<'a>(
        &self,
        on: Option<&Stream>,
        signal: SymSlice<'a, u64>,
        shadow: &mut u64,
        n: u64,
        from: Option<usize>,
    ) -> Result<(), ShmemError> {
        if i64::try_from(n).is_err() {
            return Err(ShmemError::Signals { n });
        }
        let word = self.remote(signal, 1, self.my_pe())?;
        let args = args!(self, word, *shadow, n, self.awaited(from)?);
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(on, "wb_shmem_signal_wait_shadow", self.small_grid(), args) }?;
        *shadow = shadow.wrapping_add(n);
        Ok(())
    }

    /// Returns the PE that a wait names in its error, as kernels take it.
    fn awaited(&self, from: Option<usize>) -> Result<u32, ShmemError> {
        match from {
            None => Ok(abi::NO_PE),
            Some(pe) if pe < self.n_pes() => Ok(pe as u32),
            Some(pe) => Err(ShmemError::NoPe { pe, size: self.n_pes() }),
        }
    }
}
