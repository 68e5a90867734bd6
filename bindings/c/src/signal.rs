//! Signals and atomic operations on the words of other PEs.

use crate::element::{WB_F32, WB_F64, WB_I32, WB_I64, WB_U32, WB_U64};
use crate::error::{Error, guard, wb_code};
use crate::pointer::{In, Out};
use crate::stream::wb_stream_t;
use crate::symmetric::{Local, part, share, wb_symmetric_t, without};
use crate::window::Remote;
use crate::world_error::{number, of_world};
use std::ffi::c_void;
use warpbell::engine::Stream;
use warpbell::shmem::calls::{AtomicInteger, AtomicWord, Cmp, SignalOp};
use warpbell::shmem::{ShmemError, SymSlice, World};

/// Sets the word to the value.
pub const WB_SIGNAL_SET: u32 = 9;
/// Adds the value to the word.
pub const WB_SIGNAL_ADD: u32 = 10;

/// No particular PE: the error of a wait that fails names none.
pub const WB_ANY_PE: u32 = u32::MAX;

/// Equal.
pub const WB_CMP_EQ: u32 = 0;
/// Not equal.
pub const WB_CMP_NE: u32 = 1;
/// Greater.
pub const WB_CMP_GT: u32 = 2;
/// Less than or equal.
pub const WB_CMP_LE: u32 = 3;
/// Less.
pub const WB_CMP_LT: u32 = 4;
/// Greater than or equal.
pub const WB_CMP_GE: u32 = 5;

/// Returns the word.
pub const WB_ATOMIC_FETCH: u32 = 0;
/// Sets the word.
pub const WB_ATOMIC_SET: u32 = 1;
/// Sets the word, and returns its previous value.
pub const WB_ATOMIC_SWAP: u32 = 2;
/// Sets the word if it has the expected value, and returns its previous value. Integers only, like the following.
pub const WB_ATOMIC_COMPARE_SWAP: u32 = 3;
/// Adds to the word; wraps.
pub const WB_ATOMIC_ADD: u32 = 4;
/// Bitwise and.
pub const WB_ATOMIC_AND: u32 = 5;
/// Bitwise or.
pub const WB_ATOMIC_OR: u32 = 6;
/// Bitwise exclusive or.
pub const WB_ATOMIC_XOR: u32 = 7;

/// Bytes of a signal's word.
const WORD: usize = size_of::<u64>();

fn signal_op(op: u32) -> Result<SignalOp, Error> {
    match op {
        WB_SIGNAL_SET => Ok(SignalOp::Set),
        WB_SIGNAL_ADD => Ok(SignalOp::Add),
        other => Err(Error::argument(format!("`op` is {other}; use WB_SIGNAL_SET or WB_SIGNAL_ADD"))),
    }
}

fn comparison(cmp: u32) -> Result<Cmp, Error> {
    match cmp {
        WB_CMP_EQ => Ok(Cmp::Eq),
        WB_CMP_NE => Ok(Cmp::Ne),
        WB_CMP_GT => Ok(Cmp::Gt),
        WB_CMP_LE => Ok(Cmp::Le),
        WB_CMP_LT => Ok(Cmp::Lt),
        WB_CMP_GE => Ok(Cmp::Ge),
        other => Err(Error::argument(format!("`cmp` is {other}; use WB_CMP_EQ to WB_CMP_GE"))),
    }
}

/// Copies memory of this PE to a PE's part, then updates a signal there: a PE that sees the signal sees the data.
///
/// @param dest Destination: symmetric memory or a window, a handle of either type.
/// @param dest_offset Its first byte.
/// @param source A region of the world's engine, or symmetric memory: a handle of either type.
/// @param source_offset First byte of the source.
/// @param bytes Number of bytes.
/// @param signal Memory with the signal, a word of 8 bytes.
/// @param signal_offset Byte of the word, a multiple of 8.
/// @param value Operand of the update.
/// @param op `WB_SIGNAL_SET` or `WB_SIGNAL_ADD`.
/// @param pe The PE.
/// @param stream Null: the call is complete on return. Otherwise it runs behind the work of the stream.
/// @return As of `wb_symmetric_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_put_signal(
    dest: In<c_void>,
    dest_offset: usize,
    source: In<c_void>,
    source_offset: usize,
    bytes: usize,
    signal: In<wb_symmetric_t>,
    signal_offset: usize,
    value: u64,
    op: u32,
    pe: u32,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| {
        let (dest, source, signal) = (Remote::of(dest)?, Local::of(source)?, share(signal)?);
        let stream = stream.optional()?;
        let (world, how) = (dest.world(), (value, signal_op(op)?));
        let (to, from) = (dest.part(dest_offset, bytes)?, source.part(world, source_offset, bytes)?);
        let word = part::<u64>(&signal, signal_offset, WORD)?;
        let done = match stream {
            None => world.put_signal::<u8>(to, from, word, how, number(pe)),
            Some(on) => world.put_signal_on::<u8>(on, to, from, word, how, number(pe)),
        };
        of_world(world, done)
    })
}

/// Updates a signal on a PE. The data of this PE's earlier puts arrives before.
///
/// @param signal Memory with the signal, a word of 8 bytes.
/// @param offset Byte of the word, a multiple of 8.
/// @param value Operand of the update.
/// @param op `WB_SIGNAL_SET` or `WB_SIGNAL_ADD`.
/// @param pe The PE.
/// @param stream Null: the call is complete on return. Otherwise it runs behind the work of the stream.
/// @return As of `wb_symmetric_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_signal(
    signal: In<wb_symmetric_t>,
    offset: usize,
    value: u64,
    op: u32,
    pe: u32,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| {
        let (signal, stream) = (share(signal)?, stream.optional()?);
        let (world, how) = (signal.world(), signal_op(op)?);
        let word = part::<u64>(&signal, offset, WORD)?;
        let done = match stream {
            None => world.signal_op(word, value, how, number(pe)),
            Some(on) => world.signal_op_on(on, word, value, how, number(pe)),
        };
        of_world(world, done)
    })
}

/// Waits until a comparison of a signal on this PE holds. Data that was put before the signal has then arrived.
///
/// @param signal Memory with the signal, a word of 8 bytes.
/// @param offset Byte of the word, a multiple of 8.
/// @param cmp One of `WB_CMP_EQ` to `WB_CMP_GE`: the word on the left, `value` on the right, both unsigned.
/// @param value Value to compare with.
/// @param stream Null: the call returns then. Otherwise later work of the stream waits.
/// @return `WB_OK`; `WB_ERR_OPERATION` if the signal does not come before the engine's deadline; `WB_ERR_WORLD` if a rank is lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_wait(
    signal: In<wb_symmetric_t>,
    offset: usize,
    cmp: u32,
    value: u64,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| wait(signal, offset, cmp, value, None, stream))
}

/// Waits as `wb_symmetric_wait` does, for a signal of one PE. The error of a wait that fails names that PE.
///
/// @param signal Memory with the signal, a word of 8 bytes.
/// @param offset Byte of the word, a multiple of 8.
/// @param cmp As of `wb_symmetric_wait`.
/// @param value Value to compare with.
/// @param pe PE that should signal, or `WB_ANY_PE`. The signal of another PE ends the wait, too.
/// @param stream Null: the call returns then. Otherwise later work of the stream waits.
/// @return As of `wb_symmetric_wait`; `WB_ERR_ARGUMENT` if the world has no such PE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_wait_from(
    signal: In<wb_symmetric_t>,
    offset: usize,
    cmp: u32,
    value: u64,
    pe: u32,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| wait(signal, offset, cmp, value, particular(pe), stream))
}

/// Waits until at least `n` signals have arrived in a word of this PE that `shadow` does not count. Data that was put before these
/// signals has then arrived. The shadow is the sum of the signals that were consumed, from the word's first value on: 0 in fresh memory.
/// Word and shadow wrap. An addition of k to the word is k signals.
///
/// @param signal Memory with the signal, a word of 8 bytes that `WB_SIGNAL_ADD` updates.
/// @param offset Byte of the word, a multiple of 8.
/// @param shadow Signals that were consumed.
/// @param n Number of signals, less than 2^63.
/// @param pe PE that should signal, for the error of a wait that fails, or `WB_ANY_PE`. The signals of other PEs count, too.
/// @param consumed Receives `shadow` plus `n`, for the next wait; with a stream at once. Unchanged after an error.
/// @param stream Null: the call returns then. Otherwise later work of the stream waits.
/// @return As of `wb_symmetric_wait`; `WB_ERR_ARGUMENT` if the world has no such PE, or `n` is too large.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_wait_shadow(
    signal: In<wb_symmetric_t>,
    offset: usize,
    shadow: u64,
    n: u64,
    pe: u32,
    consumed: Out<u64>,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| {
        consumed.check("consumed")?;
        let (signal, stream) = (share(signal)?, stream.optional()?);
        let world = signal.world();
        let word = part::<u64>(&signal, offset, WORD)?;
        let mut shadow = shadow;
        let done = match stream {
            None => world.signal_wait_shadow(word, &mut shadow, n, particular(pe)),
            Some(on) => world.signal_wait_shadow_on(on, word, &mut shadow, n, particular(pe)),
        };
        of_world(world, done)?;
        consumed.write("consumed", shadow)
    })
}

/// Returns a PE that is not `WB_ANY_PE`.
fn particular(pe: u32) -> Option<usize> {
    (pe != WB_ANY_PE).then(|| number(pe))
}

fn wait(
    signal: In<wb_symmetric_t>,
    offset: usize,
    cmp: u32,
    value: u64,
    from: Option<usize>,
    stream: In<wb_stream_t>,
) -> Result<(), Error> {
    let (signal, stream) = (share(signal)?, stream.optional()?);
    let (world, how) = (signal.world(), comparison(cmp)?);
    let word = part::<u64>(&signal, offset, WORD)?;
    let done = match (stream, from) {
        (None, None) => world.signal_wait_until(word, how, value),
        (None, Some(pe)) => world.signal_wait_until_from(word, how, value, pe),
        (Some(on), None) => world.signal_wait_until_on(on, word, how, value),
        (Some(on), Some(pe)) => world.signal_wait_until_from_on(on, word, how, value, pe),
    };
    of_world(world, done)
}

/// An atomic operation with the operands as C passes them.
struct Atomic<'a> {
    world: &'a World,
    stream: Option<&'a Stream>,
    op: u32,
    pe: usize,
    value: In<c_void>,
    expected: In<c_void>,
    fetched: Out<c_void>,
}

impl Atomic<'_> {
    fn operand<T: AtomicWord>(&self, operand: In<c_void>, name: &str) -> Result<T, Error> {
        let missing = || Error::argument(format!("`{name}` is null, and the operation {} needs it", self.op));
        operand.element().ok_or_else(missing)
    }

    fn fetched<T: AtomicWord>(&self, call: impl FnOnce() -> Result<T, ShmemError>) -> Result<(), Error> {
        if self.fetched.is_null() {
            return Err(Error::argument(format!("`fetched` is null, and the operation {} returns a value", self.op)));
        }
        let value = without(self.stream, || of_world(self.world, call()))?;
        self.fetched.put(value);
        Ok(())
    }

    fn word<T: AtomicWord>(&self, word: SymSlice<'_, T>) -> Result<(), Error> {
        let (world, pe) = (self.world, self.pe);
        let value = || self.operand::<T>(self.value, "value");
        match self.op {
            WB_ATOMIC_FETCH => self.fetched(|| world.atomic_fetch(word, pe)),
            WB_ATOMIC_SET => {
                let value = value()?;
                let done = match self.stream {
                    None => world.atomic_set(word, value, pe),
                    Some(on) => world.atomic_set_on(on, word, value, pe),
                };
                of_world(world, done)
            }
            WB_ATOMIC_SWAP => {
                let value = value()?;
                self.fetched(|| world.atomic_swap(word, value, pe))
            }
            WB_ATOMIC_COMPARE_SWAP..=WB_ATOMIC_XOR => Err(Error::argument(format!(
                "the operation {} is for integers, and `dtype` is floating point",
                self.op
            ))),
            other => Err(Error::argument(format!("`op` is {other}; use WB_ATOMIC_FETCH to WB_ATOMIC_XOR"))),
        }
    }

    fn integer<T: AtomicInteger>(&self, word: SymSlice<'_, T>) -> Result<(), Error> {
        let (world, pe) = (self.world, self.pe);
        if !(WB_ATOMIC_COMPARE_SWAP..=WB_ATOMIC_XOR).contains(&self.op) {
            return self.word(word);
        }
        let value = self.operand::<T>(self.value, "value")?;
        if self.op == WB_ATOMIC_COMPARE_SWAP {
            let expected = self.operand::<T>(self.expected, "expected")?;
            return self.fetched(|| world.atomic_compare_swap(word, expected, value, pe));
        }
        if !self.fetched.is_null() {
            return self.fetched(|| match self.op {
                WB_ATOMIC_ADD => world.atomic_fetch_add(word, value, pe),
                WB_ATOMIC_AND => world.atomic_fetch_and(word, value, pe),
                WB_ATOMIC_OR => world.atomic_fetch_or(word, value, pe),
                _ => world.atomic_fetch_xor(word, value, pe),
            });
        }
        let done = match (self.op, self.stream) {
            (WB_ATOMIC_ADD, None) => world.atomic_add(word, value, pe),
            (WB_ATOMIC_ADD, Some(on)) => world.atomic_add_on(on, word, value, pe),
            (WB_ATOMIC_AND, None) => world.atomic_and(word, value, pe),
            (WB_ATOMIC_AND, Some(on)) => world.atomic_and_on(on, word, value, pe),
            (WB_ATOMIC_OR, None) => world.atomic_or(word, value, pe),
            (WB_ATOMIC_OR, Some(on)) => world.atomic_or_on(on, word, value, pe),
            (_, None) => world.atomic_xor(word, value, pe),
            (_, Some(on)) => world.atomic_xor_on(on, word, value, pe),
        };
        of_world(world, done)
    }
}

/// Performs an atomic operation on a word of a PE.
///
/// @param memory Memory with the word.
/// @param offset Byte of the word, a multiple of its size.
/// @param dtype Type of the word: 32 or 64 bits.
/// @param op One of `WB_ATOMIC_FETCH` to `WB_ATOMIC_XOR`.
/// @param value Operand of the type; null for `WB_ATOMIC_FETCH`.
/// @param expected Operand of `WB_ATOMIC_COMPARE_SWAP`; otherwise null.
/// @param fetched Receives the previous value. Null for `WB_ATOMIC_SET`; may be null for `WB_ATOMIC_ADD` to `WB_ATOMIC_XOR`.
/// @param pe The PE.
/// @param stream Null: the operation is complete on return. Otherwise it runs behind the work of the stream, and returns no value.
/// @return As of `wb_symmetric_get`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_symmetric_atomic(
    memory: In<wb_symmetric_t>,
    offset: usize,
    dtype: u32,
    op: u32,
    value: In<c_void>,
    expected: In<c_void>,
    fetched: Out<c_void>,
    pe: u32,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| {
        let (memory, stream) = (share(memory)?, stream.optional()?);
        let atomic = Atomic { world: memory.world(), stream, op, pe: number(pe), value, expected, fetched };
        match dtype {
            WB_U32 => atomic.integer::<u32>(part(&memory, offset, 4)?),
            WB_I32 => atomic.integer::<i32>(part(&memory, offset, 4)?),
            WB_U64 => atomic.integer::<u64>(part(&memory, offset, 8)?),
            WB_I64 => atomic.integer::<i64>(part(&memory, offset, 8)?),
            WB_F32 => atomic.word::<f32>(part(&memory, offset, 4)?),
            WB_F64 => atomic.word::<f64>(part(&memory, offset, 8)?),
            other => Err(Error::argument(format!("`dtype` is {other}; atomic words have 32 or 64 bits"))),
        }
    })
}
