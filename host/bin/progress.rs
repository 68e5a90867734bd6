//! Shows the progress of long work on standard error: a bar if it is a terminal, otherwise a line every few seconds.

use crate::operation::PROGRESS;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use warpbell::graph::{Progress, Stage};
use warpbell::units::{Bytes, grouped};

/// Work shorter than this shows no bar.
const DEADLINE: Duration = Duration::from_millis(500);
/// Time from the start of the program to its first line, and between two lines.
const EVERY: Duration = Duration::from_secs(5);

/// The work in progress, for the lines.
static WORK: Mutex<Work> = Mutex::new(Work { name: "", step: None, is_silent: false });

struct Work {
    /// As in `reading the graph`; empty if nothing is to be said.
    name: &'static str,
    step: Option<Step>,
    is_silent: bool,
}

/// Unit of the numbers of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Bytes,
    Edges,
    /// Only the share says something.
    Share,
}

/// Step of the work, and what of it is done.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// As in `sorting`; the bar begins with it.
    name: &'static str,
    unit: Unit,
    done: u64,
    total: u64,
}

impl Work {
    /// Returns the line about this work, after `elapsed`; nothing if there is none to print.
    fn line(&self, elapsed: Duration) -> Option<String> {
        if self.is_silent || self.name.is_empty() {
            return None;
        }
        let step = self.step.map_or_else(String::new, |step| format!(": {step}"));
        Some(format!("{}{step}, {} s so far", self.name, elapsed.as_secs()))
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, unit, done, total } = *self;
        let size = |n: u64| match unit {
            Unit::Bytes => Bytes(n).to_string(),
            _ => grouped(n),
        };
        // The total is unknown where the input is a pipe.
        let share = done.min(total).saturating_mul(100).checked_div(total);
        match (share, unit) {
            (None, Unit::Share) => write!(f, "{name}"),
            (Some(share), Unit::Share) => write!(f, "{name} {share} %"),
            (None, _) => write!(f, "{name} {}", size(done)),
            (Some(share), _) => {
                let of = if unit == Unit::Edges { " edges" } else { "" };
                write!(f, "{name} {} of {}{of} ({share} %)", size(done), size(total))
            }
        }
    }
}

/// Names the work that begins.
pub fn begin(name: &'static str) {
    let mut work = WORK.lock();
    (work.name, work.step) = (name, None);
}

/// Prints no lines from now on: another process prints them, or the command ends only when it is told to.
pub fn silence() {
    WORK.lock().is_silent = true;
}

/// Starts the thread that prints lines among the library's messages, unless standard error is a terminal. A program
/// without such a thread prints none.
pub fn print_lines() {
    if crate::output::has_terminal() {
        return;
    }
    let started = Instant::now();
    let print = move || {
        loop {
            std::thread::sleep(EVERY);
            let line = WORK.lock().line(started.elapsed());
            if let Some(line) = line {
                tracing::info!(target: PROGRESS, "{line}");
            }
        }
    };
    if let Err(e) = std::thread::Builder::new().name("wb-progress".to_owned()).spawn(print) {
        tracing::debug!(error = %e, "no thread prints the progress");
    }
}

/// Progress bar with its current template.
pub struct Loading {
    bar: ProgressBar,
    template: Mutex<String>,
    started: Instant,
}

impl Loading {
    /// Creates a bar that is not yet visible.
    pub fn new() -> Self {
        let target =
            if crate::output::has_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        Self { bar, template: Mutex::new(String::new()), started: Instant::now() }
    }

    /// Shows the progress of loading. Loading calls this method from many threads.
    pub fn advance(&self, p: Progress) {
        let (name, unit) = match p.stage {
            Stage::Decompress => ("unpacking", Unit::Bytes),
            Stage::Read => ("reading", Unit::Bytes),
            Stage::Store => ("filling", Unit::Bytes),
            Stage::Sort => ("sorting", Unit::Edges),
            Stage::Merge => ("merging", Unit::Share),
            _ => ("building", Unit::Share),
        };
        self.show(Step { name, unit, done: p.done, total: p.total });
    }

    /// Shows that `done` of `total` bytes have been filled.
    pub fn filled(&self, done: u64, total: u64) {
        self.show(Step { name: "filling", unit: Unit::Bytes, done, total });
    }

    fn show(&self, step: Step) {
        if self.bar.is_hidden() {
            // Another thread's step is as good, so that nobody waits.
            if let Some(mut work) = WORK.try_lock() {
                work.step = Some(step);
            }
            return;
        }
        if self.started.elapsed() < DEADLINE {
            return;
        }
        let numbers = match step.unit {
            Unit::Bytes => "{bytes}/{total_bytes}  {bytes_per_sec}",
            Unit::Edges => "{human_pos}/{human_len} edges  {per_sec}",
            Unit::Share => "{percent} %",
        };
        let template = format!("{:<9} [{{bar:40}}] {numbers}  {{eta}} left", step.name);
        let mut shown = self.template.lock();
        if *shown != template {
            if let Ok(style) = ProgressStyle::with_template(&template) {
                self.bar.set_style(style.progress_chars("=> "));
                // Rate and time left are those of this phase.
                self.bar.set_position(0);
                self.bar.reset_eta();
                self.bar.reset_elapsed();
            }
            *shown = template;
        }
        self.bar.set_length(step.total);
        self.bar.set_position(step.done);
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        WORK.lock().step = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_the_work_its_share_and_the_time() {
        let line = |name, step: Option<(&'static str, Unit, u64, u64)>| {
            let step = step.map(|(name, unit, done, total)| Step { name, unit, done, total });
            Work { name, step, is_silent: false }.line(Duration::from_millis(15_600))
        };
        assert_eq!(line("", None), None);
        assert_eq!(line("measuring", None).unwrap(), "measuring, 15 s so far");
        let filling = line("filling the device", Some(("filling", Unit::Bytes, 3 << 29, 4 << 30)));
        assert_eq!(filling.unwrap(), "filling the device: filling 1.5 GiB of 4 GiB (37 %), 15 s so far");
        let sorting = line("reading the graph", Some(("sorting", Unit::Edges, 1000, 4000)));
        assert_eq!(sorting.unwrap(), "reading the graph: sorting 1,000 of 4,000 edges (25 %), 15 s so far");
        let merging = line("reading the graph", Some(("merging", Unit::Share, 1, 3)));
        assert_eq!(merging.unwrap(), "reading the graph: merging 33 %, 15 s so far");
        let piped = line("reading the graph", Some(("reading", Unit::Bytes, 1 << 20, 0)));
        assert_eq!(piped.unwrap(), "reading the graph: reading 1 MiB, 15 s so far");
        assert_eq!(Work { name: "measuring", step: None, is_silent: true }.line(Duration::ZERO), None);
    }
}
