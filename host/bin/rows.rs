//! Rows of results as lines with commas (`--csv`), made of the same rows as the JSON report.
//!
//! Columns have the keys of the report. Keys of inner objects are behind the key of the object: `latency_min_ns`. Lists are
//! left out. Each percentile is a column: `latency_p99_9_ns`. What a row lacks is empty there.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// Beginning of the key of an object of percentiles and values; the unit of the values follows.
const PERCENTILES: &str = "percentiles_";

/// Rows of a table, whose columns are those that any row has.
#[derive(Clone, Debug, Default)]
pub struct Rows(Vec<Vec<(String, String)>>);

impl Rows {
    /// Returns a table of these rows.
    ///
    /// # Errors
    /// [`serde_json::Error`] if a row cannot be serialised.
    pub fn of<R: Serialize>(rows: impl IntoIterator<Item = R>) -> serde_json::Result<Self> {
        let mut all = Self::default();
        rows.into_iter().try_for_each(|row| all.add(row))?;
        Ok(all)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`serde_json::Error`] if the row cannot be serialised.
    pub fn add(&mut self, row: impl Serialize) -> serde_json::Result<()> {
        let mut cells = Vec::new();
        flatten(&serde_json::to_string(&row)?, "", &mut cells)?;
        self.0.push(cells);
        Ok(())
    }

    /// Returns the columns: those of the first row, and each further one behind the column that it follows in its row.
    fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&str> = Vec::new();
        for cells in &self.0 {
            let mut next = 0;
            for (key, _) in cells {
                let at = columns.iter().position(|column| *column == key.as_str()).unwrap_or_else(|| {
                    columns.insert(next, key);
                    next
                });
                next = at + 1;
            }
        }
        columns
    }

    /// Returns the line with the columns, and a line for each row.
    pub fn lines(&self) -> (String, Vec<String>) {
        let columns = self.columns();
        let line = |cells: &Vec<(String, String)>| {
            let cell = |column: &str| cells.iter().find(|(key, _)| key == column).map_or("", |(_, text)| text.as_str());
            separated(columns.iter().map(|column| cell(column)))
        };
        (separated(columns.iter().copied()), self.0.iter().map(line).collect())
    }
}

/// Members of an object in JSON, in their order, with their values as they are written there.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_map(InOrder)
    }
}

struct InOrder;

impl<'de> Visitor<'de> for InOrder {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = map.next_entry()? {
            all.push(member);
        }
        Ok(Members(all))
    }
}

/// Adds the cells of a value in JSON whose key is `key`; the one of a whole row is empty.
fn flatten(value: &str, key: &str, cells: &mut Vec<(String, String)>) -> serde_json::Result<()> {
    match value.as_bytes().first() {
        Some(b'{') => {
            for (inner, value) in serde_json::from_str::<Members>(value)?.0 {
                match inner.strip_prefix(PERCENTILES) {
                    Some(unit) => {
                        let percentiles = serde_json::from_str::<Members>(value.get())?.0;
                        cells.extend(percentiles.iter().map(|(percent, value)| {
                            let percent = percent.replace('.', "_");
                            (joined(key, &format!("p{percent}_{unit}")), value.get().to_owned())
                        }));
                    }
                    None => flatten(value.get(), &joined(key, &inner), cells)?,
                }
            }
        }
        Some(b'[') => {}
        Some(b'"') => cells.push((key.to_owned(), serde_json::from_str(value)?)),
        _ => cells.push((key.to_owned(), if value == "null" { String::new() } else { value.to_owned() })),
    }
    Ok(())
}

fn joined(outer: &str, inner: &str) -> String {
    if outer.is_empty() { inner.to_owned() } else { format!("{outer}_{inner}") }
}

fn separated<'a>(cells: impl Iterator<Item = &'a str>) -> String {
    cells.map(quoted).collect::<Vec<_>>().join(",")
}

/// Returns a cell, in quotes if it has a character that separates cells or lines (RFC 4180).
pub fn quoted(cell: &str) -> Cow<'_, str> {
    match cell.contains([',', '"', '\n', '\r']) {
        true => Cow::Owned(format!("\"{}\"", cell.replace('"', "\"\""))),
        false => Cow::Borrowed(cell),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::mapping::MappingRow;

    /// Returns the head and the lines of rows in JSON.
    fn lines<const N: usize>(rows: [&str; N]) -> (String, Vec<String>) {
        Rows::of(rows.map(|row| RawValue::from_string(row.to_owned()).unwrap())).unwrap().lines()
    }

    #[test]
    fn inner_keys_are_joined_and_lists_left_out() {
        let row = r#"{ "z": 1, "a_per_s": { "min": 1.5, "max": 2 }, "list": [1, 2], "is": true, "none": null,
                       "latency": { "mean_ns": 0.1, "percentiles_ns": { "50": 7, "99.9": 9 } } }"#;
        let (head, lines) = lines([row]);
        assert_eq!(head, "z,a_per_s_min,a_per_s_max,is,none,latency_mean_ns,latency_p50_ns,latency_p99_9_ns");
        assert_eq!(lines, ["1,1.5,2,true,,0.1,7,9"]);
    }

    #[test]
    fn columns_of_all_rows_stand_where_their_rows_have_them() {
        let one = r#"{ "test": "a", "p50_ns": 1, "wrong": 0 }"#;
        let other = r#"{ "test": "b", "size": 2, "wrong": 0, "raw": 3 }"#;
        let (head, lines) = lines([one, other]);
        assert_eq!(head, "test,size,p50_ns,wrong,raw");
        assert_eq!(lines, ["a,,1,0,", "b,2,,0,3"]);
        assert_eq!(Rows::default().lines(), (String::new(), Vec::new()));
    }

    #[test]
    fn rows_of_a_mapping_have_their_keys() {
        let [mapped_read_ns, copied_read_ns, mapped_write_ns, copied_write_ns] = [1.5, 2.25, 3.0, 4.5];
        let row = MappingRow { bytes: 64, mapped_read_ns, copied_read_ns, mapped_write_ns, copied_write_ns };
        let (head, lines) = Rows::of([row]).unwrap().lines();
        assert_eq!(head, "bytes,mapped_read_ns,copied_read_ns,mapped_write_ns,copied_write_ns");
        assert_eq!(lines, ["64,1.5,2.25,3.0,4.5"]);
    }

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let (head, lines) = lines([r#"{ "name": "a,b", "said": "\"x\"\n" }"#]);
        assert_eq!((&*head, &*lines[0]), ("name,said", "\"a,b\",\"\"\"x\"\"\n\""));
    }

    #[test]
    fn figures_are_written_as_in_json() {
        #[derive(Serialize)]
        struct Row {
            share: f64,
            rate_per_s: f64,
            count: u64,
        }
        let row = Row { share: 1.0 / 3.0, rate_per_s: 2e20, count: u64::MAX };
        let json = serde_json::to_string(&row).unwrap();
        let (_, lines) = Rows::of([&row]).unwrap().lines();
        let [share, rate, count] = lines[0].split(',').collect::<Vec<_>>()[..] else { panic!("{lines:?}") };
        assert_eq!(format!(r#"{{"share":{share},"rate_per_s":{rate},"count":{count}}}"#), json);
    }
}
