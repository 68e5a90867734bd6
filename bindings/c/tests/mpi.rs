//! Worlds of MPI programs: `include/warpbell/mpi.h`, and the example `examples/cpp/ring`.
//!
//! They need MPI's compilers and `mpirun`: packages `mpich` and `libmpich-dev`, or `openmpi-bin` and `libopenmpi-dev`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Makes a missing MPI a failure.
const REQUIRED: &str = "WARPBELL_REQUIRE_MPI";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Ends of the names of MPI's programs. Debian has both implementations side by side, and the plain names may be those
/// of either, also of one without headers.
const SUFFIXES: [&str; 3] = [".mpich", ".openmpi", ""];

/// Returns the end of the names of an MPI that is complete, or what the last one lacks. Debian's package `mpich` has the
/// compilers without the headers.
fn complete() -> Result<&'static str, String> {
    let lacks = |suffix: &str| {
        for program in ["mpicc", "mpicxx", "mpirun"].map(|name| format!("{name}{suffix}")) {
            if Command::new(&program).arg("--version").output().is_err() {
                return Some(program);
            }
        }
        let header = ["-fsyntax-only", "-include", "mpi.h", "-x", "c", "/dev/null"];
        let found = Command::new(format!("mpicc{suffix}")).args(header).output();
        (!found.is_ok_and(|done| done.status.success())).then(|| "mpi.h".to_owned())
    };
    let mut missing = String::new();
    for suffix in SUFFIXES {
        match lacks(suffix) {
            Some(program) => missing = program,
            None => return Ok(suffix),
        }
    }
    Err(missing)
}

/// Returns true if MPI is there; prints the reason otherwise, which is an error in CI.
fn has_mpi() -> bool {
    let Err(missing) = complete() else { return true };
    assert!(std::env::var_os(REQUIRED).is_none(), "{missing} is not installed");
    println!("SKIP: {missing} is not installed");
    false
}

/// Returns the name of a program of that MPI.
fn of_mpi(program: &str) -> String {
    format!("{program}{}", complete().expect("the test has asked before"))
}

/// Returns the folder with the library that cargo built for this test.
fn library_folder() -> PathBuf {
    std::env::current_exe().expect("a test has a path").parent().expect("a folder").to_owned()
}

fn succeed(command: &mut Command) -> Output {
    let done = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {:?}\n{out}\n{err}", done.status);
    done
}

/// Compiles a program with a compiler of MPI.
fn compile(compiler: &str, flags: &[&str], source: &Path, program: &Path) {
    let mut command = Command::new(of_mpi(compiler));
    command.args(flags).args(["-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    // Headers of MPI are not ours to check.
    command.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("../../kernels/include"));
    command.arg("-o").arg(program).arg(source).args(["-x", "none"]);
    let libraries = library_folder();
    succeed(command.arg("-L").arg(&libraries).arg("-lwarpbell_c").arg(format!("-Wl,-rpath,{}", libraries.display())));
}

/// Runs a program as several ranks. Open MPI starts more ranks than processors, and those of root, only if it is told to.
fn ranks(program: &Path, count: usize, arguments: &[&str]) -> String {
    let mut command = Command::new(of_mpi("mpirun"));
    command.args(["-n", &count.to_string()]).arg(program).args(arguments);
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");
    // The exchange of MPI needs nothing else, so no variable may help.
    command.env_remove("WARPBELL_SECRET").env_remove("WARPBELL_STORE");
    String::from_utf8_lossy(&succeed(&mut command).stdout).into_owned()
}

#[test]
fn a_communicator_is_an_exchange() {
    if !has_mpi() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("mpi");
    let source = root().join("tests/c/mpi.c");
    compile("mpicc", &["-std=c11"], &source, &program);
    for count in [1, 3] {
        let out = ranks(&program, count, &[]);
        assert!(out.ends_with("ok\n"), "{out}");
    }
}

#[test]
fn the_header_is_one_of_cpp_too() {
    if !has_mpi() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("header.cpp");
    let text = "#include <mpi.h>\n#include <warpbell/mpi.h>\nint main() {\n  wb_mpi mpi = {MPI_COMM_WORLD, 1};\n  \
                wb_world_options options = {};\n  return wb_mpi_options(&mpi, &options);\n}\n";
    std::fs::write(&source, text).unwrap();
    compile("mpicxx", &["-std=c++17", "-pedantic"], &source, &folder.path().join("program"));
}

#[test]
fn the_ring_of_the_examples_passes_its_token() {
    if !has_mpi() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ring");
    let source = root().join("../../examples/cpp/ring/ring.cu");
    compile("mpicxx", &["-std=c++20", "-O1", "-Wno-unknown-pragmas", "-x", "c++"], &source, &program);
    for count in [1, 3] {
        let out = ranks(&program, count, &["100"]);
        assert_eq!(out.matches("100 rounds, correct").count(), count, "{out}");
    }
}
