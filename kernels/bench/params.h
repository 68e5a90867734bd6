// Parameters and results of the kernels of `warpbell bench`. host/engine/abi/generate writes the Rust side of this file.
#pragma once

#include <warpbell/abi.h>

// --- queue.cu --------------------------------------------------------------------------------------------------------

// Counts of the ideal controller on one queue pair.
typedef struct wb_queue_serviced {
  uint64_t commands;
  uint64_t sum;        // of the commands' starting LBAs, which the submitters make all different
  uint64_t wrong;      // entries whose identifier was not their slot's, or that were not reads
  uint64_t doorbells;  // looks at the tail that found new entries
} wb_queue_serviced;

// Counts of one warp of submitters.
typedef struct wb_queue_submitted {
  uint64_t done;
  uint64_t failed;
  uint64_t sum;  // of the starting LBAs of the commands that are done
  uint64_t doorbells;
} wb_queue_submitted;

// --- post.cu ---------------------------------------------------------------------------------------------------------

// Counts of the ideal adapter on one queue pair.
typedef struct wb_adapter_saw {
  uint64_t entries;
  uint64_t sum;        // of the remote addresses, which are all different
  uint64_t wrong;      // entries with another index than their place, another queue pair, or another operation
  uint64_t doorbells;  // looks at the doorbell that found another one
  uint64_t flames;     // entries taken from a BlueFlame register
} wb_adapter_saw;

// Counts of one warp that posts.
typedef struct wb_warp_posted {
  uint64_t posted;
  uint64_t failed;
  uint64_t sum;  // of the remote addresses
} wb_warp_posted;

// Begin and end of the timed part of a latency run, by both clocks.
typedef struct wb_post_clock {
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t start_ticks;
  uint64_t end_ticks;
  uint64_t failed;
} wb_post_clock;

// --- occupy.cu -------------------------------------------------------------------------------------------------------

// Blocks on a multiprocessor. Two of 1,024 threads are all that most have; one would be half.
#define WB_OCCUPY_BLOCKS 2u
#define WB_OCCUPY_PROCESSORS 1024u  // numbers of multiprocessors are below

typedef struct wb_occupy {
  WB_POINTER(uint32_t) blocks_of;  // [WB_OCCUPY_PROCESSORS]: blocks that have come to each; 0 at first
  WB_POINTER(uint32_t) rank_of;    // [WB_OCCUPY_PROCESSORS]: place of each in the order in which the first blocks came
  WB_POINTER(uint32_t) counts;     // multiprocessors and blocks that have come, blocks that stay
  WB_POINTER(uint64_t) rate;       // rounds in 1,000 seconds of all blocks that stayed
  WB_POINTER(uint32_t) ready;      // in host memory: 1 when all that stay compute
  WB_POINTER(uint32_t) stop;       // in host memory: not 0 ends the kernel
  uint64_t limit_ns;               // it ends by itself after this time
  uint32_t left;                   // multiprocessors that are left to others
  uint32_t padding;
} wb_occupy;

// --- nvme.cu ---------------------------------------------------------------------------------------------------------

#define WB_NVME_BENCH_PER_LANE 64u
// Log-linear, 2^5 buckets to a power of two, up to 2^40 ns: host/bin/workloads/histogram.rs.
#define WB_NVME_BENCH_BITS 5u
#define WB_NVME_BENCH_BUCKETS 1152u
#define WB_NVME_BENCH_SIZES 16u
#define WB_NVME_BENCH_ZONES 65536u
// Words of `totals`.
#define WB_NVME_BENCH_TOTALS 6u
// Fractions of a nanosecond in which the time between two commands is given.
#define WB_NVME_BENCH_PACE_BITS 8u

// One size of commands, of those that random numbers choose among.
typedef struct wb_nvme_size {
  uint32_t blocks;
  uint32_t up_to;  // numbers below this one, and not below that of the size before
} wb_nvme_size;

// Units that are accessed with equal probability. All zones of a table are equally probable.
typedef struct wb_nvme_zone {
  uint32_t first;
  uint32_t count;
} wb_nvme_zone;

// Commands that completed in one interval of a run.
typedef struct wb_nvme_interval {
  uint64_t commands;
  uint64_t blocks;
  uint64_t latency_ns;  // sum
} wb_nvme_interval;

// Parameters of a benchmark of a volume.
typedef struct wb_nvme_bench {
  WB_POINTER(uint64_t) buffers;         // `buffer_blocks` blocks for each lane and each of its commands in flight
  WB_POINTER(uint64_t) histogram;       // [2 * WB_NVME_BENCH_BUCKETS] of nanoseconds: reads, then writes
  WB_POINTER(uint64_t) totals;          // commands read, written; blocks read, written; wrong commands, 1 + the first block of one
  WB_POINTER(wb_nvme_zone) zones;       // [WB_NVME_BENCH_ZONES]; null: uniform addresses
  WB_POINTER(wb_nvme_size) sizes;       // [2 * WB_NVME_BENCH_SIZES]: reads, then writes; null: read_blocks and write_blocks
  WB_POINTER(wb_nvme_interval) series;  // [2 * intervals]: of each interval reads, then writes; null: none
  WB_POINTER(uint32_t) stop;            // in host memory: not 0 ends the run
  uint64_t first_block;                 // of the region that is used
  uint64_t region_blocks;
  uint64_t stride_blocks;  // from unit to unit
  uint64_t units;          // of the region; of a fill, the one after its last
  uint64_t commands;       // limit of the commands of all lanes together
  uint64_t first;          // of a fill, its first unit
  uint64_t seed;
  uint64_t ramp_ns;      // commands that begin before this time are not counted
  uint64_t runtime_ns;   // ramp_ns included
  uint64_t interval_ns;  // of the series
  uint64_t pace[2];      // reads, writes: time that a block of a warp takes, in 2^-WB_NVME_BENCH_PACE_BITS ns; 0: no limit
  uint32_t intervals;
  uint32_t buffer_blocks;
  uint32_t read_blocks;   // logical blocks of a read; of a fill, of a unit
  uint32_t write_blocks;  // logical blocks of a write
  uint32_t lanes;         // lanes that take part
  uint32_t warp_lanes;    // of each warp, the number of lanes that take part; the others help to copy
  uint32_t per_lane;      // commands in flight of each lane, at most WB_NVME_BENCH_PER_LANE
  uint32_t read_percent;  // 100: only reads, 0: only writes
  uint32_t random;        // 0: side by side through the region, again and again
  uint32_t map;           // random: each unit once, before one comes again
  uint32_t scatter;       // zones are of ranks, which are scattered over the units
  uint32_t run;           // random: commands one after another from each random place
  uint32_t verify;        // check the data of reads
  uint32_t padding;
} wb_nvme_bench;

// --- shmem -----------------------------------------------------------------------------------------------------------

// Begin and end of a block's timed part. Ticks are the unit of samples.
typedef struct wb_block_clock {
  uint64_t start_ns;
  uint64_t end_ns;
  uint64_t start_ticks;
  uint64_t end_ticks;
} wb_block_clock;

// Words of a barrier of the blocks of a grid.
typedef struct wb_gate_words {
  uint32_t arrived;
  uint32_t open;
} wb_gate_words;

// Parameters of a test.
// Shared memory of a block whose messages go through it.
#define WB_SHMEM_SHARED_BYTES 49024

typedef struct wb_shmem_test {
  WB_POINTER(void) source;           // symmetric: source of puts and gets
  WB_POINTER(void) target;           // symmetric: destination of puts and gets
  WB_POINTER(uint64_t) flag;         // in the symmetric heap
  WB_POINTER(wb_block_clock) clock;  // [blocks]
  WB_POINTER(uint32_t) samples;      // [iterations]: ticks of each operation; or null
  WB_POINTER(wb_gate_words) gate;
  WB_POINTER(uint64_t) sums;  // [threads]: sum of the elements that each thread got; or null
  uint64_t bytes;             // of a message
  uint64_t elements;          // of a window, or messages; for p a multiple of the number of threads; 0: no window
  uint64_t turn;              // first value of counters that live longer than a run
  uint64_t seed;
  uint64_t before;  // the pattern that the target held before
  uint32_t iterations;
  uint32_t warmup;
  uint32_t peer;
  uint32_t everybody;  // all PEs run this kernel, and begin together
  uint32_t op;         // `atomic`
  uint32_t member;     // 0 and 1: the two members of a ping-pong
} wb_shmem_test;

// --- rdma ------------------------------------------------------------------------------------------------------------

enum wb_rdma_verb { WB_RDMA_WRITE = 0, WB_RDMA_READ = 1, WB_RDMA_FETCH_ADD = 2, WB_RDMA_COMPARE_SWAP = 3 };

// Result of one queue pair.
typedef struct wb_rdma_result {
  uint64_t done;  // messages that are complete
  uint64_t started_ns;
  uint64_t ended_ns;
  uint32_t word;  // status.h
  uint32_t reserved;
} wb_rdma_result;

// Parameters of one side. Buffers have a part of `span` bytes for each queue pair. Each part has `slots` messages, `stride` bytes
// apart.
typedef struct wb_rdma_side {
  WB_POINTER(wb_send_queue) queues;  // [queue_count]
  WB_POINTER(const wb_control) control;
  uint64_t outbox;                     // source of writes and destination of reads and atomics, as kernels see it
  uint64_t outbox_address;             // the same memory, as work requests name it
  uint64_t inbox;                      // memory that the other side writes, as kernels see it
  uint64_t target_address;             // the other side's memory, as work requests name it
  WB_POINTER(uint64_t) posted;         // [queue_count * iterations]: time at which each message was posted; or null
  WB_POINTER(uint64_t) completed;      // [queue_count * iterations]: time at which each message was found complete; or null
  WB_POINTER(wb_rdma_result) results;  // [queue_count]
  uint64_t bytes;                      // of a message
  uint64_t stride;
  uint64_t span;
  uint64_t iterations;   // messages on each queue pair, if there is no duration
  uint64_t duration_ns;  // or 0
  uint32_t queue_count;
  uint32_t local_key;   // big-endian
  uint32_t remote_key;  // big-endian
  uint32_t slots;
  uint32_t tx_depth;      // messages in flight on each queue pair
  uint32_t post_list;     // messages of one doorbell, at most a warp's lanes
  uint32_t inline_bytes;  // writes of up to this many bytes carry their data
  uint32_t verb;          // wb_rdma_verb
  uint32_t begins;        // ping-pong: this side sends first
  uint32_t reserved;
} wb_rdma_side;

#ifdef __cplusplus
static_assert(sizeof(wb_nvme_bench) == 208, "wb_nvme_bench");
static_assert(sizeof(wb_shmem_test) == 120, "wb_shmem_test");
static_assert(sizeof(wb_rdma_side) == 152, "wb_rdma_side");
#endif
