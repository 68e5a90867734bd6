//! Interface of a transport: one connection carries the capsules of one queue pair.

use super::commands::Commands;
use super::driver_memory::DriverMemory;
use super::host_identity::HostIdentity;
use super::{FabricsConfig, FabricsError};
use crate::engine::abi;
use crate::memory::{Region, Space};
use std::os::fd::RawFd;
use std::sync::Arc;

/// A queue that is to be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueShape {
    /// Queue identifier, 0 for the admin queue.
    pub(crate) id: u16,
    /// Identifier of the controller; on an admin queue
    /// [`ANY_CONTROLLER`](crate::wire::nvme::fabrics::ANY_CONTROLLER).
    pub(crate) controller: u16,
    /// Entries of the submission queue.
    pub(crate) entries: u32,
}

/// A transport: it opens connections to the target of a configuration.
pub(crate) trait Transport: Send + Sync + std::fmt::Debug {
    /// Opens a connection for a queue.
    ///
    /// # Errors
    /// [`FabricsError`] if there is no connection within [`FabricsConfig::connect_timeout`].
    fn open(&self, config: &FabricsConfig, shape: QueueShape, user: User<'_>) -> Result<Box<dyn Link>, FabricsError>;

    /// Returns the registration of memory, for a transport by RDMA. Kernels can drive its connections, and the target
    /// accesses memory that is registered for it.
    fn registrar(&self) -> Option<&Arc<dyn Registrar>> {
        None
    }
}

/// Registration of memory with the RDMA adapter of a transport.
pub(crate) trait Registrar: Send + Sync + std::fmt::Debug {
    /// Registers memory: for data that the target reads and writes, or for this host's own work requests.
    ///
    /// # Errors
    /// The adapter's reason, as text.
    fn register(&self, region: &Region, for_target: bool) -> Result<Box<dyn Keys>, String>;

    /// Returns the adapter and its data path, in words.
    fn path(&self) -> String;
}

/// Registered memory. Dropping it ends the target's access.
pub(crate) trait Keys: Send + Sync + std::fmt::Debug {
    /// Returns the address by which work requests name the first byte.
    fn address(&self) -> u64;
    /// Returns the key for work requests of this host.
    fn local_key(&self) -> u32;
    /// Returns the key for the target.
    fn remote_key(&self) -> u32;
}

/// User of a connection, after its Connect command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum User<'a> {
    /// Host threads. Capsules carry at most so many bytes of data.
    Host(u32),
    /// Kernels of an address space.
    Kernels(&'a Space),
}

/// All that it takes to connect the queues of one association, by one port.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    pub(crate) config: FabricsConfig,
    pub(crate) identity: HostIdentity,
    pub(crate) transport: Arc<dyn Transport>,
}

/// A connection for one queue pair. It moves capsules and data; [`Commands`] knows the commands that they belong to.
pub(crate) trait Link: Send {
    /// Queues the capsule of a command. The data of a write goes along if the capsule has space for it.
    ///
    /// # Errors
    /// Those of the connection, which then cannot be used any more.
    fn submit(&mut self, cid: u16, commands: &mut Commands, memory: &DriverMemory<'_>) -> Result<(), FabricsError>;

    /// Sends and receives without waiting. Returns true if bytes moved.
    ///
    /// # Errors
    /// Those of the connection, which then cannot be used any more.
    fn progress(&mut self, commands: &mut Commands, memory: &DriverMemory<'_>) -> Result<bool, FabricsError>;

    /// Returns the number of bytes that wait to be sent.
    fn backlog(&self) -> usize;

    /// Returns the file descriptor that becomes readable when something arrives.
    fn descriptor(&self) -> RawFd;

    /// Returns true if the descriptor also becomes readable when a response arrives.
    fn wakes(&self) -> bool {
        true
    }

    /// Returns address and port of the target.
    fn peer(&self) -> &str;

    /// Sets the largest data that a command capsule carries, in bytes.
    fn set_in_capsule(&mut self, bytes: u32);

    /// Returns the rings of a connection for kernels: the `wb_capsules` without capsules, report and tickets.
    fn rings(&self) -> Option<abi::Capsules> {
        None
    }

    /// Returns the number of work requests that host threads have posted.
    fn posts(&self) -> u64 {
        0
    }

    /// Returns the reason for which the connection carries nothing any more.
    fn failure(&self) -> Option<String> {
        None
    }

    /// Ends the connection at once: the target reaches no memory by it any more. Returns the memory of the rings, which
    /// kernels may still access.
    fn retire(self: Box<Self>) -> Vec<Region> {
        Vec::new()
    }
}
