//! linux/vfio.h, with the device-file requests of Linux 6.6.

use super::{calls, io};
use bytemuck::{Pod, Zeroable};

const BASE: u32 = 100;

/// The only version of the interface.
pub(in crate::nvme::vfio) const VFIO_API_VERSION: i32 = 0;
pub(in crate::nvme::vfio) const VFIO_GET_API_VERSION: u32 = io(BASE);
pub(in crate::nvme::vfio) const VFIO_CHECK_EXTENSION: u32 = io(BASE + 1);
pub(in crate::nvme::vfio) const VFIO_SET_IOMMU: u32 = io(BASE + 2);
const VFIO_GROUP_GET_STATUS: u32 = io(BASE + 3);
/// Takes the address of the container's descriptor.
pub(in crate::nvme::vfio) const VFIO_GROUP_SET_CONTAINER: u32 = io(BASE + 4);
/// Takes a C string: the device's name.
pub(in crate::nvme::vfio) const VFIO_GROUP_GET_DEVICE_FD: u32 = io(BASE + 6);
const VFIO_DEVICE_GET_INFO: u32 = io(BASE + 7);
const VFIO_DEVICE_GET_REGION_INFO: u32 = io(BASE + 8);
const VFIO_DEVICE_GET_IRQ_INFO: u32 = io(BASE + 9);
/// Takes [`IrqSet`], followed by its data.
pub(in crate::nvme::vfio) const VFIO_DEVICE_SET_IRQS: u32 = io(BASE + 10);
pub(in crate::nvme::vfio) const VFIO_DEVICE_RESET: u32 = io(BASE + 11);
const VFIO_IOMMU_GET_INFO: u32 = io(BASE + 12);
const VFIO_IOMMU_MAP_DMA: u32 = io(BASE + 13);
const VFIO_IOMMU_UNMAP_DMA: u32 = io(BASE + 14);
const VFIO_DEVICE_BIND_IOMMUFD: u32 = io(BASE + 18);
const VFIO_DEVICE_ATTACH_IOMMUFD_PT: u32 = io(BASE + 19);

/// Backends of a container.
pub(in crate::nvme::vfio) const VFIO_TYPE1V2_IOMMU: usize = 3;
pub(in crate::nvme::vfio) const VFIO_NOIOMMU_IOMMU: usize = 8;

pub(in crate::nvme::vfio) const VFIO_GROUP_FLAGS_VIABLE: u32 = 1;

pub(in crate::nvme::vfio) const VFIO_DEVICE_FLAGS_RESET: u32 = 1;
pub(in crate::nvme::vfio) const VFIO_DEVICE_FLAGS_PCI: u32 = 1 << 1;

pub(in crate::nvme::vfio) const VFIO_REGION_INFO_FLAG_MMAP: u32 = 1 << 2;
pub(in crate::nvme::vfio) const VFIO_REGION_INFO_FLAG_CAPS: u32 = 1 << 3;
pub(in crate::nvme::vfio) const VFIO_REGION_INFO_CAP_SPARSE_MMAP: u16 = 1;

/// Regions of a PCI device: the BARs by number, then these.
pub(in crate::nvme::vfio) const VFIO_PCI_BAR0_REGION_INDEX: u32 = 0;
pub(in crate::nvme::vfio) const VFIO_PCI_CONFIG_REGION_INDEX: u32 = 7;

/// Interrupts of a PCI device.
#[cfg(feature = "internals")]
pub(in crate::nvme::vfio) const VFIO_PCI_MSIX_IRQ_INDEX: u32 = 2;
pub(in crate::nvme::vfio) const VFIO_PCI_ERR_IRQ_INDEX: u32 = 3;
pub(in crate::nvme::vfio) const VFIO_PCI_REQ_IRQ_INDEX: u32 = 4;

pub(in crate::nvme::vfio) const VFIO_IRQ_SET_DATA_NONE: u32 = 1;
pub(in crate::nvme::vfio) const VFIO_IRQ_SET_DATA_EVENTFD: u32 = 1 << 2;
pub(in crate::nvme::vfio) const VFIO_IRQ_SET_ACTION_TRIGGER: u32 = 1 << 5;

pub(in crate::nvme::vfio) const VFIO_IOMMU_INFO_PGSIZES: u32 = 1;
pub(in crate::nvme::vfio) const VFIO_IOMMU_INFO_CAPS: u32 = 1 << 1;
pub(in crate::nvme::vfio) const VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE: u16 = 1;
pub(in crate::nvme::vfio) const VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL: u16 = 3;

pub(in crate::nvme::vfio) const VFIO_DMA_MAP_FLAG_READ: u32 = 1;
pub(in crate::nvme::vfio) const VFIO_DMA_MAP_FLAG_WRITE: u32 = 1 << 1;

/// `struct vfio_group_status`
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct GroupGetStatus {
    pub argsz: u32,
    pub flags: u32,
}

/// `struct vfio_device_info`
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct DeviceGetInfo {
    pub argsz: u32,
    pub flags: u32,
    pub num_regions: u32,
    pub num_irqs: u32,
    pub cap_offset: u32,
}

/// `struct vfio_region_info`
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct DeviceGetRegionInfo {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub cap_offset: u32,
    pub size: u64,
    pub offset: u64,
}

/// `struct vfio_irq_info`
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct DeviceGetIrqInfo {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub count: u32,
}

/// `struct vfio_irq_set` without its data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct IrqSet {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub start: u32,
    pub count: u32,
}
const _: () = assert!(size_of::<IrqSet>() == 20);

/// `struct vfio_iommu_type1_info`. The last field is the header's padding.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct IommuGetInfo {
    pub argsz: u32,
    pub flags: u32,
    pub iova_pgsizes: u64,
    pub cap_offset: u32,
    pub pad: u32,
}

/// `struct vfio_iommu_type1_dma_map`
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct IommuMapDma {
    pub argsz: u32,
    pub flags: u32,
    pub vaddr: u64,
    pub iova: u64,
    pub size: u64,
}

/// `struct vfio_iommu_type1_dma_unmap` without a bitmap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct IommuUnmapDma {
    pub argsz: u32,
    pub flags: u32,
    pub iova: u64,
    pub size: u64,
}

/// `struct vfio_device_bind_iommufd`, first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct DeviceBindIommufd {
    pub argsz: u32,
    pub flags: u32,
    pub iommufd: i32,
    pub out_devid: u32,
}

/// `struct vfio_device_attach_iommufd_pt`, first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct DeviceAttachIommufdPt {
    pub argsz: u32,
    pub flags: u32,
    pub pt_id: u32,
}

calls! {
    GroupGetStatus 8 = VFIO_GROUP_GET_STATUS;
    DeviceGetInfo 20 = VFIO_DEVICE_GET_INFO;
    DeviceGetRegionInfo 32 = VFIO_DEVICE_GET_REGION_INFO;
    DeviceGetIrqInfo 16 = VFIO_DEVICE_GET_IRQ_INFO;
    IommuGetInfo 24 = VFIO_IOMMU_GET_INFO;
    IommuMapDma 32 = VFIO_IOMMU_MAP_DMA;
    IommuUnmapDma 24 = VFIO_IOMMU_UNMAP_DMA;
    DeviceBindIommufd 16 = VFIO_DEVICE_BIND_IOMMUFD;
    DeviceAttachIommufdPt 12 = VFIO_DEVICE_ATTACH_IOMMUFD_PT;
}
