//! Processes with listeners, and the work that they do while they are attacked.

use super::attack::{self, Bounds};
use super::nics;
use super::process::{ports, variable};
use super::stranger::{Behaviour, Place};
use crate::campaign::Outcome;
use crate::family::{Family, signal};
use crate::middle::{Middle, await_some};
use crate::program::{Ended, Running, run as run_command};
use crate::random::Random;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time in which a busy machine does anything.
pub const BUSY: Duration = Duration::from_secs(60);
/// Token of the metrics, and one that begins like it.
const TOKEN: &str = "0123456789abcdefghijklmnopqrstuv";
const NEARLY: &str = "0123456789abcdefXXXXXXXXXXXXXXXX";
/// Bytes of a greeting of the store and of software NICs.
const STORE_GREETING: usize = 60;
const NIC_GREETING: usize = 92;

/// A listener of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listener {
    Store,
    Nic,
    ServeTcp,
    ServeSoft,
    Metrics,
    Top,
}

impl Listener {
    pub const ALL: [Self; 6] = [Self::Store, Self::Nic, Self::ServeTcp, Self::ServeSoft, Self::Metrics, Self::Top];

    pub fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Nic => "software NIC",
            Self::ServeTcp => "nvme serve tcp",
            Self::ServeSoft => "nvme serve soft",
            Self::Metrics => "metrics",
            Self::Top => "top",
        }
    }

    fn bounds(self) -> Bounds {
        let (time, places, threads, mib) = match self {
            Self::Store => (10, 2048, 2, 16),
            // The rank starts threads and buffers of its own work.
            Self::Nic => (2, 64, 8, 64),
            // A host that says Connect has a thread and a queue.
            Self::ServeTcp => (10, 256, 96, 96),
            Self::ServeSoft => (10, 256, 64, 192),
            Self::Metrics => (5, 32, 32, 64),
            Self::Top => (5, 32, 8, 64),
        };
        let reply: fn(&[u8]) -> Result<(), String> = match self {
            Self::Store => |reply| short(reply, 2 * STORE_GREETING),
            Self::Nic => |reply| short(reply, 2 * NIC_GREETING),
            Self::Metrics => no_metrics,
            Self::ServeTcp | Self::ServeSoft | Self::Top => |_| Ok(()),
        };
        Bounds { time: Duration::from_secs(time), places, threads, bytes: mib << 20, reply }
    }
}

fn short(reply: &[u8], most: usize) -> Result<(), String> {
    if reply.len() <= most { Ok(()) } else { Err(format!("a stranger got {} bytes, more than {most}", reply.len())) }
}

fn no_metrics(reply: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(reply);
    if text.contains("warpbell_") || text.starts_with("HTTP/1.1 200") {
        return Err(format!("a stranger without the token got:\n{text}"));
    }
    Ok(())
}

pub fn run(listener: Listener, behaviour: Behaviour, random: &mut Random) -> Outcome {
    let family = Family::new();
    match listener {
        Listener::Store | Listener::Nic | Listener::Top => world(&family, listener, behaviour, random)?,
        Listener::ServeTcp | Listener::ServeSoft | Listener::Metrics => serve(&family, listener, behaviour, random)?,
    }
    family.check_left(false)?;
    Ok(attack::OUTCOME)
}

/// Attacks a world of two ranks: its store, the adapter of rank 0, or the counters of rank 0.
fn world(family: &Family, listener: Listener, behaviour: Behaviour, random: &mut Random) -> Result<(), String> {
    /// The ranks work, for as long as the attack takes, and once more when rank 0's input ends. Rank 1 has a detour to the
    /// store the first time.
    const SCRIPT: &str = r#"
        direct=$WARPBELL_STORE
        [ $WARPBELL_RANK = 0 ] || export WARPBELL_STORE=$DETOUR
        "$PROGRAM" bench rdma write_bw --transport soft --soft tcp -D $TIME -s 4096 --initiator host --engine cpu --threads 1 || exit
        export WARPBELL_STORE=$direct
        cat > /dev/null
        exec "$PROGRAM" bench shmem put_bw -e 4k -f 64 -n 50 --runs 1 --engine cpu --threads 1
    "#;
    let bounds = listener.bounds();
    let middle = Middle::new(0, None);
    // The store goes on when the work has ended.
    let time = match (listener, behaviour) {
        (Listener::Store, _) => 2,
        (_, Behaviour::Silent) => bounds.time.as_secs() + 8,
        _ => 8,
    };
    let heard_of_nics = if listener == Listener::Nic { nics::heard()? } else { Vec::new() };
    let mut command = family.command(["run", "-n", "2", "--", "sh", "-c", SCRIPT]);
    command.env("PROGRAM", crate::tree::program()).env("DETOUR", middle.at.to_string()).env("TIME", time.to_string());
    let mut launcher = Running::start(command.stdin(Stdio::piped()))?;
    let process = launcher.child.id();
    let store = await_some(BUSY, || ports(process).first().copied()).ok_or("the launcher has no port")?;
    let store = SocketAddr::from(([127, 0, 0, 1], store));
    middle.lead_to(store);
    let rank = await_some(BUSY, || family.rank(0)).ok_or("no rank 0")?;
    let secret = variable(rank, "WARPBELL_SECRET").ok_or("rank 0 has no secret")?;
    let attacked = match listener {
        Listener::Store => {
            let came = await_some(BUSY, || middle.heard().first().filter(|h| h.len() >= STORE_GREETING).map(|_| ()));
            came.ok_or("rank 1 does not come to the store")?;
            attack::run(process, &Place::Tcp(store), behaviour, &middle.heard(), &bounds, random)
        }
        Listener::Nic => {
            let port = await_some(BUSY, || ports(rank).first().copied()).ok_or("rank 0 has no adapter over TCP")?;
            let place = Place::Tcp(SocketAddr::from(([127, 0, 0, 1], port)));
            attack::run(rank, &place, behaviour, &heard_of_nics, &bounds, random)
        }
        _ => {
            let path = family.sockets().join(format!("{rank}.sock"));
            await_some(BUSY, || path.exists().then_some(())).ok_or("rank 0 has no socket for `warpbell top`")?;
            let good = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
            attack::run(rank, &Place::Unix(path), behaviour, &[good], &bounds, random)
        }
    };
    let told = |e: String, launcher: Running| {
        let said = launcher.end(Duration::from_secs(1)).map_or_else(|e| e, |e| e.text());
        format!("{e}\n{said}")
    };
    let guessed = if listener == Listener::Store { almost_a_rank(family, &secret, store) } else { Ok(()) };
    if let Err(e) = attacked.and(guessed) {
        return Err(told(e, launcher));
    }
    if listener == Listener::Top {
        // A rank whose work ends meanwhile is not shown.
        let seen = run_command(&mut family.command(["top", "--once", "--json", "--interval", "100ms"]), BUSY)?;
        if let Some(what) = seen.disorder() {
            return Err(told(what, launcher));
        }
    }
    drop(launcher.child.stdin.take());
    let ended = launcher.end(BUSY)?;
    let verified = ended.out.matches("messages verified, wrong 0").count();
    let rows = ended.out.lines().filter(|l| l.starts_with("[0]  ") && l.ends_with(" 0") && !l.contains('#'));
    if !ended.status.success() || verified != 1 || rows.count() < 2 || ended.err.contains("panicked") {
        return Err(format!("the ranks did not verify all: {}\n{}", ended.status, ended.text()));
    }
    Ok(())
}

/// Lets a rank come whose secret begins like that of the world. It must be turned away.
fn almost_a_rank(family: &Family, secret: &str, store: SocketAddr) -> Result<(), String> {
    let (good, rest) = secret.split_at(secret.len() / 2);
    let changed: String = rest.chars().map(|c| if c == '0' { '1' } else { '0' }).collect();
    let mut command = family.command(["bench", "shmem", "put_bw", "-e", "8", "-n", "5", "--engine", "cpu"]);
    command.env("WARPBELL_RANK", "1").env("WARPBELL_SIZE", "2").env("WARPBELL_STORE", store.to_string());
    command.env("WARPBELL_SECRET", format!("{good}{changed}")).env("WARPBELL_TIMEOUT", "5s");
    let ended = run_command(&mut command, BUSY)?;
    if !ended.reports_error() || !ended.err.contains("secret") {
        return Err(format!("a rank with another secret: {}\n{}", ended.status, ended.text()));
    }
    Ok(())
}

/// A target of NVMe over Fabrics.
pub struct Exported {
    running: Running,
    pub at: SocketAddr,
    metrics: SocketAddr,
    is_soft: bool,
}

impl Exported {
    pub fn start(family: &Family, is_soft: bool) -> Result<Self, String> {
        let file = family.path("token");
        std::fs::write(&file, TOKEN).map_err(|e| format!("{}: {e}", file.display()))?;
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, private).map_err(|e| format!("{}: {e}", file.display()))?;
        let (transport, file) = (if is_soft { "soft" } else { "tcp" }, file.display().to_string());
        let listen = ["nvme", "serve", "soft:mem:16M", "--listen", "127.0.0.1:0", "--transport", transport];
        let metrics = ["--metrics", "0", "--metrics-token-file", &file];
        let running = Running::start(&mut family.command(listen.into_iter().chain(metrics)))?;
        let process = running.child.id();
        let found = await_some(BUSY, || {
            let all = ports(process).into_iter().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
            let (metrics, others): (Vec<_>, Vec<_>) =
                all.partition(|at| ask(*at, "/", TOKEN).starts_with("HTTP/1.1 404"));
            Some((*others.first()?, *metrics.first()?))
        });
        let (at, metrics) = found.ok_or("it does not listen")?;
        Ok(Self { running, at, metrics, is_soft })
    }

    /// Returns a search whose edges are on the target, by way of an address.
    pub fn search(&self, family: &Family, at: SocketAddr, options: &str) -> Command {
        let scheme = if self.is_soft { "soft" } else { "tcp" };
        let device = format!("nvmf:{scheme}://{at}/nqn.2026-01.org.warpbell:serve{options}");
        let work = ["graph", "bfs", "kron:11", "--verify", "--engine", "cpu", "--threads", "1", "--deadline", "8s"];
        family.command(work.into_iter().chain(["--device", &device]))
    }

    /// Ends it in order.
    pub fn end(self) -> Result<(), String> {
        signal(self.running.child.id(), libc::SIGTERM);
        let ended = self.running.end(BUSY)?;
        let is_orderly = ended.status.code() == Some(128 + libc::SIGTERM) && !ended.err.contains("panicked");
        if is_orderly { Ok(()) } else { Err(format!("the target: {}\n{}", ended.status, ended.text())) }
    }
}

/// Returns true if a search says that its result is right.
pub fn is_verified(ended: &Ended) -> bool {
    ended.status.success() && ended.out.contains("   verified (")
}

/// Returns the response of the metrics, as far as it comes.
fn ask(at: SocketAddr, path: &str, token: &str) -> String {
    let mut response = Vec::new();
    if let Ok(mut stream) = TcpStream::connect(at) {
        // A listener of something else closes the connection, or says nothing.
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\n\r\n");
        let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_end(&mut response).map(|_| ()));
    }
    String::from_utf8_lossy(&response).into_owned()
}

/// Attacks a target, or its metrics, while a host works with it.
fn serve(family: &Family, listener: Listener, behaviour: Behaviour, random: &mut Random) -> Result<(), String> {
    let exported = Exported::start(family, listener == Listener::ServeSoft)?;
    let bounds = listener.bounds();
    let middle = Middle::new(0, None);
    middle.lead_to(exported.at);
    let verify = |at: SocketAddr| {
        let digests = if exported.is_soft { "" } else { ",hdr_digest,data_digest" };
        let ended = run_command(&mut exported.search(family, at, digests), BUSY)?;
        if is_verified(&ended) { Ok(()) } else { Err(format!("a host: {}\n{}", ended.status, ended.text())) }
    };
    verify(middle.at)?;
    let (place, heard) = if listener == Listener::Metrics {
        let nearly =
            format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {NEARLY}\r\n\r\n", exported.metrics);
        (Place::Tcp(exported.metrics), vec![nearly.into_bytes()])
    } else {
        (Place::Tcp(exported.at), middle.heard())
    };
    let over = AtomicBool::new(false);
    let (attacked, worked) = std::thread::scope(|s| {
        let work = s.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                verify(exported.at)?;
            }
            Ok::<_, String>(())
        });
        let attacked = attack::run(exported.running.child.id(), &place, behaviour, &heard, &bounds, random);
        over.store(true, Ordering::Relaxed);
        (attacked, work.join().unwrap_or_else(|_| Err("a panic".to_owned())))
    });
    let good = || {
        let text = ask(exported.metrics, "/metrics", TOKEN);
        let is_good = text.starts_with("HTTP/1.1 200") && text.contains("warpbell_");
        if is_good { Ok(()) } else { Err(format!("the metrics with the token: {text}")) }
    };
    let all = attacked.and(worked).and_then(|()| verify(exported.at)).and_then(|()| good());
    let end = exported.end();
    all.map_err(|e| format!("{e}\n{}", end.as_ref().err().map_or("", String::as_str)))?;
    end
}
