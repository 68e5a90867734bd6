//! Tests devices with the timing of a modelled drive: what the outputs say. No time is compared.

use super::program::*;
use std::path::Path;

/// A model that every machine keeps up with.
const SLOW: &str = include_str!("../common/slow_drive.toml");

/// Writes the model to a file, and returns the specification of a device that has it.
fn device(folder: &Path) -> String {
    let file = folder.join("slow.toml");
    std::fs::write(&file, SLOW).unwrap();
    format!("soft:mem,model={}", file.display())
}

#[test]
fn every_output_names_the_model() {
    let folder = folder();
    let device = device(folder.path());
    let [modelled, plain, other] = ["a.json", "b.json", "c.json"].map(|file| folder.path().join(file));
    let bench = ["bench", "nvme", "--engine", "cpu", "--size", "1M", "--runtime", "50ms", "--bs", "4k", "--verify"];
    let text = succeeds(&bench.iter().copied().chain(["--device", &device]).collect::<Vec<_>>());
    mentions(&text, &["slow.toml (model slow-drive)", "verified"]);
    for (device, file) in [(device.as_str(), &modelled), ("soft:mem", &plain)] {
        let more = ["--device", device, "--json", name(file)];
        succeeds(&bench.iter().copied().chain(more).collect::<Vec<_>>());
    }
    let report = json(&modelled);
    assert_eq!(report["path"]["models"], serde_json::json!(["slow-drive"]));
    assert!(report["path"]["device"].as_str().unwrap().ends_with("slow.toml (model slow-drive)"));
    assert!(json(&plain)["path"].get("models").is_none());

    // The exit code depends on the figures.
    let compare = |a: &Path, b: &Path| stdout(&warpbell(&["compare", name(a), name(b)]));
    let text = compare(&plain, &modelled);
    mentions(
        &text,
        &["model of a drive", "A: software device, B: model of a drive; times and rates of a model are its parameters"],
    );
    mentions(&compare(&modelled, &plain), &["a ratio says how well the model of A fits"]);
    assert!(!compare(&modelled, &modelled).contains("are its parameters"));
    let renamed = std::fs::read_to_string(&modelled).unwrap().replace("slow-drive", "other");
    std::fs::write(&other, renamed).unwrap();
    mentions(&compare(&modelled, &other), &["a ratio of two models compares parameters"]);
}

#[test]
fn the_program_lists_models_and_says_what_is_wrong_with_one() {
    let folder = folder();
    mentions(&succeeds(&["info"]), &["model 990-pro, optane-p5800x, pm1743, xl-flash-10m"]);
    let id = succeeds(&["nvme", "id", &device(folder.path()).replace("mem,", "mem:1M,")]);
    mentions(&id, &["mn        : warpbell model slow-drive", "queues    : 16"]);
    let refused = |model: &str| stderr(&warpbell(&["nvme", "id", &format!("soft:mem:1M,model={model}")]));
    mentions(&refused("pm1744"), &["there is no such model", "did you mean `pm1743`?"]);
    mentions(&refused("nowhere.toml"), &["model nowhere.toml: cannot read it"]);
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, SLOW.replace("count = 16", "count = 0")).unwrap();
    mentions(&refused(name(&bad)), &["bad.toml: `units.count` is 0; give a whole number from 1 to 65536 (units)"]);
}

#[test]
fn a_graph_is_searched_on_a_modelled_drive() {
    let folder = folder();
    let device = device(folder.path());
    let text = succeeds(&["graph", "bfs", "kron:8", "--source", "1", "--device", &device, "--engine", "cpu"]);
    mentions(&text, &["(model slow-drive)"]);
}
