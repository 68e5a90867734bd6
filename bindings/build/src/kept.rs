//! Objects of earlier compilations, kept by content: builds of one target folder compile equal text with equal options once, whichever
//! package, profile or features they are for.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Objects that are kept. The ones that were not used for longest go.
const MOST: usize = 64;

/// The place of one object among those that are kept.
pub(crate) struct Kept {
    object: PathBuf,
}

impl Kept {
    /// Returns the place of the object that this command makes of this preprocessed text; `None` if `output` is in no target folder of cargo.
    pub(crate) fn place(command: &Command, text: &str, output: &Path) -> Option<Self> {
        let target = output.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
        let mut hasher = DefaultHasher::new();
        let version = Command::new(command.get_program()).arg("--version").output().ok()?;
        // Without the environment: its folders of headers are in the text, and cargo's variables are of one build.
        let words: Vec<&OsStr> = command.get_args().collect();
        (version.stdout, command.get_program(), words, text).hash(&mut hasher);
        Some(Self { object: target.join("warpbell-build").join(format!("{:016x}.o", hasher.finish())) })
    }

    /// Puts a kept object at `output`. Returns false if there is none.
    pub(crate) fn put(&self, output: &Path) -> bool {
        let is_there = fs::copy(&self.object, output).is_ok();
        if is_there && let Ok(file) = fs::File::options().append(true).open(&self.object) {
            // The order of use. A folder that cannot be written has none.
            let _ = file.set_modified(SystemTime::now());
        }
        is_there
    }

    /// Keeps the object at `output`. A build goes on without, if the folder cannot be written.
    pub(crate) fn keep(&self, output: &Path) {
        let Some(folder) = self.object.parent() else { return };
        // Under another name until it is complete: other builds look for it meanwhile.
        let draft = self.object.with_extension(std::process::id().to_string());
        let kept = fs::create_dir_all(folder)
            .and_then(|()| fs::copy(output, &draft))
            .and_then(|_| fs::rename(&draft, &self.object));
        if kept.is_ok() {
            remove_oldest(folder);
        }
    }
}

fn remove_oldest(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let modified = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    let mut files: Vec<_> = paths.filter_map(|path| Some((modified(&path)?, path))).collect();
    files.sort();
    for (_, path) in &files[..files.len().saturating_sub(MOST)] {
        // Another build may have removed it.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_text_and_options_have_one_object() {
        let folder = tempfile::tempdir().unwrap();
        let [debug, other] = ["debug/a/out", "release/b/out"].map(|name| folder.path().join(name));
        // Cargo's variables are those of one build.
        let place = |option: &str, text: &str, out: &Path| {
            let mut command = Command::new("sh");
            command.arg(option).env("OUT_DIR", out);
            Kept::place(&command, text, &out.join("image.o"))
        };
        assert!(place("-O1", "int x;", &debug).is_none());
        fs::write(folder.path().join("CACHEDIR.TAG"), "").unwrap();
        for out in [&debug, &other] {
            fs::create_dir_all(out).unwrap();
        }
        fs::write(debug.join("image.o"), "object").unwrap();
        let kept = place("-O1", "int x;", &debug).unwrap();
        assert!(!kept.put(&other.join("image.o")));
        kept.keep(&debug.join("image.o"));
        assert!(place("-O1", "int x;", &other).unwrap().put(&other.join("image.o")));
        assert_eq!(fs::read(other.join("image.o")).unwrap(), b"object");
        for (option, text) in [("-O3", "int x;"), ("-O1", "int y;")] {
            assert!(!place(option, text, &other).unwrap().put(&other.join("image.o")), "{option} {text}");
        }
    }
}
