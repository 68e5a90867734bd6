//! Tests ranks that meet, do not come, or are gone, as threads and as processes, and what the other ranks report.
#![cfg(all(feature = "cli", target_os = "linux"))]

use crate::children::{Child, Meeting};
use crate::tree;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};
use warpbell::args;
use warpbell::engine::{Engine, Grid, RunError};
use warpbell::shmem::World;
use warpbell::shmem::bootstrap;
use warpbell::shmem::calls::{Cmp, SignalOp};

const ONE: Grid = Grid { blocks: 1, threads: 1 };
/// Far longer than any step takes.
const LONG: Duration = Duration::from_secs(100);
const SECRET: &str = "the ranks of this test know it";
/// Environment variable with the role of a process of this test.
const ROLE: &str = "WARPBELL_TEST_ROLE";

#[test]
fn a_kernel_that_waits_ends_with_the_reason_that_it_was_stopped_for() {
    let worlds = World::local(2).unwrap();
    let (waits, gone) = (&worlds[0], "rank 1 is gone: connection closed");
    let engine = waits.engine();
    // Far longer than the test: only the reason can end the wait.
    engine.set_deadline(Duration::from_secs(600)).unwrap();
    // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
    let run = unsafe { engine.launch("wb_shmem_barrier", ONE, args!(waits)) }.unwrap();
    engine.stop_for(gone).unwrap();
    engine.stop_for("a later reason").unwrap();
    let error = run.finish_within(Duration::from_secs(60)).unwrap_err();
    assert_eq!(error.to_string(), format!("kernel `wb_shmem_barrier` was stopped: {gone}"));
    let RunError::Stopped { errors, .. } = error else { panic!("{error:?}") };
    assert_eq!(errors[0].to_string(), "barrier on PE 0, waiting for PE 1: stopped");

    // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
    let refused = unsafe { engine.launch("wb_shmem_barrier", ONE, args!(waits)) }.unwrap_err();
    assert_eq!(refused.to_string(), format!("this engine starts no more kernels: {gone}"));
    assert_eq!(engine.stopped_for(), Some(gone));
}

#[test]
fn a_barrier_that_nobody_else_comes_to_names_who_is_missing() {
    let worlds = World::local(3).unwrap();
    let engine = worlds[1].engine();
    engine.set_deadline(Duration::from_millis(20)).unwrap();
    // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
    let run = unsafe { engine.launch("wb_shmem_barrier", ONE, args!(&worlds[1])) }.unwrap();
    let error = run.finish().unwrap_err().to_string();
    assert!(error.contains("barrier on PE 1: PE "), "{error}");
    assert!(error.contains(" did not arrive within the deadline: timed out"), "{error}");
}

// --- processes -------------------------------------------------------------------------------------------------------

/// Writes one line of output, in one piece.
fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush()).unwrap();
}

/// Runs a rank. The tests start it as a process.
#[test]
#[ignore = "another test starts it as a process"]
fn a_rank() {
    let role = std::env::var(ROLE).expect("a role, which the test that starts it sets");
    let failed = match rank(&role) {
        Ok(()) => std::process::exit(0),
        Err(e) => e.to_string(),
    };
    say(&format!("failed: {failed}"));
    std::process::exit(1);
}

fn rank(role: &str) -> Result<(), Box<dyn std::error::Error>> {
    match role {
        "barrier" | "panic" => return barrier(role),
        "calls" => return calls(),
        "recover" => return recover(),
        _ => {}
    }
    let Some(ranks) = bootstrap::from_env()? else {
        say("alone");
        return Ok(());
    };
    let me = ranks.rank();
    match role {
        "meet" => {
            let all = ranks.allgather(format!("<{me}>").as_bytes(), LONG)?;
            say(&format!("all: {} via {}", String::from_utf8(all.concat())?, ranks.via()));
            ranks.leave();
        }
        // Two worlds, one after the other; this rank is slow to leave the first.
        "twice" => {
            ranks.barrier(LONG)?;
            std::thread::sleep(Duration::from_millis(50 * me as u64));
            ranks.leave();
            drop(ranks);
            let again = bootstrap::from_env()?.ok_or("no second world")?;
            again.barrier(LONG)?;
            again.leave();
            say("twice");
        }
        // The last rank does not come to the exchange.
        "wait" | "exit" => {
            ranks.on_loss(Box::new(|lost| say(&format!("heard: {lost}"))));
            ranks.barrier(LONG)?;
            if me + 1 == ranks.size() {
                say(&format!("pid {}", std::process::id()));
                if role == "exit" {
                    std::process::exit(0);
                }
                std::thread::sleep(LONG);
            }
            ranks.allgather(&[], LONG)?;
        }
        other => panic!("{other}"),
    }
    Ok(())
}

/// Waits in a kernel, on all ranks but the last.
fn barrier(role: &str) -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::cpu()?;
    engine.set_deadline(10 * LONG)?;
    let world = World::builder(&engine).heap_bytes(1 << 20).build()?;
    let grid = Grid { blocks: 1, threads: engine.grid(1, 1).threads };
    world.barrier_host()?;
    if world.my_pe() + 1 == world.n_pes() {
        say(&format!("pid {}", std::process::id()));
        if role == "panic" {
            // The process goes on, but its part of the world is gone.
            let thread = std::thread::spawn(move || {
                let _mine = world;
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(thread.join().is_err());
        }
        std::thread::sleep(LONG);
        return Ok(());
    }
    // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
    unsafe { engine.launch("wb_shmem_barrier", grid, args!(&world)) }?.finish()?;
    Ok(())
}

/// Makes puts, gets, atomics and a barrier between all PEs, on whatever data path.
fn calls() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::cpu()?;
    let world = World::builder(&engine).heap_bytes(4 << 20).build()?;
    let (me, n) = (world.my_pe(), world.n_pes());
    let (words, counter) = (world.malloc::<u64>(n * 1000)?, world.malloc::<u64>(1)?);
    let mine: Vec<u64> = (0..1000).map(|i| (me * 1000 + i) as u64).collect();
    for pe in 0..n {
        words.put(me * 1000, &mine, pe)?;
        world.atomic_add(&counter, 1 + me as u64, pe)?;
    }
    world.barrier_all()?;
    let expected: Vec<u64> = (0..n as u64 * 1000).collect();
    for pe in 0..n {
        assert_eq!(words.get(0, n * 1000, pe)?, expected, "PE {pe} as PE {me} sees it");
        assert_eq!(world.atomic_fetch(&counter, pe)?, (n * (n + 1) / 2) as u64);
    }
    say(&format!("{}", world.path()));
    Ok(())
}

/// Signals rank 0 from rank 1, while rank 0 waits in a kernel; fixes the failed connection, after which the call works.
fn recover() -> Result<(), Box<dyn std::error::Error>> {
    let engine = Engine::cpu()?;
    engine.set_deadline(10 * LONG)?;
    let world = World::builder(&engine).heap_bytes(4 << 20).build()?;
    let signal = world.calloc::<u64>(1)?;
    let step = |value: u64| match world.my_pe() {
        0 => world.signal_wait_until(&signal, Cmp::Ge, value),
        _ => world.signal_op(&signal, value, SignalOp::Set, 0),
    };
    say(&format!("lost: {}", step(1).expect_err("the first signal fails")));
    say(&format!("recovery: {}", world.recover()?));
    step(2)?;
    world.barrier_all()?;
    say("works again");
    Ok(())
}

/// Returns a command without the variables of any launcher around this test.
fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut c = Command::new(program);
    let launchers = ["WARPBELL_", "OMPI_", "PMI", "MPI_", "MV2_", "SLURM_", "RANK", "WORLD_SIZE"];
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name != warpbell::processors::VARIABLE && launchers.iter().any(|l| name.starts_with(l)) {
            c.env_remove(name);
        }
    }
    c
}

fn this_program() -> Command {
    let mut c = command(std::env::current_exe().unwrap());
    c.args(["--exact", "ranks::a_rank", "--ignored", "--nocapture"]);
    c
}

/// Starts a process of this test.
fn start(mut command: Command, role: &str) -> Child {
    command.env(ROLE, role);
    Child::start(command)
}

/// Starts a rank with the variables of a launcher.
fn by_hand(role: &str, rank: usize, size: usize, meeting: &Meeting, more: &[(&str, &str)]) -> Child {
    let mut c = this_program();
    c.env("OMPI_COMM_WORLD_RANK", rank.to_string()).env("OMPI_COMM_WORLD_SIZE", size.to_string());
    c.env("WARPBELL_STORE", meeting.store()).env("WARPBELL_SECRET", SECRET);
    c.env("WARPBELL_TIMEOUT", format!("{}s", LONG.as_secs())).envs(more.iter().copied());
    if rank == 0 {
        meeting.hand_to(&mut c);
    }
    start(c, role)
}

/// Starts the ranks under `warpbell run`.
fn under_run(role: &str, size: usize) -> Child {
    under_run_with(role, size, &[])
}

fn under_run_with(role: &str, size: usize, more: &[(&str, &str)]) -> Child {
    let mut c = command(tree::program());
    c.args(["run", "-n", &size.to_string(), "--"]).arg(std::env::current_exe().unwrap());
    c.args(["--exact", "ranks::a_rank", "--ignored", "--nocapture"]).envs(more.iter().copied());
    start(c, role)
}

/// Returns the process that a line `pid N` names.
#[track_caller]
fn said_pid(child: &mut Child) -> i32 {
    child.until(LONG, |line| line.split_once("pid ").and_then(|(_, pid)| pid.trim().parse().ok()))
}

fn kill(pid: i32) {
    // SAFETY: a system call with values; the process is one that this test started.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
}

/// Returns the exit code and the output on both streams.
#[track_caller]
fn finish(child: Child) -> (Option<i32>, String) {
    let (status, said) = child.finish(LONG);
    (status.code(), said)
}

#[track_caller]
fn mentions(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no `{word}` in:\n{text}");
    }
}

#[test]
fn processes_meet_at_the_store_of_rank_0() {
    let meeting = Meeting::new();
    // The first rank to come has to wait for rank 0.
    let ranks = [2, 1, 0].map(|rank| by_hand("meet", rank, 3, &meeting, &[]));
    for rank in ranks {
        let (code, text) = finish(rank);
        assert_eq!(code, Some(0), "{text}");
        mentions(&text, &[&format!("all: <0><1><2> via Open MPI, store {}", meeting.store())]);
    }
    mentions(&finish(by_hand("meet", 0, 1, &meeting, &[])).1, &["alone"]);
}

#[test]
fn processes_meet_under_run() {
    let (code, text) = finish(under_run("meet", 4));
    assert_eq!(code, Some(0), "{text}");
    for rank in 0..4 {
        mentions(&text, &[&format!("[{rank}] all: <0><1><2><3> via warpbell run, store 127.0.0.1:")]);
    }
    let (code, text) = finish(under_run("twice", 3));
    assert_eq!((code, text.matches("twice").count()), (Some(0), 3), "{text}");
}

#[test]
fn worlds_may_follow_each_other_at_the_store_of_rank_0() {
    let meeting = Meeting::new();
    let ranks: Vec<_> = (0..3).map(|rank| by_hand("twice", rank, 3, &meeting, &[])).collect();
    for rank in ranks {
        let (code, text) = finish(rank);
        assert_eq!(code, Some(0), "{text}");
    }
}

#[test]
fn a_wrong_secret_is_said_on_both_sides() {
    let meeting = Meeting::new();
    // Started first: it waits at the socket, so that rank 0 meets it long before it gives up.
    let one = by_hand("meet", 1, 2, &meeting, &[("WARPBELL_SECRET", "0123456789abcdef")]);
    let zero = by_hand("meet", 0, 2, &meeting, &[("WARPBELL_TIMEOUT", "4s")]);
    let (code, text) = finish(one);
    assert_eq!(code, Some(1));
    mentions(&text, &["rank 1 and the store at", &meeting.store(), "different secrets"]);
    let (code, text) = finish(zero);
    assert_eq!(code, Some(1));
    mentions(&text, &["waited 4s for rank 1", "127.0.0.1 (another secret)"]);
}

#[test]
fn what_is_missing_is_said_at_once() {
    let meeting = Meeting::new();
    let bare = || {
        let mut c = this_program();
        c.env("PMI_RANK", "0").env("PMI_SIZE", "2");
        c
    };
    let (_, text) = finish(start(bare(), "meet"));
    mentions(&text, &["failed: the ranks of PMI need a secret", "WARPBELL_SECRET"]);
    let mut with_secret = bare();
    with_secret.env("WARPBELL_SECRET", SECRET);
    let (_, text) = finish(start(with_secret, "meet"));
    mentions(&text, &["failed: PMI does not say where ranks meet", "WARPBELL_STORE=host:port"]);
    let (_, text) = finish(by_hand("meet", 2, 2, &meeting, &[]));
    mentions(&text, &["OMPI_COMM_WORLD_RANK is `2`"]);
}

#[test]
fn a_port_in_use_is_said_at_once() {
    let taken = Meeting::new();
    let mut zero = this_program();
    zero.env("WARPBELL_RANK", "0").env("WARPBELL_SIZE", "2");
    zero.env("WARPBELL_STORE", taken.store()).env("WARPBELL_SECRET", SECRET);
    let (code, text) = finish(start(zero, "meet"));
    assert_eq!(code, Some(1), "{text}");
    mentions(&text, &["rank 0 cannot listen at", &taken.store(), "in use", "WARPBELL_STORE"]);
}

#[test]
fn a_rank_that_is_missing_is_named_by_all() {
    let meeting = Meeting::new();
    let brief = [("WARPBELL_TIMEOUT", "3s")];
    let ranks = [0, 1].map(|rank| by_hand("meet", rank, 3, &meeting, &brief));
    for (me, rank) in ranks.into_iter().enumerate() {
        let (code, text) = finish(rank);
        assert_eq!(code, Some(1));
        // One may give up a moment before the other, which then hears of that.
        let waited = text.contains(&format!("rank {me} of 3 waited 3s for rank 2"));
        assert!(waited || text.contains("it gave up waiting for rank 2"), "{text}");
    }
}

#[test]
fn who_is_killed_while_others_wait_is_named() {
    let meeting = Meeting::new();
    let mut ranks: Vec<_> = (0..3).map(|rank| by_hand("wait", rank, 3, &meeting, &[])).collect();
    let mut victim = ranks.pop().unwrap();
    said_pid(&mut victim);
    let start = Instant::now();
    victim.kill();
    victim.finish(LONG);
    for rank in ranks {
        let (code, text) = finish(rank);
        assert_eq!(code, Some(1));
        mentions(&text, &["failed: rank 2 is gone: connection ", "heard: rank 2 is gone: connection "]);
        assert_eq!(text.matches("heard: rank 2").count(), 1, "{text}");
    }
    assert!(start.elapsed() < LONG, "they waited for their own limit");
}

#[test]
fn who_ends_without_leaving_is_named_under_run() {
    let (code, text) = finish(under_run("exit", 3));
    assert_eq!(code, Some(1), "{text}");
    for rank in 0..2 {
        mentions(&text, &[&format!("[{rank}] failed: rank 2 is gone: connection ")]);
    }
    mentions(&text, &["ended with exit code 1"]);
}

#[test]
fn who_is_killed_while_kernels_of_others_wait_is_named() {
    killed_in_a_barrier(&[]);
}

#[test]
fn who_is_killed_is_named_over_software_nics_too() {
    killed_in_a_barrier(&[("WARPBELL_TRANSPORT", "soft")]);
}

#[track_caller]
fn killed_in_a_barrier(more: &[(&str, &str)]) {
    let mut run = under_run_with("barrier", 3, more);
    kill(said_pid(&mut run));
    let (code, text) = finish(run);
    assert_eq!(code, Some(137), "{text}");
    for rank in 0..2 {
        let words = format!("[{rank}] failed: kernel `wb_shmem_barrier` was stopped: rank 2 is gone: connection ");
        // A rank that has not begun to wait yet hears of it before it starts.
        let before = format!("[{rank}] failed: this engine starts no more kernels: rank 2 is gone: connection ");
        assert!(text.contains(&words) || text.contains(&before), "{text}");
    }
    mentions(&text, &["error: rank 2 was ended by SIGKILL"]);
}

#[test]
fn a_world_that_ends_by_a_panic_is_lost_to_the_others() {
    let mut run = under_run("panic", 2);
    said_pid(&mut run);
    let line = run.until(LONG, |line| line.contains("rank 1 is gone").then(|| line.to_owned()));
    mentions(&line, &["[0] failed: "]);
    // The launcher ends the rank that goes on.
    let (code, text) = finish(run);
    assert_eq!(code, Some(1), "{text}");
}

#[test]
fn calls_work_over_software_nics() {
    let (code, text) = finish(under_run_with("calls", 4, &[("WARPBELL_TRANSPORT", "soft")]));
    assert_eq!(code, Some(0), "{text}");
    mentions(&text, &["[3] soft 4 PEs (", "atomics by adapter"]);
    let (code, text) = finish(under_run_with("calls", 3, &[]));
    assert_eq!(code, Some(0), "{text}");
    mentions(&text, &["[2] peer 3 PEs (shared memory), heap 4 MiB host, atomics native"]);
}

/// Tests a waiting rank that has no part in the failure, and hears of it through the store.
#[test]
fn a_waiting_rank_learns_of_a_failed_connection_and_recovers_it() {
    let meeting = Meeting::new();
    let one = |rank: usize| {
        let options = if rank == 1 { "fault=syndrome:0x15@nth:1+op:masked-swap+queue:0" } else { "" };
        by_hand("recover", rank, 2, &meeting, &[("WARPBELL_TRANSPORT", "soft"), ("WARPBELL_SOFT_NIC", options)])
    };
    let [(zero, waits), (one, signals)] = [0, 1].map(one).map(finish);
    assert_eq!((zero, one), (Some(0), Some(0)), "{waits}{signals}");
    let lost = "transport retry count exceeded (syndrome 0x15";
    mentions(&waits, &["lost: kernel `wb_shmem_signal_wait`: wait_until on PE 0, waiting for PE 1 (", lost]);
    mentions(
        &waits,
        &["PE 1 says: queue pair 0 to PE 0: ", "recovery: PE 1: 1 queue pair connected again (", "works again"],
    );
    mentions(
        &signals,
        &["lost: kernel `wb_shmem_signal`: ", "to PE 0", lost, "recovery: PE 0: 1 queue pair", "works again"],
    );
}

/// Tests ranks 0 and 1 on one host and rank 2 on another, as far as they know.
#[test]
fn ranks_of_two_hosts_meet_over_tcp() {
    let meeting = Meeting::new();
    let one = |rank: usize| {
        let host = if rank < 2 { "one" } else { "two" };
        by_hand("calls", rank, 3, &meeting, &[("WARPBELL_HOST_ID", host), ("WARPBELL_SOFT_NIC", "tcp")])
    };
    for rank in [0, 1, 2].map(one) {
        let (code, text) = finish(rank);
        assert_eq!(code, Some(0), "{text}");
        mentions(&text, &["soft between 2 hosts (", "tcp 127.0.0.1:", "3 PEs"]);
        mentions(&text, &["peer within hosts ("]);
    }
}

#[test]
fn a_transport_that_one_rank_lacks_is_said_by_all() {
    let (code, text) = finish(under_run_with("calls", 2, &[("WARPBELL_TRANSPORT", "carrier-pigeon")]));
    assert_eq!(code, Some(1), "{text}");
    mentions(&text, &["WARPBELL_TRANSPORT: `carrier-pigeon` is no transport"]);
    let meeting = Meeting::new();
    let one = |rank: usize| {
        let transport = if rank == 0 { "soft" } else { "peer" };
        by_hand("calls", rank, 2, &meeting, &[("WARPBELL_TRANSPORT", transport)])
    };
    for rank in [0, 1].map(one) {
        let (code, text) = finish(rank);
        assert_eq!(code, Some(1), "{text}");
        mentions(
            &text,
            &["the transport (WARPBELL_TRANSPORT) must be the same on all ranks: rank 0: soft; rank 1: peer"],
        );
    }
}
