//! Faults on purpose: which work requests are hit, and by what. The same plan and the same requests give the same faults.

use crate::spec::time;
use crate::wire::mlx5::{Failure, Opcode, Syndrome, VendorSyndrome};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The request is not carried out and fails with this.
    Syndrome(Syndrome, VendorSyndrome),
    /// The same with syndrome 0x13, and so many more flush completions than requests are behind it.
    Storm(u32),
    /// It is carried out, and its completion never comes.
    Lose,
    /// It completes so much later, evenly spread between the two.
    Delay(Duration, Duration),
    /// What goes to the peer is lost once; it is sent again after a while.
    Drop,
    /// What the peer answers is lost once: it must not be carried out again when it is sent again.
    DropAnswer,
    /// One bit of a frame to the peer is flipped on the wire once: the peer's check finds it, and the frame counts as lost.
    Flip,
    /// One bit of the next frame from the peer is flipped once.
    FlipAnswer,
    /// The connection to the peer is cut.
    Cut,
    /// The adapter stops: it serves nobody and answers nobody.
    Die,
}

/// Which requests are hit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Selector {
    /// Of this queue pair, counted from 0 in the order of creation.
    pub queue: Option<u32>,
    /// With this opcode.
    pub opcode: Option<Opcode>,
    /// Of those, in each queue pair: which.
    pub which: Which,
}

/// Which of the requests that queue and opcode select, counted in each queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Which {
    /// All.
    #[default]
    All,
    /// This one, counted from one.
    Nth(u64),
    /// Each `n`th.
    Every(u64),
    /// So many of a hundred, by chance.
    Percent(f64),
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// What.
    pub action: Action,
    /// Where.
    pub selector: Selector,
}

/// What goes wrong. The default is nothing. As text: `fault=ACTION[@SELECTOR[+SELECTOR...]]`, as often as wanted, and `seed=N`.
///
/// | action | |
/// |---|---|
/// | `syndrome:0x13[/0x88]` | the request fails with this, and vendor syndrome |
/// | `storm:N` | it fails with 0x13, and N more flush completions follow |
/// | `lose` | its completion is lost |
/// | `delay:TIME[-TIME]` | its completion is late |
/// | `drop`, `drop-answer` | a frame to or from the peer is lost once |
/// | `flip`, `flip-answer` | one bit of a frame to or from the peer is flipped on the wire |
/// | `cut` | the connection is cut |
/// | `die` | the adapter stops for good |
///
/// Selectors are `nth:N`, `every:N`, `percent:P`, `queue:N` and `op:NAME` with `write`, `write-imm`, `read`, `send`, `send-imm`, `add`,
/// `swap`, `masked-add`, `masked-swap`, `nop`, `dump`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FaultPlan {
    /// Seed of everything random.
    pub seed: u64,
    /// The faults; the first that hits a request counts, and delays add to it.
    pub faults: Vec<Fault>,
}

const OPCODES: &[(&str, Opcode)] = &[
    ("write", Opcode::Write),
    ("write-imm", Opcode::WriteImm),
    ("read", Opcode::Read),
    ("send", Opcode::Send),
    ("send-imm", Opcode::SendImm),
    ("add", Opcode::AtomicFa),
    ("swap", Opcode::AtomicCs),
    ("masked-add", Opcode::MaskedFa),
    ("masked-swap", Opcode::MaskedCs),
    ("nop", Opcode::Nop),
    ("dump", Opcode::Dump),
];

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("`{text}` is not a number"))
}

fn byte(text: &str) -> Result<u8, String> {
    let n = number(text)?;
    n.try_into().map_err(|_| format!("{n} is not one byte"))
}

fn positive(text: &str) -> Result<u64, String> {
    match number(text)? {
        0 => Err(format!("`{text}`: counting begins at 1")),
        n => Ok(n),
    }
}

impl FromStr for Action {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').map_or((text, None), |(n, v)| (n, Some(v)));
        let needs = || value.ok_or_else(|| format!("`{name}` needs a value, as in `{name}:...`"));
        let action = match name {
            "syndrome" => {
                let (s, v) = needs()?.split_once('/').map_or((needs()?, "0"), |both| both);
                return Ok(Self::Syndrome(Syndrome(byte(s)?), VendorSyndrome(byte(v)?)));
            }
            "storm" => {
                return number(needs()?)?.try_into().map(Self::Storm).map_err(|_| "too large a storm".to_owned());
            }
            "delay" => {
                let (from, to) = needs()?.split_once('-').map_or((needs()?, needs()?), |both| both);
                let time = |t: &str| time(t).ok_or_else(|| format!("`{t}` is not a time, such as 20us, 5ms or 1s"));
                let (from, to) = (time(from)?, time(to)?);
                if to < from {
                    return Err(format!("`{text}`: the second time is the longer one"));
                }
                return Ok(Self::Delay(from, to));
            }
            "lose" => Self::Lose,
            "drop" => Self::Drop,
            "drop-answer" => Self::DropAnswer,
            "flip" => Self::Flip,
            "flip-answer" => Self::FlipAnswer,
            "cut" => Self::Cut,
            "die" => Self::Die,
            _ => {
                return Err(format!(
                    "`{name}` is no fault: use syndrome, storm, lose, delay, drop, drop-answer, flip, flip-answer, cut or die"
                ));
            }
        };
        if value.is_some() { Err(format!("`{name}` takes no value")) } else { Ok(action) }
    }
}

impl FromStr for Fault {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (action, rest) = text.split_once('@').map_or((text, None), |(a, r)| (a, Some(r)));
        let mut selector = Selector::default();
        for part in rest.into_iter().flat_map(|r| r.split('+')) {
            let (name, value) =
                part.split_once(':').ok_or_else(|| format!("`{part}` selects nothing: use NAME:VALUE"))?;
            match name {
                "nth" => selector.which = Which::Nth(positive(value)?),
                "every" => selector.which = Which::Every(positive(value)?),
                "percent" => {
                    let percent: f64 = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
                    if !(0.0..=100.0).contains(&percent) {
                        return Err(format!("{value} is not between 0 and 100"));
                    }
                    selector.which = Which::Percent(percent);
                }
                "queue" => {
                    let n = number(value)?;
                    selector.queue = Some(n.try_into().map_err(|_| format!("there is no queue {n}"))?);
                }
                "op" => {
                    let found = OPCODES.iter().find(|(n, _)| *n == value);
                    selector.opcode = Some(found.ok_or_else(|| format!("`{value}` is no operation"))?.1);
                }
                _ => return Err(format!("`{name}` selects nothing: use nth, every, percent, queue or op")),
            }
        }
        Ok(Self { action: action.parse()?, selector })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Action::Syndrome(s, VendorSyndrome(0)) => write!(f, "syndrome:{:#04x}", s.0)?,
            Action::Syndrome(s, v) => write!(f, "syndrome:{:#04x}/{:#04x}", s.0, v.0)?,
            Action::Storm(n) => write!(f, "storm:{n}")?,
            Action::Lose => f.write_str("lose")?,
            Action::Delay(a, b) if a == b => write!(f, "delay:{}", Time(a))?,
            Action::Delay(a, b) => write!(f, "delay:{}-{}", Time(a), Time(b))?,
            Action::Drop => f.write_str("drop")?,
            Action::DropAnswer => f.write_str("drop-answer")?,
            Action::Flip => f.write_str("flip")?,
            Action::FlipAnswer => f.write_str("flip-answer")?,
            Action::Cut => f.write_str("cut")?,
            Action::Die => f.write_str("die")?,
        }
        let mut sign = '@';
        let mut part =
            |f: &mut fmt::Formatter<'_>, text: String| write!(f, "{}{text}", std::mem::replace(&mut sign, '+'));
        match self.selector.which {
            Which::All => {}
            Which::Nth(n) => part(f, format!("nth:{n}"))?,
            Which::Every(n) => part(f, format!("every:{n}"))?,
            Which::Percent(p) => part(f, format!("percent:{p}"))?,
        }
        if let Some(q) = self.selector.queue {
            part(f, format!("queue:{q}"))?;
        }
        if let Some(o) = self.selector.opcode {
            let name = OPCODES.iter().find(|(_, code)| *code == o).map_or(o.name(), |(n, _)| n);
            part(f, format!("op:{name}"))?;
        }
        Ok(())
    }
}

/// A time as whole nanoseconds, so that it is read back as it was.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0.as_nanos())
    }
}

/// Writes the plan as it is read, each part with a comma before it.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            write!(f, ",fault={fault}")?;
        }
        if self.seed != 0 { write!(f, ",seed={}", self.seed) } else { Ok(()) }
    }
}

/// What the plan has for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) failure: Option<Failure>,
    pub(super) storm: u32,
    pub(super) lose: bool,
    pub(super) delay: Duration,
    pub(super) drop: bool,
    pub(super) drop_answer: bool,
    /// The bits that are flipped, counted from any point: modulo those of the frame.
    pub(super) flip: Option<u64>,
    pub(super) flip_answer: Option<u64>,
    pub(super) cut: bool,
    pub(super) die: bool,
}

/// The plan's state for one queue pair.
#[derive(Debug)]
pub(super) struct QueueFaults {
    random: SmallRng,
    /// Requests that each fault's queue and opcode selected.
    seen: Vec<u64>,
    ordinal: u32,
}

impl QueueFaults {
    pub(super) fn new(plan: &FaultPlan, ordinal: u32) -> Self {
        let seed = plan.seed ^ u64::from(ordinal).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { random: SmallRng::seed_from_u64(seed), seen: vec![0; plan.faults.len()], ordinal }
    }

    /// Looks at a request.
    pub(super) fn look(&mut self, plan: &FaultPlan, opcode: u8) -> Verdict {
        let mut verdict = Verdict::default();
        for (fault, seen) in plan.faults.iter().zip(&mut self.seen) {
            let Selector { queue, opcode: wanted, which } = fault.selector;
            if queue.is_some_and(|q| q != self.ordinal) || wanted.is_some_and(|o| o.code() != opcode) {
                continue;
            }
            *seen += 1;
            let hit = match which {
                Which::All => true,
                Which::Nth(n) => *seen == n,
                Which::Every(n) => seen.is_multiple_of(n.max(1)),
                Which::Percent(p) => self.random.random::<f64>() * 100.0 < p,
            };
            if !hit {
                continue;
            }
            match fault.action {
                Action::Syndrome(s, v) => verdict.failure = Some(verdict.failure.unwrap_or(Failure::new(s, v))),
                Action::Storm(n) => {
                    let access = Failure::new(Syndrome::REMOTE_ACCESS, VendorSyndrome::REMOTE_ACCESS);
                    verdict.failure = Some(verdict.failure.unwrap_or(access));
                    verdict.storm = n;
                }
                Action::Lose => verdict.lose = true,
                Action::Delay(from, to) => {
                    verdict.delay += from + to.saturating_sub(from).mul_f64(self.random.random::<f64>());
                }
                Action::Drop => verdict.drop = true,
                Action::DropAnswer => verdict.drop_answer = true,
                Action::Flip => verdict.flip = Some(self.random.random()),
                Action::FlipAnswer => verdict.flip_answer = Some(self.random.random()),
                Action::Cut => verdict.cut = true,
                Action::Die => verdict.die = true,
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_and_written() {
        for text in [
            "syndrome:0x13/0x88@nth:5+op:write",
            "syndrome:0x04",
            "storm:12@every:3",
            "lose@percent:2.5",
            "delay:20000ns@queue:1",
            "delay:1000ns-2000ns",
            "drop@nth:1",
            "drop-answer@op:add",
            "flip@every:3",
            "flip-answer@nth:2+op:read",
            "cut@every:100+queue:0+op:masked-swap",
            "die",
        ] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        for (text, word) in [
            ("explode", "no fault"),
            ("lose:3", "no value"),
            ("syndrome", "needs a value"),
            ("syndrome:0x100", "one byte"),
            ("delay:2ms-1ms", "longer"),
            ("cut@often", "selects nothing"),
            ("cut@nth:0", "begins at 1"),
            ("cut@op:fly", "no operation"),
            ("cut@percent:101", "between"),
        ] {
            let e = text.parse::<Fault>().unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
    }

    #[test]
    fn the_same_plan_hits_the_same_requests() {
        let faults = ["lose@percent:30", "syndrome:0x12@nth:3+op:read", "delay:1ms-9ms@every:2"];
        let plan = FaultPlan { seed: 5, faults: faults.iter().map(|f| f.parse().unwrap()).collect() };
        let run = || {
            let mut q = QueueFaults::new(&plan, 1);
            (0..200).map(|i| q.look(&plan, if i % 2 == 0 { 0x10 } else { 0x08 })).collect::<Vec<_>>()
        };
        let all = run();
        assert_eq!(all, run());
        let failed: Vec<_> = (0..200).filter(|i| all[*i].failure.is_some()).collect();
        assert_eq!(failed, [4], "the third read");
        let lost = all.iter().filter(|v| v.lose).count();
        assert!((20..100).contains(&lost), "{lost}");
        assert!((1..200).step_by(2).all(|i| all[i].delay >= Duration::from_millis(1)));
        assert_eq!(all[0].delay, Duration::ZERO);
    }
}
