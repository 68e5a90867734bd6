//! Decompression of gzip (RFC 1952) and Zstandard (RFC 8878).

use super::bytes::Bytes;
use super::error::ImportError;
use super::{Progress, ProgressFn, Reader, Stage};
use flate2::bufread::GzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::ffi::OsStr;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes that tell the kind of compression.
pub(super) const MAGIC_BYTES: usize = 4;
/// First byte of a gzip member (RFC 1952, 2.3.1).
const MEMBER: u8 = 0x1f;
/// Bytes that are read at a time.
const BUFFER: usize = 1 << 18;
/// Largest window of a Zstandard frame in bytes: the limit of the program `zstd`, which `--long` can exceed.
const LARGEST_WINDOW: u64 = 1 << 27;
/// Window that is allowed with any limit of memory.
const LEAST_WINDOW: u64 = 1 << 20;

/// Endings of compressed files.
const ENDINGS: [&str; 3] = ["gz", "zst", "zstd"];

/// Returns a path without the ending of a compressed file.
pub(super) fn uncompressed_name(path: &Path) -> PathBuf {
    let is_compressed = |e: &OsStr| ENDINGS.iter().any(|known| e.eq_ignore_ascii_case(known));
    match path.extension() {
        Some(ending) if is_compressed(ending) => path.with_extension(""),
        _ => path.to_owned(),
    }
}

/// Kind of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    Gzip,
    Zstandard,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Zstandard => "Zstandard",
        })
    }
}

impl Compression {
    /// Returns the kind that the first bytes show. No graph format begins so.
    pub(super) fn of(first: &[u8]) -> Option<Self> {
        match first {
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            // A frame, or a frame that decoders skip.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Self::Zstandard),
            _ => None,
        }
    }

    /// Returns the decompressed contents of `from`, which has `len` bytes: 0 if that is not known.
    ///
    /// # Errors
    /// [`ImportError::Compressed`] if the contents are damaged; [`ImportError::LargeText`] if they do not fit into
    /// memory.
    pub(super) fn decompress(
        self,
        path: &Path,
        from: impl Read,
        len: u64,
        reader: &Reader<'_>,
    ) -> Result<Bytes<'static>, ImportError> {
        let progress = reader.options.progress.filter(|_| len > 0);
        let from = BufReader::with_capacity(BUFFER, Counted { from, done: 0, len, progress });
        let by_memory = reader.memory_limit().map(|limit| (limit / 2).max(LEAST_WINDOW));
        let limit = by_memory.map_or(LARGEST_WINDOW, |limit| limit.min(LARGEST_WINDOW));
        let bytes = match self {
            Self::Gzip => Bytes::gathered(path, Members::of(from), reader),
            Self::Zstandard => Bytes::gathered(path, Frames { from, frame: None, largest_window: limit }, reader),
        };
        bytes.map_err(|e| match e {
            ImportError::Io { path, source } if source.kind() != io::ErrorKind::OutOfMemory => {
                match source.get_ref().and_then(|e| e.downcast_ref()) {
                    Some(&FrameDecoderError::WindowSizeTooBig { requested, .. }) => {
                        let by_memory = limit < LARGEST_WINDOW;
                        ImportError::LargeWindow { path, window: requested, limit, by_memory }
                    }
                    _ => ImportError::Compressed { path, compression: self.to_string(), source },
                }
            }
            other => other,
        })
    }
}

/// Reports what was read as progress.
struct Counted<'a, R> {
    from: R,
    done: u64,
    len: u64,
    progress: Option<ProgressFn<'a>>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.done += read as u64;
        if let Some(progress) = self.progress {
            progress(Progress { stage: Stage::Decompress, done: self.done, total: self.len });
        }
        Ok(read)
    }
}

/// The members of a gzip file, one after another. Zeros may follow a member, as they do on media with blocks of a size.
enum Members<R> {
    Member(Box<GzDecoder<R>>),
    Behind(R),
    /// The end, or an error.
    Ended,
}

impl<R: BufRead> Members<R> {
    fn of(from: R) -> Self {
        Self::Member(Box::new(GzDecoder::new(from)))
    }

    /// Begins the next member behind zeros; returns false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        let Self::Behind(mut from) = std::mem::replace(self, Self::Ended) else { return Ok(false) };
        loop {
            let buffer = from.fill_buf()?;
            if buffer.is_empty() {
                return Ok(false);
            }
            let zeros = buffer.iter().position(|&b| b != 0).unwrap_or(buffer.len());
            if zeros == 0 && buffer[0] != MEMBER {
                return Err(io::Error::other("something else than gzip follows the last member"));
            }
            if zeros == 0 {
                *self = Self::of(from);
                return Ok(true);
            }
            from.consume(zeros);
        }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            match self {
                Self::Ended => break,
                Self::Behind(_) => {
                    if !self.begin()? {
                        break;
                    }
                }
                Self::Member(member) => match member.read(buffer)? {
                    0 => {
                        let Self::Member(member) = std::mem::replace(self, Self::Ended) else { break };
                        *self = Self::Behind(member.into_inner());
                    }
                    read => return Ok(read),
                },
            }
        }
        Ok(0)
    }
}

/// The frames of a Zstandard file, one after another, without those that decoders skip.
struct Frames<R> {
    from: R,
    frame: Option<Box<FrameDecoder>>,
    /// Largest window of a frame in bytes.
    largest_window: u64,
}

impl<R: BufRead> Frames<R> {
    /// Begins the next frame; returns false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.from.fill_buf()?.is_empty() {
            let mut decoder = Box::new(FrameDecoder::new());
            decoder.set_max_window_size(self.largest_window);
            match decoder.init(&mut self.from) {
                Ok(()) => {
                    self.frame = Some(decoder);
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut (&mut self.from).take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(e) => return Err(io::Error::other(e)),
            }
        }
        Ok(false)
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            let Some(decoder) = &mut self.frame else {
                if self.begin()? {
                    continue;
                }
                break;
            };
            while decoder.can_collect() == 0 && !decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                decoder.decode_blocks(&mut self.from, one).map_err(io::Error::other)?;
            }
            match decoder.read(buffer)? {
                0 => {
                    let (stored, found) = (decoder.get_checksum_from_data(), decoder.get_calculated_checksum());
                    if stored.is_some() && stored != found {
                        return Err(io::Error::other("a frame does not match its checksum"));
                    }
                    self.frame = None;
                }
                read => return Ok(read),
            }
        }
        Ok(0)
    }
}
