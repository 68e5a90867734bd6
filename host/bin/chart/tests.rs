//! Tests charts of whole reports: their structure, and that no report makes drawing panic.

use super::*;
use proptest::prelude::*;
use roxmltree::Document;
use serde_json::json;
use std::ops::RangeInclusive;

/// Returns a report of `bench nvme`.
fn report(swept: &[&str], results: Value) -> Value {
    json!({
        "schema": crate::reports::SCHEMA, "command": "bench nvme", "config": { "runs": 2, "swept": swept },
        "environment": { "version": "0.1.0", "engine": "cpu", "engine_threads": 2, "engine_name": "cpu (2 threads)" },
        "path": { "device": "soft:mem" }, "results": results,
    })
}

fn direction(name: &str, iops: f64) -> Value {
    let percentiles = json!({ "1": 5_000, "50": 9_000, "90": 20_000, "99": 40_000, "99.9": 900_000, "100": 5_000_000 });
    let series = json!({ "interval_ns": 1e9, "iops": [iops, iops / 2.0, iops, iops], "bytes_per_s": [],
                         "mean_latency_ns": [9_000, 18_000, 9_000, 9_000] });
    json!({ "direction": name, "iops": iops, "bytes_per_s": iops * 4096.0, "runtime_ns": 5,
            "latency": { "mean_ns": 9_500.0, "max_ns": 5_000_000, "percentiles_ns": percentiles }, "time_series": series })
}

/// Returns a point of a sweep, measured twice.
fn point(rw: &str, depth: u32, iops: f64) -> Value {
    let directions: &[&str] = if rw == "randrw" { &["read", "write"] } else { &["read"] };
    let run = |factor: f64| -> Value {
        directions
            .iter()
            .map(|name| ((*name).to_owned(), direction(name, iops * factor)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    json!({ "job": { "rw": rw, "bytes": 4096, "iodepth": depth }, "runs": [run(1.0), run(1.2)] })
}

fn sweep() -> Value {
    report(&["iodepth"], json!([point("randread", 1, 1e5), point("randread", 2, 2e5), point("randread", 8, 4e5)]))
}

fn draw_all(reports: &[(&str, &Value)], kind: ChartKind) -> Result<String, String> {
    let read = |(name, document): &(&str, &Value)| {
        let source = reports::of_document(name, document).map_err(|e| e.to_string())?;
        Ok(Input { name: (*name).to_owned(), source })
    };
    let inputs = reports.iter().map(read).collect::<Result<Vec<_>, String>>()?;
    draw::draw(&chart(inputs, kind)?).map_err(|e| e.to_string())
}

fn drawn(report: &Value, kind: ChartKind) -> String {
    draw_all(&[("a.json", report)], kind).unwrap()
}

/// Elements of a chart.
struct Picture<'a>(Document<'a>);

impl<'a> Picture<'a> {
    fn of(text: &'a str) -> Self {
        Self(Document::parse(text).unwrap_or_else(|e| panic!("{e}: {text}")))
    }

    fn all(&self, tag: &str) -> impl Iterator<Item = roxmltree::Node<'_, 'a>> {
        let tag = tag.to_owned();
        self.0.descendants().filter(move |node| node.has_tag_name(tag.as_str()))
    }

    fn texts(&self) -> Vec<String> {
        self.all("text").map(|node| node.text().unwrap_or_default().trim().to_owned()).collect()
    }

    /// Returns the numbers of points of the lines of a class, without those of legends.
    fn lines(&self, class: &str) -> Vec<usize> {
        let is_line = |node: &roxmltree::Node<'_, '_>| {
            node.attribute("class") == Some(class) && node.attribute("stroke-width") == Some("20")
        };
        let lines = self.all("polyline").filter(is_line);
        let points = lines.map(|node| node.attribute("points").unwrap().split_whitespace().count());
        points.filter(|count| *count > 2).collect()
    }

    fn count(&self, tag: &str, class: &str) -> usize {
        self.all(tag).filter(|node| node.attribute("class") == Some(class)).count()
    }

    #[track_caller]
    fn says(&self, words: &[&str]) {
        let texts = self.texts();
        for word in words {
            assert!(texts.iter().any(|text| text == word), "no text `{word}` in {texts:?}");
        }
    }

    /// Checks that texts are large enough, inside of the chart, and not on each other.
    fn is_legible(&self) {
        let root = self.0.root_element();
        let units = |node: roxmltree::Node<'_, '_>, name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
        let (width, height) = (units(root, "width") * 10.0, units(root, "height") * 10.0);
        let mut boxes: Vec<([f64; 4], String)> = Vec::new();
        for node in self.all("text") {
            let text = node.text().unwrap_or_default().trim().to_owned();
            let (x, y, size) = (units(node, "x"), units(node, "y"), units(node, "font-size"));
            assert!(size >= 119.9, "{text}: {size}");
            let long = 10.0 * f64::from(layout::width_of(&text, (size / 10.0).round() as u32));
            let left = match node.attribute("text-anchor") {
                Some("start") => x,
                Some("end") => x - long,
                _ => x - long / 2.0,
            };
            let top = match node.attribute("dy") {
                Some("0.76em") => y,
                Some("0.5ex") => y - size / 2.0,
                _ => y - size,
            };
            let place = [left, top, left + long, top + size];
            assert!(left >= 0.0 && top >= 0.0 && place[2] <= width && place[3] <= height, "{text}: {place:?}");
            boxes.push((place, text));
        }
        for (i, (a, first)) in boxes.iter().enumerate() {
            for (b, second) in &boxes[..i] {
                let is_beside = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
                assert!(is_beside, "`{first}` and `{second}` overlap: {a:?} {b:?}");
            }
        }
    }
}

#[test]
fn a_sweep_has_rates_above_latencies() {
    let text = drawn(&sweep(), ChartKind::Auto);
    let picture = Picture::of(&text);
    picture.says(&["bench nvme, 2 CPU threads", "software device soft:mem, warpbell 0.1.0", "randread, 4 KiB"]);
    picture.says(&["IOPS", "Latency (us)", "Queue depth", "1", "2", "8", "500k", "40"]);
    picture.says(&["median latency", "99th percentile", "minimum to maximum of the runs"]);
    assert_eq!(picture.lines("warpbell-s16"), [3, 3], "rates and medians");
    assert_eq!(picture.lines("warpbell-s32"), [3], "99th percentiles have dashes");
    assert_eq!(picture.count("circle", "warpbell-f16"), 6, "a marker for each point");
    assert_eq!(picture.count("circle", "warpbell-s16"), 3, "hollow ones for percentiles");
    assert_eq!(picture.lines("warpbell-s17"), [] as [usize; 0]);
    assert!(text.contains("IOPS over Queue depth: 110k to 440k."), "{text}");
    assert!(!text.contains("#0102"), "a colour has been left");
    picture.is_legible();
    assert_eq!(drawn(&sweep(), ChartKind::Sweep), text);
}

#[test]
fn gathers_are_drawn_over_their_row_sizes_or_batches() {
    let point = |row_bytes: u32, batch: u32| {
        let rate = 1e6 * f64::from(batch);
        let run = json!({ "rows": 4 * batch, "bytes": 5, "rows_per_s": rate, "bytes_per_s": rate * f64::from(row_bytes),
                          "latency": { "mean_ns": 2_000.0, "percentiles_ns": { "50": 1_000, "99": 3_000 } } });
        json!({ "job": { "rows": 100, "row_bytes": row_bytes, "batch": batch, "iodepth": null }, "runs": [run] })
    };
    let of = |swept: &[&str], points: Vec<Value>| {
        let mut report = report(swept, points.into());
        report["command"] = json!("bench gather");
        drawn(&report, ChartKind::Auto)
    };
    let sizes = of(&["row-size", "batch"], vec![point(512, 8), point(1024, 8), point(4096, 8), point(512, 16)]);
    Picture::of(&sizes).says(&["GiB/s", "Latency (us)", "Row size", "512 B", "4 KiB", "batch 8", "batch 16"]);
    let batches = of(&["row-size", "batch"], vec![point(512, 8), point(512, 16), point(512, 64), point(4096, 8)]);
    Picture::of(&batches).says(&["Rows/s", "Latency (us)", "Batch", "8", "16", "64", "row 512 B", "row 4 KiB"]);
    Picture::of(&batches).is_legible();
}

#[test]
fn reports_are_told_apart_by_their_names() {
    let text = draw_all(&[("x/a<&\">.json", &sweep()), ("x/\u{1}b'.json", &sweep())], ChartKind::Auto).unwrap();
    let picture = Picture::of(&text);
    picture.says(&["a<&\">.json", "\\u{1}b'.json", "software device soft:mem, warpbell 0.1.0"]);
    assert_eq!((picture.lines("warpbell-s16").len(), picture.lines("warpbell-s17").len()), (2, 2));
    picture.is_legible();
}

#[test]
fn lines_beyond_those_of_one_panel_are_divided_among_several() {
    let sizes: Vec<Value> = (0..5)
        .flat_map(|i| ["randread", "randrw"].into_iter().flat_map(move |rw| [(i, rw, 1), (i, rw, 2), (i, rw, 4)]))
        .map(|(i, rw, depth)| {
            let mut point = point(rw, depth, 1e5 * f64::from(depth));
            point["job"]["bytes"] = json!(4096 << i);
            point
        })
        .collect();
    let text = drawn(&report(&["bs", "rw", "iodepth"], sizes.into()), ChartKind::Auto);
    let picture = Picture::of(&text);
    picture.says(&["4 KiB", "64 KiB", "randread", "iodepth 1", "randrw", "iodepth 1, read", "iodepth 1, write"]);
    let titles = picture.texts().iter().filter(|text| *text == "GiB/s").count();
    assert_eq!((titles, picture.lines("warpbell-s18")), (2, vec![5; 4]));
    picture.is_legible();
    let many: Vec<Value> = (0..65u32)
        .flat_map(|i| [(i, 1), (i, 2)])
        .map(|(i, depth)| {
            let mut point = point("randread", depth, 1e5);
            point["job"]["pattern"] = json!(format!("p{i}"));
            point
        })
        .collect();
    let error = draw_all(&[("a.json", &report(&["iodepth"], many.into()))], ChartKind::Auto).unwrap_err();
    assert!(error.contains("a.json: 65 lines are too many"), "{error}");
}

#[test]
fn time_series_are_a_median_of_runs_with_a_band() {
    let one = report(&[], json!([point("randrw", 4, 1e5)]));
    let text = drawn(&one, ChartKind::Auto);
    let picture = Picture::of(&text);
    picture.says(&["IOPS", "Mean latency (us)", "Time (s)", "0", "4", "read", "write", "randrw, 4 KiB, iodepth 4"]);
    assert_eq!((picture.lines("warpbell-s16"), picture.lines("warpbell-s17")), (vec![4, 4], vec![4, 4]));
    let bands = picture.all("polygon").filter(|node| node.attribute("opacity") == Some("0.18")).count();
    assert_eq!(bands, 2, "the latencies of both runs are equal");
    picture.is_legible();
    let mut sequential = one.clone();
    sequential["results"][0]["job"]["bytes"] = json!(1 << 20);
    for (run, name) in [(0, "read"), (0, "write"), (1, "read"), (1, "write")] {
        sequential["results"][0]["runs"][run][name]["time_series"]["bytes_per_s"] = json!([5e9, 5e9]);
    }
    Picture::of(&drawn(&sequential, ChartKind::Time)).says(&["GiB/s", "4"]);
}

#[test]
fn latencies_are_drawn_over_nines() {
    let text = drawn(&report(&[], json!([point("randrw", 4, 1e5)])), ChartKind::Latency);
    let picture = Picture::of(&text);
    picture.says(&[
        "Latency",
        "Percentile",
        "0 %",
        "50 %",
        "90 %",
        "99 %",
        "99.9 %",
        "10 us",
        "100 us",
        "read",
        "write",
    ]);
    let expected: Vec<usize> = vec![5];
    assert_eq!(
        (picture.lines("warpbell-s16"), picture.lines("warpbell-s17")),
        (expected.clone(), expected),
        "no maximum"
    );
    picture.is_legible();
}

#[test]
fn auto_draws_what_all_reports_have() {
    let mut point = point("randread", 4, 1e5);
    let title = |point: &Value| {
        let text = drawn(&report(&[], json!([point])), ChartKind::Auto);
        ["Queue depth", "Time (s)", "Percentile", "IOPS"].into_iter().find(|t| text.contains(&format!(">\n{t}\n")))
    };
    assert_eq!(title(&point), Some("Time (s)"));
    let remove = |point: &mut Value, key: &str| {
        for run in [0, 1] {
            point["runs"][run]["read"].as_object_mut().unwrap().remove(key);
        }
    };
    remove(&mut point, "time_series");
    assert_eq!(title(&point), Some("Percentile"));
    remove(&mut point, "latency");
    assert_eq!(title(&point), Some("IOPS"), "one value is a dot");
    for (kind, words) in [(ChartKind::Time, "has no time series"), (ChartKind::Latency, "has no latency percentiles")] {
        let error = draw_all(&[("a.json", &report(&[], json!([point])))], kind).unwrap_err();
        assert!(error.contains("a.json: ") && error.contains(words) && error.contains("--kind auto"), "{error}");
    }
}

#[test]
fn rows_without_a_swept_number_are_dots() {
    let spread = |rate: f64| json!({ "min": rate / 2.0, "median": rate, "max": rate * 2.0 });
    let row = |name: &str, rate: f64| json!({ "pattern": name, "plain_loads_per_s": spread(rate), "cached_loads_per_s": spread(rate / 3.0) });
    let mut report = report(&[], json!([row("random 8 B", 1e8), row("sequential", 1e9)]));
    report["command"] = json!("bench array");
    let text = drawn(&report, ChartKind::Auto);
    let picture = Picture::of(&text);
    picture.says(&["bench array, 2 CPU threads", "random 8 B", "sequential", "Loads/s", "plain", "cached", "2.0G"]);
    let entries = 1;
    assert_eq!(picture.count("circle", "warpbell-f16"), 2 + entries);
    assert_eq!(picture.count("polyline", "warpbell-s16"), 6, "two bars with two ends each, and no line");
    picture.is_legible();
    report["results"] = (0..25).map(|i| row(&format!("pattern {i}"), 1e8)).collect::<Vec<_>>().into();
    let error = draw_all(&[("a.json", &report)], ChartKind::Auto).unwrap_err();
    assert!(error.contains("a.json: 25 rows without a swept number"), "{error}");
}

#[test]
fn a_row_without_a_size_is_left_out_with_a_note() {
    let row = |bytes: u64| json!({ "bytes": bytes, "bytes_per_s": 3e9, "p50_ns": 5_000 });
    let barrier = json!({ "bytes": 0, "p50_ns": 7_000 });
    let mut report = report(&[], json!([barrier, row(512), row(4096), row(1 << 20)]));
    report["command"] = json!("bench shmem");
    let text = drawn(&report, ChartKind::Auto);
    let picture = Picture::of(&text);
    picture.says(&["left out: 1 row without bytes", "512 B", "4 KiB", "1 MiB", "Size", "GiB/s", "Latency (us)"]);
    assert_eq!(picture.lines("warpbell-s16"), [3, 3]);
    picture.is_legible();
}

#[test]
fn fio_and_this_program_are_drawn_together() {
    let percentile = json!({ "1.000000": 5_000, "50.000000": 8_000, "99.000000": 30_000 });
    let read = json!({ "total_ios": 10, "iops": 1e5, "bw_bytes": 4.1e8, "clat_ns": { "N": 10, "mean": 9_000, "percentile": percentile } });
    let fio = json!({ "fio version": "fio-3.33", "jobs": [{ "jobname": "a", "error": 0, "read": read,
                      "job options": { "bs": "4k", "iodepth": "4", "filename": "/dev/nvme0n1" } }] });
    let own = report(&[], json!([point("randread", 4, 1e5)]));
    let text = draw_all(&[("fio.json", &fio), ("own.json", &own)], ChartKind::Latency).unwrap();
    let picture = Picture::of(&text);
    picture.says(&["fio and bench nvme", "fio.json: device /dev/nvme0n1, fio 3.33", "Percentile"]);
    assert_eq!((picture.lines("warpbell-s16"), picture.lines("warpbell-s17")), (vec![3], vec![5]));
    picture.is_legible();
}

#[test]
fn values_that_are_no_numbers_are_left_out_with_a_note() {
    let mut report = sweep();
    for run in [0, 1] {
        report["results"][2]["runs"][run]["read"]["iops"] = json!("NaN");
    }
    report["results"][0]["runs"][0]["read"]["latency"]["percentiles_ns"]["50"] = Value::Null;
    let text = drawn(&report, ChartKind::Auto);
    let picture = Picture::of(&text);
    picture.says(&["left out: 3 values that are not finite"]);
    assert_eq!(picture.lines("warpbell-s16"), [3], "two rates are no line of three");
    report["results"][1]["runs"] = json!([{ "read": { "direction": "read", "iops": -5.0 } }]);
    Picture::of(&drawn(&report, ChartKind::Auto)).says(&["left out: 1 value that an axis cannot show"]);
}

#[test]
fn what_cannot_be_drawn_is_an_error_with_the_file() {
    let error = |reports: &[(&str, &Value)]| draw_all(reports, ChartKind::Auto).unwrap_err();
    let empty = error(&[("a.json", &report(&[], json!([])))]);
    assert!(empty.contains("a.json: this report of warpbell 0.1.0, bench nvme has no figures"), "{empty}");
    let nothing = error(&[("a.json", &report(&[], json!([{ "iops": -1.0 }])))]);
    assert!(nothing.contains("a.json: no figure has a value that can be drawn"), "{nothing}");
    let other = error(&[("x.json", &json!({ "a": 1 }))]);
    assert!(other.contains("x.json is no report that is known"), "{other}");
    let mut queue = sweep();
    queue["command"] = json!("bench queue");
    let two = error(&[("a.json", &sweep()), ("b.json", &queue)]);
    assert!(two.contains("a.json is a report of bench nvme, and b.json one of bench queue"), "{two}");
    assert!(error(&[]).contains("no report is given"));
}

/// Returns keys and values of reports, and others.
fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<f64>().prop_map(Value::from),
        (0.0f64..1e9).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0u32..9).prop_map(Value::from),
    ];
    let leaf = prop_oneof![
        4 => number,
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => "[a-z<&\"\\PC]{0,9}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "iops",
        "bytes_per_s",
        "posts_per_s",
        "latency",
        "percentiles_ns",
        "time_series",
        "interval_ns",
        "runs",
        "job",
        "read",
        "write",
        "direction",
        "rw",
        "bytes",
        "iodepth",
        "queues",
        "min",
        "median",
        "max",
        "50",
        "99",
        "99.9",
        "p99_ns",
        "time_ns",
        "mean_latency_ns",
        "pattern",
        "rows",
    ]);
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|all| all
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<serde_json::Map<_, _>>()
                .into()),
        ]
    })
}

/// Returns a report with the form of one of `bench nvme`, whose numbers are any.
fn likely(points: RangeInclusive<usize>) -> impl Strategy<Value = Value> {
    let number = prop_oneof![3 => 0.0f64..1e12, 1 => any::<f64>(), 1 => Just(0.0)];
    let depth = prop_oneof![
        Just(json!(1)),
        Just(json!(0)),
        (0u32..300).prop_map(Value::from),
        any::<f64>().prop_map(Value::from)
    ];
    let rw = prop::sample::select(vec!["randread", "randrw"]);
    let point = (rw, depth, prop::collection::vec(number, 6)).prop_map(|(rw, depth, n)| {
        let mut point = point(rw, 1, n[0]);
        point["job"]["iodepth"] = depth;
        let read = &mut point["runs"][0]["read"];
        read["latency"]["percentiles_ns"] = json!({ "50": n[1], "99": n[2], "99.9999": n[3] });
        read["time_series"] = json!({ "interval_ns": n[4], "iops": [n[5], n[0], null], "mean_latency_ns": [n[1]] });
        point
    });
    prop::collection::vec(point, points).prop_map(|points| report(&["iodepth"], points.into()))
}

proptest! {
    #[test]
    fn no_report_is_a_panic(results in value(), likely in likely(0..=12), two: bool) {
        for report in [report(&["iodepth"], results), likely] {
            for kind in [ChartKind::Auto, ChartKind::Sweep, ChartKind::Time, ChartKind::Latency] {
                let reports = [("a.json", &report), ("a.json", &report)];
                if let Ok(text) = draw_all(&reports[..1 + usize::from(two)], kind) {
                    Picture::of(&text);
                }
            }
        }
    }
}
