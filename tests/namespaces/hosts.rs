//! Two hosts on one machine: network namespaces with a virtual cable between them.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Name of the interface on both hosts.
const WIRE: &str = "wire";

/// Two namespaces, which are removed when this is dropped.
pub struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// Creates two hosts joined by a cable. Returns `None` where that is not permitted, and prints the reason; with
    /// `WARPBELL_REQUIRE_NAMESPACES` that is an error.
    pub fn joined() -> Option<Self> {
        match Self::join() {
            Ok(hosts) => Some(hosts),
            Err(why) => {
                skip(
                    "WARPBELL_REQUIRE_NAMESPACES",
                    &format!("no network namespaces here ({why}); as root, with iproute2"),
                );
                None
            }
        }
    }

    fn join() -> Result<Self, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = |host| format!("wb-{}-{}-{host}", std::process::id(), MADE.load(Ordering::Relaxed));
        let names = [name('a'), name('b')];
        MADE.fetch_add(1, Ordering::Relaxed);
        // From here on the namespaces are removed, whatever fails.
        let hosts = Self { names };
        for host in 0..2 {
            ip(&["netns", "add", &hosts.names[host]])?;
        }
        let [a, b] = &hosts.names;
        ip(&["link", "add", WIRE, "netns", a, "type", "veth", "peer", "name", WIRE, "netns", b])?;
        for (host, name) in hosts.names.iter().enumerate() {
            ip(&["-n", name, "addr", "add", &format!("{}/24", hosts.address(host)), "dev", WIRE])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", WIRE, "up"])?;
        }
        Ok(hosts)
    }

    /// Returns the address of a host's end of the cable.
    pub fn address(&self, host: usize) -> String {
        format!("10.77.0.{}", host + 1)
    }

    /// Returns a command that runs a program on one of the hosts.
    pub fn command(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[host]]).arg(program);
        command
    }

    /// Pulls the cable at the first host; the other sees that it has no carrier.
    pub fn pull(&self) {
        ip(&["-n", &self.names[0], "link", "set", WIRE, "down"]).unwrap();
    }

    /// Plugs the cable in again.
    pub fn plug(&self) {
        ip(&["-n", &self.names[0], "link", "set", WIRE, "up"]).unwrap();
    }

    /// Makes the cable treat packets as `tc-netem(8)` specifies, in both directions, from now on. Returns false if this
    /// kernel cannot, and prints that; with `WARPBELL_REQUIRE_NETEM` that is an error.
    pub fn treat(&self, how: &str) -> bool {
        for name in &self.names {
            let mut arguments = vec!["-n", name, "qdisc", "replace", "dev", WIRE, "root", "netem"];
            arguments.extend(how.split_whitespace());
            if let Err(why) = ran(Command::new("tc").args(arguments)) {
                skip(
                    "WARPBELL_REQUIRE_NETEM",
                    &format!("no netem in this kernel ({why}); tests/rig/run --rdma has it"),
                );
                return false;
            }
        }
        true
    }

    /// Returns the number of packets that netem has dropped so far.
    pub fn dropped(&self) -> u64 {
        let shown =
            |name: &String| ran(Command::new("tc").args(["-n", name, "-s", "qdisc", "show", "dev", WIRE])).unwrap();
        let number = |text: String| {
            let (_, after) = text.split_once("(dropped ").unwrap_or_else(|| panic!("no counter: {text}"));
            after.split(',').next().unwrap_or_default().parse::<u64>().unwrap()
        };
        self.names.iter().map(|name| number(shown(name))).sum()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // It does not exist if it could not be created.
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    ran(Command::new("ip").args(arguments))
}

fn ran(command: &mut Command) -> Result<String, String> {
    let Output { status, stdout, stderr } = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&stderr).trim().replace('\n', "; "))
}

/// Prints that a test does not run and why; fails if the variable requires the test.
fn skip(variable: &str, why: &str) {
    assert!(std::env::var_os(variable).is_none(), "{why}");
    println!("SKIP: {why}");
}
