//! Tests that the README and the book show existing code and commands, and that links of all documents lead somewhere.

use crate::tree;
use std::path::{Path, PathBuf};

const README: &str = include_str!("../../README.md");

/// Returns true if a block of code in this language on this page is a part of the file.
fn shows(page: &str, language: &str, file: &str) -> bool {
    let read = |name: &str| std::fs::read_to_string(tree::root().join(name)).unwrap();
    let (page, file, fence) = (read(page), read(file), format!("```{language}\n"));
    page.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).any(|block| file.contains(block))
}

#[test]
fn code_is_that_of_an_example() {
    assert!(shows("README.md", "cpp", "examples/kernels/array_sum.cu"));
    assert!(shows("docs/device-library.md", "rust,ignore", "examples/02_array_sum.rs"));
    assert!(shows("docs/shmem.md", "cpp", "examples/kernels/put_get.cu"));
    assert!(!shows("README.md", "cpp", "examples/kernels/put_get.cu"));
}

#[test]
fn its_commands_are_those_that_ci_runs() {
    for command in ["$ cargo run -- graph bfs examples/data/email-enron.txt --source 1", "$ cargo test"] {
        assert!(README.lines().any(|l| l == command), "{command}");
    }
}

/// Returns the names of the files with this extension in a folder of the tree.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let found = std::fs::read_dir(tree::root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    found.filter(|p| p.extension().is_some_and(|e| e == extension)).collect()
}

/// Returns the text outside fenced blocks and code spans.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).flat_map(|part| part.split('`').step_by(2)).collect()
}

/// Returns a heading's anchor, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

/// Returns the first link of a document that leads to no file, or to no heading of its file.
fn broken(document: &Path) -> Option<String> {
    let text = std::fs::read_to_string(document).unwrap();
    let text = prose(&text);
    let mut targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let is_broken = |target: &&str| {
        let (file, part) = target.split_once('#').unwrap_or((target, ""));
        let file = if file.is_empty() { document.to_owned() } else { document.parent().unwrap().join(file) };
        let headings = || std::fs::read_to_string(&file).unwrap_or_default();
        let has = |text: &str| text.lines().filter(|l| l.starts_with('#')).any(|l| anchor(l.trim_matches('#')) == part);
        !file.exists() || !part.is_empty() && !has(&headings())
    };
    targets.find(|t| !t.starts_with("http") && is_broken(t)).map(str::to_owned)
}

#[test]
fn links_lead_somewhere() {
    let mut documents = files("docs", "md");
    documents.extend(files(".", "md"));
    documents.extend(files("examples", "md"));
    assert!(documents.len() > 15, "{documents:?}");
    for document in &documents {
        assert_eq!(broken(document), None, "{}", document.display());
    }
}

#[test]
fn broken_links_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let of = |text: &str| {
        let file = folder.path().join("a.md");
        std::fs::write(&file, text).unwrap();
        broken(&file)
    };
    assert_eq!(of("# One `two`, three\n[x](#one-two-three) [y](a.md) `[z](none.md)` [w](https://none)\n"), None);
    assert_eq!(of("# One\n[x](#two)\n").as_deref(), Some("#two"));
    assert_eq!(of("[x](b.md#one)\n").as_deref(), Some("b.md#one"));
}

#[test]
fn every_example_is_listed() {
    let list = std::fs::read_to_string(tree::root().join("examples/README.md")).unwrap();
    let examples = files("examples", "rs");
    assert_eq!(list.matches("cargo run --example ").count(), examples.len());
    for example in examples {
        let name = example.file_stem().unwrap().to_str().unwrap();
        assert!(list.contains(&format!("`cargo run --example {name}`")), "{name}");
    }
}
