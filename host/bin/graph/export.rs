//! Runs `warpbell graph export`: writes the edges of a stored graph to a file.

use super::stored::{named, open};
use crate::args::ExportArgs;
use crate::interrupt::Interrupt;
use crate::output::{Failure, Text, warn, written};
use crate::workloads::graph::seconds;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;
use warpbell::destination::Destination;
use warpbell::graph::stored::{ArcReader, StoredArc, StoredGraph, WeightType};
use warpbell::graph::{GraphError, GraphShape, Ids, Names, VertexName};
use warpbell::units::counted;

/// Form of an exported graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Two vertices on a line.
    List,
    /// Two vertices and a weight on a line.
    WeightedList,
    /// Columns with commas below a header; weights if the graph has some.
    Table,
    /// A sparse matrix in Matrix Market's coordinate format; weights if the graph has some.
    Matrix,
}

impl Form {
    /// Returns the form that the ending of a file names.
    fn of(out: &Path) -> Result<Self, Failure> {
        match out.extension().and_then(OsStr::to_str).unwrap_or_default() {
            "wel" => Ok(Self::WeightedList),
            "el" => Ok(Self::List),
            "csv" => Ok(Self::Table),
            "mtx" => Ok(Self::Matrix),
            _ => Err(Failure::Usage(format!(
                "--out {}: write a file that ends in .el, .wel, .csv or .mtx, or - for standard output",
                out.display()
            ))),
        }
    }

    /// Checks that the form can have the graph's vertices and weights.
    fn check(self, stored: &StoredGraph, args: &ExportArgs) -> Result<(), Failure> {
        let refuse = |why: String| Err(Failure::Error(format!("stored:{}: {why}", named(&args.graph)?)));
        if self == Self::WeightedList && stored.info().weights.is_none() {
            return refuse("it has no weights; name a file that ends in .el, or import it with --weights".to_owned());
        }
        match (self, stored.ids()) {
            (Self::Matrix, Ids::Named(_)) => refuse(
                "rows of a matrix are numbers, and the vertices have names; name a file that ends in .csv".to_owned(),
            ),
            (Self::Matrix, Ids::Sparse(_)) => refuse(
                "rows of a matrix have numbers without gaps, and those of the vertices have some; name a file that ends in .el or .csv"
                    .to_owned(),
            ),
            (Self::List | Self::WeightedList, ids) => match ids.names().and_then(Names::first_with_blanks) {
                Some(vertex) => refuse(format!(
                    "an edge list cannot have the name {}, which has blanks or begins a comment; name a file that ends in .csv",
                    VertexName::from(vertex)
                )),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// Writes the edges of a graph.
///
/// # Errors
/// * [`Failure::Usage`] if the argument names no stored graph, or for an unknown ending.
/// * [`Failure::BrokenPipe`] if the reader has closed the output.
/// * [`Failure::Error`] if the device holds no such graph, the file cannot be written, or a part is damaged.
pub fn run(args: &ExportArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let name = named(&args.graph)?;
    let destination = Destination::open(&args.out)?;
    let form = if destination.is_standard_output() { Form::List } else { Form::of(&args.out)? };
    let text = Text::beside_output(&destination);
    let started = Instant::now();
    let volume = open(&args.device, &args.wait)?;
    interrupt.doing("reading the stored graph");
    let _stop = interrupt.stops(volume.engine());
    let stored = StoredGraph::open(&volume, &name)?;
    form.check(&stored, args)?;
    let weighted = form != Form::List && stored.info().weights.is_some();
    let mut reader = stored.arcs(&volume, weighted)?;
    interrupt.doing("writing the edges");
    if form == Form::Matrix {
        if let Some((first, _)) = stored.ids().bounds().filter(|(first, _)| first.number() != Some(1)) {
            warn(format_args!("rows of a matrix are numbered from 1: row 1 is vertex {first}"));
        }
    } else {
        let alone = (0..stored.vertices()).filter(|v| stored.is_isolated(*v)).count();
        if alone > 0 {
            let are = if alone == 1 { "is" } else { "are" };
            warn(format_args!("{} without edges {are} not in the list of edges", counted(alone, "vertex", "vertices")));
        }
    }
    let (mut unread, mut lines) = (Ok(()), 0);
    let result = destination.write(|out| {
        lines = write(&stored, form, &mut reader, &mut unread, out)?;
        Ok(())
    });
    unread?;
    written(result)?;
    let twice = form == Form::Table && !stored.directed();
    text.line(format_args!(
        "stored:{name}   {} of {}{}   {}   {}",
        counted(lines, "line", "lines"),
        counted(stored.edges(), "edge", "edges"),
        if twice { " (each in both directions)" } else { "" },
        args.out.display(),
        seconds(started.elapsed())
    ))
}

/// Writes an edge on each line, and returns the number of these lines. Lists and matrices have an undirected edge once,
/// below a header that says so. A table cannot say so and has the edge in both directions. Also sets `unread` if edges
/// cannot be read, so that the caller can tell that from a failed write.
fn write(
    stored: &StoredGraph,
    form: Form,
    reader: &mut ArcReader<'_>,
    unread: &mut Result<(), GraphError>,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let once = !stored.directed() && form != Form::Table;
    head(stored, form, out)?;
    let mut lines = 0;
    loop {
        let piece = match reader.next_piece() {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(lines),
            Err(e) => {
                *unread = Err(e);
                return Err(io::Error::other("edges cannot be read"));
            }
        };
        // A symmetric matrix has the entries on and below its diagonal.
        let is_written = |arc: &StoredArc| match form {
            Form::Matrix => arc.from >= arc.to,
            _ => arc.from <= arc.to,
        };
        for arc in piece.arcs().filter(|arc| !once || is_written(arc)) {
            vertex(stored, form, arc.from, out)?;
            out.write_all(form.separator())?;
            vertex(stored, form, arc.to, out)?;
            if let Some(weight) = arc.weight {
                out.write_all(form.separator())?;
                write!(out, "{weight}")?;
            }
            out.write_all(b"\n")?;
            lines += 1;
        }
    }
}

impl Form {
    fn separator(self) -> &'static [u8] {
        if self == Self::Table { b"," } else { b" " }
    }
}

fn head(stored: &StoredGraph, form: Form, out: &mut dyn Write) -> io::Result<()> {
    let weights = stored.info().weights;
    match form {
        Form::Table => writeln!(out, "source,target{}", if weights.is_some() { ",weight" } else { "" }),
        Form::Matrix => {
            let field = match weights {
                None => "pattern",
                Some(WeightType::U32) => "integer",
                Some(_) => "real",
            };
            let symmetry = if stored.directed() { "general" } else { "symmetric" };
            writeln!(out, "%%MatrixMarket matrix coordinate {field} {symmetry}")?;
            writeln!(out, "{0} {0} {1}", stored.vertices(), stored.edges())
        }
        Form::List | Form::WeightedList if !stored.directed() => writeln!(out, "# Undirected graph"),
        Form::List | Form::WeightedList => Ok(()),
    }
}

fn vertex(stored: &StoredGraph, form: Form, v: u64, out: &mut dyn Write) -> io::Result<()> {
    match (form, stored.ids().id(v)) {
        (Form::Matrix, _) => write!(out, "{}", v + 1),
        (Form::Table, name) => write!(out, "{}", name.csv()),
        (_, VertexName::Number(number)) => write!(out, "{number}"),
        // An edge list has no quotes: they are characters of the name.
        (_, VertexName::Text(text)) => out.write_all(text.as_bytes()),
    }
}
