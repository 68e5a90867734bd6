//! Tests `--csv` of measurements: the rows of the JSON report, a line for each.

use super::program::*;
use serde_json::Value;
use std::collections::HashMap;

/// Columns of figures whose keys have no unit: shares of a whole, and commands per second.
const OTHERS: [&str; 3] = ["share", "from_register", "iops"];

/// Lines of a table, each with its cells by column.
struct Table {
    columns: Vec<String>,
    lines: Vec<HashMap<String, String>>,
}

/// Reads a table none of whose cells has a comma.
fn table(text: &str) -> Table {
    let cells = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut lines = text.lines().map(cells);
    let columns = lines.next().unwrap_or_else(|| panic!("no head in: {text}"));
    let lines = lines.map(|cells| {
        assert_eq!(cells.len(), columns.len(), "{text}");
        columns.iter().cloned().zip(cells).collect()
    });
    Table { lines: lines.collect(), columns: columns.clone() }
}

/// Measures, and returns the report and the table.
fn measured(command: &str) -> (Value, Table) {
    let folder = folder();
    let [report, rows] = ["report.json", "rows.csv"].map(|file| folder.path().join(file));
    let args = command.split_whitespace().chain(["--engine", "cpu", "--json", name(&report), "--csv", name(&rows)]);
    succeeds(&args.collect::<Vec<_>>());
    (json(&report), table(&std::fs::read_to_string(&rows).unwrap()))
}

/// Calls `see` with each value in a row but lists, and with its column.
fn each_value(row: &Value, column: &str, see: &mut impl FnMut(&str, &Value)) {
    match row {
        Value::Object(all) => all.iter().for_each(|(key, value)| {
            let column = |key: &str| if column.is_empty() { key.to_owned() } else { format!("{column}_{key}") };
            match (key.as_str(), value) {
                ("percentiles_ns", Value::Object(all)) => all.iter().for_each(|(percent, value)| {
                    see(&column(&format!("p{}_ns", percent.replace('.', "_"))), value);
                }),
                _ => each_value(value, &column(key), see),
            }
        }),
        Value::Array(_) => {}
        value => see(column, value),
    }
}

/// Checks that the lines are the rows of a report: each value that a row has, and no other one but in `more`.
#[track_caller]
fn same(rows: &[&Value], table: &Table, more: &[&str]) {
    assert!(!rows.is_empty());
    assert_eq!(table.lines.len(), rows.len(), "{:?}", table.columns);
    for (row, line) in rows.iter().zip(&table.lines) {
        let mut seen = more.to_vec();
        let mut columns = Vec::new();
        each_value(row, "", &mut |column, value| {
            let cell = line.get(column).unwrap_or_else(|| panic!("no column {column} in {:?}", table.columns));
            let expected = match value {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            // The parser of JSON reads both: it may miss the last bit of a number.
            match serde_json::from_str::<f64>(cell) {
                Ok(figure) => assert_eq!(Some(figure), value.as_f64(), "{column}"),
                Err(_) => assert_eq!(*cell, expected, "{column}"),
            }
            let has_unit = ["_ns", "_us", "_per_"].iter().any(|unit| column.contains(unit)) || OTHERS.contains(&column);
            assert!(!value.is_f64() || has_unit, "{column} has no unit");
            columns.push(column.to_owned());
        });
        seen.extend(columns.iter().map(String::as_str));
        for (column, cell) in line.iter().filter(|(_, cell)| !cell.is_empty()) {
            assert!(seen.contains(&column.as_str()), "{column} is {cell}, and the report has no such value");
        }
    }
}

fn list<'a>(report: &'a Value, pointer: &str) -> Vec<&'a Value> {
    report.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("{report}")).iter().collect()
}

#[test]
fn rows_of_the_queue_core_and_of_the_cache() {
    let (report, table) = measured("bench queue --queues 1,2 --depth 64 --commands 100 --runs 2");
    same(&list(&report, "/results"), &table, &[]);
    assert_eq!(table.columns[..3], ["queues", "depth", "submitters"]);
    let (report, table) = measured("bench array --size 1M --runs 1");
    same(&list(&report, "/results"), &table, &[]);
}

#[test]
fn rows_of_rates_and_latencies_of_posts() {
    let (report, table) = measured("bench post --blocks 1,2 --depth 64 --posts 100 --iters 50 --runs 1");
    let (rates, latencies) = (list(&report, "/results/rates"), list(&report, "/results/latencies"));
    let lists: Vec<&str> = table.lines.iter().map(|line| line["list"].as_str()).collect();
    assert_eq!((lists.len(), &lists[..2]), (rates.len() + latencies.len(), &["rates", "rates"][..]));
    assert!(lists[2..].iter().all(|list| *list == "latencies"));
    same(&[rates, latencies].concat(), &table, &["list"]);
}

#[test]
fn rows_of_gathers_with_their_percentiles() {
    let (report, table) = measured("bench gather --rows 3000 --batch 500,700 --batches 4 --runs 3");
    let points = list(&report, "/results");
    let runs: Vec<&Value> = points.iter().flat_map(|point| list(point, "/runs")).collect();
    let percentiles = ["latency_p50_ns", "latency_p90_ns", "latency_p99_ns", "latency_p99_9_ns"];
    let job: Vec<String> = points[0]["job"].as_object().unwrap().keys().map(|key| format!("job_{key}")).collect();
    let job: Vec<&str> = job.iter().map(String::as_str).collect();
    same(&runs, &table, &[&job[..], &["run"], &percentiles].concat());
    for (i, (run, line)) in runs.iter().zip(&table.lines).enumerate() {
        assert_eq!(line["run"], (i % 3 + 1).to_string());
        assert_eq!(line["job_batch"], ["500", "700"][i / 3]);
        let in_json: Vec<String> =
            run["latency"]["percentiles_ns"].as_object().unwrap().values().map(Value::to_string).collect();
        assert_eq!(percentiles.map(|column| line[column].clone()).to_vec(), in_json);
    }
}

#[test]
fn rows_of_transfers_between_pes() {
    let (report, table) = measured("bench shmem all --pes 2 -b 8 -e 4k -f 512 -n 10 -w 2 --window 4k --runs 1");
    same(&list(&report, "/results/rows"), &table, &[]);
    let (report, table) = measured("bench shmem put_latency --pes 2 -b 8 -e 16 -n 20 --runs 1 --raw");
    same(&list(&report, "/results/rows"), &table, &[]);
    assert!(table.columns.iter().any(|column| column == "raw_time_ns_median"), "{:?}", table.columns);
    for test in ["read", "put --pes 2"] {
        let (report, table) = measured(&format!("bench stream {test} -n 3 --chained 10"));
        same(&list(&report, "/results"), &table, &[]);
    }
}

#[test]
fn rows_of_adapters_with_their_initiators_and_points() {
    for test in ["write_bw -s 2,4096 -n 20 -l 1,4", "read_lat -n 20", "read_lat -D 20ms"] {
        let (report, table) = measured(&format!("bench rdma {test} --transport soft"));
        let tables = list(&report, "/results");
        let rows: Vec<(&Value, &Value)> =
            tables.iter().flat_map(|t| list(t, "/rows").into_iter().map(move |row| (*t, row))).collect();
        let values = ["queue_pairs", "tx_depth", "post_list", "cq_mod", "inline_bytes"];
        let columns = values.map(|key| format!("job_{key}"));
        let more: Vec<&str> = std::iter::once("initiator").chain(columns.iter().map(String::as_str)).collect();
        same(&rows.iter().map(|(_, row)| *row).collect::<Vec<_>>(), &table, &more);
        for ((of, _), line) in rows.iter().zip(&table.lines) {
            assert_eq!(of["initiator"], line["initiator"].as_str(), "{test}");
            for (key, column) in values.iter().zip(&columns) {
                assert_eq!(of["job"][key].to_string(), line[column], "{test}");
            }
        }
    }
}

#[test]
fn rows_of_a_device_are_runs_and_directions() {
    let (report, table) = measured("bench nvme --rw randread,randrw --bs 512,4k --runs 2 --size 1M --runtime 20ms");
    let (mut rows, mut jobs) = (Vec::new(), Vec::new());
    for point in list(&report, "/results") {
        for run in list(point, "/runs") {
            let sides = ["read", "write"].iter().filter_map(|side| run.get(side));
            sides.for_each(|side| {
                rows.push(side);
                jobs.push(&point["job"]);
            });
        }
    }
    assert_eq!(rows.len(), 2 * 2 + 2 * 2 * 2);
    let job: Vec<String> = jobs[0].as_object().unwrap().keys().map(|key| format!("job_{key}")).collect();
    let job: Vec<&str> = job.iter().map(String::as_str).collect();
    let more = [&job[..], &["in_flight", "run", "verified"]].concat();
    same(&rows, &table, &more);
    for (job, line) in jobs.iter().zip(&table.lines) {
        assert_eq!(
            (line["job_bytes"].clone(), line["job_rw"].as_str()),
            (job["bytes"].to_string(), job["rw"].as_str().unwrap())
        );
    }
}

#[test]
fn standard_output_has_the_rows_alone() {
    let text =
        succeeds(&"bench queue --queues 1 --depth 64 --commands 100 --runs 1 --csv -".split(' ').collect::<Vec<_>>());
    assert_eq!(table(&text).lines.len(), 1, "{text}");
    let text =
        succeeds(&"bench stream put --engine cpu --pes 2 -n 3 --chained 5 --csv -".split(' ').collect::<Vec<_>>());
    assert_eq!(table(&text).lines.len(), 3, "{text}");
}
