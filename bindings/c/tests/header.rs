//! Compares the committed header with the one that cbindgen makes.

use std::path::{Path, PathBuf};

/// Environment variable that makes the test write the header instead.
const WRITE: &str = "WARPBELL_WRITE_HEADER";

/// Types of `src/pointer.rs`, and the pointers that they are in C.
const POINTERS: [(&str, &str); 3] = [("In<", "*const "), ("Out<", "*mut "), ("Owned<", "*mut ")];

/// Returns a source with the types of `src/pointer.rs` written as the pointers that they are.
fn with_pointers(mut source: String) -> String {
    for text in [": Text", "<Text"] {
        source = source.replace(text, &text.replace("Text", "*const c_char"));
    }
    for (name, pointer) in POINTERS {
        // A name that only ends so is another type.
        while let Some(at) = source.match_indices(name).map(|(at, _)| at).find(|at| {
            let before = source[..*at].chars().next_back();
            before.is_some_and(|c| !c.is_alphanumeric() && c != '_')
        }) {
            let inside = at + name.len();
            let mut depth = 1;
            let end = source[inside..].find(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            });
            let end = inside + end.expect("a type ends");
            source = format!("{}{pointer}{}{}", &source[..at], &source[inside..end], &source[end + 1..]);
        }
    }
    source
}

/// Writes the sources for cbindgen, which does not know transparent types, and returns them in the order of `src/lib.rs`.
fn sources(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let library = std::fs::read_to_string(root.join("src/lib.rs")).unwrap();
    let modules = library.lines().filter_map(|l| l.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'));
    let write = |name: &str| {
        let source = std::fs::read_to_string(root.join(format!("src/{name}.rs"))).unwrap();
        let path = folder.join(format!("{name}.rs"));
        std::fs::write(&path, with_pointers(source)).unwrap();
        path
    };
    modules.filter(|name| *name != "pointer").map(write).collect()
}

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut made = Vec::new();
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = sources(root, folder.path()).into_iter().fold(builder, |builder, path| builder.with_src(path));
    builder.generate().unwrap().write(&mut made);
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
