//! PEs whose kernels run on one GPU, and so share its processors.

use super::{ShmemError, World};

impl World {
    /// Returns the number of PEs that run on this PE's GPU, this one included: 1 where kernels run on CPU threads, of which each PE has
    /// its own. Every PE of the world calls it (collective).
    ///
    /// # Errors
    ///
    /// Those of [`World::allgather`].
    pub fn gpu_sharers(&self) -> Result<usize, ShmemError> {
        // Told apart by what the driver says, which is the same in every process and on every host.
        let mine = self.engine().info().gpu.map(|gpu| gpu.uuid.to_vec());
        let all = self.allgather(mine.as_deref().unwrap_or_default())?;
        Ok(mine.map_or(1, |mine| all.iter().filter(|gpu| **gpu == mine).count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_threads_are_shared_with_nobody() {
        let worlds = World::local(3).unwrap();
        std::thread::scope(|s| {
            for world in &worlds {
                s.spawn(move || assert_eq!(world.gpu_sharers().unwrap(), 1));
            }
        });
    }
}
