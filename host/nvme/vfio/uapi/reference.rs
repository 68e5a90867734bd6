//! Compares the structures and constants with those that the rust-vmm project generates from the kernel's headers.
//!
//! The library does not depend on those bindings. Their structures are not `Pod`, so replies with capabilities behind them
//! would be read by pointers. `vfio-bindings` has no request numbers, and structures of the newest kernel, which are longer
//! than those that older kernels know. `iommufd-bindings` is licensed under Apache-2.0 alone.

use super::{iommufd as ours_iommufd, vfio as ours_vfio};
use core::mem::offset_of;

/// Asserts that every named field has the offset of the other structure's, and that this
/// structure is not the larger one.
macro_rules! same {
    ($ours:ty, $theirs:ty: $($mine:ident = $other:ident),+) => {{
        $(assert_eq!(offset_of!($ours, $mine), offset_of!($theirs, $other), stringify!($theirs.$other));)+
        assert!(size_of::<$ours>() <= size_of::<$theirs>(), stringify!($theirs));
    }};
    ($ours:ty, $theirs:ty: $($field:ident)+) => { same!($ours, $theirs: $($field = $field),+) };
}

macro_rules! equal {
    ($ours:ident, $theirs:ident: $($name:ident)+) => {{
        $(assert_eq!($ours::$name as i64, $theirs::$name as i64, stringify!($name));)+
    }};
}

#[test]
fn vfio_is_that_of_the_kernels_headers() {
    use ours_vfio::*;
    use vfio_bindings::bindings::vfio::{self as theirs, *};
    same!(GroupGetStatus, vfio_group_status: argsz flags);
    same!(DeviceGetInfo, vfio_device_info: argsz flags num_regions num_irqs cap_offset);
    same!(DeviceGetRegionInfo, vfio_region_info: argsz flags index cap_offset size offset);
    same!(DeviceGetIrqInfo, vfio_irq_info: argsz flags index count);
    same!(IrqSet, vfio_irq_set: argsz flags index start count);
    assert_eq!(size_of::<IrqSet>(), offset_of!(vfio_irq_set, data));
    same!(IommuGetInfo, vfio_iommu_type1_info: argsz flags iova_pgsizes cap_offset);
    same!(IommuMapDma, vfio_iommu_type1_dma_map: argsz flags vaddr iova size);
    same!(IommuUnmapDma, vfio_iommu_type1_dma_unmap: argsz flags iova size);
    same!(DeviceBindIommufd, vfio_device_bind_iommufd: argsz flags iommufd out_devid);
    same!(DeviceAttachIommufdPt, vfio_device_attach_iommufd_pt: argsz flags pt_id);
    equal!(ours_vfio, theirs: VFIO_API_VERSION VFIO_NOIOMMU_IOMMU VFIO_GROUP_FLAGS_VIABLE
        VFIO_DEVICE_FLAGS_RESET VFIO_DEVICE_FLAGS_PCI VFIO_REGION_INFO_FLAG_MMAP VFIO_REGION_INFO_FLAG_CAPS
        VFIO_REGION_INFO_CAP_SPARSE_MMAP VFIO_PCI_BAR0_REGION_INDEX VFIO_PCI_CONFIG_REGION_INDEX VFIO_PCI_MSIX_IRQ_INDEX
        VFIO_PCI_ERR_IRQ_INDEX VFIO_PCI_REQ_IRQ_INDEX VFIO_IRQ_SET_DATA_NONE VFIO_IRQ_SET_DATA_EVENTFD VFIO_IRQ_SET_ACTION_TRIGGER
        VFIO_IOMMU_INFO_PGSIZES VFIO_IOMMU_INFO_CAPS VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL
        VFIO_DMA_MAP_FLAG_READ VFIO_DMA_MAP_FLAG_WRITE);
    assert_eq!(ours_vfio::VFIO_TYPE1V2_IOMMU as u32, VFIO_TYPE1v2_IOMMU);
}

#[test]
fn iommufd_is_that_of_the_kernels_headers() {
    use iommufd_bindings::iommufd::*;
    use ours_iommufd::{IoasAlloc, IoasIovaRanges, IoasMap, IoasMapFile, IoasUnmap, IovaRange};
    same!(IoasAlloc, iommu_ioas_alloc: size flags out_ioas_id);
    same!(IovaRange, iommu_iova_range: start last);
    same!(IoasIovaRanges, iommu_ioas_iova_ranges: size ioas_id num_iovas allowed_iovas out_iova_alignment);
    same!(IoasMap, iommu_ioas_map: size flags ioas_id user_va length iova);
    same!(IoasMapFile, iommu_ioas_map_file: size flags ioas_id fd start length iova);
    same!(IoasUnmap, iommu_ioas_unmap: size ioas_id iova length);
    let ours = [
        ours_iommufd::IOMMU_IOAS_MAP_FIXED_IOVA,
        ours_iommufd::IOMMU_IOAS_MAP_WRITEABLE,
        ours_iommufd::IOMMU_IOAS_MAP_READABLE,
    ];
    let theirs = [
        iommufd_ioas_map_flags_IOMMU_IOAS_MAP_FIXED_IOVA,
        iommufd_ioas_map_flags_IOMMU_IOAS_MAP_WRITEABLE,
        iommufd_ioas_map_flags_IOMMU_IOAS_MAP_READABLE,
    ];
    assert_eq!(ours, theirs);
}
