//! Host calls of OpenSHMEM. Each launches a small kernel that makes the call on the device.
//!
//! A call returns when it is complete. The variant with `_on` enqueues the call on a stream, behind the work that is
//! already there. A kernel that fails in a stream is reported by
//! [`Stream::synchronize`](crate::engine::Stream::synchronize).
//!
//! Collective calls of one team must not overlap. Those in a stream must end before another stream, or a blocking call,
//! begins one.

mod atomic;
mod collective;
mod host_memory;
mod reduction;
mod registration;
mod rma;
mod signal;
mod slices;
pub(super) mod stream_calls;

pub use atomic::{AtomicInteger, AtomicWord};
pub use reduction::{And, Max, Min, Or, Prod, Reducible, ReducibleInteger, Reduction, Sum, Xor};
pub use signal::{Cmp, SignalOp};
pub use slices::{LocalSlice, RemoteSlice};
pub use stream_calls::StreamCalls;

#[cfg(test)]
mod tests;
