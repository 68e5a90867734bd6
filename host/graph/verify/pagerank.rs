//! Verification of PageRank.
//!
//! `rank(v) = (1 - d) / V + d * (sum of rank(u) / outdegree(u) over edges u -> v  +  dangling / V)`, where `dangling` is
//! the rank of all vertices without out-edges. Ranks sum to 1. GAP, LDBC Graphalytics and NetworkX use the same
//! definition. With a personalization, NetworkX' definition, shares of its vertices take the place of `1 / V`.

use super::{VerifyError, check_length, name};
use crate::graph::csr::{Csr, VertexId, with_neighbours};
use crate::graph::parallel;

/// Number of vertices that one task handles. Sums are formed over blocks of this size, so they do not depend on the
/// number of threads.
const BLOCK: usize = 1 << 14;

/// Parameters of the ranks to check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageRank<'a> {
    /// Probability to follow an edge, usually 0.85.
    pub damping: f64,
    /// Largest allowed error of the ranks, as the sum of the absolute differences. GAP's is 1e-4.
    pub tolerance: f64,
    /// Vertices that share what is not passed along edges, with their weights; all vertices alike if empty.
    pub personalization: &'a [(u64, f64)],
}

impl Default for PageRank<'_> {
    fn default() -> Self {
        Self { damping: 0.85, tolerance: 1e-4, personalization: &[] }
    }
}

/// Shares of the vertices in what is not passed along edges.
enum Shares {
    Even(f64),
    Each(Vec<f64>),
}

impl Shares {
    fn new(csr: &Csr, rule: PageRank<'_>) -> Result<Self, VerifyError> {
        let vertices = csr.vertices();
        if rule.personalization.is_empty() {
            return Ok(Self::Even(1.0 / vertices as f64));
        }
        let whole: f64 = rule.personalization.iter().map(|named| named.1).sum();
        let mut shares = vec![0.0; vertices as usize];
        for &(vertex, weight) in rule.personalization {
            match shares.get_mut(vertex as usize) {
                Some(share) => *share += weight / whole,
                None => return Err(VerifyError::NoSuchVertex { vertex, vertices }),
            }
        }
        Ok(Self::Each(shares))
    }

    fn of(&self, v: usize) -> f64 {
        match self {
            Self::Even(share) => *share,
            Self::Each(shares) => shares[v],
        }
    }
}

/// Checks that one more step changes the ranks by less than the tolerance in sum (GAP's rule). Also checks that each
/// rank is finite and not negative, and that the ranks sum to 1.
///
/// `in_edges` is the [transpose](Csr::transpose) of a directed graph. With it the step runs on all threads, without it
/// on one. An undirected graph does not need it.
///
/// # Errors
/// [`VerifyError::Length`] if there is not one rank for each vertex; [`VerifyError::NoSuchVertex`] if the personalization
/// names a vertex that does not exist; [`VerifyError::Rank`], [`VerifyError::RankSum`] or [`VerifyError::Ranks`] if a check
/// fails.
pub fn pagerank<R>(csr: &Csr, in_edges: Option<&Csr>, rule: PageRank<'_>, ranks: &[R]) -> Result<(), VerifyError>
where
    R: Copy + Into<f64> + Sync,
{
    let ranks = checked(csr, rule, ranks)?;
    let expected = step(csr, in_edges, rule.damping, &Shares::new(csr, rule)?, &ranks);
    compare(csr, "those after one more step", rule.tolerance, &ranks, &expected)
}

/// Checks ranks after a fixed number of iterations from `1 / V`. The sum of the absolute differences from
/// [`pagerank_reference`] must be below the tolerance.
///
/// # Errors
/// As for [`pagerank`].
pub fn pagerank_after<R>(
    csr: &Csr,
    in_edges: Option<&Csr>,
    rule: PageRank<'_>,
    iterations: u32,
    ranks: &[R],
) -> Result<(), VerifyError>
where
    R: Copy + Into<f64> + Sync,
{
    let ranks = checked(csr, rule, ranks)?;
    let expected = pagerank_reference(csr, in_edges, rule, iterations)?;
    compare(csr, "those of the serial iterations", rule.tolerance, &ranks, &expected)
}

/// Returns the ranks after a number of iterations from `1 / V`. Each iteration uses only the ranks of the previous one.
///
/// # Errors
/// [`VerifyError::NoSuchVertex`] if the personalization names a vertex that does not exist.
pub fn pagerank_reference(
    csr: &Csr,
    in_edges: Option<&Csr>,
    rule: PageRank<'_>,
    iterations: u32,
) -> Result<Vec<f64>, VerifyError> {
    let shares = Shares::new(csr, rule)?;
    let vertices = csr.vertices();
    let mut ranks = vec![1.0 / vertices as f64; vertices as usize];
    for _ in 0..iterations {
        ranks = step(csr, in_edges, rule.damping, &shares, &ranks);
    }
    Ok(ranks)
}

fn checked<R: Copy + Into<f64> + Sync>(csr: &Csr, rule: PageRank<'_>, ranks: &[R]) -> Result<Vec<f64>, VerifyError> {
    check_length(csr, ranks.len())?;
    let ranks: Vec<f64> = parallel::map(ranks.len(), |v| ranks[v].into());
    if let Some(v) = parallel::position(ranks.len(), |v| !(ranks[v].is_finite() && ranks[v] >= 0.0)) {
        return Err(VerifyError::Rank { vertex: name(csr, v as u64), found: ranks[v] });
    }
    // A step brings any sum nearer to 1 by the damping, so a sum further away than this cannot pass the step either.
    let tolerance = rule.tolerance / (1.0 - rule.damping).max(f64::MIN_POSITIVE);
    let sum = sum(&ranks, |_, r| r);
    if !ranks.is_empty() && (sum - 1.0).abs() > tolerance {
        return Err(VerifyError::RankSum { sum, tolerance });
    }
    Ok(ranks)
}

fn compare(
    csr: &Csr,
    reference: &'static str,
    tolerance: f64,
    ranks: &[f64],
    expected: &[f64],
) -> Result<(), VerifyError> {
    let off = |v: usize, r: f64| (r - expected[v]).abs();
    let distance = sum(ranks, off);
    // The comparison is written so that a distance that is NaN does not pass.
    if distance < tolerance || ranks.is_empty() {
        return Ok(());
    }
    let further = |a: (f64, usize), b: (f64, usize)| if b.0 > a.0 || (b.0 == a.0 && b.1 < a.1) { b } else { a };
    let start = || (f64::NEG_INFINITY, 0);
    let furthest = parallel::fold(ranks.len(), start, |a, v| further(a, (off(v, ranks[v]), v)), further);
    let v = furthest.1;
    let vertex = name(csr, v as u64);
    Err(VerifyError::Ranks { reference, distance, tolerance, vertex, found: ranks[v], expected: expected[v] })
}

fn sum(values: &[f64], of: impl Fn(usize, f64) -> f64 + Sync) -> f64 {
    let block = |b: usize| -> f64 {
        let part = values[b * BLOCK..].iter().take(BLOCK);
        part.enumerate().map(|(i, &value)| of(b * BLOCK + i, value)).sum()
    };
    parallel::map(values.len().div_ceil(BLOCK), block).into_iter().sum()
}

/// Returns the ranks one step after `ranks`.
fn step(csr: &Csr, in_edges: Option<&Csr>, damping: f64, shares: &Shares, ranks: &[f64]) -> Vec<f64> {
    let dangling = sum(ranks, |v, r| if csr.degree(v as u64) == 0 { r } else { 0.0 });
    let base = |v: usize| ((1.0 - damping) + damping * dangling) * shares.of(v);
    // Contribution of each vertex to each of its out-neighbours.
    let share: Vec<f64> = parallel::map(ranks.len(), |v| {
        let degree = csr.degree(v as u64);
        if degree == 0 { 0.0 } else { ranks[v] / degree as f64 }
    });
    let source = if csr.directed() { in_edges } else { Some(csr) };
    if let Some(in_edges) = source {
        return with_neighbours!(in_edges.neighbours(), list => parallel::map(csr.vertices() as usize, |v| {
            let gathered: f64 = list[in_edges.range(v as u64)].iter().map(|&u| share[u.index()]).sum();
            base(v) + damping * gathered
        }));
    }
    let mut next = vec![0.0; ranks.len()];
    with_neighbours!(csr.neighbours(), list => for (v, &share) in share.iter().enumerate() {
        for &n in &list[csr.range(v as u64)] {
            next[n.index()] += share;
        }
    });
    next.iter_mut().enumerate().for_each(|(v, r)| *r = base(v) + damping * *r);
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::CsrOptions;
    use crate::graph::VertexName;
    use proptest::prelude::*;

    const DIRECTED: CsrOptions = CsrOptions { directed: true, keep_self_loops: false, wide: false };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn ranks_converge_sum_to_one_and_verify(
            edges in prop::collection::vec((0u64..30, 0u64..30), 0..120), directed: bool, wide: bool,
            named in prop::collection::vec(0u64..30, 0..4),
        ) {
            let csr = Csr::from_edges(30, &edges, CsrOptions { directed, wide, ..DIRECTED }).unwrap();
            let turned = csr.transpose();
            let personalization: Vec<(u64, f64)> = named.iter().map(|v| (*v, 1.0 + *v as f64)).collect();
            let rule = PageRank { tolerance: 1e-9, personalization: &personalization, ..PageRank::default() };
            let ranks = pagerank_reference(&csr, Some(&turned), rule, 150).unwrap();
            prop_assert!((ranks.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            prop_assert_eq!(pagerank(&csr, Some(&turned), rule, &ranks), Ok(()));
            prop_assert_eq!(pagerank(&csr, None, rule, &ranks), Ok(()));
            prop_assert_eq!(pagerank_after(&csr, None, rule, 150, &ranks), Ok(()));
            let single: Vec<f32> = ranks.iter().map(|&r| r as f32).collect();
            prop_assert_eq!(pagerank(&csr, None, PageRank { tolerance: 1e-4, ..rule }, &single), Ok(()));
            // Ranks of other shares are refused.
            let other = PageRank { personalization: &[(7, 1.0), (8, 3.0)], ..rule };
            prop_assert!(pagerank(&csr, None, other, &ranks).is_err());
        }
    }

    #[test]
    fn a_graph_small_enough_to_solve_by_hand() {
        // Vertex 0 leads to vertex 1, which has no out-edges.
        // r0 = 0.075 + 0.85 r1 / 2, r1 = 0.075 + 0.85 (r0 + r1 / 2).
        let csr = Csr::from_edges(2, &[(0, 1)], DIRECTED).unwrap();
        let r0 = 0.5 / 1.425;
        let ranks = pagerank_reference(&csr, None, PageRank::default(), 100).unwrap();
        assert!((ranks[0] - r0).abs() < 1e-12 && (ranks[1] - (1.0 - r0)).abs() < 1e-12, "{ranks:?}");
        // All that is not passed along the edge goes to vertex 0: r0 = 0.15 + 0.85 r1, r1 = 0.85 r0.
        let rule = PageRank { personalization: &[(0, 2.0)], ..PageRank::default() };
        let ranks = pagerank_reference(&csr, None, rule, 400).unwrap();
        let r0 = 1.0 / 1.85;
        assert!((ranks[0] - r0).abs() < 1e-12 && (ranks[1] - 0.85 * r0).abs() < 1e-12, "{ranks:?}");
        let rule = PageRank { personalization: &[(2, 1.0)], ..rule };
        assert_eq!(pagerank(&csr, None, rule, &ranks), Err(VerifyError::NoSuchVertex { vertex: 2, vertices: 2 }));
    }

    #[test]
    fn wrong_ranks_are_named() {
        let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 0), (3, 0)], DIRECTED).unwrap();
        let good = pagerank_reference(&csr, None, PageRank::default(), 100).unwrap();
        let with = |changes: &[(usize, f64)]| {
            let mut ranks = good.clone();
            for &(v, change) in changes {
                ranks[v] += change;
            }
            pagerank(&csr, None, PageRank::default(), &ranks)
        };
        assert_eq!(with(&[]), Ok(()));
        assert!(matches!(with(&[(1, f64::NAN)]), Err(VerifyError::Rank { vertex: VertexName::Number(1), .. })));
        assert!(matches!(with(&[(2, -2.0)]), Err(VerifyError::Rank { vertex: VertexName::Number(2), .. })));
        assert!(matches!(with(&[(0, 0.5)]), Err(VerifyError::RankSum { .. })));
        assert!(matches!(with(&[(3, 0.01), (1, -0.01)]), Err(VerifyError::Ranks { .. })));
        assert!(matches!(
            pagerank_after(&csr, None, PageRank::default(), 1, &good),
            Err(VerifyError::Ranks { reference: "those of the serial iterations", .. })
        ));
    }
}
