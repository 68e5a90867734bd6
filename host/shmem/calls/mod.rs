//! The calls of OpenSHMEM on the host: each launches a small kernel that makes the call on the device.
//!
//! A call returns when it is complete; its twin with `_on` puts it into a stream, behind what is in it. Collective calls of one team
//! are made one at a time: what a stream holds of them has to end before another stream, or a blocking call, begins one.

mod atomic;
mod collective;
mod reduction;
mod rma;

pub use atomic::{AtomicInteger, AtomicWord};
pub use reduction::{And, Max, Min, Or, Prod, Reducible, ReducibleInteger, Reduction, Sum, Xor};
pub use rma::{Cmp, LocalSlice, SignalOp};

#[cfg(test)]
mod tests;
