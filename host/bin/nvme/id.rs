//! Runs `warpbell nvme id`: prints the Identify data of a controller and its namespaces.

use super::inspect::{InspectArgs, Structure, print};
use crate::output::Failure;
use serde::Serialize;
use warpbell::nvme::{Controller, Ready, WriteCache};
use warpbell::units::Bytes;
use warpbell::wire::nvme::fields::{CONTROLLER, NAMESPACE};
use warpbell::wire::nvme::identify::IdentifyNamespace;

#[derive(Serialize)]
struct Id {
    driver: Driver,
    controller: Structure,
    namespaces: Vec<Namespace>,
}

/// Properties of the controller that the driver derives.
#[derive(Serialize)]
struct Driver {
    version: String,
    cap: u64,
    queue_entries: u32,
    queue_pairs: u32,
    doorbell_stride_bytes: u32,
    memory_page_bytes: [u64; 2],
    ready_timeout_ms: u32,
    max_transfer_bytes: Option<u64>,
    write_cache: WriteCache,
    pci_id: Option<String>,
    quirks: Vec<String>,
}

#[derive(Serialize)]
struct Namespace {
    nsid: u32,
    #[serde(flatten)]
    fields: Structure,
    lbafs: Vec<Format>,
}

#[derive(Serialize)]
struct Format {
    ms: u16,
    ds: u8,
    rp: u8,
    in_use: bool,
}

/// Reads the Identify data and prints it.
///
/// # Errors
/// [`Failure::Error`] if the device cannot be opened, the chosen namespace is not active, or a command fails.
/// [`Failure::BrokenPipe`] if standard output was closed.
pub fn run(args: &InspectArgs) -> Result<(), Failure> {
    let opened = args.open()?;
    let controller = opened.open.controller();
    let mut namespaces = Vec::new();
    for nsid in opened.namespaces()? {
        match controller.identify_namespace(nsid)? {
            Some(identify) => namespaces.push(Namespace::new(nsid, &identify)),
            // This error names the active namespaces.
            None => drop(controller.namespace(nsid)?),
        }
    }
    let id = Id {
        driver: Driver::of(controller)?,
        controller: Structure { table: CONTROLLER, bytes: controller.identify().bytes().to_vec() },
        namespaces,
    };
    print("nvme id", args, &opened, &id, |id| text(&opened.device, id))
}

impl Driver {
    fn of(controller: &Controller<Ready>) -> Result<Self, Failure> {
        // The register of a remote controller itself: that of the port holds for queues in this machine's memory.
        let cap = controller.port().remote_capabilities().unwrap_or_else(|| controller.cap());
        let (major, minor, tertiary) = controller.version();
        Ok(Self {
            version: format!("{major}.{minor}.{tertiary}"),
            cap: cap.0,
            queue_entries: cap.max_queue_entries(),
            queue_pairs: controller.granted_queues(),
            doorbell_stride_bytes: 4 << cap.doorbell_stride(),
            memory_page_bytes: [1 << cap.min_page_shift(), 1 << cap.max_page_shift()],
            ready_timeout_ms: u32::from(cap.timeout_units()) * 500,
            max_transfer_bytes: controller.max_data_transfer(),
            write_cache: controller.write_cache()?,
            pci_id: controller.port().pci_id().map(|id| id.to_string()),
            quirks: controller.quirks().words(),
        })
    }

    fn lines(&self) -> Vec<String> {
        let most = self.max_transfer_bytes.map_or("no limit".to_owned(), |b| Bytes(b).to_string());
        let [least_page, most_page] = self.memory_page_bytes.map(Bytes);
        let mut lines = vec![
            format!("version   : {:<22} CAP {:#018x}", self.version, self.cap),
            format!("queues    : {:<22} I/O queue pairs of up to {} entries", self.queue_pairs, self.queue_entries),
            format!("doorbells : {:<22} bytes apart", self.doorbell_stride_bytes),
            format!("pages     : {:<22} 4 KiB are used", format!("{least_page} to {most_page}")),
            format!("ready     : {:<22} ms at most", self.ready_timeout_ms),
            format!("transfer  : {most:<22} by one command, through PRPs"),
            format!("cache     : {:<22} volatile write cache", self.write_cache.to_string()),
        ];
        if let Some(id) = &self.pci_id {
            lines.push(format!("function  : {id}"));
        }
        lines.extend(self.quirks.iter().map(|q| format!("quirk     : {q}")));
        lines
    }
}

impl Namespace {
    fn new(nsid: u32, identify: &IdentifyNamespace) -> Self {
        let current = identify.format_index();
        let formats = identify.formats();
        let lbafs = formats.iter().enumerate().map(|(i, f)| Format {
            ms: f.metadata_bytes,
            ds: f.data_shift,
            rp: f.performance,
            in_use: i == current,
        });
        let lbafs = lbafs.collect();
        Self { nsid, fields: Structure { table: NAMESPACE, bytes: identify.bytes().to_vec() }, lbafs }
    }

    fn lines(&self) -> Vec<String> {
        const PERFORMANCE: [&str; 4] = ["best", "better", "good", "degraded"];
        let mut lines = self.fields.lines();
        for (i, f) in self.lbafs.iter().enumerate() {
            let (ms, ds, rp) = (f.ms, f.ds, PERFORMANCE[usize::from(f.rp & 3)]);
            let used = if f.in_use { " (in use)" } else { "" };
            lines.push(format!("lbaf {i:>2}   : ms:{ms:<3} lbads:{ds:<2} rp:{:#x} {rp}{used}", f.rp));
        }
        lines
    }
}

fn text(device: &str, id: &Id) -> Vec<String> {
    let mut lines = vec![format!("NVMe controller {device}:")];
    lines.extend(id.driver.lines());
    lines.push(String::new());
    lines.push("NVMe Identify Controller:".to_owned());
    lines.extend(id.controller.lines());
    for n in &id.namespaces {
        lines.push(String::new());
        lines.push(format!("NVMe Identify Namespace {}:", n.nsid));
        lines.extend(n.lines());
    }
    lines
}
