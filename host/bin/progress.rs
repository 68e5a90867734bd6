//! A bar while a large graph is loaded, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::Mutex;
use std::time::Duration;
use warpbell::graph::{Progress, Stage};

/// Loads shorter than this show nothing.
const PATIENCE: Duration = Duration::from_millis(500);

/// The bar, and the stage that it shows.
pub struct Loading {
    bar: ProgressBar,
    stage: Mutex<Option<Stage>>,
    started: std::time::Instant,
}

impl Loading {
    pub fn new() -> Self {
        let target =
            if crate::output::has_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        Self { bar, stage: Mutex::new(None), started: std::time::Instant::now() }
    }

    /// What loading calls, from many threads.
    pub fn advance(&self, p: Progress) {
        if self.bar.is_hidden() || self.started.elapsed() < PATIENCE {
            return;
        }
        let mut stage = self.stage.lock().unwrap_or_else(|e| e.into_inner());
        if *stage != Some(p.stage) {
            *stage = Some(p.stage);
            let template = match p.stage {
                Stage::Read => "reading  [{bar:40}] {bytes}/{total_bytes}  {bytes_per_sec}",
                _ => "building [{bar:40}] {percent} %",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style.progress_chars("=> "));
            }
        }
        self.bar.set_length(p.total);
        self.bar.set_position(p.done);
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
