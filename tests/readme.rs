//! Tests that the README shows existing code, commands and files.

#[path = "common/tree.rs"]
mod tree;

const README: &str = include_str!("../README.md");

/// Returns the blocks of code in this language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    README.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[track_caller]
fn stands_in(block: &str, file: &str) {
    let text = std::fs::read_to_string(tree::root().join(file)).unwrap();
    assert!(text.contains(block), "README.md shows something else than {file}:\n{block}");
}

#[test]
fn its_code_is_that_of_an_example() {
    let [kernel, updates] = blocks("cpp")[..] else { panic!("two kernels") };
    stands_in(kernel, "examples/kernels/array_sum.cu");
    stands_in(updates, "examples/kernels/gups.cu");
    let [host] = blocks("rust")[..] else { panic!("one host") };
    stands_in(host, "examples/array_sum.rs");
}

#[test]
fn its_commands_are_those_that_ci_runs() {
    for command in ["$ cargo run --release -- graph bfs examples/data/email-enron.txt --source 1", "$ cargo test"] {
        assert!(README.lines().any(|l| l == command), "{command}");
    }
}

#[test]
fn its_links_lead_somewhere() {
    let prose = README.split("```").step_by(2);
    let targets = prose.flat_map(|p| p.split("](").skip(1)).filter_map(|rest| rest.split(')').next());
    for target in targets.filter(|t| !t.starts_with("http")) {
        let file = target.split('#').next().unwrap_or(target);
        assert!(tree::root().join(file).exists(), "{target}");
    }
}
