//! Messages of the library on standard error.

use clap::ValueEnum;
use std::io;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::SubscriberBuilder;

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

/// Prints messages that pass the filter from now on, whole lines at a time.
pub fn start(filter: Option<&str>, format: LogFormat) {
    // The grammar has checked the filter. An empty one is the default.
    let text = filter.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("warn");
    let mut filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).parse_lossy(text);
    if shows_progress(text)
        && let Ok(directive) = format!("{PROGRESS}=info").parse()
    {
        filter = filter.add_directive(directive);
    }
    // A closed standard error must not end the command: the builder would print the failed write there, which panics.
    let builder =
        SubscriberBuilder::default().with_writer(io::stderr).with_env_filter(filter).log_internal_errors(false);
    // A program that has this one inside may have a subscriber of its own, which stays.
    let _ = match format {
        LogFormat::Text => {
            tracing::subscriber::set_global_default(builder.with_ansi(false).without_time().compact().finish())
        }
        LogFormat::Json => tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

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
