//! Models of drives: the timing of a drive as numbers, from which the software controller computes when each command completes.
//!
//! * [`DriveModel`] has the parameters, read from a TOML file. [`SHIPPED`] names the files that are compiled in.
//! * `Timing` is the state of one modelled drive. It is a function of the times at which commands arrive: the controller passes
//!   those of the system's clock, and `simulate` those of a simulated one.
//! * `capacity` bounds the models that this machine keeps up with. `host_path` times the way of a command to the controller.
//!
//! `docs/drive-models.md` is the manual.

pub(crate) mod capacity;
mod error;
pub(crate) mod host_path;
mod latency;
mod parameters;
mod reader;
#[cfg(any(test, feature = "internals"))]
mod simulation;
mod timing;

internal!(error::ModelError);
internal!(parameters::{Direction, DriveModel, Mixed, QueueLimits, Units, WriteBuffer});
#[cfg(test)]
pub(crate) use parameters::tests::{Latencies, slow};
internal!(reader::{ModelSource, SHIPPED});
#[cfg(feature = "internals")]
pub use simulation::{Load, Simulated, simulate};
pub(crate) use timing::{Command, Flow, Kind, Timing};
