//! Tests of PDUs.

use super::*;
use proptest::prelude::*;

#[test]
fn layouts_are_those_of_the_specification() {
    let mut out = Vec::new();
    let w = Writer::default();
    let digests = Digests { header: true, data: true };
    w.put(&mut out, &Pdu::IcReq(IcReq { version: 0, alignment: 3, digests, max_r2t: 2 }), 0, &[]);
    assert_eq!((out.len(), &out[..16]), (128, &[0, 0, 128, 0, 128, 0, 0, 0, 0, 0, 3, 3, 2, 0, 0, 0][..]));
    out.clear();
    let range = DataRange { cid: 0x102, tag: 0x304, offset: 5, length: 3 };
    Writer { digests, alignment: 1 }.put(&mut out, &Pdu::H2cData(range), flag::LAST, b"abc");
    let crc = crc32c::crc32c(&out[..24]).to_le_bytes();
    assert_eq!(&out[..8], &[6, 7, 24, 32, 39, 0, 0, 0]);
    assert_eq!(&out[8..20], &[2, 1, 4, 3, 5, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!((&out[24..28], &out[32..35]), (&crc[..], &b"abc"[..]));
    // CRC32C of "abc" (RFC 3720, B.4 has the polynomial).
    assert_eq!(&out[35..], &0x364b_3fb7u32.to_le_bytes());
}

fn pdus() -> impl Strategy<Value = (Pdu, Vec<u8>)> {
    let data = prop::collection::vec(any::<u8>(), 1..600);
    let range = (any::<u16>(), any::<u16>(), any::<u32>());
    let of = |(cid, tag, offset): (u16, u16, u32), length: u32| DataRange { cid, tag, offset, length };
    prop_oneof![
        (any::<[u8; 64]>(), prop::collection::vec(any::<u8>(), 0..600))
            .prop_map(|(e, d)| (Pdu::Command(bytemuck::pod_read_unaligned(&e)), d)),
        any::<[u8; 16]>().prop_map(|e| (Pdu::Response(bytemuck::pod_read_unaligned(&e)), vec![])),
        (range, data.clone()).prop_map(move |(r, d)| (Pdu::H2cData(of(r, d.len() as u32)), d)),
        (range, data).prop_map(move |((c, _, o), d)| (Pdu::C2hData(of((c, 0, o), d.len() as u32)), d)),
        (range, any::<u32>()).prop_map(move |(r, length)| (Pdu::R2t(of(r, length)), vec![])),
        (any::<bool>(), any::<u16>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..128)).prop_map(
            |(by_controller, status, information, d)| (Pdu::Terminate { by_controller, status, information }, d)
        ),
    ]
}

proptest! {
    /// Every cut of a stream into pieces gives the same PDUs.
    #[test]
    fn pdus_read_back(list in prop::collection::vec(pdus(), 1..6), bits in 0u8..4, alignment in 0u8..32, step in 1usize..200) {
        let digests = Digests::from_bits(bits);
        let w = Writer { digests, alignment };
        let mut out = Vec::new();
        list.iter().for_each(|(pdu, data)| w.put(&mut out, pdu, 0, data));
        let mut r = Reader::new(1000);
        r.set_digests(digests);
        let mut got = Vec::new();
        for piece in out.chunks(step) {
            r.feed(piece);
            while let Some(p) = r.next().unwrap() {
                prop_assert!(p.intact);
                got.push((p.pdu, r.data(&p).to_vec()));
            }
        }
        prop_assert_eq!(got, list);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), bits in 0u8..4) {
        digest_all(&bytes, bits);
    }

    /// A flipped bit is found by the digests, or changes the data of no PDU.
    #[test]
    fn digests_find_a_flipped_bit((pdu, data) in pdus(), bit in any::<prop::sample::Index>()) {
        if !has_digests(pdu.kind()) { return Ok(()); }
        let w = Writer { digests: Digests { header: true, data: true }, alignment: 0 };
        let mut out = Vec::new();
        w.put(&mut out, &pdu, 0, &data);
        let bit = bit.index(out.len() * 8);
        out[bit / 8] ^= 1 << (bit % 8);
        let mut r = Reader::new(1000);
        r.set_digests(w.digests);
        r.feed(&out);
        if let Ok(Some(p)) = r.next() {
            prop_assert!(!p.intact);
        }
    }
}

fn digest_all(bytes: &[u8], bits: u8) {
    let mut r = Reader::new(256);
    r.set_digests(Digests::from_bits(bits));
    r.feed(bytes);
    while let Ok(Some(p)) = r.next() {
        assert_eq!(r.data(&p).len(), p.data_bytes());
    }
}

#[test]
fn errors_name_the_field() {
    let refused = |bytes: &[u8]| {
        let mut r = Reader::new(256);
        r.feed(bytes);
        r.next().unwrap_err()
    };
    for (bytes, status, word) in [
        ([0x42, 0, 24, 0, 24, 0, 0, 0], fes::INVALID_FIELD, "type 0x42"),
        ([5, 0, 25, 0, 24, 0, 0, 0], fes::INVALID_FIELD, "HLEN 25"),
        ([5, 1, 24, 0, 24, 0, 0, 0], fes::INVALID_FIELD, "has a header digest"),
        ([5, 0, 24, 0, 28, 0, 0, 0], fes::INVALID_FIELD, "PLEN 28"),
        ([7, 0, 24, 8, 64, 0, 0, 0], fes::INVALID_FIELD, "PDO 8"),
        ([7, 0, 24, 24, 0, 0, 1, 0], fes::INVALID_FIELD, "PLEN 65536"),
    ] {
        let e = refused(&bytes);
        assert!(e.status == status && e.reason.contains(word), "{e:?}");
    }
}
