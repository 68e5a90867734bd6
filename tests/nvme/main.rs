//! Tests the NVMe driver against controllers: the software controller and QEMU's.

mod qtest;
mod recovery;
mod soft;
