//! PEs whose kernels run on one GPU and therefore share its processors.

use super::{ShmemError, World};

impl World {
    /// Returns the number of PEs that run on this PE's GPU, this PE included. Collective.
    ///
    /// Returns 1 on a CPU engine, because each PE has its own CPU threads.
    ///
    /// # Errors
    /// The errors of [`World::allgather`].
    pub fn gpu_sharers(&self) -> Result<usize, ShmemError> {
        let all = self.gpus()?;
        let mine = &all[self.my_pe()];
        Ok(if mine.is_empty() { 1 } else { all.iter().filter(|gpu| *gpu == mine).count() })
    }

    /// Returns true if any two PEs of the world run on one GPU: the same value on all PEs. Collective.
    ///
    /// # Errors
    /// The errors of [`World::allgather`].
    #[cfg(feature = "graph")]
    pub(crate) fn shares_gpus(&self) -> Result<bool, ShmemError> {
        Ok(has_twins(&self.gpus()?))
    }

    /// Returns the UUID of each PE's GPU, empty for a CPU engine. The driver's UUID is the same in every process and on every
    /// host.
    fn gpus(&self) -> Result<Vec<Vec<u8>>, ShmemError> {
        self.allgather(&self.engine().info().gpu.map_or_else(Vec::new, |gpu| gpu.uuid.to_vec()))
    }
}

/// Returns true if two of the names are equal and not empty.
#[cfg(feature = "graph")]
fn has_twins(names: &[Vec<u8>]) -> bool {
    names.iter().enumerate().any(|(i, name)| !name.is_empty() && names[..i].contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_threads_are_shared_with_nobody() {
        let worlds = World::local(3).unwrap();
        std::thread::scope(|s| {
            for world in &worlds {
                s.spawn(move || {
                    assert_eq!(world.gpu_sharers().unwrap(), 1);
                    #[cfg(feature = "graph")]
                    assert!(!world.shares_gpus().unwrap());
                });
            }
        });
    }

    #[cfg(feature = "graph")]
    #[test]
    fn two_of_several_pes_on_one_gpu_are_found_wherever_they_are() {
        let names = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        for shared in [&["a", "a"][..], &["a", "b", "a"], &["a", "b", "b"], &["a", "a", "b"], &["", "a", "", "a"]] {
            assert!(has_twins(&names(shared)), "{shared:?}");
        }
        for alone in [&[][..], &["a"], &["a", "b", "c"], &["", ""]] {
            assert!(!has_twins(&names(alone)), "{alone:?}");
        }
    }
}
