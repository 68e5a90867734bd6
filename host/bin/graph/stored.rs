//! Runs the commands about stored graphs: import, list, info, verify, delete.

use super::store::needed;
use super::subject::{self, Described, stored_name};
use crate::args::{DeadlineArgs, DeviceArgs, ImportArgs, ImportWeights, StoredArgs, StoredListArgs};
use crate::interrupt::Interrupt;
use crate::output::{Failure, say, write_json};
use crate::progress::Loading;
use crate::workloads::graph::seconds;
use crate::workloads::phases::peak_memory;
use crate::workloads::report::nanoseconds;
use crate::{device, engine, graph};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::time::Instant;
use warpbell::graph::stored::{
    GraphName, GraphToStore, OpeningMemory, StoredEntry, StoredGraph, StoredInfo, WeightType, check_name,
    remove_stored_graph, stored_graphs,
};
use warpbell::graph::{GraphError, LoadOptions, PlacementOptions, WeightMode};
use warpbell::storage::Volume;
use warpbell::units::{Bytes, counted};

/// Stores a graph on a device.
///
/// # Errors
/// * [`Failure::Usage`] if no device is named that keeps data.
/// * [`Failure::Error`] if the input or a device fails, or a graph of this name is stored there.
pub fn import(args: &ImportArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    device::check_lasting(&args.device)?;
    interrupt.doing("reading the graph");
    // Reading may take long, so a name that is taken is refused before it. All other checks follow when the size is known.
    if args.device.yes_destroy.is_empty()
        && let Ok(volume) = open(&args.device, &args.wait)
    {
        check_name(&volume, &args.name)?;
    }
    let started = Instant::now();
    let graph = load(args)?.page_checksums(args.page_checksums);
    let read = started.elapsed();

    interrupt.doing("storing the graph");
    let engine = engine::for_host(args.wait.deadline)?;
    let started = Instant::now();
    let _stop = interrupt.stops(&engine);
    // Nothing is left to protect if --yes-destroy names every device that holds stored arrays.
    let replaces = |volume: &Volume| Ok::<_, Failure>(volume.stored()?.is_empty());
    let volume = device::with_space(&args.device, &engine, &graph.plan(), |volume| {
        if replaces(volume)? { Ok(()) } else { Ok(check_name(volume, &args.name)?) }
    })?;
    let replace = replaces(&volume)?;
    let bytes = graph.plan().bytes();
    let bar = Loading::new();
    graph.store(&volume, replace, &mut |written| bar.filled(written, bytes))?;
    drop(bar);
    let written = started.elapsed();
    let entry = stored_graphs(&volume)?.into_iter().find(|e| e.name == args.name);
    let bytes = entry.map_or(0, |e| e.bytes);
    let (in_files, peak, notices) = (graph.is_in_files(), peak_memory(), graph.notices().to_vec());
    drop(graph);
    let stored = StoredGraph::open(&volume, &args.name)?;
    let described = Described { notices: &notices, ..Described::from(&stored) };
    if let Some(path) = &args.json.json {
        let phases =
            json!({ "read_ns": nanoseconds(read), "write_ns": nanoseconds(written), "peak_memory_bytes": peak });
        let report = json!({ "name": args.name.as_str(), "device": volume.name(), "graph": described.facts(), "bytes": bytes, "sorted_in_files": in_files, "phases": phases });
        return write_json("graph import", &report, path);
    }
    say!("{}", described.line())?;
    for notice in described.notices() {
        say!("{notice}")?;
    }
    let how = if in_files { " and sorted in temporary files" } else { "" };
    let peak = peak.map_or_else(String::new, |peak| format!("   peak memory {}", Bytes(peak)));
    say!(
        "stored:{} on {}   {}   read{how} {}   write {}{peak}",
        args.name,
        volume.name(),
        Bytes(bytes),
        seconds(read),
        seconds(written)
    )
}

fn load(args: &ImportArgs) -> Result<GraphToStore, Failure> {
    let bar = Loading::new();
    let advance = |p| bar.advance(p);
    let weights = match args.weights {
        ImportWeights::None => WeightMode::Ignore,
        // Weights that the input does not have are stored only if they are asked for.
        ImportWeights::Auto => WeightMode::IfPresent,
        ImportWeights::Input => WeightMode::Input,
        ImportWeights::Integers => WeightMode::RandomIntegers,
        ImportWeights::Reals => WeightMode::RandomReals,
    };
    let options = LoadOptions::default()
        .format(args.format)
        .ids(args.ids.kind())
        .columns(args.ids.columns.as_ref())
        .vertices(args.ids.vertices)
        .orientation(graph::orientation(args.directed, args.undirected))
        .weights(weights)
        .precision(args.weights_type.precision())
        // PageRank uses them; the other algorithms ignore them.
        .keep_self_loops(true)
        .lists(args.form())
        .seed(args.seed)
        .memory(args.memory.map(|bytes| bytes.0))
        .temp_dir(args.temp_dir.as_deref())
        .progress(Some(&advance));
    subject::read(&args.input, &options, |input| GraphToStore::import(args.name.clone(), input, &options))
}

/// Lists the stored graphs.
///
/// # Errors
/// [`Failure::Usage`] if no device is named that keeps data; [`Failure::Error`] if it cannot be read.
pub fn list(args: &StoredListArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    interrupt.doing("listing the stored graphs");
    let volume = open(&args.device, &args.wait)?;
    let _stop = interrupt.stops(volume.engine());
    let graphs = stored_graphs(&volume)?;
    if let Some(path) = &args.json.json {
        let report: Vec<Value> = graphs.iter().map(entry).collect();
        return write_json("graph list", &json!({ "device": volume.name(), "graphs": report }), path);
    }
    if graphs.is_empty() {
        return say!("no graph is stored on {}", volume.name());
    }
    let longest = graphs.iter().map(|g| g.name.as_str().len()).max().unwrap_or(0);
    for g in &graphs {
        let facts = g.info.as_ref().map_or_else(ToString::to_string, words);
        say!("{:<longest$}  {:>10}  {facts}", g.name.as_str(), Bytes(g.bytes).to_string())?;
    }
    Ok(())
}

fn words(info: &StoredInfo) -> String {
    let direction = if info.directed { "directed" } else { "undirected" };
    let weights = info.weights.map_or("no weights", weight_words);
    let (vertices, edges) = (subject::vertices(info.vertices, info.has_names()), counted(info.edges, "edge", "edges"));
    format!("{vertices}  {edges}  {direction}  {weights}")
}

fn weight_words(weights: WeightType) -> &'static str {
    match weights {
        WeightType::U32 => "integer weights",
        WeightType::F32 => "real weights (32-bit)",
        _ => "real weights (64-bit)",
    }
}

fn entry(e: &StoredEntry) -> Value {
    let mut value = json!({ "name": e.name.as_str(), "bytes": e.bytes });
    match &e.info {
        Ok(info) => {
            value["vertices"] = json!(info.vertices);
            value["named"] = json!(info.has_names());
            value["edges"] = json!(info.edges);
            value["stored_edges"] = json!(info.arcs);
            value["directed"] = json!(info.directed);
            value["neighbour_bytes"] = json!(info.neighbour_bytes);
            value["lists"] = json!(if info.packed { "packed" } else { "plain" });
            value["weights"] = json!(info.weights.map(weight_words));
        }
        Err(e) => value["error"] = json!(e.to_string()),
    }
    value
}

/// Shows the facts about one graph.
///
/// # Errors
/// [`Failure::Usage`] if the argument names no stored graph; [`Failure::Error`] if the device holds no such graph.
pub fn info(args: &StoredArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let name = named(&args.graph)?;
    interrupt.doing("opening the stored graph");
    let volume = open(&args.device, &args.wait)?;
    let _stop = interrupt.stops(volume.engine());
    let memory = OpeningMemory::of(&volume, &name, PlacementOptions::ALL)?;
    let stored = StoredGraph::open(&volume, &name)?;
    let described = Described::from(&stored);
    let bytes = stored_graphs(&volume)?.into_iter().find(|e| e.name == name).map_or(0, |e| e.bytes);
    let weights = stored.info().weights.map(weight_words);
    let lists = ListBytes::of(&stored, &volume)?;
    if let Some(path) = &args.json.json {
        let mut graph = described.facts();
        graph["weight_type"] = json!(weights);
        let report = json!({
            "name": name.as_str(), "device": volume.name(), "bytes": bytes, "graph": graph,
            "lists": lists, "opening": { "host_bytes": memory.host, "engine_bytes": memory.engine },
        });
        return write_json("graph info", &report, path);
    }
    let input = described.input;
    say!("stored:{name} on {}   {}", volume.name(), Bytes(bytes))?;
    say!("{}", described.line())?;
    say!("{lists}   {}", weights.unwrap_or("no weights"))?;
    say!(
        "imported from: {}, {}, of which {}; {} dropped",
        input.format,
        counted(input.input_edges, "edge", "edges"),
        counted(input.self_loops, "self-loop", "self-loops"),
        counted(input.duplicates, "duplicate arc", "duplicate arcs")
    )?;
    say!("opening takes {}", needed(&memory))
}

/// Form and size of the neighbour lists of a stored graph.
#[derive(serde::Serialize)]
struct ListBytes {
    form: &'static str,
    order: &'static str,
    bytes: u64,
    bits_per_edge: f64,
}

impl ListBytes {
    fn of(stored: &StoredGraph, volume: &Volume) -> Result<Self, GraphError> {
        let info = stored.info();
        let bytes = stored.edge_bytes(volume, PlacementOptions::COMPONENTS)?;
        Ok(Self {
            form: if info.packed { "packed" } else { "plain" },
            order: if info.reordered { "degree" } else { "input" },
            bytes,
            bits_per_edge: 8.0 * bytes as f64 / info.arcs.max(1) as f64,
        })
    }
}

impl std::fmt::Display for ListBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let order = if self.order == "degree" { " in the order of degrees" } else { "" };
        write!(f, "lists: {}{order}, {}, {:.2} bits a stored edge", self.form, Bytes(self.bytes), self.bits_per_edge)
    }
}

/// Reads a graph completely and compares its parts.
///
/// # Errors
/// As for [`info`]; also [`Failure::Error`] if a part is damaged.
pub fn verify(args: &StoredArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let name = named(&args.graph)?;
    let volume = open(&args.device, &args.wait)?;
    interrupt.doing("reading the stored graph");
    let _stop = interrupt.stops(volume.engine());
    StoredGraph::open(&volume, &name)?.verify(&volume)?;
    if let Some(path) = &args.json.json {
        let report = json!({ "name": name.as_str(), "device": volume.name(), "intact": true });
        return write_json("graph verify", &report, path);
    }
    say!("stored:{name} on {} is intact", volume.name())
}

/// Removes a graph.
///
/// # Errors
/// As for [`info`].
pub fn delete(args: &StoredArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let name = named(&args.graph)?;
    interrupt.doing("removing the stored graph");
    let engine = engine::for_host(args.wait.deadline)?;
    let _stop = interrupt.stops(&engine);
    let volume = device::changed(&args.device, &engine)?;
    remove_stored_graph(&volume, &name)?;
    if let Some(path) = &args.json.json {
        let report = json!({ "name": name.as_str(), "device": volume.name(), "deleted": true });
        return write_json("graph delete", &report, path);
    }
    say!("deleted stored:{name} from {}", volume.name())
}

pub(super) fn open(args: &DeviceArgs, wait: &DeadlineArgs) -> Result<Volume, Failure> {
    device::stored(args, &engine::for_host(wait.deadline)?, Bytes(4096))
}

/// Returns the name of a stored graph; `stored:` may be left out.
pub(super) fn named(graph: &OsStr) -> Result<GraphName, Failure> {
    match stored_name(graph)? {
        Some(name) => Ok(name),
        None => Ok(graph.to_string_lossy().parse::<GraphName>().map_err(GraphError::from)?),
    }
}
