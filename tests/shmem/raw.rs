//! Calls out of plain numbers, as a property test draws them: any numbers make a call that is allowed.

use super::op::{Cmp, Kind, NULL, OWN, Op, SIGNAL_ADD, SIGNAL_SET, Scope, Type};
use super::program::{ARENA, STATUS_WORDS};

/// Words for signals at the end of the arena, so that no data is put over the signal of the same call.
const SIGNALS: usize = 8;
const DATA: usize = ARENA - 8 * SIGNALS;
/// Elements of one call at most.
const MOST: usize = 90;
/// Words that a wait looks at, at most.
const WORDS: usize = 12;

/// What a call is made of.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    pub me: u8,
    pub kind: u8,
    pub ty: u8,
    pub scope: u8,
    pub pe: u8,
    pub to: u16,
    pub from: u16,
    pub n: u8,
    pub strides: u8,
    pub value: u64,
    pub how: u8,
    pub thread: u8,
}

/// What a place can do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub pes: usize,
    pub threads: u32,
    /// Blocks of elements at every scope with every type: see `blocks_of_type` of shmem_calls.cu.
    pub all_types: bool,
}

impl Raw {
    /// The PE that makes the call, and the call.
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
        if !limits.all_types && kind.is_block() {
            if matches!(kind, Kind::Iput | Kind::Iget) {
                op.ty = Type::U32 as u32;
            } else if ty != Type::U32 {
                op.scope = Scope::Block as u32;
            }
        }
        op.sig = (DATA + 8 * (usize::from(self.how) % SIGNALS)) as u64;
        op.how = if kind.is_wait() || kind == Kind::SignalWait {
            u32::from(self.how) % Cmp::ALL.len() as u32
        } else if self.how & 1 == 0 {
            SIGNAL_SET
        } else {
            SIGNAL_ADD
        };
        self.place(&mut op, me, pe);
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

    /// Addresses, counts and distances that fit.
    fn place(&self, op: &mut Op, me: usize, pe: usize) {
        let (kind, ty) = (op.kind(), op.ty());
        let (size, align) = (ty.size(), ty.align());
        let most = if kind.is_wait() { WORDS } else { MOST };
        let mut n = usize::from(self.n) % (most + 1);
        if matches!(kind, Kind::Iput | Kind::Iget) {
            (op.to_stride, op.from_stride) = (i64::from(self.strides % 5) + 1, i64::from(self.strides / 5 % 4) + 1);
        }
        let widest = op.to_stride.max(op.from_stride) as usize;
        if !kind.is_block() && !kind.is_wait() {
            n = 1;
        }
        n = n.min(DATA / 2 / size / widest);
        let span = n.max(1) * size * widest;
        let within = |at: u16, bytes: usize| (usize::from(at) % (bytes - span + 1) / align * align) as u64;
        (op.n, op.to, op.from) = (n as u64, within(self.to, DATA), within(self.from, DATA));
        match kind {
            // The local end may be in a private buffer, and has to be where the other end would overlap it.
            Kind::Put | Kind::PutNbi | Kind::PutSignal | Kind::PutSignalNbi | Kind::Iput => {
                if me == pe || self.strides & 0x80 != 0 {
                    op.from |= OWN;
                }
            }
            Kind::Get | Kind::GetNbi | Kind::Iget => {
                if me == pe || self.strides & 0x80 != 0 {
                    op.to |= OWN;
                }
            }
            k if k.is_wait() => {
                if self.strides & 1 != 0 {
                    op.status = (ARENA + 4 * (usize::from(self.from) % (STATUS_WORDS - WORDS))) as u64;
                }
                op.from |= OWN;
            }
            _ => {}
        }
    }
}
