//! Calls the C++ compiler for tests, and keeps what it made: equal text with equal options is compiled once.
//!
//! What is kept is found by the compiler's version, its options, and the text that the preprocessor makes of the source
//! and its headers. The folder is `programs` in cargo's folder for tests, below `target/`.

use crate::tree;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

/// Environment variable that names another folder for what is kept.
const KEPT_PROGRAMS: &str = "WARPBELL_KEPT_PROGRAMS";
/// Files in the folder: several times those of one version of the sources. The ones that were not used for longest go.
const MOST_KEPT: usize = 600;

/// One call of the C++ compiler.
pub struct Compilation<'a> {
    pub compiler: &'a OsStr,
    pub options: &'a [&'a str],
    /// Folder of the device headers.
    pub headers: &'a Path,
    pub source: &'a Path,
}

impl Compilation<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.compiler);
        command.args(self.options).arg("-I").arg(self.headers);
        command
    }

    fn output(&self, mut command: Command) -> Output {
        let ended = command.arg(self.source).output();
        ended.unwrap_or_else(|e| panic!("{:?} cannot be run: {e}; set CXX to a C++20 compiler", self.compiler))
    }

    /// Returns the path of what the compiler makes of the source: a kept file, or `out` if nothing is kept on this machine.
    ///
    /// # Errors
    ///
    /// Fails with the compiler's output if it does not accept the source.
    pub fn run(&self, out: &Path) -> Result<PathBuf, Output> {
        // A source that cannot be preprocessed has no key. The compilation then tells why, or needs none.
        let (Some(folder), Some(key)) = (folder(), self.key()) else {
            return self.compile(out).map(|()| out.to_owned());
        };
        let kept = folder.join(&key);
        // Tests that need the same one at the same time wait for the first.
        let turn = turn(key);
        let _alone = turn.lock().unwrap_or_else(|e| e.into_inner());
        if let Ok(file) = fs::File::open(&kept) {
            // The order of use. A folder that cannot be written has none.
            let _ = file.set_modified(SystemTime::now());
            return Ok(kept);
        }
        // Under another name until it is complete: other programs look for it meanwhile.
        let draft = kept.with_extension(std::process::id().to_string());
        self.compile(&draft)?;
        if !draft.exists() {
            // A source that is only checked: that it passed is what is kept.
            fs::write(&draft, "").expect("the folder of kept programs can be written");
        }
        fs::rename(&draft, &kept).expect("the folder of kept programs can be written");
        remove_oldest(&folder);
        Ok(kept)
    }

    fn compile(&self, out: &Path) -> Result<(), Output> {
        let mut command = self.command();
        command.arg("-o").arg(out);
        let output = self.output(command);
        if output.status.success() { Ok(()) } else { Err(output) }
    }

    /// Returns the name of the file with what this compiler makes of this text with these options.
    fn key(&self) -> Option<String> {
        let mut command = Command::new(self.compiler);
        // Clang warns of an option that asks for something else than preprocessing.
        command
            .args(self.options.iter().filter(|option| **option != "-fsyntax-only"))
            .arg("-I")
            .arg(self.headers)
            .arg("-E");
        let preprocessed = self.output(command);
        if !preprocessed.status.success() {
            return None;
        }
        // Copies of headers and generated sources are in a new folder each time.
        let mut text = String::from_utf8_lossy(&preprocessed.stdout).into_owned();
        let folders = [self.headers, self.source.parent().unwrap_or(Path::new(""))];
        for (folder, name) in folders.iter().zip(["<headers>/", "<source>/"]) {
            text = text.replace(&format!("{}/", folder.display()), name);
        }
        let mut hasher = DefaultHasher::new();
        (version(self.compiler), self.options, text).hash(&mut hasher);
        Some(format!("{:016x}", hasher.finish()))
    }
}

/// Returns the lock of the file with this name.
fn turn(key: String) -> Arc<Mutex<()>> {
    static TURNS: Mutex<BTreeMap<String, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());
    TURNS.lock().unwrap_or_else(|e| e.into_inner()).entry(key).or_default().clone()
}

/// Returns what a compiler says of itself.
fn version(compiler: &OsStr) -> Vec<u8> {
    Command::new(compiler).arg("--version").output().map(|o| o.stdout).unwrap_or_default()
}

/// Returns the folder of what is kept, which exists; `None` on a machine that has no folder for it.
fn folder() -> Option<PathBuf> {
    let named = std::env::var_os(KEPT_PROGRAMS).map(PathBuf::from);
    let folder = named.or_else(|| tree::build_folder().map(|tests| tests.join("programs")))?;
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{KEPT_PROGRAMS}: {}: {e}", folder.display()));
    Some(folder)
}

/// Removes the files that were not used for longest, if there are too many.
fn remove_oldest(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let modified = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<_> = paths.filter_map(|path| Some((modified(&path)?, path))).collect();
    files.sort();
    for (_, path) in &files[..files.len().saturating_sub(MOST_KEPT)] {
        // Another test may have removed it.
        let _ = fs::remove_file(path);
    }
}

/// Returns the C++ compiler of the tests: that of `WARPBELL_TEST_CXX` or `CXX`, or the first one that runs.
pub fn compiler() -> OsString {
    // The second one is also the build's, which is repeated when it changes.
    if let Some(cxx) = ["WARPBELL_TEST_CXX", "CXX"].into_iter().find_map(std::env::var_os) {
        return cxx;
    }
    let works = |c: &str| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success());
    ["c++", "g++", "clang++"].into_iter().find(|c| works(c)).unwrap_or("c++").into()
}
