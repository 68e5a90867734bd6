//! Compiles stress programs of this folder against the device headers with the C++ compiler, plain and under a
//! sanitizer, and runs them.

use crate::compiled::{Compilation, compiler};
use crate::tree::root;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time limit of one run of a program. The longest take half a minute on an idle machine. Beside a load that keeps all
/// processors busy they take many times that, as their threads yield to it. Lanes that wait for each other in two
/// places would never end.
pub const LIMIT: Duration = Duration::from_secs(1200);

/// Returns the output of a program.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Sanitizer that a program is compiled with.
#[derive(Clone, Copy)]
enum Sanitizer {
    None,
    Thread,
    /// UndefinedBehaviorSanitizer. Undefined behaviour ends the program.
    Undefined,
}

impl Sanitizer {
    /// Returns the compiler's options. Warnings are errors only without a sanitizer, whose own code causes warnings.
    fn options(self) -> &'static [&'static str] {
        match self {
            Self::None => &["-Werror"],
            Self::Thread => &["-fsanitize=thread"],
            Self::Undefined => &["-fsanitize=undefined", "-fno-sanitize-recover=all"],
        }
    }
}

/// Compiles a program, which must succeed. Returns its path.
fn built(source: &Path, width: u32, sanitizer: Sanitizer, folder: &Path) -> PathBuf {
    let program = compile(source, width, sanitizer, &folder.join("program"));
    program
        .unwrap_or_else(|output| panic!("{} does not compile at width {width}:\n{}", source.display(), text(&output)))
}

fn compile(source: &Path, width: u32, sanitizer: Sanitizer, out: &Path) -> Result<PathBuf, Output> {
    // Reports of the sanitizer and cores need lines only; all of `-g` would take a quarter of the compiler's time.
    let options = [&["-O1", "-g1"], sanitizer.options()].concat();
    compile_with(&options, &root().join("kernels/include"), source, width, out)
}

/// Compiles a program with these options and headers. Returns its path, which is `out` if nothing is kept.
///
/// # Errors
///
/// Fails with the compiler's output if the program does not compile.
pub fn compile_with(
    options: &[&str],
    headers: &Path,
    source: &Path,
    width: u32,
    out: &Path,
) -> Result<PathBuf, Output> {
    let width = format!("-DWB_WARP_WIDTH={width}");
    // `#pragma unroll` is known to nvcc and clang; g++ warns that it ignores the pragma.
    let own = ["-std=c++20", "-pthread", "-Wall", "-Wextra", "-Wno-unknown-pragmas", &width];
    Compilation { compiler: &compiler(), options: &[&own, options].concat(), headers, source }.run(out)
}

/// Defines tests of one program: `name: plain(WIDTH) ["ARGUMENTS OF A RUN", ...]`, `sanitized(WIDTH)` for one under
/// ThreadSanitizer, or `defined(WIDTH)` for one that undefined behaviour ends. Each test compiles the program for the
/// warp width and runs it once with each list of arguments. Tests behind `long:` take minutes together and are ignored
/// by default.
macro_rules! stress_tests {
    ($source:literal: $($name:ident: $how:ident($width:literal) [$($arguments:literal),+],)*
     $(; long: $($long:ident: $long_how:ident($long_width:literal) [$($long_arguments:literal),+],)+)?) => {
        $(
            #[test]
            fn $name() {
                let runs = [$($arguments.split_whitespace().collect()),+];
                crate::harness::$how($source, $width, &runs);
            }
        )*
        $($(
            #[test]
            #[ignore = "takes minutes with the others like it: .ci/run soak"]
            fn $long() {
                let runs = [$($long_arguments.split_whitespace().collect()),+];
                crate::harness::$long_how($source, $long_width, &runs);
            }
        )+)?
    };
}

/// Compiles a program and runs it with each list of arguments.
pub fn plain(source: &str, width: u32, runs: &[Vec<&str>]) {
    stress_each(source, width, Sanitizer::None, runs);
}

/// Compiles a program with ThreadSanitizer and runs it with each list of arguments.
pub fn sanitized(source: &str, width: u32, runs: &[Vec<&str>]) {
    if has_sanitizer(Sanitizer::Thread) {
        stress_each(source, width, Sanitizer::Thread, runs);
    }
}

/// Compiles a program with UndefinedBehaviorSanitizer and runs it with each list of arguments.
pub fn defined(source: &str, width: u32, runs: &[Vec<&str>]) {
    if has_sanitizer(Sanitizer::Undefined) {
        stress_each(source, width, Sanitizer::Undefined, runs);
    }
}

/// Compiles and runs a program, which must succeed and say so on its last line. Returns its output.
pub fn stress(source: &str, width: u32, sanitize: bool, arguments: &[&str]) -> String {
    let sanitizer = if sanitize { Sanitizer::Thread } else { Sanitizer::None };
    stress_each(source, width, sanitizer, &[arguments.to_vec()])
}

/// Compiles a program and runs it once with each list of arguments. Returns the output of all runs.
fn stress_each(source: &str, width: u32, sanitizer: Sanitizer, runs: &[Vec<&str>]) -> String {
    let source = root().join("tests/device").join(source);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = built(&source, width, sanitizer, folder.path());
    runs.iter().map(|arguments| run(&source, &program, width, sanitizer, arguments, folder.path())).collect()
}

fn run(source: &Path, program: &Path, width: u32, sanitizer: Sanitizer, arguments: &[&str], folder: &Path) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env("TSAN_OPTIONS", "halt_on_error=1 exitcode=66");
    let options = sanitizer.options().join(" ");
    let which = format!("{} {arguments:?} at width {width} ({options})", source.display());
    let ran = output_within(LIMIT, &mut command, folder);
    let ran =
        ran.unwrap_or_else(|said| panic!("{which} was not over after {LIMIT:?} and was ended; it had said:\n{said}"));
    let said = text(&ran);
    assert!(ran.status.success(), "{which}: {}\n{said}", ran.status);
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(printed.lines().last().is_some_and(|l| l.ends_with(": ok")), "it did not come to its end:\n{said}");
    printed
}

/// Runs a program to its end and returns its output. The output goes to files in `folder`, so that the program never
/// waits for a reader.
///
/// # Errors
///
/// Ends the program after `limit`, and fails with its output so far.
pub fn output_within(limit: Duration, command: &mut Command, folder: &Path) -> Result<Output, String> {
    let files = [folder.join("stdout"), folder.join("stderr")];
    let [out, err] = files.each_ref().map(|f| Stdio::from(File::create(f).expect("a file in the temporary folder")));
    let mut child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().expect("the program starts");
    let end = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break Some(status);
        }
        if Instant::now() >= end {
            child.kill().and_then(|()| child.wait()).expect("a child of ours");
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let [stdout, stderr] = files.map(|f| std::fs::read(f).expect("what the program said"));
    let ran = Output { status: status.unwrap_or_default(), stdout, stderr };
    status.is_some().then_some(ran.clone()).ok_or_else(|| text(&ran))
}

/// Returns true if programs can be built and run with this sanitizer here. Without the sanitizer the function prints a
/// line with the reason, and the test is skipped, unless `WARPBELL_REQUIRE_TSAN` is set.
fn has_sanitizer(sanitizer: Sanitizer) -> bool {
    if let Err(reason) = probe(sanitizer) {
        assert!(std::env::var_os("WARPBELL_REQUIRE_TSAN").is_none(), "{reason}");
        println!("SKIP: {reason}");
        return false;
    }
    true
}

fn probe(sanitizer: Sanitizer) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let source = folder.path().join("empty.cpp");
    std::fs::write(&source, "int main() { return 0; }\n").expect("a file in it");
    let program = folder.path().join("empty");
    let options = sanitizer.options().join(" ");
    let program = match compile(&source, 1, sanitizer, &program) {
        Ok(program) => program,
        Err(output) => return Err(format!("{:?} has no {options}: {}", compiler(), text(&output).trim())),
    };
    match Command::new(&program).output() {
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => Err(format!("a program with {options} does not run here: {}", text(&o).trim())),
        Err(e) => Err(format!("a program with {options} does not start here: {e}")),
    }
}
