//! Programs whose result the memory model fixes.
//!
//! Calls are given in one order, each to a PE. Two calls conflict if they access the same bytes and one of them changes
//! the bytes. Conflicting calls of different PEs have a barrier between them, those of the same PE a quiet of each queue
//! pair, or a flush where the earlier call only puts the bytes. Changes by the same commutative atomic operation do not conflict.

use super::model::{Memory, Model};
use super::op::{Kind, NULL, OWN, Op, SIGNAL_SET};
use std::collections::BTreeSet;

/// Status words after the data of a private buffer.
pub const STATUS_WORDS: usize = 64;

/// A kind of access to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// An atomic operation without a result: its kind, and the number of bytes.
    Commute(Kind, usize),
}

/// Bytes of a part of the arena, or of a private buffer, and the access to them.
#[derive(Clone, Copy, Debug)]
struct Touch {
    me: usize,
    place: usize,
    from: usize,
    to: usize,
    access: Access,
    /// True for the source of a put.
    is_source: bool,
    /// Queue pair of the call, as of `Op`.
    queue: u64,
}

impl Touch {
    /// Returns true if the two accesses need an order.
    fn disturbs(&self, other: &Self) -> bool {
        let meet = self.place == other.place && self.from < other.to && other.from < self.to;
        meet && (self.access != other.access || self.access == Access::Write)
    }
}

pub struct Program {
    /// The calls of each PE.
    pub calls: Vec<Vec<Op>>,
    pub before: Vec<Memory>,
    pub model: Model,
    /// Accesses since the last barrier.
    touched: Vec<Touch>,
    /// Accesses since the last quiet of each PE.
    recent: Vec<Vec<Touch>>,
}

impl Program {
    /// Creates an empty program on `n` PEs with `arena` bytes in each heap, and as many in a private buffer, with
    /// contents from `fill`.
    pub fn new(n: usize, arena: usize, mut fill: impl FnMut() -> u8) -> Self {
        let mut memory = || {
            let mut own: Vec<u8> = (0..arena + 4 * STATUS_WORDS).map(|_| fill()).collect();
            for word in own[arena..].chunks_exact_mut(4) {
                let excluded = word[0].is_multiple_of(3);
                word.copy_from_slice(&i32::from(excluded).to_le_bytes());
            }
            Memory { arena: (0..arena).map(|_| fill()).collect(), own, answers: Vec::new() }
        };
        let before: Vec<Memory> = (0..n).map(|_| memory()).collect();
        Self {
            calls: vec![Vec::new(); n],
            model: Model { pes: before.clone() },
            before,
            touched: Vec::new(),
            recent: vec![Vec::new(); n],
        }
    }

    pub fn n_pes(&self) -> usize {
        self.calls.len()
    }

    /// Adds a call of PE `me`, and the synchronisation that it needs before.
    pub fn push(&mut self, me: usize, mut op: Op) {
        let touches = self.touches(me, &op);
        let meets = |earlier: &[Touch], others: bool| {
            earlier.iter().any(|e| (e.me != me) == others && touches.iter().any(|t| t.disturbs(e)))
        };
        if meets(&self.touched, true) {
            self.barrier();
        } else if meets(&self.recent[me], false) {
            let others: Vec<Touch> = self.recent[me].iter().copied().filter(|t| !t.is_source).collect();
            let (order, left) = if meets(&others, false) { (Kind::Quiet, Vec::new()) } else { (Kind::Flush, others) };
            let queues: BTreeSet<u64> = self.recent[me].iter().map(|t| t.queue).collect();
            self.calls[me].extend(queues.into_iter().map(|queue| Op { queue, ..Op::new(order) }));
            self.recent[me] = left;
        }
        let may_wait = op.kind().is_wait() || matches!(op.kind(), Kind::SignalWait | Kind::SignalWaitShadow);
        if may_wait && !self.model.ends(me, &op) {
            // No call would end the wait.
            op.kind = match op.kind() {
                Kind::SignalWait => Kind::SignalFetch,
                Kind::SignalWaitShadow => Kind::SignalTestShadow,
                k => k.as_test(),
            } as u32;
        }
        op.answer = self.before[me].answers.len() as u64;
        for memory in [&mut self.before[me], &mut self.model.pes[me]] {
            let words = memory.answers.len() + op.answers() as usize;
            memory.answers.resize(words, 0);
        }
        self.model.apply(me, &op);
        self.touched.extend(&touches);
        self.recent[me].extend(&touches);
        self.calls[me].push(op);
    }

    /// Adds a barrier of all PEs.
    pub fn barrier(&mut self) {
        self.calls.iter_mut().for_each(|c| c.push(Op::new(Kind::Barrier)));
        self.recent.iter_mut().for_each(Vec::clear);
        self.touched.clear();
    }

    /// Returns the accesses of a call, to which part of the arena or to which private buffer.
    fn touches(&self, me: usize, op: &Op) -> Vec<Touch> {
        let (pe, size, kind) = (op.pe as usize, op.ty().size(), op.kind());
        let at = |pe: usize, address: u64| match address & OWN {
            0 => (pe, address as usize),
            _ => (self.n_pes() + me, (address & !OWN) as usize),
        };
        let on = |pe: usize, address: u64, bytes: usize, access: Access| {
            let (place, from) = at(pe, address);
            Touch { me, place, from, to: from + bytes, access, is_source: false, queue: op.queue }
        };
        let n = op.n as usize;
        let span = |stride: i64| if n == 0 { 0 } else { ((n - 1) * stride as usize + 1) * size };
        let source = |bytes: usize| Touch { is_source: true, ..on(me, op.from, bytes, Access::Read) };
        let signal = |how: u32| {
            let access = if how == SIGNAL_SET { Access::Write } else { Access::Commute(Kind::Add, 8) };
            on(pe, op.sig, 8, access)
        };
        match kind {
            Kind::Put | Kind::PutNbi => {
                vec![source(n * size), on(pe, op.to, n * size, Access::Write)]
            }
            Kind::PutSignal | Kind::PutSignalNbi => {
                vec![source(n * size), on(pe, op.to, n * size, Access::Write), signal(op.how)]
            }
            Kind::Get | Kind::GetNbi => {
                vec![on(pe, op.from, n * size, Access::Read), on(me, op.to, n * size, Access::Write)]
            }
            Kind::Iput => vec![source(span(op.from_stride)), on(pe, op.to, span(op.to_stride), Access::Write)],
            Kind::Iget => vec![
                on(pe, op.from, span(op.from_stride), Access::Read),
                on(me, op.to, span(op.to_stride), Access::Write),
            ],
            Kind::P => vec![on(pe, op.to, size, Access::Write)],
            Kind::G => vec![on(pe, op.from, size, Access::Read)],
            Kind::Ptr => vec![on(pe, op.to, 1, Access::Read)],
            Kind::SignalOp => vec![signal(op.how)],
            Kind::SignalSet => vec![on(pe, op.sig, 8, Access::Write)],
            Kind::SignalAdd | Kind::SignalInc => vec![on(pe, op.sig, 8, Access::Commute(Kind::Add, 8))],
            Kind::SignalFetch | Kind::SignalWait | Kind::SignalWaitShadow | Kind::SignalTestShadow => {
                vec![on(me, op.sig, 8, Access::Read)]
            }
            Kind::Fetch => vec![on(pe, op.to, size, Access::Read)],
            Kind::Add | Kind::Inc => vec![on(pe, op.to, size, Access::Commute(Kind::Add, size))],
            Kind::And | Kind::Or | Kind::Xor => vec![on(pe, op.to, size, Access::Commute(kind, size))],
            k if k.is_atomic() => vec![on(pe, op.to, size, Access::Write)],
            k if k.is_wait() => {
                let n = if matches!(k, Kind::Wait | Kind::Test) { 1 } else { n };
                let mut all = vec![on(me, op.to, n * size, Access::Read)];
                if k.is_vector() {
                    all.push(on(me, op.from, n * size, Access::Read));
                }
                if op.status != NULL {
                    all.push(on(me, OWN | op.status, 4 * n, Access::Read));
                }
                all
            }
            _ => vec![],
        }
    }
}
