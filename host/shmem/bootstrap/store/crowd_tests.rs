//! A store in a crowd of silent connections.

use super::Member;
use super::server::limits;
use super::tests::{LONG, members, store};
use crate::engine::abi::MAX_PES;
use crate::listener::testing::{Crowd, TestProcess, limit_descriptors, say, take_descriptors, wait_for_parent};
use crate::shmem::bootstrap::Bootstrap;

#[test]
fn a_whole_world_of_one_address_may_join_at_once() {
    let all = limits(1 << 20);
    assert!(all.of_one_source >= MAX_PES && all.all - all.reserved >= MAX_PES, "{all:?}");
    assert_eq!(limits(100).all, 50, "half of the descriptors");
}

/// Descriptors of the process below, and those that are left once it has opened files: fewer than strangers may have.
const FEW: u64 = 160;
const LEFT: usize = 30;

#[test]
#[ignore = "another test starts it as a process"]
fn child_store_with_few_descriptors() {
    limit_descriptors(FEW);
    let (_server, at) = store();
    say(&format!("store at {at}"));
    // A world has joined by then.
    wait_for_parent();
    let _taken = take_descriptors(LEFT);
    say("full");
    wait_for_parent();
}

#[test]
fn a_crowd_at_a_store_without_descriptors_keeps_no_known_rank_out() {
    let mut few = TestProcess::start("shmem::bootstrap::store::crowd_tests::child_store_with_few_descriptors", "");
    let at = few.line("store at ");
    let work = |members: &[Member]| {
        std::thread::scope(|s| {
            for member in members {
                s.spawn(|| {
                    let all = member.allgather(&[member.rank() as u8; 5000], LONG).unwrap();
                    assert_eq!(all, [vec![0; 5000], vec![1; 5000]]);
                });
            }
        });
    };
    let first = members(2, &at);
    few.go_on();
    few.line("full");
    Crowd::around(2..=4, at.parse().unwrap(), |crowd| {
        crowd.wait_for(3 * FEW as usize);
        work(&first);
        first.iter().for_each(Member::leave);
        // Another world from the same address.
        work(&members(2, &at));
    });
    few.go_on();
    few.pass();
}
