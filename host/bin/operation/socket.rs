//! Sockets at which `warpbell top` reads the counters of this user's processes: `PID.sock` in a folder of the user.

use super::Observed;
use super::server::{Listener, OBSERVE};
use parking_lot::Mutex;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for a process to show its counters.
const PATIENT: Duration = Duration::from_secs(5);
/// Bytes of the longest counters.
const LONGEST: u64 = 64 << 20;
const ENDING: &str = "sock";

/// Returns the folder of the sockets: that of the session, or one in /tmp.
fn folder() -> PathBuf {
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute() && p.is_dir());
    // SAFETY: a system call without arguments, which does not fail.
    let user = unsafe { libc::geteuid() };
    session.map_or_else(|| PathBuf::from(format!("/tmp/warpbell-{user}")), |p| p.join("warpbell"))
}

/// Creates a folder for this user only. Refuses one that others could change.
fn create(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    is_private(folder)
}

/// Checks that a folder is one of this user, and no link.
fn is_private(folder: &Path) -> io::Result<()> {
    let facts = fs::symlink_metadata(folder)?;
    // SAFETY: a system call without arguments, which does not fail.
    let user = unsafe { libc::geteuid() };
    if facts.is_dir() && facts.uid() == user && facts.mode() & 0o077 == 0 {
        return Ok(());
    }
    let (mode, owner) = (facts.mode() & 0o7777, facts.uid());
    let reason = format!("{}: mode {mode:03o}, owner {owner}: not a folder for user {user} only", folder.display());
    Err(io::Error::new(ErrorKind::PermissionDenied, reason))
}

/// Path of this process's socket, for a process that ends without dropping its [`Place`].
static OWN: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Removes this process's socket, if it has one.
pub fn remove() {
    if let Some(path) = OWN.lock().take() {
        let _ = fs::remove_file(path);
    }
}

/// The place of this process's socket. Dropping it removes the socket.
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// Creates the folder, and removes sockets of processes that have ended.
    ///
    /// # Errors
    /// Those of the system, and `PermissionDenied` if others can change the folder.
    pub fn new() -> io::Result<Self> {
        let place = Self::within(&folder())?;
        *OWN.lock() = Some(place.path.clone());
        Ok(place)
    }

    fn within(folder: &Path) -> io::Result<Self> {
        create(folder)?;
        let path = folder.join(format!("{}.{ENDING}", std::process::id()));
        for (_, other) in sockets(folder).into_iter().filter(|(_, other)| *other != path) {
            if connect(&other).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
                let _ = fs::remove_file(other);
            }
        }
        Ok(Self { path })
    }

    /// Listens at the place.
    ///
    /// # Errors
    /// Those of the system.
    pub fn listener(&self) -> io::Result<Listener> {
        // Other processes remove a socket that nobody listens at, as one is between its creation and `listen`.
        let early = self.path.with_extension("new");
        let _ = fs::remove_file(&early);
        let listener = Listener::unix(&early)?;
        fs::rename(&early, &self.path)?;
        Ok(listener)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // One that stays is removed by the next command.
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects without waiting: `WouldBlock` tells of a process that is stopped and has no place for another connection.
fn connect(path: &Path) -> io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// Returns the sockets in a folder with the numbers of their processes, by number.
fn sockets(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let mut all: Vec<_> = entries
        .filter(|p| p.extension().is_some_and(|e| e == ENDING))
        .filter_map(|p| Some((p.file_stem()?.to_str()?.parse().ok()?, p)))
        .collect();
    all.sort();
    all
}

/// Returns the processes of this user that show their counters.
///
/// # Errors
/// `PermissionDenied` if others can change the folder of the sockets.
pub fn processes() -> io::Result<Vec<u32>> {
    let folder = folder();
    match is_private(&folder) {
        Ok(()) => Ok(sockets(&folder).into_iter().map(|(pid, _)| pid).collect()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Reads the counters of a process.
///
/// # Errors
/// Those of the system, `NotFound` and `ConnectionRefused` among them if the process has ended, and `InvalidData` if it does not speak
/// as this program does.
pub fn observe(pid: u32) -> io::Result<Observed> {
    observe_at(&folder().join(format!("{pid}.{ENDING}")))
}

fn observe_at(path: &Path) -> io::Result<Observed> {
    let mut stream = connect(path)?;
    stream.set_read_timeout(Some(PATIENT))?;
    stream.set_write_timeout(Some(PATIENT))?;
    write!(stream, "GET {OBSERVE} HTTP/1.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer)?;
    let body = answer.strip_prefix("HTTP/1.1 200 ").and_then(|a| a.split_once("\r\n\r\n")).map(|(_, body)| body);
    let body = body.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it does not answer as warpbell does"))?;
    serde_json::from_str(body).map_err(|e| io::Error::new(ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::super::server::{Server, Shown};
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_process_shows_its_counters_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("warpbell");
        let own = Place::within(&folder).unwrap();
        let shown = Shown { pid: 5, command: "graph bfs".to_owned() };
        let server = Server::start(vec![own.listener().unwrap()], shown).unwrap();
        let found = sockets(&folder);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].0, &*observe_at(&found[0].1).unwrap().command), (std::process::id(), "graph bfs"));
        drop((server, own));
        assert!(sockets(&folder).is_empty());
    }

    #[test]
    fn sockets_of_ended_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("warpbell");
        create(&folder).unwrap();
        let (stale, alive) = (folder.join("1.sock"), folder.join("2.sock"));
        drop(UnixListener::bind(&stale).unwrap());
        let _alive = UnixListener::bind(&alive).unwrap();
        fs::write(folder.join("other.sock"), "").unwrap();
        let _own = Place::within(&folder).unwrap();
        assert_eq!(sockets(&folder), [(2, alive)]);
    }

    #[test]
    fn a_stopped_process_holds_no_one_up() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("warpbell");
        create(&folder).unwrap();
        let path = folder.join("1.sock");
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(1).unwrap();
        let waiting: Vec<_> = (0..20).map_while(|_| connect(&path).ok()).collect();
        assert!(waiting.len() < 20);
        assert_eq!(observe_at(&path).unwrap_err().kind(), ErrorKind::WouldBlock);
        let _own = Place::within(&folder).unwrap();
        assert_eq!(sockets(&folder), [(1, path)]);
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [open, link] = ["open", "link"].map(|n| folder.path().join(n));
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o750)).unwrap();
        let private = folder.path().join("private");
        create(&private).unwrap();
        symlink(&private, &link).unwrap();
        for refused in [&open, &link] {
            assert_eq!(create(refused).unwrap_err().kind(), ErrorKind::PermissionDenied, "{}", refused.display());
        }
    }
}
