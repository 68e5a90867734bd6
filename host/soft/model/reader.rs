//! Reads models from TOML, and finds the shipped ones.

use super::error::ModelError;
use super::latency::Percentiles;
use super::parameters::{Direction, DriveModel, Mixed, QueueLimits, Units, WriteBuffer};
use crate::suggest::hint;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Names and texts of the models that are compiled in.
pub const SHIPPED: [(&str, &str); 4] = [
    ("990-pro", include_str!("drives/990-pro.toml")),
    ("optane-p5800x", include_str!("drives/optane-p5800x.toml")),
    ("pm1743", include_str!("drives/pm1743.toml")),
    ("xl-flash-10m", include_str!("drives/xl-flash-10m.toml")),
];
/// End of the name of a file with a model.
const EXTENSION: &str = ".toml";
/// Longest name of a model in bytes: what the model number of Identify Controller has beside a prefix (`host/soft/nvme/identify.rs`).
const LONGEST_NAME: usize = 24;
/// Largest number of sizes for which a direction has a rate.
const MOST_SIZES: usize = 16;

/// A number that a model has: key, unit, and least and greatest value.
pub(super) struct Parameter {
    pub(super) key: &'static str,
    pub(super) unit: &'static str,
    pub(super) range: [f64; 2],
    /// True if the number is whole.
    pub(super) is_whole: bool,
}

const fn whole(key: &'static str, unit: &'static str, range: [f64; 2]) -> Parameter {
    Parameter { key, unit, range, is_whole: true }
}

const fn real(key: &'static str, unit: &'static str, range: [f64; 2]) -> Parameter {
    Parameter { key, unit, range, is_whole: false }
}

const TIMES: [f64; 2] = [0.1, 1e6];
const RATES: [f64; 2] = [0.001, 1000.0];
/// Every number of a model but `read.iops` and `write.iops`, which have a number for each size.
pub(super) const PARAMETERS: [Parameter; 26] = [
    whole("queues.pairs", "queue pairs", [1.0, 4095.0]),
    whole("queues.entries", "entries", [2.0, 65536.0]),
    whole("queues.transfer_bytes", "bytes, a power of two", [4096.0, 67108864.0]),
    real("link.gb_per_s", "GB/s", RATES),
    real("read.latency_us.p0", "us", TIMES),
    real("read.latency_us.p50", "us", TIMES),
    real("read.latency_us.p99", "us", TIMES),
    real("read.latency_us.p99_9", "us", TIMES),
    real("read.latency_us.p99_99", "us", TIMES),
    real("read.gb_per_s", "GB/s", RATES),
    real("write.latency_us.p0", "us", TIMES),
    real("write.latency_us.p50", "us", TIMES),
    real("write.latency_us.p99", "us", TIMES),
    real("write.latency_us.p99_9", "us", TIMES),
    real("write.latency_us.p99_99", "us", TIMES),
    real("write.gb_per_s", "GB/s", RATES),
    whole("write.buffer.bytes", "bytes", [0.0, 1099511627776.0]),
    real("mixed.read_percent", "%", [1.0, 99.0]),
    real("mixed.iops", "commands/s", IOPS),
    whole("units.count", "units", [1.0, 65536.0]),
    whole("units.stripe_bytes", "bytes", [512.0, 67108864.0]),
    real("units.read_us", "us", TIMES),
    real("units.program_us", "us", TIMES),
    whole("units.program_bytes", "bytes", [512.0, 67108864.0]),
    real("read.iops.SIZE", "commands/s", IOPS),
    real("write.iops.SIZE", "commands/s", IOPS),
];
const IOPS: [f64; 2] = [1.0, 1e9];
/// Least and greatest size in `iops`, in bytes.
pub(super) const SIZES: [u64; 2] = [512, 67108864];
/// Keys that are no numbers.
const OTHERS: [&str; 5] = ["name", "drive", "sources", "assumed", "write.buffer.protected"];

/// A model that a device names.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelSource {
    /// A shipped model, by its name in [`SHIPPED`].
    Shipped(&'static str),
    /// A file.
    File(PathBuf),
    /// A model that a program has made.
    #[cfg(any(test, feature = "internals"))]
    Given(Box<DriveModel>),
}

impl ModelSource {
    /// Returns the source that the text names: a file if the text ends with `.toml`, otherwise a shipped model. Reads no file.
    /// Returns `None` if no shipped model has the name.
    pub fn named(text: &str) -> Option<Self> {
        if text.ends_with(EXTENSION) {
            return Some(Self::File(text.into()));
        }
        SHIPPED.iter().find(|(name, _)| *name == text).map(|(name, _)| Self::Shipped(name))
    }

    /// Returns the reason for refusing a name that no shipped model has.
    pub fn unknown(text: &str) -> String {
        let names = SHIPPED.map(|(name, _)| name);
        format!("there is no such model; there are {}, or name a file FILE.toml{}", names.join(", "), hint(text, names))
    }

    /// Reads the model.
    ///
    /// # Errors
    /// [`ModelError::Read`] if the file cannot be read, and the other errors of [`ModelError`] for its text.
    pub fn load(&self) -> Result<DriveModel, ModelError> {
        match self {
            #[cfg(any(test, feature = "internals"))]
            Self::Given(model) => Ok((**model).clone()),
            Self::Shipped(name) => {
                let text = SHIPPED.iter().find(|(known, _)| known == name).map_or("", |(_, text)| *text);
                DriveModel::parse(name, text)
            }
            Self::File(path) => Self::load_file(path),
        }
    }

    fn load_file(path: &Path) -> Result<DriveModel, ModelError> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ModelError::Read { file: file.clone(), source })?;
        let model = DriveModel::parse(&file, &text)?;
        if SHIPPED.iter().any(|(name, _)| *name == model.name) {
            let (key, value) = ("name".to_owned(), format!("{:?}", model.name));
            let expected = "another name: results of this file are no results of the shipped model".to_owned();
            return Err(ModelError::Value { file, key, value, expected });
        }
        Ok(model)
    }
}

impl DriveModel {
    /// Reads a model from TOML. `file` is the name of the text in errors.
    ///
    /// # Errors
    /// [`ModelError::Syntax`], [`ModelError::Unknown`], [`ModelError::Missing`], [`ModelError::Value`] and
    /// [`ModelError::Contradiction`], as their names say.
    pub fn parse(file: &str, text: &str) -> Result<Self, ModelError> {
        let table = text.parse::<Table>().map_err(|e| {
            let start = e.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1;
            let reason = e.message().split_whitespace().collect::<Vec<_>>().join(" ");
            ModelError::Syntax { file: file.to_owned(), line, reason }
        })?;
        let reader = Reader { file, table: &table };
        reader.check_keys(&table, "")?;
        let direction = |name: &str| {
            let time = |point: &str| Ok(1e3 * reader.number(&format!("{name}.latency_us.{point}"))?);
            let [p0, p50] = [time("p0")?, time("p50")?];
            let [p99, p99_9, p99_99] = [time("p99")?, time("p99_9")?, time("p99_99")?];
            let latency = Percentiles { p0, p50, p99, p99_9, p99_99 };
            let bandwidth = reader.number(&format!("{name}.gb_per_s"))?;
            Ok(Direction { latency, iops: reader.rates(name)?, bandwidth })
        };
        let model = Self {
            name: reader.name()?,
            drive: reader.text("drive")?,
            sources: reader.texts("sources")?,
            assumed: reader.texts("assumed")?,
            queues: QueueLimits {
                pairs: reader.number("queues.pairs")? as u16,
                entries: reader.number("queues.entries")? as u32,
                transfer_bytes: reader.transfer_bytes()?,
            },
            link: reader.number("link.gb_per_s")?,
            read: direction("read")?,
            write: direction("write")?,
            buffer: WriteBuffer {
                bytes: reader.number("write.buffer.bytes")? as u64,
                is_protected: reader.flag("write.buffer.protected")?,
            },
            mixed: Mixed { read_percent: reader.number("mixed.read_percent")?, iops: reader.number("mixed.iops")? },
            units: Units {
                count: reader.number("units.count")? as u32,
                stripe_bytes: reader.number("units.stripe_bytes")? as u32,
                read_ns: 1e3 * reader.number("units.read_us")?,
                program_ns: 1e3 * reader.number("units.program_us")?,
                program_bytes: reader.number("units.program_bytes")? as u32,
            },
        };
        match model.contradiction() {
            Some(reason) => Err(ModelError::Contradiction { file: file.to_owned(), reason }),
            None => Ok(model),
        }
    }
}

/// Reads values by their whole keys, as in `read.latency_us.p50`.
struct Reader<'a> {
    file: &'a str,
    table: &'a Table,
}

impl Reader<'_> {
    /// Checks that each key in `table`, which is named `prefix`, is one of a model.
    fn check_keys(&self, table: &Table, prefix: &str) -> Result<(), ModelError> {
        for (name, value) in table {
            // A quoted key may have any character, and an error has one line.
            let name = name.escape_debug();
            let key = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
            if prefix.ends_with(".iops") || keys().any(|known| known == key) {
                continue;
            }
            let begins = |known: &str| known.strip_prefix(&key).is_some_and(|rest| rest.starts_with('.'));
            match value {
                Value::Table(inner) if keys().any(begins) => self.check_keys(inner, &key)?,
                // The missing keys of the table are named.
                _ if keys().any(begins) => return Err(self.value(&key, value, "a table")),
                _ => {
                    let hint = hint(&key, keys());
                    return Err(ModelError::Unknown { file: self.file.to_owned(), key, hint });
                }
            }
        }
        Ok(())
    }

    fn find(&self, key: &str, expected: impl FnOnce() -> String) -> Result<&Value, ModelError> {
        let missing = |expected| ModelError::Missing { file: self.file.to_owned(), key: key.to_owned(), expected };
        let mut parts = key.split('.');
        let first = parts.next().and_then(|part| self.table.get(part));
        let found = parts.try_fold(first, |value, part| Some(value?.as_table()?.get(part)));
        found.flatten().ok_or_else(|| missing(expected()))
    }

    fn value(&self, key: &str, value: &Value, expected: impl Into<String>) -> ModelError {
        let (file, key, expected) = (self.file.to_owned(), key.to_owned(), expected.into());
        ModelError::Value { file, key, value: shown(value), expected }
    }

    /// Returns a number of [`PARAMETERS`].
    fn number(&self, key: &str) -> Result<f64, ModelError> {
        let Some(parameter) = PARAMETERS.iter().find(|p| p.key == key) else {
            return Err(ModelError::Unknown { file: self.file.to_owned(), key: key.to_owned(), hint: String::new() });
        };
        let value = self.find(key, || parameter.expected())?;
        parameter.read(value).ok_or_else(|| self.value(key, value, parameter.expected()))
    }

    fn transfer_bytes(&self) -> Result<u32, ModelError> {
        const KEY: &str = "queues.transfer_bytes";
        let bytes = self.number(KEY)? as u32;
        if bytes.is_power_of_two() {
            return Ok(bytes);
        }
        Err(self.value(KEY, &Value::Integer(bytes.into()), "a power of two from 4096 to 67108864 bytes"))
    }

    /// Returns the rates of `read.iops` or `write.iops`, by size.
    fn rates(&self, direction: &str) -> Result<Vec<(u64, f64)>, ModelError> {
        let (key, size_key) = (format!("{direction}.iops"), format!("{direction}.iops.SIZE"));
        let expected = || {
            format!(
                "1 to {MOST_SIZES} rates by size, as in {{ 512 = 1000000, 4096 = 800000 }}, for sizes from {} to {} bytes",
                SIZES[0], SIZES[1]
            )
        };
        let value = self.find(&key, expected)?;
        let table = value.as_table().filter(|t| (1..=MOST_SIZES).contains(&t.len()));
        let table = table.ok_or_else(|| self.value(&key, value, expected()))?;
        let parameter = PARAMETERS.iter().find(|p| p.key == size_key);
        let mut rates = Vec::with_capacity(table.len());
        for (size, value) in table {
            let whole = format!("{key}.{size}");
            let bytes = size.parse().ok().filter(|bytes| (SIZES[0]..=SIZES[1]).contains(bytes));
            let bytes: u64 = bytes.ok_or_else(|| self.value(&key, &Value::String(size.clone()), expected()))?;
            let rate = parameter.and_then(|p| p.read(value));
            let range = || parameter.map_or_else(String::new, Parameter::expected);
            rates.push((bytes, rate.ok_or_else(|| self.value(&whole, value, range()))?));
        }
        rates.sort_by_key(|(bytes, _)| *bytes);
        match rates.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(self.value(&key, &Value::Integer(pair[0].0 as i64), "each size once")),
            None => Ok(rates),
        }
    }

    fn flag(&self, key: &str) -> Result<bool, ModelError> {
        let expected = || "true or false".to_owned();
        let value = self.find(key, expected)?;
        value.as_bool().ok_or_else(|| self.value(key, value, expected()))
    }

    /// Returns a text of one line.
    fn text(&self, key: &str) -> Result<String, ModelError> {
        let expected = || "a text of one line".to_owned();
        let value = self.find(key, expected)?;
        let text = value.as_str().filter(|text| !text.is_empty() && !text.contains(char::is_control));
        text.map(str::to_owned).ok_or_else(|| self.value(key, value, expected()))
    }

    fn name(&self) -> Result<String, ModelError> {
        let name = self.text("name")?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.len() <= LONGEST_NAME && name.chars().all(is_plain) {
            return Ok(name);
        }
        let expected = format!("1 to {LONGEST_NAME} letters of ASCII, digits, and the characters - _ .");
        Err(self.value("name", &Value::String(name), expected))
    }

    fn texts(&self, key: &str) -> Result<Vec<String>, ModelError> {
        let expected = || "a list of texts".to_owned();
        let value = self.find(key, expected)?;
        let texts = value.as_array().and_then(|all| all.iter().map(|t| t.as_str().map(str::to_owned)).collect());
        let texts: Option<Vec<String>> = texts;
        let texts = texts.filter(|all| key != "sources" || !all.is_empty());
        texts.ok_or_else(|| {
            self.value(key, value, if key == "sources" { "a list of one text or more".into() } else { expected() })
        })
    }
}

impl Parameter {
    /// Describes the valid values.
    pub(super) fn expected(&self) -> String {
        let ([least, most], kind) = (self.range, if self.is_whole { "a whole number" } else { "a number" });
        format!("{kind} from {least} to {most} ({})", self.unit)
    }

    /// Returns the value if it is valid.
    fn read(&self, value: &Value) -> Option<f64> {
        let number = match value {
            Value::Integer(n) => *n as f64,
            Value::Float(n) if !self.is_whole => *n,
            _ => return None,
        };
        (self.range[0]..=self.range[1]).contains(&number).then_some(number)
    }
}

/// Returns all keys of a model.
fn keys() -> impl Iterator<Item = &'static str> {
    PARAMETERS.iter().map(|p| p.key).chain(OTHERS)
}

/// Returns a value as it is shown in an error: on one line, and not longer than one.
fn shown(value: &Value) -> String {
    let text: Cow<'_, str> = match value {
        Value::String(text) => format!("{text:?}").into(),
        Value::Integer(n) => n.to_string().into(),
        Value::Float(n) => n.to_string().into(),
        Value::Boolean(b) => b.to_string().into(),
        Value::Datetime(_) => "a date".into(),
        Value::Array(_) => "a list".into(),
        Value::Table(_) => "a table".into(),
    };
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parameters::tests::slow;
    use super::*;
    use proptest::prelude::*;

    /// Returns the text of a model.
    fn text(model: &DriveModel) -> String {
        let DriveModel { name, drive, sources, assumed, queues, link, read, write, buffer, mixed, units } = model;
        let direction = |name: &str, direction: &Direction| {
            let [p0, p50, p99, p99_9, p99_99] = {
                let Percentiles { p0, p50, p99, p99_9, p99_99 } = direction.latency;
                [p0, p50, p99, p99_9, p99_99].map(|ns| ns / 1e3)
            };
            let rates: Vec<String> = direction.iops.iter().map(|(bytes, iops)| format!("{bytes} = {iops:?}")).collect();
            format!(
                "[{name}]\nlatency_us = {{ p0 = {p0:?}, p50 = {p50:?}, p99 = {p99:?}, p99_9 = {p99_9:?}, p99_99 = {p99_99:?} }}\n\
                 iops = {{ {} }}\ngb_per_s = {:?}\n",
                rates.join(", "),
                direction.bandwidth
            )
        };
        format!(
            "name = {name:?}\ndrive = {drive:?}\nsources = {sources:?}\nassumed = {assumed:?}\n\
             [queues]\npairs = {}\nentries = {}\ntransfer_bytes = {}\n[link]\ngb_per_s = {link:?}\n{}{}\
             [write.buffer]\nbytes = {}\nprotected = {}\n[mixed]\nread_percent = {:?}\niops = {:?}\n\
             [units]\ncount = {}\nstripe_bytes = {}\nread_us = {:?}\nprogram_us = {:?}\nprogram_bytes = {}\n",
            queues.pairs,
            queues.entries,
            queues.transfer_bytes,
            direction("read", read),
            direction("write", write),
            buffer.bytes,
            buffer.is_protected,
            mixed.read_percent,
            mixed.iops,
            units.count,
            units.stripe_bytes,
            units.read_ns / 1e3,
            units.program_ns / 1e3,
            units.program_bytes,
        )
    }

    fn parse(text: &str) -> Result<DriveModel, ModelError> {
        DriveModel::parse("my.toml", text)
    }

    /// Returns the error of a model of which one line was changed.
    fn said(line: &str, to: &str) -> String {
        let text = text(&slow());
        assert_eq!(text.matches(line).count(), 1, "{line}");
        parse(&text.replace(line, to)).unwrap_err().to_string()
    }

    #[test]
    fn a_model_reads_back_as_it_was_written() {
        assert_eq!(parse(&text(&slow())).unwrap(), slow());
        for (name, _) in SHIPPED {
            let model = ModelSource::named(name).unwrap().load().unwrap();
            assert_eq!((model.name.as_str(), model.to_string()), (name, format!("model {name}")));
            assert_eq!(parse(&text(&model)).unwrap(), model);
            // Each says where its figures come from.
            assert!(!model.sources.is_empty() && !model.assumed.is_empty(), "{name}");
        }
        assert!(SHIPPED.is_sorted_by_key(|(name, _)| *name));
    }

    #[test]
    fn errors_name_file_key_value_and_range() {
        for (line, to, error) in [
            ("count = 32", "", "model my.toml: `units.count` is missing; give a whole number from 1 to 65536 (units)"),
            (
                "count = 32",
                "count = 0",
                "model my.toml: `units.count` is 0; give a whole number from 1 to 65536 (units)",
            ),
            (
                "count = 32",
                "count = 2.5",
                "model my.toml: `units.count` is 2.5; give a whole number from 1 to 65536 (units)",
            ),
            (
                "count = 32",
                "count = \"32\"",
                "model my.toml: `units.count` is \"32\"; give a whole number from 1 to 65536 (units)",
            ),
            (
                "count = 32",
                "counts = 32",
                "model my.toml: there is no parameter `units.counts`; did you mean `units.count`?",
            ),
            (
                "p50 = 800.0",
                "p50 = nan",
                "model my.toml: `read.latency_us.p50` is NaN; give a number from 0.1 to 1000000 (us)",
            ),
            (
                "p50 = 800.0",
                "p50 = 5000.0",
                "model my.toml: read.latency_us.p50 is 5000, more than p99 with 1200; give percentiles in ascending order",
            ),
            (
                "pairs = 8",
                "pairs = 5000",
                "model my.toml: `queues.pairs` is 5000; give a whole number from 1 to 4095 (queue pairs)",
            ),
            (
                "transfer_bytes = 131072",
                "transfer_bytes = 5000",
                "model my.toml: `queues.transfer_bytes` is 5000; give a power of two from 4096 to 67108864 bytes",
            ),
            ("protected = true", "protected = 1", "model my.toml: `write.buffer.protected` is 1; give true or false"),
            (
                "sources = [\"none\"]",
                "sources = []",
                "model my.toml: `sources` is a list; give a list of one text or more",
            ),
            ("drive = \"a drive of tests\"", "drive = \"\"", "model my.toml: `drive` is \"\"; give a text of one line"),
            (
                "name = \"slow\"",
                "name = \"a b\"",
                "model my.toml: `name` is \"a b\"; give 1 to 24 letters of ASCII, digits, and the characters - _ .",
            ),
            (
                "512 = 12000.0",
                "512 = 0.5",
                "model my.toml: `read.iops.512` is 0.5; give a number from 1 to 1000000000 (commands/s)",
            ),
        ] {
            assert_eq!(said(line, to), error);
        }
        let sizes = said("512 = 12000.0", "100 = 12000.0");
        assert!(
            sizes.starts_with("model my.toml: `read.iops` is \"100\"; give 1 to 16 rates by size, as in"),
            "{sizes}"
        );
        let table = parse("link = 3").unwrap_err().to_string();
        assert!(table.starts_with("model my.toml: `link` is 3; give a table"), "{table}");
        let syntax = parse("name = \"x\"\ndrive = \n").unwrap_err().to_string();
        assert!(syntax.starts_with("model my.toml, line 2: "), "{syntax}");
        let missing = parse("").unwrap_err().to_string();
        assert_eq!(missing, "model my.toml: `name` is missing; give a text of one line");
    }

    #[test]
    fn a_file_is_another_model_than_a_shipped_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        let load = || ModelSource::named(path.to_str().unwrap()).unwrap().load();
        assert!(load().unwrap_err().to_string().contains("mine.toml: cannot read it: No such file"));
        std::fs::write(&path, text(&slow())).unwrap();
        assert_eq!(load().unwrap(), slow());
        std::fs::write(&path, text(&DriveModel { name: "pm1743".into(), ..slow() })).unwrap();
        let same = load().unwrap_err().to_string();
        assert!(same.contains("mine.toml: `name` is \"pm1743\"; give another name"), "{same}");
        assert_eq!(ModelSource::named("pm1734"), None);
        let unknown = ModelSource::unknown("pm1734");
        assert!(unknown.contains("990-pro, optane-p5800x") && unknown.ends_with("did you mean `pm1743`?"), "{unknown}");
    }

    #[test]
    fn the_manual_has_every_parameter_with_its_range() {
        let manual = include_str!("../../../docs/drive-models.md");
        for parameter in &PARAMETERS {
            let [least, most] = parameter.range;
            let row = manual.lines().find(|line| line.starts_with(&format!("| `{}` |", parameter.key)));
            let row = row.unwrap_or_else(|| panic!("no row of {}", parameter.key));
            assert!(
                row.contains(&format!("| {least} to {most} |")) && row.contains(parameter.unit),
                "{row}: {least} to {most} {}",
                parameter.unit
            );
        }
        for key in OTHERS {
            assert!(manual.contains(&format!("| `{key}` |")), "{key}");
        }
        for (name, _) in SHIPPED {
            assert!(manual.contains(&format!("| `{name}` |")), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_every_error_is_one_line(text in "\\PC{0,40}", at in 0usize..2000, cut in 0usize..40) {
            let mut whole = super::tests::text(&slow());
            for mutated in [text.clone(), format!("[read]\n{text}"), {
                let start = (0..=at.min(whole.len())).rev().find(|i| whole.is_char_boundary(*i)).unwrap_or(0);
                let end = (start..=(start + cut).min(whole.len())).rev().find(|i| whole.is_char_boundary(*i)).unwrap_or(start);
                whole.replace_range(start..end, &text);
                whole
            }] {
                if let Err(e) = parse(&mutated) {
                    let said = e.to_string();
                    prop_assert!(said.starts_with("model my.toml") && !said.contains('\n'), "{}", said);
                }
            }
        }

        #[test]
        fn valid_numbers_are_kept(link in 1.0f64..100.0, pairs in 1u16..4096, buffer in 0u64..1 << 40, percent in 20.0f64..80.0) {
            let mut model = slow();
            model.link = link;
            model.queues.pairs = pairs;
            model.buffer.bytes = buffer;
            model.mixed.read_percent = percent;
            model.mixed.iops = 5e3;
            prop_assert_eq!(parse(&text(&model)).unwrap(), model);
        }
    }
}
