//! Merging of the output of several processes, in whole lines.

use super::Event;
use parking_lot::Mutex;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

/// The longest line, in bytes. A longer line is written in pieces.
const LONGEST: usize = 1 << 20;
/// Bytes of each read.
const CHUNK: usize = 64 << 10;

/// The destination of lines. Cheap to clone.
#[derive(Clone)]
pub(super) struct Lines(Arc<Mutex<Sink>>);

struct Sink {
    to: Box<dyn Write + Send>,
    /// The receiver of [`Event::OutputGone`].
    tell: Option<Sender<Event>>,
    gone: bool,
}

impl Lines {
    pub(super) fn new(to: impl Write + Send + 'static, tell: Option<Sender<Event>>) -> Self {
        Self(Arc::new(Mutex::new(Sink { to: Box::new(to), tell, gone: false })))
    }

    /// Writes whole lines at once.
    fn write(&self, lines: &[u8]) {
        let mut sink = self.0.lock();
        if sink.gone {
            return;
        }
        if let Err(e) = sink.to.write_all(lines).and_then(|()| sink.to.flush()) {
            // From here on output is read and discarded, so that no rank blocks on its output.
            sink.gone = true;
            tracing::warn!(error = %e, "output cannot be written");
            if let Some(tell) = &sink.tell {
                let _ = tell.send(Event::OutputGone);
            }
        }
    }
}

/// Copies a stream to `lines`, line by line, each with `prefix`. `writing` is true while the copy waits for the reader
/// of `lines`.
pub(super) fn copy(mut from: impl Read, lines: &Lines, prefix: &str, writing: &AtomicBool) {
    let mut buffer = vec![0; CHUNK];
    let mut line = Vec::new();
    let mut out = Vec::new();
    loop {
        let n = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        for piece in buffer[..n].split_inclusive(|b| *b == b'\n') {
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || line.len() >= LONGEST {
                finish(&mut line, prefix, &mut out);
            }
        }
        if !out.is_empty() {
            writing.store(true, Ordering::Relaxed);
            lines.write(&out);
            writing.store(false, Ordering::Relaxed);
            out.clear();
        }
    }
    if !line.is_empty() {
        finish(&mut line, prefix, &mut out);
        writing.store(true, Ordering::Relaxed);
        lines.write(&out);
        writing.store(false, Ordering::Relaxed);
    }
}

fn finish(line: &mut Vec<u8>, prefix: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(prefix.as_bytes());
    out.append(line);
    if out.last() != Some(&b'\n') {
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// Records what was written, piece by piece.
    #[derive(Clone, Default)]
    struct Pieces(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Write for Pieces {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A reader that returns a few bytes at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn lines_go_out_whole_whatever_pieces_they_come_in() {
        let input = b"one\n\ntwo \xff three\r\nno end";
        for n in [1, 2, 5, 100] {
            let pieces = Pieces::default();
            let lines = Lines::new(pieces.clone(), None);
            copy(Dribble(input, n), &lines, "[7] ", &AtomicBool::new(false));
            let pieces = pieces.0.lock();
            assert!(pieces.iter().all(|p| p.starts_with(b"[7] ") && p.ends_with(b"\n")));
            assert_eq!(pieces.concat(), b"[7] one\n[7] \n[7] two \xff three\r\n[7] no end\n");
        }
    }

    #[test]
    fn a_line_without_end_is_not_kept_for_ever() {
        let pieces = Pieces::default();
        let endless = vec![b'x'; 2 * LONGEST + 5];
        copy(&endless[..], &Lines::new(pieces.clone(), None), "", &AtomicBool::new(false));
        let all = pieces.0.lock().concat();
        assert_eq!(all.iter().filter(|b| **b == b'x').count(), endless.len());
        assert_eq!(all.iter().filter(|b| **b == b'\n').count(), 3);
    }

    #[test]
    fn a_reader_that_went_away_is_told_once_and_nothing_blocks() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (tx, rx) = channel();
        copy(Dribble(b"a\nb\nc\n", 2), &Lines::new(Gone, Some(tx)), "", &AtomicBool::new(false));
        assert_eq!(rx.iter().count(), 1);
    }
}
