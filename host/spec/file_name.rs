//! Checks file names after `soft:`. A misspelled option or a misspelled `mem` would otherwise name a new file.

use super::escape::escape;
use super::option::{SOFT, is_known, size, unknown};
use super::{FILE, MEMORY, SpecError};
use crate::suggest::closest;
use std::ffi::OsStr;
use std::path::Path;

/// Rejects a name that looks like something else, unless a file has that name.
pub(super) fn check(name: &OsStr) -> Result<(), SpecError> {
    match looks_wrong(name) {
        Some(e) if Path::new(name).symlink_metadata().is_err() => Err(e),
        _ => Ok(()),
    }
}

/// Returns true if the name needs the prefix `file:` to be read back as it is.
pub(super) fn needs_prefix(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    let word = text.split_once(':').map_or(text.as_ref(), |(word, _)| word);
    text == MEMORY || (word != text && [MEMORY, FILE].contains(&word)) || looks_wrong(name).is_some()
}

/// Returns the reason why a name looks like something else; `None` if it looks like a file's.
fn looks_wrong(name: &OsStr) -> Option<SpecError> {
    let written = escape(name);
    let refuse =
        |looks: &str, meant| Some(SpecError::NotAName { name: written.clone(), looks: looks.to_owned(), meant });
    let name = name.to_string_lossy();
    let is_word = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let key = name.split_once('=').map_or(name.as_ref(), |(key, _)| key);
    if is_known(key, SOFT) {
        let looks = format!("is an option, which follows the memory or file, as in soft:mem:1G,{written}");
        return refuse(&looks, String::new());
    }
    if key != name && is_word(key) {
        return refuse("does not look like a file name", format!("; {}", unknown(key, SOFT)));
    }
    let (word, rest) = name.split_once(':').map_or((name.as_ref(), None), |(word, rest)| (word, Some(rest)));
    if !is_word(word) || word.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    let known: &[&str] = if rest.is_some() { &[MEMORY, FILE] } else { &[MEMORY] };
    let lower = word.to_ascii_lowercase();
    let meant = match rest.and_then(size) {
        Some(_) => MEMORY,
        None => known.iter().find(|k| **k == lower).copied().or_else(|| closest(&lower, known.iter().copied()))?,
    };
    refuse("does not look like a file name", format!("; did you mean soft:{meant}{}?", &written[word.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_something_else_is_no_new_file() {
        for (name, words) in [
            (
                "nonsense=1",
                [
                    "there is no option `nonsense`; there are block=,",
                    "for a file of that name write soft:file:nonsense=1",
                ],
            ),
            ("blok=4096", ["did you mean `block`?", "soft:file:blok=4096"]),
            ("block=4096", ["`block=4096` is an option", "as in soft:mem:1G,block=4096"]),
            ("never-ready", ["`never-ready` is an option", "soft:file:never-ready"]),
            ("men:1G", ["did you mean soft:mem:1G?", "soft:file:men:1G"]),
            ("men", ["did you mean soft:mem?", "soft:file:men"]),
            ("MEM:1G", ["did you mean soft:mem:1G?", "soft:file:MEM:1G"]),
            ("memory:64M", ["did you mean soft:mem:64M?", "soft:file:memory:64M"]),
            ("fiel:a,b.img", [r"did you mean soft:file:a\,b.img?", r"soft:file:fiel:a\,b.img"]),
        ] {
            let said = check(OsStr::new(name)).unwrap_err().to_string();
            words.iter().for_each(|w| assert!(said.contains(w), "{name}: {said}"));
        }
        for name in ["edges:new.img", "12:30", "edges", "./x=1", "/data/run=3.img", "mesh.img", "edges-{pe}"] {
            assert_eq!(check(OsStr::new(name)), Ok(()));
        }
        // A file that exists is accepted in spite of its name.
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("nonsense=1");
        std::fs::write(&there, b"").unwrap();
        assert_eq!(check(there.as_os_str()), Ok(()));
    }

    #[test]
    fn names_that_would_be_read_as_something_else_get_a_prefix() {
        for name in ["mem", "mem:1G", "mem:", "file:x", "file:", "file", "nonsense=1", "men", "fiel:a"] {
            assert!(needs_prefix(OsStr::new(name)), "{name}");
        }
        for name in ["memory.img", "edges", "/mem", "./mem"] {
            assert!(!needs_prefix(OsStr::new(name)), "{name}");
        }
    }
}
