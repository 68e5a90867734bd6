//! A number of hostile connections to one listener, and what the process may use meanwhile.

use super::process::Usage;
use super::stranger::{Behaviour, Place, Stranger};
use crate::middle::await_some;
use crate::random::Random;
use std::time::{Duration, Instant};

/// Hostile connections of a run.
const CONNECTIONS: usize = 200;
/// Class of outcomes in which all of them were made and the process's work was verified.
pub const OUTCOME: &str = "verified, 200 connections each";
/// Connections that are open at the same time, but for silent ones.
const OPEN: usize = 50;
/// Time for what a busy machine does at once.
const BUSY: Duration = Duration::from_secs(10);

/// Limits of what a listener uses and says, as SECURITY.md has them.
pub struct Bounds {
    /// Time of a stranger.
    pub time: Duration,
    /// Places for strangers.
    pub places: usize,
    /// Threads for them, and those that the process's own work may start meanwhile.
    pub threads: usize,
    /// Bytes for them, and those that the process's own work may take meanwhile.
    pub bytes: u64,
    /// Returns an error if a stranger gets to know what it must not.
    pub reply: fn(&[u8]) -> Result<(), String>,
}

/// Descriptors that the process's own work may take meanwhile: hosts and ranks that come and go.
const OWN: usize = 48;

/// Attacks a listener of a process.
pub fn run(
    process: u32,
    place: &Place,
    behaviour: Behaviour,
    heard: &[Vec<u8>],
    bounds: &Bounds,
    random: &mut Random,
) -> Result<(), String> {
    let before = Usage::of(process).ok_or("it ended before the attack")?;
    let (mut most, mut made) = (before, 0);
    let open = if behaviour == Behaviour::Silent { CONNECTIONS } else { OPEN };
    while made < CONNECTIONS {
        let mut strangers = Vec::new();
        while strangers.len() < open.min(CONNECTIONS) && made < CONNECTIONS {
            let stranger = Stranger::new(place, behaviour, random, heard)?;
            made += 1;
            if behaviour != Behaviour::Brief {
                strangers.push(stranger);
            }
            if behaviour == Behaviour::Brief && made.is_multiple_of(OPEN) {
                most = most.max(Usage::of(process).ok_or("it ended during the attack")?);
            }
        }
        let rounds = if behaviour == Behaviour::Slow { 40 } else { 4 };
        for _ in 0..rounds {
            std::thread::sleep(Duration::from_millis(10));
            strangers.iter_mut().for_each(|s| s.say(1));
        }
        most = most.max(Usage::of(process).ok_or("it ended during the attack")?);
        if behaviour == Behaviour::Silent {
            await_closed(&mut strangers, bounds.time)?;
        }
        strangers.iter().try_for_each(|s| (bounds.reply)(&s.reply))?;
    }
    check(before, most, open.min(bounds.places), bounds)?;
    let is_released = |now: Usage| now.descriptors <= before.descriptors + OWN / 4 && now.threads <= before.threads + 8;
    // A process that has ended has released all.
    let released = await_some(bounds.time + BUSY, || Usage::of(process).is_none_or(is_released).then_some(()));
    released.ok_or_else(|| format!("not released: {before:?} before, {:?} now", Usage::of(process)))
}

/// Waits until the listener has closed all silent connections.
fn await_closed(strangers: &mut [Stranger], time: Duration) -> Result<(), String> {
    let began = Instant::now();
    let closed = await_some(time + BUSY, || {
        strangers.iter_mut().for_each(|s| s.say(0));
        strangers.iter().all(|s| s.is_closed).then_some(())
    });
    let open = strangers.iter().filter(|s| !s.is_closed).count();
    closed.ok_or_else(|| format!("{open} silent connections are open after {:?}, not {time:?}", began.elapsed()))
}

fn check(before: Usage, most: Usage, strangers: usize, bounds: &Bounds) -> Result<(), String> {
    let is_bounded = most.descriptors <= before.descriptors + strangers + OWN
        && most.threads <= before.threads + bounds.threads
        && most.resident <= before.resident + bounds.bytes;
    if is_bounded {
        return Ok(());
    }
    let (threads, mib) = (bounds.threads, bounds.bytes >> 20);
    Err(format!(
        "{before:?} before, {most:?} at most: more than {} descriptors, {threads} threads or {mib} MiB were added",
        strangers + OWN
    ))
}
