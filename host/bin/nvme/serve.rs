//! Runs `warpbell nvme serve`: exports a device to other machines by NVMe over Fabrics.

use crate::interrupt::Interrupt;
use crate::output::{Failure, line};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;
use warpbell::nvme::fabrics::FabricsTransport;
use warpbell::soft::target::{Target, TargetConfig, TargetTransport};
use warpbell::storage::DriveSpec;

/// Interval at which the program checks whether it was told to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Transport of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServeTransport {
    /// NVMe over TCP.
    Tcp,
    /// NVMe over RDMA, between software NICs.
    Soft,
}

#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// soft:FILE, soft:mem:SIZE, qtest:FILE or nvme:ADDRESS, with options after commas (docs/devices.md)
    #[arg(value_name = "DEVICE")]
    pub device: OsString,
    /// Address to listen at, or several of them, each a port of the subsystem. Whoever reaches it can read and write the
    /// device: there is no authentication
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4420")]
    pub listen: Vec<SocketAddr>,
    /// Transport: tcp for any host, soft for hosts that use software NICs (nvmf:soft://)
    #[arg(long, value_name = "tcp|soft", default_value = "tcp")]
    pub transport: ServeTransport,
    /// Name of the subsystem
    #[arg(long, value_name = "NQN", default_value = "nqn.2026-01.org.warpbell:serve")]
    pub nqn: String,
    /// Name of a host that may connect; without this option, all may
    #[arg(long, value_name = "NQN")]
    pub allow_host: Vec<String>,
}

/// Serves until the program is interrupted.
///
/// # Errors
/// [`Failure::Error`] if the device cannot be opened, or the address cannot be listened at. [`Failure::BrokenPipe`] if
/// standard output was closed.
pub fn run(args: &ServeArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let spec = DriveSpec::named(&args.device)?;
    let open = spec.open_controller()?;
    let hosts = (!args.allow_host.is_empty()).then(|| args.allow_host.clone());
    let (transport, scheme) = match args.transport {
        ServeTransport::Tcp => (TargetTransport::Tcp, FabricsTransport::Tcp),
        ServeTransport::Soft => (TargetTransport::Soft, FabricsTransport::Soft),
    };
    let mut config = TargetConfig::new(args.nqn.as_str()).transport(transport).hosts(hosts);
    if let Some((first, more)) = args.listen.split_first() {
        config = config.listen(*first).more_ports(more.to_vec());
    }
    let target = Target::start(open.controller(), config)?;
    let _guard = interrupt.is_awaited();
    interrupt.doing("serving the device");
    let addresses: Vec<String> = target.addresses().iter().map(ToString::to_string).collect();
    line(format_args!("{spec} is served at {}", addresses.join(" and ")))?;
    let paths: String = addresses[1..].iter().map(|a| format!(",path={a}")).collect();
    line(format_args!("  --device nvmf:{scheme}://{}/{}{paths}", addresses[0], args.nqn.replace(',', "\\,")))?;
    while interrupt.end().is_none() {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
