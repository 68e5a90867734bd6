//! Objects of a KV store that kernels move between the volume and pages of tensors.

use crate::error::{Error, guard, wb_code};
use crate::kv::wb_kv_t;
use crate::kv_objects::on_engine;
use crate::options::Options;
use crate::pointer::{In, Out};
use crate::segment_transfer::{Flight, Transfer, wb_segment_transfer_t};
use crate::segments::{Memory, wb_segment_memory, wb_segment_queue_t};
use std::ffi::c_void;
use warpbell::engine::Engine;
use warpbell::storage::{Extent, SegmentList, StorageError};

/// Pages of tensors that have objects: for tensor 0 the pages of the object, then for tensor 1 the same pages, and so on.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_kv_pages {
    /// `sizeof(wb_kv_pages)`.
    pub size: usize,
    /// Tensors: arrays of pages of equal size, one behind the other. Each has its group, such as the number of its layer.
    pub tensors: In<wb_segment_memory>,
    /// Number of tensors, at least 1.
    pub tensor_count: usize,
    /// Bytes of a page of every tensor, a multiple of 16; or 0.
    pub page_bytes: usize,
    /// Bytes of a page of each tensor, multiples of 16; null if `page_bytes` is set.
    pub page_bytes_each: In<usize>,
    /// Numbers of pages: those of the first object, then those of the next one. Every tensor has these pages.
    pub pages: In<u64>,
    /// Number of them: for each key equally many, 1 or more.
    pub page_count: usize,
}

// SAFETY: numbers and pointers; the size comes first.
unsafe impl Options for wb_kv_pages {
    const NAME: &str = "wb_kv_pages";
}

/// A tensor, and the bytes of each of its pages.
struct Tensor<'a> {
    memory: Memory<'a>,
    page_bytes: usize,
}

/// Tensors and pages of a call.
struct Pages<'a> {
    tensors: Vec<Tensor<'a>>,
    /// Page numbers of all objects, each below the number of pages of all tensors.
    pages: &'a [u64],
    each: usize,
    /// Bytes of an object.
    bytes: u64,
    groups: u32,
}

impl<'a> Pages<'a> {
    /// Reads the pages of `objects` objects, for kernels of `engine`.
    fn new(given: &'a wb_kv_pages, engine: &Engine, objects: usize) -> Result<Self, Error> {
        let list = given.tensors.list(given.tensor_count, "tensors")?;
        if list.is_empty() {
            return Err(Error::argument("`tensor_count` is 0; an object has pages of at least one tensor"));
        }
        let one = given.page_bytes_each.is_null();
        if one == (given.page_bytes == 0) {
            return Err(Error::argument("set one of `page_bytes` and `page_bytes_each`: the bytes of a page"));
        }
        let sizes = if one { &[] } else { given.page_bytes_each.list(list.len(), "page_bytes_each")? };
        let (mut tensors, mut most, mut sum, mut groups) = (Vec::with_capacity(list.len()), usize::MAX, 0u64, 0);
        for (i, tensor) in list.iter().enumerate() {
            let name = format!("tensor {i}");
            let memory = Memory::new(tensor, engine, &name)?;
            let page_bytes = sizes.get(i).copied().unwrap_or(given.page_bytes);
            let pages = memory.bytes.checked_div(page_bytes).unwrap_or(0);
            if pages == 0 {
                return Err(Error::argument(format!(
                    "{name} has {} bytes, and no page of {page_bytes} bytes; give pages of 16 bytes or more, and a larger tensor",
                    memory.bytes
                )));
            }
            memory.check(page_bytes).map_err(|e| Error::from(e).within(&name))?;
            most = most.min(pages);
            sum = sum.saturating_add(page_bytes as u64);
            groups = groups.max(tensor.group.saturating_add(1));
            tensors.push(Tensor { memory, page_bytes });
        }
        let pages = given.pages.list(given.page_count, "pages")?;
        let each = pages.len().checked_div(objects).unwrap_or(0);
        if pages.len() != objects * each || (each == 0 && objects != 0) {
            return Err(Error::argument(format!(
                "`page_count` is {} for {objects} keys; give equally many pages, 1 or more, for each key",
                pages.len()
            )));
        }
        if let Some(at) = pages.iter().position(|page| *page >= most as u64) {
            return Err(Error::argument(format!(
                "`pages[{at}]` is {}, and the tensor with the fewest pages has {most}; give less",
                pages[at]
            )));
        }
        Ok(Self { tensors, pages, each, bytes: sum.saturating_mul(each as u64), groups })
    }

    /// Adds an object, that of the `i`th key, with all its pages.
    ///
    /// # Safety
    ///
    /// As of [`Memory::add`].
    unsafe fn add(&mut self, list: &mut SegmentList, i: usize, extents: &[Extent]) -> Result<(), StorageError> {
        list.object(extents, self.bytes)?;
        for Tensor { memory, page_bytes } in &mut self.tensors {
            for page in &self.pages[i * self.each..][..self.each] {
                // SAFETY: the tensor has the page; the caller's promise.
                unsafe { memory.add(list, *page as usize * *page_bytes, *page_bytes) }?;
            }
        }
        Ok(())
    }
}

/// Reads the structure of the pages of a call.
fn given_pages(pages: In<wb_kv_pages>) -> Result<wb_kv_pages, Error> {
    if pages.is_null() {
        return Err(Error::argument("`pages` is null; pass tensors and page numbers"));
    }
    pages.read()
}

/// Adds to the stream of a queue a kernel that loads objects into pages of tensors, and returns at once. Kernels that are launched on
/// the stream afterwards find the data; those of other streams do after `wb_segment_transfer_wait_group`. Each key counts as a use.
///
/// @param queue A queue of the volume of the store.
/// @param keys Keys, one behind the other.
/// @param key_bytes Bytes of each key: those of the store's keys.
/// @param count Number of keys.
/// @param pages Tensors, and the pages of each key. Pages of keys without an object stay as they are.
/// @param transfer Receives the transfer. It keeps the objects that it loads until its end: their space is not used for others. Finish
///   it with `wb_segment_transfer_finish`, which compares each object with its checksum.
/// @return `WB_OK`, also if objects are absent; `WB_ERR_ARGUMENT` if the queue is of another volume, the store has keys of another size,
///   an object has other bytes than its pages, a page number is none of a tensor, memory is no range of its region or belongs to another
///   engine, or an address or a number of bytes is no multiple of 16; `WB_ERR_MEMORY` without memory; `WB_ERR_STOPPED` on a cancelled
///   engine; `WB_ERR_UNSUPPORTED` if the stream is being captured.
/// @note Memory at an `address` is the program's: kernels of the engine read and write it until `wb_segment_transfer_finish` has
///   returned, or the last `wb_segment_transfer_release`. The library can check neither address nor length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_load(
    store: In<wb_kv_t>,
    queue: In<wb_segment_queue_t>,
    keys: In<c_void>,
    key_bytes: u32,
    count: usize,
    pages: In<wb_kv_pages>,
    transfer: Out<*mut wb_segment_transfer_t>,
) -> wb_code {
    guard(|| {
        transfer.check("transfer")?;
        let (kv, queue) = (store.get()?, queue.get()?);
        let keys = kv.keys(keys, key_bytes, count)?;
        let given = given_pages(pages)?;
        let mut pages = Pages::new(&given, queue.volume().engine(), count)?;
        let mut is_idle = true;
        let load = kv.store.load(queue, &keys, |list, i, object| {
            is_idle = false;
            // SAFETY: the program promises it, as the note says.
            unsafe { pages.add(list, i, &object.extents) }
        });
        let load = on_engine(kv, load)?;
        let idle_groups = if is_idle { pages.groups } else { 0 };
        transfer.give(Transfer::new(queue, Flight::KvLoad(load), count, idle_groups))
    })
}

/// Reserves space for objects, adds to the stream of a queue a kernel that stores them from pages of tensors, and returns at once. The
/// pages are read when the stream comes to the kernel. Objects of the same keys are replaced, and others evicted, as by `wb_kv_write`.
///
/// @param queue A queue of the volume of the store.
/// @param keys Keys, one behind the other, each once.
/// @param key_bytes Bytes of each key: those of the store's keys.
/// @param count Number of keys.
/// @param pages Tensors, and the pages of each key.
/// @param transfer Receives the transfer. It keeps the space until its end. Finish it with `wb_segment_transfer_finish`, which makes the
///   objects durable and visible.
/// @return As `wb_kv_load`; `WB_ERR_ARGUMENT` also if a key is given twice, or the pages of an object have more bytes than an object may
///   have; `WB_ERR_SPACE` if other transfers in flight leave too little space, or the objects have more than the store; `WB_ERR_IO` or
///   `WB_ERR_TIMEOUT` if a device fails.
/// @note Memory at an `address` is the program's, as for `wb_kv_load`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_kv_store(
    store: In<wb_kv_t>,
    queue: In<wb_segment_queue_t>,
    keys: In<c_void>,
    key_bytes: u32,
    count: usize,
    pages: In<wb_kv_pages>,
    transfer: Out<*mut wb_segment_transfer_t>,
) -> wb_code {
    guard(|| {
        transfer.check("transfer")?;
        let (kv, queue) = (store.get()?, queue.get()?);
        let keys = kv.keys(keys, key_bytes, count)?;
        let given = given_pages(pages)?;
        let mut pages = Pages::new(&given, queue.volume().engine(), count)?;
        let objects: Vec<_> = keys.into_iter().map(|key| (key, pages.bytes)).collect();
        let storing = kv.store.store(queue, &objects, |list, i, extents| {
            // SAFETY: the program promises it, as the note says.
            unsafe { pages.add(list, i, extents) }
        });
        let storing = on_engine(kv, storing)?;
        let idle_groups = if count == 0 { pages.groups } else { 0 };
        let sizes = vec![pages.bytes; count];
        transfer.give(Transfer::new(queue, Flight::KvStore(storing, sizes), count, idle_groups))
    })
}
