//! Compares the symbols that the shared library exports with the committed list, and with the functions of the header.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Environment variable that makes the test write the list instead.
const WRITE: &str = "WARPBELL_WRITE_EXPORTS";

/// Returns the symbols that other programs can link against.
fn exported() -> BTreeSet<String> {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let nm = Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(folder.join("libwarpbell_c.so")).output();
    let nm = nm.expect("nm of binutils runs");
    assert!(nm.status.success(), "{}", String::from_utf8_lossy(&nm.stderr));
    let text = String::from_utf8(nm.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

/// Returns the names of functions that a header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let is_code = |line: &&str| !line.starts_with("//") && !line.starts_with(" *") && !line.starts_with("/*");
    for line in header.lines().filter(is_code).filter(|line| !line.starts_with([' ', '#']) && !line.contains("(*")) {
        if let Some((before, _)) = line.split_once('(') {
            found.extend(before.rsplit([' ', '*']).next().filter(|name| name.starts_with("wb_")).map(str::to_owned));
        }
    }
    found
}

#[test]
fn only_the_functions_of_the_header_are_exported() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let exported = exported();
    let list: String = exported.iter().map(|name| format!("{name}\n")).collect();
    let path = root.join("exports.txt");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &list).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == list,
        "the library exports other symbols than {}; compare them, and write the list with {WRITE}=1 cargo test -p warpbell-c --test exports\n{list}",
        path.display()
    );
    let header = std::fs::read_to_string(root.join("include/warpbell.h")).unwrap();
    assert_eq!(declared(&header), exported, "functions of warpbell.h on the left, symbols of the library on the right");
    assert!(exported.len() > 10 && exported.iter().all(|name| name.starts_with("wb_")), "{list}");
}

#[test]
fn the_cmake_package_has_the_version_of_the_library() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("cmake/warpbellConfigVersion.cmake");
    let text = std::fs::read_to_string(file).unwrap();
    let version = concat!("set(PACKAGE_VERSION \"", env!("CARGO_PKG_VERSION"), "\")\n");
    assert!(text.contains(version), "warpbellConfigVersion.cmake has another version than Cargo.toml: {version}");
}
