//! The error type of the bootstrap.

use super::LostRank;
use std::path::PathBuf;
use std::time::Duration;

/// The reason why ranks could not meet or exchange bytes.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// Some ranks did not come in time.
    #[error("rank {rank} of {size} waited {within:?} for {}{note}; check the output of those ranks", ranks(.missing))]
    Missing {
        /// The rank that waited.
        rank: usize,
        /// Number of ranks.
        size: usize,
        /// The ranks that did not come.
        missing: Vec<usize>,
        /// The time limit.
        within: Duration,
        /// Connections that were turned away meanwhile, in brackets; empty if there were none.
        note: String,
    },
    /// A rank is lost, or has left.
    #[error("{0}")]
    Lost(LostRank),
    /// A variable has an invalid value.
    #[error("{variable} is `{value}`: {expected}")]
    Variable {
        /// Name of the variable.
        variable: String,
        /// Its value.
        value: String,
        /// The expected value.
        expected: String,
    },
    /// A launcher's variables are incomplete.
    #[error("{via}: {set} is set and {missing} is not; {next}")]
    HalfSet {
        /// Name of the launcher.
        via: &'static str,
        /// The variable that is set.
        set: String,
        /// The variable that is missing.
        missing: &'static str,
        /// The remedy.
        next: &'static str,
    },
    /// The launcher does not give a place where the ranks can meet.
    #[error(
        "{via} does not say where ranks meet: set WARPBELL_STORE=host:port to the host of rank 0 and a free port of it, the same for all ranks{hint}"
    )]
    NoStore {
        /// Name of the launcher.
        via: &'static str,
        /// A hint at the name of the host; may be empty.
        hint: &'static str,
    },
    /// The ranks have no shared secret.
    #[error(
        "the ranks of {via} need a secret to authenticate each other: set WARPBELL_SECRET, or WARPBELL_SECRET_FILE to a file that only you can read, the same for all ranks (a new one: openssl rand -hex 32)"
    )]
    NoSecret {
        /// Name of the launcher.
        via: &'static str,
    },
    /// The secret is not valid.
    #[error("{variable}: {reason}")]
    BadSecret {
        /// The variable that holds the secret.
        variable: &'static str,
        /// The reason why the secret is not valid.
        reason: String,
    },
    /// The file with the secret cannot be used.
    #[error("the secret in {}: {reason}", path.display())]
    SecretFile {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// There is no such rank.
    #[error("rank {rank} of a world of {size}: ranks are numbered from 0, and below the number of ranks")]
    NoRank {
        /// The number of this process.
        rank: usize,
        /// The number of ranks.
        size: usize,
    },
    /// The unique id cannot be made, or cannot be used by this rank.
    #[error("unique id: {reason}")]
    UniqueId {
        /// Cause and remedy.
        reason: String,
    },
    /// Rank 0 cannot listen for the others.
    #[error("rank 0 cannot listen at {store}: {reason}")]
    Listen {
        /// The address of the store.
        store: String,
        /// Cause and remedy.
        reason: String,
    },
    /// The store could not be reached, or does not reply.
    #[error("rank {rank} could not reach rank 0 at {store} within {within:?}: {reason}")]
    Connect {
        /// The rank that tried.
        rank: usize,
        /// The address of the store.
        store: String,
        /// The time limit.
        within: Duration,
        /// The last failure.
        reason: String,
    },
    /// Another program listens at the address of the store.
    #[error("the program that listens at {store} is not a warpbell store; write another port in WARPBELL_STORE")]
    NotAStore {
        /// The address of the store.
        store: String,
    },
    /// The store has a different secret.
    #[error("rank {rank} and the store at {store} have different secrets: set the same WARPBELL_SECRET for all ranks")]
    WrongSecret {
        /// The rank that connected.
        rank: usize,
        /// The address of the store.
        store: String,
    },
    /// The store uses another version of the protocol.
    #[error(
        "the store at {store} speaks version {theirs} of its protocol, rank {rank} version {ours}: run the same warpbell on all ranks"
    )]
    Protocol {
        /// The rank that connected.
        rank: usize,
        /// The address of the store.
        store: String,
        /// Protocol version of the store.
        theirs: u16,
        /// Protocol version of this rank.
        ours: u16,
    },
    /// The ranks contradict each other, for example on the number of ranks.
    #[error("the ranks disagree: {0}")]
    Disagree(String),
    /// An exchange has more bytes than a message can carry.
    #[error(
        "an exchange of {bytes} bytes for each rank is larger than the limit of {most}; exchange the data in parts"
    )]
    TooLarge {
        /// Bytes of the call.
        bytes: usize,
        /// The largest number of bytes.
        most: usize,
    },
    /// A system call failed.
    #[error("{what}: {reason}")]
    System {
        /// The purpose of the system call.
        what: &'static str,
        /// The error of the system.
        reason: String,
    },
    /// This rank has already left the world.
    #[error("rank {rank} has left this world and can make no more calls in it")]
    Left {
        /// The rank.
        rank: usize,
    },
}

impl BootstrapError {
    pub(super) fn missing(rank: usize, size: usize, missing: Vec<usize>, within: Duration) -> Self {
        Self::Missing { rank, size, missing, within, note: String::new() }
    }

    pub(in crate::shmem) fn system(what: &'static str, e: &std::io::Error) -> Self {
        Self::System { what, reason: e.to_string() }
    }
}

/// Formats ranks as `rank 3` or `ranks 1, 2, 5`; shows only the first ones of a long list.
fn ranks(list: &[usize]) -> String {
    const SHOWN: usize = 16;
    let names: Vec<String> = list.iter().take(SHOWN).map(usize::to_string).collect();
    let more = if list.len() > SHOWN { format!(" and {} more", list.len() - SHOWN) } else { String::new() };
    format!("rank{} {}{more}", if list.len() == 1 { "" } else { "s" }, names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_ranks_are_short() {
        assert_eq!(ranks(&[3]), "rank 3");
        assert_eq!(ranks(&[1, 2, 5]), "ranks 1, 2, 5");
        let many: Vec<usize> = (0..1000).collect();
        assert!(ranks(&many).ends_with("14, 15 and 984 more"));
    }
}
