//! Arbitrary bytes as what a stranger sends to the store where ranks meet, and as a message: nothing panics, nothing is kept
//! beyond what came. `cargo test` runs the same with fewer inputs.
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
