//! Messages of the library on standard error.

use clap::ValueEnum;
use std::io;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt::SubscriberBuilder;
use tracing_subscriber::layer::SubscriberExt;

/// Environment variable of `--log`.
pub const LOG: &str = "WARPBELL_LOG";
/// Environment variable of `--log-format`.
pub const FORMAT: &str = "WARPBELL_LOG_FORMAT";

/// Target of the lines of progress ([`crate::progress`]).
pub const PROGRESS: &str = "progress";

/// Returns true unless the filter permits errors alone, or names this target itself.
fn shows_progress(filter: &str) -> bool {
    !["off", "error"].iter().any(|level| filter.eq_ignore_ascii_case(level)) && !filter.contains(PROGRESS)
}

/// Format of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Level, module, message and values on one line
    Text,
    /// A JSON object on one line: timestamp, level, target, message, values
    Json,
}

/// Parses a filter: a level, or directives `TARGET=LEVEL`, separated by commas. An empty filter is the default. The library has no spans,
/// so a directive has no part for them.
pub fn parsed(filter: &str) -> Result<Targets, String> {
    let directives: Vec<&str> = filter.split(',').map(str::trim).filter(|text| !text.is_empty()).collect();
    if let Some(of_spans) = directives.iter().find(|text| text.contains(['[', '{'])) {
        return Err(format!("`{of_spans}` is not LEVEL, TARGET or TARGET=LEVEL"));
    }
    if directives.is_empty() {
        return Ok(Targets::new().with_default(LevelFilter::WARN));
    }
    directives.join(",").parse().map_err(|e: ParseError| e.to_string())
}

/// Prints messages that pass the filter from now on, whole lines at a time.
pub fn start(filter: Option<&str>, format: LogFormat) {
    let text = filter.unwrap_or_default();
    // The grammar has checked the filter.
    let mut targets = parsed(text).unwrap_or_default();
    if shows_progress(text) {
        targets = targets.with_target(PROGRESS, LevelFilter::INFO);
    }
    // A closed standard error must not end the command: the builder would print the failed write there, which panics.
    let builder = SubscriberBuilder::default().with_writer(io::stderr).log_internal_errors(false);
    let builder = builder.with_max_level(LevelFilter::TRACE);
    // A program that has this one inside may have a subscriber of its own, which stays.
    let _ = match format {
        LogFormat::Text => {
            let lines = builder.with_ansi(false).without_time().compact().finish();
            tracing::subscriber::set_global_default(lines.with(targets))
        }
        LogFormat::Json => {
            tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish().with(targets))
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_levels_and_targets() {
        use tracing::Level;
        for (filter, target, level, shown) in [
            ("", "warpbell::nvme", Level::WARN, true),
            (" ", "warpbell::nvme", Level::INFO, false),
            ("INFO", "warpbell::nvme", Level::INFO, true),
            ("warn, warpbell::nvme=debug,", "warpbell::nvme::queues", Level::DEBUG, true),
            ("warn, warpbell::nvme=debug,", "warpbell::storage", Level::INFO, false),
            ("warpbell::nvme=debug", "warpbell::storage", Level::ERROR, false),
            ("off", "warpbell::nvme", Level::ERROR, false),
        ] {
            let targets = parsed(filter).unwrap();
            assert_eq!(targets.would_enable(target, &level), shown, "`{filter}`: {target} {level}");
        }
        for wrong in ["warn,=,[", "loud=loud=loud", "warpbell=loud", "warpbell[span]=info", "a[{field}]=info"] {
            assert!(parsed(wrong).is_err(), "`{wrong}`");
        }
    }

    #[test]
    fn progress_is_shown_unless_the_filter_is_against_it() {
        for (filter, shown) in [
            ("warn", true),
            ("info", true),
            ("warpbell::nvme=debug", true),
            ("off", false),
            ("ERROR", false),
            ("warn,progress=off", false),
        ] {
            assert_eq!(shows_progress(filter), shown, "{filter}");
        }
    }
}
