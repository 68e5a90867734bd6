//! Configuration of a software NIC.

use super::fault::{Fault, FaultPlan};
use crate::handshake::Protection;
use crate::memory::Space;
use crate::processors;
use crate::spec::{self, Keyword, NUMBER, SpecError, TIME, flag, number, time, value};
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

const OPTIONS: &[Keyword] = &[
    value("connect", TIME),
    value("encrypt", "auto, on or off"),
    value("fault", "ACTION or ACTION@SELECTOR, as in lose@every:100").repeated(),
    value("heartbeat", TIME),
    value("not-ready", TIME),
    flag("poison"),
    value("ports", "a port, or the first and last of several, as in 20800-20899"),
    value("resend", TIME),
    value("retry", TIME),
    value("seed", NUMBER),
    value("silence", TIME),
    flag("sockets"),
    flag("tcp"),
    value("threads", NUMBER),
];

/// Time limits and intervals of an adapter's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// Limit for the first connection to a peer, including the handshake.
    pub connect: Duration,
    /// Interval between heartbeats on a connection that carries nothing else.
    pub heartbeat: Duration,
    /// A connection without any sign of life for this long is cut. The adapter then connects again.
    pub silence: Duration,
    /// Requests fail with syndrome 0x15 if nothing was received from the peer for this long, whether or not the adapter
    /// has reconnected. Queue pairs without requests fail too, so that their owners learn of the loss.
    pub retry: Duration,
    /// A command without a response on a working connection is sent again after this time. Each further repetition
    /// doubles the time.
    pub resend: Duration,
    /// A message fails with syndrome 0x16 if the peer has posted no receive for it within this time.
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

/// Key that all adapters of a world share. `Debug` does not print its bytes.
#[derive(Clone, Copy)]
pub(super) struct Key(pub(super) [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Encryption of the connections of a software NIC. The adapters at both ends must have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Encryption {
    /// TCP connections are encrypted. Unix sockets, which never leave the host, are not.
    #[default]
    Auto,
    /// All connections are encrypted, those of Unix sockets too.
    On,
    /// No connection is encrypted. Insecure: whoever reads or changes what passes on the network reads and writes the
    /// memory of the world. The adapters still prove to each other that they know the key.
    Off,
}

impl Encryption {
    /// Returns the protection of a connection over a Unix socket, or over TCP.
    pub(super) fn of(self, unix: bool) -> Protection {
        match self {
            Self::Auto if unix => Protection::Plain,
            Self::Auto | Self::On => Protection::Encrypted,
            Self::Off => Protection::Plain,
        }
    }
}

impl FromStr for Encryption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(format!("`{text}` is not auto, on or off")),
        }
    }
}

/// Reads a port, or the first and the last of several.
fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let port = |text: &str| text.parse().ok().filter(|port| *port > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("`{text}` is not a port or a range of ports, from 1 to 65535")),
    }
}

/// Configuration of a software NIC. Start with [`SoftNicConfig::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SoftNicConfig {
    pub(super) key: Key,
    /// Number of service threads, 1 to 256. Queue pairs and connections are distributed over them.
    pub threads: usize,
    /// Number of adapters that share this host's processors, including this one. If there are too few processors for
    /// all service threads, idle threads do not spin.
    pub sharers: usize,
    /// Address to listen on for other hosts. An unspecified address listens on all interfaces. `None`: only this host
    /// can connect.
    pub listen: Option<IpAddr>,
    /// Ports of which the adapter takes the first that is free, for firewalls. `None`: the system chooses one.
    pub ports: Option<RangeInclusive<u16>>,
    /// Addresses to advertise to other hosts. Empty: the address listened on, or those of all interfaces.
    pub advertise: Vec<IpAddr>,
    /// True if other processes of this host connect through a Unix socket. Otherwise they use TCP too.
    pub unix: bool,
    /// True if queue pairs of one process access each other's memory directly. Otherwise they use a socket like others.
    pub direct: bool,
    /// Encryption of connections.
    pub encryption: Encryption,
    /// Address space whose GPU memory can be registered.
    pub space: Space,
    /// Time limits and intervals.
    pub timeouts: Timeouts,
    /// Injected faults.
    pub faults: FaultPlan,
    /// True to overwrite the blocks of entries as they are read. An entry whose doorbell is written before the entry is
    /// then noticed.
    pub poison: bool,
}

impl SoftNicConfig {
    /// Returns a configuration with one service thread, for this host only, without faults.
    pub fn new(key: [u8; 32]) -> Self {
        Self {
            key: Key(key),
            threads: 1,
            sharers: 1,
            listen: None,
            ports: None,
            advertise: Vec::new(),
            unix: true,
            direct: true,
            encryption: Encryption::default(),
            space: Space::cpu(),
            timeouts: Timeouts::default(),
            faults: FaultPlan::default(),
            poison: false,
        }
    }

    /// Applies options given as text: `threads=2,poison,retry=3s,seed=7,fault=lose@every:100`. Other fields keep their
    /// values.
    ///
    /// | key | meaning |
    /// |---|---|
    /// | `threads=N` | number of service threads |
    /// | `tcp` | processes of one host use TCP too (needs an address to listen on) |
    /// | `sockets` | queue pairs of one process use a socket too |
    /// | `encrypt=auto`, `on`, `off` | [`Encryption`] |
    /// | `poison` | blocks of entries are overwritten as they are read |
    /// | `ports=FIRST-LAST` | the adapter listens on the first of these TCP ports that is free |
    /// | `connect`, `heartbeat`, `silence`, `retry`, `resend`, `not-ready` `=TIME` | [`Timeouts`] |
    /// | `fault=...`, `seed=N` | [`FaultPlan`] |
    ///
    /// Keys and values are those of a device specification ([`DeviceSpec`](crate::spec::DeviceSpec)). Spaces around
    /// options are ignored.
    ///
    /// # Errors
    /// - [`SpecError::UnknownOption`] if there is no such option.
    /// - [`SpecError::BadOption`] if a value is missing, unneeded or invalid, or an option is repeated.
    pub fn options(mut self, text: &str) -> Result<Self, SpecError> {
        let fields =
            spec::fields(text.as_bytes()).into_iter().map(|f| f.trim_ascii().to_vec()).filter(|f| !f.is_empty());
        for option in spec::read_all(fields, OPTIONS)? {
            match option.key() {
                "threads" => self.threads = option.read(number)?,
                "seed" => self.faults.seed = option.read(number)?,
                "fault" => self.faults.faults.push(option.read_or(Fault::from_str)?),
                "encrypt" => self.encryption = option.read_or(Encryption::from_str)?,
                "ports" => self.ports = Some(option.read_or(ports)?),
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

    /// Returns the first rule that the configuration violates, as a sentence.
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
            return Some("a timeout is zero, or longer than a day".to_owned());
        }
        if t.silence < 2 * t.heartbeat {
            return Some(format!(
                "a silence of {:?} is less than twice the heartbeat of {:?}: give a longer silence",
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
            ("speed=9", "there is no option `speed`; there are connect=, encrypt=, fault=, "),
            ("threads", "`threads`: it needs a value: a whole number"),
            ("threads=many", "`threads=many`: expected a whole number"),
            ("retry=soon", "`retry=soon`: expected a time such as"),
            ("retry=1s, retry=2s", "`retry` was given before"),
            ("encrypt=maybe", "`encrypt=maybe`: `maybe` is not auto, on or off"),
            ("poison=1", "`poison=1`: it takes no value"),
            ("fault=explode", "`fault=explode`: `explode` is not a fault: use syndrome"),
        ] {
            let e = SoftNicConfig::new([0; 32]).options(text).unwrap_err().to_string();
            assert!(e.contains(word), "{text}: {e}");
        }
        let ports = |text| SoftNicConfig::new([0; 32]).options(text).map(|c| c.ports);
        assert_eq!((ports("ports=7"), ports("ports=20800-20899")), (Ok(Some(7..=7)), Ok(Some(20800..=20899))));
        for wrong in ["ports=0", "ports=9-8", "ports=1-65536", "ports=-5", "ports=a-b"] {
            assert!(ports(wrong).unwrap_err().to_string().contains("is not a port or a range of ports"), "{wrong}");
        }
        let encryption = |text| SoftNicConfig::new([0; 32]).options(text).unwrap().encryption;
        let all = ["", "encrypt=auto", "encrypt=on", "encrypt=off"].map(encryption);
        assert_eq!(all, [Encryption::Auto, Encryption::Auto, Encryption::On, Encryption::Off]);
        let bad = |text: &str| SoftNicConfig::new([0; 32]).options(text).unwrap().complaint().unwrap();
        assert!(bad("threads=0").contains("threads"));
        assert!(bad("silence=1ms").contains("silence"));
        assert!(bad("retry=0s").contains("zero"));
    }
}
