//! A target of another process that dies, stops or comes back while a command uses its device.

use crate::program;
use crate::random::Random;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Fate of the target, at a random moment.
#[derive(Clone, Copy, PartialEq)]
pub enum TargetFault {
    Killed,
    /// It goes on later.
    Stopped,
    /// Killed, and started again with the same device and address.
    Restarted,
}

/// Longest time until a target listens.
const STARTS: Duration = Duration::from_secs(20);

/// A running target, and the thread that troubles it.
pub struct Target {
    address: String,
    /// Ends the thread when it is dropped.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Target {
    /// Starts a target of a device.
    ///
    /// # Errors
    /// What it said, if it does not listen.
    pub fn start(device: &str, folder: &Path, target_fault: TargetFault, random: &mut Random) -> Result<Self, String> {
        // The port is free again when the target listens; another program may take it, which is an error here.
        let address =
            TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).map_err(|e| e.to_string())?.to_string();
        let child = serve(device, &address, folder)?;
        let after = Duration::from_millis(random.below(150));
        let pause = Duration::from_millis(50 + random.below(600));
        let (end, ended) = channel();
        let (device, listen, folder) = (device.to_owned(), address.clone(), folder.to_owned());
        let thread = std::thread::spawn(move || {
            let mut child = child;
            let waits = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            if waits(after) {
                match target_fault {
                    TargetFault::Stopped => {
                        signal(&child, libc::SIGSTOP);
                        waits(pause);
                        signal(&child, libc::SIGCONT);
                    }
                    TargetFault::Killed => _ = child.kill(),
                    TargetFault::Restarted => {
                        let _ = child.kill();
                        let _ = child.wait();
                        // A device file is locked until the old target is gone, so this one serves the same data.
                        if waits(pause)
                            && let Ok(again) = serve(&device, &listen, &folder)
                        {
                            child = again;
                        }
                    }
                }
                let _ = ended.recv();
            }
            // It has ended by itself if this fails.
            let _ = child.kill();
            let _ = child.wait();
        });
        Ok(Self { address, end: Some(end), thread: Some(thread) })
    }

    /// Returns the specification of the device for a host.
    pub fn device(&self) -> String {
        format!("nvmf:tcp://{}/{NQN}", self.address)
    }
}

const NQN: &str = "nqn.2026-01.org.warpbell:campaign";

/// Starts a target and waits until it listens.
fn serve(device: &str, address: &str, folder: &Path) -> Result<Child, String> {
    let args = ["nvme", "serve", device, "--listen", address, "--nqn", NQN];
    let mut command = program::command(args);
    let mut child =
        command.current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().map_err(|e| e.to_string())?;
    let (sender, lines) = channel();
    let out = child.stdout.take();
    std::thread::spawn(move || {
        for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    let mut said = String::new();
    loop {
        match lines.recv_timeout(STARTS) {
            Ok(line) if line.contains(address) => return Ok(child),
            Ok(line) => said.push_str(&line),
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{args:?} does not listen: {said}"));
            }
        }
    }
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: a system call with values; the process is a child that was not waited for, so its number is not another's.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.end.take());
        // The thread panics nowhere.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
