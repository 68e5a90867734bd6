//! Atomic operations: their operands, and their effect on the target word.

use super::Opcode;

/// An atomic operation with its operands, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// 64-bit add.
    FetchAdd {
        /// Addend.
        add: u64,
    },
    /// 64-bit compare and swap.
    CompareSwap {
        /// The value to swap in.
        swap: u64,
        /// The value to compare with.
        compare: u64,
    },
    /// 32-bit add in bit fields that do not carry into each other.
    MaskedAdd32 {
        /// Addend.
        add: u32,
        /// Most significant bit of each field. No carry leaves it.
        boundary: u32,
    },
    /// 64-bit add in bit fields that do not carry into each other.
    MaskedAdd64 {
        /// Addend.
        add: u64,
        /// Most significant bit of each field. No carry leaves it.
        boundary: u64,
    },
    /// 32-bit compare and swap under masks.
    MaskedSwap32 {
        /// The value to swap in.
        swap: u32,
        /// The value to compare with.
        compare: u32,
        /// Bits that are swapped.
        swap_mask: u32,
        /// Bits that are compared.
        compare_mask: u32,
    },
    /// 64-bit compare and swap under masks.
    MaskedSwap64 {
        /// The value to swap in.
        swap: u64,
        /// The value to compare with.
        compare: u64,
        /// Bits that are swapped.
        swap_mask: u64,
        /// Bits that are compared.
        compare_mask: u64,
    },
}

/// Opcode modifier of extended atomics on 4 bytes.
pub(super) const OPMOD_32: u8 = 0x08;
/// Opcode modifier of extended atomics on 8 bytes.
pub(super) const OPMOD_64: u8 = 0x09;

impl Atomic {
    /// Returns the opcode.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::FetchAdd { .. } => Opcode::AtomicFa,
            Self::CompareSwap { .. } => Opcode::AtomicCs,
            Self::MaskedAdd32 { .. } | Self::MaskedAdd64 { .. } => Opcode::MaskedFa,
            Self::MaskedSwap32 { .. } | Self::MaskedSwap64 { .. } => Opcode::MaskedCs,
        }
    }
    /// Returns the opcode modifier.
    pub const fn opmod(&self) -> u8 {
        match self {
            Self::FetchAdd { .. } | Self::CompareSwap { .. } => 0,
            Self::MaskedAdd32 { .. } | Self::MaskedSwap32 { .. } => OPMOD_32,
            Self::MaskedAdd64 { .. } | Self::MaskedSwap64 { .. } => OPMOD_64,
        }
    }
    /// Returns the size of the target word in bytes. The word's address is a multiple of it.
    pub const fn operand_bytes(&self) -> u32 {
        match self {
            Self::MaskedAdd32 { .. } | Self::MaskedSwap32 { .. } => 4,
            _ => 8,
        }
    }
    /// Returns the new value of the target word. A 32-bit operation uses only the low half of `old`.
    pub const fn apply(&self, old: u64) -> u64 {
        match *self {
            Self::FetchAdd { add } => old.wrapping_add(add),
            Self::CompareSwap { swap, compare } => {
                if old == compare {
                    swap
                } else {
                    old
                }
            }
            Self::MaskedAdd32 { add, boundary } => {
                add_fields(old as u32 as u64, add as u64, boundary as u64) as u32 as u64
            }
            Self::MaskedAdd64 { add, boundary } => add_fields(old, add, boundary),
            Self::MaskedSwap32 { swap, compare, swap_mask, compare_mask } => {
                swap_bits(old as u32 as u64, swap as u64, compare as u64, swap_mask as u64, compare_mask as u64)
            }
            Self::MaskedSwap64 { swap, compare, swap_mask, compare_mask } => {
                swap_bits(old, swap, compare, swap_mask, compare_mask)
            }
        }
    }
    /// Returns the bytes that land in local memory: the old value in the first [`Atomic::operand_bytes`] bytes. An
    /// extended 32-bit operation's result is big-endian. 8-byte results have the byte order of the responder's memory,
    /// here the host's.
    pub const fn landing(&self, old: u64) -> [u8; 8] {
        match self {
            Self::MaskedAdd32 { .. } | Self::MaskedSwap32 { .. } => {
                let b = (old as u32).to_be_bytes();
                [b[0], b[1], b[2], b[3], 0, 0, 0, 0]
            }
            _ => old.to_ne_bytes(),
        }
    }
}

/// Adds without carries out of the bits of `boundary`. Those bits are added separately by exclusive or.
const fn add_fields(a: u64, b: u64, boundary: u64) -> u64 {
    (a & !boundary).wrapping_add(b & !boundary) ^ ((a ^ b) & boundary)
}

const fn swap_bits(old: u64, swap: u64, compare: u64, swap_mask: u64, compare_mask: u64) -> u64 {
    if (compare ^ old) & compare_mask == 0 { old & !swap_mask | swap & swap_mask } else { old }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computes the definition, bit by bit.
    fn add_bit_by_bit(a: u64, b: u64, boundary: u64, bits: u32) -> u64 {
        let (mut sum, mut carry) = (0, 0);
        for i in 0..bits {
            let s = (a >> i & 1) + (b >> i & 1) + carry;
            sum |= (s & 1) << i;
            carry = if boundary >> i & 1 != 0 { 0 } else { s >> 1 };
        }
        sum
    }

    #[test]
    fn fields_do_not_carry_into_each_other() {
        // Two 16-bit counters in a 32-bit word.
        let add = Atomic::MaskedAdd32 { add: 0x0001_0001, boundary: 0x8000_8000 };
        assert_eq!(add.apply(0x0007_ffff), 0x0008_0000);
        assert_eq!((add.opmod(), add.operand_bytes(), add.opcode()), (8, 4, Opcode::MaskedFa));
    }

    #[test]
    fn landing_bytes_have_the_order_of_their_operation() {
        assert_eq!(Atomic::MaskedAdd32 { add: 1, boundary: 0 }.landing(0x0102_0304), [1, 2, 3, 4, 0, 0, 0, 0]);
        assert_eq!(Atomic::FetchAdd { add: 1 }.landing(7), 7u64.to_ne_bytes());
    }

    proptest! {
        #[test]
        fn masked_add_is_its_definition(a: u64, b: u64, boundary: u64) {
            let add = Atomic::MaskedAdd64 { add: b, boundary };
            prop_assert_eq!(add.apply(a), add_bit_by_bit(a, b, boundary, 64));
            let add = Atomic::MaskedAdd32 { add: b as u32, boundary: boundary as u32 };
            prop_assert_eq!(add.apply(a), add_bit_by_bit(a, b & 0xffff_ffff, boundary, 32));
        }

        #[test]
        fn masks_make_every_operation_of_openshmem(v: u64, old: u64) {
            let swap = |swap_mask, compare, compare_mask| Atomic::MaskedSwap64 { swap: v, compare, swap_mask, compare_mask };
            prop_assert_eq!(swap(!0, 0, 0).apply(old), v);
            prop_assert_eq!(swap(!v, 0, 0).apply(old), old & v);
            prop_assert_eq!(swap(v, 0, 0).apply(old), old | v);
            prop_assert_eq!(swap(!0, old, !0).apply(old), v);
            prop_assert_eq!(swap(!0, !old, !0).apply(old), old);
            prop_assert_eq!(Atomic::MaskedAdd64 { add: v, boundary: !0 }.apply(old), old ^ v);
            prop_assert_eq!(Atomic::MaskedAdd64 { add: v, boundary: 0 }.apply(old), Atomic::FetchAdd { add: v }.apply(old));
            let (low, old32) = (v as u32, old as u32);
            let and = Atomic::MaskedSwap32 { swap: low, compare: 0, swap_mask: !low, compare_mask: 0 };
            prop_assert_eq!(and.apply(old), u64::from(old32 & low));
            prop_assert_eq!(Atomic::CompareSwap { swap: v, compare: old }.apply(old), v);
        }
    }
}
