//! An eavesdropper between two ends, for tests.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

/// Passes one connection on, and keeps all bytes of both directions.
pub(crate) struct Recorder {
    /// The address to connect to instead of the real one.
    pub(crate) at: SocketAddr,
    thread: JoinHandle<[Vec<u8>; 2]>,
}

impl Recorder {
    /// Starts a recorder before the port `target`.
    pub(crate) fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let (near, far) = (listener.accept().unwrap().0, TcpStream::connect(target).unwrap());
            let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let back = std::thread::spawn(move || pass_on(far2, near2));
            let sent = pass_on(near, far);
            [sent, back.join().unwrap()]
        });
        Self { at, thread }
    }

    /// Waits until both ends have closed. Returns the bytes of the connecting end, and those of the other.
    pub(crate) fn finish(self) -> [Vec<u8>; 2] {
        self.thread.join().unwrap()
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) -> Vec<u8> {
    let (mut all, mut some) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(n @ 1..) = from.read(&mut some) {
        all.extend_from_slice(&some[..n]);
        if to.write_all(&some[..n]).is_err() {
            break;
        }
    }
    // One end has closed, so the other learns of it.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Read);
    all
}

/// Returns true if `word` is in the bytes of either direction.
pub(crate) fn shows(all: &[Vec<u8>; 2], word: &[u8]) -> bool {
    all.iter().any(|bytes| bytes.windows(word.len()).any(|w| w == word))
}
