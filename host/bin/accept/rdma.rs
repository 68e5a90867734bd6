//! The acceptance run of an RDMA device.

use super::RdmaArgs;
use super::engine::{self, Place};
use super::machine::Machine;
use super::probe::BEGUN;
use super::runner::{Call, Done, Kill, Runner};
use super::step::{Outcome, Procedure, Step};
use crate::output::Failure;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::time::Duration;

/// Steps, from the safest path to the fastest. Each changes one thing.
pub const STEPS: &[Step] = &[
    Step {
        name: "doctor",
        proves: "a device opens, registers memory, and brings a queue pair to ready to send in loopback",
        remedy: "apply the fixes that `warpbell doctor` prints (docs/doctor.md#nic)",
    },
    Step {
        name: "soft",
        proves: "kernels, worlds and verification work without hardware: the software NIC (only --device soft)",
        remedy: "report it: no hardware is involved",
    },
    Step {
        name: "verbs",
        proves: "the NIC and the registration of memory: a CPU thread posts by verbs calls, kernels run on CPU threads",
        remedy: "compare with perftest: ib_write_bw -d DEVICE on both sides; see dmesg",
    },
    Step {
        name: "mlx5-host",
        proves: "queues that firmware commands create, in host memory; a CPU thread writes the doorbells",
        remedy: "use --transport verbs; report the refused command and its syndrome from the report",
    },
    Step {
        name: "mlx5-doorbell",
        proves: "the GPU writes the doorbells itself (the UAR); nothing else changes",
        remedy: "set NVreg_RegistryDwords=\"PeerMappingOverride=1;\" and reboot (docs/doctor.md#nic-doorbell); until then WARPBELL_RDMA_DOORBELL=cpu",
    },
    Step {
        name: "mlx5-queues",
        proves: "queues and data in GPU memory (umem by dma-buf or nvidia_peermem)",
        remedy: "Linux 6.1, rdma-core 44 and the open GPU driver have them (docs/doctor.md#nic-gpu-queues); until then WARPBELL_RDMA_QUEUES=host",
    },
    Step {
        name: "ranks",
        proves: "two processes of this host write, read and add to each other's memory over the NIC",
        remedy: "if one process works and two do not, look at limits (ulimit -l, ulimit -n) and at the rights of both",
    },
    Step {
        name: "hosts",
        proves: "the same between two hosts (needs --peer)",
        remedy: "`warpbell doctor` on both hosts: mtu, gid and traffic class must agree; then ping and ib_write_bw between them",
    },
    Step {
        name: "gpu-heap",
        proves: "puts, gets, atomics, signals and collectives of two PEs with heaps in GPU memory",
        remedy: "use WARPBELL_HEAP=host; see docs/doctor.md#host-peermem",
    },
    Step {
        name: "host-heap",
        proves: "the same with heaps in host memory",
        remedy: "report it with the path that passed before: completions may overtake data",
    },
    Step {
        name: "bad-key",
        proves: "a wrong remote key is an error completion, both PEs notice it, and the world recovers",
        remedy: "report it: an error that goes unnoticed leaves waits to their deadline",
    },
    Step {
        name: "killed-peer",
        proves: "a PE that is killed under load is named by the other one, which does not hang",
        remedy: "report it with dmesg of both hosts",
    },
    Step {
        name: "soak",
        proves: "the fastest path that passed stays right for the time of --soak",
        remedy: "look at the port's counters (perfquery, ethtool -S), then repeat on the path before it",
    },
];

/// Steps of the peer of another host's run.
const PEER_STEPS: &[Step] = &[STEPS[0], STEPS[7]];

const LIMIT: Duration = Duration::from_secs(300);
/// Time that the peer waits for the other host to come to step `hosts`.
const RENDEZVOUS_LIMIT: Duration = Duration::from_secs(900);
/// Queue pairs: more than the 16 that share a page of doorbells.
const QUEUE_PAIRS: &str = "17";
/// Messages of each size.
const MESSAGES: &str = "10";

/// Threads of a PE over the software NIC, which posts one copy to the GPU at a time: operations of a full grid would wait beyond the deadline.
const FEW_THREADS: [&str; 4] = ["--ctas", "4", "--threads-per-cta", "64"];

/// Way to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Path {
    step: &'static str,
    transport: &'static str,
    place: Place,
    queues: Option<&'static str>,
    doorbell: Option<&'static str>,
}

const PATHS: [Path; 5] = [
    Path { step: "soft", transport: "soft", place: Place::Any, queues: None, doorbell: None },
    Path { step: "verbs", transport: "verbs", place: Place::Cpu, queues: None, doorbell: None },
    Path { step: "mlx5-host", transport: "mlx5", place: Place::Any, queues: Some("host"), doorbell: Some("cpu") },
    Path { step: "mlx5-doorbell", transport: "mlx5", place: Place::Gpu, queues: Some("host"), doorbell: Some("gpu") },
    Path { step: "mlx5-queues", transport: "mlx5", place: Place::Gpu, queues: Some("gpu"), doorbell: Some("gpu") },
];

/// The acceptance run of one RDMA device.
pub struct Network {
    args: RdmaArgs,
    /// Options of the software NIC, if that is the device.
    soft: Option<String>,
    machine: Machine,
    path: Path,
    fault: Option<(String, String)>,
}

impl Network {
    /// Prepares a run. Opens nothing.
    ///
    /// # Errors
    /// [`Failure::Usage`] if two hosts are to meet without a secret, or the largest message is too small.
    pub fn new(args: &RdmaArgs) -> Result<Self, Failure> {
        let has_secret = ["WARPBELL_SECRET", "WARPBELL_SECRET_FILE"].iter().any(|v| std::env::var_os(v).is_some());
        if (args.peer.is_some() || args.serve) && !has_secret {
            return Err(Failure::Usage(
                "the two hosts authenticate each other: set WARPBELL_SECRET to the same value on both, as in WARPBELL_SECRET=$(openssl rand -hex 32)"
                    .to_owned(),
            ));
        }
        if !(2..=1 << 30).contains(&args.max_size.0) {
            return Err(Failure::Usage("--max-size: write a size from 2 to 1G".to_owned()));
        }
        let soft = args.device.as_deref().and_then(|d| match d.split_once(':') {
            Some(("soft", options)) => Some(options.to_owned()),
            None if d == "soft" => Some(String::new()),
            _ => None,
        });
        let fault = args.run.fault.as_ref().map(|f| {
            let (step, options) = f.split_once('=').unwrap_or((f, ""));
            (step.to_owned(), options.to_owned())
        });
        Ok(Self { args: args.clone(), soft, machine: Machine::default(), path: PATHS[0], fault })
    }

    /// Returns the environment variables that choose the path.
    fn variables(&self, step: &Step, path: &Path) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        let fault = self.fault.as_ref().filter(|(name, _)| name == step.name).map(|(_, options)| options.clone());
        if let Some(options) = &self.soft {
            let both = [Some(options.clone()).filter(|o| !o.is_empty()), fault].into_iter().flatten();
            let options = both.collect::<Vec<_>>().join(",");
            all.extend(Some(options).filter(|o| !o.is_empty()).map(|o| ("WARPBELL_SOFT_NIC", o)));
        } else if let Some(device) = &self.args.device {
            all.push(("WARPBELL_RDMA_DEVICE", device.clone()));
        }
        all.extend(path.queues.map(|q| ("WARPBELL_RDMA_QUEUES", q.to_owned())));
        all.extend(path.doorbell.map(|d| ("WARPBELL_RDMA_DOORBELL", d.to_owned())));
        all
    }

    fn sizes(&self) -> String {
        let sizes = (1..=30).map(|log| 1u64 << log).take_while(|s| *s <= self.args.max_size.0);
        sizes.map(|s| s.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Returns the loads that are compared on each path: name, test and options.
    fn loads(&self) -> [(&'static str, &'static str, Vec<String>); 4] {
        let words = |w: &[&str]| w.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        let sizes =
            ["-s".to_owned(), self.sizes(), "-n".to_owned(), MESSAGES.to_owned(), "-t".to_owned(), "4".to_owned()];
        [
            ("writes of all sizes", "write_bw", sizes.to_vec()),
            ("reads of all sizes", "read_bw", sizes.to_vec()),
            ("atomics", "atomic_bw", words(&["-n", "200", "-t", "16"])),
            ("17 queue pairs", "write_bw", words(&["-q", QUEUE_PAIRS, "-s", "4096", "-n", "32", "-t", "8"])),
        ]
    }

    fn bench(&self, step: &Step, path: &Path, name: &str, test: &str, options: &[String]) -> Call {
        Call::new(name, &["bench", "rdma", test], LIMIT)
            .with(options)
            .with(["--initiator", "kernel"])
            .with(self.options(path))
            .with(["--json", "-"])
            .set(&self.variables(step, path))
    }

    /// Makes two processes run a command: returns the command that starts them.
    fn in_two_ranks(call: Call, runner: &dyn Runner, options: &[&str]) -> Call {
        let mut words: Vec<OsString> = ["run", "-n", "2", "--no-prefix"].iter().map(OsString::from).collect();
        words.extend(options.iter().map(OsString::from));
        words.push("--".into());
        words.extend(runner.program());
        words.extend(call.arguments);
        Call { arguments: words, ..call }
    }

    /// Returns the reason why a path is not there.
    fn lacks(&self, path: &Path) -> Option<String> {
        let nics = self.machine.nics();
        let name = self.args.device.as_deref().map(|d| d.split(':').next().unwrap_or(d));
        let is_mlx5 = nics.iter().any(|(n, mlx5)| *mlx5 && name.is_none_or(|name| name == n));
        match (path.transport, &self.soft) {
            ("soft", None) => Some("the device is no software NIC".to_owned()),
            ("soft", Some(_)) => None,
            (_, Some(_)) => Some("the software NIC has no driver of the kernel".to_owned()),
            ("mlx5", None) if !is_mlx5 => Some("the device is no mlx5 device".to_owned()),
            _ if path.place == Place::Gpu => self.machine.no_gpu(),
            _ => None,
        }
    }

    fn on_path(&mut self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        let Some(path) = PATHS.iter().find(|p| p.step == step.name) else {
            return Outcome::failed("there is no such path");
        };
        if let Some(left_out) = engine::left_out(&self.args.run.engine, path.place) {
            return left_out;
        }
        if let Some(why) = self.lacks(path) {
            return Outcome::lacking(why);
        }
        let mut verified = 0;
        for (name, test, options) in self.loads() {
            match checked(runner.run(&self.bench(step, path, name, test, &options))) {
                Ok(messages) => verified += messages,
                Err(failed) => return failed,
            }
        }
        let idle = self.probe(step, path, "idle", "idle");
        let rest = format!("{}ms", self.args.idle.as_millis());
        let done = runner.run(&idle.with(["--for", &rest]));
        if !done.is_success() {
            return Outcome::failed(done.error());
        }
        self.path = *path;
        let idle = self.args.idle;
        Outcome::Passed(format!(
            "{verified} messages verified, {QUEUE_PAIRS} queue pairs, {idle:?} idle without a fault"
        ))
    }

    fn probe(&self, step: &Step, path: &Path, name: &str, probe: &str) -> Call {
        Call::new(name, &["accept", "probe", probe, "--pes", "2", "--json", "-"], LIMIT)
            .with(self.options(path))
            .set(&self.variables(step, path))
    }

    /// Returns the options of a path: its transport, then its engine.
    fn options(&self, path: &Path) -> Vec<String> {
        let transport = ["--transport", path.transport].map(str::to_owned);
        transport.into_iter().chain(engine::options(&self.args.run.engine, path.place)).collect()
    }

    fn doctor(&mut self, runner: &mut dyn Runner) -> Outcome {
        let device = self.soft.is_none().then_some("rdma");
        let require: Vec<&str> = device.into_iter().chain(engine::required(&self.args.run.engine)).collect();
        let done = self.machine.examine(runner, &require, self.args.run.root.as_ref());
        if done.is_success() { Outcome::Passed(self.machine.counts()) } else { Outcome::failed(done.error()) }
    }

    fn ranks(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        let mut verified = 0;
        for (name, test, options) in self.loads() {
            let call = Self::in_two_ranks(self.bench(step, &self.path, name, test, &options), runner, &[]);
            match checked(runner.run(&call)) {
                Ok(messages) => verified += messages,
                Err(failed) => return failed,
            }
        }
        Outcome::Passed(format!("{verified} messages verified"))
    }

    fn hosts(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        if self.args.peer.is_none() && !self.args.serve {
            return Outcome::lacking("no --peer was named");
        }
        let mut verified = 0;
        for (name, test, options) in self.loads() {
            let mut path = self.path;
            if self.args.serve && self.soft.is_none() {
                // Both sides then take what the other one has.
                path = Path { transport: "auto", place: Place::Any, queues: None, doorbell: None, ..path };
            }
            let mut call = self.bench(step, &path, name, test, &options).with(["-p", &self.args.port.to_string()]);
            call = match &self.args.peer {
                Some(host) => call.with([host]),
                None => Call { limit: RENDEZVOUS_LIMIT, ..call.with(["--server"]) },
            };
            let done = runner.run(&call);
            // Only the client's table has the figures.
            let judged = if self.args.serve && done.is_success() { Ok(0) } else { checked(done) };
            match judged {
                Ok(messages) => verified += messages,
                Err(failed) => return failed,
            }
        }
        Outcome::Passed(match self.args.serve {
            true => "the other host's loads were served".to_owned(),
            false => format!("{verified} messages verified"),
        })
    }

    fn heap(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        let on_gpu = step.name == "gpu-heap";
        if on_gpu && let Some(left_out) = engine::left_out(&self.args.run.engine, Place::Gpu) {
            return left_out;
        }
        if on_gpu && let Some(why) = self.machine.no_gpu() {
            return Outcome::lacking(why);
        }
        let mut path = self.path;
        if !on_gpu {
            // Queues in GPU memory need all data there.
            path.queues = path.queues.map(|_| "host");
        }
        path.place = if on_gpu { Place::Gpu } else { path.place };
        let largest = self.args.max_size.0.min(64 << 10).to_string();
        let call = Call::new(
            "puts, gets, atomics, collectives",
            &["bench", "shmem", "all", "--runs", "1", "-e", &largest],
            LIMIT,
        )
        .with(["-n", "20"])
        .with(self.options(&path))
        .with(["--json", "-"])
        .set(&self.variables(step, &path))
        .set(&[("WARPBELL_HEAP", if on_gpu { "device" } else { "host" }.to_owned())]);
        // A GPU turns to one process at a time, and the software NIC writes to its memory only then. So both PEs are in one process.
        let call = match self.soft {
            Some(_) if on_gpu => call.with(["--pes", "2"]).with(FEW_THREADS),
            Some(_) => call.with(["--pes", "2"]),
            None => Self::in_two_ranks(call, runner, &[]),
        };
        let done = runner.run(&call);
        if !done.is_success() {
            return Outcome::failed(done.error());
        }
        let rows = done.get("/results/rows").as_array().map_or(0, Vec::len);
        Outcome::Passed(format!("{rows} measurements, all data verified"))
    }

    fn bad_key(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        let done = runner.run(&self.probe(step, &self.path, "a wrong key", "bad-key"));
        if !done.is_success() {
            return Outcome::failed(done.error());
        }
        Outcome::Passed(done.get("/refusal").as_str().unwrap_or_default().to_owned())
    }

    fn killed_peer(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        const GONE: &str = "rank 1 is gone";
        let call = Call::new("load of two ranks, one of which is killed", &["accept", "probe", "exchange"], LIMIT)
            .with(["--for", "10m"])
            .with(self.options(&self.path))
            .set(&self.variables(step, &self.path));
        let mut call = Self::in_two_ranks(call, runner, &["--notice", "60s", "--grace", "60s"]);
        call.kill = Some(Kill { after_line: BEGUN, later: Duration::from_millis(300), rank: Some(1) });
        let done = runner.run(&call);
        match done.stderr.lines().find(|l| l.contains(GONE)) {
            Some(line) => Outcome::Passed(line.trim_start_matches("error: ").to_owned()),
            None => Outcome::failed(format!("the other rank did not report that `{GONE}`: {}", done.error())),
        }
    }

    fn soak(&self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        let half = self.args.run.soak / 2;
        let time = format!("{}ms", half.as_millis().max(1));
        let options = ["-D", &time, "-s", "65536", "-b"].map(str::to_owned);
        let load = self.bench(step, &self.path, "bandwidth", "write_bw", &options);
        let limit = LIMIT + half;
        if let Err(failed) = checked(runner.run(&Call { limit, ..load })) {
            return failed;
        }
        let calls = self.probe(step, &self.path, "calls of all kinds", "exchange").with(["--for", &time]);
        let done = runner.run(&Call { limit, ..calls });
        if !done.is_success() {
            return Outcome::failed(done.error());
        }
        Outcome::Passed(format!("full bandwidth, then {} rounds of calls, all data verified", done.get("/rounds")))
    }
}

/// Returns the number of messages that a load compared, if it succeeded and all were right.
fn checked(done: Done) -> Result<u64, Outcome> {
    if !done.is_success() {
        return Err(Outcome::failed(done.error()));
    }
    let rows = done.get("/results/0/rows").as_array().cloned().unwrap_or_default();
    let sum = |key: &str| rows.iter().filter_map(|r| r[key].as_u64()).sum::<u64>();
    match (sum("verified"), sum("wrong")) {
        (0, _) => Err(Outcome::failed(format!("{}: it verified no message", done.name))),
        (verified, 0) => Ok(verified),
        (verified, wrong) => {
            Err(Outcome::failed(format!("{}: {wrong} of {verified} messages arrived with wrong data", done.name)))
        }
    }
}

impl Procedure for Network {
    fn steps(&self) -> &'static [Step] {
        if self.args.serve { PEER_STEPS } else { STEPS }
    }

    fn carry_out(&mut self, step: &Step, runner: &mut dyn Runner) -> Outcome {
        match step.name {
            "doctor" => self.doctor(runner),
            "ranks" => self.ranks(step, runner),
            "hosts" => self.hosts(step, runner),
            "gpu-heap" | "host-heap" => self.heap(step, runner),
            "bad-key" => self.bad_key(step, runner),
            "killed-peer" => self.killed_peer(step, runner),
            "soak" => self.soak(step, runner),
            _ => self.on_path(step, runner),
        }
    }

    fn restore(&mut self) -> Result<Vec<String>, String> {
        // Registrations and queue pairs end with the processes that made them.
        Ok(Vec::new())
    }

    fn subject(&self) -> Value {
        json!({ "device": self.args.device, "peer": self.args.peer, "machine": self.machine.versions() })
    }
}
