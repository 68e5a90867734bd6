// Structures that host Rust and kernels share. This header is their only description: host/engine/abi/generate writes the Rust side
// from it, and abi_fields.h for the fingerprint.
//
// Plain C, fixed width, all padding named, reserved tails so that sizes stay. "Address" means an address as kernels see it. An
// "iova" is the address that the device on the bus uses for the same bytes.
#pragma once

#include "standard.h"

#define WB_ABI_VERSION 11u

// A pointer for kernels, and a number for the host.
#ifdef __BINDGEN__
#define WB_POINTER(TYPE) uint64_t
#else
#define WB_POINTER(TYPE) TYPE*
#endif

// Flags of an image: how its kernels were compiled.
#define WB_IMAGE_CHECKED 1u  // with WB_CHECKED=1: calls of a world check their addresses

#ifdef __cplusplus
extern "C" {
#endif

// --- one run of kernels ----------------------------------------------------------------------------------------------

// A failed operation, as the host reads it.
typedef struct wb_error {
  uint32_t status;   // status.h
  uint32_t device;   // index in the volume
  uint32_t queue;    // queue pair, counted from 0 within the device
  uint32_t command;  // command identifier
  uint32_t opcode;   // NVMe opcode
  uint32_t blocks;   // logical blocks
  uint64_t lba;      // first logical block on the device
} wb_error;

// Calls of shmem.cuh use the fields differently. Their opcodes begin here: `device` is the other PE or WB_NO_PE, `queue` the PE
// that called, `command` the channel of a collective, `blocks` the bytes, `lba` the offset in the heap.
#define WB_SHMEM_OPCODE 0x100u

// An index that names no row of a table (table.cuh). `lba` is its position in the batch, `queue` and `command` the upper and the lower
// half of the index, `device` and `blocks` the upper and the lower half of the number of rows.
#define WB_TABLE_OPCODE 0x200u

#define WB_ERROR_LOG_ENTRIES 32u

// Error log in host memory. Kernels write it, and the host reads it at any time.
typedef struct wb_error_log {
  uint32_t count;  // errors raised, including those beyond the log's length
  uint32_t stop;   // wb_control.host_stop
  uint32_t reserved[6];
  wb_error entry[WB_ERROR_LOG_ENTRIES];  // entry i is complete once ready[i] is 1
  uint32_t ready[WB_ERROR_LOG_ENTRIES];
} wb_error_log;

// Limits of a run. Each engine context has one, in memory that kernels read cheaply.
typedef struct wb_control {
  WB_POINTER(uint32_t) stop;           // near the kernels, written by the host: not 0 ends every wait
  WB_POINTER(uint32_t) abort;          // near the kernels: not 0 once the run has failed
  WB_POINTER(wb_error_log) error_log;  // in host memory
  uint64_t deadline_ns;                // longest time of one wait
  WB_POINTER(uint32_t) host_stop;      // in host memory, or null: the same flag as `stop`; long waits look at it now and then
  WB_POINTER(uint64_t) fault;          // in host memory, or null: see WB_FAULT_PE_SHIFT; long waits look at it as at `host_stop`
  uint64_t reserved[2];
} wb_control;

// Value of `*wb_control.fault` in a world over adapters. It is 0 while all connections work. After the first failure it has the
// status word (status.h) in the low half, and the PE at the other end of the connection above it. Waits for words of this PE's own
// memory end with it.
#define WB_FAULT_PE_SHIFT 32

// --- NVMe queue pair -------------------------------------------------------------------------------------------------

// Description of a slot's command, from which any thread can finish the command: copy a bounce buffer out, mark a cache frame
// valid.
typedef struct wb_record {
  uint64_t buffer;         // destination of a read's data, with WB_RECORD_LANDED where the device writes it directly, or 0
  uint64_t tag;            // address of the cache tag to complete, or 0
  uint64_t lba;            // for the error log
  uint32_t bytes;          // bytes to transfer
  uint32_t opcode_blocks;  // opcode in bits 31:24, WB_RECORD_PRIVATE in 23, WB_RECORD_COPIES in 22, logical blocks in 21:0
} wb_record;

#define WB_RECORD_OPCODE_SHIFT 24
#define WB_RECORD_PRIVATE 0x00800000u  // only the thread that submitted the command may finish it
#define WB_RECORD_COPIES 0x00400000u   // another device holds the same blocks: a failed read is repeated there
#define WB_RECORD_BLOCKS_MASK 0x003fffffu
#define WB_RECORD_LANDED 1u  // flag in `buffer`, which is a multiple of 4

// Value of wb_capsules.closed, which the host writes.
#define WB_CAPSULES_OPEN 0u
#define WB_CAPSULES_LOST 1u    // the connection has ended: commands wait for the next one
#define WB_CAPSULES_FAILED 2u  // there will be no other connection: commands fail

// Violations of the protocol that kernels find, in bits 63:48 of wb_capsules_report.fault. Bits 47:32 have the command identifier,
// bits 31:0 the number named here.
#define WB_CAPSULES_RECEIVE 1u   // a receive has failed: syndrome, with the vendor syndrome in bits 15:8
#define WB_CAPSULES_SEND 2u      // a send has failed: syndrome, with the vendor syndrome in bits 15:8
#define WB_CAPSULES_LENGTH 3u    // a response is not 16 bytes long: its length
#define WB_CAPSULES_HEAD 4u      // SQHD is outside of the queue: SQHD
#define WB_CAPSULES_UNKNOWN 5u   // no command in flight has the identifier
#define WB_CAPSULES_REPEATED 6u  // the command with the identifier has completed before
#define WB_CAPSULES_FAULT_SHIFT 48

// Report of kernels about a connection, in host memory.
typedef struct wb_capsules_report {
  uint64_t fault;    // the first violation, or 0
  uint32_t adopted;  // 1: kernels use the connection, and no earlier one
  uint32_t reserved;
} wb_capsules_report;

// The connection of a wb_queue of a remote controller: an RDMA queue pair that carries command capsules (NVMe over Fabrics). The
// queue's submission ring is the ring of capsules. The command of ticket t is sent by block t + shift of the send ring. The host
// posts `16 << log_receives` bytes of receives, and kernels post each one again.
typedef struct wb_capsules {
  uint64_t ring;                          // send ring, 64 bytes << log_blocks
  uint64_t sent;                          // completion ring of the sends, 64 bytes << log_blocks
  uint64_t received;                      // completion ring of the receives, 64 bytes << log_receives
  uint64_t responses;                     // memory of the receives, 16 bytes << log_receives
  WB_POINTER(void) record;                // the doorbell record: two big-endian words, receive and send
  WB_POINTER(uint64_t) doorbell;          // the adapter's register, or a mailbox that a host thread reads
  uint64_t capsules;                      // slot 0's capsule, as work requests name it
  WB_POINTER(wb_capsules_report) report;  // in host memory
  uint32_t capsule_key;                   // big-endian
  uint32_t queue_word;                    // the queue pair's number as in control segments: shifted by 8, big-endian
  uint32_t log_blocks;                    // at most 15
  uint32_t log_receives;                  // at most 15
  uint32_t flags;                         // WB_SEND_*
  uint32_t posted;                        // sends that the host has posted before kernels got the queue pair
  uint32_t in_capsule_bytes;  // largest write whose data goes with its capsule, or 0; not 0 only if keys are alike for both sides
  uint32_t reserved0[9];
  // Words that the host writes while kernels run, a 128-byte line.
  uint64_t next;    // address of the connection that replaces this one, or 0
  uint32_t closed;  // WB_CAPSULES_*
  uint32_t reserved1[29];
  // Words of the holder of the tail lock.
  uint32_t announced;  // tickets whose commands were sent on this connection, or on an earlier one
  uint32_t shift;      // blocks of the send ring are tickets plus `shift`
  uint32_t reserved2[30];
  // Words of the holder of the head lock.
  uint32_t taken;  // responses consumed, those to the host included
  uint32_t down;   // 1: the connection carries no commands any more
  uint32_t reserved3[30];
} wb_capsules;

// An I/O queue pair. `depth` is a power of two from 2 to 65536 (NVMe Base 2.1, 3.3.3.1).
//
// slot[i] is a word with a lap and a state: lap << 3 | state; see ring.cuh. A fresh queue is all zeroes from `slot` to `outcome`
// and in its hot words. A queue that continues at another ticket t has `ticket`, `frontier`, `tail` and `head` equal to t. Each
// slot then has the lap of the next ticket that falls on it, in `slot` (shifted) and in `mark`.
typedef struct wb_queue {
  WB_POINTER(void) sq;               // submission ring, depth * 64 bytes
  WB_POINTER(void) cq;               // completion ring, depth * 16 bytes; null if `remote`
  WB_POINTER(uint32_t) sq_doorbell;  // the device's register, or a mailbox that a host thread forwards to it; null if `remote`
  WB_POINTER(uint32_t) cq_doorbell;  // likewise
  WB_POINTER(uint32_t) slot;         // [depth] slot words
  WB_POINTER(uint32_t) mark;         // [depth] lap + 1 once the entry of that lap is written
  WB_POINTER(uint32_t) outcome;      // [depth] status word (status.h) of a failed command
  WB_POINTER(wb_record) record;      // [depth]
  uint64_t bounce;                   // slot 0's bounce buffer, bounce_bytes for each slot; 0 if the device transfers data directly
  uint64_t bounce_iova;
  uint64_t prp_list;  // slot 0's PRP list, one memory page for each slot
  uint64_t prp_list_iova;
  uint32_t depth;
  uint32_t log2_depth;
  uint32_t bounce_bytes;
  uint32_t index;                    // within the device, from 0
  uint32_t remote;                   // not 0: `capsules` carries the commands, data pointers are keyed, there are no doorbells of NVMe
  uint32_t bounce_key;               // key of `bounce_iova` for a remote controller
  WB_POINTER(wb_capsules) capsules;  // the connection in use; changes only under both locks
  // Hot words, a 128-byte line each.
  uint32_t credit;    // i32: tickets that may be taken now; one 64-bit word with `ticket`; see ring.cuh
  uint32_t ticket;    // next ticket, free-running
  uint32_t frontier;  // tickets before it were found to have a free slot; free-running
  uint32_t spare;     // credit to be added to `credit`; their sum is frontier - ticket while no thread changes them
  uint32_t reserved1[28];
  uint32_t tail_lock;  // 0, or the number of attempts since a warp took the lock to publish; one 64-bit word with `tail`
  uint32_t tail;       // tickets published so far
  uint32_t reserved2[30];
  uint32_t head_lock;  // 1 while a warp polls; one 64-bit word with `head`
  uint32_t head;       // completions consumed so far, free-running
  uint32_t reserved3[30];
} wb_queue;

// --- volume ----------------------------------------------------------------------------------------------------------

#define WB_MAX_DEVICES 16u
#define WB_MAX_REGISTERED_REGIONS 16u
#define WB_STATS_STRIPES 64u

// Counters, striped over processors; the host sums the stripes. Each stripe is one 128-byte line.
typedef struct wb_stats {
  uint64_t reads;  // read commands
  uint64_t read_bytes;
  uint64_t writes;  // write commands
  uint64_t write_bytes;
  uint64_t hits;         // cache: accesses that found their page in the cache
  uint64_t misses;       // cache: accesses that did not find it
  uint64_t fills;        // cache: pages read
  uint64_t write_backs;  // cache: dirty pages written
  uint64_t evictions;    // cache: valid pages replaced
  uint64_t prefetches;   // cache: pages requested ahead of use
  uint64_t retries;      // cache: optimistic reads that had to be repeated
  uint64_t doorbells;    // submission doorbell stores
  uint64_t errors;       // operations that failed
  uint64_t redirects;    // reads that failed on one copy and succeeded on another
  uint64_t repairs;      // blocks that the host wrote back to a copy that had failed to return them
  uint64_t reserved[1];
} wb_stats;

// A namespace and its queues.
typedef struct wb_device {
  WB_POINTER(wb_queue) queues;  // [queue_count]
  uint64_t blocks;              // logical blocks in the namespace
  uint32_t queue_count;
  uint32_t nsid;
  uint32_t max_blocks;  // most logical blocks of one command (least of MDTS, bounce size and PRP list); 0: this copy is out of use
  uint32_t gone;        // the host writes 1: the device has left the bus, so it transfers no data any more
  uint32_t missed;      // kernels write 1: a write was made without this copy
  uint32_t reserved[7];
} wb_device;

// Blocks that one copy failed to return and another returned: the host writes them back.
typedef struct wb_repair {
  uint64_t lba;
  uint32_t device;
  uint32_t blocks;
} wb_repair;

#define WB_CHANGED_WORDS 64u
#define WB_CHECKSUM_SHIFT 12
#define WB_CHECKSUM_BYTES (1u << WB_CHECKSUM_SHIFT)
#define WB_REPAIRS 256u
// Bytes of adjacent pages of a cache that one command reads.
#define WB_CACHE_COMMAND_BYTES 4096u

// State of kernels' writes and failed reads, which the host reads besides the counters.
typedef struct wb_integrity {
  uint64_t mark_buffer;     // address of a block whose contents say that stored arrays are being changed
  uint64_t mark_block;      // the block's number in the volume
  uint32_t mark_pending;    // not 0: the block has to be written and flushed before the next write
  uint32_t unit_shift;      // log2 of the number of blocks that a bit of `changed` covers
  uint32_t copies;          // replicated volume: a bit for each device in use
  uint32_t repair_count;    // including repairs beyond the length of `repair`
  uint64_t checksum;        // address of a u32 for each WB_CHECKSUM_BYTES of the volume: low half of the XXH3, 1 for 0; 0: not known
  uint64_t checksum_count;  // 0: pages have no checksums
  uint64_t changed[WB_CHANGED_WORDS];  // a bit for each unit that was written to
  wb_repair repair[WB_REPAIRS];
} wb_integrity;

// Registered region: memory that the devices of a volume can address, at `iova + (address - base)`.
typedef struct wb_registered_region {
  uint64_t base;
  uint64_t bytes;
  uint64_t iova[WB_MAX_DEVICES];  // one for each device
  uint32_t key[WB_MAX_DEVICES];   // key of `iova` for a remote controller
} wb_registered_region;

// A block address space over one or more namespaces of equal logical block size.
typedef struct wb_volume {
  WB_POINTER(const wb_control) control;
  WB_POINTER(wb_stats) stats;  // [WB_STATS_STRIPES]
  uint64_t blocks;             // logical blocks in the volume
  uint32_t block_shift;        // log2 of the logical block size
  uint32_t device_count;
  uint32_t chunk_blocks;               // stripe unit
  uint32_t registered_region_count;    // 0: every transfer goes through bounce buffers
  uint32_t memory_page_shift;          // the controller's page (CC.MPS), for PRP entries
  uint32_t replicated;                 // not 0: every device holds every block; 0: devices are striped
  WB_POINTER(wb_integrity) integrity;  // null on a volume that is not replicated and holds no arrays
  uint32_t reserved[2];
  wb_device device[WB_MAX_DEVICES];
  wb_registered_region window[WB_MAX_REGISTERED_REGIONS];
} wb_volume;

// Kernel parameter: a volume. The address is that of memory that kernels see.
typedef struct wb_volume_view {
  WB_POINTER(const wb_volume) volume;
} wb_volume_view;

// --- cache -----------------------------------------------------------------------------------------------------------

// A set-associative page cache over a volume. Page p belongs to set p mod sets. Its home way is (p / sets) mod ways. Way w of set s
// is frame w * sets + s, so that a run of pages in their home ways is a run of frames.
//
// Tag word: page in bits 63:24, version (incremented by every replacement) in 23:8, state in 7:0; see cache.cuh. The number of pins
// is a separate word. A thread that pins adds to that word atomically, then looks at the tag atomically. A thread that evicts
// changes the tag atomically, then looks at the pins atomically. So one of the two always sees the other.
#define WB_TAG_VALID 0x01u       // the frame holds the page
#define WB_TAG_FILLING 0x02u     // a read is in flight; the frame's `fill` word names it
#define WB_TAG_DIRTY 0x04u       // changed since the page was read or written
#define WB_TAG_WRITING 0x08u     // a write of the page is in flight
#define WB_TAG_REFERENCED 0x10u  // used since CLOCK's hand last passed
#define WB_TAG_FAILED 0x20u      // the last read or write of the page failed
#define WB_TAG_UNCHECKED 0x40u   // read but not compared with its checksums; while FILLING: to be compared after the read
#define WB_TAG_PAGE_SHIFT 24
#define WB_TAG_VERSION_SHIFT 8

typedef struct wb_cache {
  WB_POINTER(const wb_volume) volume;
  uint64_t frames;                // data, page_bytes for each frame
  WB_POINTER(uint64_t) tag;       // [sets * ways], the ways of a set contiguous: tag[set * ways + way]
  WB_POINTER(uint32_t) pins;      // [sets * ways]
  WB_POINTER(uint64_t) fill;      // [sets * ways]: the token of the frame's command in flight
  WB_POINTER(uint32_t) set_lock;  // [sets]
  WB_POINTER(uint32_t) hand;      // [sets]: hand of CLOCK
  uint64_t pages;                 // pages in the volume
  uint32_t sets;                  // a power of two
  uint32_t ways;
  uint32_t log2_sets;
  uint32_t page_shift;
  uint32_t blocks_per_page;
  uint32_t way_reciprocal;  // ceil(2^32 / ways)
  // Derived constants of the hit path, which would otherwise be computed and kept in registers.
  uint32_t set_mask;   // sets - 1
  uint32_t page_mask;  // bytes of a page - 1
  uint32_t reserved[8];
} wb_cache;

// A typed range of a cached volume. Elements never straddle pages.
typedef struct wb_array {
  WB_POINTER(const wb_cache) cache;
  uint64_t first_page;
  uint64_t count;  // elements
  uint32_t element_bytes;
  uint32_t page_elements_log2;
} wb_array;

// Kernel parameter: the array, and its cache's constants beside it. Both are read from parameter memory and cost no registers.
typedef struct wb_array_view {
  wb_array array;
  wb_cache cache;
} wb_array_view;

// --- table -----------------------------------------------------------------------------------------------------------

#define WB_ROW_WAYS 16u  // frames of a set of a row cache
#define WB_ROW_TIERS 2u  // row caches of a table: near the kernels, and in host memory

// Counters of a table, striped as those of a volume.
typedef struct wb_table_stats {
  uint64_t rows;             // rows that were gathered
  uint64_t duplicates;       // among them: copied from another row of the batch
  uint64_t hot_hits;         // among them: found among the hot rows
  uint64_t cache_hits;       // among them: found in the row cache near the kernels
  uint64_t host_hits;        // among them: found in the row cache in host memory
  uint64_t device_reads;     // among them: read from the devices
  uint64_t admissions;       // rows that entered the row cache near the kernels
  uint64_t host_admissions;  // rows that entered the row cache in host memory
  uint64_t retries;          // hits whose frame was given to another row meanwhile
  uint64_t written;          // rows that were written
  uint64_t reserved[6];
} wb_table_stats;

// A row cache: sets of WB_ROW_WAYS frames. table/cache.cuh describes tags.
#define WB_ROW_VALID 0x01u      // the frame holds the row
#define WB_ROW_BUSY 0x02u       // a warp copies the row into the frame
#define WB_ROW_DEAD 0x04u       // the row was written meanwhile: the frame must not become valid
#define WB_ROW_USE_SHIFT 5      // uses, up to 7, in bits 7:5
#define WB_ROW_VERSION_SHIFT 8  // incremented by every replacement
#define WB_ROW_NUMBER_SHIFT 24  // the row's number above
#define WB_ROW_NUMBER_BITS 40u
typedef struct wb_row_cache {
  WB_POINTER(uint64_t) tag;      // [sets * WB_ROW_WAYS]; null: there is no such cache
  WB_POINTER(uint32_t) changed;  // [sets]: number of times that a row of the set was written
  WB_POINTER(uint32_t) seen;     // [seen_mask + 1]: a bit for each hash of a row that was missed lately
  uint64_t frames;               // wb_table_view.row_bytes for each
  uint32_t sets;
  uint32_t seen_mask;  // words - 1
} wb_row_cache;

// Kernel parameter: a table, that is rows of equal size in consecutive bytes of a volume.
typedef struct wb_table_view {
  WB_POINTER(const wb_volume) volume;
  WB_POINTER(wb_table_stats) stats;  // [WB_STATS_STRIPES]
  uint64_t first;                    // byte of the volume at which row 0 begins; a multiple of the block
  uint64_t rows;
  uint32_t row_bytes;                    // a multiple of 4
  uint32_t part_blocks;                  // most blocks of a row that are read at once
  uint32_t parts;                        // most parts of a row
  uint32_t hot_mask;                     // slots of the hash table of hot rows - 1
  WB_POINTER(const uint64_t) hot_row;    // [hot_mask + 1]: number of a hot row + 1, or 0; null: there are no hot rows
  WB_POINTER(const uint32_t) hot_frame;  // [hot_mask + 1]: its frame
  uint64_t hot_frames;                   // row_bytes for each
  wb_row_cache cache[WB_ROW_TIERS];
} wb_table_view;

// Kernel parameter: memory for one batch of rows at a time. Kernels that use it run one after the other.
typedef struct wb_table_scratch {
  WB_POINTER(uint64_t)
  slots;  // [2 * (slot_mask + 1)]: a hash table of the batch's rows, see table/batch.cuh; null: duplicates are read again
  uint64_t slot_mask;
  uint64_t staging;  // staging_bytes for each read in flight, or 0 if no read needs it
  uint32_t staging_bytes;
  uint32_t in_flight;  // most parts of rows that are read at once by all warps together
  uint32_t epoch;      // 1 to 65,534, another one for each batch
  uint32_t reserved;
} wb_table_scratch;

// --- segments: objects of a volume that are scattered over memory ------------------------------------------------------

// Consecutive bytes of an object at one place in memory. The segments of an object follow each other.
typedef struct wb_segment {
  uint64_t address;  // a multiple of WB_SEGMENT_UNIT
  uint32_t bytes;    // a multiple of WB_SEGMENT_UNIT
  uint32_t group;    // the group of the transfer for which the bytes count
} wb_segment;
#define WB_SEGMENT_UNIT 16u

// Blocks of an object that one NVMe command transfers.
typedef struct wb_segment_command {
  uint64_t block;    // of the volume
  uint64_t offset;   // of its first byte in the object
  uint64_t shift;    // bytes that are added to the addresses of the segments
  uint32_t bytes;    // of the object, a multiple of WB_SEGMENT_UNIT; zeros follow up to a whole block
  uint32_t segment;  // segment that has its first byte
  uint32_t skip;     // bytes of that segment before it
  uint32_t object;
} wb_segment_command;

// Outcome of the transfer of an object.
typedef struct wb_segment_object {
  uint64_t bytes;          // of commands that succeeded
  uint64_t terms;          // sum of the checksum terms of these bytes (segments.cuh)
  uint64_t lba;            // of the first command that failed, on its device
  uint64_t origin;         // its token (command_ring.cuh)
  uint32_t word;           // its status word (status.h), or WB_DONE
  uint32_t opcode_blocks;  // as in wb_record
  uint32_t given_up;       // commands that were given up: their devices may still execute them
  uint32_t reserved;
} wb_segment_object;

// Progress of a transfer. All words but `spoiled` are 0 between two transfers.
typedef struct wb_segment_progress {
  uint32_t next;     // commands that warps have taken
  uint32_t ended;    // warps that have ended
  uint32_t spoiled;  // not 0: a device may still access staging memory, and no transfer takes commands; never cleared
  uint32_t reserved;
} wb_segment_progress;

// Kernel parameter: one transfer. Transfers with the same counters run one after the other.
typedef struct wb_segment_job {
  WB_POINTER(const wb_volume) volume;
  WB_POINTER(const wb_segment_command) command;  // [commands], those of an object in its order
  WB_POINTER(const wb_segment) segment;          // [segments]
  WB_POINTER(const uint64_t) group_bytes;        // [groups]
  WB_POINTER(wb_segment_progress) progress;
  WB_POINTER(uint64_t) group_done;        // [groups]: bytes so far; 0 between two transfers
  WB_POINTER(wb_segment_object) object;   // [objects]: so far; 0 between two transfers
  WB_POINTER(uint64_t) group_flag;        // [groups]: becomes `number` when the group is complete, or the transfer has ended
  WB_POINTER(wb_segment_object) outcome;  // [objects], in host memory
  WB_POINTER(uint64_t) ended;             // [2], in host memory: becomes `number` when all outcomes are there; `spoiled`
  uint64_t number;                        // of the transfer, larger than those before
  uint64_t staging;                       // staging_bytes for each command in flight
  uint32_t staging_bytes;
  uint32_t in_flight;  // commands of each warp, at most one for each lane
  uint32_t commands;
  uint32_t segments;
  uint32_t groups;
  uint32_t objects;
  uint32_t self_checked;  // not 0: all blocks belong to an array with checksums of its own, whose writes the volume does not record
  uint32_t reserved;
} wb_segment_job;

// --- world -----------------------------------------------------------------------------------------------------------

#define WB_NO_PE 0xffffffffu
#define WB_MAX_PES 1024u
#define WB_CHANNELS 64u              // collectives of one team that may be in progress at once, one in each channel
#define WB_SYNC_ROUNDS 2u            // rounds of a synchronisation: radix 32, so up to 32^2 members
#define WB_SYNC_SLOTS 32u            // words that members write to each other in one round
#define WB_SCRATCH_BYTES 16384u      // largest scratch of one member in a channel; half of it is data
#define WB_SCRATCH_LEAST_BYTES 128u  // smallest scratch of one member in a channel
#define WB_MAX_TEAMS 64u             // teams that a PE may be in at once, including the team of all PEs
#define WB_HEAP_GRANULE 64u          // bytes of the heap that a bit of `allocated` covers

// Use counts of a channel. Words in the heap are compared with them, and so never have to be cleared.
typedef struct wb_team_rounds {
  uint64_t sync;   // synchronisations
  uint64_t data;   // collectives that signal their data
  uint64_t small;  // collectives through the scratch
  uint64_t reserved[13];
} wb_team_rounds;  // a line of its own: channels belong to different blocks

// A team: some of a world's PEs, numbered from 0. PE i of the team is PE start + i * stride of the world.
typedef struct wb_team {
  uint32_t pe;  // this PE's number in the team, or WB_NO_PE
  uint32_t size;
  uint32_t start;
  uint32_t stride;
  WB_POINTER(uint64_t) sync;          // [WB_CHANNELS][WB_SYNC_ROUNDS][WB_SYNC_SLOTS] in the symmetric heap, for arrivals
  WB_POINTER(uint64_t) signals;       // [WB_CHANNELS][size] in the symmetric heap, for data that has arrived
  uint64_t scratch;                   // [WB_CHANNELS][2][size][scratch_bytes] in the symmetric heap, for small messages
  WB_POINTER(wb_team_rounds) rounds;  // [WB_CHANNELS] in this PE's own memory
  uint32_t scratch_bytes;             // a multiple of 16
  uint32_t reserved0;
  uint64_t reserved[1];
} wb_team;

#define WB_MAX_QUEUES 64u         // queue pairs to a PE
#define WB_WORLD_LOAD_STORE 0x1u  // loads and stores reach every PE's heap
#define WB_WORLD_ATOMICS 0x2u     // so do atomic operations; without it every atomic operation goes through the network

// A reliable connection of an RDMA adapter, as kernels use it (mlx5.cuh). The send ring has 64-byte blocks. Tickets count blocks
// and are free-running. Completions of one queue pair come in the order of its work requests.
#define WB_SEND_COLLAPSED 0x1u    // all completions overwrite one entry
#define WB_SEND_CONSISTENCY 0x2u  // data that a read or fetch landed is visible only after a flush behind it
#define WB_SEND_NEAR 0x4u         // rings, records and all data to send are in the memory of the GPU that posts
#define WB_SEND_NO_RECORD 0x8u    // the doorbell alone announces entries: the device reads no record of the send queue
typedef struct wb_send_queue {
  uint64_t ring;                  // 64 bytes << log_blocks
  uint64_t completions;           // 64 bytes << log_completions
  WB_POINTER(void) record;        // the doorbell record: two big-endian words, receive and send
  WB_POINTER(uint64_t) doorbell;  // the adapter's register, or a mailbox that a host thread reads
  WB_POINTER(uint32_t) mark;      // [blocks]: 4 * (lap + 1) once the block of that lap is written, plus the block's kind (mlx5/queue.cuh)
  WB_POINTER(uint32_t) hold;      // [blocks]: not 0 while a thread still needs the block's staging
  uint64_t staging;               // block 0's staging, staging_bytes for each: registered memory, as kernels see it
  uint64_t staging_address;       // the same memory, as work requests name it
  uint32_t staging_key;           // big-endian
  uint32_t staging_bytes;         // a multiple of 64
  uint32_t queue_word;            // the queue pair's number as in control segments: shifted by 8, big-endian
  uint32_t log_blocks;            // at most 15
  uint32_t log_completions;       // log_blocks, or 0 for WB_SEND_COLLAPSED
  uint32_t flags;                 // WB_SEND_*
  uint32_t pe;                    // the PE at the other end, for the error log
  uint32_t index;                 // among the queue pairs to that PE
  uint32_t flame;                 // bytes from one half of a BlueFlame register to the other; 0: the doorbell takes no entries
  uint32_t reserved4;
  uint64_t reserved0[3];
  // Hot words, a 128-byte line each. All are 0 at first, except `credit`, which is the number of blocks.
  uint32_t credit;   // i32: blocks that may be taken now; one 64-bit word with `ticket`, as in wb_queue
  uint32_t ticket;   // next block
  uint32_t granted;  // blocks before it have been turned into credit again
  uint32_t spare;    // credit to be added to `credit`
  uint32_t reserved1[28];
  uint32_t tail_lock;  // as in wb_queue
  uint32_t tail;       // blocks announced by the doorbell
  uint32_t reserved2[30];
  uint32_t head_lock;  // 1 while a warp polls; one 64-bit word with `head`
  uint32_t head;       // completions consumed
  uint32_t completed;  // blocks known complete
  uint32_t failed;     // status.h word of the first failure, or 0: the queue pair completes nothing after it
  uint32_t failed_at;  // the block of that work request
  uint32_t reserved3[27];
} wb_send_queue;

// A PE, as another PE reaches it.
#define WB_PEER_LOAD_STORE 0x1u  // loads and stores reach its heap
typedef struct wb_peer {
  WB_POINTER(wb_send_queue) queues;  // [queue_count], where there is a connection
  uint64_t heap;                     // the PE's heap, as work requests name it
  uint32_t key;                      // memory key of the heap, for data; big-endian
  uint32_t strict_key;               // key of the same memory, for signals and atomics: writes become visible in order; big-endian
  uint32_t queue_count;
  uint32_t flags;  // WB_PEER_*
  uint64_t reserved[4];
} wb_peer;

// Connections of a PE to the others, where loads and stores do not reach all of them.
typedef struct wb_network {
  WB_POINTER(const wb_peer) peers;  // [size]; this PE's own entry has a connection to itself, for atomics
  uint64_t heap;                    // this PE's heap, as work requests name it
  uint32_t key;                     // memory key of this PE's heap, for local use; big-endian
  uint32_t reserved0;
  // Copies of fields of wb_world, so that called functions need one address only.
  WB_POINTER(const wb_control) control;
  uint64_t local;  // this PE's heap, as kernels see it
  uint64_t heap_bytes;
  uint64_t stride;
  uint32_t pe;
  uint32_t size;
} wb_network;

// Kernel parameter: the world as one PE sees it, with constants that are read from parameter memory.
typedef struct wb_world {
  WB_POINTER(const wb_control) control;
  uint64_t heap;                         // this PE's symmetric heap
  uint64_t heap_bytes;                   // bytes of each PE's heap
  uint64_t stride;                       // the heap of PE p begins at heap + (p - pe) * stride, where loads and stores reach it
  WB_POINTER(const uint32_t) allocated;  // a bit for each WB_HEAP_GRANULE bytes of the heap that are allocated
  WB_POINTER(const wb_network) network;  // null where loads and stores reach every PE
  uint32_t pe;
  uint32_t size;
  uint32_t flags;  // WB_WORLD_*
  uint32_t queue;  // 0: requests go to the queue pair of their block's number; otherwise to that of this number - 1
  wb_team team;    // all PEs
  uint64_t reserved2[14];
} wb_world;

// The memory of one PE in a window, as this PE reaches it.
typedef struct wb_window_peer {
  uint64_t here;        // address for loads and stores; 0 where they do not reach it
  uint64_t address;     // as work requests name it
  uint32_t key;         // memory key for data; big-endian
  uint32_t strict_key;  // key of the same memory: writes become visible in order; big-endian
  uint32_t local_key;   // of this PE's own memory, for local use; big-endian
  uint32_t reserved;
} wb_window_peer;

// Kernel parameter: memory of every PE that was registered as symmetric, and a place in it.
typedef struct wb_window {
  WB_POINTER(const wb_window_peer) peers;  // [size of the world]
  uint64_t base;                           // this PE's memory
  uint64_t bytes;
  uint64_t at;  // the place, as an address in this PE's memory
} wb_window;

// Kernel parameter: a team and its world.
typedef struct wb_team_view {
  wb_world world;
  wb_team team;
} wb_team_view;

#ifdef __cplusplus
}  // extern "C"

static_assert(sizeof(wb_error) == 32, "wb_error");
static_assert(sizeof(wb_error_log) == 32 + 32 * WB_ERROR_LOG_ENTRIES + 4 * WB_ERROR_LOG_ENTRIES, "wb_error_log");
static_assert(sizeof(wb_control) == 64, "wb_control");
static_assert(sizeof(wb_record) == 32, "wb_record");
static_assert(sizeof(wb_capsules) == 512, "wb_capsules");
static_assert(sizeof(wb_queue) == 512, "wb_queue");
static_assert(offsetof(wb_queue, tail_lock) % 8 == 0 && offsetof(wb_queue, tail) == offsetof(wb_queue, tail_lock) + 4 &&
                  offsetof(wb_queue, head_lock) % 8 == 0 && offsetof(wb_queue, head) == offsetof(wb_queue, head_lock) + 4,
              "each lock and its counter are one 64-bit word");
static_assert(offsetof(wb_queue, ticket) == offsetof(wb_queue, credit) + 4 &&
                  offsetof(wb_send_queue, ticket) == offsetof(wb_send_queue, credit) + 4,
              "credit and ticket are one 64-bit word");
static_assert(offsetof(wb_send_queue, head_lock) % 16 == 0 &&
                  offsetof(wb_send_queue, completed) == offsetof(wb_send_queue, head_lock) + 8 &&
                  offsetof(wb_send_queue, failed) == offsetof(wb_send_queue, head_lock) + 12,
              "what a poller tells is one 128-bit word");
static_assert(offsetof(wb_queue, credit) == 128 && offsetof(wb_queue, tail_lock) == 256 && offsetof(wb_queue, head_lock) == 384,
              "wb_queue's hot words are a line apart");
static_assert(sizeof(wb_stats) == 128, "wb_stats");
static_assert(sizeof(wb_device) == 64, "wb_device");
static_assert(sizeof(wb_integrity) == 48 + 8 * WB_CHANGED_WORDS + 16 * WB_REPAIRS, "wb_integrity");
static_assert(sizeof(wb_registered_region) == 16 + 12 * WB_MAX_DEVICES, "wb_registered_region");
static_assert(sizeof(wb_volume) == 64 + 64 * WB_MAX_DEVICES + sizeof(wb_registered_region) * WB_MAX_REGISTERED_REGIONS, "wb_volume");
static_assert(sizeof(wb_volume_view) == 8, "wb_volume_view");
static_assert(sizeof(wb_cache) == 128, "wb_cache");
static_assert(sizeof(wb_array) == 32, "wb_array");
static_assert(sizeof(wb_array_view) == 160, "wb_array_view");
static_assert(sizeof(wb_table_stats) == 128, "wb_table_stats");
static_assert(sizeof(wb_row_cache) == 40, "wb_row_cache");
static_assert(sizeof(wb_table_view) == 152, "wb_table_view");
static_assert(sizeof(wb_table_scratch) == 40, "wb_table_scratch");
static_assert(sizeof(wb_team) == 64, "wb_team");
static_assert(sizeof(wb_team_rounds) == 128, "wb_team_rounds");
static_assert(sizeof(wb_send_queue) == 512, "wb_send_queue");
static_assert(offsetof(wb_send_queue, credit) == 128 && offsetof(wb_send_queue, tail_lock) == 256 &&
                  offsetof(wb_send_queue, head_lock) == 384,
              "wb_send_queue's hot words are a line apart");
static_assert(sizeof(wb_peer) == 64, "wb_peer");
static_assert(sizeof(wb_network) == 64, "wb_network");
static_assert(sizeof(wb_world) == 240, "wb_world");
static_assert(sizeof(wb_team_view) == 304, "wb_team_view");
static_assert(sizeof(wb_window_peer) == 32, "wb_window_peer");
static_assert(sizeof(wb_window) == 32, "wb_window");

namespace warpbell {
namespace abi {

WB_CONSTANT_FN uint64_t fold(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3ull; }

WB_CONSTANT_FN uint64_t fold(uint64_t hash, const char* name) {
  for (; *name; ++name) hash = fold(hash, static_cast<uint64_t>(*name));
  return hash;
}

// Returns a hash of names, sizes and offsets of all fields of all structures above. Host and image both compute it. The host
// refuses an image whose number differs.
WB_CONSTANT_FN uint64_t fingerprint() {
  uint64_t h = fold(0xcbf29ce484222325ull, uint64_t{WB_ABI_VERSION});
#define WB_ABI_STRUCT(STRUCT) h = fold(fold(h, #STRUCT), uint64_t{sizeof(STRUCT)});
#define WB_ABI_FIELD(STRUCT, FIELD) h = fold(fold(fold(h, #FIELD), uint64_t{offsetof(STRUCT, FIELD)}), uint64_t{sizeof(STRUCT::FIELD)});
#include "abi_fields.h"
#undef WB_ABI_STRUCT
#undef WB_ABI_FIELD
  return h;
}

}  // namespace abi
}  // namespace warpbell
#endif
