//! Operation of a running command: messages of the library, metrics, and lines of statistics.

mod every;
mod http;
mod log;
mod rates;
mod server;
mod socket;
mod token;
pub mod top;

pub use log::{LogFormat, PROGRESS};
pub use socket::remove as remove_socket;

use crate::args::Command;
use crate::output::Failure;
use crate::world::launched;
use clap::Args;
use serde::{Deserialize, Serialize};
use server::{Listener, Server, Shown};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use warpbell::metrics::{self, Snapshot};
use warpbell::units::parse_duration;

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Operation")]
pub struct OperationArgs {
    /// Messages of the library to print on standard error: off, error, warn, info, debug or trace, or directives such as
    /// warn,warpbell::nvme=debug [default: warn]
    #[arg(long, global = true, value_name = "LEVEL", env = log::LOG, hide_env_values = true, value_parser = filter)]
    log: Option<String>,
    /// Format of these messages
    #[arg(long, global = true, value_enum, value_name = "text|json", env = log::FORMAT, hide_env_values = true, hide_possible_values = true, default_value = "text")]
    log_format: LogFormat,
    /// Serve counters for Prometheus at http://ADDRESS/metrics: a port of this host, or ADDRESS:PORT. Port 0 takes a free
    /// one. A rank of a world adds its number on this host to the port
    #[arg(long, global = true, value_name = "ADDRESS", env = METRICS, hide_env_values = true, value_parser = address)]
    metrics: Option<SocketAddr>,
    /// File with the token that readers of the metrics send (Authorization: Bearer TOKEN); needed for an address that is
    /// not a loopback one
    #[arg(long, global = true, value_name = "FILE", env = TOKEN_FILE, hide_env_values = true)]
    metrics_token_file: Option<PathBuf>,
    /// Print a line of statistics on standard error each TIME, as in 10s
    #[arg(long, global = true, value_name = "TIME", env = EVERY, hide_env_values = true, value_parser = interval)]
    stats_every: Option<Duration>,
}

const METRICS: &str = "WARPBELL_METRICS";
const TOKEN_FILE: &str = "WARPBELL_METRICS_TOKEN_FILE";
const EVERY: &str = "WARPBELL_STATS_EVERY";

fn filter(text: &str) -> Result<String, String> {
    match log::parsed(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(e) => Err(format!("{e}; write a level, or directives such as warn,warpbell::nvme=debug")),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| "write a port, or an address with a port, as in 127.0.0.1:9464 or [::1]:9464".to_owned())
}

/// Shortest interval of `--stats-every` and of `top`.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(d) if d >= LEAST_INTERVAL => Ok(d),
        Ok(_) => Err("write at least 100ms".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

/// A process and its counters, as `warpbell top` reads them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Observed {
    /// Number of the process.
    pub pid: u32,
    /// Words of the command, as in `bench nvme`.
    pub command: String,
    #[serde(flatten)]
    pub counters: Snapshot,
}

/// Ends with the command: the threads that show its counters.
#[must_use]
pub struct Operation {
    _server: Option<Server>,
    _every: Option<every::Every>,
    _socket: Option<socket::Place>,
}

impl OperationArgs {
    /// Passes the options on to the ranks that this process will start, by their environment variables.
    ///
    /// # Safety
    /// This must be the only thread of the process.
    pub unsafe fn pass_on(&self) {
        let text = |d: &Duration| format!("{}us", d.as_micros());
        let format = (self.log_format == LogFormat::Json).then(|| "json".into());
        let variables: [(&str, Option<std::ffi::OsString>); 5] = [
            (log::LOG, self.log.clone().map(Into::into)),
            (log::FORMAT, format),
            (METRICS, self.metrics.map(|a| a.to_string().into())),
            (TOKEN_FILE, self.metrics_token_file.clone().map(Into::into)),
            (EVERY, self.stats_every.as_ref().map(|d| text(d).into())),
        ];
        for (name, value) in variables {
            if let Some(value) = value {
                // SAFETY: the caller's promise.
                unsafe { std::env::set_var(name, value) };
            }
        }
    }

    /// Prints messages of the library from now on.
    pub fn start_log(&self) {
        log::start(self.log.as_deref(), self.log_format);
    }

    /// Starts what the options ask for, and the socket of `warpbell top` for commands that move data.
    ///
    /// # Errors
    /// [`Failure::Usage`] if the address of the metrics needs a token. [`Failure::Error`] if the token cannot be read,
    /// or the address cannot be listened on.
    pub fn start(&self, command: &Command, words: &str) -> Result<Operation, Failure> {
        let mut listeners = Vec::new();
        // Ranks are other programs, which have these options themselves.
        let is_long = matches!(command, Command::Graph(_) | Command::Bench(_) | Command::Table(_) | Command::Volume(_));
        let starts_others = matches!(command, Command::Run(_) | Command::Accept(_) | Command::Top(_));
        if let (Some(address), false) = (self.metrics, starts_others) {
            listeners.push(self.listen(address)?);
        }
        // Without it the command runs all the same, and `top` does not show it.
        let socket = if is_long { socket::Place::new().ok() } else { None };
        listeners.extend(socket.as_ref().and_then(|s| s.listener().ok()));
        let shown = Shown { pid: std::process::id(), command: words.to_owned() };
        let server = if listeners.is_empty() { None } else { Some(Server::start(listeners, shown)?) };
        let every = match self.stats_every {
            Some(interval) if !starts_others => Some(every::Every::start(interval)?),
            _ => None,
        };
        Ok(Operation { _server: server, _every: every, _socket: socket })
    }

    fn listen(&self, mut address: SocketAddr) -> Result<Listener, Failure> {
        let token = self.metrics_token_file.as_deref().map(token::read).transpose()?;
        if token.is_none() && !is_loopback(address.ip()) {
            return Err(Failure::Usage(format!(
                "--metrics {address} is not a loopback address; name a file with a token by --metrics-token-file, or use 127.0.0.1:{}",
                address.port()
            )));
        }
        if let (Some(launched), 1..) = (launched()?, address.port()) {
            let rank = launched.local_rank.unwrap_or(launched.rank);
            let port = u16::try_from(rank).ok().and_then(|r| address.port().checked_add(r)).ok_or_else(|| {
                Failure::Usage(format!("--metrics {address}: rank {rank} has no port above it; use a lower port"))
            })?;
            address.set_port(port);
        }
        let (listener, bound) = Listener::tcp(address, token).map_err(|e| {
            Failure::Error(format!(
                "--metrics {address} cannot be listened on: {e}; use another port, or 0 for a free one"
            ))
        })?;
        eprintln!("metrics at http://{bound}/metrics");
        Ok(listener)
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(v6.is_loopback(), |v4| v4.is_loopback()),
        IpAddr::V4(v4) => v4.is_loopback(),
    }
}

impl Shown {
    /// Reads the counters of this process.
    fn observe(&self) -> Observed {
        Observed { pid: self.pid, command: self.command.clone(), counters: metrics::snapshot() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ports_or_addresses_with_ports() {
        for (text, expected) in [
            ("9464", "127.0.0.1:9464"),
            (":0", "127.0.0.1:0"),
            ("localhost:1", "127.0.0.1:1"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:9464", "[::1]:9464"),
        ] {
            assert_eq!(address(text), Ok(expected.parse().unwrap()), "{text}");
        }
        for bad in ["", "localhost", "127.0.0.1", "70000", "host:80", "::1"] {
            assert!(address(bad).is_err(), "{bad}");
        }
        assert!(is_loopback("::ffff:127.0.0.1".parse().unwrap()) && !is_loopback("::".parse().unwrap()));
    }

    #[test]
    fn filters_are_levels_or_directives() {
        assert!(["warn", "off", "info,warpbell::nvme=debug", ""].iter().all(|t| filter(t).is_ok()));
        assert!(filter("warn,=,[").is_err());
    }
}
