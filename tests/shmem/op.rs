//! One call of a world, as `shmem_calls.cu` reads it.

use bytemuck::{Pod, Zeroable};

/// Address that means no status words.
pub const NULL: u64 = u64::MAX;
/// Flag of an address in the private buffer instead of the heap.
pub const OWN: u64 = 1 << 63;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Op {
    pub kind: u32,
    pub ty: u32,
    pub scope: u32,
    pub pe: u32,
    pub to: u64,
    pub from: u64,
    pub n: u64,
    pub to_stride: i64,
    pub from_stride: i64,
    pub value: u64,
    pub expected: u64,
    pub sig: u64,
    pub status: u64,
    pub how: u32,
    pub thread: u32,
    pub answer: u64,
    /// Queue pair of the call + 1, or 0: that of the block.
    pub queue: u64,
}

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($v:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $name { $($v),* }
        impl $name {
            pub const ALL: &[Self] = &[$(Self::$v),*];
        }
    };
}

numbered! {
    /// `kind` of shmem_calls.cu.
    Kind {
        Put, PutNbi, Get, GetNbi, Iput, Iget, PutSignal, PutSignalNbi, P, G,
        SignalOp, SignalSet, SignalAdd, SignalInc, SignalFetch, SignalWait, SignalWaitShadow, SignalTestShadow,
        Fetch, Set, Swap, CompareSwap, Add, FetchAdd, Inc, FetchInc,
        And, Or, Xor, FetchAnd, FetchOr, FetchXor,
        Wait, WaitAll, WaitAny, WaitSome, WaitAllVector, WaitAnyVector, WaitSomeVector,
        Test, TestAll, TestAny, TestSome, TestAllVector, TestAnyVector, TestSomeVector,
        Fence, Quiet, Flush, Barrier, Sync, Ptr,
    }
}
numbered! {
    /// `type` of shmem_calls.cu.
    Type { I8, U8, I16, U16, I32, U32, I64, U64, F32, F64, Wide, Odd }
}
numbered! {
    /// `scope_of` of shmem_calls.cu; `None` is a call without a tag.
    Scope { Thread, Warp, Block, None }
}
numbered! {
    /// `cmp` of types.cuh.
    Cmp { Eq, Ne, Gt, Le, Lt, Ge }
}

/// `signal` of types.cuh.
pub const SIGNAL_SET: u32 = 9;
pub const SIGNAL_ADD: u32 = 10;

impl Type {
    pub fn of(number: u32) -> Self {
        Self::ALL[number as usize]
    }

    pub fn size(self) -> usize {
        [1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 16, 12][self as usize]
    }

    /// Returns the alignment of the type's addresses.
    pub fn align(self) -> usize {
        if self == Self::Odd { 4 } else { self.size() }
    }

    pub fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Returns the low bits of a value that the type has.
    pub fn narrow(self, value: u64) -> u64 {
        if self.size() >= 8 { value } else { value & ((1 << (8 * self.size())) - 1) }
    }

    /// Returns an integer's value.
    pub fn number(self, bits: u64) -> i128 {
        let bits = i128::from(self.narrow(bits));
        let top = 1i128 << (8 * self.size());
        if self.is_signed() && bits >= top / 2 { bits - top } else { bits }
    }
}

impl Cmp {
    pub fn of(number: u32) -> Self {
        Self::ALL[number as usize]
    }

    pub fn holds(self, a: i128, b: i128) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Gt => a > b,
            Self::Le => a <= b,
            Self::Lt => a < b,
            Self::Ge => a >= b,
        }
    }
}

impl Kind {
    pub fn of(number: u32) -> Self {
        Self::ALL[number as usize]
    }

    /// Returns true for calls that move a block of elements at a scope.
    pub fn is_block(self) -> bool {
        self <= Self::PutSignalNbi
    }
    /// Returns true for calls that change or read the word of another PE in one atomic step.
    pub fn is_atomic(self) -> bool {
        (Self::Fetch..=Self::FetchXor).contains(&self)
    }
    /// Returns true for calls that wait for words of their own PE, or look at them.
    pub fn is_wait(self) -> bool {
        (Self::Wait..=Self::TestSomeVector).contains(&self)
    }
    /// Returns true for calls that count signals of their own PE.
    pub fn counts(self) -> bool {
        matches!(self, Self::SignalWaitShadow | Self::SignalTestShadow)
    }
    /// Returns the kind that looks without waiting.
    pub fn as_test(self) -> Self {
        if (Self::Wait..=Self::WaitSomeVector).contains(&self) {
            Self::of(self as u32 + Self::Test as u32 - Self::Wait as u32)
        } else {
            self
        }
    }
    pub fn is_vector(self) -> bool {
        matches!(
            self,
            Self::WaitAllVector
                | Self::WaitAnyVector
                | Self::WaitSomeVector
                | Self::TestAllVector
                | Self::TestAnyVector
                | Self::TestSomeVector
        )
    }
}

impl Op {
    pub fn new(kind: Kind) -> Self {
        Self { kind: kind as u32, status: NULL, to_stride: 1, from_stride: 1, ..Self::zeroed() }
    }
    pub fn kind(&self) -> Kind {
        Kind::of(self.kind)
    }
    pub fn ty(&self) -> Type {
        Type::of(self.ty)
    }
    /// Returns the number of result words that the call needs.
    pub fn answers(&self) -> u64 {
        match self.kind() {
            k if k.is_wait() => 2 + self.n,
            Kind::SignalWaitShadow => 3,
            _ => 2,
        }
    }
}
