//! Keys of objects, and the pages of tensors that have their bytes.

use crate::call::Shared;
use crate::error::{Failure, wrong_type};
use crate::host_array::Source;
use crate::segments;
use crate::stream;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};
use std::sync::Arc;
use warpbell::engine::Stream;
use warpbell::memory::Region;
use warpbell::storage::{Extent, KvKey, PagedTensors, SegmentList, StorageError};

/// Largest segment of a transfer.
const LARGEST: u64 = 128 << 20;

/// Makes a key of Python's bytes.
pub(crate) fn key_of(object: &Bound<'_, PyAny>) -> PyResult<KvKey> {
    let Ok(bytes) = object.cast::<PyBytes>() else {
        let found = object.get_type().name()?;
        return Err(wrong_type(format!("a key is an object of type bytes, not {found}")));
    };
    Ok(KvKey::new(bytes.as_bytes()).map_err(Failure::from)?)
}

/// Makes keys of a sequence of Python's bytes.
pub(crate) fn keys_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<KvKey>> {
    if object.is_instance_of::<PyBytes>()
        || object.is_instance_of::<PyString>()
        || object.is_instance_of::<PyByteArray>()
    {
        return Err(wrong_type("keys: a single key; pass a list of keys"));
    }
    object.try_iter()?.map(|key| key_of(&key?)).collect()
}

/// Pages of tensors that have the bytes of objects.
pub(crate) struct Pages {
    tensors: Vec<Tensor>,
    /// Page numbers, `each` for each key.
    numbers: Vec<u64>,
    each: usize,
}

/// A tensor of pages.
struct Tensor {
    region: Region,
    page_bytes: u64,
    group: u32,
}

impl Pages {
    /// Finds the memory of tensors, and checks that each key has pages within all of them. Also returns the stream behind which the
    /// tensors are complete. `fills` is true if they are written to.
    pub(crate) fn of(
        shared: &Arc<Shared>,
        keys: usize,
        tensors: &Bound<'_, PyAny>,
        numbers: &Bound<'_, PyAny>,
        groups: Option<Vec<u32>>,
        fills: bool,
    ) -> PyResult<(Self, Option<Stream>)> {
        let objects = tensors.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        if let Some(groups) = groups.as_ref().filter(|groups| groups.len() != objects.len()) {
            let text = format!("{} groups for {} tensors; give one for each", groups.len(), objects.len());
            return Err(Failure::invalid(text).into());
        }
        let (mut all, mut arrays, mut count) = (Vec::with_capacity(objects.len()), Vec::new(), u64::MAX);
        for (i, object) in objects.iter().enumerate() {
            let what = format!("tensors[{i}]");
            let (view, region) = segments::memory(object, shared.engine(), fills, &what)?;
            let Some(&pages) = view.shape.first() else {
                return Err(
                    Failure::invalid(format!("{what}: a single number; its first dimension counts pages")).into()
                );
            };
            let page_bytes = view.bytes() / pages;
            if !(view.bytes().is_multiple_of(pages)
                && page_bytes.is_multiple_of(16)
                && view.address().is_multiple_of(16))
            {
                let text = format!(
                    "{what}: pages of {page_bytes} bytes from address {:#x} on; both have to be multiples of 16",
                    view.address()
                );
                return Err(Failure::invalid(text).into());
            }
            count = count.min(pages);
            let group = groups.as_ref().map_or(i as u32, |groups| groups[i]);
            all.push(Tensor { region, page_bytes, group });
            arrays.push((object, view.on_gpu));
        }
        if all.is_empty() {
            return Err(Failure::invalid("no tensors; give those that have the objects' bytes").into());
        }
        let (numbers, each) = numbers_of(numbers, keys, count)?;
        Ok((Self { tensors: all, numbers, each }, stream::behind(shared, &arrays)?))
    }

    /// Returns the bytes of each object.
    pub(crate) fn object_bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.page_bytes).sum::<u64>().saturating_mul(self.each as u64)
    }

    /// Returns the number of groups.
    pub(crate) fn groups(&self) -> u32 {
        self.tensors.iter().map(|tensor| tensor.group).max().map_or(0, |group| group.saturating_add(1))
    }

    /// Begins to list objects.
    pub(crate) fn lister(&self) -> Lister<'_> {
        let first = &self.tensors[0];
        let are_alike = self.tensors.iter().all(|tensor| tensor.page_bytes == first.page_bytes);
        Lister { pages: self, is_paged: self.each == 1 && are_alike, described: None }
    }
}

/// Adds objects to the list of one transfer.
pub(crate) struct Lister<'a> {
    pages: &'a Pages,
    /// True if each object has one page of each tensor, and all pages have equally many bytes.
    is_paged: bool,
    /// The tensors, once the list knows and keeps them.
    described: Option<PagedTensors>,
}

impl Lister<'_> {
    /// Adds the object of the `i`th key.
    pub(crate) fn add(&mut self, list: &mut SegmentList, i: usize, extents: &[Extent]) -> Result<(), StorageError> {
        let Pages { tensors, numbers, each } = self.pages;
        let described = match self.described {
            Some(described) => described,
            None => *self.described.insert(self.describe(list)?),
        };
        let numbers = &numbers[i * each..(i + 1) * each];
        if self.is_paged {
            return list.page(extents, described, numbers[0]);
        }
        list.object(extents, self.pages.object_bytes())?;
        for tensor in tensors {
            let mut rest = numbers;
            while let Some(first) = rest.first() {
                let most = ((LARGEST / tensor.page_bytes) as usize).clamp(1, rest.len());
                let count = (1..most).find(|n| rest[*n] != first + *n as u64).unwrap_or(most);
                let (at, bytes) = (first * tensor.page_bytes, count as u64 * tensor.page_bytes);
                // SAFETY: the pages are within the tensor, as `numbers_of` has checked; the list keeps its region.
                unsafe { list.segment_at(tensor.region.address() + at, bytes as usize, tensor.group) }?;
                rest = &rest[count..];
            }
        }
        Ok(())
    }

    /// Describes the tensors to the list, which keeps their memory.
    fn describe(&self, list: &mut SegmentList) -> Result<PagedTensors, StorageError> {
        let tensors = &self.pages.tensors;
        if self.is_paged {
            let all: Vec<(&Region, u32)> = tensors.iter().map(|tensor| (&tensor.region, tensor.group)).collect();
            return list.tensors(&all, tensors[0].page_bytes as usize);
        }
        let describe = |tensor: &Tensor| list.tensors(&[(&tensor.region, tensor.group)], tensor.page_bytes as usize);
        let all = tensors.iter().map(describe).collect::<Result<Vec<_>, _>>()?;
        Ok(all[0])
    }
}

/// Returns page numbers and how many each key has. Tensors have `count` pages.
fn numbers_of(object: &Bound<'_, PyAny>, keys: usize, count: u64) -> PyResult<(Vec<u64>, usize)> {
    let source = Source::of(object, Some("int64"), "pages")?;
    let each = match source.shape[..] {
        [n] if n == keys as u64 => 1,
        [n, each] if n == keys as u64 && each > 0 => each as usize,
        [0] if keys == 0 => 1,
        _ => {
            let text = format!(
                "pages: its shape is {:?}, and there are {keys} keys; give one page for each key, or as many for each",
                source.shape
            );
            return Err(Failure::invalid(text).into());
        }
    };
    let numbers = source.to_vec::<i64>()?;
    if let Some(at) = numbers.iter().position(|page| u64::try_from(*page).is_err() || *page as u64 >= count) {
        let text = format!(
            "pages: page {} of key {}, and the tensors have {count} pages; give 0 to {}",
            numbers[at],
            at / each,
            count - 1
        );
        return Err(Failure::invalid(text).into());
    }
    Ok((numbers.into_iter().map(|page| page as u64).collect(), each))
}
