//! Sizes, shares, durations and counts as users write and read them.

use crate::failure::{ErrorKind, Failure};
use crate::remedy::Remedies;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Error of reading a value that a user typed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// The text is not a size.
    #[error("`{0}` is not a size: write a whole number with k, M, G or T (powers of 1,024), as in 4k or 64M")]
    Size(String),
    /// The size does not fit into 64 bits.
    #[error("`{0}` is more bytes than 64 bits can count")]
    TooLarge(String),
    /// The text is not a share.
    #[error("`{0}` is not a share: write a percentage above 0, at most 100, as in 25%")]
    #[cfg_attr(not(feature = "internals"), allow(dead_code, reason = "for tests and tools"))]
    Share(String),
    /// The text is not a duration.
    #[error("`{0}` is not a time: write a number with ms, s or m, as in 500ms or 10s")]
    Duration(String),
}

impl Remedies for UnitError {}

impl Failure for UnitError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Size(_) | Self::TooLarge(_) | Self::Share(_) | Self::Duration(_) => ErrorKind::Argument,
        }
    }
}

/// A number of bytes. Suffixes are binary, as in fio: `4k`, `64M`, `1G` (also `4K`, `4KiB`, `4096`).
///
/// # Examples
///
/// ```
/// use warpbell::units::Bytes;
///
/// let size: Bytes = "64M".parse()?;
/// assert_eq!(size, Bytes(64 << 20));
/// assert_eq!(Bytes(4096).to_string(), "4 KiB");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// Binary units: suffix in lower case as typed, name as printed, log2 of the unit.
const STEPS: [(&str, &str, u32); 5] =
    [("p", "PiB", 50), ("t", "TiB", 40), ("g", "GiB", 30), ("m", "MiB", 20), ("k", "KiB", 10)];

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(s: &str) -> Result<Self, UnitError> {
        let typed = s.trim();
        let digits = typed.bytes().take_while(u8::is_ascii_digit).count();
        let (number, suffix) = typed.split_at(digits);
        if number.is_empty() {
            return Err(UnitError::Size(s.to_owned()));
        }
        let suffix = suffix.trim_start().to_ascii_lowercase();
        let unit = suffix.strip_suffix("ib").or_else(|| suffix.strip_suffix('b')).unwrap_or(&suffix);
        let shift = match unit {
            // `4ib` is no unit: the letter before `ib` is missing.
            "" if suffix == "ib" => return Err(UnitError::Size(s.to_owned())),
            "" => 0,
            u => STEPS.iter().find(|(t, ..)| *t == u).ok_or_else(|| UnitError::Size(s.to_owned()))?.2,
        };
        let number: u64 = number.parse().map_err(|_| UnitError::TooLarge(s.to_owned()))?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(|| UnitError::TooLarge(s.to_owned()))
    }
}

impl fmt::Display for Bytes {
    /// Prints `4 KiB`, `1.4 MiB`, `512 B`: one decimal unless it is a whole number of the unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((_, name, shift)) = STEPS.iter().find(|(.., shift)| self.0 >= 1 << shift) else {
            return write!(f, "{} B", self.0);
        };
        let unit = 1u64 << shift;
        if self.0.is_multiple_of(unit) {
            write!(f, "{} {name}", self.0 >> shift)
        } else {
            write!(f, "{:.1} {name}", self.0 as f64 / unit as f64)
        }
    }
}

/// A number of bytes, or a share of a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg(feature = "internals")]
pub enum BytesOrShare {
    /// This number of bytes.
    Bytes(Bytes),
    /// This share of a whole: above 0, at most 1.
    Share(f64),
}

#[cfg(feature = "internals")]
impl BytesOrShare {
    /// Returns the number of bytes for a whole of `whole` bytes. A share is rounded up.
    #[cfg(feature = "internals")]
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(b) => b.0,
            Self::Share(s) => (whole as f64 * s).ceil() as u64,
        }
    }
}

#[cfg(feature = "internals")]
impl FromStr for BytesOrShare {
    type Err = UnitError;

    fn from_str(s: &str) -> Result<Self, UnitError> {
        let Some(number) = s.trim().strip_suffix('%') else {
            return s.parse().map(Self::Bytes);
        };
        match number.trim().parse::<f64>() {
            Ok(p) if p > 0.0 && p <= 100.0 => Ok(Self::Share(p / 100.0)),
            _ => Err(UnitError::Share(s.to_owned())),
        }
    }
}

#[cfg(feature = "internals")]
impl fmt::Display for BytesOrShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(b) => b.fmt(f),
            Self::Share(s) => write!(f, "{} %", (s * 1e4).round() / 100.0),
        }
    }
}

/// Parses a duration such as `10s`, `500ms`, `1.5s`, `2m`, `100us`. A number without a unit is in seconds.
///
/// # Errors
/// [`UnitError::Duration`] if the text is no number with a known unit, or the duration is zero or too large for a
/// [`Duration`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use warpbell::units::parse_duration;
///
/// assert_eq!(parse_duration("1500ms")?, Duration::from_millis(1500));
/// assert!(parse_duration("soon").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn parse_duration(s: &str) -> Result<Duration, UnitError> {
    let refuse = || UnitError::Duration(s.to_owned());
    let typed = s.trim();
    let digits = typed.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = typed.split_at(digits);
    let scale = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(refuse()),
    };
    let seconds = number.parse::<f64>().map_err(|_| refuse())? * scale;
    match Duration::try_from_secs_f64(seconds) {
        Ok(d) if !d.is_zero() => Ok(d),
        _ => Err(refuse()),
    }
}

/// Returns a whole number with commas between its thousands: `367,662`.
pub fn grouped(n: impl fmt::Display) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Returns a number with the noun that it counts, as in `1 line` or `2,000 lines`.
#[cfg(feature = "internals")]
pub fn counted(n: impl fmt::Display, one: &str, many: &str) -> String {
    let number = grouped(n);
    let noun = if number == "1" { one } else { many };
    format!("{number} {noun}")
}

/// Returns a text with escapes such as `\u{1b}` for its control characters. Quotes and all other characters stay.
pub(crate) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// Returns a real number with at most seven significant digits, as many as single precision has, and without the noise of
/// its binary form: `2732.4`. A number of single precision is printed in its shortest form.
#[cfg(feature = "internals")]
pub fn real(n: f64) -> String {
    const DIGITS: i32 = 7;
    if f64::from(n as f32) == n {
        return (n as f32).to_string();
    }
    if !n.is_finite() || n == 0.0 {
        return n.to_string();
    }
    let decimals = (DIGITS - 1 - n.abs().log10().floor() as i32).clamp(0, 300) as usize;
    let text = format!("{n:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a rate as fio does: three significant digits, then k, M, G or T (powers of 1,000).
#[cfg(feature = "internals")]
pub fn si(n: f64) -> String {
    for (unit, scale) in [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)] {
        // 999.96 k would print as 1000k.
        if n >= scale * 0.9995 {
            return three_digits(n / scale) + unit;
        }
    }
    three_digits(n)
}

/// Formats a number below 1000 with three significant digits. A number below 1 has two decimals.
#[cfg(feature = "internals")]
pub fn three_digits(n: f64) -> String {
    match n {
        n if n >= 99.95 => format!("{n:.0}"),
        n if n >= 9.995 => format!("{n:.1}"),
        0.0 => "0".to_owned(),
        n => format!("{n:.2}"),
    }
}

/// Formats bytes per second with a binary prefix, as fio's first figure: `48.5GiB/s`.
#[cfg(feature = "internals")]
pub fn binary_rate(bytes_per_s: f64) -> String {
    for (_, name, shift) in STEPS {
        let unit = (1u64 << shift) as f64;
        if bytes_per_s >= unit {
            return format!("{}{name}/s", three_digits(bytes_per_s / unit));
        }
    }
    format!("{}B/s", three_digits(bytes_per_s))
}

/// Formats bytes per second with a decimal prefix, as fio's second figure: `52.1GB/s`.
#[cfg(feature = "internals")]
pub fn decimal_rate(bytes_per_s: f64) -> String {
    match si(bytes_per_s) {
        s if s.ends_with('k') => format!("{}KB/s", s.trim_end_matches('k')),
        s => format!("{s}B/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn real_numbers_have_no_noise_of_single_precision() {
        for (n, text) in [
            (2732.4000701904297, "2732.4"),
            (f64::from(0.1f32), "0.1"),
            (f64::from(0.1f32) + f64::from(0.2f32), "0.3"),
            (3.0, "3"),
            (123_456_789.5, "123456790"),
            (0.5, "0.5"),
            (1.0 / 3.0, "0.3333333"),
            (1e-9, "0.000000001"),
            (0.0, "0"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(real(n), text);
        }
    }

    #[test]
    fn one_is_singular_and_quotes_stay() {
        assert_eq!((counted(1, "line", "lines"), counted(0, "line", "lines")), ("1 line".into(), "0 lines".into()));
        assert_eq!(counted(2000u64, "vertex", "vertices"), "2,000 vertices");
        assert_eq!(visible("a\"b'\\\u{1b}[2J\t"), r#"a"b'\\u{1b}[2J\t"#);
    }

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("64M", 64 << 20),
            ("1 G", 1 << 30),
            ("512b", 512),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "k", "-1", "4x", "4kk", "1.5G", "4 k k", "4ib", "0x10"] {
            assert!(matches!(text.parse::<Bytes>(), Err(UnitError::Size(_))), "{text}");
        }
        for text in ["18446744073709551616", "99999999999999999999999", "16777216T"] {
            assert!(matches!(text.parse::<Bytes>(), Err(UnitError::TooLarge(_))), "{text}");
        }
    }

    #[test]
    fn sizes_read_well() {
        assert_eq!(Bytes(4096).to_string(), "4 KiB");
        assert_eq!(Bytes(1_470_648).to_string(), "1.4 MiB");
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(1000).to_string(), "1000 B");
        assert_eq!(BytesOrShare::Share(0.25).to_string(), "25 %");
    }

    #[test]
    fn shares_are_of_something() {
        assert_eq!("25%".parse::<BytesOrShare>().unwrap().of(1000), 250);
        assert_eq!("64M".parse::<BytesOrShare>().unwrap().of(1), 64 << 20);
        for text in ["0%", "101%", "%", "nan%", "-5%", "inf%"] {
            assert!(matches!(text.parse::<BytesOrShare>(), Err(UnitError::Share(_))), "{text}");
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "s", "0s", "-1s", "1y", "1e400", "1.2.3s", "99999999999999999999999999999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_read_as_in_fio() {
        assert_eq!(si(12_400_000.0), "12.4M");
        assert_eq!(si(88_000.0), "88.0k");
        assert_eq!(si(999_960.0), "1.00M");
        assert_eq!(si(7.0), "7.00");
        assert_eq!(binary_rate(52.1e9), "48.5GiB/s");
        assert_eq!(decimal_rate(52.1e9), "52.1GB/s");
        assert_eq!(decimal_rate(2_500.0), "2.50KB/s");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(367_662), "367,662");
        assert_eq!(grouped(1_000), "1,000");
    }

    proptest! {
        #[test]
        fn whole_sizes_come_back(n in 0u64..1 << 12, step in 0usize..5) {
            let (suffix, _, shift) = STEPS[step];
            prop_assert_eq!(format!("{n}{suffix}").parse::<Bytes>(), Ok(Bytes(n << shift)));
            let printed = Bytes(n << shift).to_string();
            // Only numbers that were printed without rounding can be read back.
            if !printed.contains('.') {
                prop_assert_eq!(printed.parse::<Bytes>(), Ok(Bytes(n << shift)));
            }
        }

        #[test]
        fn no_text_breaks_the_parsers(s in "\\PC*") {
            let _ = s.parse::<Bytes>();
            let _ = s.parse::<BytesOrShare>();
            let _ = parse_duration(&s);
        }

        #[test]
        fn grouping_keeps_the_digits(n: u64) {
            prop_assert_eq!(grouped(n).replace(',', ""), n.to_string());
        }
    }
}
