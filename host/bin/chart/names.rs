//! Names of lines: the settings in which they differ, and no more.

use super::axis::is_bytes;
use super::model::MOST_LINES;
use crate::reports::{Label, LabelValue};
use std::collections::BTreeSet;
use warpbell::units::Bytes;

/// Largest number of groups of lines in a chart.
const MOST_GROUPS: usize = 8;
/// Number of lines that are still easily followed in a small panel.
const FEW_LINES: usize = 6;

/// Subject of a line: which of the reports, which of its rows, and which figure of the row.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    pub report: String,
    pub labels: Vec<Label>,
    /// Empty if the panel shows one figure of each row.
    pub metric: String,
}

/// Parts of a key that are no labels.
const REPORT: &str = "";
const METRIC: &str = "figure";

impl Key {
    /// Returns the names of the key's parts, with their texts.
    fn parts(&self) -> impl Iterator<Item = (&str, String)> {
        let labels = self.labels.iter().map(|label| (label.key.as_str(), short(label)));
        let report = std::iter::once((REPORT, self.report.clone()));
        let metric = Some(&self.metric).filter(|metric| !metric.is_empty()).map(|metric| (METRIC, metric.clone()));
        report.chain(labels).chain(metric)
    }
}

/// Names of lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Names {
    /// A name for each key. Empty if there is one key.
    pub lines: Vec<String>,
    /// Settings that all keys have.
    pub common: Vec<String>,
}

/// Names keys by the parts in which they differ. A part that the parts in front of it tell is left out.
pub fn names(keys: &[Key]) -> Names {
    let table = Table::of(keys);
    let (common, mut varying): (Vec<usize>, Vec<usize>) =
        (0..table.parts.len()).partition(|part| table.is_common(*part));
    let different = table.different(&varying);
    for part in varying.clone().into_iter().rev() {
        let rest: Vec<usize> = varying.iter().copied().filter(|other| *other != part).collect();
        let is_setting = ![REPORT, METRIC].contains(&table.parts[part].as_str());
        if is_setting && table.different(&rest) == different {
            varying = rest;
        }
    }
    let texts = |row: &[Option<String>], of: &[usize]| -> Vec<String> {
        of.iter().filter_map(|part| row[*part].clone()).collect()
    };
    let lines = table.rows.iter().map(|row| texts(row, &varying).join(", ")).collect();
    let settings: Vec<usize> =
        common.into_iter().filter(|part| ![REPORT, METRIC].contains(&table.parts[*part].as_str())).collect();
    let common = table.rows.first().map_or_else(Vec::new, |row| texts(row, &settings));
    // `randread` says that the direction is `read`.
    let is_told = |text: &String| common.iter().any(|other| other != text && other.ends_with(text.as_str()));
    Names { lines, common: common.iter().filter(|text| !is_told(text)).cloned().collect() }
}

/// Texts of keys, with a column for each part.
struct Table {
    parts: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
}

impl Table {
    fn of(keys: &[Key]) -> Self {
        let mut parts: Vec<String> = Vec::new();
        for (name, _) in keys.iter().flat_map(Key::parts) {
            if !parts.iter().any(|known| known == name) {
                parts.push(name.to_owned());
            }
        }
        let text = |key: &Key, name: &str| key.parts().find(|(part, _)| *part == name).map(|(_, text)| text);
        let row = |key: &Key| parts.iter().map(|name| text(key, name)).collect();
        let rows = keys.iter().map(row).collect();
        Self { parts, rows }
    }

    fn is_common(&self, part: usize) -> bool {
        let mut all = self.rows.iter().map(|row| &row[part]);
        let first = all.next();
        first.is_some_and(Option::is_some) && all.all(|text| Some(text) == first)
    }

    /// Returns how many rows differ in these parts.
    fn different(&self, parts: &[usize]) -> usize {
        let of = |row: &Vec<Option<String>>| parts.iter().map(|part| row[*part].clone()).collect::<Vec<_>>();
        self.rows.iter().map(of).collect::<BTreeSet<_>>().len()
    }
}

/// Returns the words of a label, with sizes in binary units.
fn short(label: &Label) -> String {
    match (label.key.as_str(), &label.value) {
        ("bytes", LabelValue::Number(n)) => Bytes(*n as u64).to_string(),
        (key, LabelValue::Number(n)) if is_bytes(key) => {
            let what = key.strip_suffix("_bytes").unwrap_or(key).replace('_', " ");
            format!("{what} {}", Bytes(*n as u64))
        }
        (_, LabelValue::Number(1.0)) => label.words().trim_end_matches('s').to_owned(),
        _ => label.words(),
    }
}

/// Divides keys into groups, of which each has few enough lines for one panel: by the setting that gives the fewest
/// groups, or in their order if none does. Returns the places of the keys in `keys`.
///
/// # Errors
/// The number of lines, if there would be too many groups.
pub fn groups(keys: &[Key]) -> Result<Vec<Vec<usize>>, usize> {
    if keys.len() <= MOST_LINES {
        return Ok(vec![(0..keys.len()).collect()]);
    }
    let table = Table::of(keys);
    let by_part: Vec<Vec<Vec<usize>>> = (0..table.parts.len())
        .map(|part| {
            let mut groups: Vec<(&Option<String>, Vec<usize>)> = Vec::new();
            for (i, row) in table.rows.iter().enumerate() {
                match groups.iter_mut().find(|(text, _)| *text == &row[part]) {
                    Some((_, group)) => group.push(i),
                    None => groups.push((&row[part], vec![i])),
                }
            }
            groups.into_iter().map(|(_, group)| group).collect()
        })
        .collect();
    let best = |most: usize| {
        let is_fitting = |groups: &&Vec<Vec<usize>>| {
            (2..=MOST_GROUPS).contains(&groups.len()) && groups.iter().all(|group| group.len() <= most)
        };
        by_part.iter().filter(is_fitting).min_by_key(|groups| groups.len()).cloned()
    };
    let in_order = || (0..keys.len()).collect::<Vec<_>>().chunks(MOST_LINES).map(<[usize]>::to_vec).collect();
    let groups: Vec<Vec<usize>> = best(FEW_LINES).or_else(|| best(MOST_LINES)).unwrap_or_else(in_order);
    if groups.len() <= MOST_GROUPS { Ok(groups) } else { Err(keys.len()) }
}

/// Returns the text, or its beginning with an ellipsis if it has more than `most` characters.
pub fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() {
        n if n > most => text.chars().take(most.saturating_sub(1)).chain(['\u{2026}']).collect(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(report: &str, labels: &[Label], metric: &str) -> Key {
        Key { report: report.to_owned(), labels: labels.to_vec(), metric: metric.to_owned() }
    }

    fn job(rw: &str, bytes: f64, direction: &str) -> Vec<Label> {
        vec![Label::text("rw", rw), Label::number("bytes", bytes), Label::text("direction", direction)]
    }

    #[test]
    fn lines_are_named_by_what_differs() {
        let keys = [key("a", &job("randread", 4096.0, "read"), ""), key("a", &job("randread", 8192.0, "read"), "")];
        let found = names(&keys);
        assert_eq!(found.lines, ["4 KiB", "8 KiB"]);
        assert_eq!(found.common, ["randread"]);
        let reports = [key("a", &job("read", 512.0, "read"), ""), key("b", &job("read", 512.0, "read"), "")];
        assert_eq!(names(&reports).lines, ["a", "b"]);
        assert_eq!(names(&reports[..1]).lines, [""]);
        assert_eq!(names(&[]).common, [""; 0]);
    }

    #[test]
    fn a_setting_that_another_one_tells_is_left_out() {
        let told = [key("a", &job("read", 1.0, "read"), ""), key("a", &job("write", 1.0, "write"), "")];
        assert_eq!(names(&told).lines, ["read", "write"]);
        let [read, write] = ["read", "write"].map(|d| key("a", &job("randrw", 1.0, d), ""));
        let mixed = [key("a", &job("randread", 1.0, "read"), ""), read, write];
        assert_eq!(names(&mixed).lines, ["randread, read", "randrw, read", "randrw, write"]);
        let on = Label { key: "blue_flame".to_owned(), value: LabelValue::On };
        assert_eq!(names(&[key("a", &[on], "x"), key("a", &[], "y")]).lines, ["x", "y"]);
        let figures = [key("a", &[], "plain"), key("a", &[], "cached")];
        assert_eq!(names(&figures).lines, ["plain", "cached"]);
    }

    #[test]
    fn many_lines_are_divided_by_the_setting_with_the_fewest_groups() {
        let sizes = |n: u32| (0..n).map(|i| f64::from(512 << i));
        let both = |n| -> Vec<Key> {
            let of = |rw: &'static str| sizes(n).map(move |bytes| key("a", &job(rw, bytes, "read"), ""));
            of("randread").chain(of("read")).collect()
        };
        assert_eq!(groups(&both(4)).unwrap().len(), 1);
        assert_eq!(groups(&both(6)).unwrap(), [(0..6).collect::<Vec<_>>(), (6..12).collect()]);
        let of_sizes: Vec<usize> = groups(&both(7)).unwrap().iter().map(Vec::len).collect();
        assert_eq!(of_sizes, [2; 7], "few lines in many panels rather than many in two");
        let chunks = groups(&both(9)[..9]).unwrap();
        assert_eq!(chunks.iter().map(Vec::len).collect::<Vec<_>>(), [8, 1]);
        let many: Vec<Key> = (0..65).map(|i| key("a", &[Label::number("numjobs", f64::from(i))], "")).collect();
        assert_eq!(groups(&many), Err(65));
    }

    #[test]
    fn one_is_singular() {
        let labels = |n: f64| [Label::number("queues", n), Label::number("iodepth", n), Label::number("bytes", n)];
        assert_eq!(labels(1.0).map(|label| short(&label)), ["1 queue", "iodepth 1", "1 B"]);
        assert_eq!(labels(2.0).map(|label| short(&label)), ["2 queues", "iodepth 2", "2 B"]);
        let sizes = [("row_bytes", "row 4 KiB"), ("host_cache_bytes", "host cache 4 KiB")];
        sizes.into_iter().for_each(|(key, words)| assert_eq!(short(&Label::number(key, 4096.0)), words));
    }

    #[test]
    fn long_texts_are_shortened() {
        assert_eq!((shortened("abcd", 4), shortened("abcde", 4)), ("abcd".to_owned(), "abc\u{2026}".to_owned()));
    }
}
