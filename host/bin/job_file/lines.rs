//! Sections and lines of a job file: comments, included files, and variables of the environment.

use super::error::{Fault, JobFileError, Place};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest job file, and largest sum of a job file and the files that it includes.
const MOST_BYTES: usize = 1 << 20;
/// Longest line, as in fio.
const LONGEST_LINE: usize = 8190;
/// Longest name of a section, as in fio.
const LONGEST_NAME: usize = 254;
/// Most files that are open at the same time: the job file, and files that include each other.
const DEEPEST: usize = 16;
/// Most files that are included.
const MOST_FILES: usize = 256;
/// Most sections, as many as fio has jobs.
pub const MOST_SECTIONS: usize = 4096;
/// Words that fio replaces by a number of the machine.
const MACHINE_WORDS: [&str; 3] = ["$pagesize", "$mb_memory", "$ncpus"];

/// Files and variables that job files name.
pub trait Environment {
    /// Returns true if the file exists.
    fn exists(&self, path: &Path) -> bool;
    /// Returns the bytes of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Returns the value of a variable.
    fn variable(&self, name: &str) -> Option<String>;
}

/// Files of this machine and variables of this process.
pub struct System;

impl Environment for System {
    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // One byte more than a file may have shows that it is too large.
        std::fs::File::open(path)?.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// Section of a job file.
#[derive(Debug)]
pub struct Section {
    /// Name between the brackets.
    pub name: String,
    /// Line of the name.
    pub place: Place,
    /// Options, in the order of their lines.
    pub settings: Vec<Setting>,
}

impl Section {
    /// Returns true if the section has options for the jobs after it. fio compares the first six letters.
    pub fn is_global(&self) -> bool {
        self.name.starts_with("global")
    }
}

/// Line with an option.
#[derive(Debug)]
pub struct Setting {
    /// Name of the option, as written.
    pub key: String,
    /// Text behind `=`; `None` without `=`.
    pub value: Option<String>,
    /// The line.
    pub place: Place,
}

/// Returns the sections of a job file.
///
/// # Errors
/// A file cannot be read, or a line is neither a section nor an option of one.
pub fn sections(path: &Path, text: &[u8], environment: &dyn Environment) -> Result<Vec<Section>, JobFileError> {
    let mut reader = Reader { environment, open: Vec::new(), files: 0, bytes: 0, sections: Vec::new() };
    let start = Place { file: path.display().to_string().into(), line: 1 };
    reader.file(path, text, &start)?;
    Ok(reader.sections)
}

struct Reader<'a> {
    environment: &'a dyn Environment,
    /// Files that are being read, the job file first.
    open: Vec<PathBuf>,
    files: usize,
    bytes: usize,
    sections: Vec<Section>,
}

impl Reader<'_> {
    /// Reads the lines of a file, which the line at `from` names.
    fn file(&mut self, path: &Path, text: &[u8], from: &Place) -> Result<(), JobFileError> {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > MOST_BYTES {
            return Err(fault("the job file with all files that it includes has more than 1 MiB; divide it").at(from));
        }
        self.open.push(path.to_owned());
        let file: Arc<str> = path.display().to_string().into();
        for (i, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let place = Place { file: Arc::clone(&file), line: i + 1 };
            let line = content(line).map_err(|fault| fault.at(&place))?;
            if !line.is_empty() {
                self.line(line, place)?;
            }
        }
        self.open.pop();
        Ok(())
    }

    fn line(&mut self, line: &str, place: Place) -> Result<(), JobFileError> {
        if line.starts_with('[') {
            let section = self.section(line, &place).map_err(|fault| fault.at(&place))?;
            self.sections.push(section);
            return Ok(());
        }
        if self.sections.is_empty() {
            return Err(fault(format!("`{line}` is in front of the first section; write [global] above it")).at(&place));
        }
        if let Some(rest) = line.strip_prefix("include") {
            return self.include(rest, &place);
        }
        let line = self.replace_variables(line).map_err(|fault| fault.at(&place))?;
        let (key, value) = match line.split_once('=') {
            Some((key, value)) => (key, Some(value.to_owned())),
            None => (line.as_str(), None),
        };
        if let Some(section) = self.sections.last_mut() {
            section.settings.push(Setting { key: key.trim_end().to_owned(), value, place });
        }
        Ok(())
    }

    fn section(&self, line: &str, place: &Place) -> Result<Section, Fault> {
        if self.open.len() > 1 {
            return Err(fault(format!(
                "the section {line} is in an included file; write sections in the job file alone"
            )));
        }
        if self.sections.len() >= MOST_SECTIONS {
            return Err(fault(format!("more than {MOST_SECTIONS} sections; divide the file")));
        }
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) if (1..=LONGEST_NAME).contains(&name.len()) => {
                Ok(Section { name: name.to_owned(), place: place.clone(), settings: Vec::new() })
            }
            Some(name) => Err(fault(format!(
                "the name of the section has {} bytes; write 1 to {LONGEST_NAME} between the brackets",
                name.len()
            ))),
            None => Err(fault(format!("the section {line} does not end with a bracket; write it as in [job1]"))),
        }
    }

    /// Reads an included file. Like fio, this looks for it in the working directory first, and then beside the file that
    /// includes it.
    fn include(&mut self, rest: &str, place: &Place) -> Result<(), JobFileError> {
        let Some(name) = rest.strip_prefix([' ', '\t']).filter(|name| !name.starts_with([' ', '\t'])) else {
            let reason =
                "fio takes each line that begins with `include` for `include FILE`; write FILE behind one blank";
            return Err(fault(format!("include{rest}: {reason}")).at(place));
        };
        let beside = self.open.last().and_then(|file| file.parent()).map(|folder| folder.join(name));
        let path = match beside {
            Some(beside) if !self.environment.exists(Path::new(name)) => beside,
            _ => PathBuf::from(name),
        };
        let refuse = |reason: String| Err(fault(format!("include {name}: {reason}")).at(place));
        if self.open.contains(&path) {
            return refuse("the file includes itself; remove one of the two lines".to_owned());
        }
        if self.open.len() >= DEEPEST {
            return refuse(format!("files include each other more than {DEEPEST} deep; include fewer"));
        }
        if self.files >= MOST_FILES {
            return refuse(format!("more than {MOST_FILES} files are included; include fewer"));
        }
        self.files += 1;
        match self.environment.read(&path) {
            Ok(text) => self.file(&path, &text, place),
            Err(e) => refuse(format!("{}: {e}; write its path from here, or from this job file", path.display())),
        }
    }

    /// Replaces `${NAME}` by the variable of the environment.
    fn replace_variables(&self, line: &str) -> Result<String, Fault> {
        let (mut out, mut rest) = (String::with_capacity(line.len()), line);
        while let Some((before, name, after)) = next_variable(rest) {
            let Some(value) = self.environment.variable(name) else {
                return Err(fault(format!(
                    "{line}: the variable `{name}` is not set, and fio would take it for an empty text; set it"
                )));
            };
            out += before;
            out += &value;
            rest = after;
            if out.len() > LONGEST_LINE {
                return Err(fault(format!("a line of more than {LONGEST_LINE} bytes; shorten the variable `{name}`")));
            }
        }
        out += rest;
        check_characters(&out)?;
        match MACHINE_WORDS.iter().find(|word| out.contains(**word)) {
            Some(word) => Err(fault(format!("{out}: fio puts a number of the machine for {word}; write the number"))),
            None => Ok(out),
        }
    }
}

/// Returns the text before the first variable, its name, and the text after it.
fn next_variable(text: &str) -> Option<(&str, &str, &str)> {
    let (before, behind) = text.split_once("${")?;
    let (name, after) = behind.split_once('}')?;
    Some((before, name, after))
}

/// Returns a line without its comment and without blanks around it.
fn content(line: &[u8]) -> Result<&str, Fault> {
    if line.len() > LONGEST_LINE {
        return Err(fault(format!("a line of {} bytes; fio cuts lines after {LONGEST_LINE}: shorten it", line.len())));
    }
    let line = str::from_utf8(line).map_err(|_| fault("bytes that are not UTF-8; write the line in UTF-8"))?;
    let line = line.split([';', '#']).next().unwrap_or_default();
    let line = line.trim_matches(|c: char| c.is_ascii_whitespace() || c.is_ascii_control());
    check_characters(line)?;
    Ok(line)
}

/// Refuses control characters, which nobody sees in a message.
fn check_characters(line: &str) -> Result<(), Fault> {
    match line.chars().find(|c| c.is_control() && *c != '\t') {
        Some(c) => Err(fault(format!("a control character, {}; remove it", c.escape_unicode()))),
        None => Ok(()),
    }
}

fn fault(text: impl Into<String>) -> Fault {
    Fault(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_file::tests::Files;

    /// Prints the sections of `job.fio` in one line.
    fn read(files: &Files) -> Result<String, String> {
        let path = Path::new("dir/job.fio");
        let text = files.read(path).map_err(|e| e.to_string())?;
        let sections = sections(path, &text, files).map_err(|e| e.to_string())?;
        let of = |section: &Section| {
            let settings = section.settings.iter().map(|s| match &s.value {
                Some(value) => format!("{}={value}", s.key),
                None => s.key.clone(),
            });
            format!("[{}]{}", section.name, settings.collect::<Vec<_>>().join("|"))
        };
        Ok(sections.iter().map(of).collect())
    }

    fn job(text: &str) -> Files {
        Files::new(&[("dir/job.fio", text)])
    }

    #[test]
    fn comments_and_blanks_go_and_a_blank_behind_the_sign_stays() {
        let text = "; a comment\n\n  # another\n[global]\r\n  bs =4k  # four\r\ndescription=a # b\n[my job] ; x\n\trw= read;y\n\
                    direct\n[a][b]\nfilename=a#b";
        let expected = "[global]bs=4k|description=a[my job]rw= read|direct[a][b]filename=a";
        assert_eq!(read(&job(text)), Ok(expected.to_owned()));
    }

    #[test]
    fn files_are_included_within_a_section() {
        let files = Files::new(&[
            ("dir/job.fio", "[a]\nrw=read\ninclude sub/x.inc\nbs=4k"),
            ("dir/sub/x.inc", "; more\nsize=1m\ninclude y.inc\n"),
            ("dir/sub/y.inc", "loops=2"),
            ("y.inc", "loops=3"),
        ]);
        // A file of the working directory has precedence.
        assert_eq!(read(&files), Ok("[a]rw=read|size=1m|loops=3|bs=4k".to_owned()));
    }

    #[test]
    fn lines_that_are_no_options_of_a_section_are_refused() {
        for (text, says) in [
            ("bs=4k\n[a]", "dir/job.fio:1: `bs=4k` is in front of the first section; write [global] above it"),
            ("\ninclude x\n[a]", "dir/job.fio:2: `include x` is in front of the first section"),
            ("[a", "dir/job.fio:1: the section [a does not end with a bracket"),
            ("[a] b", "does not end with a bracket"),
            ("[]", "the name of the section has 0 bytes"),
            ("[a]\nincludes=1", "dir/job.fio:2: includes=1: fio takes each line that begins with `include`"),
            ("[a]\ninclude  x", "write FILE behind one blank"),
            ("[a]\n\ninclude none.inc", "dir/job.fio:3: include none.inc: dir/none.inc: no such file; write its path"),
            ("[a]\nbs=4\u{7}k", "a control character, \\u{7}"),
            ("[a]\nnumjobs=$ncpus", "numjobs=$ncpus: fio puts a number of the machine for $ncpus; write the number"),
        ] {
            let error = read(&job(text)).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        let error = read(&job(&format!("[a]\ndescription={}", "x".repeat(8200)))).unwrap_err();
        assert!(error.contains("a line of 8212 bytes"), "{error}");
        let error = sections(Path::new("job.fio"), b"[a]\nname=\xff", &job("")).unwrap_err().to_string();
        assert_eq!(error, "job.fio:2: bytes that are not UTF-8; write the line in UTF-8");
    }

    #[test]
    fn inclusion_ends() {
        let files = Files::new(&[
            ("dir/job.fio", "[a]\ninclude x.inc"),
            ("dir/x.inc", "include y.inc"),
            ("dir/y.inc", "bs=4k\ninclude x.inc"),
        ]);
        assert!(read(&files).unwrap_err().starts_with("dir/y.inc:2: include x.inc: the file includes itself"));
        let chain: Vec<_> = (0..20).map(|i| (format!("dir/{i}.inc"), format!("include {}.inc", i + 1))).collect();
        let files = Files::of(chain.into_iter().chain([("dir/job.fio".to_owned(), "[a]\ninclude 0.inc".to_owned())]));
        assert!(read(&files).unwrap_err().contains("files include each other more than 16 deep"));
        // Each of ten levels includes the next one twice.
        let tree = (0..10).map(|i| (format!("dir/{i}.inc"), format!("include {0}.inc\ninclude {0}.inc", i + 1)));
        let leaf = ("dir/10.inc".to_owned(), "loops=1".to_owned());
        let start = ("dir/job.fio".to_owned(), "[a]\ninclude 0.inc".to_owned());
        let files = Files::of(tree.chain([leaf, start]));
        assert!(read(&files).unwrap_err().contains("more than 256 files are included"));
        let files = Files::new(&[("dir/job.fio", "[a]\ninclude x.inc"), ("dir/x.inc", "[b]")]);
        assert!(read(&files).unwrap_err().starts_with("dir/x.inc:1: the section [b] is in an included file"));
        assert!(read(&job(&"[a]\n".repeat(4097))).unwrap_err().contains("more than 4096 sections"));
        assert!(read(&job(&"# comment\n".repeat(120_000))).unwrap_err().contains("more than 1 MiB"));
    }

    #[test]
    fn variables_are_those_of_the_environment() {
        let mut files = job("[a]\nfilename=${DISK}x${DISK}\nbs=${}\n");
        files.set("DISK", "/dev/a");
        files.set("", "4k");
        assert_eq!(read(&files), Ok("[a]filename=/dev/ax/dev/a|bs=4k".to_owned()));
        let error = read(&job("[a]\nsize=${SIZE}")).unwrap_err();
        assert!(error.starts_with("dir/job.fio:2: size=${SIZE}: the variable `SIZE` is not set"), "{error}");
        assert_eq!(read(&job("[a]\ndescription=${open $x")), Ok("[a]description=${open $x".to_owned()));
        let mut files = job("[a]\nfilename=${LONG}");
        files.set("LONG", &"x".repeat(9000));
        assert!(read(&files).unwrap_err().contains("shorten the variable `LONG`"));
    }
}
