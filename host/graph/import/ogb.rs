//! Raw folders of the Open Graph Benchmark (Hu et al., 2020): `edge.csv.gz` with two vertices on a line, counted from 0,
//! and beside it `num-node-list.csv.gz` with the number of vertices of each graph.

use super::bytes::Bytes;
use super::error::ImportError;
use super::line_fault::LineFault;
use super::notice::Notice;
use super::text::{Fields, Header};
use super::{Reader, decompress};
use std::path::{Path, PathBuf};

const EDGES: &str = "edge.csv";
const VERTICES: &str = "num-node-list.csv";
/// Endings of the files, in the order in which they are looked for.
const ENDINGS: [&str; 2] = [".gz", ""];

/// Returns the file `name` of a folder, compressed or not.
fn file(folder: &Path, name: &str) -> Option<PathBuf> {
    ENDINGS.iter().map(|ending| folder.join(format!("{name}{ending}"))).find(|path| path.is_file())
}

/// Returns the file of edges in a folder of the benchmark: the raw folder, or the one above it. Returns `None` for a
/// path that is no folder.
pub(super) fn edges(folder: &Path) -> Option<PathBuf> {
    if !folder.is_dir() {
        return None;
    }
    [folder.to_owned(), folder.join("raw")].iter().find_map(|folder| file(folder, EDGES))
}

/// Returns the file beside a folder's file of edges that has the number of vertices.
pub(super) fn list_beside(edges: &Path) -> Option<PathBuf> {
    if decompress::uncompressed_name(edges).file_name().is_none_or(|name| name != EDGES) {
        return None;
    }
    let folder = edges.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    file(folder, VERTICES)
}

impl Reader<'_> {
    /// Returns the number of vertices that a file beside the edges names, as a decision to show.
    pub(super) fn vertices_beside(&self, edges: &Path) -> Result<Option<Notice>, ImportError> {
        let Some(list) = list_beside(edges) else { return Ok(None) };
        let bytes = Bytes::open(&list, self)?;
        let (mut header, mut numbers) = (Header::new(&bytes), Vec::new());
        while let Some(line) = header.next()? {
            let Some(mut fields) = Fields::of(&line, b"") else { continue };
            let number = fields.vertex().unwrap_or(Err(LineFault::Columns { found: 0, expected: 1 }));
            numbers.push(number.map_err(|fault| bytes.fault(header.line(), fault))?);
        }
        match numbers[..] {
            [vertices] => {
                let file = list.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Ok(Some(Notice::VerticesOf { file, vertices }))
            }
            _ => Err(ImportError::SeveralGraphs { path: list, graphs: numbers.len() as u64 }),
        }
    }
}
