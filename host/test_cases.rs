//! Numbers of cases in property tests, and of combinations in others: few with `cargo test`, many in `.ci/run long`.

use proptest::test_runner::Config;

/// Number of cases of a property test that does not name it, with `cargo test` (`.cargo/config.toml`).
const USUAL: u32 = 64;

/// Returns the number of cases that `PROPTEST_CASES` asks for, or that is proptest's default.
fn asked_for() -> u32 {
    Config::default().cases
}

/// Returns the configuration of a property test whose cases take long. The test has `usual` cases with `cargo test`,
/// and as many times more or fewer as `PROPTEST_CASES` asks for.
pub(crate) fn cases(usual: u32) -> Config {
    Config::with_cases((u64::from(usual) * u64::from(asked_for()) / u64::from(USUAL)).max(1) as u32)
}

/// Returns true if more cases than those of `cargo test` were asked for. Tests then combine all that they have.
pub(crate) fn all_are_wanted() -> bool {
    asked_for() > USUAL
}
