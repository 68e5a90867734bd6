//! PCI functions: addresses as people write them.

mod bdf;
mod scan;

pub use bdf::{Bdf, ParseBdfError};
pub use scan::{NvmeFunction, nvme_functions};
