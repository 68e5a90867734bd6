//! The command line as the grammar has parsed it: files that the command writes, files that it reads or stores on, and
//! options that all ranks of a world must have in common.
//!
//! An argument is an output if its type is [`OutputFile`]. Any other argument that may name a file is an input. A new
//! option is thus compared with all others as soon as it is in the grammar.

use crate::args::{DeviceArg, OutputFile};
use crate::output::Failure;
use crate::workloads::gather::Choice;
use clap::{Arg, ArgMatches, Command};
use std::any::TypeId;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use warpbell::destination::Destination;
use warpbell::engine::abi::MAX_PES;
use warpbell::file_identity::FileIdentity;
use warpbell::graph::Input;
use warpbell::spec::DeviceSpec;
use warpbell::storage::DriveSpec;

/// Headings of the options that each rank of a world chooses for its own host.
const OF_A_HOST: [&str; 4] = ["Engine", "Devices and data path", "Operation", "World"];
/// Options that change only how fast a rank gets its part of the work, or what PE 0 prints. The content of inputs is
/// compared, instead of their names.
const OF_A_RANK: [&str; 7] = ["input", "format", "cache", "top", "verbose", "timeout", "version"];

/// Argument of a command, as a message names it.
struct Argument {
    /// As in `--out ranks.txt`.
    words: String,
    /// Files that it leads to.
    files: Vec<FileIdentity>,
}

/// A parsed command line.
#[derive(Default)]
pub struct CommandLine {
    /// Words of the subcommand, as in `bench nvme`.
    pub name: String,
    outputs: Vec<(Argument, OutputFile)>,
    inputs: Vec<Argument>,
    options: BTreeMap<String, String>,
}

impl CommandLine {
    /// Reads a command line that the grammar `root` has accepted.
    pub fn of(root: &Command, matches: &ArgMatches) -> Self {
        let (mut command, mut matches, mut names) = (root, matches, Vec::new());
        while let Some((name, inner)) = matches.subcommand() {
            let Some(found) = command.find_subcommand(name) else { break };
            names.push(name);
            (command, matches) = (found, inner);
        }
        let mut line = Self { name: names.join(" "), ..Self::default() };
        let stripe = matches.try_get_one::<u32>("stripe").ok().flatten().copied().unwrap_or(1);
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let Ok(Some(values)) = matches.try_get_raw(id) else { continue };
            let values: Vec<&OsStr> = values.collect();
            let kind = argument.get_value_parser().type_id();
            if kind == TypeId::of::<OutputFile>() {
                let outputs = values.iter().map(|value| output(argument, value));
                line.outputs.extend(outputs);
            } else if let Ok(Some(devices)) = matches.try_get_many::<DeviceArg>(id) {
                let inputs = values.iter().zip(devices).map(|(value, device)| Argument {
                    words: words(argument, value),
                    files: match device.spec() {
                        Ok(drive) => device_files(drive.spec(), stripe),
                        Err(_) => read_files(value, stripe),
                    },
                });
                line.inputs.extend(inputs);
            } else if kind == TypeId::of::<PathBuf>()
                || kind == TypeId::of::<OsString>()
                || kind == TypeId::of::<Choice>()
            {
                let inputs = values
                    .iter()
                    .map(|value| Argument { words: words(argument, value), files: read_files(value, stripe) });
                line.inputs.extend(inputs);
            } else if is_of_the_world(argument) {
                let values: Vec<_> = values.iter().map(|value| value.to_string_lossy()).collect();
                line.options.insert(label(argument), values.join(","));
            }
        }
        line
    }

    /// Checks that no output replaces what the command reads or stores on, or another output. With `writes`, also
    /// checks that each output can be written.
    ///
    /// # Errors
    /// [`Failure::Usage`] if an output is a file of another argument; [`Failure::Error`] if it cannot be written, or
    /// holds a volume.
    pub fn check_outputs(&self, writes: bool) -> Result<(), Failure> {
        let mut opened: Vec<(&Argument, Destination)> = Vec::new();
        for (argument, file) in &self.outputs {
            self.is_no_input(argument, &argument.files)?;
            if !writes {
                continue;
            }
            let to = Destination::open(file)?;
            self.is_no_input(argument, to.identity().as_slice())?;
            if let Some((other, _)) = opened.iter().find(|(_, other)| other.is_same(&to)) {
                let (one, two) = (&other.words, &argument.words);
                return Err(Failure::Usage(format!("{one} and {two} name the same file; name two different files")));
            }
            opened.push((argument, to));
        }
        Ok(())
    }

    fn is_no_input(&self, output: &Argument, files: &[FileIdentity]) -> Result<(), Failure> {
        match self.inputs.iter().find(|input| input.files.iter().any(|file| files.contains(file))) {
            Some(input) => Err(Failure::Usage(format!(
                "{} would replace a file that the command uses: {} names it, too; name another file",
                output.words, input.words
            ))),
            None => Ok(()),
        }
    }

    /// Returns the options that all ranks of a world must have in common, with their values.
    pub fn common_options(&self) -> &BTreeMap<String, String> {
        &self.options
    }
}

fn is_of_the_world(argument: &Arg) -> bool {
    let heading = argument.get_help_heading().unwrap_or_default();
    !OF_A_HOST.contains(&heading) && !OF_A_RANK.contains(&argument.get_id().as_str())
}

/// Returns the name of an argument: `--out`, or `TEST` for one without an option.
fn label(argument: &Arg) -> String {
    match (argument.get_long(), argument.get_value_names()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some([name, ..])) => name.to_string(),
        _ => argument.get_id().to_string(),
    }
}

fn words(argument: &Arg, value: &OsStr) -> String {
    match argument.get_long() {
        Some(long) => format!("--{long} {}", value.display()),
        None => value.display().to_string(),
    }
}

fn output(argument: &Arg, value: &OsStr) -> (Argument, OutputFile) {
    let seen = if value == "-" { Path::new("/proc/self/fd/1") } else { Path::new(value) };
    let files = FileIdentity::of_existing(seen).into_iter().collect();
    (Argument { words: words(argument, value), files }, OutputFile::from(value.to_owned()))
}

/// Returns the files that a value leads to: those of a device, which need not exist, or of a graph or another path.
/// Files of a stripe and of the PEs of a world are among them.
fn read_files(value: &OsStr, stripe: u32) -> Vec<FileIdentity> {
    if value == "-" {
        return FileIdentity::of_existing(Path::new("/proc/self/fd/0")).into_iter().collect();
    }
    let Ok(spec) = DeviceSpec::from_os_str(value) else {
        let files = Input::of(value).map_or_else(|_| Vec::new(), |input| input.files());
        return files.iter().filter_map(|path| FileIdentity::of_existing(path)).collect();
    };
    device_files(&spec, stripe)
}

/// Returns the files that a device leads to.
fn device_files(spec: &DeviceSpec, stripe: u32) -> Vec<FileIdentity> {
    let pes = if spec.has_pe() { MAX_PES } else { 1 };
    let of_pes = (0..pes).map(|pe| spec.clone().for_pe(pe));
    let striped = |spec: DeviceSpec| -> Vec<DeviceSpec> {
        match stripe {
            0 | 1 => vec![spec],
            n => (0..n).map(|i| spec.clone().numbered(i)).collect(),
        }
    };
    let drives = of_pes.flat_map(striped).filter_map(|spec| DriveSpec::try_from(spec).ok());
    drives.flat_map(|drive| drive.files()).map(|path| FileIdentity::of(&path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory;
    use std::collections::BTreeSet;

    fn line(words: &[&str]) -> CommandLine {
        let words: Vec<OsString> = [&["warpbell"], words].concat().iter().map(OsString::from).collect();
        let mut root = Cli::command();
        let matches = root.try_get_matches_from_mut(words);
        matches.map_or_else(|_| CommandLine::default(), |matches| CommandLine::of(&root, &matches))
    }

    /// Calls `see` with each command that has no subcommands.
    fn each_command(command: &Command, see: &mut impl FnMut(&Command)) {
        see(command);
        command.get_subcommands().for_each(|inner| each_command(inner, see));
    }

    #[test]
    fn every_option_that_writes_a_file_is_an_output() {
        let mut command = Cli::command();
        command.build();
        let (mut outputs, mut others) = (BTreeSet::new(), BTreeSet::new());
        each_command(&command, &mut |command| {
            for argument in command.get_arguments() {
                let kind = argument.get_value_parser().type_id();
                if kind == TypeId::of::<OutputFile>() {
                    outputs.insert(label(argument));
                } else if kind == TypeId::of::<PathBuf>() {
                    others.insert(label(argument));
                }
            }
        });
        assert_eq!(outputs.iter().collect::<Vec<_>>(), ["--chart", "--csv", "--json", "--out", "--output"]);
        // `FOLDER` is that of `man`, whose pages are checked one by one. The others are read.
        let read = ["--job", "--metrics-token-file", "--root", "--temp-dir", "--yes-destroy", "FOLDER", "INPUT"];
        assert_eq!(others.iter().collect::<Vec<_>>(), read);
    }

    #[test]
    fn options_of_the_world_are_those_that_the_result_depends_on() {
        let bfs = line(&["graph", "bfs", "kron:6", "--seed", "7", "--device", "soft:a", "--cache", "1M", "--out", "x"]);
        let options = bfs.common_options();
        assert_eq!((bfs.name.as_str(), options["--seed"].as_str()), ("graph bfs", "7"));
        for own in ["--device", "--cache", "--out", "--deadline", "--threads", "--log", "INPUT", "--verbose"] {
            assert!(!options.contains_key(own), "{own}: {options:?}");
        }
        for common in ["--runs", "--edges", "--page-size", "--warm", "--seed"] {
            assert!(options.contains_key(common), "{common}: {options:?}");
        }
        let put = line(&["bench", "shmem", "put_bw", "-e", "4k"]);
        assert_eq!(put.common_options()["--max-size"], "4k");
        assert_eq!(put.common_options()["TEST"], "put_bw");
    }

    #[test]
    fn files_of_a_stripe_and_of_pes_are_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let is_refused = |words: &[&str]| matches!(line(words).check_outputs(true), Err(Failure::Usage(_)));
        let (edges, each) = (format!("soft:{}", path("e.img")), format!("soft:{}", path("e-{pe}.img")));
        let bfs =
            |more: &[&str], out: &str| is_refused(&[&["graph", "bfs", "kron:6", "--out", &path(out)], more].concat());
        assert!(bfs(&["--device", &edges], "e.img") && !bfs(&["--device", &edges], "e.img.1"));
        assert!(bfs(&["--device", &edges, "--stripe", "2"], "e.img.1"));
        assert!(bfs(&["--device", &each, "--pes", "3"], "e-2.img") && !bfs(&["--device", &each], "e-x.img"));
        assert!(bfs(&["--device", &format!("{edges},file={}", path("f.img"))], "f.img"));
        std::fs::write(path("g.v"), "1\n2\n").unwrap();
        std::fs::write(path("g.e"), "1 2\n").unwrap();
        assert!(is_refused(&["graph", "cc", &path("g.v"), "--json", &path("g.e")]));
        assert!(!is_refused(&["graph", "cc", "kron:6", "--json", "-", "--out", &path("kron:6")]));
    }
}
