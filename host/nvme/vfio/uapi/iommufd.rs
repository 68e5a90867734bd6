//! linux/iommufd.h

use super::{calls, io};
use bytemuck::{Pod, Zeroable};

const BASE: u32 = 0x80;
const IOMMU_IOAS_ALLOC: u32 = io(BASE + 1);
const IOMMU_IOAS_IOVA_RANGES: u32 = io(BASE + 4);
const IOMMU_IOAS_MAP: u32 = io(BASE + 5);
const IOMMU_IOAS_UNMAP: u32 = io(BASE + 6);
const IOMMU_IOAS_MAP_FILE: u32 = io(BASE + 0xf);

pub(in crate::nvme::vfio) const IOMMU_IOAS_MAP_FIXED_IOVA: u32 = 1;
pub(in crate::nvme::vfio) const IOMMU_IOAS_MAP_WRITEABLE: u32 = 1 << 1;
pub(in crate::nvme::vfio) const IOMMU_IOAS_MAP_READABLE: u32 = 1 << 2;

/// `struct iommu_ioas_alloc`
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct IoasAlloc {
    pub size: u32,
    pub flags: u32,
    pub out_ioas_id: u32,
}

/// `struct iommu_iova_range`: both ends included.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct IovaRange {
    pub start: u64,
    pub last: u64,
}

/// `struct iommu_ioas_iova_ranges`; the kernel also writes `num_iovas` ranges to `allowed_iovas`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct IoasIovaRanges {
    pub size: u32,
    pub ioas_id: u32,
    pub num_iovas: u32,
    pub reserved: u32,
    pub allowed_iovas: u64,
    pub out_iova_alignment: u64,
}
const _: () = assert!(size_of::<IoasIovaRanges>() == 32);
/// The request for [`IoasIovaRanges`]. The kernel writes to memory that the structure names, so `call` does not make
/// it.
pub(in crate::nvme::vfio) const IOVA_RANGES: u32 = IOMMU_IOAS_IOVA_RANGES;

/// `struct iommu_ioas_map`
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct IoasMap {
    pub size: u32,
    pub flags: u32,
    pub ioas_id: u32,
    pub reserved: u32,
    pub user_va: u64,
    pub length: u64,
    pub iova: u64,
}

/// `struct iommu_ioas_map_file` (Linux 6.13)
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct IoasMapFile {
    pub size: u32,
    pub flags: u32,
    pub ioas_id: u32,
    pub fd: i32,
    pub start: u64,
    pub length: u64,
    pub iova: u64,
}

/// `struct iommu_ioas_unmap`
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(in crate::nvme::vfio) struct IoasUnmap {
    pub size: u32,
    pub ioas_id: u32,
    pub iova: u64,
    pub length: u64,
}

calls! {
    IoasAlloc 12 = IOMMU_IOAS_ALLOC;
    IoasMap 40 = IOMMU_IOAS_MAP;
    IoasMapFile 40 = IOMMU_IOAS_MAP_FILE;
    IoasUnmap 24 = IOMMU_IOAS_UNMAP;
}
