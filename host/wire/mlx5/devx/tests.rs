use super::capability::atomic_operation;
use super::qp::{ATOMIC_UP_TO_64, PM_MIGRATED, QpMemory, opt_param, rq_type, scatter};
use super::*;
use proptest::prelude::*;

/// Returns the non-zero words of a command as offset and value.
fn words(command: &[u8]) -> Vec<(usize, u32)> {
    let word = |c: &[u8]| u32::from_be_bytes(c.try_into().expect("4 bytes"));
    command.chunks_exact(4).map(word).enumerate().map(|(i, w)| (4 * i, w)).filter(|&(_, w)| w != 0).collect()
}

#[test]
fn golden_create_cq() {
    let c = CreateCq {
        collapsed: true,
        overrun_ignore: true,
        log_size: 10,
        uar_page: 0x123,
        eqn: 5,
        dbr_umem_valid: true,
        dbr_umem_id: 0x12,
        umem_valid: true,
        umem_id: 0x11,
        log_page_size: 4,
        ..CreateCq::default()
    };
    let bytes = c.to_bytes().expect("it fits");
    let golden = [
        (0x00, 0x0400_0000),
        (0x10, 0x0212_0000),
        (0x14, 0x12),
        (0x1c, 0x0a00_0123),
        (0x24, 5),
        (0x28, 0x0400_0000),
        (0x58, 0x11),
        (0x5c, 0x8000_0000),
    ];
    assert_eq!(words(&bytes), golden);
    assert_eq!(CreateCq::from_bytes(&bytes), Ok(c));
}

#[test]
fn golden_create_qp() {
    let context = QpContext {
        pm_state: PM_MIGRATED,
        pd: 0x42,
        log_sq_size: 10,
        ts_format: 1,
        uar_page: 0x123,
        log_page_size: 4,
        cqn_send: 0x77,
        cqn_receive: 0x78,
        rq_type: rq_type::NONE,
        dbr_umem_valid: true,
        dbr_umem_id: 0x22,
        ..QpContext::default()
    };
    let c = CreateQp { context, memory: QpMemory { offset: 0, umem_id: 0x21, valid: true } };
    let bytes = c.to_bytes().expect("it fits");
    let golden = [
        (0x00, 0x0500_0000),
        (0x18, 0x1800),
        (0x1c, 0x42),
        (0x20, 0x5040),
        (0x24, 0x123),
        (0x2c, 0x0400_0000),
        (0x94, 0x77),
        (0xb4, 0x78),
        (0xc4, 0x0300_0000),
        (0xe8, 0x1000_0000),
        (0xfc, 0x22),
        (0x108, 0x21),
        (0x10c, 0x8000_0000),
    ];
    assert_eq!(words(&bytes), golden);
    assert_eq!(CreateQp::from_bytes(&bytes), Ok(c));
}

/// The queue pair of `golden_create_qp` with 128 receives of two segments, whose messages of up to 32 bytes go into
/// their completion entry.
#[test]
fn golden_create_qp_with_receives() {
    let context = QpContext {
        pm_state: PM_MIGRATED,
        pd: 0x42,
        log_rq_size: 7,
        log_rq_stride: 1,
        log_sq_size: 10,
        ts_format: 1,
        uar_page: 0x123,
        log_page_size: 4,
        cqn_send: 0x77,
        cqn_receive: 0x78,
        rq_type: rq_type::OWN,
        cs_res: scatter::UP_TO_32,
        dbr_umem_valid: true,
        dbr_umem_id: 0x22,
        ..QpContext::default()
    };
    let c = CreateQp { context, memory: QpMemory { offset: 0, umem_id: 0x21, valid: true } };
    let bytes = c.to_bytes().expect("it fits");
    let golden = [
        (0x00, 0x0500_0000),
        (0x18, 0x1800),
        (0x1c, 0x42),
        (0x20, 0x0039_5040),
        (0x24, 0x123),
        (0x2c, 0x0400_0000),
        (0x94, 0x77),
        (0xb4, 0x78),
        (0xdc, 0x01),
        (0xe8, 0x1000_0000),
        (0xfc, 0x22),
        (0x108, 0x21),
        (0x10c, 0x8000_0000),
    ];
    assert_eq!(words(&bytes), golden);
    assert_eq!(CreateQp::from_bytes(&bytes), Ok(c));
}

fn modify(transition: Transition, context: QpContext) -> Vec<(usize, u32)> {
    let c = ModifyQp { transition, qpn: 0xabcd, opt_param_mask: 0, context };
    let bytes = c.to_bytes().expect("it fits");
    assert_eq!(ModifyQp::from_bytes(&bytes), Ok(c));
    words(&bytes)
}

#[test]
fn golden_transitions() {
    let init = QpContext {
        port: 1,
        remote_read: true,
        remote_write: true,
        remote_atomic: true,
        atomic_mode: ATOMIC_UP_TO_64,
        ..QpContext::default()
    };
    let golden = [(0x00, 0x0502_0000), (0x08, 0xabcd), (0x54, 0x1_0000), (0xa8, 0x3_e000)];
    assert_eq!(modify(Transition::ResetToInit, init), golden);

    let mut receive = QpContext {
        mtu: 5,
        log_msg_max: 30,
        remote_qpn: 0x5678,
        min_rnr_nak: 12,
        log_rra_max: 4,
        src_gid_index: 3,
        hop_limit: 255,
        udp_sport: 0xc000,
        dscp: 26,
        eth_prio: 3,
        port: 1,
        ..QpContext::default()
    };
    receive.set_remote_mac([0x0c, 0x42, 0xa1, 0xb2, 0xc3, 0xd4]);
    receive.set_remote_gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 168, 0, 2]);
    let golden = [
        (0x00, 0x0503_0000),
        (0x08, 0xabcd),
        (0x20, 0xbe00_0000),
        (0x2c, 0x5678),
        (0x38, 0x0003_00ff),
        (0x48, 0xffff),
        (0x4c, 0xc0a8_0002),
        (0x50, 0x001a_c000),
        (0x54, 0x3001_0c42),
        (0x58, 0xa1b2_c3d4),
        (0xa8, 0x80_0000),
        (0xac, 0x0c00_0000),
    ];
    assert_eq!(modify(Transition::InitToReadyToReceive, receive), golden);

    let send =
        QpContext { ack_timeout: 20, retry_count: 7, rnr_retry: 7, log_sra_max: 4, port: 1, ..QpContext::default() };
    let golden = [(0x00, 0x0504_0000), (0x08, 0xabcd), (0x38, 0xa000_0000), (0x54, 0x1_0000), (0x88, 0x0087_e000)];
    assert_eq!(modify(Transition::ReadyToReceiveToSend, send), golden);
}

#[test]
fn golden_short_commands() {
    for (command, opcode) in [
        (QpCommand::ToError, 0x0507_0000),
        (QpCommand::ToReset, 0x050a_0000),
        (QpCommand::Query, 0x050b_0000),
        (QpCommand::Destroy, 0x0501_0000),
    ] {
        let bytes = command.to_bytes(0xabcd).expect("it fits");
        assert_eq!(words(&bytes), [(0x00, opcode), (0x08, 0xabcd)]);
        assert_eq!(QpCommand::from_bytes(&bytes), Ok((command, 0xabcd)));
    }
    assert!(QpCommand::ToError.to_bytes(1 << 24).is_err());
}

#[test]
fn golden_create_mkey() {
    let c = CreateMkey {
        umem_valid: true,
        remote_write: true,
        remote_read: true,
        local_write: true,
        local_read: true,
        access_mode: mkey::ACCESS_PAGES,
        qpn: mkey::ANY_QPN,
        pd: 0x42,
        start: 0x7f00_0010_0000,
        length: 0x1_0000,
        umem_id: 0x31,
        ..CreateMkey::default()
    };
    let bytes = c.to_bytes().expect("it fits");
    let golden = [
        (0x00, 0x0200_0000),
        (0x0c, 0x4000_0000),
        (0x10, 0x3d00),
        (0x14, 0xffff_ff00),
        (0x1c, 0x42),
        (0x20, 0x7f00),
        (0x24, 0x10_0000),
        (0x2c, 0x1_0000),
        (0x64, 0x31),
    ];
    assert_eq!(words(&bytes), golden);
    assert_eq!(CreateMkey::from_bytes(&bytes), Ok(c));
    assert_eq!(mkey::key(0x1012, 0x34), 0x10_1234);
}

#[test]
fn capabilities_are_asked_for_and_read() {
    let q = QueryHcaCap { kind: CapabilityKind::General2 };
    let bytes = q.to_bytes().expect("it fits");
    assert_eq!(words(&bytes), [(0x00, 0x0100_0000), (0x04, 0x41)]);
    assert_eq!(QueryHcaCap::from_bytes(&bytes), Ok(q));
    let mut reply = vec![0; QueryHcaCap::REPLY_BYTES];
    reply[0x10 + 0x04] = 0x80;
    reply[0x10 + 0x44] = 0x80;
    reply[0x10 + 0x42] = 0x04;
    reply[0x10 + 0x4d] = 9;
    reply[0x10 + 0x52..0x10 + 0x54].copy_from_slice(&1008u16.to_be_bytes());
    reply[0x10 + 0x56..0x10 + 0x58].copy_from_slice(&512u16.to_be_bytes());
    reply[0x10 + 0x3f] = 1;
    let c = Capabilities::get_from(QueryHcaCap::capabilities(&reply)).expect("defined");
    assert!(c.has_more && c.cq_overrun_ignore && c.scatter_to_cqe && !c.blue_flame);
    assert_eq!((c.log_blue_flame_bytes, c.max_wqe_bytes, c.cqe_version), (9, 1008, 1));
    assert_eq!(c.max_receive_bytes, 512);
    let masked = atomic_operation::MASKED_COMPARE_SWAP | atomic_operation::MASKED_FETCH_ADD;
    let a = AtomicCapabilities { operations: masked, sizes_qp: 4 | 8, ..AtomicCapabilities::default() };
    assert_eq!([2, 4, 8, 12].map(|n| a.has_extended(n)), [false, true, true, false]);
}

#[test]
fn a_refused_command_says_why() {
    let reply = Reply { status: 3, syndrome: 0x1a_2b3c, object: 0 }.to_bytes().expect("it fits");
    let e = Reply::check(opcode::CREATE_QP, &reply).expect_err("refused");
    assert_eq!(e.to_string(), "the firmware refused command 0x500: bad parameter (0x03), syndrome 0x001a2b3c");
    let good = Reply { object: 0xab_cdef, ..Reply::default() }.to_bytes().expect("it fits");
    assert_eq!(Reply::check(opcode::CREATE_QP, &good), Ok(0xab_cdef));
    assert_eq!(Reply::check(opcode::CREATE_QP, &good[..8]).expect_err("cut off").status, Status(1));
}

#[test]
fn a_query_shows_how_far_the_adapter_is() {
    let mut reply = [0; QueryQp::BYTES];
    QpContext { state: 6, hw_sq_block: 0xfffe, sw_sq_block: 3, rmsn: 9, ..QpContext::default() }
        .put(&mut reply)
        .expect("it fits");
    let q = QueryQp::from_bytes(&reply).expect("defined");
    assert_eq!((q.context.qp_state(), q.blocks_waiting(), q.context.rmsn), (Some(QpState::Error), 5, 9));
    assert_eq!(QpContext { state: 9, ..QpContext::default() }.qp_state(), None);
}

#[test]
fn a_value_too_large_is_named() {
    let context = QpContext { log_rra_max: 20, ..QpContext::default() };
    let e = CreateQp { context, ..CreateQp::default() }.to_bytes().expect_err("three bits");
    assert_eq!(e, FieldError::TooLarge { field: "log_rra_max", value: 20, bits: 3 });
    assert!(CreateCq::from_bytes(&[5, 0, 0, 0]).is_err());
    assert!(ModifyQp::from_bytes(&[]).is_err());
    assert_eq!(opt_param::REMOTE_READ | opt_param::REMOTE_WRITE | opt_param::MIN_RNR_NAK, 0x4a);
}

/// The fields of a structure do not overlap, and lie within it.
#[test]
fn fields_do_not_overlap() {
    let opcode = [OPCODE];
    let mut create_qp = [QpContext::FIELDS, QpMemory::FIELDS].concat();
    create_qp.push(Field::new("opt_param_mask", 0x10, 31, 0));
    create_qp.push(Field::new("qpn", 0x08, 23, 0));
    for (fields, bytes) in [
        ([&opcode, CreateCq::FIELDS].concat(), CreateCq::BYTES),
        ([&opcode, CreateMkey::FIELDS].concat(), CreateMkey::BYTES),
        ([opcode.to_vec(), create_qp].concat(), qp::CONTEXT_COMMAND_BYTES),
        (Reply::FIELDS.to_vec(), REPLY_BYTES),
        (Capabilities::FIELDS.to_vec(), 4096),
        (AtomicCapabilities::FIELDS.to_vec(), 4096),
        (RoceCapabilities::FIELDS.to_vec(), 4096),
    ] {
        let mut taken = vec![0u8; bytes];
        for f in fields {
            let mut mask = vec![0u8; bytes];
            f.set(&mut mask, f.max()).expect("it lies within");
            for (t, m) in taken.iter_mut().zip(mask) {
                assert_eq!(*t & m, 0, "{} overlaps another field", f.name);
                *t |= m;
            }
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_commands_come_back_or_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 272), code in prop::sample::select(vec![0x200u16, 0x400, 0x500, 0x502, 0x503, 0x504, 0x505])) {
        bytes[0..2].copy_from_slice(&code.to_be_bytes());
        if let Ok(c) = CreateCq::from_bytes(&bytes) {
            prop_assert_eq!(CreateCq::from_bytes(&c.to_bytes().expect("it came from bytes")), Ok(c));
        }
        if let Ok(c) = CreateMkey::from_bytes(&bytes) {
            prop_assert_eq!(CreateMkey::from_bytes(&c.to_bytes().expect("it came from bytes")), Ok(c));
        }
        if let Ok(c) = CreateQp::from_bytes(&bytes) {
            prop_assert_eq!(CreateQp::from_bytes(&c.to_bytes().expect("it came from bytes")), Ok(c));
        }
        if let Ok(c) = ModifyQp::from_bytes(&bytes) {
            prop_assert_eq!(ModifyQp::from_bytes(&c.to_bytes().expect("it came from bytes")), Ok(c));
        }
    }

    #[test]
    fn short_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let _ = (CreateCq::from_bytes(&bytes), CreateQp::from_bytes(&bytes), QpCommand::from_bytes(&bytes));
        let _ = (QueryHcaCap::from_bytes(&bytes), Reply::check(0, &bytes), QueryQp::from_bytes(&bytes));
    }
}
