//! One compilation, which runs only if something has changed.

use crate::error::BuildError;
use crate::kept::Kept;
use crate::pool::Tokens;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// One source to compile. Beside the output, `.d` lists the files that the source includes; `.command` has the command, and its time
/// is when that command began.
pub(crate) struct Unit {
    /// The compiler and its options, without source and output.
    command: Command,
    compiler: PathBuf,
    /// Setting that names another compiler.
    remedy: &'static str,
    source: PathBuf,
    output: PathBuf,
    forks: bool,
    is_kept: bool,
}

impl Unit {
    /// Creates a compilation of a source by a compiler with these options.
    pub(crate) fn new(
        command: Command,
        compiler: PathBuf,
        remedy: &'static str,
        source: &Path,
        output: PathBuf,
    ) -> Result<Self, BuildError> {
        let folder = output.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder).map_err(|source| BuildError::Io { path: folder.to_owned(), source })?;
        Ok(Self { command, compiler, remedy, source: source.to_owned(), output, forks: false, is_kept: false })
    }

    /// Marks a compilation by nvcc, which compiles for a second architecture at the same time if there is a token for it.
    pub(crate) fn that_forks(self) -> Self {
        Self { forks: true, ..self }
    }

    /// Marks a compilation whose output is kept for other builds: the compiler is one of C++ with the options that all of them know.
    pub(crate) fn that_is_kept(self) -> Self {
        Self { is_kept: true, ..self }
    }

    /// Returns the command that makes the output, and the list of included files.
    fn whole_command(&self) -> Command {
        let mut command = self.listing_command();
        command.arg("-o").arg(&self.output).arg(&self.source);
        command
    }

    fn listing_command(&self) -> Command {
        let mut command = Command::new(self.command.get_program());
        command.args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.arg("-MD").arg("-MF").arg(self.output.with_added_extension("d"));
        command
    }

    /// Returns the place where the output is kept for other builds; `None` if it is not kept, or the source is wrong.
    fn kept(&self) -> Option<Kept> {
        if !self.is_kept {
            return None;
        }
        let mut command = self.listing_command();
        let preprocessed = command.arg("-E").arg(&self.source).output().ok()?;
        let text = String::from_utf8(preprocessed.stdout).ok().filter(|_| preprocessed.status.success())?;
        // The generated source is in a folder of its own for each package, profile and set of features.
        let folder = self.source.parent().unwrap_or(Path::new("")).display().to_string();
        Kept::place(&self.command, &text.replace(&folder, ""), &self.output)
    }

    /// Returns the path of the object or fat binary.
    pub(crate) fn output(&self) -> &Path {
        &self.output
    }

    fn record(&self) -> PathBuf {
        self.output.with_added_extension("command")
    }

    /// Returns the files that went into the output: the source, and the headers that it includes.
    pub(crate) fn dependencies(&self) -> Vec<PathBuf> {
        fs::read_to_string(self.output.with_added_extension("d")).map(|text| prerequisites(&text)).unwrap_or_default()
    }

    /// Returns false if this command made the output, after the last change of the compiler and of every file that went into it.
    pub(crate) fn is_stale(&self) -> bool {
        let is_fresh = || {
            let made = modified(&self.record())?;
            let same = fs::read_to_string(self.record()).ok()? == described(&self.whole_command());
            let files = self.dependencies();
            let older = |file: &Path| modified(file).is_some_and(|m| m <= made);
            let all_older = !files.is_empty() && files.iter().all(|file| older(file));
            Some(same && self.output.is_file() && older(&self.compiler) && all_older)
        };
        !is_fresh().unwrap_or(false)
    }

    /// Runs the compiler. Returns the lines of its warnings.
    pub(crate) fn compile(&self, tokens: Tokens) -> Result<Vec<String>, BuildError> {
        let mut command = self.whole_command();
        let described = described(&command);
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| BuildError::Io { path, source }
        };
        fs::remove_file(self.record()).ok();
        // Written first, so that a file that changes meanwhile is newer.
        let started = self.output.with_added_extension("started");
        fs::write(&started, &described).map_err(io(&started))?;
        let kept = self.kept();
        if kept.as_ref().is_some_and(|kept| kept.put(&self.output)) {
            fs::rename(&started, self.record()).map_err(io(&started))?;
            return Ok(Vec::new());
        }
        // So the last file keeps more than one processor busy, if cargo gives another.
        let second = if self.forks { tokens.try_one() } else { None };
        if second.is_some() {
            command.args(["--threads", "2"]);
        }
        let compiler = self.compiler.clone();
        let done = match command.output() {
            Ok(done) => done,
            Err(source) => return Err(BuildError::Start { compiler, command: described, remedy: self.remedy, source }),
        };
        let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        if !done.status.success() {
            return Err(BuildError::Compile {
                compiler,
                file: self.source.clone(),
                status: done.status,
                command: described,
                output: said.trim_end().to_owned(),
            });
        }
        fs::rename(&started, self.record()).map_err(io(&started))?;
        let warnings: Vec<String> = said.lines().map(str::to_owned).collect();
        // Each build has to see the warnings of its own.
        if let Some(kept) = kept.filter(|_| warnings.is_empty()) {
            kept.keep(&self.output);
        }
        Ok(warnings)
    }
}

/// Returns the program of a command and its words. The environment is cargo's, and differs between builds.
fn described(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" ")
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|m| m.modified()).ok()
}

/// Returns the prerequisites of the one rule of a makefile, as compilers write them for `-MD`.
fn prerequisites(makefile: &str) -> Vec<PathBuf> {
    let rule = makefile.replace("\\\n", " ");
    let Some((_, list)) = rule.split_once(": ") else { return Vec::new() };
    let mut files = Vec::new();
    let mut name = String::new();
    let mut characters = list.lines().next().unwrap_or_default().chars().peekable();
    while let Some(c) = characters.next() {
        match (c, characters.peek()) {
            // Make's escapes. A backslash before anything else is part of the name.
            ('\\', Some(' ' | '#')) | ('$', Some('$')) => name.extend(characters.next()),
            (' ' | '\t', _) => files.extend((!name.is_empty()).then(|| PathBuf::from(std::mem::take(&mut name)))),
            _ => name.push(c),
        }
    }
    files.extend((!name.is_empty()).then(|| PathBuf::from(name)));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_those_of_the_compilers_lists() {
        let g_plus_plus = "out/a.o: k/a.cu \\\n /usr/include/x.h k/my\\ file.cuh\\\n k/$$b.h\n";
        assert_eq!(
            prerequisites(g_plus_plus),
            ["k/a.cu", "/usr/include/x.h", "k/my file.cuh", "k/$b.h"].map(PathBuf::from)
        );
        let nvcc = "out/a.fatbin : k/a.cu \\\n    k/b.cuh \\\n    k/c.cuh\n";
        assert_eq!(prerequisites(nvcc), ["k/a.cu", "k/b.cuh", "k/c.cuh"].map(PathBuf::from));
        assert_eq!(prerequisites(""), [] as [PathBuf; 0]);
    }
}
