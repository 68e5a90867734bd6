//! A controller of this machine, through VFIO: registers mapped, memory mapped by the IOMMU, nothing of the kernel between.
//!
//! Two interfaces lead to the same device: the group (`/dev/vfio/<group>`, in every kernel with VFIO) and the device file
//! with iommufd (`/dev/vfio/devices/vfioN`, Linux 6.6). Who may open these files needs no other right.

mod addresses;
mod bar;
mod capability;
mod cdev;
mod deferred_close;
mod device;
mod dma;
mod error;
mod event;
mod group;
mod memlock;
mod pages;
mod physical;
mod port;
mod uapi;

pub use device::VfioDevice;
pub use error::VfioError;
pub use event::EventFd;

use super::{Attachment, DmaSpace};
use crate::data_path::choices;
use crate::memory::IommuMap;
use crate::memory::mapping::GDRDRV;
use crate::pci::{Bdf, IommuGroup, Sysfs};
use crate::setters::setters;
use crate::this_host::take;
use device::Claim;
use dma::VfioDma;
use group::{Container, Type1Map};
use physical::PhysicalDma;
use port::VfioPort;
use std::any::Any;
use std::sync::Arc;

choices! {
    /// Which of VFIO's interfaces to use.
    #[derive(Default)]
    VfioApi:
    /// The group where gdrdrv's device file can be opened, since only its type1 maps what gdrdrv maps; otherwise the device file
    /// where the kernel has one. The other of the two where the first does not open.
    #[default]
    Auto = "auto",
    /// The group, with type1.
    Group = "group",
    /// The device file, with iommufd.
    Cdev = "cdev"
}

/// Which controller, and how.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VfioConfig {
    /// The function. It must be bound to vfio-pci.
    pub bdf: Bdf,
    /// Which interface.
    pub api: VfioApi,
    /// Whether a device without an IOMMU is taken. It can then write to any memory of the machine.
    pub unsafe_no_iommu: bool,
    /// Where `/sys` and `/dev` are.
    pub sysfs: Sysfs,
}

setters!(VfioConfig { api: VfioApi, unsafe_no_iommu: bool, sysfs: Sysfs });

impl VfioConfig {
    /// The best interface, and only with an IOMMU.
    pub fn new(bdf: Bdf) -> Self {
        Self { bdf, api: VfioApi::Auto, unsafe_no_iommu: false, sysfs: Sysfs::system() }
    }
}

/// A controller that is open: its device, for what only VFIO can ask of it, and its attachment for the driver.
#[derive(Debug)]
pub struct Vfio {
    /// The device.
    pub device: Arc<VfioDevice>,
    /// Registers and address space.
    pub attachment: Attachment,
    /// The interface that was taken: [`VfioApi::Group`] or [`VfioApi::Cdev`].
    pub api: VfioApi,
}

/// Opens a controller that is bound to vfio-pci. Nothing is written to its registers. A controller that another process has is
/// asked for again for up to a second: its holder may just have been killed.
pub fn open(config: &VfioConfig) -> Result<Vfio, VfioError> {
    take(|| open_now(config), |e| matches!(e, VfioError::Busy { holder, .. } if holder != device::THIS_PROCESS))
}

fn open_now(config: &VfioConfig) -> Result<Vfio, VfioError> {
    let VfioConfig { bdf, sysfs, .. } = config;
    let (bdf, device) = (*bdf, bdf.to_string());
    let folder = format!("/sys/bus/pci/devices/{bdf}");
    if !sysfs.exists(&folder) {
        return Err(VfioError::NoDevice { device });
    }
    let driver = sysfs.link_name(format!("{folder}/driver"));
    if !driver.as_deref().is_some_and(crate::pci::is_vfio) {
        return Err(VfioError::NotBound { device, driver });
    }
    let Some(group) = IommuGroup::of(sysfs, bdf) else { return Err(VfioError::NoGroup { device }) };
    if group.is_no_iommu && !config.unsafe_no_iommu {
        return Err(VfioError::Unsafe { device });
    }
    let others: Vec<String> = group.in_the_way(bdf).map(ToString::to_string).collect();
    if !others.is_empty() {
        return Err(VfioError::NotViable { device, group: group.number, others });
    }
    let claim = Claim::new(bdf)?;
    if group.is_no_iommu {
        if config.api == VfioApi::Cdev {
            let reason = "there is no IOMMU to attach it to; leave out api=cdev".to_owned();
            return Err(VfioError::NoInterface { device, api: "VFIO by device file", reason });
        }
        tracing::warn!(device, "opened without an IOMMU: it can write to any memory of this machine");
        let container = Container::open(sysfs, &device, group.number, true)?;
        let fd = container.device(bdf)?;
        let dma = PhysicalDma::new(device.clone()).map_err(|e| VfioError::NoInterface {
            device,
            api: "VFIO without an IOMMU",
            reason: e.to_string(),
        })?;
        return finish(VfioDevice::new(bdf, fd, container, claim)?, Arc::new(dma), VfioApi::Group);
    }
    let (first, second) = order(config.api, cdev::is_there(sysfs, bdf), gdrdrv_opens(sysfs));
    let through = |api| match api {
        VfioApi::Cdev => cdev::open(sysfs, bdf).map(|(fd, space)| -> Opened { (fd, space.clone(), space) }),
        _ => by_group(sysfs, bdf, group.number),
    };
    let (api, (fd, map, keep)) = match (through(first), second) {
        (Err(e), Some(second)) if is_closed(&e) => {
            tracing::warn!(device, error = %e, "VFIO by {first} does not open; trying by {second}");
            // Where both are closed the group's files are the ones to ask for: more is mapped through them.
            let group_first = |other| if first == VfioApi::Group && is_closed(&other) { e } else { other };
            let opened = through(second).map_err(group_first)?;
            (second, opened)
        }
        (opened, _) => (first, opened?),
    };
    let dma = VfioDma::new(map, device);
    finish(VfioDevice::new(bdf, fd, keep, claim)?, Arc::new(dma), api)
}

/// The descriptor of a device, its address space, and what keeps both open.
type Opened = (std::os::fd::OwnedFd, Arc<dyn IommuMap>, Arc<dyn Any + Send + Sync>);

/// Which interface is tried first, and which one if that is closed to this process.
fn order(asked: VfioApi, has_file: bool, gdrdrv: bool) -> (VfioApi, Option<VfioApi>) {
    match (asked, has_file, gdrdrv) {
        (VfioApi::Auto, false, _) => (VfioApi::Group, None),
        // gdrdrv's mapping is the first rung of the ladder, and type1 alone takes it: iommufd pins pages, and a GPU's BAR has none.
        // iommufd's own rung is no loss, as it takes dma-bufs of vfio-pci devices only. Which engine will use the controller
        // is not known yet, and host memory is mapped as well through either.
        (VfioApi::Auto, true, true) => (VfioApi::Group, Some(VfioApi::Cdev)),
        (VfioApi::Auto, true, false) => (VfioApi::Cdev, Some(VfioApi::Group)),
        (asked, ..) => (asked, None),
    }
}

/// Returns true if this process may use gdrdrv, which is there only where a GPU's driver is.
fn gdrdrv_opens(sysfs: &Sysfs) -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open(sysfs.path(GDRDRV)).is_ok()
}

/// Returns true if an interface is not given to this process, or not there; another one may be.
fn is_closed(e: &VfioError) -> bool {
    matches!(e, VfioError::Rights { .. } | VfioError::NoNode { .. } | VfioError::NoInterface { .. })
}

fn by_group(sysfs: &Sysfs, bdf: Bdf, number: u32) -> Result<Opened, VfioError> {
    let container = Container::open(sysfs, &bdf.to_string(), number, false)?;
    let fd = container.device(bdf)?;
    Ok((fd, Arc::new(Type1Map::new(container.clone(), bdf)), container))
}

fn finish(device: VfioDevice, dma: Arc<dyn DmaSpace>, api: VfioApi) -> Result<Vfio, VfioError> {
    let device = Arc::new(device);
    let port = Arc::new(VfioPort::new(device.clone())?);
    Ok(Vfio { device, attachment: Attachment { port, dma }, api })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fixture::{Device, Fixture};

    const FILES: [&str; 2] = ["/dev/iommu", "/dev/vfio/devices/vfio3"];
    const GROUP: [&str; 2] = ["/dev/vfio/vfio", "/dev/vfio/12"];

    /// A controller that is bound to vfio-pci, on a kernel with both interfaces; of the device nodes those that are given.
    fn machine(bdf: &str, nodes: &[&str]) -> Fixture {
        let tree = Fixture::new();
        let controller = Device { class: 0x01_08_02, driver: Some("vfio-pci"), group: Some(12), ..Device::default() };
        tree.pci(&format!("pci0000:00/{bdf}"), &controller);
        tree.folder(&format!("/sys/bus/pci/devices/{bdf}/vfio-dev/vfio3"));
        for node in nodes {
            tree.node(node, 0o666);
        }
        tree
    }

    /// The first request of an interface: recorded nodes are plain files, which refuse it.
    fn tried(tree: &Fixture, bdf: &str, api: VfioApi) -> String {
        let config = VfioConfig { api, sysfs: Sysfs::at(tree.root()), ..VfioConfig::new(bdf.parse().unwrap()) };
        match open(&config).unwrap_err() {
            VfioError::Call { call, .. } => call.to_owned(),
            other => other.to_string(),
        }
    }

    #[test]
    fn beside_gdrdrv_auto_takes_the_group() {
        const BDF: &str = "0000:00:1e.0";
        let (by_group, by_file) = ("VFIO_GET_API_VERSION", "VFIO_DEVICE_BIND_IOMMUFD");
        let both = [FILES, GROUP].concat();
        let without = machine(BDF, &both);
        assert_eq!(tried(&without, BDF, VfioApi::Auto), by_file);
        // A module whose file cannot be opened for reading and writing maps nothing.
        without.folder("/dev/gdrdrv");
        assert_eq!(tried(&without, BDF, VfioApi::Auto), by_file);
        let with = machine(BDF, &both);
        with.node("/dev/gdrdrv", 0o666);
        assert_eq!(tried(&with, BDF, VfioApi::Auto), by_group);
        assert_eq!(tried(&with, BDF, VfioApi::Cdev), by_file);
        assert_eq!(tried(&with, BDF, VfioApi::Group), by_group);
    }

    #[test]
    fn beside_gdrdrv_a_group_that_does_not_open_leaves_the_device_file() {
        const BDF: &str = "0000:00:1f.0";
        let tree = machine(BDF, &FILES);
        tree.node("/dev/gdrdrv", 0o666);
        assert_eq!(tried(&tree, BDF, VfioApi::Auto), "VFIO_DEVICE_BIND_IOMMUFD");
        // With neither, it is the group that is asked for: the better one here.
        let tree = machine(BDF, &["/dev/iommu", "/dev/gdrdrv"]);
        let told = tried(&tree, BDF, VfioApi::Auto);
        assert!(told.contains("/dev/vfio/vfio: no such file"), "{told}");
    }
}
