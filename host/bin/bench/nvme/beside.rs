//! Another program that is measured in turn with this one.

use crate::output::Failure;
use crate::reports::{self, Source};
use crate::workloads::error::MeasureError;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use warpbell::engine::Engine;

/// Time between two looks at the engine while the program runs.
const LOOK: Duration = Duration::from_millis(20);

/// A command, and the figures of its turns.
pub struct Beside<'a> {
    command: &'a str,
    engine: &'a Engine,
    /// Reports of all turns as one: the figures of each are measurements of one row.
    all: Option<Source>,
}

impl<'a> Beside<'a> {
    /// Creates the measurement of a command of the shell. The program is ended when `engine` is told to stop.
    pub fn new(command: &'a str, engine: &'a Engine) -> Self {
        Self { command, engine, all: None }
    }

    /// Runs the command once, and reads the report that it prints.
    ///
    /// # Errors
    /// [`Failure::Error`] if the command cannot be started, fails, or prints no report that is known, or the engine was
    /// told to stop.
    pub fn turn(&mut self) -> Result<(), Failure> {
        let about = |e: String| Failure::about(format_args!("--beside `{}`", self.command), e);
        // A file, not a pipe: what the command leaves running may hold its end for ever.
        let mut output = tempfile::tempfile()?;
        // A group of its own, so that a signal for this program reaches every process of the command.
        let mut child = Command::new("sh")
            .args(["-c", self.command])
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .process_group(0)
            .spawn()
            .map_err(|e| about(format!("sh: {e}")))?;
        let status = self.wait(&mut child)?;
        let mut bytes = Vec::new();
        output.rewind()?;
        output.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        if !status.success() {
            let last = text.lines().last().unwrap_or_default();
            return Err(about(format!("the command failed; the last line of its output: `{last}`")));
        }
        let found = reports::of_text("the output", &text).map_err(|e| about(e.to_string()))?;
        match &mut self.all {
            Some(all) => found.figures.into_iter().for_each(|figure| figure.add_to(&mut all.figures)),
            none => *none = Some(found),
        }
        Ok(())
    }

    /// Waits for the program to end, and ends it if the engine was told to stop.
    fn wait(&self, child: &mut Child) -> Result<std::process::ExitStatus, Failure> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.engine.is_cancelled() || self.engine.stopped_for().is_some() {
                // SAFETY: a call without memory; the group is the child's, which has not been waited for.
                unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
                child.wait()?;
                return Err(MeasureError::Stopped.into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the figures of all turns.
    ///
    /// # Errors
    /// [`Failure::Error`] if there was no turn.
    pub fn finish(self) -> Result<Source, Failure> {
        self.all.ok_or_else(|| Failure::Error(format!("--beside `{}` was not run", self.command)))
    }
}
