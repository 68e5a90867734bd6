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
        // The driver's UUID identifies a GPU. It is the same in every process and on every host.
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
