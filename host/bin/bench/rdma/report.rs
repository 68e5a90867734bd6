//! Results of `bench rdma`: a table for each point and initiator.

use super::points::Points;
use crate::args::RdmaArgs;
use crate::output::{self, Failure};
use crate::rows::Rows;
use crate::workloads::rdma::{Initiator, Row, Setting};
use crate::workloads::report::{Report, nanoseconds};
use serde::Serialize;
use serde_json::{Value, json};
use warpbell::engine::Engine;

/// Values of a point, of the options that take lists.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Job {
    queue_pairs: u32,
    tx_depth: u32,
    post_list: u32,
    cq_mod: u32,
    inline_bytes: u64,
}

impl Job {
    /// Returns the values of a setting.
    pub fn of(setting: &Setting) -> Self {
        let Setting { queue_pairs, tx_depth, post_list, cq_mod, inline_bytes, .. } = *setting;
        Self { queue_pairs, tx_depth, post_list, cq_mod, inline_bytes }
    }
}

/// Results of one initiator at one point.
#[derive(Debug, Serialize)]
pub struct Table {
    pub initiator: Initiator,
    pub job: Job,
    /// Data path of the adapter.
    pub path: Value,
    /// A row for each size.
    pub rows: Vec<Row>,
}

/// Row of a table, as a row of `--csv`.
#[derive(Serialize)]
struct Line<'a> {
    initiator: Initiator,
    job: Job,
    #[serde(flatten)]
    row: &'a Row,
}

impl Table {
    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.rows.iter().map(|row| Line { initiator: self.initiator, job: self.job, row })
    }

    /// Returns the numbers of messages that were verified, and of those with wrong data.
    pub fn count(&self) -> (u64, u64) {
        self.rows.iter().fold((0, 0), |(verified, wrong), row| (verified + row.verified, wrong + row.wrong))
    }
}

/// Writes the rows and the JSON report, unless there are no rows.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, and [`Failure::Error`] if a file cannot be written.
pub fn write(args: &RdmaArgs, points: &Points, engine: &Engine, tables: &[Table]) -> Result<(), Failure> {
    // A failure may have ended a table before its first row.
    let tables: Vec<&Table> = tables.iter().filter(|table| !table.rows.is_empty()).collect();
    if tables.is_empty() {
        return Ok(());
    }
    if let Some(to) = &args.output.csv {
        output::write_rows(&Rows::of(tables.iter().flat_map(|table| table.lines()))?, to)?;
    }
    if let Some(path) = &args.output.report.json {
        let config = json!({
            "setting": points.common()?,
            "swept": points.swept(),
            "deadline_ns": nanoseconds(args.engine.deadline),
        });
        output::write_json("bench rdma", &Report::new(config, engine, None, tables), path)?;
    }
    Ok(())
}

/// Checks that no message arrived with wrong data.
///
/// # Errors
/// [`Failure::Error`] with the number of messages with wrong data.
pub fn checked(tables: &[Table]) -> Result<(), Failure> {
    let wrong: u64 = tables.iter().map(|table| table.count().1).sum();
    if wrong > 0 {
        return Err(Failure::Error(format!("{wrong} messages arrived with wrong data: see the lines with `wrong`")));
    }
    Ok(())
}
