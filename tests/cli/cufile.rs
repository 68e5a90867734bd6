//! Tests the comparison with cuFile, with a libcufile that the test compiles.

use super::program::*;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A compiled libcufile, and a device file beside it.
struct Fake {
    folder: TempDir,
    library: PathBuf,
}

impl Fake {
    fn new() -> Self {
        let folder = folder();
        let library = folder.path().join("libcufile.so.0");
        let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let source = crate::tree::root().join("tests/cufile/fake.c");
        let done = Command::new(cc)
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Self { folder, library }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn device(&self, options: &str) -> String {
        format!("soft:{},threads=1{options}", self.path("disk.img").display())
    }

    /// Returns a short job on the device, with `words` for the library.
    fn run(&self, words: &str, options: &str, more: &[&str]) -> Output {
        let device = self.device(options);
        // Each tenth read of a library with faults fails.
        let runtime = if words.is_empty() { SHORT } else { "60ms" };
        let job =
            ["bench", "nvme", "--engine", "cpu", "--compare", "cufile", "--runtime", runtime, "--device", &device];
        command(&[&job[..], more].concat())
            .env("WARPBELL_CUFILE", &self.library)
            .env("FAKE_CUFILE", words)
            .env_remove("CUFILE_ENV_PATH_JSON")
            .output()
            .unwrap()
    }
}

/// Duration of each measurement. The library moves hundreds of thousands of blocks a second, and each is checked.
const SHORT: &str = "10ms";
const SMALL: [&str; 4] = ["--size", "1M", "--iodepth", "12"];

/// Returns the output of a run that fails after its table, and its message.
fn failed(o: &Output) -> (String, String) {
    let (out, err) = (stdout(o), stderr(o));
    assert_eq!(o.status.code(), Some(1), "{out}\n{err}");
    (out, err)
}

#[test]
fn all_interfaces_are_measured_beside_and_checked() {
    let fake = Fake::new();
    let report = fake.path("report.json");
    for (rw, options) in [("randread", ""), ("randrw", ",direct"), ("read", ",io=mmap,block=4096"), ("randwrite", "")] {
        let o = fake.run("", options, &[&SMALL[..], &["--rw", rw, "--verify", "--json", name(&report)]].concat());
        let (out, err) = (stdout(&o), stderr(&o));
        assert!(o.status.success(), "{rw}:\n{out}\n{err}");
        mentions(
            &out,
            &[
                "# cuFile 1.15.0",
                "nvidia-fs is not loaded: compatible mode",
                "features batch streams",
                "CUFILE_ENV_PATH_JSON is not set",
                if options == ",direct" { "with O_DIRECT" } else { "through the page cache" },
                "# interface",
                "cuFile, 12 threads",
                "cuFile, 2 batches of 6",
                "cuFile, 12 streams",
            ],
        );
        assert_eq!(out.contains("every block that cuFile read"), rw != "randwrite", "{out}");
        assert!(out.lines().any(|l| l.starts_with("warpbell  ")), "{out}");
        let json = json(&report);
        let cufile = &json["results"][0]["cufile"];
        assert_eq!(cufile["allow_compat_mode"], true);
        assert_eq!(cufile["temporary_configuration"], true);
        let rows = cufile["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 3);
        for row in rows {
            let directions = ["read", "write"].iter().filter(|d| row[**d].is_object()).count();
            assert_eq!(directions, if rw == "randrw" { 2 } else { 1 }, "{row}");
            let of = if rw == "randwrite" { &row["write"] } else { &row["read"] };
            assert!(of["commands"].as_u64().unwrap() > 0, "{row}");
            assert_eq!(of["latency"]["samples"], of["commands"]);
        }
        // The program created the file, and its configuration.
        assert!(!fake.path("disk.img").exists());
        assert!(!Path::new(cufile["configuration"].as_str().unwrap()).exists());
    }
}

#[test]
fn a_file_that_exists_is_read_without_a_check_and_kept() {
    let fake = Fake::new();
    std::fs::write(fake.path("disk.img"), vec![7u8; 1 << 20]).unwrap();
    let o = fake.run("no-buffer", "", &["--iodepth", "3", "--compare-threads", "2", "--runs", "3"]);
    let out = stdout(&o);
    assert!(o.status.success(), "{out}\n{}", stderr(&o));
    mentions(&out, &["cuFile, 2 threads", "cuFile, 1 batch of 3", "cuFile, 3 streams", "not registered", "5036"]);
    assert_eq!(std::fs::metadata(fake.path("disk.img")).unwrap().len(), 1 << 20);
}

#[test]
fn errors_of_each_interface_are_told_and_the_others_are_measured() {
    let fake = Fake::new();
    let more = [&SMALL[..], &["--verify"]].concat();
    for (words, told) in [
        ("error", "5044 (CU_FILE_IO_ERROR): the transfer failed"),
        ("errno", "Input/output error"),
        ("short", "moved 2048 of 4096 bytes"),
        ("wrong", "commands read other data than was written"),
    ] {
        let (out, err) = failed(&fake.run(words, "", &more));
        mentions(&err, &["error: 3 of 3 interfaces of cuFile failed; cuFile, 12 threads", told]);
        for interface in ["threads", "batches", "streams"] {
            assert!(out.lines().any(|l| l.contains(interface) && l.contains("failed: ")), "{interface}:\n{out}");
        }
        assert!(!out.contains("every block that cuFile read"), "{out}");
        assert!(!fake.path("disk.img").exists());
    }
    let (out, err) = failed(&fake.run("failed", "", &more));
    mentions(&err, &["1 of 3 interfaces of cuFile failed; cuFile, 2 batches of 6", "failed (CUFILE_FAILED)"]);
    mentions(&out, &["cuFile, 12 threads  ", "cuFile, 12 streams  "]);
    let (_, err) = failed(&fake.run("no-async", "", &more));
    mentions(&err, &["1 of 3", "cuFileStreamRegister: 5038 (CU_FILE_ASYNC_NOT_SUPPORTED)"]);
}

#[test]
fn a_configuration_without_compatible_mode_is_named() {
    let fake = Fake::new();
    let own = write(&fake.folder, "own.json", r#"{ "properties": { "allow_compat_mode": false } }"#);
    let device = fake.device("");
    let job = ["bench", "nvme", "--engine", "cpu", "--compare", "cufile", "--runtime", SHORT, "--device", &device];
    let run = |own: &str| {
        let mut c = command(&[&job[..], &SMALL, &["--verify"]].concat());
        c.env("WARPBELL_CUFILE", &fake.library).env("CUFILE_ENV_PATH_JSON", own).output().unwrap()
    };
    let (out, err) = failed(&run(&own));
    mentions(&out, &["compatible mode is not allowed", &own, "(CUFILE_ENV_PATH_JSON)"]);
    mentions(
        &err,
        &["cuFileHandleRegister: 5027 (CU_FILE_HANDLE_NOT_REGISTERED)", "\"allow_compat_mode\": true", &own],
    );
    let allowed = write(&fake.folder, "allowed.json", r#"{ "properties": { "allow_compat_mode": true } }"#);
    let o = run(&allowed);
    assert!(o.status.success(), "{}", stderr(&o));
    assert!(Path::new(&allowed).exists());
}

#[test]
fn a_library_or_a_file_that_is_missing_is_named() {
    let fake = Fake::new();
    let with = |library: &Path, device: &str, status: i32| {
        let mut c = command(&["bench", "nvme", "--engine", "cpu", "--compare", "cufile", "--device", device]);
        let o = c.env("WARPBELL_CUFILE", library).output().unwrap();
        assert_eq!(o.status.code(), Some(status), "{}", stderr(&o));
        stderr(&o)
    };
    let absent = fake.path("absent.so");
    let device = fake.device("");
    mentions(&with(&absent, &device, 1), &["libcufile.so.0", name(&absent), "libcufile-13-0", "nvidia-cufile"]);
    let empty = fake.path("empty.so");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let made = Command::new(cc).args(["-shared", "-o"]).arg(&empty).args(["-xc", "/dev/null"]).status().unwrap();
    assert!(made.success());
    mentions(&with(&empty, &device, 1), &["lacks a function", "cuFileDriverOpen"]);
    mentions(&with(&fake.library, "soft:mem:1M", 2), &["memory is none", "--device soft:FILE"]);
    let two = format!("{device},file=other.img");
    mentions(&with(&fake.library, &two, 2), &["several"]);
    mentions(&with(&fake.library, &device, 1), &["disk.img", "does not exist"]);
}

#[test]
fn an_interrupt_ends_the_measurement() {
    let fake = Fake::new();
    let device = fake.device("");
    // The interfaces of cuFile with their checks would take many seconds. The program's own half second comes before.
    let job = ["bench", "nvme", "--engine", "cpu", "--compare", "cufile", "--runtime", "500ms", "--device", &device];
    let mut c = command(&[&job[..], &SMALL, &["--verify", "--timeout", "1500ms"]].concat());
    let o = c.env("WARPBELL_CUFILE", &fake.library).env_remove("CUFILE_ENV_PATH_JSON").output().unwrap();
    assert_eq!(o.status.code(), Some(124), "{}\n{}", stdout(&o), stderr(&o));
}
