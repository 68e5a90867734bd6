//! The known launchers: the variables that each sets, their meaning, and the place where ranks can meet.

use super::values::{address_of, get, half, number, port, size};
use super::{Environment, Launched};
use crate::shmem::bootstrap::{BootstrapError, slurm};

/// The store's port if a launcher names a host, but nothing from which to derive a port.
pub const DEFAULT_PORT: u16 = 20_711;

/// Ports for Slurm jobs, derived from the job's number. They are below the ephemeral ports of common systems.
const SLURM_PORTS: std::ops::Range<u32> = 20_000..32_768;

pub(super) const RANK: &str = "WARPBELL_RANK";
pub(super) const SIZE: &str = "WARPBELL_SIZE";
pub(super) const STORE: &str = "WARPBELL_STORE";
/// Set by warpbell's own launcher to its name. That launcher runs the store.
pub(super) const LAUNCHER: &str = "WARPBELL_LAUNCHER";
/// MPICH's launcher when it gives ranks a port instead of their numbers.
const PMI_PORT_SERVER: &str = "PMI at a port";
pub(super) const INDEXED_JOB: &str = "Kubernetes Indexed Job";

/// The place where a launcher's ranks can meet.
#[derive(Clone, Copy, Debug)]
enum Rendezvous {
    /// The launcher gives none.
    Unknown,
    /// The port after that of torch's own store.
    Torch,
    /// The first host of a job step.
    Slurm,
    /// The host in a variable.
    Host(&'static str),
}

/// The variables of a launcher.
pub(super) struct Row {
    via: &'static str,
    pub(super) rank: &'static str,
    /// Variables for the number of ranks; the first one that is set counts.
    pub(super) size: &'static [&'static str],
    pub(super) local_rank: Option<&'static str>,
    pub(super) local_size: Option<&'static str>,
    rendezvous: Rendezvous,
}

/// The launchers, inner ones first: an `mpirun` inside a Slurm job sets both kinds of variables, and its own are right.
pub(super) const ROWS: [Row; 12] = [
    Row {
        via: "WARPBELL_RANK",
        rank: RANK,
        size: &[SIZE],
        local_rank: Some("WARPBELL_LOCAL_RANK"),
        local_size: Some("WARPBELL_LOCAL_SIZE"),
        rendezvous: Rendezvous::Unknown,
    },
    Row {
        via: "torchrun",
        rank: "RANK",
        size: &["WORLD_SIZE"],
        local_rank: Some("LOCAL_RANK"),
        local_size: Some("LOCAL_WORLD_SIZE"),
        rendezvous: Rendezvous::Torch,
    },
    Row {
        via: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
        local_size: Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
        rendezvous: Rendezvous::Unknown,
    },
    Row {
        via: "MVAPICH2",
        rank: "MV2_COMM_WORLD_RANK",
        size: &["MV2_COMM_WORLD_SIZE"],
        local_rank: Some("MV2_COMM_WORLD_LOCAL_RANK"),
        local_size: Some("MV2_COMM_WORLD_LOCAL_SIZE"),
        rendezvous: Rendezvous::Unknown,
    },
    Row {
        via: "PMI",
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local_rank: Some("MPI_LOCALRANKID"),
        local_size: Some("MPI_LOCALNRANKS"),
        rendezvous: Rendezvous::Unknown,
    },
    // Hydra with `-pmi-port`: the rank is asked for at the port, in PMI's protocol.
    Row {
        via: PMI_PORT_SERVER,
        rank: "PMI_RANK",
        size: &["PMI_ID"],
        local_rank: None,
        local_size: None,
        rendezvous: Rendezvous::Unknown,
    },
    Row {
        via: "PMIx",
        rank: "PMIX_RANK",
        size: &[],
        local_rank: None,
        local_size: None,
        rendezvous: Rendezvous::Unknown,
    },
    Row {
        via: "Slurm",
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"],
        local_rank: Some("SLURM_LOCALID"),
        local_size: None,
        rendezvous: Rendezvous::Slurm,
    },
    Row {
        via: "Flux",
        rank: "FLUX_TASK_RANK",
        size: &["FLUX_JOB_SIZE"],
        local_rank: Some("FLUX_TASK_LOCAL_ID"),
        local_size: None,
        rendezvous: Rendezvous::Unknown,
    },
    Row {
        via: "Cray PALS",
        rank: "PALS_RANKID",
        size: &[],
        local_rank: Some("PALS_LOCAL_RANKID"),
        local_size: None,
        rendezvous: Rendezvous::Unknown,
    },
    Row {
        via: "LeaderWorkerSet",
        rank: "LWS_WORKER_INDEX",
        size: &["LWS_GROUP_SIZE"],
        local_rank: None,
        local_size: None,
        rendezvous: Rendezvous::Host("LWS_LEADER_ADDRESS"),
    },
    Row {
        via: INDEXED_JOB,
        rank: "JOB_COMPLETION_INDEX",
        size: &[],
        local_rank: None,
        local_size: None,
        rendezvous: Rendezvous::Unknown,
    },
];

/// The facts from one row. A launcher may not give the number of ranks.
pub(super) struct Found {
    pub(super) size: Option<(usize, &'static str)>,
    pub(super) launched: Launched,
}

impl Row {
    /// Returns true if this launcher started the process, according to its variables.
    pub(super) fn applies(&self, environment: &Environment) -> bool {
        let has = |name: &str| get(environment, name).is_some();
        let rank = has(self.rank);
        match self.via {
            // RANK alone is a name that any program may use.
            "torchrun" => has("WORLD_SIZE") || rank && has("MASTER_ADDR"),
            PMI_PORT_SERVER => has("PMI_PORT") && !rank,
            // A job's batch script has the variables of its first task, although no `srun` started it.
            "Slurm" => rank && environment.keys().any(|k| k.starts_with("SLURM_STEP")),
            // Most Indexed Jobs are independent programs.
            INDEXED_JOB => rank && has(SIZE),
            _ => rank,
        }
    }

    pub(super) fn read(&self, environment: &Environment) -> Result<Found, BootstrapError> {
        let get = |name: &'static str| get(environment, name);
        if self.via == PMI_PORT_SERVER {
            let next =
                "start the ranks without a PMI port, or set WARPBELL_RANK (to PMI_ID) and WARPBELL_SIZE for every rank";
            return Err(half("MPICH's launcher", "PMI_PORT", self.rank, next));
        }
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
        let has_server = self.rank == RANK && get(LAUNCHER).is_some();
        let mut local_size = local(self.local_size)?;
        if let Some(0) = local_size {
            let variable = self.local_size.unwrap_or_default().to_owned();
            let expected = "write a number of at least 1".to_owned();
            return Err(BootstrapError::Variable { variable, value: "0".to_owned(), expected });
        }
        if let Rendezvous::Slurm = self.rendezvous {
            local_size = slurm_local_size(environment);
        }
        let size = sized.map(|(name, value)| Ok((size(name, value)?, name))).transpose()?;
        let launched = Launched {
            rank: number(self.rank, rank)?,
            size: size.map_or(0, |(n, _)| n),
            local_rank: local(self.local_rank)?,
            local_size,
            store: self.store(environment)?,
            listener: None,
            has_server,
            via: if has_server { "warpbell run" } else { self.via },
        };
        Ok(Found { size, launched })
    }

    fn store(&self, environment: &Environment) -> Result<Option<String>, BootstrapError> {
        let get = |name| get(environment, name);
        let store = match self.rendezvous {
            Rendezvous::Unknown => None,
            Rendezvous::Torch => match (get("MASTER_ADDR"), get("MASTER_PORT")) {
                (Some(host), Some(value)) => {
                    // The port itself belongs to torch, whose store often listens there already.
                    let port = port("MASTER_PORT", value)?.checked_add(1).unwrap_or(DEFAULT_PORT);
                    Some(address_of(host, port))
                }
                (Some(_), None) => {
                    let next = "set it, or WARPBELL_STORE=host:port";
                    return Err(half(self.via, "MASTER_ADDR", "MASTER_PORT", next));
                }
                _ => None,
            },
            Rendezvous::Slurm => {
                let lists = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
                let list = lists.into_iter().find_map(|name| Some((name, get(name)?)));
                let host = list.map(|(name, value)| {
                    slurm::first_host(value).map_err(|reason| BootstrapError::Variable {
                        variable: name.to_owned(),
                        value: value.to_owned(),
                        expected: format!("not a list of hosts: {reason}"),
                    })
                });
                host.transpose()?.map(|host| address_of(&host, slurm_port(environment)))
            }
            Rendezvous::Host(name) => get(name).map(|host| address_of(host, DEFAULT_PORT)),
        };
        Ok(store)
    }
}

/// Returns a port that steps of different jobs on one host do not share, unless their numbers collide.
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
