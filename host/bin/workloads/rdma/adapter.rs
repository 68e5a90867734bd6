//! Opens an adapter of the same kind on each side.

use super::LIMIT;
use super::endpoint::{self, other_side};
use crate::workloads::error::MeasureError;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv6Addr};
use warpbell::memory::Space;
use warpbell::rdma::{self, Adapter, DeviceChoice, RdmaError, Transport};
use warpbell::shmem::bootstrap::Bootstrap;
use warpbell::soft::nic::{SoftNic, SoftNicConfig};

/// Kinds of adapters, best first.
const ORDER: [Transport; 3] = [Transport::Mlx5, Transport::Verbs, Transport::Soft];
/// Purpose for which the bootstrap derives the key of software NICs.
const PURPOSE: &str = "soft nic of bench rdma";

/// Choice of the adapter.
#[derive(Clone, Debug, Default)]
pub struct AdapterChoice {
    /// Kind of adapter; `None` takes the best kind that both sides have.
    pub transport: Option<Transport>,
    /// Device, port and GID of an RDMA device.
    pub device: DeviceChoice,
    /// Options of a software NIC, as [`SoftNicConfig::options`] parses them.
    pub soft: String,
    /// True if the other side may be on another host.
    pub across: bool,
}

/// Kind of adapter that a side opened, and the reasons why better kinds failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Found {
    transport: Option<Transport>,
    reasons: Vec<String>,
}

impl AdapterChoice {
    fn candidates(&self) -> Vec<Transport> {
        self.transport.map_or_else(|| ORDER.to_vec(), |one| vec![one])
    }

    /// Opens one adapter for both sides in this process. Also returns the reasons why better kinds failed.
    ///
    /// # Errors
    /// [`MeasureError::Failed`] if no adapter can be opened; the error lists the reasons.
    pub fn open(&self, space: &Space, ranks: &dyn Bootstrap) -> Result<(Box<dyn Adapter>, Vec<String>), MeasureError> {
        let (adapter, found) = self.first(space, ranks);
        adapter.map(|a| (a, found.reasons.clone())).ok_or_else(|| none_of(&found))
    }

    /// Opens this side's adapter. The other side must call this function, too; both sides open the same kind. Also
    /// returns the reasons why better kinds failed.
    ///
    /// # Errors
    /// [`MeasureError::Failed`] if a side can open no adapter. [`MeasureError::Refused`] if there are not two ranks.
    /// [`MeasureError::Bootstrap`] if the exchange fails, [`MeasureError::Rdma`] if the kind of the other side cannot
    /// be opened.
    pub fn open_with(
        &self,
        space: &Space,
        ranks: &dyn Bootstrap,
    ) -> Result<(Box<dyn Adapter>, Vec<String>), MeasureError> {
        let (adapter, mine) = self.first(space, ranks);
        let all: Vec<Found> = endpoint::exchange_between(ranks, LIMIT, &mine)?;
        let rank = 1 - ranks.rank();
        let place = |t: Transport| ORDER.iter().position(|o| *o == t);
        let Some(adapter) = adapter else { return Err(none_of(&mine)) };
        let Some(theirs) = all.get(rank).and_then(|f| f.transport) else {
            let reason = all.get(rank).map_or_else(String::new, |f| none_of(f).to_string());
            return Err(other_side(rank, reason));
        };
        let mut reasons = mine.reasons;
        if mine.transport.and_then(place) >= place(theirs) {
            return Ok((adapter, reasons));
        }
        // The other side could open only this lesser kind.
        drop(adapter);
        let why = all.get(rank).map(|f| f.reasons.join("; ")).unwrap_or_default();
        reasons.push(format!("the other side (rank {rank}): {why}"));
        Ok((self.one(theirs, space, ranks)?, reasons))
    }

    /// Opens the first candidate that works.
    fn first(&self, space: &Space, ranks: &dyn Bootstrap) -> (Option<Box<dyn Adapter>>, Found) {
        let mut found = Found { transport: None, reasons: Vec::new() };
        for transport in self.candidates() {
            match self.one(transport, space, ranks) {
                Ok(adapter) => {
                    found.transport = Some(transport);
                    return (Some(adapter), found);
                }
                Err(e) => found.reasons.push(e.to_string()),
            }
        }
        (None, found)
    }

    fn one(&self, transport: Transport, space: &Space, ranks: &dyn Bootstrap) -> Result<Box<dyn Adapter>, RdmaError> {
        if transport != Transport::Soft {
            return rdma::open(transport, &self.device, space);
        }
        let unavailable = |reason: String| RdmaError::Unavailable { transport, reason };
        if self.device != DeviceChoice::default() {
            let reason =
                "a software NIC is not an RDMA device; leave --ib-dev, --ib-port and --gid-index out".to_owned();
            return Err(unavailable(reason));
        }
        let no_key = || {
            unavailable(
                "the two sides have no secret to authenticate each other: set WARPBELL_SECRET on both".to_owned(),
            )
        };
        let mut config = SoftNicConfig::new(ranks.key(PURPOSE).ok_or_else(no_key)?);
        config.space = space.clone();
        config.sharers = 2;
        let mut config = config.options(&self.soft).map_err(|e| unavailable(format!("software NIC: {e}")))?;
        if self.across {
            // Listens at all addresses of this host if the bootstrap names none.
            let own = ranks.route().own;
            config.listen = Some(own.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)));
            config.advertise = own.into_iter().collect();
        }
        Ok(Box::new(SoftNic::start(config)?))
    }
}

fn none_of(found: &Found) -> MeasureError {
    MeasureError::Failed(format!("no adapter: {}", found.reasons.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell::shmem::bootstrap::LocalBootstrap;

    fn of(transport: Option<Transport>) -> AdapterChoice {
        AdapterChoice { transport, ..AdapterChoice::default() }
    }

    /// Returns the kind that each side opened, or the error.
    fn both(choices: [AdapterChoice; 2]) -> Vec<Result<Transport, String>> {
        std::thread::scope(|s| {
            let sides: Vec<_> = LocalBootstrap::all(2)
                .into_iter()
                .zip(&choices)
                .map(|(ranks, choice)| {
                    s.spawn(move || match choice.open_with(&Space::cpu(), &ranks) {
                        Ok((adapter, _)) => Ok(adapter.path().transport),
                        Err(e) => Err(e.to_string()),
                    })
                })
                .collect();
            sides.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn both_sides_have_the_same() {
        let soft = Ok(Transport::Soft);
        assert_eq!(both([of(Some(Transport::Soft)), of(Some(Transport::Soft))]), [soft.clone(), soft.clone()]);
        // Soft must result on every machine, because one side requires it.
        assert_eq!(both([of(None), of(Some(Transport::Soft))]), [soft.clone(), soft]);
    }

    #[test]
    fn what_is_not_to_be_had_is_named_on_both_sides() {
        let mut nothing = of(Some(Transport::Verbs));
        nothing.device.device = Some("no-such-device".to_owned());
        let results = both([nothing, of(Some(Transport::Soft))]);
        let [Err(here), Err(there)] = &results[..] else { panic!("{results:?}") };
        assert!(here.starts_with("no adapter: verbs adapter:"), "{here}");
        assert!(there.starts_with("the other side (rank 0): no adapter: verbs adapter:"), "{there}");
    }

    #[test]
    fn a_software_nic_is_no_device() {
        let mut choice = of(Some(Transport::Soft));
        choice.device.port = Some(1);
        let ranks = LocalBootstrap::all(2);
        let error = choice.open(&Space::cpu(), &ranks[0]).map(drop).unwrap_err().to_string();
        assert!(error.contains("leave --ib-dev"), "{error}");
    }
}
