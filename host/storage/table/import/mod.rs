//! Rows of files, which become tables: `.npy`, and with feature `parquet` Parquet and Arrow IPC files.

#[cfg(feature = "parquet")]
mod columns;
mod npy;
#[cfg(test)]
mod tests;

pub use npy::{NpyError, NpyHeader};

use super::{Table, TableError, TableLayout, TableWriter};
use crate::remedy::{Remedies, Remedy};
use crate::storage::{ElementType, StorageError, Volume};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes that are read and written at once.
const PIECE: usize = 4 << 20;

/// Error of a file with rows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowFileError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// An `.npy` file with a wrong header, or with an array that is no table.
    #[error("{} {source}", path.display())]
    Npy {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: NpyError,
    },
    /// An array of one dimension, without the number of elements of a row.
    #[error("{}: its array has one dimension of {elements} elements: say how many of them are a row", path.display())]
    Flat {
        /// The file.
        path: PathBuf,
        /// Elements of the array.
        elements: u64,
    },
    /// A choice that does not fit the file, or a file whose ending names no format.
    #[error("{}: {reason}", path.display())]
    Choice {
        /// The file.
        path: PathBuf,
        /// Fact, cause and remedy.
        reason: String,
    },
    /// A format that this build does not read.
    #[error("{}: this build reads no .{ending} files: build it with the feature `parquet`", path.display())]
    Feature {
        /// The file.
        path: PathBuf,
        /// Ending of its name.
        ending: String,
    },
    /// A file whose content is no table.
    #[error("{}: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Fact, cause and remedy.
        reason: String,
    },
    /// Rows of a size that tables do not have.
    #[error("{}: {source}", path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: TableError,
    },
    /// The volume cannot take the rows.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Remedies for RowFileError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::Storage(e) => e.remedies(),
            _ => Vec::new(),
        }
    }
}

/// Choices about the rows of a file.
#[derive(Clone, Debug, Default)]
pub struct RowFileOptions {
    columns: Vec<String>,
    row_elements: Option<u64>,
    element: Option<ElementType>,
}

impl RowFileOptions {
    /// Sets the columns of a Parquet or Arrow file that make a row, in this order. The default is all columns.
    pub fn columns(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.columns = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the number of elements of a row, which an `.npy` file of one dimension does not say.
    pub fn row_elements(mut self, elements: Option<u64>) -> Self {
        self.row_elements = elements;
        self
    }

    /// Names the type of elements that a file cannot name. Raw bytes of an `.npy` file are taken as a type of their size, and
    /// unsigned integers of 16 bits as [`ElementType::Bf16`]. Nothing is converted: a file with another type is refused.
    pub fn element(mut self, element: Option<ElementType>) -> Self {
        self.element = element;
        self
    }
}

/// Rows of a file, by the ending of its name: `.npy`, and with feature `parquet` `.parquet`, `.arrow` and `.feather`.
///
/// The first dimension of an array counts the rows. In a file of columns, a row is a list of fixed length, or the
/// numbers of all columns, or both one behind the other. All have one type.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Drive, OverwritePolicy, RowFile, RowFileOptions, Volume};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("vectors.npy");
/// let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
/// file.extend(format!("{:117}\n", "{'descr': '<u4', 'fortran_order': False, 'shape': (100, 16), }").bytes());
/// file.extend((0..1600u32).flat_map(u32::to_le_bytes));
/// std::fs::write(&path, file)?;
///
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
/// let rows = RowFile::open(&path, &RowFileOptions::default())?;
/// let table = rows.store(&volume, "vectors", false, &mut |_| {})?;
/// assert_eq!(table.gather_to_vec::<u32>(&[99u64])?[..2], [1584, 1585]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RowFile {
    path: PathBuf,
    layout: TableLayout,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Npy {
        file: File,
        first: u64,
    },
    #[cfg(feature = "parquet")]
    Columns(columns::Columns),
}

impl RowFile {
    /// Opens a file, and checks that its rows can be a table.
    ///
    /// # Errors
    /// Every [`RowFileError`] but [`RowFileError::Storage`].
    pub fn open(path: impl AsRef<Path>, options: &RowFileOptions) -> Result<Self, RowFileError> {
        let path = path.as_ref();
        let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
        let choice = |reason: &str| Err(RowFileError::Choice { path: path.to_owned(), reason: reason.to_owned() });
        match &*ending {
            "npy" if !options.columns.is_empty() => {
                choice("columns are chosen in Parquet and Arrow files; an .npy file has one array")
            }
            "npy" => Self::open_npy(path, options),
            "parquet" | "arrow" | "feather" if options.row_elements.is_some() => {
                choice("the elements of a row are those of its columns; the number is a choice for .npy files")
            }
            #[cfg(feature = "parquet")]
            "parquet" | "arrow" | "feather" => {
                let columns = columns::Columns::open(path, &ending, options)?;
                Ok(Self { path: path.to_owned(), layout: columns.layout()?, content: Content::Columns(columns) })
            }
            #[cfg(not(feature = "parquet"))]
            "parquet" | "arrow" | "feather" => Err(RowFileError::Feature { path: path.to_owned(), ending }),
            _ => choice("the ending names no format of rows: give a file in .npy, .parquet, .arrow or .feather"),
        }
    }

    fn open_npy(path: &Path, options: &RowFileOptions) -> Result<Self, RowFileError> {
        let io = |source| RowFileError::Io { path: path.to_owned(), source };
        let (file, header) = read_npy_as(path, options.element)?;
        let wrong = |reason: String| RowFileError::Content { path: path.to_owned(), reason };
        let choice = |reason: String| RowFileError::Choice { path: path.to_owned(), reason };
        let (rows, shape) = match (header.shape(), options.row_elements) {
            ([], _) => return Err(wrong("it holds a single number; give an array of rows".to_owned())),
            ([elements], None) => return Err(RowFileError::Flat { path: path.to_owned(), elements: *elements }),
            ([elements], Some(each)) => {
                if each == 0 || !elements.is_multiple_of(each) {
                    return Err(choice(format!("{elements} elements are no whole rows of {each}: give a divisor")));
                }
                (elements / each, vec![each])
            }
            ([rows, shape @ ..], None) => (*rows, shape.to_vec()),
            ([rows, shape @ ..], Some(each)) => {
                if shape.iter().try_fold(1u64, |a, b| a.checked_mul(*b)) != Some(each) {
                    let found = header.shape();
                    return Err(choice(format!(
                        "its shape is {found:?}, so a row has not {each} elements: leave it out"
                    )));
                }
                (*rows, shape.to_vec())
            }
        };
        let layout = TableLayout::new(header.element(), &shape, rows)
            .map_err(|source| RowFileError::Layout { path: path.to_owned(), source })?;
        let found = file.metadata().map_err(io)?.len();
        let first = header.data_offset();
        if header.data_bytes().and_then(|bytes| bytes.checked_add(first)) != Some(found) {
            let (needed, has) = (layout.bytes(), found.saturating_sub(first));
            return Err(wrong(format!(
                "its header describes {needed} bytes of rows, and {has} follow: the file is cut short, or has more than one array"
            )));
        }
        Ok(Self { path: path.to_owned(), layout, content: Content::Npy { file, first } })
    }

    /// Returns number, type and shape of the rows.
    pub fn layout(&self) -> &TableLayout {
        &self.layout
    }

    /// Stores the rows as a table called `name` beside everything that the volume holds. With `replace` it takes the
    /// place of a table of the same name. Calls `progress` with the bytes that are written, from time to time.
    ///
    /// # Errors
    /// * [`RowFileError::Storage`] as for [`TableWriter::new`] and [`TableWriter::finish`].
    /// * [`RowFileError::Io`] and [`RowFileError::Content`] if the file changes meanwhile, or is damaged.
    ///
    /// The volume is then as before.
    pub fn store(
        self,
        volume: &Volume,
        name: &str,
        replace: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Table, RowFileError> {
        let Self { path, layout, content } = self;
        let mut writer = TableWriter::new(volume, name, &layout, replace)?;
        let mut written = 0;
        let mut append = |bytes: &[u8]| -> Result<(), RowFileError> {
            writer.append_bytes(bytes)?;
            written += bytes.len() as u64;
            progress(written);
            Ok(())
        };
        match content {
            Content::Npy { file, first } => {
                let (mut piece, mut at, end) = (vec![0; PIECE], first, first + layout.bytes());
                while at < end {
                    let now = PIECE.min(usize::try_from(end - at).unwrap_or(PIECE));
                    file.read_exact_at(&mut piece[..now], at)
                        .map_err(|source| RowFileError::Io { path: path.clone(), source })?;
                    append(&piece[..now])?;
                    at += now as u64;
                }
            }
            #[cfg(feature = "parquet")]
            Content::Columns(columns) => columns.each_piece(PIECE, &mut append)?,
        }
        Ok(writer.finish()?)
    }
}

/// Opens an `.npy` file and parses its header. The array may have any shape, and may be cut short.
///
/// # Errors
/// [`RowFileError::Io`] if the file cannot be read; [`RowFileError::Npy`] if its header is refused.
#[cfg(feature = "internals")]
pub fn read_npy(path: &Path) -> Result<(File, NpyHeader), RowFileError> {
    read_npy_as(path, None)
}

/// As [`read_npy`], with the type that raw bytes are taken as.
fn read_npy_as(path: &Path, element: Option<ElementType>) -> Result<(File, NpyHeader), RowFileError> {
    let io = |source| RowFileError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let mut start = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(&file, NpyHeader::MOST_BYTES as u64), &mut start).map_err(io)?;
    let header =
        NpyHeader::parse_as(&start, element).map_err(|source| RowFileError::Npy { path: path.to_owned(), source })?;
    Ok((file, header))
}
