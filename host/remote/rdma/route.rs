//! RDMA devices of this machine, and the paths by them to a target.

use super::transport::{RdmaTransport, of_request};
use crate::nvme::fabrics::{AdapterChoice, FabricsConfig, FabricsError, FabricsTransport, Transport};
use crate::rdma::{self, Destination, DeviceConnectionManager};
#[cfg(feature = "internals")]
use crate::rdma::{AdapterPath, ConnectionManager};
#[cfg(feature = "internals")]
use std::io::ErrorKind;
#[cfg(feature = "internals")]
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;

/// Opens the RDMA device on the route to a configuration's target: to the first of its ports that has one.
fn manager(config: &FabricsConfig) -> Result<DeviceConnectionManager, FabricsError> {
    if config.transport == FabricsTransport::Soft {
        let reason = "nvmf:soft is carried by software NICs, and not by a device of this machine".to_owned();
        return Err(FabricsError::Options { reason });
    }
    let adapter = match config.adapter {
        AdapterChoice::Auto => None,
        AdapterChoice::Mlx5 => Some(rdma::Transport::Mlx5),
        AdapterChoice::Verbs => Some(rdma::Transport::Verbs),
    };
    let mut causes = Vec::new();
    for port in config.for_each_port() {
        let to = Destination { host: &port.host, port: port.port };
        match DeviceConnectionManager::new(to, adapter, config.connect_timeout) {
            Ok(manager) => return Ok(manager),
            Err(e) => causes.push(of_request(&port, 0, e)),
        }
    }
    Err(FabricsError::of_ports(&config.subsystem, causes))
}

/// Returns the transport over the RDMA device on the route to a configuration's target.
pub(crate) fn transport(config: &FabricsConfig) -> Result<Arc<dyn Transport>, FabricsError> {
    Ok(Arc::new(RdmaTransport::new(Arc::new(manager(config)?))))
}

/// Path to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg(feature = "internals")]
pub struct TargetRoute {
    /// The path in words: over TCP this machine's address, over RDMA the device, its GID and its MTU.
    pub text: String,
    /// Over RDMA, the adapter.
    pub adapter: Option<AdapterPath>,
    /// Over RDMA, the reason why kernels do not drive the device, if it is an mlx5 NIC and no adapter was requested.
    pub declined: Option<String>,
}

/// Returns the path to a configuration's target. Sends nothing over TCP, and no connection request over RDMA.
///
/// # Errors
/// [`FabricsError::Resolve`], [`FabricsError::Unreachable`] or [`FabricsError::TimedOut`] without a route. Over RDMA also
/// [`FabricsError::Adapter`] and [`FabricsError::Options`], as for [`connect`](crate::remote::connect).
#[cfg(feature = "internals")]
pub fn route(config: &FabricsConfig) -> Result<TargetRoute, FabricsError> {
    if config.transport != FabricsTransport::Tcp {
        let manager = manager(config)?;
        let (path, declined) = (manager.path(), manager.declined().map(str::to_owned));
        return Ok(TargetRoute { text: format!("{} ({})", path.device, path.link), adapter: Some(path), declined });
    }
    let resolve = |source| FabricsError::Resolve { host: config.host.clone(), source };
    let unreachable = |source| FabricsError::Unreachable { peer: config.peer(), source };
    let to = (config.host.as_str(), config.port).to_socket_addrs().map_err(resolve)?.next();
    let to = to.ok_or_else(|| resolve(ErrorKind::NotFound.into()))?;
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    // A datagram socket that is connected has this machine's address on the route.
    let socket = UdpSocket::bind((any, 0)).map_err(unreachable)?;
    socket.connect(to).map_err(unreachable)?;
    let text = format!("{} from {}", to.ip(), socket.local_addr().map_err(unreachable)?.ip());
    Ok(TargetRoute { text, adapter: None, declined: None })
}
