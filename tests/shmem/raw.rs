//! Calls from plain numbers, as a property test generates them: any numbers make a valid call.

use super::op::{Cmp, Kind, OWN, Op, SIGNAL_ADD, SIGNAL_SET, Scope, Type};
use super::program::STATUS_WORDS;

/// Words for signals at the end of the arena, so that no data is put over the signal of the same call.
const SIGNALS: usize = 8;
/// Maximum number of elements of one call.
const MOST: usize = 90;
/// Maximum number of words that a wait looks at.
const WORDS: usize = 12;

/// Numbers from which a call is made.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    pub me: u8,
    pub kind: u8,
    pub ty: u8,
    pub scope: u8,
    pub pe: u8,
    pub to: u32,
    pub from: u32,
    pub n: u8,
    pub strides: u8,
    pub value: u64,
    pub how: u8,
    pub thread: u8,
}

/// Limits of a place.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub pes: usize,
    /// Bytes of the arena.
    pub arena: usize,
    pub threads: u32,
    /// True if blocks of elements work at every scope with every type: see `blocks_of_type` of shmem_calls.cu.
    pub all_types: bool,
}

impl Raw {
    /// Returns the PE that makes the call, and the call.
    pub fn call(&self, limits: Limits) -> (usize, Op) {
        let me = usize::from(self.me) % limits.pes;
        let pe = usize::from(self.pe) % limits.pes;
        // All but fence, quiet, barrier and sync, which the program adds.
        let kinds = Kind::Fence as u32 + 1;
        let kind = match u32::from(self.kind) % kinds {
            k if k == Kind::Fence as u32 => Kind::Ptr,
            k => Kind::of(k),
        };
        let ty = self.type_for(kind);
        let mut op = Op { pe: pe as u32, value: self.value, expected: self.value >> 1, ..Op::new(kind) };
        (op.ty, op.scope) = (ty as u32, u32::from(self.scope % 4));
        op.thread = u32::from(self.thread) % limits.threads;
        op.queue = u64::from(self.thread) / 7 % 4;
        if !limits.all_types && kind.is_block() {
            if matches!(kind, Kind::Iput | Kind::Iget) {
                op.ty = Type::U32 as u32;
            } else if ty != Type::U32 {
                op.scope = Scope::Block as u32;
            }
        }
        op.sig = (limits.arena - 8 * SIGNALS + 8 * (usize::from(self.how) % SIGNALS)) as u64;
        op.how = if kind.is_wait() || kind == Kind::SignalWait {
            u32::from(self.how) % Cmp::ALL.len() as u32
        } else if self.how & 1 == 0 {
            SIGNAL_SET
        } else {
            SIGNAL_ADD
        };
        if kind.counts() {
            op.value >>= 1;
        }
        self.place(&mut op, limits.arena, me == pe);
        (me, op)
    }

    fn type_for(&self, kind: Kind) -> Type {
        let pick = |types: &[Type]| types[usize::from(self.ty) % types.len()];
        match kind {
            k if k.is_wait() => pick(&Type::ALL[..8]),
            Kind::Fetch | Kind::Set | Kind::Swap => pick(&Type::ALL[4..10]),
            k if k.is_atomic() => pick(&Type::ALL[4..8]),
            Kind::Iput | Kind::Iget | Kind::P | Kind::G => pick(&Type::ALL[..11]),
            _ => pick(Type::ALL),
        }
    }

    /// Sets addresses, counts and strides that fit.
    fn place(&self, op: &mut Op, arena: usize, alone: bool) {
        let (kind, ty) = (op.kind(), op.ty());
        let (size, align) = (ty.size(), ty.align());
        let data = arena - 8 * SIGNALS;
        let most = if kind.is_wait() { WORDS } else { MOST };
        let mut n = usize::from(self.n) % (most + 1);
        if matches!(kind, Kind::Iput | Kind::Iget) {
            (op.to_stride, op.from_stride) = (i64::from(self.strides % 5) + 1, i64::from(self.strides / 5 % 4) + 1);
        }
        let widest = op.to_stride.max(op.from_stride) as usize;
        if !kind.is_block() && !kind.is_wait() {
            n = 1;
        }
        n = n.min(data / 2 / size / widest);
        let span = n.max(1) * size * widest;
        let within = |at: u32| (at as usize % (data - span + 1) / align * align) as u64;
        (op.n, op.to, op.from) = (n as u64, within(self.to), within(self.from));
        // The local end may be in a private buffer. It must be there if the other end would overlap it.
        let own = alone || self.strides & 0x80 != 0;
        match kind {
            Kind::Put | Kind::PutNbi | Kind::PutSignal | Kind::PutSignalNbi | Kind::Iput if own => op.from |= OWN,
            Kind::Get | Kind::GetNbi | Kind::Iget if own => op.to |= OWN,
            k if k.is_wait() => {
                if self.strides & 1 != 0 {
                    op.status = (arena + 4 * (self.from as usize % (STATUS_WORDS - WORDS))) as u64;
                }
                op.from |= OWN;
            }
            _ => {}
        }
    }
}
