//! One non-blocking connection between two adapters: a handshake, then sealed frames.

use super::config::Key;
use super::frame::{GREETING, MAX_FRAME, PROTOCOL};
use crate::handshake::{
    Fault, FrameError, Greeting, HandshakeError, Initiator, LENGTH, Next, Parties, Protection, Responder, Seals, Terms,
};
use socket2::Socket;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Most bytes that are read ahead: two frames, each with its length, authenticators, and some bytes to spare.
const READ_AHEAD: usize = 2 * (MAX_FRAME + 256);
/// Length of one read in bytes.
const CHUNK: usize = 64 << 10;
/// Number of unacknowledged bytes above which the kernel's report that bytes have arrived counts as a sign of life. The
/// response to data behind them cannot arrive earlier.
const BULK: usize = 64 << 10;

/// Number of consecutive frames with broken seals that ends a connection. So many are no transmission errors: the two
/// ends are out of step.
const BROKEN_IN_A_ROW: u32 = 4;

/// Reason for the end of a connection that has used up the numbers of its records.
const EXHAUSTED: Cut = Cut::Garbage("all numbers of its records are used: another connection has new keys");

/// Reason why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    #[error("the other side closed the connection")]
    Closed,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Garbage(&'static str),
    /// The other end has another key. Another attempt would fail too.
    #[error("{0}")]
    Denied(&'static str),
    #[error("no data and no heartbeat for {0:.1?}")]
    Silent(Duration),
    #[error("cut by the fault plan")]
    Fault,
}

impl Cut {
    /// Returns the reason for the initiator after a failed handshake.
    fn of_greeting(fault: Fault) -> Self {
        match fault {
            Fault::Version(_) => Self::Garbage("the other side runs another version of warpbell: use the same on both"),
            Fault::Secret => {
                Self::Denied("the keys of the two sides differ: both must belong to one world, with one secret")
            }
            Fault::Mistaken => Self::Garbage("another adapter has this address now: the expected one has ended"),
            Fault::Protection => Self::Denied(
                "one side encrypts this connection and the other does not: use the same `encrypt` option on both",
            ),
            Fault::OutOfTurn => Self::Garbage("an unexpected step of the handshake"),
            Fault::Random(e) => Self::Io(e),
        }
    }

    /// Returns the reason for the responder after a failed handshake.
    fn of_being_greeted(fault: Fault) -> Self {
        match fault {
            Fault::Secret => Self::Denied("it does not have the key of this world"),
            Fault::Mistaken => Self::Garbage("it expects an adapter that had this address before"),
            other => Self::of_greeting(other),
        }
    }
}

enum Phase {
    /// The socket is not connected yet.
    Connecting,
    /// Handshake as the initiator.
    Greeting(Box<Initiator>),
    /// Handshake as the responder.
    Greeted(Box<Responder>),
    /// Frames can be sent and received.
    Open(Box<Seals>),
    /// Sends its last message, then closes for this reason.
    Leaving(Fault),
}

/// A connection between two adapters.
pub(super) struct Wire {
    socket: Socket,
    me: u128,
    peer: u128,
    terms: Terms,
    phase: Phase,
    /// Memory for bytes that were received. It keeps its length: a poll without bytes does not clear it again.
    inbox: Vec<u8>,
    /// Number of bytes of `inbox` that were received, and of those among them that were processed.
    received: usize,
    taken: usize,
    /// The frame that [`Wire::next`] opened last.
    frame: Vec<u8>,
    outbox: Vec<u8>,
    sent: usize,
    started: Instant,
    heard: Instant,
    spoke: Instant,
    arrived: u64,
    written: u64,
    /// True until the first byte was received.
    silent: bool,
    /// Number of frames with broken seals: since `take_broken` was called, and since the last intact frame.
    broken: u64,
    broken_in_a_row: u32,
    /// Random number that selects the bit to flip in the next frame received.
    flip_next: Option<u64>,
    /// True once a frame could not be sealed.
    exhausted: bool,
}

impl Wire {
    fn new(socket: Socket, me: u128, peer: u128, terms: Terms, phase: Phase) -> Self {
        let now = Instant::now();
        Self {
            socket,
            me,
            peer,
            terms,
            phase,
            inbox: Vec::new(),
            received: 0,
            taken: 0,
            frame: Vec::new(),
            outbox: Vec::new(),
            sent: 0,
            started: now,
            heard: now,
            spoke: now,
            arrived: 0,
            written: 0,
            silent: true,
            broken: 0,
            broken_in_a_row: 0,
            flip_next: None,
            exhausted: false,
        }
    }

    /// Creates the initiator's end of a connection to the adapter `peer`.
    pub(super) fn initiate(socket: Socket, me: u128, peer: u128, key: &Key, protection: Protection) -> Self {
        Self::new(socket, me, peer, Terms::new(&PROTOCOL, &key.0, protection), Phase::Connecting)
    }

    /// Creates the responder's end of a connection that was made to the adapter `me`.
    pub(super) fn respond(socket: Socket, me: u128, key: &Key, protection: Protection) -> Self {
        let terms = Terms::new(&PROTOCOL, &key.0, protection);
        Self::new(socket, me, 0, terms.clone(), Phase::Greeted(Box::new(Responder::new(terms, me))))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }
    /// Returns true if nothing was received from the other end yet.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }
    /// Returns true if the socket must be polled for writing too.
    pub(super) fn wants_out(&self) -> bool {
        self.sent < self.outbox.len() || matches!(self.phase, Phase::Connecting)
    }
    /// Returns the number of the adapter at the other end, once it is known.
    pub(super) fn peer(&self) -> u128 {
        self.peer
    }
    pub(super) fn started(&self) -> Instant {
        self.started
    }
    pub(super) fn heard(&self) -> Instant {
        self.heard
    }
    pub(super) fn spoke(&self) -> Instant {
        self.spoke
    }
    /// Returns the number of bytes that wait for space in the socket.
    pub(super) fn backlog(&self) -> usize {
        self.outbox.len() - self.sent
    }

    /// Writes and reads as much as possible without blocking. Returns true if bytes moved.
    pub(super) fn pump(&mut self) -> Result<bool, Cut> {
        if matches!(self.phase, Phase::Connecting) {
            if !self.connected()? {
                return Ok(false);
            }
            let parties = Parties { from: self.me, to: self.peer };
            let (initiator, hello) = Initiator::new(self.terms.clone(), parties).map_err(Cut::of_greeting)?;
            self.outbox.extend(hello);
            self.phase = Phase::Greeting(Box::new(initiator));
        }
        let out = self.write()?;
        if self.exhausted && self.backlog() == 0 {
            return Err(EXHAUSTED);
        }
        let read = self.read()?;
        if !self.is_open() {
            self.greet()?;
            self.write()?;
        }
        Ok(out || read)
    }

    fn connected(&mut self) -> Result<bool, Cut> {
        if let Some(e) = self.socket.take_error()? {
            return Err(e.into());
        }
        match self.socket.peer_addr() {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotConnected => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn write(&mut self) -> Result<bool, Cut> {
        let mut moved = false;
        while self.sent < self.outbox.len() {
            match self.socket.write(&self.outbox[self.sent..]) {
                Ok(0) => return Err(Cut::Closed),
                Ok(n) => {
                    self.sent += n;
                    self.written += n as u64;
                    moved = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        if self.sent == self.outbox.len() {
            self.outbox.clear();
            self.sent = 0;
            if let Phase::Leaving(fault) = &mut self.phase {
                return Err(Cut::of_being_greeted(std::mem::replace(fault, Fault::OutOfTurn)));
            }
        } else if self.sent > MAX_FRAME {
            self.outbox.drain(..self.sent);
            self.sent = 0;
        }
        Ok(moved)
    }

    fn read(&mut self) -> Result<bool, Cut> {
        if self.taken > 0 {
            self.inbox.copy_within(self.taken..self.received, 0);
            self.received -= self.taken;
            self.taken = 0;
        }
        let most = if self.is_open() { READ_AHEAD } else { GREETING };
        let mut moved = false;
        while self.received < most {
            let end = (self.received + CHUNK).min(most);
            if self.inbox.len() < end {
                self.inbox.resize(end, 0);
            }
            match self.socket.read(&mut self.inbox[self.received..end]) {
                Ok(0) => {
                    // Bytes before the end still count. The next read reports the end again.
                    if moved {
                        break;
                    }
                    return Err(Cut::Closed);
                }
                Ok(n) => {
                    self.received += n;
                    moved = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.silent &= !moved;
        Ok(moved)
    }

    /// Processes the next message of the handshake, if it has arrived.
    fn greet(&mut self) -> Result<(), Cut> {
        let heard = Greeting::read(&PROTOCOL, &self.inbox[self.taken..self.received])
            .map_err(|_| Cut::Garbage("the program at that address is not a software NIC"))?;
        let Some((heard, bytes)) = heard else { return Ok(()) };
        self.taken += bytes;
        let next = match &mut self.phase {
            Phase::Greeting(initiator) => initiator.read_message(&heard).map_err(Cut::of_greeting)?,
            Phase::Greeted(responder) => match responder.read_message(&heard) {
                Ok(next) => next,
                Err(HandshakeError { say, fault }) if say.is_empty() => return Err(Cut::of_being_greeted(fault)),
                Err(HandshakeError { say, fault }) => {
                    self.outbox.extend(say);
                    self.phase = Phase::Leaving(fault);
                    return Ok(());
                }
            },
            Phase::Connecting | Phase::Open(_) | Phase::Leaving(_) => return Err(Cut::of_greeting(Fault::OutOfTurn)),
        };
        match next {
            Next::Say(step) => self.outbox.extend(step),
            Next::Open { say, seals, peer } => {
                self.outbox.extend(say);
                self.peer = peer;
                self.phase = Phase::Open(seals);
                self.heard = Instant::now();
            }
        }
        Ok(())
    }

    /// Opens the next frame if all of it has arrived. Returns true if there is one; [`Wire::frame`] has its bytes. A
    /// frame with a broken seal counts as lost, as a packet with a wrong ICRC does (InfiniBand Architecture, volume 1,
    /// 7.8.1). The requester sends a command without a response again.
    pub(super) fn next(&mut self) -> Result<bool, Cut> {
        loop {
            let Phase::Open(seals) = &mut self.phase else { return Ok(false) };
            let stream = &mut self.inbox[self.taken..self.received];
            let length = stream.first_chunk::<LENGTH>().map(|n| u32::from_le_bytes(*n) as usize);
            let whole = length.map(|n| seals.theirs.frame_bytes(n));
            if let Some(frame) = whole.and_then(|n| stream.get_mut(LENGTH..n))
                && let Some(random) = self.flip_next.take()
            {
                flip(frame, random);
            }
            match seals.theirs.open(stream, 1..=MAX_FRAME, &mut self.frame) {
                Ok(None) => return Ok(false),
                Ok(Some(bytes)) => {
                    self.taken += bytes;
                    self.heard = Instant::now();
                    self.broken_in_a_row = 0;
                    return Ok(true);
                }
                Err(FrameError::Length) => return Err(Cut::Garbage("a frame of an invalid length")),
                Err(FrameError::Exhausted) => return Err(EXHAUSTED),
                Err(FrameError::Tag) => {
                    self.broken += 1;
                    self.broken_in_a_row += 1;
                    if self.broken_in_a_row >= BROKEN_IN_A_ROW {
                        return Err(Cut::Garbage("several frames in a row that are not authentic"));
                    }
                    self.taken += whole.unwrap_or_default();
                }
            }
        }
    }

    /// Returns the number of frames with broken seals since the last call.
    pub(super) fn take_broken(&mut self) -> u64 {
        std::mem::take(&mut self.broken)
    }

    /// Flips a bit of the next frame received, before its seal is checked.
    pub(super) fn flip_next(&mut self, random: u64) {
        self.flip_next = Some(random);
    }

    /// Sends a frame as [`Wire::send`] does, with one bit flipped after sealing.
    pub(super) fn send_flipped(&mut self, frame: &[u8], random: u64) {
        let start = self.outbox.len() + LENGTH;
        self.send(frame);
        flip(self.outbox.get_mut(start..).unwrap_or_default(), random);
    }

    /// Returns the bytes of the frame that [`Wire::next`] opened last.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Seals a frame and appends it to the bytes to be written. Without a number for the frame, the next
    /// [`Wire::pump`] ends the connection. The requester makes another, with new keys, and repeats its commands.
    pub(super) fn send(&mut self, frame: &[u8]) {
        if let Phase::Open(seals) = &mut self.phase {
            self.exhausted |= seals.ours.close(frame, &mut self.outbox).is_err();
            self.spoke = Instant::now();
        }
    }

    /// Lets the numbers of this end's frames end after `records` more records.
    #[cfg(test)]
    pub(super) fn run_out_after(&mut self, records: u64) {
        if let Phase::Open(seals) = &mut self.phase {
            seals.ours.run_out_after(records);
        }
    }

    /// Takes progress that the kernel reports as a sign of life: bytes that have arrived at the other end. Counts only
    /// if so many bytes are in flight that no response can be expected yet.
    pub(super) fn listen_to_the_kernel(&mut self) {
        let mut queued: libc::c_int = 0;
        // SAFETY: writes one integer; the descriptor is the socket's.
        let told =
            unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&self.socket), libc::TIOCOUTQ, &mut queued) } == 0;
        let queued = queued.max(0) as usize;
        if told {
            let arrived = self.written.saturating_sub(queued as u64);
            if arrived > self.arrived && queued + self.backlog() > BULK {
                self.heard = Instant::now();
            }
            self.arrived = arrived;
        }
    }
}

/// Flips one bit, chosen by `random`.
fn flip(bytes: &mut [u8], random: u64) {
    let bit = random % (bytes.len() as u64 * 8).max(1);
    if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
        *byte ^= 1 << (bit % 8);
    }
}
