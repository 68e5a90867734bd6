//! The serial line to the host, for actions that only the host can take on a virtual machine.

use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The second serial port; `tests/rig/machine.py` replies on the other end.
const LINE: &str = "/dev/ttyS1";

struct Line {
    requests: File,
    replies: BufReader<File>,
}

static LINE_IN_USE: Mutex<Option<Line>> = Mutex::new(None);

fn line() -> MutexGuard<'static, Option<Line>> {
    let mut line = LINE_IN_USE.lock().unwrap_or_else(|e| e.into_inner());
    if line.is_none() {
        let open = || OpenOptions::new().read(true).write(true).open(LINE).unwrap();
        *line = Some(Line { requests: open(), replies: BufReader::new(open()) });
    }
    line
}

/// Sends one request. Returns the value under `return` of the reply, or the error.
fn ask(request: &str) -> Result<Value, String> {
    let mut line = line();
    let line = line.as_mut().unwrap();
    line.requests.write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut reply = String::new();
    line.replies.read_line(&mut reply).unwrap();
    let reply: Value = serde_json::from_str(&reply).unwrap_or_else(|e| panic!("{request}: {e}: {reply}"));
    match reply.get("return") {
        Some(value) => Ok(value.clone()),
        None => Err(format!("{request}: {reply}")),
    }
}

/// Runs a command of QEMU's machine protocol.
pub fn qmp(command: &str, arguments: Value) -> Value {
    ask(&format!("qmp {}", json!({ "execute": command, "arguments": arguments }))).unwrap()
}

/// Returns true if QEMU has a device of this name plugged in.
pub fn has_device(id: &str) -> bool {
    let devices = qmp("qom-list", json!({ "path": "/machine/peripheral" }));
    devices.as_array().unwrap().iter().any(|d| d["name"] == id)
}

/// Waits for an event about a device.
///
/// # Errors
///
/// Fails with the request and the host's reply if the event does not come within the time.
pub fn event(name: &str, device: &str, within: Duration) -> Result<Value, String> {
    ask(&format!("event {name} {device} {}", within.as_secs_f64()))
}

/// Returns bytes of a drive's image, as the host sees it.
pub fn image(name: &str, offset: u64, bytes: usize) -> Vec<u8> {
    let text = ask(&format!("image {name} {offset} {bytes}")).unwrap();
    let text = text.as_str().unwrap();
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}
