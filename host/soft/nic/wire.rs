//! One connection between two adapters, without waiting: greeting, then sealed frames.

use super::config::Key;
use super::frame::{GREETING, MAX_FRAME, PROTOCOL};
use crate::handshake::{
    Broken, Fault, Greeting, HandshakeError, Initiator, LENGTH, Next, Parties, Responder, Seals, TAG,
};
use socket2::Socket;
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Most bytes that are read ahead.
const READ_AHEAD: usize = 2 * (MAX_FRAME + LENGTH + TAG);
/// Bytes of one read.
const CHUNK: usize = 64 << 10;
/// Bytes under way of which the kernel's word that they arrive is a sign of life: what is behind them cannot be heard before.
const BULK: usize = 64 << 10;

/// So many frames in a row whose seals are broken are no damage on the way: the two ends are out of step.
const BROKEN_IN_A_ROW: u32 = 4;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Cut {
    #[error("the other side closed the connection")]
    Closed,
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Garbage(&'static str),
    /// Another key; trying again is useless.
    #[error("{0}")]
    Denied(&'static str),
    #[error("no sign of life for {0:.1?}")]
    Silent(Duration),
    #[error("cut by the fault plan")]
    Fault,
}

impl Cut {
    /// What the side that connects makes of a greeting that came to nothing.
    fn of_greeting(fault: Fault) -> Self {
        match fault {
            Fault::Version(_) => Self::Garbage("the other side is of another release: use the same on both"),
            Fault::Secret => {
                Self::Denied("the keys of the two sides differ: both must belong to one world, with one secret")
            }
            Fault::Mistaken => Self::Garbage("another adapter has its address now: the one that is meant is gone"),
            Fault::OutOfTurn => Self::Garbage("a step of the greeting out of turn"),
            Fault::Random(e) => Self::Io(e),
        }
    }

    /// What the side that is connected to makes of it.
    fn of_being_greeted(fault: Fault) -> Self {
        match fault {
            Fault::Secret => Self::Denied("it could not prove that it knows this world's key"),
            Fault::Mistaken => Self::Garbage("it looks for an adapter that had this address before"),
            other => Self::of_greeting(other),
        }
    }
}

enum Phase {
    /// The socket is not connected yet.
    Connecting,
    /// Greets the other side.
    Greeting(Box<Initiator>),
    /// Is greeted by it.
    Greeted(Box<Responder>),
    /// Frames go both ways.
    Open(Box<Seals>),
    /// Says its last word, and then closes for this reason.
    Leaving(Fault),
}

/// A connection.
pub(super) struct Wire {
    socket: Socket,
    me: u128,
    peer: u128,
    key: Key,
    phase: Phase,
    inbox: Vec<u8>,
    taken: usize,
    outbox: Vec<u8>,
    sent: usize,
    started: Instant,
    heard: Instant,
    spoke: Instant,
    arrived: u64,
    written: u64,
    /// Nothing has come yet.
    silent: bool,
    /// Frames whose seals were broken: since somebody asked, and since the last good one.
    broken: u64,
    broken_in_a_row: u32,
    /// The bit to flip in the next frame that comes.
    flip_next: Option<u64>,
}

impl Wire {
    fn new(socket: Socket, me: u128, peer: u128, key: &Key, phase: Phase) -> Self {
        let now = Instant::now();
        Self {
            socket,
            me,
            peer,
            key: *key,
            phase,
            inbox: Vec::new(),
            taken: 0,
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
        }
    }

    /// A connection that is being made to the adapter `peer`.
    pub(super) fn initiate(socket: Socket, me: u128, peer: u128, key: &Key) -> Self {
        Self::new(socket, me, peer, key, Phase::Connecting)
    }

    /// A connection that somebody has made to the adapter `me`.
    pub(super) fn respond(socket: Socket, me: u128, key: &Key) -> Self {
        Self::new(socket, me, 0, key, Phase::Greeted(Box::new(Responder::new(&PROTOCOL, &key.0, me))))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }
    /// Returns true if the other side has not said anything yet.
    pub(super) fn is_silent(&self) -> bool {
        self.silent
    }
    /// Whether the socket is to be watched for room too.
    pub(super) fn wants_out(&self) -> bool {
        self.sent < self.outbox.len() || matches!(self.phase, Phase::Connecting)
    }
    /// The adapter at the other end, once it is known.
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
    /// Bytes that wait for room in the socket.
    pub(super) fn backlog(&self) -> usize {
        self.outbox.len() - self.sent
    }

    /// Writes and reads what can be without waiting. Answers whether anything moved.
    pub(super) fn pump(&mut self) -> Result<bool, Cut> {
        if matches!(self.phase, Phase::Connecting) {
            if !self.connected()? {
                return Ok(false);
            }
            let parties = Parties { from: self.me, to: self.peer };
            let (initiator, hello) = Initiator::new(&PROTOCOL, &self.key.0, parties).map_err(Cut::of_greeting)?;
            self.outbox.extend(hello);
            self.phase = Phase::Greeting(Box::new(initiator));
        }
        let out = self.write()?;
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
            self.inbox.drain(..self.taken);
            self.taken = 0;
        }
        let most = if self.is_open() { READ_AHEAD } else { GREETING };
        let mut moved = false;
        while self.inbox.len() < most {
            let old = self.inbox.len();
            self.inbox.resize((old + CHUNK).min(most), 0);
            let n = self.socket.read(&mut self.inbox[old..]);
            self.inbox.truncate(old + *n.as_ref().unwrap_or(&0));
            match n {
                Ok(0) => {
                    // What came before the end still counts; the next read says so again.
                    if moved {
                        break;
                    }
                    return Err(Cut::Closed);
                }
                Ok(_) => moved = true,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.silent &= !moved;
        Ok(moved)
    }

    /// Takes the next step of the greeting, if it has come.
    fn greet(&mut self) -> Result<(), Cut> {
        let heard = Greeting::read(&PROTOCOL, &self.inbox)
            .map_err(|_| Cut::Garbage("what is there does not speak as a software NIC does"))?;
        let Some(heard) = heard else { return Ok(()) };
        self.inbox.drain(..GREETING);
        let next = match &mut self.phase {
            Phase::Greeting(initiator) => initiator.hear(&heard).map_err(Cut::of_greeting)?,
            Phase::Greeted(responder) => match responder.hear(&heard) {
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

    /// The next frame, if all of it has come; it stays in place until the next call of [`Wire::pump`]. One whose seal is broken counts as
    /// lost, as a packet with a wrong ICRC does (InfiniBand Architecture, volume 1, 7.8.1): whoever waits for its answer sends it again.
    pub(super) fn next(&mut self) -> Result<Option<Range<usize>>, Cut> {
        loop {
            let Phase::Open(seals) = &mut self.phase else { return Ok(None) };
            let stream = &mut self.inbox[self.taken..];
            let whole = stream.first_chunk::<LENGTH>().map(|n| LENGTH + u32::from_le_bytes(*n) as usize + TAG);
            if let Some(frame) = whole.and_then(|n| stream.get_mut(LENGTH..n))
                && let Some(random) = self.flip_next.take()
            {
                flip(frame, random);
            }
            match seals.theirs.open(stream, 1..=MAX_FRAME) {
                Ok(None) => return Ok(None),
                Ok(Some(Range { start, end })) => {
                    let bytes = self.taken + start..self.taken + end;
                    self.taken = bytes.end + TAG;
                    self.heard = Instant::now();
                    self.broken_in_a_row = 0;
                    return Ok(Some(bytes));
                }
                Err(Broken::Length) => return Err(Cut::Garbage("a frame of a length that none has")),
                Err(Broken::Tag) => {
                    self.broken += 1;
                    self.broken_in_a_row += 1;
                    if self.broken_in_a_row >= BROKEN_IN_A_ROW {
                        return Err(Cut::Garbage("frames whose seals are broken"));
                    }
                    self.taken += whole.unwrap_or_default();
                }
            }
        }
    }

    /// Frames with broken seals since the last call.
    pub(super) fn take_broken(&mut self) -> u64 {
        std::mem::take(&mut self.broken)
    }

    /// Flips a bit of the next frame that comes, before its seal is looked at.
    pub(super) fn flip_next(&mut self, random: u64) {
        self.flip_next = Some(random);
    }

    /// As [`Wire::send`], with a bit flipped on the way.
    pub(super) fn send_flipped(&mut self, frame: &[u8], random: u64) {
        let start = self.outbox.len() + LENGTH;
        self.send(frame);
        flip(self.outbox.get_mut(start..).unwrap_or_default(), random);
    }

    /// The bytes of a frame.
    pub(super) fn frame(&self, range: Range<usize>) -> &[u8] {
        self.inbox.get(range).unwrap_or_default()
    }

    /// Seals a frame and puts it behind what waits to be written.
    pub(super) fn send(&mut self, frame: &[u8]) {
        if let Phase::Open(seals) = &mut self.phase {
            seals.ours.close(frame, &mut self.outbox);
            self.spoke = Instant::now();
        }
    }

    /// Takes bytes that arrive at the other side as a sign of life, where so many are under way that no answer can be expected yet.
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

/// Flips one bit.
fn flip(bytes: &mut [u8], random: u64) {
    let bit = random % (bytes.len() as u64 * 8).max(1);
    if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
        *byte ^= 1 << (bit % 8);
    }
}
