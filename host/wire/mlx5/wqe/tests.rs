use super::*;
use crate::wire::mlx5::{Fence, Signal, vectors};
use proptest::prelude::*;

const RC: Transport = Transport::ReliableConnection;
const DC: Transport = Transport::DynamicInitiator;

#[test]
fn golden_entries() {
    let mut kinds = Vec::new();
    for v in vectors::all() {
        let Some(built) = v.wqe() else { continue };
        let mut expected = v.bytes.clone();
        expected.resize(v.bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        assert_eq!(built, expected, "{v:x?}");
        let transport = if v.what == "dc_write" { DC } else { RC };
        let read = Wqe::parse(&built, transport).unwrap_or_else(|e| panic!("{v:?}: {e}"));
        assert_eq!(read.to_bytes().as_ref(), Ok(&built));
        kinds.push(v.what);
    }
    assert_eq!(kinds.len(), 17, "{kinds:?}");
}

#[test]
fn golden_entries_say_what_they_do() {
    let bytes = |what: &str| vectors::all().find(|v| v.what == what).and_then(|v| v.wqe()).expect("in the file");
    let b = bytes("write_imm");
    let w = Wqe::parse(&b, RC).expect("well formed");
    assert_eq!((w.index, w.qpn, w.flags), (0xffff, 0xabcd, Flags::SIGNALLED));
    let Operation::Write { remote, payload: Payload::Pieces([piece]), immediate: Some(0xdead_beef) } = w.operation
    else {
        panic!("{w:?}")
    };
    assert_eq!(remote, Remote { address: 0x7f55_0020_0000, key: 0x20_4500 });
    assert_eq!(*piece, DataSegment::new(0x7f00_0010_0000, 0x10_1200, 256));
    assert_eq!(w.expect_at(0xabcd, 0xffff), Ok(()));
    let elsewhere = w.expect_at(0xabcd, 0).expect_err("another block");
    assert_eq!(
        elsewhere.to_string(),
        "an entry of queue pair 0xabcd, block 0xffff, is at block 0x0 of queue pair 0xabcd"
    );
    assert!(w.expect_at(0xabce, 0xffff).is_err());
    let b = bytes("masked_swap64");
    let Operation::Atomic { action, .. } = Wqe::parse(&b, RC).expect("well formed").operation else { panic!() };
    assert_eq!(action.apply(77), 0x0123_4567_89ab_cdef);
    let b = bytes("dc_write");
    let target = Wqe::parse(&b, DC).expect("well formed").target.expect("it goes to a peer");
    assert_eq!((target.half.target(), target.half.rlid.get(), target.global), (0xab_cdef, 0x11, None));
}

fn good() -> Vec<u8> {
    vectors::all().find(|v| v.what == "write").and_then(|v| v.wqe()).expect("in the file")
}

/// Decodes a valid write with some bytes changed.
fn changed(at: usize, with: &[u8]) -> Result<(), WqeError> {
    let mut b = good();
    b[at..at + with.len()].copy_from_slice(with);
    Wqe::parse(&b, RC).map(drop)
}

#[test]
fn what_the_layout_does_not_have_is_refused() {
    assert_eq!(changed(3, &[0x08]), Ok(()));
    assert_eq!(changed(3, &[0x7f]), Err(WqeError::UnknownOpcode(0x7f)));
    assert_eq!(changed(3, &[0x25]), Err(WqeError::Unsupported(Opcode::Umr)));
    assert_eq!(changed(0, &[8]), Err(WqeError::Modifier { opcode: Opcode::Write, opmod: 8 }));
    assert_eq!(changed(7, &[0]), Err(WqeError::Undefined { field: "ds", value: 0 }));
    assert!(matches!(changed(7, &[1]), Err(WqeError::Segments { ds: 1, at: 1, .. })));
    // An empty message has no data segment.
    assert_eq!(changed(7, &[2]), Ok(()));
    // The fourth segment is all zero: an empty piece.
    assert_eq!(changed(7, &[4]), Err(WqeError::PieceLength(0)));
    assert_eq!(changed(7, &[5]), Err(WqeError::Truncated { ds: 5, bytes: 64 }));
    assert!(matches!(changed(7, &[0x43]), Err(WqeError::Undefined { value: 0x40, .. })));
    assert_eq!(changed(8, &[1]), Err(WqeError::Undefined { field: "signature", value: 1 }));
    assert_eq!(changed(10, &[1]), Err(WqeError::Undefined { field: "DCI stream", value: 1 }));
    assert_eq!(changed(11, &[0x18]), Err(WqeError::Undefined { field: "fm_ce_se", value: 0x18 }));
    assert!(matches!(changed(15, &[1]), Err(WqeError::Undefined { value: 1, .. })));
    assert!(matches!(changed(31, &[1]), Err(WqeError::Undefined { value: 1, .. })));
    assert_eq!(changed(32, &[0, 0, 0, 0]), Err(WqeError::PieceLength(0)));
    // Inline data that is longer, or shorter, than the entry.
    assert!(matches!(changed(32, &[0x80, 0, 0, 13]), Err(WqeError::Segments { at: 2, .. })));
    assert_eq!(changed(32, &[0x80, 0, 0, 12]), Ok(()));
    let mut longer = good();
    longer[7] = 4;
    longer[32..36].copy_from_slice(&[0x80, 0, 0, 12]);
    assert!(matches!(Wqe::parse(&longer, RC), Err(WqeError::Segments { at: 3, what: "one too many", .. })));
    // A read takes no inline data.
    let mut read = good();
    read[3] = 0x10;
    read[32] = 0x80;
    assert_eq!(Wqe::parse(&read, RC), Err(WqeError::PieceLength(0x8000_1000)));
    assert_eq!(Wqe::parse(&[], RC), Err(WqeError::Truncated { ds: 1, bytes: 0 }));
    assert_eq!(Wqe::parse(&[], RC).expect_err("nothing").syndrome(), Syndrome::LOCAL_QP_OPERATION);
}

#[test]
fn atomics_are_checked_against_their_operand() {
    let atomic = |what: &str| vectors::all().find(|v| v.what == what).and_then(|v| v.wqe()).expect("in the file");
    let mut b = atomic("masked_add32");
    b[51] = 8;
    assert_eq!(Wqe::parse(&b, RC), Err(WqeError::Landing { opcode: Opcode::MaskedFa, operand: 4, bytes: 8 }));
    b[0] = 0;
    assert_eq!(Wqe::parse(&b, RC), Err(WqeError::Modifier { opcode: Opcode::MaskedFa, opmod: 0 }));
    let mut b = atomic("fetch_add");
    b[47] = 1;
    assert!(matches!(Wqe::parse(&b, RC), Err(WqeError::Undefined { value: 1, .. })));
    let mut b = atomic("masked_swap64");
    // The entry ends before the landing piece.
    b[7] = 4;
    assert!(matches!(Wqe::parse(&b, RC), Err(WqeError::Segments { at: 4, what: "missing", .. })));
}

#[test]
fn entries_that_are_too_long_are_not_built() {
    let piece = [DataSegment::new(0, 1, 1); 62];
    let remote = Remote { address: 0, key: 0 };
    let entry = |n, target| {
        let operation = Operation::Write { remote, payload: Payload::Pieces(&piece[..n]), immediate: None };
        Wqe { index: 0, qpn: 1, flags: Flags::UNSIGNALLED, target, operation }.to_bytes().map(|b| b.len())
    };
    assert_eq!(entry(61, None), Ok(16 * BLOCK_BYTES));
    assert!(matches!(entry(62, None), Err(WqeError::Segments { ds: 64, .. })));
    let target = Target { half: HalfAddressVector::default(), global: Some(GlobalAddress::default()) };
    assert_eq!(entry(11, Some(target)), Ok(4 * BLOCK_BYTES));
    assert!(matches!(entry(12, Some(target)), Err(WqeError::Segments { ds: 17, .. })));
    let too_long = vec![0; 1000];
    let operation = Operation::Send { payload: Payload::Inline(&too_long), with: SendWith::Nothing };
    let long = Wqe { index: 0, qpn: 1, flags: Flags::UNSIGNALLED, target: None, operation };
    assert!(matches!(long.to_bytes(), Err(WqeError::Segments { ds: 64, .. })));
    let operation = Operation::Nop;
    let nowhere = Wqe { target: Some(target), operation, ..long };
    assert_eq!(nowhere.to_bytes().map(|b| b[7]), Ok(1));
    let wide = Wqe { index: 0, qpn: 1 << 24, flags: Flags::UNSIGNALLED, target: None, operation };
    assert!(wide.to_bytes().is_err());
}

fn flags() -> impl Strategy<Value = Flags> {
    let fences = [Fence::None, Fence::InitiatorSmall, Fence::Fence, Fence::StrongOrdering, Fence::FenceAndSmall];
    let signals = [Signal::OnError, Signal::OnFirstError, Signal::Always, Signal::AlwaysWithEvent];
    (prop::sample::select(fences.to_vec()), prop::sample::select(signals.to_vec()), any::<bool>())
        .prop_map(|(fence, signal, solicited)| Flags { fence, signal, solicited })
}

fn actions() -> impl Strategy<Value = Atomic> {
    any::<[u64; 4]>().prop_flat_map(|[a, b, c, d]| {
        let [a32, b32, c32, d32] = [a, b, c, d].map(|v| v as u32);
        prop::sample::select(vec![
            Atomic::FetchAdd { add: a },
            Atomic::CompareSwap { swap: a, compare: b },
            Atomic::MaskedAdd32 { add: a32, boundary: b32 },
            Atomic::MaskedAdd64 { add: a, boundary: b },
            Atomic::MaskedSwap32 { swap: a32, compare: b32, swap_mask: c32, compare_mask: d32 },
            Atomic::MaskedSwap64 { swap: a, compare: b, swap_mask: c, compare_mask: d },
        ])
    })
}

fn targets() -> impl Strategy<Value = Target> {
    let half = (any::<u64>(), 0..=MAX_24, any::<(u8, u8, u16)>()).prop_map(|(key, dct, (rate_level, path, rlid))| {
        HalfAddressVector { dc_key: key.into(), dct: dct.into(), rate_level, loopback_path: path, rlid: rlid.into() }
    });
    let global = any::<([u8; 6], u8, u8, u32, [u8; 16])>().prop_map(|(rmac, traffic_class, hop_limit, flow, rgid)| {
        GlobalAddress { reserved: 0.into(), rmac, traffic_class, hop_limit, grh_gid_flow: flow.into(), rgid }
    });
    (half, prop::option::of(global)).prop_map(|(mut half, global)| {
        if global.is_some() {
            half.dct = Be32::new(half.dct.get() | HalfAddressVector::FULL);
        }
        Target { half, global }
    })
}

proptest! {
    #[test]
    fn entries_come_back(
        index: u16, qpn in 0..=MAX_24, flags in flags(), address: u64, keys: (u32, u32), imm: u32, action in actions(),
        list in prop::collection::vec((any::<u64>(), any::<u32>(), 1..=DataSegment::MAX_BYTES), 0..8),
        inline in prop::collection::vec(any::<u8>(), 0..150), target in prop::option::of(targets()),
    ) {
        let remote = Remote { address, key: keys.0 };
        let list: Vec<_> = list.iter().map(|&(a, k, n)| DataSegment::new(a, k, n)).collect();
        let landing = DataSegment::new(address, keys.1, action.operand_bytes());
        for operation in [
            Operation::Nop,
            Operation::Write { remote, payload: Payload::Pieces(&list), immediate: None },
            Operation::Write { remote, payload: Payload::Inline(&inline), immediate: None },
            Operation::Write { remote, payload: Payload::Inline(&inline), immediate: Some(imm) },
            Operation::Read { remote, into: &list },
            Operation::Send { payload: Payload::Pieces(&list), with: SendWith::Invalidate(imm) },
            Operation::Send { payload: Payload::Inline(&inline), with: SendWith::Immediate(imm) },
            Operation::Send { payload: Payload::Inline(&inline), with: SendWith::Nothing },
            Operation::Atomic { remote, action, landing },
            Operation::Dump { piece: landing },
            Operation::Wait { cqn: qpn, index: imm },
        ] {
            let target = target.filter(|_| operation.is_remote());
            let transport = if target.is_some() { DC } else { RC };
            let wqe = Wqe { index, qpn, flags, target, operation };
            let bytes = wqe.to_bytes().expect("it fits");
            prop_assert_eq!(bytes.len() % BLOCK_BYTES, 0);
            prop_assert_eq!(Wqe::parse(&bytes, transport), Ok(wqe));
        }
    }

    /// Runs the body of the fuzz target `entries` with fewer inputs.
    #[test]
    fn arbitrary_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..400), opcode in prop::sample::select(Opcode::ALL), tame in 0u8..4) {
        // Unmodified, hardly any input would pass the first checks.
        if tame > 0 && bytes.len() >= 17 {
            let entry = &mut bytes[1..];
            (entry[0], entry[3], entry[7]) = (0, opcode.code(), entry[7] % 8);
            entry[8..16].fill(0);
            if tame > 1 && entry.len() >= 64 {
                entry[28..33].fill(0);
            }
        }
        crate::wire::mlx5::bytes::run(&bytes);
    }
}
