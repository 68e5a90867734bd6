//! Compares what the two sides are about to measure: both go through the same points in the same order.

use super::difference::{differ, same_initiators, same_setting};
use super::endpoint::{exchange, other_side};
use super::setting::Setting;
use super::{Initiator, LIMIT, Side, kernel};
use crate::workloads::error::MeasureError;
use serde::{Deserialize, Serialize};
use warpbell::units::counted;

/// Measurements of one side, in their order.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Plan {
    points: Vec<Setting>,
    /// Initiators of each point.
    initiators: Vec<Initiator>,
}

/// Checks that this side can run all points, and that the other side measures the same ones. The other side must call
/// this function at the same time.
///
/// # Errors
/// * [`MeasureError::Refused`] if a point cannot be measured, or the two sides measure different points.
/// * [`MeasureError::Engine`] if this side's engine cannot run a kernel for each queue pair of a point.
/// * [`MeasureError::Failed`] if the other side cannot run its points.
/// * [`MeasureError::Bootstrap`] if the exchange with the other side fails.
pub fn agree(side: &Side<'_>, points: &[Setting], initiators: &[Initiator]) -> Result<(), MeasureError> {
    let mine = points.iter().try_for_each(|point| can_run(side, point, initiators));
    let plan = Plan { points: points.to_vec(), initiators: initiators.to_vec() };
    let told = mine.as_ref().map_err(ToString::to_string).map(|()| plan.clone());
    let all: Vec<Result<Plan, String>> = exchange(side, LIMIT, &told)?;
    mine?;
    let other = 1 - side.ranks.rank();
    match all.into_iter().nth(other) {
        Some(Ok(theirs)) => same(&plan, &theirs),
        Some(Err(reason)) => Err(other_side(other, reason)),
        None => Err(other_side(other, "it sent no message")),
    }
}

fn can_run(side: &Side<'_>, point: &Setting, initiators: &[Initiator]) -> Result<(), MeasureError> {
    point.check()?;
    if initiators.contains(&Initiator::Kernel) {
        let (kernel, grid) = kernel::launch_of(point, side.engine.warp_width());
        side.engine.check_grid(kernel, grid)?;
    }
    Ok(())
}

fn same(mine: &Plan, theirs: &Plan) -> Result<(), MeasureError> {
    same_initiators(&mine.initiators, &theirs.initiators)?;
    mine.points.iter().zip(&theirs.points).try_for_each(|(mine, theirs)| same_setting(mine, theirs))?;
    match (mine.points.len(), theirs.points.len()) {
        (here, there) if here != there => differ(&combinations(here), &combinations(there)),
        _ => Ok(()),
    }
}

fn combinations(n: usize) -> String {
    counted(n, "combination of settings", "combinations of settings")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(points: &[(u32, u32)], initiators: &[Initiator]) -> Plan {
        let point = |&(queue_pairs, post_list): &(u32, u32)| {
            Setting { queue_pairs, post_list, ..Setting::new("write_bw".parse().unwrap()) }.with_defaults()
        };
        Plan { points: points.iter().map(point).collect(), initiators: initiators.to_vec() }
    }

    #[test]
    fn what_differs_is_named_on_both_sides() {
        let both = [Initiator::Kernel, Initiator::Host];
        let mine = plan(&[(1, 1), (1, 4), (2, 1)], &both);
        assert!(same(&mine, &mine).is_ok());
        for (theirs, said) in [
            (plan(&[(1, 1), (1, 8), (2, 1)], &both), "here post-list 4, cq-mod 4, there post-list 8, cq-mod 8;"),
            (plan(&[(1, 1), (2, 4)], &both), "here qp 1, there qp 2;"),
            (plan(&[(1, 1), (1, 4)], &both), "here 3 combinations of settings, there 2 combinations"),
            (plan(&[(1, 1)], &[Initiator::Host]), "here initiator kernel, initiator host, there initiator host;"),
        ] {
            let refused = same(&mine, &theirs).unwrap_err().to_string();
            assert!(refused.contains(said) && refused.ends_with("give both the same flags"), "{refused}");
        }
    }
}
