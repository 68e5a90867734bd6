//! Feeds arbitrary bytes from a stranger to the store where ranks meet, and parses them as a message. No input panics,
//! and memory use stays proportional to the input. `cargo test` runs the same with fewer inputs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell::shmem::bootstrap::store::{Inbox, Message};

fuzz_target!(|input: &[u8]| {
    Inbox::digest(input);
    if let Some(message) = Message::decode(input) {
        let again = message.encode();
        assert!(again.len() <= input.len());
        assert_eq!(Message::decode(&again), Some(message));
    }
});
