//! Reads and writes of block ranges by kernels that the crate contains.

use super::Volume;
use crate::args;
use crate::engine::Run;
use crate::storage::disk::DataBuffer;
use crate::storage::error::StorageError;

/// Threads per block, and blocks per multiprocessor, on a GPU.
const THREADS: u32 = 128;
const BLOCKS: u32 = 1;

impl Volume {
    /// Starts a kernel that reads `count` blocks from block `first` on to the start of a buffer. Each call inside the
    /// kernel reads `each` blocks.
    ///
    /// # Errors
    /// * [`StorageError::Range`] if the blocks are not within the volume.
    /// * [`StorageError::Option`] if `each` is 0, or the buffer is too small or belongs to another engine.
    /// * [`StorageError::Engine`] if the engine starts no kernel. The returned run reports errors of devices.
    pub fn start_read(&self, first: u64, count: u64, each: u32, buffer: &DataBuffer) -> Result<Run, StorageError> {
        self.start_transfer("wb_read_blocks", first, count, each, buffer)
    }

    /// Starts a kernel that writes `count` blocks from block `first` on, with data from the start of a buffer. Each
    /// call inside the kernel writes `each` blocks.
    ///
    /// # Errors
    /// As for [`Volume::start_read`].
    pub fn start_write(&self, first: u64, count: u64, each: u32, buffer: &DataBuffer) -> Result<Run, StorageError> {
        self.start_transfer("wb_write_blocks", first, count, each, buffer)
    }

    fn start_transfer(
        &self,
        kernel: &str,
        first: u64,
        count: u64,
        each: u32,
        buffer: &DataBuffer,
    ) -> Result<Run, StorageError> {
        self.disk().check_blocks(first, count)?;
        let bytes = usize::try_from(count << self.block_shift()).unwrap_or(usize::MAX);
        let refuse = |reason: String| Err(StorageError::Option(reason));
        if each == 0 {
            return refuse("0 blocks with one call move nothing: use 1 or more".to_owned());
        }
        if bytes > buffer.len() {
            let has = buffer.len();
            return refuse(format!(
                "{count} blocks have {bytes} bytes and the buffer has {has}: allocate a larger one"
            ));
        }
        let engine = self.engine();
        if !buffer.space().same(engine.space()) {
            return refuse("the buffer belongs to another engine: use Volume::allocate_data of this volume".to_owned());
        }
        let args = args!(self, first, count, each, buffer);
        // SAFETY: these are the arguments that both kernels take. The blocks are the volume's; the buffer belongs to
        // the engine's address space and holds that many blocks. The run keeps both alive.
        Ok(unsafe { engine.launch(kernel, engine.grid(THREADS, BLOCKS), args) }?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::storage::Drive;

    fn volume(engine: &Engine) -> Volume {
        Volume::on(engine, [Drive::open("soft:mem:64k").unwrap()]).build().unwrap()
    }

    #[test]
    fn what_cannot_be_moved_is_refused() {
        let (engine, other) = (Engine::cpu().unwrap(), Engine::cpu().unwrap());
        let v = volume(&engine);
        let buffer = v.allocate_data(4096).unwrap();
        let refused = |first, count, each, buffer: &DataBuffer| {
            let e = v.start_read(first, count, each, buffer).unwrap_err().to_string();
            assert_eq!(e, v.start_write(first, count, each, buffer).unwrap_err().to_string());
            e
        };
        assert!(refused(127, 2, 1, &buffer).contains("128"));
        assert!(refused(0, u64::MAX, 1, &buffer).contains("128"));
        assert!(refused(0, 1, 0, &buffer).contains("0 blocks with one call"));
        assert!(refused(0, 9, 1, &buffer).contains("4608 bytes and the buffer has 4096"));
        assert!(refused(0, 1, 1, &volume(&other).allocate_data(4096).unwrap()).contains("another engine"));
        assert!(engine.is_idle());
    }

    #[test]
    fn a_run_that_is_forgotten_keeps_all_that_its_kernel_uses() {
        let engine = Engine::cpu().unwrap();
        let v = volume(&engine);
        let drives = std::sync::Arc::downgrade(&v.0);
        let buffer = v.allocate_data(64 << 10).unwrap();
        // Acts as `mem::forget`, but is undone below, so that the devices do not stay open during all other tests.
        let run = std::mem::ManuallyDrop::new(v.start_read(0, 128, 1, &buffer).unwrap());
        drop((v, buffer));
        assert!(drives.upgrade().is_some(), "the devices are still there");
        drop(std::mem::ManuallyDrop::into_inner(run));
        assert!(drives.upgrade().is_none());
    }

    #[test]
    fn a_run_that_has_ended_keeps_nothing() {
        let engine = Engine::cpu().unwrap();
        let v = volume(&engine);
        let drives = std::sync::Arc::downgrade(&v.0);
        let buffer = v.allocate_data(64 << 10).unwrap();
        let run = v.start_read(0, 128, 1, &buffer).unwrap();
        drop((v, buffer));
        run.finish().unwrap();
        assert!(drives.upgrade().is_none());
    }
}
