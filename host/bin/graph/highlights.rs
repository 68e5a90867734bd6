//! Highlights that the program prints below a result and puts into the report.

use super::outcome::{Outcome, distances};
use crate::output::{self, Failure};
use serde::Serialize;
use std::fmt;
use warpbell::graph::highlights::{self, DistanceRange};
use warpbell::graph::output::Output;
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
}

/// The facts by algorithm. Vertices have the input's identifiers.
#[derive(Serialize)]
#[serde(untagged)]
enum Facts {
    Levels { levels: Vec<u64>, farthest: Option<VertexName<'static>> },
    Distances { eccentricity: Option<f64>, farthest: Option<VertexName<'static>>, histogram: Vec<DistanceRange> },
    Components { components: u64, largest: Vec<Component> },
    Communities { communities: u64, largest: Vec<Community> },
    Ranks { highest: Vec<Rank> },
    Scores { sources: Option<Vec<VertexName<'static>>>, highest: Vec<Score> },
    Triangles { triangles: u64, most: Vec<Triangles> },
    Coefficients { mean: Option<f64> },
    Cores { largest: u64, cores: Vec<Core> },
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
        Self { source: source.map(name), facts }
    }
}

/// Prints one line, such as `levels 1, 70, 8,541   farthest 9131`.
impl fmt::Display for Highlights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.facts {
            Facts::Levels { levels, farthest } => {
                let shown = levels.iter().take(LEVELS_SHOWN);
                write!(f, "levels {}", list(shown.map(|n| grouped(*n))))?;
                if levels.len() > LEVELS_SHOWN {
                    write!(f, ", and {} more", grouped(levels.len() - LEVELS_SHOWN))?;
                }
                farthest.as_ref().map_or(Ok(()), |v| write!(f, "   farthest {v}"))
            }
            Facts::Distances { eccentricity, farthest, histogram } => {
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
            Facts::Components { largest, .. } => {
                let largest = largest.iter().map(|c| format!("{}: {}", c.component, grouped(c.vertices)));
                write!(f, "largest components {}", list(largest))
            }
            Facts::Communities { largest, .. } => {
                let largest = largest.iter().map(|c| format!("{}: {}", c.label, grouped(c.vertices)));
                write!(f, "largest communities {}", list(largest))
            }
            Facts::Scores { sources, highest } => {
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
            Facts::Ranks { highest } => {
                let highest = highest.iter().map(|r| format!("{}: {:.4e}", r.vertex, r.rank));
                write!(f, "highest ranks {}", list(highest))
            }
            Facts::Triangles { most, .. } => {
                let most = most.iter().map(|t| format!("{}: {}", t.vertex, grouped(t.triangles)));
                write!(f, "most triangles {}", list(most))
            }
            Facts::Coefficients { mean: Some(mean) } => write!(f, "mean coefficient {mean:.6}"),
            Facts::Coefficients { mean: None } => f.write_str("mean coefficient none"),
            Facts::Cores { cores, .. } => {
                let cores = cores.iter().map(|c| format!("{}: {}", c.core, grouped(c.vertices)));
                write!(f, "vertices by core number {}", list(cores))
            }
        }
    }
}

/// Results of all sources: their highlights, and the values that `--out` writes.
pub struct Results {
    pub highlights: Vec<Highlights>,
    /// Sources, by the input's identifiers, and values; empty if nothing is to be written.
    values: Vec<(Option<VertexName<'static>>, Outcome)>,
    keeps_values: bool,
}

impl Results {
    /// Creates an empty collection, which keeps values if they are to be written.
    pub fn new(keeps_values: bool) -> Self {
        Self { highlights: Vec::new(), values: Vec::new(), keeps_values }
    }

    /// Adds the result of a source.
    pub fn add(&mut self, highlights: Highlights, outcome: Outcome) {
        if self.keeps_values {
            self.values.push((highlights.source.clone(), outcome.without_parents()));
        }
        self.highlights.push(highlights);
    }

    /// Writes the values of all sources. A line names its source if there are several.
    ///
    /// # Errors
    /// As for [`output::write_values`].
    pub fn write(&self, ids: &Ids, to: Output) -> Result<(), Failure> {
        let several = self.values.len() > 1;
        let values = self.values.iter().map(|(source, outcome)| (source.clone().filter(|_| several), outcome.values()));
        output::write_values(&values.collect::<Vec<_>>(), ids, to)
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    match items.collect::<Vec<_>>().join(", ") {
        text if text.is_empty() => "none".to_owned(),
        text => text,
    }
}
