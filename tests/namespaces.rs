//! Tests worlds between two hosts, here two network namespaces with a virtual cable between them. Whatever happens to
//! the packets, the transferred data is correct, or a named failure comes in time.
//!
//! Needs root, and `ip` and `tc` of iproute2; elsewhere the tests print that they do not run.
//! `WARPBELL_REQUIRE_NAMESPACES` and `WARPBELL_REQUIRE_NETEM` make that an error.
#![cfg(all(feature = "shmem", feature = "soft", feature = "cpu-image"))]
#![cfg(all(feature = "cli", target_os = "linux"))]

mod children;
#[path = "namespaces/hosts.rs"]
mod hosts;
#[path = "namespaces/ranks.rs"]
mod ranks;
#[path = "common/tree.rs"]
mod tree;

use hosts::Hosts;
use ranks::{Rank, start, start_program};
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use warpbell::args;
use warpbell::engine::{Engine, Grid};
use warpbell::memory::Place;
use warpbell::shmem::World;

/// Tells a process of this program that it is a rank, and the longest wait of its kernels.
const DEADLINE: &str = "WARPBELL_TEST_DEADLINE";
/// Words sent to the other host in each turn.
const WORDS: usize = 32 << 10;
/// Far longer than any successful step takes.
const LONG: Duration = Duration::from_secs(120);
/// Time for which the network is gone when it comes back.
const SHORT: Duration = Duration::from_secs(3);
/// Longest wait of kernels when the network does not come back.
const BRIEF: Duration = Duration::from_secs(8);
/// Turns after which a transfer is in progress.
const UNDER_WAY: u64 = 3;

/// Lets one test run at a time: with the ranks of several, the processors of a small machine would be the bottleneck.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

// --- a rank ----------------------------------------------------------------------------------------------------------

/// Writes one line of output, in one piece.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush()).unwrap();
}

/// Runs a rank. The tests start it as a process.
#[test]
#[ignore = "another test starts it as a process"]
fn a_rank() {
    let deadline = std::env::var(DEADLINE).expect("a deadline, which the test that starts it sets");
    let ended = world(Duration::from_secs(deadline.parse().unwrap()));
    if let Err(e) = &ended {
        say(&format!("failed: {e}"));
    }
    std::process::exit(ended.unwrap_or(1));
}

/// Builds a world of both ranks and runs their turns. Returns the exit code of the process.
fn world(deadline: Duration) -> Result<i32, Box<dyn std::error::Error>> {
    let engine = Engine::cpu()?;
    engine.set_deadline(deadline)?;
    let world = World::builder(&engine).heap_bytes(16 << 20).build()?;
    say(&format!("path: {}", world.path()));
    let ended = turns(&world);
    // Printed at once: the world's end waits for a deferred close.
    say(&ended.as_ref().map_or_else(|e| format!("failed: {e}"), |()| "all turns were right".to_owned()));
    Ok(if ended.is_ok() { 0 } else { 1 })
}

/// Returns word `i` of a turn, as `pe` sends it. The first word is not 0 in the last turn.
fn word(pe: usize, turn: u64, i: usize, last: bool) -> u64 {
    if i == 0 {
        u64::from(last)
    } else {
        (turn << 32 | (i as u64) << 1 | pe as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// Puts words into the other rank's memory from kernels, turn after turn, and checks the received ones, until rank 0
/// reads a line.
fn turns(world: &World) -> Result<(), Box<dyn std::error::Error>> {
    let (engine, me) = (world.engine(), world.my_pe());
    let enough = Arc::new(AtomicBool::new(false));
    if me == 0 {
        let heard = enough.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().lock().read_line(&mut String::new());
            heard.store(true, Ordering::Relaxed);
        });
    }
    let (to, flag) = (world.malloc::<u64>(WORDS)?, world.calloc::<u64>(1)?);
    let values = engine.allocate(Place::Device, 8 * WORDS)?;
    let grid = Grid { blocks: 1, threads: engine.grid(1, 1).threads };
    world.barrier_all()?;
    for turn in 1.. {
        let last = enough.load(Ordering::Relaxed);
        let sent: Vec<u64> = (0..WORDS).map(|i| word(me, turn, i, last)).collect();
        values.set_slice(0, &sent)?;
        // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
        unsafe { engine.launch("wb_shmem_ring", grid, args!(world, &to, &values, WORDS as u64, &flag, turn)) }?
            .finish()?;
        let came = to.read(0, WORDS)?;
        let said_last = came[0] != 0;
        if let Some(i) = (0..WORDS).find(|&i| came[i] != word(1 - me, turn, i, said_last)) {
            return Err(format!("turn {turn}: word {i} is {:#x}", came[i]).into());
        }
        // The other side may write again only after this.
        // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
        unsafe { engine.launch("wb_shmem_barrier", grid, args!(world)) }?.finish()?;
        say(&format!("turn {turn}"));
        if last || said_last {
            break;
        }
    }
    world.barrier_host()?;
    Ok(())
}

// --- the tests -------------------------------------------------------------------------------------------------------

/// Starts two ranks of this program with this deadline of kernels, and waits until their transfers are in progress.
fn under_way(hosts: &Hosts, deadline: Duration) -> [Rank; 2] {
    let mut ranks = start(hosts, |command| {
        command
            .args(["--exact", "a_rank", "--ignored", "--nocapture", "--test-threads=1"])
            .env(DEADLINE, deadline.as_secs().to_string());
        // The adapter waits as long as the kernels; it reconnects a silent connection after two seconds.
        if deadline == LONG {
            command.env("WARPBELL_SOFT_NIC", "retry=90s");
        }
    });
    for rank in &mut ranks {
        let path = rank.until(LONG, |line| line.split_once("path: ").map(|(_, path)| path.to_owned()));
        assert!(path.contains("soft") && path.contains("tcp"), "{path}");
        go_on(rank, UNDER_WAY);
    }
    ranks
}

/// Waits for this many more turns.
#[track_caller]
fn go_on(rank: &mut Rank, turns: u64) {
    for _ in 0..turns {
        rank.until(LONG, |line| line.starts_with("turn ").then_some(()));
    }
}

/// Tells the ranks to stop. All received data was correct.
#[track_caller]
fn end_well(mut ranks: [Rank; 2]) {
    ranks[0].tell("enough");
    for rank in ranks {
        let (ended, text) = rank.finish(LONG);
        assert!(ended.success() && text.contains("all turns were right"), "{text}");
    }
}

/// Waits until each rank reports, within its own deadline, what it waited for. That is the other side, or words of its
/// own memory that the other was to change.
#[track_caller]
fn fail(ranks: [Rank; 2]) -> [Rank; 2] {
    let started = Instant::now();
    let mut me = 0;
    ranks.map(|mut rank| {
        let failed = rank.until(LONG, |line| line.split_once("failed: ").map(|(_, why)| why.to_owned()));
        println!("rank {me} after {:.1?}: {failed}", started.elapsed());
        assert!(failed.contains("PE ") || failed.contains("rank "), "{failed}");
        me += 1;
        rank
    })
}

#[test]
fn kernels_of_two_hosts_put_into_each_others_memory() {
    let _alone = alone();
    let Some(hosts) = Hosts::joined() else { return };
    let mut ranks = under_way(&hosts, LONG);
    go_on(&mut ranks[1], 10);
    end_well(ranks);
}

#[test]
fn a_transfer_goes_on_when_the_cable_is_plugged_in_again() {
    let _alone = alone();
    let Some(hosts) = Hosts::joined() else { return };
    let mut ranks = under_way(&hosts, LONG);
    hosts.pull();
    std::thread::sleep(SHORT);
    hosts.plug();
    ranks.iter_mut().for_each(|rank| go_on(rank, 2 * UNDER_WAY));
    end_well(ranks);
}

#[test]
#[ignore = "takes minutes with the others like it: .ci/run soak"]
fn a_pulled_cable_is_a_named_failure() {
    let _alone = alone();
    let Some(hosts) = Hosts::joined() else { return };
    let ranks = under_way(&hosts, BRIEF);
    hosts.pull();
    // The ranks end by themselves, as soon as nothing was heard of the other for half a minute.
    for rank in fail(ranks) {
        let (ended, text) = rank.finish(LONG);
        assert!(!ended.success(), "{text}");
    }
}

#[test]
fn a_killed_rank_is_named_by_the_other_host() {
    let _alone = alone();
    let Some(hosts) = Hosts::joined() else { return };
    let [zero, mut one] = under_way(&hosts, LONG);
    one.kill();
    let (ended, text) = zero.finish(LONG);
    let failed = text.lines().find(|l| l.contains("failed: ")).unwrap_or_else(|| panic!("no failure:\n{text}"));
    assert!(!ended.success() && (failed.contains("rank 1") || failed.contains("PE 1")), "{failed}");
}

#[test]
fn late_lost_doubled_and_overtaken_packets_change_nothing() {
    let _alone = alone();
    let Some(hosts) = Hosts::joined() else { return };
    if !hosts.treat("delay 5ms 4ms loss 3% duplicate 2% reorder 10%") {
        return;
    }
    let mut ranks = under_way(&hosts, LONG);
    go_on(&mut ranks[1], UNDER_WAY);
    assert!(hosts.dropped() > 0, "no packet was lost");
    end_well(ranks);
}

#[test]
fn a_transfer_goes_on_after_a_time_in_which_every_packet_was_lost() {
    let _alone = alone();
    let Some(hosts) = Hosts::joined() else { return };
    if !hosts.treat("delay 1ms") {
        return;
    }
    let mut ranks = under_way(&hosts, LONG);
    assert!(hosts.treat("loss 100%"));
    std::thread::sleep(SHORT);
    assert!(hosts.dropped() > 0, "no packet was lost");
    assert!(hosts.treat("delay 1ms"));
    ranks.iter_mut().for_each(|rank| go_on(rank, 2 * UNDER_WAY));
    end_well(ranks);
}

#[test]
fn a_network_that_loses_everything_is_a_named_failure() {
    let _alone = alone();
    let Some(hosts) = Hosts::joined() else { return };
    if !hosts.treat("delay 1ms") {
        return;
    }
    let ranks = under_way(&hosts, BRIEF);
    assert!(hosts.treat("loss 100%"));
    fail(ranks);
}

#[test]
fn benchmarks_between_two_hosts_find_nothing_wrong() {
    let _alone = alone();
    let Some(hosts) = Hosts::joined() else { return };
    const SIZES: [&str; 6] = ["-b", "8", "-e", "8k", "-f", "32"];
    for (test, options) in [
        ("put_bw", &SIZES[..]),
        ("get_bw", &SIZES),
        ("p_ping_pong", &[]),
        ("atomic_rate", &["--window", "4k"]),
        ("barrier", &[]),
        ("reduce", &SIZES),
    ] {
        let ranks = start_program(&hosts, &tree::program(), |command| {
            command.args([
                "bench",
                "shmem",
                test,
                "--engine",
                "cpu",
                "-n",
                "20",
                "-w",
                "2",
                "--runs",
                "1",
                "--deadline",
                "60s",
            ]);
            command.args(options);
        });
        let mut text = String::new();
        for rank in ranks {
            let (ended, said) = rank.finish(LONG);
            assert!(ended.success(), "{test}: {said}");
            text += &said;
        }
        println!("{text}");
        let rows: Vec<&str> =
            text.lines().filter(|l| l.trim_start().starts_with(|c: char| c.is_ascii_digit())).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| row.split_whitespace().next_back() == Some("0")), "{text}");
        assert!(text.contains("soft"), "{text}");
    }
}
