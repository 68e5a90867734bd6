//! Contents of a report, whichever program has written it.

use super::figure::{Figure, Subject};
use serde_json::Value;

/// Contents of a report.
#[derive(Clone, Debug)]
pub struct Source {
    /// Program, command and version, as in `warpbell 0.1.0 bench nvme`.
    pub tool: String,
    pub subject: Subject,
    /// Name of the subject, as in `soft:mem`.
    pub device: Option<String>,
    /// Settings that are not part of rows, with their values.
    pub settings: Vec<(String, String)>,
    pub figures: Vec<Figure>,
}

/// Returns a number of an object.
pub fn number(of: &Value, key: &str) -> Option<f64> {
    of.get(key).and_then(as_number)
}

/// Returns a number, also one that stands in quotes.
pub fn as_number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()).filter(|n| n.is_finite())
}

/// Returns a text of an object.
pub fn text<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    of.get(key)?.as_str()
}
