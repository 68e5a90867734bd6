//! Receive ring of one queue pair of the proxy: its entries become receives of the device, and the device's completions
//! become entries of the ring's completion ring.

use super::engine::{LIFE_SHIFT, Landing, local_fault};
use super::{Piece, PostError, ReceiveCompletion, ReceiveQueue};
use crate::rdma::ring_service::ReceiveService;
use crate::wire::mlx5::cqe::MAX_DATA;
use crate::wire::mlx5::{Failure, Syndrome, VendorSyndrome};
use std::collections::VecDeque;

/// Failure of a receive, with the reason as text.
pub(super) type ReceiveError = (Failure, String);

/// Receive ring of one queue pair, and its receives that the device has.
pub(in crate::rdma) struct Receives {
    ring: ReceiveService,
    /// Pieces of the receives that the device has, oldest first. The oldest is that at the ring's position.
    posted: VecDeque<Vec<Piece>>,
    ended: Vec<ReceiveCompletion>,
}

impl Receives {
    pub(super) fn new(ring: ReceiveService) -> Self {
        Self { ring, posted: VecDeque::new(), ended: Vec::new() }
    }

    /// Returns true if a receive has failed, or all were flushed.
    pub(super) fn has_failed(&self) -> bool {
        self.ring.has_failed()
    }

    /// Posts the entries that the ring announces to the device. Returns true if there were any.
    ///
    /// # Errors
    /// The failure of the oldest receive that the device cannot take.
    pub(super) fn post(&mut self, queue: &mut impl ReceiveQueue, life: u64) -> Result<bool, ReceiveError> {
        let before = self.posted.len();
        loop {
            let position = self.ring.position() + self.posted.len() as u64;
            let wrong = |why: String| (local_fault(), format!("receive {position}: {why}"));
            let entry = self.ring.at(position);
            let Some(entry) =
                entry.map_err(|e| (Failure::new(e.syndrome(), VendorSyndrome::default()), e.to_string()))?
            else {
                break;
            };
            let pieces = entry.iter().map(super::engine::piece).collect::<Vec<_>>();
            match queue.post_receive(life << LIFE_SHIFT | position, &pieces) {
                Ok(()) => self.posted.push_back(pieces),
                // Posted when one of those before it has ended.
                Err(PostError::Full) if !self.posted.is_empty() => break,
                Err(PostError::Full) => {
                    return Err(wrong("the device rejects it although it has no other".to_owned()));
                }
                Err(PostError::Refused(e)) => {
                    return Err(wrong(format!("ibv_post_recv of {} pieces: {e}", pieces.len())));
                }
            }
        }
        Ok(self.posted.len() > before)
    }

    /// Writes completions of receives that have ended at the device. Returns true if there were any.
    ///
    /// # Errors
    /// The failure of the oldest receive. [`Syndrome::FLUSHED`] is no failure of its own: the queue pair has failed for
    /// another reason.
    pub(super) fn take(
        &mut self,
        queue: &mut impl ReceiveQueue,
        landing: &impl Landing,
        life: u64,
    ) -> Result<bool, ReceiveError> {
        let mut ended = std::mem::take(&mut self.ended);
        ended.clear();
        let polled = queue.poll_receives(&mut ended);
        let any = !ended.is_empty();
        let taken = ended.iter().try_for_each(|a| self.complete(a, landing, life));
        self.ended = ended;
        polled.map_err(|e| (local_fault(), format!("polling for receives: {e}")))?;
        taken.map(|()| any)
    }

    fn complete(&mut self, a: &ReceiveCompletion, landing: &impl Landing, life: u64) -> Result<(), ReceiveError> {
        // Receives of an earlier life, and those that the ring has flushed.
        if a.id >> LIFE_SHIFT != life || self.ring.has_failed() {
            return Ok(());
        }
        if a.status != 0 {
            let syndrome = Syndrome::from_verbs_status(a.status).unwrap_or(Syndrome::LOCAL_QP_OPERATION);
            let failure = Failure::new(syndrome, VendorSyndrome(a.vendor));
            return Err((failure, format!("a receive failed: {failure} (ibv_wc_status {})", a.status)));
        }
        let Some(pieces) = self.posted.pop_front() else {
            return Err((local_fault(), "the device completed a receive that it did not have".to_owned()));
        };
        let mut data = [0; MAX_DATA];
        let in_entry = self.ring.lands_in_entry(a.bytes.into());
        let data = &mut data[..if in_entry { a.bytes as usize } else { 0 }];
        if !gather(&pieces, landing, data) {
            let failure = Failure::new(Syndrome::LOCAL_PROTECTION, VendorSyndrome::default());
            let why = "a message for its completion entry has a receive that is not in registered host memory";
            return Err((failure, why.to_owned()));
        }
        self.ring.complete(a.bytes, a.what, a.immediate, in_entry.then_some(&*data));
        Ok(())
    }

    /// Fails the oldest receive and flushes the others.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.ring.fail(failure);
        self.posted.clear();
    }

    /// Flushes all receives.
    pub(super) fn flush(&mut self) {
        self.ring.flush();
        self.posted.clear();
    }

    /// Resets the ring. The caller has already cleared its memory and reset the device's queue pair.
    pub(super) fn reset(&mut self) {
        self.ring.reset();
        self.posted.clear();
    }
}

/// Reads the beginning of a receive's memory. Returns false if it is not all registered host memory.
fn gather(pieces: &[Piece], landing: &impl Landing, out: &mut [u8]) -> bool {
    let mut rest = out;
    for p in pieces {
        let (now, later) = rest.split_at_mut(rest.len().min(p.bytes as usize));
        if !now.is_empty() && !landing.load(p.key, p.address, now) {
            return false;
        }
        rest = later;
    }
    true
}
