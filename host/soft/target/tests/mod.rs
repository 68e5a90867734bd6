//! The initiator against the target, over the loopback interface.

/// Makes tests of functions that take a transport, one for each transport.
macro_rules! each_transport {
    ($($name:ident),+ $(,)?) => {
        mod tcp {
            $(#[test] fn $name() { super::$name(super::TargetTransport::Tcp) })+
        }
        #[cfg(feature = "shmem")]
        mod soft {
            $(#[test] fn $name() { super::$name(super::TargetTransport::Soft) })+
        }
    };
}

#[cfg(feature = "shmem")]
mod crowd;
mod faults;
mod hostile;
mod io;
#[cfg(feature = "shmem")]
mod kernels;
mod life;
#[cfg(feature = "shmem")]
mod mlx5;
mod ports;
#[cfg(feature = "shmem")]
mod rdma;

use super::{Target, TargetConfig, TargetFaults, TargetTransport};
use crate::nvme::fabrics::{self, ConnectReport, FabricsConfig, FabricsError, FabricsTransport, PortAddress};
use crate::nvme::{Controller, HostQueue, HostQueueOptions, Namespace, NvmeError, Ready, RecoveryPolicy};
use crate::remote::RemoteController;
use crate::storage::Drive;
use crate::wire::nvme::Status;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2026-01.org.warpbell:test";
/// Deadline of what must succeed, also on a busy machine.
const GENEROUS: Duration = Duration::from_secs(60);
/// Deadline of what a fault makes expire.
const SHORT: Duration = Duration::from_millis(300);

/// A target with its device.
struct Exported {
    target: Option<Target>,
    device: Drive,
    transport: TargetTransport,
}

/// Connects over the transport of a configuration.
fn connect(config: &FabricsConfig) -> Result<RemoteController, FabricsError> {
    match config.transport {
        #[cfg(feature = "shmem")]
        FabricsTransport::Soft => super::connect(config),
        _ => RemoteController::connect(config),
    }
}

/// Checks a connection over the transport of a configuration.
fn check(config: &FabricsConfig) -> Result<ConnectReport, FabricsError> {
    match config.transport {
        #[cfg(feature = "shmem")]
        FabricsTransport::Soft => super::check(config),
        _ => fabrics::check(config),
    }
}

impl Exported {
    fn new(transport: TargetTransport, device: &str, config: impl Fn(TargetConfig) -> TargetConfig) -> Self {
        let device = Drive::open(device).unwrap();
        let config = config(TargetConfig::new(NQN).transport(transport));
        let target = Target::start(device.controller(), config).unwrap();
        Self { target: Some(target), device, transport }
    }

    fn faulty(transport: TargetTransport, faults: TargetFaults) -> Self {
        Self::new(transport, "soft:mem:1M,threads=1", |c| c.faults(faults.clone()))
    }

    /// Exports a device by two ports.
    fn with_two_ports(transport: TargetTransport, device: &str, faults: TargetFaults) -> Self {
        Self::new(transport, device, |c| c.more_ports(vec![(Ipv4Addr::LOCALHOST, 0).into()]).faults(faults.clone()))
    }

    /// Returns `HOST:PORT` of a port.
    fn port(&self, index: usize) -> String {
        self.target().addresses()[index].to_string()
    }

    fn target(&self) -> &Target {
        self.target.as_ref().unwrap()
    }

    /// Starts the target again at its address, as a machine that was restarted.
    fn restart(&mut self) {
        let address = self.target().address();
        self.target = None;
        let started = Instant::now();
        // The port may be in use for a moment.
        let target = loop {
            let config = TargetConfig::new(NQN).transport(self.transport).listen(address);
            match Target::start(self.device.controller(), config) {
                Ok(target) => break target,
                Err(e) => assert!(started.elapsed() < GENEROUS, "{e}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        self.target = Some(target);
    }

    fn config(&self) -> FabricsConfig {
        let transport = match self.transport {
            TargetTransport::Tcp => FabricsTransport::Tcp,
            #[cfg(feature = "shmem")]
            TargetTransport::Soft => FabricsTransport::Soft,
        };
        let mut ports = self.target().addresses().into_iter();
        let first = ports.next().unwrap().port();
        FabricsConfig::tcp("127.0.0.1", first, NQN)
            .more_ports(ports.map(|a| PortAddress { host: a.ip().to_string(), port: a.port() }).collect())
            .transport(transport)
            .threads(Some(1))
            .queues(Some(4))
            .connect_timeout(GENEROUS)
            .keep_alive(GENEROUS)
            .reconnect_delay(Duration::from_millis(50))
    }

    fn connect(&self) -> Remote {
        Remote::new(&self.config())
    }
}

/// A driver's view of the target.
struct Remote {
    connection: RemoteController,
    controller: Arc<Controller<Ready>>,
    namespace: Namespace,
}

impl Remote {
    fn new(config: &FabricsConfig) -> Self {
        let connection = connect(config).unwrap();
        let controller = Controller::new(connection.attachment()).unwrap().enable().map_err(|(_, e)| e).unwrap();
        let namespace = controller.namespace(controller.namespaces().unwrap()[0]).unwrap();
        Self { connection, controller: Arc::new(controller), namespace }
    }

    fn depth(&self) -> u32 {
        self.controller.cap().max_queue_entries().min(32)
    }

    fn queue(&self) -> HostQueue<'static> {
        let mut q = HostQueue::create(&self.controller, HostQueueOptions::default().depth(self.depth())).unwrap();
        q.set_deadline(GENEROUS);
        q
    }
}

/// Returns bytes that depend on their place.
fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    const PERIOD: usize = 251 * 256;
    let period: Vec<u8> = (0..PERIOD.min(bytes)).map(|i| (i * 7 + i / 251 + seed * 13) as u8).collect();
    let mut all = period.repeat(bytes.div_ceil(PERIOD));
    all.truncate(bytes);
    all
}

fn status_of(e: &NvmeError) -> Option<Status> {
    e.status().map(Status::without_flags)
}

/// Waits until a condition holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < GENEROUS, "not within {GENEROUS:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
