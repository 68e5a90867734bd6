//! Tests that the build of a container image has every source.

use crate::tree;
use std::fs;

#[test]
fn what_is_left_out_of_an_image_is_no_source() {
    // A pack has neither file.
    let Ok(left_out) = fs::read_to_string(tree::root().join(".dockerignore")) else { return };
    let ignored = fs::read_to_string(tree::root().join(".gitignore")).unwrap();
    let lines: Vec<_> = left_out.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(lines.contains(&"target"), "{lines:?}");
    // A pattern such as `**/target` would match folders of sources, too.
    for path in lines.into_iter().filter(|&l| l != ".git") {
        assert!(ignored.lines().any(|l| l == format!("/{path}")), "git does not ignore /{path}, so it may be a source");
    }
}
