//! The member's end of the store: connect, join, exchange, learn of losses, leave.

use super::listener::{inherited, listen, reachable};
use super::server::{CLOSED, Server, keep_alive, reason};
use super::wire::{GREETING, Inbox, MAX_ALERT, MAX_BYTES, Message, PROTOCOL, sealed, terms};
use crate::engine::abi;
use crate::handshake::{Fault, Greeting, Initiator, Next, Parties, Seal, Seals};
use crate::shmem::bootstrap::loss::{AlertCallback, LossCallback, Losses};
use crate::shmem::bootstrap::{AlertListener, Bootstrap, BootstrapError, LEFT, Launched, LostRank, Route, Secret};
use crate::this_host;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The longest time of one attempt to connect, or of one reply in the handshake.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Pauses between attempts: the first and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// The time that the store gets to name the missing ranks, or to confirm a leave.
const ANSWER: Duration = Duration::from_secs(3);
/// The longest time to send a message to the store.
const SEND: Duration = Duration::from_secs(30);
/// Bytes of each read.
const CHUNK: usize = 64 << 10;

/// A rank that meets the others at a store.
#[derive(Debug)]
pub struct Member {
    launched: Launched,
    shared: Arc<Shared>,
    out: Mutex<Out>,
    /// The number of the next exchange. The lock serialises calls.
    call: Mutex<u64>,
    /// The store, if this is rank 0 and it runs the store.
    server: Option<Server>,
    secret: Secret,
    /// Addresses of both ends of the connection to the store: this host's and the store's.
    addresses: (IpAddr, IpAddr),
}

struct Out {
    stream: TcpStream,
    seal: Seal,
    left: bool,
}

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Out").field("stream", &self.stream).field("left", &self.left).finish()
    }
}

#[derive(Debug)]
struct Shared {
    rank: usize,
    /// True if the launcher runs the store instead of rank 0.
    has_server: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    begun: bool,
    /// Parts of exchanges that are not complete.
    parts: BTreeMap<u64, Vec<Option<Vec<u8>>>>,
    /// The store's reply to a `Withdraw`: the exchange, the missing ranks, and a note on connections that were turned
    /// away.
    missing: Option<(u64, Vec<usize>, String)>,
    /// Ranks that left in order, with the number of exchanges that they took part in.
    left: BTreeMap<usize, u64>,
    losses: Losses,
    /// The callback for alerts.
    on_alert: Option<AlertCallback>,
    failed: Option<BootstrapError>,
    /// True once the connection has ended.
    ended: bool,
    /// True once this rank leaves.
    leaving: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { begun, left, losses, failed, ended, .. } = self;
        let mut all = f.debug_struct("State");
        all.field("begun", begun)
            .field("left", left)
            .field("losses", losses)
            .field("failed", failed)
            .field("ended", ended);
        all.finish_non_exhaustive()
    }
}

/// The reason why an attempt to join failed.
enum Attempt {
    /// The next attempt may succeed.
    Again(String),
    Over(BootstrapError),
}

impl Member {
    /// Joins the other ranks at the store that `launched` names. Rank 0 also runs the store, unless the launcher does.
    /// Returns when all ranks have joined.
    ///
    /// # Errors
    /// - [`BootstrapError::NoStore`] if `launched` names no store.
    /// - [`BootstrapError::Listen`], or [`BootstrapError::Variable`] for an inherited socket, if rank 0 cannot listen
    ///   there.
    /// - [`BootstrapError::Connect`] if the store cannot be reached within `within`; [`BootstrapError::NotAStore`],
    ///   [`BootstrapError::WrongSecret`] or [`BootstrapError::Protocol`] if the handshake fails.
    /// - [`BootstrapError::Missing`] with the ranks that do not join within `within`.
    /// - [`BootstrapError::Lost`] if a rank is lost, [`BootstrapError::Disagree`] if the ranks contradict each other.
    /// - [`BootstrapError::System`] if a system call fails.
    pub fn join(launched: &Launched, secret: Secret, within: Duration) -> Result<Self, BootstrapError> {
        let runs_store = launched.rank == 0 && !launched.has_server;
        let listener = match launched.listener {
            _ if !runs_store => None,
            Some(descriptor) => Some(inherited(descriptor)?),
            None => Some(listen(launched.store_address()?)?),
        };
        Self::join_with(launched, listener, secret, within)
    }

    /// Joins like [`Member::join`]. A rank with a `listener` runs the store on that socket.
    pub(in crate::shmem::bootstrap) fn join_with(
        launched: &Launched,
        listener: Option<TcpListener>,
        secret: Secret,
        within: Duration,
    ) -> Result<Self, BootstrapError> {
        let start = Instant::now();
        let store = launched.store_address()?;
        let mut server = None;
        let mut own = None;
        if let Some(listener) = listener {
            let started = Server::start(listener, secret.clone())?;
            own = Some(reachable(started.address()));
            server = Some(started);
        }
        let (stream, seals) = connect(launched, store, own, &secret, start, within)?;
        let system = |e| BootstrapError::system("the connection to the store", &e);
        keep_alive(&stream).map_err(system)?;
        stream.set_write_timeout(Some(SEND)).map_err(system)?;
        stream.set_read_timeout(None).map_err(system)?;
        let addresses = (stream.local_addr().map_err(system)?.ip(), stream.peer_addr().map_err(system)?.ip());

        let shared = Arc::new(Shared {
            rank: launched.rank,
            has_server: launched.has_server,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let reader = Reader {
            stream: stream.try_clone().map_err(system)?,
            seal: seals.theirs,
            shared: shared.clone(),
            size: launched.size,
        };
        let thread = std::thread::Builder::new().name("wb-store-member".to_owned());
        thread.spawn(move || reader.read()).map_err(system)?;
        let out = Out { stream, seal: seals.ours, left: false };
        let out = Mutex::new(out);
        let this = Self { launched: launched.clone(), shared, out, call: Mutex::new(0), server, secret, addresses };
        this.say(&Message::Join {
            rank: launched.rank as u32,
            size: launched.size as u32,
            fingerprint: abi::fingerprint(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            who: who(),
        })?;
        this.wait(Message::RENDEZVOUS, start, within, |state| state.begun.then_some(()))?;
        Ok(this)
    }

    /// Returns the facts that the launcher gave about this process.
    pub fn launched(&self) -> &Launched {
        &self.launched
    }

    /// Lets the numbers of this rank's messages end after `records` more.
    #[cfg(test)]
    pub(super) fn run_out_after(&self, records: u64) {
        self.out.lock().seal.run_out_after(records);
    }

    fn say(&self, message: &Message) -> Result<(), BootstrapError> {
        let mut out = self.out.lock();
        if out.left {
            return Err(BootstrapError::Left { rank: self.launched.rank });
        }
        let sent = match sealed(message, &mut out.seal) {
            Some(bytes) => out.stream.write_all(&bytes),
            None => Err(std::io::Error::other("the connection has used up the numbers of its records")),
        };
        if let Err(e) = sent {
            // The stream is useless after half a message. The reader finds out how it ended.
            if matches!(message, Message::Leave) {
                // Rank 0 may have left before, and the store with it. Nobody waits for this message then.
                tracing::debug!(error = %e, "the store has ended before this rank leaves");
            } else {
                tracing::warn!(error = %e, "a message cannot be sent to the store");
            }
            let _ = out.stream.shutdown(Shutdown::Both);
        }
        Ok(())
    }

    /// Waits until `done` returns a value, the world fails, or the store has named the missing ranks.
    fn wait<T>(
        &self,
        round: u64,
        start: Instant,
        within: Duration,
        mut done: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, BootstrapError> {
        let mut state = self.shared.state();
        // First the time at which to ask for the missing ranks, then the time at which to give up on the store.
        let (mut limit, mut asked) = (within, false);
        state.missing = None;
        loop {
            if let Some(found) = done(&mut state) {
                return Ok(found);
            }
            if let Some(e) = state.end_of(round) {
                return Err(e);
            }
            if let Some((of, missing, note)) = state.missing.take()
                && of == round
                && asked
            {
                let Launched { rank, size, .. } = self.launched;
                return Err(BootstrapError::Missing { rank, size, missing, within, note });
            }
            match limit.checked_sub(start.elapsed()) {
                Some(left) => {
                    self.shared.changed.wait_for(&mut state, left);
                }
                None if !asked => {
                    (limit, asked) = (start.elapsed() + ANSWER, true);
                    drop(state);
                    self.say(&Message::Withdraw { round })?;
                    state = self.shared.state();
                }
                None => {
                    let reason = "it does not answer".to_owned();
                    return Err(unreachable_store(&self.launched, within, reason));
                }
            }
        }
    }
}

impl Bootstrap for Member {
    fn rank(&self) -> usize {
        self.launched.rank
    }

    fn size(&self) -> usize {
        self.launched.size
    }

    fn allgather(&self, bytes: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, BootstrapError> {
        if bytes.len() > MAX_BYTES {
            return Err(BootstrapError::TooLarge { bytes: bytes.len(), most: MAX_BYTES });
        }
        let mut round = self.call.lock();
        let (start, now) = (Instant::now(), *round);
        if let Some(e) = self.shared.state().end_of(now) {
            return Err(e);
        }
        self.say(&Message::Give { round: now, bytes: bytes.to_vec() })?;
        let parts = self.wait(now, start, within, |state| {
            let complete = state.parts.get(&now).is_some_and(|p| p.iter().all(Option::is_some));
            complete.then(|| state.parts.remove(&now)).flatten()
        })?;
        *round += 1;
        Ok(parts.into_iter().flatten().collect())
    }

    fn on_loss(&self, callback: Box<dyn Fn(&LostRank) + Send + Sync>) {
        let callback: LossCallback = callback.into();
        let known = self.shared.state().losses.listen(callback.clone());
        for lost in known {
            callback(&lost);
        }
    }

    fn alert(&self, rank: usize, bytes: &[u8]) {
        let bytes = bytes[..bytes.len().min(MAX_ALERT)].to_vec();
        // Fails only if this rank has left; it then has nothing to send.
        let _ = self.say(&Message::Alert { rank: rank as u32, bytes });
    }

    fn on_alert(&self, callback: AlertListener) {
        self.shared.state().on_alert = Some(callback.into());
    }

    fn leave(&self) {
        self.shared.state().leaving = true;
        // Fails if this rank has left already.
        if self.say(&Message::Leave).is_err() {
            return;
        }
        let mut out = self.out.lock();
        out.left = true;
        let _ = out.stream.shutdown(Shutdown::Write);
        drop(out);
        // The store closes the connection once it has told the others.
        let start = Instant::now();
        let mut state = self.shared.state();
        while !state.ended {
            let Some(left) = ANSWER.checked_sub(start.elapsed()) else { break };
            self.shared.changed.wait_for(&mut state, left);
        }
        drop(state);
        if let Some(server) = &self.server {
            // This process may end now, so the store sends its messages to the others first.
            server.stop_accepting(ANSWER);
        }
    }

    fn key(&self, purpose: &str) -> Option<[u8; 32]> {
        Some(self.secret.key(purpose))
    }

    fn route(&self) -> Route {
        let first = (!self.launched.has_server && self.launched.rank != 0).then_some(self.addresses.1);
        Route { own: Some(self.addresses.0), first }
    }

    fn via(&self) -> String {
        let store = self.launched.store.as_deref().unwrap_or_default();
        format!("{}, store {store}", self.launched.via)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shared.state().leaving = true;
        let out = self.out.get_mut();
        let _ = out.stream.shutdown(Shutdown::Both);
        if let (Some(server), false) = (&self.server, out.left) {
            // The other ranks must learn of the loss before this process ends.
            server.stop_accepting(ANSWER);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Returns the reason why an exchange cannot complete any more, if there is one.
    fn end_of(&self, round: u64) -> Option<BootstrapError> {
        if let Some(lost) = self.losses.first() {
            return Some(BootstrapError::Lost(lost.clone()));
        }
        let left = self.left.iter().find(|(_, rounds)| round == Message::RENDEZVOUS || **rounds <= round);
        left.map(|(rank, _)| BootstrapError::Lost(LostRank::new(*rank, LEFT))).or_else(|| self.failed.clone())
    }
}

/// Reads the store's messages until the connection ends.
struct Reader {
    stream: TcpStream,
    seal: Seal,
    shared: Arc<Shared>,
    size: usize,
}

impl Reader {
    fn read(mut self) {
        let mut inbox = Inbox::default();
        let mut buffer = vec![0; CHUNK];
        let why = 'connection: loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break CLOSED.to_owned(),
                Ok(n) => inbox.extend(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => break reason(&e),
            }
            loop {
                match inbox.message(&mut self.seal, usize::MAX) {
                    Ok(Some(message)) => {
                        if !self.on_alert(message) {
                            break 'connection "the store sent a message that only a rank may send".to_owned();
                        }
                    }
                    Ok(None) => break,
                    Err(broken) => break 'connection format!("the store sent {}", broken.0),
                }
            }
        };
        let _ = self.stream.shutdown(Shutdown::Both);
        let mut state = self.shared.state();
        state.ended = true;
        // The store ends with rank 0. If rank 0 left in order, the end of the store is in order too.
        let orderly = state.leaving || state.failed.is_some() || !self.shared.has_server && state.left.contains_key(&0);
        let lost = if self.shared.has_server {
            LostRank::new(self.shared.rank, format!("it lost its launcher's store: {why}"))
        } else {
            LostRank::new(0, why)
        };
        let callback = if orderly { Vec::new() } else { state.losses.add(lost.clone()) };
        drop(state);
        // Runs the callbacks first: a waiting caller may end this process.
        callback.iter().for_each(|callback| callback(&lost));
        self.shared.changed.notify_all();
    }

    /// Handles a message. Returns false for a message that a member must not get.
    fn on_alert(&self, message: Message) -> bool {
        let mut state = self.shared.state();
        let mut lost = None;
        match message {
            Message::Begin => state.begun = true,
            Message::Part { round, rank, bytes } => {
                let parts = state.parts.entry(round).or_insert_with(|| vec![None; self.size]);
                match parts.get_mut(rank as usize) {
                    Some(part) => *part = Some(bytes),
                    None => return false,
                }
            }
            Message::Missing { round, note, ranks } => {
                let ranks = ranks.into_iter().map(|r| r as usize).collect();
                state.missing = Some((round, ranks, note));
            }
            Message::Lost(rank) => {
                let callback = state.losses.add(rank.clone());
                lost = Some((rank, callback));
            }
            Message::Left { rank, rounds } => {
                state.left.insert(rank as usize, rounds);
            }
            Message::Alert { rank, bytes } => {
                let on_alert = state.on_alert.clone();
                drop(state);
                if let Some(on_alert) = on_alert {
                    on_alert(rank as usize, &bytes);
                }
                return true;
            }
            Message::Refused(why) => state.failed = Some(BootstrapError::Disagree(why)),
            _ => return false,
        }
        drop(state);
        if let Some((rank, callback)) = lost {
            callback.iter().for_each(|callback| callback(&rank));
        }
        self.shared.changed.notify_all();
        true
    }
}

/// Connects to the store and performs the handshake. Repeats attempts that fail, since rank 0 may start later than this
/// rank.
fn connect(
    launched: &Launched,
    store: &str,
    own: Option<SocketAddr>,
    secret: &Secret,
    start: Instant,
    within: Duration,
) -> Result<(TcpStream, Seals), BootstrapError> {
    let mut pause = PAUSES.0;
    loop {
        let left = within.saturating_sub(start.elapsed()).clamp(PAUSES.0, ATTEMPT);
        let reason = match attempt(launched, store, own, secret, left) {
            Ok(connected) => return Ok(connected),
            Err(Attempt::Over(e)) => return Err(e),
            Err(Attempt::Again(reason)) => reason,
        };
        let Some(left) = within.checked_sub(start.elapsed()) else {
            return Err(unreachable_store(launched, within, reason));
        };
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(PAUSES.1);
    }
}

fn attempt(
    launched: &Launched,
    store: &str,
    own: Option<SocketAddr>,
    secret: &Secret,
    within: Duration,
) -> Result<(TcpStream, Seals), Attempt> {
    let again = |e: std::io::Error| Attempt::Again(e.to_string());
    let addresses = match own {
        Some(address) => vec![address],
        // Resolves the name for each attempt: it may come into existence with rank 0.
        None => store.to_socket_addrs().map_err(again)?.collect(),
    };
    let mut stream = Err(Attempt::Again("the host name has no address".to_owned()));
    for address in addresses {
        stream = TcpStream::connect_timeout(&address, within).map_err(again);
        if stream.is_ok() {
            break;
        }
    }
    let mut stream = stream?;
    // If nobody listens on a port of the ephemeral range, a connection to it can connect to itself.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err(Attempt::Again("no program listens there".to_owned()));
    }
    stream.set_read_timeout(Some(within)).map_err(again)?;
    stream.set_write_timeout(Some(within)).map_err(again)?;

    let over = |fault| {
        let (rank, store) = (launched.rank, store.to_owned());
        Attempt::Over(match fault {
            Fault::Version(theirs) => BootstrapError::Protocol { rank, store, theirs, ours: PROTOCOL.version },
            Fault::Secret => BootstrapError::WrongSecret { rank, store },
            Fault::OutOfTurn | Fault::Mistaken | Fault::Protection => BootstrapError::NotAStore { store },
            Fault::Random(e) => BootstrapError::system("no random bytes from the system", &e),
        })
    };
    let (mut initiator, hello) = Initiator::new(terms(secret), Parties::default()).map_err(over)?;
    stream.write_all(&hello).map_err(again)?;
    loop {
        match initiator.read_message(&answer(&mut stream, store)?).map_err(over)? {
            Next::Say(bytes) => stream.write_all(&bytes).map_err(again)?,
            Next::Open { say, seals, .. } => {
                stream.write_all(&say).map_err(again)?;
                return Ok((stream, *seals));
            }
        }
    }
}

/// Reads the next greeting of the store.
fn answer(stream: &mut TcpStream, store: &str) -> Result<Greeting, Attempt> {
    let mut inbox = Inbox::default();
    loop {
        match inbox.greeting() {
            Ok(Some(greeting)) => return Ok(greeting),
            Ok(None) => {}
            Err(_) => return Err(Attempt::Over(BootstrapError::NotAStore { store: store.to_owned() })),
        }
        // The store sends nothing after a greeting before this end sends again.
        let mut bytes = [0; GREETING];
        let n = match stream.read(&mut bytes) {
            Ok(0) => return Err(Attempt::Again("it closed the connection".to_owned())),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(Attempt::Again("it does not answer".to_owned()));
            }
            Err(e) => return Err(Attempt::Again(e.to_string())),
        };
        inbox.extend(&bytes[..n]);
    }
}

fn unreachable_store(launched: &Launched, within: Duration, reason: String) -> BootstrapError {
    let store = launched.store.clone().unwrap_or_default();
    BootstrapError::Connect { rank: launched.rank, store, within, reason }
}

/// Describes this process for messages.
fn who() -> String {
    let host = this_host::name();
    format!("process {} on {}", std::process::id(), if host.is_empty() { "this host" } else { &host })
}
