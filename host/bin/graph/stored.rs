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
use warpbell::engine::Engine;
use warpbell::graph::import::Notice;
use warpbell::graph::stored::{
    GraphInParts, GraphName, GraphToStore, OpeningMemory, StoredEntry, StoredGraph, StoredInfo, StoredPart, WeightType,
    check_name, remove_stored_graph, stored_graphs,
};
use warpbell::graph::{GraphError, LoadOptions, PlacementOptions, WeightMode};
use warpbell::storage::Volume;
use warpbell::units::{Bytes, counted};

/// Stores a graph on a device, or in parts on several.
///
/// # Errors
/// * [`Failure::Usage`] if no device is named that keeps data, or not one for each part.
/// * [`Failure::Error`] if the input or a device fails, or a graph of this name is stored there.
pub fn import(args: &ImportArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let parts = args.parts.map_or(1, usize::from);
    let devices = match parts {
        1 => vec![args.device.clone()],
        parts => (0..parts).map(|pe| device::of_pe(&args.device, pe, parts)).collect::<Result<_, _>>()?,
    };
    devices.iter().try_for_each(device::check_lasting)?;
    interrupt.doing("reading the graph");
    // Reading may take long, so a name that is taken is refused before it. All other checks follow when the size is known.
    for devices in devices.iter().filter(|d| d.yes_destroy.is_empty()) {
        if let Ok(volume) = open(devices, &args.wait) {
            check_name(&volume, &args.name)?;
        }
    }
    let started = Instant::now();
    let graph = load(args)?;
    let (read, in_files, notices) = (started.elapsed(), graph.is_in_files(), graph.notices().to_vec());

    interrupt.doing("storing the graph");
    let engine = engine::for_host(args.wait.deadline)?;
    let started = Instant::now();
    let _stop = interrupt.stops(&engine);
    let (mut names, mut bytes, mut first) = (Vec::new(), 0, None);
    for (part, devices) in devices.iter().enumerate() {
        let volume = match &graph {
            Input::Whole(graph) => write(args, devices, &engine, graph)?,
            Input::InParts(graph) => write(args, devices, &engine, &graph.part(part)?)?,
        };
        bytes += stored_graphs(&volume)?.into_iter().find(|e| e.name == args.name).map_or(0, |e| e.bytes);
        names.push(volume.name().to_owned());
        first.get_or_insert(volume);
    }
    let (written, peak) = (started.elapsed(), peak_memory());
    drop(graph);
    let Some(volume) = first else { return Ok(()) };
    let stored = StoredGraph::open(&volume, &args.name)?;
    let described = Described { notices: &notices, ..Described::from(&stored) };
    if let Some(path) = &args.json.json {
        let phases =
            json!({ "read_ns": nanoseconds(read), "write_ns": nanoseconds(written), "peak_memory_bytes": peak });
        let report = json!({ "name": args.name.as_str(), "device": names.join(" "), "parts": parts, "graph": described.facts(), "bytes": bytes, "sorted_in_files": in_files, "phases": phases });
        return write_json("graph import", &report, path);
    }
    say!("{}", described.line())?;
    for notice in described.notices() {
        say!("{notice}")?;
    }
    let how = if in_files { " and sorted in temporary files" } else { "" };
    let peak = peak.map_or_else(String::new, |peak| format!("   peak memory {}", Bytes(peak)));
    let parts = if parts > 1 { format!(" in {parts} parts") } else { String::new() };
    let places = match &names[..] {
        [first, _, .., last] => format!("{first} to {last}"),
        few => few.join(" "),
    };
    say!(
        "stored:{}{parts} on {}   {}   read{how} {}   write {}{peak}",
        args.name,
        places,
        Bytes(bytes),
        seconds(read),
        seconds(written)
    )
}

/// Writes a graph, or a part of one, to its devices.
fn write(args: &ImportArgs, devices: &DeviceArgs, engine: &Engine, graph: &GraphToStore) -> Result<Volume, Failure> {
    // Nothing is left to protect if --yes-destroy names every device that holds stored arrays.
    let replaces = |volume: &Volume| Ok::<_, Failure>(volume.stored()?.is_empty());
    let volume = device::with_space(devices, engine, &graph.plan(), |volume| {
        if replaces(volume)? { Ok(()) } else { Ok(check_name(volume, &args.name)?) }
    })?;
    let replace = replaces(&volume)?;
    let bytes = graph.plan().bytes();
    let bar = Loading::new();
    graph.store(&volume, replace, &mut |written| bar.filled(written, bytes))?;
    Ok(volume)
}

/// A graph that is to be stored.
enum Input {
    Whole(GraphToStore),
    InParts(GraphInParts),
}

impl Input {
    fn is_in_files(&self) -> bool {
        match self {
            Self::Whole(graph) => graph.is_in_files(),
            Self::InParts(graph) => graph.is_in_files(),
        }
    }

    fn notices(&self) -> &[Notice] {
        match self {
            Self::Whole(graph) => graph.notices(),
            Self::InParts(graph) => graph.notices(),
        }
    }
}

fn load(args: &ImportArgs) -> Result<Input, Failure> {
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
    let (name, checksums) = (args.name.clone(), args.page_checksums);
    subject::read(&args.input, &options, |input| match args.parts {
        None => Ok(Input::Whole(GraphToStore::import(name, input, &options)?.page_checksums(checksums))),
        Some(parts) => {
            Ok(Input::InParts(GraphInParts::import(name, input, &options, parts.into())?.page_checksums(checksums)))
        }
    })
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
    let part = info.part.map_or_else(String::new, |own| format!("  {}", part_words(own)));
    format!("{vertices}  {edges}  {direction}  {weights}{part}")
}

fn part_words(own: StoredPart) -> String {
    format!("part {} of {}", own.part, own.parts)
}

/// Returns the part for a JSON report.
fn part_facts(part: Option<StoredPart>) -> Value {
    part.map_or(Value::Null, |own| json!({ "part": own.part, "parts": own.parts }))
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
            value["part"] = part_facts(info.part);
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
            "name": name.as_str(), "device": volume.name(), "bytes": bytes, "graph": graph, "part": part_facts(stored.info().part),
            "lists": lists, "opening": { "host_bytes": memory.host, "engine_bytes": memory.engine },
        });
        return write_json("graph info", &report, path);
    }
    let input = described.input;
    let part = stored.info().part.map_or_else(String::new, |own| format!("   {} of the graph", part_words(own)));
    say!("stored:{name} on {}   {}{part}", volume.name(), Bytes(bytes))?;
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
            bits_per_edge: 8.0 * bytes as f64 / stored.arcs_here().max(1) as f64,
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
