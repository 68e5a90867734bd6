//! Runs vectors through `device/mlx5_entries.cu`, on CPU threads or a GPU. Reads back and compares all memory that the
//! kernel may have written.

use super::vectors::Vector;
use crate::image;
use warpbell::args;
use warpbell::engine::{Engine, Grid, Image};
use warpbell::memory::{Place, Region};
use warpbell::wire::mlx5::{BLOCK_BYTES, Syndrome};

/// Names of `kind` in mlx5_entries.cu.
const KINDS: &str = "
    nop write empty_write write_imm empty_write_imm read send send_two send_imm send_inval
    inline_write long_inline_write inline_send fetch_add compare_swap
    masked_add32 masked_add64 masked_swap32 masked_swap64
    add32 add64 fetch32 fetch64 xor32 xor64
    set32 set64 and32 and64 or32 or64 cswap32 cswap64
    dump wait dc_write dc_write_global
    doorbell qp_record cq_record cqe received ring collapsed permute swap";

/// Fields of `vector` there, between the number of its inlined bytes and the bytes.
const PARAMETERS: &str = "
    index qpn flags raddr rkey laddr lkey bytes imm a b c d cqn number
    dc_key dct rlid rate_level path rmac tclass hops grh rgid_high rgid_low
    next receive send consumed entries ci op_own counter laddr2 lkey2 bytes2";

/// Results that the kernel writes in separate words.
const ANSWERS: &[(&str, &str)] = &[
    ("cqe", "kind owner solicited counter opcode qpn failed syndrome vendor hardware_type hardware flushed"),
    ("received", "kind owner counter qpn failed syndrome length in_entry word"),
    ("ring", "written"),
    ("collapsed", "completed"),
    ("permute", "word"),
    ("swap", "low both landed"),
];

const RING_BYTES: usize = BLOCK_BYTES << 3;
const MOST_ANSWERS: usize = 12;
const MOST_INLINED: usize = 256;

/// The most data in a write of one block, in bytes.
const SHORT_INLINE: usize = 28;

/// Contents of the memory before the kernel runs. There are two, since a byte that the kernel does not write may be
/// right by chance.
const POISONS: [u8; 2] = [0xcc, 0x35];

/// Returns an engine of two CPU threads with the kernel, at a warp width that the shipped kernels may not have.
pub fn cpu_engine(width: u32) -> Engine {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = folder.path().join("entries.so");
    image::compile("mlx5_entries.cu", width, &["-O1"], &library);
    let image = Image::new("mlx5_entries").cpu(image::load(&library, c"warpbell_mlx5_entries"));
    Engine::builder().shipped(false).threads(2).image(image).cpu().expect("a CPU engine")
}

/// Returns an engine with the kernel for GPUs, as nvcc has compiled it.
pub fn gpu_engine(image: &[u8]) -> Engine {
    let image = Image::new("mlx5_entries").gpu(image.to_vec());
    Engine::builder().shipped(false).image(image).gpu(0).expect("a GPU engine")
}

/// The kernel's output for a vector.
enum Written {
    /// An entry from the block of its index on; zero up to the last block's end.
    Entry(Vec<u8>),
    Answers(Vec<u64>),
}

impl Written {
    fn of(v: &Vector) -> Self {
        let answer = |name: &str| match name {
            "failed" => matches!(v.get("kind"), 0xd | 0xe).into(),
            "flushed" => u64::from(v.or_zero("syndrome") == u64::from(Syndrome::FLUSHED.0)),
            _ => v.or_zero(name),
        };
        if let Some((_, names)) = ANSWERS.iter().find(|(what, _)| *what == v.what) {
            return Self::Answers(names.split_whitespace().map(answer).collect());
        }
        if matches!(v.what.as_str(), "doorbell" | "qp_record" | "cq_record") {
            return Self::Answers(vec![u64::from_le_bytes(v.bytes[..].try_into().expect("8 bytes"))]);
        }
        let mut bytes = v.bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        assert!((1..=RING_BYTES).contains(&bytes.len()), "an entry of {} bytes: {v:x?}", bytes.len());
        Self::Entry(bytes)
    }

    /// Returns a ring and results that were full of `poison`, with this output written over it.
    fn over(&self, v: &Vector, poison: u8) -> (Vec<u8>, Vec<u64>) {
        let mut ring = vec![poison; RING_BYTES];
        let mut results = vec![u64::from_ne_bytes([poison; 8]); MOST_ANSWERS];
        match self {
            Self::Entry(bytes) => {
                for (i, byte) in bytes.iter().enumerate() {
                    ring[(start(v) + i) % RING_BYTES] = *byte;
                }
            }
            Self::Answers(given) => results[..given.len()].copy_from_slice(given),
        }
        (ring, results)
    }
}

/// Returns the place of a vector's entry in its ring.
fn start(v: &Vector) -> usize {
    v.or_zero("index") as usize % (RING_BYTES / BLOCK_BYTES) * BLOCK_BYTES
}

/// Returns the kinds that a vector has on the device, where each builder has its own name.
fn kinds(v: &Vector) -> Vec<String> {
    let has = |name| v.values.contains_key(name);
    match v.what.as_str() {
        "write" | "write_imm" if !has("bytes") => vec![format!("empty_{}", v.what)],
        "dc_write" if has("rmac") => vec!["dc_write_global".into()],
        "inline_write" if v.inline.len() > SHORT_INLINE => vec!["long_inline_write".into()],
        "inline_write" => vec!["inline_write".into(), "long_inline_write".into()],
        what => vec![what.into()],
    }
}

/// Returns a vector as `vector` of mlx5_entries.cu.
fn words(kind: &str, v: &Vector) -> Vec<u64> {
    let known = |name: &str| {
        let results =
            ANSWERS.iter().filter(|(what, _)| *what == v.what).flat_map(|(_, names)| names.split_whitespace());
        PARAMETERS.split_whitespace().chain(results).any(|n| n == name)
    };
    assert!(v.values.keys().all(|name| known(name)), "a parameter that the kernel does not take: {v:x?}");
    let number = KINDS.split_whitespace().position(|k| k == kind);
    let number = number.unwrap_or_else(|| panic!("a kind that the kernel does not have: {v:x?}"));
    // The completion of a question is given as bytes too.
    let given = if matches!(kind, "cqe" | "received") { &v.bytes } else { &v.inline };
    let mut inlined = vec![0; MOST_INLINED];
    inlined[..given.len()].copy_from_slice(given);
    let mut words = vec![number as u64, given.len() as u64];
    words.extend(PARAMETERS.split_whitespace().map(|name| v.or_zero(name)));
    words.extend(inlined.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes"))));
    words
}

/// Lets the engine process all vectors, and compares the results. Returns the number of entries and questions.
///
/// # Errors
///
/// Fails with a text that describes the first difference.
pub fn check(engine: &Engine, vectors: &[Vector]) -> Result<(usize, usize), String> {
    let asked: Vec<(String, &Vector)> =
        vectors.iter().flat_map(|v| kinds(v).into_iter().map(move |kind| (kind, v))).collect();
    let input: Vec<u64> = asked.iter().flat_map(|(kind, v)| words(kind, v)).collect();
    let allocate = |bytes| engine.allocate(Place::Device, bytes).expect("memory");
    let given = allocate(size_of_val(&input[..]));
    given.set_slice(0, &input).expect("it is that long");
    // One more ring and set of results, where nothing may be written.
    let count = asked.len() + 1;
    let rings = allocate(RING_BYTES * count);
    let results = allocate(8 * MOST_ANSWERS * count);
    let (mut entries, mut questions) = (0, 0);
    for poison in POISONS {
        for memory in [&rings, &results] {
            memory.fill(0, memory.len(), poison).expect("all of it");
        }
        run(engine, [&given, &rings, &results], asked.len() as u64);
        let rings = rings.get_slice::<u8>(0, RING_BYTES * count).expect("it is that long");
        let results = results.get_slice::<u64>(0, MOST_ANSWERS * count).expect("it is that long");
        let behind = bytemuck::cast_slice::<u64, u8>(&results[MOST_ANSWERS * asked.len()..]);
        if rings[RING_BYTES * asked.len()..].iter().chain(behind).any(|byte| *byte != poison) {
            return Err("something was written behind the last ring or the last results".into());
        }
        for (((kind, v), ring), results) in asked.iter().zip(rings.chunks(RING_BYTES)).zip(results.chunks(MOST_ANSWERS))
        {
            let written = Written::of(v);
            let (expected_ring, expected_answers) = written.over(v, poison);
            if let Some(i) = (0..RING_BYTES).find(|i| ring[*i] != expected_ring[*i]) {
                let at = (i + RING_BYTES - start(v)) % RING_BYTES;
                let (got, wanted) = (ring[i], expected_ring[i]);
                return Err(format!(
                    "{kind}: byte {at} is {got:#04x} and not {wanted:#04x} (poison {poison:#04x}): {v:x?}"
                ));
            }
            if results != expected_answers {
                return Err(format!("{kind}: results are {results:x?} and not {expected_answers:x?}: {v:x?}"));
            }
            match written {
                Written::Entry(_) => entries += 1,
                Written::Answers(_) => questions += 1,
            }
        }
    }
    Ok((entries / POISONS.len(), questions / POISONS.len()))
}

fn run(engine: &Engine, [given, rings, results]: [&Region; 3], count: u64) {
    let grid = Grid { blocks: 3, threads: 2 * engine.warp_width() };
    // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
    let run = unsafe { engine.launch("wb_mlx5_entries", grid, args!(given, count, rings, results)) }.expect("a launch");
    run.finish().expect("a kernel that ends");
}
