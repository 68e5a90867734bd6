//! Streams of bits, and the instantaneous codes of the numbers in them.
//!
//! Each code has a number of one bit at least, and no read goes beyond the end, so that reading ends for any bytes.

use super::fault::Fault;
use std::marker::PhantomData;

/// Code of natural numbers.
///
/// Elias, "Universal codeword sets and representations of the integers", 1975 (unary, γ, δ, ω); Boldi and Vigna, "Codes
/// for the World Wide Web", 2005 (ζ); Apostolico and Drovandi, "Graph compression by BFS", 2009 (π).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Unary,
    Gamma,
    Delta,
    Omega,
    /// With the shrinking factor, from 1 to 7.
    Zeta(u32),
    /// With the width of the Rice code of the length, from 1 to 4.
    Pi(u32),
}

/// Order of the bits in a byte.
pub(super) trait BitOrder: Send + Sync + 'static {
    /// Makes a word of 8 bytes, whose front is the first bit.
    fn word(bytes: [u8; 8]) -> u64;
    /// Removes fewer than 64 bits from the front.
    fn skip(word: u64, bits: u32) -> u64;
    /// Returns the number of zeros at the front.
    fn zeros(word: u64) -> u32;
    /// Returns the number that fewer than 64 bits at the front make.
    fn take(word: u64, bits: u32) -> u64;
    /// Joins two numbers, the first of `bits.0` and the second of `bits.1` bits, that follow each other.
    fn join(first: u64, second: u64, bits: (u32, u32)) -> u64;
    /// Sets bit `length` of a number that begins with a set bit and has `length` other bits behind that, as ω has them.
    fn marked(number: u64, length: u32) -> u64;
}

/// The first bit is the highest of a byte, as Java's WebGraph writes them.
pub(super) struct Big;
/// The first bit is the lowest of a byte.
pub(super) struct Little;

impl BitOrder for Big {
    fn word(bytes: [u8; 8]) -> u64 {
        u64::from_be_bytes(bytes)
    }
    fn skip(word: u64, bits: u32) -> u64 {
        word << bits
    }
    fn zeros(word: u64) -> u32 {
        word.leading_zeros()
    }
    fn take(word: u64, bits: u32) -> u64 {
        // Two shifts, as one by 64 is none.
        word >> (63 - bits) >> 1
    }
    fn join(first: u64, second: u64, (_, bits): (u32, u32)) -> u64 {
        first << bits | second
    }
    fn marked(number: u64, _: u32) -> u64 {
        number
    }
}

impl BitOrder for Little {
    fn word(bytes: [u8; 8]) -> u64 {
        u64::from_le_bytes(bytes)
    }
    fn skip(word: u64, bits: u32) -> u64 {
        word >> bits
    }
    fn zeros(word: u64) -> u32 {
        word.trailing_zeros()
    }
    fn take(word: u64, bits: u32) -> u64 {
        word & ((1 << bits) - 1)
    }
    fn join(first: u64, second: u64, (bits, _): (u32, u32)) -> u64 {
        second << bits | first
    }
    fn marked(number: u64, length: u32) -> u64 {
        number >> 1 | 1 << length
    }
}

/// Bits of a word that [`Bits::front`] always has, whatever the place of the first in its byte.
const SURE: u32 = 57;

/// A place in a stream of bits.
pub(super) struct Bits<'a, O> {
    bytes: &'a [u8],
    at: u64,
    order: PhantomData<O>,
}

impl<'a, O: BitOrder> Bits<'a, O> {
    /// Begins at bit `at`, counted from 0.
    pub(super) fn new(bytes: &'a [u8], at: u64) -> Self {
        Self { bytes, at, order: PhantomData }
    }

    /// Returns the number of the next bit.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Goes to a bit that was read before.
    pub(super) fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// Returns at least [`SURE`] bits without moving; behind the end they are zeros.
    #[inline]
    fn front(&self) -> u64 {
        let rest = self.bytes.get((self.at / 8) as usize..).unwrap_or_default();
        let bytes = match rest.first_chunk() {
            Some(bytes) => *bytes,
            None => std::array::from_fn(|i| rest.get(i).copied().unwrap_or(0)),
        };
        O::skip(O::word(bytes), (self.at % 8) as u32)
    }

    #[inline]
    fn advance(&mut self, bits: u32) -> Result<(), Fault> {
        self.at += u64::from(bits);
        if self.at <= 8 * self.bytes.len() as u64 { Ok(()) } else { Err(Fault::Cut) }
    }

    /// Reads a number of at most 64 bits.
    #[inline]
    fn binary(&mut self, bits: u32) -> Result<u64, Fault> {
        if bits > SURE {
            let (first, second) = (self.binary(32)?, self.binary(bits - 32)?);
            return Ok(O::join(first, second, (32, bits - 32)));
        }
        let number = O::take(self.front(), bits);
        self.advance(bits)?;
        Ok(number)
    }

    #[inline]
    fn unary(&mut self) -> Result<u64, Fault> {
        let mut zeros = 0;
        loop {
            let more = O::zeros(self.front());
            if more < SURE {
                self.advance(more + 1)?;
                return Ok(zeros + u64::from(more));
            }
            self.advance(SURE)?;
            zeros += u64::from(SURE);
        }
    }

    /// Reads the number of the `length` bits behind its highest one, which is not written.
    #[inline]
    fn behind_highest(&mut self, length: u64) -> Result<u64, Fault> {
        match u32::try_from(length) {
            Ok(length) if length < 64 => Ok((1 << length) - 1 + self.binary(length)?),
            _ => Err(Fault::Large),
        }
    }

    #[inline]
    fn gamma(&mut self) -> Result<u64, Fault> {
        let front = self.front();
        let length = O::zeros(front);
        if 2 * length < SURE {
            let number = O::take(O::skip(front, length + 1), length);
            self.advance(2 * length + 1)?;
            return Ok((1 << length) - 1 + number);
        }
        let length = self.unary()?;
        self.behind_highest(length)
    }

    #[inline]
    fn zeta(&mut self, k: u32) -> Result<u64, Fault> {
        let row = self.unary()?;
        // Rows that end above 2^63 have no vertices and no gaps.
        if row >= u64::from(63 / k) {
            return Err(Fault::Large);
        }
        let (first, bits) = (1 << (row as u32 * k), (row as u32 + 1) * k - 1);
        // Minimal binary code of 2^bits * 2 - first numbers: the first of them have a bit less.
        let number = self.binary(bits)?;
        let number = if number < first { number } else { (number << 1 | self.binary(1)?) - first };
        Ok(first - 1 + number)
    }

    fn omega(&mut self) -> Result<u64, Fault> {
        let mut number: u64 = 1;
        loop {
            if O::take(self.front(), 1) == 0 {
                self.advance(1)?;
                return Ok(number - 1);
            }
            match u32::try_from(number) {
                Ok(length) if length < 63 => number = O::marked(self.binary(length + 1)?, length),
                _ => return Err(Fault::Large),
            }
        }
    }

    fn pi(&mut self, k: u32) -> Result<u64, Fault> {
        let high = self.unary()?;
        let length = high << k | self.binary(k)?;
        self.behind_highest(length)
    }

    /// Reads a number.
    #[inline]
    pub(super) fn read(&mut self, code: Code) -> Result<u64, Fault> {
        match code {
            Code::Gamma => self.gamma(),
            Code::Zeta(k) => self.zeta(k),
            Code::Unary => self.unary(),
            Code::Delta => {
                let length = self.gamma()?;
                self.behind_highest(length)
            }
            Code::Omega => self.omega(),
            Code::Pi(k) => self.pi(k),
        }
    }

    /// Reads an integer. Even numbers stand for those from 0 up, odd ones for those from -1 down.
    #[inline]
    pub(super) fn read_integer(&mut self, code: Code) -> Result<i64, Fault> {
        let number = self.read(code)?;
        let half = (number >> 1) as i64;
        Ok(if number & 1 == 0 { half } else { -half - 1 })
    }
}
