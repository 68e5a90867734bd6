//! Tests of the order of steps, on a stand-in for the processes: a machine with a GPU, a controller and an mlx5 NIC.

use super::acceptance::{Acceptance, Report};
use super::engine::EngineReport;
use super::runner::{Call, Done, End, Runner, Stop};
use super::step::{Procedure, SkipReason, Status};
use super::{NvmeArgs, RdmaArgs, nvme, rdma};
use crate::args::{DEADLINE, EngineArgs, EngineChoice};
use crate::output::{Failure, Text};
use clap::Parser;
use fixture::{Device, Fixture};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

#[path = "../../../tests/common/fixture.rs"]
#[allow(dead_code)]
mod fixture;

const BDF: &str = "0000:00:03.0";

#[derive(Parser)]
struct NvmeLine {
    #[command(flatten)]
    args: NvmeArgs,
}

#[derive(Parser)]
struct RdmaLine {
    #[command(flatten)]
    args: RdmaArgs,
}

fn storage(words: &[&str]) -> Result<nvme::Storage, Failure> {
    let line = NvmeLine::try_parse_from(["x"].iter().chain(words)).unwrap_or_else(|e| panic!("{e}"));
    nvme::Storage::new(&line.args)
}

fn network(words: &[&str]) -> rdma::Network {
    let line = RdmaLine::try_parse_from(["x"].iter().chain(words)).unwrap_or_else(|e| panic!("{e}"));
    rdma::Network::new(&line.args).unwrap_or_else(|e| panic!("{e:?}"))
}

fn automatic() -> EngineReport {
    EngineReport::of(&EngineArgs { engine: EngineChoice::Auto, threads: None, deadline: DEADLINE })
}

/// Stands for the processes of a run. Every command succeeds, but those of one step.
struct StandIn {
    /// Number of steps that are over.
    step: usize,
    /// Index of the step whose command with this index fails.
    fails: Option<(usize, usize)>,
    /// Index of the step that is interrupted.
    interrupted: Option<usize>,
    stop: Stop,
    gpu: bool,
    /// Messages of each load of an adapter that are wrong.
    wrong: u64,
    kept: Option<&'static str>,
    done: Vec<Done>,
}

impl StandIn {
    fn new() -> Self {
        let stop = Stop::default();
        Self { step: 0, fails: None, interrupted: None, stop, gpu: true, wrong: 0, kept: None, done: Vec::new() }
    }

    /// Returns the report of a command, as far as steps read it.
    fn report(&self, call: &Call) -> Value {
        let words: Vec<&str> = call.arguments.iter().filter_map(|a| a.to_str()).collect();
        let has = |word: &str| words.contains(&word);
        if has("doctor") {
            let gpus = if self.gpu { json!([{}]) } else { json!([]) };
            let kernels = json!({ "area": "gpu", "subject": "0", "name": "kernels", "status": "ok", "detail": "" });
            let checks = if self.gpu { json!([kernels]) } else { json!([]) };
            let nics = json!([{ "name": "mlx5_0", "driver": "mlx5_core" }]);
            return json!({ "gpus": gpus, "no_gpu": "none is built in", "checks": checks, "nics": nics });
        }
        if has("contents") {
            return json!({ "kept": self.kept });
        }
        if has("nvme") && has("bench") {
            return json!({ "results": [{ "runs": [{ "verified": has("--verify"), "read": { "iops": 10.0 } }] }] });
        }
        if has("rdma") {
            return json!({ "results": [{ "rows": [{ "verified": 3, "wrong": self.wrong }] }] });
        }
        json!({ "rounds": 2 })
    }
}

impl Runner for StandIn {
    fn run(&mut self, call: &Call) -> Done {
        let fails = self.fails == Some((self.step, self.done.len()));
        if self.interrupted == Some(self.step) {
            self.stop.note(libc::SIGINT);
        }
        let end = match (self.interrupted == Some(self.step), fails, &call.kill) {
            (true, ..) => End::Interrupted,
            (_, true, _) => End::Exit(1),
            (_, _, Some(kill)) if kill.rank.is_none() => End::Killed,
            (_, _, Some(_)) => End::Exit(137),
            _ => End::Exit(0),
        };
        let gone = call.kill.as_ref().is_some_and(|k| k.rank.is_some()) && !fails;
        let done = Done {
            name: call.name.clone(),
            command: call.arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" "),
            end,
            elapsed_ns: 1,
            stderr: if gone { "error: rank 1 is gone: connection closed" } else { "error: it is broken" }.to_owned(),
            report: (!fails).then(|| self.report(call)),
            refused: Vec::new(),
            more_refused: 0,
        };
        self.done.push(done.clone());
        done
    }

    fn take(&mut self) -> Vec<Done> {
        self.step += 1;
        std::mem::take(&mut self.done)
    }

    fn is_interrupted(&self) -> bool {
        self.stop.is_asked()
    }

    fn program(&self) -> Vec<OsString> {
        vec!["warpbell".into()]
    }
}

fn run(procedure: &mut dyn Procedure, mut runner: StandIn, until: Option<&str>) -> (Report, Result<(), Failure>) {
    let stop = runner.stop.clone();
    let text = Text::none();
    let (report, printed) =
        Acceptance::new(procedure, &mut runner, &text, until.map(str::to_owned), stop.clone()).run(automatic());
    assert!(printed.is_ok());
    let outcome = report.outcome(&stop);
    assert_eq!(report.accepted, outcome.is_ok());
    (report, outcome)
}

/// Returns the states of the steps, and checks that those after a failure did not run.
fn states(report: &Report) -> Vec<Status> {
    report.steps.iter().map(|s| s.status).collect()
}

/// A machine with a drive, and a stand-in for the kernel that changes its driver.
struct Drive {
    tree: Fixture,
    over: Arc<AtomicBool>,
    kernel: Option<JoinHandle<()>>,
}

impl Drive {
    fn new() -> Self {
        let tree = Fixture::new();
        let drive = Device { class: 0x01_08_02, driver: Some("nvme"), group: Some(7), ..Device::default() };
        tree.pci(&format!("pci0000:00/{BDF}"), &drive).group_type(7, "DMA");
        tree.file("/proc/self/mountinfo", "25 1 0:21 / /proc rw - proc proc rw\n");
        for driver in ["nvme", "vfio-pci"] {
            tree.file(&format!("/sys/bus/pci/drivers/{driver}/unbind"), "");
        }
        tree.file("/sys/bus/pci/drivers_probe", "").file(&format!("/sys/devices/pci0000:00/{BDF}/driver_override"), "");
        let (root, over) = (tree.root().to_owned(), Arc::new(AtomicBool::new(false)));
        let ended = over.clone();
        let kernel = std::thread::spawn(move || {
            let device = root.join(format!("sys/devices/pci0000:00/{BDF}"));
            let probe = root.join("sys/bus/pci/drivers_probe");
            while !ended.load(Ordering::Relaxed) {
                if fs::read_to_string(&probe).is_ok_and(|t| t.contains(BDF)) {
                    fs::write(&probe, "").unwrap();
                    let wanted = fs::read_to_string(device.join("driver_override")).unwrap();
                    // A plain file keeps what a shorter text does not cover.
                    let driver = if wanted.starts_with("vfio-pci") { "vfio-pci" } else { "nvme" };
                    // Exchanged at once: whoever reads the link never finds none.
                    let next = device.join("driver.next");
                    symlink(format!("../../../bus/pci/drivers/{driver}"), &next).unwrap();
                    fs::rename(&next, device.join("driver")).unwrap();
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self { tree, over, kernel: Some(kernel) }
    }

    fn driver(&self) -> String {
        let link = self.tree.root().join(format!("sys/devices/pci0000:00/{BDF}/driver"));
        fs::read_link(link).unwrap().file_name().unwrap().to_str().unwrap().to_owned()
    }

    fn root(&self) -> &str {
        self.tree.root().to_str().unwrap()
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.kernel.take().unwrap().join().unwrap();
    }
}

#[test]
fn all_steps_of_storage_pass_on_a_whole_machine() {
    let drive = Drive::new();
    let mut procedure = storage(&[BDF, "--root", drive.root()]).unwrap();
    let (report, outcome) = run(&mut procedure, StandIn::new(), None);
    assert!(outcome.is_ok(), "{outcome:?}");
    assert_eq!(states(&report), vec![Status::Passed; nvme::STEPS.len()]);
    assert_eq!(report.restored, [format!("{BDF}  vfio-pci -> nvme")]);
    assert_eq!(drive.driver(), "nvme");
    // Each path changes one thing.
    let options = |name: &str| report.steps.iter().find(|s| s.name == name).unwrap().commands[0].command.clone();
    let contains = |step: &str, words: &str| assert!(options(step).contains(words), "{step}: {}", options(step));
    contains("cpu", "--engine cpu");
    contains("gpu-bounce", "--engine gpu --queue-memory host --landing bounce --doorbell cpu");
    contains("gpu-doorbell", "--engine gpu --queue-memory host --landing bounce --doorbell gpu");
    contains("gpu-queues", "--iodepth 1 ");
    contains("gpu-direct", "--queue-memory gpu --landing direct --doorbell gpu");
    contains("soak", "--queue-memory gpu --landing direct");
    assert!(report.steps.iter().skip(3).flat_map(|s| &s.commands).all(|c| c.command.contains(&format!("nvme:{BDF}"))));
}

#[test]
fn each_step_of_storage_is_the_first_to_fail_once() {
    for (index, step) in nvme::STEPS.iter().enumerate() {
        // These two are no commands; the tests below have them.
        if ["bind-plan", "bind"].contains(&step.name) {
            continue;
        }
        let drive = Drive::new();
        let mut procedure = storage(&[BDF, "--root", drive.root()]).unwrap();
        let runner = StandIn { fails: Some((index, 0)), ..StandIn::new() };
        let (report, outcome) = run(&mut procedure, runner, None);
        let before = vec![Status::Passed; index];
        assert_eq!(states(&report)[..index], before, "{}", step.name);
        assert_eq!(report.steps[index].status, Status::Failed, "{}", step.name);
        assert!(report.steps[index].remedy.is_some() && report.steps[index].detail.contains("it is broken"));
        assert!(states(&report)[index + 1..].iter().all(|s| *s == Status::NotRun), "{}", step.name);
        let Err(Failure::Error(why)) = outcome else { panic!("{}: {outcome:?}", step.name) };
        assert!(why.starts_with(&format!("step {} failed: ", step.name)), "{why}");
        assert_eq!(drive.driver(), "nvme", "{}: not restored", step.name);
    }
}

#[test]
fn data_that_is_not_compared_is_a_failure() {
    struct Careless(StandIn);
    impl Runner for Careless {
        fn run(&mut self, call: &Call) -> Done {
            let mut done = self.0.run(call);
            if let Some(verified) = done.report.as_mut().and_then(|r| r.pointer_mut("/results/0/runs/0/verified")) {
                *verified = false.into();
            }
            done
        }
        fn take(&mut self) -> Vec<Done> {
            self.0.take()
        }
        fn is_interrupted(&self) -> bool {
            false
        }
        fn program(&self) -> Vec<OsString> {
            self.0.program()
        }
    }
    let (mut procedure, mut runner) = (storage(&["soft:mem"]).unwrap(), Careless(StandIn::new()));
    let (report, _) =
        Acceptance::new(&mut procedure, &mut runner, &Text::none(), None, Stop::default()).run(automatic());
    let failed = report.steps.iter().find(|s| s.status == Status::Failed).unwrap();
    assert_eq!(failed.name, "cpu");
    assert!(failed.detail.contains("did not compare"), "{}", failed.detail);
}

#[test]
fn a_controller_in_use_ends_at_the_plan() {
    let drive = Drive::new();
    drive.tree.folder(&format!("/sys/devices/pci0000:00/{BDF}/nvme/nvme0/nvme0n1"));
    drive.tree.file("/sys/class/block/nvme0n1/size", "8\n").file("/sys/class/block/nvme0n1/dev", "259:0\n");
    drive.tree.file("/dev/nvme0n1", [0; 4096]);
    drive.tree.file("/proc/self/mountinfo", "29 1 259:0 / / rw - ext4 /dev/root rw\n");
    let mut procedure = storage(&[BDF, "--root", drive.root()]).unwrap();
    let (report, outcome) = run(&mut procedure, StandIn::new(), None);
    assert_eq!(states(&report)[..3], [Status::Passed, Status::Failed, Status::NotRun]);
    assert!(
        matches!(outcome, Err(Failure::Error(why)) if why.contains("step bind-plan failed") && why.contains("refusing"))
    );
    assert_eq!((drive.driver().as_str(), report.restored.len()), ("nvme", 0));
}

#[test]
fn a_kernel_that_takes_nothing_ends_at_bind() {
    let drive = Drive::new();
    fs::remove_file(drive.tree.root().join("sys/bus/pci/drivers/nvme/unbind")).unwrap();
    let mut procedure = storage(&[BDF, "--root", drive.root()]).unwrap();
    let (report, outcome) = run(&mut procedure, StandIn::new(), None);
    assert_eq!(states(&report)[..4], [Status::Passed, Status::Passed, Status::Failed, Status::NotRun]);
    assert!(matches!(outcome, Err(Failure::Error(why)) if why.contains("step bind failed") && why.contains("unbind")));
    assert_eq!(drive.driver(), "nvme");
}

#[test]
fn an_interrupt_restores_the_driver() {
    let drive = Drive::new();
    let mut procedure = storage(&[BDF, "--root", drive.root()]).unwrap();
    let cpu = nvme::STEPS.iter().position(|s| s.name == "cpu").unwrap();
    let (report, outcome) = run(&mut procedure, StandIn { interrupted: Some(cpu), ..StandIn::new() }, None);
    assert!(matches!(outcome, Err(Failure::Status(why, 130)) if why == "interrupted by SIGINT"));
    assert_eq!(report.interrupted.as_deref(), Some("interrupted by SIGINT"));
    assert!(states(&report)[cpu + 1..].iter().all(|s| *s == Status::NotRun));
    assert_eq!((drive.driver().as_str(), report.restored.len()), ("nvme", 1));
}

#[test]
fn what_cannot_be_restored_is_an_error_with_the_command() {
    let drive = Drive::new();
    let (mut procedure, mut runner) = (storage(&[BDF, "--root", drive.root()]).unwrap(), StandIn::new());
    for name in ["bind-plan", "bind"] {
        let step = nvme::STEPS.iter().find(|s| s.name == name).unwrap();
        procedure.carry_out(step, &mut runner);
    }
    assert_eq!(drive.driver(), "vfio-pci");
    // The drive is pulled out.
    fs::remove_file(drive.tree.root().join(format!("sys/bus/pci/devices/{BDF}"))).unwrap();
    let why = procedure.restore().unwrap_err();
    assert!(why.contains("warpbell nvme unbind") && why.contains(BDF), "{why}");
}

#[test]
fn nothing_is_written_without_permission() {
    let drive = Drive::new();
    let mut procedure = storage(&[BDF, "--root", drive.root()]).unwrap();
    let runner = StandIn { kept: Some("it holds data"), ..StandIn::new() };
    let (report, outcome) = run(&mut procedure, runner, None);
    let writes = ["--rw randwrite", "--rw randrw", "--verify", "graph", "reset", "--yes-destroy"];
    for command in report.steps.iter().flat_map(|s| &s.commands) {
        assert!(!writes.iter().any(|w| command.command.contains(w)), "{}", command.command);
    }
    let skipped: Vec<_> = report.steps.iter().filter(|s| s.skipped == Some(SkipReason::Overwrite)).collect();
    assert_eq!(skipped.len(), 9);
    let Err(Failure::Error(why)) = outcome else { panic!("{outcome:?}") };
    assert!(why.contains(&format!("give --yes-destroy {BDF}")), "{why}");
    // The policy is for this device alone.
    assert!(matches!(storage(&["soft:a.img", "--yes-destroy", "b.img"]), Err(Failure::Usage(_))));
    for same in ["a.img", "soft:a.img"] {
        assert!(storage(&["soft:a.img,block=4096", "--yes-destroy", same]).is_ok(), "{same}");
    }
}

#[test]
fn what_a_machine_lacks_is_left_out_and_no_failure() {
    let mut procedure = storage(&["soft:mem"]).unwrap();
    let (report, outcome) = run(&mut procedure, StandIn { gpu: false, ..StandIn::new() }, None);
    assert!(outcome.is_ok(), "{outcome:?}");
    let state = |name: &str| report.steps.iter().find(|s| s.name == name).unwrap();
    for name in ["bind", "gpu-bounce", "gpu-direct", "killed"] {
        assert_eq!(state(name).skipped, Some(SkipReason::Lacking), "{name}");
    }
    assert!(state("gpu-queues").detail.contains("none is built in"), "{}", state("gpu-queues").detail);
    // A step that was asked for by name must be there.
    let (_, outcome) =
        run(&mut storage(&["soft:mem"]).unwrap(), StandIn { gpu: false, ..StandIn::new() }, Some("gpu-queues"));
    assert!(matches!(outcome, Err(Failure::Error(why)) if why.contains("step gpu-queues was asked for and left out")));
    let (report, outcome) = run(&mut storage(&["soft:mem"]).unwrap(), StandIn::new(), Some("read"));
    assert!(outcome.is_ok());
    assert_eq!(report.steps.iter().filter(|s| s.status == Status::NotRun).count(), nvme::STEPS.len() - 7);
}

/// Returns the command lines of a step.
fn commands<'a>(report: &'a Report, step: &str) -> Vec<&'a str> {
    let step = report.steps.iter().find(|s| s.name == step).unwrap();
    step.commands.iter().map(|c| c.command.as_str()).collect()
}

/// Checks that a run left out these steps since `--engine` does, and no other one.
#[track_caller]
fn left_out(report: &Report, names: &[&str]) {
    let left: Vec<_> = report.steps.iter().filter(|s| s.skipped == Some(SkipReason::Engine)).collect();
    assert_eq!(left.iter().map(|s| s.name).collect::<Vec<_>>(), names);
    assert!(left.iter().all(|s| s.detail.contains("--engine cpu") && s.commands.is_empty()));
}

#[test]
fn the_engine_of_storage_is_that_of_the_option() {
    let run = |words: &[&str]| {
        let drive = Drive::new();
        let words = [&[BDF, "--root", drive.root()], words].concat();
        run(&mut storage(&words).unwrap(), StandIn::new(), None)
    };
    let (report, outcome) = run(&["--engine", "cpu"]);
    assert!(outcome.is_ok(), "{outcome:?}");
    left_out(&report, &["gpu-bounce", "gpu-doorbell", "gpu-queues", "gpu-direct"]);
    for step in ["contents", "read", "cpu", "graph", "killed", "reset", "soak"] {
        assert!(commands(&report, step).iter().all(|c| c.contains(" --engine cpu")), "{step}");
    }
    assert!(!commands(&report, "doctor")[0].contains("--require"));
    let (report, outcome) = run(&["--engine", "gpu:1", "--threads", "3", "--deadline", "2s"]);
    assert!(outcome.is_ok(), "{outcome:?}");
    left_out(&report, &[]);
    assert!(commands(&report, "doctor")[0].contains("--require gpu"));
    for step in
        ["contents", "gpu-bounce", "gpu-doorbell", "gpu-queues", "gpu-direct", "graph", "killed", "reset", "soak"]
    {
        assert!(commands(&report, step).iter().all(|c| c.contains(" --engine gpu:1")), "{step}");
    }
    for step in ["read", "cpu"] {
        let all = commands(&report, step);
        assert!(all.iter().all(|c| c.contains(" --threads 3 --deadline 2000ms --engine cpu")), "{step}: {all:?}");
    }
    for step in ["identify", "format"] {
        assert!(commands(&report, step)[0].contains(" --deadline 2000ms"), "{step}");
    }
    let (report, _) = run(&[]);
    let all = report.steps.iter().flat_map(|s| &s.commands);
    assert!(all.into_iter().all(|c| !c.command.contains("--deadline") && !c.command.contains("--threads")));
}

#[test]
fn the_engine_of_rdma_is_that_of_the_option() {
    let run = |words: &[&str]| run(&mut network(&[&["--device", "mlx5_0"], words].concat()), StandIn::new(), None);
    let (report, outcome) = run(&["--engine", "cpu"]);
    assert!(outcome.is_ok(), "{outcome:?}");
    left_out(&report, &["mlx5-doorbell", "mlx5-queues", "gpu-heap"]);
    for step in ["verbs", "mlx5-host", "ranks", "host-heap", "bad-key", "killed-peer", "soak"] {
        let all = commands(&report, step);
        assert!(all.iter().all(|c| c.contains(" --engine cpu")), "{step}: {all:?}");
    }
    let (report, outcome) = run(&["--engine", "gpu:1", "--threads", "3"]);
    assert!(outcome.is_ok(), "{outcome:?}");
    left_out(&report, &[]);
    assert!(commands(&report, "doctor")[0].contains("--require rdma,gpu"));
    assert!(commands(&report, "verbs").iter().all(|c| c.contains(" --threads 3 --engine cpu")));
    for step in ["mlx5-host", "mlx5-doorbell", "mlx5-queues", "ranks", "gpu-heap", "host-heap", "killed-peer", "soak"] {
        let all = commands(&report, step);
        assert!(all.iter().all(|c| c.contains(" --engine gpu:1")), "{step}: {all:?}");
    }
}

#[test]
fn each_step_of_rdma_is_the_first_to_fail_once() {
    // The peer is the stand-in, too; the secret is only looked for.
    let words = ["--device", "mlx5_0"];
    let (report, outcome) = run(&mut network(&words), StandIn::new(), None);
    assert!(outcome.is_ok(), "{outcome:?}");
    for (index, step) in rdma::STEPS.iter().enumerate() {
        if report.steps[index].status == Status::Skipped {
            assert!(["soft", "hosts"].contains(&step.name), "{}", step.name);
            continue;
        }
        // Every command of the step, not only the first.
        for command in 0..report.steps[index].commands.len() {
            let runner = StandIn { fails: Some((index, command)), ..StandIn::new() };
            let (report, outcome) = run(&mut network(&words), runner, None);
            assert!(states(&report)[..index].iter().all(|s| *s != Status::Failed), "{}", step.name);
            assert_eq!(report.steps[index].status, Status::Failed, "{} {command}", step.name);
            assert!(states(&report)[index + 1..].iter().all(|s| *s == Status::NotRun), "{}", step.name);
            assert!(
                matches!(outcome, Err(Failure::Error(why)) if why.starts_with(&format!("step {} failed", step.name)))
            );
        }
    }
}

#[test]
fn wrong_messages_are_a_failure() {
    let (report, _) = run(&mut network(&["--device", "mlx5_0"]), StandIn { wrong: 1, ..StandIn::new() }, None);
    let failed = report.steps.iter().find(|s| s.status == Status::Failed).unwrap();
    assert_eq!(failed.name, "verbs");
    assert!(failed.detail.contains("1 of 3 messages arrived with wrong data"), "{}", failed.detail);
}

#[test]
fn paths_of_rdma_change_one_thing_each() {
    let (report, _) = run(&mut network(&["--device", "mlx5_0", "--max-size", "64"]), StandIn::new(), None);
    let step = |name: &str| report.steps.iter().find(|s| s.name == name).unwrap();
    let commands = |name: &str| step(name).commands.iter().map(|c| c.command.as_str()).collect::<Vec<_>>();
    assert!(commands("verbs").iter().all(|c| c.contains("--transport verbs") && c.contains("--engine cpu")));
    assert!(commands("mlx5-queues").iter().all(|c| c.contains("--transport mlx5") && c.contains("--engine gpu")));
    let all = commands("verbs").join("\n");
    for word in ["write_bw -s 2,4,8,16,32,64 ", "read_bw", "atomic_bw", "-q 17", "probe idle", "--for 5000ms"] {
        assert!(all.contains(word), "{word}: {all}");
    }
    assert!(commands("ranks").iter().all(|c| c.starts_with("run -n 2 ") && c.contains(" -- warpbell bench rdma")));
    // Other devices have no steps of mlx5.
    let (report, outcome) = run(&mut network(&["--device", "rxe0"]), StandIn::new(), None);
    assert!(outcome.is_ok());
    let lacking = report.steps.iter().filter(|s| s.status == Status::Skipped && s.name.starts_with("mlx5")).count();
    assert_eq!(lacking, 3);
}

#[test]
fn names_are_unique_and_each_step_says_what_it_proves() {
    for steps in [nvme::STEPS, rdma::STEPS] {
        let mut names: Vec<&str> = steps.iter().map(|s| s.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), steps.len());
        assert!(steps.iter().all(|s| !s.proves.is_empty() && !s.remedy.is_empty() && s.name.len() < 15));
    }
}
