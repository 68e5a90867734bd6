//! Programs of calls on a window, compared with a model. One PE makes the calls, with a quiet after each. Kernel:
//! `device/window_calls.cu`.

use super::place::{Place, between_processes};
use bytemuck::{Pod, Zeroable};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::args;
use warpbell::engine::{Outcome, RunError};
use warpbell::memory::{Place as Memory, Region};
use warpbell::shmem::calls::LocalSlice;
use warpbell::shmem::{Sym, Transport, Window, World};

/// Bytes of the window, of the array in the heap, and of the private buffer of each PE.
const BYTES: usize = 24 << 10;
/// Most bytes by which a window begins behind an aligned address: another number on each PE.
const SHIFT: usize = 64;
const SIGNALS: usize = 4;

/// Call, as `op` of window_calls.cu.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
struct Op {
    kind: u32,
    ty: u32,
    scope: u32,
    pe: u32,
    far: u64,
    near: u64,
    n: u64,
    far_memory: u32,
    near_memory: u32,
    value: u64,
    answer: u64,
    thread: u32,
    signal: u32,
}

const PUT: u32 = 0;
const GET: u32 = 2;
const GET_NBI: u32 = 3;
const PUT_SIGNAL: u32 = 4;
const P: u32 = 5;
const G: u32 = 6;
const PTR: u32 = 7;
const WINDOW: u32 = 0;
const HEAP: u32 = 1;
const OWN: u32 = 2;
/// Sizes of the types, by their numbers.
const SIZE: [usize; 4] = [1, 4, 16, 12];

/// The memory of one PE.
#[derive(Clone, Debug)]
struct Memories {
    /// By the numbers of the memories.
    bytes: [Vec<u8>; 3],
    signals: [u64; SIGNALS],
}

/// A program with its expected result.
struct Program {
    me: usize,
    /// Bytes before each PE's window.
    shift: Vec<usize>,
    before: Vec<Memories>,
    after: Vec<Memories>,
    ops: Vec<Op>,
    answers: Vec<u64>,
    direct: bool,
}

impl Program {
    /// Returns a program of `calls` random calls. `direct` tells if loads and stores reach all PEs.
    fn random(seed: u64, pes: usize, threads: u32, direct: bool, calls: usize) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut memory = || (0..BYTES).map(|_| random.random::<u8>()).collect::<Vec<u8>>();
        let mut one = || Memories { bytes: [memory(), memory(), memory()], signals: [0; SIGNALS] };
        let before: Vec<Memories> = (0..pes).map(|_| one()).collect();
        let shift = (0..pes).map(|_| random.random_range(0..SHIFT)).collect();
        let me = random.random_range(0..pes);
        let mut program =
            Self { me, shift, after: before.clone(), before, ops: Vec::new(), answers: Vec::new(), direct };
        for _ in 0..calls {
            program.add(&mut random, threads);
        }
        program
    }

    fn add(&mut self, random: &mut SmallRng, threads: u32) {
        let (kind, ty) = (random.random_range(0..=PTR), random.random_range(0..SIZE.len()));
        let pe = random.random_range(0..self.before.len());
        let is_block = kind <= PUT_SIGNAL;
        let ty = if !is_block && SIZE[ty] == 12 { 1 } else { ty };
        let (far_memory, near_memory) =
            [(WINDOW, WINDOW), (WINDOW, HEAP), (WINDOW, OWN), (HEAP, WINDOW)][random.random_range(0..4)];
        let far_memory = if is_block { far_memory } else { WINDOW };
        // Lengths about the steps of the copy loops, of the inline requests and of the staging.
        let most = [3, 40, 400, BYTES / 2][random.random_range(0..4)];
        let n = if is_block { random.random_range(0..=most / SIZE[ty]) } else { 1 };
        let bytes = n * SIZE[ty];
        let (mut far, near) =
            (random.random_range(0..=BYTES - bytes.max(1)), random.random_range(0..=BYTES - bytes.max(1)));
        if kind == P || kind == G {
            // One access moves the element, so it is aligned on the PE.
            let first = (SIZE[ty] - self.shift[pe] % SIZE[ty]) % SIZE[ty];
            far = first + SIZE[ty] * random.random_range(0..=(BYTES - SIZE[ty] - first) / SIZE[ty]);
        }
        let overlap =
            far_memory == near_memory && pe == self.me && far < near + bytes && near < far + bytes && far != near;
        let near_memory = if overlap { OWN } else { near_memory };
        let op = Op {
            kind,
            ty: ty as u32,
            scope: random.random_range(0..4),
            pe: pe as u32,
            far: far as u64,
            near: near as u64,
            n: n as u64,
            far_memory,
            near_memory,
            value: random.random(),
            answer: self.answers.len() as u64,
            thread: random.random_range(0..threads),
            signal: random.random_range(0..SIGNALS as u32),
        };
        self.apply(&op, bytes);
        self.ops.push(op);
    }

    /// Makes the call in the model.
    fn apply(&mut self, op: &Op, bytes: usize) {
        let (me, pe, far, near) = (self.me, op.pe as usize, op.far as usize, op.near as usize);
        let (far_memory, near_memory) = (op.far_memory as usize, op.near_memory as usize);
        match op.kind {
            GET | GET_NBI => {
                let data = self.after[pe].bytes[far_memory][far..far + bytes].to_vec();
                self.after[me].bytes[near_memory][near..near + bytes].copy_from_slice(&data);
            }
            P => {
                let mut value = [0; 16];
                value[..8].copy_from_slice(&op.value.to_le_bytes());
                value[8..].copy_from_slice(&(!op.value).to_le_bytes());
                self.after[pe].bytes[0][far..far + bytes].copy_from_slice(&value[..bytes]);
            }
            G | PTR => {
                let mut value = [0; 16];
                let bytes = if op.kind == PTR { 1 } else { bytes };
                value[..bytes].copy_from_slice(&self.after[pe].bytes[0][far..far + bytes]);
                let (low, high) = value.split_at(8);
                let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("eight bytes"));
                let is_near = self.direct || pe == me;
                self.answers.push(if op.kind == PTR && !is_near { u64::MAX } else { word(low) });
                if bytes == 16 {
                    self.answers.push(word(high));
                }
            }
            _ => {
                let data = self.after[me].bytes[near_memory][near..near + bytes].to_vec();
                self.after[pe].bytes[far_memory][far..far + bytes].copy_from_slice(&data);
                if op.kind == PUT_SIGNAL {
                    self.after[pe].signals[op.signal as usize] = op.value;
                }
            }
        }
    }
}

/// Registers `BYTES` bytes of a new region, from byte `shift` on.
fn register(world: &World, shift: usize) -> (Region, Window<u8>) {
    let region = world.engine().allocate(Memory::Device, BYTES + SHIFT).expect("memory");
    let slice = LocalSlice::in_region(world, &region, shift, BYTES).expect("it is that long");
    let window = world.symmetric_from(slice).expect("a window");
    (region, window)
}

/// Runs calls on one PE, and returns their error.
fn launch(
    world: &World,
    place: &Place,
    window: &Window<u8>,
    ops: &[Op],
    heap: &Sym<u8>,
    signals: &Sym<u64>,
    (own, answers): (&Region, &Region),
) -> Result<(), RunError> {
    let engine = world.engine();
    let list = engine.allocate(Memory::Device, size_of_val(ops).max(8)).expect("memory");
    list.set_slice(0, ops).expect("it is that long");
    let args = args!(world, window, heap, signals, &list, ops.len() as u64, own, answers);
    // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
    unsafe { engine.launch("window_calls_run", place.grid, args) }.expect("a launch").finish().map(drop)
}

/// Runs a program and compares all memory with the model's.
fn check(place: &Place, program: &Program) -> Result<(), String> {
    place.on_all(|world| run(world, place, program)).into_iter().collect()
}

fn run(world: &World, place: &Place, program: &Program) -> Result<(), String> {
    let me = world.my_pe();
    let (shift, before) = (program.shift[me], &program.before[me]);
    let (region, window) = register(world, shift);
    region.write(shift, &before.bytes[0]).expect("it is that long");
    let heap = world.malloc::<u8>(BYTES).expect("an array");
    heap.write(0, &before.bytes[1]).expect("it is that long");
    let signals = world.calloc::<u64>(SIGNALS).expect("words");
    let own = world.engine().allocate(Memory::Device, BYTES).expect("memory");
    own.write(0, &before.bytes[2]).expect("it is that long");
    let answers = world.engine().allocate(Memory::Device, 8 * program.answers.len().max(1)).expect("memory");
    world.barrier_host().expect("all PEs come");
    if me == program.me {
        let ran = launch(world, place, &window, &program.ops, &heap, &signals, (&own, &answers));
        ran.map_err(|e| format!("PE {me}: {e}"))?;
        let got = answers.get_slice::<u64>(0, program.answers.len()).expect("it is that long");
        for op in program.ops.iter().filter(|op| op.kind >= G) {
            let (at, words) = (op.answer as usize, if op.kind == G && op.ty == 2 { 2 } else { 1 });
            if got[at..at + words] != program.answers[at..at + words] {
                return Err(format!("PE {me}: {:?} and not {:?}: {op:?}", &got[at..], &program.answers[at..]));
            }
        }
    }
    world.barrier_host().expect("all PEs come");
    let after = &program.after[me];
    let guards = [region.get_slice::<u8>(0, shift), region.get_slice::<u8>(shift + BYTES, SHIFT - shift)];
    let zero = guards.into_iter().all(|g| g.expect("it is that long").iter().all(|b| *b == 0));
    let found = [
        ("window", region.get_slice::<u8>(shift, BYTES).expect("it is that long"), &after.bytes[0]),
        ("heap", heap.read(0, BYTES).expect("it is that long"), &after.bytes[1]),
        ("private buffer", own.get_slice::<u8>(0, BYTES).expect("it is that long"), &after.bytes[2]),
    ];
    for (what, got, expected) in found {
        if let Some(at) = got.iter().zip(expected).position(|(a, b)| a != b) {
            return Err(format!("PE {me}: {what} byte {at}: {:#x} and not {:#x}", got[at], expected[at]));
        }
    }
    let got = signals.read(0, SIGNALS).expect("it is that long");
    match (got == after.signals, zero) {
        (true, true) => Ok(()),
        (false, _) => Err(format!("PE {me}: signals {got:?} and not {:?}", after.signals)),
        (_, false) => Err(format!("PE {me}: bytes around the window were written")),
    }
}

/// Number of random programs of each place.
const PROGRAMS: u64 = 8;

fn check_random(place: &Place, programs: u64, calls: usize) {
    let direct = place.worlds[0].path().transport == "peer";
    for seed in 0..programs {
        let program = Program::random(seed, place.pes(), place.grid.threads, direct, calls);
        check(place, &program).unwrap_or_else(|e| panic!("{} PEs, program {seed}: {e}", place.pes()));
    }
}

#[test]
fn windows_do_what_the_model_says() {
    for (n, width, warps) in [(1, 1, 1), (2, 1, 3), (3, 4, 2), (2, 32, 1)] {
        for way in [None, Some(Transport::Soft)] {
            check_random(&Place::over(way, n, width, warps), PROGRAMS, 120);
        }
    }
}

/// Runs a rank. The next test starts it as a process.
#[test]
#[ignore = "another test starts it as a process"]
fn rank_with_windows() {
    let place = Place::of_this_rank();
    let (world, me) = (&place.worlds[0], place.worlds[0].my_pe());
    if world.path().transport == "peer" {
        // One process does not get to memory that another has allocated.
        let region = world.engine().allocate(Memory::Device, 64).unwrap();
        let slice = LocalSlice::<u8>::in_region(world, &region, 0, 64).unwrap();
        let e = world.symmetric_from(slice).map(drop).unwrap_err().to_string();
        let [first, next] =
            [format!("rank {me}: it does not get to the memory of rank"), "WARPBELL_TRANSPORT=soft".to_owned()];
        assert!(e.contains(&first) && e.contains(&next) && e.contains("World::malloc"), "{e}");
        // All PEs know, and go on.
        world.barrier_all().unwrap();
    } else {
        check_random(&place, 3, 100);
        // A window that is dropped on one PE only, and worlds that end in the order of the ranks.
        let (_region, window) = register(world, 3);
        if me == 0 {
            drop(window);
            world.barrier_host().unwrap();
        } else {
            world.barrier_host().unwrap();
            world.put(window.slice(..5).unwrap(), &[7; 5], 0).unwrap();
            assert_eq!(world.get(window.slice(..5).unwrap(), 0).unwrap(), [7; 5]);
        }
    }
    println!("rank {me} of {}: as the model says", place.pes());
}

#[test]
fn processes_use_windows_over_adapters_alone() {
    for transport in ["soft", "auto"] {
        let said = between_processes(2, "shmem::window::rank_with_windows", transport);
        assert_eq!(said.matches("as the model says").count(), 2, "{said}");
    }
}

#[test]
fn puts_that_a_kernel_left_unfinished_are_complete_before_their_window_ends() {
    const LONG: usize = 8 << 20;
    for way in [None, Some(Transport::Soft)] {
        let place = Place::over(way, 2, 1, 1);
        for _ in 0..4 {
            place.on_all(|world| {
                let region = world.engine().allocate(Memory::Device, LONG).unwrap();
                let slice = LocalSlice::<u8>::in_region(world, &region, 0, LONG).unwrap();
                let window = world.symmetric_from(slice).unwrap();
                let args = args!(world, &window, LONG as u64, 1 - world.my_pe() as u32);
                // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
                let run = unsafe { world.engine().launch("window_calls_unfinished", place.grid, args) };
                run.unwrap().finish().unwrap();
                drop((window, region));
                // The first one tells the other PE of the drop, and then the memory ends.
                world.barrier_host().unwrap();
                world.barrier_all().unwrap();
            });
        }
    }
}

#[test]
fn a_checked_call_refuses_what_is_not_in_the_window() {
    let last = BYTES as u64 - 1;
    for way in [None, Some(Transport::Soft)] {
        for (op, said) in [
            (Op { kind: PUT, n: 2, far: last, ..OP }, "put from PE 0 to PE 1 (2 bytes at window offset 0x5fff): "),
            (Op { kind: GET, n: 1, far: last + 1, ..OP }, "get from PE 1 to PE 0 (1 bytes at window offset 0x6000): "),
            (
                Op { kind: GET, n: 1, far: u64::MAX, ..OP },
                "get from PE 1 to PE 0 (1 bytes at window offset 0xffffffffffffffff): ",
            ),
            (Op { kind: PUT, n: u64::MAX, ..OP }, "put from PE 0 to PE 1 (4294967295 bytes at window offset 0x0): "),
            (
                Op { kind: PUT_SIGNAL, n: 9, near: last, near_memory: WINDOW, ..OP },
                "put from PE 0 to PE 1 (9 bytes at window offset 0x0): ",
            ),
            (Op { kind: P, far: last - 2, ty: 1, ..OP }, "put from PE 0 to PE 1 (4 bytes at window offset 0x5ffd): "),
            (Op { kind: G, pe: 2, ..OP }, "get from PE 2 to PE 0 (1 bytes at window offset 0x0): "),
        ] {
            refused(way, &op, 0, said);
        }
    }
    // Loads and stores of one element need it aligned where it is.
    let op = Op { kind: P, ty: 1, ..OP };
    refused(None, &op, 2, "put from PE 0 to PE 1 (4 bytes at window offset 0x0): ");
}

/// A call of the first PE on the second one, with the private buffer of the first.
const OP: Op = Op {
    kind: PUT,
    ty: 0,
    scope: 0,
    pe: 1,
    far: 0,
    near: 0,
    n: 0,
    far_memory: WINDOW,
    near_memory: OWN,
    value: 0,
    answer: 0,
    thread: 0,
    signal: 0,
};

/// Makes a call that fails on the first of two PEs, whose windows begin `shift` bytes behind an aligned address.
fn refused(way: Option<Transport>, op: &Op, shift: usize, said: &str) {
    let place = Place::over(way, 2, 1, 1);
    place.on_all(|world| {
        let (_region, window) = register(world, shift);
        let (heap, signals) = (world.malloc::<u8>(64).unwrap(), world.calloc::<u64>(SIGNALS).unwrap());
        let own = world.engine().allocate(Memory::Device, BYTES).unwrap();
        if world.my_pe() == 0 {
            let error = launch(world, &place, &window, &[*op], &heap, &signals, (&own, &own)).unwrap_err();
            let RunError::Operations { errors, .. } = &error else { panic!("{error:?}") };
            assert_eq!(errors[0].outcome, Outcome::BadArgument, "{op:?}");
            assert!(errors[0].to_string().starts_with(said), "{} and not {said}", errors[0]);
        }
        world.barrier_host().unwrap();
        let bytes = world.get(&window, world.my_pe()).unwrap();
        assert!(bytes.iter().all(|b| *b == 0) && signals.read(0, SIGNALS).unwrap() == [0; SIGNALS]);
        world.barrier_host().unwrap();
    });
}
