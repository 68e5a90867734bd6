//! `warpbell --version --verbose`: the facts about this build that a bug report needs.

use std::ffi::OsString;
use std::fmt::Write;

/// Features that a build may have, and whether this one has them.
const FEATURES: [(&str, bool); 11] = [
    ("storage", cfg!(feature = "storage")),
    ("shmem", cfg!(feature = "shmem")),
    ("graph", cfg!(feature = "graph")),
    ("parquet", cfg!(feature = "parquet")),
    ("soft", cfg!(feature = "soft")),
    ("doctor", cfg!(feature = "doctor")),
    ("cli", cfg!(feature = "cli")),
    ("nvml", cfg!(feature = "nvml")),
    ("gpu-image", cfg!(feature = "gpu-image")),
    ("cpu-image", cfg!(feature = "cpu-image")),
    ("checked", cfg!(feature = "checked")),
];

/// Returns true if the command line asks for the version and for more words about it, and for nothing else.
pub fn is_asked_for(words: &[OsString]) -> bool {
    let is = |names: [&str; 2]| words.iter().skip(1).any(|word| names.iter().any(|name| word == name));
    words.len() == 3 && is(["--version", "-V"]) && is(["--verbose", "-v"])
}

/// Returns version, commit, features, CUDA and architectures, a line for each.
pub fn verbose() -> String {
    let names: Vec<&str> = FEATURES.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name).collect();
    let mut text = format!("warpbell {}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, value: String| writeln!(text, "{:11} {value}", format!("{name}:")).expect("a string");
    line("commit", env!("WARPBELL_COMMIT").to_owned());
    line("features", names.join(" "));
    line("nvcc", env!("WARPBELL_NVCC").to_owned());
    let archs: Vec<String> = env!("WARPBELL_IMAGE_ARCHS").split_whitespace().map(|arch| format!("sm_{arch}")).collect();
    line("GPUs", if archs.is_empty() { "no image".to_owned() } else { archs.join(" ") });
    line("driver API", if cfg!(feature = "cuda-13000") { "CUDA 13.0" } else { "CUDA 12.8" }.to_owned());
    line("target", env!("WARPBELL_TARGET").to_owned());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_version_and_verbose_together_ask_for_it() {
        let asks = |words: &[&str]| {
            let words: Vec<OsString> = ["warpbell"].iter().chain(words).map(OsString::from).collect();
            is_asked_for(&words)
        };
        assert!(asks(&["--version", "--verbose"]) && asks(&["-v", "-V"]));
        assert!(!asks(&["--version"]) && !asks(&["--verbose", "-v"]) && !asks(&["--version", "--verbose", "info"]));
    }

    #[test]
    fn every_fact_is_there() {
        let text = verbose();
        for name in ["commit:", "features:", "nvcc:", "GPUs:", "driver API:", "target:"] {
            let line = text.lines().find(|line| line.starts_with(name)).expect(name);
            assert!(line.split_whitespace().count() > 1, "{line}");
        }
    }
}
