use warpbell::engine::Stream;
use warpbell::shmem::calls::Sum;
use warpbell::shmem::{Sym, Team};

fn main() {}

pub fn reduce<'a>(stream: &Stream<'a>, team: &'a Team, total: Sym<f64>, mine: &'a Sym<f64>) {
    team.reduce_on(stream, Sum, &total, mine).unwrap();
    drop(total);
}
