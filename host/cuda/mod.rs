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
mod peer;
mod pointer;
mod stream;
mod virtual_memory;
mod wait;

pub use context::{Context, StackLimit};
pub use device::{DeviceInfo, VirtualMemoryFacts, WritesOrdering};
pub use error::{CudaError, FailedCall};
pub use external::ExternalMemory;
pub use io_memory::IoMemoryFacts;
pub(crate) use io_memory::{DRIVER_WITH_PFNMAP, KERNEL_WITHOUT_FOLLOW_PTE, predates_pfnmap};
pub use lane::{CONNECTIONS_VARIABLE, MOST_CONNECTIONS};
pub use launch::{Launch, Launcher};
pub use memory::{DeviceMemory, GPU_PAGE, PinnedMemory, RegisteredMemory};
pub use memory_operation::{MemoryOperation, STREAMS_FLUSH};
pub use module::{Function, Module};
pub use peer::{PeerLink, peer_link};
pub use pointer::DeviceAccess;
pub use stream::Stream;
pub use virtual_memory::{AddressRange, FABRIC_HANDLE_BYTES, PhysicalMemory, Sharing};
