//! Access to a PE's memory by a key that nobody gave out: a fault that every adapter must report.

use super::{ShmemError, World};

/// Restores the keys when dropped, also if the work between panics.
struct Flipped<'a> {
    world: &'a World,
    pe: usize,
}

impl Drop for Flipped<'_> {
    fn drop(&mut self) {
        if let Some(network) = self.world.network()
            && let Err(error) = network.flip_keys(self.pe)
        {
            tracing::warn!(%error, pe = self.pe, "the keys to the heap of this PE cannot be restored");
        }
    }
}

impl World {
    /// Runs `work` while this PE's kernels name the heap of PE `pe` by wrong keys, and restores the keys afterwards.
    ///
    /// An acceptance test of an adapter uses this: each operation on that PE's memory must fail with a remote access
    /// error, both PEs must notice, and [`World::recover`] must make the world usable again. No kernel that uses the
    /// world may be running when this function is called, or when `work` returns.
    ///
    /// # Errors
    /// * [`ShmemError::NoKeys`] if loads and stores reach the PE, or there is no such PE.
    /// * [`ShmemError::Busy`] if kernels of this engine are running.
    /// * [`ShmemError::Memory`] if the tables of kernels cannot be changed.
    pub fn with_wrong_key<R>(&self, pe: usize, work: impl FnOnce(&Self) -> R) -> Result<R, ShmemError> {
        let network = self.network().filter(|_| pe < self.n_pes() && !self.heap().reaches(pe));
        let network = network.ok_or(ShmemError::NoKeys { pe })?;
        if !self.engine().is_idle() {
            return Err(ShmemError::Busy { what: "with_wrong_key" });
        }
        network.flip_keys(pe)?;
        let _restored = Flipped { world: self, pe };
        Ok(work(self))
    }
}

#[cfg(all(test, feature = "soft"))]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::shmem::Transport;
    use crate::shmem::calls::{Cmp, SignalOp};
    use crate::wire::mlx5::Syndrome;

    fn pair(transport: Transport) -> Vec<World> {
        let engine = || Engine::builder().threads(1).cpu().unwrap();
        World::local_on_over(vec![engine(), engine()], 1 << 20, transport).unwrap()
    }

    #[test]
    fn a_wrong_key_fails_on_both_sides_and_is_recovered() {
        let worlds = pair(Transport::Soft);
        std::thread::scope(|s| {
            for world in worlds {
                s.spawn(move || {
                    let (data, signal) = (world.calloc::<u64>(4).unwrap(), world.calloc::<u64>(1).unwrap());
                    if world.my_pe() == 0 {
                        let put = world.with_wrong_key(1, |w| w.put(&data, &[7u64; 4][..], 1)).unwrap();
                        let e = put.unwrap_err().to_string();
                        let syndrome = format!("syndrome {:#04x}", Syndrome::REMOTE_ACCESS.0);
                        assert!(e.contains(&syndrome), "{e}");
                    } else {
                        let e = world.signal_wait_until(&signal, Cmp::Ge, 1).unwrap_err().to_string();
                        assert!(e.contains("PE 0"), "{e}");
                    }
                    let recovery = world.recover().unwrap();
                    assert_eq!(recovery.pes.len(), 1, "{recovery}");
                    // The keys are right again.
                    world.put(&data, &[9u64; 4][..], 1 - world.my_pe()).unwrap();
                    world.signal_op(&signal, 1, SignalOp::Set, 1 - world.my_pe()).unwrap();
                    world.signal_wait_until(&signal, Cmp::Ge, 1).unwrap();
                    assert_eq!(data.read(0, 4).unwrap(), [9; 4]);
                    world.barrier_all().unwrap();
                });
            }
        });
    }

    #[test]
    fn there_are_no_keys_where_stores_reach() {
        let worlds = pair(Transport::Peer);
        assert!(matches!(worlds[0].with_wrong_key(1, |_| ()), Err(ShmemError::NoKeys { pe: 1 })));
        assert!(matches!(worlds[0].with_wrong_key(2, |_| ()), Err(ShmemError::NoKeys { pe: 2 })));
    }
}
