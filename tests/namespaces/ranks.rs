//! Ranks of one world, one on each host, started by hand.

pub use super::children::Child as Rank;
use super::hosts::Hosts;
use std::process::Command;

const SECRET: &str = "the ranks on both hosts know it";
/// Port on which rank 0 listens; each pair of hosts has its own ports.
const PORT: u16 = 4711;

/// Starts this program as both ranks of a world, rank 0 on the first host.
pub fn start(hosts: &Hosts, prepare: impl Fn(&mut Command)) -> [Rank; 2] {
    start_program(hosts, &std::env::current_exe().unwrap(), prepare)
}

/// Starts another program as both ranks of a world.
pub fn start_program(hosts: &Hosts, program: &std::path::Path, prepare: impl Fn(&mut Command)) -> [Rank; 2] {
    [0, 1].map(|rank| {
        let mut command = hosts.command(rank, program);
        let launchers = ["WARPBELL_", "OMPI_", "PMI", "MPI_", "MV2_", "SLURM_", "RANK", "WORLD_SIZE"];
        for (name, _) in std::env::vars_os() {
            if launchers.iter().any(|l| name.to_string_lossy().starts_with(l)) {
                command.env_remove(name);
            }
        }
        command.env("WARPBELL_RANK", rank.to_string()).env("WARPBELL_SIZE", "2").env("WARPBELL_LOCAL_RANK", "0");
        command.env("WARPBELL_STORE", format!("{}:{PORT}", hosts.address(0))).env("WARPBELL_SECRET", SECRET);
        prepare(&mut command);
        Rank::start(command)
    })
}
