//! Changes that controllers make to files, in their order, for tests of what a power failure leaves.
//!
//! A power failure leaves all that was flushed on a file's device, and any blocks of what was written later: each block is
//! old or new. A command that was under way counts as one that was not flushed.

use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A completed command that changed a file of a journal.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Write { file: usize, offset: usize, data: Vec<u8> },
    Flush { file: usize },
}

#[derive(Debug)]
struct Log {
    files: Vec<PathBuf>,
    changes: Mutex<Vec<Change>>,
}

static LOGS: Mutex<Vec<Arc<Log>>> = Mutex::new(Vec::new());

/// The changes of some files while this value exists.
#[derive(Debug)]
pub(crate) struct Journal(Arc<Log>);

impl Journal {
    /// Records the changes of these files from now on.
    pub(crate) fn of(files: &[PathBuf]) -> Self {
        let log = Arc::new(Log { files: files.to_vec(), changes: Mutex::default() });
        LOGS.lock().push(log.clone());
        Self(log)
    }

    /// Returns the number of changes.
    pub(crate) fn len(&self) -> usize {
        self.0.changes.lock().len()
    }

    /// Returns the changes, and begins again without any.
    pub(crate) fn take(&self) -> Vec<Change> {
        std::mem::take(&mut *self.0.changes.lock())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        LOGS.lock().retain(|log| !Arc::ptr_eq(log, &self.0));
    }
}

/// Adds a change of a file to its journal, if it has one. A write is given by its first byte and its length.
pub(super) fn record(path: &Path, write: Option<(u64, usize)>) {
    for log in LOGS.lock().iter() {
        let Some(file) = log.files.iter().position(|f| f == path) else { continue };
        let change = match write {
            Some((offset, bytes)) => {
                let mut data = vec![0; bytes];
                File::open(path).and_then(|f| f.read_exact_at(&mut data, offset)).expect("a file of a test");
                Change::Write { file, offset: offset as usize, data }
            }
            None => Change::Flush { file },
        };
        log.changes.lock().push(change);
    }
}

/// State of files at a power failure.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// Files with all that was flushed.
    durable: Vec<Vec<u8>>,
    /// Blocks that may be there or not, in the order in which they were written: file, first byte, data.
    open: Vec<(usize, usize, Vec<u8>)>,
}

impl Cut {
    /// Makes the state after these changes of files that held `base`, on devices with blocks of `block` bytes.
    pub(crate) fn after(changes: &[Change], base: &[Vec<u8>], block: usize) -> Self {
        let mut durable = base.to_vec();
        let flushed: Vec<usize> = (0..base.len())
            .map(|f| changes.iter().rposition(|c| matches!(c, Change::Flush { file } if *file == f)).unwrap_or(0))
            .collect();
        let mut open = Vec::new();
        for (i, change) in changes.iter().enumerate() {
            let Change::Write { file, offset, data } = change else { continue };
            for (at, bytes) in (*offset..).step_by(block).zip(data.chunks(block)) {
                if i < flushed[*file] {
                    durable[*file][at..at + bytes.len()].copy_from_slice(bytes);
                } else {
                    open.push((*file, at, bytes.to_vec()));
                }
            }
        }
        // A write of what a block has makes no difference, unless it takes back another change of that block.
        let is_first = |i: usize, at: (usize, usize)| !open[..i].iter().any(|(f, a, _)| (*f, *a) == at);
        let is_same = |f: usize, at: usize, bytes: &[u8]| durable[f][at..at + bytes.len()] == *bytes;
        let keeps: Vec<bool> =
            open.iter().enumerate().map(|(i, (f, at, s))| !(is_first(i, (*f, *at)) && is_same(*f, *at, s))).collect();
        let mut keeps = keeps.into_iter();
        open.retain(|_| keeps.next().unwrap_or(true));
        Self { durable, open }
    }

    /// Returns the number of blocks that may be there or not.
    pub(crate) fn choices(&self) -> usize {
        self.open.len()
    }

    /// Returns the files with those of these blocks for which `keeps` is true.
    pub(crate) fn files(&self, mut keeps: impl FnMut(usize) -> bool) -> Vec<Vec<u8>> {
        let mut files = self.durable.clone();
        for (i, (file, at, bytes)) in self.open.iter().enumerate() {
            if keeps(i) {
                files[*file][*at..*at + bytes.len()].copy_from_slice(bytes);
            }
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 512;

    #[test]
    fn a_cut_keeps_what_was_flushed_and_any_of_the_rest() {
        let write = |file, at: usize, byte| Change::Write { file, offset: at, data: vec![byte; BLOCK] };
        let base = [vec![0; 2 * BLOCK], vec![0; BLOCK]];
        let changes = [
            write(0, 0, 1),
            write(1, 0, 1),
            Change::Flush { file: 0 },
            write(0, BLOCK, 2),
            write(0, 0, 1),
            write(0, 0, 3),
        ];
        // The fifth changes nothing.
        let cut = Cut::after(&changes, &base, BLOCK);
        assert_eq!(cut.choices(), 3);
        let heads = |keeps: fn(usize) -> bool| {
            let files = cut.files(keeps);
            [files[0][0], files[0][BLOCK], files[1][0]]
        };
        assert_eq!([heads(|_| false), heads(|_| true), heads(|i| i == 1)], [[1, 0, 0], [3, 2, 1], [1, 2, 0]]);
    }
}
