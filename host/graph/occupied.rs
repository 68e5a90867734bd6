//! Protection of graphs that a volume already holds: they are overwritten only if they equal the graph to be placed.

use super::csr::Csr;
use super::edges::{GraphError, PlacementOptions};
use super::place::{NEIGHBOURS, OFFSETS, WEIGHTED, each_array};
use crate::storage::{Checksum, Manifest, ManifestError, Plan, Volume};
use crate::units::grouped;
use std::borrow::Cow;
use std::collections::HashMap;

/// Returns an error if a volume holds arrays other than those of `plan`, which describes `csr` and its in-lists. Calls
/// `inward` only if the arrays have to be compared by checksum.
pub(super) fn check<'a>(
    volume: &Volume,
    plan: &Plan,
    csr: &Csr,
    inward: impl FnOnce() -> Option<Cow<'a, Csr>>,
    needs: PlacementOptions,
) -> Result<(), GraphError> {
    let stored = volume.stored()?;
    if stored.is_empty() {
        return Ok(());
    }
    let alike = |m: &Result<Manifest, ManifestError>| m.as_ref().is_ok_and(|m| plan.has_layout_of(m));
    let other = match stored.iter().find(|s| !s.of_volume || !alike(&s.manifest)) {
        Some(other) => Some(other),
        None => {
            let sums = checksums(csr, inward().as_deref(), needs)?;
            let same = |m: &Manifest| m.entries().iter().all(|e| !e.changed && sums.get(&e.name) == Some(&e.checksum));
            stored.iter().find(|s| !s.manifest.as_ref().is_ok_and(same))
        }
    };
    match other {
        None => Ok(()),
        Some(other) => Err(GraphError::Occupied { device: other.device.clone(), holds: describe(&other.manifest) }),
    }
}

/// Returns the checksum of each array as it would be stored.
fn checksums(csr: &Csr, inward: Option<&Csr>, needs: PlacementOptions) -> Result<HashMap<String, u64>, GraphError> {
    let mut sums: HashMap<String, Checksum> = HashMap::new();
    each_array(csr, inward, needs, |name, _, bytes| {
        sums.entry(name.to_owned()).or_default().update(bytes);
        Ok(())
    })?;
    Ok(sums.into_iter().map(|(name, sum)| (name, sum.finish())).collect())
}

/// Describes the arrays of a manifest, as a graph if they are one.
fn describe(manifest: &Result<Manifest, ManifestError>) -> String {
    let manifest = match manifest {
        Ok(manifest) => manifest,
        Err(e) => return format!("stored arrays that cannot be read ({e})"),
    };
    let count = |name: &str| manifest.find(name).ok().map(|e| e.count);
    let edges = count(NEIGHBOURS).or_else(|| count(WEIGHTED)).map(grouped);
    match (count(OFFSETS).map(|n| grouped(n.saturating_sub(1))), edges) {
        (Some(vertices), Some(edges)) => {
            format!(
                "a graph of {vertices} vertices and {edges} stored edges, which differs from the graph to be stored"
            )
        }
        (None, Some(edges)) => format!("a graph of {edges} stored edges, which differs from the graph to be stored"),
        _ => {
            let names: Vec<String> = manifest.entries().iter().map(|e| format!("`{}`", e.name)).collect();
            format!("stored arrays ({})", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::graph::{CsrOptions, GraphOnEngine, Placement, hub};
    use crate::storage::{Cache, Drive, OverwritePolicy};

    fn graph(edges: &[(u64, u64)], directed: bool) -> Csr {
        let mut csr = Csr::from_edges(40, edges, CsrOptions { directed, ..Default::default() }).unwrap();
        hub::order_by_degree(&mut csr);
        csr
    }

    fn place(volume: &Volume, csr: &Csr, needs: PlacementOptions) {
        let cache = Cache::on(volume).bytes(1 << 20).build().unwrap();
        GraphOnEngine::place(volume.engine(), csr, Placement::Storage(cache), needs).unwrap();
    }

    #[test]
    fn a_volume_takes_the_same_graph_again_and_no_other() {
        let engine = Engine::cpu().unwrap();
        let edges: Vec<_> = (0..39).flat_map(|v| [(v, v + 1), (v, (v * 7) % 40)]).collect();
        let mut turned = edges.clone();
        turned[20] = (turned[20].1, turned[20].0);
        for needs in [PlacementOptions::BFS, PlacementOptions::SSSP, PlacementOptions::ALL] {
            for (devices, copies) in [(1, false), (3, false), (3, true)] {
                let drives = (0..devices).map(|_| Drive::open("soft:mem:4M").unwrap());
                let volume = Volume::on(&engine, drives).chunk(8192).replicated(copies).build().unwrap();
                let (own, other) = (graph(&edges, true), graph(&turned, true));
                let check = |csr: &Csr, needs| GraphOnEngine::check_volume(&volume, csr, needs);
                check(&own, needs).unwrap();
                place(&volume, &own, needs);
                check(&own, needs).unwrap();
                let text = check(&other, needs).unwrap_err().to_string();
                assert!(text.contains("stored edges") && text.contains("nothing was written"), "{text}");
                assert!(check(&own, PlacementOptions::COMPONENTS).is_err(), "a part of what is there");
                assert!(check(&graph(&edges, false), needs).is_err());
            }
        }
    }

    #[test]
    fn what_lies_on_one_device_of_several_is_seen() {
        let engine = Engine::cpu().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let spec = |name: &str| format!("soft:{}", folder.path().join(name).display());
        let csr = graph(&[(0, 1), (1, 2)], false);
        let create = |name: &str, policy: &OverwritePolicy| Drive::create(&spec(name), 1 << 20, policy).unwrap();
        place(
            &Volume::on(&engine, [create("b", &OverwritePolicy::none())]).build().unwrap(),
            &csr,
            PlacementOptions::BFS,
        );
        let on = |policy: &OverwritePolicy, copies| {
            let volume = Volume::on(&engine, [create("a", policy), create("b", policy)]).replicated(copies);
            GraphOnEngine::check_volume(&volume.build().unwrap(), &csr, PlacementOptions::BFS)
        };
        // Device `b` holds the content of a replicated volume, but not that of a stripe.
        on(&OverwritePolicy::none(), true).unwrap();
        let error = on(&OverwritePolicy::none(), false).unwrap_err();
        assert!(matches!(&error, GraphError::Occupied { device, .. } if device.ends_with("b")), "{error}");
        let named = OverwritePolicy::to_destroy([folder.path().join("b")]);
        on(&named, false).unwrap();
        assert!(on(&OverwritePolicy::to_destroy([folder.path().join("a")]), false).is_err());
    }

    #[test]
    fn arrays_of_others_and_damaged_manifests_are_named() {
        let volume = Volume::on(&Engine::cpu().unwrap(), [Drive::open("soft:mem:1M").unwrap()]).build().unwrap();
        let csr = graph(&[(0, 1)], false);
        let refused = || GraphOnEngine::check_volume(&volume, &csr, PlacementOptions::BFS).unwrap_err().to_string();
        volume.store_array("ranks", &[1u8]).unwrap();
        assert_eq!(refused(), "soft:mem:1M: it holds stored arrays (`ranks`); nothing was written");
        volume.write_bytes(70, b"damage").unwrap();
        assert!(refused().contains("cannot be read"), "{}", refused());
    }
}
