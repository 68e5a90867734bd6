//! Opening of a PE's adapter, and the choice between adapters.

use crate::memory::Space;
use crate::rdma::{self, Adapter, DeviceChoice, RdmaError};
use crate::shmem::vote::failed;
#[cfg(feature = "soft")]
use crate::soft::nic::{SoftNic, SoftNicConfig};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
#[cfg(feature = "soft")]
use std::net::Ipv6Addr;

/// The adapters, in order of preference.
const ORDER: [rdma::Transport; 3] = [rdma::Transport::Mlx5, rdma::Transport::Verbs, rdma::Transport::Soft];

/// Variable for the options of software NICs, as `SoftNicConfig::options` parses them.
#[cfg(feature = "soft")]
const SOFT_VARIABLE: &str = "WARPBELL_SOFT_NIC";

/// The parameters for opening an adapter.
#[derive(Clone, Debug)]
pub(in super::super) struct Opening {
    /// The memory space of the PE's kernels.
    pub(in super::super) space: Space,
    /// The key that software NICs of one world use to authenticate each other.
    pub(in super::super) key: Option<[u8; 32]>,
    /// The address by which other PEs reach this PE.
    pub(in super::super) address: Option<IpAddr>,
    /// True if some PEs are on other hosts.
    pub(in super::super) across: bool,
    /// Number of PEs on this PE's host, which share its processors.
    pub(in super::super) sharers: usize,
}

/// Opens an adapter, or returns the reason why it is not available.
pub(in super::super) fn open(transport: rdma::Transport, opening: &Opening) -> Result<Box<dyn Adapter>, RdmaError> {
    match transport {
        rdma::Transport::Soft => soft(opening),
        _ => rdma::open(transport, &DeviceChoice::from_environment()?, &opening.space),
    }
}

#[cfg(not(feature = "soft"))]
fn soft(_: &Opening) -> Result<Box<dyn Adapter>, RdmaError> {
    let reason = "this build has no software devices; build warpbell with feature `soft`".to_owned();
    Err(RdmaError::Unavailable { transport: rdma::Transport::Soft, reason })
}

#[cfg(feature = "soft")]
fn soft(opening: &Opening) -> Result<Box<dyn Adapter>, RdmaError> {
    let transport = rdma::Transport::Soft;
    let Some(key) = opening.key else {
        let reason = "the ranks have no secret to authenticate each other: set WARPBELL_SECRET or \
                      WARPBELL_SECRET_FILE, or implement Bootstrap::key"
            .to_owned();
        return Err(RdmaError::Unavailable { transport, reason });
    };
    let unavailable = |reason: String| RdmaError::Unavailable { transport, reason };
    let options = std::env::var(SOFT_VARIABLE).unwrap_or_default();
    let mut config = SoftNicConfig::new(key);
    config.space = opening.space.clone();
    config.sharers = opening.sharers;
    let mut config =
        config.options(&options).map_err(|e| unavailable(format!("{SOFT_VARIABLE}: software NIC: {e}")))?;
    if opening.across || !config.unix {
        // Listens on any address of this host, if none is configured.
        config.listen = Some(opening.address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
        config.advertise = opening.address.into_iter().collect();
    }
    Ok(Box::new(SoftNic::start(config)?))
}

/// The adapters of one PE: `None` for each that is available, otherwise the reason why it is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Available(Vec<(rdma::Transport, Option<String>)>);

impl Available {
    pub(in super::super) fn of(answers: impl IntoIterator<Item = (rdma::Transport, Option<String>)>) -> Self {
        Self(answers.into_iter().collect())
    }
}

/// Returns the adapters to try: the requested one, or all in order of preference.
pub(in super::super) fn candidates(asked: Option<rdma::Transport>) -> Vec<rdma::Transport> {
    asked.map_or_else(|| ORDER.to_vec(), |one| vec![one])
}

/// Chooses the first adapter that every PE has. Also returns the reason why no better one was chosen. Fails with the
/// reasons if there is none.
pub(in super::super) fn choose(all: &[Available]) -> Result<(rdma::Transport, Option<String>), String> {
    let mut notes = Vec::new();
    let tried: Vec<rdma::Transport> =
        ORDER.into_iter().filter(|t| all.iter().any(|a| a.0.iter().any(|(x, _)| x == t))).collect();
    for transport in tried {
        let answer = |a: &Available| match a.0.iter().find(|(t, _)| *t == transport) {
            Some((_, why)) => why.clone(),
            None => Some(format!("{transport}: not requested")),
        };
        let missing: Vec<(usize, String)> =
            all.iter().enumerate().filter_map(|(rank, a)| Some((rank, answer(a)?))).collect();
        if missing.is_empty() {
            return Ok((transport, (!notes.is_empty()).then(|| notes.join("; "))));
        }
        notes.push(failed(&missing));
    }
    Err(notes.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma::Transport::{Mlx5, Soft, Verbs};

    #[cfg(not(feature = "soft"))]
    #[test]
    fn a_nic_that_is_not_built_names_its_feature() {
        let opening = Opening { space: Space::cpu(), key: None, address: None, across: false, sharers: 1 };
        let said = open(Soft, &opening).unwrap_err().to_string();
        assert!(said.contains("no software devices") && said.contains("feature `soft`"), "{said}");
    }

    fn has(answers: &[(rdma::Transport, bool)]) -> Available {
        Available::of(answers.iter().map(|(t, yes)| (*t, (!yes).then(|| format!("{t} adapter: no device")))))
    }

    #[test]
    fn the_first_that_all_have_is_taken() {
        let everything = has(&[(Mlx5, true), (Verbs, true), (Soft, true)]);
        let no_mlx5 = has(&[(Mlx5, false), (Verbs, true), (Soft, true)]);
        let bare = has(&[(Mlx5, false), (Verbs, false), (Soft, true)]);
        let table: [(&[&Available], rdma::Transport); 4] = [
            (&[&everything, &everything], Mlx5),
            (&[&everything, &no_mlx5], Verbs),
            (&[&bare, &everything], Soft),
            (&[&bare], Soft),
        ];
        for (all, expected) in table {
            let all: Vec<Available> = all.iter().map(|a| (*a).clone()).collect();
            let (chosen, note) = choose(&all).unwrap();
            assert_eq!(chosen, expected);
            assert_eq!(note.is_some(), expected != Mlx5, "{note:?}");
        }
        let (_, note) = choose(&[everything.clone(), no_mlx5]).unwrap();
        assert_eq!(note.unwrap(), "rank 1: mlx5 adapter: no device");
    }

    #[test]
    fn one_that_was_asked_for_is_had_or_is_an_error() {
        assert_eq!(candidates(Some(Verbs)), [Verbs]);
        assert_eq!(candidates(None), [Mlx5, Verbs, Soft]);
        assert_eq!(choose(&[has(&[(Verbs, true)]), has(&[(Verbs, true)])]).unwrap(), (Verbs, None));
        let e = choose(&[has(&[(Verbs, true)]), has(&[(Verbs, false)]), has(&[(Verbs, false)])]).unwrap_err();
        assert_eq!(e, "ranks 1-2: verbs adapter: no device");
    }
}
