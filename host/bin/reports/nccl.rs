//! Figures of nccl-tests (`-J FILE`): rates in GB/s of 10^9 bytes, times in microseconds.

use super::figure::{Figure, Samples, Subject, Unit};
use super::source::{Source, as_number, number, text};
use serde_json::Value;
use std::path::Path;

/// Bytes in the unit of its rates.
const GB: f64 = 1e9;

/// Reads the report of one program of nccl-tests.
///
/// # Errors
/// A row whose results were wrong.
pub fn read(document: &Value) -> Result<Source, String> {
    let arguments = document.get("args").and_then(Value::as_array);
    let program = arguments.and_then(|args| Path::new(args.first()?.as_str()?).file_name()?.to_str());
    let program = program.unwrap_or("nccl-tests");
    let mut figures = Vec::new();
    for result in document.get("results").and_then(Value::as_array).into_iter().flatten() {
        for place in ["out_of_place", "in_place"] {
            let Some(body) = result.get(place).filter(|body| body.is_object()) else { continue };
            let row = row(program, result, place);
            if number(body, "nwrong").is_some_and(|wrong| wrong > 0.0) {
                return Err(format!("{row}: some elements were wrong, so its figures are of no transfer that counts"));
            }
            let rates = [("alg_bw", "algorithm bytes per s"), ("bus_bw", "bus bytes per s")];
            let found = rates.iter().filter_map(|(key, metric)| Some((metric, number(body, key)?)));
            figures.extend(found.map(|(metric, rate)| Figure::one(&row, *metric, Unit::BytesPerS, rate * GB)));
            figures.extend(time(&row, body, result.get(format!("{place}_per_iter"))));
        }
    }
    let version = document.get("nccl_version").and_then(Value::as_i64).unwrap_or_default();
    Ok(Source {
        tool: format!("nccl-tests {program}, NCCL {}", version_text(version)),
        command: format!("nccl-tests {program}"),
        subject: Subject::Device,
        device: text(document.pointer("/ranks/0").unwrap_or(&Value::Null), "device_info").map(str::to_owned),
        settings: settings(document),
        figures,
        ..Source::default()
    })
}

fn row(program: &str, result: &Value, place: &str) -> String {
    let mut words = vec![program.to_owned()];
    if let Some(bytes) = number(result, "size") {
        words.push(format!("{bytes} bytes"));
    }
    for key in ["type", "redop"] {
        words.extend(text(result, key).filter(|word| *word != "none").map(str::to_owned));
    }
    words.push(place.replace('_', " "));
    words.join(", ")
}

/// Returns the time of a row: each iteration's where the report has them.
fn time(row: &str, body: &Value, each: Option<&Value>) -> Option<Figure> {
    let times: Vec<f64> = each?.get("times_us")?.as_array()?.iter().filter_map(as_number).map(|us| us * 1e3).collect();
    let samples = match times.as_slice() {
        [] => Samples::Values(vec![number(body, "time").or_else(|| number(body, "cpu_time"))? * 1e3]),
        _ => Samples::Values(times),
    };
    Some(Figure::new(row, "time", Unit::Ns, samples))
}

/// Returns a version of NCCL: 23205 is 2.32.5, and 2708 was 2.7.8.
fn version_text(code: i64) -> String {
    let (major, rest, of_minor) =
        if code >= 10_000 { (code / 10_000, code % 10_000, 100) } else { (code / 1000, code % 1000, 100) };
    format!("{major}.{}.{}", rest / of_minor, rest % of_minor)
}

fn settings(document: &Value) -> Vec<(String, String)> {
    let Some(config) = document.get("config") else { return Vec::new() };
    let names = ["nthreads", "ngpus", "aggregated_iterations", "graph", "blocking_collectives"];
    names.iter().filter_map(|name| Some(((*name).to_owned(), config.get(name)?.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(wrong: f64) -> Value {
        json!({ "version": 1, "args": ["./build/all_reduce_perf", "-b", "8"], "nccl_version": 23205,
                "config": { "nthreads": 1, "ngpus": 2 }, "ranks": [{ "rank": 0, "device_info": "NVIDIA H200" }],
                "results": [{ "size": 1048576, "count": 262144, "type": "float", "redop": "sum",
                    "out_of_place": { "time": 20.5, "alg_bw": 51.2, "bus_bw": 51.2, "nwrong": wrong },
                    "out_of_place_per_iter": { "times_us": [20.0, 21.0], "cv_pct": 2.4 },
                    "in_place": null }] })
    }

    #[test]
    fn rates_are_decimal_and_times_are_those_of_the_iterations() {
        let source = read(&report(0.0)).unwrap();
        assert_eq!(source.tool, "nccl-tests all_reduce_perf, NCCL 2.32.5");
        let of = |metric| source.figures.iter().find(|f| f.metric == metric).unwrap();
        assert_eq!(of("bus bytes per s").samples.middle(), 51.2e9);
        assert_eq!(of("time").samples, Samples::Values(vec![20_000.0, 21_000.0]));
        assert_eq!(of("time").row, "all_reduce_perf, 1048576 bytes, float, sum, out of place");
        assert_eq!(source.figures.len(), 3, "nothing was in place");
        assert_eq!(version_text(2708), "2.7.8");
    }

    #[test]
    fn wrong_results_have_no_figures() {
        assert!(read(&report(3.0)).unwrap_err().contains("wrong"));
    }
}
