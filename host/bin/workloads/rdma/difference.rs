//! Names what differs between the settings of the two sides.

use super::Initiator;
use super::setting::Setting;
use crate::workloads::error::{MeasureError, refuse};

/// Checks that the two sides have the same initiators.
///
/// # Errors
/// [`MeasureError::Refused`] with both.
pub(super) fn same_initiators(mine: &[Initiator], theirs: &[Initiator]) -> Result<(), MeasureError> {
    let words = |all: &[Initiator]| all.iter().map(|one| format!("initiator {one}")).collect::<Vec<_>>().join(", ");
    if mine == theirs { Ok(()) } else { differ(&words(mine), &words(theirs)) }
}

/// Checks that the two sides of one measurement have the same setting.
///
/// # Errors
/// [`MeasureError::Refused`] with what differs.
pub(super) fn same_setting(mine: &Setting, theirs: &Setting) -> Result<(), MeasureError> {
    let (here, there): (Vec<_>, Vec<_>) = facts(mine).into_iter().zip(facts(theirs)).filter(|(a, b)| a != b).unzip();
    if here.is_empty() { Ok(()) } else { differ(&here.join(", "), &there.join(", ")) }
}

/// Refuses two settings that differ in these words.
pub(super) fn differ(here: &str, there: &str) -> Result<(), MeasureError> {
    refuse!("the two sides have different settings: here {here}, there {there}; give both the same flags")
}

/// Returns all parameters of a setting in words.
fn facts(setting: &Setting) -> [String; 13] {
    let Setting {
        test,
        sizes,
        iterations,
        duration,
        queue_pairs,
        tx_depth,
        post_list,
        cq_mod,
        inline_bytes,
        bidirectional,
        no_peak,
        atomic,
        report_gbits,
    } = setting;
    let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let is = |on: &bool| if *on { "on" } else { "off" };
    [
        format!("test {test}"),
        format!("size {}", sizes.join(",")),
        format!("{iterations} iterations"),
        duration.map_or_else(|| "no duration".to_owned(), |d| format!("duration {d:?}")),
        format!("qp {queue_pairs}"),
        format!("tx-depth {tx_depth}"),
        format!("post-list {post_list}"),
        format!("cq-mod {cq_mod}"),
        format!("inline-size {inline_bytes}"),
        format!("bidirectional {}", is(bidirectional)),
        format!("no-peak {}", is(no_peak)),
        format!("atomic-type {atomic:?}"),
        format!("report-gbits {}", is(report_gbits)),
    ]
}
