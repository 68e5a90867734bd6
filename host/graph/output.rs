//! Writes results: one line `ID VALUE`, or `ID VALUE PARENT`, for each vertex, in ascending order of the input's identifiers, or a table of
//! comma-separated values. Names that would be ambiguous are in double quotes, as [`VertexName`] has them.

use super::ids::Ids;
use super::names::VertexName;
use super::verify::{Distances, UNREACHED};
use crate::destination::{Destination, DestinationError};
use crate::graph::parallel;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// Text for the value of a vertex that was not reached.
const UNREACHED_TEXT: &str = "inf";
/// Text for the parent of a vertex that has none. A table has an empty field.
const NO_PARENT_TEXT: &str = "-";
/// Parent of a vertex that has none.
pub(super) const NO_PARENT: u64 = u64::MAX;
/// Number of vertices that one task formats.
const BLOCK: usize = 1 << 14;
/// Number of blocks that are formatted before any is written, which bounds the memory.
const BLOCKS_AT_ONCE: usize = 64;

/// Error of writing results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The file cannot be written.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// A form that this build of the library does not write.
    #[error("{}: this build writes no such files; build it with the feature `{feature}`, or name a file that ends in .csv", path.display())]
    Feature {
        /// File.
        path: PathBuf,
        /// The cargo feature that adds the form.
        feature: &'static str,
    },
    /// The number of values is not the number of vertices.
    #[error("{values} values for {vertices} vertices")]
    Length {
        /// Number of values.
        values: u64,
        /// Number of vertices.
        vertices: u64,
    },
    /// A component's number is not that of a vertex.
    #[error("vertex {vertex} is in component {found}, which is not below the number of vertices, {vertices}")]
    Component {
        /// Identifier of the vertex in the input.
        vertex: VertexName<'static>,
        /// Number of its component.
        found: u64,
        /// Number of vertices.
        vertices: u64,
    },
    /// A parent is not a vertex.
    #[error("vertex {vertex} has parent {found}, which is not below the number of vertices, {vertices}")]
    Parent {
        /// Identifier of the vertex in the input.
        vertex: VertexName<'static>,
        /// Number of its parent.
        found: u64,
        /// Number of vertices.
        vertices: u64,
    },
}

/// Result to be written.
#[derive(Clone, Debug)]
pub struct Written<'a> {
    /// Source of the search, which begins each line, or `None` to leave it out. All results of a file have one, or none.
    pub source: Option<VertexName<'a>>,
    /// Value of each vertex.
    pub values: Values<'a>,
    /// Number of the vertex before each vertex on a path from the source, and `u64::MAX` for a vertex that has none; `None`
    /// to leave parents out.
    pub parents: Option<&'a [u64]>,
}

/// One value for each vertex.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// Depths of a search. [`UNREACHED`] is written as `inf`.
    Depths(&'a [u32]),
    /// Lengths of shortest paths. The largest integer and infinity are written as `inf`.
    Distances(Distances<'a>),
    /// Components by the number of their smallest vertex, written as the identifier of that vertex.
    Components(&'a [u32]),
    /// Components as in `Components`, in 64 bits.
    WideComponents(&'a [u64]),
    /// Labels of communities, as in `WideComponents`.
    Labels(&'a [u64]),
    /// Scores of betweenness centrality.
    Scores(&'a [f64]),
    /// Ranks in single precision.
    Ranks32(&'a [f32]),
    /// Ranks in double precision.
    Ranks64(&'a [f64]),
    /// Triangles of each vertex.
    Triangles(&'a [u64]),
    /// Clustering coefficients.
    Coefficients(&'a [f64]),
    /// Core numbers.
    Cores(&'a [u64]),
}

impl Values<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Depths(v) => v.len(),
            Self::Distances(v) => v.len(),
            Self::Components(v) => v.len(),
            Self::WideComponents(v) | Self::Labels(v) => v.len(),
            Self::Ranks32(v) => v.len(),
            Self::Ranks64(v) | Self::Coefficients(v) | Self::Scores(v) => v.len(),
            Self::Triangles(v) | Self::Cores(v) => v.len(),
        }
    }

    /// Returns the heading of the column of values.
    pub(super) fn heading(&self) -> &'static str {
        match self {
            Self::Depths(_) => "depth",
            Self::Distances(_) => "distance",
            Self::Components(_) | Self::WideComponents(_) => "component",
            Self::Labels(_) => "label",
            Self::Scores(_) => "betweenness",
            Self::Ranks32(_) | Self::Ranks64(_) => "rank",
            Self::Triangles(_) => "triangles",
            Self::Coefficients(_) => "coefficient",
            Self::Cores(_) => "core",
        }
    }

    /// Returns the first vertex whose component is not the number of a vertex, and that component.
    fn bad_component(&self, vertices: u64) -> Option<(u64, u64)> {
        let bad = match self {
            Self::Components(c) => {
                parallel::position(c.len(), |v| u64::from(c[v]) >= vertices).map(|v| (v, c[v].into()))
            }
            Self::WideComponents(c) | Self::Labels(c) => {
                parallel::position(c.len(), |v| c[v] >= vertices).map(|v| (v, c[v]))
            }
            _ => None,
        };
        bad.map(|(v, found)| (v as u64, found))
    }

    /// Appends the value of `v`.
    fn append(&self, ids: &Ids, v: usize, form: Form, text: &mut String) -> std::fmt::Result {
        match self {
            Self::Depths(d) if d[v] == UNREACHED => text.write_str(UNREACHED_TEXT)?,
            Self::Distances(d) if !d.reached(v) => text.write_str(UNREACHED_TEXT)?,
            Self::Depths(d) | Self::Distances(Distances::U32(d)) => write!(text, "{}", d[v])?,
            Self::Distances(Distances::U64(d)) | Self::Triangles(d) | Self::Cores(d) => write!(text, "{}", d[v])?,
            // Real numbers are written in the shortest form that loses nothing.
            Self::Distances(Distances::F32(d)) | Self::Ranks32(d) => write!(text, "{}", d[v])?,
            Self::Distances(Distances::F64(d)) | Self::Ranks64(d) | Self::Coefficients(d) | Self::Scores(d) => {
                write!(text, "{}", d[v])?
            }
            Self::Components(c) => form.append(&ids.id(c[v].into()), text)?,
            Self::WideComponents(c) | Self::Labels(c) => form.append(&ids.id(c[v]), text)?,
        }
        Ok(())
    }
}

impl Written<'_> {
    /// Checks that there is one value for each vertex, and that components and parents are vertices.
    fn check(&self, ids: &Ids) -> Result<(), OutputError> {
        let vertices = ids.len();
        let lengths = [Some(self.values.len()), self.parents.map(<[u64]>::len)];
        if let Some(values) = lengths.into_iter().flatten().map(|n| n as u64).find(|n| *n != vertices) {
            return Err(OutputError::Length { values, vertices });
        }
        if let Some((v, found)) = self.values.bad_component(vertices) {
            return Err(OutputError::Component { vertex: ids.id(v).into_owned(), found, vertices });
        }
        let parents = self.parents.unwrap_or_default();
        let is_bad = |v: usize| parents[v] != NO_PARENT && parents[v] >= vertices;
        match parallel::position(parents.len(), is_bad) {
            Some(v) => Err(OutputError::Parent { vertex: ids.id(v as u64).into_owned(), found: parents[v], vertices }),
            None => Ok(()),
        }
    }

    /// Appends the value of `v`, its parent, and the end of the line.
    fn append(&self, ids: &Ids, v: usize, form: Form, text: &mut String) -> std::fmt::Result {
        self.values.append(ids, v, form, text)?;
        if let Some(parents) = self.parents {
            text.push(form.separator());
            match (parents[v], form) {
                (NO_PARENT, Form::Csv) => {}
                (NO_PARENT, _) => text.push_str(NO_PARENT_TEXT),
                (parent, _) => form.append(&ids.id(parent), text)?,
            }
        }
        text.write_char('\n')
    }
}

/// Form of the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Columns with a blank in between.
    Text,
    /// Columns with a comma in between, below a line of headings.
    Csv,
    /// A Parquet file.
    #[cfg(feature = "parquet")]
    Parquet,
}

impl Form {
    /// Returns the form that the ending of a file names.
    fn of(path: &Path) -> Result<Self, OutputError> {
        let has_ending = |known| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case(known));
        match (has_ending("csv"), has_ending("parquet")) {
            (true, _) => Ok(Self::Csv),
            #[cfg(feature = "parquet")]
            (_, true) => Ok(Self::Parquet),
            #[cfg(not(feature = "parquet"))]
            (_, true) => Err(OutputError::Feature { path: path.to_owned(), feature: "parquet" }),
            _ => Ok(Self::Text),
        }
    }

    fn separator(self) -> char {
        match self {
            Self::Csv => ',',
            _ => ' ',
        }
    }

    fn append(self, name: &VertexName<'_>, text: &mut String) -> std::fmt::Result {
        match self {
            Self::Csv => write!(text, "{}", name.csv()),
            _ => write!(text, "{name}"),
        }
    }
}

/// A file of results that gets its name only when it is complete. It is created before the work begins, so that a path
/// that cannot be written fails early. Dropped without [`Output::finish`], it leaves nothing.
#[derive(Debug)]
pub struct Output {
    destination: Destination,
    form: Form,
}

impl Output {
    /// Prepares to write `path`, where `-` is standard output. A file that ends in `.csv` gets comma-separated values, and
    /// with feature `parquet` a file that ends in `.parquet` is a Parquet file.
    ///
    /// # Errors
    ///
    /// As for [`Destination::open`]; also [`OutputError::Feature`] for `.parquet` without the feature.
    pub fn create(path: &Path) -> Result<Self, OutputError> {
        let form = Form::of(path)?;
        Ok(Self { destination: Destination::open(path)?, form })
    }

    /// Returns the destination of the results.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Writes a line for each vertex, and gives the file its name. Component numbers must be numbers of vertices.
    ///
    /// # Errors
    /// [`OutputError::Length`] if there is not one value for each vertex; [`OutputError::Component`] if a component's
    /// number is not that of a vertex; [`OutputError::Destination`] if the file cannot be written.
    pub fn finish(self, ids: &Ids, values: Values<'_>) -> Result<(), OutputError> {
        self.finish_all(ids, &[Written { source: None, values, parents: None }])
    }

    /// Writes the results of several sources one after the other, as [`Output::finish`] writes one. Each line begins with
    /// the source and ends with the parent, where a result has them.
    ///
    /// # Errors
    /// As for [`Output::finish`]; also [`OutputError::Parent`] if a parent is not a vertex.
    pub fn finish_all(self, ids: &Ids, results: &[Written<'_>]) -> Result<(), OutputError> {
        results.iter().try_for_each(|result| result.check(ids))?;
        let form = self.form;
        #[cfg(feature = "parquet")]
        if form == Form::Parquet {
            return Ok(self.destination.write(|out| super::output_parquet::write(out, ids, results))?);
        }
        let headings = results.first().filter(|_| form == Form::Csv).map(|first| {
            let source = if first.source.is_some() { "source," } else { "" };
            let parent = if first.parents.is_some() { ",parent" } else { "" };
            format!("{source}vertex,{}{parent}\n", first.values.heading())
        });
        self.destination.write(|out| {
            out.write_all(headings.unwrap_or_default().as_bytes())?;
            for result in results {
                let mut first = String::new();
                if let Some(source) = &result.source {
                    form.append(source, &mut first).map_err(io::Error::other)?;
                    first.push(form.separator());
                }
                let line = |v: usize, text: &mut String| {
                    text.push_str(&first);
                    form.append(&ids.id(v as u64), text)?;
                    text.push(form.separator());
                    result.append(ids, v, form, text)
                };
                write_lines(result.values.len(), &line, out)?;
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Writes `count` lines, each formatted by `line`, in order.
fn write_lines(
    count: usize,
    line: &(impl Fn(usize, &mut String) -> std::fmt::Result + Sync),
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let blocks = |first: usize, last: usize| {
        let block = |i: usize| -> Result<String, std::fmt::Error> {
            let start = first + i * BLOCK;
            let mut text = String::with_capacity(BLOCK * 16);
            (start..last.min(start + BLOCK)).try_for_each(|v| line(v, &mut text))?;
            Ok(text)
        };
        let blocks = parallel::map((last - first).div_ceil(BLOCK), block);
        blocks.into_iter().collect::<Result<Vec<_>, _>>().map_err(io::Error::other)
    };
    for first in (0..count).step_by(BLOCK * BLOCKS_AT_ONCE) {
        let blocks = blocks(first, count.min(first + BLOCK * BLOCKS_AT_ONCE))?;
        blocks.iter().try_for_each(|text| out.write_all(text.as_bytes()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::names::Names;
    use std::fs;

    fn written(ids: &Ids, values: Values<'_>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        Output::create(&path).unwrap().finish(ids, values).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing but the result is left");
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn lines_have_the_identifiers_of_the_input() {
        let ids = Ids::Sparse(vec![3, 9, 1 << 63]);
        assert_eq!(written(&ids, Values::Depths(&[1, UNREACHED, 0])), "3 1\n9 inf\n9223372036854775808 0\n");
        assert_eq!(written(&ids, Values::Components(&[0, 1, 0])), "3 3\n9 9\n9223372036854775808 3\n");
        assert_eq!(written(&ids, Values::WideComponents(&[0, 1, 1])), "3 3\n9 9\n9223372036854775808 9\n");
        let ids = Ids::dense(1, 2);
        assert_eq!(written(&ids, Values::Distances(Distances::U32(&[7, u32::MAX]))), "1 7\n2 inf\n");
        assert_eq!(written(&ids, Values::Distances(Distances::U64(&[u64::MAX, 1 << 40]))), "1 inf\n2 1099511627776\n");
        assert_eq!(written(&ids, Values::Distances(Distances::F32(&[0.1, f32::INFINITY]))), "1 0.1\n2 inf\n");
        assert_eq!(written(&ids, Values::Distances(Distances::F64(&[0.25, f64::INFINITY]))), "1 0.25\n2 inf\n");
        assert_eq!(written(&ids, Values::Ranks64(&[0.75, 0.25])), "1 0.75\n2 0.25\n");
        assert_eq!(written(&ids, Values::Ranks32(&[0.75, 0.25])), "1 0.75\n2 0.25\n");
        assert_eq!(written(&Ids::dense(0, 0), Values::Depths(&[])), "");
    }

    #[test]
    fn results_of_several_sources_name_them() {
        let folder = tempfile::tempdir().unwrap();
        let (ids, depths) = (Ids::dense(5, 2), [[0, 1], [UNREACHED, 0]]);
        let result = |i: usize| Written {
            source: Some((5 + i as u64).into()),
            values: Values::Depths(&depths[i]),
            parents: None,
        };
        let results = [result(0), result(1)];
        for (file, expected) in [
            ("out.txt", "5 5 0\n5 6 1\n6 5 inf\n6 6 0\n"),
            ("out.csv", "source,vertex,depth\n5,5,0\n5,6,1\n6,5,inf\n6,6,0\n"),
        ] {
            let path = folder.path().join(file);
            Output::create(&path).unwrap().finish_all(&ids, &results).unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), expected);
        }
    }

    #[test]
    fn parents_are_a_column_of_identifiers() {
        let folder = tempfile::tempdir().unwrap();
        let ids = Ids::dense(7, 3);
        let depths = [1, 0, UNREACHED];
        let written = |file: &str, parents: &[u64]| {
            let path = folder.path().join(file);
            let result = Written { source: None, values: Values::Depths(&depths), parents: Some(parents) };
            Output::create(&path).unwrap().finish_all(&ids, &[result]).map(|()| fs::read_to_string(path).unwrap())
        };
        let parents = [1, 1, NO_PARENT];
        assert_eq!(written("out.txt", &parents).unwrap(), "7 1 8\n8 0 8\n9 inf -\n");
        assert_eq!(written("out.csv", &parents).unwrap(), "vertex,depth,parent\n7,1,8\n8,0,8\n9,inf,\n");
        let error = written("bad", &[1, 3, NO_PARENT]).unwrap_err().to_string();
        assert_eq!(error, "vertex 8 has parent 3, which is not below the number of vertices, 3");
        assert!(matches!(written("bad", &[1]), Err(OutputError::Length { values: 1, vertices: 3 })));
    }

    #[test]
    fn names_are_quoted_where_they_would_be_ambiguous() {
        let folder = tempfile::tempdir().unwrap();
        let names = Names::new("Ann, B.C\"Dx y".to_owned(), vec![0, 7, 10, 13]).unwrap();
        let (ids, labels) = (Ids::Named(names), [0, 1, 1]);
        let results = [Written { source: Some("x y".into()), values: Values::Components(&labels), parents: None }];
        for (file, expected) in [
            ("out.txt", "\"x y\" \"Ann, B.\" \"Ann, B.\"\n\"x y\" \"C\"\"D\" \"C\"\"D\"\n\"x y\" \"x y\" \"C\"\"D\"\n"),
            (
                "out.csv",
                "source,vertex,component\nx y,\"Ann, B.\",\"Ann, B.\"\nx y,\"C\"\"D\",\"C\"\"D\"\nx y,x y,\"C\"\"D\"\n",
            ),
        ] {
            let path = folder.path().join(file);
            Output::create(&path).unwrap().finish_all(&ids, &results).unwrap();
            assert_eq!(fs::read_to_string(path).unwrap(), expected);
        }
    }

    #[test]
    fn a_table_has_headings() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.CSV");
        for (values, heading) in [
            (Values::Depths(&[1]), "depth"),
            (Values::Distances(Distances::U32(&[1])), "distance"),
            (Values::Components(&[0]), "component"),
            (Values::Ranks64(&[1.0]), "rank"),
        ] {
            Output::create(&path).unwrap().finish(&Ids::dense(0, 1), values).unwrap();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.starts_with(&format!("vertex,{heading}\n0,")), "{text}");
        }
    }

    #[cfg(not(feature = "parquet"))]
    #[test]
    fn a_form_of_another_build_names_its_feature() {
        let folder = tempfile::tempdir().unwrap();
        let text = Output::create(&folder.path().join("out.parquet")).unwrap_err().to_string();
        assert!(text.contains("out.parquet") && text.contains("feature `parquet`"), "{text}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn many_blocks_come_in_order() {
        let count = BLOCK * BLOCKS_AT_ONCE + 5;
        let depths: Vec<u32> = (0..count as u32).collect();
        let text = written(&Ids::dense(10, count as u64), Values::Depths(&depths));
        for (v, line) in text.lines().enumerate() {
            assert_eq!(line, format!("{} {v}", v + 10));
        }
        assert_eq!(text.lines().count(), count);
    }

    #[test]
    fn an_unfinished_or_failed_output_leaves_the_old_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        fs::write(&path, "old").unwrap();
        drop(Output::create(&path).unwrap());
        let short = Output::create(&path).unwrap().finish(&Ids::dense(0, 2), Values::Depths(&[1]));
        assert!(matches!(short, Err(OutputError::Length { values: 1, vertices: 2 })));
        let wrong = Output::create(&path).unwrap().finish(&Ids::dense(5, 2), Values::Components(&[0, 2]));
        assert_eq!(
            wrong.unwrap_err().to_string(),
            "vertex 6 is in component 2, which is not below the number of vertices, 2"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let output = Output::create(&path).unwrap();
        output.finish(&Ids::dense(0, 1), Values::Depths(&[1])).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "0 1\n");
    }
}
