//! The structures of `kernels/include/warpbell/abi.h`, mirrored. The header is the contract and documents each field.
#![allow(missing_docs)]

use bytemuck::{Pod, Zeroable};
use core::mem::offset_of;

pub const ABI_VERSION: u64 = 6;
pub const IMAGE_CHECKED: u32 = 1;
pub const ERROR_LOG_ENTRIES: usize = 32;
pub const MAX_DEVICES: usize = 16;
pub const MAX_WINDOWS: usize = 16;
pub const STATS_STRIPES: usize = 64;
pub const CHANGED_WORDS: usize = 64;
pub const REPAIRS: usize = 256;
pub const CHECKSUM_BYTES: usize = 4096;
pub const SHMEM_OPCODE: u32 = 0x100;
pub const CALL_FCOLLECT: u32 = 0x109;
pub const CALL_ALLTOALL: u32 = 0x10a;
pub const NO_PE: u32 = u32::MAX;
pub const MAX_PES: usize = 1024;
pub const CHANNELS: usize = 64;
pub const SYNC_ROUNDS: usize = 2;
pub const SYNC_SLOTS: usize = 32;
pub const SCRATCH_BYTES: usize = 16384;
pub const SCRATCH_LEAST_BYTES: usize = 128;
pub const MAX_TEAMS: usize = 64;
pub const HEAP_GRANULE: usize = 64;
pub const WORLD_LOAD_STORE: u32 = 1;
pub const WORLD_ATOMICS: u32 = 2;
pub const STATUS_KIND_SHIFT: u32 = 28;
pub const STATUS_NVME_MASK: u32 = 0x7fff;
pub const STATUS_SYNDROME_MASK: u32 = 0xffff;
pub const SEND_COLLAPSED: u32 = 1;
pub const SEND_CONSISTENCY: u32 = 2;
pub const SEND_NEAR: u32 = 4;
pub const PEER_LOAD_STORE: u32 = 1;
pub const STATUS_NETWORK_ERROR: u32 = 9;
pub const FAULT_PE_SHIFT: u32 = 32;

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ErrorEntry {
    pub status: u32,
    pub device: u32,
    pub queue: u32,
    pub command: u32,
    pub opcode: u32,
    pub blocks: u32,
    pub lba: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ErrorLog {
    pub count: u32,
    pub stop: u32,
    pub reserved: [u32; 6],
    pub entry: [ErrorEntry; ERROR_LOG_ENTRIES],
    pub ready: [u32; ERROR_LOG_ENTRIES],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Control {
    pub stop: u64,
    pub abort: u64,
    pub error_log: u64,
    pub deadline_ns: u64,
    pub host_stop: u64,
    pub fault: u64,
    pub reserved: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Record {
    pub buffer: u64,
    pub tag: u64,
    pub lba: u64,
    pub bytes: u32,
    pub opcode_blocks: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Queue {
    pub sq: u64,
    pub cq: u64,
    pub sq_doorbell: u64,
    pub cq_doorbell: u64,
    pub slot: u64,
    pub mark: u64,
    pub outcome: u64,
    pub record: u64,
    pub bounce: u64,
    pub bounce_iova: u64,
    pub prp_list: u64,
    pub prp_list_iova: u64,
    pub depth: u32,
    pub log2_depth: u32,
    pub bounce_bytes: u32,
    pub index: u32,
    pub reserved0: [u32; 4],
    pub credit: u32,
    pub ticket: u32,
    pub frontier: u32,
    pub spare: u32,
    pub reserved1: [u32; 28],
    pub tail_lock: u32,
    pub tail: u32,
    pub reserved2: [u32; 30],
    pub head_lock: u32,
    pub head: u32,
    pub reserved3: [u32; 30],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Stats {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub hits: u64,
    pub misses: u64,
    pub fills: u64,
    pub write_backs: u64,
    pub evictions: u64,
    pub prefetches: u64,
    pub retries: u64,
    pub doorbells: u64,
    pub errors: u64,
    pub redirects: u64,
    pub repairs: u64,
    pub reserved: [u64; 1],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Device {
    pub queues: u64,
    pub blocks: u64,
    pub queue_count: u32,
    pub nsid: u32,
    pub max_blocks: u32,
    pub gone: u32,
    pub missed: u32,
    pub reserved: [u32; 7],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub struct Repair {
    pub lba: u64,
    pub device: u32,
    pub blocks: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Integrity {
    pub mark_buffer: u64,
    pub mark_block: u64,
    pub mark_pending: u32,
    pub unit_shift: u32,
    pub copies: u32,
    pub repair_count: u32,
    pub checksum: u64,
    pub checksum_count: u64,
    pub changed: [u64; CHANGED_WORDS],
    pub repair: [Repair; REPAIRS],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Window {
    pub base: u64,
    pub bytes: u64,
    pub iova: [u64; MAX_DEVICES],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Volume {
    pub control: u64,
    pub stats: u64,
    pub blocks: u64,
    pub block_shift: u32,
    pub device_count: u32,
    pub chunk_blocks: u32,
    pub window_count: u32,
    pub memory_page_shift: u32,
    pub replicated: u32,
    pub integrity: u64,
    pub reserved: [u32; 2],
    pub device: [Device; MAX_DEVICES],
    pub window: [Window; MAX_WINDOWS],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Cache {
    pub volume: u64,
    pub frames: u64,
    pub tag: u64,
    pub pins: u64,
    pub fill: u64,
    pub set_lock: u64,
    pub hand: u64,
    pub pages: u64,
    pub sets: u32,
    pub ways: u32,
    pub log2_sets: u32,
    pub page_shift: u32,
    pub blocks_per_page: u32,
    pub way_reciprocal: u32,
    pub set_mask: u32,
    pub page_mask: u32,
    pub reserved: [u32; 8],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Array {
    pub cache: u64,
    pub first_page: u64,
    pub count: u64,
    pub element_bytes: u32,
    pub page_elements_log2: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct ArrayView {
    pub array: Array,
    pub cache: Cache,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Team {
    pub pe: u32,
    pub size: u32,
    pub start: u32,
    pub stride: u32,
    pub sync: u64,
    pub signals: u64,
    pub scratch: u64,
    pub rounds: u64,
    pub scratch_bytes: u32,
    pub reserved0: u32,
    pub reserved: [u64; 1],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TeamRounds {
    pub sync: u64,
    pub data: u64,
    pub small: u64,
    pub reserved: [u64; 13],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct SendQueue {
    pub ring: u64,
    pub completions: u64,
    pub record: u64,
    pub doorbell: u64,
    pub mark: u64,
    pub hold: u64,
    pub staging: u64,
    pub staging_address: u64,
    pub staging_key: u32,
    pub staging_bytes: u32,
    pub queue_word: u32,
    pub log_blocks: u32,
    pub log_completions: u32,
    pub flags: u32,
    pub pe: u32,
    pub index: u32,
    pub reserved0: [u64; 4],
    pub credit: u32,
    pub ticket: u32,
    pub granted: u32,
    pub spare: u32,
    pub reserved1: [u32; 28],
    pub tail_lock: u32,
    pub tail: u32,
    pub reserved2: [u32; 30],
    pub head_lock: u32,
    pub head: u32,
    pub completed: u32,
    pub failed: u32,
    pub failed_at: u32,
    pub reserved3: [u32; 27],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Peer {
    pub queues: u64,
    pub heap: u64,
    pub key: u32,
    pub strict_key: u32,
    pub queue_count: u32,
    pub flags: u32,
    pub reserved: [u64; 4],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Network {
    pub peers: u64,
    pub heap: u64,
    pub key: u32,
    pub reserved0: u32,
    pub control: u64,
    pub local: u64,
    pub heap_bytes: u64,
    pub stride: u64,
    pub pe: u32,
    pub size: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct World {
    pub control: u64,
    pub heap: u64,
    pub heap_bytes: u64,
    pub stride: u64,
    pub allocated: u64,
    pub network: u64,
    pub pe: u32,
    pub size: u32,
    pub flags: u32,
    pub reserved1: u32,
    pub team: Team,
    pub reserved2: [u64; 14],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct TeamView {
    pub world: World,
    pub team: Team,
}

const _: () = {
    assert!(size_of::<Team>() == 64);
    assert!(size_of::<TeamRounds>() == 128);
    assert!(size_of::<SendQueue>() == 512);
    assert!(size_of::<Peer>() == 64);
    assert!(size_of::<Network>() == 64);
    assert!(size_of::<World>() == 240);
    assert!(size_of::<TeamView>() == 304);
    assert!(size_of::<ErrorEntry>() == 32);
    assert!(size_of::<Control>() == 64);
    assert!(size_of::<Record>() == 32);
    assert!(size_of::<Queue>() == 512);
    assert!(size_of::<Stats>() == 128);
    assert!(size_of::<Device>() == 64);
    assert!(size_of::<Cache>() == 128);
    assert!(size_of::<Array>() == 32);
    assert!(size_of::<ArrayView>() == 160);
};

const fn fold(hash: u64, value: usize) -> u64 {
    (hash ^ value as u64).wrapping_mul(0x0000_0100_0000_01b3)
}

/// The number that the header's `fingerprint()` computes; the same list in the same order.
pub const fn fingerprint() -> u64 {
    let list = [
        ABI_VERSION as usize,
        size_of::<ErrorEntry>(),
        offset_of!(ErrorEntry, lba),
        size_of::<ErrorLog>(),
        offset_of!(ErrorLog, entry),
        offset_of!(ErrorLog, ready),
        size_of::<Control>(),
        offset_of!(Control, deadline_ns),
        offset_of!(Control, host_stop),
        offset_of!(Control, fault),
        size_of::<Record>(),
        offset_of!(Record, bytes),
        size_of::<Queue>(),
        offset_of!(Queue, bounce),
        offset_of!(Queue, depth),
        offset_of!(Queue, ticket),
        offset_of!(Queue, credit),
        offset_of!(Queue, spare),
        offset_of!(Queue, tail),
        offset_of!(Queue, head),
        size_of::<Stats>(),
        offset_of!(Stats, redirects),
        size_of::<Device>(),
        offset_of!(Device, missed),
        size_of::<Integrity>(),
        offset_of!(Integrity, copies),
        offset_of!(Integrity, checksum),
        offset_of!(Integrity, repair),
        size_of::<Window>(),
        size_of::<Volume>(),
        offset_of!(Volume, memory_page_shift),
        offset_of!(Volume, replicated),
        offset_of!(Volume, integrity),
        offset_of!(Volume, device),
        offset_of!(Volume, window),
        size_of::<Cache>(),
        offset_of!(Cache, pages),
        offset_of!(Cache, way_reciprocal),
        offset_of!(Cache, page_mask),
        size_of::<Array>(),
        offset_of!(Array, page_elements_log2),
        size_of::<ArrayView>(),
        offset_of!(ArrayView, cache),
        size_of::<Team>(),
        offset_of!(Team, sync),
        offset_of!(Team, rounds),
        offset_of!(Team, scratch_bytes),
        size_of::<TeamRounds>(),
        size_of::<SendQueue>(),
        offset_of!(SendQueue, staging_key),
        offset_of!(SendQueue, index),
        offset_of!(SendQueue, ticket),
        offset_of!(SendQueue, spare),
        offset_of!(SendQueue, tail),
        offset_of!(SendQueue, failed_at),
        size_of::<Peer>(),
        offset_of!(Peer, strict_key),
        size_of::<Network>(),
        offset_of!(Network, key),
        offset_of!(Network, local),
        offset_of!(Network, pe),
        size_of::<World>(),
        offset_of!(World, network),
        offset_of!(World, allocated),
        offset_of!(World, pe),
        offset_of!(World, team),
        size_of::<TeamView>(),
    ];
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    let mut i = 0;
    while i < list.len() {
        h = fold(h, list[i]);
        i += 1;
    }
    h
}
