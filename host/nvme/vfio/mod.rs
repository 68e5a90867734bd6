//! A controller of this machine, through VFIO: registers mapped, memory mapped by the IOMMU, nothing of the kernel between.
//!
//! Two interfaces lead to the same device: the group (`/dev/vfio/<group>`, in every kernel with VFIO) and the device file
//! with iommufd (`/dev/vfio/devices/vfioN`, Linux 6.6). Who may open these files needs no other right.

mod addresses;
mod bar;
mod capability;
mod cdev;
mod device;
mod dma;
mod error;
mod event;
mod farewell;
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
use crate::memory::IommuMap;
use crate::pci::{Bdf, IommuGroup, Sysfs};
use device::Claim;
use dma::VfioDma;
use group::{Container, Type1Map};
use physical::PhysicalDma;
use port::VfioPort;
use std::any::Any;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Which of VFIO's interfaces to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VfioApi {
    /// The device file where the kernel has one, the group otherwise.
    #[default]
    Auto,
    /// The group, with type1.
    Group,
    /// The device file, with iommufd.
    Cdev,
}

impl FromStr for VfioApi {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "group" => Ok(Self::Group),
            "cdev" => Ok(Self::Cdev),
            _ => Err("it is auto, group or cdev".to_owned()),
        }
    }
}

impl fmt::Display for VfioApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Group => "group",
            Self::Cdev => "cdev",
        })
    }
}

/// Which controller, and how.
#[derive(Clone, Debug)]
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

/// Opens a controller that is bound to vfio-pci. Nothing is written to its registers.
pub fn open(config: &VfioConfig) -> Result<Vfio, VfioError> {
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
    let by_file = match config.api {
        VfioApi::Auto => cdev::is_there(sysfs, bdf),
        VfioApi::Group => false,
        VfioApi::Cdev => true,
    };
    let (fd, map, keep): (_, Arc<dyn IommuMap>, Arc<dyn Any + Send + Sync>) = if by_file {
        match cdev::open(sysfs, bdf) {
            Ok((fd, space)) => (fd, space.clone(), space),
            // A user who was given the group and not the device file.
            Err(VfioError::Rights { .. }) if config.api == VfioApi::Auto => by_group(sysfs, bdf, group.number)?,
            Err(e) => return Err(e),
        }
    } else {
        by_group(sysfs, bdf, group.number)?
    };
    let api = match map.kind() {
        crate::memory::IommuKind::Iommufd => VfioApi::Cdev,
        crate::memory::IommuKind::Type1 => VfioApi::Group,
    };
    let dma = VfioDma::new(map, device);
    finish(VfioDevice::new(bdf, fd, keep, claim)?, Arc::new(dma), api)
}

type ByGroup = (std::os::fd::OwnedFd, Arc<dyn IommuMap>, Arc<dyn Any + Send + Sync>);

fn by_group(sysfs: &Sysfs, bdf: Bdf, number: u32) -> Result<ByGroup, VfioError> {
    let container = Container::open(sysfs, &bdf.to_string(), number, false)?;
    let fd = container.device(bdf)?;
    Ok((fd, Arc::new(Type1Map::new(container.clone(), bdf)), container))
}

fn finish(device: VfioDevice, dma: Arc<dyn DmaSpace>, api: VfioApi) -> Result<Vfio, VfioError> {
    let device = Arc::new(device);
    let port = Arc::new(VfioPort::new(device.clone())?);
    Ok(Vfio { device, attachment: Attachment { port, dma }, api })
}
