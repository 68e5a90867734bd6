//! Reading of stored arrays in pieces, for arrays that do not fit into memory.

use super::manifest::Entry;
use super::{Content, Contents};
use crate::engine::EngineError;
use crate::storage::checksum::Checksum;
use crate::storage::element::{Element, ElementType};
use crate::storage::error::{StorageError, size};
use std::marker::PhantomData;

/// Bytes that are read between two looks at whether the engine was cancelled.
const AT_ONCE: usize = 64 << 20;

/// Reader of one stored array, from its first element to its last. The caller chooses the size of each piece.
#[derive(Debug)]
#[must_use = "data is compared with its checksum in finish"]
pub struct ArrayReader<'a, T> {
    contents: &'a Contents,
    content: Content,
    entry: Entry,
    /// Number of elements that were read.
    read: u64,
    checksum: Checksum,
    element: PhantomData<T>,
}

impl Contents {
    /// Begins to read a stored array in pieces.
    pub(in crate::storage) fn array_reader<T: Element>(&self, name: &str) -> Result<ArrayReader<'_, T>, StorageError> {
        let failed = |source| StorageError::Manifest { device: self.disk.name().to_owned(), source };
        let content = self.current()?;
        let entry = content.block.manifest.find_typed::<T>(name).map_err(failed)?.clone();
        let checksum = Checksum::default();
        Ok(ArrayReader { contents: self, content, entry, read: 0, checksum, element: PhantomData })
    }

    /// Reads a whole array and compares it with the checksum that was stored. An array that was changed and flushed
    /// since is not checked until [`Contents::accept_changes`].
    pub(in crate::storage) fn read_array<T: Element>(&self, name: &str) -> Result<Vec<T>, StorageError> {
        let mut reader = self.array_reader::<T>(name)?;
        let too_many = || {
            let bytes = size(reader.entry.bytes());
            StorageError::Option(format!("array `{name}` of {bytes} does not fit into memory"))
        };
        let count = usize::try_from(reader.len()).map_err(|_| too_many())?;
        let mut values = Vec::new();
        values.try_reserve_exact(count).map_err(|_| too_many())?;
        values.resize(count, T::zeroed());
        reader.read(&mut values)?;
        reader.finish()?;
        Ok(values)
    }
}

impl Contents {
    /// Reads a whole array, whose elements have the type `asked`, as bytes, and compares it with the checksum that was
    /// stored, as [`Contents::read_array`] does. `out` has as many bytes as the array.
    pub(in crate::storage) fn read_array_bytes(
        &self,
        name: &str,
        asked: ElementType,
        out: &mut [u8],
    ) -> Result<(), StorageError> {
        let content = self.current()?;
        let entry = content.block.manifest.find_as(name, asked).map_err(|source| self.wrong_manifest(source))?;
        if entry.bytes() != out.len() as u64 {
            let (bytes, asked) = (entry.bytes(), out.len());
            return Err(StorageError::Option(format!("array `{name}` has {bytes} bytes, and {asked} were asked for")));
        }
        let mut checksum = Checksum::default();
        self.read_summed(entry.offset, out, &mut checksum)?;
        self.check_data(&content, entry, checksum.finish())
    }

    /// Reads bytes in parts, which are added to the checksum, unless the engine was cancelled.
    fn read_summed(&self, offset: u64, out: &mut [u8], checksum: &mut Checksum) -> Result<(), StorageError> {
        for (part, at) in out.chunks_mut(AT_ONCE).zip((offset..).step_by(AT_ONCE)) {
            if self.disk.engine().is_cancelled() {
                return Err(EngineError::Cancelled.into());
            }
            self.disk.read_bytes(at, part)?;
            checksum.update(part);
        }
        Ok(())
    }
}

impl<T: Element> ArrayReader<'_, T> {
    /// Returns the number of elements of the array.
    pub fn len(&self) -> u64 {
        self.entry.count
    }

    /// Returns true if the array has no elements.
    #[cfg(feature = "internals")]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of elements that were not read yet.
    pub fn remaining(&self) -> u64 {
        self.entry.count - self.read
    }

    /// Reads the next elements, as many as `out` has. After an error the reader cannot be used further.
    ///
    /// # Errors
    /// [`StorageError::Option`] if fewer elements remain, [`StorageError::Engine`] if the engine was cancelled; otherwise
    /// as for [`Volume::read_bytes`](crate::storage::Volume::read_bytes).
    pub fn read(&mut self, out: &mut [T]) -> Result<(), StorageError> {
        let (wanted, remaining, count) = (out.len() as u64, self.remaining(), self.len());
        if wanted > remaining {
            let name = &self.entry.name;
            return Err(StorageError::Option(format!(
                "{remaining} of {count} elements remain of array `{name}`, and {wanted} were asked for"
            )));
        }
        let at = self.entry.offset + self.read * size_of::<T>() as u64;
        self.contents.read_summed(at, bytemuck::cast_slice_mut(out), &mut self.checksum)?;
        self.read += wanted;
        Ok(())
    }

    /// Compares the data that was read with the checksum that was stored. An array that was changed and flushed since is
    /// not checked until [`Volume::accept_changes`](crate::storage::Volume::accept_changes).
    ///
    /// # Errors
    /// [`StorageError::Manifest`] if the data is damaged; [`StorageError::Option`] if elements remain to be read.
    pub fn finish(self) -> Result<(), StorageError> {
        if self.remaining() > 0 {
            let (name, remaining) = (&self.entry.name, self.remaining());
            return Err(StorageError::Option(format!(
                "the checksum of array `{name}` covers {remaining} more elements; read them first"
            )));
        }
        self.contents.check_data(&self.content, &self.entry, self.checksum.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::storage::{Drive, Plan, Volume};

    fn volume() -> Volume {
        Volume::on(&Engine::cpu().unwrap(), [Drive::open("soft:mem:1M").unwrap()]).build().unwrap()
    }

    #[test]
    fn pieces_of_any_size_are_the_array() {
        let v = volume();
        let values: Vec<u32> = (0..10_000u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
        v.store_array("a", &values).unwrap();
        for size in [1, 127, 128, 4096, 10_000] {
            let mut reader = v.array_reader::<u32>("a").unwrap();
            let mut found = Vec::new();
            // Small pieces suffice to cross many blocks.
            while reader.remaining() > 0 && found.len() < 300 * size {
                let mut piece = vec![0; size.min(reader.remaining() as usize)];
                reader.read(&mut piece).unwrap();
                found.extend(piece);
            }
            assert!(found[..] == values[..found.len()], "{size}");
            match reader.remaining() {
                0 => reader.finish().unwrap(),
                left => {
                    let text = reader.finish().unwrap_err().to_string();
                    assert!(text.contains(&format!("covers {left} more elements")), "{text}");
                }
            }
        }
    }

    #[test]
    fn damage_and_wrong_requests_are_errors() {
        let v = volume();
        let mut writer = v.store(Plan::new().array::<u64>("a", 100).array::<u8>("none", 0), "it").unwrap();
        writer.append("a", &[7u64; 100]).unwrap();
        let manifest = writer.finish().unwrap();
        assert!(v.array_reader::<u32>("a").is_err(), "another type");
        assert!(v.array_reader::<u64>("b").is_err(), "no such array");
        let empty = v.array_reader::<u8>("none").unwrap();
        assert!(empty.is_empty());
        empty.finish().unwrap();
        let mut reader = v.array_reader::<u64>("a").unwrap();
        reader.read(&mut [0; 60]).unwrap();
        let text = reader.read(&mut [0; 41]).unwrap_err().to_string();
        assert!(text.contains("40 of 100 elements remain of array `a`, and 41"), "{text}");
        reader.read(&mut [0; 40]).unwrap();
        reader.finish().unwrap();

        // Behind the volume's back, as a failing device does.
        let block = manifest.find("a").unwrap().offset >> v.block_shift();
        v.disk().put_blocks(block, &vec![1; v.block_bytes()]).unwrap();
        let mut reader = v.array_reader::<u64>("a").unwrap();
        reader.read(&mut [0; 100]).unwrap();
        let damaged = reader.finish().unwrap_err();
        assert!(matches!(damaged, StorageError::Manifest { .. }), "{damaged}");
        assert!(v.read_array::<u64>("a").is_err());
    }
}
