//! Labels of rows: the settings that tell one row of a report from another.

use serde_json::{Map, Value};

/// Keys of labels, in the order in which a row names them.
const KEYS: [&str; 21] = [
    "test",
    "rw",
    "direction",
    "initiator",
    "method",
    "pattern",
    "source",
    "scope",
    "bytes",
    "iodepth",
    "queues",
    "depth",
    "blocks",
    "threads",
    "lanes",
    "submitters",
    "sms",
    "collapsed",
    "inline",
    "inlined",
    "blue_flame",
];

/// A setting of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// Key in the report, as in `iodepth`.
    pub key: String,
    pub value: LabelValue,
}

/// Value of a label.
#[derive(Clone, Debug, PartialEq)]
pub enum LabelValue {
    Number(f64),
    Text(String),
    /// A switch that is on.
    On,
}

impl Label {
    /// Returns a label whose value is a text.
    pub fn text(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: LabelValue::Text(value.to_owned()) }
    }

    /// Returns a label whose value is a number.
    pub fn number(key: &str, value: f64) -> Self {
        Self { key: key.to_owned(), value: LabelValue::Number(value) }
    }

    /// Returns the labels among the entries of an object: those of [`KEYS`], and those that the report says were swept.
    pub fn all_of(entries: &Map<String, Value>, swept: &[String]) -> Vec<Self> {
        let more = swept.iter().map(String::as_str).filter(|key| !KEYS.contains(key));
        KEYS.into_iter().chain(more).filter_map(|key| Self::of(key, entries.get(key)?)).collect()
    }

    /// Returns `None` for a switch that is off, and for what is no setting.
    fn of(key: &str, value: &Value) -> Option<Self> {
        let value = match value {
            Value::Bool(on) => on.then_some(LabelValue::On)?,
            Value::String(text) => LabelValue::Text(text.clone()),
            Value::Number(n) => LabelValue::Number(n.as_f64().filter(|n| n.is_finite())?),
            _ => return None,
        };
        Some(Self { key: key.to_owned(), value })
    }

    /// Returns the number, if the value is one.
    pub fn as_number(&self) -> Option<f64> {
        match self.value {
            LabelValue::Number(n) => Some(n),
            LabelValue::Text(_) | LabelValue::On => None,
        }
    }

    /// Returns the value in words.
    pub fn value_words(&self) -> String {
        match &self.value {
            LabelValue::Number(n) => n.to_string(),
            LabelValue::Text(text) => text.clone(),
            LabelValue::On => "on".to_owned(),
        }
    }

    /// Returns the words of the label in the name of a row.
    pub fn words(&self) -> String {
        let key = self.key.replace('_', " ");
        match (self.key.as_str(), &self.value) {
            (_, LabelValue::On) => key,
            ("test" | "rw" | "direction" | "method" | "pattern", LabelValue::Text(text)) => text.clone(),
            ("bytes" | "queues" | "blocks" | "threads" | "lanes" | "submitters", LabelValue::Number(n)) => {
                format!("{n} {key}")
            }
            ("sms", LabelValue::Number(n)) => format!("{n} SMs"),
            (_, LabelValue::Text(text)) => format!("{key} {text}"),
            (_, LabelValue::Number(n)) => format!("{key} {n}"),
        }
    }
}
