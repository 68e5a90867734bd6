//! Address of a subsystem on another machine, and use of its controller.

use super::FabricsError;
use super::host_identity::{HostIdentity, parse_uuid};
use crate::data_path::{UnknownWord, choices};
use crate::setters::setters;
use crate::spec::{DeviceSpec, Name, RemoteName, Scheme, SpecError, number, time};
internal!(crate::spec::{FabricsTransport, PortAddress});
#[cfg(feature = "internals")]
use crate::wire::nvme::fabrics::DISCOVERY_NQN;
use crate::wire::nvme::fabrics::nqn_complaint;
#[cfg(feature = "internals")]
use crate::wire::nvme::tcp::DISCOVERY_PORT;
use crate::wire::nvme::tcp::Digests;
use std::fmt;
use std::time::Duration;

/// Defaults of nvme-cli.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const CONTROLLER_LOSS: Duration = Duration::from_secs(600);
/// Default time before an attempt to connect again. nvme-cli's is 10 s, as long as the default deadline of a command here.
const RECONNECT_DELAY: Duration = Duration::from_secs(2);
/// Time for one step of a connection: TCP, its initialization, Connect, a property.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

choices! {
    /// Requested adapter for connections over RDMA.
    #[derive(Default)]
    AdapterChoice:
    /// `mlx5` if the device on the route is an mlx5 NIC that kernels can drive, else `verbs`.
    #[default]
    Auto = "auto",
    /// Kernels write the rings and the doorbell of an mlx5 NIC. Opening fails if they cannot.
    Mlx5 = "mlx5",
    /// A thread makes verbs calls of the entries that kernels write.
    Verbs = "verbs"
}

/// Address and use of a subsystem of another machine. Times of zero have the meaning that their field says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FabricsConfig {
    /// Transport.
    pub transport: FabricsTransport,
    /// Adapter for connections over RDMA by the devices of this machine.
    pub adapter: AdapterChoice,
    /// Name or IP address of the target.
    pub host: String,
    /// Port: that of TCP, or of RDMA's connection manager.
    pub port: u16,
    /// Further ports of the subsystem. One port is in use at a time; after its loss the next one is tried first.
    pub more_ports: Vec<PortAddress>,
    /// Name of the subsystem (NQN).
    pub subsystem: String,
    /// Namespace whose access state (ANA) decides which port is used; `None` for the first one.
    pub namespace: Option<u32>,
    /// Host NQN; `None` for that of [`HostIdentity::of_system`].
    pub host_nqn: Option<String>,
    /// Host Identifier; `None` for that of [`HostIdentity::of_system`].
    pub host_id: Option<[u8; 16]>,
    /// Largest number of I/O queues, 1 to 1024; `None` for as many as the target grants.
    pub queues: Option<u16>,
    /// Number of threads that forward commands, 1 to 1024; `None` for half of the processors.
    pub threads: Option<usize>,
    /// Digests that the target must use.
    pub digests: Digests,
    /// Keep Alive Timeout: the longest time in which the other end does not respond. Zero turns Keep Alive off.
    pub keep_alive: Duration,
    /// Time after a lost connection in which it is established again. `None`: for ever. Zero: not at all.
    pub controller_loss: Option<Duration>,
    /// Time between two attempts to connect again, and before the first.
    pub reconnect_delay: Duration,
    /// Time limit of each step of a connection.
    pub connect_timeout: Duration,
}

setters!(FabricsConfig {
    transport: FabricsTransport,
    adapter: AdapterChoice,
    more_ports: Vec<PortAddress>,
    namespace: Option<u32>,
    host_nqn: Option<String>,
    host_id: Option<[u8; 16]>,
    queues: Option<u16>,
    threads: Option<usize>,
    digests: Digests,
    keep_alive: Duration,
    controller_loss: Option<Duration>,
    reconnect_delay: Duration,
    connect_timeout: Duration,
});

impl FabricsConfig {
    /// Returns the configuration for a subsystem at an address, over TCP, with nvme-cli's defaults, but
    /// a reconnect delay of 2 s.
    pub fn tcp(host: impl Into<String>, port: u16, subsystem: impl Into<String>) -> Self {
        Self {
            transport: FabricsTransport::Tcp,
            adapter: AdapterChoice::Auto,
            host: host.into(),
            port,
            more_ports: Vec::new(),
            subsystem: subsystem.into(),
            namespace: None,
            host_nqn: None,
            host_id: None,
            queues: None,
            threads: None,
            digests: Digests::default(),
            keep_alive: KEEP_ALIVE,
            controller_loss: Some(CONTROLLER_LOSS),
            reconnect_delay: RECONNECT_DELAY,
            connect_timeout: CONNECT_TIMEOUT,
        }
    }

    /// Returns the configuration for the discovery subsystem at an address. `port` is usually 8009 or 4420.
    #[cfg(feature = "internals")]
    pub fn discovery(host: impl Into<String>, port: Option<u16>) -> Self {
        Self::tcp(host, port.unwrap_or(DISCOVERY_PORT), DISCOVERY_NQN).keep_alive(Duration::ZERO)
    }

    /// Parses the part of a specification after `nvmf:`, as in `tcp://10.0.0.2:4420/nqn.2026-01.org.example:data`.
    ///
    /// | key | meaning |
    /// |---|---|
    /// | `adapter=auto`, `mlx5` or `verbs` | adapter over RDMA |
    /// | `path=HOST:PORT` | another port of the subsystem; may be given several times |
    /// | `nsid=N` | namespace whose access state decides which port is used |
    /// | `queues=N` | largest number of I/O queues |
    /// | `hostnqn=NQN`, `hostid=UUID` | identity of this host instead of that in `/etc/nvme` |
    /// | `hdr_digest`, `data_digest` | CRC32C of headers, of data; fails if the target does not use them |
    /// | `keep-alive=TIME` | Keep Alive Timeout; 0 turns it off |
    /// | `ctrl-loss-tmo=TIME` | time for connecting again after a loss; -1 for ever, 0 not at all |
    /// | `reconnect-delay=TIME` | time before each attempt |
    /// | `threads=N` | threads that forward commands |
    ///
    /// Times are whole seconds as in nvme-cli, or have a unit (`500ms`).
    ///
    /// # Errors
    /// As [`DeviceSpec::of`], and [`SpecError::BadOption`] if a value is invalid.
    #[cfg(feature = "internals")]
    pub fn parse(spec: &str) -> Result<Self, SpecError> {
        Self::try_from(&DeviceSpec::of(Scheme::Nvmf, spec.as_ref())?)
    }

    /// Returns the identity of this host.
    pub(super) fn identity(&self) -> Result<HostIdentity, FabricsError> {
        HostIdentity::with(self.host_nqn.as_deref(), self.host_id)
    }

    /// Returns the number of threads that forward commands.
    pub(crate) fn service_threads(&self) -> usize {
        self.threads
            .unwrap_or_else(|| (crate::processors::count() / 2).min(usize::from(self.queues.unwrap_or(64))))
            .max(1)
    }

    /// Checks the limits of the fields.
    pub(super) fn check(&self) -> Result<(), FabricsError> {
        let wrong = |reason: String| Err(FabricsError::Options { reason });
        if let Some(reason) = nqn_complaint(&self.subsystem) {
            return wrong(format!("subsystem NQN `{}`: {reason}", self.subsystem));
        }
        if self.queues.is_some_and(|q| !(1..=1024).contains(&q)) {
            return wrong(format!("{} I/O queues: choose 1 to 1024", self.queues.unwrap_or(0)));
        }
        if self.threads.is_some_and(|t| !(1..=1024).contains(&t)) {
            return wrong(format!("{} threads: choose 1 to 1024", self.threads.unwrap_or(0)));
        }
        if self.keep_alive > Duration::ZERO && self.keep_alive < Duration::from_millis(100) {
            return wrong(format!(
                "a Keep Alive Timeout of {:?}: choose 100 ms or more, or 0 for none",
                self.keep_alive
            ));
        }
        let ports: Vec<_> = self.addresses().collect();
        if ports.iter().any(|a| a.host.is_empty() || a.port == 0) || self.connect_timeout.is_zero() {
            return wrong("host, port and connect time-out must not be empty or zero".to_owned());
        }
        if let Some(twice) = ports.iter().enumerate().find(|(i, a)| ports[..*i].contains(a)) {
            return wrong(format!("the port {} is named twice; name each port once", twice.1));
        }
        Ok(())
    }

    /// Returns the addresses of all ports, in their order.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = PortAddress> {
        let first = PortAddress { host: self.host.clone(), port: self.port };
        std::iter::once(first).chain(self.more_ports.iter().cloned())
    }

    /// Returns the configuration for each port alone.
    pub(crate) fn for_each_port(&self) -> impl Iterator<Item = Self> {
        self.addresses().map(|PortAddress { host, port }| Self { host, port, more_ports: Vec::new(), ..self.clone() })
    }

    /// Returns `HOST:PORT` of the first port, with brackets around an IPv6 address.
    pub(crate) fn peer(&self) -> String {
        PortAddress { host: self.host.clone(), port: self.port }.to_string()
    }
}

impl fmt::Display for FabricsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nvmf:{}://{}/{}", self.transport, self.peer(), self.subsystem)?;
        self.more_ports.iter().try_for_each(|port| write!(f, ",path={port}"))
    }
}

/// Parses a time in seconds, as nvme-cli takes it, or with a unit.
fn seconds(text: &str) -> Option<Duration> {
    time(text).or_else(|| number::<u32>(text).map(|s| Duration::from_secs(s.into())))
}

impl TryFrom<&DeviceSpec> for FabricsConfig {
    type Error = SpecError;

    /// Interprets the options: [`FabricsConfig::parse`].
    fn try_from(spec: &DeviceSpec) -> Result<Self, SpecError> {
        let Name::Remote(RemoteName { transport, address: PortAddress { host, port }, subsystem }) = spec.name() else {
            return Err(spec.other_scheme(Scheme::Nvmf));
        };
        let mut c = Self::tcp(host.clone(), *port, subsystem.clone()).transport(*transport);
        for option in spec.options() {
            match option.key() {
                "adapter" => {
                    c.adapter =
                        option.read_or(|t| t.parse().map_err(|e: UnknownWord| format!("choose {}", e.known)))?;
                }
                "queues" => c.queues = Some(option.read(|t| number(t).filter(|n| (1..=1024).contains(n)))?),
                "threads" => c.threads = Some(option.read(|t| number(t).filter(|n| (1..=1024).contains(n)))?),
                "hostnqn" => {
                    let nqn = |t: &str| nqn_complaint(t).map_or_else(|| Ok(t.to_owned()), Err);
                    c.host_nqn = Some(option.read_or(nqn)?);
                }
                "hostid" => c.host_id = Some(option.read(parse_uuid)?),
                "hdr_digest" => c.digests.header = true,
                "data_digest" => c.digests.data = true,
                "keep-alive" => {
                    let valid = |d: &Duration| d.is_zero() || *d >= Duration::from_millis(100);
                    c.keep_alive = option.read(|t| seconds(t).filter(valid))?;
                }
                "ctrl-loss-tmo" => {
                    c.controller_loss = option.read(|t| if t == "-1" { Some(None) } else { seconds(t).map(Some) })?;
                }
                "reconnect-delay" => c.reconnect_delay = option.read(seconds)?,
                "path" => c.more_ports.push(option.read_or(PortAddress::read)?),
                "nsid" => c.namespace = Some(option.read(|t| number(t).filter(|n| *n > 0))?),
                _ => {}
            }
        }
        if c.transport != FabricsTransport::Tcp
            && let Some(option) = spec.options().iter().find(|o| o.key().ends_with("_digest"))
        {
            return Err(option.refuse("digests are of nvmf:tcp alone; leave the option out"));
        }
        if c.transport != FabricsTransport::Rdma
            && let Some(option) = spec.options().iter().find(|o| o.key() == "adapter")
        {
            return Err(option.refuse("adapters are of nvmf:rdma alone; leave the option out"));
        }
        Ok(c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_nvme_clis_words() {
        let c = FabricsConfig::parse(
            "tcp://10.0.0.2/nqn.a:b,queues=4,hostnqn=nqn.h,hostid=00112233445566778899aabbccddeeff,hdr_digest,keep-alive=30,ctrl-loss-tmo=-1,reconnect-delay=500ms",
        )
        .unwrap();
        assert_eq!((c.host.as_str(), c.port, c.subsystem.as_str()), ("10.0.0.2", 4420, "nqn.a:b"));
        assert_eq!((c.queues, c.host_nqn.as_deref(), c.host_id.unwrap()[2]), (Some(4), Some("nqn.h"), 0x22));
        assert_eq!((c.digests.header, c.digests.data), (true, false));
        assert_eq!((c.keep_alive.as_secs(), c.controller_loss, c.reconnect_delay.as_millis()), (30, None, 500));
        for (bad, word) in [
            ("tcp://h/n,queues=0", "queues=0"),
            ("tcp://h/n,keep-alive=1ms", "keep-alive=1ms"),
            ("tcp://h/n,hostid=x", "a UUID"),
            ("fc://h/n", "rdma://"),
            ("rdma://h/n,hdr_digest", "digests"),
            ("rdma://h/n,adapter=soft", "choose `auto` `mlx5` `verbs`"),
            ("tcp://h/n,adapter=mlx5", "adapters are of nvmf:rdma alone"),
            ("tcp://h/n,path=", "HOST:PORT"),
            ("tcp://h/n,path=a:b:c", "brackets"),
        ] {
            let said = FabricsConfig::parse(bad).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
        let adapter = |spec: &str| FabricsConfig::parse(spec).unwrap().adapter;
        assert_eq!(
            (adapter("rdma://h/n"), adapter("rdma://h/n,adapter=verbs")),
            (AdapterChoice::Auto, AdapterChoice::Verbs)
        );
        assert_eq!(FabricsConfig::parse("tcp://[::1]:9/n").unwrap().to_string(), "nvmf:tcp://[::1]:9/n");
    }

    #[test]
    fn further_ports_are_named_by_paths() {
        let c = FabricsConfig::parse("tcp://h/n,path=[::1]:9,nsid=3,path=b").unwrap();
        let ports: Vec<_> = c.for_each_port().map(|p| (p.peer(), p.more_ports.len(), p.namespace)).collect();
        let expected = ["h:4420", "[::1]:9", "b:4420"].map(|peer| (peer.to_owned(), 0, Some(3)));
        assert_eq!((ports.as_slice(), c.peer().as_str()), (&expected[..], "h:4420"));
        assert_eq!(c.to_string(), "nvmf:tcp://h:4420/n,path=[::1]:9,path=b:4420");
        assert!(c.check().is_ok());
        let twice = FabricsConfig::parse("tcp://h/n,path=b,path=h:4420").unwrap().check().unwrap_err().to_string();
        assert!(twice.contains("h:4420 is named twice"), "{twice}");
    }
}
