//! Tests that run only in the virtual machine of `tests/rig`: VFIO, an IOMMU, drives that fail and drives that are
//! pulled. Elsewhere the tests are ignored, and fail if they are run.
#![cfg(feature = "storage")]

mod buffer;
mod error_injection;
mod export;
mod host;
mod iommu;
mod machine;
mod mapping;
mod no_iommu;
mod peer;
mod programs;
mod removal;
mod resets;
mod setting;
mod vfio;
