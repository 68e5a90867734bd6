//! Sources from which a host has proved itself before.

use super::limits::Source;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Most sources that a listener remembers.
const MOST: usize = 4096;

/// Sources that strangers cannot lock out: those of peers that the program was told of, and those that have proved themselves.
#[derive(Debug, Default)]
pub struct KnownSources {
    /// Each with the time of its last proof, as a number that increases.
    sources: BTreeMap<Source, u64>,
    proofs: u64,
}

impl KnownSources {
    /// Adds a source. The one whose last proof is the oldest is forgotten when there are too many.
    pub fn insert(&mut self, source: Source) {
        self.proofs += 1;
        let is_new = self.sources.insert(source, self.proofs).is_none();
        if is_new && self.sources.len() > MOST {
            let oldest = self.sources.iter().min_by_key(|(_, proof)| **proof).map(|(source, _)| *source);
            oldest.and_then(|source| self.sources.remove(&source));
        }
    }

    /// Adds the source of an address.
    pub fn insert_address(&mut self, address: IpAddr) {
        self.insert(Source::of(address));
    }

    /// Returns true if a source is known. Processes of this host and user always are.
    pub fn has(&self, source: Source) -> bool {
        source == Source::ThisHost || self.sources.contains_key(&source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_that_proved_itself_longest_ago_is_forgotten() {
        let at = |n: usize| IpAddr::from((n as u32 + (10 << 24)).to_be_bytes());
        let mut known = KnownSources::default();
        (0..MOST).for_each(|n| known.insert_address(at(n)));
        known.insert_address(at(0));
        known.insert_address(at(MOST));
        let has = |n| known.has(Source::of(at(n)));
        assert!(has(0) && !has(1) && has(2) && has(MOST) && !has(MOST + 1));
        assert!(known.has(Source::ThisHost));
    }
}
