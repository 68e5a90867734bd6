//! The textual form of a configuration: what follows `soft:` on a command line.

use super::config::{Backing, FileIo, NamespaceConfig, SoftConfig, Streaming};
use super::fault::{
    Access, Corruption, Latency, MediaError, Readiness, Selector, Shrink, SlowDrain, StuckQueue, TornWrite, Trigger,
};
use crate::suggest::{closest, hint};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::time::Duration;

/// Why a specification could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Nothing after `soft:`.
    #[error("`soft:` needs what holds the blocks: `mem`, `mem:SIZE` or a file")]
    Empty,
    /// A key that does not exist.
    #[error("software controller: no key `{key}`; there are {}{}", KEYS.join(", "), hint(.key, KEYS.iter().copied()))]
    UnknownKey {
        /// As it was written.
        key: String,
    },
    /// A value that does not fit the key.
    #[error("software controller: `{key}={value}`: expected {expected}")]
    BadValue {
        /// The key.
        key: String,
        /// The value as it was written.
        value: String,
        /// What would do, with an example.
        expected: &'static str,
    },
    /// A file that does not exist, and whose name looks like something else: an option, or `mem` misspelled.
    #[error("software controller: `{name}` {looks}; a file of that name is soft:file:{name}{meant}")]
    NotAName {
        /// As it was written.
        name: String,
        /// A description of its look, as in `names no file`.
        looks: String,
        /// The end of the message, with the word that may have been meant.
        meant: String,
    },
    /// A key that has no meaning together with the rest.
    #[error("software controller: `{key}` {reason}")]
    Misplaced {
        /// The key.
        key: String,
        /// Why.
        reason: &'static str,
    },
}

const KEYS: &[&str] = &[
    "block",
    "corrupt",
    "direct",
    "disappear",
    "entries",
    "fail-flush",
    "fatal",
    "file",
    "io",
    "latency",
    "lose-completion",
    "lose-doorbell",
    "media-error",
    "namespaces",
    "never-ready",
    "queues",
    "ready-timeout",
    "reorder",
    "repeat-completion",
    "seed",
    "shrink",
    "slow-drain",
    "slow-ready",
    "streaming",
    "stride",
    "stuck-queue",
    "threads",
    "torn-write",
    "transfer",
    "wrong-phase",
];

const SIZE: &str = "a size such as 512, 64k, 256M or 8G";
const TIME: &str = "a time such as 500ns, 20us, 5ms or 1s";
const NUMBER: &str = "a whole number";
const BLOCKS: &str = "a block or a range of blocks such as 100 or 100-107";
const SELECTOR: &str = "every:N, or a range of blocks such as 100-107";
const TORN: &str = "every:N or a range of blocks such as 100-107, with silent: before it if the command is to succeed";
const CORRUPT: &str = "every:N or a range of blocks such as 100-107, with read: or write: before it for one of the two";
const DRAIN: &str = "a time such as 5ms, or QUEUE:TIME";
const TRIGGER: &str = "after:N, once:N, or a range of blocks such as 100-107";

/// Splits at commas that no backslash escapes.
fn fields(spec: &str) -> Vec<String> {
    let (mut out, mut field) = (Vec::new(), String::new());
    let mut chars = spec.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some(',')) => field.extend(chars.next()),
            (',', _) => out.push(std::mem::take(&mut field)),
            _ => field.push(c),
        }
    }
    out.push(field);
    out
}

fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_suffix("iB").or_else(|| text.strip_suffix(['B', 'b'])).unwrap_or(text);
    let shift = match text.chars().last()?.to_ascii_lowercase() {
        'k' => 10,
        'm' => 20,
        'g' => 30,
        't' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    number::<u64>(digits)?.checked_mul(1 << shift)
}

/// Digits only: `parse` alone would take a plus sign.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// A time with its unit: `20us`, `1.5s`; at most an hour.
pub(in crate::soft) fn time(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ')?;
    let value: f64 = text[..unit].parse().ok()?;
    let scale = match &text[unit..] {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    // An hour is far beyond every time-out and keeps sums of times far from overflow.
    let seconds = value * scale;
    (0.0..=3600.0).contains(&seconds).then(|| Duration::from_nanos((seconds * 1e9).round() as u64))
}

fn range(text: &str) -> Option<RangeInclusive<u64>> {
    match text.split_once('-') {
        None => number(text).map(|n| n..=n),
        Some((a, b)) => {
            let (a, b) = (number(a)?, number(b)?);
            (a <= b).then_some(a..=b)
        }
    }
}

fn every(text: &str) -> Option<u64> {
    number(text.strip_prefix("every:")?).filter(|n| *n > 0)
}

fn selector(text: &str) -> Option<Selector> {
    every(text).map(Selector::Every).or_else(|| range(text).map(Selector::Blocks))
}

fn trigger(text: &str) -> Option<Trigger> {
    if let Some(n) = text.strip_prefix("after:") {
        return number(n).map(Trigger::After);
    }
    match text.strip_prefix("once:") {
        Some(n) => number(n).map(Trigger::Once),
        None => range(text).map(Trigger::Blocks),
    }
}

fn stuck(text: &str) -> Option<StuckQueue> {
    match text.strip_prefix("after:") {
        Some(n) => Some(StuckQueue { queue: None, after: number(n)? }),
        None => {
            let (queue, after) = text.split_once(":after:")?;
            Some(StuckQueue { queue: Some(number(queue)?), after: number(after)? })
        }
    }
}

fn latency(text: &str) -> Option<Latency> {
    if let Some(mean) = text.strip_prefix("exp:") {
        return time(mean).map(Latency::Exponential);
    }
    match text.split_once('-') {
        None => time(text).map(Latency::Fixed),
        Some((low, high)) => {
            let (low, high) = (time(low)?, time(high)?);
            (low <= high).then_some(Latency::Uniform(low, high))
        }
    }
}

/// Takes `read:` or `write:` off the front.
fn access(text: &str) -> (Access, &str) {
    match text.split_once(':') {
        Some(("read", rest)) => (Access::Read, rest),
        Some(("write", rest)) => (Access::Write, rest),
        _ => (Access::Both, text),
    }
}

fn media_error(text: &str) -> Option<MediaError> {
    let (access, blocks) = access(text);
    Some(MediaError { blocks: range(blocks)?, access })
}

fn corruption(text: &str) -> Option<Corruption> {
    let (access, which) = access(text);
    Some(Corruption { which: selector(which)?, access })
}

fn torn(text: &str) -> Option<TornWrite> {
    let silent = text.strip_prefix("silent:");
    Some(TornWrite { which: selector(silent.unwrap_or(text))?, silent: silent.is_some() })
}

fn drain(text: &str) -> Option<SlowDrain> {
    let (queue, interval) = match text.split_once(':') {
        None => (None, text),
        Some((queue, interval)) => (Some(number(queue)?), interval),
    };
    Some(SlowDrain { queue, interval: time(interval)? })
}

fn shrink(text: &str) -> Option<Shrink> {
    let (blocks, after) = text.split_once(":after:")?;
    Some(Shrink { blocks: number(blocks)?, after: number(after)? })
}

fn need<T>(
    key: &str,
    value: Option<&str>,
    expected: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, SpecError> {
    let value = value.unwrap_or_default();
    read(value).ok_or_else(|| SpecError::BadValue { key: key.into(), value: value.into(), expected })
}

fn flag(key: &str, value: Option<&str>) -> Result<(), SpecError> {
    match value {
        None => Ok(()),
        Some(_) => Err(SpecError::Misplaced { key: key.into(), reason: "takes no value" }),
    }
}

fn file(name: &str) -> Backing {
    Backing::File { path: path(name), io: FileIo::default(), direct: false }
}

/// Writes what follows `soft:` as text, whatever bytes a file's name has: those that are not UTF-8 become `\xHH`.
pub fn escape(text: &OsStr) -> String {
    let mut out = String::new();
    for chunk in text.as_bytes().utf8_chunks() {
        out += chunk.valid();
        chunk.invalid().iter().for_each(|byte| out += &format!("\\x{byte:02x}"));
    }
    out
}

/// The path of a name that [`escape`] may have written.
fn path(name: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("\\x") {
        let digits = rest.get(at + 2..at + 4);
        match digits.and_then(|d| u8::from_str_radix(d, 16).ok()).filter(|byte| !byte.is_ascii()) {
            Some(byte) => {
                bytes.extend_from_slice(&rest.as_bytes()[..at]);
                bytes.push(byte);
                rest = &rest[at + 4..];
            }
            None => {
                bytes.extend_from_slice(&rest.as_bytes()[..at + 2]);
                rest = &rest[at + 2..];
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    OsString::from_vec(bytes).into()
}

/// Refuses what is no file and looks like something else, so that it does not become a new file's name.
fn check_name(name: &str) -> Result<(), SpecError> {
    if path(name).symlink_metadata().is_ok() {
        return Ok(());
    }
    let refuse =
        |looks: &str, meant| Err(SpecError::NotAName { name: name.to_owned(), looks: looks.to_owned(), meant });
    let is_word = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let key = name.split_once('=').map_or(name, |(key, _)| key);
    if KEYS.contains(&key) {
        let looks = format!("is an option, which follows what holds the blocks, as in soft:mem:1G,{name}");
        return refuse(&looks, String::new());
    }
    if key != name && is_word(key) {
        let (known, meant) = (KEYS.join(", "), hint(key, KEYS.iter().copied()));
        return refuse("names no file", format!("; there is no key `{key}`, there are {known}{meant}"));
    }
    let (word, rest) = name.split_once(':').map_or((name, None), |(word, rest)| (word, Some(rest)));
    if !is_word(word) || word.bytes().any(|b| b.is_ascii_digit()) {
        return Ok(());
    }
    let known: &[&str] = if rest.is_some() { &["mem", "file"] } else { &["mem"] };
    let lower = word.to_ascii_lowercase();
    let meant = match rest.and_then(size) {
        Some(_) => Some("mem"),
        None => known.iter().find(|k| **k == lower).copied().or_else(|| closest(&lower, known.iter().copied())),
    };
    let Some(meant) = meant else { return Ok(()) };
    refuse("names no file", format!("; did you mean soft:{meant}{}?", &name[word.len()..]))
}

pub(super) fn parse(spec: &str) -> Result<SoftConfig, SpecError> {
    let fields = fields(spec);
    let (first, rest) = fields.split_first().ok_or(SpecError::Empty)?;
    let backing = match first.strip_prefix("mem").map(|r| (r, r.strip_prefix(':'))) {
        Some(("", _)) => Backing::Memory { bytes: None },
        Some((_, Some(text))) => Backing::Memory { bytes: Some(need("mem", Some(text), SIZE, size)?) },
        _ => match (first.strip_prefix("file:"), first.as_str()) {
            (Some(""), _) | (None, "") => return Err(SpecError::Empty),
            (Some(name), _) => file(name),
            (None, name) => {
                check_name(name)?;
                file(name)
            }
        },
    };
    let in_memory = matches!(backing, Backing::Memory { .. });
    let mut config = SoftConfig::from_namespaces(vec![NamespaceConfig::new(backing)]);
    let (mut block, mut io, mut direct, mut copies) = (None, None, false, 1usize);
    for field in rest {
        let (key, value) = match field.split_once('=') {
            Some((k, v)) => (k, Some(v)),
            None => (field.as_str(), None),
        };
        let faults = &mut config.faults;
        match key {
            "block" => {
                let sizes = |t: &str| size(t).filter(|s| [512, 4096].contains(s));
                block = Some(need(key, value, "512 or 4096", sizes)? as u32);
            }
            "io" => {
                let known = |t: &str| match t {
                    "uring" | "io_uring" => Some(FileIo::Uring),
                    "pread" => Some(FileIo::Pread),
                    "mmap" => Some(FileIo::Mmap),
                    _ => None,
                };
                io = Some(need(key, value, "uring, pread or mmap", known)?);
            }
            "direct" => {
                flag(key, value)?;
                direct = true;
            }
            "file" => {
                let path = need(key, value, "the name of a file", |t| (!t.is_empty()).then(|| t.to_owned()))?;
                config.namespaces.push(NamespaceConfig::new(file(&path)));
            }
            "namespaces" => copies = need(key, value, "1 to 1024", |t| number(t).filter(|n| (1..=1024).contains(n)))?,
            "threads" => config.threads = Some(need(key, value, "1 to 1024", |t| number(t).filter(|n| *n > 0))?),
            "entries" => config.max_queue_entries = need(key, value, NUMBER, number)?,
            "queues" => config.max_queue_pairs = need(key, value, NUMBER, number)?,
            "transfer" => {
                config.max_transfer_bytes = need(key, value, SIZE, |t| size(t).and_then(|s| u32::try_from(s).ok()))?;
            }
            "stride" => config.doorbell_stride = need(key, value, NUMBER, number)?,
            "ready-timeout" => config.ready_timeout = need(key, value, TIME, time)?,
            "streaming" => {
                let known = |t: &str| match t {
                    "auto" => Some(Streaming::Auto),
                    "always" => Some(Streaming::Always),
                    "never" => Some(Streaming::Never),
                    _ => None,
                };
                config.streaming = need(key, value, "auto, always or never", known)?;
            }
            "media-error" => faults.media_errors.push(need(key, value, BLOCKS, media_error)?),
            "latency" => faults.latency = need(key, value, TIME, latency)?,
            "lose-completion" => faults.lose_completion = Some(need(key, value, SELECTOR, selector)?),
            "wrong-phase" => faults.wrong_phase = Some(need(key, value, SELECTOR, selector)?),
            "lose-doorbell" => faults.lose_doorbell = Some(need(key, value, "every:N", every)?),
            "stuck-queue" => faults.stuck_queue = Some(need(key, value, "after:N or QUEUE:after:N", stuck)?),
            "fatal" => faults.fatal = Some(need(key, value, TRIGGER, trigger)?),
            "disappear" => faults.disappear = Some(need(key, value, TRIGGER, trigger)?),
            "fail-flush" => faults.fail_flush = Some(need(key, value, "every:N", every)?),
            "repeat-completion" => faults.repeat_completion = Some(need(key, value, SELECTOR, selector)?),
            "torn-write" => faults.torn_write = Some(need(key, value, TORN, torn)?),
            "corrupt" => faults.corrupt.push(need(key, value, CORRUPT, corruption)?),
            "slow-drain" => faults.slow_drain = Some(need(key, value, DRAIN, drain)?),
            "shrink" => faults.shrink = Some(need(key, value, "BLOCKS:after:N", shrink)?),
            "slow-ready" => faults.ready = Readiness::Slow(need(key, value, TIME, time)?),
            "never-ready" => {
                flag(key, value)?;
                faults.ready = Readiness::Never;
            }
            "reorder" => {
                flag(key, value)?;
                faults.reorder = true;
            }
            "seed" => faults.seed = need(key, value, NUMBER, number)?,
            _ => return Err(SpecError::UnknownKey { key: key.into() }),
        }
    }
    let misplaced = |key: &str, reason| Err(SpecError::Misplaced { key: key.into(), reason });
    let files = config.namespaces.iter().any(|n| matches!(n.backing, Backing::File { .. }));
    if !files && (io.is_some() || direct) {
        return misplaced(if direct { "direct" } else { "io" }, "is for files; memory has no choice");
    }
    if direct && io == Some(FileIo::Mmap) {
        return misplaced("direct", "goes around the page cache, and io=mmap reads from it; choose one");
    }
    if copies > 1 && !(in_memory && config.namespaces.len() == 1) {
        return misplaced("namespaces", "is for memory; give one `file=FILE` more per file");
    }
    let one = config.namespaces[0].clone();
    config.namespaces.resize(copies.max(config.namespaces.len()), one);
    for n in &mut config.namespaces {
        n.block_bytes = block.unwrap_or(n.block_bytes);
        if let Backing::File { io: how, direct: d, .. } = &mut n.backing {
            (*how, *d) = (io.unwrap_or_default(), direct);
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::super::fault::FaultPlan;
    use super::*;
    use proptest::prelude::*;

    fn backing(spec: &str) -> Backing {
        parse(spec).unwrap().namespaces[0].backing.clone()
    }

    #[test]
    fn memory_and_files() {
        assert_eq!(backing("mem"), Backing::Memory { bytes: None });
        assert_eq!(backing("mem:64M"), Backing::Memory { bytes: Some(64 << 20) });
        assert_eq!(backing("mem:1T"), Backing::Memory { bytes: Some(1 << 40) });
        assert_eq!(backing("mem:512"), Backing::Memory { bytes: Some(512) });
        assert_eq!(backing("edges.img"), file("edges.img"));
        assert_eq!(backing("memory.img"), file("memory.img"), "a file whose name begins with mem");
        assert_eq!(backing("file:mem:64M"), file("mem:64M"));
        assert_eq!(backing(r"a\,b.img,block=4096"), file("a,b.img"));
        let c = parse("a.img,file=b.img,io=mmap,block=4096").unwrap();
        let expected = |p: &str| {
            let backing = Backing::File { path: p.into(), io: FileIo::Mmap, direct: false };
            NamespaceConfig::new(backing).block_bytes(4096)
        };
        assert_eq!(c.namespaces, [expected("a.img"), expected("b.img")]);
        assert_eq!(parse("mem:1M,namespaces=3").unwrap().namespaces.len(), 3);
    }

    #[test]
    fn faults_and_limits() {
        let c =
            parse("mem:64M,media-error=100-107,media-error=write:9,latency=20us,lose-completion=every:1000").unwrap();
        assert_eq!(c.faults.media_errors[0], MediaError { blocks: 100..=107, access: Access::Both });
        assert_eq!(c.faults.media_errors[1], MediaError { blocks: 9..=9, access: Access::Write });
        assert_eq!(c.faults.latency, Latency::Fixed(Duration::from_micros(20)));
        assert_eq!(c.faults.lose_completion, Some(Selector::Every(1000)));
        let c = parse("mem,threads=3,entries=64,queues=5,transfer=1M,stride=0,ready-timeout=1s,stuck-queue=2:after:7")
            .unwrap();
        assert_eq!((c.threads, c.max_queue_entries, c.max_queue_pairs), (Some(3), 64, 5));
        assert_eq!((c.max_transfer_bytes, c.doorbell_stride), (1 << 20, 0));
        assert_eq!(c.faults.stuck_queue, Some(StuckQueue { queue: Some(2), after: 7 }));
        assert_eq!(parse("mem,never-ready,reorder,seed=4").unwrap().faults.ready, Readiness::Never);
    }

    #[test]
    fn what_looks_like_something_else_is_no_new_file() {
        let text = |s: &str| parse(s).unwrap_err().to_string();
        for (spec, words) in [
            (
                "nonsense=1",
                ["there is no key `nonsense`, there are block,", "a file of that name is soft:file:nonsense=1"],
            ),
            ("blok=4096", ["did you mean `block`?", "soft:file:blok=4096"]),
            ("block=4096", ["`block=4096` is an option", "as in soft:mem:1G,block=4096"]),
            ("never-ready", ["`never-ready` is an option", "soft:file:never-ready"]),
            ("men:1G", ["did you mean soft:mem:1G?", "soft:file:men:1G"]),
            ("men", ["did you mean soft:mem?", "soft:file:men"]),
            ("MEM:1G,block=4096", ["did you mean soft:mem:1G?", "soft:file:MEM:1G"]),
            ("memory:64M", ["did you mean soft:mem:64M?", "soft:file:memory:64M"]),
            ("fiel:a.img", ["did you mean soft:file:a.img?", "soft:file:fiel:a.img"]),
        ] {
            words.iter().for_each(|w| assert!(text(spec).contains(w), "{spec}: {}", text(spec)));
        }
        for name in ["nonsense=1", "men:1G", "block=4096", "mem:1G"] {
            assert_eq!(backing(&format!("file:{name}")), file(name));
        }
        for name in ["edges:new.img", "12:30", "edges", "./x=1", "/data/run=3.img", "mesh.img"] {
            assert_eq!(backing(name), file(name));
        }
        // A file of such a name that is there is meant.
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("nonsense=1");
        std::fs::write(&there, b"").unwrap();
        assert_eq!(check_name(there.to_str().unwrap()), Ok(()));
    }

    #[test]
    fn names_that_are_not_utf_8_are_written_with_escapes() {
        let name = OsString::from_vec(b"a\xff\xc3.img".to_vec());
        assert_eq!(escape(&name), r"a\xff\xc3.img");
        let Backing::File { path, .. } = backing(&format!("{},io=mmap", escape(&name))) else { panic!("no file") };
        assert_eq!(path, PathBuf::from(&name));
        for plain in [r"a\x41.img", r"a\xg0", r"\x", "ä.img"] {
            assert_eq!((super::path(plain), escape(OsStr::new(plain))), (plain.into(), plain.to_owned()));
        }
    }

    #[test]
    fn errors_say_what_would_do() {
        let text = |s: &str| parse(s).unwrap_err().to_string();
        assert_eq!(parse(""), Err(SpecError::Empty));
        assert_eq!(parse("file:"), Err(SpecError::Empty));
        assert!(text("mem,colour=red").contains("no key `colour`") && text("mem,colour=red").contains("media-error"));
        assert!(text("mem,").contains("no key ``"));
        assert_eq!(text("mem:many"), "software controller: `mem=many`: expected a size such as 512, 64k, 256M or 8G");
        for bad in [
            "mem:+5",
            "mem:99999999999T",
            "mem,block=1024",
            "mem,latency=5",
            "mem,latency=9us-1us",
            "mem,latency=-1us",
            "mem,media-error=9-1",
            "mem,media-error=erase:1",
            "mem,lose-completion=every:0",
            "mem,threads=0",
            "mem,reorder=yes",
            "mem,io=pread",
            "mem,direct",
            "a.img,direct,io=mmap",
            "a.img,namespaces=2",
            "mem,namespaces=0",
            "mem,stuck-queue=5",
            "mem,latency=1e300s",
            "mem,seed",
            "mem,fail-flush=2",
            "mem,repeat-completion=every:0",
            "mem,torn-write=loud:every:2",
            "mem,corrupt=erase:every:2",
            "mem,slow-drain=5",
            "mem,slow-drain=x:5ms",
            "mem,shrink=9",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_key_in_the_list_is_known() {
        for key in KEYS {
            assert!(!matches!(parse(&format!("mem,{key}=?")), Err(SpecError::UnknownKey { .. })), "{key}");
        }
        assert!(KEYS.is_sorted());
    }

    fn plans() -> impl Strategy<Value = FaultPlan> {
        let range = || (0u64..1000, 0u64..1000).prop_map(|(a, n)| a..=a + n);
        let time = || (0u64..2_000_000_000).prop_map(Duration::from_nanos);
        let selector =
            || prop::option::of(prop_oneof![(1u64..99).prop_map(Selector::Every), range().prop_map(Selector::Blocks)]);
        let trigger = || {
            prop::option::of(prop_oneof![
                (0u64..99).prop_map(Trigger::After),
                (1u64..99).prop_map(Trigger::Once),
                range().prop_map(Trigger::Blocks)
            ])
        };
        let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Both)];
        let media = (range(), access).prop_map(|(blocks, access)| MediaError { blocks, access });
        let latency = prop_oneof![
            Just(Latency::None),
            time().prop_map(Latency::Fixed),
            (time(), time()).prop_map(|(a, b)| Latency::Uniform(a, a + b)),
            time().prop_map(Latency::Exponential),
        ];
        let ready = prop_oneof![Just(Readiness::Prompt), Just(Readiness::Never), time().prop_map(Readiness::Slow)];
        let stuck = (prop::option::of(any::<u16>()), 0u64..9).prop_map(|(queue, after)| StuckQueue { queue, after });
        let which = || prop_oneof![(1u64..99).prop_map(Selector::Every), range().prop_map(Selector::Blocks)];
        let torn = (which(), any::<bool>()).prop_map(|(which, silent)| TornWrite { which, silent });
        let both = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Both)];
        let corruption = (which(), both).prop_map(|(which, access)| Corruption { which, access });
        let drain =
            (prop::option::of(any::<u16>()), time()).prop_map(|(queue, interval)| SlowDrain { queue, interval });
        let shrink = (any::<u64>(), 0u64..99).prop_map(|(blocks, after)| Shrink { blocks, after });
        (
            (any::<u64>(), prop::collection::vec(media, 0..3), latency, selector(), selector()),
            (prop::option::of(1u64..9), prop::option::of(stuck), trigger(), trigger(), ready, any::<bool>()),
            (
                prop::option::of(1u64..9),
                selector(),
                prop::option::of(torn),
                prop::collection::vec(corruption, 0..3),
                prop::option::of(drain),
                prop::option::of(shrink),
            ),
        )
            .prop_map(
                |(
                    (seed, media_errors, latency, a, b),
                    (lose_doorbell, stuck_queue, fatal, disappear, ready, reorder),
                    (fail_flush, repeat_completion, torn_write, corrupt, slow_drain, shrink),
                )| {
                    FaultPlan {
                        seed,
                        media_errors,
                        latency,
                        lose_completion: a,
                        wrong_phase: b,
                        lose_doorbell,
                        stuck_queue,
                        fatal,
                        disappear,
                        fail_flush,
                        repeat_completion,
                        torn_write,
                        corrupt,
                        slow_drain,
                        shrink,
                        ready,
                        reorder,
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn a_plan_reads_back_as_it_was_written(plan in plans()) {
            prop_assert_eq!(parse(&format!("mem{plan}")).unwrap().faults, plan);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}") {
            let _ = parse(&text);
            let _ = parse(&format!("mem,{text}"));
        }
    }
}
