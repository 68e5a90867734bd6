//! Single variables: access, and checks of their values.

use super::Environment;
use crate::engine::abi::MAX_PES;
use crate::shmem::bootstrap::BootstrapError;

/// Returns the value of a variable, or `None` if it is unset or blank.
pub(super) fn get<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.get(name).map(|v| v.trim()).filter(|v| !v.is_empty())
}

pub(super) fn half(via: &'static str, set: &str, missing: &'static str, next: &'static str) -> BootstrapError {
    BootstrapError::HalfSet { via, set: set.to_owned(), missing, next }
}

pub(super) fn number(variable: &str, value: &str) -> Result<usize, BootstrapError> {
    let digits = value.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| value.parse().ok()).flatten().ok_or_else(|| BootstrapError::Variable {
        variable: variable.to_owned(),
        value: value.to_owned(),
        expected: "write a number of at least 0".to_owned(),
    })
}

pub(super) fn size(variable: &str, value: &str) -> Result<usize, BootstrapError> {
    match number(variable, value)? {
        n if (1..=MAX_PES).contains(&n) => Ok(n),
        _ => Err(BootstrapError::Variable {
            variable: variable.to_owned(),
            value: value.to_owned(),
            expected: format!("a world has 1 to {MAX_PES} ranks"),
        }),
    }
}

pub(super) fn port(variable: &str, value: &str) -> Result<u16, BootstrapError> {
    value.parse().ok().filter(|p| *p > 0).ok_or_else(|| BootstrapError::Variable {
        variable: variable.to_owned(),
        value: value.to_owned(),
        expected: "write a port, 1 to 65535".to_owned(),
    })
}

/// Checks a `host:port`.
pub(super) fn address(variable: &str, value: &str) -> Result<String, BootstrapError> {
    let wrong = || BootstrapError::Variable {
        variable: variable.to_owned(),
        value: value.to_owned(),
        expected: "write host:port, as in node1:20711 or [fd00::1]:20711".to_owned(),
    };
    let (host, number) = value.rsplit_once(':').ok_or_else(wrong)?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    // A colon in a host without brackets means that the port is missing behind an IPv6 address.
    if host.is_empty() || bare.is_none() && host.contains([':', '[', ']']) || host.contains(char::is_whitespace) {
        return Err(wrong());
    }
    port(variable, number).map_err(|_| wrong())?;
    Ok(value.to_owned())
}

/// Returns `host:port`, with brackets if the host is an IPv6 address.
pub(super) fn address_of(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
