//! One option of a section with its value: splits and reads the value, and collects notes about it.

use super::error::Fault;
use super::number::{self, Amount, KbBase, NumberError, Reading, Surprise};
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;
use warpbell::suggest::hint;
use warpbell::units::{counted, grouped};

/// Largest number of fio, whose numbers have 63 bits.
pub const LARGEST: u64 = i64::MAX as u64;

/// Kind of a number, which decides how a note prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noun {
    /// Bytes.
    Bytes,
    /// A number of anything else.
    Count,
}

impl Noun {
    fn show(self, n: u64) -> String {
        match self {
            Self::Bytes => counted(n, "byte", "bytes"),
            Self::Count => grouped(n),
        }
    }
}

/// An option with its value.
pub struct Given<'a> {
    /// Main name of the option.
    pub key: &'static str,
    value: Option<&'a str>,
    base: KbBase,
    notes: Vec<String>,
}

impl fmt::Display for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{}={value}", self.key),
            None => f.write_str(self.key),
        }
    }
}

impl<'a> Given<'a> {
    /// Returns an option whose numbers are read with this base.
    pub fn new(key: &'static str, value: Option<&'a str>, base: KbBase) -> Self {
        Self { key, value, base, notes: Vec::new() }
    }

    /// Returns the notes about the value.
    pub fn into_notes(self) -> Vec<String> {
        self.notes
    }

    /// Adds a note, whose beginning names the option and its value: `rw=randread:4k <text>`.
    pub fn note(&mut self, text: impl fmt::Display) {
        self.notes.push(format!("{self} {text}"));
    }

    /// Returns a fault of this option: `size=foo: <fact>; <step>`.
    pub fn fault(&self, fact: impl fmt::Display, step: impl fmt::Display) -> Fault {
        Fault(format!("{self}: {fact}; {step}"))
    }

    /// Returns a fault about a word that is none of the known ones.
    pub fn unknown(&self, word: &str, known: &[&str]) -> Fault {
        let meant = hint(word, known.iter().copied());
        self.fault(format_args!("fio has no `{word}` here{meant}"), format_args!("write one of {}", known.join(", ")))
    }

    /// Returns the value.
    ///
    /// # Errors
    /// There is none.
    pub fn text(&self) -> Result<&'a str, Fault> {
        let value = self.value.filter(|value| !value.is_empty());
        value.ok_or_else(|| self.fault("a value is missing", format_args!("write it behind `{}=`", self.key)))
    }

    /// Returns the one number of the value.
    ///
    /// # Errors
    /// The value has several numbers, or none.
    fn one(&self) -> Result<&'a str, Fault> {
        let text = self.text()?;
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        match unsigned.contains([',', ':', '-']) {
            true => Err(self.fault("several numbers, where one is read", "write one number")),
            false => Ok(text),
        }
    }

    /// Returns the numbers of a value for reads, writes and trims as fio separates them: by commas, and if none
    /// follows, by colons and hyphens. A number may be left out.
    ///
    /// # Errors
    /// There are none or more than three, or one is not of this range.
    pub fn directions(&mut self, noun: Noun, range: RangeInclusive<u64>) -> Result<Vec<Option<u64>>, Fault> {
        let (mut parts, mut rest) = (Vec::new(), self.text()?);
        if rest.starts_with('-') {
            return Err(self.fault("a negative number", "write a number of at least 0"));
        }
        let mut by_comma = true;
        while parts.len() <= 3
            && let Some(at) = rest.find(',').or_else(|| rest.find(':')).or_else(|| rest.find('-'))
        {
            by_comma &= rest[at..].starts_with(',');
            parts.push(&rest[..at]);
            rest = &rest[at + 1..];
        }
        parts.push(rest);
        if !by_comma {
            let range = if self.key == "bs" { ", or bsrange for a range" } else { "" };
            self.note(format_args!(
                "is a number for reads and one for writes to fio; write a comma between them{range}"
            ));
        }
        if parts.len() > 3 {
            return Err(self.fault("more than three numbers", "write at most three: for reads, writes and trims"));
        }
        if parts.iter().all(|part| part.is_empty()) {
            return Err(self.fault("no number", "write one, as in 4k"));
        }
        let number = |part: &str| match part {
            "" => Ok(None),
            part => self.number_of(part, noun, range.clone()).map(Some),
        };
        parts.into_iter().map(number).collect()
    }

    /// Checks that the value has a number somewhere, which is all that fio does.
    ///
    /// # Errors
    /// There is none.
    pub fn numbers(&self) -> Result<(), Fault> {
        let is_number = |part| matches!(number::amount(part, self.base), Ok(_) | Err(NumberError::Zones));
        match self.text()?.split([',', ':', '-']).any(is_number) {
            true => Ok(()),
            false => Err(self.fault("no number", "write a number")),
        }
    }

    /// Returns the value of a flag, which is set without a value, too.
    ///
    /// # Errors
    /// The value is no number.
    pub fn flag(&mut self) -> Result<bool, Fault> {
        match self.value {
            None => Ok(true),
            Some(_) => self.boolean(),
        }
    }

    /// Returns the value of an option that is 0 or 1.
    ///
    /// # Errors
    /// The value is neither.
    pub fn boolean(&mut self) -> Result<bool, Fault> {
        let text = self.text()?;
        let hexadecimal = text.contains("0x") || text.contains("0X");
        let reading = number::whole(text).ok().filter(|_| !hexadecimal);
        let reading = reading.ok_or_else(|| self.fault("no number", "write 0 or 1"))?;
        let value = self.heard(text, reading, |n| n.to_string());
        match value {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.fault("it has to be 0 or 1", "write 0 or 1")),
        }
    }

    /// Returns the value as bytes, or as a percentage of 0 to 100.
    ///
    /// # Errors
    /// The value is none of both, or too large.
    pub fn amount(&mut self) -> Result<Amount, Fault> {
        let text = self.one()?;
        match self.reading(text, Noun::Bytes)? {
            Amount::Percent(p) if p > 100 => {
                Err(self
                    .fault("a percentage above 100, which is none to fio", "write 0% to 100%, or a number of bytes"))
            }
            amount => Ok(amount),
        }
    }

    /// Returns the value as one number of this range.
    ///
    /// # Errors
    /// The value is no such number.
    pub fn number(&mut self, noun: Noun, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        let text = self.one()?;
        self.number_of(text, noun, range)
    }

    /// Returns this part of the value as a number of this range.
    ///
    /// # Errors
    /// The part is no such number.
    pub fn number_of(&mut self, text: &str, noun: Noun, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        match self.reading(text, noun)? {
            Amount::Bytes(n) if range.contains(&n) => Ok(n),
            Amount::Bytes(n) => Err(self.out_of_range(noun.show(n), grouped(range.start()), grouped(range.end()))),
            Amount::Percent(_) => Err(self.fault("a percentage, where a number is read", "write a number")),
        }
    }

    /// Returns the value as a duration.
    ///
    /// # Errors
    /// The value is no duration.
    pub fn time(&mut self) -> Result<Duration, Fault> {
        let text = self.one()?;
        let reading = number::time(text).map_err(|e| self.no_number(text, e))?;
        Ok(self.heard(text, reading, |time| format!("{time:?}")))
    }

    /// Returns this part of the value as a whole number of this range, which has no units.
    ///
    /// # Errors
    /// The part is no such number.
    pub fn whole_of(&mut self, text: &str, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        let reading = number::whole(text).map_err(|e| self.no_number(text, e))?;
        let value = self.heard(text, reading, |n| grouped(n));
        match range.contains(&value) {
            true => Ok(value),
            false => Err(self.out_of_range(grouped(value), grouped(range.start()), grouped(range.end()))),
        }
    }

    /// Returns this part of the value as a real number of this range.
    ///
    /// # Errors
    /// The part is no such number.
    pub fn real_of(&mut self, text: &str, range: RangeInclusive<f64>) -> Result<f64, Fault> {
        let reading = number::real(text).map_err(|e| self.no_number(text, e))?;
        let value = self.heard(text, reading, f64::to_string);
        match range.contains(&value) {
            true => Ok(value),
            false => Err(self.out_of_range(value, range.start(), range.end())),
        }
    }

    /// Returns a fault about a number that is out of range.
    pub fn out_of_range(&self, n: impl fmt::Display, least: impl fmt::Display, most: impl fmt::Display) -> Fault {
        self.fault(format_args!("{n} is not in the range of {least} to {most}"), "write a number of this range")
    }

    fn reading(&mut self, text: &str, noun: Noun) -> Result<Amount, Fault> {
        let reading = number::amount(text, self.base).map_err(|e| self.no_number(text, e))?;
        Ok(self.heard(text, reading, |amount| match amount {
            Amount::Bytes(n) => noun.show(*n),
            Amount::Percent(p) => format!("{p}%"),
        }))
    }

    fn no_number(&self, text: &str, e: NumberError) -> Fault {
        self.fault(format_args!("`{text}` {e}"), "write a whole number with its unit right behind, as in 4k")
    }

    /// Returns the value of a reading, and adds a note if the reading is a surprise.
    fn heard<T>(&mut self, text: &str, reading: Reading<T>, show: impl Fn(&T) -> String) -> T {
        if let Some(surprise) = reading.surprise {
            // A part of a value is named, too.
            let part = if self.value == Some(text) { String::new() } else { format!("has `{text}`, which ") };
            let (why, step) = explain(&surprise, self.key);
            self.note(format_args!("{part}is {} to fio {why}; {step}", show(&reading.value)));
        }
        reading.value
    }
}

/// Returns the reason of a surprise and the next step.
fn explain(surprise: &Surprise, key: &str) -> (String, String) {
    match surprise {
        Surprise::Base { base, instead, meant } => {
            (format!("(kb_base={})", base.factor()), format!("write {instead} for {}", grouped(meant)))
        }
        Surprise::End(rest) => (
            format!("(a number ends before `{rest}`)"),
            "write a whole number with its unit right behind, as in 1536k".to_owned(),
        ),
        Surprise::Letter(unit) => (
            format!("(`{unit}` counts by its first letters)"),
            "write the unit k, M, G, T or P, or us or ms".to_owned(),
        ),
        Surprise::Blank => {
            ("(no unit counts behind a blank)".to_owned(), format!("write the number right behind `{key}=`"))
        }
        Surprise::TimeUnit(unit) => (
            format!("(the unknown unit `{unit}` is microseconds)"),
            "write one of the units us, ms, s, m, h and d".to_owned(),
        ),
    }
}
