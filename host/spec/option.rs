//! Options: the known ones of each kind of device, and those of one specification.

use super::SpecError;
use super::escape::escape;
use crate::suggest::hint;
use crate::units::Bytes;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A known option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Keyword {
    pub(super) key: &'static str,
    /// Description of the values; `None` for an option without a value.
    expected: Option<&'static str>,
    repeats: Repeat,
}

/// Number of times that an option may be given.
#[derive(Debug, PartialEq, Eq)]
enum Repeat {
    Once,
    /// Once for each file that the specification names.
    PerFile,
    Always,
}

/// Defines an option without a value.
pub(crate) const fn flag(key: &'static str) -> Keyword {
    Keyword { key, expected: None, repeats: Repeat::Once }
}

/// Defines an option with a value. `expected` ends the message of an error in the value.
pub(crate) const fn value(key: &'static str, expected: &'static str) -> Keyword {
    Keyword { key, expected: Some(expected), repeats: Repeat::Once }
}

impl Keyword {
    /// Allows the option to be given several times.
    pub(crate) const fn repeated(self) -> Self {
        Self { repeats: Repeat::Always, ..self }
    }

    const fn per_file(self) -> Self {
        Self { repeats: Repeat::PerFile, ..self }
    }
}

const BLOCKS: &str =
    "a block or a range of blocks such as 100 or 100-107, with read: or write: before it for reads or writes only";
const CORRUPT: &str =
    "every:N or a range of blocks such as 100-107, with read: or write: before it for reads or writes only";
const EVERY: &str = "every:N";
const FILE: &str = "the name of a file";
const NSID: &str = "the number of a namespace; they are numbered from 1";
pub(crate) const NUMBER: &str = "a whole number";
const SELECTOR: &str = "every:N, or a range of blocks such as 100-107";
pub(super) const SIZE: &str = "a size such as 512, 64k, 256M or 8G";
pub(crate) const TIME: &str = "a time such as 500ns, 20us, 5ms or 1s";
const TORN: &str = "every:N or a range of blocks such as 100-107, with silent: before it to let the command succeed";
const TRIGGER: &str = "after:N, once:N, or a range of blocks such as 100-107";

pub(super) const SOFT: &[Keyword] = &[
    value("block", "512 or 4096"),
    value("corrupt", CORRUPT).repeated(),
    flag("direct"),
    value("disappear", TRIGGER),
    value("entries", NUMBER),
    value("fail-flush", EVERY),
    value("fatal", TRIGGER),
    value("file", FILE).repeated(),
    value("io", "uring, pread or mmap"),
    value("latency", "a time such as 20us, a range of times such as 10us-90us, or exp:50us"),
    value("lose-completion", SELECTOR),
    value("lose-doorbell", EVERY),
    value("media-error", BLOCKS).repeated(),
    value("model", "the name of a model of a drive, or of a file FILE.toml with one"),
    value("namespaces", "1 to 1024"),
    flag("never-ready"),
    value("nsid", NSID),
    value("queues", NUMBER),
    flag("read-only"),
    value("ready-timeout", TIME),
    flag("reorder"),
    value("repeat-completion", SELECTOR),
    value("seed", NUMBER),
    value("shrink", "BLOCKS:after:N"),
    value("slow-drain", "a time such as 5ms, or QUEUE:TIME"),
    value("slow-ready", TIME),
    value("streaming", "auto, always or never"),
    value("stride", NUMBER),
    value("stuck-queue", "after:N or QUEUE:after:N"),
    value("threads", "1 to 1024"),
    value("torn-write", TORN),
    value("transfer", SIZE),
    value("wrong-phase", SELECTOR),
];

pub(super) const QTEST: &[Keyword] = &[
    value("blkdebug", FILE).per_file(),
    value("block", "512, 1024, 2048 or 4096").per_file(),
    value("file", FILE).repeated(),
    value("mdts", "a number from 0 to 255"),
    value("metadata", "a number from 0 to 128").per_file(),
    value("nsid", NSID),
    value("queues", "a number from 0 to 65535"),
    value("ram", SIZE),
    value("serial", "a text"),
    value("throttle-iops", "a number from 0 to 4294967295").per_file(),
];

pub(super) const NVME: &[Keyword] =
    &[value("api", "auto, group or cdev"), value("nsid", NSID), flag("unsafe-no-iommu")];

const PORT: &str = "HOST:PORT, the address of another port of the subsystem";
const SECONDS: &str = "a time in seconds, or with a unit as in 500ms";

pub(super) const NVMF: &[Keyword] = &[
    value("adapter", "auto, mlx5 or verbs"),
    value("ctrl-loss-tmo", "a time in seconds, or with a unit as in 500ms; -1 for ever"),
    flag("data_digest"),
    flag("hdr_digest"),
    value("hostid", "a UUID"),
    value("hostnqn", "the name of a host (NQN)"),
    value("keep-alive", "a time in seconds, or with a unit as in 500ms: 100ms or more, or 0 for none"),
    value("nsid", NSID),
    value("path", PORT).repeated(),
    value("queues", "1 to 1024"),
    value("reconnect-delay", SECONDS),
    value("threads", "1 to 1024"),
];

/// An option of a specification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecOption {
    keyword: &'static Keyword,
    /// Value: not empty, and present if the keyword has values.
    value: Option<OsString>,
}

impl SpecOption {
    pub(super) fn new(key: &str, value: Option<OsString>, known: &'static [Keyword]) -> Result<Self, SpecError> {
        let keyword = known.iter().find(|k| k.key == key).ok_or_else(|| unknown(key, known))?;
        let option = Self { keyword, value };
        match keyword.expected {
            Some(expected) if option.value().is_none_or(OsStr::is_empty) => {
                Err(option.refuse(format!("it needs a value: {expected}")))
            }
            None if option.value.is_some() => Err(option.refuse("it takes no value")),
            _ => Ok(option),
        }
    }

    /// Returns the option's name.
    pub fn key(&self) -> &'static str {
        self.keyword.key
    }

    /// Returns the value without escapes, or `None` for an option that has none.
    pub fn value(&self) -> Option<&OsStr> {
        self.value.as_deref()
    }

    pub(super) fn value_mut(&mut self) -> Option<&mut OsString> {
        self.value.as_mut()
    }

    /// Returns the value of an option that names a file.
    pub(crate) fn path(&self) -> PathBuf {
        self.value.clone().unwrap_or_default().into()
    }

    /// Parses the value. Fails with a description of the valid values if `read` returns `None`.
    pub(crate) fn read<T>(&self, read: impl Fn(&str) -> Option<T>) -> Result<T, SpecError> {
        let expected = || format!("expected {}", self.keyword.expected.unwrap_or("no value"));
        self.read_or(|text| read(text).ok_or_else(expected))
    }

    /// Parses the value. Fails with the reason that `read` returns.
    pub(crate) fn read_or<T, E: fmt::Display>(&self, read: impl Fn(&str) -> Result<T, E>) -> Result<T, SpecError> {
        read(&self.value.as_deref().unwrap_or_default().to_string_lossy()).map_err(|e| self.refuse(e.to_string()))
    }

    pub(crate) fn refuse(&self, reason: impl Into<String>) -> SpecError {
        SpecError::BadOption { option: self.to_string(), reason: reason.into() }
    }
}

impl fmt::Display for SpecOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())?;
        self.value().map_or(Ok(()), |value| write!(f, "={}", escape(value)))
    }
}

/// Parses options in their order.
///
/// # Errors
/// [`SpecError::UnknownOption`] if an option does not exist. [`SpecError::BadOption`] if a value is missing, an option
/// without values has one, or an option was given before.
pub(crate) fn read_all(
    fields: impl IntoIterator<Item = Vec<u8>>,
    known: &'static [Keyword],
) -> Result<Vec<SpecOption>, SpecError> {
    let mut options: Vec<SpecOption> = Vec::new();
    for mut field in fields {
        let value = field.iter().position(|b| *b == b'=').map(|at| {
            let value = field.split_off(at + 1);
            field.pop();
            OsString::from_vec(value)
        });
        let option = SpecOption::new(&String::from_utf8_lossy(&field), value, known)?;
        let same = |o: &SpecOption| o.key() == option.key();
        let (repeated, once) = match option.keyword.repeats {
            Repeat::Once => (options.iter().any(same), "once"),
            Repeat::PerFile => (options.iter().rev().take_while(|o| o.key() != "file").any(same), "once for each file"),
            Repeat::Always => (false, ""),
        };
        if repeated {
            return Err(option.refuse(format!("`{}` was given before; give it {once}", option.key())));
        }
        options.push(option);
    }
    Ok(options)
}

/// Returns the error of an unknown option.
pub(super) fn unknown(key: &str, known: &[Keyword]) -> SpecError {
    let keys = || known.iter().map(|k| k.key);
    let forms: Vec<String> = known.iter().map(|k| format!("{}{}", k.key, k.expected.map_or("", |_| "="))).collect();
    SpecError::UnknownOption { key: key.to_owned(), known: forms.join(", ") + &hint(key, keys()) }
}

/// Returns true if `known` contains the option.
pub(super) fn is_known(key: &str, known: &[Keyword]) -> bool {
    known.iter().any(|k| k.key == key)
}

/// Parses a size in bytes.
pub(crate) fn size(text: &str) -> Option<u64> {
    text.parse().ok().map(|Bytes(bytes)| bytes)
}

/// Parses a number of digits only: `parse` alone would accept a plus sign.
pub(crate) fn number<T: FromStr>(text: &str) -> Option<T> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Parses a time with its unit: `20us`, `1.5s`, `0ms`. The maximum is one hour: far beyond every time-out, and small
/// enough for sums of such times not to overflow.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic() || c == 'µ')?;
    let value: f64 = text[..unit].parse().ok()?;
    let scale = match &text[unit..] {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    let seconds = value * scale;
    (0.0..=3600.0).contains(&seconds).then(|| Duration::from_nanos((seconds * 1e9).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(list: &str, known: &'static [Keyword]) -> String {
        let fields = list.split(',').map(|f| f.as_bytes().to_vec());
        read_all(fields, known).unwrap_err().to_string()
    }

    #[test]
    fn lists_say_which_options_there_are() {
        assert_eq!(refused("fast", NVME), "there is no option `fast`; there are api=, nsid=, unsafe-no-iommu");
        let said = refused("blok=4096", SOFT);
        assert!(said.starts_with("there is no option `blok`; there are block=, corrupt=, direct, "), "{said}");
        assert!(said.ends_with(", wrong-phase=; did you mean `block`?"), "{said}");
        assert!(refused("", QTEST).starts_with("there is no option ``; there are blkdebug="));
        for known in [SOFT, QTEST, NVME, NVMF] {
            assert!(known.iter().map(|k| k.key).is_sorted());
        }
    }

    #[test]
    fn values_are_asked_for_where_there_are_any() {
        for (list, said) in [
            ("block", "`block`: it needs a value: 512, 1024, 2048 or 4096"),
            ("ram=", "`ram=`: it needs a value: a size such as 512, 64k, 256M or 8G"),
        ] {
            assert_eq!(refused(list, QTEST), said);
        }
        assert_eq!(refused("direct=yes", SOFT), "`direct=yes`: it takes no value");
        assert_eq!(refused("direct=", SOFT), "`direct=`: it takes no value");
    }

    #[test]
    fn options_are_given_once_unless_each_counts() {
        assert_eq!(refused("seed=1,seed=2", SOFT), "`seed=2`: `seed` was given before; give it once");
        assert!(refused("reorder,seed=1,reorder", SOFT).starts_with("`reorder`: "));
        let said = refused("file=b,block=512,ram=1M,block=4096", QTEST);
        assert_eq!(said, "`block=4096`: `block` was given before; give it once for each file");
        let read = |list: &'static str, known| read_all(list.split(',').map(|f| f.into()), known).unwrap().len();
        assert_eq!(read("block=512,file=b,block=4096,file=c,block=512", QTEST), 5);
        assert_eq!(read("media-error=1,media-error=2,file=a,file=b,corrupt=1,corrupt=1", SOFT), 6);
    }
}
