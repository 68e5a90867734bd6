//! Tests that reports fit in 80 columns, also in files and pipes: people paste them into pages and messages.

use super::program::*;

/// Widest line of a report.
const COLUMNS: usize = 80;

/// Returns the column behind a text, whose tabs reach to the next multiple of eight.
fn width(text: &str) -> usize {
    text.chars().fold(0, |at, c| if c == '\t' { (at / 8 + 1) * 8 } else { at + 1 })
}

/// Checks that no line is wider than a report, unless its only word is.
#[track_caller]
fn fits(args: &[&str], text: &str) {
    assert!(!text.is_empty(), "{args:?}");
    for line in text.lines().filter(|line| width(line) > COLUMNS) {
        let words = line.trim_start_matches(['#', ' ', '\t']).split_whitespace().count();
        assert!(words == 1, "{args:?}: {} columns could be fewer: {line}\n{text}", width(line));
    }
}

#[test]
fn machines_and_devices_are_described_in_80_columns() {
    let folder = folder();
    let path = folder.path().join("long-name-".repeat(12));
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let long = format!("soft:{}", name(&path));
    for args in
        [&["info"][..], &["doctor"], &["nvme", "list"], &["nvme", "list", "--device", "soft:mem:1M", "--device", &long]]
    {
        let o = warpbell(args);
        assert!(o.status.success(), "{args:?}: {}", stderr(&o));
        let text = stdout(&o);
        fits(args, &text);
        assert_eq!(text.lines().any(|line| line == long), args.contains(&long.as_str()), "{text}");
    }
}
