//! Teams: subsets of a world's PEs with their own numbering (OpenSHMEM 1.5, 9.4).

mod split;

use super::{ShmemError, World};
use crate::engine::{Args, KernelArg, abi};
use std::fmt;
use std::sync::Arc;

/// A subset of a world's PEs. Kernels get it as `team_ref` of `shmem.cuh`.
///
/// Every member makes the same collective calls, in the same order and with the same arguments. Dropping the team ends
/// it on this PE. A member that still makes a collective call then waits in vain for this PE.
///
/// # Examples
///
/// ```
/// use warpbell::shmem::World;
///
/// # fn on_each(worlds: Vec<World>, work: fn(&World) -> Result<(), Failure>) -> Result<(), Failure> {
/// #     let pes: Vec<_> = worlds.into_iter().map(|world| std::thread::spawn(move || work(&world))).collect();
/// #     pes.into_iter().try_for_each(|pe| pe.join().expect("no panic"))
/// # }
/// # type Failure = Box<dyn std::error::Error + Send + Sync>;
/// // Two PEs with CPU engines; a closure runs for each PE, in a thread of its own.
/// on_each(World::local(2)?, |world| {
///     // A team of every second PE: PE 0 alone, here.
///     let even = world.team_world().split_strided(0, 2, 1)?;
///     assert_eq!(even.is_some(), world.my_pe() == 0);
///     if let Some(team) = even {
///         assert_eq!((team.my_pe(), team.n_pes()), (0, 1));
///     }
///     Ok(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Team {
    team: abi::Team,
    slot: Arc<Slot>,
}

/// The slot of a team in the heap. The last owner frees the slot; kernels in flight are owners too. Slot 0, for the
/// team of all PEs, stays in use.
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
    /// Returns the team of all PEs.
    pub fn team_world(&self) -> Team {
        Team::new(self, self.teams().of_all(), 0)
    }

    /// Creates the team of the PEs on this PE's host, in the order of their numbers. Collective over the world.
    ///
    /// # Errors
    /// - [`ShmemError::ScatteredNode`] if the PEs of a host are not equally spaced.
    /// - [`ShmemError::TeamLimit`] if no team slot is free on all PEs.
    /// - [`ShmemError::Engine`], [`ShmemError::Run`], [`ShmemError::Network`] or [`ShmemError::Memory`] if the exchange
    ///   between the PEs fails.
    pub fn team_node(&self) -> Result<Team, ShmemError> {
        let all = self.hosts();
        // Each PE checks every host, so that all PEs fail if one fails.
        let mut own = vec![(0, 1, 0); all.len()];
        for first in (0..all.len()).filter(|i| !all[..*i].contains(&all[*i])) {
            let pes: Vec<usize> = (first..all.len()).filter(|i| all[*i] == all[first]).collect();
            let stride = pes.get(1).map_or(1, |second| second - first);
            if pes.iter().enumerate().any(|(i, pe)| *pe != first + i * stride) {
                return Err(ShmemError::ScatteredNode { host: all[first].name.clone(), pes });
            }
            pes.iter().for_each(|pe| own[*pe] = (first, stride, pes.len()));
        }
        self.team_world().make("team_node", |pe| own[pe])
    }
}

impl Team {
    fn new(world: &World, team: abi::Team, index: usize) -> Self {
        Self { team, slot: Arc::new(Slot { world: world.clone(), index }) }
    }

    /// Returns the world of the team.
    pub fn world(&self) -> &World {
        &self.slot.world
    }

    /// Returns the `wb_team_view`, the form in which kernels get the team: `team_ref` of `shmem.cuh` is made from it.
    ///
    /// The view holds addresses of memory that the team owns. It stays valid while the team lives; kernels that
    /// use it must have ended before the team is dropped. A run ensures that for a launch with the team among its
    /// arguments, and for [`Run::keep`](crate::engine::Run::keep). The values are for kernels of this process and of
    /// the world's engine.
    pub fn view(&self) -> abi::TeamView {
        abi::TeamView { world: self.world().view(), team: self.team }
    }

    /// Returns this PE's number in the team, from 0.
    pub fn my_pe(&self) -> usize {
        self.team.pe as usize
    }

    /// Returns the number of PEs in the team.
    pub fn n_pes(&self) -> usize {
        self.team.size as usize
    }

    /// Returns the world number of member `member`, or `None` if there is no such member.
    pub fn world_pe(&self, member: usize) -> Option<usize> {
        (member < self.n_pes()).then(|| (self.team.start + member as u32 * self.team.stride) as usize)
    }

    /// Returns the number of member `member` in team `other` (`shmem_team_translate_pe`). Returns `None` if the PE is
    /// not in `other`, or there is no such member.
    pub fn translate_pe(&self, member: usize, other: &Team) -> Option<usize> {
        let (start, stride) = (other.team.start as usize, other.team.stride as usize);
        let from = self.world_pe(member)?.checked_sub(start)?;
        (from.is_multiple_of(stride) && from / stride < other.n_pes()).then_some(from / stride)
    }

    /// Creates a team of `size` members of this team: `start`, `start + stride`, and so on. Returns `None` on the other
    /// members. Collective over this team (`shmem_team_split_strided`).
    ///
    /// # Errors
    /// - [`ShmemError::NoTeam`] if `size` or `stride` is 0, or the last PE is not a member of this team.
    /// - [`ShmemError::OnRanks`] if the members give different arguments.
    /// - [`ShmemError::TeamLimit`] if no team slot is free on all members.
    /// - [`ShmemError::Engine`], [`ShmemError::Run`], [`ShmemError::Network`] or [`ShmemError::Memory`] if the exchange
    ///   between the members fails.
    pub fn split_strided(&self, start: usize, stride: usize, size: usize) -> Result<Option<Team>, ShmemError> {
        self.split((start, stride, size))
    }

    /// Lays the members out in rows of `width`, and returns the team of this member's row and that of its column.
    /// Collective over this team (`shmem_team_split_2d`).
    ///
    /// The last row may be shorter. A `width` of more than the number of members makes one row.
    ///
    /// # Errors
    /// - [`ShmemError::NoTeam`] if `width` is 0.
    /// - [`ShmemError::OnRanks`] if the members give different widths.
    /// - [`ShmemError::TeamLimit`] if no two team slots are free on all members.
    /// - [`ShmemError::Engine`], [`ShmemError::Run`], [`ShmemError::Network`] or [`ShmemError::Memory`] if the exchange
    ///   between the members fails.
    pub fn split_2d(&self, width: usize) -> Result<(Team, Team), ShmemError> {
        let pes = self.n_pes();
        // A width of 0 still takes part in the exchange, so that it is an error on all members.
        let width = width.min(pes);
        let row = move |pe: usize| match pe.checked_div(width) {
            Some(y) => (y * width, 1, width.min(pes - y * width)),
            None => (0, 1, 0),
        };
        let column = move |pe: usize| match pe.checked_rem(width) {
            Some(x) => (x, width, (pes - x).div_ceil(width)),
            None => (0, 1, 0),
        };
        Ok((self.make("split_2d", row)?, self.make("split_2d", column)?))
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
        args.push_value(self.view());
        args.keep(self.slot.clone());
    }
}
