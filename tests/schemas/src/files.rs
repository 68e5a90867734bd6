//! The schemas themselves: they are valid, closed, described, named by `docs/reports.md`, and there is one for each report.

use crate::program::{folder, name, succeeds};
use crate::tree;
use crate::validator;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Schemas that describe parts of reports.
const PARTS: [&str; 1] = ["common.schema.json"];
/// Command that runs another one, and has no report of its own.
const SAME: &str = "nvme-bench";
/// Keywords whose value is an object that has a schema for each key.
const MAPS: [&str; 3] = ["properties", "patternProperties", "$defs"];

/// Returns all schemas by the names of their files.
fn all() -> BTreeMap<String, Value> {
    let files = std::fs::read_dir(validator::folder()).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), crate::program::json(&path))).collect()
}

/// Calls `see` with each schema in a schema, and with its place.
fn each(schema: &Value, place: &str, see: &mut impl FnMut(&str, &Map<String, Value>)) {
    match schema {
        Value::Object(keywords) => {
            see(place, keywords);
            for (keyword, value) in keywords {
                match value {
                    Value::Object(all) if MAPS.contains(&keyword.as_str()) => {
                        all.iter().for_each(|(key, inner)| each(inner, &format!("{place}/{keyword}/{key}"), see));
                    }
                    _ => each(value, &format!("{place}/{keyword}"), see),
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|inner| each(inner, place, see)),
        _ => {}
    }
}

#[test]
fn each_schema_is_valid_and_its_references_lead_somewhere() {
    for (file, schema) in all() {
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{file}");
        jsonschema::meta::validate(&schema).unwrap_or_else(|e| panic!("{file}: {e}"));
        validator::of(&file);
        for part in schema["$defs"].as_object().into_iter().flat_map(Map::keys) {
            validator::of(&format!("{file}#/$defs/{part}"));
        }
    }
    assert!(!jsonschema::meta::is_valid(&serde_json::json!({ "type": "sometimes" })));
}

#[test]
fn each_key_is_described_in_one_line() {
    for (file, schema) in all() {
        let mut described = |place: &str, keywords: &Map<String, Value>| {
            for key in ["properties", "patternProperties"] {
                for (name, property) in keywords.get(key).and_then(Value::as_object).into_iter().flatten() {
                    let text = property["description"].as_str().unwrap_or_default();
                    let is_sentence = text.ends_with('.') && text.len() > 3 && !text.contains('\n');
                    assert!(is_sentence, "{file}{place}: {name}: `{text}`");
                }
            }
        };
        each(&schema, "", &mut described);
    }
}

/// A key that no schema knows is an error: each object is closed, or all that refer to it close it.
#[test]
fn each_object_is_closed() {
    let is_closed = |keywords: &Map<String, Value>| {
        ["additionalProperties", "unevaluatedProperties"].iter().any(|k| keywords.get(*k) == Some(&Value::Bool(false)))
    };
    let (all, mut open) = (all(), BTreeSet::new());
    for (file, schema) in &all {
        each(schema, "", &mut |place, keywords| {
            if keywords.contains_key("properties") && !is_closed(keywords) {
                open.insert(format!("{file}#{place}"));
            }
        });
    }
    let mut closed = BTreeSet::new();
    for (file, schema) in &all {
        each(schema, "", &mut |place, keywords| {
            let Some(reference) = keywords.get("$ref").and_then(Value::as_str) else { return };
            let to = if reference.starts_with('#') { format!("{file}{reference}") } else { reference.to_owned() };
            if open.contains(&to) {
                assert!(is_closed(keywords), "{file}{place}: {to} is open");
                closed.insert(to);
            }
        });
    }
    assert_eq!(open, closed, "nothing closes these");
}

#[test]
fn each_schema_is_named_by_the_page_about_reports() {
    let page = std::fs::read_to_string(tree::root().join("docs/reports.md")).unwrap();
    for file in all().keys() {
        assert!(page.contains(&format!("(schemas/{file})")), "docs/reports.md does not name {file}");
    }
}

#[test]
fn each_command_with_a_report_has_a_schema() {
    let folder = folder();
    succeeds(&["man", name(folder.path())]);
    let mut expected: BTreeSet<String> = PARTS.iter().map(|part| (*part).to_owned()).collect();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        if page.contains(r"\fB\-\-json\fR") {
            let command = path.file_stem().unwrap().to_str().unwrap().strip_prefix("warpbell-").unwrap().to_owned();
            expected.extend((command != SAME).then(|| validator::name(&command)));
        }
    }
    assert!(expected.len() > 35, "{expected:?}");
    assert_eq!(expected, all().into_keys().collect());
}

#[test]
fn each_schema_is_of_one_command() {
    for (file, schema) in all().iter().filter(|(file, _)| !PARTS.contains(&file.as_str())) {
        let command = schema["properties"]["command"]["const"].as_str().unwrap();
        assert_eq!(
            (&validator::name(command), schema["title"].as_str()),
            (file, Some(&*format!("warpbell {command}")))
        );
    }
}
