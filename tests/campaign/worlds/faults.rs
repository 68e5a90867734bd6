//! Faults of a world, and the ends that it may have then.

use super::work::names_rank;
use super::{BUSY, FAR, Fault, LONG, NEAR, Scenario};
use crate::campaign::Outcome;
use crate::family::{Family, signal, start_world};
use crate::middle::{Middle, Mode, Plan, Spoil, await_some};
use crate::program::{Running, await_end};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::{Duration, Instant};

/// Time after which a host is taken for dead by the store, and some more.
const SILENCE: Duration = Duration::from_secs(35);

impl Scenario {
    pub(super) fn run(&self) -> Outcome {
        let family = Family::new();
        let outcome = match self.fault {
            Fault::None => self.undisturbed(&family),
            Fault::Killed if self.random.clone().once_in(3) => self.killed_under_a_launcher(&family),
            Fault::Killed => self.killed(&family),
            Fault::Stopped => self.stopped(&family),
            Fault::StoreHeld => self.held(&family),
            Fault::StoreClosed => self.closed(&family),
            Fault::StoreFlips => self.flips(&family),
            Fault::Network => self.network(&family),
            Fault::Adapter => self.adapter(&family),
            Fault::FullDisk => self.full_disk(&family),
            Fault::Clocks => self.clocks(&family),
        }?;
        family.check_left(matches!(self.fault, Fault::Killed))?;
        Ok(outcome)
    }

    /// Returns a time within that of the work or somewhat behind it.
    fn moment(&self) -> Duration {
        let mut random = self.random.clone();
        // Many are at the start, where all is set up.
        let most = random.of(&[100, 400, 1500, 4000]);
        Duration::from_millis(random.below(most))
    }

    /// Returns a rank, and another number.
    fn victim(&self, first: u64) -> (usize, u64) {
        let mut random = self.random.clone();
        let victim = first + random.below(self.ranks as u64 - first);
        (victim as usize, random.next())
    }

    fn undisturbed(&self, family: &Family) -> Outcome {
        let command = |_| self.command(family, NEAR, "");
        let ranks = start_world(self.ranks, None, command)?;
        self.judge(&Self::ends(ranks, LONG)?, |_, _| false)
    }

    fn killed(&self, family: &Family) -> Outcome {
        let (victim, _) = self.victim(0);
        // The news ends the others, not the deadline.
        let command = |_| self.command(family, FAR, "retry=180s");
        let mut ranks = start_world(self.ranks, None, command)?;
        std::thread::sleep(self.moment());
        signal(ranks[victim].child.id(), libc::SIGKILL);
        let was_killed =
            await_end(&mut ranks[victim].child, Instant::now() + BUSY).is_some_and(|s| s.signal() == Some(9));
        let mut ends = Self::ends(ranks, 2 * BUSY)?;
        if !was_killed {
            return self.judge(&ends, |_, _| false);
        }
        let own = ends.remove(victim);
        if own.status.signal() != Some(libc::SIGKILL) {
            return Err(format!("rank {victim} was killed: {}", own.text()));
        }
        for (i, end) in ends.iter().enumerate() {
            if let Some(what) = end.disorder() {
                return Err(format!("rank {victim} was killed; another {what}"));
            }
            if !end.status.success() && !names_rank(&end.err, victim) {
                return Err(format!("rank {victim} was killed, and another does not name it: {}", end.text()));
            }
            if end.status.success() && i == 0 && victim > 0 {
                self.work.check(end)?;
            }
        }
        Ok(if ends.iter().all(|e| e.status.success()) { "verified" } else { "refused" })
    }

    fn killed_under_a_launcher(&self, family: &Family) -> Outcome {
        let (victim, _) = self.victim(0);
        let count = self.ranks.to_string();
        let program = crate::tree::program().into_os_string().into_string().map_err(|_| "a path that is no text")?;
        let inner = self.command(family, FAR, "retry=180s");
        let mut launcher = family.command(["run", "-n", &count, "--", &program]);
        launcher.args(inner.get_args());
        launcher.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let launcher = Running::start(&mut launcher)?;
        let process = await_some(BUSY, || family.rank(victim)).ok_or("the launcher starts no rank")?;
        std::thread::sleep(self.moment());
        // A process that has ended is still there for its launcher, or its number is in no use yet.
        let was_there = family.rank(victim) == Some(process);
        if was_there {
            signal(process, libc::SIGKILL);
        }
        let end = launcher.end(2 * BUSY)?;
        if end.status.success() {
            self.work.check(&end)?;
            return Ok("verified");
        }
        let line = format!("error: rank {victim} was ended by SIGKILL");
        if end.status.code() != Some(137) || !end.err.contains(&line) || end.err.contains("panicked") || !was_there {
            return Err(format!("rank {victim} was killed: {}\n{}", end.status, end.text()));
        }
        Ok("refused")
    }

    fn stopped(&self, family: &Family) -> Outcome {
        let (victim, random) = self.victim(0);
        let command = |_| self.command(family, FAR, "retry=180s");
        let ranks = start_world(self.ranks, None, command)?;
        std::thread::sleep(self.moment());
        let process = ranks[victim].child.id();
        signal(process, libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(200 + random % 2800));
        signal(process, libc::SIGCONT);
        // Nothing that takes three seconds is a failure.
        self.judge(&Self::ends(ranks, LONG)?, |_, _| false)
    }

    /// Starts the ranks with a man in the middle before the store, for one of them.
    fn with_middle(
        &self,
        family: &Family,
        plan: Option<Plan>,
        victim: usize,
    ) -> Result<(Middle, Vec<Running>), String> {
        let middle = Middle::new(self.random.clone().next(), plan);
        let command = |_| self.command(family, NEAR, "retry=8s");
        let ranks = start_world(self.ranks, Some((victim, &middle)), command)?;
        Ok((middle, ranks))
    }

    fn held(&self, family: &Family) -> Outcome {
        let (victim, random) = self.victim(1);
        let (middle, ranks) = self.with_middle(family, None, victim)?;
        std::thread::sleep(self.moment());
        middle.set(Mode::Hold);
        if random % 4 > 0 {
            std::thread::sleep(Duration::from_millis(200 + random % 2800));
            middle.set(Mode::Pass);
            return self.judge(&Self::ends(ranks, LONG)?, |_, _| false);
        }
        self.judge(&Self::ends(ranks, SILENCE + LONG)?, |rank, text| names_other(text, rank, victim))
    }

    fn closed(&self, family: &Family) -> Outcome {
        let (victim, _) = self.victim(1);
        let (middle, ranks) = self.with_middle(family, None, victim)?;
        std::thread::sleep(self.moment());
        middle.set(Mode::Cut);
        let outcome = self.judge(&Self::ends(ranks, LONG)?, |rank, text| names_other(text, rank, victim));
        drop(middle);
        outcome
    }

    fn flips(&self, family: &Family) -> Outcome {
        let (victim, random) = self.victim(1);
        let plan = Plan { spoil: Spoil::Flip, once_in: 1 + random % 8, after: random % 24, most: 2 };
        let (middle, ranks) = self.with_middle(family, Some(plan), victim)?;
        let ends = Self::ends(ranks, SILENCE + LONG)?;
        let was_changed = middle.spoiled() > 0;
        self.judge(&ends, |rank, text| was_changed && names_other(text, rank, victim))
    }

    fn network(&self, family: &Family) -> Outcome {
        let mut random = self.random.clone();
        let fault = |random: &mut crate::random::Random| {
            let action = random.of(&["drop", "drop-answer", "flip", "flip-answer", "cut", "delay:1ms-20ms"]);
            // Each loss costs the time until a request is sent again, and each cut a handshake.
            let often = random.of(&["percent:1", "every:150", "nth:30", "nth:7", "nth:1"]);
            format!("fault={action}@{often}")
        };
        let faults = [fault(&mut random), fault(&mut random)].join(",");
        let nic = format!("resend=50ms,retry=180s,seed={},{faults}", random.below(1000));
        let command = |_| self.command(family, FAR, &nic);
        let ranks = start_world(self.ranks, None, command)?;
        self.judge(&Self::ends(ranks, LONG).map_err(|e| format!("{nic}: {e}"))?, |_, _| false)
            .map_err(|e| format!("{nic}: {e}"))
    }

    fn adapter(&self, family: &Family) -> Outcome {
        let (victim, _) = self.victim(0);
        let mut random = self.random.clone();
        let action = random.of(&["syndrome:0x13/0x88", "storm:3", "lose", "die"]);
        let nic = format!("retry=4s,fault={action}@nth:{}", 1 + random.below(200));
        let command = |rank| self.command(family, NEAR, if rank == victim { &nic } else { "retry=4s" });
        let ranks = start_world(self.ranks, None, command)?;
        let named = |_: usize, text: &str| (0..self.ranks).any(|rank| names_rank(text, rank));
        self.judge(&Self::ends(ranks, LONG).map_err(|e| format!("{nic}: {e}"))?, named)
            .map_err(|e| format!("{nic}: {e}"))
    }

    /// Limits the size of rank 0's files, or sends its report to a device that is full.
    fn full_disk(&self, family: &Family) -> Outcome {
        let mut random = self.random.clone();
        let report = family.path("report.json");
        let limit = random.of(&[0, 64, 512, 4096, 1 << 20]);
        let is_device = random.once_in(3);
        let name = if is_device { "/dev/full".to_owned() } else { report.display().to_string() };
        let command = |rank| {
            let mut command = self.command(family, NEAR, "");
            if rank == 0 {
                command.args(["--json", &name]);
                limit_files(&mut command, limit);
            }
            command
        };
        let ranks = start_world(self.ranks, None, command)?;
        let ends = Self::ends(ranks, LONG)?;
        let outcome = self.judge(&ends, |rank, text| names_rank(text, 0) || rank == 0 && text.contains(&name))?;
        let written = std::fs::read(&report).ok();
        let is_whole = written.as_ref().is_some_and(|b| serde_json::from_slice::<serde_json::Value>(b).is_ok());
        if written.is_some() && !is_whole || !is_device && ends[0].status.success() != is_whole {
            return Err(format!("a limit of {limit} bytes, and {written:?}\n{}", ends[0].text()));
        }
        Ok(outcome)
    }

    fn clocks(&self, family: &Family) -> Outcome {
        let mut random = self.random.clone();
        let shifts: Vec<String> =
            (0..self.ranks).map(|_| random.of(&[0u64, 1, 3600, 1 << 20, 1 << 31]).to_string()).collect();
        let wrap = |shift: &str, inner: Command| {
            let mut command = Command::new("unshare");
            command.args(["-U", "-r", "-T", "--fork", "--kill-child", "--monotonic", shift, "--boottime", shift]);
            command.arg(inner.get_program()).args(inner.get_args()).stdin(std::process::Stdio::null());
            command.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
            command
        };
        if !wrap("1", Command::new("true")).status().is_ok_and(|s| s.success()) {
            return Ok("not available");
        }
        let command = |rank: usize| wrap(&shifts[rank], self.command(family, NEAR, ""));
        let ranks = start_world(self.ranks, None, command)?;
        self.judge(&Self::ends(ranks, LONG)?, |_, _| false).map_err(|e| format!("{shifts:?}: {e}"))
    }
}

/// Returns true if a rank names the victim of a cut, or the victim the store or its rank.
fn names_other(text: &str, rank: usize, victim: usize) -> bool {
    if rank == victim { text.contains("store") || names_rank(text, 0) } else { names_rank(text, victim) }
}

/// Lets no file of a command become longer. The write fails, and no signal ends the program.
fn limit_files(command: &mut Command, bytes: u64) {
    let limit = move || {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: system calls with values and a structure that is borrowed for the call, which may be made between fork and
        // exec.
        let is_set = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN) != libc::SIG_ERR
                && libc::setrlimit(libc::RLIMIT_FSIZE, &limit) == 0
        };
        if is_set { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the closure makes system calls alone and allocates nothing.
    unsafe { command.pre_exec(limit) };
}
