//! LDBC Graphalytics graphs (Graphalytics specification 1.0, 2.2.3). A `.v` file has one vertex on each line, an `.e`
//! file one edge. A `.properties` file states, among other things, whether edges have a direction.

use super::bytes::Bytes;
use super::decompress;
use super::edge_list;
use super::error::ImportError;
use super::line_fault::LineFault;
use super::raw::Read;
use super::text::{self, Fields, Header};
use super::{Format, Reader};
use crate::graph::ids::{Ids, Renumber};
use crate::graph::quoting::COMMENTS;
use std::path::{Path, PathBuf};

/// The files of one graph.
pub(crate) struct Paths {
    pub vertices: PathBuf,
    pub edges: PathBuf,
    pub properties: PathBuf,
    /// True if the file of vertices and the file of edges must both exist.
    both: bool,
}

impl Paths {
    /// Derives all paths from that of the vertices or of the edges.
    pub(crate) fn of(given: &Path) -> Self {
        let is_vertices = decompress::uncompressed_name(given).extension().is_some_and(|e| e.eq_ignore_ascii_case("v"));
        let plain = decompress::uncompressed_name(given);
        let suffix = &given.as_os_str().as_encoded_bytes()[plain.as_os_str().len()..];
        let parts = Self::from_prefix(&plain.with_extension(""), &String::from_utf8_lossy(suffix));
        // The given path keeps its spelling.
        if is_vertices {
            Self { vertices: given.to_owned(), ..parts }
        } else {
            Self { edges: given.to_owned(), both: false, ..parts }
        }
    }

    /// Derives all paths from their common prefix. `suffix` is the ending of compressed files, or empty.
    pub(crate) fn from_prefix(prefix: &Path, suffix: &str) -> Self {
        let with = |ending: &str, suffix: &str| {
            let mut path = prefix.as_os_str().to_owned();
            path.push(ending);
            path.push(suffix);
            PathBuf::from(path)
        };
        let properties = with(".properties", "");
        Self { vertices: with(".v", suffix), edges: with(".e", suffix), properties, both: true }
    }
}

impl Paths {
    /// Returns true if a file of vertices or edges is there.
    pub(crate) fn are_there(&self) -> bool {
        self.vertices.is_file() || self.edges.is_file()
    }
}

impl Reader<'_> {
    pub(crate) fn ldbc(&self, paths: &Paths) -> Result<Read, ImportError> {
        if paths.both {
            for (path, beside) in [(&paths.vertices, &paths.edges), (&paths.edges, &paths.vertices)] {
                if !path.exists() {
                    return Err(match beside.exists() {
                        true => ImportError::MissingPart { path: path.clone(), beside: beside.clone() },
                        false => ImportError::Io { path: path.clone(), source: std::io::ErrorKind::NotFound.into() },
                    });
                }
            }
        }
        let edges = Bytes::open(&paths.edges, self)?;
        let directed = if paths.properties.exists() { directed(&Bytes::open(&paths.properties, self)?)? } else { None };
        if paths.vertices.exists() {
            let vertices = Bytes::open(&paths.vertices, self)?;
            let numbers = self.vertex_file(&vertices)?;
            self.ldbc_edges(&edges, directed, Some((numbers, &vertices)))
        } else {
            self.ldbc_edges(&edges, directed, None)
        }
    }

    /// Reads an edge file alone, without vertices and properties.
    pub(crate) fn ldbc_edges_alone(&self, edges: &Bytes<'_>) -> Result<Read, ImportError> {
        self.ldbc_edges(edges, None, None)
    }

    fn vertex_file(&self, bytes: &Bytes<'_>) -> Result<Renumber, ImportError> {
        self.check_text(bytes)?;
        let line = |own: &mut Vec<u64>, _, line: &[u8]| {
            let Some(mut fields) = Fields::of(line, COMMENTS) else { return Ok(()) };
            let columns = |found| LineFault::Columns { found, expected: 1 };
            own.push(fields.vertex().ok_or_else(|| columns(0))??);
            if fields.next().is_some() { Err(columns(2 + fields.count())) } else { Ok(()) }
        };
        let mut pieces = Vec::new();
        text::parse(bytes, &self.whole(), line, |piece, _| {
            pieces.push(piece);
            Ok(())
        })?;
        let each = |i: usize, take: &mut dyn FnMut(u64)| {
            let piece: &Vec<u64> = &pieces[i];
            piece.iter().for_each(|&id| take(id));
            Ok(())
        };
        Renumber::gather(pieces.len(), each, self.table_bytes())
    }

    fn ldbc_edges(
        &self,
        bytes: &Bytes<'_>,
        directed: Option<bool>,
        vertices: Option<(Renumber, &Bytes<'_>)>,
    ) -> Result<Read, ImportError> {
        self.check_text(bytes)?;
        let third = self.third_column(bytes)?;
        let precision = self.options.precision;
        let pieces = self.parse(bytes, &self.whole(), |own, at, line| {
            let listed = |id| match &vertices {
                None => Ok(id),
                Some((numbers, file)) => numbers
                    .vertex(id)
                    .ok_or_else(|| LineFault::NotListed { found: id, vertex_file: file.path().display().to_string() }),
            };
            edge_list::edge(own, (at, line), (third, 3), precision, |fields, _| {
                fields.vertex().map(|id| id.and_then(listed))
            })
        })?;
        Ok(Read {
            format: Format::Ldbc,
            path: bytes.path().to_owned(),
            pieces,
            bytes: bytes.len() + vertices.as_ref().map_or(0, |(_, file)| file.len()),
            ids: vertices.map(|(numbers, _)| -> Ids { numbers.into_ids() }),
            directed,
            called_directed: false,
            mirrored: false,
            both_listed: false,
            translation: None,
            weighted: third == edge_list::ThirdColumn::Weight,
        })
    }
}

/// Returns the value of `graph.NAME.directed`, if the file has one.
fn directed(bytes: &Bytes<'_>) -> Result<Option<bool>, ImportError> {
    let mut header = Header::new(bytes);
    while let Some(line) = header.next()? {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.starts_with(['#', '!']) {
            continue;
        }
        let Some((key, value)) = text.split_once(['=', ':']) else { continue };
        let key = key.trim();
        if key.starts_with("graph.") && key.ends_with(".directed") {
            return match value.trim() {
                v if v.eq_ignore_ascii_case("true") => Ok(Some(true)),
                v if v.eq_ignore_ascii_case("false") => Ok(Some(false)),
                other => {
                    Err(bytes.fault(header.line(), LineFault::NotABoolean { found: text::quote(other.as_bytes()) }))
                }
            };
        }
    }
    Ok(None)
}
