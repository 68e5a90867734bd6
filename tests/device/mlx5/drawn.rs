//! Random vectors, with the entries and results that the host computes for them.

use super::vectors::Vector;
use rand::Rng;
use rand::rngs::SmallRng;
use warpbell::wire::mlx5::cqe::Outcome;
use warpbell::wire::mlx5::doorbell::{CqRecord, QpRecord, SendDoorbell};
use warpbell::wire::mlx5::{
    Collapsed, Completion, CompletionRing, CqeOpcode, Failure, Syndrome, Transport, VendorSyndrome, Wqe,
};

const EACH: usize = 40;

/// Kinds of entry as the host names them, and the parameters of each besides index, queue pair and flags.
const KINDS: &[(&str, &str)] = &[
    ("nop", ""),
    ("write", "raddr rkey laddr lkey bytes"),
    ("write", "raddr rkey"),
    ("write_imm", "raddr rkey laddr lkey bytes imm"),
    ("write_imm", "raddr rkey imm"),
    ("read", "raddr rkey laddr lkey bytes"),
    ("send", "laddr lkey bytes"),
    ("send_two", "laddr lkey bytes laddr2 lkey2 bytes2"),
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

/// Returns a random value for the parameter of this name.
fn draw(rng: &mut SmallRng, name: &str) -> u64 {
    let bits = match name {
        "qpn" | "dct" | "cqn" => 24,
        "rlid" => 16,
        "rate_level" | "path" | "tclass" | "hops" => 8,
        "rkey" | "lkey" | "lkey2" | "imm" | "number" | "grh" => 32,
        "bytes" | "bytes2" => return rng.random_range(1..=0x7fff_ffff),
        // Every fence and signal.
        "flags" => return rng.random_range(0..5u64) << 5 | rng.random_range(0..8u64) << 1,
        // Counters of blocks never wrap; the wire has their low 16 bits.
        "index" | "rmac" => 48,
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

/// Returns a vector with parameters and results, and with expected or given bytes.
fn with<const N: usize>(what: &str, values: [(&str, u64); N], bytes: &[u8]) -> Vector {
    let values = values.into_iter().map(|(name, value)| (name.into(), value)).collect();
    Vector { what: what.into(), values, bytes: bytes.into(), ..Vector::default() }
}

/// Returns entries of each kind, some across the end of a ring of any size; the first of each also where the wire's
/// index wraps.
pub fn entries(rng: &mut SmallRng) -> Vec<Vector> {
    let mut all = Vec::new();
    for (what, parameters) in KINDS {
        for i in 0..EACH {
            let mut v = random(rng, what, parameters);
            if i == 0 {
                v.values.insert("index".into(), draw(rng, "index") | 0xffff);
            }
            v.bytes = v.wqe().expect("an entry");
            let transport =
                if *what == "dc_write" { Transport::DynamicInitiator } else { Transport::ReliableConnection };
            Wqe::parse(&v.bytes, transport).unwrap_or_else(|e| panic!("{v:?}: {e}"));
            all.push(v);
        }
    }
    all.extend(named(rng));
    all
}

/// Returns entries that have their own names on the device, built by the host from the operands that the name stands
/// for.
fn named(rng: &mut SmallRng) -> Vec<Vector> {
    let mut all = Vec::new();
    let mut push = |name: String, given: &[(&str, u64)], mut v: Vector| {
        v.bytes = v.wqe().expect("an entry");
        for operand in ["a", "b", "c", "d"] {
            v.values.remove(operand);
        }
        v.values.extend(given.iter().map(|(name, value)| ((*name).into(), *value)));
        v.what = name;
        all.push(v);
    };
    for (bits, mask) in [(32, u64::from(u32::MAX)), (64, u64::MAX)] {
        for (name, operation, operands) in NAMED {
            let mut v = random(rng, &format!("{operation}{bits}"), "raddr rkey laddr lkey");
            let value = draw(rng, "a") & mask;
            for (name, operand) in ["a", "b", "c", "d"].into_iter().zip(operands(value)) {
                v.values.insert(name.into(), operand & mask);
            }
            push(format!("{name}{bits}"), &[("a", value)], v);
        }
        let mut v = random(rng, &format!("masked_swap{bits}"), "raddr rkey laddr lkey");
        let operands = [("a", draw(rng, "a") & mask), ("b", draw(rng, "b") & mask)];
        v.values.extend(operands.iter().chain(&[("c", mask), ("d", mask)]).map(|(n, o)| ((*n).into(), *o)));
        push(format!("cswap{bits}"), &operands, v);
    }
    all
}

/// Returns completions with every syndrome and with none: the last 16 bytes of an entry, and their meaning.
pub fn completions(rng: &mut SmallRng) -> Vec<Vector> {
    let drawn = |syndrome: Option<Syndrome>| {
        let failure =
            syndrome.map(|s| Failure { hardware: rng.random(), ..Failure::new(s, VendorSyndrome(rng.random())) });
        let (outcome, kind) = match failure {
            None => (Outcome::Done, 0),
            Some(f) if rng.random() => (Outcome::ReceiveFailed(f), 0xe),
            Some(f) => (Outcome::Failed(f), 0xd),
        };
        let (owner, solicited, qpn) = (rng.random::<bool>(), rng.random::<bool>(), draw(rng, "qpn") as u32);
        let (opcode, wqe_counter) = (rng.random(), rng.random());
        let c = Completion { qpn, user_index: 0, wqe_counter, opcode, bytes: 0, solicited, outcome };
        let mut v = with(
            "cqe",
            [
                ("kind", kind),
                ("opcode", opcode.into()),
                ("qpn", qpn.into()),
                ("counter", wqe_counter.into()),
                ("owner", owner.into()),
                ("solicited", solicited.into()),
            ],
            &bytemuck::bytes_of(&c.to_cqe(owner))[48..],
        );
        if let Some(f) = failure {
            v.values.extend([
                ("syndrome".to_owned(), f.syndrome.0.into()),
                ("vendor".to_owned(), f.vendor.0.into()),
                ("hardware_type".to_owned(), f.hardware.0.into()),
                ("hardware".to_owned(), f.hardware.1.into()),
            ]);
        }
        v
    };
    Syndrome::ALL.iter().map(|s| Some(*s)).chain([None]).map(drawn).collect()
}

/// Returns whole entries of received messages, with the data in the entry or not.
pub fn received(rng: &mut SmallRng) -> Vec<Vector> {
    let drawn = |_| {
        let (owner, in_entry, qpn) = (rng.random::<bool>(), rng.random::<bool>(), draw(rng, "qpn") as u32);
        let length = rng.random_range(16..=32u32);
        let data: Vec<u8> = (0..length).map(|_| rng.random()).collect();
        let outcome = Outcome::Received { what: CqeOpcode::Send, immediate: None };
        let (user_index, wqe_counter, solicited) = (draw(rng, "qpn") as u32, rng.random(), rng.random());
        let c = Completion { qpn, user_index, wqe_counter, opcode: 0, bytes: length, solicited, outcome };
        let cqe = if in_entry { c.to_cqe_with_data(owner, &data) } else { c.to_cqe(owner) };
        let word = if in_entry { u32::from_le_bytes(data[12..16].try_into().expect("4 bytes")) } else { 0 };
        with(
            "received",
            [
                ("kind", 2),
                ("qpn", qpn.into()),
                ("counter", wqe_counter.into()),
                ("owner", owner.into()),
                ("length", length.into()),
                ("in_entry", in_entry.into()),
                ("word", word.into()),
            ],
            bytemuck::bytes_of(&cqe),
        )
    };
    (0..EACH).map(drawn).collect()
}

/// Returns doorbells and records; results of polling a queue; and words with their bytes in another order.
pub fn questions(rng: &mut SmallRng) -> Vec<Vector> {
    let mut all = Vec::new();
    for _ in 0..EACH {
        let (qpn, next, more) = (draw(rng, "qpn"), draw(rng, "index"), draw(rng, "index"));
        let bell = SendDoorbell::new(qpn as u32, next).to_bytes();
        all.push(with("doorbell", [("qpn", qpn), ("next", next)], &bell));
        let record = QpRecord::new(more, next);
        all.push(with("qp_record", [("receive", more), ("send", next)], bytemuck::bytes_of(&record)));
        all.push(with("cq_record", [("consumed", next)], bytemuck::bytes_of(&CqRecord::new(next))));

        let log = rng.random_range(7..=15);
        let (ring, op_own) = (CompletionRing::new(log).expect("a size"), rng.random::<u8>());
        let written = ring.is_written(next, op_own).into();
        let polled = [("entries", 1 << log), ("ci", next), ("op_own", op_own.into()), ("written", written)];
        all.push(with("ring", polled, &[]));
        let queue = Collapsed::new(log).expect("a size");
        // Announced blocks are at most a ring ahead of completed ones.
        let counter = (next as u16).wrapping_sub(rng.random_range(0..=1 << log));
        let completed = if queue.is_complete(next, counter) { queue.completed(next, counter) } else { 0 };
        let polled = [("entries", 1 << log), ("index", next), ("counter", counter.into()), ("completed", completed)];
        all.push(with("collapsed", polled, &[]));

        let (a, b) = (rng.random::<u64>(), rng.random::<u32>());
        let low = (a as u32).swap_bytes().into();
        all.push(with("swap", [("a", a), ("low", low), ("both", a.swap_bytes()), ("landed", low)], &[]));
        let from = [(a as u32).to_le_bytes(), b.to_le_bytes()].concat();
        let select: [usize; 4] = std::array::from_fn(|_| rng.random_range(0..8));
        let nibbles = select.iter().rev().fold(0, |all, s| all << 4 | *s as u64);
        let word = u32::from_le_bytes(select.map(|s| from[s])).into();
        all.push(with("permute", [("a", a & 0xffff_ffff), ("b", b.into()), ("c", nibbles), ("word", word)], &[]));
    }
    all
}
