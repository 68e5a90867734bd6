//! Mapping between the input's identifiers and vertex numbers.

use super::names::{Names, VertexName};
use crate::graph::parallel;
use crate::units::grouped;
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifier of the input for each vertex.
///
/// Vertices are numbered from 0 in ascending order of their identifiers, so numbers compare as identifiers do. If the
/// identifiers are numbers without a gap, the mapping is an addition ([`Ids::Dense`]). Other numbers are kept in a list
/// ([`Ids::Sparse`], 8 bytes each), and names in a dictionary ([`Ids::Named`], their bytes and 8 bytes each).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Vertex `v` has the identifier `base + v`.
    Dense {
        /// Identifier of vertex 0.
        base: u64,
        /// Number of vertices.
        count: u64,
    },
    /// Vertex `v` has the `v`-th of these identifiers, which ascend.
    Sparse(Vec<u64>),
    /// Vertex `v` has the `v`-th of these names, which ascend by their bytes.
    Named(Names),
}

impl Ids {
    /// Makes the identifiers `base`, `base + 1`, and so on, for `count` vertices.
    pub fn dense(base: u64, count: u64) -> Self {
        Self::Dense { base, count }
    }

    /// Makes the mapping of the identifiers in `sorted`, which must ascend strictly.
    pub(crate) fn from_sorted(sorted: Vec<u64>) -> Self {
        match (sorted.first(), sorted.last()) {
            (Some(&first), Some(&last)) if last - first == sorted.len() as u64 - 1 => {
                Self::dense(first, sorted.len() as u64)
            }
            (None, _) => Self::dense(0, 0),
            _ => Self::Sparse(sorted),
        }
    }

    /// Returns the number of vertices.
    pub fn len(&self) -> u64 {
        match self {
            Self::Dense { count, .. } => *count,
            Self::Sparse(ids) => ids.len() as u64,
            Self::Named(names) => names.len(),
        }
    }

    /// Returns true if there are no vertices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the names, if the vertices have names.
    pub fn names(&self) -> Option<&Names> {
        match self {
            Self::Dense { .. } | Self::Sparse(_) => None,
            Self::Named(names) => Some(names),
        }
    }

    /// Returns the input's identifier of vertex `v`, which must be below [`Ids::len`].
    ///
    /// # Panics
    /// May panic if `v` is not a vertex.
    pub fn id(&self, v: u64) -> VertexName<'_> {
        match self {
            Self::Dense { base, .. } => (base + v).into(),
            Self::Sparse(ids) => ids[v as usize].into(),
            Self::Named(names) => names.get(v).into(),
        }
    }

    /// Returns the vertex with the identifier `id`, if there is one. A text of digits is the same identifier as the
    /// number, so `5` and `"5"` find the same vertex.
    pub fn vertex<'a>(&self, id: impl Into<VertexName<'a>>) -> Option<u64> {
        let id = id.into();
        if let Self::Named(names) = self {
            return match &id {
                VertexName::Text(name) => names.find(name),
                VertexName::Number(number) => names.find(&number.to_string()),
            };
        }
        self.numbered(match id {
            VertexName::Number(number) => number,
            VertexName::Text(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok()?,
            VertexName::Text(_) => return None,
        })
    }

    /// Returns the vertex with a number as its identifier.
    fn numbered(&self, id: u64) -> Option<u64> {
        match self {
            Self::Dense { base, count } => id.checked_sub(*base).filter(|v| v < count),
            Self::Sparse(ids) => ids.binary_search(&id).ok().map(|v| v as u64),
            Self::Named(_) => None,
        }
    }

    /// Returns the vertex with the identifier `id`, as [`Ids::vertex`] does.
    ///
    /// # Errors
    /// [`UnknownVertex`] if there is none, with the range of the identifiers.
    pub fn find<'a>(&self, id: impl Into<VertexName<'a>>) -> Result<u64, UnknownVertex> {
        let id = id.into();
        self.vertex(id.clone()).ok_or_else(|| {
            let bounds = self.bounds().map(|(low, high)| (low.into_owned(), high.into_owned()));
            UnknownVertex { id: id.into_owned(), count: self.len(), bounds }
        })
    }

    /// Returns the smallest and the largest identifier, or `None` if there are no vertices.
    pub fn bounds(&self) -> Option<(VertexName<'_>, VertexName<'_>)> {
        self.len().checked_sub(1).map(|last| (self.id(0), self.id(last)))
    }
}

/// Error for an identifier that no vertex has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("vertex {id} does not exist: {}", there_are(*.count, .bounds.as_ref()))]
pub struct UnknownVertex {
    /// The identifier asked for.
    pub id: VertexName<'static>,
    /// Number of vertices.
    pub count: u64,
    /// The smallest and the largest identifier.
    pub bounds: Option<(VertexName<'static>, VertexName<'static>)>,
}

fn there_are(count: u64, bounds: Option<&(VertexName<'_>, VertexName<'_>)>) -> String {
    match bounds {
        None => "the graph has no vertices".to_owned(),
        Some((VertexName::Number(low), VertexName::Number(high))) if high - low == count - 1 => {
            format!("identifiers go from {low} to {high}")
        }
        Some((low, high)) => {
            let kind = if low.number().is_some() { "identifiers" } else { "names" };
            format!("the graph has {} vertices with {kind} between {low} and {high}", grouped(count))
        }
    }
}

/// Fast lookup of vertices by identifier, for renumbering edges.
pub(crate) struct Renumber {
    ids: Ids,
    table: Table,
}

enum Table {
    /// Lookups in [`Ids`], which are fast enough.
    Direct,
    /// One bit for each number from the smallest to the largest identifier, and the number of bits set before each
    /// word.
    Bits { base: u64, words: Vec<u64>, ranks: Vec<u64> },
}

/// Largest size of a table of bits, in bits per identifier that was read. Such a table takes no more memory than a list
/// of the identifiers would.
const BITS_FOR_EACH: u64 = 64;

impl Renumber {
    /// Collects the identifiers of `pieces` pieces. `each` calls its argument with every identifier of a piece, each of
    /// which may occur any number of times. A table is made only if it takes at most `table_bytes`.
    pub(crate) fn gather<E: Send>(
        pieces: usize,
        each: impl Fn(usize, &mut dyn FnMut(u64)) -> Result<(), E> + Sync,
        table_bytes: u64,
    ) -> Result<Self, E> {
        let of_piece = |piece: usize| {
            let mut found = (0u64, u64::MAX, 0u64);
            each(piece, &mut |id| found = (found.0 + 1, found.1.min(id), found.2.max(id)))?;
            Ok(found)
        };
        let found = parallel::map(pieces, of_piece).into_iter().collect::<Result<Vec<_>, E>>()?;
        let (count, low, high) =
            found.into_iter().fold((0, u64::MAX, 0), |a, b| (a.0 + b.0, a.1.min(b.1), a.2.max(b.2)));
        if count == 0 {
            return Ok(Self { ids: Ids::dense(0, 0), table: Table::Direct });
        }
        // Bits and ranks take a quarter of a byte for each number of the range.
        let is_small = high - low < count.saturating_mul(BITS_FOR_EACH) && (high - low) / 4 <= table_bytes;
        if is_small { Self::by_bits(pieces, each, low, high) } else { Self::by_sorting(pieces, each) }
    }

    fn by_bits<E: Send>(
        pieces: usize,
        each: impl Fn(usize, &mut dyn FnMut(u64)) -> Result<(), E> + Sync,
        base: u64,
        high: u64,
    ) -> Result<Self, E> {
        let words: Vec<AtomicU64> = parallel::map((high - base) as usize / 64 + 1, |_| AtomicU64::new(0));
        let set = |piece: usize| {
            each(piece, &mut |id| {
                let (word, bit) = (&words[((id - base) / 64) as usize], 1 << ((id - base) % 64));
                // Most identifiers occur often. The load before the update keeps their cache lines shared.
                if word.load(Ordering::Relaxed) & bit == 0 {
                    word.fetch_or(bit, Ordering::Relaxed);
                }
            })
        };
        parallel::find_first(pieces, |piece| set(piece).err()).map_or(Ok(()), Err)?;
        let words: Vec<u64> = words.into_iter().map(AtomicU64::into_inner).collect();
        let mut ranks = Vec::with_capacity(words.len());
        let mut distinct = 0;
        for word in &words {
            ranks.push(distinct);
            distinct += u64::from(word.count_ones());
        }
        if distinct == high - base + 1 {
            return Ok(Self { ids: Ids::dense(base, distinct), table: Table::Direct });
        }
        let mut sorted = Vec::with_capacity(distinct as usize);
        for (i, &word) in words.iter().enumerate() {
            let mut rest = word;
            while rest != 0 {
                sorted.push(base + 64 * i as u64 + u64::from(rest.trailing_zeros()));
                rest &= rest - 1;
            }
        }
        Ok(Self { ids: Ids::Sparse(sorted), table: Table::Bits { base, words, ranks } })
    }

    fn by_sorting<E: Send>(
        pieces: usize,
        each: impl Fn(usize, &mut dyn FnMut(u64)) -> Result<(), E> + Sync,
    ) -> Result<Self, E> {
        /// Identifiers that are gathered before duplicates are dropped, at least.
        const LEAST_GATHERED: usize = 1 << 16;
        let mut all: Vec<u64> = Vec::new();
        let mut distinct = 0;
        let group = 4 * rayon::current_num_threads();
        for first in (0..pieces).step_by(group) {
            let of_piece = |i: usize| {
                let mut own = Vec::new();
                each(first + i, &mut |id| own.push(id))?;
                own.sort_unstable();
                own.dedup();
                Ok(own)
            };
            let lists = parallel::map(group.min(pieces - first), of_piece);
            let lists = lists.into_iter().collect::<Result<Vec<Vec<u64>>, E>>()?;
            lists.iter().for_each(|list| all.extend_from_slice(list));
            // Memory is that of a few times the distinct identifiers, however many occur.
            if all.len() - distinct > distinct.max(LEAST_GATHERED) || first + group >= pieces {
                all.par_sort_unstable();
                all.dedup();
                distinct = all.len();
            }
        }
        all.shrink_to_fit();
        Ok(Self { ids: Ids::from_sorted(all), table: Table::Direct })
    }

    /// Makes the lookup for identifiers that are known beforehand.
    pub(crate) fn known(ids: Ids) -> Self {
        Self { ids, table: Table::Direct }
    }

    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }

    pub(crate) fn into_ids(self) -> Ids {
        self.ids
    }

    /// Returns the vertex of `id`, if there is one.
    pub(crate) fn vertex(&self, id: u64) -> Option<u64> {
        let Table::Bits { base, words, ranks } = &self.table else { return self.ids.numbered(id) };
        let at = id.checked_sub(*base)?;
        let (word, bit) = (words.get(usize::try_from(at / 64).ok()?)?, at % 64);
        (word >> bit & 1 == 1).then(|| ranks[(at / 64) as usize] + u64::from((word & ((1 << bit) - 1)).count_ones()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn gather(lists: &[Vec<u64>]) -> Renumber {
        gather_within(lists, u64::MAX)
    }

    fn gather_within(lists: &[Vec<u64>], table_bytes: u64) -> Renumber {
        let each = |i: usize, each: &mut dyn FnMut(u64)| {
            lists[i].iter().for_each(|&id| each(id));
            Ok::<_, std::convert::Infallible>(())
        };
        Renumber::gather(lists.len(), each, table_bytes).unwrap()
    }

    #[test]
    fn a_gap_makes_the_difference() {
        assert_eq!(gather(&[vec![3, 1], vec![2, 3]]).into_ids(), Ids::dense(1, 3));
        assert_eq!(gather(&[vec![4, 1], vec![2, 4]]).into_ids(), Ids::Sparse(vec![1, 2, 4]));
        assert_eq!(gather(&[vec![], vec![]]).into_ids(), Ids::dense(0, 0));
        let top = u64::MAX;
        assert_eq!(gather(&[vec![top, top - 1]]).into_ids(), Ids::dense(top - 1, 2));
        assert_eq!(gather(&[vec![top, 0]]).into_ids(), Ids::Sparse(vec![0, top]));
    }

    #[test]
    fn an_unknown_vertex_says_which_there_are() {
        let message = |ids: Ids| ids.find(7).unwrap_err().to_string();
        assert_eq!(message(Ids::dense(1, 3)), "vertex 7 does not exist: identifiers go from 1 to 3");
        assert_eq!(
            message(Ids::Sparse(vec![1, 3, 9])),
            "vertex 7 does not exist: the graph has 3 vertices with identifiers between 1 and 9"
        );
        assert_eq!(message(Ids::dense(0, 0)), "vertex 7 does not exist: the graph has no vertices");
        assert_eq!(Ids::dense(1, 9).find(7), Ok(6));
        let named = || Ids::Named(Names::new("123c d".to_owned(), vec![0, 2, 3, 6]).unwrap());
        assert_eq!(
            message(named()),
            "vertex 7 does not exist: the graph has 3 vertices with names between 12 and \"c d\""
        );
    }

    #[test]
    fn numbers_and_texts_of_digits_are_the_same_identifier() {
        let named = Ids::Named(Names::new("123c".to_owned(), vec![0, 2, 3, 4]).unwrap());
        assert_eq!(
            (named.vertex(12), named.vertex("12"), named.vertex("c"), named.vertex("d")),
            (Some(0), Some(0), Some(2), None)
        );
        assert_eq!(named.id(0), VertexName::from("12"));
        let numbers = Ids::dense(10, 5);
        assert_eq!(
            (numbers.vertex("12"), numbers.vertex("+12"), numbers.vertex(""), numbers.vertex("c")),
            (Some(2), None, None, None)
        );
        assert_eq!(
            numbers.find("99999999999999999999").unwrap_err().to_string(),
            "vertex 99999999999999999999 does not exist: identifiers go from 10 to 14"
        );
    }

    proptest! {
        #[test]
        fn numbers_ascend_with_identifiers_and_lead_back(
            lists in prop::collection::vec(prop::collection::vec(prop_oneof![0u64..300, any::<u64>(), (1u64 << 63)..(1 << 63) + 9], 0..20), 0..6),
            small: bool, table: bool,
        ) {
            let lists: Vec<Vec<u64>> =
                lists.into_iter().map(|l| l.into_iter().map(|id| if small { id % 500 } else { id }).collect()).collect();
            let expected: BTreeSet<u64> = lists.iter().flatten().copied().collect();
            let numbers = gather_within(&lists, if table { u64::MAX } else { 0 });
            prop_assert_eq!(numbers.ids().len(), expected.len() as u64);
            for (v, &id) in expected.iter().enumerate() {
                prop_assert_eq!(numbers.vertex(id), Some(v as u64));
                prop_assert_eq!(numbers.ids().vertex(id), Some(v as u64));
                prop_assert_eq!(numbers.ids().id(v as u64), VertexName::from(id));
                let next = id.wrapping_add(1);
                prop_assert_eq!(numbers.vertex(next).is_some(), expected.contains(&next));
            }
        }
    }
}
