//! A man in the middle of connections: the ends get right data, or an error that says what is wrong.

use super::nics::{self, Ended};
use super::targets::{BUSY, Exported, is_verified};
use crate::campaign::Outcome;
use crate::family::{Family, start_world};
use crate::middle::{Middle, Plan, Spoil};
use crate::program::run as run_command;
use crate::random::Random;

/// Two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// Rank and store: encrypted.
    Store,
    /// Two software NICs over TCP: encrypted.
    Nics,
    /// Host and target of NVMe/TCP with digests.
    Digests,
    /// As before, without digests. TCP alone finds no change, and XXH3 of stored graphs finds those of what it covers.
    NoDigests,
}

impl Connection {
    pub const ALL: [Self; 4] = [Self::Store, Self::Nics, Self::Digests, Self::NoDigests];

    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "rank to store",
            Self::Nics => "NIC to NIC",
            Self::Digests => "NVMe/TCP with digests",
            Self::NoDigests => "NVMe/TCP without digests",
        }
    }
}

pub fn run(connection: Connection, spoil: Spoil, random: &mut Random) -> Outcome {
    let plan = Plan { spoil, once_in: 1 + random.below(20), after: random.below(30), most: 1 + random.below(4) as u32 };
    match connection {
        Connection::Store => store(plan, random),
        Connection::Nics => adapters(plan, random),
        Connection::Digests => target(plan, true, random),
        Connection::NoDigests => target(plan, false, random),
    }
}

fn store(plan: Plan, random: &mut Random) -> Outcome {
    let family = Family::new();
    let middle = Middle::new(random.next(), Some(plan));
    let command = |_| {
        let work = ["bench", "shmem", "put_bw", "-e", "4k", "-f", "64", "-n", "20", "--runs", "1", "--engine", "cpu"];
        let mut command = family.command(work.into_iter().chain(["--threads", "1", "--deadline", "8s"]));
        command.env("WARPBELL_TIMEOUT", "8s");
        command
    };
    let ranks = start_world(2, Some((1, &middle)), command)?;
    let ends = ranks.into_iter().map(|rank| rank.end(BUSY)).collect::<Result<Vec<_>, _>>()?;
    let all = || format!("{plan:?}\n{}", ends.iter().map(|e| e.text()).collect::<Vec<_>>().join("\n"));
    if let Some(what) = ends.iter().find_map(|e| e.disorder()) {
        return Err(format!("{what}\nof\n{}", all()));
    }
    family.check_left(false)?;
    if ends.iter().all(|e| e.status.success()) {
        let rows = ends[0].out.lines().filter(|l| !l.starts_with('#'));
        return if rows.clone().count() > 1 && rows.into_iter().all(|l| l.ends_with(" 0")) {
            Ok("verified")
        } else {
            Err(all())
        };
    }
    if middle.spoiled() == 0 || plan.spoil == Spoil::Delay { Err(all()) } else { Ok("refused") }
}

fn adapters(plan: Plan, random: &mut Random) -> Outcome {
    let is_other = random.once_in(6);
    let Ended { spoiled, error, .. } =
        nics::world(random.next(), Some(plan), nics::keys(is_other), 1 + random.below(6))?;
    match error {
        Some(_) if is_other => Ok("other key refused"),
        None if is_other => Err("an adapter with another key worked".to_owned()),
        None => Ok("verified"),
        // A connection that ends is made again.
        Some(e) if spoiled == 0 || plan.spoil == Spoil::Delay => Err(format!("{plan:?}, {spoiled} spoiled: {e}")),
        Some(_) => Ok("refused"),
    }
}

fn target(plan: Plan, has_digests: bool, random: &mut Random) -> Outcome {
    let family = Family::new();
    let exported = Exported::start(&family, false)?;
    // The connections are made within few segments; most of the others are data.
    let plan = Plan { after: random.below(120), ..plan };
    let middle = Middle::new(random.next(), Some(plan));
    middle.lead_to(exported.at);
    let digests = if has_digests { ",hdr_digest,data_digest" } else { "" };
    let options = format!("{digests},reconnect-delay=100ms,ctrl-loss-tmo=3s,keep-alive=1s");
    let ended = run_command(&mut exported.search(&family, middle.at, &options), BUSY);
    // A good host on its own way is exported all the same.
    let after = run_command(&mut exported.search(&family, exported.at, digests), BUSY)?;
    let spoiled = middle.spoiled();
    drop(middle);
    exported.end()?;
    let ended = ended.map_err(|e| format!("{plan:?}: {e}"))?;
    family.check_left(false)?;
    if let Some(what) = ended.disorder() {
        return Err(format!("{plan:?}: {what}"));
    }
    if !is_verified(&after) {
        return Err(format!("{plan:?}: a host after it: {}\n{}", after.status, after.text()));
    }
    let is_wrong = ended.err.contains("verif");
    match (ended.status.success(), is_wrong) {
        (true, _) if is_verified(&ended) => Ok("verified"),
        (false, true)
            if !has_digests && matches!(plan.spoil, Spoil::Flip | Spoil::Drop | Spoil::Repeat | Spoil::Swap) =>
        {
            Ok("wrong data found by --verify")
        }
        (false, false) if spoiled > 0 && plan.spoil != Spoil::Delay => Ok("refused"),
        _ => Err(format!("{plan:?}, {spoiled} spoiled: {}\n{}", ended.status, ended.text())),
    }
}
