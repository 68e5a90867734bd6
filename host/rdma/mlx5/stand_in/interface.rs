//! Commands of the public interface: lengths of commands, and bit offsets and widths of fields. They are from the
//! header `mlx5_ifc.h` of rdma-core and of Linux, whose structures count one byte for each bit. The numbers must not
//! come from the code under test.

/// A command.
#[derive(Debug)]
pub struct Command {
    pub name: &'static str,
    pub opcode: u16,
    /// Bytes of the command, without a list of pages behind it.
    pub input: usize,
    /// Bytes of its reply.
    pub output: usize,
}

const fn command(name: &'static str, opcode: u16, input: usize, output: usize) -> Command {
    Command { name, opcode, input, output }
}

/// Commands for a queue pair in registered memory.
pub const COMMANDS: [Command; 11] = [
    command("QUERY_HCA_CAP", 0x100, 16, 4112),
    command("CREATE_MKEY", 0x200, 272, 16),
    command("CREATE_CQ", 0x400, 272, 16),
    command("CREATE_QP", 0x500, 272, 16),
    command("DESTROY_QP", 0x501, 16, 16),
    command("RST2INIT_QP", 0x502, 272, 16),
    command("INIT2RTR_QP", 0x503, 272, 16),
    command("RTR2RTS_QP", 0x504, 272, 16),
    command("2ERR_QP", 0x507, 16, 16),
    command("2RST_QP", 0x50a, 16, 16),
    command("QUERY_QP", 0x50b, 16, 272),
];

/// Status of a rejected command: the first byte of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    Opcode = 0x02,
    Parameter = 0x03,
    Resource = 0x05,
    QpState = 0x10,
    InputLength = 0x50,
    OutputLength = 0x51,
}

/// A field: its first bit from the start of the structure, and its number of bits.
#[derive(Clone, Copy)]
pub struct Bits(usize, usize);

impl Bits {
    /// Reads the field.
    pub fn of(self, bytes: &[u8]) -> u64 {
        (self.0..self.0 + self.1).fold(0, |value, bit| value << 1 | u64::from(bytes[bit / 8] >> (7 - bit % 8) & 1))
    }

    /// Writes the field over zeroes.
    pub fn put(self, bytes: &mut [u8], value: u64) {
        for i in 0..self.1 {
            let (bit, one) = (self.0 + i, (value >> (self.1 - 1 - i) & 1) as u8);
            bytes[bit / 8] |= one << (7 - bit % 8);
        }
    }
}

/// In every command.
pub const OPCODE: Bits = Bits(0x00, 16);
/// In every reply.
pub const STATUS: Bits = Bits(0x00, 8);
pub const SYNDROME: Bits = Bits(0x20, 32);
/// `cqn` in the reply to CREATE_CQ, `qpn` in the reply to CREATE_QP.
pub const OBJECT: Bits = Bits(0x48, 24);
/// In commands about an existing queue pair.
pub const QPN: Bits = Bits(0x48, 24);

/// CREATE_CQ: `cqc` begins at bit 0x80.
pub mod cq {
    use super::Bits;

    pub const RECORD_IN_MEMORY: Bits = Bits(0x86, 1);
    pub const COLLAPSED: Bits = Bits(0x8b, 1);
    pub const OVERRUN_IGNORED: Bits = Bits(0x8e, 1);
    pub const RECORD_MEMORY: Bits = Bits(0xa0, 32);
    pub const LOG_SIZE: Bits = Bits(0xe3, 5);
    pub const PAGE: Bits = Bits(0xe8, 24);
    pub const EVENT_QUEUE: Bits = Bits(0x120, 32);
    pub const RECORD_OFFSET: Bits = Bits(0x240, 64);
    pub const OFFSET: Bits = Bits(0x280, 64);
    pub const MEMORY: Bits = Bits(0x2c0, 32);
    pub const IN_MEMORY: Bits = Bits(0x2e0, 1);
}

/// The context of a queue pair begins at bit 0xc0 of CREATE_QP, of the transitions, and of the reply to QUERY_QP.
pub mod qp {
    use super::Bits;

    pub const STATE: Bits = Bits(0xc0, 4);
    pub const DOMAIN: Bits = Bits(0xe8, 24);
    pub const LOG_RECEIVE: Bits = Bits(0x109, 4);
    /// log2 of a receive entry in units of 16 bytes.
    pub const LOG_STRIDE: Bits = Bits(0x10d, 3);
    pub const LOG_SEND: Bits = Bits(0x111, 4);
    pub const TIMESTAMPS: Bits = Bits(0x118, 2);
    pub const PAGE: Bits = Bits(0x128, 24);
    pub const RECORD_MODE: Bits = Bits(0x140, 2);
    pub const REMOTE: Bits = Bits(0x168, 24);
    /// The address path `ads` begins at bit 0xc0 of the context.
    pub const REMOTE_GID: [Bits; 2] = [Bits(0x200, 64), Bits(0x240, 64)];
    pub const RNR_RETRY: Bits = Bits(0x450, 3);
    pub const SEND_COMPLETIONS: Bits = Bits(0x4a8, 24);
    pub const RECEIVE_COMPLETIONS: Bits = Bits(0x5a8, 24);
    pub const RECORD_OFFSET: Bits = Bits(0x5c0, 64);
    /// `rq_type`: 0 for a receive queue of its own, 3 for none.
    pub const RECEIVE_KIND: Bits = Bits(0x625, 3);
    pub const SEEN_BY_HARDWARE: Bits = Bits(0x660, 16);
    pub const ANNOUNCED: Bits = Bits(0x670, 16);
    /// `cs_res`: 1 for messages of up to 32 bytes in their completion entry.
    pub const SCATTER: Bits = Bits(0x6f8, 8);
    pub const RECORD_IN_MEMORY: Bits = Bits(0x743, 1);
    pub const RECORD_MEMORY: Bits = Bits(0x7e0, 32);
    pub const OFFSET: Bits = Bits(0x800, 64);
    pub const MEMORY: Bits = Bits(0x840, 32);
    pub const IN_MEMORY: Bits = Bits(0x860, 1);
}

/// QUERY_HCA_CAP: the requested group, and fields of the reply.
pub mod capability {
    use super::Bits;

    /// `op_mod`: the group. The lowest bit, for current values, is not included.
    pub const GROUP: Bits = Bits(0x30, 15);
    /// In the general group. Offsets include the reply's first 16 bytes.
    pub const LOG_MAX_QP_BLOCKS: Bits = Bits(0x80 + 0x88, 8);
    pub const HAS_MORE: Bits = Bits(0x80 + 0x20, 1);
    pub const CQE_VERSION: Bits = Bits(0x80 + 0x1fc, 4);
    pub const SCATTER_TO_CQE: Bits = Bits(0x80 + 0x215, 1);
    pub const CQ_OVERRUN_IGNORE: Bits = Bits(0x80 + 0x220, 1);
    pub const BLUE_FLAME: Bits = Bits(0x80 + 0x260, 1);
    pub const LOG_BLUE_FLAME: Bits = Bits(0x80 + 0x26b, 5);
    pub const MAX_ENTRY_BYTES: Bits = Bits(0x80 + 0x290, 16);
    pub const MAX_RECEIVE_BYTES: Bits = Bits(0x80 + 0x2b0, 16);
    /// In the second general group.
    pub const NO_RECORD: Bits = Bits(0x80 + 0x2e1, 1);
    /// In the group of RoCE.
    pub const UDP_DESTINATION: Bits = Bits(0x80 + 0xb0, 16);
    pub const UDP_SOURCE_MAX: Bits = Bits(0x80 + 0xc0, 16);
    pub const UDP_SOURCE_MIN: Bits = Bits(0x80 + 0xd0, 16);
    /// In the group of atomics.
    pub const ATOMIC_ENDIANNESS: Bits = Bits(0x80 + 0x40, 2);
    pub const ATOMIC_OPERATIONS: Bits = Bits(0x80 + 0x90, 16);
    pub const ATOMIC_SIZES: Bits = Bits(0x80 + 0xb0, 16);
}

/// Bytes of a work queue's block. `PIECE` is the unit of a receive entry, `COMPLETION` is the size of a completion entry, `RECORD` that of a doorbell record
/// with both its words.
pub const BLOCK: u64 = 64;
pub const PIECE: u64 = 16;
pub const COMPLETION: u64 = 64;
pub const RECORD: u64 = 8;
