//! A QEMU process that ends with this process: dropping the handle kills it, and the kernel
//! kills it if this process dies.

use super::{QtestConfig, QtestError};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PROGRAM: &str = "qemu-system-x86_64";
/// Environment variable with the path of another QEMU.
const VARIABLE: &str = "WARPBELL_QEMU";
/// Bytes of QEMU's error output that an error contains.
const STDERR_BYTES: u64 = 2000;
/// Time for QEMU to exit after its socket closed, so that its error output is complete.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// Returns the path of QEMU: as configured, from `WARPBELL_QEMU`, or on PATH.
pub(super) fn find(configured: Option<&Path>) -> Result<PathBuf, QtestError> {
    let executable = |p: &Path| {
        use std::os::unix::fs::PermissionsExt;
        p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let named = configured.map(PathBuf::from).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    let program = named.unwrap_or_else(|| PROGRAM.into());
    let looked = || QtestError::NoQemu { looked: program.display().to_string() };
    // A bare name is searched on PATH, as a shell does; anything else is a path.
    if program.components().count() > 1 || program.is_absolute() {
        return if executable(&program) { Ok(program.clone()) } else { Err(looked()) };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|d| d.join(&program)).find(|p| executable(p)).ok_or_else(looked)
}

/// A running QEMU.
///
/// A thread of its own starts the child and lives as long as the child. The kernel sends a parent-death signal when the
/// *thread* that forked ends. The thread that opens a device may end long before the device is closed.
#[derive(Debug)]
pub(super) struct Qemu {
    end: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
    pid: u32,
    stderr: Mutex<File>,
}

impl Qemu {
    /// Starts QEMU, which inherits `ram` and `socket`. This process closes its copies of both.
    pub(super) fn start(config: &QtestConfig, ram: &File, socket: UnixStream) -> Result<Self, QtestError> {
        let program = find(config.qemu.as_deref())?;
        let refused = |source: std::io::Error| QtestError::Start { program: program.clone(), source };
        let stderr = tempfile::tempfile().map_err(refused)?;
        let ram = OwnedFd::from(ram.try_clone().map_err(refused)?);
        let mut command = Command::new(&program);
        command
            .args(config.arguments(ram.as_raw_fd(), socket.as_raw_fd()))
            // An interrupt from the keyboard must reach only this process, which closes the device in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr.try_clone().map_err(refused)?);
        let inherited = [ram.as_raw_fd(), socket.as_raw_fd()];
        let parent = std::process::id();
        // SAFETY: between fork and exec only async-signal-safe functions are called.
        unsafe {
            command.pre_exec(move || {
                for fd in inherited {
                    if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                }
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                // The parent may have died before the signal was set.
                if libc::getppid() as u32 != parent {
                    return Err(std::io::ErrorKind::Interrupted.into());
                }
                Ok(())
            });
        }
        let (end, ended) = channel::<()>();
        let (started, child) = channel::<std::io::Result<u32>>();
        let keeper = std::thread::Builder::new()
            .name("wb-qemu".to_owned())
            .spawn(move || {
                let spawned = command.spawn();
                // Closes this process's copies: QEMU has its own, and the socket must close when QEMU ends.
                drop((ram, socket, command));
                match spawned {
                    Ok(child) => {
                        let _ = started.send(Ok(child.id()));
                        // Returns an error when the sender is dropped.
                        let _ = ended.recv();
                        end_child(child);
                    }
                    Err(e) => drop(started.send(Err(e))),
                }
            })
            .map_err(refused)?;
        let pid = match child.recv() {
            Ok(Ok(pid)) => pid,
            Ok(Err(e)) => return Err(refused(e)),
            Err(_) => return Err(refused(std::io::ErrorKind::Other.into())),
        };
        Ok(Self { end: Some(end), keeper: Some(keeper), pid, stderr: Mutex::new(stderr) })
    }

    /// Returns the process identifier.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the end of QEMU's error output, on one line. For use after its socket closed.
    pub(super) fn last_words(&self) -> String {
        let started = Instant::now();
        loop {
            let text = self.stderr_text();
            if !text.is_empty() {
                return text;
            }
            if started.elapsed() > EXIT_GRACE {
                return "QEMU printed nothing".to_owned();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn stderr_text(&self) -> String {
        let mut file = self.stderr.lock();
        let mut bytes = Vec::new();
        let length = file.metadata().map_or(0, |m| m.len());
        let read =
            file.seek(SeekFrom::Start(length.saturating_sub(STDERR_BYTES))).and_then(|_| file.read_to_end(&mut bytes));
        if read.is_err() {
            return String::new();
        }
        let text = String::from_utf8_lossy(&bytes);
        text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

fn end_child(mut child: Child) {
    // Killing a QEMU that has already ended has no effect.
    let _ = child.kill();
    if let Err(e) = child.wait() {
        tracing::debug!(error = %e, "waiting for the end of QEMU failed");
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_what_to_install() {
        let text = find(Some(Path::new("/nowhere/qemu"))).unwrap_err().to_string();
        assert!(
            text.contains("/nowhere/qemu") && text.contains("qemu-system-x86") && text.contains(VARIABLE),
            "{text}"
        );
        assert!(find(Some(Path::new("no-such-program-anywhere"))).is_err());
        assert!(find(Some(Path::new("sh"))).unwrap().is_absolute());
        // A file that is not executable is not accepted.
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(find(Some(file.path())).is_err());
    }
}
