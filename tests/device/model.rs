//! Explores every schedule of a few threads that run the device library, as far as they can be counted. It covers the
//! ring of an NVMe queue pair, the page cache on top of it, the copies of a replicated volume, and the send queue of an
//! RDMA adapter.
//! `tests/device/explore.h` describes the search. CONTRIBUTING.md lists what is explored and explains the output.
//!
//! Programs are compiled with a copy of the headers with a few changes: waits look at the clock at every turn, and
//! count no turns. The clock does not advance by itself. Another copy has all mistakes, to show that the exploration
//! finds them, and a run selects one by its name. A change whose old text does not occur in its header exactly once
//! fails the test.

#[path = "mirror_mutations.rs"]
mod mirror_mutations;
#[path = "mutations.rs"]
mod mutations;

use crate::{harness, tree};
use mirror_mutations::MIRRORS;
use mutations::{CACHE, Edit, Mutation, QUEUE, SEND_QUEUE};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Changes of every copy of the headers: a wait looks at its end at each turn, and counts no turns after the first. An express lane
/// gives up soon.
const COUNTLESS: [Edit; 4] = [
    Edit { header: "clock.cuh", old: "look_every = 64;", new: "look_every = 1;" },
    Edit { header: "clock.cuh", old: "uint32_t turns_ = 0;", new: "explore::turns turns_;" },
    Edit { header: "cache.cuh", old: "uint32_t turns;  ", new: "explore::cycle turns;  " },
    Edit { header: "express.cuh", old: "most_looks = 16", new: "most_looks = 1" },
];

/// A program of `tests/device`, compiled in its own folder.
struct Program {
    path: PathBuf,
    folder: tempfile::TempDir,
}

impl Program {
    /// Compiles a program with a copy of the headers that has these changes.
    fn new<'a>(source: &str, edits: impl IntoIterator<Item = &'a Edit>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        copy(&tree::root().join("kernels/include/warpbell"), &folder.path().join("include/warpbell"));
        for edit in edits {
            let header = folder.path().join("include/warpbell").join(edit.header);
            let text = fs::read_to_string(&header).expect("a header");
            fs::write(&header, edit.applied_to(&text)).expect("a copy of a header");
        }
        let source = tree::root().join("tests/device").join(source);
        let (headers, program) = (folder.path().join("include"), folder.path().join("program"));
        let built = harness::compile_with(&["-O2", "-Werror"], &headers, &source, 1, &program);
        let path =
            built.unwrap_or_else(|said| panic!("{} does not compile:\n{}", source.display(), harness::text(&said)));
        Self { path, folder }
    }

    /// Runs the program, which must succeed and say so on its last line. Returns its output.
    fn run(&self, arguments: &[&str]) -> String {
        let ran = harness::output_within(harness::LIMIT, Command::new(&self.path).args(arguments), self.folder.path());
        let ran = ran.unwrap_or_else(|said| panic!("{arguments:?} was not over after {:?}:\n{said}", harness::LIMIT));
        let said = harness::text(&ran);
        assert!(ran.status.success() && said.ends_with(": ok\n"), "{arguments:?}: {}\n{said}", ran.status);
        said
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder for headers");
    for entry in fs::read_dir(from).expect("the headers' folder") {
        let path = entry.expect("a header").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a copy of a header");
        }
    }
}

/// Explores the everyday scenes, or the long ones.
fn explore(source: &str, arguments: &[&str]) {
    print!("{}", Program::new(source, &COUNTLESS).run(arguments));
}

/// Explores with each mistake in turn; each must be found, and shown.
fn explore_mutated(source: &str, mutations: &[Mutation]) {
    let program = Program::new(source, COUNTLESS.iter().chain(mutations.iter().flat_map(|m| m.edits)));
    for m in mutations {
        let said = program.run(&["mutated", m.name, m.scene]);
        assert!(said.contains(m.found), "{} was found as something else than {:?}:\n{said}", m.name, m.found);
        println!("{}:\n{said}", m.name);
    }
}

macro_rules! explorations {
    ($($module:ident: $source:literal, $mutations:ident;)+) => {
        $(mod $module {
            #[test]
            fn every_schedule_ends_well() {
                super::explore($source, &[]);
            }

            #[test]
            fn every_mistake_is_found() {
                super::explore_mutated($source, super::$mutations);
            }

            #[test]
            #[ignore = "takes minutes with the others like it: .ci/run soak"]
            fn every_schedule_of_larger_scenes_ends_well() {
                super::explore($source, &["long"]);
            }
        })+
    };
}

explorations! {
    queue: "explore_queue.cpp", QUEUE;
    cache: "explore_cache.cpp", CACHE;
    mirrors: "explore_mirrors.cpp", MIRRORS;
    send_queue: "explore_send_queue.cpp", SEND_QUEUE;
}

#[test]
#[should_panic(expected = "stands 0 times in ring.cuh")]
fn a_change_without_its_text_is_an_error() {
    Edit { header: "ring.cuh", old: "three", new: "" }.applied_to("one two two");
}

#[test]
#[should_panic(expected = "stands 2 times in ring.cuh")]
fn a_change_whose_text_stands_twice_is_an_error() {
    Edit { header: "ring.cuh", old: "two", new: "" }.applied_to("one two two");
}
