//! Seals messages, changes the stream on its way, and opens it again: bytes are flipped, cut off, removed or inserted.
//! Only messages that were sent come out, in their order. `cargo test` runs the same with fewer inputs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell::shmem::bootstrap::store::Inbox;

fuzz_target!(|input: &[u8]| Inbox::digest_changed(input));
