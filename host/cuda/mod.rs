//! The CUDA driver calls that are used, as `Result`s. The only module that names cudarc.
//!
//! Nothing here panics when the driver is missing: each entry answers [`CudaError::NoDriver`]. Nothing waits for kernels that
//! run, except [`Launch::wait`], which is told how long.

mod context;
mod copy;
mod device;
mod driver;
mod error;
mod io_memory;
mod lane;
mod launch;
mod memory;
mod module;
mod peer;
mod stream;
mod virtual_memory;

pub use context::{Context, StackLimit};
pub use device::{DeviceInfo, VirtualMemoryFacts, WritesOrdering};
pub use error::{CudaError, FailedCall};
pub use io_memory::IoMemoryFacts;
pub use lane::{CONNECTIONS_VARIABLE, MOST_CONNECTIONS};
pub use launch::{Launch, Launcher};
pub use memory::{DeviceMemory, GPU_PAGE, PinnedMemory, RegisteredMemory};
pub use module::{Function, Module};
pub use peer::{PeerLink, peer_link};
pub use stream::Stream;
pub use virtual_memory::{AddressRange, FABRIC_HANDLE_BYTES, PhysicalMemory, Sharing};
