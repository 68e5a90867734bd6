//! Teams: subsets of a world's PEs, and their collective calls.

use crate::element::{WB_F32, WB_F64, WB_I8, WB_I16, WB_I32, WB_I64, WB_U8, WB_U16, WB_U32, WB_U64};
use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::pointer::{In, Out, Owned};
use crate::stream::wb_stream_t;
use crate::symmetric::{part, share, wb_symmetric_t};
use crate::world::{WB_NO_MEMBER, wb_world_t};
use crate::world_error::{number, of_world};
use std::ptr;
use warpbell::engine::Stream;
use warpbell::engine::abi::TeamView as wb_team_view;
use warpbell::shmem::calls::{And, Max, Min, Or, Prod, Reducible, ReducibleInteger, Reduction, Sum, Xor};
use warpbell::shmem::{Sym, SymSlice, Team};

/// A subset of a world's PEs with numbers of its own. All members make the same collective calls, in the same order and with the
/// same arguments. The last release ends the team on this PE.
pub struct wb_team_t {
    _private: (),
}

object!(wb_team_t: Team, "team");

/// Sum; integers wrap.
pub const WB_REDUCE_SUM: u32 = 0;
/// Product; integers wrap.
pub const WB_REDUCE_PROD: u32 = 1;
/// Minimum.
pub const WB_REDUCE_MIN: u32 = 2;
/// Maximum.
pub const WB_REDUCE_MAX: u32 = 3;
/// Bitwise and; integers only.
pub const WB_REDUCE_AND: u32 = 4;
/// Bitwise or; integers only.
pub const WB_REDUCE_OR: u32 = 5;
/// Bitwise exclusive or; integers only.
pub const WB_REDUCE_XOR: u32 = 6;

/// Returns the team of all PEs.
///
/// @param team Receives the team, with one reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_world(world: In<wb_world_t>, team: Out<*mut wb_team_t>) -> wb_code {
    guard(|| team.give(world.get()?.team_world()))
}

/// Creates the team of the PEs on this PE's host. Collective over the world.
///
/// @param team Receives the team, with one reference.
/// @return `WB_OK`; `WB_ERR_UNSUPPORTED` if the PEs of a host are not equally spaced; `WB_ERR_SPACE` if a PE is in too many teams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_node(world: In<wb_world_t>, team: Out<*mut wb_team_t>) -> wb_code {
    guard(|| {
        team.check("team")?;
        let world = world.get()?;
        let made = of_world(world, world.team_node())?;
        team.give(made)
    })
}

/// Creates a team of members of a team: `start`, `start + stride`, and so on. Collective over the team.
///
/// @param start First member.
/// @param stride Distance between members, at least 1.
/// @param size Number of members, at least 1.
/// @param made Receives the new team; null on PEs that are not in it.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the last member is not in the team; `WB_ERR_WORLD` if the members give different
///   arguments; `WB_ERR_SPACE` if a PE is in too many teams.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_split_strided(
    team: In<wb_team_t>,
    start: u32,
    stride: u32,
    size: u32,
    made: Out<*mut wb_team_t>,
) -> wb_code {
    guard(|| {
        made.check("made")?;
        let team = team.get()?;
        match of_world(team.world(), team.split_strided(number(start), number(stride), number(size)))? {
            Some(new) => made.give(new),
            None => made.write("made", ptr::null_mut()),
        }
    })
}

/// Lays the members of a team out in rows, and creates the teams of this member's row and column. Collective over the team.
///
/// @param width Members of a row, at least 1. The last row may be shorter.
/// @param row Receives the team of the row.
/// @param column Receives the team of the column.
/// @return As of `wb_team_split_strided`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_split_2d(
    team: In<wb_team_t>,
    width: u32,
    row: Out<*mut wb_team_t>,
    column: Out<*mut wb_team_t>,
) -> wb_code {
    guard(|| {
        row.check("row")?;
        column.check("column")?;
        let team = team.get()?;
        let (in_row, in_column) = of_world(team.world(), team.split_2d(number(width)))?;
        {
            row.give(in_row)?;
            column.give(in_column)
        }
    })
}

/// Adds a reference to a team.
///
/// @return The team; null with an error if it is no team.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_retain(team: Owned<wb_team_t>) -> *mut wb_team_t {
    team.retain()
}

/// Gives a reference to a team back. Not collective.
///
/// @param team The team; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_release(team: Owned<wb_team_t>) {
    team.release()
}

/// Returns the number of this PE in a team, from 0.
///
/// @param pe Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_my_pe(team: In<wb_team_t>, pe: Out<u32>) -> wb_code {
    guard(|| pe.write("pe", team.get()?.my_pe() as u32))
}

/// Returns the number of members.
///
/// @param count Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_n_pes(team: In<wb_team_t>, count: Out<u32>) -> wb_code {
    guard(|| count.write("count", team.get()?.n_pes() as u32))
}

/// Returns the number that a member of a team has in another one.
///
/// @param member Number of the member in `team`.
/// @param other The other team of the same world; null for the world.
/// @param pe Receives the number; `WB_NO_MEMBER` if the PE is not in the other team, or there is no such member.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_translate(
    team: In<wb_team_t>,
    member: u32,
    other: In<wb_team_t>,
    pe: Out<u32>,
) -> wb_code {
    guard(|| {
        let (team, other) = (team.get()?, other.optional()?);
        let found = match other {
            Some(other) => team.translate_pe(number(member), other),
            None => team.world_pe(number(member)),
        };
        pe.write("pe", found.map_or(WB_NO_MEMBER, |pe| pe as u32))
    })
}

/// Returns the structure that kernels take as the team: `warpbell::team_ref` is made from it.
///
/// @param view Receives the structure. It is valid while the program holds a reference and until kernels with it have ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_get_view(team: In<wb_team_t>, view: Out<wb_team_view>) -> wb_code {
    guard(|| view.write("view", team.get()?.view()))
}

/// Runs a kernel in which all members meet. Afterwards all earlier puts of the members have arrived. Collective.
///
/// @param stream Null: the call returns when all have met. Otherwise the kernel runs behind the work of the stream.
/// @return As of `wb_world_barrier_all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_barrier(team: In<wb_team_t>, stream: In<wb_stream_t>) -> wb_code {
    guard(|| {
        let (team, stream) = (team.get()?, stream.optional()?);
        of_world(team.world(), stream.map_or_else(|| team.barrier(), |on| team.barrier_on(on)))
    })
}

/// Runs a kernel in which all members meet. Afterwards each member can get what the others wrote to their own memory before.
/// Collective.
///
/// @param stream As of `wb_team_barrier`.
/// @return As of `wb_world_barrier_all`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_sync(team: In<wb_team_t>, stream: In<wb_stream_t>) -> wb_code {
    guard(|| {
        let (team, stream) = (team.get()?, stream.optional()?);
        of_world(team.world(), stream.map_or_else(|| team.sync(), |on| team.sync_on(on)))
    })
}

/// The arguments that all collective calls with data have.
struct Call<'a> {
    team: &'a Team,
    dest: Sym<u8>,
    source: Sym<u8>,
    stream: Option<&'a Stream>,
}

impl Call<'_> {
    fn new<'a>(
        team: &'a In<wb_team_t>,
        dest: In<wb_symmetric_t>,
        source: In<wb_symmetric_t>,
        stream: &'a In<wb_stream_t>,
    ) -> Result<Call<'a>, Error> {
        Ok(Call { team: team.get()?, dest: share(dest)?, source: share(source)?, stream: stream.optional()? })
    }

    /// Returns the bytes of a part for each member, or an error for numbers that no memory has.
    fn all(&self, bytes: usize) -> Result<usize, Error> {
        let members = self.team.n_pes();
        bytes.checked_mul(members).ok_or_else(|| {
            Error::argument(format!("{bytes} bytes from each of {members} members are more than any heap has"))
        })
    }

    fn reduce<T: Reducible>(&self, op: u32, dest: usize, source: usize, count: usize) -> Result<(), Error> {
        let (dest, source) = self.parts::<T>(dest, source, count)?;
        match op {
            WB_REDUCE_SUM => self.reduce_by(Sum, dest, source),
            WB_REDUCE_PROD => self.reduce_by(Prod, dest, source),
            WB_REDUCE_MIN => self.reduce_by(Min, dest, source),
            WB_REDUCE_MAX => self.reduce_by(Max, dest, source),
            WB_REDUCE_AND..=WB_REDUCE_XOR => {
                Err(Error::argument(format!("the reduction {op} is for integers, and `dtype` is floating point")))
            }
            _ => Err(Error::argument(format!("`op` is {op}; use WB_REDUCE_SUM to WB_REDUCE_XOR"))),
        }
    }

    fn reduce_integers<T: ReducibleInteger>(
        &self,
        op: u32,
        dest: usize,
        source: usize,
        count: usize,
    ) -> Result<(), Error> {
        let (to, from) = self.parts::<T>(dest, source, count)?;
        match op {
            WB_REDUCE_AND => self.reduce_by(And, to, from),
            WB_REDUCE_OR => self.reduce_by(Or, to, from),
            WB_REDUCE_XOR => self.reduce_by(Xor, to, from),
            _ => self.reduce::<T>(op, dest, source, count),
        }
    }

    fn parts<T: Reducible>(
        &self,
        dest: usize,
        source: usize,
        count: usize,
    ) -> Result<(SymSlice<'_, T>, SymSlice<'_, T>), Error> {
        let bytes = count.saturating_mul(size_of::<T>());
        Ok((part(&self.dest, dest, bytes)?, part(&self.source, source, bytes)?))
    }

    fn reduce_by<T: Reducible>(
        &self,
        how: impl Reduction<T>,
        dest: SymSlice<'_, T>,
        source: SymSlice<'_, T>,
    ) -> Result<(), Error> {
        let done = match self.stream {
            None => self.team.reduce(how, dest, source),
            Some(on) => self.team.reduce_on(on, how, dest, source),
        };
        of_world(self.team.world(), done)
    }
}

/// Copies memory of one member to all. Collective.
///
/// No PE may still read or write the destination on any member: a barrier before ensures this.
///
/// @param dest Destination; may be the source.
/// @param dest_offset Its first byte.
/// @param source Source.
/// @param source_offset Its first byte.
/// @param bytes Number of bytes.
/// @param root Number of the member whose source is copied.
/// @param stream Null: the call is complete on return. Otherwise it runs behind the work of the stream.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if a range lies outside its memory, the ranges overlap in part, or there is no such member;
///   `WB_ERR_OPERATION` if a member does not come before the engine's deadline; `WB_ERR_WORLD` if a rank is lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_broadcast(
    team: In<wb_team_t>,
    dest: In<wb_symmetric_t>,
    dest_offset: usize,
    source: In<wb_symmetric_t>,
    source_offset: usize,
    bytes: usize,
    root: u32,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| {
        let call = Call::new(&team, dest, source, &stream)?;
        let (to, from) = (part::<u8>(&call.dest, dest_offset, bytes)?, part(&call.source, source_offset, bytes)?);
        let done = match call.stream {
            None => call.team.broadcast(to, from, number(root)),
            Some(on) => call.team.broadcast_on(on, to, from, number(root)),
        };
        of_world(call.team.world(), done)
    })
}

/// Concatenates memory of all members, in their order, on every member (all-gather). Collective.
///
/// @param dest Destination: space for `bytes` bytes of each member.
/// @param dest_offset Its first byte.
/// @param source Source; may be this member's place in the destination.
/// @param source_offset Its first byte.
/// @param bytes Number of bytes of each member.
/// @param stream Null: the call is complete on return. Otherwise it runs behind the work of the stream.
/// @return As of `wb_team_broadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_fcollect(
    team: In<wb_team_t>,
    dest: In<wb_symmetric_t>,
    dest_offset: usize,
    source: In<wb_symmetric_t>,
    source_offset: usize,
    bytes: usize,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| {
        let call = Call::new(&team, dest, source, &stream)?;
        let to = part::<u8>(&call.dest, dest_offset, call.all(bytes)?)?;
        let from = part(&call.source, source_offset, bytes)?;
        let done = match call.stream {
            None => call.team.fcollect(to, from),
            Some(on) => call.team.fcollect_on(on, to, from),
        };
        of_world(call.team.world(), done)
    })
}

/// Copies this member's part of each member's memory to that member's part of the destination. Collective.
///
/// @param dest Destination: a part of `bytes` bytes for each member.
/// @param dest_offset Its first byte.
/// @param source Source: a part of `bytes` bytes for each member; apart from the destination.
/// @param source_offset Its first byte.
/// @param bytes Number of bytes of a part.
/// @param stream Null: the call is complete on return. Otherwise it runs behind the work of the stream.
/// @return As of `wb_team_broadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_alltoall(
    team: In<wb_team_t>,
    dest: In<wb_symmetric_t>,
    dest_offset: usize,
    source: In<wb_symmetric_t>,
    source_offset: usize,
    bytes: usize,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| {
        let call = Call::new(&team, dest, source, &stream)?;
        let all = call.all(bytes)?;
        let (to, from) = (part::<u8>(&call.dest, dest_offset, all)?, part(&call.source, source_offset, all)?);
        let done = match call.stream {
            None => call.team.alltoall(to, from),
            Some(on) => call.team.alltoall_on(on, to, from),
        };
        of_world(call.team.world(), done)
    })
}

/// Combines memory of all members, element by element, on every member. Collective. Floating-point results have the same bits
/// on every PE.
///
/// @param op One of `WB_REDUCE_SUM` to `WB_REDUCE_XOR`.
/// @param dtype Type of the elements: `WB_U8` to `WB_F64`.
/// @param dest Destination; may be the source.
/// @param dest_offset Its first byte, a multiple of the element's size.
/// @param source Source.
/// @param source_offset Its first byte, a multiple of the element's size.
/// @param count Number of elements.
/// @param stream Null: the call is complete on return. Otherwise it runs behind the work of the stream.
/// @return As of `wb_team_broadcast`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_team_reduce(
    team: In<wb_team_t>,
    op: u32,
    dtype: u32,
    dest: In<wb_symmetric_t>,
    dest_offset: usize,
    source: In<wb_symmetric_t>,
    source_offset: usize,
    count: usize,
    stream: In<wb_stream_t>,
) -> wb_code {
    guard(|| {
        let call = Call::new(&team, dest, source, &stream)?;
        let (to, from) = (dest_offset, source_offset);
        match dtype {
            WB_U8 => call.reduce_integers::<u8>(op, to, from, count),
            WB_U16 => call.reduce_integers::<u16>(op, to, from, count),
            WB_U32 => call.reduce_integers::<u32>(op, to, from, count),
            WB_U64 => call.reduce_integers::<u64>(op, to, from, count),
            WB_I8 => call.reduce_integers::<i8>(op, to, from, count),
            WB_I16 => call.reduce_integers::<i16>(op, to, from, count),
            WB_I32 => call.reduce_integers::<i32>(op, to, from, count),
            WB_I64 => call.reduce_integers::<i64>(op, to, from, count),
            WB_F32 => call.reduce::<f32>(op, to, from, count),
            WB_F64 => call.reduce::<f64>(op, to, from, count),
            other => Err(Error::argument(format!("`dtype` is {other}; use WB_U8 to WB_F64"))),
        }
    })
}
