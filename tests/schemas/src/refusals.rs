//! Reports that are not as their schemas say: each is refused.

use crate::validator::{self, measured, report};
use serde_json::{Value, json};

/// Returns the places of all values in a report but itself.
fn places(value: &Value, at: &str, all: &mut Vec<String>) {
    let mut visit = |key: &str, inner: &Value| {
        let place = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        places(inner, &place, all);
        all.push(place);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, inner)| visit(key, inner)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, inner)| visit(&i.to_string(), inner)),
        _ => {}
    }
}

/// Reports of several shapes, each valid.
fn reports() -> Vec<Value> {
    vec![
        measured("bench nvme --runtime 10ms --size 256K --rw randrw --time-series 1ms"),
        measured("bench queue --queues 1 --depth 64 --commands 100 --runs 1"),
        measured("bench shmem put_latency --pes 2 -b 8 -e 8 -n 20 --runs 1 --transport soft"),
        measured("bench rdma read_lat -n 20 --transport soft"),
        measured("graph bfs kron:6 --source 1 --path 9 --runs 2"),
        measured("graph cc kron:6 --pes 2"),
        report("nvme id soft:mem:1M"),
        report("info"),
        report("doctor"),
    ]
}

#[test]
fn every_value_of_another_type_is_refused() {
    for report in reports() {
        let validator = validator::of(&validator::name(report["command"].as_str().unwrap()));
        let mut all = Vec::new();
        places(&report, "", &mut all);
        assert!(all.len() > 20, "{report}");
        for place in all {
            let mut other = report.clone();
            *other.pointer_mut(&place).unwrap() = json!({ "another": "key" });
            assert!(!validator.is_valid(&other), "{}: {place}", report["command"]);
        }
    }
}

#[test]
fn one_more_key_is_refused_in_every_object() {
    for report in reports() {
        let validator = validator::of(&validator::name(report["command"].as_str().unwrap()));
        let mut all = vec![String::new()];
        places(&report, "", &mut all);
        for place in all {
            let mut other = report.clone();
            if let Some(object) = other.pointer_mut(&place).and_then(Value::as_object_mut) {
                object.insert("another".to_owned(), json!(1));
                assert!(!validator.is_valid(&other), "{}: {place}", report["command"]);
            }
        }
    }
}

#[test]
fn a_key_that_is_missing_is_refused() {
    let queue = measured("bench queue --queues 1 --depth 64 --commands 100 --runs 1");
    let validator = validator::of("bench-queue.schema.json");
    let mut all = Vec::new();
    places(&queue, "", &mut all);
    // This report has no key that may be absent.
    for place in all {
        let (parent, key) = place.rsplit_once('/').unwrap();
        let mut other = queue.clone();
        if let Some(object) = other.pointer_mut(parent).and_then(Value::as_object_mut) {
            object.remove(key).unwrap();
            assert!(!validator.is_valid(&other), "without {place}");
        }
    }
}

#[test]
fn values_beyond_their_bounds_are_refused() {
    let queue = measured("bench queue --queues 1 --depth 64 --commands 100 --runs 1");
    let validator = validator::of("bench-queue.schema.json");
    for (place, value) in [
        ("/schema", json!(2)),
        ("/command", json!("bench post")),
        ("/results/0/depth", json!(1)),
        ("/results/0/queues", json!(1.5)),
        ("/results/0/commands_per_s/median", json!(-1.0)),
        ("/environment/engine", json!("tpu")),
    ] {
        let mut other = queue.clone();
        *other.pointer_mut(place).unwrap() = value;
        assert!(!validator.is_valid(&other), "{place}");
    }
}
