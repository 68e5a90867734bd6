//! The table of runs.

use crate::state::State;
use std::fmt::Write;
use warpbell::units::grouped;

/// Returns a line for each campaign and kind: runs, outcomes, and the time of the slowest run.
pub fn text(state: &State) -> String {
    let lines: Vec<[String; 5]> = state
        .rows()
        .map(|(campaign, kind, row)| {
            let runs: u64 = row.outcomes.values().sum();
            let outcomes: Vec<_> = row.outcomes.iter().map(|(class, n)| format!("{class} {}", grouped(n))).collect();
            let slowest = format!("{:.3} s", row.slowest.as_secs_f64());
            [campaign.to_owned(), kind.to_owned(), grouped(runs), slowest, outcomes.join(", ")]
        })
        .collect();
    let heads = ["campaign", "kind", "runs", "slowest", "outcomes"];
    let width = |column: usize| lines.iter().map(|l| l[column].len()).chain([heads[column].len()]).max().unwrap_or(0);
    let widths: [usize; 4] = std::array::from_fn(width);
    let mut text = String::new();
    for line in [&heads.map(str::to_owned)].into_iter().chain(&lines) {
        let [campaign, kind, runs, slowest, outcomes] = line;
        let [c, k, r, s] = widths;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{campaign:c$}  {kind:k$}  {runs:>r$}  {slowest:>s$}  {outcomes}");
    }
    let runs: u64 = state.rows().flat_map(|(.., row)| row.outcomes.values()).sum();
    let hours = state.rows().map(|(.., row)| row.total).sum::<std::time::Duration>().as_secs_f64() / 3600.0;
    let _ = writeln!(text, "campaign: {} runs in {hours:.2} h of runs, {} wrong", grouped(runs), state.failures.len());
    text
}
