//! Tests that impossible requests fail with one line that names the reason.

use super::program::*;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

#[test]
fn inputs_that_cannot_be_read_are_named() {
    let folder = folder();
    let out: PathBuf = folder.path().join("out");
    let cases = [
        ("nowhere.el", None, &["nowhere.el"][..]),
        ("text.el", Some(&b"1 2\nthree 4\n"[..]), &["text.el", "line 2"]),
        ("short.el", Some(b"1 2\n3\n"), &["short.el", "line 2"]),
        ("empty.mtx", Some(b""), &["empty.mtx"]),
        ("cut.mtx", Some(b"%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n"), &["cut.mtx", "2"]),
        (
            "wide.mtx",
            Some(b"%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 9\n"),
            &["wide.mtx", "line 3", "9"],
        ),
        ("dense.mtx", Some(b"%%MatrixMarket matrix array real general\n1 1\n1.0\n"), &["dense.mtx", "array"]),
        (
            "huge.mtx",
            Some(b"%%MatrixMarket matrix coordinate pattern general\n99999999999 99999999999 1\n1 2\n"),
            &["huge.mtx"],
        ),
        ("cut.sg", Some(&[0, 9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]), &["cut.sg"]),
        ("huge.sg", Some(&[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 3, 0, 0, 0, 0, 0, 0, 0]), &["huge.sg"]),
        ("picture.png", Some(b"\x89PNG"), &["picture.png"]),
        ("zero.el", Some(b""), &["zero.el", "is empty"]),
        ("zero.mtx", Some(b""), &["zero.mtx", "is empty"]),
        ("zero.sg", Some(b""), &["zero.sg", "is empty"]),
        ("edges", Some(b"1 2\n"), &["edges: ", "has no ending", "rename it", ".el"]),
        ("edges.csv", Some(b"1 2\n"), &["edges.csv line 1", "`1 2` is one column", "with --format txt"]),
        ("edges.parquet", Some(b"PAR1"), &["edges.parquet", ".csv"]),
        ("cut.el.gz", Some(b"\x1f\x8b\x08\x00"), &["cut.el.gz", "cannot be decompressed", "cut short"]),
        ("commas.el", Some(b"# id\n1,2\n2,3\n"), &["commas.el line 2", "`1,2`", "commas", "blanks or tabs"]),
        ("both.el", Some(b"1, 2\n"), &["both.el line 1", "commas"]),
        ("commas.wel", Some(b"1 2,0.5\n"), &["commas.wel line 1", "commas"]),
    ];
    for (file, content, words) in cases {
        let input = match content {
            Some(c) => write(&folder, file, c),
            None => name(&folder.path().join(file)).to_owned(),
        };
        mentions(&fails(&["graph", "cc", &input, "--out", name(&out)]), words);
        assert!(!out.exists(), "{file} left a partial result");
    }
    mentions(&fails(&["graph", "cc", name(folder.path())]), &[name(folder.path())]);
    mentions(&fails(&["graph", "cc", "kron:99"]), &["99"]);
}

#[test]
fn refusals_name_what_helps_next() {
    let folder = folder();
    let quoted = write(&folder, "quoted.el", "1 2\n2 \"x\n");
    mentions(&fails(&["graph", "cc", &quoted]), &["quoted.el line 2: `\"x` is not a whole number"]);
    // A shell's `<(zcat x)` is a pipe with a name of its own.
    for command in [&["graph", "cc"][..], &["graph", "import", "--name", "g", "--device", "soft:g.img"]] {
        let message = fails(&[command, &["/dev/stdin"]].concat());
        mentions(&message, &["/dev/stdin: is not a regular file", "- with --format"]);
    }
    // Memory keeps nothing, which is told before the input is read.
    for command in ["graph", "table"] {
        for device in [&["--device", "soft:mem"][..], &[]] {
            let import = [&[command, "import", "no-such-file.npy", "--name", "a"], device].concat();
            let o = warpbell(&import);
            assert_eq!(o.status.code(), Some(2), "{import:?}: {}", stderr(&o));
            mentions(&stderr(&o), &["soft:mem ends with the program", "--device soft:graphs.img"]);
        }
    }
}

#[test]
fn rows_that_a_limit_has_no_room_for_are_refused() {
    let folder = folder();
    let rows = "%%MatrixMarket matrix coordinate pattern general\n100000000 100000000 2\n1 2\n2 3\n";
    let graph = write(&folder, "rows.mtx", rows);
    let mut limited = command(&["graph", "bfs", &graph, "--source", "1", "--engine", "cpu", "--threads", "1"]);
    let limit = || {
        // Memory for the program, but not for a hundred million offsets.
        let two = libc::rlimit { rlim_cur: 2 << 30, rlim_max: 2 << 30 };
        // SAFETY: an async-signal-safe call on a structure that lives for it.
        match unsafe { libc::setrlimit(libc::RLIMIT_AS, &two) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes that call.
    let o = unsafe { std::os::unix::process::CommandExt::pre_exec(&mut limited, limit) }.output().unwrap();
    let err = stderr(&o);
    assert_eq!(o.status.code(), Some(1), "{}: {err}", o.status);
    mentions(&err, &["100,000,000 vertices", "of memory"]);
}

#[test]
fn sources_that_do_not_exist_are_named() {
    mentions(&fails(&["graph", "bfs", ENRON, "--source", "999999"]), &["999999"]);
    for source in ["abc", "-1", "1,-2", "1.5", "18446744073709551616"] {
        for given in [vec!["--source", source], vec![&*format!("--source={source}")]] {
            let message = fails(&[&["graph", "bfs", "kron:6"], &given[..]].concat());
            let wrong = source.rsplit(',').next().unwrap();
            mentions(
                &message,
                &[&format!("--source {wrong}: kron:6 has no such vertex"), "whole numbers from 0 to 63"],
            );
        }
    }
    for (source, why) in [("", "one of them is empty"), ("1,", "one of them is empty"), ("\"a", "is not closed")] {
        let o = warpbell(&["graph", "bfs", "kron:6", "--source", source]);
        assert_eq!(o.status.code(), Some(2), "{source}");
        mentions(&stderr(&o), &[why]);
    }
}

#[test]
fn settings_that_cannot_work_are_named() {
    let folder = folder();
    let file = write(&folder, "small.img", vec![0u8; 64 << 10]);
    let small = format!("soft:{file}");
    mentions(&fails(&["graph", "bfs", ENRON, "--source", "1", "--device", &small]), &["small.img"]);
    mentions(&fails(&["graph", "bfs", "kron:8", "--source", "1", "--depth", "100"]), &["100", "power of two"]);
    mentions(&fails(&["graph", "bfs", "kron:8", "--source", "1", "--page-size", "3000"]), &["3000"]);
    mentions(&fails(&["graph", "bfs", "kron:8", "--source", "1", "--cache", "4k"]), &["cache"]);
    mentions(&fails(&["graph", "bfs", "kron:8", "--source", "1", "--device", "floppy:a"]), &["floppy"]);
}

#[test]
fn numbers_that_fit_nowhere_are_named() {
    let most = u64::MAX.to_string();
    // Each of these sizes fits a GPU better.
    let refused = |arguments: &[&str]| fails(&[&["bench"], arguments, &["--engine", "cpu"]].concat());
    mentions(&refused(&["nvme", "--device", "soft:mem", "--size", &most]), &["2^64"]);
    mentions(&refused(&["queue", "--commands", "64", "--submitters", "20000"]), &["20000", "4,096"]);
    mentions(&refused(&["array", "--size", &most]), &["2^64"]);
}

#[test]
fn no_gpu_is_an_error_that_says_why() {
    let mut job = command(&["graph", "bfs", "kron:6", "--sources", "1", "--engine", "gpu"]);
    // With this variable a driver shows no GPU.
    let o = job.env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
    assert_eq!(o.status.code(), Some(1), "{}", stdout(&o));
    mentions(&stderr(&o), &["--engine cpu"]);
}

#[test]
fn a_device_that_holds_something_else_is_not_overwritten() {
    let folder = folder();
    let precious = write(&folder, "precious.img", b"precious".repeat(2 << 20));
    let device = format!("soft:{precious}");
    let args = ["graph", "bfs", "kron:8", "--source", "1", "--device", &device];
    mentions(&fails(&args), &["precious.img", "--yes-destroy"]);
    assert!(std::fs::read(&precious).unwrap().starts_with(b"precious"));
    let mut agreed = args.to_vec();
    agreed.extend(["--yes-destroy", &precious]);
    mentions(&succeeds(&agreed), &["verified (GAP rules)"]);
}

#[test]
fn an_output_that_cannot_be_written_is_named() {
    mentions(
        &fails(&["graph", "bfs", "kron:6", "--sources", "1", "--no-verify", "--out", "/nowhere/out"]),
        &["/nowhere/out"],
    );
}

#[test]
fn ways_that_are_not_there_say_why() {
    let job = |more: &[&str]| {
        let all =
            [&["bench", "nvme", "--device", "soft:mem:1M", "--engine", "cpu", "--runtime", "10ms"], more].concat();
        fails(&all)
    };
    mentions(&job(&["--doorbell", "gpu"]), &["doorbell gpu is not available", "soft:mem:1M", "--engine gpu"]);
    mentions(&job(&["--mapping", "gdrdrv"]), &["mapping gdrdrv is not available", "--engine gpu"]);
    mentions(&job(&["--queue-memory", "cmb"]), &["queues cmb is not available", "CAP.CMBS is 0"]);
    mentions(&job(&["--queue-memory", "gpu"]), &["queues gpu is not available", "--engine gpu"]);
    let o = warpbell(&["bench", "nvme", "--mapping", "magic"]);
    assert_eq!(o.status.code(), Some(2));
    mentions(&stderr(&o), &["gdrdrv", "iommu-map-pa", "host"]);
}

#[test]
fn a_device_that_is_named_twice_is_told_so() {
    let folder = folder();
    let file = write(&folder, "a.img", vec![0u8; 1 << 20]);
    let link = folder.path().join("link.img");
    std::os::unix::fs::symlink("a.img", &link).unwrap();
    let place = folder.path().canonicalize().unwrap().join("a.img");
    let other = format!("soft:{}/./a.img", name(folder.path()));
    let (device, link) = (format!("soft:{file}"), format!("soft:{}", name(&link)));
    let fails_with = |second: &str| fails(&["bench", "nvme", "--device", &device, "--device", second]);
    mentions(&fails_with(&device), &[&device, name(&place), "twice", "name each device once"]);
    for second in [&other, &link] {
        mentions(&fails_with(second), &[&device, second, "are the same", name(&place), "name each device once"]);
    }
    let both = ["graph", "bfs", "kron:6", "--source", "1", "--device", &device, "--device", &link];
    mentions(&fails(&both), &["are the same"]);
    mentions(&fails(&[&both[..], &["--pes", "2"]].concat()), &["are the same"]);
    mentions(&fails(&["bench", "nvme", "--device", &format!("{device},file={file}")]), &["twice"]);
    let drives = ["nvme:ffff:ff:1f.7", "nvme:ffff:ff:1f.7,nsid=1"];
    let message = fails(&["bench", "nvme", "--device", drives[0], "--device", drives[1]]);
    mentions(&message, &[drives[0], drives[1], "namespace 1 of ffff:ff:1f.7"]);
}

#[test]
fn a_missing_device_file_is_told_with_what_creates_it() {
    let folder = folder();
    let missing = folder.path().join("missing.img");
    let device = format!("soft:{}", name(&missing));
    let create = format!("truncate -s 1G {}", name(&missing));
    for command in [&["bench", "nvme", "--runtime", "10ms", "--device"][..], &["nvme", "id"]] {
        mentions(&fails(&[command, &[&device]].concat()), &[name(&missing), "does not exist", &create]);
    }
    let gone = folder.path().join("gone");
    let device = format!("soft:{}/new.img", name(&gone));
    for command in [
        &["bench", "nvme", "--runtime", "10ms", "--rw", "write", "--device"][..],
        &["graph", "bfs", "kron:6", "--source", "1", "--device"],
        &["nvme", "id"],
    ] {
        let message = fails(&[command, &[&device]].concat());
        let reason = format!("new.img: the folder {0} does not exist; create it first (mkdir -p {0})", name(&gone));
        assert!(message.ends_with(&reason), "{message}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn devices_of_the_kernel_are_told_what_takes_them() {
    for (device, words) in [
        ("/dev/nvme90n1", &["kernel's nvme driver", "warpbell nvme bind", "nvme:ADDRESS", "soft:/dev/nvme90n1"][..]),
        ("nvme90n1", &["warpbell nvme bind", "soft:/dev/nvme90n1"]),
        ("/dev/nvme90", &["warpbell nvme bind", "nvme:ADDRESS"]),
        ("nvme:/dev/nvme90n1", &["`/dev/nvme90n1` is a namespace", "nsid=1"]),
        ("0000:65:00.0", &["nvme:0000:65:00.0"]),
        ("sotf:a.img", &["did you mean `soft`?"]),
    ] {
        mentions(&fails(&["bench", "nvme", "--device", device]), words);
        mentions(&fails(&["nvme", "id", device]), words);
    }
}

#[test]
fn options_and_misspelled_memory_become_no_file() {
    let folder = folder();
    let graph = |device: &str| {
        let args = ["graph", "bfs", "kron:6", "--source", "1", "--device", device];
        let o = command(&args).current_dir(folder.path()).output().unwrap();
        (o.status.code(), stderr(&o))
    };
    for (device, words) in [
        ("soft:nonsense=1", &["no option `nonsense`", "media-error", "soft:file:nonsense=1"][..]),
        ("soft:blok=4096", &["did you mean `block`?"]),
        ("soft:block=4096", &["soft:mem:1G,block=4096"]),
        ("soft:men:1G", &["did you mean soft:mem:1G?", "soft:file:men:1G"]),
        ("soft:mem,blok=4096", &["did you mean `block`?"]),
        ("soft:mem,block=512,block=4096", &["`block=4096`", "give it once"]),
    ] {
        let (code, message) = graph(device);
        assert_eq!(code, Some(1), "{device}: {message}");
        mentions(&message, words);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(graph("soft:file:nonsense=1").0, Some(0));
    assert!(folder.path().join("nonsense=1").is_file());
}

#[test]
fn a_misspelled_word_gets_a_suggestion() {
    for (args, meant) in [
        (&["graph", "bsf"][..], "'bfs'"),
        (&["nvme", "isd"], "'id'"),
        (&["graph", "bfs", "kron:6", "--pse", "2"], "'--pes'"),
        (&["bench", "nvme", "--doorbell", "gup"], "'gpu'"),
        (&["graph", "bfs", "kron:6", "--engine", "cup"], "`cpu`"),
    ] {
        let o = warpbell(args);
        assert_eq!(o.status.code(), Some(2), "{args:?}");
        mentions(&stderr(&o), &["error: ", meant]);
    }
}

#[test]
fn a_device_whose_name_is_not_utf_8_is_used() {
    let folder = folder();
    let file = folder.path().join(OsStr::from_bytes(b"a\xff.img"));
    let device = |options: &str| {
        let mut device = OsString::from("soft:");
        device.push(&file);
        device.push(options);
        device
    };
    let run = |args: &[&str], options: &str| command(args).arg(device(options)).output().unwrap();
    let graph = ["graph", "bfs", "kron:6", "--source", "1", "--device"];
    let o = run(&graph, ",io=pread");
    assert!(o.status.success(), "{}", stderr(&o));
    mentions(&stdout(&o), &[r"a\xff.img,io=pread", "verified"]);
    assert!(file.is_file());
    std::fs::write(&file, b"somebody else's").unwrap();
    let o = run(&graph, "");
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["a\u{fffd}.img", "not warpbell's"]);
    // Elsewhere the message names the word.
    let o = run(&["bench", "nvme", "--rw"], "");
    assert_eq!(o.status.code(), Some(2));
    mentions(&stderr(&o), &["a\u{fffd}.img"]);
}

#[test]
fn multiprocessors_are_those_of_a_gpu() {
    for command in ["nvme", "queue", "shmem put_bw", "gather"] {
        let command = format!("bench {command} --engine cpu --sms 2,4");
        let o = warpbell(&command.split(' ').collect::<Vec<_>>());
        mentions(&stderr(&o), &["--sms 2", "multiprocessors of a GPU", "--threads"]);
    }
}
