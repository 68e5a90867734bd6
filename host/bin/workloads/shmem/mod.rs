//! Measures puts, gets, atomics, signals and barriers between the PEs of a world, timed on the device and verified.

mod kernel;
mod measure;
mod row;
mod setting;
mod test;

pub use measure::ShmemBench;
pub use row::{Row, head};
pub use setting::Setting;
pub use test::{AtomicOp, CopyPath, Datatype, Scope, Test};
