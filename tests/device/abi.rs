//! Compares the fingerprint of the shared structures that the C++ compiler computes with that of this crate.

use crate::harness;
use crate::tree;
use warpbell::engine::abi;

/// Returns the fingerprint of a header with the given content, computed by the C++ compiler.
fn fingerprint_of(header: &str) -> u64 {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = "#include <stdio.h>\n#include \"abi.h\"\n\
        constexpr unsigned long long value = warpbell::abi::fingerprint();\n\
        int main() { printf(\"%llu\\nfingerprint: ok\\n\", value); }\n";
    let source = folder.path().join("fingerprint.cpp");
    std::fs::write(folder.path().join("abi.h"), header).expect("a file in it");
    for name in ["abi_fields.h", "standard.h"] {
        let included = tree::file(&format!("kernels/include/warpbell/{name}"));
        std::fs::copy(included, folder.path().join(name)).expect("a file in it");
    }
    std::fs::write(&source, program).expect("a file in it");
    let printed = harness::stress(source.to_str().expect("the folder's path is UTF-8"), 1, false, &[]);
    printed.lines().next().expect("a first line").parse().expect("the fingerprint")
}

fn header() -> String {
    std::fs::read_to_string(tree::file("kernels/include/warpbell/abi.h")).expect("the header")
}

/// Returns the header with two fields of one structure swapped. Each field is on its own line.
fn with_swapped(header: &str, structure: &str, fields: [&str; 2]) -> String {
    let mut lines: Vec<&str> = header.lines().collect();
    let begin = lines.iter().position(|l| *l == format!("typedef struct {structure} {{")).expect("the structure");
    let [a, b] = fields.map(|field| {
        let ends = format!(" {field};");
        begin + lines[begin..].iter().position(|l| l.contains(&ends)).expect("the field")
    });
    lines.swap(a, b);
    lines.join("\n") + "\n"
}

#[test]
fn both_languages_compute_the_same_fingerprint() {
    assert_eq!(fingerprint_of(&header()), abi::fingerprint());
}

/// Neither the size of the structure nor the sizes of its fields change: only the offsets do.
#[test]
fn swapped_fields_change_the_fingerprint() {
    for (structure, fields) in [
        ("wb_cache", ["tag", "pins"]),
        ("wb_queue", ["sq_doorbell", "cq_doorbell"]),
        ("wb_send_queue", ["log_blocks", "log_completions"]),
        ("wb_team_rounds", ["data", "small"]),
        ("wb_repair", ["device", "blocks"]),
    ] {
        let swapped = with_swapped(&header(), structure, fields);
        assert_ne!(fingerprint_of(&swapped), abi::fingerprint(), "{structure} with {fields:?} swapped");
    }
}
