//! Choice of the rows that a benchmark gathers.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Largest exponent of a Zipf distribution: with it, nearly every index is the same.
const MOST_EXPONENT: f64 = 16.0;

/// Distribution of indices.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// Every row is equally likely.
    Uniform,
    /// The row of rank k is chosen with a probability proportional to k to the power of minus this exponent.
    Zipf(f64),
    /// Neighbourhoods of random vertices of this graph.
    Sample(String),
    /// Numbers of a file, in their order.
    Trace(PathBuf),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if s == "uniform" {
            return Ok(Self::Uniform);
        }
        if let Some(exponent) = s.strip_prefix("zipf:") {
            return match exponent.parse::<f64>() {
                Ok(e) if e > 0.0 && e <= MOST_EXPONENT => Ok(Self::Zipf(e)),
                _ => {
                    Err(format!("write zipf:EXPONENT with a number above 0, at most {MOST_EXPONENT}, as in zipf:0.99"))
                }
            };
        }
        match s.strip_prefix("sample:") {
            Some("") => Err("write sample:GRAPH, as in sample:kron:20".to_owned()),
            Some(graph) => Ok(Self::Sample(graph.to_owned())),
            None if s == "zipf" => Err("write the exponent too, as in zipf:0.99".to_owned()),
            None if s == "sample" => Err("write the graph too, as in sample:kron:20".to_owned()),
            None => Ok(Self::Trace(s.into())),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(exponent) => write!(f, "zipf:{exponent}"),
            Self::Sample(graph) => write!(f, "sample:{graph}"),
            Self::Trace(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_words_or_files() {
        let parse = |s: &str| s.parse::<Choice>();
        assert_eq!(parse("uniform"), Ok(Choice::Uniform));
        assert_eq!(parse("zipf:0.99"), Ok(Choice::Zipf(0.99)));
        assert_eq!(parse("sample:kron:8:4"), Ok(Choice::Sample("kron:8:4".to_owned())));
        assert_eq!(parse("./uniform"), Ok(Choice::Trace("./uniform".into())));
        for text in ["uniform", "zipf:1.25", "sample:urand:9", "trace.npy"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for bad in ["zipf", "zipf:", "zipf:0", "zipf:-1", "zipf:nan", "zipf:17", "sample", "sample:"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
