//! Tests of whole job files, whose expectations are the behaviour of fio 3.33, and properties of any text.

use super::job::Verify;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

#[path = "../../../tests/common/any_job_file.rs"]
mod any_job_file;

/// Files and variables of a test.
pub struct Files {
    files: BTreeMap<PathBuf, Vec<u8>>,
    variables: BTreeMap<String, String>,
}

impl Files {
    pub fn new(files: &[(&str, &str)]) -> Self {
        Self::of(files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
    }

    pub fn of(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let files = files.into_iter().map(|(name, text)| (PathBuf::from(name), text.into_bytes())).collect();
        Self { files, variables: BTreeMap::new() }
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }
}

impl Environment for Files {
    fn exists(&self, path: &Path) -> bool {
        self.files.contains_key(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.files.get(path).cloned();
        file.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such file"))
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }
}

fn parsed(text: &str) -> Result<JobFile, String> {
    parse(Path::new("job.fio"), text.as_bytes(), &Files::new(&[])).map_err(|e| e.to_string())
}

/// Returns the options of the first job with this name.
fn options(file: &JobFile, name: &str) -> BTreeMap<&'static str, String> {
    file.jobs.iter().find(|job| job.name == name).unwrap().options().into_iter().collect()
}

/// Returns the value of an option of a job with these lines, as fio reads it, and the notes.
fn value(lines: &str, key: &str) -> (Option<String>, Vec<String>) {
    let file = parsed(&format!("[a]\n{lines}")).unwrap();
    (options(&file, "a").remove(key), file.notes().iter().map(|note| note.text.clone()).collect())
}

#[test]
fn global_options_count_for_the_jobs_behind_them() {
    let text = "[global]\nbs=8k\nname=g\n[a]\n[b]\nbs=1k\n[global]\nbs=16k\niodepth=2\nioengine=null\n[a]\n[GLOBAL]\nloops=2\n\
                [globals]\nbs=2k\n[last]";
    let file = parsed(text).unwrap();
    let of: Vec<_> = file.jobs.iter().map(|job| (job.name.as_str(), job.blocks.read.least(), job.iodepth)).collect();
    let expected = [("a", 8192, 1), ("b", 1024, 1), ("a", 16384, 2), ("GLOBAL", 16384, 2), ("last", 2048, 2)];
    assert_eq!(of, expected);
}

#[test]
fn the_last_value_counts_and_aliases_are_one_option() {
    let text = "[a]\nrw=read\nreadwrite=randwrite\nblocksize=8k\nbs=4k\nrwmixwrite=60\nrw=randrw\nrwmixread=30\nname=other\n\
                timeout=5\nss=iops:5%\nss_dur=3\nss_ramp=1500ms";
    let file = parsed(text).unwrap();
    let expected = "name=other rw=randrw bs=4096 iodepth=1 numjobs=1 runtime=5s rwmixread=30 randseed=137 \
                    percentile_list=1:5:10:20:30:40:50:60:70:80:90:95:99:99.5:99.9:99.95:99.99 steadystate=iops:5% \
                    steadystate_duration=3s steadystate_ramp_time=1500ms";
    assert_eq!(file.jobs[0].to_string(), expected);
    assert_eq!(value("rwmixread=30\nrwmixwrite=60\nrw=rw", "rwmixread").0, Some("40".to_owned()));
}

#[test]
fn lines_that_fio_refuses_are_refused() {
    for (lines, says) in [
        (
            "iodepht=4",
            "job.fio:2: fio 3.33 has no option `iodepht`; did you mean `iodepth`?; correct it, or leave it out",
        ),
        ("BS=4k", "job.fio:2: fio 3.33 has no option `BS`; correct it"),
        ("=4", "has no option ``"),
        ("direct", "direct: a value is missing; write it behind `direct=`"),
        ("direct=true", "direct=true: no number; write 0 or 1"),
        ("direct=2", "direct=2: it has to be 0 or 1"),
        ("time_based=", "time_based=: a value is missing"),
        ("bs", "bs: a value is missing"),
        ("size=(2*4k)", "`(2*4k)` is a calculation, which fio of Debian refuses, too"),
        ("size=abc", "size=abc: `abc` does not begin with a number; write a whole number"),
        ("\nsize=101%", "job.fio:3: size=101%: a percentage above 100"),
        ("size=99999999999999999999", "is larger than 9,223,372,036,854,775,807"),
        ("size=20000000t", "is larger than"),
        ("runtime=9223372036854775807", "is larger than"),
        ("size=-1", "`-1` is negative"),
        ("offset=3z", "has the unit z"),
        ("iodepth=0", "iodepth=0: 0 is not in the range of 1 to 1,048,576; write a number of this range"),
        ("iodepth=4-8", "iodepth=4-8: several numbers, where one is read; write one number"),
        ("iodepth=50%", "a percentage, where a number is read"),
        ("numjobs=0", "0 is not in the range of 1 to 4,096"),
        ("rwmixread=101", "101 is not in the range of 0 to 100"),
        ("rw=trim", "rw=trim: a job with trims, which kernels do not send"),
        ("kb_base=512", "fio has no `512` here"),
        ("verify=md4", "fio has no `md4` here; did you mean `md5`?"),
        ("percentile_list=99:101", "101 is not in the range of 0 to 100"),
        ("percentile_list=99:0", "a percentile of 0"),
        ("filename=:", "no name"),
        ("size=1k", "job.fio:2: size=1024: less than a block of 4096 bytes; write a larger size, or a smaller bs"),
        ("rate=1m\nrate_iops=10", "job.fio:3: rate and rate_iops: fio takes one of them"),
        ("steadystate_duration=500ms", "less than a second, and fio counts seconds"),
        ("read_iolog=trace", "read_iolog=trace: it replays a record of accesses; leave this job out"),
        ("zonemode=zbd", "zones of a device are not handled"),
        ("verify_only", "verify_only: the job would check the data of another run"),
        ("rwmixcycle=5", "fio 3.33 refuses it as deprecated; leave it out"),
        (
            "hipri=1",
            "hipri is an option of the I/O engines io_uring, io_uring_cmd, pvsync2, sg, xnvme, and this section has ioengine=psync",
        ),
        ("fsync=x", "fsync=x: no number"),
    ] {
        let error = parsed(&format!("[a]\n{lines}")).unwrap_err();
        assert!(error.contains(says), "{lines}: {error}");
    }
    assert_eq!(parsed("[global]\nbs=4k").unwrap_err(), "job.fio has no job; write a section for one, as in [job1]");
    assert!(parsed("[a]\nnumjobs=4096\n[b]").unwrap_err().contains("4,097 jobs up to here"));
    let error = read(Path::new("none.fio")).unwrap_err().to_string();
    assert!(error.starts_with("none.fio: No such file"), "{error}");
}

#[test]
fn numbers_are_those_of_fio() {
    for (lines, key, expected, note) in [
        ("size=1M", "size", "1048576", ""),
        ("size=1MB", "size", "1048576", ""),
        ("size=1Mi", "size", "1048576", ""),
        ("size=1MiB", "size", "1000000", "size=1MiB is 1,000,000 bytes to fio (kb_base=1024); write 1M for 1,048,576"),
        ("bs=4KiB", "bs", "4000", "bs=4KiB is 4,000 bytes to fio (kb_base=1024); write 4K for 4,096"),
        ("size=1M\nkb_base=1000", "size", "1000000", ""),
        ("size=1MiB\nkb_base=1000", "size", "1048576", ""),
        ("size=1Mi\nkb_base=1000", "size", "1000000", "(kb_base=1000); write 1MiB for 1,048,576"),
        ("size=0x1000", "size", "4096", ""),
        ("number_ios=1e6", "number_ios", "1", "number_ios=1e6 is 1 to fio (a number ends before `e6`)"),
        ("io_size=1.5k", "io_size", "1", "io_size=1.5k is 1 byte to fio (a number ends before `.5k`)"),
        ("bs=4kfoo", "bs", "4096", "bs=4kfoo is 4,096 bytes to fio (`kfoo` counts by its first letters)"),
        (
            "bs= 4k",
            "bs",
            "4",
            "bs= 4k is 4 bytes to fio (no unit counts behind a blank); write the number right behind `bs=`",
        ),
        ("loops=2*4k", "loops", "2", "(a number ends before `*4k`)"),
        ("runtime=5", "runtime", "5s", ""),
        ("runtime=1500ms", "runtime", "1500ms", ""),
        ("runtime=1m", "runtime", "60s", ""),
        ("runtime=1 m", "runtime", "1s", "runtime=1 m is 1s to fio (a number ends before ` m`)"),
        ("runtime=1.5", "runtime", "1s", "(a number ends before `.5`)"),
        ("runtime=1.5ms", "runtime", "1s", "(a number ends before `.5ms`)"),
        ("runtime= 10m", "runtime", "10s", "(no unit counts behind a blank)"),
        ("runtime=10sec", "runtime", "10us", "runtime=10sec is 10µs to fio (the unknown unit `sec` is microseconds)"),
        ("runtime=5min", "runtime", "5us", "the units us, ms, s, m, h and d"),
        ("runtime=2H", "runtime", "7200s", ""),
        ("runtime=10+3k", "runtime", "10us", "the unknown unit `+3k`"),
        ("startdelay=0x10", "startdelay", "16us", "the unknown unit `0x`"),
        ("size=50%", "size", "50%", ""),
        ("size=33.3%", "size", "33", "(a number ends before `.3%`)"),
        ("offset=25%", "offset", "25%", ""),
        ("rate=1m,\nrw=rw", "rate", "1048576,", ""),
        ("rate=1m,2m\nrw=rw", "rate", "1048576,2097152", ""),
        ("rate_iops=1k", "rate_iops", "1024", ""),
    ] {
        // A block of one byte: sizes may be small.
        let (found, notes) = value(&format!("bs=1\n{lines}"), key);
        assert_eq!(found.as_deref(), Some(expected), "{lines}");
        assert_eq!(notes.len(), usize::from(!note.is_empty()), "{lines}: {notes:?}");
        assert!(notes.iter().all(|said| said.contains(note)), "{lines}: {notes:?}");
    }
}

#[test]
fn values_of_nothing_are_those_that_are_not_given() {
    let job = &parsed("[a]\nsize=0\nio_size=0%\nnumber_ios=0\nruntime=0\nloops=0\nrate=0\ntime_based").unwrap().jobs[0];
    assert_eq!((job.size, job.io_size, job.number_ios, job.runtime, job.loops), (None, None, None, None, 1));
    assert_eq!((job.rate.read, job.time_based), (None, false));
    assert!(job.notes[0].text.starts_with("time_based has no effect without runtime"));
}

#[test]
fn files_of_the_machine_are_read_beside_the_job_file() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.fio");
    std::fs::write(&job, "[a]\ninclude more.inc\niodepth=2").unwrap();
    std::fs::write(folder.path().join("more.inc"), "bs=8k\niodepth=none").unwrap();
    let error = read(&job).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}:2: iodepth=none", folder.path().join("more.inc").display())), "{error}");
    std::fs::write(folder.path().join("more.inc"), "bs=8k\nioengine=io_uring").unwrap();
    let file = read(&job).unwrap();
    assert_eq!((file.jobs[0].blocks.read.least(), file.jobs[0].iodepth), (8192, 2));
    std::fs::write(&job, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(read(&job).unwrap_err().to_string().contains("more than 1 MiB"));
    assert!(read(folder.path()).is_err());
}

#[test]
fn files_add_up_and_clones_share_them() {
    let text = "[global]\ndirectory=d1:d2\nfilename=a\\:b\n[j]\ndirectory=d3\nfilename=:x::/dev/y#z\nnumjobs=2\n[k]";
    let file = parsed(text).unwrap();
    let paths =
        |job: usize, clone| file.jobs[job].paths(clone).iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
    // Each file is in the folder that counts where it is named, as fio joins them.
    assert_eq!(paths(0, 1), ["d1/a:b", "d3/x", "d3//dev/y"]);
    assert_eq!(paths(1, 0), ["d1/a:b"]);
    let notes = file.notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].to_string().starts_with("job.fio:6: filename=:x::/dev/y is added to the files of earlier lines"));
    let own = parsed("[my job]\nname=n\ndirectory=d1:d2\nnumjobs=3\n[/dev/null]").unwrap();
    assert_eq!(own.jobs[0].paths(1), [PathBuf::from("d2/my job.1.0")]);
    assert_eq!(own.jobs[0].paths(2), [PathBuf::from("d1/my job.2.0")]);
    assert_eq!(own.jobs[1].paths(0), [PathBuf::from("/dev/null")]);
}

#[test]
fn only_a_job_that_writes_writes() {
    for (rw, reads, writes) in [
        ("read", true, false),
        ("randread", true, false),
        ("write", false, true),
        ("randwrite", false, true),
        ("rw", true, true),
        ("randrw\nrwmixread=100", true, true),
    ] {
        let job = &parsed(&format!("[a]\nrw={rw}")).unwrap().jobs[0];
        assert_eq!((job.reads(), job.writes()), (reads, writes), "{rw}");
    }
    assert!(!parsed("[a]").unwrap().jobs[0].writes(), "the default is read");
}

#[test]
fn groups_end_before_stonewall() {
    let text = "[a]\nstonewall\n[b]\n[c]\nwait_for_previous\n[d]\nnew_group=1\n[e]\nstonewall=0";
    let groups: Vec<u32> = parsed(text).unwrap().jobs.iter().map(|job| job.group).collect();
    assert_eq!(groups, [0, 0, 1, 2, 2]);
    let steady = "[a]\nss_dur=2\n[b]\n";
    assert!(parsed(&format!("{steady}ss_dur=3")).unwrap_err().contains("job.fio:3: steadystate: fio takes one"));
    assert!(parsed(&format!("{steady}ss_dur=3\nstonewall")).is_ok());
    assert!(parsed(&format!("{steady}ss_dur=2")).is_ok());
}

#[test]
fn options_that_are_not_applied_are_listed_once() {
    let text = "[global]\nioengine=io_uring\ndirect=1\nhipri\nfsync=0\n[a]\ndirect=0\nfsync=4\nwrite_bw_log\n[b]\nfsync=8\nthinktime=1ms";
    let listed: Vec<String> = parsed(text).unwrap().unapplied.iter().map(ToString::to_string).collect();
    assert_eq!(
        listed,
        [
            "job.fio:2: ioengine: not applicable here: kernels submit commands and wait for them",
            "job.fio:3: direct: not applicable here: no page cache is between kernels and the device",
            "job.fio:5: fsync: not applicable here: this value changes nothing",
            "job.fio:4: hipri: not applicable here: an option of an I/O engine, and kernels submit commands",
            "job.fio:8: fsync: not done here: no flush is between the writes",
            "job.fio:9: write_bw_log: not applicable here: no log over time is written",
            "job.fio:12: thinktime: not done here: no idle time is between commands",
        ]
    );
}

#[test]
fn options_without_effect_are_noted() {
    for (lines, says) in [
        ("iodepth=16", "ioengine=psync keeps 1 command in flight in fio, whatever iodepth says; kernels keep 16"),
        ("bssplit=4k/50:8k/50\nbs=16k", "bs has no effect, because an earlier bsrange or bssplit has precedence"),
        ("steadystate=iops:5%", "steadystate has no effect without steadystate_duration"),
        ("verify=md5\nrw=write\nfilename=x\nnumjobs=2", "2 clones write the same blocks"),
        ("verify=md5\nrw=write\ntime_based\nruntime=1", "verify never checks the written blocks"),
        ("verify=null", "pretends to verify in fio"),
        ("verify_pattern=0x55", "switches verification on"),
        ("bs=4k-8k", "is a number for reads and one for writes to fio; write a comma between them, or bsrange"),
    ] {
        let notes = value(lines, "").1;
        assert!(notes.len() == 1 && notes[0].contains(says), "{lines}: {notes:?}");
    }
    for lines in [
        "iodepth=16\nioengine=io_uring",
        "iodepth=16\nio_submit_mode=offload",
        "bs=16k\nbssplit=4k/50:8k/50",
        "verify=md5\nrw=write\nnumjobs=2",
        "size=1MiB\nsize=1M",
    ] {
        assert_eq!(value(lines, "").1, Vec::<String>::new(), "{lines}");
    }
    // A note about a global option is one note, though several jobs carry it.
    let file = parsed("[global]\nsize=1MiB\n[a]\n[b]").unwrap();
    assert_eq!((file.notes().len(), file.jobs[1].notes.len()), (1, 1));
}

#[test]
fn verification_has_a_method_and_its_time() {
    let verify = |lines: &str| parsed(&format!("[a]\n{lines}")).unwrap().jobs[0].verify.clone();
    let of = |method: &str, after_writes| Some(Verify { method: method.to_owned(), after_writes });
    assert_eq!(verify("verify=crc32c"), of("crc32c", true));
    assert_eq!(verify("verify=crc32c\ndo_verify=0"), of("crc32c", false));
    assert_eq!((verify("verify=0"), verify("do_verify=1"), verify("verify=null")), (None, None, None));
    assert_eq!(
        (verify("verify_pattern=x"), verify("verify=md5\nverify_pattern=x")),
        (of("pattern", true), of("md5", true))
    );
}

#[test]
fn places_repeat_unless_told_otherwise() {
    let job = |lines: &str| parsed(&format!("[a]\nrw=randread\n{lines}")).unwrap().jobs.remove(0);
    assert_eq!((job("").seed, job("randrepeat=0").seed), (Some(0x89), None));
    assert_eq!(job("randrepeat=0\nrandseed=7").seed, Some(7));
    assert!(!job("").norandommap && job("norandommap").norandommap && job("random_distribution=zipf").norandommap);
    assert_eq!(job("startdelay=2\nramp_time=100ms").startdelay, Duration::from_secs(2));
}

#[test]
fn the_page_has_each_option() {
    let page = include_str!("../../../docs/fio-jobs.md");
    for known in known::all() {
        for name in [Some(known.name), known.alias].into_iter().flatten() {
            assert!(page.contains(&format!("`{name}`")), "{name} is missing");
        }
        let reason = match known.treatment {
            Treatment::NotApplicable(reason) | Treatment::NotDone(reason) => reason,
            Treatment::Option(option) => option,
            Treatment::Applied | Treatment::Refused(_) => continue,
        };
        let row = page.lines().find(|line| line.starts_with(&format!("| {reason} |"))).unwrap_or_default();
        assert!(row.contains(&format!("`{}`", known.name)), "{} is not in the row of its reason, {reason}", known.name);
    }
}

/// Returns lines whose jobs are valid.
fn valid_lines() -> impl Strategy<Value = Vec<String>> {
    let line = |key: &'static str, values: &'static [&'static str]| {
        prop::sample::select(values).prop_map(move |value| format!("{key}={value}"))
    };
    let lines = prop_oneof![
        line("rw", &["read", "write", "randread:8", "randrw", "rw:-4k", "randwrite"]),
        line("bs", &["4k", "8k,4k", ",16k", "1MiB", "512"]),
        line("bsrange", &["4k-16k", "8k-8k,4k-64k"]),
        line("bssplit", &["4k/10:8k/20", "4k:8k:16k,1k/100", "4k/50:6k/50", "4k/90:8k/:16k", "4k/20:8k/90:16k/50"]),
        line("size", &["1g", "50%", "0"]),
        line("filename", &["/dev/x", "a\\:b:c d"]),
        line("directory", &["d", "d1:d2"]),
        line("runtime", &["10", "1500ms", "10sec", "1m"]),
        line("time_based", &["0", "1"]),
        line("offset", &["1m", "25%"]),
        line("io_size", &["2g", "30%"]),
        line("rate", &["1m", "1m,", ",2m"]),
        line(
            "random_distribution",
            &["zipf:0.9:0.5", "pareto", "normal:5", "zoned:60/10:40/", "zoned_abs:50/1g:50/2g,100/3g"]
        ),
        line("randrepeat", &["0", "1"]),
        line("verify", &["md5", "0", "null"]),
        line("do_verify", &["0", "1"]),
        line("percentile_list", &["99:50.5", "99.99"]),
        line("steadystate", &["bw_slope:1m", "iops:5%"]),
        line("steadystate_duration", &["0", "2500ms"]),
        line("description", &["a b"]),
        line("kb_base", &["1000", "1024"]),
    ];
    prop::collection::vec(lines, 0..12)
}

/// Returns texts that are nearly job files.
fn nearly_a_job_file() -> impl Strategy<Value = String> {
    let names: Vec<&'static str> =
        known::all().flat_map(|known| [Some(known.name), known.alias]).flatten().chain(engines::names()).collect();
    let piece = prop::sample::select(vec![
        "0",
        "1",
        "7",
        "99",
        "4k",
        "1.5",
        "MiB",
        "%",
        "-",
        ":",
        ",",
        "/",
        " ",
        "z",
        "0x",
        "e6",
        "sec",
        "ms",
        "read",
        "randrw",
        "zipf",
        "zoned",
        "iops",
        "md5",
        "${A}",
        "${",
        "$ncpus",
        "(",
        "\\:",
        "#",
        "ä",
        "\u{7f}",
        "18446744073709551615",
        "\t",
    ]);
    let value = prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat());
    let option = (prop::sample::select(names), value, prop::bool::weighted(0.9))
        .prop_map(|(name, value, has_value)| if has_value { format!("{name}={value}") } else { name.to_owned() });
    let other = prop::sample::select(vec![
        "[a]",
        "[global]",
        "[",
        "[]",
        "include options.inc",
        "include one.inc",
        "; x",
        "",
        "=",
        "foo=1",
    ]);
    let line = prop_oneof![5 => option, 1 => other.prop_map(str::to_owned)];
    prop::collection::vec(line, 0..12).prop_map(|lines| format!("[a]\n{}", lines.join("\n")))
}

proptest! {
    #[test]
    fn options_of_a_job_make_the_same_job(lines in valid_lines()) {
        let first = parsed(&format!("[a]\n{}", lines.join("\n"))).unwrap().jobs.remove(0);
        let again: Vec<String> = first.options().iter().map(|(key, value)| format!("{key}={value}")).collect();
        let second = parsed(&format!("[a]\n{}", again.join("\n"))).unwrap().jobs.remove(0);
        prop_assert_eq!(first.options(), second.options());
        prop_assert_eq!(first.paths(1), second.paths(1));
        prop_assert_eq!((first.size, first.runtime, &first.verify), (second.size, second.runtime, &second.verify));
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        any_job_file::read_any(&bytes);
    }

    #[test]
    fn no_lines_break_the_reader(text in nearly_a_job_file()) {
        any_job_file::read_any(text.as_bytes());
    }
}
