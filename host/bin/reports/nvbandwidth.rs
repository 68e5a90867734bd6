//! Figures of nvbandwidth (`-j`): rates in GB/s of 10^9 bytes, latencies in nanoseconds.

use super::figure::{Figure, Subject, Unit};
use super::source::{Source, as_number, text};
use serde_json::Value;

/// Reads the report of all its test cases.
///
/// # Errors
/// A test case that failed.
pub fn read(document: &Value) -> Result<Source, String> {
    let report = document.get("nvbandwidth").unwrap_or(&Value::Null);
    if let Some(error) = text(report, "error") {
        return Err(format!("nvbandwidth failed: {error}"));
    }
    let mut figures = Vec::new();
    for case in report.get("testcases").and_then(Value::as_array).into_iter().flatten() {
        let name = text(case, "name").unwrap_or_default();
        match text(case, "status") {
            Some("Passed") => figures.extend(of_case(name, case)),
            // The machine has not what the case is about.
            Some("Waived") => {}
            other => return Err(format!("test case `{name}` of nvbandwidth: {}", other.unwrap_or("no status"))),
        }
    }
    Ok(Source {
        tool: format!("nvbandwidth {}", text(report, "version").unwrap_or_default()),
        command: "nvbandwidth".to_owned(),
        subject: Subject::Device,
        device: report.pointer("/GPU Device list/0").and_then(Value::as_str).map(str::to_owned),
        settings: ["CUDA Runtime Version", "Driver Version"]
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), report.get(key)?.as_str()?.to_owned())))
            .collect(),
        figures,
        ..Source::default()
    })
}

/// Returns a figure for each pair of a case's matrix.
fn of_case(name: &str, case: &Value) -> Vec<Figure> {
    let description = text(case, "bandwidth_description").unwrap_or_default();
    let (metric, unit, scale) =
        if description.ends_with("(ns)") { ("latency", Unit::Ns, 1.0) } else { ("bytes per s", Unit::BytesPerS, 1e9) };
    let rows = case.get("bandwidth_matrix").and_then(Value::as_array).into_iter().flatten().enumerate();
    rows.flat_map(|(i, row)| {
        let cells = row.as_array().into_iter().flatten().enumerate();
        // A pair of a GPU with itself is N/A.
        cells.filter_map(move |(j, cell)| Some((i, j, as_number(cell)?))).collect::<Vec<_>>()
    })
    .map(|(i, j, value)| Figure::one(format!("{name}, {i} and {j}"), metric, unit, value * scale))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_pair_is_a_row_and_what_is_waived_is_none() {
        let report = json!({ "nvbandwidth": { "version": "v0.8", "testcases": [
            { "name": "device_to_device_memcpy_read_ce", "status": "Passed",
              "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
              "bandwidth_matrix": [["N/A", "276.07"], ["276.36", "N/A"]], "sum": 552.43 },
            { "name": "device_local_copy", "status": "Waived" },
            { "name": "host_device_latency_sm", "status": "Passed",
              "bandwidth_description": "memory latency SM CPU(row) <-> GPU(column) (ns)", "bandwidth_matrix": [["812.5"]] }
        ] } });
        let source = read(&report).unwrap();
        let rows: Vec<_> = source.figures.iter().map(|f| (f.row.as_str(), f.samples.middle(), f.unit)).collect();
        assert_eq!(
            rows,
            [
                ("device_to_device_memcpy_read_ce, 0 and 1", 276.07e9, Unit::BytesPerS),
                ("device_to_device_memcpy_read_ce, 1 and 0", 276.36e9, Unit::BytesPerS),
                ("host_device_latency_sm, 0 and 0", 812.5, Unit::Ns),
            ]
        );
    }

    #[test]
    fn a_failed_case_is_an_error() {
        let report = json!({ "nvbandwidth": { "testcases": [{ "name": "x", "status": "Error" }] } });
        assert!(read(&report).unwrap_err().contains("`x` of nvbandwidth: Error"));
    }
}
