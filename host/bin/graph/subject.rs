//! The graph of a command: loaded from an input, or opened on a device.

use crate::output::Failure;
use serde_json::json;
use std::ffi::OsStr;
use warpbell::graph::import::{IdKind, ImportError, LineFault, LoadOptions, Notice, OrientationReason, Summary};
use warpbell::graph::stored::{GraphName, StoredGraph, WeightType};
use warpbell::graph::{GraphShape, Input, Loaded};
use warpbell::units::counted;

/// Prefix of a stored graph's name in place of an input.
const STORED: &str = "stored:";

/// Returns the name of the stored graph that an input names, or `None` for a file or a generator.
///
/// # Errors
/// [`Failure::Error`] if no stored graph can have the name.
pub fn stored_name(input: &OsStr) -> Result<Option<GraphName>, Failure> {
    match input.to_string_lossy().strip_prefix(STORED) {
        Some(name) => Ok(Some(name.parse()?)),
        None => Ok(None),
    }
}

/// Reads or generates a graph.
///
/// # Errors
/// As for [`read`].
pub fn load(input: &OsStr, options: &LoadOptions<'_>) -> Result<Loaded, Failure> {
    read(input, options, |input| input.load(options))
}

/// Reads or generates a graph by `read`.
///
/// # Errors
/// * [`Failure::Usage`] if `--format` is missing for standard input, or if it or `--names` is given for a generator.
/// * [`Failure::Error`] if the input cannot be read.
pub fn read<T>(
    input: &OsStr,
    options: &LoadOptions<'_>,
    read: impl FnOnce(&Input) -> Result<T, ImportError>,
) -> Result<T, Failure> {
    let parsed = Input::of(input)?;
    if let (Input::Generated(_), Some(format)) = (&parsed, options.format) {
        return Err(Failure::Usage(format!("--format {format}: {parsed} is generated; leave --format out")));
    }
    if let (Input::Generated(_), IdKind::Names) = (&parsed, options.ids) {
        return Err(Failure::Usage(format!("--names: {parsed} is generated, with numbers; leave --names out")));
    }
    let generated = [("--columns", options.columns.is_some()), ("--vertices", options.vertices.is_some())];
    if let (Input::Generated(_), Some((option, _))) = (&parsed, generated.iter().find(|(_, given)| *given)) {
        return Err(Failure::Usage(format!("{option}: {parsed} is generated; leave {option} out")));
    }
    const CHOOSE: &str = "with --columns src=NAME,dst=NAME";
    read(&parsed).map_err(|e| match e {
        ImportError::Line { fault: LineFault::NameAmongNumbers { .. }, .. } => {
            Failure::Error(format!("{e}, with --names"))
        }
        ImportError::Line { fault: LineFault::UnknownHeading { .. }, .. } | ImportError::Header { .. } => {
            Failure::Error(format!("{e}, {CHOOSE}"))
        }
        ImportError::Line { fault: LineFault::Commas { .. }, .. } => Failure::Error(format!("{e}, with --format csv")),
        ImportError::Line { fault: LineFault::NoSeparator { .. }, .. } => {
            Failure::Error(format!("{e}, with --format txt"))
        }
        ImportError::FixedColumns { .. } => Failure::Error(format!("{e}; leave --columns out")),
        // The number may also be one that a file names.
        ImportError::CountedVertices { .. } if options.vertices.is_some() => {
            Failure::Error(format!("{e}; leave --vertices out"))
        }
        ImportError::LargeWindow { by_memory: true, .. } if options.memory.is_some() => {
            Failure::Error(format!("{e}; the limit is that of --memory"))
        }
        ImportError::NumberedFormat { .. } => Failure::Error(format!("{e}; leave --names out")),
        ImportError::NotAFile { what: "not a regular file", .. } => {
            Failure::Error(format!("{e}; or give a pipe as standard input: - with --format"))
        }
        ImportError::NoFormat { .. } => Failure::Usage(format!("{e}, with --format")),
        ImportError::UnknownEnding { .. } => Failure::Error(format!("{e}; or name the format with --format")),
        ImportError::SmallBudget { .. } => Failure::Error(format!("{e} with --memory")),
        ImportError::TemporaryFile { .. } => Failure::Error(format!("{e} with --temp-dir")),
        e => e.into(),
    })
}

/// The graph of a command.
pub enum Subject {
    Loaded(Box<Loaded>),
    Stored(Box<StoredGraph>),
}

impl Subject {
    /// Returns sizes, degrees and identifiers.
    pub fn shape(&self) -> &dyn GraphShape {
        match self {
            Self::Loaded(loaded) => &loaded.csr,
            Self::Stored(stored) => stored.as_ref(),
        }
    }

    /// Returns words that differ if two ranks have read different graphs.
    pub fn identity(&self) -> String {
        let shape = self.shape();
        let edges = counted(shape.edges(), "edge", "edges");
        let digest = match self {
            Self::Loaded(loaded) => format!("digest {:016x}", loaded.csr.digest()),
            Self::Stored(stored) => format!("import {:016x}", stored.info().part.map_or(0, |own| own.import)),
        };
        format!("one of {} and {edges} ({digest})", vertices(shape.vertices(), false))
    }

    /// Returns the facts that the program prints.
    pub fn described(&self) -> Described<'_> {
        match self {
            Self::Loaded(loaded) => loaded.as_ref().into(),
            Self::Stored(stored) => stored.as_ref().into(),
        }
    }
}

/// Returns a number of vertices in words, as in `2 named vertices`.
pub fn vertices(n: u64, named: bool) -> String {
    match named {
        true => counted(n, "named vertex", "named vertices"),
        false => counted(n, "vertex", "vertices"),
    }
}

/// Facts about a graph that the program prints.
pub struct Described<'a> {
    pub shape: &'a dyn GraphShape,
    pub input: &'a Summary,
    /// Bytes of a stored neighbour.
    pub width: usize,
    /// Bytes of a weight; 0 without weights.
    pub weight_width: usize,
    /// Decisions of the import.
    pub notices: &'a [Notice],
}

impl<'a> From<&'a Loaded> for Described<'a> {
    fn from(loaded: &'a Loaded) -> Self {
        let (csr, input) = (&loaded.csr, &loaded.summary);
        let weight_width = csr.weights().map_or(0, |w| w.width());
        Self { shape: csr, input, width: csr.neighbours().width(), weight_width, notices: &loaded.notices }
    }
}

impl<'a> From<&'a StoredGraph> for Described<'a> {
    fn from(stored: &'a StoredGraph) -> Self {
        let info = stored.info();
        let weight_width = info.weights.map_or(0, WeightType::bytes);
        Self { shape: stored, input: &info.input, width: info.neighbour_bytes, weight_width, notices: &[] }
    }
}

impl Described<'_> {
    /// Returns a line such as
    /// `36,692 vertices  183,831 edges (undirected: each edge is there in both directions)  32-bit`.
    pub fn line(&self) -> String {
        let once = self.input.orientation == OrientationReason::Once;
        let mut text = format!(
            "{}  {} ({}, {}{})  {}-bit",
            vertices(self.shape.vertices(), self.shape.ids().names().is_some()),
            counted(self.shape.edges(), "edge", "edges"),
            if self.shape.directed() { "directed" } else { "undirected" },
            self.input.orientation,
            if once { "; give --undirected if edges lead both ways" } else { "" },
            8 * self.width,
        );
        if self.weight_width > 0 {
            text += &format!("  {}", self.input.weights);
        }
        text
    }

    /// Returns a line for each decision of the import, with the option that changes it.
    pub fn notices(&self) -> impl Iterator<Item = String> {
        self.notices.iter().map(|notice| {
            let option = match notice {
                Notice::NoWeight { columns } => match &columns[..] {
                    [column] => format!("; --columns weight={column} takes it"),
                    _ => "; --columns weight=NAME takes one".to_owned(),
                },
                Notice::TimeAsWeight { .. } => "; --columns src=1,dst=2 leaves it out".to_owned(),
                Notice::NotAHeading { .. } => ", with --columns src=1,dst=2 or by name".to_owned(),
                Notice::Unread { .. } => "; --columns src=1,dst=2,weight=N chooses others".to_owned(),
                _ => String::new(),
            };
            format!("note: {notice}{option}")
        })
    }

    /// Returns the properties of the graph for the JSON report.
    pub fn facts(&self) -> serde_json::Value {
        json!({
            "vertices": self.shape.vertices(),
            "named": self.shape.ids().names().is_some(),
            "edges": self.shape.edges(),
            "stored_edges": self.shape.arcs(),
            "directed": self.shape.directed(),
            "neighbour_bytes": self.width,
            "format": self.input.format.to_string(),
            "orientation": self.input.orientation.to_string(),
            "weights": self.input.weights.to_string(),
            "input_edges": self.input.input_edges,
            "self_loops": self.input.self_loops,
            "duplicates": self.input.duplicates,
            "notices": self.notices.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}
