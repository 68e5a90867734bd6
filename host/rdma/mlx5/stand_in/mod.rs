//! A NIC for tests that checks commands as strictly as firmware may, by the public interface ([`interface`]). Its
//! doorbell registers come from a pool like rdma-core's ([`registers`]). With [`Wire`] behind it, a software NIC
//! carries out the rings' entries, so that whole worlds run on it.

mod firmware;
pub(super) mod interface;
mod manager;
mod registers;
mod rings;

pub(in crate::rdma) use firmware::{Capabilities, Firmware, nothing_wrong};
pub(crate) use manager::manager;
pub use registers::Driver;
pub(super) use rings::Wire;
pub(crate) use rings::adapter;
