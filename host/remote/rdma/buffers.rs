//! Registered memory for the data of commands, kept for later commands.

use crate::memory::{Place, Region, Space};
use crate::rdma::{Adapter, RdmaError, Registration, Rights};
use crate::wire::mlx5::segment::DataSegment;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Smallest buffer in bytes.
const LEAST: usize = 4096;

/// A registered buffer. Fields are dropped in order: the registration before its memory.
#[derive(Debug)]
pub(crate) struct Buffer {
    keys: Box<dyn Registration>,
    region: Region,
}

impl Buffer {
    /// Allocates and registers `bytes` bytes of host memory.
    pub(crate) fn new(adapter: &dyn Adapter, bytes: usize, rights: Rights) -> Result<Self, RdmaError> {
        Self::within(&Space::cpu(), adapter, bytes, rights)
    }

    /// Allocates and registers `bytes` bytes of host memory that kernels of a space can access.
    pub(crate) fn within(
        space: &Space,
        adapter: &dyn Adapter,
        bytes: usize,
        rights: Rights,
    ) -> Result<Self, RdmaError> {
        let region = space.allocate(Place::Host, bytes)?;
        Ok(Self { keys: adapter.register_region(&region, rights)?, region })
    }

    /// Returns the memory.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the address by which work requests name the first byte.
    pub(crate) fn address(&self) -> u64 {
        self.keys.address()
    }

    /// Returns the key for the other end.
    pub(crate) fn remote_key(&self) -> u32 {
        self.keys.remote_key()
    }

    /// Returns true if one key names the buffer for both ends.
    pub(crate) fn has_one_key(&self) -> bool {
        self.keys.local_key() == self.keys.remote_key()
    }

    /// Returns a piece of the buffer for work requests of this end.
    pub(crate) fn piece(&self, offset: usize, bytes: u32) -> DataSegment {
        DataSegment::new(self.keys.address() + offset as u64, self.keys.local_key(), bytes)
    }
}

/// Buffers of one adapter. Each is a power of two bytes long.
#[derive(Debug)]
pub(crate) struct Buffers {
    adapter: Arc<dyn Adapter>,
    free: BTreeMap<usize, Vec<Buffer>>,
}

impl Buffers {
    pub(crate) fn new(adapter: Arc<dyn Adapter>) -> Self {
        Self { adapter, free: BTreeMap::new() }
    }

    /// Returns a buffer of at least `bytes` bytes, which the other end may read and write.
    pub(crate) fn take(&mut self, bytes: usize) -> Result<Buffer, RdmaError> {
        let size = bytes.max(LEAST).next_power_of_two();
        match self.free.get_mut(&size).and_then(Vec::pop) {
            Some(buffer) => Ok(buffer),
            None => Buffer::new(&*self.adapter, size, Rights::ALL),
        }
    }

    /// Takes a buffer back for later commands.
    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        self.free.entry(buffer.region.len()).or_default().push(buffer);
    }
}
