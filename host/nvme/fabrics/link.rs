//! Interface of a transport: one connection carries the capsules of one queue pair.

use super::FabricsError;
use super::commands::Commands;
use super::driver_memory::DriverMemory;
use std::os::fd::RawFd;

/// A connection for one queue pair. It moves capsules and data; [`Commands`] knows the commands that they belong to.
pub(super) trait Link: Send {
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

    /// Returns address and port of the target.
    fn peer(&self) -> &str;

    /// Sets the largest data that a command capsule carries, in bytes.
    fn set_in_capsule(&mut self, bytes: u32);
}
