//! Commands of one queue pair without response, by their identifiers on the wire. Independent of the transport.
//!
//! An identifier is a slot and a generation, so that the response to a command that is gone matches no later command.

use super::driver_memory::{DriverMemory, Scratch};
use crate::wire::nvme::{CqEntry, SqEntry, Status, fabrics, status};

/// Bits of a command identifier that are the slot.
const SLOT_BITS: u32 = 12;
/// Largest number of commands without response on one queue.
pub(crate) const MOST: usize = (1 << SLOT_BITS) - 1;

/// Direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    None,
    /// To the host.
    In,
    /// To the controller.
    Out,
}

/// Place of a command's data.
#[derive(Debug)]
pub(crate) enum Place {
    /// The pages that the command names.
    Prps,
    /// A buffer.
    Owned(Vec<u8>),
}

/// A command without response.
#[derive(Debug)]
pub(crate) struct Command {
    /// The command, with the identifier that the driver chose.
    pub(crate) entry: SqEntry,
    pub(crate) direction: Direction,
    pub(crate) bytes: u32,
    pub(crate) place: Place,
    /// Bytes received, or requested by the controller.
    moved: u32,
    /// Status that the command gets, whatever the controller says.
    failed: Option<Status>,
}

impl Command {
    /// Returns a command that moves no data.
    pub(crate) fn plain(entry: SqEntry) -> Self {
        Self::new(entry, Direction::None, 0, Place::Owned(Vec::new()))
    }

    /// Returns true for commands of the driver. Those of this host's own have buffers.
    pub(crate) fn is_the_drivers(&self) -> bool {
        matches!(self.place, Place::Prps)
    }

    pub(crate) fn new(entry: SqEntry, direction: Direction, bytes: u32, place: Place) -> Self {
        Self { entry, direction, bytes, place, moved: 0, failed: None }
    }

    /// Returns a command whose data goes to a buffer of `bytes` bytes.
    pub(crate) fn read(entry: SqEntry, bytes: u32) -> Self {
        Self::new(entry, Direction::In, bytes, Place::Owned(vec![0; bytes as usize]))
    }

    /// Returns a command that sends a buffer.
    pub(crate) fn write(entry: SqEntry, data: Vec<u8>) -> Self {
        Self::new(entry, Direction::Out, data.len() as u32, Place::Owned(data))
    }

    /// Returns the entry as a capsule carries it, without SGL.
    pub(crate) fn capsule(&self, cid: u16) -> SqEntry {
        SqEntry {
            cdw0: u32::from(self.entry.opcode()) | fabrics::SGL_IN_USE | u32::from(cid) << 16,
            mptr: 0,
            prp1: 0,
            prp2: 0,
            ..self.entry
        }
    }
}

/// A command with its response.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Identifier on the wire.
    pub(crate) cid: u16,
    pub(crate) command: Command,
    pub(crate) status: Status,
    pub(crate) result: u64,
}

/// A violation of the protocol, as text.
pub(crate) type Violation = String;

struct Slot {
    generation: u8,
    command: Option<Command>,
}

/// The commands of one queue pair without response.
pub(crate) struct Commands {
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Number of entries of the queue: a response names a head below it.
    entries: u32,
    finished: Vec<Finished>,
    scratch: Scratch,
}

impl Commands {
    /// Creates an empty table for a queue of `entries` entries. At most `outstanding` commands wait for a response.
    pub(crate) fn new(entries: u32, outstanding: u32) -> Self {
        let most = (outstanding as usize).clamp(1, MOST).min(entries.saturating_sub(1).max(1) as usize);
        Self {
            slots: (0..most).map(|_| Slot { generation: 0, command: None }).collect(),
            free: (0..most as u16).rev().collect(),
            entries,
            finished: Vec::new(),
            scratch: Scratch::default(),
        }
    }

    /// Limits the number of commands that wait for a response. Only for an empty table.
    pub(crate) fn limit(&mut self, outstanding: u32) {
        if self.outstanding() == 0 {
            let finished = std::mem::take(&mut self.finished);
            *self = Self { finished, ..Self::new(self.entries, outstanding) };
        }
    }

    /// Returns the number of commands without response.
    pub(crate) fn outstanding(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Checks the pages of a command before it is added.
    pub(crate) fn check(&mut self, command: &Command, memory: &DriverMemory<'_>) -> Result<(), Status> {
        match (&command.place, command.direction) {
            (Place::Prps, Direction::In | Direction::Out) => {
                memory.check(&command.entry, command.bytes, &mut self.scratch)
            }
            _ => Ok(()),
        }
    }

    /// Adds a command. Returns its identifier, or `None` if there is no room.
    pub(crate) fn add(&mut self, command: Command) -> Option<u16> {
        let slot = self.free.pop()?;
        let s = &mut self.slots[usize::from(slot)];
        s.generation = (s.generation + 1) & 0xf;
        s.command = Some(command);
        Some(slot | u16::from(s.generation) << SLOT_BITS)
    }

    fn slot(&mut self, cid: u16) -> Result<&mut Slot, Violation> {
        let (slot, generation) = (usize::from(cid & ((1 << SLOT_BITS) - 1)), (cid >> SLOT_BITS) as u8);
        let Some(s) = self.slots.get_mut(slot) else {
            return Err(format!("command identifier {cid:#06x} was never used"));
        };
        match (s.generation == generation, s.command.is_some()) {
            (true, true) => Ok(s),
            (true, false) => Err(format!("command identifier {cid:#06x} was completed before")),
            _ => Err(format!("command identifier {cid:#06x} is not outstanding")),
        }
    }

    /// Returns a command.
    pub(crate) fn get(&mut self, cid: u16) -> Result<&mut Command, Violation> {
        let unknown = || format!("command identifier {cid:#06x} is not outstanding");
        self.slot(cid)?.command.as_mut().ok_or_else(unknown)
    }

    /// Returns the identifier on the wire of the command that the driver gave `driver_cid`. Commands of this host's own have no
    /// such identifier.
    pub(crate) fn find(&self, driver_cid: u16) -> Option<u16> {
        let (i, s) = self
            .slots
            .iter()
            .enumerate()
            .find(|(_, s)| s.command.as_ref().is_some_and(|c| c.is_the_drivers() && c.entry.cid() == driver_cid))?;
        Some(i as u16 | u16::from(s.generation) << SLOT_BITS)
    }

    /// Copies data that the controller is sent. The error is a status, for the command of a driver whose pages are not
    /// mapped any more.
    pub(crate) fn load(
        &mut self,
        cid: u16,
        offset: u32,
        out: &mut [u8],
        memory: &DriverMemory<'_>,
    ) -> Result<(), Violation> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let loaded = self.get(cid).and_then(|c| {
            let end = offset as usize + out.len();
            match &c.place {
                _ if c.direction != Direction::Out || end > c.bytes as usize => {
                    Err(format!("bytes {offset} to {end} are no part of the data of command {cid:#06x}"))
                }
                Place::Owned(data) => {
                    out.copy_from_slice(&data[offset as usize..end]);
                    Ok(())
                }
                Place::Prps => memory
                    .load(&c.entry, c.bytes, offset, out, &mut scratch)
                    .map_err(|s| format!("the pages of command {cid:#06x} were unmapped: {s}")),
            }
        });
        self.scratch = scratch;
        loaded
    }

    /// Accepts a request of the controller for data of a command. Requests come in order, without gaps.
    pub(crate) fn request(&mut self, cid: u16, offset: u32, length: u32) -> Result<(), Violation> {
        let c = self.get(cid)?;
        let fits = c.direction == Direction::Out && length > 0 && offset == c.moved && c.bytes - c.moved >= length;
        if !fits {
            let (moved, bytes) = (c.moved, c.bytes);
            return Err(format!(
                "{length} bytes at offset {offset} were requested for command {cid:#06x}; {moved} of its {bytes} bytes were requested before"
            ));
        }
        c.moved += length;
        Ok(())
    }

    /// Stores data of the controller. Data of a command comes in order, without gaps.
    pub(crate) fn store(
        &mut self,
        cid: u16,
        offset: u32,
        data: &[u8],
        intact: bool,
        memory: &DriverMemory<'_>,
    ) -> Result<(), Violation> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let stored = self.get(cid).and_then(|c| {
            let length = data.len() as u32;
            if c.direction != Direction::In || offset != c.moved || c.bytes - c.moved < length {
                let (moved, bytes) = (c.moved, c.bytes);
                return Err(format!(
                    "{length} bytes at offset {offset} arrived for command {cid:#06x}; {moved} of its {bytes} bytes were there"
                ));
            }
            c.moved += length;
            if !intact {
                // The data is not usable, but the connection is (NVMe/TCP Transport 1.1, 3.3.1.1.2).
                c.failed.get_or_insert(status::TRANSIENT_TRANSPORT_ERROR);
                return Ok(());
            }
            match &mut c.place {
                Place::Owned(buffer) => buffer[offset as usize..offset as usize + data.len()].copy_from_slice(data),
                Place::Prps => {
                    if let Err(s) = memory.store(&c.entry, c.bytes, offset, data, &mut scratch) {
                        c.failed.get_or_insert(s);
                    }
                }
            }
            Ok(())
        });
        self.scratch = scratch;
        stored
    }

    /// Accepts a response.
    pub(crate) fn complete(&mut self, response: &CqEntry) -> Result<(), Violation> {
        let (cid, head) = (response.cid(), response.sq_head());
        if u32::from(head) >= self.entries && head != fabrics::NO_FLOW_CONTROL_HEAD {
            return Err(format!(
                "the response to command {cid:#06x} has SQHD {head}; the queue has {} entries",
                self.entries
            ));
        }
        self.end(cid, response.status(), fabrics::wide_result(response))
    }

    /// Accepts the success of a command without a response.
    pub(crate) fn succeed(&mut self, cid: u16) -> Result<(), Violation> {
        self.end(cid, status::SUCCESS, 0)
    }

    fn end(&mut self, cid: u16, said: Status, result: u64) -> Result<(), Violation> {
        let slot = self.slot(cid)?;
        let Some(command) = slot.command.take() else { return Ok(()) };
        self.free.push(cid & ((1 << SLOT_BITS) - 1));
        let short = command.direction != Direction::None && command.moved < command.bytes;
        let ended = match command.failed {
            Some(failed) if said.is_success() => failed,
            // Success without all data: the driver must not take what its pages held before.
            None if said.is_success() && short && command.direction == Direction::In => status::DATA_TRANSFER_ERROR,
            _ => said,
        };
        self.finished.push(Finished { cid, command, status: ended, result });
        Ok(())
    }

    /// Counts all data of a command as requested, because its capsule has it.
    pub(crate) fn carried(&mut self, cid: u16) {
        if let Ok(c) = self.get(cid) {
            c.moved = c.bytes;
        }
    }

    /// Takes the commands that have a response.
    pub(crate) fn take_finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    pub(crate) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Takes all commands without response.
    pub(crate) fn abandon(&mut self) -> Vec<Command> {
        let commands = self.slots.iter_mut().filter_map(|s| s.command.take()).collect();
        self.free = (0..self.slots.len() as u16).rev().collect();
        commands
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::io;
    use proptest::prelude::*;

    fn read(bytes: u32) -> Command {
        Command::read(SqEntry::new(io::READ, 9, 1), bytes)
    }

    fn done(cid: u16, head: u16) -> CqEntry {
        fabrics::response(cid, head, 7, status::SUCCESS)
    }

    #[test]
    fn commands_are_found_by_the_drivers_identifiers() {
        let mut c = Commands::new(4, 100);
        let own = c.add(read(4)).unwrap();
        assert_eq!(c.find(9), None, "the identifier is no driver's");
        let flush = Command::new(SqEntry::new(io::FLUSH, 9, 1), Direction::None, 0, Place::Prps);
        let found = c.add(flush).unwrap();
        assert_eq!((c.find(9), c.find(8)), (Some(found), None));
        assert_ne!(own, found);
    }

    #[test]
    fn identifiers_are_known_once() {
        let mut c = Commands::new(4, 100);
        assert_eq!(c.slots.len(), 3);
        let a = c.add(read(4)).unwrap();
        assert!(c.complete(&done(a ^ 0x1000, 0)).unwrap_err().contains("not outstanding"));
        assert!(c.complete(&done(3, 0)).unwrap_err().contains("never used"));
        assert!(c.complete(&done(a, 4)).unwrap_err().contains("SQHD 4"));
        c.store(a, 0, b"abcd", true, &DriverMemory::none()).unwrap();
        c.complete(&done(a, 0xffff)).unwrap();
        assert!(c.complete(&done(a, 0)).unwrap_err().contains("completed before"));
        let f = c.take_finished().pop().unwrap();
        assert!(f.status.is_success() && f.result == 7 && matches!(f.command.place, Place::Owned(d) if d == b"abcd"));
        let b = c.add(read(4)).unwrap();
        assert_ne!(a, b, "a late response must not match");
        for _ in 0..2 {
            c.add(read(4)).unwrap();
        }
        assert!(!c.has_room() && c.add(read(4)).is_none());
        assert_eq!((c.abandon().len(), c.outstanding()), (3, 0));
    }

    #[test]
    fn data_comes_in_order_and_completely() {
        let none = DriverMemory::none();
        let mut c = Commands::new(16, 16);
        let a = c.add(read(8)).unwrap();
        assert!(c.store(a, 4, b"abcd", true, &none).unwrap_err().contains("offset 4"));
        c.store(a, 0, b"abcd", true, &none).unwrap();
        assert!(c.store(a, 4, b"abcde", true, &none).is_err());
        c.complete(&done(a, 1)).unwrap();
        let short = c.take_finished().pop().unwrap();
        assert_eq!(short.status, status::DATA_TRANSFER_ERROR, "four bytes are missing");
        let b = c.add(read(4)).unwrap();
        c.store(b, 0, b"abcd", false, &none).unwrap();
        c.complete(&done(b, 1)).unwrap();
        assert_eq!(c.take_finished().pop().unwrap().status, status::TRANSIENT_TRANSPORT_ERROR);
        let w = c.add(Command::write(SqEntry::new(io::WRITE, 1, 1), vec![1; 8])).unwrap();
        assert!(
            c.store(w, 0, b"a", true, &none).is_err() && c.request(w, 1, 1).is_err() && c.request(w, 0, 9).is_err()
        );
        c.request(w, 0, 8).unwrap();
        assert!(c.request(w, 8, 1).is_err() && c.request(w, 0, 8).is_err());
        let mut out = [0; 4];
        c.load(w, 4, &mut out, &none).unwrap();
        assert!(c.load(w, 5, &mut out, &none).is_err());
    }

    proptest! {
        /// Whatever a target says, each command ends at most once, and a successful one has all its data.
        #[test]
        fn any_replies_are_survived(steps in prop::collection::vec((0u8..5, any::<u16>(), 0u32..10, 0u8..10), 0..200)) {
            let none = DriverMemory::none();
            let mut c = Commands::new(8, 8);
            let (mut added, mut ended, mut newest) = (0, 0, None);
            for (kind, cid, offset, length) in steps {
                let cid = if cid & 0x8000 != 0 { newest.unwrap_or(cid) } else { cid };
                match kind {
                    0 => {
                        let one = c.add(read(8));
                        added += usize::from(one.is_some());
                        newest = one.or(newest);
                    }
                    1 => drop(c.store(cid, offset, &vec![1; usize::from(length)], true, &none)),
                    2 => drop(c.complete(&done(cid, offset as u16))),
                    3 => drop(c.request(cid, offset, length.into())),
                    _ => drop(c.succeed(cid)),
                }
                for f in c.take_finished() {
                    ended += 1;
                    let whole = matches!(&f.command.place, Place::Owned(d) if d == &[1; 8]);
                    prop_assert!(!f.status.is_success() || whole);
                }
            }
            prop_assert_eq!(added, ended + c.outstanding());
        }
    }
}
