//! Connections of strangers, and what they say.

use crate::random::Random;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Behaviour of a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Arbitrary bytes, half of them behind the first of a good peer.
    Arbitrary,
    /// The bytes of a good peer, some of which have changed.
    Changed,
    /// The first bytes of a good peer, and nothing more.
    Shortened,
    /// All of them.
    Replayed,
    /// All of them several times.
    Repeated,
    Silent,
    /// A byte at a time.
    Slow,
    /// Nothing: the connection is closed at once.
    Brief,
    /// Some bytes of a good peer, and the end of this direction.
    HalfClosed,
    /// The bytes of a good peer up to some place, and the largest numbers there.
    Lengths,
}

impl Behaviour {
    pub const ALL: [Self; 10] = [
        Self::Arbitrary,
        Self::Changed,
        Self::Shortened,
        Self::Replayed,
        Self::Repeated,
        Self::Silent,
        Self::Slow,
        Self::Brief,
        Self::HalfClosed,
        Self::Lengths,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Arbitrary => "arbitrary bytes",
            Self::Changed => "changed",
            Self::Shortened => "shortened",
            Self::Replayed => "replayed",
            Self::Repeated => "repeated",
            Self::Silent => "silent",
            Self::Slow => "byte by byte",
            Self::Brief => "closed at once",
            Self::HalfClosed => "half closed",
            Self::Lengths => "huge lengths",
        }
    }

    /// Returns what a stranger says who has heard a good peer.
    fn words(self, random: &mut Random, heard: &[Vec<u8>]) -> Vec<u8> {
        let mut good = match heard.len() {
            0 => Vec::new(),
            n => heard[random.below(n as u64) as usize].clone(),
        };
        let place = |random: &mut Random, len: usize| random.below(len.max(1) as u64) as usize;
        match self {
            Self::Arbitrary => {
                let begin = if random.once_in(2) { 0 } else { random.of(&[4, 8, 12, 16, 128]) };
                good.truncate(begin);
                good.extend((0..random.below(4000)).map(|_| random.next() as u8));
            }
            Self::Changed => {
                for _ in 0..1 + random.below(3) {
                    // The first bytes are the more interesting ones.
                    let len = good.len().min(random.of(&[64, 256, 16 << 10]));
                    let at = place(random, len);
                    if let Some(byte) = good.get_mut(at) {
                        *byte ^= 1 << random.below(8);
                    }
                }
            }
            Self::Shortened | Self::HalfClosed => good.truncate(place(random, good.len().min(1024))),
            Self::Replayed => {}
            Self::Repeated => good = good.repeat(2 + random.below(3) as usize),
            Self::Silent | Self::Brief => good.clear(),
            Self::Slow => good.truncate(100),
            Self::Lengths => {
                let at = place(random, good.len().min(300));
                good.truncate(at / 4 * 4);
                good.extend(random.of(&[
                    [0xff; 8],
                    [0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0x7f],
                    [0, 0, 0, 0x80, 0, 0, 0, 0x80],
                ]));
                good.extend((0..random.of(&[0, 100, 64 << 10])).map(|_| random.next() as u8));
            }
        }
        good
    }
}

/// Where a listener is.
#[derive(Clone)]
pub enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Place {
    /// Connects, over TCP from one of the addresses of this host.
    fn connect(&self, random: &mut Random) -> std::io::Result<Socket> {
        let socket = match self {
            Self::Tcp(at) => {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                socket.bind(&SocketAddr::from(([127, 0, 0, 1 + random.below(6) as u8], 0)).into())?;
                socket.connect_timeout(&(*at).into(), Duration::from_secs(2))?;
                socket
            }
            Self::Unix(path) => {
                let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
                socket.set_nonblocking(true)?;
                socket.connect(&SockAddr::unix(path)?)?;
                socket
            }
        };
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

/// A connection of a stranger.
pub struct Stranger {
    socket: Socket,
    /// Bytes that it has not sent yet.
    rest: Vec<u8>,
    pub reply: Vec<u8>,
    pub is_closed: bool,
}

impl Stranger {
    /// Connects, and says what does not come byte by byte. Tries again while the backlog is full.
    pub fn new(place: &Place, behaviour: Behaviour, random: &mut Random, heard: &[Vec<u8>]) -> Result<Self, String> {
        let until = Instant::now() + Duration::from_secs(20);
        let socket = loop {
            match place.connect(random) {
                Ok(socket) => break socket,
                Err(e) if Instant::now() > until => return Err(format!("a stranger cannot connect any more: {e}")),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let rest = behaviour.words(random, heard);
        let mut this = Self { socket, rest, reply: Vec::new(), is_closed: false };
        if behaviour != Behaviour::Slow {
            this.say(usize::MAX);
            // Bytes that do not fit into the socket's buffer are left out.
            this.rest.clear();
        }
        if behaviour == Behaviour::HalfClosed {
            // The listener may have closed it already.
            let _ = this.socket.shutdown(Shutdown::Write);
        }
        if behaviour == Behaviour::Brief && random.once_in(2) {
            // A reset in place of an orderly end.
            let _ = this.socket.set_linger(Some(Duration::ZERO));
        }
        Ok(this)
    }

    /// Says the next bytes, and hears what the listener says.
    pub fn say(&mut self, most: usize) {
        let n = self.rest.len().min(most);
        match self.socket.write(&self.rest[..n]) {
            Ok(n) => drop(self.rest.drain(..n)),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => self.is_closed = true,
        }
        let mut some = [0; 4096];
        while !self.is_closed {
            match self.socket.read(&mut some) {
                Ok(0) => self.is_closed = true,
                Ok(n) => self.reply.extend(&some[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => self.is_closed = true,
            }
        }
    }
}
