//! Which launcher started this process, and as which rank: read from the variables that launchers set.

use super::{BootstrapError, slurm};
use crate::engine::abi::MAX_PES;
use crate::units::parse_duration;
use std::collections::BTreeMap;
use std::time::Duration;

/// The variables of a process. A value, so that every launcher can be tried anywhere.
pub type Environment = BTreeMap<String, String>;

/// The port of the store where a launcher names a host and nothing to make a port of.
pub const DEFAULT_PORT: u16 = 20_711;

/// Ports that Slurm jobs get by their number: below those that systems hand out by themselves.
const SLURM_PORTS: std::ops::Range<u32> = 20_000..32_768;

/// This process's variables that are text.
pub(super) fn of_this_process() -> Environment {
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect()
}

/// What a launcher says of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launched {
    /// This process's number, from 0.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// Its number among those of its host, where the launcher says so.
    pub local_rank: Option<usize>,
    /// How many there are on its host, where the launcher says so.
    pub local_size: Option<usize>,
    /// Where ranks meet, as `host:port`.
    pub store: Option<String>,
    /// Whether the launcher itself runs the store there; rank 0 does if not.
    pub served: bool,
    /// Which launcher.
    pub via: &'static str,
}

/// Where a launcher's ranks can meet.
#[derive(Clone, Copy, Debug)]
enum Meet {
    /// It does not say.
    Nowhere,
    /// Beside torch's own store.
    Torch,
    /// The first host of a step.
    Slurm,
    /// A host in a variable.
    Host(&'static str),
}

/// A launcher's variables.
struct Row {
    via: &'static str,
    rank: &'static str,
    /// The first of these that is set.
    size: &'static [&'static str],
    local_rank: Option<&'static str>,
    local_size: Option<&'static str>,
    meet: Meet,
}

const RANK: &str = "WARPBELL_RANK";
const SIZE: &str = "WARPBELL_SIZE";
const STORE: &str = "WARPBELL_STORE";
/// Which of our own launchers it was; it runs the store.
const LAUNCHER: &str = "WARPBELL_LAUNCHER";
const INDEXED_JOB: &str = "Kubernetes Indexed Job";

/// Inner launchers first: an `mpirun` inside a Slurm job sets both kinds of variables, and its own are the true ones.
const ROWS: [Row; 11] = [
    Row {
        via: "WARPBELL_RANK",
        rank: RANK,
        size: &[SIZE],
        local_rank: Some("WARPBELL_LOCAL_RANK"),
        local_size: Some("WARPBELL_LOCAL_SIZE"),
        meet: Meet::Nowhere,
    },
    Row {
        via: "torchrun",
        rank: "RANK",
        size: &["WORLD_SIZE"],
        local_rank: Some("LOCAL_RANK"),
        local_size: Some("LOCAL_WORLD_SIZE"),
        meet: Meet::Torch,
    },
    Row {
        via: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
        local_size: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
        meet: Meet::Nowhere,
    },
    Row {
        via: "MVAPICH2",
        rank: "MV2_COMM_WORLD_RANK",
        size: &["MV2_COMM_WORLD_SIZE"],
        local_rank: Some("MV2_COMM_WORLD_LOCAL_RANK"),
        local_size: Some("MV2_COMM_WORLD_LOCAL_SIZE"),
        meet: Meet::Nowhere,
    },
    Row {
        via: "PMI",
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local_rank: Some("MPI_LOCALRANKID"),
        local_size: Some("MPI_LOCALNRANKS"),
        meet: Meet::Nowhere,
    },
    Row { via: "PMIx", rank: "PMIX_RANK", size: &[], local_rank: None, local_size: None, meet: Meet::Nowhere },
    Row {
        via: "Slurm",
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        local_rank: Some("SLURM_LOCALID"),
        local_size: None,
        meet: Meet::Slurm,
    },
    Row {
        via: "Flux",
        rank: "FLUX_TASK_RANK",
        size: &["FLUX_JOB_SIZE"],
        local_rank: Some("FLUX_TASK_LOCAL_ID"),
        local_size: None,
        meet: Meet::Nowhere,
    },
    Row {
        via: "Cray PALS",
        rank: "PALS_RANKID",
        size: &[],
        local_rank: Some("PALS_LOCAL_RANKID"),
        local_size: None,
        meet: Meet::Nowhere,
    },
    Row {
        via: "LeaderWorkerSet",
        rank: "LWS_WORKER_INDEX",
        size: &["LWS_GROUP_SIZE"],
        local_rank: None,
        local_size: None,
        meet: Meet::Host("LWS_LEADER_ADDRESS"),
    },
    Row {
        via: INDEXED_JOB,
        rank: "JOB_COMPLETION_INDEX",
        size: &[],
        local_rank: None,
        local_size: None,
        meet: Meet::Nowhere,
    },
];

/// What one row finds: a launcher may leave out how many ranks there are.
struct Found {
    size: Option<(usize, &'static str)>,
    launched: Launched,
}

impl Launched {
    /// What the innermost launcher says; `None` without one. What it leaves out comes from an outer launcher that means the
    /// same ranks (`srun --mpi=pmix` sets PMIx's rank and Slurm's everything), or from `WARPBELL_SIZE` and `WARPBELL_STORE`.
    pub fn find(environment: &Environment) -> Result<Option<Self>, BootstrapError> {
        let store = get(environment, STORE).map(|s| address(STORE, s)).transpose()?;
        let told = get(environment, SIZE).map(|s| size(SIZE, s)).transpose()?;

        let mut rows = ROWS.iter().filter(|row| row.applies(environment));
        let Some(first) = rows.next() else {
            return match told {
                // A world of one, said aloud.
                None | Some(1) => Ok(None),
                Some(_) => Err(half("WARPBELL_RANK", SIZE, RANK, "set both for every rank, or neither")),
            };
        };
        let mut found = first.read(environment)?;
        // An outer launcher is asked only for what the inner one leaves out, so what is wrong with it may not matter.
        let outer: Vec<Found> =
            rows.filter_map(|r| r.read(environment).ok()).filter(|o| o.launched.rank == found.launched.rank).collect();

        if found.size.is_none() {
            found.size = outer.iter().find_map(|o| o.size);
        }
        match (told, found.size) {
            (Some(told), Some((size, variable))) if told != size => {
                let value = environment.get(SIZE).cloned().unwrap_or_default();
                let expected = format!("{} says {size} by {variable}", found.launched.via);
                return Err(BootstrapError::Variable { variable: SIZE.to_owned(), value, expected });
            }
            (Some(told), None) => found.size = Some((told, SIZE)),
            _ => {}
        }
        let mut launched = found.launched;
        let Some((size, variable)) = found.size else {
            let next = "set it to the number of ranks, the same for all of them";
            return Err(half(launched.via, first.rank, SIZE, next));
        };
        launched.size = size;
        launched.check(first, variable)?;

        if launched.store.is_none() {
            let same = outer.iter().find(|o| o.size.is_some_and(|(n, _)| n == size) && o.launched.store.is_some());
            launched.store = same.and_then(|o| o.launched.store.clone());
        }
        if let Some(store) = store {
            launched.store = Some(store);
        }
        Ok(Some(launched))
    }

    /// The store's address, or the error that asks for it.
    pub(super) fn meeting_point(&self) -> Result<&str, BootstrapError> {
        let hint = if self.via == INDEXED_JOB {
            " (the host is <job>-0.<service> where the pods have a headless service)"
        } else {
            ""
        };
        self.store.as_deref().ok_or(BootstrapError::NoStore { via: self.via, hint })
    }

    fn check(&self, row: &Row, size: &'static str) -> Result<(), BootstrapError> {
        let wrong = |variable: &str, value: usize, expected: String| {
            Err(BootstrapError::Variable { variable: variable.to_owned(), value: value.to_string(), expected })
        };
        if self.rank >= self.size {
            let expected = format!("{size} says {}, so ranks are 0 to {}", self.size, self.size - 1);
            return wrong(row.rank, self.rank, expected);
        }
        let locals = (row.local_rank, self.local_rank, row.local_size, self.local_size);
        if let (Some(variable), Some(rank), Some(of), Some(count)) = locals
            && rank >= count
        {
            return wrong(variable, rank, format!("{of} says {count}, so local ranks are 0 to {}", count - 1));
        }
        if let (Some(variable), Some(rank)) = (row.local_rank, self.local_rank)
            && rank >= self.size
        {
            return wrong(variable, rank, format!("{size} says that there are {} ranks in all", self.size));
        }
        Ok(())
    }
}

impl Row {
    /// Whether this launcher started the process, as far as its variables go.
    fn applies(&self, environment: &Environment) -> bool {
        let has = |name: &str| get(environment, name).is_some();
        let rank = has(self.rank);
        match self.via {
            // RANK alone is a name that anybody may use.
            "torchrun" => has("WORLD_SIZE") || rank && has("MASTER_ADDR"),
            // A job's batch script has the variables of its first task, though no `srun` started it.
            "Slurm" => rank && environment.keys().any(|k| k.starts_with("SLURM_STEP")),
            // Most of these jobs are independent programs.
            INDEXED_JOB => rank && has(SIZE),
            _ => rank,
        }
    }

    fn read(&self, environment: &Environment) -> Result<Found, BootstrapError> {
        let get = |name: &'static str| get(environment, name);
        let sized = self.size.iter().find_map(|name| Some((*name, get(name)?)));
        let Some(rank) = get(self.rank) else {
            let set = sized.map_or(self.via, |(name, _)| name);
            return Err(half(self.via, set, self.rank, "set both for every rank, or neither"));
        };
        if let (None, Some(missing)) = (sized, self.size.last()) {
            return Err(half(self.via, self.rank, missing, "set both for every rank, or neither"));
        }
        let local =
            |name: Option<&'static str>| name.and_then(|name| get(name).map(|value| number(name, value))).transpose();
        let served = self.rank == RANK && get(LAUNCHER).is_some();
        let mut local_size = local(self.local_size)?;
        if let Some(0) = local_size {
            let variable = self.local_size.unwrap_or_default().to_owned();
            let expected = "there is one rank at least".to_owned();
            return Err(BootstrapError::Variable { variable, value: "0".to_owned(), expected });
        }
        if let Meet::Slurm = self.meet {
            local_size = slurm_local_size(environment);
        }
        let size = sized.map(|(name, value)| Ok((size(name, value)?, name))).transpose()?;
        let launched = Launched {
            rank: number(self.rank, rank)?,
            size: size.map_or(0, |(n, _)| n),
            local_rank: local(self.local_rank)?,
            local_size,
            store: self.store(environment)?,
            served,
            via: if served { "warpbell run" } else { self.via },
        };
        Ok(Found { size, launched })
    }

    fn store(&self, environment: &Environment) -> Result<Option<String>, BootstrapError> {
        let get = |name| get(environment, name);
        let store = match self.meet {
            Meet::Nowhere => None,
            Meet::Torch => match (get("MASTER_ADDR"), get("MASTER_PORT")) {
                (Some(host), Some(value)) => {
                    // The port itself belongs to torch, whose store often listens there already.
                    let port = port("MASTER_PORT", value)?.checked_add(1).unwrap_or(DEFAULT_PORT);
                    Some(join(host, port))
                }
                (Some(_), None) => {
                    let next = "set it, or WARPBELL_STORE=host:port";
                    return Err(half(self.via, "MASTER_ADDR", "MASTER_PORT", next));
                }
                _ => None,
            },
            Meet::Slurm => {
                let lists = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
                let list = lists.into_iter().find_map(|name| Some((name, get(name)?)));
                let host = list.map(|(name, value)| {
                    slurm::first_host(value).map_err(|reason| BootstrapError::Variable {
                        variable: name.to_owned(),
                        value: value.to_owned(),
                        expected: format!("it is no list of hosts: {reason}"),
                    })
                });
                host.transpose()?.map(|host| join(&host, slurm_port(environment)))
            }
            Meet::Host(name) => get(name).map(|host| join(host, DEFAULT_PORT)),
        };
        Ok(store)
    }
}

/// The time that ranks have to come, from `WARPBELL_TIMEOUT`.
pub(super) fn timeout(environment: &Environment) -> Result<Option<Duration>, BootstrapError> {
    const TIMEOUT: &str = "WARPBELL_TIMEOUT";
    let Some(value) = get(environment, TIMEOUT) else { return Ok(None) };
    parse_duration(value).map(Some).map_err(|_| BootstrapError::Variable {
        variable: TIMEOUT.to_owned(),
        value: value.to_owned(),
        expected: "write a time as in 500ms, 90s or 5m".to_owned(),
    })
}

/// A variable that is set to something.
fn get<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
    environment.get(name).map(|v| v.trim()).filter(|v| !v.is_empty())
}

fn half(via: &'static str, set: &str, missing: &'static str, next: &'static str) -> BootstrapError {
    BootstrapError::HalfSet { via, set: set.to_owned(), missing, next }
}

fn number(variable: &str, value: &str) -> Result<usize, BootstrapError> {
    let digits = value.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| value.parse().ok()).flatten().ok_or_else(|| BootstrapError::Variable {
        variable: variable.to_owned(),
        value: value.to_owned(),
        expected: "write a number from 0".to_owned(),
    })
}

fn size(variable: &str, value: &str) -> Result<usize, BootstrapError> {
    match number(variable, value)? {
        n if (1..=MAX_PES).contains(&n) => Ok(n),
        _ => Err(BootstrapError::Variable {
            variable: variable.to_owned(),
            value: value.to_owned(),
            expected: format!("a world has 1 to {MAX_PES} ranks"),
        }),
    }
}

fn port(variable: &str, value: &str) -> Result<u16, BootstrapError> {
    value.parse().ok().filter(|p| *p > 0).ok_or_else(|| BootstrapError::Variable {
        variable: variable.to_owned(),
        value: value.to_owned(),
        expected: "write a port, 1 to 65535".to_owned(),
    })
}

/// Checks a `host:port`.
fn address(variable: &str, value: &str) -> Result<String, BootstrapError> {
    let wrong = || BootstrapError::Variable {
        variable: variable.to_owned(),
        value: value.to_owned(),
        expected: "write host:port, as in node1:20711 or [fd00::1]:20711".to_owned(),
    };
    let (host, number) = value.rsplit_once(':').ok_or_else(wrong)?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    // A colon in a host without brackets: the port was forgotten behind an IPv6 address.
    if host.is_empty() || bare.is_none() && host.contains([':', '[', ']']) || host.contains(char::is_whitespace) {
        return Err(wrong());
    }
    port(variable, number).map_err(|_| wrong())?;
    Ok(value.to_owned())
}

/// `host:port`, with brackets where the host is an IPv6 address.
fn join(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A port that steps of different jobs on one host do not share.
fn slurm_port(environment: &Environment) -> u16 {
    let id = |names: [&str; 2]| -> u32 {
        names.into_iter().find_map(|n| get(environment, n)?.parse::<u64>().ok()).unwrap_or(0) as u32
    };
    let (job, step) = (id(["SLURM_JOB_ID", "SLURM_JOBID"]), id(["SLURM_STEP_ID", "SLURM_STEPID"]));
    (SLURM_PORTS.start + job.wrapping_add(step) % (SLURM_PORTS.end - SLURM_PORTS.start)) as u16
}

fn slurm_local_size(environment: &Environment) -> Option<usize> {
    let tasks = get(environment, "SLURM_STEP_TASKS_PER_NODE").or_else(|| get(environment, "SLURM_TASKS_PER_NODE"))?;
    slurm::tasks_on(tasks, get(environment, "SLURM_NODEID")?.parse().ok()?).filter(|n| *n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn environment(text: &str) -> Environment {
        text.split_whitespace()
            .map(|pair| pair.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).unwrap())
            .collect()
    }

    fn find(text: &str) -> Option<Launched> {
        Launched::find(&environment(text)).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn launched(text: &str) -> Launched {
        find(text).unwrap_or_else(|| panic!("{text}: no launcher"))
    }

    fn error(text: &str) -> String {
        Launched::find(&environment(text)).expect_err(text).to_string()
    }

    /// Rank, size, local rank and local size, meeting point and launcher.
    #[track_caller]
    fn is(text: &str, ranks: [usize; 2], local: [Option<usize>; 2], store: Option<&str>, via: &str) {
        let l = launched(text);
        assert_eq!([l.rank, l.size], ranks, "{text}");
        assert_eq!([l.local_rank, l.local_size], local, "{text}");
        assert_eq!(l.store.as_deref(), store, "{text}");
        assert_eq!(l.via, via, "{text}");
    }

    #[test]
    fn no_launcher() {
        assert_eq!(find("HOME=/root PATH=/bin"), None);
        assert_eq!(find("WARPBELL_RANK="), None);
        assert_eq!(find("WARPBELL_SIZE=1"), None);
        // Names that others use too.
        assert_eq!(find("RANK=3"), None);
        assert_eq!(find("JOB_COMPLETION_INDEX=3"), None);
        assert_eq!(find("SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=7 SLURM_JOB_NODELIST=n[1-8]"), None);
    }

    #[test]
    fn ours() {
        let text = "WARPBELL_RANK=1 WARPBELL_SIZE=4 WARPBELL_LOCAL_RANK=1 WARPBELL_STORE=127.0.0.1:4000";
        is(text, [1, 4], [Some(1), None], Some("127.0.0.1:4000"), "WARPBELL_RANK");
        assert!(!launched(text).served);
        let run = format!("{text} WARPBELL_LOCAL_SIZE=4 WARPBELL_LAUNCHER=run");
        is(&run, [1, 4], [Some(1), Some(4)], Some("127.0.0.1:4000"), "warpbell run");
        assert!(launched(&run).served);
    }

    #[test]
    fn torchrun() {
        let text = "RANK=5 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 MASTER_ADDR=node7 MASTER_PORT=29500";
        is(text, [5, 16], [Some(1), Some(4)], Some("node7:29501"), "torchrun");
        let six = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=fd00::1 MASTER_PORT=65535";
        is(six, [0, 2], [None, None], Some("[fd00::1]:20711"), "torchrun");
        is("RANK=0 WORLD_SIZE=2", [0, 2], [None, None], None, "torchrun");
    }

    #[test]
    fn open_mpi() {
        let text = "OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 \
                    OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=2";
        is(text, [2, 4], [Some(0), Some(2)], None, "Open MPI");
        is(&format!("{text} WARPBELL_STORE=a:1"), [2, 4], [Some(0), Some(2)], Some("a:1"), "Open MPI");
    }

    #[test]
    fn hydra() {
        let text = "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
        is(text, [3, 4], [Some(1), Some(2)], None, "PMI");
    }

    #[test]
    fn mvapich2() {
        let text = "MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=4 MV2_COMM_WORLD_LOCAL_RANK=1 PMI_RANK=3 PMI_SIZE=4";
        is(text, [3, 4], [Some(1), None], None, "MVAPICH2");
    }

    #[test]
    fn pmix() {
        is("PMIX_RANK=3 WARPBELL_SIZE=4", [3, 4], [None, None], None, "PMIx");
        let e = error("PMIX_RANK=3");
        assert!(e.contains("PMIX_RANK is set") && e.contains("WARPBELL_SIZE is not"), "{e}");
    }

    const STEP: &str = "SLURM_PROCID=5 SLURM_NTASKS=11 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_TASKS_PER_NODE=4(x2),3 \
                        SLURM_JOB_ID=123456 SLURM_STEP_ID=2 SLURM_STEP_NODELIST=gpu[07-08,11] SLURM_JOB_NODELIST=gpu[01-20]";

    #[test]
    fn slurm() {
        let port = 20_000 + (123_456 + 2) % 12_768;
        is(STEP, [5, 11], [Some(1), Some(4)], Some(&format!("gpu07:{port}")), "Slurm");
        let smaller = format!("{STEP} SLURM_STEP_NUM_TASKS=6");
        is(&smaller, [5, 6], [Some(1), Some(4)], Some(&format!("gpu07:{port}")), "Slurm");
        let e = error(&STEP.replace("gpu[07-08,11]", "gpu[07-"));
        assert!(e.contains("SLURM_STEP_NODELIST is `gpu[07-`"), "{e}");
    }

    #[test]
    fn flux() {
        let text = "FLUX_TASK_RANK=1 FLUX_JOB_SIZE=2 FLUX_TASK_LOCAL_ID=0";
        is(text, [1, 2], [Some(0), None], None, "Flux");
    }

    #[test]
    fn cray_pals() {
        let text = "PALS_RANKID=1 PALS_LOCAL_RANKID=1 WARPBELL_SIZE=2 WARPBELL_STORE=x:9";
        is(text, [1, 2], [Some(1), None], Some("x:9"), "Cray PALS");
        assert!(error("PALS_RANKID=1").contains("WARPBELL_SIZE is not"));
    }

    #[test]
    fn leader_worker_set() {
        let text = "LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=3 LWS_LEADER_ADDRESS=w-0.w.default";
        is(text, [1, 3], [None, None], Some("w-0.w.default:20711"), "LeaderWorkerSet");
    }

    #[test]
    fn indexed_job() {
        let text = "JOB_COMPLETION_INDEX=2 WARPBELL_SIZE=4";
        is(text, [2, 4], [None, None], None, "Kubernetes Indexed Job");
        let e = launched(text).meeting_point().unwrap_err().to_string();
        assert!(e.contains("WARPBELL_STORE=host:port") && e.contains("<job>-0.<service>"), "{e}");
    }

    #[test]
    fn inner_launchers_come_first_and_outer_ones_fill_in() {
        // An mpirun inside a Slurm step: its own ranks, and no meeting point of a step with other ranks.
        let text = format!("{STEP} OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2");
        is(&text, [1, 2], [None, None], None, "Open MPI");
        // srun --mpi=pmix and --mpi=pmi2: the same ranks under two names.
        let port = 20_000 + (123_456 + 2) % 12_768;
        let store = format!("gpu07:{port}");
        is(&format!("{STEP} PMIX_RANK=5"), [5, 11], [None, None], Some(&store), "PMIx");
        is(&format!("{STEP} PMI_RANK=5 PMI_SIZE=11"), [5, 11], [None, None], Some(&store), "PMI");
        // torchrun on each pod of a set.
        let text = "RANK=3 WORLD_SIZE=8 MASTER_ADDR=w-0 MASTER_PORT=100 LWS_WORKER_INDEX=1 LWS_GROUP_SIZE=2";
        is(text, [3, 8], [None, None], Some("w-0:101"), "torchrun");
        // Ours over everything.
        let text = format!("{STEP} RANK=0 WORLD_SIZE=9 WARPBELL_RANK=1 WARPBELL_SIZE=2 WARPBELL_STORE=h:1");
        is(&text, [1, 2], [None, None], Some("h:1"), "WARPBELL_RANK");
    }

    #[test]
    fn what_contradicts_itself_names_the_variable_and_its_value() {
        for (text, words) in [
            ("WARPBELL_RANK=1", &["WARPBELL_RANK is set", "WARPBELL_SIZE is not"][..]),
            ("WARPBELL_SIZE=2", &["WARPBELL_SIZE is set", "WARPBELL_RANK is not"]),
            ("WORLD_SIZE=2 MASTER_ADDR=x", &["torchrun", "WORLD_SIZE is set", "RANK is not"]),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=x", &["MASTER_ADDR is set", "MASTER_PORT is not"]),
            ("RANK=0 WORLD_SIZE=2 MASTER_ADDR=x MASTER_PORT=http", &["MASTER_PORT is `http`"]),
            ("OMPI_COMM_WORLD_RANK=0", &["Open MPI", "OMPI_COMM_WORLD_SIZE is not"]),
            ("PMI_RANK=1", &["PMI_SIZE is not"]),
            ("WARPBELL_RANK=4 WARPBELL_SIZE=4", &["WARPBELL_RANK is `4`", "WARPBELL_SIZE says 4", "0 to 3"]),
            ("WARPBELL_RANK=one WARPBELL_SIZE=4", &["WARPBELL_RANK is `one`", "number"]),
            ("WARPBELL_RANK=-1 WARPBELL_SIZE=4", &["WARPBELL_RANK is `-1`"]),
            ("WARPBELL_RANK=+1 WARPBELL_SIZE=4", &["WARPBELL_RANK is `+1`"]),
            ("WARPBELL_RANK=0 WARPBELL_SIZE=0", &["WARPBELL_SIZE is `0`", "1 to 1024"]),
            ("WARPBELL_RANK=0 WARPBELL_SIZE=99999", &["WARPBELL_SIZE is `99999`"]),
            ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_LOCAL_RANK=7", &["WARPBELL_LOCAL_RANK is `7`"]),
            (
                "WARPBELL_RANK=3 WARPBELL_SIZE=4 WARPBELL_LOCAL_RANK=2 WARPBELL_LOCAL_SIZE=2",
                &["WARPBELL_LOCAL_RANK is `2`", "WARPBELL_LOCAL_SIZE says 2"],
            ),
            ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_LOCAL_SIZE=0", &["WARPBELL_LOCAL_SIZE is `0`"]),
            ("RANK=0 WORLD_SIZE=4 WARPBELL_SIZE=3", &["WARPBELL_SIZE is `3`", "torchrun says 4 by WORLD_SIZE"]),
            ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_STORE=host", &["WARPBELL_STORE is `host`", "host:port"]),
            ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_STORE=:80", &["WARPBELL_STORE is `:80`"]),
            ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_STORE=fd00::1", &["WARPBELL_STORE is `fd00::1`"]),
            ("WARPBELL_RANK=0 WARPBELL_SIZE=2 WARPBELL_STORE=h:70000", &["WARPBELL_STORE is `h:70000`"]),
        ] {
            let e = error(text);
            for word in words {
                assert!(e.contains(word), "{text}: no `{word}` in: {e}");
            }
        }
    }

    #[test]
    fn the_time_to_come_is_a_time() {
        assert_eq!(timeout(&environment("")).unwrap(), None);
        assert_eq!(timeout(&environment("WARPBELL_TIMEOUT=90s")).unwrap(), Some(Duration::from_secs(90)));
        let e = timeout(&environment("WARPBELL_TIMEOUT=soon")).unwrap_err().to_string();
        assert!(e.contains("WARPBELL_TIMEOUT is `soon`"), "{e}");
    }

    fn variable() -> impl Strategy<Value = (String, String)> {
        let mut names: Vec<&str> = ROWS
            .iter()
            .flat_map(|r| r.size.iter().copied().chain([r.rank]).chain(r.local_rank).chain(r.local_size))
            .collect();
        names.extend([STORE, LAUNCHER, "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_NODELIST", "SLURM_NODEID"]);
        names.extend(["SLURM_TASKS_PER_NODE", "SLURM_JOB_ID", "LWS_LEADER_ADDRESS"]);
        let values = prop_oneof!["[0-9]{1,4}", "[a-z\\[\\]:,()0-9-]{0,12}", ".{0,6}"];
        (prop::sample::select(names).prop_map(str::to_owned), values)
    }

    proptest! {
        #[test]
        fn any_variables_give_a_rank_of_a_world_or_an_error(
            pairs in prop::collection::vec(variable(), 0..8)
        ) {
            let environment: Environment = pairs.into_iter().collect();
            match Launched::find(&environment) {
                Ok(Some(l)) => {
                    prop_assert!(l.rank < l.size && l.size <= MAX_PES);
                    prop_assert!(l.local_size.is_none_or(|n| n > 0));
                }
                Ok(None) => {}
                Err(e) => prop_assert!(!e.to_string().is_empty()),
            }
        }
    }
}
