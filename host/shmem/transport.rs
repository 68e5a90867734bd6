//! Names of the transports between PEs, as users write them.

use crate::rdma;
use crate::suggest::hint;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The transport by which different PEs access each other's heaps.
///
/// A world has exactly one RDMA adapter for each PE. Atomic operations of two adapters on one word are not atomic with
/// respect to each other. So each pair of PEs uses either [`Transport::Peer`] or the world's one other transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Transport {
    /// Loads and stores where they reach, otherwise the first of `Mlx5`, `Verbs` and `Soft` that every PE has.
    #[default]
    Auto,
    /// Loads, stores and atomics on the mapped heap.
    Peer,
    /// An mlx5 NIC that kernels drive directly.
    Mlx5,
    /// Any RDMA device of libibverbs; a CPU thread makes the verbs calls.
    Verbs,
    /// The software NIC: CPU threads move the data. They use Unix sockets or shared addresses on one host, and TCP
    /// between hosts.
    Soft,
}

impl Transport {
    /// All transports.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Peer, Self::Mlx5, Self::Verbs, Self::Soft];

    /// Returns the kind of adapter that the transport needs, or `None` for [`Transport::Auto`] and [`Transport::Peer`].
    pub fn adapter(self) -> Option<rdma::Transport> {
        match self {
            Self::Auto | Self::Peer => None,
            Self::Mlx5 => Some(rdma::Transport::Mlx5),
            Self::Verbs => Some(rdma::Transport::Verbs),
            Self::Soft => Some(rdma::Transport::Soft),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Peer => "peer",
            Self::Mlx5 => "mlx5",
            Self::Verbs => "verbs",
            Self::Soft => "soft",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<rdma::Transport> for Transport {
    fn from(adapter: rdma::Transport) -> Self {
        match adapter {
            rdma::Transport::Mlx5 => Self::Mlx5,
            rdma::Transport::Verbs => Self::Verbs,
            rdma::Transport::Soft => Self::Soft,
        }
    }
}

/// The error for a transport name that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no transport: write auto, peer, mlx5, verbs or soft{}", .0, hint(.0, Transport::ALL.map(Transport::name)))]
pub struct NoSuchTransport(String);

impl FromStr for Transport {
    type Err = NoSuchTransport;

    fn from_str(s: &str) -> Result<Self, NoSuchTransport> {
        let name = s.trim().to_ascii_lowercase();
        Self::ALL.into_iter().find(|t| t.name() == name).ok_or_else(|| NoSuchTransport(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_have_names() {
        for transport in Transport::ALL {
            assert_eq!(transport.to_string().parse(), Ok(transport));
            assert_eq!(serde_json::to_value(transport).unwrap(), transport.to_string());
            if let Some(adapter) = transport.adapter() {
                assert_eq!((Transport::from(adapter), adapter.to_string()), (transport, transport.to_string()));
            }
        }
        assert_eq!(" Soft ".parse(), Ok(Transport::Soft));
        let e = "tcp".parse::<Transport>().unwrap_err().to_string();
        assert!(e.contains("`tcp`") && e.contains("mlx5, verbs or soft"), "{e}");
    }
}
