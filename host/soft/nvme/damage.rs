//! Injected damage to data: writes that are stored in part, and flipped bits.

use super::backend::{self, Store};
use super::copy;
use super::io::Context;
use super::namespace::{Namespace, Span};
use crate::wire::nvme::Status;
use std::sync::atomic::{AtomicU8, Ordering};

/// Reduces a torn write's span and extents to the first half of its blocks, rounded down.
pub(super) fn tear(c: &mut Context<'_>, ns: &Namespace, whole: Span) -> Span {
    if c.damage.torn.is_none() {
        return whole;
    }
    let blocks = whole.blocks / 2;
    let mut left = (blocks << ns.block_shift) as usize;
    let span = Span { blocks, bytes: left, ..whole };
    c.extents.retain_mut(|x| {
        x.bytes = x.bytes.min(left);
        left -= x.bytes;
        x.bytes > 0
    });
    span
}

/// Flips the bit that the fault plan chose, in the data that a read has delivered.
pub(super) fn flip_landed(c: &mut Context<'_>) {
    let Some(random) = c.damage.flip else { return };
    // Orders non-temporal stores before the flip.
    copy::publish();
    let bytes: usize = c.extents.iter().map(|x| x.bytes).sum();
    let (mut at, bit) = place(random, bytes);
    for x in c.extents.iter() {
        if at < x.bytes {
            // SAFETY: inside an extent that the walk resolved in the announced snapshot. Atomic, because the driver may
            // access it.
            unsafe { AtomicU8::from_ptr(x.host.add(at)) }.fetch_xor(bit, Ordering::Relaxed);
            return;
        }
        at -= x.bytes;
    }
}

/// Flips the bit that the fault plan chose, in the data that a write has stored.
pub(super) fn flip_stored(c: &mut Context<'_>, ns: &Namespace, span: &Span) -> Result<(), Status> {
    let Some(random) = c.damage.flip else { return Ok(()) };
    let (at, bit) = place(random, span.bytes);
    if let Some(stored) = ns.store.writable(span.offset, span.bytes) {
        // SAFETY: `writable` returned `span.bytes` bytes. Atomic, because other commands may access the block.
        unsafe { AtomicU8::from_ptr(stored.add(at)) }.fetch_xor(bit, Ordering::Relaxed);
        return Ok(());
    }
    let Store::File(file) = &ns.store else { return Ok(()) };
    // Changes a whole block, because O_DIRECT transfers whole blocks.
    let block = 1usize << ns.block_shift;
    let offset = span.offset + (at / block * block) as u64;
    let mut bytes = vec![0u8; block];
    let whole = |bytes: &mut [u8]| vec![libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: block }];
    // SAFETY: the buffer has the size of a block, here and below.
    unsafe { file.read(&mut whole(&mut bytes), offset) }.map_err(|e| backend::read_status(&e))?;
    bytes[at % block] ^= bit;
    // SAFETY: the buffer has the size of a block.
    unsafe { file.write(&mut whole(&mut bytes), offset, false) }.map_err(|e| backend::write_status(&e))
}

/// Returns the index of the byte, below `bytes`, and the mask of its bit.
fn place(random: u64, bytes: usize) -> (usize, u8) {
    let bit = random % (bytes.max(1) as u64 * 8);
    ((bit / 8) as usize, 1 << (bit % 8))
}
