//! Properties of a BVGraph: a file of Java's properties, whose keys say how the bits of the graph are coded.

use super::bits::Code;
use super::record::{Codes, Shape};
use crate::graph::import::bytes::Bytes;
use crate::graph::import::error::ImportError;
use crate::graph::import::text;
use crate::units::visible;
use std::collections::HashMap;
use std::str::FromStr;

/// Largest file of properties that is read, in bytes. WebGraph writes about 2 KiB.
const MOST_BYTES: u64 = 1 << 20;
/// Largest window. WebGraph's own default is 7.
const MOST_WINDOW: u64 = 1 << 16;
/// Largest number of vertices: a list has a bit at least, and a file fewer than 2^63.
const MOST_VERTICES: u64 = 1 << 62;
const CLASS: &str = "it.unimi.dsi.webgraph.BVGraph";

/// The properties that decide how the files of a graph are read.
#[derive(Debug, PartialEq)]
pub(super) struct Properties {
    pub shape: Shape,
    pub is_little_endian: bool,
    /// Code of the distances in the file of offsets.
    pub offsets: Code,
}

impl Properties {
    pub(super) fn read(bytes: &Bytes<'_>) -> Result<Self, ImportError> {
        let wrong = |reason| ImportError::BvGraph { path: bytes.path().to_owned(), reason };
        if bytes.len() > MOST_BYTES {
            return Err(wrong(format!("has {} bytes, which properties of a graph do not have", bytes.len())));
        }
        let mut text = vec![0; bytes.len() as usize];
        bytes.read(0, &mut text)?;
        Self::parse(&String::from_utf8_lossy(&text)).map_err(wrong)
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let values = Values::of(text);
        let class = values.text("graphclass")?;
        let plain = class.trim_start_matches("class ").replace("dsi.big.webgraph", "dsi.webgraph");
        if plain != CLASS {
            let remedy = match plain.contains("Labelled") {
                true => "name the graph without labels, which the property `underlyinggraph` names".to_owned(),
                false => format!("only {CLASS} is read; store the graph as that with WebGraph"),
            };
            return Err(format!("its class is `{}`; {remedy}", visible(&class.chars().take(100).collect::<String>())));
        }
        let version: u64 = values.number("version", Some(0), 1)?;
        // The crate writes the order of the bits, and Java's WebGraph, which knows one, does not.
        let order = values.0.get("endianness").copied();
        let is_little_endian = match order {
            None | Some("big") => false,
            Some("little") if version == 1 => true,
            Some("little") => return Err("endianness is little in version 0, which has none; it is damaged".to_owned()),
            Some(other) => return Err(format!("endianness {} is neither big nor little", quoted(other))),
        };
        let (codes, offsets) = codes(&values, order.is_some())?;
        let shape = Shape {
            vertices: values.number("nodes", None, MOST_VERTICES)?,
            arcs: values.number("arcs", None, u64::MAX)?,
            codes,
            window: values.number("windowsize", Some(7), MOST_WINDOW)?,
            least_interval: values.number("minintervallength", Some(4), u64::MAX)?,
        };
        if u128::from(shape.arcs) > u128::from(shape.vertices).pow(2) {
            let (arcs, nodes) = (shape.arcs, shape.vertices);
            return Err(format!(
                "arcs is {arcs}, but {nodes} nodes have no more than {nodes} arcs each; it is damaged"
            ));
        }
        Ok(Self { shape, is_little_endian, offsets })
    }
}

/// Chooses the codes. `is_of_crate` tells that the crate `webgraph` wrote the graph: there the code of blocks is that of
/// their number, too, which has a name of its own in Java.
fn codes(values: &Values<'_>, is_of_crate: bool) -> Result<(Codes, Code), String> {
    let k = values.number("zetak", Some(3), 7)?;
    if k == 0 {
        return Err("zetak is 0, and it must lie between 1 and 7".to_owned());
    }
    let mut codes = Codes {
        degrees: Code::Gamma,
        references: Code::Unary,
        block_counts: Code::Gamma,
        blocks: Code::Gamma,
        intervals: Code::Gamma,
        residuals: Code::Zeta(k as u32),
    };
    let mut offsets = Code::Gamma;
    let flags = values.0.get("compressionflags").copied().unwrap_or_default();
    for flag in flags.split('|').map(str::trim).filter(|flag| !flag.is_empty()) {
        let unknown = || {
            format!(
                "compressionflags has {}, which is not known; the codes are UNARY, GAMMA, DELTA, OMEGA, ZETA1 to ZETA7 and PI1 to PI4; store the graph with one of them",
                quoted(flag)
            )
        };
        let (part, name) = flag.rsplit_once('_').ok_or_else(unknown)?;
        let code = code(name, k as u32).ok_or_else(unknown)?;
        match part {
            "OUTDEGREES" => codes.degrees = code,
            "REFERENCES" => codes.references = code,
            "BLOCK_COUNT" => codes.block_counts = code,
            "BLOCKS" if is_of_crate => (codes.block_counts, codes.blocks) = (code, code),
            "BLOCKS" => codes.blocks = code,
            "INTERVALS" => codes.intervals = code,
            "RESIDUALS" => codes.residuals = code,
            "OFFSETS" => offsets = code,
            _ => return Err(unknown()),
        }
    }
    Ok((codes, offsets))
}

/// Returns the code of a name. `k` is that of ζ codes that have none in their names.
fn code(name: &str, k: u32) -> Option<Code> {
    let digit = |prefix, most| name.strip_prefix(prefix)?.parse().ok().filter(|k| (1..=most).contains(k));
    match name {
        "UNARY" => Some(Code::Unary),
        "GAMMA" => Some(Code::Gamma),
        "DELTA" => Some(Code::Delta),
        "OMEGA" => Some(Code::Omega),
        "ZETA" => Some(Code::Zeta(k)),
        _ => digit("ZETA", 7).map(Code::Zeta).or_else(|| digit("PI", 4).map(Code::Pi)),
    }
}

/// Values by their keys.
struct Values<'a>(HashMap<&'a str, &'a str>);

impl<'a> Values<'a> {
    fn of(text: &'a str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '!']));
        let pairs = lines.filter_map(|line| line.split_once(['=', ':']));
        Self(pairs.map(|(key, value)| (key.trim(), value.trim())).collect())
    }

    fn text(&self, key: &str) -> Result<&'a str, String> {
        self.0
            .get(key)
            .copied()
            .ok_or_else(|| format!("has no `{key}`; these are not the properties of a BVGraph, or cut short; choose the format if the graph is a METIS graph"))
    }

    /// Returns a whole number up to `most`, or `without` if the key is missing.
    fn number(&self, key: &str, without: Option<u64>, most: u64) -> Result<u64, String> {
        let text = match (self.0.get(key), without) {
            (None, Some(number)) => return Ok(number),
            _ => self.text(key)?,
        };
        let wrong = || format!("{key} is {}, and it must be a whole number from 0 to {most}", quoted(text));
        u64::from_str(text).ok().filter(|&number| number <= most).ok_or_else(wrong)
    }
}

fn quoted(value: &str) -> String {
    format!("`{}`", text::quote(value.as_bytes()))
}
