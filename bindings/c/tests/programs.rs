//! Compiles the programs of `c/` with a C compiler and AddressSanitizer, and runs them against the library. The library's
//! own code is not instrumented; the sanitizer sees the calls of malloc and free of both, so it finds leaks of both.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the folder with the library that cargo built for this test.
fn library_folder() -> PathBuf {
    let folder = std::env::current_exe().expect("a test has a path").parent().expect("a folder").to_owned();
    assert!(folder.join("libwarpbell_c.so").exists(), "no libwarpbell_c.so in {}", folder.display());
    folder
}

fn compile(source: &str, flags: &[&str], program: &Path) {
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-std=c11", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    command.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("../../kernels/include"));
    command.arg(format!("-DEXAMPLES=\"{}\"", root().join("../../examples/data").display()));
    command.arg("-o").arg(program).arg(root().join("tests/c").join(source));
    let libraries = library_folder();
    command.arg("-L").arg(&libraries).args(["-lwarpbell_c", "-lm"]).arg(format!("-Wl,-rpath,{}", libraries.display()));
    let built = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}; set CC to a C11 compiler"));
    assert!(built.status.success(), "{source}:\n{}", String::from_utf8_lossy(&built.stderr));
}

/// Compiles kernels of a program for CPU threads, to an object file.
fn compile_kernels(source: &str, object: &Path) {
    let mut command = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    command.args(["-xc++", "-std=c++20", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-c"]);
    command.arg("-DWB_WARP_WIDTH=1").arg("-I").arg(root().join("../../kernels/include"));
    command.arg("-o").arg(object).arg(root().join("tests/c").join(source));
    let built = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}; set CXX to a C++20 compiler"));
    assert!(built.status.success(), "{source}:\n{}", String::from_utf8_lossy(&built.stderr));
}

/// Compiles and runs a program. It gets an empty folder as its argument, and says `ok` at its end.
fn run(source: &str, flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    compile(source, flags, &program);
    let mut command = Command::new(&program);
    // Allocations that are too large fail as without the sanitizer.
    command.arg(folder.path()).env("ASAN_OPTIONS", "allocator_may_return_null=1");
    command.env("TSAN_OPTIONS", format!("suppressions={}", root().join("tests/c/threads.supp").display()));
    let done = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && out.ends_with("ok\n"), "{source}: {:?}\n{out}\n{err}", done.status);
}

/// AddressSanitizer and undefined behaviour; every allocation has to be freed.
const ADDRESS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];

/// Races of the program's threads: of what it hands to the library, and gets back.
const THREAD: &[&str] = &["-fsanitize=thread"];

#[test]
fn engines_and_errors() {
    run("engine.c", ADDRESS);
}

#[test]
fn memory_launches_and_streams() {
    run("run.c", ADDRESS);
}

/// Without AddressSanitizer: memory of a kernel that does not stop is kept on purpose. The library waits ten seconds for that kernel, so
/// the test has a name that starts it first.
#[test]
fn all_kernels_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("kernels.o");
    compile_kernels("kernel.cu", &object);
    run("kernel.c", &["-fsanitize=undefined", "-fno-sanitize-recover=all", object.to_str().unwrap(), "-lstdc++"]);
}

#[test]
fn volumes_stored_arrays_and_media_errors() {
    run("volume.c", ADDRESS);
}

#[test]
fn arrays_of_every_type_through_caches() {
    run("array.c", ADDRESS);
}

#[test]
fn tables_of_every_type() {
    run("table.c", ADDRESS);
}

#[test]
fn batches_of_rows_and_writes() {
    run("table_batch.c", ADDRESS);
}

#[test]
fn batches_of_two_threads_without_races() {
    run("table_batch.c", THREAD);
}

#[test]
fn segments_of_memory_and_blocks() {
    run("segments.c", ADDRESS);
}

#[test]
fn segments_of_two_threads_without_races() {
    run("segments.c", THREAD);
}

#[test]
fn objects_of_kv_stores() {
    run("kv.c", ADDRESS);
}

#[test]
fn objects_of_two_threads_without_races() {
    run("kv.c", THREAD);
}

#[test]
fn graphs_give_the_results_of_simple_loops() {
    run("graph.c", ADDRESS);
}

#[test]
fn worlds_of_threads() {
    run("world.c", ADDRESS);
}

#[test]
fn worlds_of_threads_without_races() {
    run("world.c", THREAD);
}

#[test]
fn teams_of_threads() {
    run("team.c", ADDRESS);
}

#[test]
fn teams_of_threads_without_races() {
    run("team.c", THREAD);
}

#[test]
fn worlds_of_processes() {
    run("bootstrap.c", ADDRESS);
}

/// Two threads of a program with one engine. The library's own code is not instrumented: the sanitizer sees what the program
/// does with its results, and the C library's calls of both.
#[test]
fn threads_share_an_engine() {
    run("threads.c", THREAD);
}
