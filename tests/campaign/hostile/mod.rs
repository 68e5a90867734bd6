//! Hostile peers at every listener while verified work goes on, and a man in the middle of every connection.

mod attack;
mod between;
mod nics;
mod process;
mod stranger;
mod targets;

use crate::campaign::{Campaign, Outcome};
use crate::middle::Spoil;
use crate::random::Random;
use between::Connection;
use stranger::Behaviour;
use targets::Listener;

/// Hostile peers.
pub struct Hostile;

impl Campaign for Hostile {
    fn kind(&self, seed: u64) -> String {
        match Act::of(&mut Random::new(seed)) {
            Act::Strangers(listener, behaviour) => format!("{}: {}", listener.name(), behaviour.name()),
            Act::Middle(connection, spoil) => format!("{}: {}", connection.name(), name(spoil)),
        }
    }

    fn run(&self, seed: u64) -> Outcome {
        let mut random = Random::new(seed);
        match Act::of(&mut random) {
            Act::Strangers(listener, behaviour) => targets::run(listener, behaviour, &mut random),
            Act::Middle(connection, spoil) => between::run(connection, spoil, &mut random),
        }
    }
}

enum Act {
    Strangers(Listener, Behaviour),
    Middle(Connection, Spoil),
}

impl Act {
    fn of(random: &mut Random) -> Self {
        const SPOILS: [Spoil; 5] = [Spoil::Flip, Spoil::Drop, Spoil::Repeat, Spoil::Swap, Spoil::Delay];
        if random.below(4) > 0 {
            Self::Strangers(random.of(&Listener::ALL), random.of(&Behaviour::ALL))
        } else {
            Self::Middle(random.of(&Connection::ALL), random.of(&SPOILS))
        }
    }
}

fn name(spoil: Spoil) -> &'static str {
    match spoil {
        Spoil::Flip => "bits flipped",
        Spoil::Drop => "segments dropped",
        Spoil::Repeat => "segments repeated",
        Spoil::Swap => "segments swapped",
        Spoil::Delay => "segments late",
    }
}
