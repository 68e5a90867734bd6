//! QEMU's qtest protocol: one line of request, one line of reply (QEMU documentation, "QTest Device
//! Emulation Testing Framework").

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Time limit for one request.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest reply in bytes. Valid replies are short.
const MAX_LINE: u64 = 4096;

#[derive(Debug)]
pub(super) struct QtestSocket {
    stream: BufReader<UnixStream>,
    /// First failure. After it, requests and replies may no longer match, so every later request fails with it.
    broken: Option<String>,
}

impl QtestSocket {
    pub(super) fn new(stream: UnixStream) -> std::io::Result<Self> {
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        Ok(Self { stream: BufReader::new(stream), broken: None })
    }

    /// Sends a command and returns its value; 0 for commands without a value.
    pub(super) fn command(&mut self, line: &str) -> Result<u64, String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        self.exchange(line).inspect_err(|why| self.broken = Some(why.clone()))
    }

    fn exchange(&mut self, line: &str) -> Result<u64, String> {
        use std::io::Read;
        let gone = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                format!("QEMU did not answer `{line}` within {ANSWER:?}")
            }
            _ => format!("QEMU is gone ({e})"),
        };
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).map_err(gone)?;
        loop {
            let mut answer = String::new();
            (&mut self.stream).take(MAX_LINE).read_line(&mut answer).map_err(gone)?;
            if !answer.ends_with('\n') {
                return Err("QEMU is gone (it closed its socket)".to_owned());
            }
            let mut words = answer.split_ascii_whitespace();
            match words.next() {
                // Interrupt reports between replies. Completions are polled, so they are ignored.
                Some("IRQ") => continue,
                Some("OK") => {
                    let Some(value) = words.next() else { return Ok(0) };
                    let digits = value.strip_prefix("0x").unwrap_or(value);
                    return u64::from_str_radix(digits, 16)
                        .map_err(|_| format!("QEMU answered `{}` to `{line}`", answer.trim_end()));
                }
                _ => return Err(format!("QEMU answered `{}` to `{line}`", answer.trim_end())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a peer that sends this text as replies, then closes.
    fn answering(text: &'static str) -> QtestSocket {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(text.as_bytes()).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        // Kept open for reading, so that writes to it do not fail.
        std::mem::forget(theirs);
        QtestSocket::new(ours).unwrap()
    }

    #[test]
    fn values_come_back_and_interrupts_are_skipped() {
        let mut s = answering("IRQ raise 4\nOK 0x10\nOK\nOK 0xffffffffffffffff\n");
        assert_eq!(s.command("readl 0"), Ok(16));
        assert_eq!(s.command("writel 0 0"), Ok(0));
        assert_eq!(s.command("readq 0"), Ok(u64::MAX));
        assert!(s.command("readl 0").unwrap_err().contains("closed its socket"));
    }

    #[test]
    fn nonsense_breaks_the_connection_for_good() {
        for text in ["FAIL Unknown command\nOK\n", "OK zzz\nOK\n", "\nOK\n"] {
            let mut s = answering(text);
            let first = s.command("bogus").unwrap_err();
            assert!(first.contains("bogus"), "{first}");
            assert_eq!(s.command("readl 0"), Err(first));
        }
    }
}
