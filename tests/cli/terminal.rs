//! The program on a terminal of 80 columns: a pseudoterminal (pty(7)).

use super::program::*;
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Stdio;

/// Runs the program with standard output and standard error on a terminal; returns what the terminal got.
fn on_terminal(args: &[&str], columns: u16, variables: &[(&str, &str)]) -> String {
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let (mut ours, mut theirs) = (-1, -1);
    // SAFETY: both descriptors and the size are there for the call; a name and attributes are not asked for.
    let result = unsafe { libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `openpty` has just opened both, and nobody else has them.
    let (mut ours, theirs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut program = command(args);
    program.env_remove("NO_COLOR").env_remove("COLUMNS").envs(variables.iter().copied());
    program.stdout(Stdio::from(theirs.try_clone().unwrap())).stderr(Stdio::from(theirs));
    let mut child = program.spawn().unwrap();
    // The command holds the terminal's end as long as it lives.
    drop(program);
    let mut text = Vec::new();
    let mut part = [0; 4096];
    // A terminal without a process behind it ends with an error on Linux.
    while let Ok(n @ 1..) = ours.read(&mut part) {
        text.extend_from_slice(&part[..n]);
    }
    child.wait().unwrap();
    String::from_utf8(text).unwrap().replace("\r\n", "\n")
}

/// The words of a text, without colours.
fn words(text: &str) -> Vec<String> {
    let plain =
        text.split('\x1b').enumerate().map(|(i, part)| if i == 0 { part } else { part.split_once('m').unwrap().1 });
    plain.collect::<String>().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn lines_are_wrapped_between_words() {
    let piped = succeeds(&["doctor"]);
    for columns in [60, 80, 200] {
        let text = on_terminal(&["doctor"], columns, &[("NO_COLOR", "1")]);
        let most = usize::from(columns).min(80);
        for line in text.lines() {
            assert!(line.chars().count() <= most || line.split_whitespace().count() == 1, "{columns}: {line}");
        }
        assert_eq!(words(&text), words(&piped));
        // A report has 80 columns where there is room for more, and where nobody knows.
        assert_eq!(text == piped, columns >= 80, "{columns}: {text}");
    }
}

#[test]
fn doctor_colours_states_unless_told_not_to() {
    let coloured = on_terminal(&["doctor"], 80, &[]);
    mentions(&coloured, &["\x1b[32mok\x1b[0m"]);
    assert!(!on_terminal(&["doctor"], 80, &[("NO_COLOR", "1")]).contains('\x1b'));
    assert!(!succeeds(&["doctor"]).contains('\x1b'));
    assert_eq!(words(&coloured), words(&succeeds(&["doctor"])));
}

#[test]
fn errors_are_wrapped_between_words() {
    let name = "no-such-graph-".repeat(8) + ".el";
    let text = on_terminal(&["graph", "bfs", &name], 80, &[]);
    assert!(text.lines().any(|line| line.contains(&name)), "{text}");
    mentions(&text, &["error:", "no such file"]);
}
