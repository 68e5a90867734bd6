//! A man in the middle of TCP connections: passes bytes on, spoils some of them, holds them up, or cuts the connections.

use crate::random::Random;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time after which a thread looks whether it has to end.
const TICK: Duration = Duration::from_millis(20);
/// Bytes of each direction of a connection that are kept.
const KEPT: usize = 16 << 10;

/// Change of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spoil {
    /// One bit is flipped.
    Flip,
    Drop,
    Repeat,
    /// The next segment comes before it.
    Swap,
    Delay,
}

/// Changes, and the segments that they happen to.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub spoil: Spoil,
    /// A segment is spoiled once in this number.
    pub once_in: u64,
    /// Segments of a direction that pass before the first that is spoiled.
    pub after: u64,
    /// Largest number of segments that are spoiled.
    pub most: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Bytes pass.
    Pass = 0,
    /// No byte passes, and no connection is closed.
    Hold = 1,
    /// Connections are closed, also new ones.
    Cut = 2,
}

struct Shared {
    target: OnceLock<SocketAddr>,
    mode: AtomicU8,
    over: AtomicBool,
    plan: Option<Plan>,
    seed: u64,
    connections: AtomicU64,
    spoiled: AtomicU32,
    /// First bytes of each connection's initiator.
    heard: Mutex<Vec<Arc<Mutex<Vec<u8>>>>>,
}

/// The man in the middle, at a port of its own. Dropping it closes its connections.
pub struct Middle {
    pub at: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Middle {
    /// Starts it before a port that [`Self::lead_to`] names.
    pub fn new(seed: u64, plan: Option<Plan>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this host");
        let at = listener.local_addr().expect("the port's address");
        let shared = Arc::new(Shared {
            target: OnceLock::new(),
            mode: AtomicU8::new(Mode::Pass as u8),
            over: AtomicBool::new(false),
            plan,
            seed,
            connections: AtomicU64::new(0),
            spoiled: AtomicU32::new(0),
            heard: Mutex::default(),
        });
        let acceptor = {
            let shared = shared.clone();
            std::thread::spawn(move || shared.accept(&listener))
        };
        Self { at, shared, acceptor: Some(acceptor) }
    }

    /// Names the port to which it leads. Connections that were made before wait for that.
    pub fn lead_to(&self, target: SocketAddr) {
        // It leads to one port for its whole life.
        let _ = self.shared.target.set(target);
    }

    pub fn set(&self, mode: Mode) {
        self.shared.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// Returns the number of segments that were spoiled.
    pub fn spoiled(&self) -> u32 {
        self.shared.spoiled.load(Ordering::Relaxed)
    }

    /// Returns the first bytes of each initiator so far.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        let heard = self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.iter().map(|h| h.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect()
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Wakes the acceptor. It has ended if this fails.
        let _ = TcpStream::connect(self.at);
        let _ = self.acceptor.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn is(&self, mode: Mode) -> bool {
        self.mode.load(Ordering::Relaxed) == mode as u8
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        let mut threads = Vec::new();
        while !self.is_over() {
            // A connection that is gone already is no error of the listener.
            let Ok((near, _)) = listener.accept() else { continue };
            if !self.is_over() && !self.is(Mode::Cut) {
                let this = self.clone();
                threads.push(std::thread::spawn(move || this.pass(&near)));
            }
        }
        drop(threads.into_iter().map(JoinHandle::join).collect::<Vec<_>>());
    }

    /// Passes a connection on, until it ends.
    fn pass(&self, near: &TcpStream) {
        let target = loop {
            match self.target.get() {
                Some(target) => break target,
                None if self.is_over() => return,
                None => std::thread::sleep(TICK),
            }
        };
        let Ok(far) = TcpStream::connect(target) else { return };
        let heard = Arc::new(Mutex::new(Vec::new()));
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push(heard.clone());
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        std::thread::scope(|s| {
            s.spawn(|| self.pump(near, &far, 2 * number, Some(&heard)));
            self.pump(&far, near, 2 * number + 1, None);
        });
    }

    /// Returns a plan's spoil for a segment.
    fn spoil(&self, random: &mut Random, segment: u64) -> Option<Spoil> {
        let plan = self.plan.filter(|p| segment >= p.after && random.once_in(p.once_in))?;
        let count =
            self.spoiled.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < plan.most).then_some(n + 1));
        count.is_ok().then_some(plan.spoil)
    }

    /// Passes one direction on. Ends with the connection.
    fn pump(&self, mut from: &TcpStream, mut to: &TcpStream, direction: u64, heard: Option<&Mutex<Vec<u8>>>) {
        let mut random = Random::new(self.seed ^ direction.wrapping_mul(0x9e37_79b9));
        // Latency of its own would change what is tested; a socket without limits is never read forever.
        let _ = (to.set_nodelay(true), from.set_read_timeout(Some(TICK)), to.set_write_timeout(Some(TICK)));
        let (mut buffer, mut waiting, mut segment) = (vec![0; 16 << 10], None::<Vec<u8>>, 0);
        while !self.is_over() && !self.is(Mode::Cut) {
            if self.is(Mode::Hold) {
                std::thread::sleep(TICK);
                continue;
            }
            let limit = if self.plan.is_some() { random.of(&[64, 512, 4096, 16 << 10]) } else { buffer.len() };
            let mut bytes = match from.read(&mut buffer[..limit]) {
                Ok(0) => break,
                Ok(n) => buffer[..n].to_vec(),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    // Nothing came behind a segment that waits.
                    match waiting.take() {
                        Some(bytes) => bytes,
                        None => continue,
                    }
                }
                Err(_) => break,
            };
            if let Some(heard) = heard {
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                let left = KEPT - heard.len().min(KEPT);
                heard.extend(&bytes[..bytes.len().min(left)]);
            }
            match self.spoil(&mut random, segment) {
                Some(Spoil::Flip) => {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << random.below(8);
                }
                Some(Spoil::Drop) => bytes.clear(),
                Some(Spoil::Repeat) => bytes.extend_from_within(..),
                Some(Spoil::Swap) if waiting.is_none() => waiting = Some(std::mem::take(&mut bytes)),
                Some(Spoil::Delay) => std::thread::sleep(Duration::from_millis(1 + random.below(300))),
                Some(Spoil::Swap) | None => {}
            }
            segment += 1;
            if !bytes.is_empty() {
                bytes.extend(waiting.take().unwrap_or_default());
            }
            if !self.write(&mut to, &bytes) {
                break;
            }
        }
        // One end has closed, so the other learns of it.
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    /// Returns false if the connection has ended.
    fn write(&self, to: &mut &TcpStream, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() && !self.is_over() && !self.is(Mode::Cut) {
            match to.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => return false,
            }
        }
        bytes.is_empty()
    }
}

/// Waits until `is_there` returns a value, for a limited time.
pub fn await_some<T>(within: Duration, mut is_there: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + within;
    loop {
        match is_there() {
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            found => return found,
        }
    }
}
