//! The failed connections that a PE knows of, and the word that ends its kernels' waits for them.
//!
//! A kernel that waits for its own memory does not use its queue pairs. If the expected data never arrives, nothing in
//! those queue pairs says so. Long waits therefore read a word in host memory now and then. The host writes the first
//! failure there: that of a queue pair of this PE, or one that another PE has reported.

use crate::engine::abi;
use crate::memory::{MemoryError, Place, Region, Space};
use crate::wire::mlx5::{Failure, Syndrome, VendorSyndrome};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest text of an alert, in bytes.
const MOST_TEXT: usize = 1024;

/// The message to the PE at the other end of a failed queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Alert {
    /// Number of recoveries of the world at the time of the failure.
    epoch: u64,
    syndrome: u8,
    vendor: u8,
    /// The adapter's description of the failure.
    text: String,
}

impl Alert {
    pub(super) fn new(epoch: u64, failure: Failure, text: &str) -> Self {
        let mut end = text.len().min(MOST_TEXT);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        Self { epoch, syndrome: failure.syndrome.0, vendor: failure.vendor.0, text: text[..end].to_owned() }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        // Numbers and a text can always be encoded as JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Failures since the world was built, or last recovered.
#[derive(Debug)]
pub(super) struct Faults {
    /// The fault word, to which `wb_control.fault` points.
    word: Region,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    epoch: u64,
    /// The failures that other PEs have reported, by PE.
    told: BTreeMap<usize, String>,
}

/// Encodes a failure as a word of status.h: bits 31:28 the kind, 15:8 the vendor syndrome, 7:0 the syndrome.
pub(super) fn status_word(failure: Failure) -> u32 {
    let syndromes = u16::from_le_bytes([failure.syndrome.0, failure.vendor.0]);
    abi::STATUS_NETWORK_ERROR << abi::STATUS_KIND_SHIFT | u32::from(syndromes)
}

/// Decodes a word of [`status_word`]. Returns `None` if the word is not that of a failure.
pub(super) fn failure_of(word: u32) -> Option<Failure> {
    let [syndrome, vendor] = ((word & abi::STATUS_SYNDROME_MASK) as u16).to_le_bytes();
    let is_one = word >> abi::STATUS_KIND_SHIFT == abi::STATUS_NETWORK_ERROR;
    is_one.then(|| Failure::new(Syndrome(syndrome), VendorSyndrome(vendor)))
}

impl Faults {
    pub(super) fn new(space: &Space) -> Result<Self, MemoryError> {
        let word = space.allocate(Place::Host, size_of::<u64>())?;
        Ok(Self { word, state: Mutex::default() })
    }

    /// Returns the address of the fault word, as kernels see it.
    pub(super) fn address(&self) -> u64 {
        self.word.address()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn word(&self) -> Option<&AtomicU64> {
        // SAFETY: an aligned word of a region that lives as long as `self`. The host accesses it only by atomics, and
        // kernels only read it.
        self.word.host().map(|at| unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) })
    }

    /// Returns the number of recoveries of the world.
    pub(super) fn epoch(&self) -> u64 {
        self.state().epoch
    }

    /// Returns true if kernels see a failure.
    pub(super) fn any(&self) -> bool {
        self.word().is_some_and(|w| w.load(Ordering::Relaxed) != 0)
    }

    /// Shows kernels a failure toward a PE. The first failure stays.
    pub(super) fn raise(&self, epoch: u64, pe: usize, failure: Failure) {
        // Holds the lock, so that no failure from before a recovery is written after it.
        let state = self.state();
        if state.epoch == epoch
            && let Some(word) = self.word()
        {
            let value = (pe as u64) << abi::FAULT_PE_SHIFT | u64::from(status_word(failure));
            let _ = word.compare_exchange(0, value, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Takes an alert of PE `from` about its end of a connection.
    pub(super) fn on_alert(&self, from: usize, bytes: &[u8]) {
        let Ok(alert) = serde_json::from_slice::<Alert>(bytes) else {
            tracing::debug!(from, "cannot decode an alert");
            return;
        };
        {
            let mut state = self.state();
            if state.epoch != alert.epoch {
                return;
            }
            state.told.entry(from).or_insert(alert.text);
        }
        self.raise(alert.epoch, from, Failure::new(Syndrome(alert.syndrome), VendorSyndrome(alert.vendor)));
    }

    /// Returns the failures that other PEs have reported.
    pub(super) fn told(&self) -> Vec<(usize, String)> {
        self.state().told.iter().map(|(pe, text)| (*pe, text.clone())).collect()
    }

    /// Notes that all connections work again.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.epoch += 1;
        state.told.clear();
        if let Some(word) = self.word() {
            word.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Outcome;

    const LOST: Failure = Failure::new(Syndrome::RETRY_EXCEEDED, VendorSyndrome::RETRY_EXCEEDED);
    const REFUSED: Failure = Failure::new(Syndrome::REMOTE_ACCESS, VendorSyndrome::REMOTE_ACCESS);

    fn shown(faults: &Faults) -> (u32, u64) {
        let word: u64 = faults.word.get(0).unwrap();
        (word as u32, word >> abi::FAULT_PE_SHIFT)
    }

    #[test]
    fn the_first_failure_is_shown_until_a_recovery() {
        let faults = Faults::new(&Space::cpu()).unwrap();
        assert!(!faults.any());
        faults.raise(0, 3, LOST);
        faults.on_alert(1, &Alert::new(0, REFUSED, "its key").to_bytes());
        assert_eq!(shown(&faults), (status_word(LOST), 3));
        let NetworkError { syndrome, vendor } = Outcome::from_word(shown(&faults).0) else { panic!() };
        assert_eq!((syndrome, vendor), (LOST.syndrome, LOST.vendor));
        assert_eq!(faults.told(), [(1, "its key".to_owned())]);
        faults.clear();
        assert!(!faults.any() && faults.told().is_empty());
        // An alert that was in flight during the recovery belongs to the old epoch.
        faults.raise(0, 3, LOST);
        faults.on_alert(1, &Alert::new(0, REFUSED, "late").to_bytes());
        faults.on_alert(1, b"nonsense");
        assert!(!faults.any() && faults.told().is_empty());
        faults.on_alert(1, &Alert::new(faults.epoch(), REFUSED, "now").to_bytes());
        assert_eq!(shown(&faults), (status_word(REFUSED), 1));
    }

    use Outcome::NetworkError;

    #[test]
    fn words_say_what_failed() {
        for failure in [LOST, REFUSED] {
            let read = failure_of(status_word(failure)).unwrap();
            assert_eq!((read.syndrome, read.vendor), (failure.syndrome, failure.vendor));
        }
        assert!(failure_of(0).is_none() && failure_of(3 << abi::STATUS_KIND_SHIFT).is_none());
    }

    #[test]
    fn long_texts_are_cut() {
        let alert = Alert::new(0, LOST, &"ä".repeat(MOST_TEXT));
        assert_eq!(alert.text.len(), MOST_TEXT);
        assert!(alert.to_bytes().len() < 4096);
    }
}
