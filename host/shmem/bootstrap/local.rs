//! A bootstrap for ranks that are threads of one process.

use super::loss::{AlertCallback, Losses};
use super::secret::random;
use super::{AlertListener, Bootstrap, BootstrapError, LEFT, LostRank, Secret};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One rank of a world whose ranks are threads of one process.
///
/// If it is dropped before [`Bootstrap::leave`], the rank is lost: its thread panicked or ended with an error.
#[derive(Debug)]
pub struct LocalBootstrap {
    rank: usize,
    rendezvous: Arc<Rendezvous>,
    /// Serialises the calls of this rank.
    call: Mutex<()>,
}

#[derive(Debug)]
struct Rendezvous {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Number of complete exchanges.
    round: u64,
    /// Bytes of each rank for the current exchange.
    given: Vec<Option<Vec<u8>>>,
    /// Bytes of the last complete exchange.
    all: Arc<Vec<Vec<u8>>>,
    left: Vec<bool>,
    /// For each rank, the losses of other ranks that it knows of.
    losses: Vec<Losses>,
    /// For each rank, its callback for alerts.
    on_alert: Vec<Option<AlertCallback>>,
    /// Values that stay until the last rank has left.
    kept: Vec<Box<dyn Any + Send + Sync>>,
    /// The secret from which keys are derived, once a key was requested.
    secret: Option<Secret>,
}

impl State {
    /// Takes the kept values once all ranks have left. The caller drops them without the lock.
    fn done_with(&mut self) -> Vec<Box<dyn Any + Send + Sync>> {
        if self.left.iter().all(|left| *left) { std::mem::take(&mut self.kept) } else { Vec::new() }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("round", &self.round).field("left", &self.left).finish_non_exhaustive()
    }
}

impl Rendezvous {
    fn of(size: usize) -> Arc<Self> {
        let state = State {
            round: 0,
            given: vec![None; size],
            all: Arc::default(),
            left: vec![false; size],
            losses: (0..size).map(|_| Losses::default()).collect(),
            on_alert: vec![None; size],
            kept: Vec::new(),
            secret: None,
        };
        Arc::new(Self { size, state: Mutex::new(state), changed: Condvar::new() })
    }
}

impl LocalBootstrap {
    /// Creates the bootstraps of `size` ranks.
    pub fn all(size: usize) -> Vec<Self> {
        let rendezvous = Rendezvous::of(size);
        (0..size).map(|rank| Self { rank, rendezvous: rendezvous.clone(), call: Mutex::new(()) }).collect()
    }

    /// Creates the bootstrap of a world with one rank.
    pub fn alone() -> Self {
        Self { rank: 0, rendezvous: Rendezvous::of(1), call: Mutex::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.rendezvous.state.lock()
    }

    /// Marks this rank as lost, and tells the ranks that have not left.
    fn lose(&self, reason: &str) {
        let lost = LostRank::new(self.rank, reason);
        let mut state = self.state();
        let mut callback = Vec::new();
        for other in 0..self.rendezvous.size {
            if other != self.rank && !state.left[other] {
                callback.extend(state.losses[other].add(lost.clone()));
            }
        }
        // The losses are recorded before `left` is set, so that a waiting rank sees the loss first.
        state.left[self.rank] = true;
        let kept = state.done_with();
        drop(state);
        drop(kept);
        for callback in callback {
            callback(&lost);
        }
        self.rendezvous.changed.notify_all();
    }
}

impl Bootstrap for LocalBootstrap {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.rendezvous.size
    }

    fn allgather(&self, bytes: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let _call = self.call.lock();
        let start = Instant::now();
        let mut state = self.state();
        let round = state.round;
        state.given[self.rank] = Some(bytes.to_vec());
        if state.given.iter().all(Option::is_some) {
            state.all = Arc::new(state.given.iter_mut().filter_map(Option::take).collect());
            state.round += 1;
            self.rendezvous.changed.notify_all();
            return Ok(state.all.to_vec());
        }
        while state.round == round {
            let absent = (0..self.rendezvous.size).filter(|r| state.given[*r].is_none());
            let gone = match state.losses[self.rank].first() {
                Some(lost) => Some(lost.clone()),
                None => absent.clone().find(|r| state.left[*r]).map(|r| LostRank::new(r, LEFT)),
            };
            if let Some(gone) = gone {
                state.given[self.rank] = None;
                return Err(BootstrapError::Lost(gone));
            }
            let Some(left) = within.checked_sub(start.elapsed()) else {
                let missing = absent.collect();
                // A later call of this rank must not find these bytes.
                state.given[self.rank] = None;
                return Err(BootstrapError::missing(self.rank, self.rendezvous.size, missing, within));
            };
            self.rendezvous.changed.wait_for(&mut state, left);
        }
        Ok(state.all.to_vec())
    }

    fn on_loss(&self, callback: Box<dyn Fn(&LostRank) + Send + Sync>) {
        let callback: super::loss::LossCallback = callback.into();
        let known = self.state().losses[self.rank].listen(callback.clone());
        for lost in known {
            callback(&lost);
        }
    }

    fn alert(&self, rank: usize, bytes: &[u8]) {
        let on_alert = self.state().on_alert.get(rank).cloned().flatten();
        if let Some(on_alert) = on_alert {
            on_alert(self.rank, bytes);
        }
    }

    fn on_alert(&self, callback: AlertListener) {
        self.state().on_alert[self.rank] = Some(callback.into());
    }

    fn leave(&self) {
        let mut state = self.state();
        state.left[self.rank] = true;
        let kept = state.done_with();
        drop(state);
        drop(kept);
        self.rendezvous.changed.notify_all();
    }

    fn key(&self, purpose: &str) -> Option<[u8; 32]> {
        let mut state = self.state();
        if state.secret.is_none() {
            state.secret = Secret::new(&random::<32>().ok()?).ok();
        }
        state.secret.as_ref().map(|s| s.key(purpose))
    }

    /// Keeps `what` until the last rank has left, without a wait: one thread may hold several ranks and end them one
    /// after the other.
    fn leave_after_others(&self, _: &[u8], what: Box<dyn Any + Send + Sync>, _: Duration) {
        self.state().kept.push(what);
        self.leave();
    }

    fn via(&self) -> String {
        "threads of one process".to_owned()
    }
}

impl Drop for LocalBootstrap {
    fn drop(&mut self) {
        let left = self.state().left[self.rank];
        if !left {
            self.lose(if std::thread::panicking() {
                "its thread panicked"
            } else {
                "its bootstrap was dropped before it left the world"
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A timeout far longer than any test takes.
    const LONG: Duration = Duration::from_secs(100);
    const SHORT: Duration = Duration::from_millis(20);

    fn two() -> (LocalBootstrap, LocalBootstrap) {
        let mut all = LocalBootstrap::all(2).into_iter();
        (all.next().unwrap(), all.next().unwrap())
    }

    fn listener(tx: mpsc::Sender<LostRank>) -> Box<dyn Fn(&LostRank) + Send + Sync> {
        // The receiver may be gone at the end of the test.
        Box::new(move |lost| drop(tx.send(lost.clone())))
    }

    #[test]
    fn everybody_gets_everybodys_bytes_round_after_round() {
        std::thread::scope(|s| {
            for part in LocalBootstrap::all(5) {
                s.spawn(move || {
                    for round in 0..200u32 {
                        let mine = [part.rank() as u8].repeat(round as usize % 7);
                        let all = part.allgather(&mine, LONG).unwrap();
                        let expected: Vec<_> = (0..5u8).map(|r| [r].repeat(round as usize % 7)).collect();
                        assert_eq!(all, expected);
                    }
                    part.leave();
                });
            }
        });
    }

    #[test]
    fn a_rank_that_does_not_come_is_named_and_may_come_later() {
        let (a, b) = two();
        let e = a.allgather(b"old", SHORT).unwrap_err();
        assert!(matches!(&e, BootstrapError::Missing { rank: 0, size: 2, missing, .. } if *missing == [1]), "{e}");
        // No rank gets the bytes of an exchange that failed.
        assert!(matches!(b.allgather(b"b", SHORT), Err(BootstrapError::Missing { .. })));
        std::thread::scope(|s| {
            let other = s.spawn(|| b.allgather(b"b", LONG).unwrap());
            assert_eq!(a.allgather(b"new", LONG).unwrap(), [b"new".to_vec(), b"b".to_vec()]);
            assert_eq!(other.join().unwrap(), [b"new".to_vec(), b"b".to_vec()]);
        });
    }

    #[test]
    fn a_rank_that_left_is_named_and_is_no_loss() {
        let (a, b) = two();
        let (tx, rx) = mpsc::channel();
        a.on_loss(listener(tx));
        b.leave();
        let e = a.allgather(&[], LONG).unwrap_err();
        assert!(matches!(&e, BootstrapError::Lost(l) if *l == LostRank::new(1, LEFT)), "{e}");
        drop(b);
        assert_eq!(rx.try_recv(), Err(mpsc::TryRecvError::Empty));
    }

    #[test]
    fn a_rank_that_panics_is_lost_and_everybody_hears_of_it_once() {
        let mut parts = LocalBootstrap::all(3);
        let panics = parts.pop().unwrap();
        let (tx, rx) = mpsc::channel();
        for part in &parts {
            let tx = tx.clone();
            part.on_loss(listener(tx));
        }
        std::thread::scope(|s| {
            let waits = s.spawn(|| parts[0].allgather(&[], LONG));
            let ends = s.spawn(move || {
                let _mine = panics;
                // Unwinds like a panic, without its message.
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(ends.join().is_err());
            let lost = LostRank::new(2, "its thread panicked");
            assert!(matches!(waits.join().unwrap(), Err(BootstrapError::Lost(l)) if l == lost));
            assert_eq!([rx.recv().unwrap(), rx.recv().unwrap()], [lost.clone(), lost.clone()]);
            // A late listener also learns of the loss, and later calls fail with it.
            let late = tx.clone();
            parts[1].on_loss(listener(late));
            assert_eq!(rx.try_recv().unwrap(), lost);
            assert!(matches!(parts[1].allgather(&[], LONG), Err(BootstrapError::Lost(l)) if l == lost));
        });
        assert_eq!(rx.try_recv(), Err(mpsc::TryRecvError::Empty));
    }

    #[test]
    fn alerts_reach_the_rank_that_they_are_for() {
        let (a, b) = two();
        a.alert(1, b"nobody listens");
        let (tx, rx) = mpsc::channel();
        b.on_alert(Box::new(move |from, bytes| tx.send((from, bytes.to_vec())).unwrap()));
        a.alert(1, b"hear");
        a.alert(0, b"myself");
        a.alert(2, b"there is no such rank");
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [(0, b"hear".to_vec())]);
    }

    #[test]
    fn a_part_dropped_before_it_left_is_lost() {
        let (a, b) = two();
        drop(b);
        let e = a.allgather(&[], LONG).unwrap_err().to_string();
        assert_eq!(e, "rank 1 is gone: its bootstrap was dropped before it left the world");
    }
}
