//! Tests `bench nvme --job`: jobs of fio job files, one after another and at the same time.

use crate::program::*;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

/// Writes a job file beside a device file of 4 MiB, and returns both.
fn job_file(folder: &Path, text: &str) -> (PathBuf, PathBuf) {
    let (job, device) = (folder.join("a.fio"), folder.join("drive.img"));
    std::fs::write(&device, (0..4 << 20).map(|i: u32| (i % 251) as u8).collect::<Vec<u8>>()).unwrap();
    std::fs::write(&job, text.replace("DRIVE", name(&device))).unwrap();
    (job, device)
}

#[test]
fn jobs_of_fio_are_measured_one_after_another() {
    let folder = folder();
    let (job, device) = job_file(
        folder.path(),
        "[global]\nfilename=DRIVE\nbs=4k\nioengine=libaio\n[all]\nrw=randread\nsize=1MiB\n[half]\nstonewall\nrw=read\nsize=50%\nnumber_ios=100\n",
    );
    let before = std::fs::read(&device).unwrap();
    let report = folder.path().join("jobs.json");
    let text = succeeds(&["bench", "nvme", "--engine", "cpu", "--job", name(&job), "--json", name(&report)]);
    mentions(
        &text,
        &["# all: rw randread  bs 4 KiB  iodepth 1  size 976.5 KiB", "# half: rw read", "ioengine", "1,000,000"],
    );
    assert_eq!(text.matches("# device").count(), 1, "{text}");
    let report = json(&report);
    let rows = report["results"].as_array().unwrap();
    let commands = |row: &Value| (row["name"].clone(), row["runs"][0]["read"]["commands"].as_u64().unwrap());
    // 1MiB is 1,000,000 bytes to fio: 244 whole blocks.
    assert_eq!((commands(&rows[0]), commands(&rows[1])), (("all".into(), 244), ("half".into(), 100)));
    assert!(std::fs::read(&device).unwrap() == before, "a job that only reads has changed the file");
    let one = succeeds(&["bench", "nvme", "--engine", "cpu", "--job", name(&job), "--section", "half"]);
    assert!(!one.contains("# all:") && one.contains("# half:"), "{one}");
}

#[test]
fn a_job_never_enlarges_or_makes_what_it_reads() {
    let folder = folder();
    let read = |text: &str| {
        let (job, device) = job_file(folder.path(), text);
        (stderr(&warpbell(&["bench", "nvme", "--engine", "cpu", "--job", name(&job)])), device)
    };
    let (said, device) = read("[a]\nfilename=DRIVE\nrw=read\nsize=8m\n");
    mentions(
        &said,
        &["a.fio:1: a: size=8388608", "the device has 4,194,304 bytes, and is not enlarged", "size=4194304 or less"],
    );
    assert_eq!(std::fs::metadata(&device).unwrap().len(), 4 << 20);
    let (said, _) = read("[a]\nfilename=DRIVE.none\nrw=read\nsize=1m\n");
    mentions(&said, &["drive.img.none"]);
    assert!(!folder.path().join("drive.img.none").exists());
    let (said, device) = read("[a]\nfilename=DRIVE\nrw=randwrite\nsize=1m\n");
    mentions(&said, &["drive.img", "--yes-destroy"]);
    assert_eq!(std::fs::metadata(&device).unwrap().len(), 4 << 20);
    let (said, _) = read("[a]\nfilename=DRIVE\nrw=read\nverify=crc32c\n");
    mentions(&said, &["verify of a job that only reads"]);
    // Not an option that is ignored.
    let o = warpbell(&["bench", "nvme", "--job", "a.fio", "--sms", "4"]);
    mentions(&stderr(&o), &["--sms", "cannot be used with"]);
}

#[test]
fn jobs_before_one_that_fails_are_in_the_report() {
    let folder = folder();
    let (job, _) = job_file(
        folder.path(),
        "[global]\nfilename=DRIVE\nsize=1m\nnumber_ios=10\n[a]\nrw=read\n[b]\nstonewall\nrw=write\n",
    );
    let report = folder.path().join("a.json");
    let o = warpbell(&["bench", "nvme", "--engine", "cpu", "--job", name(&job), "--json", name(&report)]);
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["drive.img", "--yes-destroy"]);
    let report = json(&report);
    let names: Vec<&Value> = report["results"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn what_a_job_writes_is_read_back() {
    let folder = folder();
    let (job, device) =
        job_file(folder.path(), "[a]\nfilename=DRIVE\nrw=randwrite\nbs=4k\nsize=1m\nverify=crc32c\niodepth=16\n");
    let text = succeeds(&["bench", "nvme", "--engine", "cpu", "--job", name(&job), "--yes-destroy", name(&device)]);
    mentions(&text, &["write: IOPS=", "verified: 1 MiB read back"]);
}

/// Returns the rows of a report, and the names of their jobs.
fn rows(report: &Path) -> (Vec<Value>, Vec<String>) {
    let rows = json(report)["results"].as_array().unwrap().clone();
    let names = rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect();
    (rows, names)
}

/// Returns the times at which a row's first run began and ended, in nanoseconds from the start of the first job.
fn phase(row: &Value) -> (u64, u64) {
    let run = &row["runs"][0];
    let began = run["started_ns"].as_u64().unwrap();
    let times = ["read", "write"].map(|side| run[side]["runtime_ns"].as_u64().unwrap_or(0));
    (began, began + times[0].max(times[1]))
}

/// Runs a job file with a report, which goes to the file that is returned.
fn measured(folder: &Path, text: &str, more: &[&str]) -> (Output, PathBuf) {
    let ((job, _), report) = (job_file(folder, text), folder.join("report.json"));
    let common = ["bench", "nvme", "--engine", "cpu", "--job", name(&job), "--json", name(&report)];
    (warpbell(&[&common[..], more].concat()), report)
}

#[test]
fn jobs_up_to_a_stonewall_run_at_the_same_time() {
    let folder = folder();
    let text = "[global]\nfilename=DRIVE\nrw=randread\nsize=1m\n[long]\nruntime=2s\ntime_based\n[short]\nnumber_ios=10\n\
                [late]\nnumber_ios=10\nstartdelay=100ms\n[last]\nstonewall\nnumber_ios=10\n";
    let (o, report) = measured(folder.path(), text, &[]);
    assert!(o.status.success(), "{}", stderr(&o));
    // One device, which all jobs share.
    assert_eq!(stdout(&o).matches("# device").count(), 1, "{}", stdout(&o));
    let (rows, names) = rows(&report);
    assert_eq!(names, ["long", "short", "late", "last"]);
    let [long, short, late, last] = [0, 1, 2, 3].map(|n| phase(&rows[n]));
    assert!(short.0 < long.1 && late.0 < long.1, "{long:?} {short:?} {late:?}");
    assert!(late.0 >= 100_000_000 && last.0 >= long.1, "{late:?} {last:?}");
    assert_eq!([0, 1, 2, 3].map(|n| rows[n]["group"].as_u64().unwrap()), [0, 0, 0, 1]);
    let commands = |n: usize| rows[n]["runs"][0]["read"]["commands"].as_u64().unwrap();
    assert_eq!([commands(1), commands(2), commands(3)], [10; 3]);
}

#[test]
fn each_file_is_a_device_and_two_names_of_one_are_not() {
    let folder = folder();
    let [other, link] = ["other.img", "link.img"].map(|file| folder.path().join(file));
    std::fs::write(&other, vec![7; 1 << 20]).unwrap();
    std::os::unix::fs::symlink(folder.path().join("drive.img"), &link).unwrap();
    let text = format!(
        "[global]\nrw=read\nsize=64k\n[a]\nfilename=DRIVE\n[b]\nfilename={}\n[c]\nfilename={}\n",
        name(&other),
        name(&link)
    );
    let (o, report) = measured(folder.path(), &text, &["--runs", "3"]);
    assert!(o.status.success(), "{}", stderr(&o));
    let (rows, names) = rows(&report);
    assert_eq!((names, stdout(&o).matches("# device").count()), (["a", "b", "c"].map(str::to_owned).to_vec(), 2));
    assert_eq!(rows[0]["device"], rows[2]["device"]);
    assert!(rows[1]["device"].as_str().unwrap().ends_with("other.img"), "{}", rows[1]["device"]);
    assert!(rows.iter().all(|row| row["runs"].as_array().unwrap().len() == 3));
}

#[test]
fn jobs_beside_and_behind_one_that_fails_are_measured() {
    let folder = folder();
    let text = "[global]\nfilename=DRIVE\nrw=read\nsize=1m\nnumber_ios=10\n[a]\n[b]\nfilename=DRIVE.none\n\
                [c]\nsize=8m\n[d]\nstonewall\n";
    // A second filename adds to the first.
    let text = text.replace("filename=DRIVE\n", "").replace("[a]\n", "[a]\nfilename=DRIVE\n");
    let text =
        text.replace("size=8m\n", "size=8m\nfilename=DRIVE\n").replace("stonewall\n", "stonewall\nfilename=DRIVE\n");
    let (o, report) = measured(folder.path(), &text, &[]);
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["b: ", "drive.img.none", "c: size=8388608", "is not enlarged"]);
    assert_eq!(messages(&o).len(), 2, "{}", stderr(&o));
    assert_eq!(rows(&report).1, ["a", "d"]);
}

#[test]
fn wrong_data_of_one_job_leaves_the_others_alone_and_errors_of_a_device_do_not() {
    let folder = folder();
    let text = "[global]\nrw=randread\nsize=1m\n[a]\nrw=randrw\nverify=crc32c\nloops=3\n[b]\noffset=2m\nloops=3\n";
    let on = |device: &str| measured(folder.path(), text, &["--device", device]);
    let (o, report) = on("soft:mem:4M,corrupt=read:0-2047");
    assert_eq!(o.status.code(), Some(1), "{}", stdout(&o));
    mentions(&stderr(&o), &["a.fio:4: a: ", "other data than was written"]);
    assert_eq!((messages(&o).len(), rows(&report).1), (1, vec!["b".to_owned()]));
    std::fs::remove_file(&report).unwrap();
    let (o, report) = on("soft:mem:4M,media-error=read:0-8191");
    assert_eq!(o.status.code(), Some(1), "{}", stdout(&o));
    mentions(&stderr(&o), &["a.fio:4: a, b: ", "unrecovered read error"]);
    assert_eq!((messages(&o).len(), report.exists()), (1, false));
}

#[test]
fn a_group_that_reports_as_one_has_one_row() {
    let folder = folder();
    let text = "[global]\nfilename=DRIVE\nsize=1m\ngroup_reporting\n[a]\nrw=randread\nnumber_ios=30\n[b]\nrw=read\n\
                number_ios=12\n[c]\nnew_group\nrw=read\nnumber_ios=5\n";
    let (o, report) = measured(folder.path(), text, &["--runs", "2"]);
    assert!(o.status.success(), "{}", stderr(&o));
    mentions(&stdout(&o), &["a, b:\n", "c:\n"]);
    let (all, names) = rows(&report);
    assert_eq!((names, &all[0]["jobs"]), (vec!["a".to_owned(), "c".to_owned()], &serde_json::json!(["a", "b"])));
    let read = &all[0]["runs"][1]["read"];
    assert_eq!((&read["commands"], &read["latency"]["samples"]), (&42.into(), &42.into()));
    assert_eq!((&all[0]["in_flight"], all[0]["runs"].as_array().unwrap().len()), (&2.into(), 2));
    let (o, report) = measured(folder.path(), text, &["--output-format", "fio-json"]);
    assert!(o.status.success(), "{}", stderr(&o));
    let jobs = json(&report)["jobs"].as_array().unwrap().clone();
    let of = |job: &Value| (job["jobname"].clone(), job["groupid"].clone(), job["read"]["total_ios"].clone());
    assert_eq!(of(&jobs[0]), ("a".into(), 0.into(), 42.into()));
    assert_eq!(of(&jobs[1]), ("c".into(), 1.into(), 5.into()));
}

#[test]
fn jobs_that_verify_the_same_blocks_do_not_disturb_one_another() {
    let folder = folder();
    let drive = folder.path().join("drive.img");
    let text = "[global]\nfilename=DRIVE\nsize=1m\niodepth=16\nverify=crc32c\n[a]\nrw=randwrite\n[b]\nrw=write\nbs=64k\n\
                [c]\nrw=randrw\nbs=8k\nloops=4\n";
    let (o, report) = measured(folder.path(), text, &["--yes-destroy", name(&drive)]);
    assert!(o.status.success(), "{}", stderr(&o));
    assert_eq!(stdout(&o).matches("verified: 1 MiB read back").count(), 2, "{}", stdout(&o));
    assert_eq!(rows(&report).0[2]["runs"][0]["verified"], true);
    // Other data in the same blocks at the same time: what expects its own data is left out.
    let other = text.replace("[b]\n", "[b]\nverify=0\n");
    let (o, report) = measured(folder.path(), &other, &["--yes-destroy", name(&drive)]);
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["a: verify: `b` writes other data to the same blocks", "c: verify: `b`", "stonewall"]);
    assert_eq!(rows(&report).1, ["b"]);
    let apart = other.replace("rw=write\n", "rw=write\noffset=1m\n");
    let (o, _) = measured(folder.path(), &apart, &["--yes-destroy", name(&drive)]);
    assert!(o.status.success(), "{}", stderr(&o));
}

#[test]
fn an_interrupt_ends_all_jobs_and_keeps_what_has_completed() {
    let folder = folder();
    let text = "[global]\nfilename=DRIVE\nrw=read\nsize=1m\n[done]\nnumber_ios=10\n[endless]\nstonewall\nruntime=1h\n\
                time_based\n[waits]\nstartdelay=1h\n";
    let ((job, _), report) = (job_file(folder.path(), text), folder.path().join("report.json"));
    let mut command = command(&["bench", "nvme", "--engine", "cpu", "--job", name(&job), "--json", name(&report)]);
    heed_signals(&mut command);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("# waits: ")), "the last job is not described");
    // SAFETY: the process is ours and has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let o = child.wait_with_output().unwrap();
    assert_eq!((o.status.code(), stderr(&o)), (Some(130), "interrupted by SIGINT\n".to_owned()));
    assert_eq!(rows(&report).1, ["done"]);
}
