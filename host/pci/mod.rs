//! PCI functions: addresses as people write them, and the tree that they stand in.

mod acs;
mod bars;
mod bdf;
mod config;
mod link;
#[cfg(test)]
pub(crate) mod recorded;
mod scan;
mod sysfs;
mod topology;

pub use acs::{Acs, AcsPath, acs};
pub use bars::{Bar, ResizableBar, memory_bars, resizable_bars};
pub use bdf::{Bdf, ParseBdfError};
pub use config::{ConfigSpace, Found, PortKind};
pub use link::{Lanes, Link, Rate};
pub use scan::{NvmeFunction, nvme_functions};
pub use sysfs::Sysfs;
pub use topology::{Distance, Function, Topology, Way};
