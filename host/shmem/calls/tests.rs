//! Tests of every host call against a model, on worlds of CPU threads.

use super::*;
use crate::engine::{RunError, abi};
use crate::memory::Place;
use crate::shmem::testing::on_all;
use crate::shmem::{ShmemError, Sym, Team, World};
use std::fmt::Debug;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// A type with reproducible values, for the data of each member at each index.
trait Value: Reducible + Debug + PartialEq {
    fn of(seed: u64) -> Self;
}

fn mix(seed: u64) -> u64 {
    let x = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

macro_rules! values {
    ($($t:ty),*) => {$(impl Value for $t {
        fn of(seed: u64) -> Self {
            mix(seed) as $t
        }
    })*};
}
values!(u8, u16, u32, u64, i8, i16, i32, i64);

impl Value for f32 {
    fn of(seed: u64) -> Self {
        f64::of(seed) as f32
    }
}
impl Value for f64 {
    fn of(seed: u64) -> Self {
        (mix(seed) % 2_000_003) as f64 / (1 + mix(seed + 1) % 97) as f64 - 5000.0
    }
}

fn given<T: Value>(member: usize, n: usize) -> Vec<T> {
    (0..n).map(|i| T::of((member * 7919 + i) as u64)).collect()
}

/// Reduces on every PE, in place or not, and compares the result with `fold` over the members' values in order.
fn check_reduce<T: Value, R: Reduction<T> + Copy>(team: &Team, how: R, n: usize, fold: impl Fn(T, T) -> T) {
    let world = team.world();
    let (dest, source) = (world.malloc::<T>(n).unwrap(), world.malloc::<T>(n).unwrap());
    let mut expected = given::<T>(0, n);
    for m in 1..team.n_pes() {
        expected = expected.into_iter().zip(given::<T>(m, n)).map(|(a, b)| fold(a, b)).collect();
    }
    source.write(0, &given(team.my_pe(), n)).unwrap();
    team.reduce(how, &dest, &source).unwrap();
    assert_eq!(dest.read(0, n).unwrap(), expected, "{}", how.kernel());
    team.reduce(how, &source, &source).unwrap();
    assert_eq!(source.read(0, n).unwrap(), expected, "{} in place", how.kernel());
}

macro_rules! every_integer {
    ($team:expr, $n:expr, $($t:ty),*) => {$(
        check_reduce::<$t, _>($team, Sum, $n, <$t>::wrapping_add);
        check_reduce::<$t, _>($team, Prod, $n, <$t>::wrapping_mul);
        check_reduce::<$t, _>($team, Min, $n, |a, b| a.min(b));
        check_reduce::<$t, _>($team, Max, $n, |a, b| a.max(b));
        check_reduce::<$t, _>($team, And, $n, |a, b| a & b);
        check_reduce::<$t, _>($team, Or, $n, |a, b| a | b);
        check_reduce::<$t, _>($team, Xor, $n, |a, b| a ^ b);
    )*};
}

macro_rules! every_float {
    ($team:expr, $n:expr, $($t:ty),*) => {$(
        check_reduce::<$t, _>($team, Sum, $n, |a, b| a + b);
        check_reduce::<$t, _>($team, Prod, $n, |a, b| a * b);
        check_reduce::<$t, _>($team, Min, $n, |a, b| if b < a { b } else { a });
        check_reduce::<$t, _>($team, Max, $n, |a, b| if a < b { b } else { a });
    )*};
}

#[test]
fn reductions_of_every_type() {
    on_all(3, |world| {
        let team = world.team_world();
        for n in [1, 77] {
            every_integer!(&team, n, u8, u16, u32, u64, i8, i16, i32, i64);
            every_float!(&team, n, f32, f64);
        }
    });
}

/// Lengths around the limit of one channel's scratch, and one that several blocks share.
fn lengths(world: &World, element: usize) -> [usize; 6] {
    let limit = abi::SCRATCH_BYTES / 2 / element;
    let shared = (1 << 20) / element + 13;
    assert!(world.call_grid(shared * element).blocks > 1);
    [0, 1, limit - 1, limit, limit + 1, shared]
}

#[test]
fn collectives_of_every_length_on_worlds_of_every_size() {
    for pes in [1, 2, 3, 4, 8] {
        on_all(pes, |world| {
            let team = world.team_world();
            let me = world.my_pe();
            for n in lengths(world, size_of::<u32>()).into_iter().take(if pes > 3 { 5 } else { 6 }) {
                check_reduce::<u32, _>(&team, Sum, n, u32::wrapping_add);
                let (dest, source) = (world.malloc::<u32>(n).unwrap(), world.malloc::<u32>(n).unwrap());
                source.write(0, &given(me, n)).unwrap();
                for root in [0, pes - 1] {
                    team.broadcast(&dest, &source, root).unwrap();
                    assert_eq!(dest.read(0, n).unwrap(), given::<u32>(root, n));
                    world.barrier_all().unwrap();
                }
                let part = n / pes;
                let (all, mine) = (world.malloc::<u32>(part * pes).unwrap(), world.malloc::<u32>(part * pes).unwrap());
                mine.write(0, &given(me, part * pes)).unwrap();
                team.alltoall(&all, &mine).unwrap();
                let theirs = |m: usize| given::<u32>(m, part * pes)[me * part..][..part].to_vec();
                assert_eq!(all.read(0, part * pes).unwrap(), (0..pes).flat_map(theirs).collect::<Vec<_>>());
                world.barrier_all().unwrap();
                // The source is this member's place in the destination.
                all.write(me * part, &given(me, part)).unwrap();
                team.fcollect(&all, all.slice(me * part..(me + 1) * part).unwrap()).unwrap();
                let every = (0..pes).flat_map(|m| given::<u32>(m, part)).collect::<Vec<_>>();
                assert_eq!(all.read(0, part * pes).unwrap(), every);
                world.barrier_all().unwrap();
            }
        });
    }
}

#[test]
fn collectives_of_teams_in_a_stream() {
    on_all(4, |world| {
        let all = world.team_world();
        let half = match (all.split_strided(0, 2, 2).unwrap(), all.split_strided(1, 2, 2).unwrap()) {
            (Some(even), None) => even,
            (None, Some(odd)) => odd,
            other => panic!("{other:?}"),
        };
        let sum = world.malloc::<u64>(1).unwrap();
        let total = world.malloc::<u64>(1).unwrap();
        sum.write(0, &[1 << (8 * world.my_pe())]).unwrap();
        {
            let stream = world.engine().stream().unwrap();
            for _ in 0..10 {
                half.reduce_on(&stream, Max, &total, &sum).unwrap();
                half.reduce_on(&stream, Sum, &total, &sum).unwrap();
                all.reduce_on(&stream, Sum, &total, &total).unwrap();
                world.barrier_all_on(&stream).unwrap();
                half.sync_on(&stream).unwrap();
            }
            stream.synchronize(SOON).unwrap();
        }
        // The sum of each half counts once for each of its two members.
        assert_eq!(total.read(0, 1).unwrap(), [2 * 0x0101_0101]);
    });
}

#[test]
fn copies_and_signals() {
    on_all(3, |world| {
        let (me, n) = (world.my_pe(), 100_000);
        let (next, before) = ((me + 1) % 3, (me + 2) % 3);
        let dest = world.malloc::<u16>(n).unwrap();
        let flag = world.malloc::<u64>(2).unwrap();
        let source = world.engine().allocate(Place::Device, n * 2).unwrap();
        source.set_slice(0, &given::<u16>(me, n)).unwrap();
        let local = |len| LocalSlice::<u16>::in_region(world, &source, 0, len).unwrap();
        // One block puts a few elements, several blocks put many. In both cases the data arrives with the signal.
        for (turn, len) in [(1, 5), (2, n)] {
            world.put_signal(&dest, local(len), &flag, (1, SignalOp::Add), next).unwrap();
            world.signal_wait_until(&flag, Cmp::Ge, turn).unwrap();
            assert_eq!(dest.read(0, len).unwrap(), given::<u16>(before, len));
            world.barrier_all().unwrap();
        }
        // A stream that waits for a neighbour's signal and then gets data from it.
        let got = world.malloc::<u16>(n).unwrap();
        {
            let stream = world.engine().stream().unwrap();
            world.put_from_on(&stream, dest.slice(1..).unwrap(), local(n - 1), me).unwrap();
            world.signal_op_on(&stream, flag.slice(1..).unwrap(), 7, SignalOp::Set, before).unwrap();
            world.signal_wait_until_on(&stream, flag.slice(1..).unwrap(), Cmp::Eq, 7).unwrap();
            world.get_into_on(&stream, &got, &dest, next).unwrap();
            world.quiet_on(&stream).unwrap();
            stream.synchronize(SOON).unwrap();
        }
        assert_eq!(got.read(1, n - 1).unwrap(), given::<u16>(next, n - 1));
        world.sync_all().unwrap();
        // Signals of both neighbours, counted from a word that wraps, by the host and in a stream.
        let counted = world.malloc::<u64>(2).unwrap();
        let start = u64::MAX - 2;
        counted.write(1, &[start]).unwrap();
        world.barrier_all().unwrap();
        let word = counted.slice(1..).unwrap();
        for pe in [next, before] {
            world.signal_op(word, 3, SignalOp::Add, pe).unwrap();
        }
        let mut shadow = start;
        world.signal_wait_shadow(word, &mut shadow, 2, Some(before)).unwrap();
        assert_eq!(shadow, u64::MAX);
        {
            let stream = world.engine().stream().unwrap();
            world.signal_wait_shadow_on(&stream, word, &mut shadow, 3, None).unwrap();
            world.signal_wait_shadow_on(&stream, word, &mut shadow, 1, Some(next)).unwrap();
            world.signal_wait_until_from_on(&stream, word, Cmp::Eq, 3, next).unwrap();
            stream.synchronize(SOON).unwrap();
        }
        assert_eq!((shadow, counted.read(1, 1).unwrap()), (3, vec![3]));
        world.signal_wait_until_from(word, Cmp::Ge, 3, before).unwrap();
        world.sync_all().unwrap();
        // Host memory.
        world.put(dest.slice(10..).unwrap(), &[1, 2, 3], next).unwrap();
        world.p(dest.slice(20..).unwrap(), 9, next).unwrap();
        world.fence();
        world.quiet().unwrap();
        world.barrier_all().unwrap();
        assert_eq!(dest.read(10, 3).unwrap(), [1, 2, 3]);
        assert_eq!(world.g(dest.slice(20..).unwrap(), next).unwrap(), 9);
        assert_eq!(world.get(dest.slice(10..13).unwrap(), before).unwrap(), [1, 2, 3]);
        world.barrier_all().unwrap();
    });
}

#[test]
fn waits_that_fail_name_the_pe_that_they_are_for() {
    on_all(2, |world| {
        let (me, other) = (world.my_pe(), 1 - world.my_pe());
        let word = world.calloc::<u64>(1).unwrap();
        let mut shadow = 0;
        for pe in [2, usize::MAX] {
            let waits = [
                world.signal_wait_until_from(&word, Cmp::Ne, 0, pe),
                world.signal_wait_shadow(&word, &mut shadow, 0, Some(pe)),
            ];
            assert!(
                waits.into_iter().all(|e| matches!(e, Err(ShmemError::NoPe { pe: named, size: 2 }) if named == pe))
            );
        }
        let e = world.signal_wait_shadow(&word, &mut shadow, 1 << 63, None).unwrap_err();
        assert!(matches!(e, ShmemError::Signals { n: 9223372036854775808 }), "{e}");
        world.engine().set_deadline(Duration::from_millis(20)).unwrap();
        let at = word.offset();
        let who = format!("wait_until on PE {me}, waiting for PE {other} (8 bytes at heap offset {at:#x}): timed out");
        let e = world.signal_wait_until_from(&word, Cmp::Ne, 0, other).unwrap_err();
        assert!(matches!(e, ShmemError::Run(RunError::Operations { .. })) && e.to_string().ends_with(&who), "{e}");
        let e = world.signal_wait_shadow(&word, &mut shadow, 1, Some(other)).unwrap_err();
        assert!(e.to_string().ends_with(&who), "{e}");
        let e = world.signal_wait_shadow(&word, &mut shadow, 1, None).unwrap_err();
        assert!(e.to_string().contains(&format!("wait_until on PE {me} (8 bytes")), "{e}");
        assert_eq!(shadow, 0);
        let stream = world.engine().stream().unwrap();
        world.signal_wait_until_from_on(&stream, &word, Cmp::Ne, 0, other).unwrap();
        let e = stream.synchronize(SOON).unwrap_err();
        assert!(e.to_string().contains(&who), "{e}");
        world.barrier_host().unwrap();
    });
}

fn check_integer<T: AtomicInteger + PartialEq + Debug + From<u8>>(world: &World) {
    let word: Sym<T> = world.malloc(3).unwrap();
    let at = word.slice(1..).unwrap();
    let (me, n) = (world.my_pe() as u8, world.n_pes() as u8);
    let v = T::from;
    world.atomic_add(at, v(10), 0).unwrap();
    world.atomic_inc(at, 0).unwrap();
    world.barrier_all().unwrap();
    assert_eq!(world.atomic_fetch(at, 0).unwrap(), v(11 * n));
    world.barrier_all().unwrap();
    // On this PE's neighbour. No other PE changes that word.
    let pe = (me as usize + 1) % world.n_pes();
    assert_eq!(world.atomic_swap(at, v(12), pe).unwrap(), if pe == 0 { v(11 * n) } else { v(0) });
    assert_eq!(world.atomic_compare_swap(at, v(13), v(1), pe).unwrap(), v(12));
    assert_eq!(world.atomic_compare_swap(at, v(12), v(0b0101), pe).unwrap(), v(12));
    assert_eq!(world.atomic_fetch_add(at, v(2), pe).unwrap(), v(0b0101));
    assert_eq!(world.atomic_fetch_inc(at, pe).unwrap(), v(0b0111));
    assert_eq!(world.atomic_fetch_and(at, v(0b1100), pe).unwrap(), v(0b1000));
    assert_eq!(world.atomic_fetch_or(at, v(0b0011), pe).unwrap(), v(0b1000));
    assert_eq!(world.atomic_fetch_xor(at, v(0b0110), pe).unwrap(), v(0b1011));
    world.atomic_xor(at, v(0b1111), pe).unwrap();
    world.atomic_and(at, v(0b0011), pe).unwrap();
    world.atomic_or(at, v(0b0100), pe).unwrap();
    assert_eq!(world.atomic_fetch(at, pe).unwrap(), v(0b0110));
    {
        let stream = world.engine().stream().unwrap();
        world.atomic_set_on(&stream, at, v(1), pe).unwrap();
        world.atomic_inc_on(&stream, at, pe).unwrap();
        world.atomic_or_on(&stream, at, v(8), pe).unwrap();
        stream.synchronize(SOON).unwrap();
    }
    assert_eq!(world.atomic_fetch(at, pe).unwrap(), v(10));
    world.barrier_all().unwrap();
    assert_eq!((word.read(0, 1).unwrap()[0], word.read(2, 1).unwrap()[0]), (v(0), v(0)));
}

fn check_word<T: AtomicWord + PartialEq + Debug>(world: &World, a: T, b: T) {
    let word: Sym<T> = world.malloc(1).unwrap();
    let pe = (world.my_pe() + 1) % world.n_pes();
    world.atomic_set(&word, a, pe).unwrap();
    assert_eq!(world.atomic_swap(&word, b, pe).unwrap(), a);
    assert_eq!(world.atomic_fetch(&word, pe).unwrap(), b);
    world.barrier_all().unwrap();
}

#[test]
fn atomics_of_every_type() {
    on_all(2, |world| {
        check_integer::<u32>(world);
        check_integer::<i32>(world);
        check_integer::<u64>(world);
        check_integer::<i64>(world);
        check_word(world, -1.5f32, f32::MAX);
        check_word(world, 1e300f64, -0.25);
    });
}

/// Wrong arguments fail before anything is launched, so that no PE waits for another.
#[test]
fn wrong_calls_are_refused() {
    let other = super::super::testing::local(1).remove(0);
    let foreign = other.malloc::<u32>(4).unwrap();
    let region = other.engine().allocate(Place::Device, 8).unwrap();
    on_all(2, |world| {
        let team = world.team_world();
        let (a, b) = (world.malloc::<u32>(4).unwrap(), world.malloc::<u32>(3).unwrap());
        let word = world.malloc::<u64>(1).unwrap();
        let (front, back) = (a.slice(..3).unwrap(), a.slice(1..).unwrap());
        let is = |r: Result<(), ShmemError>, part: &str| {
            let e = r.unwrap_err().to_string();
            assert!(e.contains(part), "{e}");
        };
        is(
            team.reduce(Sum, &a, &b),
            "reduce: 4 elements in the destination and 3 in the source, with 2 PEs; the lengths must be equal",
        );
        is(team.reduce(Sum, front, back), "reduce: source and destination overlap");
        is(team.reduce(Sum, &a, &foreign), "another world");
        is(team.broadcast(&b, &b, 2), "PE 2");
        is(team.broadcast(front, back, 0), "overlap");
        is(team.fcollect(&a, &b), "must hold the elements of all PEs");
        is(team.fcollect(&a, a.slice(1..3).unwrap()), "overlap");
        is(team.alltoall(&b, front), "a multiple of the number of PEs");
        is(team.alltoall(&a, &a), "overlap");
        is(world.put_from(&b, &a, 1), "elements 0..4 are outside a symmetric array of 3");
        is(world.get_into(&a, &b, 1), "elements 0..4 are outside a symmetric array of 3");
        is(world.put(&a, &[1], 7), "PE 7");
        is(world.signal_op(&word, 1, SignalOp::Set, 2), "PE 2");
        is(world.atomic_inc(a.slice(4..).unwrap(), 0), "elements 0..1 are outside a symmetric array of 0");
        is(LocalSlice::<u32>::in_region(world, &region, 0, 1).map(drop), "of this engine");
        let mine = world.engine().allocate(Place::Device, 8).unwrap();
        is(LocalSlice::<u64>::in_region(world, &mine, mine.len() - 8, 2).map(drop), "not inside");
        let stream = other.engine().stream().unwrap();
        is(world.barrier_all_on(&stream), "belongs to another engine");
        world.barrier_all().unwrap();
    });
}

/// A PE that does not arrive ends the others' call at their deadline, and the error names the PE.
#[test]
fn a_pe_that_does_not_come_is_named() {
    on_all(3, |world| {
        world.engine().set_deadline(Duration::from_millis(500)).unwrap();
        let (a, b) = (world.malloc::<u32>(40_000).unwrap(), world.malloc::<u32>(40_000).unwrap());
        // The two PEs that take part begin each call together: a PE that is late on a busy machine would be named too.
        let together = || world.barrier_host().unwrap();
        if world.my_pe() == 1 {
            return (0..5).for_each(|_| together());
        }
        let team = world.team_world();
        let named = |r: Result<(), ShmemError>| match r.unwrap_err() {
            ShmemError::Run(RunError::Operations { errors, .. }) => assert_eq!(errors[0].device, 1, "{}", errors[0]),
            e => panic!("{e}"),
        };
        together();
        named(team.barrier());
        together();
        named(team.reduce(Sum, a.slice(..1).unwrap(), b.slice(..1).unwrap()));
        together();
        named(team.reduce(Sum, &a, &b));
        together();
        named(team.broadcast(&a, &b, 1));
        together();
    });
}

/// Calls with different lengths end with an error instead of a hang.
#[test]
fn calls_that_do_not_match_end() {
    on_all(2, |world| {
        world.engine().set_deadline(Duration::from_millis(200)).unwrap();
        let (a, b) = (world.malloc::<u64>(40_000).unwrap(), world.malloc::<u64>(40_000).unwrap());
        let n = if world.my_pe() == 0 { 1 } else { 40_000 };
        let e = world.team_world().reduce(Sum, a.slice(..n).unwrap(), b.slice(..n).unwrap());
        assert!(matches!(e, Err(ShmemError::Run(RunError::Operations { .. }))), "{e:?}");
        world.barrier_host().unwrap();
    });
}
