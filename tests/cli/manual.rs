//! Help, completions, man pages and the version, as shells and man(1) use them.

use super::program::*;
use std::collections::HashSet;
use std::process::Command;
use std::sync::OnceLock;

/// Help of a command on a terminal of 80 columns.
struct Help {
    /// Words of the command: `graph bfs` and so on.
    words: Vec<String>,
    /// With `-h`.
    short: String,
    /// With `--help`.
    long: String,
}

/// Returns the help of all commands. The tests share the processes that print it.
fn commands() -> &'static [Help] {
    static COMMANDS: OnceLock<Vec<Help>> = OnceLock::new();
    COMMANDS.get_or_init(find_commands)
}

/// Finds all commands in the help texts.
fn find_commands() -> Vec<Help> {
    let help = |words: Vec<String>| {
        let [short, long] = ["-h", "--help"].map(|option| {
            let args: Vec<&str> = words.iter().map(String::as_str).chain([option]).collect();
            let o = command(&args).env("COLUMNS", "80").output().unwrap();
            assert!(o.status.success(), "{args:?}: {}", stderr(&o));
            stdout(&o)
        });
        Help { words, short, long }
    };
    let mut all = vec![help(vec![])];
    let mut at = 0;
    while at < all.len() {
        let Help { words, long, .. } = &all[at];
        let listed = long.split("\nCommands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
        let names = listed.lines().filter_map(|l| l.strip_prefix("  ").filter(|l| !l.starts_with(' ')));
        let names = names.filter_map(|l| l.split_whitespace().next()).filter(|&name| name != "help");
        let inner: Vec<_> = names.map(|name| help([&words[..], &[name.to_owned()]].concat())).collect();
        all.extend(inner);
        at += 1;
    }
    all
}

#[test]
fn every_help_text_fits_into_80_columns_and_has_an_example() {
    let all = commands();
    assert!(all.len() > 25, "{}", all.len());
    for Help { words, short, long } in all {
        for text in [short, long] {
            for line in text.lines() {
                let columns = line.chars().count();
                assert!(columns <= 80 || line.split_whitespace().count() <= 2, "{words:?}: {columns} columns: {line}");
            }
            // The usage of a command that has subcommands names no argument of its own.
            let is_leaf = !text.contains("\nCommands:\n");
            let plain = ["include-dir", "id", "smart", "error-log", "format-check", "unbind"];
            if is_leaf && !plain.contains(&words.last().unwrap().as_str()) {
                assert!(text.contains("\nExample"), "{words:?}: {text}");
            }
        }
    }
}

#[test]
fn examples_of_the_help_texts_are_in_the_grammar() {
    let mut seen = HashSet::new();
    for Help { words, short, .. } in commands() {
        if !short.contains("\nExample") {
            continue;
        }
        // On a wide terminal, where no example is broken into lines.
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["-h"]).collect();
        let text = succeeds(&words);
        let examples = text.split("\nExample").nth(1).unwrap();
        for line in examples.lines().filter_map(|l| l.trim().strip_prefix("warpbell ")) {
            // Words behind two spaces say what the command does; redirections are the shell's.
            let line = line.split("  ").next().unwrap().split(" > ").next().unwrap();
            // With `--help` behind it, a command is parsed and not run; `run` takes words behind `--` as they are.
            let example = line.split(" -- ").next().unwrap();
            if seen.insert(example.to_owned()) {
                succeeds(&example.split(' ').chain(["--help"]).collect::<Vec<_>>());
            }
        }
    }
    assert!(seen.len() > 20, "{}", seen.len());
}

#[test]
fn completion_scripts_are_what_their_shells_read() {
    for (shell, mark) in
        [("bash", "complete -F _warpbell"), ("zsh", "#compdef warpbell"), ("fish", "complete -c warpbell")]
    {
        let script = succeeds(&["completions", shell]);
        mentions(&script, &[mark, "pagerank", "queue-memory"]);
    }
    let script = succeeds(&["completions", "bash"]);
    let asked = "COMP_WORDS=(warpbell graph pa); COMP_CWORD=2; _warpbell warpbell pa graph; echo \"${COMPREPLY[@]}\"";
    // The script is longer than an argument may be.
    let folder = folder();
    let file = write(&folder, "completions.sh", format!("{script}\n{asked}"));
    let o = Command::new("bash").arg(file).output().unwrap();
    assert_eq!(stdout(&o).trim(), "pagerank", "{}", stderr(&o));
}

#[test]
fn each_command_has_a_man_page() {
    let folder = folder();
    let pages = folder.path().join("man1");
    succeeds(&["man", pages.to_str().unwrap()]);
    for Help { words, .. } in commands() {
        let name = ["warpbell".to_owned()].iter().chain(words).cloned().collect::<Vec<_>>().join("-");
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        mentions(&page, &[".TH ", ".SH NAME", ".SH SYNOPSIS"]);
    }
}

#[test]
fn a_folder_for_man_pages_that_cannot_be_created_is_named() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let o = warpbell(&["man", file.join("man1").to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["error: ", "file/man1", "Not a directory"]);
}

#[test]
fn the_version_tells_more_on_request() {
    let version = format!("warpbell {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(succeeds(&["--version"]), version);
    let text = succeeds(&["--version", "--verbose"]);
    assert!(text.starts_with(&version), "{text}");
    mentions(
        &text,
        &["\ncommit: ", "\nfeatures: ", "storage", "\nnvcc: ", "\nGPUs: ", "\ndriver API: CUDA 1", "\ntarget: "],
    );
}
