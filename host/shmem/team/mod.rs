//! Teams: some of a world's PEs, numbered anew (OpenSHMEM 1.5, 9.4).

mod areas;
mod slots;

pub(super) use areas::Areas;
pub(super) use slots::Teams;
