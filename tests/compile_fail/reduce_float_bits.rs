use warpbell::shmem::calls::And;
use warpbell::shmem::{Sym, Team};

fn main() {}

pub fn reduce(team: &Team, bits: &Sym<f32>) {
    team.reduce(And, bits, bits).unwrap();
}
