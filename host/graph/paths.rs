//! Paths of a search, followed by the parents of its vertices.

use super::edges::GraphError;

/// Returns the vertices of the path from the source to `target`, both included, by the parent of each vertex. The source
/// is its own parent, and `u64::MAX` stands for none. Returns `None` if `target` is not a vertex or has no parent, or if
/// its parents do not lead to a source.
pub(super) fn path_to(parent: &[u64], target: u64) -> Option<Vec<u64>> {
    path_by(parent.len(), target, |v| Ok(parent[v])).ok().flatten()
}

/// Returns the path to `target` as [`path_to`] does, of `vertices` whose parents `parent` returns.
///
/// # Errors
/// The first error of `parent`.
pub(super) fn path_by(
    vertices: usize,
    target: u64,
    parent: impl Fn(usize) -> Result<u64, GraphError>,
) -> Result<Option<Vec<u64>>, GraphError> {
    let mut path = vec![target];
    let mut v = target;
    while v < vertices as u64 && path.len() <= vertices {
        let next = parent(v as usize)?;
        if next == v {
            path.reverse();
            return Ok(Some(path));
        }
        path.push(next);
        v = next;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_from_the_source_to_the_target() {
        let parent = [1, 1, 0, u64::MAX, 5, 4, 9];
        assert_eq!(path_to(&parent, 2), Some(vec![1, 0, 2]));
        assert_eq!(path_to(&parent, 1), Some(vec![1]));
        for (none, why) in [(3, "unreached"), (7, "no vertex"), (5, "a circle"), (6, "a parent that is no vertex")] {
            assert_eq!(path_to(&parent, none), None, "{why}");
        }
    }
}
