//! Bytes that a device reads or writes. No I/O and no `unsafe`.

pub mod nvme;
