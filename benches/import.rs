//! Host side of graphs: parsing, building neighbour lists, generating, verifying. Throughput is in bytes of text or in
//! edges of the input.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::fmt::Write;
use std::hint::black_box;
use warpbell::graph::import::{LoadOptions, WeightMode, load, load_bytes};
use warpbell::graph::{Csr, CsrOptions, Input, Loaded, hub, verify};

/// Vertices of the graphs as a power of two: large enough not to fit a core's cache.
const SCALE: u32 = 18;

fn graph() -> Loaded {
    let input: Input = format!("kron:{SCALE}").parse().expect("a generator");
    input.load(&LoadOptions::default()).expect("a small graph fits")
}

fn text(csr: &Csr, line: impl Fn(&mut String, u64, u64)) -> String {
    let mut text = String::new();
    for v in 0..csr.vertices() {
        csr.neighbours_of(v).for_each(|n| line(&mut text, v, n));
    }
    text
}

fn parsing(c: &mut Criterion) {
    let csr = graph().csr;
    let list = text(&csr, |t, v, n| writeln!(t, "{v}\t{n}").expect("memory"));
    let weighted = text(&csr, |t, v, n| writeln!(t, "{v} {n} 0.{:06}", (v * n) % 1_000_000).expect("memory"));
    let named = text(&csr, |t, v, n| writeln!(t, "vertex-{v}\tvertex-{n}").expect("memory"));
    let mut matrix =
        format!("%%MatrixMarket matrix coordinate pattern general\n{0} {0} {1}\n", csr.vertices(), csr.arcs());
    matrix += &text(&csr, |t, v, n| writeln!(t, "{} {}", v + 1, n + 1).expect("memory"));
    let mut group = c.benchmark_group("import");
    group.sample_size(10);
    for (case, text) in [("g.el", &list), ("g.wel", &weighted), ("g.mtx", &matrix), ("names.el", &named)] {
        group.throughput(Throughput::Bytes(text.len() as u64));
        let options = LoadOptions::default().weights(WeightMode::Input);
        group.bench_with_input(BenchmarkId::from_parameter(case), text, |b, text| {
            b.iter(|| load_bytes(case, black_box(text.as_bytes()), &options).expect("well formed"));
        });
    }
    let enron = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/data/email-enron.txt");
    if let Ok(file) = std::fs::metadata(&enron) {
        group.throughput(Throughput::Bytes(file.len()));
        group.bench_function("enron", |b| b.iter(|| load(&enron, &LoadOptions::default()).expect("well formed")));
    }
    group.finish();
}

fn building(c: &mut Criterion) {
    let csr = graph().csr;
    let edges: Vec<(u64, u64)> = (0..csr.vertices()).flat_map(|v| csr.neighbours_of(v).map(move |n| (v, n))).collect();
    let mut group = c.benchmark_group("build");
    group.sample_size(10);
    group.throughput(Throughput::Elements(edges.len() as u64));
    let directed = CsrOptions::default().directed(true);
    group.bench_function("edges", |b| b.iter(|| Csr::from_edges(csr.vertices(), black_box(&edges), directed)));
    group.bench_function("hub neighbours", |b| b.iter(|| hub::hub_neighbours(black_box(&csr))));
    group.bench_function("order_by_degree", |b| {
        b.iter_batched(|| csr.clone(), |mut csr| hub::order_by_degree(&mut csr), criterion::BatchSize::LargeInput);
    });
    group.throughput(Throughput::Elements(16 << SCALE));
    group.bench_function("kron", |b| b.iter(graph));
    group.finish();
}

fn verifying(c: &mut Criterion) {
    let input: Input = format!("kron:{SCALE}").parse().expect("a generator");
    let options = LoadOptions::default().weights(WeightMode::RandomIntegers);
    let csr = input.load(&options).expect("a small graph fits").csr;
    let source = (0..csr.vertices()).max_by_key(|&v| csr.degree(v)).unwrap_or(0);
    let mut group = c.benchmark_group("verify");
    group.sample_size(10);
    group.throughput(Throughput::Elements(csr.edges()));
    group.bench_function("bfs", |b| b.iter(|| verify::breadth_first(black_box(&csr), source)));
    group.bench_function("components", |b| b.iter(|| verify::connected_components(black_box(&csr))));
    group.bench_function("pagerank step", |b| {
        b.iter(|| verify::pagerank_reference(black_box(&csr), None, Default::default(), 1).unwrap())
    });
    group.bench_function("dijkstra", |b| b.iter(|| verify::dijkstra(black_box(&csr), source)));
    group.finish();
}

criterion_group!(benches, parsing, building, verifying);
criterion_main!(benches);
