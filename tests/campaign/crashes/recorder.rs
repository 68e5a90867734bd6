//! The recorder: writes and flushes of files in the order in which the system gets them, and which of them had ended.

use super::{log_writes::LogWrites, rings};
use libc::c_int;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// One thing that happened to the files of a recording.
#[derive(Debug)]
pub(super) enum Event {
    /// A write has begun. With `durable` it is on the medium when it ends.
    Write { file: usize, id: u64, at: u64, data: Vec<u8>, durable: bool },
    /// A write has ended.
    Written { id: u64 },
    /// A flush has begun. It covers the writes that have ended.
    Flush { file: usize, id: u64 },
    /// A flush has ended.
    Flushed { id: u64 },
    /// A step of the scenario begins.
    Begun,
    /// A step of the scenario was acknowledged.
    Done,
}

impl Event {
    /// Returns a line for an event that is no write.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Flush { file, .. } => Some(format!("flush of device {file}")),
            Self::Begun => Some("a step begins".to_owned()),
            Self::Done => Some("the step is acknowledged".to_owned()),
            Self::Write { .. } | Self::Written { .. } | Self::Flushed { .. } => None,
        }
    }
}

/// Events of the files of a recording.
#[derive(Default)]
pub(super) struct Log {
    events: Mutex<Vec<Event>>,
    next: AtomicU64,
    /// Logs of QEMU, with the files that they are of.
    others: Mutex<Vec<(usize, LogWrites)>>,
}

/// A file of a recording.
#[derive(Clone)]
pub(super) struct Followed {
    log: Arc<Log>,
    file: usize,
}

/// Recorded files by device and inode.
static FILES: Mutex<BTreeMap<(u64, u64), Followed>> = Mutex::new(BTreeMap::new());
static RECORDINGS: AtomicUsize = AtomicUsize::new(0);

pub(super) fn is_recording() -> bool {
    RECORDINGS.load(Ordering::Acquire) > 0
}

/// Returns the file of a recording that a descriptor stands for.
pub(super) fn followed(fd: c_int) -> Option<Followed> {
    if !is_recording() {
        return None;
    }
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is large enough, and is read only if the call has filled it.
    let stat = unsafe {
        if libc::fstat(fd, stat.as_mut_ptr()) != 0 {
            return None;
        }
        stat.assume_init()
    };
    FILES.lock().unwrap().get(&(stat.st_dev, stat.st_ino)).cloned()
}

impl Log {
    fn push(&self, event: Event) {
        self.take_others();
        self.events.lock().unwrap().push(event);
    }

    fn id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Takes what QEMU has logged meanwhile.
    fn take_others(&self) {
        let mut others = self.others.lock().unwrap();
        let mut events = self.events.lock().unwrap();
        for (file, log) in others.iter_mut() {
            log.take(*file, || self.id(), &mut events);
        }
    }

    /// Records that a step of the scenario begins.
    pub(super) fn begun(&self) {
        rings::reap();
        self.push(Event::Begun);
    }

    /// Records that a step of the scenario was acknowledged.
    pub(super) fn done(&self) {
        rings::reap();
        self.push(Event::Done);
    }
}

impl Followed {
    pub(super) fn is_of(&self, log: &Log) -> bool {
        std::ptr::eq(&raw const *self.log, log)
    }

    pub(super) fn write_now(&self, at: u64, data: Vec<u8>, durable: bool) -> u64 {
        let id = self.log.id();
        self.log.push(Event::Write { file: self.file, id, at, data, durable });
        id
    }

    pub(super) fn written_now(&self, id: u64, bytes: usize) {
        self.log.push(Event::Written { id });
        let mut events = self.log.events.lock().unwrap();
        let of = events.iter_mut().rev().find_map(|e| match e {
            Event::Write { id: of, data, .. } if *of == id => Some(data),
            _ => None,
        });
        // The rest of a write that was cut short never happened.
        of.into_iter().for_each(|data| data.truncate(bytes));
    }

    pub(super) fn flush_now(&self) -> u64 {
        let id = self.log.id();
        self.log.push(Event::Flush { file: self.file, id });
        id
    }

    pub(super) fn flushed_now(&self, id: u64) {
        self.log.push(Event::Flushed { id });
    }

    /// Records that a write begins, behind the requests of rings that have ended.
    pub(super) fn write(&self, at: u64, data: Vec<u8>, durable: bool) -> u64 {
        rings::reap();
        self.write_now(at, data, durable)
    }

    pub(super) fn written(&self, id: u64, bytes: usize) {
        self.written_now(id, bytes);
    }

    /// Records that a flush begins, behind the requests of rings that have ended.
    pub(super) fn flush(&self) -> u64 {
        rings::reap();
        self.flush_now()
    }

    pub(super) fn flushed(&self, id: u64) {
        self.flushed_now(id);
    }
}

/// Records files until it ends.
pub(super) struct Recorder {
    log: Arc<Log>,
    paths: Vec<PathBuf>,
    base: Vec<Vec<u8>>,
    keys: Vec<(u64, u64)>,
}

impl Recorder {
    /// Begins to record files, which nobody has open.
    pub(super) fn new(paths: &[PathBuf]) -> std::io::Result<Self> {
        let log = Arc::new(Log::default());
        let base = paths.iter().map(std::fs::read).collect::<Result<_, _>>()?;
        let mut keys = Vec::new();
        for (file, path) in paths.iter().enumerate() {
            let stat = std::fs::metadata(path)?;
            keys.push((stat.dev(), stat.ino()));
            FILES.lock().unwrap().insert((stat.dev(), stat.ino()), Followed { log: Arc::clone(&log), file });
        }
        RECORDINGS.fetch_add(1, Ordering::AcqRel);
        Ok(Self { log, paths: paths.to_vec(), base, keys })
    }

    pub(super) fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Follows the log that QEMU writes of a file.
    pub(super) fn follow(&self, file: usize, log: &Path) -> std::io::Result<()> {
        self.log.others.lock().unwrap().push((file, LogWrites::new(File::open(log)?)));
        Ok(())
    }

    /// Ends the recording of files that nobody has open any more. Returns their first bytes and what happened to them.
    ///
    /// # Errors
    /// What the recorder has missed: its writes do not give the files' bytes.
    pub(super) fn end(mut self) -> Result<(Vec<Vec<u8>>, Vec<Event>), String> {
        rings::reap();
        self.log.take_others();
        let mut events = std::mem::take(&mut *self.log.events.lock().unwrap());
        for (_, log) in self.log.others.lock().unwrap().iter() {
            log.fill(&mut events)?;
        }
        let mut files = self.base.clone();
        for event in &events {
            if let Event::Write { file, at, data, .. } = event {
                let at = *at as usize;
                let Some(to) = files[*file].get_mut(at..at + data.len()) else {
                    return Err(format!("a write of {} bytes at {at} is beyond the end of file {file}", data.len()));
                };
                to.copy_from_slice(data);
            }
        }
        for (path, replayed) in self.paths.iter().zip(&files) {
            let held = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
            if held != *replayed {
                let at = held.iter().zip(replayed).position(|(a, b)| a != b);
                return Err(format!("the recorder has missed writes of {}: byte {at:?} differs", path.display()));
            }
        }
        Ok((std::mem::take(&mut self.base), events))
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        RECORDINGS.fetch_sub(1, Ordering::AcqRel);
        self.keys.iter().for_each(|key| drop(FILES.lock().unwrap().remove(key)));
        rings::forget(&self.log);
    }
}
