//! Highlights that the program prints below a result and puts into the report.

use super::outcome::{Length, Outcome, distances};
use crate::output::{self, Failure};
use serde::Serialize;
use std::fmt;
use warpbell::graph::highlights::{self, DistanceRange};
use warpbell::graph::output::{Output, Written};
use warpbell::graph::verify::Distances;
use warpbell::graph::{Ids, VertexName};
use warpbell::units::{grouped, real, three_digits};

/// Levels, or sources of betweenness centrality, that a line names. The report has all of them.
const LEVELS_SHOWN: usize = 20;

/// Highlights from one result.
#[derive(Serialize)]
pub struct Highlights {
    /// Identifier of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<VertexName<'static>>,
    #[serde(flatten)]
    facts: Facts,
    /// The vertex that ends the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Target>,
}

#[derive(Serialize)]
struct Target {
    vertex: VertexName<'static>,
    /// Length of a shortest path, or null if there is none within the limit of the search.
    length: Option<Length>,
    /// Vertices of the path from the source to this vertex; absent unless the path was asked for, and exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Vec<VertexName<'static>>>,
}

/// The facts by algorithm. Vertices have the input's identifiers.
#[derive(Serialize)]
#[serde(untagged)]
enum Facts {
    Levels {
        levels: Vec<u64>,
        farthest: Option<VertexName<'static>>,
    },
    /// Sums of several searches, and the vertices that each reached.
    Searches {
        levels: Vec<u64>,
        sources: Vec<VertexName<'static>>,
        reached: Vec<u64>,
    },
    Distances {
        eccentricity: Option<f64>,
        farthest: Option<VertexName<'static>>,
        histogram: Vec<DistanceRange>,
    },
    Components {
        components: u64,
        largest: Vec<Component>,
    },
    Ranks {
        highest: Vec<Rank>,
    },
    Communities {
        communities: u64,
        largest: Vec<Community>,
    },
    Scores {
        sources: Option<Vec<VertexName<'static>>>,
        highest: Vec<Score>,
    },
    Triangles {
        triangles: u64,
        most: Vec<Triangles>,
    },
    Coefficients {
        mean: Option<f64>,
    },
    Cores {
        largest: u64,
        cores: Vec<Core>,
    },
}

#[derive(Serialize)]
struct Triangles {
    vertex: VertexName<'static>,
    triangles: u64,
}

#[derive(Serialize)]
struct Core {
    core: u64,
    vertices: u64,
}

#[derive(Serialize)]
struct Component {
    component: VertexName<'static>,
    vertices: u64,
}

#[derive(Serialize)]
struct Community {
    label: VertexName<'static>,
    vertices: u64,
}

#[derive(Serialize)]
struct Rank {
    vertex: VertexName<'static>,
    rank: f64,
}

#[derive(Serialize)]
struct Score {
    vertex: VertexName<'static>,
    betweenness: f64,
    /// Share of the highest score, which is GAP's.
    share: f64,
}

impl Highlights {
    /// Computes the highlights from a result: `top` components, communities, ranks, scores or ranges of distances.
    pub fn of(outcome: &Outcome, ids: &Ids, source: Option<u64>, top: usize) -> Self {
        let name = |v: u64| ids.id(v).into_owned();
        let facts = match outcome {
            Outcome::Bfs(r) => {
                let farthest = highlights::farthest(&Distances::U32(&r.depth)).map(|(v, _)| name(v));
                Facts::Levels { levels: highlights::level_histogram(&r.depth), farthest }
            }
            Outcome::MultiBfs(batch) => {
                let found = batch.found.levels.iter().map(|l| l.found).filter(|found| *found > 0);
                Facts::Searches {
                    levels: std::iter::once(batch.sources.len() as u64).chain(found).collect(),
                    sources: batch.sources.iter().map(|v| name(*v)).collect(),
                    reached: batch.reached.clone(),
                }
            }
            Outcome::Sssp(r) => {
                let d = distances(&r.distance);
                let (farthest, eccentricity) = highlights::farthest(&d).map(|(v, d)| (name(v), d)).unzip();
                Facts::Distances { eccentricity, farthest, histogram: highlights::distance_histogram(&d, top) }
            }
            Outcome::Components(r) => {
                let largest = highlights::largest_components(&r.label, top).into_iter();
                let largest = largest.map(|(v, vertices)| Component { component: name(v), vertices }).collect();
                Facts::Components { components: r.components, largest }
            }
            Outcome::Cdlp(r) => {
                let largest = highlights::largest_components(&r.label, top).into_iter();
                let largest = largest.map(|(v, vertices)| Community { label: name(v), vertices }).collect();
                Facts::Communities { communities: r.communities, largest }
            }
            Outcome::Betweenness(r) => {
                let all = r.sources.len() as u64 == ids.len();
                let sources = (!all).then(|| r.sources.iter().map(|s| name(s.source)).collect());
                let most = highlights::highest_ranks(&r.score, 1).first().map_or(0.0, |(_, score)| *score);
                let share = |score| if most > 0.0 { score / most } else { 0.0 };
                let score = |(v, score)| Score { vertex: name(v), betweenness: score, share: share(score) };
                let highest = highlights::highest_ranks(&r.score, top).into_iter().map(score).collect();
                Facts::Scores { sources, highest }
            }
            Outcome::PageRank(r) => {
                let highest = highlights::highest_ranks(&r.rank, top).into_iter();
                Facts::Ranks { highest: highest.map(|(v, rank)| Rank { vertex: name(v), rank }).collect() }
            }
            Outcome::Triangles(r) => {
                let most = highlights::most_triangles(&r.triangles, top).into_iter();
                let most = most.map(|(v, triangles)| Triangles { vertex: name(v), triangles }).collect();
                Facts::Triangles { triangles: r.total, most }
            }
            Outcome::Clustering(r) => Facts::Coefficients { mean: r.mean() },
            Outcome::Cores(r) => {
                let cores = highlights::largest_cores(&r.core, top).into_iter();
                let cores = cores.map(|(core, vertices)| Core { core, vertices }).collect();
                Facts::Cores { largest: r.largest, cores }
            }
        };
        Self { source: source.map(name), facts, target: None }
    }

    /// Adds the vertex that ends the search, and with `with_path` the path to this vertex.
    pub fn to(self, target: u64, with_path: bool, outcome: &Outcome, ids: &Ids) -> Self {
        let name = |v: u64| ids.id(v).into_owned();
        let path = outcome.path(target).filter(|_| with_path);
        let path = path.map(|path| path.into_iter().map(name).collect());
        Self { target: Some(Target { vertex: name(target), length: outcome.length(target), path }), ..self }
    }
}

/// Prints a line such as `levels 1, 70, 8,541   farthest 9131`, and behind it one such as
/// `target 9131   length 2   path 1 70 9131`.
impl fmt::Display for Highlights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.facts.fmt(f)?;
        let Some(Target { vertex, length, path }) = &self.target else { return Ok(()) };
        match length {
            Some(length) => write!(f, "\ntarget {vertex}   length {length}")?,
            None => write!(f, "\ntarget {vertex}   not reached")?,
        }
        let Some(path) = path else { return Ok(()) };
        f.write_str("   path")?;
        path.iter().try_for_each(|v| write!(f, " {v}"))
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Searches { levels, reached, .. } => {
                write_levels(f, levels)?;
                match (reached.iter().min(), reached.iter().max()) {
                    (Some(least), Some(most)) if least != most => {
                        write!(f, "   reached by each {} to {}", grouped(*least), grouped(*most))
                    }
                    (Some(each), _) => write!(f, "   reached by each {}", grouped(*each)),
                    _ => Ok(()),
                }
            }
            Self::Levels { levels, farthest } => {
                write_levels(f, levels)?;
                farthest.as_ref().map_or(Ok(()), |v| write!(f, "   farthest {v}"))
            }
            Self::Distances { eccentricity, farthest, histogram } => {
                if let (Some(eccentricity), Some(v)) = (eccentricity, farthest) {
                    write!(f, "eccentricity {}   farthest {v}", real(*eccentricity))?;
                }
                if histogram.is_empty() {
                    return Ok(());
                }
                let from = |d: f64| match d {
                    d if d.fract() == 0.0 => d.to_string(),
                    d if (0.01..1e6).contains(&d) => three_digits(d),
                    d => format!("{d:.2e}"),
                };
                let ranges = histogram.iter().map(|r| format!("from {}: {}", from(r.from), grouped(r.vertices)));
                write!(f, "   distances {}", list(ranges))
            }
            Self::Components { largest, .. } => {
                let largest = largest.iter().map(|c| format!("{}: {}", c.component, grouped(c.vertices)));
                write!(f, "largest components {}", list(largest))
            }
            Self::Communities { largest, .. } => {
                let largest = largest.iter().map(|c| format!("{}: {}", c.label, grouped(c.vertices)));
                write!(f, "largest communities {}", list(largest))
            }
            Self::Scores { sources, highest } => {
                if let Some(sources) = sources {
                    write!(f, "sources {}", list(sources.iter().take(LEVELS_SHOWN).map(ToString::to_string)))?;
                    if sources.len() > LEVELS_SHOWN {
                        write!(f, ", and {} more", grouped(sources.len() - LEVELS_SHOWN))?;
                    }
                    f.write_str("   ")?;
                }
                let highest = highest.iter().map(|s| format!("{}: {}", s.vertex, three_digits(s.betweenness)));
                write!(f, "highest betweenness {}", list(highest))
            }
            Self::Ranks { highest } => {
                let highest = highest.iter().map(|r| format!("{}: {:.4e}", r.vertex, r.rank));
                write!(f, "highest ranks {}", list(highest))
            }
            Self::Triangles { most, .. } => {
                let most = most.iter().map(|t| format!("{}: {}", t.vertex, grouped(t.triangles)));
                write!(f, "most triangles {}", list(most))
            }
            Self::Coefficients { mean: Some(mean) } => write!(f, "mean coefficient {mean:.6}"),
            Self::Coefficients { mean: None } => f.write_str("mean coefficient none"),
            Self::Cores { cores, .. } => {
                let cores = cores.iter().map(|c| format!("{}: {}", c.core, grouped(c.vertices)));
                write!(f, "vertices by core number {}", list(cores))
            }
        }
    }
}

fn write_levels(f: &mut fmt::Formatter<'_>, levels: &[u64]) -> fmt::Result {
    write!(f, "levels {}", list(levels.iter().take(LEVELS_SHOWN).map(|n| grouped(*n))))?;
    match levels.len().saturating_sub(LEVELS_SHOWN) {
        0 => Ok(()),
        more => write!(f, ", and {} more", grouped(more)),
    }
}

/// Results of all sources: their highlights, and the values that `--out` writes.
pub struct Results {
    pub highlights: Vec<Highlights>,
    /// Sources, by the input's identifiers, and values; empty if nothing is to be written.
    values: Vec<(Option<VertexName<'static>>, Outcome)>,
    keeps_values: bool,
    keeps_parents: bool,
}

impl Results {
    /// Creates an empty collection, which keeps values and parents if they are to be written.
    pub fn new(keeps_values: bool, keeps_parents: bool) -> Self {
        Self { highlights: Vec::new(), values: Vec::new(), keeps_values, keeps_parents }
    }

    /// Adds the result of a source, or of several at once.
    ///
    /// # Errors
    /// [`Failure::Error`] if values in the engine's memory cannot be read.
    pub fn add(&mut self, highlights: Highlights, outcome: Outcome) -> Result<(), Failure> {
        if self.keeps_values {
            let outcome = if self.keeps_parents { outcome } else { outcome.without_parents() };
            self.values.push((highlights.source.clone(), outcome.in_host()?));
        }
        self.highlights.push(highlights);
        Ok(())
    }

    /// Writes the values of all sources. A line names its source if there are several.
    ///
    /// # Errors
    /// As for [`output::write_values`].
    pub fn write(&self, ids: &Ids, to: Output) -> Result<(), Failure> {
        let written = self.values.iter().flat_map(|(source, outcome)| outcome.written(source.as_ref(), ids));
        let mut written: Vec<Written<'_>> = written.collect();
        if let [only] = &mut written[..] {
            only.source = None;
        }
        output::write_values(&written, ids, to)
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    match items.collect::<Vec<_>>().join(", ") {
        text if text.is_empty() => "none".to_owned(),
        text => text,
    }
}
