//! iommu_map_pa backend: uPCIe's kernel module maps bus addresses in the IOMMU domain that VFIO made for the device.
//!
//! Requests and structures: iommu_map_pa.h of uPCIe. The module removes a file's mappings when the file is closed. They
//! must be removed before VFIO releases the device.

use super::dmabuf_import::{Attached, Piece};
use super::reason::BackendError;
use super::site::{IovaRange, Mapped, Site};
use super::syscalls::{Direction, File, request};
use crate::cuda::GPU_PAGE;
use crate::memory::Region;
use std::sync::Arc;

pub(super) const FILE: &str = "/dev/iommu_map_pa";
const KIND: u8 = b'u';
/// Size of the field for a PCI address as sysfs prints it, with its terminating zero.
const BDF_BYTES: usize = 16;
/// IOMMU_MAP_PA_PROT_READ and _WRITE.
const READ_WRITE: u32 = 3;
/// IOMMU_MAP_PA_MAX_NPHYS.
const MOST_PAGES: usize = 1 << 19;

/// struct iommu_map_pa_req.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MapPa {
    pub(super) bdf: [u8; BDF_BYTES],
    pub(super) dmabuf_fd: i32,
    pub(super) page_size: u32,
    pub(super) nphys: u32,
    pub(super) prot: u32,
    pub(super) reserved: [u32; 2],
    pub(super) iova_base: u64,
    pub(super) user_phys_ptr: u64,
    pub(super) map_handle: u64,
}

/// struct iommu_unmap_pa_req.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnmapPa {
    pub(super) map_handle: u64,
}

const _: () = {
    assert!(size_of::<MapPa>() == 64 && std::mem::offset_of!(MapPa, iova_base) == 40);
    assert!(size_of::<UnmapPa>() == 8);
};

pub(super) const UNMAP_PA: u32 = request(Direction::Write, KIND, 2, size_of::<UnmapPa>());
pub(super) const MAP_PA: u32 = request(Direction::ReadWrite, KIND, 3, size_of::<MapPa>());

struct MappedHandle {
    file: File,
    handle: u64,
}

impl Drop for MappedHandle {
    fn drop(&mut self) {
        let mut unmap = UnmapPa { map_handle: self.handle };
        // SAFETY: the request reads this structure.
        if let Err(error) = unsafe { self.file.control(UNMAP_PA, &mut unmap) } {
            tracing::warn!(%error, "GPU memory stays mapped until iommu_map_pa's file is closed");
        }
    }
}

/// Fields in drop order.
struct Guard {
    _mapped_handle: MappedHandle,
    _iova: IovaRange,
    _attached: Attached,
    _region: Region,
}

/// Splits the pieces into pages of one size: GPU pages if all pieces are multiples of them, otherwise the host's pages.
fn pages(pieces: &[Piece], wanted: u64, host_page: u64) -> Result<(u32, Vec<u64>), BackendError> {
    let found: u64 = pieces.iter().fold(0, |sum, p| sum.saturating_add(p.bytes));
    if found < wanted {
        return Err(BackendError::Length { found, wanted });
    }
    let fits = |page: u64| pieces.iter().all(|p| p.address.is_multiple_of(page) && p.bytes.is_multiple_of(page));
    let page = if fits(GPU_PAGE as u64) { GPU_PAGE as u64 } else { host_page };
    let most = MOST_PAGES as u64 * page;
    if !fits(page) || wanted > most {
        return Err(BackendError::Requires {
            what: format!(
                "{wanted} bytes in {} pieces are more than {MOST_PAGES} pages of {page} bytes, or not whole pages",
                pieces.len()
            ),
            next: "map less memory at once: use smaller caches and buffers".to_owned(),
        });
    }
    let each = |p: &Piece| {
        let first = p.address;
        (0..p.bytes / page).map(move |i| first.wrapping_add(i * page))
    };
    Ok((page as u32, pieces.iter().flat_map(each).take((wanted / page) as usize).collect()))
}

pub(super) fn map(site: &Site<'_>) -> Result<Option<Mapped>, BackendError> {
    let file = site.open(FILE)?;
    let attached = Attached::new(site)?;
    let (page_size, physical) = pages(&attached.pieces, site.bytes(), site.sys.page_bytes())?;
    let Some(device) = site.device else { return Ok(None) };
    let (Some(iommu), Some(bdf)) = (&device.iommu, device.bdf) else {
        return Err(BackendError::Requires {
            what: format!("{} has no IOMMU domain to map addresses in", device.name),
            next: "bind the controller to vfio-pci with the IOMMU on: warpbell nvme bind ADDRESS".to_owned(),
        });
    };
    let range = IovaRange::take(iommu, site.bytes())?;
    let mut map = MapPa {
        dmabuf_fd: attached.dmabuf(),
        page_size,
        nphys: physical.len() as u32,
        prot: READ_WRITE,
        iova_base: range.iova,
        user_phys_ptr: physical.as_ptr() as u64,
        ..MapPa::default()
    };
    let text = bdf.to_string();
    map.bdf.iter_mut().zip(text.bytes().take(BDF_BYTES - 1)).for_each(|(to, from)| *to = from);
    // SAFETY: the request takes this structure and reads `nphys` addresses from `user_phys_ptr`.
    unsafe { file.control(MAP_PA, &mut map) }
        .map_err(|source| BackendError::Refused { call: "IOMMU_MAP_PA", source })?;
    let mapped_handle = MappedHandle { file, handle: map.map_handle };
    let iova = range.iova;
    let guard =
        Guard { _mapped_handle: mapped_handle, _iova: range, _attached: attached, _region: site.region.clone() };
    Ok(Some(Mapped { iova, guard: Arc::new(guard) }))
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn pieces_become_pages_of_one_size() {
        let gpu = GPU_PAGE as u64;
        let both = [Piece { address: gpu * 7, bytes: 2 * gpu }, Piece { address: gpu * 100, bytes: gpu }];
        assert_eq!(pages(&both, 3 * gpu, 4096).unwrap(), (65_536, vec![7 * gpu, 8 * gpu, 100 * gpu]));
        let (page, all) = pages(&[Piece { address: 0x1000, bytes: gpu }], gpu, 4096).unwrap();
        assert_eq!((page, all.len(), all[15]), (4096, 16, 0x10_000));
        assert!(matches!(pages(&both, 4 * gpu, 4096), Err(BackendError::Length { .. })));
        assert!(matches!(
            pages(&[Piece { address: 0x1001, bytes: gpu }], gpu, 4096),
            Err(BackendError::Requires { .. })
        ));
        assert!(pages(&[], 1, 4096).is_err());
    }
}
