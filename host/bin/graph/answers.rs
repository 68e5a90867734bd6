//! Answers that the program prints below a result and puts into the report.

use super::outcome::{Outcome, distances};
use crate::output::{self, Failure};
use serde::Serialize;
use std::fmt;
use warpbell::graph::Ids;
use warpbell::graph::answers::{self, DistanceRange};
use warpbell::graph::output::Output;
use warpbell::graph::verify::Distances;
use warpbell::units::{grouped, three_digits};

/// Levels that a line names. The report has all of them.
const LEVELS_SHOWN: usize = 20;

/// Answers from one result.
#[derive(Serialize)]
pub struct Answers {
    /// Identifier of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<u64>,
    #[serde(flatten)]
    facts: Facts,
}

/// The facts by algorithm. Vertices have the input's identifiers.
#[derive(Serialize)]
#[serde(untagged)]
enum Facts {
    Levels { levels: Vec<u64>, farthest: Option<u64> },
    Distances { eccentricity: Option<f64>, farthest: Option<u64>, histogram: Vec<DistanceRange> },
    Components { components: u64, largest: Vec<Component> },
    Ranks { highest: Vec<Rank> },
}

#[derive(Serialize)]
struct Component {
    component: u64,
    vertices: u64,
}

#[derive(Serialize)]
struct Rank {
    vertex: u64,
    rank: f64,
}

impl Answers {
    /// Computes the answers from a result: `top` components, ranks or ranges of distances.
    pub fn of(outcome: &Outcome, ids: &Ids, source: Option<u64>, top: usize) -> Self {
        let facts = match outcome {
            Outcome::Bfs(r) => {
                let farthest = answers::farthest(&Distances::U32(&r.depth)).map(|(v, _)| ids.id(v));
                Facts::Levels { levels: answers::level_histogram(&r.depth), farthest }
            }
            Outcome::Sssp(r) => {
                let d = distances(&r.distance);
                let (farthest, eccentricity) = answers::farthest(&d).map(|(v, d)| (ids.id(v), d)).unzip();
                Facts::Distances { eccentricity, farthest, histogram: answers::distance_histogram(&d, top) }
            }
            Outcome::Components(r) => {
                let largest = answers::largest_components(&r.label, top).into_iter();
                let largest = largest.map(|(v, vertices)| Component { component: ids.id(v), vertices }).collect();
                Facts::Components { components: r.components, largest }
            }
            Outcome::PageRank(r) => {
                let highest = answers::highest_ranks(&r.rank, top).into_iter();
                Facts::Ranks { highest: highest.map(|(v, rank)| Rank { vertex: ids.id(v), rank }).collect() }
            }
        };
        Self { source: source.map(|v| ids.id(v)), facts }
    }
}

/// Prints one line, such as `levels 1, 70, 8,541   farthest 9131`.
impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.facts {
            Facts::Levels { levels, farthest } => {
                let shown = levels.iter().take(LEVELS_SHOWN);
                write!(f, "levels {}", list(shown.map(|n| grouped(*n))))?;
                if levels.len() > LEVELS_SHOWN {
                    write!(f, ", and {} more", grouped(levels.len() - LEVELS_SHOWN))?;
                }
                farthest.map_or(Ok(()), |v| write!(f, "   farthest {v}"))
            }
            Facts::Distances { eccentricity, farthest, histogram } => {
                if let (Some(eccentricity), Some(v)) = (eccentricity, farthest) {
                    write!(f, "eccentricity {eccentricity}   farthest {v}")?;
                }
                if histogram.is_empty() {
                    return Ok(());
                }
                let from = |d: f64| if d.fract() == 0.0 { d.to_string() } else { three_digits(d) };
                let ranges = histogram.iter().map(|r| format!("from {}: {}", from(r.from), grouped(r.vertices)));
                write!(f, "   distances {}", list(ranges))
            }
            Facts::Components { largest, .. } => {
                let largest = largest.iter().map(|c| format!("{}: {}", c.component, grouped(c.vertices)));
                write!(f, "largest components {}", list(largest))
            }
            Facts::Ranks { highest } => {
                let highest = highest.iter().map(|r| format!("{}: {:.4e}", r.vertex, r.rank));
                write!(f, "highest ranks {}", list(highest))
            }
        }
    }
}

/// Results of all sources: their answers, and the values that `--out` writes.
pub struct Results {
    pub answers: Vec<Answers>,
    /// Sources, by the input's identifiers, and values; empty if nothing is to be written.
    values: Vec<(Option<u64>, Outcome)>,
    keeps_values: bool,
}

impl Results {
    /// Creates an empty collection, which keeps values if they are to be written.
    pub fn new(keeps_values: bool) -> Self {
        Self { answers: Vec::new(), values: Vec::new(), keeps_values }
    }

    /// Adds the result of a source.
    pub fn add(&mut self, answers: Answers, outcome: Outcome) {
        if self.keeps_values {
            self.values.push((answers.source, outcome.without_parents()));
        }
        self.answers.push(answers);
    }

    /// Writes the values of all sources. A line names its source if there are several.
    ///
    /// # Errors
    /// As for [`output::write_values`].
    pub fn write(&self, ids: &Ids, to: Output) -> Result<(), Failure> {
        let several = self.values.len() > 1;
        let values = self.values.iter().map(|(source, outcome)| (source.filter(|_| several), outcome.values()));
        output::write_values(&values.collect::<Vec<_>>(), ids, to)
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    match items.collect::<Vec<_>>().join(", ") {
        text if text.is_empty() => "none".to_owned(),
        text => text,
    }
}
