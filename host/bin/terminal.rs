//! Lines for people on a terminal: wrapped between words at its width, with the states of `warpbell doctor` in colour.
//!
//! Files and pipes get each line as it is.

use clap::builder::styling::{AnsiColor, Style};
use std::borrow::Cow;
use std::io::{self, IsTerminal};
use textwrap::{Options, WordSeparator, WordSplitter};

/// Columns that a line keeps for text however far it is indented.
const LEAST_TEXT: usize = 30;

/// Standard output or standard error.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    Out,
    Error,
}

impl Stream {
    /// Returns the width of the terminal in columns, or `None` if the stream is not a terminal.
    fn columns(self) -> Option<usize> {
        let size = match self {
            Self::Out => terminal_size::terminal_size_of(io::stdout()),
            Self::Error => terminal_size::terminal_size_of(io::stderr()),
        };
        size.map(|(width, _)| usize::from(width.0)).filter(|&columns| columns > 0)
    }

    /// Returns `text` as the stream shows it: wrapped if the stream is a terminal.
    pub fn fitted(self, text: &str) -> Cow<'_, str> {
        match self.columns() {
            Some(columns) => Cow::Owned(wrapped(text, columns)),
            None => Cow::Borrowed(text),
        }
    }

    /// Returns true if the stream is a terminal and the user has not set `NO_COLOR`.
    pub fn has_colour(self) -> bool {
        let is_terminal = match self {
            Self::Out => io::stdout().is_terminal(),
            Self::Error => io::stderr().is_terminal(),
        };
        is_terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
    }
}

/// Wraps each line between words at `columns`. Continuation lines start below the text of the line's last column: behind
/// the last run of two or more spaces. A word that is longer than a line stays whole.
fn wrapped(text: &str, columns: usize) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| {
            if line.chars().count() <= columns {
                return line.to_owned();
            }
            let hanging = " ".repeat(text_column(line, columns));
            let options = Options::new(columns)
                .subsequent_indent(&hanging)
                .break_words(false)
                .word_separator(WordSeparator::AsciiSpace)
                .word_splitter(WordSplitter::NoHyphenation);
            textwrap::fill(line, options)
        })
        .collect();
    lines.join("\n")
}

/// Returns the column at which the text of a line of several columns begins; 0 if no room would be left for the text.
fn text_column(line: &str, columns: usize) -> usize {
    let reach = columns.saturating_sub(LEAST_TEXT);
    let begin = line.char_indices().take(reach).map(|(at, _)| at).filter(|&at| {
        let (before, rest) = line.split_at(at);
        before.ends_with("  ") && !rest.starts_with(' ')
    });
    begin.last().map_or(0, |at| line[..at].chars().count())
}

/// Colours the states of checks, which are the first words of indented lines: green, yellow, red, and dim for what does
/// not apply.
pub fn coloured_states(report: &str) -> String {
    let lines: Vec<Cow<'_, str>> = report
        .split('\n')
        .map(|line| {
            let word = line.strip_prefix("  ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            match style_of(word) {
                Some(style) => Cow::Owned(line.replacen(word, &format!("{style}{word}{style:#}"), 1)),
                None => Cow::Borrowed(line),
            }
        })
        .collect();
    lines.join("\n")
}

fn style_of(state: &str) -> Option<Style> {
    Some(match state {
        "ok" => AnsiColor::Green.on_default(),
        "warn" => AnsiColor::Yellow.on_default().bold(),
        "fail" => AnsiColor::Red.on_default().bold(),
        "skip" => Style::new().dimmed(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn continuation_lines_start_below_the_last_column() {
        let line = "  skip  driver         no NVIDIA GPU on the PCI bus; kernels run on CPU threads";
        assert_eq!(
            wrapped(line, 60),
            "  skip  driver         no NVIDIA GPU on the PCI bus; kernels\n                       run on CPU threads"
        );
        assert_eq!(wrapped(line, 200), line);
    }

    #[test]
    fn a_long_word_stays_whole() {
        let path = "/dev/".to_owned() + &"x".repeat(90);
        assert!(wrapped(&format!("error: {path} does not exist"), 80).split('\n').any(|line| line.trim() == path));
    }

    #[test]
    fn states_are_coloured_where_they_stand_and_nowhere_else() {
        let text = coloured_states("host\n  ok    kernel  ok\n  fail  memlock  8 MiB\nok");
        assert_eq!(text, "host\n  \x1b[32mok\x1b[0m    kernel  ok\n  \x1b[1m\x1b[31mfail\x1b[0m  memlock  8 MiB\nok");
    }

    proptest! {
        #[test]
        fn no_word_is_lost_or_cut(line in "[a-z]{0,3} {0,4}([a-z/-]{1,12} {1,3}){0,30}", columns in 1usize..120) {
            let all = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let fitted = wrapped(&line, columns);
            prop_assert_eq!(all(&fitted), all(&line));
            for line in fitted.split('\n') {
                prop_assert!(line.trim_end().chars().count() <= columns || line.split_whitespace().count() <= 1, "{:?}", line);
            }
        }
    }
}
