//! Addresses of PCI functions.

use std::fmt;
use std::str::FromStr;

/// Address of a PCI function: domain, bus, device and function, as in `0000:65:00.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bdf {
    /// Domain (segment).
    pub domain: u16,
    /// Bus.
    pub bus: u8,
    /// Device, 0 to 31.
    pub device: u8,
    /// Function, 0 to 7.
    pub function: u8,
}

/// Error of a text that is not a PCI address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a PCI address; write domain:bus:device.function in hexadecimal, as in 0000:65:00.0")]
pub struct ParseBdfError(String);

impl FromStr for Bdf {
    type Err = ParseBdfError;

    /// Parses `0000:65:00.0`, or the short form `65:00.0` for domain 0.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (rest, function) = text.rsplit_once('.')?;
            let (rest, device) = rest.rsplit_once(':')?;
            let (domain, bus) = rest.rsplit_once(':').unwrap_or(("0", rest));
            let hex = |t: &str, max: u32| {
                let plain = !t.is_empty() && t.bytes().all(|b| b.is_ascii_hexdigit());
                u32::from_str_radix(t, 16).ok().filter(|v| plain && *v <= max)
            };
            Some(Bdf {
                domain: hex(domain, 0xffff)? as u16,
                bus: hex(bus, 0xff)? as u8,
                device: hex(device, 31)? as u8,
                function: hex(function, 7)? as u8,
            })
        };
        parse().ok_or_else(|| ParseBdfError(text.to_owned()))
    }
}

impl fmt::Display for Bdf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{}", self.domain, self.bus, self.device, self.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn short_and_long_forms() {
        let b: Bdf = "65:00.1".parse().unwrap();
        assert_eq!(b.to_string(), "0000:65:00.1");
        assert_eq!("0000:65:00.1".parse(), Ok(b));
    }

    #[test]
    fn refuses_what_is_not_an_address() {
        for t in ["", ":", "65:00", "65:00.8", "65:20.0", "100:00:00.0.0", "+1:00.0", "10000:00:00.0", "0:0:0:0.0"] {
            assert!(t.parse::<Bdf>().is_err(), "{t}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(domain: u16, bus: u8, device in 0u8..32, function in 0u8..8) {
            let b = Bdf { domain, bus, device, function };
            prop_assert_eq!(b.to_string().parse::<Bdf>().unwrap(), b);
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Bdf>();
        }
    }
}
