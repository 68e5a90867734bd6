//! PCI functions: addresses as people write them.

mod bdf;
mod scan;
mod sysfs;

pub use bdf::{Bdf, ParseBdfError};
pub use scan::{NvmeFunction, nvme_functions};
pub use sysfs::Sysfs;
