//! Addresses of subsystems on other machines: `tcp://HOST[:PORT]/NQN`, and others with `rdma` or `soft` in place of `tcp`.

use super::escape::escape;
use std::fmt;

/// Transport to a subsystem of another machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FabricsTransport {
    /// NVMe over TCP.
    Tcp,
    /// NVMe over RDMA, by the RDMA devices of this machine.
    Rdma,
    /// NVMe over RDMA between software NICs, whose target is a software target.
    Soft,
}

impl FabricsTransport {
    const ALL: [Self; 3] = [Self::Tcp, Self::Rdma, Self::Soft];
}

impl fmt::Display for FabricsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Rdma => "rdma",
            Self::Soft => "soft",
        })
    }
}

/// Port of NVMe over Fabrics (NVMe/TCP Transport 1.1, 3.1.1).
const PORT: u16 = 4420;

/// Address of a port of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortAddress {
    /// Name or IP address of the machine, without brackets.
    pub host: String,
    /// Port: that of TCP, or of RDMA's connection manager.
    pub port: u16,
}

impl PortAddress {
    /// Parses `HOST[:PORT]`. An IPv6 address stands in brackets, and the default port is 4420. The error is the reason.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let (host, port) = host_and_port(text)?;
        Ok(Self { host, port: port.unwrap_or(PORT) })
    }
}

impl fmt::Display for PortAddress {
    /// Prints `HOST:PORT`, with brackets around an IPv6 address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// A subsystem at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteName {
    /// Transport.
    pub transport: FabricsTransport,
    /// Address of the port.
    pub address: PortAddress,
    /// Name of the subsystem (NQN).
    pub subsystem: String,
}

impl RemoteName {
    /// Parses `TRANSPORT://HOST[:PORT]/NQN`. An IPv6 address stands in brackets. The error is the reason.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let known = |(scheme, rest)| {
            let transport = FabricsTransport::ALL.into_iter().find(|t| t.to_string() == scheme)?;
            Some((transport, rest))
        };
        let (transport, rest): (_, &str) =
            text.split_once("://").and_then(known).unwrap_or((FabricsTransport::Tcp, ""));
        let (address, subsystem) = rest
            .split_once('/')
            .ok_or("expected tcp://HOST:PORT/NQN or rdma://HOST:PORT/NQN, as in tcp://10.0.0.2:4420/nqn.2026-01.org.example:data")?;
        let address = PortAddress::read(address)?;
        if subsystem.is_empty() {
            return Err("the name of the subsystem (NQN) is missing behind the slash".to_owned());
        }
        Ok(Self { transport, address, subsystem: subsystem.to_owned() })
    }
}

/// Parses `HOST[:PORT]`, with brackets around an IPv6 address. The error is the reason.
pub(crate) fn host_and_port(address: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or("the bracket of an IPv6 address is not closed")?;
            match (rest, rest.strip_prefix(':')) {
                ("", _) => (host, None),
                (_, Some(port)) => (host, Some(port)),
                _ => return Err("expected :PORT behind the bracket of an IPv6 address".to_owned()),
            }
        }
        None => match address.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err("an IPv6 address stands in brackets, as in [::1]:4420".to_owned());
            }
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    if host.is_empty() || host.contains(['[', ']', '/']) || host.chars().any(char::is_whitespace) {
        return Err("the name or address of the machine is missing or invalid".to_owned());
    }
    let port = match port {
        None => None,
        Some(p) => {
            let port = super::number::<u16>(p).filter(|p| *p > 0);
            Some(port.ok_or_else(|| format!("`{p}` is not a port, 1 to 65535"))?)
        }
    };
    Ok((host.to_owned(), port))
}

impl fmt::Display for RemoteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, address, subsystem } = self;
        let text = format!("{transport}://{address}/{subsystem}");
        f.write_str(&escape(text.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_printed() {
        for (text, host, port, subsystem, printed) in [
            ("tcp://h/n", "h", 4420, "n", "tcp://h:4420/n"),
            ("tcp://10.0.0.2:9/nqn.a:b/c", "10.0.0.2", 9, "nqn.a:b/c", "tcp://10.0.0.2:9/nqn.a:b/c"),
            ("tcp://[fe80::1]/n", "fe80::1", 4420, "n", "tcp://[fe80::1]:4420/n"),
            ("tcp://[::1]:1/n,m", "::1", 1, "n,m", r"tcp://[::1]:1/n\,m"),
            ("rdma://h/n", "h", 4420, "n", "rdma://h:4420/n"),
        ] {
            let read = RemoteName::read(text).unwrap();
            let PortAddress { host: read_host, port: read_port } = &read.address;
            assert_eq!((read_host.as_str(), *read_port, read.subsystem.as_str()), (host, port, subsystem));
            assert_eq!(read.to_string(), printed);
        }
        for (text, word) in [
            ("h/n", "tcp://"),
            ("fc://h/n", "rdma://"),
            ("tcp://h", "tcp://"),
            ("tcp://h/", "NQN"),
            ("tcp:///n", "missing"),
            ("tcp://h:0/n", "`0`"),
            ("tcp://h:x/n", "`x`"),
            ("tcp://::1/n", "brackets"),
            ("tcp://[::1/n", "not closed"),
            ("tcp://[::1]4420/n", ":PORT"),
        ] {
            let said = RemoteName::read(text).unwrap_err();
            assert!(said.contains(word), "{text}: {said}");
        }
    }
}
