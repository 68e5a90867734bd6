//! What is lent to a running kernel cannot be closed, dropped or changed: the compiler refuses it.

#[test]
fn lent_things_stay_until_the_run_is_over() {
    // SAFETY: the only test of this program, before any thread is started.
    // The crate is only checked here, so its build script can leave the kernels alone.
    unsafe { std::env::set_var("DOCS_RS", "1") };
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
