//! Compiles the families of `kernels/` whose features are on, twice: with nvcc, when there is one (feature `gpu-image`), to a fat binary
//! for each file, which are embedded; with the C++ compiler as C++20 for the CPU engine (`cpu-image`). `examples/kernels/` likewise, for the examples alone, and only where somebody works on this
//! crate itself. docs/device-library.md shows the same steps for a crate that brings its own kernels.
//!
//! A file is compiled again only if its command, its compiler, or a file that it includes has changed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};
use std::{env, fs, thread};

/// GPU generations that get machine code; the newest also gets PTX, which later GPUs compile when they load it.
const DEFAULT_ARCHS: &[u32] = &[80, 90, 100];

fn main() {
    // SAFETY: the first thing that this program does, so no descriptor that cargo handed over has been closed or reused.
    let tokens = Tokens(unsafe { jobserver::Client::from_env() });
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=kernels");
    // PATH is not among them: the compilers that were found on it are watched instead.
    for v in ["NVCC", "CUDA_HOME", "CUDA_PATH", "WARPBELL_CUDA_ARCHS", "DOCS_RS"] {
        println!("cargo::rerun-if-env-changed={v}");
    }
    println!("cargo::rustc-check-cfg=cfg(cpu_image)");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let include = root.join("kernels/include");
    println!("cargo::metadata=include={}", include.display());
    println!("cargo::rustc-env=WARPBELL_INCLUDE_DIR={}", include.display());

    let docs = env::var_os("DOCS_RS").is_some();
    let nvcc = (!docs && feature("gpu-image")).then(find_nvcc).flatten();
    assert!(
        nvcc.is_some() || docs || !feature("require-cuda"),
        "feature `require-cuda`: no nvcc (looked at $NVCC, $CUDA_HOME/bin, $CUDA_PATH/bin and $PATH)"
    );
    let cpu_image = !docs && feature("cpu-image");
    // Cargo sets the variable while it compiles the build script of a package that was asked for, not of a dependency. The examples' image
    // is linked into programs that have the shipped ones too.
    let examples = option_env!("CARGO_PRIMARY_PACKAGE").is_some() && cpu_image && feature("storage");
    if examples {
        println!("cargo::rerun-if-changed=examples/kernels");
    }
    // An empty file keeps `include_bytes!` valid where there is no image.
    let examples_fatbin = out.join("examples.fatbin");
    if nvcc.is_none() || !examples {
        fs::write(&examples_fatbin, []).expect("OUT_DIR is writable");
        fs::remove_file(examples_fatbin.with_extension("command")).ok();
    }
    let archs = nvcc.as_deref().map(known_archs).unwrap_or_default();
    let sources = kernel_files(&root.join("kernels"));
    // The longest first: what the C++ compiler has for the processor, then what nvcc has.
    let mut units: Vec<Unit> = Vec::new();
    if cpu_image {
        units.push(cpu_unit(&one_source(&sources, &out), &include, &out));
        println!("cargo::rustc-cfg=cpu_image");
    }
    if examples {
        units.push(cpu_unit(&root.join("examples/kernels/image.cu"), &include, &out.join("examples")));
    }
    let mut shipped = Vec::new();
    if let Some(nvcc) = &nvcc {
        println!("cargo::rerun-if-changed={}", nvcc.display());
        for source in sources {
            let name =
                source.strip_prefix(root.join("kernels")).expect("it is in there").to_string_lossy().replace('/', "-");
            let fatbin = out.join("kernels").join(name).with_extension("fatbin");
            shipped.push(fatbin.clone());
            units.push(gpu_unit(nvcc, &source, &include, &archs, fatbin));
        }
        if examples {
            units.push(gpu_unit(nvcc, &root.join("examples/kernels/image.cu"), &include, &archs, examples_fatbin));
        }
    }
    units.retain(Unit::is_stale);
    side_by_side(&tokens, units);
    if cpu_image {
        archive(&out.join("image.o"), "warpbell_cpu", true);
    }
    if examples {
        // The library does not link it: examples/support/mod.rs does.
        archive(&out.join("examples/image.o"), "warpbell_examples", false);
    }
    println!("cargo::rustc-env=WARPBELL_NVCC={}", nvcc.as_deref().map_or("none".to_owned(), release_of));
    println!("cargo::rustc-env=WARPBELL_COMMIT={}", commit(&root));
    println!("cargo::rustc-env=WARPBELL_TARGET={}", env::var("TARGET").expect("cargo sets TARGET"));
    let archs = archs.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    println!("cargo::rustc-env=WARPBELL_IMAGE_ARCHS={archs}");
    let list: String =
        shipped.iter().map(|f| format!("    include_bytes!({:?}),\n", f.display().to_string())).collect();
    fs::write(out.join("kernels.rs"), format!("&[\n{list}]\n")).expect("OUT_DIR is writable");
}

/// Returns true if a feature of the crate is on.
fn feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase().replace('-', "_"))).is_some()
}

/// Returns true if the kernels below this folder, or in this file, belong to a family whose feature is on.
fn is_wanted(path: &Path) -> bool {
    match path.file_name().and_then(|name| name.to_str()) {
        Some("storage") => feature("storage"),
        Some("shmem") => feature("shmem"),
        Some("graph") => feature("graph"),
        Some("partitioned.cu") => feature("shmem"),
        // The program measures with them.
        Some("bench") => feature("cli"),
        Some("include" | "cpu") => false,
        _ => true,
    }
}

/// Returns the files of kernels below a folder that are wanted, the longest first.
fn kernel_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the package") {
            let path = entry.expect("a folder of the package").path();
            if !is_wanted(&path) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "cu") {
                files.push(path);
            }
        }
    }
    files.sort_by_key(|f| (std::cmp::Reverse(fs::metadata(f).map_or(0, |m| m.len())), f.clone()));
    files
}

/// Writes a source that is all of these as one translation unit, as the CPU engine needs them. The list of the image's kernels comes last.
fn one_source(sources: &[PathBuf], out: &Path) -> PathBuf {
    let mut sorted: Vec<_> = sources.iter().collect();
    sorted.sort_by_key(|f| (f.ends_with("kernels/image.cu"), *f));
    let text: String = sorted.iter().map(|f| format!("#include \"{}\"\n", f.display())).collect();
    let source = out.join("image.cpp");
    // One that has not changed is not compiled again.
    if fs::read_to_string(&source).ok().as_deref() != Some(&text) {
        fs::write(&source, text).expect("OUT_DIR is writable");
    }
    source
}

/// One file to compile. Beside the output, `.d` lists what the source includes, and `.command` says how and since when it was compiled.
struct Unit {
    command: Command,
    compiler: PathBuf,
    output: PathBuf,
    /// nvcc: a second generation may be compiled at the same time.
    forks: bool,
}

impl Unit {
    fn new(mut command: Command, compiler: PathBuf, source: &Path, output: PathBuf) -> Self {
        fs::create_dir_all(output.parent().expect("a file in OUT_DIR")).expect("OUT_DIR is writable");
        command.arg("-MD").arg("-MF").arg(output.with_extension("d")).arg("-o").arg(&output).arg(source);
        Self { command, compiler, output, forks: false }
    }

    fn record(&self) -> PathBuf {
        self.output.with_extension("command")
    }

    /// Returns false if this command made the output, after the last change of the compiler and of every file that went into it.
    fn is_stale(&self) -> bool {
        let fresh = || {
            let made = modified(&self.record())?;
            let same = fs::read_to_string(self.record()).ok()? == format!("{:?}", self.command);
            let sources = fs::read_to_string(self.output.with_extension("d")).ok()?;
            let (_, sources) = sources.split_once(" :").or_else(|| sources.split_once(':'))?;
            let older = |file: &Path| modified(file).is_some_and(|m| m <= made);
            // Files whose names hold spaces come out as names that do not exist: compiled each time, never too seldom.
            let files = sources.split_whitespace().filter(|w| *w != "\\").map(Path::new);
            Some(same && self.output.is_file() && older(&self.compiler) && files.into_iter().all(older))
        };
        !fresh().unwrap_or(false)
    }

    fn compile(mut self, tokens: &Tokens) {
        let described = format!("{:?}", self.command);
        fs::remove_file(self.record()).ok();
        // Written first, so that a file that changes meanwhile is newer.
        let started = self.output.with_extension("started");
        fs::write(&started, &described).expect("OUT_DIR is writable");
        // So the last file keeps more than one processor busy, if cargo gives another.
        let second = if self.forks { tokens.try_one() } else { None };
        if second.is_some() {
            self.command.args(["--threads", "2"]);
        }
        let done = self.command.output().unwrap_or_else(|e| panic!("{} cannot be run: {e}", self.compiler.display()));
        assert!(
            done.status.success(),
            "{described} failed:\n{}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
        fs::rename(started, self.record()).expect("OUT_DIR is writable");
    }
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|m| m.modified()).ok()
}

fn cpu_unit(source: &Path, include: &Path, out: &Path) -> Unit {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++20")
        .include(include)
        .define("WB_WARP_WIDTH", "1")
        .define("WB_CHECKED", if checked_calls() { "1" } else { "0" })
        .opt_level(if env::var("PROFILE").as_deref() == Ok("release") { 3 } else { 1 })
        // `#pragma unroll` is a word of nvcc and clang; g++ says that it ignores it.
        .flag_if_supported("-Wno-unknown-pragmas")
        // Batches are loaded and used under the same condition, which g++ loses sight of at -O3.
        .flag_if_supported("-Wno-maybe-uninitialized")
        .debug(false);
    // Lines, as in `[profile.dev]`: all of `-g` would take a quarter of the compiler's time.
    if env::var("DEBUG").is_ok_and(|d| !matches!(d.as_str(), "false" | "0" | "none")) {
        build.flag_if_supported("-g1");
    }
    let compiler = build.get_compiler();
    let mut command = compiler.to_command();
    if source.extension().is_some_and(|e| e == "cu") {
        command.arg("-xc++");
    }
    command.arg("-c");
    let program = on_path(compiler.path());
    println!("cargo::rerun-if-changed={}", program.display());
    Unit::new(command, program, source, out.join("image.o"))
}

/// Makes a static library of an object. Only one that is `linked` becomes part of this package's library.
fn archive(object: &Path, name: &str, linked: bool) {
    cc::Build::new().cpp(true).object(object).cargo_metadata(linked).compile(name);
}

/// Compiles a source to a fat binary.
fn gpu_unit(nvcc: &Path, source: &Path, include: &Path, archs: &[u32], fatbin: PathBuf) -> Unit {
    let mut command = Command::new(nvcc);
    command.args([
        "-std=c++17",
        "-O3",
        "-lineinfo",
        "--fatbin",
        "-Xfatbin",
        "-compress-all",
        "-Werror",
        "all-warnings",
    ]);
    command.arg("-I").arg(include);
    if checked_everywhere() {
        command.arg("-DWB_CHECKED=1");
    }
    for a in archs {
        command.arg("-gencode").arg(format!("arch=compute_{a},code=sm_{a}"));
    }
    let newest = archs.iter().max().expect("not empty");
    command.arg("-gencode").arg(format!("arch=compute_{newest},code=compute_{newest}"));
    Unit { forks: true, ..Unit::new(command, nvcc.to_owned(), source, fatbin) }
}

/// Returns true if a world's calls check their addresses: with feature `checked`, and on CPU threads in a debug build.
fn checked_calls() -> bool {
    checked_everywhere() || env::var("PROFILE").as_deref() == Ok("debug")
}

fn checked_everywhere() -> bool {
    feature("checked")
}

/// The file that a program's name stands for.
fn on_path(program: &Path) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|d| d.join(program)).find(|p| p.is_file()).unwrap_or_else(|| program.to_owned())
}

fn find_nvcc() -> Option<PathBuf> {
    let named = env::var_os("NVCC").map(PathBuf::from);
    let homes = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(env::var_os).map(|h| PathBuf::from(h).join("bin/nvcc"));
    named.into_iter().chain(homes).chain([on_path(Path::new("nvcc"))]).find(|p| p.is_file())
}

/// Returns the release that nvcc tells, as in `13.0`.
fn release_of(nvcc: &Path) -> String {
    let told = Command::new(nvcc).arg("--version").output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let told = told.unwrap_or_default();
    told.split("release ").nth(1).and_then(|rest| rest.split(',').next()).unwrap_or("unknown").to_owned()
}

/// Returns the commit that is built: of a package the one that it was made from, of a checkout its newest. Only release builds look
/// at a checkout: others would be built again after each commit.
fn commit(root: &Path) -> String {
    if let Ok(facts) = fs::read_to_string(root.join(".cargo_vcs_info.json")) {
        let sha1 = facts.split("\"sha1\": \"").nth(1).and_then(|rest| rest.split('"').next());
        return sha1.unwrap_or("unknown").to_owned();
    }
    if env::var("PROFILE").as_deref() != Ok("release") {
        return "unknown (a development build)".to_owned();
    }
    let log = root.join(".git/logs/HEAD");
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    let told = Command::new("git").arg("-C").arg(root).args(["rev-parse", "HEAD"]).output();
    let told = told.ok().filter(|o| o.status.success()).and_then(|o| String::from_utf8(o.stdout).ok());
    told.map_or("unknown (no checkout)".to_owned(), |commit| commit.trim().to_owned())
}

/// The generations to compile for, as in 80, 90, 100.
fn known_archs(nvcc: &Path) -> Vec<u32> {
    let known =
        Command::new(nvcc).arg("--list-gpu-code").output().map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    let known = known.unwrap_or_default();
    let wanted: Vec<u32> = match env::var("WARPBELL_CUDA_ARCHS") {
        Ok(list) => list
            .split([',', ' '])
            .filter(|a| !a.is_empty())
            .map(|a| a.parse().unwrap_or_else(|_| panic!("WARPBELL_CUDA_ARCHS: `{a}` is not a number such as 90")))
            .collect(),
        Err(_) => {
            DEFAULT_ARCHS.iter().copied().filter(|a| known.lines().any(|l| l.trim() == format!("sm_{a}"))).collect()
        }
    };
    assert!(!wanted.is_empty(), "{} knows none of {DEFAULT_ARCHS:?}; set WARPBELL_CUDA_ARCHS", nvcc.display());
    wanted
}

/// Cargo's permission to keep processors busy beyond the one that a build script has anyway.
struct Tokens(Option<jobserver::Client>);

impl Tokens {
    /// Returns a token if one is free at once. A jobserver that cannot say so gives none: the build is slower, and never too wide.
    fn try_one(&self) -> Option<jobserver::Acquired> {
        self.0.as_ref()?.try_acquire().ok().flatten()
    }
}

/// Compiles, as many files at a time as cargo gives tokens, and one more.
fn side_by_side(tokens: &Tokens, units: Vec<Unit>) {
    let next = Mutex::new(units.into_iter());
    let take = || next.lock().expect("no thread panics with it").next();
    thread::scope(|s| {
        s.spawn(|| {
            while next.lock().expect("no thread panics with it").len() > 0 {
                let Some(token) = tokens.try_one() else {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                };
                s.spawn(|| {
                    let _held = token;
                    while let Some(unit) = take() {
                        unit.compile(tokens);
                    }
                });
            }
        });
        while let Some(unit) = take() {
            unit.compile(tokens);
        }
    });
}
