//! Writes results: one line `ID VALUE` for each vertex, in ascending order of the input's identifiers, or a table of
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

    /// Appends the value of `v` and the end of the line.
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
        self.finish_all(ids, &[(None, values)])
    }

    /// Writes the results of several sources one after the other, as [`Output::finish`] writes one. Each line begins with
    /// the source, where a result has one.
    ///
    /// # Errors
    /// As for [`Output::finish`].
    pub fn finish_all(self, ids: &Ids, results: &[(Option<VertexName<'_>>, Values<'_>)]) -> Result<(), OutputError> {
        for (_, values) in results {
            if values.len() as u64 != ids.len() {
                return Err(OutputError::Length { values: values.len() as u64, vertices: ids.len() });
            }
            if let Some((v, found)) = values.bad_component(ids.len()) {
                return Err(OutputError::Component { vertex: ids.id(v).into_owned(), found, vertices: ids.len() });
            }
        }
        let form = self.form;
        #[cfg(feature = "parquet")]
        if form == Form::Parquet {
            return Ok(self.destination.write(|out| super::output_parquet::write(out, ids, results))?);
        }
        let headings = results.first().filter(|_| form == Form::Csv).map(|(source, values)| {
            let source = if source.is_some() { "source," } else { "" };
            format!("{source}vertex,{}\n", values.heading())
        });
        self.destination.write(|out| {
            out.write_all(headings.unwrap_or_default().as_bytes())?;
            for (source, values) in results {
                let mut first = String::new();
                if let Some(source) = source {
                    form.append(source, &mut first).map_err(io::Error::other)?;
                    first.push(form.separator());
                }
                let line = |v: usize, text: &mut String| {
                    text.push_str(&first);
                    form.append(&ids.id(v as u64), text)?;
                    text.push(form.separator());
                    values.append(ids, v, form, text)
                };
                write_lines(values.len(), &line, out)?;
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
        let results = [(Some(5.into()), Values::Depths(&depths[0])), (Some(6.into()), Values::Depths(&depths[1]))];
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
    fn names_are_quoted_where_they_would_be_ambiguous() {
        let folder = tempfile::tempdir().unwrap();
        let names = Names::new("Ann, B.C\"Dx y".to_owned(), vec![0, 7, 10, 13]).unwrap();
        let (ids, labels) = (Ids::Named(names), [0, 1, 1]);
        let results = [(Some("x y".into()), Values::Components(&labels))];
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
