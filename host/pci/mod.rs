//! PCI functions: their addresses, the tree that they form, their uses, and changes of their drivers.

mod acs;
mod bars;
mod bdf;
mod bind;
mod config;
mod failure;
mod find;
#[cfg(test)]
#[path = "../../tests/common/fixture.rs"]
pub(crate) mod fixture;
mod group;
mod holder;
mod link;
mod listing;
mod scan;
mod signature;
mod sysfs;
mod topology;
#[cfg(test)]
mod tree;
mod usage;

pub use acs::{Acs, AcsPath, acs};
pub use bars::{Bar, ResizableBar, memory_bars, resizable_bars};
pub use bdf::{Bdf, ParseBdfError};
pub use bind::{BindError, BindPlan, SysWrite, plan_bind, plan_unbind};
pub use config::{ConfigSpace, Found, PortKind};
pub use find::{FindError, FoundController, NvmeNode, find, none_such, nvme_nodes};
pub use group::{GroupMember, IommuGroup, is_vfio};
pub(crate) use holder::lock_holder;
pub use holder::vfio_holder;
pub use link::{Lanes, Link, Rate};
pub use listing::{ListedController, ListedNamespace, nvme_listing};
pub use scan::{NvmeFunction, nvme_functions};
pub use signature::{SIGNED_BYTES, Signature};
pub use sysfs::Sysfs;
pub use topology::{Distance, Function, PciPath, Topology};
pub use usage::{InUse, in_use};
