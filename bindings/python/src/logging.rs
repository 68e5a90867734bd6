//! Messages of the library for Python's `logging`, in loggers below `warpbell`.
//!
//! Threads of the library log while they hold its locks, and some still run when the interpreter ends. None of them may wait for the
//! interpreter. So messages go to a queue, and a thread that holds nothing else passes them on. It starts with the first message, and ends
//! before the interpreter does.

use crate::error::Failure;
use crate::{fork, world};
use log::{LevelFilter, Log, Metadata, Record};
use parking_lot::{Condvar, Mutex};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3_log::{Caching, Logger};
use std::collections::VecDeque;
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};

/// Messages that wait for the interpreter at most. Later ones are dropped.
const MOST: usize = 10_000;

static RELAY: OnceLock<Relay> = OnceLock::new();

struct Relay {
    logger: Logger,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Message>,
    thread: Option<JoinHandle<()>>,
    is_closed: bool,
}

struct Message {
    level: log::Level,
    target: String,
    text: String,
    file: Option<String>,
    line: Option<u32>,
}

/// The logger of the process.
struct Front;

impl Log for Front {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("warpbell")
    }

    fn log(&self, record: &Record<'_>) {
        let Some(relay) = RELAY.get().filter(|_| self.enabled(record.metadata())) else { return };
        let mut state = relay.state.lock();
        if state.is_closed || state.messages.len() == MOST {
            return;
        }
        state.messages.push_back(Message {
            level: record.level(),
            target: record.target().to_owned(),
            text: record.args().to_string(),
            file: record.file().map(str::to_owned),
            line: record.line(),
        });
        if state.thread.is_none() {
            // Without a thread the messages are lost, and the library goes on.
            state.thread = thread::Builder::new().name("warpbell log".to_owned()).spawn(|| relay.pass_on()).ok();
        }
        relay.changed.notify_all();
    }

    fn flush(&self) {}
}

impl Relay {
    /// Passes messages on until the relay is closed.
    fn pass_on(&self) {
        loop {
            let mut state = self.state.lock();
            while state.messages.is_empty() {
                if state.is_closed {
                    return;
                }
                self.changed.wait(&mut state);
            }
            let messages = std::mem::take(&mut state.messages);
            drop(state);
            // Without an interpreter nobody reads them.
            let _ = Python::try_attach(|py| messages.iter().for_each(|message| self.tell(py, message)));
        }
    }

    fn tell(&self, py: Python<'_>, message: &Message) {
        self.logger.log(
            &Record::builder()
                .level(message.level)
                .target(&message.target)
                .file(message.file.as_deref())
                .line(message.line)
                .args(format_args!("{}", message.text))
                .build(),
        );
        // That of a handler or filter.
        if let Some(raised) = PyErr::take(py) {
            raised.write_unraisable(py, None);
        }
    }
}

/// Called when the interpreter ends. Passes on the messages that are left, and ends the thread: later ones are dropped. If the program ends by
/// an exception, the other PEs of its worlds are to notice that.
#[pyfunction]
fn _end(py: Python<'_>) -> PyResult<()> {
    if fork::foreign().is_some() {
        // Threads and worlds are the parent's.
        return Ok(());
    }
    if py.import(intern!(py, "sys"))?.hasattr(intern!(py, "last_value"))? {
        world::abandon_all();
    }
    let Some(relay) = RELAY.get() else { return Ok(()) };
    let thread = {
        let mut state = relay.state.lock();
        state.is_closed = true;
        relay.changed.notify_all();
        state.thread.take()
    };
    py.detach(|| thread.map(JoinHandle::join));
    Ok(())
}

/// Makes Python's `logging` get the library's messages.
pub(crate) fn install(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    // Python decides on each message by the levels that its loggers have then, so only the loggers are kept.
    let logger = Logger::new(py, Caching::Loggers)?;
    if RELAY.set(Relay { logger, state: Mutex::default(), changed: Condvar::new() }).is_err() {
        return Ok(());
    }
    if log::set_logger(&Front).is_err() {
        return Err(Failure::invalid("another logger of Rust's `log` is in use").into());
    }
    log::set_max_level(LevelFilter::Debug);
    let end = wrap_pyfunction!(_end, m)?;
    py.import(intern!(py, "atexit"))?.call_method1(intern!(py, "register"), (end,)).map(drop)
}
