//! Tests the program as its users run it.
#![cfg(feature = "cli")]

mod accept;
mod bench;
mod bench_nvme;
mod chart;
#[path = "../children/mod.rs"]
mod children;
mod columns;
mod compare;
mod cufile;
mod destroyed;
mod doctor;
mod faults;
#[path = "../common/fixture.rs"]
#[allow(dead_code)]
mod fixture;
mod gather;
mod graph;
mod highlights;
mod inputs;
mod job_files;
mod kv;
mod large_imports;
mod limits;
mod manual;
mod models;
mod names;
mod networkx;
mod nvme;
mod operation;
mod outdated_copy;
mod outputs;
mod parts;
mod paths;
mod program;
mod rdma;
mod refusals;
mod rows;
#[cfg(target_os = "linux")]
mod run;
mod shmem;
mod stored;
mod stored_graphs;
mod stream;
mod suites;
mod sweeps;
mod tables;
mod terminal;
#[path = "../common/tree.rs"]
mod tree;

use program::*;
use std::path::Path;
use std::process::Stdio;

#[test]
fn the_headers_are_where_the_program_says() {
    let text = succeeds(&["include-dir"]);
    assert!(Path::new(text.trim()).join("warpbell/abi.h").is_file(), "{text}");
}

#[test]
fn an_installed_program_names_the_headers_beside_it() {
    let folder = folder();
    let [bin, headers] = ["bin", "include/warpbell"].map(|name| folder.path().join(name));
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::create_dir_all(&headers).unwrap();
    std::fs::copy(tree::file("kernels/include/warpbell/abi.h"), headers.join("abi.h")).unwrap();
    let program = bin.join("warpbell");
    std::fs::copy(tree::program(), &program).unwrap();
    // The copy is open for a moment if another test starts a process while the copy is written.
    let o = loop {
        match std::process::Command::new(&program).arg("include-dir").output() {
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            other => break other.unwrap(),
        }
    };
    let named = Path::new(stdout(&o).trim()).canonicalize().unwrap();
    assert_eq!(named, folder.path().join("include").canonicalize().unwrap());
}

#[test]
fn info_names_the_machine() {
    mentions(&succeeds(&["info"]), &["warpbell ", "cpu", "image"]);
    // As `build.rs` compiles the image for CPU threads.
    let checked = cfg!(any(debug_assertions, feature = "checked"));
    assert_eq!(succeeds(&["info"]).contains("checked calls"), checked);
}

#[test]
fn the_number_of_processors_can_be_replaced() {
    let info = |processors: &str, args: &[&str]| {
        command(&[&["info"], args].concat()).env("WARPBELL_PROCESSORS", processors).output().unwrap()
    };
    let o = info("7", &[]);
    mentions(&one_line(&stdout(&o)), &["engine cpu 7 threads (WARPBELL_PROCESSORS is set; the system gives "]);
    let report: serde_json::Value = serde_json::from_slice(&info("7", &["--json", "-"]).stdout).unwrap();
    assert_eq!(report["processors"], 7);
    for bad in ["0", "1025", "many", ""] {
        let o = info(bad, &[]);
        assert_eq!((o.status.code(), &*stdout(&o)), (Some(2), ""), "`{bad}`");
        mentions(&stderr(&o), &[&format!("WARPBELL_PROCESSORS is `{bad}`"), "from 1 to 1024"]);
    }
}

#[test]
fn usage_errors_are_exit_code_2() {
    for args in [
        &["graph", "bfs"][..],
        &["graph", "bfs", "kron:8", "--cache", "lots"],
        &["graph", "bfs", "kron:8", "--engine", "tpu"],
        &["graph", "bfs", "kron:8", "--directed", "--undirected"],
        &["graph", "bfs", "kron:8", "--pes", "0"],
        &["graph", "bfs", "kron:8", "--pes", "2", "--device", "soft:one.img"],
        &["bench", "nvme", "--rw", "sideways"],
        &["bench", "post", "--capsules", "--inline"],
        &["fly"],
    ] {
        let o = warpbell(args);
        assert_eq!(o.status.code(), Some(2), "{args:?}");
        assert!(stdout(&o).is_empty(), "{args:?}");
    }
}

#[test]
fn a_reader_that_leaves_is_not_an_error() {
    let mut child = command(&["graph", "bfs", "kron:8", "--sources", "2", "-v"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert_eq!(stderr(&o), "");
}
