//! Errors and notes of job files, with the line that they are about.

use std::fmt;
use std::io;
use std::sync::Arc;

/// Line of a job file, or of a file that it includes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the file, as it was opened.
    pub file: Arc<str>,
    /// Number of the line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Reason why a line is refused: a fact and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl Fault {
    /// Returns this fault as an error about a line.
    pub fn at(self, place: &Place) -> JobFileError {
        JobFileError::Line { place: place.clone(), fault: self.0 }
    }
}

/// Reason why a job file is refused.
#[derive(Debug, thiserror::Error)]
pub enum JobFileError {
    /// The job file cannot be read.
    #[error("{file}: {source}")]
    File { file: String, source: io::Error },
    /// A line is refused. The text has the option, its value, and the next step.
    #[error("{place}: {fault}")]
    Line { place: Place, fault: String },
    /// The file has no section but [global].
    #[error("{file} has no job; write a section for one, as in [job1]")]
    Empty { file: String },
}

/// Remark on a value that fio reads in another way than one would expect, or that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Line of the value.
    pub place: Place,
    /// The remark, in one line.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}
