//! Devices that fail in all ways that software devices know, under each command that uses devices. A command then has the right
//! result, or ends in order with a message, both within its bound.

mod commands;
mod plans;
mod target;

use crate::campaign::{Campaign, Outcome};
use crate::program::{self, Ended, folder_in_memory};
use crate::random::Random;
use commands::Work;
use parking_lot::RwLock;
use plans::Plan;
use std::path::Path;
use std::time::Duration;

/// Beside its work, a command may take this time and its deadline.
const BEYOND_DEADLINE: Duration = Duration::from_secs(2);
/// The work of a command on such small data takes less, on a machine that has nothing else to do.
const WORK: Duration = Duration::from_secs(1);
/// Where other programs share the processors, this many times the time of the same command without faults.
const SLOWER: u32 = 8;
/// Time after which a command hangs.
const HANGS: Duration = Duration::from_secs(60);
/// Deadlines of commands in milliseconds.
const DEADLINES: [u64; 5] = [100, 200, 500, 1000, 3000];

/// Commands on devices with faults.
pub struct Faults {
    /// Taken for reading by each run, and for writing by one whose time is measured again without others.
    processors: RwLock<()>,
    work: Work,
}

/// Relation of the devices of a volume.
#[derive(Clone, Copy, PartialEq)]
pub enum Layout {
    One,
    Stripe(usize),
    Copies(usize),
}

impl Layout {
    fn devices(self) -> usize {
        match self {
            Self::One => 1,
            Self::Stripe(n) | Self::Copies(n) => n,
        }
    }
}

impl Faults {
    pub fn new() -> Self {
        Self { processors: RwLock::new(()), work: Work::new() }
    }

    /// Runs the command of a seed in a folder, with its devices' faults or without them.
    fn ended(
        &self,
        seed: u64,
        folder: &Path,
        has_faults: bool,
    ) -> Result<(Ended, commands::Command, Duration), String> {
        let mut random = Random::new(seed);
        let mut plan = Plan::of(&mut random);
        if !has_faults {
            plan = plan.without_faults();
        }
        let layout = random.of(&[
            Layout::One,
            Layout::One,
            Layout::Stripe(2),
            Layout::Stripe(3),
            Layout::Copies(2),
            Layout::Copies(3),
        ]);
        let command = self.work.command(&mut random, &plan, layout, folder)?;
        let deadline = Duration::from_millis(random.of(&DEADLINES));
        let mut args = command.args.clone();
        args.extend(["--deadline".to_owned(), format!("{}ms", deadline.as_millis())]);
        let target = plan.target(&mut random, folder, &mut args)?;
        let ended = program::run(&mut program::command(args.iter().map(String::as_str)), HANGS)?;
        drop(target);
        Ok((ended, command, deadline))
    }
}

impl Campaign for Faults {
    fn kind(&self, seed: u64) -> String {
        Plan::of(&mut Random::new(seed)).kind().to_owned()
    }

    fn run(&self, seed: u64) -> Outcome {
        let is_harmless = matches!(Plan::of(&mut Random::new(seed)).kind(), "none" | "reordered");
        let once = || {
            let folder = folder_in_memory();
            let (ended, command, deadline) = self.ended(seed, folder.path(), true)?;
            let class = command.judge(&ended, folder.path())?;
            Ok::<_, String>((ended, class, deadline))
        };
        let is_wrong = |(ended, class, deadline): &(Ended, &str, Duration), work: Duration| {
            if ended.took > *deadline + BEYOND_DEADLINE + work {
                return Some(format!("took {:?} with a deadline of {deadline:?}\n{}", ended.took, ended.text()));
            }
            let fails = is_harmless && *class != "right";
            fails.then(|| format!("failed without a fault\n{}", ended.text()))
        };
        let first = {
            let _shared = self.processors.read();
            once()?
        };
        if is_wrong(&first, WORK).is_none() {
            return Ok(first.1);
        }
        // A busy machine delays commands, too.
        let _alone = self.processors.write();
        let (usual, ..) = self.ended(seed, folder_in_memory().path(), false)?;
        let again = once()?;
        is_wrong(&again, WORK.max(usual.took * SLOWER)).map_or(Ok(again.1), Err)
    }
}
