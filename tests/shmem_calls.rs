//! Tests every call of a world against a model, at every scope, with every type, on several PEs; random programs of
//! calls; messages, waits, and failing calls. Kernels: `device/shmem_calls.cu`.
#![cfg(all(feature = "shmem", feature = "soft"))]

#[path = "device/compiled.rs"]
mod compiled;
#[path = "device/image.rs"]
mod image;
mod shmem {
    pub mod model;
    pub mod op;
    pub mod place;
    pub mod program;
    pub mod raw;
    mod window;
}
#[path = "common/tree.rs"]
mod tree;

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use shmem::op::{Cmp, Kind, OWN, Op, Scope, Type};
use shmem::place::{Place, between_processes, require_checks};
use shmem::program::Program;
use shmem::raw::Raw;
use std::time::Duration;
use warpbell::args;
use warpbell::engine::abi::NO_PE;
use warpbell::engine::{Engine, Image, Outcome, RunError};
use warpbell::memory::Place as Memory;
use warpbell::shmem::{Transport, World};

/// Transports between PEs: the machine's default, and the software adapter.
const WAYS: [Option<Transport>; 2] = [None, Some(Transport::Soft)];

fn drawn(random: &mut SmallRng) -> Raw {
    Raw {
        me: random.random(),
        kind: random.random(),
        ty: random.random(),
        scope: random.random(),
        pe: random.random(),
        to: random.random(),
        from: random.random(),
        n: random.random(),
        strides: random.random(),
        value: random.random(),
        how: random.random(),
        thread: random.random(),
    }
}

/// Returns a program in which each PE makes each call, at each scope that the call has, with each type that it takes.
/// Each call works on its own bytes until they run out, so that there are few barriers.
fn every_call(place: &Place, seed: u64) -> Program {
    const ARENA: usize = 1 << 18;
    const PART: u32 = 2048;
    let mut random = SmallRng::seed_from_u64(seed);
    let mut program = Program::new(place.pes(), ARENA, || random.random());
    let mut random = SmallRng::seed_from_u64(seed + 1);
    let mut parts = (0..).map(|i| i * PART % (ARENA as u32 - PART));
    for kind in 0..Kind::Fence as u8 + 1 {
        let scopes = if kind <= Kind::PutSignalNbi as u8 { 4 } else { 1 };
        for (ty, scope) in (0..12).flat_map(|ty| (0..scopes).map(move |s| (ty, s))) {
            for me in 0..place.pes() as u8 {
                let mut part = || parts.next().expect("they do not end") + random.random::<u32>() % 64;
                let (to, from) = (part(), part());
                let drawn = drawn(&mut random);
                let (pe, call) =
                    Raw { me, kind, ty, scope, to, from, n: drawn.n % 24, ..drawn }.call(place.limits(ARENA));
                program.push(pe, call);
            }
        }
    }
    program
}

#[test]
fn an_image_says_whether_its_calls_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("empty.cu"), folder.path().join("empty.so"));
    std::fs::write(&source, "#include <warpbell/kernel.h>\nWB_IMAGE(empty_image)\n").unwrap();
    let engine = |defines: &[&str]| {
        image::compile(source.to_str().unwrap(), 1, defines, &library);
        let library = folder.path().join(format!("{}.so", defines.len()));
        std::fs::rename(folder.path().join("empty.so"), &library).unwrap();
        let image = Image::new("empty").cpu(image::load(&library, c"empty_image"));
        Engine::builder().shipped(false).threads(1).image(image).cpu().unwrap()
    };
    let (checked, unchecked) = (engine(&["-DWB_CHECKED=1"]), engine(&[]));
    assert!(checked.is_checked() && checked.info().checked && require_checks(&checked, &library).is_ok());
    assert!(!unchecked.is_checked() && !unchecked.info().checked);
    let why = require_checks(&unchecked, &library).unwrap_err();
    for part in [library.to_str().unwrap(), "nvcc ", "-DWB_CHECKED=1", "tests/device/shmem_image.cu"] {
        assert!(why.contains(part), "no `{part}` in: {why}");
    }
}

#[test]
fn every_call_does_what_the_model_says() {
    for (n, width, warps) in [(1, 1, 1), (2, 1, 3), (2, 4, 2), (3, 4, 1), (4, 1, 1), (8, 1, 1)] {
        for way in WAYS {
            let place = Place::over(way, n, width, warps);
            if let Err(difference) = place.check(every_call(&place, n as u64)) {
                panic!("{n} PEs, {warps} warps of {width}, {way:?}: {difference}");
            }
        }
    }
}

#[test]
fn the_list_of_every_call_leaves_none_out() {
    // The image for GPUs does not have every type at every scope: that would take nvcc minutes.
    let place = Place::on_cpu(2, 1, 1);
    let program = every_call(&place, 5);
    let made: Vec<&Op> = program.calls[0].iter().collect();
    for kind in &Kind::ALL[..Kind::Fence as usize] {
        let types: std::collections::BTreeSet<_> =
            made.iter().filter(|o| o.kind() == *kind || o.kind() == kind.as_test()).map(|o| o.ty()).collect();
        let wanted = match kind {
            // Waits that no call would end become tests of the word.
            Kind::SignalWait | Kind::SignalWaitShadow => continue,
            Kind::Fetch | Kind::Set | Kind::Swap => 6,
            k if k.is_atomic() => 4,
            k if k.is_wait() => 8,
            Kind::Iput | Kind::Iget | Kind::P | Kind::G => 11,
            _ => 12,
        };
        assert!(types.len() >= wanted, "{kind:?} with {types:?}");
        let scopes =
            made.iter().filter(|o| o.kind() == *kind).map(|o| o.scope).collect::<std::collections::BTreeSet<_>>();
        assert!(!kind.is_block() || scopes.len() == Scope::ALL.len(), "{kind:?} at {scopes:?}");
    }
    assert!(made.iter().any(|o| o.ty() == Type::Odd) && made.iter().any(|o| o.kind() == Kind::Barrier));
}

fn raw() -> impl Strategy<Value = Raw> {
    let who = (any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>());
    let what = (any::<u16>(), any::<u16>(), any::<u8>(), any::<u8>(), any::<u64>(), any::<u8>(), any::<u8>());
    (who, what).prop_map(|((me, kind, ty, scope, pe), (to, from, n, strides, value, how, thread))| {
        // Few places, so that calls meet there; and small values, so that comparisons have both results.
        let value = if how & 2 == 0 { value } else { value % 4 };
        Raw { me, kind, ty, scope, pe, to: to.into(), from: from.into(), n, strides, value, how, thread }
    })
}

fn differs(place: &Place, seed: u64, calls: &[Raw]) -> Result<(), String> {
    const ARENA: usize = 1024;
    let mut random = SmallRng::seed_from_u64(seed);
    let mut program = Program::new(place.pes(), ARENA, || random.random::<u8>() % 4);
    for raw in calls {
        let (me, call) = raw.call(place.limits(ARENA));
        program.push(me, call);
    }
    place.check(program)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, max_shrink_iters: 40, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_end_as_the_oracle_says(
        n in prop::sample::select(vec![2usize, 3, 4, 8]),
        wide in any::<bool>(),
        way in prop::sample::select(WAYS.to_vec()),
        seed in any::<u64>(),
        calls in prop::collection::vec(raw(), 1..60),
    ) {
        let width = if wide && n < 8 { 4 } else { 1 };
        let place = Place::over(way, n, width, 1 + (seed % 2) as u32);
        if let Err(difference) = differs(&place, seed, &calls) {
            return Err(TestCaseError::fail(difference));
        }
    }
}

/// Tests on one GPU: kernels whose streams share a hardware queue never meet.
#[test]
fn kernels_of_new_worlds_run_at_the_same_time() {
    for seed in 0..8 {
        let place = Place::new(4, 1, 1);
        let program = Program::new(place.pes(), 64, || seed);
        place.check(program).unwrap_or_else(|e| panic!("world {seed}: {e}"));
    }
}

/// Number of random programs of ranks, the same on all ranks.
const DRAWN: u64 = 12;

/// Runs a rank. The next test starts it as a process.
#[test]
#[ignore = "another test starts it as a process"]
fn rank_of_a_world() {
    let place = Place::of_this_rank();
    place.check(every_call(&place, place.pes() as u64)).unwrap();
    for seed in 0..DRAWN {
        let mut random = SmallRng::seed_from_u64(seed);
        let calls: Vec<Raw> = (0..1 + seed * 5)
            .map(|_| {
                let raw = drawn(&mut random);
                Raw { to: raw.to % 256, from: raw.from % 256, value: raw.value % 4, ..raw }
            })
            .collect();
        differs(&place, seed, &calls).unwrap();
    }
    println!("rank {} of {}: as the model says", place.worlds[0].my_pe(), place.pes());
}

/// Compiles the image for ranks on a machine without a compiler, for `SHMEM_CALLS_LIBRARY` there. `tests/rig/run`
/// starts it as a process.
#[test]
#[ignore = "tests/rig/run starts it as a process"]
fn image_for_another_machine() {
    let library = std::env::var_os("SHMEM_CALLS_COMPILE").expect("SHMEM_CALLS_COMPILE names the library to write");
    shmem::place::compile_to(library.as_ref(), 1);
}

#[test]
fn processes_do_what_the_model_says() {
    do_what_the_model_says(&[(3, "auto"), (2, "soft")]);
}

#[test]
#[ignore = "takes minutes with the others like it: .ci/run soak"]
fn up_to_eight_processes_do_what_the_model_says() {
    let all = ["auto", "soft"].map(|transport| [2, 3, 4, 8].map(|n| (n, transport)));
    do_what_the_model_says(all.as_flattened());
}

/// Runs worlds of this many processes over these transports.
fn do_what_the_model_says(worlds: &[(usize, &str)]) {
    for &(n, transport) in worlds {
        let said = between_processes(n, "rank_of_a_world", transport);
        assert_eq!(said.matches("as the model says").count(), n, "{said}");
    }
}

/// Sends messages round the ring. Returns the number of wrong words.
fn messages(place: &Place, scope: Scope, n: usize, turns: u32) -> u64 {
    let wrong = place.on_all(|world| {
        let data = world.malloc::<u32>(2 * n).unwrap();
        let flags = world.malloc::<u64>(32).unwrap();
        let wrong = world.engine().allocate(Memory::Device, 8).unwrap();
        let args = args!(world, &data, &flags, n as u64, turns, scope as u32, &wrong);
        // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
        unsafe { world.engine().launch("calls_messages", place.grid, args) }.unwrap().finish().unwrap();
        // No PE frees memory that a neighbour may still write.
        world.barrier_all().unwrap();
        wrong.get::<u64>(0).unwrap()
    });
    wrong.into_iter().sum()
}

#[test]
fn data_is_there_when_its_signal_is() {
    for (n, width, warps, turns) in [(2, 1, 2, 700), (3, 1, 1, 700), (4, 4, 2, 70), (2, 32, 2, 14)] {
        for way in WAYS {
            let place = Place::over(way, n, width, warps);
            // A thread of the adapter moves messages, on the processors that the PEs run on.
            let turns = if way.is_some() { turns / 7 } else { turns };
            // The longest is aligned as the copy engine requires, and longer than its buffer.
            for scope in [Scope::Thread, Scope::Warp, Scope::Block] {
                for words in [1, 67, 4000] {
                    let turns = if words > 1000 { 1 + turns / 20 } else { turns };
                    let wrong = messages(&place, scope, words, turns);
                    assert_eq!(wrong, 0, "{n} PEs, {warps} of {width}, {way:?}, {scope:?}, {words}");
                }
            }
        }
    }
}

#[test]
fn signals_that_count_are_consumed_once_each_also_where_the_word_wraps() {
    for (n, turns) in [(1, 40), (2, 300), (3, 100)] {
        for (way, start) in
            WAYS.into_iter().flat_map(|way| [(way, 0), (way, u64::MAX - 20), (way, i64::MAX as u64 - 20)])
        {
            let place = Place::over(way, n, 1, 1);
            let wrong = place.on_all(|world| {
                let (data, flags) = (world.malloc::<u32>(8).unwrap(), world.malloc::<u64>(32).unwrap());
                flags.write(0, &[start; 32]).unwrap();
                let wrong = world.engine().allocate(Memory::Device, 8).unwrap();
                world.barrier_all().unwrap();
                let args = args!(world, &data, &flags, start, turns, &wrong);
                // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
                unsafe { world.engine().launch("calls_counted", place.grid, args) }.unwrap().finish().unwrap();
                world.barrier_all().unwrap();
                wrong.get::<u64>(0).unwrap()
            });
            assert_eq!(wrong, vec![0; n], "{n} PEs, {way:?}, from {start:#x}");
        }
    }
}

#[test]
fn puts_that_a_kernel_left_unfinished_reach_no_later_allocation() {
    const HALF: usize = 2 << 20;
    for way in WAYS {
        let place = Place::over(way, 2, 1, 1);
        for round in 0..8 {
            place.on_all(|world| {
                let halves = world.malloc::<u8>(2 * HALF).unwrap();
                halves.write(HALF, &vec![0x5a; HALF]).unwrap();
                world.barrier_host().unwrap();
                let offset = halves.offset();
                let args = args!(world, &halves, HALF as u64, 1 - world.my_pe() as u32);
                // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
                let run = unsafe { world.engine().launch("calls_unfinished", place.grid, args) };
                run.unwrap().finish().unwrap();
                if round % 2 == 0 {
                    drop(halves);
                } else {
                    world.free(halves).unwrap();
                }
                let zeroes = world.calloc::<u8>(2 * HALF).unwrap();
                assert_eq!(zeroes.offset(), offset);
                world.barrier_all().unwrap();
                assert!(zeroes.read(0, 2 * HALF).unwrap().iter().all(|b| *b == 0), "{way:?}, round {round}");
                world.barrier_host().unwrap();
            });
        }
    }
}

#[test]
fn what_others_write_is_collected_once_each() {
    const WORDS: usize = 40;
    for (n, some) in [(2, 0u32), (2, 1), (4, 0), (4, 1)] {
        let place = Place::over(WAYS[n / 4], n, 1, 1);
        let came = place.on_all(|world| {
            let words = world.malloc::<u32>(WORDS).unwrap();
            let status = world.engine().allocate(Memory::Device, 4 * WORDS).unwrap();
            let indices = world.engine().allocate(Memory::Device, 8 * WORDS).unwrap();
            let came = world.engine().allocate(Memory::Device, 8 * WORDS).unwrap();
            came.fill(0, 8 * WORDS, 0xff).unwrap();
            let args = args!(world, &words, WORDS as u64, some, &status, &indices, &came);
            // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
            unsafe { world.engine().launch("calls_collect", place.grid, args) }.unwrap().finish().unwrap();
            world.barrier_all().unwrap();
            came.get_slice::<u64>(0, WORDS).unwrap()
        });
        let mut first = came[0].clone();
        first.sort();
        assert_eq!(first, (0..WORDS as u64).collect::<Vec<_>>(), "{n} PEs, some {some}");
    }
}

#[test]
fn numbers_of_a_counter_are_drawn_once_each() {
    const NUMBERS: usize = 2000;
    for (n, width, warps, way) in
        [(2, 1, 2, WAYS[0]), (4, 1, 1, WAYS[0]), (3, 4, 1, WAYS[0]), (2, 1, 2, WAYS[1]), (3, 4, 1, WAYS[1])]
    {
        let place = Place::over(way, n, width, warps);
        place.on_all(|world| {
            let counter = world.malloc::<u32>(1).unwrap();
            let drawn = world.malloc::<u32>(NUMBERS).unwrap();
            let args = args!(world, &counter, &drawn, NUMBERS as u32);
            // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
            if let Err(e) = unsafe { world.engine().launch("calls_draw", place.grid, args) }.unwrap().finish() {
                panic!("{n} PEs, {warps} warps of {width}, {way:?}: {e}; connections: {:#?}", world.network_failures());
            }
            world.barrier_all().unwrap();
            if world.my_pe() == n - 1 {
                assert_eq!(drawn.read(0, NUMBERS).unwrap(), vec![1; NUMBERS]);
            }
            // Each thread of each PE drew one number beyond the last.
            let over = n as u32 * place.grid.threads;
            assert_eq!(counter.get(0, 1, 0).unwrap(), [NUMBERS as u32 + over]);
            world.barrier_host().unwrap();
        });
    }
}

/// Makes one call on the first PE of a world of two, which must fail. Returns its error.
fn failed(call: impl Fn(u64) -> Op + Sync, deadline: Duration, stop: bool) -> RunError {
    failed_in(&Place::new(2, 1, 1), call, deadline, stop)
}

/// Makes the call in a world of two.
fn failed_in(place: &Place, call: impl Fn(u64) -> Op + Sync, deadline: Duration, stop: bool) -> RunError {
    let errors = place.on_all(|world: &World| {
        let memory = world.malloc::<u64>(8).unwrap();
        if world.my_pe() != 0 {
            world.barrier_host().unwrap();
            return None;
        }
        let engine = world.engine();
        engine.set_deadline(deadline).unwrap();
        let ops = engine.allocate(Memory::Device, size_of::<Op>()).unwrap();
        ops.set(0, call(memory.offset() as u64)).unwrap();
        let own = engine.allocate(Memory::Device, 4096).unwrap();
        own.fill(0, 4096, 0).unwrap();
        let args = args!(world, &ops, 1u64, &own, &own);
        // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
        let run = unsafe { engine.launch("calls_run", place.grid, args) }.unwrap();
        if stop {
            run.stop().unwrap();
        }
        let error = run.finish_within(Duration::from_secs(60)).unwrap_err();
        world.barrier_host().unwrap();
        Some(error)
    });
    errors.into_iter().flatten().next().unwrap()
}

fn first(error: &RunError) -> (Outcome, String) {
    let RunError::Operations { errors, count, .. } = error else { panic!("{error:?}") };
    assert_eq!(*count, 1, "{error}");
    (errors[0].outcome, errors[0].to_string())
}

const LONG: Duration = Duration::from_secs(600);

const WAITS: [Kind; 9] = [
    Kind::Wait,
    Kind::WaitAll,
    Kind::WaitAny,
    Kind::WaitSome,
    Kind::WaitAllVector,
    Kind::WaitAnyVector,
    Kind::WaitSomeVector,
    Kind::SignalWait,
    Kind::SignalWaitShadow,
];

/// Returns a wait for a word that is not 0, or for 3 signals, in memory of zeroes.
fn nothing_but_zeroes(kind: Kind, at: u64) -> Op {
    let value = if kind == Kind::SignalWaitShadow { 3 } else { 0 };
    Op { value, to: at, from: OWN, sig: at, n: 4, ty: Type::U64 as u32, how: Cmp::Ne as u32, ..Op::new(kind) }
}

#[test]
fn waits_that_nobody_ends_time_out_and_say_where() {
    for kind in WAITS {
        for (pe, who) in [(NO_PE, ""), (1, ", waiting for PE 1"), (0, ", waiting for PE 0")] {
            let never = |at: u64| Op { pe, ..nothing_but_zeroes(kind, at) };
            let error = failed(never, Duration::from_millis(20), false);
            let (outcome, said) = first(&error);
            assert_eq!(outcome, Outcome::TimedOut, "{kind:?}");
            let bytes = if matches!(kind, Kind::Wait | Kind::SignalWait | Kind::SignalWaitShadow) { 8 } else { 32 };
            let text = format!("wait_until on PE 0{who} ({bytes} bytes at heap offset ");
            assert!(said.contains(&text) && said.ends_with(": timed out"), "{kind:?}: {said}");
        }
    }
}

#[test]
fn waits_end_when_the_run_is_stopped() {
    let error = failed(|at| Op { to: at, ty: Type::U32 as u32, value: 1, ..Op::new(Kind::Wait) }, LONG, true);
    assert_eq!(first(&error).0, Outcome::Stopped);
}

/// Returns a type that the call takes at every scope, also in the image for GPUs.
fn scalar(kind: Kind) -> Type {
    if kind.is_block() { Type::U32 } else { Type::U64 }
}

#[test]
fn waits_refuse_a_pe_that_is_not_there() {
    for (kind, pe) in WAITS.into_iter().flat_map(|kind| [(kind, 2), (kind, NO_PE - 1)]) {
        let (outcome, said) = first(&failed(|at| Op { pe, ..nothing_but_zeroes(kind, at) }, LONG, false));
        assert_eq!(outcome, Outcome::BadArgument, "{kind:?}: {said}");
        assert!(said.contains(&format!("waiting for PE {pe} (")), "{kind:?}: {said}");
    }
}

#[test]
fn every_call_refuses_a_pe_that_is_not_there() {
    for way in WAYS {
        let place = Place::over(way, 2, 1, 1);
        for (kind, pe) in Kind::ALL[..=Kind::FetchXor as usize].iter().flat_map(|kind| [(kind, 2), (kind, 1 << 30)]) {
            if matches!(kind, Kind::SignalFetch | Kind::SignalWait) || kind.counts() {
                continue;
            }
            let ty = scalar(*kind) as u32;
            let call = |at| Op { to: at, from: at, sig: at, n: 1, ty, pe, value: 3, how: 9, ..Op::new(*kind) };
            let error = failed_in(&place, call, LONG, false);
            let RunError::Operations { errors, .. } = &error else { panic!("{kind:?}: {error:?}") };
            let refused = errors.iter().all(|e| e.outcome == Outcome::BadArgument && e.device == pe);
            assert!(refused, "{kind:?} over {way:?}: {errors:?}");
        }
    }
}

#[test]
fn a_checked_call_refuses_what_is_not_symmetric_memory() {
    let past_the_heap = 1u64 << 40;
    for (what, call) in [
        ("outside", Op { to: past_the_heap, ..Op::new(Kind::P) }),
        ("outside", Op { from: past_the_heap, n: 8, ..Op::new(Kind::Get) }),
        ("outside", Op { to: past_the_heap, n: 8, ..Op::new(Kind::WaitAll) }),
        ("too many", Op { n: u64::MAX / 2, ..Op::new(Kind::PutNbi) }),
        ("too far", Op { n: 5, to_stride: i64::MAX / 4, ..Op::new(Kind::Iput) }),
        ("misaligned", Op { to: 4, ..Op::new(Kind::FetchAdd) }),
        ("misaligned", Op { to: 1, ..Op::new(Kind::Wait) }),
    ] {
        let error = failed(
            |at| Op { to: call.to + at, from: call.from + at, ty: scalar(call.kind()) as u32, ..call },
            LONG,
            false,
        );
        assert_eq!(first(&error).0, Outcome::BadArgument, "{what}: {call:?}");
    }
}
