//! Interface of a transport: one connection carries the capsules of one queue pair.

use super::commands::Commands;
use super::driver_memory::DriverMemory;
use super::host_identity::HostIdentity;
use super::{FabricsConfig, FabricsError};
use std::os::fd::RawFd;

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
    /// Opens a connection for a queue, whose capsules carry at most `in_capsule` bytes of data.
    ///
    /// # Errors
    /// [`FabricsError`] if there is no connection within [`FabricsConfig::connect_timeout`].
    fn open(&self, config: &FabricsConfig, shape: QueueShape, in_capsule: u32) -> Result<Box<dyn Link>, FabricsError>;
}

/// All that it takes to connect the queues of one association.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    pub(super) config: FabricsConfig,
    pub(super) identity: HostIdentity,
    pub(super) transport: std::sync::Arc<dyn Transport>,
}

impl Dialer {
    /// Checks the configuration, and reads the identity of this host.
    pub(super) fn new(config: &FabricsConfig, transport: std::sync::Arc<dyn Transport>) -> Result<Self, FabricsError> {
        config.check()?;
        Ok(Self { config: config.clone(), identity: config.identity()?, transport })
    }
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
}
