//! Lines for people: wrapped between words, with the states of `warpbell doctor` in colour.
//!
//! On a terminal every line is wrapped at its width. Files and pipes get each line as it is, but for reports: people paste
//! them into pages and messages, so their lines fit there, too.

use clap::builder::styling::{AnsiColor, Style};
use std::borrow::Cow;
use std::io::{self, IsTerminal};
use textwrap::{Options, WordSeparator, WordSplitter};

/// Columns that a line keeps for text however far it is indented.
const LEAST_TEXT: usize = 30;
/// Most columns of a line of a report, also in a file, in a pipe, and on a wider terminal.
const REPORT: usize = 80;
/// Beginning of a line that is no result, for programs that read tables.
const COMMENT: &str = "# ";
/// Beginning of the lines that continue such a line.
const CONTINUED: &str = "#   ";

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

    /// Returns `text` as the stream shows a report: wrapped at [`REPORT`] columns, or at the terminal's width if that is less.
    pub fn report(self, text: &str) -> String {
        wrapped(text, self.columns().map_or(REPORT, |columns| columns.min(REPORT)))
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
/// the last run of two or more spaces. Those of a comment are comments. A word that is longer than a line stays whole.
fn wrapped(text: &str, columns: usize) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| {
            if line.chars().count() <= columns {
                return line.to_owned();
            }
            if let Some(words) = line.strip_prefix(COMMENT) {
                return comment(words, columns);
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

/// Wraps a comment. Words between two runs of two or more spaces stay on one line if they fit there.
fn comment(words: &str, columns: usize) -> String {
    let width = |text: &str| text.chars().count();
    let mut lines = Vec::new();
    let mut line = COMMENT.to_owned();
    let mut is_empty = true;
    let mut add = |gap: &str, words: &str| {
        if !is_empty && width(&line) + width(gap) + width(words) > columns {
            lines.push(std::mem::replace(&mut line, CONTINUED.to_owned()));
        } else if !is_empty {
            line.push_str(gap);
        }
        line.push_str(words);
        is_empty = false;
    };
    for (gap, part) in parts(words) {
        if width(CONTINUED) + width(part) <= columns {
            add(gap, part);
            continue;
        }
        for (at, word) in part.split(' ').enumerate() {
            add(if at == 0 { gap } else { " " }, word);
        }
    }
    lines.push(line);
    lines.join("\n")
}

/// Returns the parts of a text between runs of two or more spaces, each with the spaces before it.
fn parts(text: &str) -> Vec<(&str, &str)> {
    let mut parts = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let (gap, words) = rest.split_at(rest.len() - rest.trim_start_matches(' ').len());
        let (part, next) = words.split_at(words.find("  ").unwrap_or(words.len()));
        parts.push((gap, part));
        rest = next;
    }
    parts
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

    #[test]
    fn comments_break_between_their_parts_and_stay_comments() {
        let line = "# device soft:mem  queues host  landing direct  doorbell cpu-engine  2 x 128 entries";
        assert_eq!(
            wrapped(line, 80),
            "# device soft:mem  queues host  landing direct  doorbell cpu-engine\n#   2 x 128 entries"
        );
        assert_eq!(wrapped("# a long part is broken  b", 16), "# a long part is\n#   broken  b");
        let path = "/dev/".to_owned() + &"x".repeat(90);
        assert_eq!(wrapped(&format!("# device {path}  queues"), 80), format!("# device\n#   {path}\n#   queues"));
    }

    proptest! {
        #[test]
        fn comments_are_comments_in_all_lines(words in "([a-z/-]{1,12} {1,3}){1,30}", columns in 20usize..120) {
            let line = format!("# {words}");
            let fitted = wrapped(&line, columns);
            let all = |text: &str| text.split_whitespace().filter(|w| *w != "#").map(str::to_owned).collect::<Vec<_>>();
            prop_assert_eq!(all(&fitted), all(&words));
            for line in fitted.split('\n') {
                prop_assert!(line.starts_with("# ") && line.trim_end().chars().count() <= columns, "{:?}", line);
            }
        }

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
