//! A controller of this machine through VFIO: this process maps the registers, and the IOMMU maps memory for the
//! device. The kernel takes no part in I/O.
//!
//! Two interfaces give access to the same device: the group (`/dev/vfio/<group>`, in every kernel with
//! VFIO), and the device file with iommufd (`/dev/vfio/devices/vfioN`, Linux 6.6). A user who may open these
//! files needs no other right.

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

internal!(device::VfioDevice);
pub use error::VfioError;
internal!(event::EventFd);

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
    /// Choice of VFIO's interface.
    #[derive(Default)]
    VfioApi:
    /// The group if gdrdrv's device file can be opened, because only type1 maps the memory that gdrdrv maps. Otherwise
    /// the device file, if the kernel has one. If the first choice does not open, the other of the two.
    #[default]
    Auto = "auto",
    /// The group, with type1.
    Group = "group",
    /// The device file, with iommufd.
    Cdev = "cdev"
}

/// Configuration for opening a controller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VfioConfig {
    /// Address of the PCI function. It must be bound to vfio-pci.
    pub bdf: Bdf,
    /// Interface to use.
    pub api: VfioApi,
    /// True to accept a device without an IOMMU. Such a device can write to any memory of the machine.
    pub unsafe_no_iommu: bool,
    /// Location of `/sys` and `/dev`.
    pub sysfs: Sysfs,
}

setters!(VfioConfig { api: VfioApi, unsafe_no_iommu: bool, sysfs: Sysfs });

impl VfioConfig {
    /// Creates a configuration with automatic choice of the interface, for a device with an IOMMU.
    pub fn new(bdf: Bdf) -> Self {
        Self { bdf, api: VfioApi::Auto, unsafe_no_iommu: false, sysfs: Sysfs::system() }
    }
}

/// An open controller: its VFIO device, for functions that only VFIO has, and its attachment for the driver.
#[derive(Debug)]
pub struct Vfio {
    /// VFIO device.
    #[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "for tests and tools"))]
    pub device: Arc<VfioDevice>,
    /// Registers and address space of the controller.
    pub attachment: Attachment,
    /// Interface in use: [`VfioApi::Group`] or [`VfioApi::Cdev`].
    #[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "for tests and tools"))]
    pub api: VfioApi,
}

/// Opens a controller that is bound to vfio-pci. Writes nothing to its registers. If another process holds the
/// controller, retries for up to one second, because that process may just have been killed.
///
/// # Errors
/// - [`VfioError::NoDevice`], [`VfioError::NotBound`] or [`VfioError::NotNvme`] if the address has no NVMe controller
///   that is bound to vfio-pci.
/// - [`VfioError::NoGroup`] or [`VfioError::Unsafe`] if it has no IOMMU, [`VfioError::NotViable`] if a host driver uses
///   another device of its group.
/// - [`VfioError::Busy`] if it is in use.
/// - [`VfioError::NoNode`], [`VfioError::Rights`], [`VfioError::Open`] or [`VfioError::NoInterface`] if VFIO's files do
///   not open, or the kernel lacks the interface.
/// - [`VfioError::Call`], [`VfioError::Config`] or [`VfioError::Registers`] if the kernel refuses a request or access.
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
            tracing::warn!(device, error = %e, "opening VFIO by {first} failed; trying by {second}");
            // If neither opens, reports the error of the group: more memory is mappable through it.
            let group_first = |other| if first == VfioApi::Group && is_closed(&other) { e } else { other };
            let opened = through(second).map_err(group_first)?;
            (second, opened)
        }
        (opened, _) => (first, opened?),
    };
    let dma = VfioDma::new(map, device);
    finish(VfioDevice::new(bdf, fd, keep, claim)?, Arc::new(dma), api)
}

/// Descriptor of a device, its address space, and an owner that keeps both open.
type Opened = (std::os::fd::OwnedFd, Arc<dyn IommuMap>, Arc<dyn Any + Send + Sync>);

/// Returns the interface to try first, and the one to try if this process cannot use the first.
fn order(asked: VfioApi, has_file: bool, gdrdrv: bool) -> (VfioApi, Option<VfioApi>) {
    match (asked, has_file, gdrdrv) {
        (VfioApi::Auto, false, _) => (VfioApi::Group, None),
        // gdrdrv is the first mapping backend, and only type1 maps its memory: iommufd pins pages, and a GPU's BAR has
        // none. The iommufd backend is no loss, because it maps only dma-bufs of vfio-pci devices. Which engine will
        // use the controller is not known yet, and both interfaces map host memory equally well.
        (VfioApi::Auto, true, true) => (VfioApi::Group, Some(VfioApi::Cdev)),
        (VfioApi::Auto, true, false) => (VfioApi::Cdev, Some(VfioApi::Group)),
        (asked, ..) => (asked, None),
    }
}

/// Returns true if this process can open gdrdrv's device file, which exists only on machines with a GPU driver.
fn gdrdrv_opens(sysfs: &Sysfs) -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open(sysfs.path(GDRDRV)).is_ok()
}

/// Returns true if this process may not use an interface, or the interface is missing. The other one may still work.
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

    /// Creates a machine with a controller bound to vfio-pci, on a kernel with both interfaces. Only
    /// the given device nodes exist.
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

    /// Returns the first request of an interface. The fixture's nodes are plain files, which refuse it.
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
        // If neither interface opens, the error names the group, which is the better choice here.
        let tree = machine(BDF, &["/dev/iommu", "/dev/gdrdrv"]);
        let told = tried(&tree, BDF, VfioApi::Auto);
        assert!(told.contains("/dev/vfio/vfio: no such file"), "{told}");
    }
}
