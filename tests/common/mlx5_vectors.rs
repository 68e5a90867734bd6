//! Golden vectors (`mlx5_vectors.txt`), and entries built from the parameters of one. The test of the device library
//! includes this file too, so it names the crate as that test does.

use std::collections::BTreeMap;
use warpbell::wire::mlx5::segment::{DataSegment, GlobalAddress, HalfAddressVector};
use warpbell::wire::mlx5::wqe::{SendWith, Target};
use warpbell::wire::mlx5::{Atomic, Flags, Operation, Payload, Remote, Wqe};

/// A line of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vector {
    /// Kind of entry, record or question.
    pub what: String,
    /// Parameters and expected results.
    pub values: BTreeMap<String, u64>,
    /// Data in the entry itself.
    pub inline: Vec<u8>,
    /// Expected bytes.
    pub bytes: Vec<u8>,
}

fn number(text: &str) -> u64 {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    parsed.unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|i| number(&format!("0x{}", &digits[i..i + 2])) as u8).collect()
}

/// Returns all lines of the file.
pub fn all() -> impl Iterator<Item = Vector> {
    include_str!("mlx5_vectors.txt").lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(Vector::parse)
}

impl Vector {
    /// Reads a line.
    pub fn parse(line: &str) -> Self {
        let (head, bytes) = line.split_once(" : ").unwrap_or((line, ""));
        let (what, parameters) = head.split_once(' ').expect("parameters");
        let mut v = Self { what: what.into(), bytes: hex(bytes), ..Self::default() };
        for (name, value) in parameters.split(' ').map(|p| p.split_once('=').expect("name=value")) {
            if name == "inline" {
                v.inline = hex(value);
            } else {
                v.values.insert(name.into(), number(value));
            }
        }
        v
    }
    /// Returns a value that must exist.
    pub fn get(&self, name: &str) -> u64 {
        *self.values.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
    /// Returns a value, or 0 if it does not exist.
    pub fn or_zero(&self, name: &str) -> u64 {
        self.values.get(name).copied().unwrap_or_default()
    }
    fn remote(&self) -> Remote {
        Remote { address: self.get("raddr"), key: self.get("rkey") as u32 }
    }
    fn piece(&self, bytes: u64) -> DataSegment {
        DataSegment::new(self.get("laddr"), self.get("lkey") as u32, bytes as u32)
    }
    fn atomic(&self) -> Option<Atomic> {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|n| self.or_zero(n));
        let [a32, b32, c32, d32] = [a, b, c, d].map(|v| v as u32);
        Some(match self.what.as_str() {
            "fetch_add" => Atomic::FetchAdd { add: a },
            "compare_swap" => Atomic::CompareSwap { swap: a, compare: b },
            "masked_add32" => Atomic::MaskedAdd32 { add: a32, boundary: b32 },
            "masked_add64" => Atomic::MaskedAdd64 { add: a, boundary: b },
            "masked_swap32" => Atomic::MaskedSwap32 { swap: a32, compare: b32, swap_mask: c32, compare_mask: d32 },
            "masked_swap64" => Atomic::MaskedSwap64 { swap: a, compare: b, swap_mask: c, compare_mask: d },
            _ => return None,
        })
    }
    fn target(&self) -> Option<Target> {
        self.values.get("dct").map(|&dct| Target {
            half: HalfAddressVector {
                dc_key: self.get("dc_key").into(),
                dct: (dct as u32).into(),
                rate_level: self.or_zero("rate_level") as u8,
                loopback_path: self.or_zero("path") as u8,
                rlid: (self.get("rlid") as u16).into(),
            },
            global: self.values.get("rgid_high").map(|high| {
                let (mac, low) = (self.get("rmac").to_be_bytes(), self.get("rgid_low"));
                GlobalAddress {
                    reserved: 0.into(),
                    rmac: mac[2..].try_into().expect("6 bytes"),
                    traffic_class: self.get("tclass") as u8,
                    hop_limit: self.get("hops") as u8,
                    grh_gid_flow: (self.get("grh") as u32).into(),
                    rgid: (u128::from(*high) << 64 | u128::from(low)).to_be_bytes(),
                }
            }),
        })
    }
    /// Returns the pieces of local memory.
    pub fn pieces(&self) -> Vec<DataSegment> {
        let piece = self.values.get("bytes").map(|&n| self.piece(n));
        let second = self
            .values
            .get("bytes2")
            .map(|&n| DataSegment::new(self.get("laddr2"), self.get("lkey2") as u32, n as u32));
        piece.into_iter().chain(second).collect()
    }
    /// Returns the entry of a send queue as the host builds it; `None` if the line is not about one.
    pub fn wqe(&self) -> Option<Vec<u8>> {
        let two = self.pieces();
        let piece = two.first().copied();
        let pieces = Payload::Pieces(piece.as_slice());
        let imm = self.or_zero("imm") as u32;
        let operation = match self.what.as_str() {
            "nop" => Operation::Nop,
            "write" | "dc_write" => Operation::Write { remote: self.remote(), payload: pieces, immediate: None },
            "write_imm" => Operation::Write { remote: self.remote(), payload: pieces, immediate: Some(imm) },
            "inline_write" => {
                Operation::Write { remote: self.remote(), payload: Payload::Inline(&self.inline), immediate: None }
            }
            "read" => Operation::Read { remote: self.remote(), into: piece.as_slice() },
            "send" => Operation::Send { payload: pieces, with: SendWith::Nothing },
            "send_two" => Operation::Send { payload: Payload::Pieces(&two), with: SendWith::Nothing },
            "send_imm" => Operation::Send { payload: pieces, with: SendWith::Immediate(imm) },
            "send_inval" => Operation::Send { payload: pieces, with: SendWith::Invalidate(imm) },
            "inline_send" => Operation::Send { payload: Payload::Inline(&self.inline), with: SendWith::Nothing },
            "dump" => Operation::Dump { piece: piece.expect("bytes") },
            "wait" => Operation::Wait { cqn: self.get("cqn") as u32, index: self.get("number") as u32 },
            _ => {
                let action = self.atomic()?;
                let landing = self.piece(action.operand_bytes().into());
                Operation::Atomic { remote: self.remote(), action, landing }
            }
        };
        let flags = Flags::from_byte(self.get("flags") as u8).expect("flags that exist");
        let (index, qpn) = (self.get("index") as u16, self.get("qpn") as u32);
        let wqe = Wqe { index, qpn, flags, target: self.target(), operation };
        Some(wqe.to_bytes().unwrap_or_else(|e| panic!("{self:?}: {e}")))
    }
}
