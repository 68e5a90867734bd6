//! Trying a device out: opening it, registering memory, mapping a doorbell, each undone at once.

use super::mlx5::Mlx5Adapter;
use super::verbs::{Context, ProtectionDomain, Registrar};
use super::{Chosen, DeviceChoice, DoorbellChoice, RdmaDevice, Rights, Transport};
use crate::memory::{Place, Region, Space};
use serde::Serialize;

/// As small as GPU memory comes.
const BYTES: usize = 64 << 10;

/// What was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeStep {
    /// Opening the device.
    Open,
    /// Registering host memory.
    HostMemory,
    /// Registering memory of a GPU.
    GpuMemory,
    /// Opening it for commands to the firmware, and asking what it can do.
    Devx,
    /// Mapping a doorbell where kernels reach it.
    Doorbell,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// What was tried.
    pub step: ProbeStep,
    /// How it went, or why it did not.
    pub outcome: Result<String, String>,
}

/// Tries a device out, with memory and doorbells of a GPU where there is one.
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
    tell(ProbeStep::Open, Ok("it opens, and gives a protection domain".to_owned()));
    let register = |space: &Space, place| {
        let memory: Region = space.allocate(place, BYTES).map_err(|e| text(&e))?;
        let registrar = Registrar::new(domain.clone(), space.clone());
        // SAFETY: the registration goes before the memory.
        let registration = unsafe { registrar.register((&memory).into(), Rights::ALL) }.map_err(|e| text(&e))?;
        drop(registration);
        Ok(registrar.registration_path().to_string())
    };
    tell(ProbeStep::HostMemory, register(&Space::cpu(), Place::Host).map(|_| "it registers".to_owned()));
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
        let commands =
            open(DoorbellChoice::Cpu).map(|()| "the firmware takes commands, and can do what kernels need".to_owned());
        if tell(ProbeStep::Devx, commands) && gpu.is_some() {
            tell(ProbeStep::Doorbell, open(DoorbellChoice::Gpu).map(|()| "the GPU maps a doorbell".to_owned()));
        }
    }
    all
}
