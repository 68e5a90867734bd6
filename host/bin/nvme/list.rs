//! Runs `warpbell nvme list`: lists the controllers of this machine under any driver, and the devices that are named.

use crate::args::{DeadlineArgs, JsonArgs};
use crate::device;
use crate::output::{Failure, report_line, write_json};
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
        None => text(&list).iter().try_for_each(|l| report_line(format_args!("{l}"))),
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

/// Columns of the first line of a controller, and of the line below it.
const HEAD: [&str; 6] = ["Node", "Address", "Driver", "Group", "State", "Namespaces"];
const HEAD_BELOW: [&str; 3] = ["Model", "Serial", "Firmware"];
/// Longest name that has the other columns beside it. A longer one stands alone on its line.
const MOST_NAME: usize = 16;

/// One controller of the table.
struct Row {
    /// Cells of its first line, without the namespaces.
    cells: [String; 5],
    /// Each namespace: the first on that line, the others below it.
    namespaces: Vec<String>,
    /// Cells of its last line.
    below: [String; 3],
}

impl Row {
    fn of_controller(listed: &Listed) -> Self {
        let Listed { controller: c, state, .. } = listed;
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let namespaces = c.namespaces.iter().map(|n| space(n.nsid, Some(n.size_bytes), Some(n.block_bytes)));
        Self {
            cells: [
                known(&c.name),
                c.address.to_string(),
                known(&c.driver),
                known(&c.iommu_group),
                (*state).to_owned(),
            ],
            namespaces: namespaces.collect(),
            below: [known(&c.model), known(&c.serial), known(&c.firmware)],
        }
    }

    fn of_device(d: &Device) -> Self {
        let namespaces = d.namespaces.iter().map(|n| space(n.nsid.into(), n.size_bytes, n.block_bytes));
        let none = || "-".to_owned();
        Self {
            cells: [d.device.clone(), none(), none(), none(), "open".to_owned()],
            namespaces: namespaces.collect(),
            below: [d.model.clone(), d.serial.clone(), d.firmware.clone()],
        }
    }

    /// Returns the lines of the controller, in columns of these widths.
    fn lines(&self, widths: [usize; 5], widths_below: [usize; 3]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut cells = self.cells.clone();
        if cells[0].chars().count() > MOST_NAME {
            lines.push(std::mem::take(&mut cells[0]));
        }
        let none = ["-".to_owned()];
        let namespaces = if self.namespaces.is_empty() { &none[..] } else { &self.namespaces };
        for namespace in namespaces {
            lines.push(format!("{}  {namespace}", in_columns(&cells, widths)));
            cells = Default::default();
        }
        lines.push(format!("  {}", in_columns(&self.below, widths_below)).trim_end().to_owned());
        lines
    }
}

fn space(nsid: u64, size: Option<u64>, block: Option<u64>) -> String {
    let size = size.map_or_else(|| "?".to_owned(), |b| Bytes(b).to_string());
    format!("{nsid}: {size}/{}", block.map_or_else(|| "?".to_owned(), |b| b.to_string()))
}

fn in_columns<const N: usize>(cells: &[String; N], widths: [usize; N]) -> String {
    let cells = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
    cells.collect::<Vec<_>>().join("  ")
}

/// Returns the width of each column. Cells of the first one that are longer than `most` stand elsewhere.
fn widths<'a, const N: usize>(rows: impl Iterator<Item = &'a [String; N]> + Clone, most: usize) -> [usize; N] {
    std::array::from_fn(|i| {
        let lengths = rows.clone().map(|row| row[i].chars().count());
        lengths.filter(|length| i > 0 || *length <= most).max().unwrap_or(0)
    })
}

fn text(list: &List) -> Vec<String> {
    let of_controllers = list.controllers.iter().map(Row::of_controller);
    let mut rows: Vec<Row> = of_controllers.chain(list.devices.iter().map(Row::of_device)).collect();
    if rows.is_empty() {
        return vec!["this machine has no NVMe controller (lspci -d ::0108)".to_owned()];
    }
    let [node, address, driver, group, state, namespaces] = HEAD.map(str::to_owned);
    let cells = [node, address, driver, group, state];
    rows.insert(0, Row { cells, namespaces: vec![namespaces], below: HEAD_BELOW.map(str::to_owned) });
    let widths_below = widths(rows.iter().map(|row| &row.below), usize::MAX);
    let widths = widths(rows.iter().map(|row| &row.cells), MOST_NAME);
    let mut lines: Vec<String> = rows.iter().flat_map(|row| row.lines(widths, widths_below)).collect();
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
    use crate::args::DEADLINE;

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
        list.devices.push(Device::open("soft:mem:1M".as_ref(), DEADLINE).unwrap());
        let long = "soft:/a/folder/with/a/long/name.img";
        list.devices
            .push(Device { device: long.to_owned(), ..Device::open("soft:mem:1M".as_ref(), DEADLINE).unwrap() });
        for device in &mut list.devices {
            "S2".clone_into(&mut device.serial);
            "F2".clone_into(&mut device.firmware);
        }
        let lines = text(&list);
        assert_eq!(
            lines[..8],
            [
                "Node         Address       Driver    Group  State   Namespaces",
                "  Model                         Serial  Firmware",
                "-            0000:17:00.0  vfio-pci  -      vfio    -",
                "  -                             -       -",
                "nvme0        0000:65:00.0  nvme      -      kernel  1: 4 KiB/4096",
                "  ACME 1                        S1      -",
                "soft:mem:1M  -             -         -      open    1: 1 MiB/512",
                "  warpbell software controller  S2      F2",
            ]
        );
        assert_eq!(lines[8], long);
        assert!(lines[9].starts_with("             -             -"), "{lines:?}");
        assert_eq!(lines.len(), 13);
    }
}
