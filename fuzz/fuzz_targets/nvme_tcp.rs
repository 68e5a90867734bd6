//! Parses arbitrary bytes as PDUs of NVMe/TCP, with all digests, and as the data of Fabrics commands. A PDU that was read
//! is equal when it is written and read again. `cargo test` runs the same with fewer inputs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell::wire::nvme::fabrics::{Connect, ConnectData, DiscoveryHeader, DiscoveryRecord};
use warpbell::wire::nvme::tcp::{Digests, Pdu, Reader, Writer};

fuzz_target!(|input: &[u8]| {
    let Some((&bits, bytes)) = input.split_first() else { return };
    let digests = Digests::from_bits(bits);
    let mut reader = Reader::new(4096);
    reader.set_digests(digests);
    for piece in bytes.chunks(usize::from(bits >> 2) + 1) {
        reader.feed(piece);
        while let Ok(Some(received)) = reader.next() {
            let data = reader.data(&received).to_vec();
            assert_eq!(data.len(), received.data_bytes());
            let mut out = Vec::new();
            let writer = Writer { digests, alignment: 0 };
            writer.put(&mut out, &received.pdu, received.flags & 0xc, &data);
            let mut again = Reader::new(4096);
            again.set_digests(digests);
            again.feed(&out);
            let read = again.next().expect("valid").expect("whole");
            assert_eq!((read.pdu, again.data(&read)), (received.pdu, &data[..]));
            if let Pdu::Command(entry) = received.pdu {
                Connect::read(&entry);
            }
        }
    }
    let connect = ConnectData::read(bytes);
    assert_eq!(ConnectData::read(&connect.bytes()).controller, connect.controller);
    DiscoveryHeader::read(bytes);
    DiscoveryRecord::read(&DiscoveryRecord::read(bytes).bytes());
});
