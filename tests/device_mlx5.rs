//! mlx5 entries as the device library builds and reads them, against those of the host: byte for byte, at each warp width.

#[allow(dead_code)]
#[path = "device/harness.rs"]
mod harness;
#[allow(dead_code)]
#[path = "../host/wire/mlx5/vectors.rs"]
mod vectors;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use vectors::Vector;
use warpbell::wire::mlx5::cqe::Outcome;
use warpbell::wire::mlx5::{Completion, Failure, Syndrome, Transport, VendorSyndrome, Wqe};

const WIDTHS: [u32; 3] = [1, 4, 32];
const EACH: usize = 40;

/// Kinds of entry, and the parameters that each has besides index, queue pair and flags. A kind before the arrow is the device
/// library's name for an operation that the host knows by the one behind it.
const KINDS: &[(&str, &str)] = &[
    ("nop", ""),
    ("write", "raddr rkey laddr lkey bytes"),
    ("write", "raddr rkey"),
    ("write_imm", "raddr rkey laddr lkey bytes imm"),
    ("write_imm", "raddr rkey imm"),
    ("read", "raddr rkey laddr lkey bytes"),
    ("send", "laddr lkey bytes"),
    ("send_imm", "laddr lkey bytes imm"),
    ("send_inval", "laddr lkey bytes imm"),
    ("inline_write", "raddr rkey inline28"),
    ("inline_write", "raddr rkey inline256"),
    ("inline_send", "inline44"),
    ("fetch_add", "raddr rkey laddr lkey a"),
    ("compare_swap", "raddr rkey laddr lkey a b"),
    ("masked_add32", "raddr rkey laddr lkey a b"),
    ("masked_add64", "raddr rkey laddr lkey a b"),
    ("masked_swap32", "raddr rkey laddr lkey a b c d"),
    ("masked_swap64", "raddr rkey laddr lkey a b c d"),
    ("dump", "laddr lkey bytes"),
    ("wait", "cqn number"),
    ("dc_write", "raddr rkey laddr lkey bytes dc_key dct rlid rate_level path"),
    ("dc_write", "raddr rkey laddr lkey bytes dc_key dct rlid rate_level path rmac tclass hops grh rgid_high rgid_low"),
];

type Operands = fn(u64) -> [u64; 4];

/// OpenSHMEM's names, and the masked operation and operands (a, b, c, d) that each must become for a value.
const NAMED: &[(&str, &str, Operands)] = &[
    ("add", "masked_add", |v| [v, 0, 0, 0]),
    ("fetch", "masked_add", |_| [0, 0, 0, 0]),
    ("xor", "masked_add", |v| [v, !0, 0, 0]),
    ("set", "masked_swap", |v| [v, 0, !0, 0]),
    ("and", "masked_swap", |v| [v, 0, !v, 0]),
    ("or", "masked_swap", |v| [v, 0, v, 0]),
];

fn draw(rng: &mut SmallRng, name: &str) -> u64 {
    let bits = match name {
        "qpn" | "dct" | "cqn" => 24,
        "index" | "rlid" => 16,
        "rate_level" | "path" | "tclass" | "hops" => 8,
        "rkey" | "lkey" | "imm" | "number" | "grh" => 32,
        "bytes" => return rng.random_range(1..=0x7fff_ffff),
        // Every fence and signal that there is.
        "flags" => return rng.random_range(0..5u64) << 5 | rng.random_range(0..8u64) << 1,
        "rmac" => 48,
        _ => 64,
    };
    rng.random::<u64>() >> (64 - bits)
}

fn random(rng: &mut SmallRng, what: &str, parameters: &str) -> Vector {
    let mut v = Vector { what: what.into(), ..Vector::default() };
    for name in ["index", "qpn", "flags"].into_iter().chain(parameters.split_whitespace()) {
        if let Some(most) = name.strip_prefix("inline") {
            let length = rng.random_range(1..=most.parse().expect("a number"));
            v.inline = (0..length).map(|_| rng.random()).collect();
        } else {
            v.values.insert(name.into(), draw(rng, name));
        }
    }
    v
}

/// The line of a vector, under a name, with the bytes that the host has built.
fn line(what: &str, v: &Vector, bytes: &[u8]) -> String {
    let mut out = what.to_owned();
    for (name, value) in &v.values {
        write!(out, " {name}={value:#x}").expect("a String takes it");
    }
    let hex = |b: &[u8]| b.iter().map(|b| format!("{b:02x}")).collect::<String>();
    if !v.inline.is_empty() {
        write!(out, " inline={}", hex(&v.inline)).expect("a String takes it");
    }
    out + " : " + &hex(bytes)
}

fn entries(rng: &mut SmallRng) -> Vec<String> {
    let mut lines = Vec::new();
    for (what, parameters) in KINDS {
        for _ in 0..EACH {
            let v = random(rng, what, parameters);
            let bytes = v.wqe().expect("an entry");
            let transport =
                if *what == "dc_write" { Transport::DynamicInitiator } else { Transport::ReliableConnection };
            Wqe::parse(&bytes, transport).unwrap_or_else(|e| panic!("{v:?}: {e}"));
            lines.push(line(what, &v, &bytes));
        }
    }
    for (name, operation, operands) in NAMED {
        for (bits, mask) in [(32, u64::from(u32::MAX)), (64, u64::MAX)] {
            let mut v = random(rng, &format!("{operation}{bits}"), "raddr rkey laddr lkey a");
            let value = v.get("a");
            for (name, operand) in ["a", "b", "c", "d"].into_iter().zip(operands(value)) {
                v.values.insert(name.into(), operand & mask);
            }
            let bytes = v.wqe().expect("an entry");
            v.values.insert("a".into(), value & mask);
            lines.push(line(&format!("{name}{bits}"), &v, &bytes));
        }
    }
    let mut v = random(rng, "masked_swap32", "raddr rkey laddr lkey a b");
    v.values.extend([("c".to_owned(), 0xffff_ffff), ("d".to_owned(), 0xffff_ffff)]);
    let bytes = v.wqe().expect("an entry");
    lines.push(line("cswap32", &v, &bytes));
    lines
}

fn completions(rng: &mut SmallRng) -> Vec<String> {
    let mut lines = Vec::new();
    for syndrome in Syndrome::ALL.iter().map(|s| Some(*s)).chain([None]) {
        let failure =
            syndrome.map(|s| Failure { hardware: rng.random(), ..Failure::new(s, VendorSyndrome(rng.random())) });
        let (outcome, kind) = match failure {
            None => (Outcome::Done, 0),
            Some(f) if rng.random() => (Outcome::ReceiveFailed(f), 0xe),
            Some(f) => (Outcome::Failed(f), 0xd),
        };
        let (owner, opcode, qpn) = (rng.random::<bool>(), rng.random::<u8>(), draw(rng, "qpn") as u32);
        let c =
            Completion { qpn, user_index: 0, wqe_counter: rng.random(), opcode, bytes: 0, solicited: false, outcome };
        let mut v = Vector::default();
        let mut set = |name: &str, value: u64| v.values.insert(name.into(), value);
        set("kind", kind);
        set("opcode", opcode.into());
        set("qpn", qpn.into());
        set("counter", c.wqe_counter.into());
        set("owner", owner.into());
        if let Some(f) = failure {
            set("syndrome", f.syndrome.0.into());
            set("vendor", f.vendor.0.into());
            set("hardware_type", f.hardware.0.into());
            set("hardware", f.hardware.1.into());
        }
        lines.push(line("cqe", &v, &bytemuck::bytes_of(&c.to_cqe(owner))[48..]));
    }
    lines
}

#[test]
fn device_entries_are_the_hosts() {
    let seed = RandomState::new().build_hasher().finish();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let lines = [entries(&mut rng), completions(&mut rng)].concat().join("\n");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let drawn = folder.path().join("drawn.txt");
    std::fs::write(&drawn, lines).expect("a file in it");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("host/wire/mlx5/vectors.txt");
    let files = [golden.to_str().expect("a plain path"), drawn.to_str().expect("a plain path")];
    for width in WIDTHS {
        let said = harness::stress("mlx5_wire.cpp", width, false, &files);
        assert!(said.contains("entries"), "{said}");
    }
}

/// Where rdma-core's header is installed; elsewhere the program says that it is not.
#[test]
fn layouts_are_rdma_cores() {
    print!("{}", harness::stress("mlx5_parity.cpp", 1, false, &[]));
}
