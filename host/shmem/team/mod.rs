//! Teams: some of a world's PEs, numbered anew (OpenSHMEM 1.5, 9.4).

mod split;

use super::{ShmemError, World};
use crate::engine::{Args, KernelArg, abi};
use std::fmt;
use std::sync::Arc;

/// Some PEs of a world. Kernels get it as `team_ref` of `shmem.cuh`.
///
/// Its collective calls are made by every member, in the same order and with the same arguments. Dropping it ends it on this PE; a
/// member that still calls then waits for this PE in vain.
pub struct Team {
    team: abi::Team,
    slot: Arc<Slot>,
}

/// The words of a team; those of the team of all stay taken. Given back when the last share is dropped: kernels in flight have some.
struct Slot {
    world: World,
    index: usize,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.index != 0 {
            self.world.teams().give_back(self.index);
        }
    }
}

impl World {
    /// The team of all PEs.
    pub fn team_world(&self) -> Team {
        Team::new(self, self.teams().of_all(), 0)
    }

    /// The PEs of this PE's host, in their order. Collective over the world.
    pub fn team_node(&self) -> Result<Team, ShmemError> {
        let all = self.hosts();
        // Each PE looks at every host, so that all fail if one does.
        let mut mine = None;
        for first in (0..all.len()).filter(|i| !all[..*i].contains(&all[*i])) {
            let pes: Vec<usize> = (first..all.len()).filter(|i| all[*i] == all[first]).collect();
            let stride = pes.get(1).map_or(1, |second| second - first);
            if pes.iter().enumerate().any(|(i, pe)| *pe != first + i * stride) {
                return Err(ShmemError::ScatteredNode { host: all[first].name.clone(), pes });
            }
            if pes.contains(&self.my_pe()) {
                mine = Some((first, stride, pes.len()));
            }
        }
        let own = mine.unwrap_or((self.my_pe(), 1, 1));
        self.team_world().make(own)
    }
}

impl Team {
    fn new(world: &World, team: abi::Team, index: usize) -> Self {
        Self { team, slot: Arc::new(Slot { world: world.clone(), index }) }
    }

    /// The world that it is in.
    pub fn world(&self) -> &World {
        &self.slot.world
    }

    /// This PE's number in it, from 0.
    pub fn my_pe(&self) -> usize {
        self.team.pe as usize
    }

    /// How many PEs it has.
    pub fn n_pes(&self) -> usize {
        self.team.size as usize
    }

    /// A member's number in the world; `None` if there is no such member.
    pub fn world_pe(&self, member: usize) -> Option<usize> {
        (member < self.n_pes()).then(|| (self.team.start + member as u32 * self.team.stride) as usize)
    }

    /// A member's number in another team; `None` if it is not in it, or there is no such member (`shmem_team_translate_pe`).
    pub fn translate_pe(&self, member: usize, other: &Team) -> Option<usize> {
        let (start, stride) = (other.team.start as usize, other.team.stride as usize);
        let from = self.world_pe(member)?.checked_sub(start)?;
        (from.is_multiple_of(stride) && from / stride < other.n_pes()).then_some(from / stride)
    }

    /// Members `start`, `start + stride`, ..., `size` of them, as a team of their own; `None` on the others. Collective over this
    /// team (`shmem_team_split_strided`).
    pub fn split_strided(&self, start: usize, stride: usize, size: usize) -> Result<Option<Team>, ShmemError> {
        self.split((start, stride, size))
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.team;
        write!(f, "Team(PE {} of {}, world PEs {} + {} i)", t.pe, t.size, t.start, t.stride)
    }
}

impl KernelArg for Team {
    fn push(&self, args: &mut Args) {
        args.push_value(abi::TeamView { world: self.world().view(), team: self.team });
        args.keep(self.slot.clone());
    }
}
