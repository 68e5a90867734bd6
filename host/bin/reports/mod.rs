//! Reports of programs that measure: of this one and of others, as figures in common units.

mod figure;
mod fio;
mod gdsio;
mod label;
mod nccl;
mod nvbandwidth;
mod perftest;
mod read;
mod source;
mod warpbell;

pub use figure::{Figure, Samples, Subject, Unit};
pub use label::{Label, LabelValue};
pub use read::{ReadError, document_of, of_document, of_text, read};
pub use source::{Distribution, Source, TimeSeries};

/// Number in `schema` of each JSON document of this program. It increases by one when a key changes its meaning or is removed.
/// Names of keys end with their units: `_bytes`, `_ns`, `_per_s`.
pub const SCHEMA: u32 = 1;
