//! How a software NIC is set up.

use super::fault::{Fault, FaultPlan};
use crate::memory::Space;
use crate::processors;
use crate::spec::{self, Keyword, NUMBER, SpecError, TIME, flag, number, time, value};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

const OPTIONS: &[Keyword] = &[
    value("connect", TIME),
    value("fault", "ACTION or ACTION@SELECTOR, as in lose@every:100").repeated(),
    value("heartbeat", TIME),
    value("not-ready", TIME),
    flag("poison"),
    value("resend", TIME),
    value("retry", TIME),
    value("seed", NUMBER),
    value("silence", TIME),
    flag("sockets"),
    flag("tcp"),
    value("threads", NUMBER),
];

/// How long adapters wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// For a first connection, greeting and all.
    pub connect: Duration,
    /// Between two signs of life on a connection that says nothing else.
    pub heartbeat: Duration,
    /// A connection without any sign of life is cut after this, and made anew.
    pub silence: Duration,
    /// Requests fail with syndrome 0x15 when the peer has not been heard of for so long, reconnected to or not; queue pairs that ask for
    /// nothing too, so that their owners learn of it.
    pub retry: Duration,
    /// What is not answered over a connection that works is sent again after this, then after twice as long, and so on.
    pub resend: Duration,
    /// A message for which the peer has no receive posted fails with syndrome 0x16 after this.
    pub not_ready: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            heartbeat: Duration::from_millis(500),
            silence: Duration::from_secs(4),
            retry: Duration::from_secs(10),
            resend: Duration::from_secs(1),
            not_ready: Duration::from_secs(1),
        }
    }
}

/// A key that all adapters of a world share. It prints as nothing but its name.
#[derive(Clone, Copy)]
pub(super) struct Key(pub(super) [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// What a software NIC is made of. Start with [`SoftNicConfig::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SoftNicConfig {
    pub(super) key: Key,
    /// Service threads. Queue pairs and connections are dealt out to them.
    pub threads: usize,
    /// Adapters of this host that share its processors, this one included. Where there are not enough for all, nobody spins.
    pub sharers: usize,
    /// Where to listen for other hosts; an address of "any" listens on all interfaces. `None`: only this host reaches it.
    pub listen: Option<IpAddr>,
    /// Addresses to tell other hosts; empty: the one that is listened on, or those of all interfaces.
    pub advertise: Vec<IpAddr>,
    /// Whether other processes of this host reach it through a Unix socket. Without, they go over TCP too.
    pub unix: bool,
    /// Whether queue pairs of one process reach each other directly. Without, they go over a socket like others.
    pub direct: bool,
    /// Whose kernels' GPU memory is registered.
    pub space: Space,
    /// How long to wait.
    pub timeouts: Timeouts,
    /// What goes wrong on purpose.
    pub faults: FaultPlan,
    /// Overwrites the blocks of entries as they are read, so that one that is rung for before it is written is noticed.
    pub poison: bool,
}

impl SoftNicConfig {
    /// One thread, this host only, no faults.
    pub fn new(key: [u8; 32]) -> Self {
        Self {
            key: Key(key),
            threads: 1,
            sharers: 1,
            listen: None,
            advertise: Vec::new(),
            unix: true,
            direct: true,
            space: Space::cpu(),
            timeouts: Timeouts::default(),
            faults: FaultPlan::default(),
            poison: false,
        }
    }

    /// Takes options as text: `threads=2,poison,retry=3s,seed=7,fault=lose@every:100`. What is not named stays as it is.
    ///
    /// | key | meaning |
    /// |---|---|
    /// | `threads=N` | service threads |
    /// | `tcp` | processes of one host go over TCP too (needs an address to listen on) |
    /// | `sockets` | queue pairs of one process go over a socket too |
    /// | `poison` | blocks are overwritten as they are read |
    /// | `connect`, `heartbeat`, `silence`, `retry`, `resend`, `not-ready` `=TIME` | [`Timeouts`] |
    /// | `fault=...`, `seed=N` | [`FaultPlan`] |
    ///
    /// Keys and values are those of a device specification ([`DeviceSpec`](crate::spec::DeviceSpec)); spaces around options do not count.
    ///
    /// # Errors
    /// [`SpecError::UnknownOption`], or [`SpecError::BadOption`] for a value that is missing, too many, or none of those that there are.
    pub fn options(mut self, text: &str) -> Result<Self, SpecError> {
        let fields =
            spec::fields(text.as_bytes()).into_iter().map(|f| f.trim_ascii().to_vec()).filter(|f| !f.is_empty());
        for option in spec::read_all(fields, OPTIONS)? {
            match option.key() {
                "threads" => self.threads = option.read(number)?,
                "seed" => self.faults.seed = option.read(number)?,
                "fault" => self.faults.faults.push(option.read_or(Fault::from_str)?),
                "connect" => self.timeouts.connect = option.read(time)?,
                "heartbeat" => self.timeouts.heartbeat = option.read(time)?,
                "silence" => self.timeouts.silence = option.read(time)?,
                "retry" => self.timeouts.retry = option.read(time)?,
                "resend" => self.timeouts.resend = option.read(time)?,
                "not-ready" => self.timeouts.not_ready = option.read(time)?,
                "tcp" => self.unix = false,
                "sockets" => self.direct = false,
                _ => self.poison = true,
            }
        }
        Ok(self)
    }

    /// The first rule that it breaks, as a sentence.
    pub(super) fn complaint(&self) -> Option<String> {
        const MOST_THREADS: usize = 256;
        let t = &self.timeouts;
        let times = [t.connect, t.heartbeat, t.silence, t.retry, t.resend, t.not_ready];
        if !(1..=MOST_THREADS).contains(&self.threads) {
            return Some(format!("{} service threads: choose 1 to {MOST_THREADS}", self.threads));
        }
        if let Err(e) = processors::checked() {
            return Some(e.to_string());
        }
        if times.iter().any(|d| d.is_zero() || *d > Duration::from_secs(86_400)) {
            return Some("a timeout is zero or longer than a day".to_owned());
        }
        if t.silence < 2 * t.heartbeat {
            return Some(format!(
                "connections would be cut after {:?} of silence, with signs of life every {:?}: make it twice as long at least",
                t.silence, t.heartbeat
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let c = SoftNicConfig::new([1; 32]);
        let c = c.options("threads=2, poison,retry=3s,seed=7,fault=lose@every:100,fault=cut,sockets,tcp").unwrap();
        assert_eq!((c.threads, c.poison, c.direct, c.unix), (2, true, false, false));
        assert_eq!((c.timeouts.retry, c.faults.seed, c.faults.faults.len()), (Duration::from_secs(3), 7, 2));
        assert_eq!(c.complaint(), None);
        assert!(!format!("{c:?}").contains("[1"), "the key is not shown");
        for (text, word) in [
            ("speed=9", "there is no option `speed`; there are connect=, fault=, "),
            ("threads", "`threads`: it needs a value: a whole number"),
            ("threads=many", "`threads=many`: expected a whole number"),
            ("retry=soon", "`retry=soon`: expected a time such as"),
            ("retry=1s, retry=2s", "`retry` was given before"),
            ("poison=1", "`poison=1`: it takes no value"),
            ("fault=explode", "`fault=explode`: `explode` is no fault: use syndrome"),
        ] {
            let e = SoftNicConfig::new([0; 32]).options(text).unwrap_err().to_string();
            assert!(e.contains(word), "{text}: {e}");
        }
        let bad = |text: &str| SoftNicConfig::new([0; 32]).options(text).unwrap().complaint().unwrap();
        assert!(bad("threads=0").contains("threads"));
        assert!(bad("silence=1ms").contains("silence"));
        assert!(bad("retry=0s").contains("zero"));
    }
}
