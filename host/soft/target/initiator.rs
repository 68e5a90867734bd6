//! Use of a software target's device over software NICs.

#[cfg(feature = "internals")]
use crate::nvme::fabrics::{self, ConnectReport};
use crate::nvme::fabrics::{FabricsConfig, FabricsError, Transport};
use crate::remote::{RdmaTransport, RemoteController};
use crate::soft::nic::SoftConnectionManager;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Starts a software NIC that reaches all ports of a configuration.
fn transport(config: &FabricsConfig) -> Result<Arc<dyn Transport>, FabricsError> {
    let is_near = |host: &str| host.parse::<IpAddr>().is_ok_and(|a| a.is_loopback()) || host == "localhost";
    let near = config.addresses().all(|port| is_near(&port.host));
    let manager = SoftConnectionManager::new(|mut nic| {
        nic.threads = 1;
        // A target of another machine connects to this one's NIC, too.
        nic.listen = (!near).then(|| Ipv6Addr::UNSPECIFIED.into());
        nic
    });
    let manager = manager.map_err(|e| FabricsError::Adapter { peer: config.host.clone(), reason: e.to_string() })?;
    Ok(Arc::new(RdmaTransport::new(Arc::new(manager))))
}

/// Connects to a software target over software NICs, as [`RemoteController::connect`] does over TCP.
///
/// # Errors
/// As [`RemoteController::connect`]; also [`FabricsError::Rejected`] if the target rejects a queue's connection request,
/// and [`FabricsError::Adapter`] if the NIC of this process fails.
pub fn connect(config: &FabricsConfig) -> Result<RemoteController, FabricsError> {
    RemoteController::connect_over(config, transport(config)?)
}

/// Checks a connection to a software target over software NICs, as [`fabrics::check`] does over TCP.
///
/// # Errors
/// As [`connect`].
#[cfg(feature = "internals")]
pub fn check(config: &FabricsConfig) -> Result<ConnectReport, FabricsError> {
    fabrics::check_over(config, transport(config)?)
}
