//! Service thread: processes queue pairs, connections to other adapters, and connections from them. It never blocks on
//! any of them.

use super::core::{Core, Mail};
use super::frame::{Answer, Frame};
use super::link::{Link, Waiter, prepare, watch};
use super::requester::{Requester, Route};
use super::wire::{Cut, Wire};
use crate::idle::{Idle, Pace, Pause};
use crate::listener::{
    Accepted, Acceptor, Admission, Limits, NEXT_STEP, Seldom, Source, Stranger, is_own_user, warn_of_crowd,
};
use crate::responsive::Responsive;
use crate::this_host;
use crate::wire::mlx5::Syndrome;
use socket2::Socket;
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Idle rounds that yield the processor.
const YIELDS: u32 = 100;
/// Shortest and longest sleep of a thread with queue pairs.
const NAPS: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(500)];
/// Sleep of a thread without queue pairs. Connections and messages wake it.
const LONG_NAP: Duration = Duration::from_millis(100);
/// Time that an idle thread only spins, if there is a processor for every thread.
const SPIN: Duration = Duration::from_secs(2);
/// Rounds between two polls of idle sockets.
const ROUNDS_PER_POLL: u32 = 16;
/// Most connections accepted in one round.
const ACCEPTED: usize = 64;
/// Name of the listeners in warnings.
const LISTENER: &str = "software NIC";
/// Time limit for the handshake.
const GREETING_LIMIT: Duration = Duration::from_secs(2);
/// Most strangers of one thread, at most one in so many descriptors of the process for all threads.
const MOST_STRANGERS: usize = 64;
const STRANGER_SHARE: usize = 8;
/// Most frames of one connection before the next connection is processed.
const FRAMES: usize = 64;
/// Time limit for sending remaining responses when the adapter ends.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Bytes of responses that wait for space in a socket above which no more requests are read.
const MOST_BACKLOG: usize = 4 << 20;

/// A connection that another adapter has established.
struct Incoming {
    wire: Wire,
    source: Source,
    /// True if the source was known when it connected.
    known: bool,
    /// True once the source is known by this connection.
    proved: bool,
}

impl Incoming {
    /// Returns the connection as a stranger, or `None` if the peer has proved that it is a member of the world.
    fn as_stranger(&self) -> Option<Stranger> {
        let Self { wire, source, known, .. } = self;
        let silent = wire.is_silent();
        (!wire.is_open()).then(|| Stranger { source: *source, known: *known, since: wire.started(), silent })
    }
}

pub(super) struct Service {
    core: Arc<Core>,
    index: usize,
    listeners: Vec<Socket>,
    next_thread: usize,
    acceptor: Acceptor,
    strangers: Limits,
    /// Limits of the warnings of too many strangers, of strangers of other users, and of connections that were rejected or lost.
    warnings: [Seldom; 3],
    pairs: Vec<Requester>,
    links: HashMap<u128, Link>,
    incoming: Vec<Incoming>,
    scratch: (Vec<u8>, Vec<u8>),
    fds: Vec<libc::pollfd>,
    idle: Idle,
}

impl Service {
    /// Creates the state of thread `index`. The thread with listeners distributes incoming connections over all
    /// threads.
    pub(super) fn new(core: Arc<Core>, index: usize, listeners: Vec<Socket>) -> Self {
        let processors = crate::processors::to_spin_on();
        // Kernels on CPU threads need the processors more than idle polling does.
        let may_spin = processors >= 4 && core.config.threads.saturating_mul(core.config.sharers) < processors / 2;
        let share = STRANGER_SHARE.saturating_mul(core.config.threads);
        let strangers = Limits::new(MOST_STRANGERS, share, this_host::descriptor_limit());
        Self {
            core,
            index,
            listeners,
            next_thread: 0,
            acceptor: Acceptor::new(LISTENER),
            strangers,
            warnings: Default::default(),
            pairs: Vec::new(),
            links: HashMap::new(),
            incoming: Vec::new(),
            scratch: Default::default(),
            fds: Vec::new(),
            idle: Idle::new(Pace { spin: if may_spin { SPIN } else { Duration::ZERO }, yields: YIELDS, naps: NAPS }),
        }
    }

    /// Runs until the adapter ends.
    pub(super) fn run(mut self) {
        let _responsive = Responsive::enter();
        let core = self.core.clone();
        let mut round = 0u32;
        while !core.stop.load(Ordering::Acquire) {
            round = round.wrapping_add(1);
            let now = Instant::now();
            let mut done = self.read_mail(now);
            if core.is_dead() {
                self.fall_silent();
                continue;
            }
            for pair in &mut self.pairs {
                done += pair.serve(&core, &mut self.links, &mut self.scratch, now);
            }
            // Queue pairs within this process need no sockets. If there are sockets, every round polls them.
            if !self.links.is_empty() || !self.incoming.is_empty() || done == 0 || round.is_multiple_of(ROUNDS_PER_POLL)
            {
                done += self.accept(now) + self.pump_links(now) + self.pump_incoming(now);
            }
            match done {
                0 => self.rest(now),
                _ => self.idle.busy(),
            }
        }
        self.say_the_last();
    }

    /// Sends the remaining responses to requests that were carried out, within a short time. A peer may be waiting for
    /// the last of them.
    fn say_the_last(&mut self) {
        let until = Instant::now() + LAST_WORDS;
        while !self.core.is_dead() && Instant::now() < until {
            self.incoming.retain_mut(|i| i.wire.backlog() > 0 && i.wire.pump().is_ok());
            if self.incoming.is_empty() {
                break;
            }
            self.wait(NAPS[0]);
        }
    }

    /// Behaves as a dead adapter: does nothing and notifies nobody.
    fn fall_silent(&mut self) {
        self.listeners.clear();
        std::thread::sleep(NAPS[1] * 2);
    }

    fn read_mail(&mut self, now: Instant) -> usize {
        let core = self.core.clone();
        let Some(mailbox) = core.mail.get(self.index) else { return 0 };
        let mail = mailbox.take();
        let count = mail.len();
        for m in mail {
            match m {
                Mail::Add(shared) => match Requester::new(&core, shared) {
                    Ok(r) => self.pairs.push(r),
                    Err(e) => tracing::warn!("a queue pair cannot be started: {e}"),
                },
                Mail::Connect { number, peer, reply } => {
                    let nic = peer.at.clone();
                    // The peer's connection may arrive before this end's is made.
                    nic.tcp.iter().for_each(|at| core.known.lock().insert_address(at.ip()));
                    let route = Route::find(&core, peer);
                    let pair = self.pairs.iter_mut().find(|p| p.shared.number == number);
                    let answer = match (pair, route) {
                        (None, _) => Err("this side's queue pair could not be started".to_owned()),
                        (_, Err(e)) => Err(e),
                        (Some(pair), Ok(route)) => {
                            let linked = matches!(route, Route::Linked { .. });
                            pair.connect(route);
                            if linked {
                                let until = now + core.config.timeouts.connect;
                                let link = self.links.entry(nic.nic).or_insert_with(|| Link::new(nic));
                                // A new attempt may succeed even if an earlier one was rejected.
                                link.denied = false;
                                link.waiters.push(Waiter { reply, until });
                                continue;
                            }
                            Ok(())
                        }
                    };
                    // The caller may have given up.
                    let _ = reply.send(answer);
                }
                Mail::Reset { number, reply } => {
                    let pair = self.pairs.iter_mut().find(|p| p.shared.number == number);
                    let answer = pair.map_or(Ok(()), |p| p.reset().map_err(|e| e.to_string()));
                    self.forget_links();
                    let _ = reply.send(answer);
                }
                Mail::Close { number } => {
                    self.pairs.retain(|p| p.shared.number != number);
                    self.forget_links();
                }
                Mail::Incoming { socket, source, is_last } => self.welcome(socket, source, is_last),
            }
        }
        count
    }

    /// Drops links that no queue pair uses any more.
    fn forget_links(&mut self) {
        let pairs = &self.pairs;
        self.links.retain(|nic, link| !link.waiters.is_empty() || pairs.iter().any(|p| p.link() == Some(*nic)));
    }

    fn accept(&mut self, now: Instant) -> usize {
        let Self { core, listeners, acceptor, warnings, next_thread, .. } = self;
        let mut count = 0;
        for listener in listeners.iter() {
            while count < ACCEPTED {
                let (socket, address, is_last) = match acceptor.next(now, || listener.accept()) {
                    Accepted::Connection((socket, address)) => (socket, address, false),
                    Accepted::Last((socket, address)) => (socket, address, true),
                    Accepted::Nothing => break,
                };
                count += 1;
                let ready = socket
                    .set_nonblocking(true)
                    .and_then(|()| if address.is_unix() { Ok(()) } else { prepare(&socket) });
                if let Err(e) = ready {
                    tracing::debug!("a new connection failed: {e}");
                    continue;
                }
                if address.is_unix() && !is_own_user(&socket) {
                    if let Some(before) = warnings[1].due(now) {
                        tracing::warn!(
                            "a connection of another user was rejected, and {before} since the last such message; start all ranks as one \
                             user, or end the program that connects"
                        );
                    }
                    continue;
                }
                let source = address.as_socket().map_or(Source::ThisHost, |a| Source::of(a.ip()));
                *next_thread = (*next_thread + 1) % core.config.threads;
                core.post(*next_thread, Mail::Incoming { socket, source, is_last });
            }
        }
        count
    }

    fn welcome(&mut self, socket: Socket, source: Source, is_last: bool) {
        let (at, all): (Vec<usize>, Vec<Stranger>) =
            self.incoming.iter().enumerate().filter_map(|(i, known)| Some((i, known.as_stranger()?))).unzip();
        let known = self.core.known.lock().has(source);
        match self.strangers.admit(&all, source, known, is_last) {
            Admission::Keep => {}
            Admission::Refuse => return,
            Admission::Replace(goes) => {
                warn_of_crowd(&mut self.warnings[0], LISTENER, all.len(), self.strangers, Instant::now());
                self.incoming.swap_remove(at[goes]);
            }
        }
        // The socket decides, and nothing that the other end says.
        let protection = self.core.config.encryption.of(source == Source::ThisHost);
        let mut wire = Wire::respond(socket, self.core.endpoint.nic, &self.core.config.key, protection);
        // A member has already sent its hello.
        if wire.pump().is_ok() {
            self.incoming.push(Incoming { wire, source, known, proved: false });
        }
    }

    fn pump_links(&mut self, now: Instant) -> usize {
        let Self { core, links, pairs, .. } = self;
        let (me, config) = (core.endpoint.nic, &core.config);
        let t = &config.timeouts;
        let mut done = 0;
        for (nic, link) in links.iter_mut() {
            let wanted = pairs.iter().any(|p| p.link() == Some(*nic) && p.needs_link());
            done += usize::from(link.pump(me, config, wanted, now));
            let mut cut = None;
            for _ in 0..FRAMES {
                let Some(wire) = &mut link.wire else { break };
                match wire.next() {
                    Ok(true) => done += 1,
                    Ok(false) => break,
                    Err(e) => {
                        cut = Some(e);
                        break;
                    }
                }
                match Frame::decode(wire.frame()) {
                    Some(Frame::Pong) => {}
                    Some(Frame::Response { pair, nonce, sequence, answer }) => {
                        if let Some(p) = pairs.iter_mut().find(|p| p.shared.number == pair && p.link() == Some(*nic)) {
                            p.answered(core, nonce, sequence, &answer, now);
                        }
                    }
                    _ => {
                        cut = Some(Cut::Garbage("a frame that is not a response"));
                        break;
                    }
                }
            }
            if let Some(wire) = &mut link.wire {
                core.counters.broken(wire);
            }
            if let Some(why) = cut {
                link.cut(&why, now);
            }
            if let Some(why) = link.loss(t, now) {
                pairs.iter_mut().filter(|p| p.link() == Some(*nic)).for_each(|p| p.lose(&why));
            }
        }
        done
    }

    fn pump_incoming(&mut self, now: Instant) -> usize {
        let Self { core, incoming, scratch, warnings, .. } = self;
        let t = core.config.timeouts;
        let mut done = 0;
        incoming.retain_mut(|i| {
            let known = i.wire.is_open();
            let result = serve_peer(core, &mut i.wire, scratch);
            core.counters.broken(&mut i.wire);
            if let Ok(n) = &result {
                done += n;
            }
            if !i.proved && i.wire.is_open() {
                i.proved = true;
                core.known.lock().insert(i.source);
            }
            let quiet = match known {
                true => now.duration_since(i.wire.heard()) > 2 * t.silence,
                false => now.duration_since(i.wire.started()) > t.connect.min(GREETING_LIMIT),
            };
            match result {
                Ok(_) if !quiet => true,
                Ok(_) => false,
                Err(e) => {
                    let peer = format_args!("{:032x}", i.wire.peer());
                    match e {
                        Cut::Closed => {}
                        e if known => tracing::warn!(%peer, "a connection was lost: {e}"),
                        e => {
                            if let Some(before) = warnings[2].due(now) {
                                let source = i.source;
                                tracing::warn!(
                                    %peer,
                                    "a connection from {source} was rejected: {e}; {before} others were since the last such message; if \
                                     {source} is no host of this world, {NEXT_STEP}"
                                );
                            }
                        }
                    }
                    false
                }
            }
        });
        done
    }

    /// Pauses an idle thread: spins, yields, or sleeps until a socket or a message wakes it.
    fn rest(&mut self, now: Instant) {
        let nap = match self.pairs.is_empty() {
            true => LONG_NAP,
            false => match self.idle.next() {
                Pause::Nap(nap) => nap,
                short => return short.make(|_| {}),
            },
        };
        let alarm = self.pairs.iter().filter_map(Requester::alarm).min();
        let nap = alarm.map_or(nap, |at| nap.min(at.saturating_duration_since(now)));
        self.wait(nap);
    }

    fn wait(&mut self, nap: Duration) {
        let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        self.fds.clear();
        self.fds.extend(self.core.mail.get(self.index).map(|m| readable(m.fd())));
        // While accepting is paused, waiting connections must not wake this thread.
        let is_paused = self.acceptor.paused_until().is_some_and(|until| Instant::now() < until);
        let listeners = if is_paused { &[] } else { &self.listeners[..] };
        self.fds.extend(listeners.iter().map(|l| readable(l.as_raw_fd())));
        self.fds.extend(self.links.values().filter_map(|l| l.wire.as_ref()).map(watch));
        self.fds.extend(self.incoming.iter().map(|i| watch(&i.wire)));
        let time = libc::timespec { tv_sec: nap.as_secs() as libc::time_t, tv_nsec: nap.subsec_nanos().into() };
        // SAFETY: the array and the time are borrowed for the call; no signal mask is changed.
        unsafe { libc::ppoll(self.fds.as_mut_ptr(), self.fds.len() as libc::nfds_t, &time, std::ptr::null()) };
    }
}

/// Reads a peer's requests, carries them out and responds. Returns the number of steps done.
fn serve_peer(core: &Core, wire: &mut Wire, scratch: &mut (Vec<u8>, Vec<u8>)) -> Result<usize, Cut> {
    let mut done = usize::from(wire.pump()?);
    for _ in 0..FRAMES {
        if wire.backlog() > MOST_BACKLOG {
            break;
        }
        if !wire.next()? {
            break;
        }
        done += 1;
        let peer = wire.peer();
        let frame = Frame::decode(wire.frame()).ok_or(Cut::Garbage("a frame that cannot be decoded"))?;
        match answer_to(core, peer, &frame, &mut scratch.0)? {
            Some(bytes) => wire.send(&bytes),
            None => continue,
        }
    }
    if done > 0 {
        wire.pump()?;
    }
    Ok(done)
}

/// Returns the encoded response to a frame, or `None` if there is none.
fn answer_to(core: &Core, peer: u128, frame: &Frame<'_>, data: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Cut> {
    let (number, nonce, from, from_nonce, sequence, answered, command) = match frame {
        Frame::Ping => return Ok(Some(Frame::Pong.encode())),
        Frame::Request { pair, nonce, from, from_nonce, sequence, answered, command } => {
            (*pair, *nonce, *from, *from_nonce, *sequence, *answered, command)
        }
        _ => return Err(Cut::Garbage("a frame that is not a request")),
    };
    let respond = |answer: Answer<'_>| Frame::Response { pair: from, nonce: from_nonce, sequence, answer }.encode();
    let gone = |why| Ok(Some(respond(Answer::Gone(why))));
    let Some(pair) = core.pair(number).filter(|p| !p.closed.load(Ordering::Acquire)) else {
        return gone("the peer has closed its queue pair");
    };
    let mut state = pair.state.lock();
    if state.nonce != nonce {
        return gone("the peer has reset its queue pair");
    }
    match &state.peer {
        // This side is not connected yet. The peer sends the request again.
        None => return Ok(None),
        Some(p) if (p.at.nic, p.number, p.nonce) != (peer, from, from_nonce) => {
            return gone("the peer's queue pair is connected with another");
        }
        Some(_) => {}
    }
    let responder = &mut state.responder;
    responder.forget(answered);
    if sequence != responder.expected {
        // An earlier sequence number: the command was carried out, and its response was lost. A later one: an earlier
        // command was lost, and the peer sends both again.
        return Ok(responder.again(sequence).map(<[u8]>::to_vec));
    }
    if !responder.has_room() {
        return Err(Cut::Garbage("a peer that acknowledges no responses"));
    }
    let answer = responder.execute(&core.memory, command, data);
    let ready = answer != Answer::NotReady;
    if let Answer::Failed(f) = &answer
        && f.syndrome != Syndrome::FLUSHED
    {
        tracing::debug!(pair = number, "a peer's request was refused: {f}");
    }
    let bytes = respond(answer);
    if ready {
        responder.expected += 1;
        responder.answers.push_back((sequence, bytes.clone()));
    }
    Ok(Some(bytes))
}
