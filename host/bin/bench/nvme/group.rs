//! Rows of the jobs of a job file, of which fio's `group_reporting` makes one for each group.

use super::Row;
use crate::job_file::FioJob;
use crate::workloads::nvme::{NvmeJob, NvmeRun};

/// A job that was measured.
pub struct Finished<'f> {
    pub fio: &'f FioJob,
    pub job: NvmeJob,
    pub device: String,
    pub in_flight: u64,
    /// All runs, in order; at least one.
    pub runs: Vec<NvmeRun>,
}

/// Returns the rows of jobs that ran at the same time: one for each job, or for all jobs of a group that reports as one. A
/// group's row has the parameters of its first job.
pub fn rows(jobs: &[Finished<'_>]) -> Vec<Row> {
    let is_one = |a: &Finished<'_>, b: &Finished<'_>| {
        a.fio.group == b.fio.group && a.fio.group_reporting && b.fio.group_reporting
    };
    jobs.chunk_by(is_one).filter_map(row).collect()
}

/// Returns the row of one job, or of a group.
fn row(jobs: &[Finished<'_>]) -> Option<Row> {
    let first = jobs.first()?;
    let runs = match jobs {
        [one] => one.runs.clone(),
        // A run in which a job failed is one of the others alone.
        all => {
            let most = all.iter().map(|job| job.runs.len()).max()?;
            let run = |n| all.iter().filter_map(|job| job.runs.get(n)).collect::<Vec<_>>();
            (0..most).filter_map(|n| NvmeRun::of_group(&run(n), &first.job.percentiles)).collect()
        }
    };
    let in_flight = jobs.iter().map(|job| job.in_flight).sum();
    Some(Row {
        name: Some(first.fio.name.clone()),
        group: Some(first.fio.group),
        jobs: if jobs.len() > 1 { jobs.iter().map(|job| job.fio.name.clone()).collect() } else { Vec::new() },
        device: Some(first.device.clone()),
        ..Row::of(&first.job, in_flight, runs)
    })
}
