//! The transports that are available on this machine.

use super::open::{Opening, candidates, open};
use crate::memory::Space;
use crate::rdma::AdapterPath;
use crate::shmem::Transport;
use crate::shmem::bootstrap::random_key;
use serde::Serialize;

/// The availability of one transport between PEs that loads and stores do not reach.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TransportFacts {
    /// The transport.
    pub transport: Transport,
    /// The path of work requests, if the transport is available.
    pub path: Option<AdapterPath>,
    /// The reason why the transport is not available, with a remedy.
    pub reason: Option<String>,
}

/// Opens an adapter of each transport for kernels of this space, and closes it again. Returns the transports in order
/// of preference.
pub fn transports(space: &Space) -> Vec<TransportFacts> {
    let one = |adapter| {
        let opening =
            Opening { space: space.clone(), key: random_key().ok(), address: None, across: false, sharers: 1 };
        let (path, reason) = match open(adapter, &opening) {
            Ok(adapter) => (Some(adapter.path()), None),
            Err(e) => (None, Some(e.to_string())),
        };
        TransportFacts { transport: adapter.into(), path, reason }
    };
    candidates(None).into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_software_nic_is_everywhere() {
        let all = transports(&Space::cpu());
        let names: Vec<Transport> = all.iter().map(|t| t.transport).collect();
        assert_eq!(names, [Transport::Mlx5, Transport::Verbs, Transport::Soft]);
        for t in &all {
            assert_ne!(t.path.is_some(), t.reason.is_some(), "{t:?}");
        }
        assert!(all[2].path.is_some(), "{:?}", all[2].reason);
    }
}
