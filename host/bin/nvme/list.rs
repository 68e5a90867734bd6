//! Runs `warpbell nvme list`: lists the controllers of this machine under any driver, and the devices that are named.

use crate::args::{DeadlineArgs, JsonArgs};
use crate::device;
use crate::output::{Failure, line, write_json};
use clap::Args;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::time::Duration;
use warpbell::pci::{ListedController, Sysfs, in_use, is_vfio, nvme_listing};
use warpbell::units::Bytes;

#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    /// Also open and list this device: nvme:ADDRESS, soft:FILE or qtest:FILE; may be given several times
    #[arg(long = "device", value_name = "SPEC")]
    pub devices: Vec<OsString>,
    #[command(flatten)]
    pub wait: DeadlineArgs,
    #[command(flatten)]
    pub json: JsonArgs,
}

#[derive(Serialize)]
struct List {
    controllers: Vec<Listed>,
    devices: Vec<Device>,
}

/// A controller, as sysfs describes it.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    controller: ListedController,
    /// `in use`, `kernel`, `vfio` or `no driver`.
    state: &'static str,
    /// Uses of the controller by the system, the most important first.
    in_use: Vec<String>,
}

/// A device that the command opened.
#[derive(Serialize)]
struct Device {
    device: String,
    model: String,
    serial: String,
    firmware: String,
    queue_pairs: u32,
    namespaces: Vec<Namespace>,
}

#[derive(Serialize)]
struct Namespace {
    nsid: u32,
    size_bytes: Option<u64>,
    block_bytes: Option<u64>,
}

/// Lists the controllers.
///
/// # Errors
/// [`Failure::Error`] if a named device cannot be opened, a command fails, or the report cannot be written.
/// [`Failure::BrokenPipe`] if standard output was closed.
pub fn run(args: &ListArgs) -> Result<(), Failure> {
    let controllers = Listed::all(&Sysfs::system());
    let devices = args.devices.iter().map(|d| Device::open(d, args.wait.deadline)).collect::<Result<_, _>>()?;
    let list = List { controllers, devices };
    match &args.json.json {
        Some(path) => write_json("nvme list", &list, path),
        None => text(&list).iter().try_for_each(|l| line(format_args!("{l}"))),
    }
}

impl Listed {
    fn new(sysfs: &Sysfs, controller: ListedController) -> Self {
        let in_use: Vec<String> = in_use(sysfs, controller.address).iter().map(ToString::to_string).collect();
        let state = match controller.driver.as_deref() {
            None => "no driver",
            Some(driver) if is_vfio(driver) => "vfio",
            Some(_) if in_use.is_empty() => "kernel",
            Some(_) => "in use",
        };
        Self { controller, state, in_use }
    }

    fn all(sysfs: &Sysfs) -> Vec<Self> {
        nvme_listing(sysfs).into_iter().map(|c| Self::new(sysfs, c)).collect()
    }
}

impl Device {
    fn open(name: &OsStr, deadline: Duration) -> Result<Self, Failure> {
        let spec = device::to_look_at(name)?;
        let open = spec.open_controller()?;
        open.set_deadline(deadline);
        let controller = open.controller();
        let identify = controller.identify();
        let mut namespaces = Vec::new();
        for nsid in controller.namespaces()? {
            let Some(ns) = controller.identify_namespace(nsid)? else { continue };
            let block_bytes = ns.format().data_bytes();
            let size_bytes = block_bytes.and_then(|b| ns.blocks().checked_mul(b));
            namespaces.push(Namespace { nsid, size_bytes, block_bytes });
        }
        Ok(Self {
            device: spec.to_string(),
            model: identify.model(),
            serial: identify.serial(),
            firmware: identify.firmware(),
            queue_pairs: controller.granted_queues(),
            namespaces,
        })
    }
}

const HEAD: [&str; 9] = ["Node", "Address", "Driver", "Group", "Model", "Serial", "Firmware", "Namespaces", "State"];

fn text(list: &List) -> Vec<String> {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let space = |nsid: u64, size: Option<u64>, block: Option<u64>| {
        let size = size.map_or_else(|| "?".to_owned(), |b| Bytes(b).to_string());
        format!("{nsid}: {size}/{}", block.map_or_else(|| "?".to_owned(), |b| b.to_string()))
    };
    let joined = |spaces: Vec<String>| if spaces.is_empty() { "-".to_owned() } else { spaces.join(", ") };
    let mut rows: Vec<[String; 9]> = Vec::new();
    for Listed { controller: c, state, .. } in &list.controllers {
        let spaces = c.namespaces.iter().map(|n| space(n.nsid, Some(n.size_bytes), Some(n.block_bytes)));
        rows.push([
            known(&c.name),
            c.address.to_string(),
            known(&c.driver),
            known(&c.iommu_group),
            known(&c.model),
            known(&c.serial),
            known(&c.firmware),
            joined(spaces.collect()),
            (*state).to_owned(),
        ]);
    }
    for d in &list.devices {
        let spaces = d.namespaces.iter().map(|n| space(n.nsid.into(), n.size_bytes, n.block_bytes));
        let none = || "-".to_owned();
        let (model, serial, firmware) = (d.model.clone(), d.serial.clone(), d.firmware.clone());
        let spaces = joined(spaces.collect());
        rows.push([d.device.clone(), none(), none(), none(), model, serial, firmware, spaces, "open".to_owned()]);
    }
    if rows.is_empty() {
        return vec!["this machine has no NVMe controller (lspci -d ::0108)".to_owned()];
    }
    rows.insert(0, HEAD.map(str::to_owned));
    let widths: [usize; 9] = std::array::from_fn(|i| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0));
    let pad = |row: &[String; 9]| -> String {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(pad).collect();
    for c in &list.controllers {
        lines.extend(c.in_use.iter().map(|reason| format!("{} {reason}", c.controller.address)));
    }
    if list.controllers.iter().any(|c| c.state == "kernel") {
        lines.push("state kernel: the kernel's driver has it; warpbell nvme bind takes it".to_owned());
    }
    if list.controllers.iter().any(|c| c.state == "vfio") {
        lines.push("state vfio: user space can drive it; --device nvme:ADDRESS opens it".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(folder: &std::path::Path) -> List {
        let controllers = Listed::all(&Sysfs::at(folder));
        List { controllers, devices: Vec::new() }
    }

    #[test]
    fn controllers_stand_in_columns() {
        let dir = tempfile::tempdir().unwrap();
        assert!(text(&list(dir.path()))[0].contains("no NVMe controller"));
        for (bdf, driver) in [("0000:17:00.0", "vfio-pci"), ("0000:65:00.0", "nvme")] {
            let folder = dir.path().join("sys/bus/pci/devices").join(bdf);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("class"), "0x010802\n").unwrap();
            std::os::unix::fs::symlink(format!("../../drivers/{driver}"), folder.join("driver")).unwrap();
        }
        let node = dir.path().join("sys/class/nvme/nvme0");
        std::fs::create_dir_all(node.join("nvme0n1/queue")).unwrap();
        for (file, value) in [("address", "0000:65:00.0"), ("model", "ACME 1"), ("serial", "S1"), ("transport", "pcie")]
        {
            std::fs::write(node.join(file), value).unwrap();
        }
        for (file, value) in [("nsid", "1"), ("size", "8"), ("queue/logical_block_size", "4096")] {
            std::fs::write(node.join("nvme0n1").join(file), value).unwrap();
        }
        let mut list = list(dir.path());
        list.devices.push(Device::open("soft:mem:1M".as_ref(), Duration::from_secs(10)).unwrap());
        let lines = text(&list);
        assert!(lines[0].starts_with("Node         Address       Driver"), "{lines:?}");
        assert!(lines[1].starts_with("-            0000:17:00.0  vfio-pci  -      -") && lines[1].ends_with("vfio"));
        assert!(
            lines[2].starts_with("nvme0        0000:65:00.0  nvme ") && lines[2].contains("1: 4 KiB/4096"),
            "{lines:?}"
        );
        assert!(lines[3].starts_with("soft:mem:1M  -") && lines[3].ends_with("open"), "{lines:?}");
        assert_eq!(lines.len(), 6);
    }
}
