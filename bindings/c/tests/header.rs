//! Compares the committed header with the one that cbindgen makes.

use std::path::Path;

/// Environment variable that makes the test write the header instead.
const WRITE: &str = "WARPBELL_WRITE_HEADER";

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut made = Vec::new();
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    cbindgen::Builder::new().with_config(config).with_crate(root).generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/warpbell.h");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    let differ = committed.lines().zip(made.lines()).position(|(a, b)| a != b);
    assert!(
        committed == made,
        "{} differs from the sources at line {}; write it with {WRITE}=1 cargo test -p warpbell-c --test header",
        path.display(),
        differ.map_or(committed.lines().count().min(made.lines().count()), |l| l) + 1
    );
}
