//! The guest's devices, as `tests/rig/guest-rdma.sh` creates them, and programs in it.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A Soft-RoCE device.
pub const DEVICE: &str = "rxe0";
/// An iWARP device on the same network device.
pub const IWARP: &str = "siw0";
/// The network device's address.
pub const ADDRESS: &str = "10.9.0.1";
/// The network device.
pub const LINK: &str = "roce0";
/// Index of that address in the GID table; index 0 has the link's own IPv6 address.
pub const GID_INDEX: &str = "1";

/// Far longer than any program takes that does not hang, on emulated processors.
pub const LONG: Duration = Duration::from_secs(170);

/// Fails the test unless this is the guest of the rig with RDMA devices.
#[track_caller]
pub fn inside() {
    let inside = std::env::var_os("WARPBELL_RIG_RDMA").is_some();
    assert!(inside, "this machine is no guest of the rig with RDMA devices; tests/rig/run --rdma starts one");
}

/// Output of a program, and true if it succeeded.
pub struct Done {
    pub well: bool,
    pub out: String,
    pub err: String,
}

impl Done {
    /// Returns the output of both streams.
    pub fn text(&self) -> String {
        format!("{}{}", self.out, self.err)
    }
}

/// Prints a command line.
pub fn show(command: &Command) {
    let words: Vec<_> =
        std::iter::once(command.get_program()).chain(command.get_args()).map(|w| w.to_string_lossy()).collect();
    let set: Vec<_> =
        command.get_envs().filter_map(|(k, v)| Some(format!("{}={} ", k.to_str()?, v?.to_str()?))).collect();
    println!("$ {}{}", set.concat(), words.join(" "));
}

/// Runs a program to its end, and prints all its output.
#[track_caller]
pub fn run(command: &mut Command) -> Done {
    show(command);
    let started = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let id = child.id();
    let (sender, ended) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if ended.recv_timeout(LONG).is_err() {
            println!("it goes on after {LONG:?} and is ended");
            // SAFETY: a system call with values; the process is one that was started here and not waited for yet.
            unsafe { libc::kill(id as i32, libc::SIGKILL) };
        }
    });
    let output = child.wait_with_output().unwrap();
    sender.send(()).ok();
    watch.join().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let done = Done { well: output.status.success(), out: text(&output.stdout), err: text(&output.stderr) };
    print!("{}", done.text());
    println!("({:.1?}, {})", started.elapsed(), output.status);
    done
}

/// Returns a command that runs `warpbell` with these arguments.
pub fn warpbell(arguments: &[&str]) -> Command {
    let mut command = Command::new("warpbell");
    command.args(arguments);
    command
}

/// Returns a command that runs two ranks of a program over a transport.
pub fn two_ranks(transport: &str, arguments: &[&str]) -> Command {
    let mut command = warpbell(&["run", "-n", "2", "--timeout", "150s", "--"]);
    command.args(arguments).env("WARPBELL_TRANSPORT", transport);
    command
}
