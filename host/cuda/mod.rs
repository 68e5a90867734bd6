//! The CUDA driver calls that this crate uses, as `Result`s. This is the only module that uses cudarc.
//!
//! Nothing here panics if the driver is missing: each entry point returns [`CudaError::NoDriver`]. No call waits for
//! running kernels, except [`Launch::wait`] and [`Stream::wait`], which take a time limit.

mod context;
mod copy;
mod device;
mod driver;
mod error;
mod external;
mod failure;
#[cfg(test)]
pub(crate) mod fake;
mod garbage;
mod io_memory;
mod lane;
mod launch;
mod memory;
mod memory_operation;
mod module;
mod path_check;
mod peer;
mod pointer;
mod shared_memory;
mod stream;
mod virtual_memory;
mod wait;

pub use context::StackLimit;
internal!(context::Context);
pub use device::{DeviceInfo, VirtualMemoryFacts, WritesOrdering};
pub use error::{CudaError, FailedCall};
internal!(external::ExternalMemory);
internal!(io_memory::IoMemoryFacts);
pub(crate) use io_memory::{DRIVER_WITH_PFNMAP, KERNEL_WITHOUT_FOLLOW_PTE, predates_pfnmap};
internal!(lane::{CONNECTIONS_VARIABLE, MOST_CONNECTIONS});
internal!(launch::{Launch, Launcher});
internal!(memory::{DeviceMemory, GPU_PAGE, PinnedMemory, RegisteredMemory});
internal!(memory_operation::{MemoryOperation, STREAMS_FLUSH});
internal!(module::{Function, Module});
pub(crate) use path_check::{OVERRIDE_VARIABLE, PathCheck, is_checked};
internal!(peer::{PeerLink, peer_link});
internal!(pointer::DeviceAccess);
internal!(shared_memory::{Backing, IPC_HANDLE_BYTES, IpcMemory});
internal!(stream::Stream);
internal!(virtual_memory::{AddressRange, FABRIC_HANDLE_BYTES, PhysicalMemory, Sharing});
