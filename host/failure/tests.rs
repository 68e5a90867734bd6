//! Every error type has a kind for each of its variants.

use super::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Types that no caller gets: other errors contain them as text.
const INSIDE: [&str; 3] = ["CqeError", "FieldError", "WqeError"];

/// Returns the files of the library.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("host/bin") {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") && !path.ends_with("failure/tests.rs") {
            found.push(path);
        }
    }
}

/// Returns the identifier that a text begins with.
fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

#[test]
fn every_variant_of_every_public_error_has_a_kind() {
    let mut paths = Vec::new();
    files(&crate::tree::root().join("host"), &mut paths);
    let (mut defined, mut classified) = (BTreeSet::new(), BTreeSet::new());
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let enums = text.split("\npub enum ").skip(1).map(identifier);
        defined.extend(enums.filter(|name| name.ends_with("Error") && !INSIDE.contains(&name.as_str())));
        for implementation in text.split("impl Failure for ").skip(1) {
            let body = implementation.split_once("\n}").unwrap().0;
            // A path may lead to the type.
            let path_of = body.split([' ', '{']).next().unwrap();
            let name = identifier(path_of.rsplit("::").next().unwrap());
            // Without a wildcard, the compiler finds a variant that has no kind.
            assert!(!body.contains("_ => ErrorKind") && !body.contains("_ => Error"), "{}: {name}", path.display());
            classified.insert(name);
        }
    }
    assert!(defined.len() > 35, "{defined:?}");
    let missing: Vec<_> = defined.difference(&classified).collect();
    assert!(missing.is_empty(), "implement `Failure` for {missing:?}");
}

#[test]
fn kinds_are_listed_once() {
    let all: BTreeSet<String> = ErrorKind::ALL.iter().map(|kind| format!("{kind:?}")).collect();
    assert_eq!(all.len(), ErrorKind::ALL.len());
}
