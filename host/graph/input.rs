//! Graphs as a user names them: a file, or a generator.

use super::generate::Generator;
use super::import::{self, ImportError, Imported, LoadOptions, Loaded};
use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// A graph to load, as in `kron:22`, `urand:20:8` or a path. A file whose name looks like a generator needs its folder
/// in front, as in `./kron:22`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A generated graph.
    Generated(Generator),
    /// A graph file.
    File(PathBuf),
}

impl FromStr for Input {
    type Err = ImportError;

    /// Parses a generator or a path.
    ///
    /// # Errors
    /// [`ImportError::Generator`] for a generator with invalid parameters.
    fn from_str(text: &str) -> Result<Self, ImportError> {
        match Generator::parse(text) {
            Some(generator) => generator.map(Self::Generated),
            None => Ok(Self::File(text.into())),
        }
    }
}

impl Input {
    /// Parses the name of a graph as [`str::parse`] does. A path need not be UTF-8.
    ///
    /// # Errors
    ///
    /// [`ImportError::Generator`] for a generator with invalid parameters.
    pub fn of(text: &OsStr) -> Result<Self, ImportError> {
        text.to_str().map_or_else(|| Ok(Self::File(text.into())), str::parse)
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generated(generator) => generator.fmt(f),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Input {
    /// Returns the files that the graph may be read from: that of the path, and those beside it that belong to the same
    /// graph. They need not exist. Empty for a generated graph.
    pub fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::Generated(_) => Vec::new(),
            Self::File(path) => import::files(path),
        }
    }

    /// Reads or generates the graph.
    ///
    /// # Errors
    /// As for [`Generator::load`] and [`import::load`].
    pub fn load(&self, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
        match self {
            Self::Generated(generator) => generator.load(options),
            Self::File(path) => import::load(path, options),
        }
    }
}

impl Input {
    /// Reads or generates the graph as [`Input::load`] does. One that does not fit into memory is sorted in temporary
    /// files.
    pub(crate) fn load_or_sort(&self, options: &LoadOptions<'_>) -> Result<Imported, ImportError> {
        match self {
            Self::Generated(generator) => generator.load_or_sort(options),
            Self::File(path) => import::load_or_sort(path, options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::generate::Shape;

    #[test]
    fn generators_and_paths_are_told_apart() {
        let kron = Generator { shape: Shape::Kronecker, scale: 22, edge_factor: 16 };
        assert_eq!("kron:22".parse::<Input>().unwrap(), Input::Generated(kron));
        assert_eq!("./kron:22".parse::<Input>().unwrap(), Input::File("./kron:22".into()));
        assert!("kron:many".parse::<Input>().is_err());
        for text in ["kron:22", "urand:4:7", "data/graph.el"] {
            assert_eq!(text.parse::<Input>().unwrap().to_string(), text);
        }
    }
}
