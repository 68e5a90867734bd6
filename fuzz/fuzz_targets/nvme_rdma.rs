//! Parses arbitrary bytes as private data of connections of NVMe over RDMA, as capsules and as responses. What was read is
//! equal when it is written and read again. Arbitrary responses to kernels: `tests/device/queue_stress.cpp`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell::wire::nvme::rdma::{self, COMMAND_BYTES, Data, RESPONSE_BYTES, Request};
use warpbell::wire::nvme::{CqEntry, SqEntry};

fuzz_target!(|input: &[u8]| {
    if let Ok(request) = Request::read(input) {
        assert_eq!(Request::read(&request.bytes()), Ok(request));
    }
    if let Some(receives) = rdma::accepted(input) {
        assert_eq!(rdma::accepted(&rdma::accept(receives)), Some(receives));
    }
    let status = rdma::rejected(input);
    assert_eq!(rdma::rejected(&rdma::rejection(status)), status);
    assert!(!rdma::reject::name(status).is_empty());
    if let Some(bytes) = input.get(..RESPONSE_BYTES) {
        let response: CqEntry = bytemuck::pod_read_unaligned(bytes);
        assert!(!format!("{} {}", response.cid(), response.status()).is_empty());
    }
    if let Some(bytes) = input.get(..COMMAND_BYTES) {
        let mut entry: SqEntry = bytemuck::pod_read_unaligned(bytes);
        if let Data::Keyed { address, length, key } = Data::of(&entry) {
            let found = Data::of(&entry);
            (entry.prp1, entry.prp2) = rdma::keyed(address, length, key);
            assert_eq!(Data::of(&entry), found);
        }
    }
});
