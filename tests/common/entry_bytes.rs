//! Parses arbitrary bytes as adapter inputs (a send ring, a receive slot, a command) and as adapter outputs. Any input
//! is read or rejected, and an entry that was read is equal when it is written again. The fuzz target includes this
//! file too, so it names the crate as the fuzz target does.

use warpbell::wire::mlx5::devx::{CreateCq, CreateMkey, CreateQp, ModifyQp, QpCommand, QueryHcaCap, QueryQp, Reply};
use warpbell::wire::mlx5::segment::blocks_of;
use warpbell::wire::mlx5::wqe::{MAX_SEGMENTS, MAX_SEGMENTS_DC};
use warpbell::wire::mlx5::{BLOCK_BYTES, Cqe, Operation, Payload, SendRing, Transport, Wqe, receive};

/// Runs one input: a byte for the place of the ring's entry, then the bytes.
///
/// # Panics
/// When something is read as something else.
pub fn run(input: &[u8]) {
    let Some((&start, bytes)) = input.split_first() else { return };
    for (transport, most) in
        [(Transport::ReliableConnection, MAX_SEGMENTS), (Transport::DynamicInitiator, MAX_SEGMENTS_DC)]
    {
        entry(bytes, transport, most);
        for log_blocks in 1..=4 {
            let ring = SendRing::new(log_blocks).expect("a size");
            if let Some(gathered) = ring.gather(bytes, start.into(), ring.blocks()) {
                assert!(gathered.len() as u64 <= ring.blocks() * BLOCK_BYTES as u64);
                entry(&gathered, transport, most);
            }
        }
    }
    if let Ok(pieces) = receive::pieces(bytes) {
        assert!(pieces.iter().all(|p| p.bytes.get() != 0));
    }
    if let Some(cqe) = bytes.first_chunk::<64>() {
        let cqe: Cqe = bytemuck::cast(*cqe);
        if let Ok(c) = cqe.completion() {
            assert_eq!(c.to_cqe(cqe.owner()).completion(), Ok(c));
        }
    }
    commands(bytes);
}

fn entry(bytes: &[u8], transport: Transport, most: usize) {
    let wqe = match Wqe::parse(bytes, transport) {
        Ok(wqe) => wqe,
        Err(e) => {
            assert!(!e.to_string().is_empty());
            return;
        }
    };
    let ds = usize::from(bytes[7]);
    assert!((1..=most).contains(&ds));
    let again = wqe.to_bytes().expect("it was well formed");
    assert_eq!(again.len(), blocks_of(ds) * BLOCK_BYTES);
    assert_eq!(again[7], bytes[7]);
    assert_eq!(Wqe::parse(&again, transport), Ok(wqe));
    if let Operation::Write { payload: Payload::Inline(data), .. } = wqe.operation {
        assert!(data.len() < again.len());
    }
    assert!(wqe.target.is_none() || transport == Transport::DynamicInitiator && wqe.operation.is_remote());
}

fn commands(bytes: &[u8]) {
    macro_rules! comes_back {
        ($($command:ty)*) => {$(
            if let Ok(c) = <$command>::from_bytes(bytes) {
                assert_eq!(<$command>::from_bytes(&c.to_bytes().expect("it came from bytes")), Ok(c));
            }
        )*};
    }
    comes_back!(CreateCq CreateMkey CreateQp ModifyQp QueryHcaCap);
    if let Ok((c, qpn)) = QpCommand::from_bytes(bytes) {
        assert_eq!(QpCommand::from_bytes(&c.to_bytes(qpn).expect("it came from bytes")), Ok((c, qpn)));
    }
    if let Ok(q) = QueryQp::from_bytes(bytes) {
        assert!(q.context.rmsn < 1 << 24);
    }
    let _ = Reply::check(0, bytes);
}
