//! One connection between two adapters, without waiting: greeting, then sealed frames.

use super::frame::{GREETING, Greeting, LENGTH, MAX_FRAME, PROTOCOL, Step};
use super::seal::{End, Greeted, KEY, Seal};
use socket2::Socket;
use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Most bytes that are read ahead.
const READ_AHEAD: usize = 2 * (MAX_FRAME + LENGTH + KEY);
/// Bytes of one read.
const CHUNK: usize = 64 << 10;
/// Bytes under way of which the kernel's word that they arrive is a sign of life: what is behind them cannot be heard before.
const BULK: usize = 64 << 10;

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

enum Phase {
    /// The socket is not connected yet.
    Connecting,
    /// Initiator: has said hello.
    Hello(Greeting),
    /// Initiator: has proved itself.
    Proved(Greeted),
    /// Responder: expects a hello.
    Expecting,
    /// Responder: has said its number.
    Challenged(Greeted, u128),
    /// Frames go both ways.
    Open,
    /// Says its last word, and then closes.
    Leaving,
}

/// A connection.
pub(super) struct Wire {
    socket: Socket,
    me: u128,
    peer: u128,
    key: [u8; KEY],
    number: [u8; KEY],
    phase: Phase,
    inbox: Vec<u8>,
    taken: usize,
    outbox: Vec<u8>,
    sent: usize,
    seals: Option<(Seal, Seal)>,
    started: Instant,
    heard: Instant,
    spoke: Instant,
    arrived: u64,
    written: u64,
}

impl Wire {
    fn new(socket: Socket, me: u128, peer: u128, key: &[u8; KEY], number: [u8; KEY], phase: Phase) -> Self {
        let now = Instant::now();
        Self {
            socket,
            me,
            peer,
            key: *key,
            number,
            phase,
            inbox: Vec::new(),
            taken: 0,
            outbox: Vec::new(),
            sent: 0,
            seals: None,
            started: now,
            heard: now,
            spoke: now,
            arrived: 0,
            written: 0,
        }
    }

    /// A connection that is being made to the adapter `peer`. `number` is random.
    pub(super) fn initiate(socket: Socket, me: u128, peer: u128, key: &[u8; KEY], number: [u8; KEY]) -> Self {
        Self::new(socket, me, peer, key, number, Phase::Connecting)
    }

    /// A connection that somebody has made to the adapter `me`.
    pub(super) fn respond(socket: Socket, me: u128, key: &[u8; KEY], number: [u8; KEY]) -> Self {
        Self::new(socket, me, 0, key, number, Phase::Expecting)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
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
            let hello = Greeting::new(Step::Hello, self.number, self.me, self.peer);
            self.outbox.extend(hello.encode());
            self.phase = Phase::Hello(hello);
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
            if matches!(self.phase, Phase::Leaving) {
                return Err(Cut::Denied("it could not prove that it knows this world's key"));
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
        Ok(moved)
    }

    /// Takes the next step of the greeting, if it has come.
    fn greet(&mut self) -> Result<(), Cut> {
        let Some(bytes) = self.inbox.get(..GREETING).and_then(|b| <&[u8; GREETING]>::try_from(b).ok()) else {
            return Ok(());
        };
        let said = *bytes;
        self.inbox.drain(..GREETING);
        let got = Greeting::decode(&said).ok_or(Cut::Garbage("what is there does not speak as a software NIC does"))?;
        if got.version != PROTOCOL {
            return Err(Cut::Garbage("the other side is of another release: use the same on both"));
        }
        match (std::mem::replace(&mut self.phase, Phase::Leaving), got.step) {
            (Phase::Hello(hello), Step::Challenge) => {
                let greeted = Greeted::new(&self.key, [hello.encode(), said].concat());
                let proof = greeted.proof(End::Initiator);
                self.outbox.extend(Greeting::new(Step::Proof, proof, self.me, self.peer).encode());
                self.phase = Phase::Proved(greeted);
            }
            (Phase::Hello(_), Step::Mistaken) => {
                return Err(Cut::Garbage("another adapter has its address now: the one that is meant is gone"));
            }
            (Phase::Proved(greeted), Step::Welcome) if greeted.proves(End::Responder, &got.bytes) => {
                self.seals = Some((greeted.seal(End::Initiator), greeted.seal(End::Responder)));
                self.phase = Phase::Open;
                self.heard = Instant::now();
            }
            (Phase::Proved(_), Step::Denied | Step::Welcome) => {
                return Err(Cut::Denied(
                    "the keys of the two sides differ: both must belong to one world, with one secret",
                ));
            }
            (Phase::Expecting, Step::Hello) => {
                if got.to != self.me {
                    self.outbox.extend(Greeting::new(Step::Mistaken, [0; KEY], self.me, got.from).encode());
                    return Ok(());
                }
                let challenge = Greeting::new(Step::Challenge, self.number, self.me, got.from).encode();
                self.outbox.extend(challenge);
                self.phase = Phase::Challenged(Greeted::new(&self.key, [said, challenge].concat()), got.from);
            }
            (Phase::Challenged(greeted, from), Step::Proof) => {
                if !greeted.proves(End::Initiator, &got.bytes) || got.from != from {
                    self.outbox.extend(Greeting::new(Step::Denied, [0; KEY], self.me, from).encode());
                    return Ok(());
                }
                self.outbox.extend(Greeting::new(Step::Welcome, greeted.proof(End::Responder), self.me, from).encode());
                self.seals = Some((greeted.seal(End::Responder), greeted.seal(End::Initiator)));
                self.peer = from;
                self.phase = Phase::Open;
                self.heard = Instant::now();
            }
            _ => return Err(Cut::Garbage("a step of the greeting out of turn")),
        }
        Ok(())
    }

    /// The next frame, if all of it has come; it stays in place until the next call of [`Wire::pump`].
    pub(super) fn next(&mut self) -> Result<Option<Range<usize>>, Cut> {
        let Some((_, opener)) = &mut self.seals else { return Ok(None) };
        let Some(length) = self.inbox[self.taken..].first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length == 0 || length > MAX_FRAME {
            return Err(Cut::Garbage("a frame of a length that none has"));
        }
        let body = self.taken + LENGTH;
        let Some(tag) = self.inbox.get(body + length..body + length + KEY) else { return Ok(None) };
        if !opener.opens(&self.inbox[body..body + length], tag) {
            return Err(Cut::Garbage("a frame whose seal is broken"));
        }
        self.taken = body + length + KEY;
        self.heard = Instant::now();
        Ok(Some(body..body + length))
    }

    /// The bytes of a frame.
    pub(super) fn frame(&self, range: Range<usize>) -> &[u8] {
        self.inbox.get(range).unwrap_or_default()
    }

    /// Seals a frame and puts it behind what waits to be written.
    pub(super) fn send(&mut self, frame: &[u8]) {
        if let Some((sealer, _)) = &mut self.seals {
            self.outbox.extend((frame.len() as u32).to_le_bytes());
            self.outbox.extend_from_slice(frame);
            self.outbox.extend(sealer.tag(frame));
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
