//! Runs the commands about stored graphs: import, list, info, verify, delete, export.

use super::store::needed;
use super::subject::{self, Described, stored_name};
use crate::args::{DeadlineArgs, DeviceArgs, ExportArgs, ImportArgs, ImportWeights, StoredArgs, StoredListArgs};
use crate::interrupt::Interrupt;
use crate::measure::graph::seconds;
use crate::measure::phases::peak_memory;
use crate::measure::report::nanoseconds;
use crate::output::{Failure, say, warn, write_json};
use crate::progress::Loading;
use crate::{device, engine, graph};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::time::Instant;
use warpbell::destination::Destination;
use warpbell::graph::stored::{
    ArcReader, GraphName, GraphToStore, OpeningMemory, StoredEntry, StoredGraph, StoredInfo, WeightType, check_name,
    remove_stored_graph, stored_graphs,
};
use warpbell::graph::{GraphError, GraphShape, LoadOptions, Names, PlacementOptions, VertexName, WeightMode};
use warpbell::storage::Volume;
use warpbell::units::{Bytes, grouped};

/// Stores a graph on a device.
///
/// # Errors
/// * [`Failure::Usage`] if no device is named that keeps data.
/// * [`Failure::Error`] if the input or a device fails, or a graph of this name is stored there.
pub fn import(args: &ImportArgs, interrupt: &Interrupt) -> Result<(), Failure> {
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
        // PageRank uses them; the other algorithms ignore them.
        .keep_self_loops(true)
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
    let named = if info.has_names() { "named " } else { "" };
    format!("{} {named}vertices  {} edges  {direction}  {weights}", grouped(info.vertices), grouped(info.edges))
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
    if let Some(path) = &args.json.json {
        let report = json!({
            "name": name.as_str(), "device": volume.name(), "bytes": bytes, "graph": described.facts(),
            "opening": { "host_bytes": memory.host, "engine_bytes": memory.engine },
        });
        return write_json("graph info", &report, path);
    }
    let input = described.input;
    say!("stored:{name} on {}   {}", volume.name(), Bytes(bytes))?;
    say!("{}", described.line())?;
    say!(
        "imported from: {}, {} edges, of which {} self-loops; {} duplicate arcs dropped",
        input.format,
        grouped(input.input_edges),
        grouped(input.self_loops),
        grouped(input.duplicates)
    )?;
    say!("opening takes {}", needed(&memory))
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

/// Writes the edges of a graph.
///
/// # Errors
/// As for [`info`]; also [`Failure::Usage`] for an unknown ending, and [`Failure::Error`] if the file cannot be written
/// or a part is damaged.
pub fn export(args: &ExportArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let name = named(&args.graph)?;
    let ending = args.out.extension().and_then(OsStr::to_str).unwrap_or_default();
    let form = match ending {
        "wel" => Exported::WeightedList,
        "el" => Exported::List,
        "csv" => Exported::Table,
        _ if args.out == OsStr::new("-") => Exported::List,
        _ => {
            let out = args.out.display();
            return Err(Failure::Usage(format!(
                "--out {out}: write a file that ends in .el, .wel or .csv, or - for standard output"
            )));
        }
    };
    let destination = Destination::open(&args.out)?;
    let volume = open(&args.device, &args.wait)?;
    interrupt.doing("reading the stored graph");
    let _stop = interrupt.stops(volume.engine());
    let stored = StoredGraph::open(&volume, &name)?;
    if form == Exported::WeightedList && stored.info().weights.is_none() {
        return Err(Failure::Error(format!("stored:{name} has no weights; name a file that ends in .el")));
    }
    if form != Exported::Table
        && let Some(vertex) = stored.ids().names().and_then(Names::first_with_blanks)
    {
        return Err(Failure::Error(format!(
            "stored:{name}: an edge list cannot have the name {}, which has blanks or begins a comment; name a file that ends in .csv",
            VertexName::from(vertex)
        )));
    }
    let weighted = form != Exported::List && stored.info().weights.is_some();
    let mut reader = stored.arcs(&volume, weighted)?;
    interrupt.doing("writing the edges");
    let alone = (0..stored.vertices()).filter(|v| stored.is_isolated(*v)).count();
    if alone > 0 {
        warn(format_args!("{} vertices without edges are not in the list of edges", grouped(alone)));
    }
    let mut unread = Ok(());
    let written = destination.write(|out| edges(&stored, form, &mut reader, &mut unread, out));
    unread?;
    Ok(written?)
}

/// Form of an exported graph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exported {
    /// Two vertices on a line.
    List,
    /// Two vertices and a weight on a line.
    WeightedList,
    /// Columns with commas below a header; weights if the graph has some.
    Table,
}

/// Writes an edge on each line. An edge list has an undirected edge once, below a header that says so. A table cannot
/// say so and has the edge in both directions. Also sets `unread` if edges cannot be read, so that the caller can tell
/// that from a failed write.
fn edges(
    stored: &StoredGraph,
    form: Exported,
    reader: &mut ArcReader<'_>,
    unread: &mut Result<(), GraphError>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let once = !stored.directed() && form != Exported::Table;
    match form {
        Exported::Table => {
            writeln!(out, "source,target{}", if stored.info().weights.is_some() { ",weight" } else { "" })?;
        }
        _ if once => writeln!(out, "# Undirected graph")?,
        _ => {}
    }
    let put = |out: &mut dyn Write, name: VertexName<'_>| match (form, &name) {
        (Exported::Table, name) => write!(out, "{}", name.csv()),
        (_, VertexName::Number(number)) => write!(out, "{number}"),
        // An edge list has no quotes: they are characters of the name.
        (_, VertexName::Text(text)) => out.write_all(text.as_bytes()),
    };
    let separator = if form == Exported::Table { "," } else { " " };
    loop {
        let piece = match reader.next_piece() {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(()),
            Err(e) => {
                *unread = Err(e);
                return Err(io::Error::other("edges cannot be read"));
            }
        };
        for arc in piece.arcs().filter(|arc| !once || arc.from <= arc.to) {
            put(out, stored.ids().id(arc.from))?;
            out.write_all(separator.as_bytes())?;
            put(out, stored.ids().id(arc.to))?;
            match arc.weight {
                None => writeln!(out)?,
                Some(weight) => writeln!(out, "{separator}{weight}")?,
            }
        }
    }
}

fn open(args: &DeviceArgs, wait: &DeadlineArgs) -> Result<Volume, Failure> {
    device::stored(args, &engine::for_host(wait.deadline)?, Bytes(4096))
}

/// Returns the name of a stored graph; `stored:` may be left out.
fn named(graph: &OsStr) -> Result<GraphName, Failure> {
    match stored_name(graph)? {
        Some(name) => Ok(name),
        None => Ok(graph.to_string_lossy().parse::<GraphName>().map_err(GraphError::from)?),
    }
}
