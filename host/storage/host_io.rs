//! Reads and writes by the host itself: for loading, for manifests, for checks.

use super::StorageError;
use super::disk::Disk;
use super::drive::Drive;
use super::stripe::Piece;
use crate::engine::EngineError;
use crate::nvme::{HostQueue, HostQueueOptions, NvmeError, RecoveryPolicy, RetryBudget};
use crate::wire::nvme::status;
use parking_lot::Mutex;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of one read for a range that does not cover whole blocks.
const BYTES_AT_ONCE: usize = 1 << 20;

/// The host's own queue on each device, where the controller has a spare pair.
pub(super) struct HostSide {
    queues: Vec<Option<Mutex<HostQueue<'static>>>>,
    policy: Mutex<RecoveryPolicy>,
    budget: RetryBudget,
    /// For each device, the command that it left without completion when less than a deadline was left of the budget.
    /// Until a deadline is regained, it gets no other.
    given_up: Vec<Mutex<Option<String>>>,
}

impl HostSide {
    /// Creates the queues. `count` queue pairs of each controller stay for kernels. A command moves at most
    /// `bytes_per_command` bytes.
    pub(super) fn new(
        drives: &[Drive],
        count: u32,
        bytes_per_command: usize,
        budget: RetryBudget,
    ) -> Result<Self, StorageError> {
        let queues = drives.iter().map(|drive| {
            let controller = drive.controller();
            if controller.free_queues() <= count {
                // Kernels have all pairs; the host borrows one between runs.
                return Ok(None);
            }
            let deepest = 1 << controller.cap().max_queue_entries().max(2).ilog2();
            let options = HostQueueOptions::default();
            let options = HostQueueOptions { depth: options.depth.min(deepest), bytes_per_command };
            Ok(Some(Mutex::new(HostQueue::create(controller, options)?)))
        });
        let queues = queues.collect::<Result<_, StorageError>>()?;
        let given_up = drives.iter().map(|_| Mutex::new(None)).collect();
        Ok(Self { queues, policy: Mutex::new(RecoveryPolicy::requeue()), budget, given_up })
    }

    /// Returns true if the host has a queue of its own on a device.
    pub(super) fn has_queue(&self, device: usize) -> bool {
        self.queues[device].is_some()
    }

    pub(super) fn set_policy(&self, policy: RecoveryPolicy) {
        *self.policy.lock() = policy;
    }

    /// Permits commands to a device that was recovered.
    pub(super) fn take_in(&self, device: usize) {
        *self.given_up[device].lock() = None;
    }
}

impl Disk {
    /// Reads whole blocks from block `first` on. The length of `out` must be a multiple of the block size.
    pub(super) fn read_blocks(&self, first: u64, out: &mut [u8]) -> Result<(), StorageError> {
        let blocks = self.check_range(first, out.len())?;
        if self.stripe.devices == 1 {
            return self.with_queue(0, |q, ns| q.read(ns, first, out));
        }
        if self.stripe.replicated {
            let mut shares = Vec::new();
            let mut rest = out;
            for piece in self.stripe.shares(first, blocks) {
                let (part, later) = rest.split_at_mut(self.span(&piece).len());
                shares.push((piece, part));
                rest = later;
            }
            return in_parallel(shares, |(piece, part)| self.read_copy(&piece, part)).map(drop);
        }
        let pieces = self.pieces(first, blocks);
        let read = |(device, pieces): (usize, &Vec<Piece>)| {
            let Some(start) = pieces.first() else { return Ok(Vec::new()) };
            let mut part = vec![0; self.bytes_of(pieces)];
            self.with_queue(device, |q, ns| q.read(ns, start.lba, &mut part)).map(|()| part)
        };
        let parts = in_parallel(pieces.iter().enumerate().collect(), read)?;
        for (part, pieces) in parts.iter().zip(&pieces) {
            let mut rest = part.as_slice();
            for p in pieces {
                let (from, left) = rest.split_at(self.span(p).len());
                out[self.span(p)].copy_from_slice(from);
                rest = left;
            }
        }
        Ok(())
    }

    /// Writes whole blocks from block `first` on, past the mark and the page checksums.
    pub(super) fn put_blocks(&self, first: u64, data: &[u8]) -> Result<(), StorageError> {
        let blocks = self.check_range(first, data.len())?;
        if self.stripe.devices == 1 {
            return self.with_queue(0, |q, ns| q.write(ns, first, data));
        }
        if self.stripe.replicated {
            return self.write_copies(&Piece { device: 0, lba: first, at: 0, blocks }, data);
        }
        let pieces = self.pieces(first, blocks);
        let write = |(device, pieces): (usize, &Vec<Piece>)| {
            let Some(start) = pieces.first() else { return Ok(()) };
            let mut part = Vec::with_capacity(self.bytes_of(pieces));
            pieces.iter().for_each(|p| part.extend_from_slice(&data[self.span(p)]));
            self.with_queue(device, |q, ns| q.write(ns, start.lba, &part))
        };
        in_parallel(pieces.iter().enumerate().collect(), write).map(drop)
    }

    /// Reads bytes from any byte offset of the volume.
    pub(super) fn read_bytes(&self, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        let block = self.block_bytes() as u64;
        let within = (offset % block) as usize;
        if within == 0 && out.len().is_multiple_of(block as usize) {
            return self.read_blocks(offset / block, out);
        }
        let (mut at, mut rest) = (offset, out);
        while !rest.is_empty() {
            let skip = (at % block) as usize;
            let n = rest.len().min(BYTES_AT_ONCE - skip);
            let mut whole = vec![0; (skip + n).next_multiple_of(block as usize)];
            self.read_blocks(at / block, &mut whole)?;
            let (now, later) = std::mem::take(&mut rest).split_at_mut(n);
            now.copy_from_slice(&whole[skip..skip + n]);
            (at, rest) = (at + n as u64, later);
        }
        Ok(())
    }

    /// Returns the number of blocks, if the range consists of whole blocks of the volume.
    pub(super) fn check_range(&self, first: u64, bytes: usize) -> Result<u64, StorageError> {
        let block = self.block_bytes();
        if !bytes.is_multiple_of(block) {
            return Err(StorageError::Option(format!("{bytes} bytes are not whole blocks of {block}")));
        }
        let count = (bytes / block) as u64;
        self.check_blocks(first, count).map(|()| count)
    }

    pub(super) fn check_blocks(&self, first: u64, count: u64) -> Result<(), StorageError> {
        match first.checked_add(count) {
            Some(end) if end <= self.blocks() => Ok(()),
            _ => Err(StorageError::Range { device: self.name().to_owned(), first, count, blocks: self.blocks() }),
        }
    }

    /// Returns the pieces on each device of a stripe. Pieces of one device are consecutive there.
    pub(super) fn pieces(&self, first: u64, blocks: u64) -> Vec<Vec<Piece>> {
        let mut by_device = vec![Vec::new(); self.drives.len()];
        self.stripe.pieces(first, blocks).for_each(|p| by_device[p.device].push(p));
        by_device
    }

    /// Returns the byte range of a piece within the whole range's data.
    fn span(&self, piece: &Piece) -> std::ops::Range<usize> {
        let shift = self.block_shift();
        (piece.at << shift) as usize..((piece.at + piece.blocks) << shift) as usize
    }

    fn bytes_of(&self, pieces: &[Piece]) -> usize {
        pieces.iter().map(|p| self.span(p).len()).sum()
    }

    /// Returns the recovery policy. The grace for an aborted command is at most the deadline of a command.
    pub(super) fn policy(&self) -> RecoveryPolicy {
        let policy = *self.host.policy.lock();
        RecoveryPolicy { abort_grace: policy.abort_grace.min(self.engine.deadline()), ..policy }
    }

    /// Runs `use_it` on the host's queue of a device. If there is none, borrows a queue of the kernels.
    pub(super) fn with_queue<T>(
        &self,
        device: usize,
        use_it: impl FnOnce(&mut HostQueue<'_>, &crate::nvme::Namespace) -> Result<T, NvmeError>,
    ) -> Result<T, StorageError> {
        let (namespace, file) = {
            let drive = self.drives[device].lock();
            (drive.namespace().clone(), drive.file().map(PathBuf::from))
        };
        let told = |outcome: Result<T, NvmeError>| outcome.map_err(|e| self.failed_command(device, e, file));
        let deadline = self.engine.deadline();
        let policy = self.policy();
        self.check_budget(device)?;
        let prepare = |queue: &mut HostQueue<'_>| {
            queue.set_deadline(deadline);
            queue.set_recovery(policy);
            queue.set_retry_budget(&self.host.budget);
            queue.stop_with(&self.engine);
        };
        if let Some(queue) = &self.host.queues[device] {
            let mut queue = queue.lock();
            prepare(&mut queue);
            let outcome = use_it(&mut queue, &namespace);
            // If the commands led to a controller reset, the kernels' queues are lost.
            self.revive(device);
            return told(outcome);
        }
        if !self.engine.is_idle() {
            let reason = "running kernels use all queue pairs of its controller; finish the run first, or use one queue pair fewer";
            let (what, device) = ("host access".to_owned(), self.name().to_owned());
            return Err(StorageError::NoPath { what, device, reason: reason.to_owned(), remedies: Vec::new() });
        }
        let mut set = self.sets[device].lock();
        let mut queue = HostQueue::on(&mut set, 0)?;
        prepare(&mut queue);
        told(use_it(&mut queue, &namespace))
    }

    /// Fails for a device that left a command without completion when less than a deadline was left of the budget, until
    /// a deadline is regained.
    fn check_budget(&self, device: usize) -> Result<(), StorageError> {
        let (host, engine) = (&self.host, &self.engine);
        let Some(command) = host.given_up[device].lock().clone() else { return Ok(()) };
        if engine.is_told_to_end() {
            return Err(told_to_end(engine.stopped_for()));
        }
        let deadline = engine.deadline();
        if host.budget.left(Instant::now(), deadline) >= deadline {
            host.take_in(device);
            return Ok(());
        }
        let allowed = RetryBudget::whole(deadline);
        Err(NvmeError::BudgetExhausted { device: self.names[device].clone(), command, allowed }.into())
    }

    /// Turns the error of a command into that of the volume. Notes a device that did not complete it, if nothing is left
    /// of the budget.
    fn failed_command(&self, device: usize, e: NvmeError, file: Option<PathBuf>) -> StorageError {
        let (host, engine) = (&self.host, &self.engine);
        if let Some(command) = e.uncompleted() {
            let is_told = engine.is_told_to_end();
            if is_told || host.budget.left(Instant::now(), engine.deadline()) < engine.deadline() {
                *host.given_up[device].lock() = Some(command.to_owned());
            }
            if is_told {
                return told_to_end(engine.stopped_for());
            }
        }
        no_space(e, file)
    }

    /// Creates the kernels' queues again if a controller reset removed them and no kernel runs.
    fn revive(&self, device: usize) {
        if !self.engine.is_idle() {
            return;
        }
        let mut set = self.sets[device].lock();
        if set.is_stale()
            && let Err(e) = set.reset()
        {
            tracing::warn!(device = self.names[device], error = %e, "queues for kernels were not created again");
        }
    }
}

/// Returns the error of a wait that ended because the engine was told to end its work.
fn told_to_end(reason: Option<&str>) -> StorageError {
    match reason {
        Some(reason) => EngineError::Stopped { reason: reason.to_owned() }.into(),
        None => EngineError::Cancelled.into(),
    }
}

/// Turns a device's capacity error into [`StorageError::NoSpace`] if the device is a file.
fn no_space(e: NvmeError, file: Option<PathBuf>) -> StorageError {
    match (&e, file) {
        (NvmeError::Command { status, .. }, Some(path)) if status.without_flags() == status::CAPACITY_EXCEEDED => {
            let free = free_bytes(path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")));
            StorageError::NoSpace { path, free }
        }
        _ => e.into(),
    }
}

/// Returns the bytes that a file system has free for users.
fn free_bytes(folder: &Path) -> Option<u64> {
    let name = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the name is zero-terminated, and both pointers are valid during the call.
    if unsafe { libc::statvfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it initialised the whole structure.
    let found = unsafe { found.assume_init() };
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Runs `work` for each item on a thread of its own.
pub(super) fn in_parallel<I: Send, T: Send>(
    items: Vec<I>,
    work: impl Fn(I) -> Result<T, StorageError> + Sync,
) -> Result<Vec<T>, StorageError> {
    let work = &work;
    std::thread::scope(|scope| {
        let start =
            |item| std::thread::Builder::new().name("wb-transfer".to_owned()).spawn_scoped(scope, move || work(item));
        let threads: Vec<_> = items.into_iter().map(start).collect();
        threads
            .into_iter()
            .map(|t| {
                let t =
                    t.map_err(|e| StorageError::Option(format!("a thread of the transfer cannot be started: {e}")))?;
                t.join().unwrap_or_else(|_| Err(StorageError::Option("a thread of the transfer panicked".to_owned())))
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::storage::Volume;
    use std::time::Duration;

    fn volume(specs: &[&str]) -> Volume {
        Volume::on(&Engine::cpu().unwrap(), specs.iter().map(|s| Drive::open(s).unwrap())).chunk(4096).build().unwrap()
    }

    #[test]
    fn blocks_and_bytes_come_back() {
        for specs in
            [&["soft:mem:1M"][..], &["soft:mem:512k,block=4096", "soft:mem:256k,block=4096", "soft:mem:1M,block=4096"]]
        {
            let v = volume(specs);
            assert_eq!(v.bytes(), if specs.len() == 1 { 1 << 20 } else { (3 * 256) << 10 });
            let data: Vec<u8> = (0..300_000u32).map(|i| ((i * 31) >> 4) as u8).collect();
            v.write_bytes(12_345, &data).unwrap();
            v.flush().unwrap();
            let mut back = vec![0; data.len()];
            v.read_bytes(12_345, &mut back).unwrap();
            assert!(back == data);
            let block = v.block_bytes();
            let mut whole = vec![0; 10 * block];
            v.read_blocks(2, &mut whole).unwrap();
            let mut same = vec![1; 10 * block];
            v.read_bytes(2 * block as u64, &mut same).unwrap();
            assert!(whole == same);
        }
    }

    #[test]
    fn ranges_are_checked() {
        let v = volume(&["soft:mem:64k"]);
        assert!(v.read_blocks(0, &mut [0; 100]).unwrap_err().to_string().contains("512"));
        let text = v.read_blocks(127, &mut [0; 1024]).unwrap_err().to_string();
        assert_eq!(text, "blocks 127 to 129 do not lie within soft:mem:64k, which has 128 blocks");
        assert!(v.write_blocks(u64::MAX, &[0; 1024]).is_err());
        assert!(v.write_bytes(u64::MAX - 3, &[0; 9]).is_err());
    }

    #[test]
    fn kernels_may_have_all_queue_pairs() {
        for queues in [1, 4] {
            let drive = Drive::open(&format!("soft:mem:1M,queues={queues}")).unwrap();
            let v = Volume::on(&Engine::cpu().unwrap(), [drive]).queues(queues).build().unwrap();
            assert_eq!(v.queues(), queues);
            v.write_bytes(5, b"between runs").unwrap();
            let mut back = [0; 12];
            v.read_bytes(5, &mut back).unwrap();
            assert_eq!(&back, b"between runs");
        }
    }

    #[test]
    fn the_host_waits_no_longer_than_its_engine() {
        let engine = Engine::cpu().unwrap();
        engine.set_deadline(Duration::from_millis(200)).unwrap();
        let v = Volume::on(&engine, [Drive::open("soft:mem:1M,lose-completion=0-0").unwrap()]).build().unwrap();
        let e = v.read_blocks(0, &mut [0; 512]).unwrap_err();
        let StorageError::Nvme(NvmeError::TimedOut { waited, .. }) = &e else { panic!("{e}") };
        assert!(*waited < Duration::from_secs(10), "{e}");
        assert!(e.to_string().contains("read of 1 block(s) at LBA 0"), "{e}");
        v.recover().unwrap();
        let told = |v: &Volume| v.disk().with_queue(0, |queue, _| Ok(queue.deadline())).unwrap();
        assert_eq!((told(&v), v.disk().policy().abort_grace), (Duration::from_millis(200), Duration::from_millis(200)));
        engine.set_deadline(Duration::from_secs(30)).unwrap();
        assert_eq!(
            (told(&v), v.disk().policy().abort_grace),
            (Duration::from_secs(30), RecoveryPolicy::default().abort_grace)
        );
        // CAP.TO is five seconds here: admin commands get at least that, and more where the volume was given more.
        for (given, admin) in [(1, 5), (30, 30)] {
            v.set_deadline(Duration::from_secs(given)).unwrap();
            assert_eq!(told(&v), Duration::from_secs(given));
            assert_eq!(v.disk().drives[0].lock().controller().command_deadline(), Duration::from_secs(admin));
        }
    }

    #[test]
    fn media_errors_name_the_place() {
        let v = volume(&["soft:mem:1M,media-error=100-100"]);
        let text = v.read_blocks(96, &mut [0; 8 * 512]).unwrap_err().to_string();
        assert!(text.contains("LBA 96") || text.contains("LBA 100"), "{text}");
        assert!(v.read_blocks(104, &mut [0; 8 * 512]).is_ok());
    }
}
