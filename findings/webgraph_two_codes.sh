#!/usr/bin/env bash
# Seen with the crate webgraph 0.7.0, for the properties of a BVGraph whose references and residuals have other codes than the default:
#  * Java's WebGraph puts blanks around the bar between two codes, as in `REFERENCES_GAMMA | RESIDUALS_DELTA` (BVGraph.java, flags2String),
#    and drops them when it reads. The crate writes none, reads its own file, and refuses that of Java: the code with a blank is unknown.
#  * Java names the code of the number of copy blocks, as in `BLOCK_COUNT_DELTA`. The crate refuses that, too: its `BLOCKS` is the code of the
#    blocks and of their number, where Java's is that of the blocks alone.
# Graphs with one code besides the default, or none, which are most, are read by both.
# Needs cargo, a C compiler and crates.io. It compiles for minutes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat >"$folder/Cargo.toml" <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2024"

[dependencies]
dsi-bitstream = "=0.10.1"
webgraph = "=0.7.0"

[workspace]
TOML
cat >"$folder/src/main.rs" <<'RUST'
use dsi_bitstream::prelude::*;
use webgraph::prelude::*;

fn main() {
    let folder = std::path::PathBuf::from(std::env::args().nth(1).expect("a folder"));
    let basename = folder.join("graph");
    let graph = VecGraph::from_arcs([(0, 1), (0, 2), (1, 2), (2, 0)]);
    let flags = CompFlags { references: Codes::Gamma, residuals: Codes::Delta, ..CompFlags::default() };
    BvComp::with_basename(&basename).comp_flags(flags).comp_graph::<BE>(&graph).expect("a valid graph");
    let properties = basename.with_extension("properties");
    let written = std::fs::read_to_string(&properties).expect("properties");
    let load = |flags: &str| {
        std::fs::write(&properties, written.replace("REFERENCES_GAMMA|RESIDUALS_DELTA", flags)).expect("properties");
        let result = BvGraphSeq::with_basename(&basename).load().map(|graph| graph.num_nodes());
        println!("compressionflags={flags}: {}", match &result {
            Ok(nodes) => format!("{nodes} nodes"),
            Err(e) => e.root_cause().to_string(),
        });
        result.is_ok()
    };
    let seen = [
        load("REFERENCES_GAMMA|RESIDUALS_DELTA"),
        load("REFERENCES_GAMMA | RESIDUALS_DELTA"),
        load("REFERENCES_GAMMA|RESIDUALS_DELTA|BLOCK_COUNT_GAMMA"),
    ];
    if seen != [true, false, false] {
        println!("changed: {seen:?}");
        std::process::exit(1);
    }
}
RUST
cargo --version
cargo run --quiet --manifest-path "$folder/Cargo.toml" -- "$folder"
