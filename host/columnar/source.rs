//! Bytes of a columnar file for the decoders, which own what they read. Reads at any place, from many threads.

use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Contents that clones share.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A file, and its length in bytes.
    File(Arc<File>, u64),
    Memory(bytes::Bytes),
}

impl Source {
    /// Returns a reader from byte `offset` on.
    pub(crate) fn at(&self, offset: u64) -> At {
        At { source: self.clone(), offset }
    }

    /// Reads at most as many bytes as `buffer` has.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file, _) => file.read_at(buffer, offset),
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let length = buffer.len().min(bytes.len() - start);
                buffer[..length].copy_from_slice(&bytes[start..start + length]);
                Ok(length)
            }
        }
    }
}

impl Length for Source {
    fn len(&self) -> u64 {
        match self {
            Self::File(_, len) => *len,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }
}

impl ChunkReader for Source {
    type T = io::BufReader<At>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(io::BufReader::new(self.at(start)))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        // A damaged file may ask for more than it has, which is refused before memory is taken.
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} lie beyond the end")));
        }
        match self {
            Self::Memory(bytes) => Ok(bytes.slice(start as usize..start as usize + length)),
            Self::File(file, _) => {
                let mut buffer = vec![0; length];
                file.read_exact_at(&mut buffer, start)?;
                Ok(buffer.into())
            }
        }
    }
}

/// Reader with a position of its own.
pub(crate) struct At {
    source: Source,
    offset: u64,
}

impl Read for At {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(self.offset, buffer)?;
        self.offset += read as u64;
        Ok(read)
    }
}

impl Seek for At {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let to = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(by) => self.offset.checked_add_signed(by),
            SeekFrom::End(by) => self.source.len().checked_add_signed(by),
        };
        self.offset = to.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.offset)
    }
}
