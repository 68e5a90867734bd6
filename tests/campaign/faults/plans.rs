//! Faults of devices.

use super::target::{Target, TargetFault};
use crate::random::Random;
use std::path::Path;

/// Faults of one run.
pub struct Plan {
    kind: &'static str,
    options: String,
    /// True if a device may return or store wrong data without an error.
    pub is_silent: bool,
    target_fault: Option<TargetFault>,
}

/// Kinds of faults of devices in this process, with the options that make them. `{n}` is a number of commands, `{a}-{b}` are
/// blocks, and `{t}` is a time in milliseconds.
const KINDS: [(&str, &[&str]); 25] = [
    ("none", &[""]),
    ("media error", &[",media-error={a}-{b}", ",media-error=read:{a}-{b}", ",media-error=write:{a}-{b}"]),
    ("latency", &[",latency={t}ms", ",latency=0us-{t}ms", ",latency=exp:{t}ms"]),
    ("lost completion", &[",lose-completion=every:{n}", ",lose-completion={a}-{b}"]),
    ("wrong phase", &[",wrong-phase=every:{n}", ",wrong-phase={a}-{b}"]),
    ("lost doorbell", &[",lose-doorbell=every:{n}"]),
    ("stuck queue", &[",stuck-queue=after:{n}", ",stuck-queue=1:after:{n}"]),
    ("controller fatal", &[",fatal=after:{n}", ",fatal={a}-{b}"]),
    ("controller fatal once", &[",fatal=once:{n}"]),
    ("gone", &[",disappear=after:{n}", ",disappear={a}-{b}"]),
    ("failed flush", &[",fail-flush=every:{few}"]),
    ("repeated completion", &[",repeat-completion=every:{n}", ",repeat-completion={a}-{b}"]),
    ("torn write", &[",torn-write=every:{n}", ",torn-write={a}-{b}"]),
    ("torn write, silent", &[",torn-write=silent:every:{n}", ",torn-write=silent:{a}-{b}"]),
    ("wrong data read", &[",corrupt=read:every:{n}", ",corrupt=read:{a}-{b}"]),
    ("wrong data stored", &[",corrupt=write:every:{n}", ",corrupt=write:{a}-{b}"]),
    ("slow drain", &[",slow-drain={t}ms", ",slow-drain=1:{t}ms"]),
    ("shrunk namespace", &[",shrink={a}:after:{n}"]),
    ("slow to be ready", &[",slow-ready={t}ms"]),
    ("never ready", &[",never-ready,ready-timeout=500ms"]),
    ("reordered", &[",reorder", ",reorder,latency=exp:200us"]),
    (
        "two faults",
        &[",media-error=read:{a}-{b},lose-completion=every:{n}", ",fail-flush=every:{few},latency=0us-{t}ms"],
    ),
    ("target killed", &[""]),
    ("target stopped", &[""]),
    ("target restarted", &[""]),
];

impl Plan {
    pub fn of(random: &mut Random) -> Self {
        let (kind, forms) = random.of(&KINDS);
        let first = if random.once_in(2) { random.below(128) } else { random.below(1600) };
        let last = first + random.small(8);
        let n = 1 + random.small(8);
        let values = [("{a}", first), ("{b}", last), ("{n}", n), ("{few}", 1 + n % 4), ("{t}", 1 + random.below(30))];
        let options =
            values.iter().fold(random.of(forms).to_owned(), |text, (name, v)| text.replace(name, &v.to_string()));
        let is_silent = options.contains("silent") || options.contains("corrupt=");
        let target_fault = match kind {
            "target killed" => Some(TargetFault::Killed),
            "target stopped" => Some(TargetFault::Stopped),
            "target restarted" => Some(TargetFault::Restarted),
            _ => None,
        };
        Self { kind, options, is_silent, target_fault }
    }

    /// Returns the plan without its faults.
    pub fn without_faults(self) -> Self {
        Self { options: String::new(), is_silent: false, target_fault: None, ..self }
    }

    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the options for the device with the fault.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Starts a target in place of the last device of a command, if the plan is about one.
    ///
    /// # Errors
    /// What was wrong with the target.
    pub fn target(&self, random: &mut Random, folder: &Path, args: &mut [String]) -> Result<Option<Target>, String> {
        let Some(target_fault) = self.target_fault else { return Ok(None) };
        let Some(device) = args.iter_mut().rev().find(|a| a.starts_with("soft:")) else { return Ok(None) };
        let exported = if device.starts_with("soft:mem") { "soft:mem:4M".to_owned() } else { device.clone() };
        let target = Target::start(&exported, folder, target_fault, random)?;
        *device = target.device();
        Ok(Some(target))
    }
}
