//! Vertices with names: the choice between numbers and names, and numbers for the names of a file.
//!
//! While lines are parsed, each name gets a provisional number from [`Interner`], in the order in which threads meet the
//! names. When all are known, they are sorted, and the provisional numbers are translated to vertices.

use super::bytes::Bytes;
use super::error::ImportError;
use super::line_fault::LineFault;
use super::raw::Read;
use super::text::{self, Fields, Header};
use super::{Format, IdKind, Reader, memory};
use crate::graph::ids::Ids;
use crate::graph::names::{Names, check_name};
use crate::graph::parallel;
use crate::memory::free_host_memory;
use parking_lot::Mutex;
use rayon::prelude::*;
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Ends of a line that stand for vertices; `None` where the line has too few columns.
pub(super) type Ends<'a> = [Option<Cow<'a, [u8]>>; 2];

/// Parser of vertices.
pub(crate) enum Vertices {
    /// Vertices are numbers.
    Numbers {
        /// True if the file decided, so that a word may mean that the vertices are names after all.
        decided: bool,
        /// Number that all vertices are below.
        below: u64,
    },
    /// Vertices are names, which get provisional numbers.
    Names(Interner),
}

impl Reader<'_> {
    /// Checks that the format has names, columns to choose or vertices to count if the options ask for that.
    pub(crate) fn check_choices(&self, path: &Path, format: Format) -> Result<(), ImportError> {
        let can = matches!(
            format,
            Format::EdgeList | Format::WeightedEdgeList | Format::Separated | Format::Parquet | Format::Arrow
        );
        if can {
            return Ok(());
        }
        let path = path.to_owned();
        if self.options.ids == IdKind::Names {
            return Err(ImportError::NumberedFormat { path, format });
        }
        if self.options.columns.is_some() {
            return Err(ImportError::FixedColumns { path, format });
        }
        if self.options.vertices.is_some() {
            let reason = format!("files of the format {format} have their own");
            return Err(ImportError::CountedVertices { path, reason });
        }
        Ok(())
    }

    /// Chooses the parser of vertices as the options say, or as the first lines with edges show. `first_line` is the
    /// number of the first line that may have an edge; `words` returns the vertices of a line, or `None` for comments.
    /// `first_words` are the words of that line for messages, if a heading may be there.
    pub(crate) fn vertices_of(
        &self,
        bytes: &Bytes<'_>,
        first_line: u64,
        first_words: Option<&str>,
        words: impl for<'a> Fn(&'a [u8]) -> Option<Ends<'a>>,
    ) -> Result<Vertices, ImportError> {
        let names = || self.named(bytes.path());
        match self.options.ids {
            IdKind::Numbers => return Ok(self.numbered(false)),
            IdKind::Names => return names(),
            IdKind::Auto => {}
        }
        let mut lines = Header::new(bytes);
        let mut first: Option<(u64, String)> = None;
        while let Some(line) = lines.next()? {
            let Some(words) = words(&line).filter(|_| lines.line() >= first_line) else { continue };
            let name = words.iter().flatten().find(|word| is_name(word));
            match (first, name) {
                (None, None) => return Ok(self.numbered(true)),
                (None, Some(name)) => first = Some((lines.line(), text::quote(name))),
                (Some((line, found)), None) if words.iter().flatten().all(|word| text::vertex(word).is_ok()) => {
                    let fault = match first_words {
                        Some(words) => LineFault::UnknownHeading { found: words.to_owned() },
                        None => LineFault::NameAmongNumbers { found },
                    };
                    return Err(bytes.fault(line, fault));
                }
                (Some(_), _) => return names(),
            }
        }
        if first.is_some() { names() } else { Ok(self.numbered(true)) }
    }

    /// Returns the parser of numbers. `decided` is true if the file decided for them.
    pub(crate) fn numbered(&self, decided: bool) -> Vertices {
        Vertices::Numbers { decided, below: self.vertices().unwrap_or(u64::MAX) }
    }

    /// Returns the parser of names.
    pub(crate) fn named(&self, path: &Path) -> Result<Vertices, ImportError> {
        match self.options.vertices {
            Some(_) => {
                let reason = "its vertices have names".to_owned();
                Err(ImportError::CountedVertices { path: path.to_owned(), reason })
            }
            None => Ok(Vertices::Names(Interner::new(self.memory_limit()))),
        }
    }
}

/// Returns true if words are the vertices of a line, and numbers those of the line below it.
pub(super) fn is_heading_above(first: &Ends<'_>, below: &Ends<'_>) -> bool {
    first.iter().flatten().any(|word| is_name(word))
        && below.iter().all(|word| word.as_ref().is_some_and(|word| text::vertex(word.trim_ascii()).is_ok()))
}

/// Returns true if a word is a name and no number, not even a negative one or one with a fraction.
fn is_name(word: &[u8]) -> bool {
    !word.is_empty() && matches!(text::vertex(word), Err(LineFault::NotAVertex { .. })) && !text::is_number(word)
}

impl Vertices {
    /// Returns the number of a vertex, which is provisional for a name.
    pub(crate) fn of(&self, word: &[u8]) -> Result<u64, LineFault> {
        match self {
            Self::Names(names) => names.number(word),
            Self::Numbers { decided, below } => text::vertex(word.trim_ascii())
                .map_err(|fault| explained(fault, *decided))
                .and_then(|vertex| bounded(vertex, *below)),
        }
    }

    /// Returns the number of a vertex that a column of integers names, as [`Vertices::of`] does.
    #[cfg(feature = "parquet")]
    pub(crate) fn of_integer(&self, id: i128) -> Result<u64, LineFault> {
        match self {
            Self::Names(names) => names.number(id.to_string().as_bytes()),
            Self::Numbers { below, .. } => u64::try_from(id)
                .map_err(|_| LineFault::NegativeVertex { found: id.to_string() })
                .and_then(|vertex| bounded(vertex, *below)),
        }
    }

    /// Returns the number of the vertex that the next word of a line is, as [`Vertices::of`] does.
    pub(crate) fn next_of(&self, fields: &mut Fields<'_>) -> Option<Result<u64, LineFault>> {
        match self {
            Self::Names(names) => fields.next().map(|word| names.number(word)),
            Self::Numbers { decided, below } => fields.vertex().map(|vertex| match vertex {
                Ok(vertex) => bounded(vertex, *below),
                Err(fault) => Err(explained(fault, *decided)),
            }),
        }
    }

    /// Adds the vertices to the edges that were read with them.
    pub(crate) fn finish(self, read: Read, reader: &Reader<'_>) -> Result<Read, ImportError> {
        let Self::Names(interner) = self else {
            let ids = reader.vertices().map(|vertices| Ids::dense(0, vertices));
            reader.beside.get().into_iter().for_each(|notice| reader.note(notice.clone()));
            return Ok(Read { ids, ..read });
        };
        let dictionary = interner.finish(&read.path, read.pieces.edges(), reader.memory_limit())?;
        Ok(Read { ids: Some(Ids::Named(dictionary.names)), translation: Some(dictionary.vertices), ..read })
    }
}

/// Returns a vertex that is one of the graph's. The largest number stands for no bound.
fn bounded(vertex: u64, below: u64) -> Result<u64, LineFault> {
    if vertex < below || below == u64::MAX {
        Ok(vertex)
    } else {
        Err(LineFault::BeyondVertices { found: vertex, vertices: below })
    }
}

/// Adds the choice of names to the fault of a word.
fn explained(fault: LineFault, decided: bool) -> LineFault {
    match fault {
        LineFault::NotAVertex { found } if decided => LineFault::NameAmongNumbers { found },
        other => other,
    }
}

/// Binary logarithm of the number of shards: more than threads, so that two of them rarely meet in one.
const SHARD_BITS: u32 = 8;
const SHARDS: usize = 1 << SHARD_BITS;
/// Bits of a slot that hold the position of a name in its shard, counted from 1. The bits above them are from the hash.
const POSITION_BITS: u32 = 40;
const POSITION: u64 = (1 << POSITION_BITS) - 1;
/// Names that one task copies into the dictionary.
const BLOCK: usize = 1 << 14;

/// Provisional numbers of names, for many threads. A number is the position of the name in its shard, and the shard.
///
/// Takes the bytes of the names, and at most 40 bytes for each: vectors and tables grow by doubling. Names with equal
/// hashes slow lookups down, so the hash has a random seed. No result depends on it.
pub(crate) struct Interner {
    shards: Vec<Mutex<Shard>>,
    seed: u64,
    /// Bytes of all shards.
    bytes: AtomicU64,
    /// Most bytes that the shards may take.
    free: u64,
}

/// Names with equal low bits of their hashes, in the order of their arrival, and a hash table with linear probing.
#[derive(Default)]
struct Shard {
    text: String,
    ends: Vec<u64>,
    /// 0 for an empty slot.
    slots: Vec<u64>,
}

impl Shard {
    fn get(&self, position: usize) -> &str {
        let start = position.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        &self.text[start..self.ends[position] as usize]
    }

    fn bytes(&self) -> u64 {
        (self.text.capacity() + 8 * (self.ends.capacity() + self.slots.len())) as u64
    }

    /// Returns the position of a name, or the empty slot where it belongs.
    fn find(&self, name: &[u8], hash: u64) -> Result<u64, usize> {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> SHARD_BITS) as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return Err(at);
            }
            let position = (slot & POSITION) - 1;
            if slot >> POSITION_BITS == hash >> POSITION_BITS && self.get(position as usize).as_bytes() == name {
                return Ok(position);
            }
            at = (at + 1) & mask;
        }
    }

    /// Doubles the table if three quarters of it are taken.
    fn grow(&mut self, hash: impl Fn(&[u8]) -> u64) {
        if 4 * (self.ends.len() + 1) <= 3 * self.slots.len() {
            return;
        }
        self.slots = vec![0; (2 * self.slots.len()).max(16)];
        for position in 0..self.ends.len() {
            let name = self.get(position).as_bytes();
            let hash = hash(name);
            if let Err(at) = self.find(name, hash) {
                self.slots[at] = slot(position as u64, hash);
            }
        }
    }
}

fn slot(position: u64, hash: u64) -> u64 {
    (hash >> POSITION_BITS << POSITION_BITS) | (position + 1)
}

impl Interner {
    /// Makes an interner of at most `limit` bytes, or without a limit of as many as are free.
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        let free = limit.or_else(free_host_memory).unwrap_or(u64::MAX);
        Self { shards, seed: RandomState::new().hash_one(0), bytes: AtomicU64::new(0), free }
    }

    /// Returns the provisional number of a name.
    fn number(&self, name: &[u8]) -> Result<u64, LineFault> {
        let hash = |name: &[u8]| xxh3_64_with_seed(name, self.seed);
        let hashed = hash(name);
        let index = hashed as usize % SHARDS;
        let number = |position: u64| position << SHARD_BITS | index as u64;
        let mut shard = self.shards[index].lock();
        let before = shard.bytes();
        shard.grow(hash);
        let at = match shard.find(name, hashed) {
            Ok(position) => return Ok(number(position)),
            Err(at) => at,
        };
        let text = check_name(name).map_err(|fault| LineFault::Name { found: text::quote(name), fault })?;
        let position = shard.ends.len() as u64;
        shard.slots[at] = slot(position, hashed);
        shard.text.push_str(text);
        let end = shard.text.len() as u64;
        shard.ends.push(end);
        let more = shard.bytes() - before;
        if more > 0 {
            let needed = self.bytes.fetch_add(more, Ordering::Relaxed) + more;
            if needed > self.free {
                return Err(LineFault::NamesMemory { needed, free: self.free });
            }
        }
        Ok(number(position))
    }

    /// Sorts the names. Checks before that the dictionary fits into memory; `edges` and `path` are for the message.
    fn finish(self, path: &Path, edges: u64, limit: Option<u64>) -> Result<Dictionary, ImportError> {
        let mut shards: Vec<Shard> = self.shards.into_iter().map(Mutex::into_inner).collect();
        shards.iter_mut().for_each(|shard| shard.slots = Vec::new());
        let count: usize = shards.iter().map(|shard| shard.ends.len()).sum();
        let text: usize = shards.iter().map(|shard| shard.text.len()).sum();
        // The order, the translation, blocks of the sorted names, and the dictionary.
        let more = (2 * text + count * (size_of::<Place>() + 8 + 4 + 8)) as u64;
        let held = limit.map_or(0, |_| shards.iter().map(Shard::bytes).sum());
        let what = path.display().to_string();
        memory::check(&what, count as u128, edges.into(), u128::from(held) + u128::from(more), limit)?;

        let mut order: Vec<Place> = Vec::with_capacity(count);
        for (index, shard) in shards.iter().enumerate() {
            parallel::extend(&mut order, shard.ends.len(), |position| Place::of(shard.get(position), position, index));
        }
        let name = |place: &Place| shards[place.number as usize % SHARDS].get((place.number >> SHARD_BITS) as usize);
        order.par_sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| name(a).cmp(name(b))));
        let empty = |shard: &Shard| (0..shard.ends.len()).map(|_| AtomicU64::new(0)).collect();
        let vertices = Translation { shards: shards.iter().map(empty).collect() };
        let block = |block: usize| {
            let places = &order[block * BLOCK..order.len().min((block + 1) * BLOCK)];
            let (mut text, mut lengths) = (String::new(), Vec::with_capacity(places.len()));
            for (i, place) in places.iter().enumerate() {
                let name = name(place);
                text.push_str(name);
                lengths.push(name.len() as u32);
                vertices.slot(place.number).store((block * BLOCK + i) as u64, Ordering::Relaxed);
            }
            (text, lengths)
        };
        let blocks = parallel::map(order.len().div_ceil(BLOCK), block);
        drop((order, shards));
        Ok(Dictionary { names: Names::from_blocks(blocks), vertices })
    }
}

/// Position of a name in the order of all names: the first eight bytes, which decide most comparisons, and its number.
struct Place {
    prefix: u64,
    number: u64,
}

impl Place {
    fn of(name: &str, position: usize, shard: usize) -> Self {
        let mut first = [0; 8];
        let length = name.len().min(8);
        first[..length].copy_from_slice(&name.as_bytes()[..length]);
        Self { prefix: u64::from_be_bytes(first), number: (position << SHARD_BITS | shard) as u64 }
    }
}

/// Names in their order, and the vertex of each provisional number.
struct Dictionary {
    names: Names,
    vertices: Translation,
}

/// Vertex of each provisional number, by shard. Tasks store the vertices in the order of the names.
pub(crate) struct Translation {
    shards: Vec<Vec<AtomicU64>>,
}

impl Translation {
    fn slot(&self, number: u64) -> &AtomicU64 {
        &self.shards[number as usize % SHARDS][(number >> SHARD_BITS) as usize]
    }

    /// Returns the vertex of a provisional number.
    pub(super) fn of(&self, number: u64) -> u64 {
        self.slot(number).load(Ordering::Relaxed)
    }
}
