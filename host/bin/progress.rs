//! Shows a progress bar while a large graph is loaded or a device is filled, if standard error is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::time::Duration;
use warpbell::graph::{Progress, Stage};

/// Work shorter than this shows no bar.
const DEADLINE: Duration = Duration::from_millis(500);

const FILLING: &str = "filling  [{bar:40}] {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left";

/// Progress bar with its current template.
pub struct Loading {
    bar: ProgressBar,
    template: Mutex<&'static str>,
    started: std::time::Instant,
}

impl Loading {
    /// Creates a bar that is not yet visible.
    pub fn new() -> Self {
        let target =
            if crate::output::has_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        Self { bar, template: Mutex::new(""), started: std::time::Instant::now() }
    }

    /// Shows the progress of loading. Loading calls this method from many threads.
    pub fn advance(&self, p: Progress) {
        let template = match p.stage {
            Stage::Decompress => "unpacking [{bar:40}] {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left",
            Stage::Read => "reading  [{bar:40}] {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left",
            Stage::Store => FILLING,
            Stage::Sort => "sorting  [{bar:40}] {human_pos}/{human_len} edges  {per_sec}  {eta} left",
            Stage::Merge => "merging  [{bar:40}] {percent} %  {eta} left",
            _ => "building [{bar:40}] {percent} %  {eta} left",
        };
        self.show(template, p.done, p.total);
    }

    /// Shows that `done` of `total` bytes have been filled.
    pub fn filled(&self, done: u64, total: u64) {
        self.show(FILLING, done, total);
    }

    fn show(&self, template: &'static str, done: u64, total: u64) {
        if self.bar.is_hidden() || self.started.elapsed() < DEADLINE {
            return;
        }
        let mut shown = self.template.lock();
        if *shown != template {
            *shown = template;
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style.progress_chars("=> "));
                // Rate and time left are those of this phase.
                self.bar.set_position(0);
                self.bar.reset_eta();
                self.bar.reset_elapsed();
            }
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
