//! Validates reports by the schemas in `docs/schemas`, without a network.

use crate::program;
use crate::tree;
use jsonschema::{Retrieve, Uri, Validator};
use serde_json::{Value, json};
use std::error::Error;
use std::path::{Path, PathBuf};

/// Returns the folder with the schemas.
pub fn folder() -> PathBuf {
    tree::root().join("docs/schemas")
}

/// Reads the schemas that others refer to.
struct Files;

impl Retrieve for Files {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn Error + Send + Sync>> {
        let name = Path::new(uri.path().as_str()).file_name().ok_or("a reference without a file")?;
        Ok(serde_json::from_slice(&std::fs::read(folder().join(name))?)?)
    }
}

/// Returns the validator of a schema, as in `info.schema.json`, or of a part of one.
pub fn of(reference: &str) -> Validator {
    let schema = json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": reference });
    let options = jsonschema::options().with_base_uri("json-schema:///").with_retriever(Files);
    options.build(&schema).unwrap_or_else(|e| panic!("{reference}: {e}"))
}

/// Returns the name of the schema of a command's reports.
pub fn name(command: &str) -> String {
    format!("{}.schema.json", command.replace(' ', "-"))
}

/// Checks a report by the schema of the command that it names.
#[track_caller]
pub fn check(report: &Value) {
    let command = report["command"].as_str().unwrap_or_else(|| panic!("no command: {report}"));
    let validator = of(&name(command));
    let errors: Vec<String> = validator.iter_errors(report).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{command}:\n{}", errors.join("\n"));
}

/// Runs a command, and returns the report that it writes to standard output, after its check.
#[track_caller]
pub fn report(line: &str) -> Value {
    report_of(line, 0)
}

/// Returns the report of a command that ends with this exit code, after its check.
#[track_caller]
pub fn report_of(line: &str, code: i32) -> Value {
    let args: Vec<&str> = line.split_whitespace().chain(["--json", "-"]).collect();
    let o = program::warpbell(&args);
    assert_eq!(o.status.code(), Some(code), "{line}: {}", program::stderr(&o));
    let report = serde_json::from_slice(&o.stdout).unwrap_or_else(|e| panic!("{line}: {e}"));
    check(&report);
    report
}

/// Returns the report of a measurement on CPU threads, after its check.
#[track_caller]
pub fn measured(line: &str) -> Value {
    report(&format!("{line} --engine cpu"))
}

/// Checks that a report has values at these places, so that optional parts are compared, too.
#[track_caller]
pub fn has(report: &Value, pointers: &[&str]) {
    for pointer in pointers {
        let found = report.pointer(pointer).unwrap_or(&Value::Null);
        let is_empty = found.is_null() || found.as_array().is_some_and(Vec::is_empty);
        assert!(!is_empty, "nothing at {pointer} in {report:#}");
    }
}
