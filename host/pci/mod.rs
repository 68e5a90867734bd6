//! PCI functions: addresses as people write them.

mod bdf;
mod group;
mod scan;
mod sysfs;
#[cfg(test)]
mod tree;

pub use bdf::{Bdf, ParseBdfError};
pub use group::{GroupMember, IommuGroup, is_vfio};
pub use scan::{NvmeFunction, nvme_functions};
pub use sysfs::Sysfs;
