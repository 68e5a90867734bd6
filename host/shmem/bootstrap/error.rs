//! How ranks fail to meet.

use super::LostRank;
use std::path::PathBuf;
use std::time::Duration;

/// Why ranks could not meet.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// Some did not come.
    #[error("rank {rank} of {size} waited {within:?} for {}{note}; see what became of them", ranks(.missing))]
    Missing {
        /// Who waited.
        rank: usize,
        /// How many there are.
        size: usize,
        /// Who did not come.
        missing: Vec<usize>,
        /// How long.
        within: Duration,
        /// Who was turned away meanwhile, in brackets, or nothing.
        note: String,
    },
    /// One ended.
    #[error("{0}")]
    Lost(LostRank),
    /// A launcher's variable that cannot be what it says.
    #[error("{variable} is `{value}`: {expected}")]
    Variable {
        /// The variable.
        variable: String,
        /// What it is.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// A launcher's variables, of which one is missing.
    #[error("{via}: {set} is set and {missing} is not; {next}")]
    HalfSet {
        /// Which launcher.
        via: &'static str,
        /// What is there.
        set: String,
        /// What is not.
        missing: &'static str,
        /// What to do.
        next: &'static str,
    },
    /// The launcher does not say where the ranks can meet.
    #[error(
        "{via} does not say where ranks meet: set WARPBELL_STORE=host:port to the host of rank 0 and a free port of it, the same for all ranks{hint}"
    )]
    NoStore {
        /// Which launcher.
        via: &'static str,
        /// What the host may be called.
        hint: &'static str,
    },
    /// There is no secret.
    #[error(
        "the ranks of {via} need a secret to know each other: set WARPBELL_SECRET, or WARPBELL_SECRET_FILE to a file that only you can read, the same for all ranks (a new one: openssl rand -hex 32)"
    )]
    NoSecret {
        /// Which launcher.
        via: &'static str,
    },
    /// A secret that is none.
    #[error("{variable}: {reason}")]
    BadSecret {
        /// Where it is from.
        variable: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The file with the secret.
    #[error("the secret in {}: {reason}", path.display())]
    SecretFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Rank 0 cannot wait for the others where it should.
    #[error("rank 0 cannot listen at {store}: {reason}")]
    Listen {
        /// Where.
        store: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Rank 0's store does not answer.
    #[error("rank {rank} could not reach rank 0 at {store} within {within:?}: {reason}")]
    Connect {
        /// Who tried.
        rank: usize,
        /// Where.
        store: String,
        /// How long.
        within: Duration,
        /// What happened last.
        reason: String,
    },
    /// Something else listens there.
    #[error("what answers at {store} is no warpbell store; give WARPBELL_STORE another port")]
    NotAStore {
        /// Where.
        store: String,
    },
    /// The store has another secret.
    #[error("rank {rank} and the store at {store} have different secrets: set the same WARPBELL_SECRET for all ranks")]
    WrongSecret {
        /// Who asked.
        rank: usize,
        /// Where.
        store: String,
    },
    /// The store speaks another version.
    #[error(
        "the store at {store} speaks version {theirs} of its protocol, rank {rank} version {ours}: run the same warpbell on all ranks"
    )]
    Protocol {
        /// Who asked.
        rank: usize,
        /// Where.
        store: String,
        /// Its version.
        theirs: u16,
        /// This one's.
        ours: u16,
    },
    /// The ranks contradict each other.
    #[error("the ranks do not fit together: {0}")]
    Disagree(String),
    /// More bytes than a message takes.
    #[error("{bytes} bytes for an exchange between ranks, which takes {most} at most; exchange them in parts")]
    TooLarge {
        /// Given.
        bytes: usize,
        /// Limit.
        most: usize,
    },
    /// The system refused something.
    #[error("{what}: {reason}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// The system's words.
        reason: String,
    },
    /// The world was left already.
    #[error("rank {rank} left this world and takes part in nothing more")]
    Left {
        /// Who.
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

/// `rank 3`, `ranks 1, 2, 5`, with the first of many.
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
