//! The initiator against the target, over the loopback interface.

mod faults;
mod hostile;
mod io;
mod life;

use super::{Target, TargetConfig, TargetFaults};
use crate::nvme::fabrics::{FabricsConfig, RemoteController};
use crate::nvme::{Controller, HostQueue, HostQueueOptions, Namespace, NvmeError, Ready, RecoveryPolicy};
use crate::storage::Drive;
use crate::wire::nvme::Status;
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
}

impl Exported {
    fn new(device: &str, config: impl Fn(TargetConfig) -> TargetConfig) -> Self {
        let device = Drive::open(device).unwrap();
        let target = Target::start(device.controller(), config(TargetConfig::new(NQN))).unwrap();
        Self { target: Some(target), device }
    }

    fn faulty(faults: TargetFaults) -> Self {
        Self::new("soft:mem:1M,threads=1", |c| c.faults(faults.clone()))
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
            match Target::start(self.device.controller(), TargetConfig::new(NQN).listen(address)) {
                Ok(target) => break target,
                Err(e) => assert!(started.elapsed() < GENEROUS, "{e}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        self.target = Some(target);
    }

    fn config(&self) -> FabricsConfig {
        FabricsConfig::tcp("127.0.0.1", self.target().address().port(), NQN)
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
        let connection = RemoteController::connect(config).unwrap();
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
    (0..bytes).map(|i| (i * 7 + i / 251 + seed * 13) as u8).collect()
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
