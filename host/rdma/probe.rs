//! Probes a device: opens it, registers memory and maps a doorbell, and undoes each step at once.

use super::mlx5::Mlx5Adapter;
use super::verbs::{Context, ProtectionDomain, Registrar};
use super::{Chosen, DeviceChoice, DoorbellChoice, RdmaDevice, Rights, Transport};
use crate::memory::{Place, Region, Space};
use serde::Serialize;

/// Smallest allocation of GPU memory, in bytes.
const BYTES: usize = 64 << 10;

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
    /// Opens the device for firmware commands (DevX) and checks its capabilities.
    Devx,
    /// Maps a doorbell register into the address space of kernels.
    Doorbell,
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
    let port = device.active_ports().next().or(device.ports.first());
    if let (true, Some(port)) = (device.is_mlx5(), port) {
        let chosen = Chosen { device: device.clone(), port: port.clone(), distance: None };
        let open = |doorbell| {
            let choice = DeviceChoice { doorbell, ..DeviceChoice::default() };
            let cpu = Space::cpu();
            Mlx5Adapter::open(&chosen, &choice, gpu.unwrap_or(&cpu)).map(drop).map_err(|e| text(&e))
        };
        let commands = open(DoorbellChoice::Cpu)
            .map(|()| "the firmware accepts commands and has the capabilities that kernels need".to_owned());
        if tell(ProbeStep::Devx, commands) && gpu.is_some() {
            tell(ProbeStep::Doorbell, open(DoorbellChoice::Gpu).map(|()| "the GPU maps a doorbell".to_owned()));
        }
    }
    all
}
