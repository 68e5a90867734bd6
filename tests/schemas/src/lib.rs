//! Tests that the reports of the program are as their schemas in `docs/schemas` say.
#![cfg(test)]

mod devices;
mod files;
#[path = "../../common/fixture.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod fixture;
mod graphs;
mod machine;
mod measurements;
#[path = "../../cli/program.rs"]
#[allow(dead_code, reason = "tests of the program use the rest")]
mod program;
mod refusals;
mod stored;
mod tree;
mod validator;
