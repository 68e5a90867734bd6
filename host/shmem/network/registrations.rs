//! Registrations of memory that other PEs put to and get from: the heap, and windows.

use super::Network;
use crate::memory::Region;
use crate::rdma::{RdmaError, Registration, Rights};

/// Two registrations of the same memory.
#[derive(Debug)]
pub(in crate::shmem) struct Registrations {
    /// For data: writes may overtake each other on the bus.
    pub(in crate::shmem) data: Box<dyn Registration>,
    /// For signals and short data: writes become visible in their order.
    pub(in crate::shmem) strict: Box<dyn Registration>,
}

impl Registrations {
    /// Registers `bytes` bytes at `address` by `register`, which gets the rights of each registration.
    pub(super) fn new(
        (address, bytes): (u64, usize),
        register: impl Fn(Rights) -> Result<Box<dyn Registration>, RdmaError>,
    ) -> Result<Self, RdmaError> {
        let (data, strict) = (register(Rights::ALL | Rights::RELAXED_ORDERING)?, register(Rights::ALL)?);
        if data.address() != strict.address() {
            let reason = format!(
                "the adapter gives it address {:#x} for one key and {:#x} for another; kernels need the same address for both",
                data.address(),
                strict.address()
            );
            return Err(RdmaError::Registration { address, bytes, reason });
        }
        Ok(Self { data, strict })
    }
}

impl Network {
    /// Registers a region, so that other PEs can put to it and get from it. The registrations keep the region.
    pub(in crate::shmem) fn register_symmetric(&self, region: &Region) -> Result<Registrations, RdmaError> {
        self.with_adapter(region, |adapter| {
            Registrations::new((region.address(), region.len()), |rights| adapter.register_region(region, rights))
        })
    }
}
