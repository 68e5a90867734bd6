//! Probes a device: opens it, registers memory, maps a doorbell, and brings queue pairs to ready to send in loopback.
//! Each step is undone at once.

use super::mlx5::Mlx5Adapter;
use super::verbs::{Context, ProtectionDomain, Registrar};
use super::{
    Adapter, Chosen, CpuSendQueue, DeviceChoice, DoorbellChoice, PostRequests, QueueChoice, QueuePair, QueuePlan,
    RdmaDevice, Rights, Transport, open,
};
use crate::memory::{Place, Region, Space};
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::{Operation, Payload, Remote};
use serde::Serialize;
use std::time::Duration;

/// Smallest allocation of GPU memory, in bytes.
const BYTES: usize = 64 << 10;
/// Bytes that are sent in loopback.
const SENT: usize = 64;
/// Time limit of their arrival.
const ARRIVAL: Duration = Duration::from_secs(10);

/// A step of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeStep {
    /// Opens the device.
    Open,
    /// Registers host memory.
    HostMemory,
    /// Registers GPU memory.
    GpuMemory,
    /// Creates a queue pair by verbs, brings it to ready to send in loopback, and sends through it.
    Queues,
    /// Opens the device for firmware commands (DevX) and checks its capabilities.
    Devx,
    /// Maps a doorbell register into the address space of kernels.
    Doorbell,
    /// Does the same as [`Self::Queues`] by firmware commands, with rings in host memory.
    Mlx5Queues,
    /// Creates a queue pair by firmware commands with rings in GPU memory, and brings it to ready to send.
    GpuQueues,
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The step.
    pub step: ProbeStep,
    /// Description of the success, or the reason of the failure.
    pub outcome: Result<String, String>,
}

/// Probes a device, with memory and doorbells of a GPU if there is one. Stops after the first step if the device does
/// not open.
pub fn try_device(device: &RdmaDevice, gpu: Option<&Space>) -> Vec<Probe> {
    let mut all = Vec::new();
    let mut tell = |step, outcome: Result<String, String>| {
        let went = outcome.is_ok();
        all.push(Probe { step, outcome });
        went
    };
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let domain = Context::open(Transport::Verbs, &device.name).and_then(|c| ProtectionDomain::new(&c));
    let domain = match domain {
        Ok(domain) => domain,
        Err(e) => {
            tell(ProbeStep::Open, Err(text(&e)));
            return all;
        }
    };
    tell(ProbeStep::Open, Ok("the device opens and allocates a protection domain".to_owned()));
    let register = |space: &Space, place| {
        let memory: Region = space.allocate(place, BYTES).map_err(|e| text(&e))?;
        let registrar = Registrar::new(domain.clone(), space.clone());
        // SAFETY: the registration is dropped before the memory.
        let registration = unsafe { registrar.register((&memory).into(), Rights::ALL) }.map_err(|e| text(&e))?;
        drop(registration);
        Ok(registrar.registration_path().to_string())
    };
    tell(ProbeStep::HostMemory, register(&Space::cpu(), Place::Host).map(|_| "it can be registered".to_owned()));
    if let Some(space) = gpu {
        tell(ProbeStep::GpuMemory, register(space, Place::Device));
    }
    // Without an active port with an address there are no connections. The checks of the port say why.
    let connects = device.active_ports().any(|p| p.gid.is_some() || p.lid.is_some());
    if connects {
        let choice = DeviceChoice { device: Some(device.name.clone()), ..DeviceChoice::default() };
        let adapter = open(Transport::Verbs, &choice, &Space::cpu()).map_err(|e| text(&e));
        tell(ProbeStep::Queues, adapter.and_then(|adapter| send_in_loopback(adapter.as_ref())));
    }
    let port = device.active_ports().next().or(device.ports.first());
    if let (true, Some(port)) = (device.is_mlx5(), port) {
        let chosen = Chosen { device: device.clone(), port: port.clone(), distance: None };
        let cpu = Space::cpu();
        let open = |doorbell, queues, space: &Space| {
            let choice = DeviceChoice { doorbell, queues, ..DeviceChoice::default() };
            Mlx5Adapter::open(&chosen, &choice, space).map_err(|e| text(&e))
        };
        let commands = open(DoorbellChoice::Cpu, QueueChoice::Auto, gpu.unwrap_or(&cpu))
            .map(|_| "the firmware accepts commands and has the capabilities that kernels need".to_owned());
        if !tell(ProbeStep::Devx, commands) {
            return all;
        }
        if let Some(space) = gpu {
            let doorbell = open(DoorbellChoice::Gpu, QueueChoice::Auto, space);
            tell(ProbeStep::Doorbell, doorbell.map(|_| "the GPU maps a doorbell".to_owned()));
        }
        if connects {
            let host = open(DoorbellChoice::Cpu, QueueChoice::Host, &cpu);
            tell(ProbeStep::Mlx5Queues, host.and_then(|adapter| send_in_loopback(&adapter)));
            if let Some(space) = gpu {
                let near = open(DoorbellChoice::Cpu, QueueChoice::Gpu, space);
                let ready = near.and_then(|adapter| connected(&adapter, space, Place::Device).map(drop));
                tell(ProbeStep::GpuQueues, ready.map(|()| "rings in GPU memory: ready to send in loopback".to_owned()));
            }
        }
    }
    all
}

/// Creates a completion queue and a queue pair for data in `place`, and connects the queue pair with itself. The error
/// names the step that failed.
fn connected(adapter: &dyn Adapter, space: &Space, place: Place) -> Result<Box<dyn QueuePair>, String> {
    let mut pair = adapter.create(QueuePlan::new(space.clone(), place)).map_err(|e| e.to_string())?;
    let own = pair.address();
    pair.connect(&own).map_err(|e| e.to_string())?;
    Ok(pair)
}

/// Connects a queue pair with itself, writes through it from the CPU, and compares what arrived.
fn send_in_loopback(adapter: &dyn Adapter) -> Result<String, String> {
    let space = Space::cpu();
    let memory: Region = space.allocate(Place::Host, BYTES).map_err(|e| e.to_string())?;
    let pair = connected(adapter, &space, Place::Host)?;
    let registration = adapter.register_region(&memory, Rights::ALL).map_err(|e| e.to_string())?;
    let sent: Vec<u8> = (0..SENT).map(|i| (i * 37 + 11) as u8).collect();
    memory.write(0, &sent).map_err(|e| e.to_string())?;
    let there = BYTES / 2;
    let mut queue = CpuSendQueue::new(pair).map_err(|e| e.to_string())?;
    let pieces = [DataSegment::new(registration.address(), registration.local_key(), SENT as u32)];
    let remote = Remote { address: registration.address() + there as u64, key: registration.remote_key() };
    let write = Operation::Write { remote, payload: Payload::Pieces(&pieces), immediate: None };
    let end = queue.post(write, true).map_err(|e| e.to_string())?;
    queue.ring();
    queue.wait(end, ARRIVAL).map_err(|e| e.to_string())?;
    let mut came = vec![0; SENT];
    memory.read(there, &mut came).map_err(|e| e.to_string())?;
    if came != sent {
        return Err(format!("the write of {SENT} bytes in loopback completed, and other bytes arrived"));
    }
    Ok(format!("a queue pair is ready to send in loopback, and {SENT} bytes arrived"))
}

#[cfg(all(test, feature = "soft"))]
mod tests {
    use super::super::stand_in;
    use super::*;
    use crate::soft::nic::{SoftNic, SoftNicConfig};

    fn nic(options: &str) -> SoftNic {
        SoftNic::start(SoftNicConfig::new([7; 32]).options(options).unwrap()).unwrap()
    }

    #[test]
    fn bytes_arrive_in_loopback() {
        let said = send_in_loopback(&nic("")).unwrap();
        assert!(said.contains("64 bytes arrived"), "{said}");
        // Commands of mlx5, checked as strictly as firmware may.
        send_in_loopback(stand_in::adapter(&DeviceChoice::default(), "").as_ref()).unwrap();
        let (space, near) = (Space::cpu(), stand_in::adapter(&DeviceChoice::default(), ""));
        connected(near.as_ref(), &space, Place::Device).unwrap();
    }

    #[test]
    fn a_request_that_fails_is_named_by_its_syndrome() {
        let e = send_in_loopback(&nic("fault=syndrome:0x13@nth:1")).unwrap_err();
        assert!(e.contains("0x13"), "{e}");
    }
}
