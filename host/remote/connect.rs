//! Use of controllers of other machines over TCP, or over RDMA by the devices of this machine.

use super::bridge::RemoteController;
#[cfg(feature = "shmem")]
use super::rdma::transport;
#[cfg(any(feature = "internals", not(feature = "shmem")))]
use crate::nvme::fabrics;
#[cfg(feature = "internals")]
use crate::nvme::fabrics::ConnectReport;
use crate::nvme::fabrics::{FabricsConfig, FabricsError, FabricsTransport};
#[cfg(feature = "internals")]
use crate::wire::nvme::fabrics::DiscoveryRecord;

#[cfg(not(feature = "shmem"))]
fn transport(_: &FabricsConfig) -> Result<std::sync::Arc<dyn fabrics::Transport>, FabricsError> {
    let reason = "nvmf:rdma needs RDMA adapters: build with the feature `shmem`".to_owned();
    Err(FabricsError::Options { reason })
}

/// Connects to a subsystem by the configuration's transport, TCP or RDMA.
///
/// # Errors
/// As [`RemoteController::connect`]. Over RDMA also [`FabricsError::Rejected`] if the target rejects a queue's connection
/// request, [`FabricsError::Adapter`] if librdmacm is missing or the RDMA device fails, and [`FabricsError::Options`] for
/// [`FabricsTransport::Soft`].
pub fn connect(config: &FabricsConfig) -> Result<RemoteController, FabricsError> {
    match config.transport {
        FabricsTransport::Tcp => RemoteController::connect(config),
        _ => RemoteController::connect_over(config, transport(config)?),
    }
}

/// Checks a connection by the configuration's transport, as [`fabrics::check`] does over TCP.
///
/// # Errors
/// As [`connect`].
#[cfg(feature = "internals")]
pub fn check(config: &FabricsConfig) -> Result<ConnectReport, FabricsError> {
    match config.transport {
        FabricsTransport::Tcp => fabrics::check(config),
        _ => fabrics::check_over(config, transport(config)?),
    }
}

/// Returns the subsystems that the discovery controller at an address reports, as [`fabrics::discover`] does over TCP.
/// `address` is `HOST[:PORT]`, with `tcp://` or `rdma://` before it or not.
///
/// # Errors
/// As [`fabrics::discover`], and over RDMA those of [`connect`].
#[cfg(feature = "internals")]
pub fn discover(
    transport: FabricsTransport,
    address: &str,
    adjust: impl Fn(FabricsConfig) -> FabricsConfig,
) -> Result<Vec<DiscoveryRecord>, FabricsError> {
    match transport {
        FabricsTransport::Tcp => fabrics::discover(address, adjust),
        _ => fabrics::discover_over(transport, address, adjust, self::transport),
    }
}

#[cfg(all(test, feature = "shmem", feature = "internals"))]
mod tests {
    use super::*;
    use crate::remote::route;
    use std::time::Duration;

    #[test]
    fn a_machine_without_rdma_refuses_by_name() {
        let config = FabricsConfig::tcp("127.0.0.1", 4420, "nqn.2026-01.org.example:data")
            .connect_timeout(Duration::from_secs(1));
        let soft = check(&config.clone().transport(FabricsTransport::Soft)).unwrap_err();
        assert!(matches!(soft, FabricsError::Options { .. }), "{soft}");
        if std::path::Path::new("/sys/class/infiniband").exists() {
            return;
        }
        let rdma = config.transport(FabricsTransport::Rdma);
        for e in [
            connect(&rdma).unwrap_err(),
            check(&rdma).unwrap_err(),
            discover(FabricsTransport::Rdma, "rdma://127.0.0.1", |c| c).unwrap_err(),
            route(&rdma).unwrap_err(),
        ] {
            assert!(matches!(e, FabricsError::Adapter { .. }), "{e:?}");
            assert!(e.to_string().contains("rdma"), "{e}");
        }
    }
}
