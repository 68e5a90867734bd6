//! Reads arbitrary bytes as a graph that WebGraph compressed. The result is a consistent graph, or an error of one line.
//!
//! The first bytes choose properties and options. The rest is the graph, or its offsets and the graph.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell::graph::import::{LoadOptions, Orientation, load_bvgraph};

const CODES: [&str; 16] = [
    "UNARY", "GAMMA", "DELTA", "OMEGA", "ZETA1", "ZETA2", "ZETA3", "ZETA4", "ZETA5", "ZETA6", "ZETA7", "PI1", "PI2",
    "PI3", "PI4", "ZETA",
];
const PARTS: [&str; 6] = ["OUTDEGREES", "REFERENCES", "BLOCKS", "BLOCK_COUNT", "INTERVALS", "RESIDUALS"];
const ORIENTATIONS: [Orientation; 3] = [Orientation::Auto, Orientation::Directed, Orientation::Undirected];
/// Memory limit: small, so that properties that claim much are rejected and do not stop the fuzzer.
const MEMORY: u64 = 64 << 20;

fuzz_target!(|data: &[u8]| {
    let Some((&[a, b, c, d, e, f, choice, window, nodes, arcs], rest)) = data.split_first_chunk() else { return };
    let flags: Vec<String> = PARTS
        .iter()
        .zip([a, b, c, d, e, f])
        // Half of the values leave the code that graphs have mostly.
        .filter(|(_, code)| *code < 128)
        .map(|(part, code)| format!("{part}_{}", CODES[usize::from(code) % CODES.len()]))
        .collect();
    let order = if choice & 1 == 0 { "big" } else { "little" };
    let (nodes, arcs) = (u64::from(nodes) + 1, u64::from(arcs) << (choice >> 5));
    let properties = format!(
        "graphclass=it.unimi.dsi.webgraph.BVGraph\nversion=1\nendianness={order}\nnodes={nodes}\narcs={arcs}\nwindowsize={}\nminintervallength={}\ncompressionflags={}\n",
        window % 16,
        window / 16 % 8,
        flags.join("|")
    );
    let (offsets, graph) = match choice & 2 == 0 {
        true => (None, rest),
        false => {
            let (offsets, graph) = rest.split_at(rest.len() / 4);
            (Some(offsets), graph)
        }
    };
    let options = LoadOptions::default()
        .orientation(ORIENTATIONS[usize::from(choice >> 2) % ORIENTATIONS.len()])
        .keep_self_loops(choice & 16 != 0)
        .memory(Some(MEMORY));
    match load_bvgraph(graph, properties.as_bytes(), offsets, &options) {
        Ok(loaded) => {
            let csr = loaded.csr;
            assert_eq!(csr.vertices(), nodes);
            assert_eq!(csr.offsets().last(), Some(&csr.arcs()));
            assert!((0..nodes).all(|v| csr.neighbours_of(v).is_sorted_by(|a, b| a < b)));
            assert!((0..nodes).all(|v| csr.neighbours_of(v).all(|n| n < nodes)));
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
