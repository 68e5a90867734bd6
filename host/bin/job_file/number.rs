//! Numbers as fio 3.33 reads them: a number ends at the first character that is no digit, and a unit counts by its first
//! letters. Where that differs from what the text seems to say, the reading has a surprise.

use std::time::Duration;

/// Value of `kb_base`: the factor between the units k, M, G, T and P.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KbBase {
    /// 1024: `k` and `kB` are 1024 bytes, and `KiB` is 1000.
    #[default]
    Binary,
    /// 1000: `k` and `kB` are 1000 bytes, and `KiB` is 1024.
    Decimal,
}

impl KbBase {
    /// Returns the factor of `k`.
    pub fn factor(self) -> u64 {
        match self {
            Self::Binary => 1024,
            Self::Decimal => 1000,
        }
    }

    /// Returns the factor of `KiB`, which is that of the other base.
    fn other(self) -> u64 {
        match self {
            Self::Binary => 1000,
            Self::Decimal => 1024,
        }
    }
}

/// A number of bytes, or a percentage of a file or a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This number of bytes.
    Bytes(u64),
    /// This percentage.
    Percent(u32),
}

/// A value, and the reason why the text seems to say another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading<T> {
    /// Value that fio reads.
    pub value: T,
    /// Reason for a remark.
    pub surprise: Option<Surprise>,
}

/// Reason why fio reads another value than the text seems to say.
#[derive(Clone, Debug, PartialEq)]
pub enum Surprise {
    /// The unit has the factor of the other base. `instead` has the unit that one meant, which is `meant` bytes.
    Base { base: KbBase, instead: String, meant: u64 },
    /// The number ends before this text, which says nothing.
    End(String),
    /// Unknown unit, which counts by its first letter.
    Letter(String),
    /// No unit counts behind a blank at the beginning.
    Blank,
    /// Unknown unit of time, which counts as microseconds.
    TimeUnit(String),
}

/// Reason why a text has no number, as the end of `it ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    #[error("does not begin with a number")]
    None,
    #[error("is larger than 9,223,372,036,854,775,807, the largest number of fio")]
    Large,
    #[error("is negative")]
    Negative,
    #[error("is a calculation, which fio of Debian refuses, too")]
    Calculation,
    #[error("has the unit z, zones of a zoned device")]
    Zones,
}

/// Digits at the beginning of a text.
struct Digits<'a> {
    value: u64,
    /// Text behind the digits.
    rest: &'a str,
    /// True if blanks precede the digits.
    blank: bool,
    /// True if the digits are hexadecimal: `0x` is anywhere in the text.
    hex: bool,
}

/// Returns a text without the blanks that `strtoll` skips.
fn without_blanks(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}')
}

impl<'a> Digits<'a> {
    fn of(text: &'a str) -> Result<Self, NumberError> {
        if text.starts_with('(') {
            return Err(NumberError::Calculation);
        }
        if text.ends_with('z') {
            return Err(NumberError::Zones);
        }
        Self::in_radix(text, if text.contains("0x") || text.contains("0X") { 16 } else { 10 })
    }

    fn in_radix(text: &'a str, radix: u32) -> Result<Self, NumberError> {
        let trimmed = without_blanks(text);
        let unsigned = trimmed.strip_prefix('+').unwrap_or(trimmed);
        if unsigned.starts_with('-') {
            return Err(NumberError::Negative);
        }
        let is_digit = |c: char| c.is_digit(radix);
        let prefixed = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
        let digits = prefixed.filter(|behind| radix == 16 && behind.starts_with(is_digit)).unwrap_or(unsigned);
        let end = digits.find(|c| !is_digit(c)).unwrap_or(digits.len());
        let (number, rest) = digits.split_at(end);
        if number.is_empty() {
            return Err(NumberError::None);
        }
        let value = i64::from_str_radix(number, radix).map_err(|_| NumberError::Large)?;
        Ok(Self { value: value.unsigned_abs(), rest, blank: trimmed.len() < text.len(), hex: radix == 16 })
    }

    /// Returns the unit in lower case: empty if fio sees none.
    fn unit(&self) -> String {
        let begins = self.rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '%');
        if self.blank || self.hex || !begins { String::new() } else { self.rest.to_ascii_lowercase() }
    }

    /// Returns the surprise of a text whose end says nothing; `None` without such an end.
    fn ignored_end(&self) -> Option<Surprise> {
        match self.rest {
            "" => None,
            _ if self.blank => Some(Surprise::Blank),
            rest => Some(Surprise::End(rest.to_owned())),
        }
    }
}

/// First letters of the units, by the power of the factor.
const LETTERS: &str = "kmgtp";

/// Reads a number of bytes, a percentage, or a plain number, which has the same units.
///
/// # Errors
/// The text begins with no number, or the number is negative or beyond 63 bits.
pub fn amount(text: &str, base: KbBase) -> Result<Reading<Amount>, NumberError> {
    let digits = Digits::of(text)?;
    let unit = digits.unit();
    let Some(first) = unit.chars().next() else {
        return Ok(Reading { value: Amount::Bytes(digits.value), surprise: digits.ignored_end() });
    };
    if first == '%' {
        let percent = u32::try_from(digits.value).map_err(|_| NumberError::Large)?;
        let surprise = (unit != "%").then(|| Surprise::End(digits.rest[1..].to_owned()));
        return Ok(Reading { value: Amount::Percent(percent), surprise });
    }
    let Some(power) = LETTERS.find(first) else {
        let surprise = if unit == "b" { None } else { digits.ignored_end() };
        return Ok(Reading { value: Amount::Bytes(digits.value), surprise });
    };
    let power = power as u32 + 1;
    let times = |factor: u64| {
        let product = factor.checked_pow(power).and_then(|unit| digits.value.checked_mul(unit));
        product.filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or(NumberError::Large)
    };
    let (prefix, letter) = (&unit[1..], first.to_ascii_uppercase());
    let instead = |unit: &str| format!("{}{letter}{unit}", digits.value);
    let (value, surprise) = match (prefix, base) {
        ("", _) | ("b", _) | ("i", KbBase::Binary) | ("ib", KbBase::Decimal) => {
            (times(if prefix == "ib" { base.other() } else { base.factor() })?, None)
        }
        ("ib", KbBase::Binary) => {
            let surprise = Surprise::Base { base, instead: instead(""), meant: times(base.factor())? };
            (times(base.other())?, Some(surprise))
        }
        ("i", KbBase::Decimal) => {
            let surprise = Surprise::Base { base, instead: instead("iB"), meant: times(base.other())? };
            (times(base.factor())?, Some(surprise))
        }
        (rest, _) => {
            let factor = if rest.starts_with("ib") { base.other() } else { base.factor() };
            (times(factor)?, Some(Surprise::Letter(digits.rest.to_owned())))
        }
    };
    Ok(Reading { value: Amount::Bytes(value), surprise })
}

/// Reads a duration. A number without a unit is in seconds.
///
/// # Errors
/// The text begins with no number, or the number is negative or beyond 63 bits.
pub fn time(text: &str) -> Result<Reading<Duration>, NumberError> {
    const SECOND: u64 = 1_000_000;
    let digits = Digits::of(text)?;
    // Digits and signs behind the number belong to it here. The unit of a hexadecimal number begins at its `x`.
    let behind = digits.rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '+');
    let unit = match behind.to_ascii_lowercase() {
        _ if digits.blank => String::new(),
        _ if digits.hex => "x".to_owned(),
        unit if unit.starts_with(|c: char| c.is_ascii_alphabetic()) => unit,
        _ => String::new(),
    };
    let (micros, surprise) = match unit.as_str() {
        "" => (SECOND, digits.ignored_end()),
        "s" => (SECOND, None),
        "m" => (60 * SECOND, None),
        "h" => (3600 * SECOND, None),
        "d" => (86_400 * SECOND, None),
        "us" | "usec" => (1, None),
        "ms" | "msec" => (1000, None),
        unit if unit.starts_with("us") => (1, Some(Surprise::Letter(digits.rest.to_owned()))),
        unit if unit.starts_with("ms") => (1000, Some(Surprise::Letter(digits.rest.to_owned()))),
        "x" => (1, Some(Surprise::TimeUnit("0x".to_owned()))),
        _ => (1, Some(Surprise::TimeUnit(digits.rest.to_owned()))),
    };
    let surprise = surprise.or_else(|| (behind != digits.rest).then(|| Surprise::End(digits.rest.to_owned())));
    let product = digits.value.checked_mul(micros).filter(|micros| i64::try_from(*micros).is_ok());
    Ok(Reading { value: Duration::from_micros(product.ok_or(NumberError::Large)?), surprise })
}

/// Reads a whole number without a unit. Text behind its digits is a surprise.
///
/// # Errors
/// The text begins with no number, or the number is negative or beyond 63 bits.
pub fn whole(text: &str) -> Result<Reading<u64>, NumberError> {
    let digits = Digits::in_radix(text, 10)?;
    let surprise = (!digits.rest.is_empty()).then(|| Surprise::End(digits.rest.to_owned()));
    Ok(Reading { value: digits.value, surprise })
}

/// Most characters of a real number.
const MOST_DIGITS: usize = 64;

/// Reads a real number. Text behind it is a surprise.
///
/// # Errors
/// The text begins with no number.
pub fn real(text: &str) -> Result<Reading<f64>, NumberError> {
    let trimmed = without_blanks(text);
    let of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | 'e' | 'E');
    let most = trimmed.find(|c| !of_number(c)).unwrap_or(trimmed.len()).min(MOST_DIGITS);
    let parsed = (1..=most).rev().find_map(|end| Some((trimmed[..end].parse::<f64>().ok()?, end)));
    let (value, end) = parsed.filter(|(value, _)| value.is_finite()).ok_or(NumberError::None)?;
    let rest = &trimmed[end..];
    Ok(Reading { value, surprise: (!rest.is_empty()).then(|| Surprise::End(rest.to_owned())) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_seems_to_say_something_else_is_a_surprise() {
        let surprise = |text, base| amount(text, base).map(|reading| reading.surprise);
        for text in ["0", "512b", "4k", "4KB", "1m", "+1G", "1tb", "0x1F", "50%"] {
            assert_eq!(surprise(text, KbBase::Binary), Ok(None), "{text}");
            assert_eq!(surprise(text, KbBase::Decimal), Ok(None), "{text}");
        }
        assert_eq!(surprise("1Mi", KbBase::Binary), Ok(None));
        assert_eq!(surprise("1MiB", KbBase::Decimal), Ok(None));
        let base = Surprise::Base { base: KbBase::Binary, instead: "3G".to_owned(), meant: 3 << 30 };
        assert_eq!(surprise("3gib", KbBase::Binary), Ok(Some(base)));
        assert_eq!(surprise("4 k", KbBase::Binary), Ok(Some(Surprise::End(" k".to_owned()))));
        assert_eq!(surprise("10x", KbBase::Binary), Ok(Some(Surprise::End("x".to_owned()))));
        assert_eq!(surprise("50%x", KbBase::Binary), Ok(Some(Surprise::End("x".to_owned()))));
    }

    #[test]
    fn the_first_letter_is_the_unit() {
        let value = |text, base| amount(text, base).map(|reading| reading.value);
        for (text, bytes) in
            [("4pages", 4 << 50), ("1kibble", 1000), ("2million", 2 << 20), ("80x", 128), ("0x", 0), ("5+3k", 5)]
        {
            assert_eq!(value(text, KbBase::Binary), Ok(Amount::Bytes(bytes)), "{text}");
        }
        assert_eq!(value("1kibble", KbBase::Decimal), Ok(Amount::Bytes(1024)));
        let largest = Amount::Bytes(i64::MAX.unsigned_abs());
        assert_eq!(value("9223372036854775807", KbBase::Binary), Ok(largest));
        for (text, error) in [
            ("9223372036854775808", NumberError::Large),
            ("9007199254740992k", NumberError::Large),
            ("18446744073709551615%", NumberError::Large),
            ("k", NumberError::None),
            ("", NumberError::None),
            ("-0", NumberError::Negative),
            ("(1)", NumberError::Calculation),
            ("1z", NumberError::Zones),
        ] {
            assert_eq!(value(text, KbBase::Binary), Err(error), "{text}");
        }
    }

    #[test]
    fn whole_and_real_numbers_have_no_units() {
        let end = |rest: &str| Some(Surprise::End(rest.to_owned()));
        assert_eq!(whole(" 8k"), Ok(Reading { value: 8, surprise: end("k") }));
        assert_eq!(whole("0x10"), Ok(Reading { value: 0, surprise: end("x10") }));
        assert_eq!((whole("-1"), whole("k")), (Err(NumberError::Negative), Err(NumberError::None)));
        assert_eq!(real("1.5e1"), Ok(Reading { value: 15.0, surprise: None }));
        assert_eq!(real("-.5foo"), Ok(Reading { value: -0.5, surprise: end("foo") }));
        for text in ["", "nan", "inf", "x", "1e999"] {
            assert_eq!(real(text), Err(NumberError::None), "{text}");
        }
    }
}
