//! Pages of a KV cache in memory near the kernels, as servers lay them out: a tensor for keys and one for values of each layer, of pages
//! of so many tokens.

use crate::workloads::error::MeasureError;
use serde::Serialize;
use std::time::Duration;
use warpbell::args;
use warpbell::engine::{Engine, Stream};
use warpbell::memory::{Place, Region};
use warpbell::storage::{PagedTensors, SegmentList, StorageError};

/// Shape of a model's KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KvShape {
    pub layers: u32,
    /// Heads of keys and values.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Bytes of an element.
    pub element_bytes: u32,
    /// Tokens of a page.
    pub page_tokens: u32,
}

impl KvShape {
    /// Returns the bytes of a page of keys, or of values, of one layer.
    pub fn page_bytes(self) -> u64 {
        u64::from(self.page_tokens)
            * u64::from(self.kv_heads)
            * u64::from(self.head_dim)
            * u64::from(self.element_bytes)
    }

    /// Returns the bytes of an object: the pages of all layers for the same tokens.
    pub fn object_bytes(self) -> u64 {
        2 * u64::from(self.layers) * self.page_bytes()
    }
}

/// Pages of all layers.
pub struct Pages {
    shape: KvShape,
    /// Keys and values of each layer.
    tensors: Vec<Region>,
    /// Pages of each tensor, one for each object.
    pages: u64,
    /// Distance between the pages of consecutive objects, which has no divisor in common with their number.
    step: u64,
}

/// Bytes that are compared at a time.
const CHUNK: u64 = 16 << 20;
const LIMIT: Duration = Duration::from_secs(60);

impl Pages {
    /// Allocates `pages` pages of each tensor.
    pub fn new(engine: &Engine, shape: KvShape, pages: u64) -> Result<Self, MeasureError> {
        let bytes = usize::try_from(pages * shape.page_bytes()).unwrap_or(usize::MAX);
        let tensors = (0..2 * shape.layers).map(|_| engine.allocate(Place::Device, bytes)).collect::<Result<_, _>>()?;
        let step = (pages * 5 / 8..).find(|step| gcd(*step, pages) == 1).unwrap_or(1);
        Ok(Self { shape, tensors, pages, step })
    }

    /// Returns the page that an object has in all tensors: scattered, and another one when it is loaded.
    pub fn page(&self, object: u64, loads: bool) -> u64 {
        let page = object * self.step % self.pages;
        if loads { self.pages - 1 - page } else { page }
    }

    /// Describes the tensors to a list: a group for each layer.
    pub fn describe(&self, list: &mut SegmentList) -> Result<PagedTensors, StorageError> {
        let tensors: Vec<_> = self.tensors.iter().zip(0..).map(|(tensor, i)| (tensor, i / 2)).collect();
        list.tensors(&tensors, self.shape.page_bytes() as usize)
    }

    fn words(&self) -> u64 {
        self.pages * self.shape.page_bytes() / 8
    }

    /// Fills all pages: each word is another one.
    pub fn fill(&self, stream: &Stream) -> Result<(), MeasureError> {
        self.number(stream, 1)
    }

    /// Fills all pages with zeros.
    pub fn clear(&self, stream: &Stream) -> Result<(), MeasureError> {
        self.number(stream, 0)
    }

    fn number(&self, stream: &Stream, step: u64) -> Result<(), MeasureError> {
        for (i, tensor) in self.tensors.iter().enumerate() {
            let (words, first) = (self.words(), step * self.first(i));
            // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
            unsafe { stream.launch("wb_iota", stream.engine().grid(256, 4), args!(tensor, words, first, step)) }?;
        }
        stream.synchronize(LIMIT)?;
        Ok(())
    }

    /// Returns the first word of a tensor.
    fn first(&self, tensor: usize) -> u64 {
        1 + tensor as u64 * self.words()
    }

    /// Compares the pages of the first `objects` objects with what was stored, and all others with zeros.
    pub fn verify(&self, objects: u64) -> Result<(), MeasureError> {
        let page_words = self.shape.page_bytes() / 8;
        // The page from which each page was stored.
        let mut origin = vec![None; self.pages as usize];
        for object in 0..objects {
            origin[self.page(object, true) as usize] = Some(self.page(object, false));
        }
        let at_once = (CHUNK / self.shape.page_bytes()).max(1);
        for (i, tensor) in self.tensors.iter().enumerate() {
            for from in (0..self.pages).step_by(at_once as usize) {
                let pages = at_once.min(self.pages - from);
                let found = tensor.get_slice::<u64>((from * page_words * 8) as usize, (pages * page_words) as usize)?;
                for (page, words) in (from..).zip(found.chunks_exact(page_words as usize)) {
                    let first = origin[page as usize].map(|origin| self.first(i) + origin * page_words);
                    let expected = |at: u64| first.map_or(0, |first| first + at);
                    if let Some((at, found)) = (0..).zip(words).find(|(at, word)| **word != expected(*at)) {
                        return Err(MeasureError::Wrong(format!(
                            "tensor {i}, page {page}: word {at} is {found:#x}, not {:#x}",
                            expected(at)
                        )));
                    }
                }
            }
        }
        Ok(())
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
