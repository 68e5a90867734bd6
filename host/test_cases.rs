//! Number of combinations in tests that have few with `cargo test`, and all in `.ci/run long`.

/// Cases of a property test with `cargo test` (`.cargo/config.toml`).
const USUAL: u32 = 16;

/// Returns true if more cases than those of `cargo test` were asked for by `PROPTEST_CASES`. Tests then combine all that
/// they have.
pub(crate) fn all_are_wanted() -> bool {
    proptest::test_runner::Config::default().cases > USUAL
}
