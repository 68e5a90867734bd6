//! Fault injection: which work requests are hit, and with which fault. The same plan and the same requests give the
//! same faults.

use crate::spec::time;
use crate::wire::mlx5::{Failure, Opcode, Syndrome, VendorSyndrome};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// The request is not carried out. It fails with this syndrome and vendor syndrome.
    Syndrome(Syndrome, VendorSyndrome),
    /// The request fails with syndrome 0x13. This many flush completions follow in addition to those of later requests.
    Storm(u32),
    /// The request is carried out, but its completion is lost.
    Lose,
    /// The completion is delayed, by a time evenly distributed between the two.
    Delay(Duration, Duration),
    /// A frame to the peer is lost once. The adapter sends it again after
    /// [`Timeouts::resend`](super::Timeouts::resend).
    Drop,
    /// The peer's response is lost once. The command is sent again, and must not be carried out again.
    DropAnswer,
    /// One bit of a frame to the peer is flipped once, on the wire. The peer's check finds the error, and the frame
    /// counts as lost.
    Flip,
    /// One bit of the next frame from the peer is flipped once, on the wire.
    FlipAnswer,
    /// The connection to the peer is cut.
    Cut,
    /// The adapter stops: it processes no request and sends no response.
    Die,
}

/// Selects the requests that a fault hits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Selector {
    /// Only requests of this queue pair. Queue pairs are numbered from 0 in the order of creation.
    pub queue: Option<u32>,
    /// Only requests with this opcode.
    pub opcode: Option<Opcode>,
    /// Choice among the requests that match, counted separately for each queue pair.
    pub which: Which,
}

/// Choice among the requests that match a selector's queue and opcode, counted separately for each queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Which {
    /// All requests.
    #[default]
    All,
    /// This request only, counted from 1.
    Nth(u64),
    /// Each `n`th request.
    Every(u64),
    /// This percentage of requests, 0 to 100, chosen at random.
    Percent(f64),
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// Effect of the fault.
    pub action: Action,
    /// Requests that it hits.
    pub selector: Selector,
}

/// Plan of injected faults. The default has none. As text: any number of `fault=ACTION[@SELECTOR[+SELECTOR...]]`, and
/// `seed=N`.
///
/// | action | |
/// |---|---|
/// | `syndrome:0x13[/0x88]` | the request fails with this syndrome and vendor syndrome |
/// | `storm:N` | the request fails with 0x13, and N more flush completions follow |
/// | `lose` | the completion is lost |
/// | `delay:TIME[-TIME]` | the completion is late |
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
    /// Seed of all random choices.
    pub seed: u64,
    /// The faults. If several hit one request, all take effect: the first failure counts, and delays add up.
    pub faults: Vec<Fault>,
}

/// Actions that take no value.
const PLAIN: [(&str, Action); 7] = [
    ("lose", Action::Lose),
    ("drop", Action::Drop),
    ("drop-answer", Action::DropAnswer),
    ("flip", Action::Flip),
    ("flip-answer", Action::FlipAnswer),
    ("cut", Action::Cut),
    ("die", Action::Die),
];

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

/// Error of reading a fault from a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FaultError {
    /// There is no such action.
    #[error(
        "`{action}` is not a fault: use syndrome, storm, lose, delay, drop, drop-answer, flip, flip-answer, cut or die"
    )]
    UnknownAction {
        /// The action as written.
        action: String,
    },
    /// There is no such selector, or it has no value.
    #[error("`{selector}` is not a selector: use {known}")]
    UnknownSelector {
        /// The selector as written.
        selector: String,
        /// The form of a selector, or the names of the selectors.
        known: &'static str,
    },
    /// There is no such operation.
    #[error("`{operation}` is not an operation")]
    UnknownOperation {
        /// The operation as written.
        operation: String,
    },
    /// The action needs a value and has none.
    #[error("`{action}` needs a value, as in `{action}:...`")]
    NoValue {
        /// The action.
        action: String,
    },
    /// The action has a value and takes none.
    #[error("`{action}` takes no value")]
    NeedlessValue {
        /// The action.
        action: String,
    },
    /// The value of an action or a selector is invalid.
    #[error("`{value}`: {rule}")]
    BadValue {
        /// The value as written.
        value: String,
        /// The rule that it violates.
        rule: &'static str,
    },
}

/// Returns the error for a value that violates `rule`.
fn bad(value: &str, rule: &'static str) -> FaultError {
    FaultError::BadValue { value: value.to_owned(), rule }
}

/// Parses a number that fits `T`, decimal or with `0x`. Fails with `rule` if it does not fit.
fn number<T: TryFrom<u64>>(text: &str, rule: &'static str) -> Result<T, FaultError> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    let number = parsed.map_err(|_| bad(text, "it is not a number"))?;
    number.try_into().map_err(|_| bad(text, rule))
}

fn byte(text: &str) -> Result<u8, FaultError> {
    number(text, "write a number from 0 to 255")
}

fn positive(text: &str) -> Result<u64, FaultError> {
    const RULE: &str = "write a number of at least 1";
    number(text, RULE).and_then(|n| if n == 0 { Err(bad(text, RULE)) } else { Ok(n) })
}

impl FromStr for Action {
    type Err = FaultError;
    fn from_str(text: &str) -> Result<Self, FaultError> {
        let (name, value) = text.split_once(':').map_or((text, None), |(n, v)| (n, Some(v)));
        let action = || name.to_owned();
        let needed = || value.ok_or_else(|| FaultError::NoValue { action: action() });
        let plain = match name {
            "syndrome" => {
                let (s, v) = needed()?.split_once('/').map_or((needed()?, "0"), |both| both);
                return Ok(Self::Syndrome(Syndrome(byte(s)?), VendorSyndrome(byte(v)?)));
            }
            "storm" => return number(needed()?, "the number is too large").map(Self::Storm),
            "delay" => {
                let (from, to) = needed()?.split_once('-').map_or((needed()?, needed()?), |both| both);
                let time = |t: &str| time(t).ok_or_else(|| bad(t, "it is not a time, such as 20us, 5ms or 1s"));
                let (from, to) = (time(from)?, time(to)?);
                if to < from {
                    return Err(bad(text, "the second time must not be shorter than the first"));
                }
                return Ok(Self::Delay(from, to));
            }
            _ => {
                PLAIN.iter().find(|(n, _)| *n == name).ok_or_else(|| FaultError::UnknownAction { action: action() })?.1
            }
        };
        if value.is_some() { Err(FaultError::NeedlessValue { action: action() }) } else { Ok(plain) }
    }
}

impl FromStr for Fault {
    type Err = FaultError;
    fn from_str(text: &str) -> Result<Self, FaultError> {
        let (action, rest) = text.split_once('@').map_or((text, None), |(a, r)| (a, Some(r)));
        let mut selector = Selector::default();
        for part in rest.into_iter().flat_map(|r| r.split('+')) {
            let unknown = |selector: &str, known| FaultError::UnknownSelector { selector: selector.to_owned(), known };
            let (name, value) = part.split_once(':').ok_or_else(|| unknown(part, "NAME:VALUE"))?;
            match name {
                "nth" => selector.which = Which::Nth(positive(value)?),
                "every" => selector.which = Which::Every(positive(value)?),
                "percent" => {
                    let percent: f64 = value.parse().map_err(|_| bad(value, "it is not a number"))?;
                    if !(0.0..=100.0).contains(&percent) {
                        return Err(bad(value, "it is not between 0 and 100"));
                    }
                    selector.which = Which::Percent(percent);
                }
                "queue" => selector.queue = Some(number(value, "there is no such queue")?),
                "op" => {
                    let found = OPCODES.iter().find(|(n, _)| *n == value);
                    let unknown = || FaultError::UnknownOperation { operation: value.to_owned() };
                    selector.opcode = Some(found.ok_or_else(unknown)?.1);
                }
                _ => return Err(unknown(name, "nth, every, percent, queue or op")),
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
            Action::Delay(a, b) if a == b => write!(f, "delay:{}", Time(a))?,
            Action::Delay(a, b) => write!(f, "delay:{}-{}", Time(a), Time(b))?,
            plain => f.write_str(PLAIN.iter().find(|(_, a)| *a == plain).map_or("", |(name, _)| name))?,
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

/// Prints a time in whole nanoseconds, so that reading it returns the same time.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0.as_nanos())
    }
}

/// Prints the plan as `SoftNicConfig::options` reads it, each part with a comma before it.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            write!(f, ",fault={fault}")?;
        }
        if self.seed != 0 { write!(f, ",seed={}", self.seed) } else { Ok(()) }
    }
}

/// Faults that the plan has for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FaultAction {
    pub(super) failure: Option<Failure>,
    pub(super) storm: u32,
    pub(super) lose: bool,
    pub(super) delay: Duration,
    pub(super) drop: bool,
    pub(super) drop_answer: bool,
    /// Random number that selects the bit to flip, modulo the bits of the frame.
    pub(super) flip: Option<u64>,
    pub(super) flip_answer: Option<u64>,
    pub(super) cut: bool,
    pub(super) die: bool,
}

/// The plan's state for one queue pair.
#[derive(Debug)]
pub(super) struct QueueFaults {
    random: SmallRng,
    /// For each fault, the number of requests so far that its queue and opcode selected.
    seen: Vec<u64>,
    ordinal: u32,
}

impl QueueFaults {
    pub(super) fn new(plan: &FaultPlan, ordinal: u32) -> Self {
        let seed = plan.seed ^ u64::from(ordinal).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { random: SmallRng::seed_from_u64(seed), seen: vec![0; plan.faults.len()], ordinal }
    }

    /// Counts a request with this opcode, and returns the faults that hit it.
    pub(super) fn look(&mut self, plan: &FaultPlan, opcode: u8) -> FaultAction {
        let mut action = FaultAction::default();
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
                Action::Syndrome(s, v) => action.failure = Some(action.failure.unwrap_or(Failure::new(s, v))),
                Action::Storm(n) => {
                    let access = Failure::new(Syndrome::REMOTE_ACCESS, VendorSyndrome::REMOTE_ACCESS);
                    action.failure = Some(action.failure.unwrap_or(access));
                    action.storm = n;
                }
                Action::Lose => action.lose = true,
                Action::Delay(from, to) => {
                    action.delay += from + to.saturating_sub(from).mul_f64(self.random.random::<f64>());
                }
                Action::Drop => action.drop = true,
                Action::DropAnswer => action.drop_answer = true,
                Action::Flip => action.flip = Some(self.random.random()),
                Action::FlipAnswer => action.flip_answer = Some(self.random.random()),
                Action::Cut => action.cut = true,
                Action::Die => action.die = true,
            }
        }
        action
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
            ("explode", "not a fault"),
            ("lose:3", "no value"),
            ("syndrome", "needs a value"),
            ("syndrome:0x100", "0 to 255"),
            ("delay:2ms-1ms", "shorter"),
            ("cut@often", "not a selector"),
            ("cut@nth:0", "at least 1"),
            ("cut@op:fly", "not an operation"),
            ("cut@percent:101", "between"),
        ] {
            let e = text.parse::<Fault>().unwrap_err().to_string();
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
