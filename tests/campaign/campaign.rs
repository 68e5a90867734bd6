//! Campaigns and outcomes of their runs.

use std::panic::{self, AssertUnwindSafe};

/// Random runs, each determined by its seed. Several threads run different seeds at the same time.
pub trait Campaign: Sync {
    /// Returns what the run does to the product, such as a kind of fault: its row of the table.
    fn kind(&self, seed: u64) -> String;

    /// Makes one run. Returns a class of right outcomes, such as `verified` or `refused`.
    ///
    /// # Errors
    /// What was wrong, with all that is needed to understand it.
    fn run(&self, seed: u64) -> Outcome;
}

/// Class of a right outcome, or a description of a wrong one.
pub type Outcome = Result<&'static str, String>;

/// Makes one run, and turns a panic into a wrong outcome.
pub fn attempt(campaign: &dyn Campaign, seed: u64) -> (String, Outcome) {
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| campaign.run(seed))).unwrap_or_else(|cause| {
        let text = cause.downcast_ref::<String>().cloned();
        let text = text.or_else(|| cause.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(text.unwrap_or_else(|| "a panic without a message".to_owned()))
    });
    (campaign.kind(seed), outcome)
}
