//! The store's state of the worlds that meet in it, without sockets: events in, messages out.

use super::wire::{MAX_ALERT, Message};
use crate::engine::abi::MAX_PES;
use crate::shmem::bootstrap::LostRank;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The number of a connection, unique in the life of the store.
pub(super) type Id = u64;

/// Messages to send, and connections to end once their messages are sent.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) send: Vec<(Id, Arc<Message>)>,
    pub(super) end: Vec<Id>,
}

/// A violation of the protocol by a member, with its description.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProtocolViolation(pub(super) &'static str);

/// The worlds of a store. A program may end its world and begin the next one while other ranks are still at the end of
/// the first.
#[derive(Debug, Default)]
pub(super) struct Worlds {
    worlds: BTreeMap<u64, World>,
    members: HashMap<Id, Place>,
    made: u64,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    world: u64,
    rank: usize,
}

#[derive(Debug)]
struct World {
    fingerprint: u64,
    version: String,
    ranks: Vec<Option<Rank>>,
    /// True once all ranks have joined.
    begun: bool,
    /// True once the world cannot begin any more.
    failed: bool,
    round: u64,
    /// Bytes of each rank for the current exchange.
    given: Vec<Option<Vec<u8>>>,
}

#[derive(Debug)]
struct Rank {
    /// The rank's connection, while it lasts.
    id: Option<Id>,
    who: String,
    /// True if the rank stopped waiting for the others to join.
    gave_up: bool,
}

impl Worlds {
    /// Handles a message of a member. `note` names the connections that were turned away so far.
    pub(super) fn message(&mut self, id: Id, message: Message, note: &str) -> Result<Outcome, ProtocolViolation> {
        match (message, self.members.get(&id).copied()) {
            (Message::Join { rank, size, fingerprint, version, who }, None) => {
                Ok(self.join(id, Joining { rank: rank as usize, size: size as usize, fingerprint, version, who }))
            }
            (_, None) => Err(ProtocolViolation("it sent a message before it joined")),
            (Message::Give { round, bytes }, Some(place)) => self.give(place, round, bytes),
            (Message::Withdraw { round }, Some(place)) => Ok(self.withdraw(id, place, round, note)),
            (Message::Leave, Some(place)) => Ok(self.leave(id, place)),
            (Message::Alert { rank, bytes }, Some(place)) => self.alert(place, rank as usize, bytes),
            (_, Some(_)) => Err(ProtocolViolation("it sent a message that only the store may send")),
        }
    }

    /// Handles the end of a connection, for the reason `reason`.
    pub(super) fn closed(&mut self, id: Id, reason: &str) -> Outcome {
        let mut out = Outcome::default();
        let Some(place) = self.members.remove(&id) else { return out };
        let Some(world) = self.worlds.get_mut(&place.world) else { return out };
        let missing = world.absent();
        let Some(rank) = &mut world.ranks[place.rank] else { return out };
        rank.id = None;
        let reason = if rank.gave_up && !world.begun {
            let missing: Vec<String> = missing.iter().map(usize::to_string).collect();
            format!("it gave up waiting for rank {}", missing.join(", "))
        } else {
            reason.to_owned()
        };
        if !world.failed {
            world.failed |= !world.begun;
            world.tell_all(Message::Lost(LostRank::new(place.rank, reason)), &mut out);
        }
        self.forget();
        out
    }

    fn join(&mut self, id: Id, joining: Joining) -> Outcome {
        let mut out = Outcome::default();
        let refuse = |why: String, out: &mut Outcome| {
            out.send.push((id, Arc::new(Message::Refused(why))));
            out.end.push(id);
        };
        let Joining { rank, size, .. } = joining;
        if size == 0 || size > MAX_PES || rank >= size {
            refuse(format!("there is no rank {rank} in a world of {size} (1 to {MAX_PES})"), &mut out);
            return out;
        }
        let newest = self.worlds.iter_mut().next_back().map(|(key, world)| (*key, world));
        let world = match newest {
            Some((_, world)) if world.begun && world.present(rank).is_some() => {
                let who = world.present(rank).map(|r| r.who.as_str()).unwrap_or_default();
                refuse(
                    format!("rank {rank} has already joined, as {who}; {} has the same rank", joining.who),
                    &mut out,
                );
                return out;
            }
            Some((key, world)) if !world.begun && !world.failed => {
                if let Some(why) = world.contradicts(&joining) {
                    world.failed = true;
                    world.tell_all(Message::Refused(why.clone()), &mut out);
                    out.end.extend(world.ranks.iter().flatten().filter_map(|r| r.id));
                    refuse(why, &mut out);
                    return out;
                }
                key
            }
            _ => {
                self.made += 1;
                self.worlds.insert(self.made, World::new(&joining));
                self.made
            }
        };
        self.members.insert(id, Place { world, rank });
        if let Some(world) = self.worlds.get_mut(&world) {
            world.ranks[rank] = Some(Rank { id: Some(id), who: joining.who, gave_up: false });
            if world.ranks.iter().all(Option::is_some) {
                world.begun = true;
                world.tell_all(Message::Begin, &mut out);
            }
        }
        self.forget();
        out
    }

    fn give(&mut self, place: Place, round: u64, bytes: Vec<u8>) -> Result<Outcome, ProtocolViolation> {
        let mut out = Outcome::default();
        let Some(world) = self.worlds.get_mut(&place.world) else { return Ok(out) };
        if round != world.round || world.given[place.rank].is_some() || !world.begun {
            return Err(ProtocolViolation("it sent data for an exchange that is not the current one"));
        }
        world.given[place.rank] = Some(bytes);
        if world.given.iter().all(Option::is_some) {
            world.round += 1;
            for (rank, bytes) in world.given.iter_mut().enumerate() {
                let part = Message::Part { round, rank: rank as u32, bytes: bytes.take().unwrap_or_default() };
                tell(&world.ranks, part, &mut out);
            }
        }
        Ok(out)
    }

    fn alert(&self, place: Place, to: usize, bytes: Vec<u8>) -> Result<Outcome, ProtocolViolation> {
        let mut out = Outcome::default();
        if bytes.len() > MAX_ALERT {
            return Err(ProtocolViolation("it sent an alert that is too long"));
        }
        // An alert to a rank that is gone is dropped.
        if let Some(id) = self.worlds.get(&place.world).and_then(|w| w.present(to)).and_then(|r| r.id) {
            out.send.push((id, Arc::new(Message::Alert { rank: place.rank as u32, bytes })));
        }
        Ok(out)
    }

    fn withdraw(&mut self, id: Id, place: Place, round: u64, note: &str) -> Outcome {
        let mut out = Outcome::default();
        let Some(world) = self.worlds.get_mut(&place.world) else { return out };
        let missing = if round == Message::RENDEZVOUS && !world.begun {
            if let Some(rank) = &mut world.ranks[place.rank] {
                rank.gave_up = true;
            }
            world.absent()
        } else if round == world.round && world.given[place.rank].take().is_some() {
            (0..world.given.len()).filter(|r| *r != place.rank && world.given[*r].is_none()).collect()
        } else {
            // The parts that the member waits for are already on their way.
            return out;
        };
        let ranks = missing.into_iter().map(|r| r as u32).collect();
        out.send.push((id, Arc::new(Message::Missing { round, note: note.to_owned(), ranks })));
        out
    }

    fn leave(&mut self, id: Id, place: Place) -> Outcome {
        let mut out = Outcome::default();
        self.members.remove(&id);
        out.end.push(id);
        if let Some(world) = self.worlds.get_mut(&place.world) {
            let rounds = world.round + u64::from(world.given[place.rank].is_some());
            if let Some(rank) = &mut world.ranks[place.rank] {
                rank.id = None;
            }
            world.failed |= !world.begun;
            world.tell_all(Message::Left { rank: place.rank as u32, rounds }, &mut out);
        }
        self.forget();
        out
    }

    /// Removes worlds without members, except the newest, which the next rank may belong to.
    fn forget(&mut self) {
        let newest = self.made;
        self.worlds.retain(|key, world| *key == newest || world.ranks.iter().flatten().any(|r| r.id.is_some()));
    }
}

/// The data of a `Join` message.
struct Joining {
    rank: usize,
    size: usize,
    fingerprint: u64,
    version: String,
    who: String,
}

impl World {
    fn new(first: &Joining) -> Self {
        Self {
            fingerprint: first.fingerprint,
            version: first.version.clone(),
            ranks: (0..first.size).map(|_| None).collect(),
            begun: false,
            failed: false,
            round: 0,
            given: vec![None; first.size],
        }
    }

    fn present(&self, rank: usize) -> Option<&Rank> {
        self.ranks.get(rank)?.as_ref().filter(|r| r.id.is_some())
    }

    /// Returns the ranks that have not joined.
    fn absent(&self) -> Vec<usize> {
        (0..self.ranks.len()).filter(|r| self.ranks[*r].is_none()).collect()
    }

    /// Returns the reason why this rank cannot belong to the ranks that have joined, if there is one.
    fn contradicts(&self, joining: &Joining) -> Option<String> {
        let Joining { rank, size, .. } = *joining;
        let (first, here) = self.ranks.iter().enumerate().find_map(|(n, r)| Some((n, r.as_ref()?)))?;
        if size != self.ranks.len() {
            let ours = self.ranks.len();
            return Some(format!(
                "rank {first} ({}) is in a world of {ours} ranks, rank {rank} ({}) in one of {size}",
                here.who, joining.who
            ));
        }
        if let Some(other) = &self.ranks[rank] {
            return Some(format!("two processes have rank {rank}: {} and {}", other.who, joining.who));
        }
        if joining.version != self.version {
            let (ours, theirs) = (&self.version, &joining.version);
            return Some(format!(
                "rank {first} ({}) runs warpbell {ours}, rank {rank} ({}) warpbell {theirs}",
                here.who, joining.who
            ));
        }
        if joining.fingerprint != self.fingerprint {
            return Some(format!(
                "rank {first} ({}) and rank {rank} ({}) were built from different sources of warpbell {}",
                here.who, joining.who, self.version
            ));
        }
        None
    }

    fn tell_all(&self, message: Message, out: &mut Outcome) {
        tell(&self.ranks, message, out);
    }
}

fn tell(ranks: &[Option<Rank>], message: Message, out: &mut Outcome) {
    let message = Arc::new(message);
    out.send.extend(ranks.iter().flatten().filter_map(|r| Some((r.id?, message.clone()))));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(rank: u32, size: u32) -> Message {
        Message::Join { rank, size, fingerprint: 7, version: "1".to_owned(), who: format!("process {rank}") }
    }

    fn give(round: u64, bytes: &[u8]) -> Message {
        Message::Give { round, bytes: bytes.to_vec() }
    }

    impl Worlds {
        fn say(&mut self, id: Id, message: Message) -> Vec<(Id, Message)> {
            let out = self.message(id, message, "note").unwrap();
            out.send.into_iter().map(|(id, m)| (id, (*m).clone())).collect()
        }

        fn of(n: u32) -> Self {
            let mut worlds = Self::default();
            for rank in 0..n {
                worlds.say(rank.into(), join(rank, n));
            }
            worlds
        }
    }

    fn refusals(said: &[(Id, Message)]) -> Vec<(Id, &str)> {
        said.iter()
            .map(|(id, m)| match m {
                Message::Refused(why) => (*id, why.as_str()),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_world_begins_when_all_are_there_and_exchanges_in_rank_order() {
        let mut worlds = Worlds::default();
        assert_eq!(worlds.say(10, join(1, 2)), []);
        assert_eq!(worlds.say(11, join(0, 2)), [(11, Message::Begin), (10, Message::Begin)]);
        assert_eq!(worlds.say(10, give(0, b"b")), []);
        let parts = worlds.say(11, give(0, b"a"));
        let to = |id| -> Vec<_> { parts.iter().filter(|(i, _)| *i == id).map(|(_, m)| m.clone()).collect() };
        let part = |rank, bytes: &[u8]| Message::Part { round: 0, rank, bytes: bytes.to_vec() };
        assert_eq!(to(10), [part(0, b"a"), part(1, b"b")]);
        assert_eq!(to(11), to(10));
    }

    #[test]
    fn who_waits_too_long_hears_who_is_missing() {
        let mut worlds = Worlds::default();
        worlds.say(1, join(1, 3));
        let missing = |round, ranks: &[u32]| Message::Missing { round, note: "note".to_owned(), ranks: ranks.to_vec() };
        let said = worlds.say(1, Message::Withdraw { round: Message::RENDEZVOUS });
        assert_eq!(said, [(1, missing(Message::RENDEZVOUS, &[0, 2]))]);

        let mut worlds = Worlds::of(3);
        worlds.say(1, give(0, b"1"));
        assert_eq!(worlds.say(1, Message::Withdraw { round: 0 }), [(1, missing(0, &[0, 2]))]);
        // Withdrawn bytes go to no rank, and the rank may give new ones.
        worlds.say(0, give(0, b"0"));
        assert_eq!(worlds.say(2, give(0, b"2")), []);
        assert_eq!(worlds.say(1, give(0, b"new")).len(), 9);
        // No message is due if the wait ends when all parts are on their way.
        assert_eq!(worlds.say(1, Message::Withdraw { round: 0 }), []);
    }

    #[test]
    fn alerts_go_to_the_rank_that_they_are_for() {
        let mut worlds = Worlds::of(3);
        let alert = |rank, bytes: &[u8]| Message::Alert { rank, bytes: bytes.to_vec() };
        assert_eq!(worlds.say(1, alert(2, b"hear")), [(2, alert(1, b"hear"))]);
        worlds.say(2, Message::Leave);
        assert_eq!(worlds.say(1, alert(2, b"gone")), []);
        assert_eq!(worlds.say(1, alert(7, b"nobody")), []);
        assert!(worlds.message(1, alert(0, &[0; MAX_ALERT + 1]), "").is_err());
    }

    #[test]
    fn a_connection_that_ends_is_a_lost_rank_and_one_that_left_is_not() {
        let mut worlds = Worlds::of(3);
        let said = worlds.closed(1, "connection reset").send;
        assert_eq!(said.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(*said[0].1, Message::Lost(LostRank::new(1, "connection reset")));

        let mut worlds = Worlds::of(2);
        worlds.say(1, give(0, b""));
        assert_eq!(worlds.say(1, Message::Leave), [(0, Message::Left { rank: 1, rounds: 1 })]);
        assert!(worlds.closed(1, "connection closed").send.is_empty());
        // Rank 1 gave its part before it left.
        assert_eq!(worlds.say(0, give(0, b"")).len(), 2);
    }

    #[test]
    fn a_rank_that_leaves_before_all_have_come_ends_the_rendezvous() {
        let mut worlds = Worlds::default();
        worlds.say(0, join(0, 3));
        worlds.say(1, join(1, 3));
        worlds.say(1, Message::Withdraw { round: Message::RENDEZVOUS });
        let said = worlds.closed(1, "connection closed").send;
        assert_eq!(*said[0].1, Message::Lost(LostRank::new(1, "it gave up waiting for rank 2")));
        // A rank that joins now waits in a new world.
        assert_eq!(worlds.say(5, join(1, 3)), []);
    }

    #[test]
    fn what_does_not_fit_together_ends_for_all_with_the_reason() {
        for (other, words) in [
            (join(1, 3), ["world of 2 ranks", "one of 3"]),
            (join(0, 2), ["two processes have rank 0", "process 0"]),
            (
                Message::Join { rank: 1, size: 2, fingerprint: 7, version: "2".to_owned(), who: String::new() },
                ["warpbell 1", "warpbell 2"],
            ),
            (
                Message::Join { rank: 1, size: 2, fingerprint: 8, version: "1".to_owned(), who: String::new() },
                ["rank 0 (process 0) and rank 1", "different sources"],
            ),
        ] {
            let mut worlds = Worlds::default();
            worlds.say(0, join(0, 2));
            let out = worlds.message(9, other, "").unwrap();
            let said: Vec<_> = out.send.iter().map(|(id, m)| (*id, (**m).clone())).collect();
            let refused = refusals(&said);
            assert_eq!(refused.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [0, 9]);
            assert_eq!(out.end, [0, 9]);
            assert!(words.iter().all(|w| refused.iter().all(|(_, why)| why.contains(w))), "{refused:?}");
        }
        let mut worlds = Worlds::default();
        assert!(refusals(&worlds.say(0, join(2, 2)))[0].1.contains("no rank 2 in a world of 2"));
        assert!(refusals(&worlds.say(0, join(0, 5000)))[0].1.contains("5000"));
    }

    #[test]
    fn one_too_many_does_not_disturb_a_world_that_has_begun() {
        let mut worlds = Worlds::of(2);
        let said = worlds.say(9, join(1, 2));
        assert!(refusals(&said)[0].1.contains("rank 1 has already joined, as process 1"));
        assert_eq!(said.len(), 1);
        worlds.say(0, give(0, b""));
        assert_eq!(worlds.say(1, give(0, b"")).len(), 4);
    }

    #[test]
    fn a_second_world_forms_while_the_first_ends() {
        let mut worlds = Worlds::of(2);
        worlds.say(0, Message::Leave);
        assert_eq!(worlds.say(10, join(0, 2)), []);
        // Rank 1 is still in the first world, and leaves it in order.
        worlds.say(1, Message::Leave);
        assert_eq!(worlds.say(11, join(1, 2)), [(10, Message::Begin), (11, Message::Begin)]);
        assert_eq!(worlds.worlds.len(), 1);
    }

    #[test]
    fn missteps_are_named() {
        let mut worlds = Worlds::of(2);
        for (id, message) in [
            (9, Message::Leave),
            (0, join(0, 2)),
            (0, give(5, b"")),
            (0, Message::Begin),
            (0, Message::Refused(String::new())),
        ] {
            assert!(worlds.message(id, message.clone(), "").is_err(), "{message:?}");
        }
        worlds.say(0, give(0, b""));
        assert!(worlds.message(0, give(0, b""), "").is_err());
    }
}
