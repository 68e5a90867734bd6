//! A NIC that takes commands as strictly as firmware may: what it knows of them is from the public interface ([`interface`]). Its doorbell
//! registers come from a pool as rdma-core's do ([`registers`]); and with [`Wire`] behind it, a software NIC carries out what the rings
//! say, so that whole worlds run on it.

mod firmware;
pub(super) mod interface;
mod registers;
mod rings;

pub(in crate::rdma) use firmware::{Firmware, nothing_wrong};
pub use registers::Driver;
pub(super) use rings::Wire;
pub(crate) use rings::adapter;
