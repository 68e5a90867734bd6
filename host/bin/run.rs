//! Runs `warpbell run`: starts a program as the ranks of a world on this host.

use crate::args::RunArgs;
use crate::interrupt::Interrupt;
use crate::output::Failure;
use std::io;
use std::time::Duration;
use warpbell::shmem::launcher::{Event, LaunchError, Launcher};

/// Starts the ranks, passes signals on to them, and waits for their end.
///
/// # Errors
/// [`Failure::Usage`] without a program, [`Failure::BrokenPipe`] if standard output was closed, and
/// [`Failure::Status`] with the launcher's exit code if the ranks could not be started or failed.
pub fn run(args: &RunArgs, timeout: Option<Duration>, interrupt: &Interrupt) -> Result<(), Failure> {
    let Some((program, arguments)) = args.program.split_first() else {
        return Err(Failure::Usage("name the program to run, as in warpbell run -n 2 -- ./program".to_owned()));
    };
    let launcher = Launcher::new(program, arguments.to_vec(), args.ranks as usize)
        .prefix(!args.no_prefix)
        .timeout(timeout)
        .notice(args.notice)
        .grace(args.grace);
    let events = Launcher::events();
    let tell = events.0.clone();
    let _passed_on = interrupt.is_passed_on(move |signal| {
        // After the ranks have ended, nothing receives the signal.
        let _ = tell.send(Event::Signal(signal));
    });
    launcher.run(events, io::stdout(), io::stderr()).map_err(|e| match e {
        LaunchError::OutputGone => Failure::BrokenPipe,
        other => Failure::Status(other.to_string(), other.exit_code()),
    })
}
