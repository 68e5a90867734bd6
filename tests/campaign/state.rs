//! Totals of the runs, which a file keeps from one call to the next.

use crate::campaign::Outcome;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{fmt, fs};

#[derive(Default)]
pub struct State {
    campaigns: BTreeMap<String, Totals>,
    pub failures: Vec<Failure>,
}

#[derive(Default)]
struct Totals {
    next: u64,
    rows: BTreeMap<String, Row>,
}

/// Runs of one kind.
#[derive(Default)]
pub struct Row {
    /// Number of runs by class of outcome.
    pub outcomes: BTreeMap<String, u64>,
    pub slowest: Duration,
    pub total: Duration,
}

/// A run with a wrong outcome.
pub struct Failure {
    pub campaign: String,
    pub kind: String,
    pub seed: u64,
    pub what: String,
}

/// Class of the outcomes that are wrong.
const WRONG: &str = "WRONG";

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { campaign, kind, seed, what } = self;
        write!(
            f,
            "WRONG {campaign}, {kind}: {what}\n  repeat: cargo test --test campaign -- {campaign} --seed {seed} --runs 1"
        )
    }
}

impl State {
    /// Reads the totals of earlier calls; none if there is no such file.
    pub fn read(path: &Path) -> Result<Self, String> {
        match fs::read(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(format!("{}: {e}", path.display())),
            Ok(bytes) => serde_json::from_slice(&bytes).ok().and_then(|json| Self::of(&json)).ok_or_else(|| {
                format!("{}: not the totals of a campaign; name another file, or remove it", path.display())
            }),
        }
    }

    /// Writes the totals to another file first: a call that is ended leaves the old ones or the new ones.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let told = |e: std::io::Error| format!("{}: {e}", path.display());
        let new = path.with_extension("new");
        fs::write(&new, format!("{:#}\n", self.json())).map_err(told)?;
        fs::rename(&new, path).map_err(told)
    }

    /// Returns the first seed that a campaign has not run.
    pub fn next(&self, campaign: &str) -> u64 {
        self.campaigns.get(campaign).map_or(0, |totals| totals.next)
    }

    pub fn add(&mut self, campaign: &str, seed: u64, kind: &str, took: Duration, outcome: &Outcome) {
        let totals = self.campaigns.entry(campaign.to_owned()).or_default();
        totals.next = totals.next.max(seed + 1);
        let row = totals.rows.entry(kind.to_owned()).or_default();
        *row.outcomes.entry(outcome.as_ref().map_or(WRONG, |class| class).to_owned()).or_default() += 1;
        row.slowest = row.slowest.max(took);
        row.total += took;
    }

    /// Returns the rows with the names of their campaigns.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &str, &Row)> {
        self.campaigns
            .iter()
            .flat_map(|(name, totals)| totals.rows.iter().map(move |(kind, row)| (name.as_str(), kind.as_str(), row)))
    }

    fn json(&self) -> Value {
        let row = |row: &Row| {
            let (slowest, total) = (row.slowest.as_nanos() as u64, row.total.as_nanos() as u64);
            json!({ "outcomes": row.outcomes, "slowest_ns": slowest, "total_ns": total })
        };
        let rows =
            |t: &Totals| t.rows.iter().map(|(kind, r)| (kind.clone(), row(r))).collect::<serde_json::Map<_, _>>();
        let campaigns = self.campaigns.iter().map(|(n, t)| (n.clone(), json!({ "next": t.next, "rows": rows(t) })));
        let failure = |f: &Failure| json!({ "campaign": f.campaign, "kind": f.kind, "seed": f.seed, "what": f.what });
        json!({
            "campaigns": campaigns.collect::<serde_json::Map<_, _>>(),
            "failures": self.failures.iter().map(failure).collect::<Vec<_>>(),
        })
    }

    fn of(json: &Value) -> Option<Self> {
        let text = |v: &Value, key: &str| v[key].as_str().map(str::to_owned);
        let time = |v: &Value, key: &str| v[key].as_u64().map(Duration::from_nanos);
        let row = |(kind, v): (&String, &Value)| {
            let outcomes = v["outcomes"].as_object()?.iter().map(|(class, n)| Some((class.clone(), n.as_u64()?)));
            let (slowest, total) = (time(v, "slowest_ns")?, time(v, "total_ns")?);
            Some((kind.clone(), Row { outcomes: outcomes.collect::<Option<_>>()?, slowest, total }))
        };
        let totals = |(name, v): (&String, &Value)| {
            let rows = v["rows"].as_object()?.iter().map(row).collect::<Option<_>>()?;
            Some((name.clone(), Totals { next: v["next"].as_u64()?, rows }))
        };
        let failure = |v: &Value| {
            let (campaign, kind) = (text(v, "campaign")?, text(v, "kind")?);
            Some(Failure { campaign, kind, seed: v["seed"].as_u64()?, what: text(v, "what")? })
        };
        Some(Self {
            campaigns: json["campaigns"].as_object()?.iter().map(totals).collect::<Option<_>>()?,
            failures: json["failures"].as_array()?.iter().map(failure).collect::<Option<_>>()?,
        })
    }
}
