//! The acceptance run of an NVMe controller.

use super::NvmeArgs;
use super::binding::Binding;
use super::engine::{self, Place};
use super::machine::Machine;
use super::runner::{Call, Done, End, Kill, Runner};
use super::step::{Outcome, Procedure, SkipReason, Step};
use crate::output::Failure;
use crate::remedy;
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;
use warpbell::pci::{Bdf, FoundController, Sysfs, find};
use warpbell::spec::{DeviceSpec, Name, Scheme};
use warpbell::storage::DriveSpec;
use warpbell::units::Bytes;

/// Steps, from the safest path to the fastest. Each changes one thing.
pub const STEPS: &[Step] = &[
    Step {
        name: "doctor",
        proves: "the machine has what the device needs: an IOMMU, VFIO, rights, locked memory",
        remedy: "apply the fixes that `warpbell doctor` prints (docs/doctor.md)",
    },
    Step {
        name: "bind-plan",
        proves: "the system does not use the controller, and vfio-pci could take it; writes nothing",
        remedy: "free the controller, or name another one (warpbell nvme list)",
    },
    Step { name: "bind", proves: "the kernel gives the controller to vfio-pci", remedy: "run as root; see dmesg" },
    Step {
        name: "identify",
        proves: "registers, DMA to host memory and the admin queue work; names model and firmware",
        remedy: "reset or power-cycle the drive; compare with `nvme id-ctrl` under the kernel's driver",
    },
    Step {
        name: "format",
        proves: "the namespace has blocks that can be used: 512 to 4096 bytes, no metadata",
        remedy: "warpbell nvme format-check DEVICE prints the format command that helps",
    },
    Step { name: "contents", proves: "shows if the namespace is free; reads only its ends", remedy: "see the error" },
    Step {
        name: "read",
        proves: "I/O queues work: kernels on CPU threads read; nothing is compared",
        remedy: "warpbell nvme error-log DEVICE; warpbell nvme smart DEVICE",
    },
    Step {
        name: "cpu",
        proves: "kernels on CPU threads read what they wrote, in small and large commands",
        remedy: "the drive or its firmware is at fault, or the IOMMU's mappings: try another slot, and nvme error-log",
    },
    Step {
        name: "gpu-bounce",
        proves: "kernels on a GPU drive queues in host memory; a CPU thread writes the doorbells",
        remedy: "the GPU's access to pinned host memory is at fault: see dmesg for Xid and DMAR lines, then `warpbell doctor`",
    },
    Step {
        name: "gpu-doorbell",
        proves: "the GPU writes the controller's doorbells itself; nothing else changes",
        remedy: "set NVreg_RegistryDwords=\"PeerMappingOverride=1;\" and reboot (docs/doctor.md#gpu-doorbell); until then use --doorbell cpu",
    },
    Step {
        name: "gpu-queues",
        proves: "the controller reaches GPU memory: queues and data are there, one command at a time",
        remedy: "fix a mapping backend (docs/doctor.md#paths); until then use --queue-memory host --landing bounce",
    },
    Step {
        name: "gpu-direct",
        proves: "data lands in GPU memory before its completion, in all sizes and with many commands in flight",
        remedy: "writes to GPU memory are out of order or lost: compare the PCI distance (docs/doctor.md#pci-distance); use --landing bounce",
    },
    Step {
        name: "graph",
        proves: "a graph search on the fastest path that passed gives the result of a serial search",
        remedy: "run the command with --landing bounce: if that passes, order is at fault; report both",
    },
    Step {
        name: "killed",
        proves: "after kill -9 under load the next process takes the controller, and its I/O is right",
        remedy: "reset the function (echo 1 > /sys/bus/pci/devices/ADDRESS/reset), and report it",
    },
    Step {
        name: "reset",
        proves: "a controller reset under load is an error and no hang, and the volume recovers",
        remedy: "power-cycle the drive; report it with the firmware's version",
    },
    Step {
        name: "soak",
        proves: "the fastest path that passed stays right for the time of --soak",
        remedy: "look at temperature and media errors (warpbell nvme smart DEVICE), then repeat on the path before it",
    },
];

/// Time limit of a command, in addition to the time for which it measures.
const LIMIT: Duration = Duration::from_secs(300);
/// Largest command of the runs with large commands, unless the controller has a lower limit.
const LARGE: u64 = 128 << 10;
/// Commands in flight.
const DEPTH: &str = "32";
const LARGE_DEPTH: &str = "8";
/// Most time for which a load runs before it is killed.
const LOADED: Duration = Duration::from_millis(500);

/// Data path to the device.
#[derive(Debug)]
struct DataPath {
    step: &'static str,
    place: Place,
    options: &'static [&'static str],
}

/// Data paths, in the order of their steps.
const PATHS: [DataPath; 5] = [
    DataPath { step: "cpu", place: Place::Cpu, options: &[] },
    DataPath {
        step: "gpu-bounce",
        place: Place::Gpu,
        options: &["--queue-memory", "host", "--landing", "bounce", "--doorbell", "cpu"],
    },
    DataPath {
        step: "gpu-doorbell",
        place: Place::Gpu,
        options: &["--queue-memory", "host", "--landing", "bounce", "--doorbell", "gpu"],
    },
    DataPath {
        step: "gpu-queues",
        place: Place::Gpu,
        options: &["--queue-memory", "gpu", "--landing", "direct", "--doorbell", "gpu"],
    },
    DataPath {
        step: "gpu-direct",
        place: Place::Gpu,
        options: &["--queue-memory", "gpu", "--landing", "direct", "--doorbell", "gpu"],
    },
];

/// The acceptance run of one controller.
pub struct Storage {
    args: NvmeArgs,
    device: DeviceSpec,
    /// Address of a controller of this machine that has to be bound.
    bdf: Option<Bdf>,
    sysfs: Sysfs,
    machine: Machine,
    binding: Option<Binding>,
    /// The file of a software device that this run has created.
    created: Option<PathBuf>,
    /// Reason why nothing may be written; `None` if it may.
    kept: Option<String>,
    /// Largest command.
    large: u64,
    /// Fastest path that has passed.
    path: &'static DataPath,
    fault: Option<(String, String)>,
    identify: Value,
}

/// Parses the device: a specification, or the name of a controller of this machine.
fn parse(text: &OsStr) -> Result<DeviceSpec, Failure> {
    let has_scheme = |s: &str| ["soft:", "qtest:", "nvme:", "nvmf:"].iter().any(|scheme| s.starts_with(scheme));
    match text.to_str() {
        Some(s) if has_scheme(s) => Ok(DriveSpec::named(text)?.spec().clone()),
        _ => Ok(DeviceSpec::of(Scheme::Nvme, text)?),
    }
}

impl Storage {
    /// Prepares a run. Opens nothing.
    ///
    /// # Errors
    /// [`Failure::Error`] if the device's specification is invalid, or no or more than one controller has its name.
    /// [`Failure::Usage`] if `--yes-destroy` names another device.
    pub fn new(args: &NvmeArgs) -> Result<Self, Failure> {
        let sysfs = args.run.root.as_ref().map_or_else(Sysfs::system, Sysfs::at);
        let named = |text: &OsStr| -> Result<(DeviceSpec, Option<Bdf>), Failure> {
            let spec = parse(text)?;
            let bdf = match spec.name() {
                Name::Controller(name) => match find(&sysfs, name)? {
                    FoundController::At(bdf) => Some(bdf),
                    // User space drives it already, so there is nothing to bind.
                    FoundController::Ask(_) => None,
                },
                _ => None,
            };
            Ok((spec, bdf))
        };
        let text = args.device.clone().unwrap_or_default();
        let (mut device, bdf) = named(&text)?;
        for other in &args.yes_destroy {
            let same =
                |(spec, at): (DeviceSpec, Option<Bdf>)| spec.name() == device.name() || (at.is_some() && at == bdf);
            let is_path = matches!(device.name(), Name::SoftFile(p) | Name::QtestFile(p) if p.as_os_str() == other);
            if !is_path && !named(other).is_ok_and(same) {
                let (other, device) = (other.display(), text.display());
                return Err(Failure::Usage(format!("--yes-destroy {other} names another device than {device}")));
            }
        }
        if let Some(bdf) = bdf {
            // A name such as nvme0 is the kernel's, and goes with its driver.
            let mut at = DeviceSpec::of(Scheme::Nvme, OsStr::new(&bdf.to_string()))?;
            for option in device.options() {
                at.set(option.key(), option.value())?;
            }
            device = at;
        }
        if args.unsafe_no_iommu && device.is_controller() {
            device.set("unsafe-no-iommu", None)?;
        }
        let fault = args.run.fault.as_ref().map(|f| {
            let (step, options) = f.split_once('=').unwrap_or((f, ""));
            (step.to_owned(), options.to_owned())
        });
        Ok(Self {
            args: args.clone(),
            device,
            bdf,
            sysfs,
            machine: Machine::default(),
            binding: None,
            created: None,
            kept: None,
            large: LARGE,
            path: &PATHS[0],
            fault,
            identify: Value::Null,
        })
    }

    /// Returns the device as the commands of a step name it.
    fn spec(&self, step: &Step) -> OsString {
        self.with_fault(step, &self.device)
    }

    fn with_fault(&self, step: &Step, device: &DeviceSpec) -> OsString {
        let mut text = OsString::from(device.to_string());
        if let Some((_, options)) = self.fault.as_ref().filter(|(name, _)| name == step.name) {
            text.push(format!(",{options}"));
        }
        text
    }

    /// Returns the device with the size of a memory device, which most commands choose themselves.
    fn sized(&self) -> DeviceSpec {
        self.device.clone().sized(self.args.size.0)
    }

    fn file(&self) -> Option<&Path> {
        match self.device.name() {
            Name::SoftFile(path) | Name::QtestFile(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the options that name the device, and permit to overwrite it.
    fn on_device(&self, step: &Step) -> Vec<OsString> {
        let mut all = vec!["--device".into(), self.spec(step)];
        // Data that is not this run's was looked for by step `contents`. What is there now is the run's own.
        match self.device.name() {
            Name::Memory { .. } => {}
            Name::SoftFile(path) | Name::QtestFile(path) => all.extend(["--yes-destroy".into(), path.into()]),
            Name::Controller(address) => all.extend(["--yes-destroy".into(), format!("nvme:{address}").into()]),
            Name::Remote(remote) => all.extend(["--yes-destroy".into(), format!("nvmf:{remote}").into()]),
        }
        all
    }

    /// Returns the command of a load: `bench nvme`, with these options.
    fn load(&self, name: &str, step: &Step, path: &DataPath, options: &[&str], runtime: Duration) -> Call {
        Call::new(name, &["bench", "nvme"], LIMIT + runtime)
            .with(options)
            .with(["--runtime".to_owned(), format!("{}ms", runtime.as_millis()), "--size".to_owned(), self.size()])
            .with(self.options(path))
            .with(self.on_device(step))
    }

    /// Returns the options of a path: those of the engine, then those of the data path.
    fn options(&self, path: &DataPath) -> Vec<String> {
        let mut all = engine::options(&self.args.run.engine, path.place);
        all.extend(path.options.iter().map(|&word| word.to_owned()));
        all
    }

    fn size(&self) -> String {
        self.args.size.0.to_string()
    }

    /// Runs loads in small and large commands, and compares what they read.
    fn verified(&self, step: &Step, path: &DataPath, depth: [&str; 2], runner: &mut dyn Runner) -> Outcome {
        let large = self.large.to_string();
        let runs: [(&str, Vec<&str>); 3] = [
            ("small commands", vec!["--rw", "randrw", "--bs", "4k", "--iodepth", depth[0]]),
            ("large commands", vec!["--rw", "randread", "--bs", &large, "--iodepth", depth[1]]),
            ("in sequence", vec!["--rw", "read", "--bs", "4k", "--iodepth", depth[0]]),
        ];
        let mut found = Vec::new();
        for (name, options) in runs {
            let call = self.load(name, step, path, &options, self.args.run.runtime).with(["--verify", "--json", "-"]);
            match self.checked(runner.run(&call)) {
                Ok(done) => found.push(figures(name, &done)),
                Err(failed) => return failed,
            }
        }
        Outcome::Passed(found.join("; "))
    }

    /// Returns the command if it succeeded and compared what it read.
    fn checked(&self, done: Done) -> Result<Done, Outcome> {
        if !done.is_success() {
            return Err(Outcome::failed(done.error()));
        }
        if done.get("/results/0/runs/0/verified") != true {
            return Err(Outcome::failed(format!("{}: it did not compare what it read", done.name)));
        }
        Ok(done)
    }

    fn doctor(&mut self, runner: &mut dyn Runner) -> Outcome {
        let require = engine::required(&self.args.run.engine);
        let done = self.machine.examine(runner, require.as_slice(), self.args.run.root.as_ref());
        if !done.is_success() {
            return Outcome::failed(done.error());
        }
        let Some(bdf) = self.bdf.map(|b| b.to_string()).filter(|_| self.device.is_controller()) else {
            return Outcome::Passed(self.machine.counts());
        };
        let risk = self.device.options().iter().any(|o| o.key() == "unsafe-no-iommu");
        let host: &[&str] = if risk { &["vfio", "memlock"] } else { &["iommu", "vfio", "memlock"] };
        let own: &[&str] = if risk { &["rights"] } else { &["group", "rights"] };
        let closed = self.machine.find("host", "", host, &["fail"]);
        let closed = closed.or_else(|| self.machine.find("nvme", &bdf, own, &["fail"]));
        match closed {
            Some(check) => check.as_failure(),
            None => Outcome::Passed(self.machine.counts()),
        }
    }

    fn bind_plan(&mut self) -> Outcome {
        let Some(bdf) = self.bdf else {
            return Outcome::lacking(match self.device.is_controller() {
                true => "user space drives the controller already",
                false => "the device is no controller of this machine",
            });
        };
        let risk = self.device.options().iter().any(|o| o.key() == "unsafe-no-iommu");
        match Binding::plan(&self.sysfs, bdf, risk) {
            Ok(binding) => {
                let writes = binding.writes();
                let notes = binding.notes().join("; ");
                let found = if writes.is_empty() { "nothing to do".to_owned() } else { writes.join("; ") };
                self.binding = Some(binding);
                Outcome::Passed(if notes.is_empty() { found } else { format!("{found}; {notes}") })
            }
            Err(e) => failed_with(&e),
        }
    }

    fn bind(&mut self) -> Outcome {
        let Some(binding) = self.binding.as_mut() else {
            return Outcome::lacking("there is nothing to bind");
        };
        match binding.carry_out() {
            Ok(words) => Outcome::Passed(words),
            Err(e) => failed_with(&e),
        }
    }

    fn identify(&mut self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        if let Err(failed) = self.create_file() {
            return failed;
        }
        let device = self.with_fault(step, &self.sized());
        let call = match step.name {
            "identify" => Call::new("nvme id", &["nvme", "id"], LIMIT),
            _ => Call::new("format-check", &["nvme", "format-check"], LIMIT),
        };
        let limit = engine::deadline(&self.args.run.engine);
        let done = runner.run(&call.with([device]).with(limit).with(["--json", "-"]));
        if !done.is_success() {
            let format =
                done.get("/namespaces/0/format/command").as_str().map(|c| format!("it erases the namespace: {c}"));
            let reason = done.get("/namespaces/0/reason").as_str().unwrap_or_default();
            let error = if reason.is_empty() { done.error() } else { format!("{}: {reason}", done.error()) };
            return Outcome::Failed { error, remedy: format };
        }
        if step.name == "format" {
            let usable = done.get("/namespaces").as_array().into_iter().flatten().filter(|n| n["usable"] == true);
            let words = usable
                .map(|n| format!("namespace {} of {} with blocks of {}", n["nsid"], size_of(n), n["block_bytes"]));
            return Outcome::Passed(words.collect::<Vec<_>>().join(", "));
        }
        if let Some(most) = done.get("/driver/max_transfer_bytes").as_u64() {
            self.large = LARGE.min(most);
        }
        let field = |key: &str| done.get(&format!("/controller/{key}")).as_str().unwrap_or_default().trim().to_owned();
        self.identify = json!({ "model": field("mn"), "serial": field("sn"), "firmware": field("fr"), "driver": done.get("/driver") });
        Outcome::Passed(format!("{}, firmware {}", field("mn"), field("fr")))
    }

    /// Creates the file of a software device if it is missing. The run removes it at its end.
    fn create_file(&mut self) -> Result<(), Outcome> {
        let Some(path) = self.file().filter(|p| !p.exists()).map(Path::to_owned) else { return Ok(()) };
        let made =
            OpenOptions::new().write(true).create_new(true).open(&path).and_then(|f| f.set_len(self.args.size.0));
        made.map_err(|e| Outcome::failed(format!("{}: it cannot be created: {e}", path.display())))?;
        self.created = Some(path);
        Ok(())
    }

    fn contents(&mut self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        let mut call = Call::new("contents", &["accept", "probe", "contents", "--json", "-"], LIMIT)
            .with(["--size".to_owned(), self.size()])
            .with(engine::options(&self.args.run.engine, Place::Any))
            .with(["--device".into(), self.spec(step)]);
        if !self.args.yes_destroy.is_empty() {
            call = call.with(self.on_device(step).split_off(2));
        }
        let done = runner.run(&call);
        if !done.is_success() {
            return Outcome::failed(done.error());
        }
        let found = done.get("/kept").as_str().map(str::to_owned);
        self.kept = found.as_ref().map(|_| {
            let device = self.args.device.clone().unwrap_or_default();
            format!("the device holds data; give --yes-destroy {} if the data is not needed", device.display())
        });
        Outcome::Passed(match found {
            Some(why) => format!("{why}; the steps that write are left out"),
            None if self.args.yes_destroy.is_empty() => "free".to_owned(),
            None => "may be overwritten".to_owned(),
        })
    }

    fn read(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        let runtime = self.args.run.runtime;
        let mut call = Call::new("reads", &["bench", "nvme", "--rw", "randread"], LIMIT + runtime)
            .with(engine::options(&self.args.run.engine, Place::Cpu))
            .with(["--bs", "4k", "--iodepth", DEPTH, "--runtime", &format!("{}ms", runtime.as_millis()), "--json", "-"])
            .with(["--device".into(), self.spec(step)]);
        if self.device.is_memory() {
            // Memory is filled before it is read.
            call = call.with(["--size".to_owned(), self.size()]);
        }
        let done = runner.run(&call);
        if done.is_success() { Outcome::Passed(figures("reads", &done)) } else { Outcome::failed(done.error()) }
    }

    /// Returns the reason why a path on the GPU is not there.
    fn lacks(&self, name: &str) -> Option<String> {
        if let Some(why) = self.machine.no_gpu() {
            return Some(why);
        }
        match (name, self.device.name()) {
            ("gpu-doorbell", Name::QtestFile(_)) => {
                Some("the registers of QEMU's controller are behind a socket".to_owned())
            }
            ("gpu-queues" | "gpu-direct", name) if !matches!(name, Name::Controller(_)) => {
                Some("a software device reaches host memory only".to_owned())
            }
            // Its doorbells are words in memory, which kernels write themselves.
            _ => None,
        }
    }

    fn on_path(&mut self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        let Some(path) = PATHS.iter().find(|path| path.step == step.name) else {
            return Outcome::failed("there is no such path");
        };
        let depth = if step.name == "gpu-queues" { ["1", "1"] } else { [DEPTH, LARGE_DEPTH] };
        let outcome = self.verified(step, path, depth, runner);
        if matches!(outcome, Outcome::Passed(_)) {
            self.path = path;
        }
        outcome
    }

    fn graph(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        // A graph of half the bytes: about 128 for each vertex.
        let scale = (self.args.size.0 / 2 / 128).max(1).ilog2().clamp(8, 14);
        let call = Call::new("graph bfs", &["graph", "bfs", &format!("kron:{scale}"), "--json", "-"], LIMIT)
            .with(self.options(self.path))
            .with(self.on_device(step));
        let done = runner.run(&call);
        if !done.is_success() {
            return Outcome::failed(done.error());
        }
        Outcome::Passed("verified (GAP rules)".to_owned())
    }

    fn killed(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        if self.device.is_memory() {
            return Outcome::lacking("the memory of the device ends with its process");
        }
        let options = ["--rw", "randwrite", "--bs", "4k", "--iodepth", DEPTH];
        let mut call = self.load("load that is killed", step, self.path, &options, Duration::from_secs(120));
        call.kill = Some(Kill { after_line: "# rw ", later: self.args.run.runtime.min(LOADED), rank: None });
        let done = runner.run(&call);
        if done.end != End::Killed {
            return Outcome::failed(format!("it ended before it was killed: {}", done.error()));
        }
        let options = ["--rw", "randrw", "--bs", "4k", "--iodepth", DEPTH, "--verify", "--json", "-"];
        let again = self.load("the next process", step, self.path, &options, self.args.run.runtime);
        match self.checked(runner.run(&again)) {
            Ok(done) => Outcome::Passed(figures("the next process", &done)),
            Err(failed) => failed,
        }
    }

    fn reset(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        let call = Call::new("reset under load", &["accept", "probe", "reset", "--json", "-"], LIMIT)
            .with(["--size".to_owned(), self.size()])
            .with(self.options(self.path))
            .with(self.on_device(step));
        let done = runner.run(&call);
        if !done.is_success() {
            return Outcome::failed(done.error());
        }
        Outcome::Passed(done.get("/summary").as_str().unwrap_or_default().to_owned())
    }

    fn soak(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        let options = ["--rw", "randrw", "--bs", "4k", "--iodepth", DEPTH, "--verify", "--json", "-"];
        let call = self.load("soak", step, self.path, &options, self.args.run.soak);
        match self.checked(runner.run(&call)) {
            Ok(done) => Outcome::Passed(figures("soak", &done)),
            Err(failed) => failed,
        }
    }
}

fn size_of(namespace: &Value) -> String {
    namespace["size_bytes"].as_u64().map_or_else(|| "unknown size".to_owned(), |b| Bytes(b).to_string())
}

/// Returns a failure with the remedies that the error carries.
fn failed_with(e: &(dyn std::error::Error + 'static)) -> Outcome {
    Outcome::Failed { error: e.to_string(), remedy: remedy::of(e) }
}

/// Returns the figures of a load in a few words.
fn figures(name: &str, done: &Done) -> String {
    let iops = |direction: &str| done.get(&format!("/results/0/runs/0/{direction}/iops")).as_f64().unwrap_or(0.0);
    format!("{name} {} IOPS", warpbell::units::si(iops("read") + iops("write")))
}

impl Procedure for Storage {
    fn steps(&self) -> &'static [Step] {
        STEPS
    }

    fn carry_out(&mut self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        match step.name {
            "doctor" => return self.doctor(runner),
            "bind-plan" => return self.bind_plan(),
            "bind" => return self.bind(),
            "identify" | "format" => return self.identify(step, runner),
            "contents" => return self.contents(step, runner),
            "read" => return self.read(step, runner),
            _ => {}
        }
        let place = PATHS.iter().find(|path| path.step == step.name).map_or(Place::Any, |path| path.place);
        if let Some(left_out) = engine::left_out(&self.args.run.engine, place) {
            return left_out;
        }
        // A machine without a GPU lacks its steps in any case.
        let lacks = Some(step.name).filter(|_| place == Place::Gpu).and_then(|name| self.lacks(name));
        if let (None, Some(why)) = (&lacks, &self.kept) {
            return Outcome::Skipped(SkipReason::Overwrite, why.clone());
        }
        if let Some(why) = lacks {
            return Outcome::lacking(why);
        }
        match step.name {
            "graph" => self.graph(step, runner),
            "killed" => self.killed(step, runner),
            "reset" => self.reset(step, runner),
            "soak" => self.soak(step, runner),
            _ => self.on_path(step, runner),
        }
    }

    fn restore(&mut self) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        let mut failed = None;
        if let Some(file) = self.created.take() {
            let path = file.display();
            match std::fs::remove_file(&file) {
                Ok(()) => all.push(format!("{path} removed: the run had created it")),
                Err(e) => failed = Some(format!("{path}: the run has created it, and cannot remove it: {e}")),
            }
        }
        all.extend(self.binding.as_mut().map_or(Ok(None), Binding::restore)?);
        failed.map_or(Ok(()), Err)?;
        Ok(all)
    }

    fn subject(&self) -> Value {
        json!({ "device": self.device.to_string(), "controller": self.identify, "machine": self.machine.versions() })
    }
}
