//! A model of every call, one call after the other, on plain memory.

use super::op::{Cmp, Kind, NULL, OWN, Op, SIGNAL_ADD, SIGNAL_SET, Type};

/// Memory of each PE: its part of the arena, its private buffer, the results of its calls.
#[derive(Clone, Debug)]
pub struct Memory {
    pub arena: Vec<u8>,
    pub own: Vec<u8>,
    pub answers: Vec<u64>,
}

pub struct Model {
    pub pes: Vec<Memory>,
}

impl Model {
    fn bytes(&mut self, pe: usize, me: usize, at: u64) -> &mut [u8] {
        if at & OWN != 0 {
            &mut self.pes[me].own[(at & !OWN) as usize..]
        } else {
            &mut self.pes[pe].arena[at as usize..]
        }
    }

    /// Returns the element at an address, as up to 64 bits.
    fn load(&mut self, pe: usize, me: usize, at: u64, ty: Type) -> u64 {
        let mut word = [0; 8];
        let size = ty.size().min(8);
        word[..size].copy_from_slice(&self.bytes(pe, me, at)[..size]);
        u64::from_le_bytes(word)
    }

    fn store(&mut self, pe: usize, me: usize, at: u64, ty: Type, value: u64) {
        let size = ty.size();
        let mut element = [0; 16];
        element[..8].copy_from_slice(&value.to_le_bytes());
        element[8..].copy_from_slice(&(!value).to_le_bytes());
        self.bytes(pe, me, at)[..size].copy_from_slice(&element[..size]);
    }

    fn answer(&mut self, me: usize, op: &Op, index: u64, value: u64) {
        self.pes[me].answers[(op.answer + index) as usize] = value;
    }

    fn signal(&mut self, me: usize, op: &Op, how: u32) {
        let pe = op.pe as usize;
        let old = self.load(pe, me, op.sig, Type::U64);
        let new = if how == SIGNAL_SET { op.value } else { old.wrapping_add(op.value) };
        self.store(pe, me, op.sig, Type::U64, new);
    }

    /// Returns the indices of the words that a wait looks at, and of those that compare true.
    pub fn look(&mut self, me: usize, op: &Op) -> (Vec<u64>, Vec<u64>) {
        let (ty, size) = (op.ty(), op.ty().size() as u64);
        let alone = matches!(op.kind(), Kind::Wait | Kind::Test);
        let n = if alone { 1 } else { op.n };
        let (mut all, mut found) = (Vec::new(), Vec::new());
        for i in 0..n {
            if !alone && op.status != NULL && self.load(me, me, OWN | (op.status + 4 * i), Type::I32) != 0 {
                continue;
            }
            all.push(i);
            let value = if op.kind().is_vector() { self.load(me, me, op.from + i * size, ty) } else { op.value };
            let word = self.load(me, me, op.to + i * size, ty);
            if Cmp::of(op.how).holds(ty.number(word), ty.number(value)) {
                found.push(i);
            }
        }
        (all, found)
    }

    /// Returns the number of signals that have arrived and that the shadow does not count.
    fn beyond(&mut self, me: usize, op: &Op) -> i64 {
        self.load(me, me, op.sig, Type::U64).wrapping_sub(op.expected) as i64
    }

    /// Returns true if a wait would end now.
    pub fn ends(&mut self, me: usize, op: &Op) -> bool {
        if op.kind() == Kind::SignalWait {
            let word = self.load(me, me, op.sig, Type::U64);
            return Cmp::of(op.how).holds(word.into(), op.value.into());
        }
        if op.kind().counts() {
            return self.beyond(me, op) >= op.value as i64;
        }
        let (all, found) = self.look(me, op);
        match op.kind().as_test() {
            Kind::Test | Kind::TestAll | Kind::TestAllVector => all == found,
            _ => all.is_empty() || !found.is_empty(),
        }
    }

    fn wait(&mut self, me: usize, op: &Op) {
        let (all, found) = self.look(me, op);
        let says = match op.kind() {
            Kind::Wait | Kind::WaitAll | Kind::WaitAllVector => 0,
            Kind::Test | Kind::TestAll | Kind::TestAllVector => (all == found).into(),
            Kind::WaitAny | Kind::WaitAnyVector | Kind::TestAny | Kind::TestAnyVector => {
                found.first().copied().unwrap_or(u64::MAX)
            }
            _ => {
                for (k, i) in found.iter().enumerate() {
                    self.answer(me, op, 2 + k as u64, *i);
                }
                found.len() as u64
            }
        };
        self.answer(me, op, 0, 0);
        self.answer(me, op, 1, says);
    }

    /// Executes one call of PE `me`.
    pub fn apply(&mut self, me: usize, op: &Op) {
        let (pe, ty, kind) = (op.pe as usize, op.ty(), op.kind());
        let size = ty.size();
        match kind {
            Kind::Put | Kind::PutNbi | Kind::PutSignal | Kind::PutSignalNbi => {
                let bytes = op.n as usize * size;
                let data = self.bytes(me, me, op.from)[..bytes].to_vec();
                self.bytes(pe, me, op.to)[..bytes].copy_from_slice(&data);
                if matches!(kind, Kind::PutSignal | Kind::PutSignalNbi) {
                    self.signal(me, op, op.how);
                }
            }
            Kind::Get | Kind::GetNbi => {
                let bytes = op.n as usize * size;
                let data = self.bytes(pe, me, op.from)[..bytes].to_vec();
                self.bytes(me, me, op.to)[..bytes].copy_from_slice(&data);
            }
            Kind::Iput | Kind::Iget => {
                let (to_pe, from_pe) = if kind == Kind::Iput { (pe, me) } else { (me, pe) };
                for i in 0..op.n {
                    let from = op.from + i * op.from_stride as u64 * size as u64;
                    let to = op.to + i * op.to_stride as u64 * size as u64;
                    let data = self.bytes(from_pe, me, from)[..size].to_vec();
                    self.bytes(to_pe, me, to)[..size].copy_from_slice(&data);
                }
            }
            Kind::P => self.store(pe, me, op.to, ty, op.value),
            Kind::G => {
                let data = self.bytes(pe, me, op.from)[..size].to_vec();
                for (i, word) in data.chunks(8).enumerate() {
                    let mut bytes = [0; 8];
                    bytes[..word.len()].copy_from_slice(word);
                    self.answer(me, op, i as u64, u64::from_le_bytes(bytes));
                }
            }
            Kind::SignalOp => self.signal(me, op, op.how),
            Kind::SignalSet => self.signal(me, op, SIGNAL_SET),
            Kind::SignalAdd => self.signal(me, op, SIGNAL_ADD),
            Kind::SignalInc => self.signal(me, &Op { value: 1, ..*op }, SIGNAL_ADD),
            Kind::SignalFetch => {
                let value = self.load(me, me, op.sig, Type::U64);
                self.answer(me, op, 0, value);
            }
            Kind::SignalWait => {
                let value = self.load(me, me, op.sig, Type::U64);
                self.answer(me, op, 0, 0);
                self.answer(me, op, 1, value);
            }
            Kind::SignalWaitShadow => {
                let beyond = self.beyond(me, op);
                self.answer(me, op, 0, 0);
                self.answer(me, op, 1, op.expected.wrapping_add(op.value));
                self.answer(me, op, 2, beyond as u64);
            }
            Kind::SignalTestShadow => {
                let ends = self.ends(me, op);
                self.answer(me, op, 0, ends.into());
                self.answer(me, op, 1, op.expected.wrapping_add(if ends { op.value } else { 0 }));
            }
            k if k.is_atomic() => self.atomic(me, op),
            k if k.is_wait() => self.wait(me, op),
            // A load through the pointer.
            Kind::Ptr => {
                let byte = self.load(pe, me, op.to, Type::U8);
                self.answer(me, op, 0, byte);
            }
            _ => {}
        }
    }

    fn atomic(&mut self, me: usize, op: &Op) {
        let (pe, ty) = (op.pe as usize, op.ty());
        let old = self.load(pe, me, op.to, ty);
        let value = op.value;
        let new = match op.kind() {
            Kind::Fetch => old,
            Kind::Set | Kind::Swap => value,
            Kind::CompareSwap if old == ty.narrow(op.expected) => value,
            Kind::CompareSwap => old,
            Kind::Add | Kind::FetchAdd => old.wrapping_add(value),
            Kind::Inc | Kind::FetchInc => old.wrapping_add(1),
            Kind::And | Kind::FetchAnd => old & value,
            Kind::Or | Kind::FetchOr => old | value,
            _ => old ^ value,
        };
        self.store(pe, me, op.to, ty, new);
        if !matches!(op.kind(), Kind::Set | Kind::Add | Kind::Inc | Kind::And | Kind::Or | Kind::Xor) {
            self.answer(me, op, 0, old);
        }
    }
}
