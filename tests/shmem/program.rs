//! Programs whose result the memory model fixes.
//!
//! Calls are given in one order, each to a PE. Where two of them touch the same bytes and one of them changes them, a barrier comes between if they
//! are of different PEs, a quiet if they are of the same. Changes by the same commutative atomic operation need none.

use super::model::{Memory, Model};
use super::op::{Kind, NULL, OWN, Op, SIGNAL_SET};

/// Bytes of the arena in each heap, and of data in a private buffer.
pub const ARENA: usize = 2048;
/// Status words behind the data of a private buffer.
pub const STATUS_WORDS: usize = 64;
pub const OWN_BYTES: usize = ARENA + 4 * STATUS_WORDS;

/// What is done to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    /// An atomic operation without an answer: which, and of how many bytes.
    Commute(Kind, usize),
}

/// What has been done to a byte since the last barrier: by which PEs.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    read: u32,
    written: u32,
    /// And by which commutative operation, if it was no other.
    by: Option<(Kind, usize)>,
}

pub struct Program {
    /// The calls of each PE.
    pub calls: Vec<Vec<Op>>,
    pub before: Vec<Memory>,
    pub model: Model,
    /// The parts of the arena, then those of the private buffers.
    touched: Vec<Vec<Touched>>,
    /// Since the last quiet of each PE.
    recent: Vec<Vec<Vec<Touched>>>,
}

impl Program {
    /// An empty program on `n` PEs with bytes that `fill` gives.
    pub fn new(n: usize, stride: u64, mut fill: impl FnMut() -> u8) -> Self {
        let mut memory = || {
            let mut own: Vec<u8> = (0..OWN_BYTES).map(|_| fill()).collect();
            for word in own[ARENA..].chunks_exact_mut(4) {
                let excluded = word[0] % 3 == 0;
                word.copy_from_slice(&i32::from(excluded).to_le_bytes());
            }
            Memory { arena: (0..ARENA).map(|_| fill()).collect(), own, answers: Vec::new() }
        };
        let before: Vec<Memory> = (0..n).map(|_| memory()).collect();
        let untouched = vec![vec![Touched::default(); OWN_BYTES]; 2 * n];
        Self {
            calls: vec![Vec::new(); n],
            model: Model { pes: before.clone(), stride },
            before,
            recent: vec![untouched.clone(); n],
            touched: untouched,
        }
    }

    pub fn n_pes(&self) -> usize {
        self.calls.len()
    }

    /// Adds a call of PE `me`, and what must come before it.
    pub fn push(&mut self, me: usize, mut op: Op) {
        let accesses = self.accesses(me, &op);
        if accesses.iter().any(|a| self.conflicts(me, *a)) {
            self.barrier();
        } else if accesses.iter().any(|a| self.repeats(me, *a)) {
            self.calls[me].push(Op::new(Kind::Quiet));
            self.recent[me].iter_mut().for_each(|m| m.fill(Touched::default()));
        }
        if (op.kind().is_wait() || op.kind() == Kind::SignalWait) && !self.model.ends(me, &op) {
            // Nobody would end it.
            op.kind = match op.kind() {
                Kind::SignalWait => Kind::SignalFetch,
                k => k.as_test(),
            } as u32;
        }
        op.answer = self.before[me].answers.len() as u64;
        for memory in [&mut self.before[me], &mut self.model.pes[me]] {
            let words = memory.answers.len() + op.answers() as usize;
            memory.answers.resize(words, 0);
        }
        self.model.apply(me, &op);
        for (place, from, bytes, access) in accesses {
            for map in [&mut self.touched, &mut self.recent[me]] {
                for byte in &mut map[place][from..from + bytes] {
                    match access {
                        Access::Read => byte.read |= 1 << me,
                        Access::Write => (byte.written, byte.by) = (byte.written | 1 << me, None),
                        Access::Commute(kind, size) => {
                            byte.by = (byte.written == 0 || byte.by.is_some()).then_some((kind, size));
                            byte.written |= 1 << me;
                        }
                    }
                }
            }
        }
        self.calls[me].push(op);
    }

    /// All PEs meet.
    pub fn barrier(&mut self) {
        for pe in 0..self.n_pes() {
            self.calls[pe].push(Op::new(Kind::Barrier));
            self.recent[pe].iter_mut().for_each(|m| m.fill(Touched::default()));
        }
        self.touched.iter_mut().for_each(|m| m.fill(Touched::default()));
    }

    /// Whether an access and one of another PE need a barrier between them.
    fn conflicts(&self, me: usize, (place, from, bytes, access): (usize, usize, usize, Access)) -> bool {
        let others = !(1u32 << me);
        self.touched[place][from..from + bytes].iter().any(|b| match access {
            Access::Read => b.written & others != 0,
            Access::Write => (b.written | b.read) & others != 0,
            Access::Commute(kind, size) => {
                b.read & others != 0 || (b.written & others != 0 && b.by != Some((kind, size)))
            }
        })
    }

    /// Whether an access and an earlier one of the same PE need a quiet between them.
    fn repeats(&self, me: usize, (place, from, bytes, access): (usize, usize, usize, Access)) -> bool {
        self.recent[me][place][from..from + bytes].iter().any(|b| match access {
            Access::Read => b.written != 0,
            Access::Write => (b.written | b.read) != 0,
            Access::Commute(kind, size) => b.read != 0 || (b.written != 0 && b.by != Some((kind, size))),
        })
    }

    /// What a call does: to which part of the arena (or private buffer), from which byte, how many bytes.
    fn accesses(&self, me: usize, op: &Op) -> Vec<(usize, usize, usize, Access)> {
        let (pe, size, kind) = (op.pe as usize, op.ty().size(), op.kind());
        let at = |pe: usize, address: u64| match address & OWN {
            0 => (pe, address as usize),
            _ => (self.n_pes() + me, (address & !OWN) as usize),
        };
        let on = |pe: usize, address: u64, bytes: usize, access: Access| {
            let (place, from) = at(pe, address);
            (place, from, bytes, access)
        };
        let n = op.n as usize;
        let span = |stride: i64| if n == 0 { 0 } else { ((n - 1) * stride as usize + 1) * size };
        let signal = |how: u32| {
            let access = if how == SIGNAL_SET { Access::Write } else { Access::Commute(Kind::Add, 8) };
            on(pe, op.sig, 8, access)
        };
        match kind {
            Kind::Put | Kind::PutNbi => {
                vec![on(me, op.from, n * size, Access::Read), on(pe, op.to, n * size, Access::Write)]
            }
            Kind::PutSignal | Kind::PutSignalNbi => {
                vec![on(me, op.from, n * size, Access::Read), on(pe, op.to, n * size, Access::Write), signal(op.how)]
            }
            Kind::Get | Kind::GetNbi => {
                vec![on(pe, op.from, n * size, Access::Read), on(me, op.to, n * size, Access::Write)]
            }
            Kind::Iput => vec![
                on(me, op.from, span(op.from_stride), Access::Read),
                on(pe, op.to, span(op.to_stride), Access::Write),
            ],
            Kind::Iget => vec![
                on(pe, op.from, span(op.from_stride), Access::Read),
                on(me, op.to, span(op.to_stride), Access::Write),
            ],
            Kind::P => vec![on(pe, op.to, size, Access::Write)],
            Kind::G => vec![on(pe, op.from, size, Access::Read)],
            Kind::SignalOp => vec![signal(op.how)],
            Kind::SignalSet => vec![on(pe, op.sig, 8, Access::Write)],
            Kind::SignalAdd => vec![on(pe, op.sig, 8, Access::Commute(Kind::Add, 8))],
            Kind::SignalFetch | Kind::SignalWait => vec![on(me, op.sig, 8, Access::Read)],
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
