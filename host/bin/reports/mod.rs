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
