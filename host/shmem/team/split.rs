//! Splitting of teams. The members exchange the team that they want and the slots that are free on them. They then take
//! the first slot that is free on all members.

use super::{ShmemError, Team};
use crate::args;
use crate::engine::abi;
use crate::shmem::team_slots::NOTE_WORDS;
use bytemuck::Zeroable;

/// First member, distance between members, and number of members.
type Strided = (usize, usize, usize);

/// The data that a member sends to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    /// Bit i is set if slot i is free.
    free: u64,
    wanted: Strided,
}

impl Team {
    /// Makes one team; all members of this team want the same one.
    pub(super) fn split(&self, wanted: Strided) -> Result<Option<Team>, ShmemError> {
        let notes = self.tell(wanted)?;
        self.check_equal("split_strided", &notes, |_| notes[0].wanted)?;
        let (start, stride, size) = wanted;
        let pes = self.n_pes();
        let last = size.checked_sub(1).and_then(|n| n.checked_mul(stride)).and_then(|n| n.checked_add(start));
        if stride == 0 || last.is_none_or(|last| last >= pes) {
            return Err(ShmemError::NoTeam { start, stride, size, pes });
        }
        let is_member = self.my_pe() >= start && (self.my_pe() - start).is_multiple_of(stride);
        let is_member = is_member && (self.my_pe() - start) / stride < size;
        self.take(wanted, is_member, &notes)
    }

    /// Makes several teams at once: `team_of` returns the one that a member will be in. No two of them share a PE.
    pub(super) fn make(&self, call: &str, team_of: impl Fn(usize) -> Strided) -> Result<Team, ShmemError> {
        let own = team_of(self.my_pe());
        let notes = self.tell(own)?;
        self.check_equal(call, &notes, &team_of)?;
        let (start, stride, size) = own;
        let none = ShmemError::NoTeam { start, stride, size, pes: self.n_pes() };
        if size == 0 {
            return Err(none);
        }
        self.take(own, true, &notes)?.ok_or(none)
    }

    /// Checks that the members want the teams that this member expects of them.
    fn check_equal(&self, call: &str, notes: &[Note], expected: impl Fn(usize) -> Strided) -> Result<(), ShmemError> {
        if notes.iter().enumerate().all(|(i, n)| n.wanted == expected(i)) {
            return Ok(());
        }
        let text =
            |(start, stride, size): Strided| format!("requested {size} PEs from PE {start} with stride {stride}");
        let failures = notes.iter().enumerate();
        let failures = failures.map(|(i, n)| (self.world_pe(i).unwrap_or_default(), text(n.wanted))).collect();
        Err(ShmemError::OnRanks { what: call.to_owned(), failures })
    }

    /// Exchanges notes and returns those of all members, in order.
    fn tell(&self, wanted: Strided) -> Result<Vec<Note>, ShmemError> {
        const BYTES: usize = NOTE_WORDS * size_of::<u64>();
        let (world, me) = (self.world(), self.my_pe());
        let words: [u64; NOTE_WORDS] = [world.teams().free(), wanted.0 as u64, wanted.1 as u64, wanted.2 as u64];
        let at = world.teams().notes(self.slot.index);
        world.heap().write(world.my_pe(), at + me * BYTES, bytemuck::cast_slice(&words))?;
        let address = world.heap().address() + at as u64;
        let bytes = BYTES as u64;
        let args = args!(self, abi::CALL_FCOLLECT, address, bytes, address + (me * BYTES) as u64, 0u64, bytes);
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { world.call(None, "wb_shmem_exchange", world.small_grid(), args) }?;
        let mut all = vec![0u64; self.n_pes() * NOTE_WORDS];
        world.heap().read(world.my_pe(), at, bytemuck::cast_slice_mut(&mut all))?;
        let note = |w: &[u64]| Note { free: w[0], wanted: (w[1] as usize, w[2] as usize, w[3] as usize) };
        Ok(all.chunks_exact(NOTE_WORDS).map(note).collect())
    }

    fn take(
        &self,
        (start, stride, size): Strided,
        is_member: bool,
        notes: &[Note],
    ) -> Result<Option<Team>, ShmemError> {
        let teams = self.world().teams();
        let free = notes.iter().fold(u64::MAX, |free, n| free & n.free);
        if free == 0 {
            return Err(ShmemError::TeamLimit { limit: teams.limit() });
        }
        let slot = free.trailing_zeros() as usize;
        let mut made = Ok(None);
        if is_member {
            let room = teams.take(slot);
            let team = abi::Team {
                pe: ((self.my_pe() - start) / stride) as u32,
                size: size as u32,
                start: self.team.start + start as u32 * self.team.stride,
                stride: self.team.stride * stride as u32,
                ..abi::Team::zeroed()
            };
            let team = Team::new(self.world(), teams.in_slot(slot, team), slot);
            let ready = self.world().heap().clear(room.start, room.len()).and_then(|()| teams.reset(slot));
            made = ready.map(|()| Some(team));
        }
        // No member uses the slot before its words are zero on all members.
        let met = self.barrier();
        let team = made?;
        met.map(|()| team)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shmem::World;
    use crate::shmem::testing::on_all;

    #[test]
    fn strided_splits_number_their_members() {
        on_all(6, |world| {
            let all = world.team_world();
            let odd = all.split_strided(1, 2, 3).unwrap();
            assert_eq!(odd.is_some(), world.my_pe() % 2 == 1);
            let Some(odd) = odd else { return };
            assert_eq!((odd.n_pes(), odd.my_pe()), (3, world.my_pe() / 2));
            assert_eq!(odd.world_pe(2), Some(5));
            assert_eq!(odd.translate_pe(1, &all), Some(3));
            assert_eq!(
                (all.translate_pe(5, &odd), all.translate_pe(4, &odd), all.translate_pe(6, &odd)),
                (Some(2), None, None)
            );
            // A team of a team: its members 1 and 2 are PEs 3 and 5 of the world.
            let last = odd.split_strided(1, 1, 2).unwrap();
            assert_eq!(last.is_some(), world.my_pe() > 1);
            if let Some(last) = last {
                assert_eq!(last.world_pe(last.my_pe()), Some(world.my_pe()));
                assert_eq!(last.translate_pe(0, &all), Some(3));
                last.barrier().unwrap();
            }
        });
    }

    #[test]
    fn a_slot_is_used_again_when_its_team_is_gone() {
        on_all(2, |world| {
            let all = world.team_world();
            for _ in 0..2 * abi::MAX_TEAMS {
                let team = all.split_strided(0, 1, 2).unwrap().unwrap();
                team.barrier().unwrap();
                assert_eq!(team.slot.index, 1);
            }
        });
    }

    #[test]
    fn too_many_teams_are_an_error_everywhere() {
        on_all(3, |world: &World| {
            let all = world.team_world();
            let limit = world.teams().limit();
            assert!(limit > 2);
            // Two of three PEs use up their slots; the third must learn of it too.
            let kept: Vec<_> = (1..limit).map(|_| all.split_strided(0, 1, 2).unwrap()).collect();
            let e = all.split_strided(1, 1, 2).unwrap_err();
            assert!(matches!(e, ShmemError::TeamLimit { limit: l } if l == limit), "{e}");
            drop(kept);
            assert!(all.split_strided(0, 1, 3).unwrap().is_some());
        });
    }

    #[test]
    fn wrong_splits_are_errors_everywhere() {
        on_all(3, |world| {
            let all = world.team_world();
            for (start, stride, size) in [(0, 1, 4), (1, 2, 2), (0, 0, 2), (3, 1, 1), (0, 1, 0), (0, usize::MAX, 3)] {
                let e = all.split_strided(start, stride, size).unwrap_err();
                assert!(matches!(e, ShmemError::NoTeam { .. }), "{e}");
            }
            let e = all.split_strided(0, 1, 1 + world.my_pe()).unwrap_err().to_string();
            assert!(e.contains("requested 1 PEs") && e.contains("requested 3 PEs"), "{e}");
        });
    }

    #[test]
    fn rows_and_columns_are_teams() {
        on_all(5, |world| {
            let (all, me) = (world.team_world(), world.my_pe());
            // 0 1 2
            // 3 4
            let (row, column) = all.split_2d(3).unwrap();
            assert_eq!((row.my_pe(), row.n_pes()), (me % 3, if me < 3 { 3 } else { 2 }));
            assert_eq!((column.my_pe(), column.n_pes()), (me / 3, if me % 3 < 2 { 2 } else { 1 }));
            assert_eq!((row.world_pe(0), column.world_pe(0)), (Some(me / 3 * 3), Some(me % 3)));
            row.barrier().unwrap();
            column.barrier().unwrap();
            let (row, column) = all.split_2d(usize::MAX).unwrap();
            assert_eq!((row.n_pes(), column.n_pes()), (5, 1));
            let e = all.split_2d(0).unwrap_err();
            assert!(matches!(e, ShmemError::NoTeam { size: 0, .. }), "{e}");
            let e = all.split_2d(2 + usize::from(me == 4)).unwrap_err().to_string();
            assert!(e.contains("split_2d failed") && e.contains("requested 2 PEs from PE 3 with stride 1"), "{e}");
        });
    }

    #[test]
    fn the_pes_of_one_host_are_its_team() {
        on_all(3, |world| {
            let node = world.team_node().unwrap();
            assert_eq!((node.n_pes(), node.my_pe()), (3, world.my_pe()));
            node.barrier().unwrap();
        });
    }
}
