//! Strangers at both ends: arbitrary bytes neither stop nor crash anything.

use super::*;
use crate::wire::nvme::tcp::{Digests, IcResp, Pdu, Writer};
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    /// A target that says arbitrary things is an error, and none that takes long.
    #[test]
    fn arbitrary_bytes_of_a_target_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300), polite in any::<bool>()) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let stranger = std::thread::spawn(move || {
            let (mut s, _) = listener.accept().unwrap();
            let mut out = Vec::new();
            if polite {
                let hello = IcResp { version: 0, alignment: 0, digests: Digests::default(), max_h2c_data: 4096 };
                Writer::default().put(&mut out, &Pdu::IcResp(hello), 0, &[]);
            }
            out.extend(bytes);
            // The host may close the connection first.
            let _ = s.write_all(&out);
            let _ = s.read(&mut [0; 4096]);
        });
        let config = FabricsConfig::tcp("127.0.0.1", port, NQN).connect_timeout(Duration::from_millis(200));
        prop_assert!(crate::remote::connect(&config).is_err());
        stranger.join().unwrap();
    }
}

#[test]
fn arbitrary_bytes_of_hosts_harm_no_other_host() {
    let e = Exported::new(TargetTransport::Tcp, "soft:mem:1M,threads=1", |c| c);
    let r = e.connect();
    let mut q = r.queue();
    let mut seed = 1u64;
    for round in 0..40 {
        let mut s = TcpStream::connect(e.target().address()).unwrap();
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        let mut bytes: Vec<u8> = Vec::new();
        if round % 2 == 0 {
            let hello =
                crate::wire::nvme::tcp::IcReq { version: 0, alignment: 0, digests: Digests::default(), max_r2t: 0 };
            Writer::default().put(&mut bytes, &Pdu::IcReq(hello), 0, &[]);
            bytes.extend([4, 0, 72, 0, 72, 0, 0, 0]);
        }
        bytes.extend((0..200).map(|_| next()));
        // The target may close the connection at any byte.
        let _ = s.write_all(&bytes);
        let mut back = [0; 512];
        q.read(&r.namespace, 0, &mut back).unwrap();
    }
    assert_eq!(r.connection.counters().losses, 0);
}
