//! PCI functions: addresses as people write them.

mod bdf;

pub use bdf::{Bdf, ParseBdfError};
