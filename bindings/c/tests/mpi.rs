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

/// Returns what of MPI is missing. Debian's package `mpich` has the compilers without the headers.
fn missing() -> Option<&'static str> {
    for program in ["mpicc", "mpicxx", "mpirun"] {
        if Command::new(program).arg("--version").output().is_err() {
            return Some(program);
        }
    }
    let header = Command::new("mpicc").args(["-fsyntax-only", "-include", "mpi.h", "-x", "c", "/dev/null"]).output();
    (!header.is_ok_and(|done| done.status.success())).then_some("mpi.h")
}

/// Returns true if MPI is there; prints the reason otherwise, which is an error in CI.
fn has_mpi() -> bool {
    let Some(missing) = missing() else { return true };
    assert!(std::env::var_os(REQUIRED).is_none(), "{missing} is not installed");
    println!("SKIP: {missing} is not installed");
    false
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
    let mut command = Command::new(compiler);
    command.args(flags).args(["-g", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    // Headers of MPI are not ours to check.
    command.arg("-I").arg(root().join("include")).arg("-I").arg(root().join("../../kernels/include"));
    command.arg("-o").arg(program).arg(source).args(["-x", "none"]);
    let libraries = library_folder();
    succeed(command.arg("-L").arg(&libraries).arg("-lwarpbell_c").arg(format!("-Wl,-rpath,{}", libraries.display())));
}

/// Runs a program as several ranks. Open MPI starts more ranks than processors, and those of root, only if it is told to.
fn ranks(program: &Path, count: usize, arguments: &[&str]) -> String {
    let mut command = Command::new("mpirun");
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
