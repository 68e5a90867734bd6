//! Runs `warpbell nvme discover` and `connect-check`: subsystems of other machines.

use crate::args::JsonArgs;
use crate::output::{Failure, line, write_json};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::ffi::OsString;
use std::time::Duration;
use warpbell::nvme::fabrics::{ConnectReport, FabricsConfig, FabricsTransport};
use warpbell::spec::DeviceSpec;
use warpbell::units::{Bytes, counted};
use warpbell::wire::nvme::fabrics::{ANY_CONTROLLER, DiscoveryRecord, TransportType};

#[derive(Args, Clone, Debug)]
pub struct DiscoverArgs {
    /// HOST or HOST:PORT of a discovery controller; without a port, 8009 and then 4420
    pub address: String,
    /// Transport, if the address does not begin with tcp:// or rdma://
    #[arg(long, value_enum)]
    pub transport: Option<DiscoverTransport>,
    /// Name of this host instead of that in /etc/nvme/hostnqn
    #[arg(long, value_name = "NQN")]
    pub hostnqn: Option<String>,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// Transport to a discovery controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiscoverTransport {
    /// NVMe over TCP
    Tcp,
    /// NVMe over RDMA, by the RDMA devices of this machine
    Rdma,
}

#[derive(Args, Clone, Debug)]
pub struct ConnectCheckArgs {
    /// nvmf:tcp://HOST:PORT/NQN or nvmf:rdma://HOST:PORT/NQN, with options after commas (docs/fabrics.md)
    #[arg(value_name = "DEVICE")]
    pub device: OsString,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// A record of the discovery log, with nvme-cli's names.
#[derive(Serialize)]
struct Record {
    trtype: String,
    adrfam: &'static str,
    subtype: &'static str,
    traddr: String,
    trsvcid: String,
    subnqn: String,
    portid: u16,
    cntlid: Option<u16>,
    /// Specification of the device, if this program can open it.
    device: Option<String>,
}

#[derive(Serialize)]
struct Discovered {
    address: String,
    records: Vec<Record>,
}

impl Record {
    fn of(r: DiscoveryRecord) -> Self {
        let family = match r.family {
            1 => "ipv4",
            2 => "ipv6",
            3 => "ib",
            4 => "fc",
            _ => "other",
        };
        let scheme = match r.transport {
            TransportType::TCP if r.security == 0 => Some("tcp"),
            TransportType::RDMA => Some("rdma"),
            _ => None,
        };
        let host = if r.address.contains(':') { format!("[{}]", r.address) } else { r.address.clone() };
        // The specification's own printing adds escapes.
        let spec = |scheme| format!("nvmf:{scheme}://{host}:{}/{}", r.service, r.subsystem.replace(',', "\\,"));
        let device = scheme.filter(|_| r.subtype == 2).and_then(|s| spec(s).parse::<DeviceSpec>().ok());
        Self {
            trtype: r.transport.to_string(),
            adrfam: family,
            subtype: match r.subtype {
                1 => "referral",
                2 => "nvme",
                3 => "current discovery",
                _ => "other",
            },
            device: device.map(|d| d.to_string()),
            traddr: r.address,
            trsvcid: r.service,
            subnqn: r.subsystem,
            portid: r.port,
            cntlid: (r.controller != ANY_CONTROLLER).then_some(r.controller),
        }
    }
}

/// Lists the subsystems that a discovery controller reports.
///
/// # Errors
/// [`Failure::Error`] if it cannot be reached or read. [`Failure::BrokenPipe`] if standard output was closed.
pub fn discover(args: &DiscoverArgs) -> Result<(), Failure> {
    let transport = match (args.transport, args.address.starts_with("rdma://")) {
        (Some(DiscoverTransport::Rdma), _) | (None, true) => FabricsTransport::Rdma,
        (Some(DiscoverTransport::Tcp), _) | (None, false) => FabricsTransport::Tcp,
    };
    let records = warpbell::remote::discover(transport, &args.address, |c| c.host_nqn(args.hostnqn.clone()))?;
    let found = Discovered { address: args.address.clone(), records: records.into_iter().map(Record::of).collect() };
    if let Some(path) = &args.json.json {
        return write_json("nvme discover", &found, path);
    }
    line(format_args!("{} of {}", counted(found.records.len(), "record", "records"), found.address))?;
    for r in &found.records {
        line(format_args!(
            "{:<5} {:<5} {:<18} {} port {}: {}",
            r.trtype, r.adrfam, r.subtype, r.traddr, r.trsvcid, r.subnqn
        ))?;
        if let Some(device) = &r.device {
            line(format_args!("  --device {device}"))?;
        }
    }
    Ok(())
}

/// A port of the subsystem.
#[derive(Serialize)]
struct Port {
    address: String,
    /// State of its access to the namespace, if the target reports it.
    access: Option<String>,
    /// Reason for which it cannot be used now.
    failure: Option<String>,
}

impl Port {
    fn line(&self) -> String {
        let access = self.access.as_deref().unwrap_or("connected");
        format!("port       : {:<21} {}", self.address, self.failure.as_deref().unwrap_or(access))
    }
}

/// Report of a check.
#[derive(Serialize)]
struct Checked {
    device: String,
    ports: Vec<Port>,
    hostnqn: String,
    controller: u16,
    version: String,
    model: String,
    serial: String,
    queue_pairs: u32,
    queue_entries: u32,
    in_capsule_bytes: u32,
    max_commands: u16,
    max_transfer_bytes: Option<u64>,
    keep_alive_granularity_ms: u32,
    namespaces: Vec<u32>,
    connect_ms: f64,
    identify_us: f64,
}

fn milliseconds(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

impl Checked {
    fn of(device: String, r: ConnectReport) -> Self {
        let (major, minor, tertiary) = r.version;
        Self {
            device,
            ports: r
                .ports
                .into_iter()
                .map(|p| Port { address: p.address, access: p.access.map(|a| a.to_string()), failure: p.failure })
                .collect(),
            hostnqn: r.host_nqn,
            controller: r.controller,
            version: format!("{major}.{minor}.{tertiary}"),
            model: r.model,
            serial: r.serial,
            queue_pairs: r.queues,
            queue_entries: r.limits.queue_entries,
            in_capsule_bytes: r.limits.in_capsule_bytes,
            max_commands: r.limits.max_commands,
            max_transfer_bytes: r.limits.max_transfer_bytes,
            keep_alive_granularity_ms: r.limits.keep_alive_granularity_ms,
            namespaces: r.namespaces,
            connect_ms: milliseconds(r.took),
            identify_us: milliseconds(r.round_trip) * 1e3,
        }
    }

    fn lines(&self) -> Vec<String> {
        let most = self.max_transfer_bytes.map_or("no limit".to_owned(), |b| Bytes(b).to_string());
        let names = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
        let mut lines = vec![format!("{}: connected", self.device)];
        lines.extend(self.ports.iter().map(Port::line));
        lines.extend([
            format!("host       : {}", self.hostnqn),
            format!(
                "controller : {} ({}, serial {}, version {})",
                self.controller, self.model, self.serial, self.version
            ),
            format!("queues     : {:<10} I/O queue pairs of up to {} entries", self.queue_pairs, self.queue_entries),
            format!("in capsule : {:<10} bytes of a write go with its command", self.in_capsule_bytes),
            format!("transfer   : {most:<10} by one command"),
            format!("keep alive : {:<10} ms granularity", self.keep_alive_granularity_ms),
            format!("namespaces : {}", names(&self.namespaces)),
            format!(
                "connect    : {:<10.1} ms for two queues; one Identify takes {:.0} us",
                self.connect_ms, self.identify_us
            ),
        ]);
        lines
    }
}

/// Connects an admin queue at each port and an I/O queue, prints the target's limits, and disconnects.
///
/// # Errors
/// [`Failure::Error`] if the specification is invalid or the target cannot be connected. [`Failure::BrokenPipe`] if
/// standard output was closed.
pub fn connect_check(args: &ConnectCheckArgs) -> Result<(), Failure> {
    let spec = DeviceSpec::from_os_str(&args.device)?;
    let config = FabricsConfig::try_from(&spec)?;
    let report = match config.transport {
        FabricsTransport::Soft => warpbell::soft::target::check(&config)?,
        _ => warpbell::remote::check(&config)?,
    };
    let checked = Checked::of(spec.to_string(), report);
    match &args.json.json {
        Some(path) => write_json("nvme connect-check", &checked, path),
        None => checked.lines().iter().try_for_each(|l| line(format_args!("{l}"))),
    }
}
