//! PCI functions: their addresses, the tree that they form, their uses, and changes of their drivers.

mod acs;
mod bars;
mod bdf;
#[cfg(feature = "internals")]
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
#[cfg(feature = "internals")]
mod listing;
#[cfg(feature = "internals")]
mod scan;
mod signature;
mod sysfs;
mod topology;
#[cfg(test)]
mod tree;
mod usage;

internal!(acs::{Acs, AcsPath, acs});
internal!(bars::{Bar, ResizableBar, memory_bars, resizable_bars});
pub use bdf::{Bdf, ParseBdfError};
#[cfg(feature = "internals")]
pub use bind::{BindError, BindPlan, SysWrite, plan_bind, plan_unbind};
#[cfg(feature = "internals")]
pub use config::PortKind;
internal!(config::{ConfigSpace, Found});
pub use find::FindError;
internal!(find::{FoundController, NvmeNode, find, none_such, nvme_nodes});
internal!(group::{GroupMember, IommuGroup, is_vfio, translates, type_translates});
pub(crate) use holder::lock_holder;
internal!(holder::vfio_holder);
internal!(link::{Lanes, Link, Rate});
#[cfg(feature = "internals")]
pub use listing::{ListedController, ListedNamespace, nvme_listing};
#[cfg(feature = "internals")]
pub use scan::{NvmeFunction, nvme_functions};
internal!(signature::{SIGNED_BYTES, Signature});
pub use sysfs::Sysfs;
internal!(topology::{Distance, Function, PciPath, Topology});
internal!(usage::{InUse, in_use});
