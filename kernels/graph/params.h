// Parameters and reports of graph kernels. host/engine/abi/generate writes the Rust side of this file. An element whose type
// depends on the width of identifiers or distances is `void` here.
#pragma once

#include <warpbell/abi.h>

// Launch bounds: blocks of at most 256 threads, four of them on a multiprocessor, hence 64 registers for each thread. A miss needs
// more and spills to the stack, which costs little beside the wait for the page.
#define WB_GRAPH_BLOCK_THREADS 256u
#define WB_GRAPH_BLOCKS_PER_PROCESSOR 4u

// Piece of a list: longer lists are cut at multiples of this number of edges. Kernels that read all edges read them in tiles of
// this size: 4 KiB of 4-byte identifiers.
#define WB_GRAPH_PIECE_EDGES 1024u
// Arcs of a group of packed lists (packed.cuh).
#define WB_PACKED_GROUP_EDGES 32u
// Hubs: neighbours of each vertex that are kept in memory, so that no edge is read for them. They are those of the highest degree,
// the highest first.
#define WB_GRAPH_HUBS 4u
// Slots of a set of neighbours that a warp marks: twice a piece.
#define WB_GRAPH_MARKER_SLOTS 2048u

#define WB_GRAPH_SUMS 6u
// Index of the last sum of every kernel: edges to vertices that do not exist.
#define WB_GRAPH_BAD_EDGES 5u

// Sums of all threads of a launch, in device memory.
typedef struct wb_graph_counters {
  uint64_t sum[WB_GRAPH_SUMS];
  uint64_t least;
  uint32_t blocks_done;
  uint32_t reserved;
} wb_graph_counters;

// The sums, as the last block reports them to the host.
typedef struct wb_graph_report {
  uint64_t sum[WB_GRAPH_SUMS];
  uint64_t least;
  uint64_t failed;  // of an exchange: 0, or 1 + the first PE that reported a failure
} wb_graph_report;

// --- breadth-first search --------------------------------------------------------------------------------------------

// Sums that a step reports.
enum wb_bfs_sum {
  WB_BFS_ITEMS = 0,    // length of the next queue; of a step by hubs, the lists that might still have a seen neighbour
  WB_BFS_FOUND = 1,    // vertices found
  WB_BFS_DEGREES = 2,  // edges of these vertices (not counted by bottom-up steps); of a step by hubs, those around these lists
  WB_BFS_SCANNED = 3,  // edges read
  WB_BFS_HUB_HITS = 4  // vertices found without reading an edge
};

// Parameters of a step.
typedef struct wb_bfs {
  WB_POINTER(const uint64_t) offset;    // [vertices + 1], of the direction that the kernel reads
  WB_POINTER(const void) hubs;          // for each vertex its hubs, the neighbours to look at first (work.cuh)
  WB_POINTER(const uint32_t) isolated;  // bitmap of vertices without any edge, and of those past the last: never visited
  WB_POINTER(uint32_t) seen;            // bitmap
  WB_POINTER(uint32_t) seen_next;       // bitmap that a bottom-up step writes; the older one when the queue is collected
  WB_POINTER(const uint32_t) open;      // bitmap of vertices that a bottom-up step skips: `seen`, or `seen_next` after a step by hubs
  WB_POINTER(uint32_t) depth;           // [vertices]
  WB_POINTER(void) parent;              // an identifier for each vertex, or 0
  WB_POINTER(const void) queue;         // items to expand
  WB_POINTER(void) queue_next;          // items found
  uint64_t items;                       // in `queue`
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
  uint64_t vertices;
  uint64_t source;
  uint32_t level;  // depth of the vertices that this step finds
  uint32_t skip;   // edges at the front of every list that are its hubs: a scan may start after them
} wb_bfs;

// Largest number of searches at once: a mask has a bit for each.
#define WB_MULTI_BFS_SEARCHES 64u

// Parameters of a step of several searches at once. Their sums are those of one search. A step that ends a level counts in WB_BFS_DEGREES the
// edges of the vertices that it found, and in WB_BFS_SCANNED the edges of those lists to pull from whose vertices a search has not reached.
typedef struct wb_multi_bfs {
  wb_bfs step;                             // of one search: lists, queue, numbers and level; its bitmaps, depths and source are not used
  WB_POINTER(uint64_t) seen;               // [vertices]: searches that have reached a vertex
  WB_POINTER(uint64_t) frontier;           // [vertices]: searches that reached it in the level before
  WB_POINTER(uint64_t) next;               // [vertices]: searches that reach it in this level
  WB_POINTER(uint32_t) fresh;              // bitmap of the vertices that a search has reached in this level
  WB_POINTER(const uint64_t) source;       // [searches]
  WB_POINTER(const uint64_t) depth;        // [searches]: address of each search's depths, u32[vertices]; or null
  WB_POINTER(const uint64_t) pull_offset;  // [vertices + 1], of the lists to pull from; or null
  uint64_t searches;
} wb_multi_bfs;

// Parameters of sorting a queue by vertex. Only the sum WB_BFS_ITEMS is used.
typedef struct wb_queue_order {
  WB_POINTER(const uint64_t) offset;  // [vertices + 1]
  WB_POINTER(const void) queue;       // items, in any order
  WB_POINTER(void) queue_next;        // the same items in order
  WB_POINTER(uint32_t) bitmap;        // all 0 before and after
  uint64_t items;
  uint64_t vertices;
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
} wb_queue_order;

// Parameters of bringing values of vertices into the order outside.
typedef struct wb_order {
  WB_POINTER(const uint32_t) outside;  // [vertices]: the number that each vertex has outside
  WB_POINTER(const void) from;         // a value for each vertex
  WB_POINTER(void) to;                 // the same values in the order outside
  WB_POINTER(uint32_t) least;          // [vertices]: the least vertex of each label, or null for values that are no labels
  uint64_t vertices;
} wb_order;

// --- breadth-first search of a partitioned graph ---------------------------------------------------------------------

// Counters of a step, in this PE's own memory; all 0 between steps.
typedef struct wb_partition_counters {
  uint64_t arrived;  // blocks that have arrived at barriers of the grid
  uint64_t put_bytes;
  uint32_t claims_put;  // blocks that have put their share
  uint32_t frontier_put;
  uint32_t blocks_done;
  uint32_t reserved[25];
} wb_partition_counters;

// One PE's message about a step.
typedef struct wb_partition_header {
  uint64_t message;             // elements that follow, and WB_PARTITION_* flags
  uint64_t sum[WB_GRAPH_SUMS];  // as in a search of one PE; of this PE
  uint64_t put_bytes;           // that this PE put in this step
} wb_partition_header;

// Sums over all PEs, and the length of this PE's own queue. The host reads them after a step.
typedef struct wb_partition_report {
  uint64_t sum[WB_GRAPH_SUMS];
  uint64_t put_bytes;
  uint64_t own_items;
  uint64_t failed;  // 0, or 1 + the first PE that reported a failure
  uint64_t reserved[7];
} wb_partition_report;

// Parameters of a step of one PE.
typedef struct wb_partition {
  // This PE's own memory.
  WB_POINTER(const uint64_t) offset;    // [vertices + 1], of the direction that the kernel reads
  WB_POINTER(const void) hubs;          // for each own vertex the slots of its hubs (work.cuh)
  WB_POINTER(const uint32_t) isolated;  // bitmap of own vertices without any edge, and of those past the last
  WB_POINTER(uint32_t) seen;            // bitmap of all slots
  WB_POINTER(uint32_t) fresh;           // bitmap of own vertices: found by bottom-up steps of this level
  WB_POINTER(const void) queue;         // items to expand: own vertices
  WB_POINTER(void) queue_next;          // items found
  uint64_t items;                       // in `queue`
  WB_POINTER(void) outbox;              // claims for each PE, at most `span` each
  WB_POINTER(uint64_t) outbox_count;    // u64 for each PE; all 0 between steps
  WB_POINTER(void) list;                // slots of own vertices found, at most `list_limit`
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_partition_counters) counters;
  WB_POINTER(wb_partition_report) report;  // in host memory
  // In the symmetric heap. Arrays with an element for each PE are indexed by the sender.
  WB_POINTER(uint32_t) depth;              // [span]
  WB_POINTER(void) parent;                 // an identifier for each own vertex, or 0
  WB_POINTER(void) inbox;                  // claims[size][span]
  WB_POINTER(uint64_t) inbox_signal;       // [size]
  WB_POINTER(uint32_t) frontier;           // [2][size][span / 32]
  WB_POINTER(wb_partition_header) header;  // [2][size]
  WB_POINTER(uint64_t) frontier_signal;    // [size]
  // Numbers.
  uint64_t vertices;    // own
  uint64_t span;        // slots of each PE, a multiple of 1024
  uint64_t source;      // slot
  uint64_t claim_turn;  // exchanges of claims so far, this one included
  uint64_t turn;        // exchanges of the frontier so far, this one included
  uint64_t list_limit;  // identifiers beyond which a bitmap is sent instead
  uint32_t level;       // depth of the vertices that this step finds
  uint32_t skip;        // edges at the front of every list that are its hubs: a scan may start after them
  uint32_t resume;      // not 0 if `fresh` has the vertices that a step by hubs found in this level
  uint32_t reserved[3];
} wb_partition;

// --- values of vertices that all PEs have ----------------------------------------------------------------------------

// Counters of an exchange, in this PE's own memory; all 0 between exchanges.
typedef struct wb_mirrors_counters {
  uint64_t arrived;  // blocks that have arrived at barriers of the grid
  uint32_t put;      // blocks that have put their share
  uint32_t blocks_done;
  uint32_t reserved[28];
} wb_mirrors_counters;

// One PE's message about a step.
typedef struct wb_mirrors_header {
  uint64_t sum[WB_GRAPH_SUMS];
  uint64_t least;
  uint64_t failed;  // not 0 if the step failed on this PE: the message does not count
  uint64_t first;   // first word of the values that this PE sends
  uint64_t words;   // number of words
  uint64_t reserved[6];
} wb_mirrors_header;

// Parameters of an exchange.
typedef struct wb_mirrors {
  // This PE's own memory.
  WB_POINTER(uint32_t) values;  // of all vertices, in words of 4 bytes
  WB_POINTER(wb_mirrors_counters) counters;
  WB_POINTER(wb_graph_report) report;  // in host memory
  WB_POINTER(const uint64_t) first;    // [size + 1]: first vertex of each PE
  // In the symmetric heap.
  WB_POINTER(uint32_t) area;             // [2][area_words]
  WB_POINTER(wb_mirrors_header) header;  // [2][size], by sender
  WB_POINTER(uint64_t) signal;           // [size], by sender
  // Numbers.
  uint64_t area_words;
  uint64_t turn;      // exchanges so far, this one included
  uint64_t receiver;  // the only PE that the values are for, or the number of PEs for all others
  uint64_t reals;     // bitmap of the sums that are doubles
  wb_mirrors_header own;
} wb_mirrors;

// Vertices that a step lowered on this PE and that have their lists on others, which take them.
typedef struct wb_claims {
  // This PE's own memory.
  WB_POINTER(const uint64_t) first;  // [size + 1]: first vertex of each PE
  WB_POINTER(void) outbox;           // an identifier for each vertex; those for a PE begin at its first vertex
  WB_POINTER(uint64_t) count;        // [size]: vertices for each PE; all 0 between rounds
  WB_POINTER(uint64_t) packed;       // [2 * vertices]: a vertex and its value, likewise
  WB_POINTER(wb_mirrors_counters) counters;
  // In the symmetric heap.
  WB_POINTER(uint64_t) inbox;   // [size][2 * capacity], by sender
  WB_POINTER(uint64_t) signal;  // [size], by sender
  // Numbers.
  uint64_t capacity;  // most vertices of a PE
  uint64_t turn;      // exchanges so far, this one included
} wb_claims;

// --- shortest paths --------------------------------------------------------------------------------------------------

// Sums that a step reports. `least` of the counters is the least far distance.
enum wb_sssp_sum {
  WB_SSSP_NEAR = 0,     // items of the next near queue
  WB_SSSP_FAR = 1,      // vertices added to the far queue
  WB_SSSP_SCANNED = 2,  // edges read
  WB_SSSP_LOWERED = 3,  // distances lowered
  WB_SSSP_OPEN = 4      // vertices that were reached and have no parent
};

// Parameters of a step.
typedef struct wb_sssp {
  WB_POINTER(const uint64_t) offset;  // [vertices + 1]
  WB_POINTER(void) distance;          // u32 or u64 words[vertices]
  WB_POINTER(void)
  relaxed;  // words[vertices + edges / WB_GRAPH_PIECE_EDGES + 1]: the distance with which an item was last relaxed, or null
  WB_POINTER(uint32_t) stamp;   // [vertices]: the round for which a vertex was last queued
  WB_POINTER(uint32_t) in_far;  // bitmap of vertices in the far queue
  WB_POINTER(const void) near;  // items to relax in this round
  WB_POINTER(void) near_next;   // items to relax in the next round
  uint64_t near_held;           // items that it has already
  WB_POINTER(void) far;         // vertices at or beyond the threshold
  WB_POINTER(void) far_next;    // vertices that stay far when the threshold moves
  WB_POINTER(void) parent;      // an identifier for each vertex
  uint64_t near_items;
  uint64_t far_items;
  uint64_t settled;    // word: distances below it are final when the far queue is split
  uint64_t threshold;  // word: near distances are below it; the largest distance that stays when others are cut off
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
  uint64_t vertices;
  uint64_t source;
  uint64_t first;  // vertices first..last have their lists here; others are claimed for their PEs
  uint64_t last;
  wb_claims claims;  // 0 if there is only this PE
  uint32_t round;
  uint32_t reserved;
} wb_sssp;

// --- components ------------------------------------------------------------------------------------------------------

// Sums that a step reports.
enum wb_components_sum {
  WB_COMPONENTS_ROOTS = 0,   // vertices that are their own label
  WB_COMPONENTS_SCANNED = 1  // edges read
};

// Parameters of a step.
typedef struct wb_components {
  WB_POINTER(const uint64_t) offset;  // [vertices + 1]
  WB_POINTER(const void) hubs;        // for each vertex its hubs (work.cuh)
  WB_POINTER(void) label;             // an identifier for each vertex
  WB_POINTER(const void) tile;        // for each tile of the edges the vertex of its first edge
  WB_POINTER(void) sample;            // labels that sampling writes, in host memory
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
  uint64_t vertices;
  uint64_t edges;
  uint64_t giant;  // label whose vertices are done, or the largest identifier for none
  uint32_t hub;    // index of the hub that a round links
  uint32_t samples;
} wb_components;

// --- PageRank --------------------------------------------------------------------------------------------------------

// Sums that a step reports, doubles except for the last.
enum wb_pagerank_sum {
  WB_PAGERANK_CHANGE = 0,    // sum of |new - old|
  WB_PAGERANK_DANGLING = 1,  // rank of vertices without out-edges
  WB_PAGERANK_TOTAL = 2,     // all ranks
  WB_PAGERANK_SCANNED = 3    // edges read
};

// Parameters of a step.
typedef struct wb_pagerank {
  WB_POINTER(const uint64_t) offset;      // [vertices + 1] of the in-edges
  WB_POINTER(const uint64_t) out_offset;  // [vertices + 1] of the out-edges
  WB_POINTER(const void) tile;            // for each tile of the in-edges the vertex of its first edge
  WB_POINTER(double) rank;                // [vertices]
  WB_POINTER(double) sum;                 // [vertices]: contributions received; 0 between iterations
  WB_POINTER(void) contribution;          // float or double[vertices]
  WB_POINTER(const double) teleport;      // [vertices]: share of each vertex in the base rank; null for the same share
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
  uint64_t vertices;
  uint64_t edges;
  double base;  // base rank: (1 - damping) and the dangling mass; of one vertex if all have the same share
  double damping;
  uint64_t first;  // vertices first..last have their lists here; the ranks of others are computed by their own PEs
  uint64_t last;
  uint32_t backward;  // sweep the edges from the end
  uint32_t reserved;
} wb_pagerank;

// --- lists of other PEs ----------------------------------------------------------------------------------------------

// Lists of some vertices of one PE, which sent them, in a count over lists that are distributed over PEs.
typedef struct wb_near {
  WB_POINTER(const uint32_t) rank;       // [vertices]: place of each vertex in descending order of degree
  WB_POINTER(const uint64_t) offset;     // [vertices + 1]: of the edges of all PEs, one PE's after another's
  WB_POINTER(const uint64_t) in_offset;  // likewise of the in-edges of a directed graph, or null
  WB_POINTER(const uint32_t) edges;      // that were received
  WB_POINTER(const uint32_t) in_edges;
  uint64_t base;  // number of the first edge of `edges` among those of all PEs
  uint64_t in_base;
} wb_near;

// Parameters of a copy of own edges, in order to send them.
typedef struct wb_near_copy {
  WB_POINTER(const uint64_t) offset;  // [vertices + 1]
  WB_POINTER(const uint32_t) tile;    // for each tile of the edges the vertex of its first edge
  WB_POINTER(uint32_t) to;
  uint64_t first;  // edges first..last are copied: whole lists
  uint64_t last;
  uint64_t vertices;
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
} wb_near_copy;

// --- triangles -------------------------------------------------------------------------------------------------------

// Sums that a step reports.
enum wb_triangles_sum {
  WB_TRIANGLES_FOUND = 0,    // triangles
  WB_TRIANGLES_SCANNED = 1,  // edges read
  WB_TRIANGLES_TAKEN = 2     // vertices that warps have taken in this step, and some past the last
};

// Parameters of a step.
typedef struct wb_triangles {
  WB_POINTER(const uint64_t) offset;  // [vertices + 1]
  WB_POINTER(const void) tile;        // for each tile of the edges the vertex of its first edge
  WB_POINTER(uint32_t) above;         // [vertices]: neighbours of higher rank, which are the first ones of each list
  WB_POINTER(uint64_t) found;         // [vertices]: triangles of each vertex
  WB_POINTER(void) markers;           // for each warp two sets of WB_GRAPH_MARKER_SLOTS identifiers
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
  uint64_t vertices;
  uint64_t edges;
  uint64_t first;  // vertices first..last are counted in this step
  uint64_t last;
  uint64_t near_first;  // with those of their neighbours that are from near_first to near_last, whose lists are read
  uint64_t near_last;
} wb_triangles;

// --- k-core decomposition --------------------------------------------------------------------------------------------

// Sums that a step reports. `least` of the counters is the least degree of a vertex that remains.
enum wb_core_sum {
  WB_CORE_ITEMS = 0,     // items of the next queue
  WB_CORE_IN_ITEMS = 1,  // items of the next queue of in-lists
  WB_CORE_PEELED = 2,    // vertices in these queues; at the start, vertices with edges
  WB_CORE_SCANNED = 3    // edges read
};

// Parameters of a step.
typedef struct wb_core {
  WB_POINTER(const uint64_t) offset;     // [vertices + 1]
  WB_POINTER(const uint64_t) in_offset;  // [vertices + 1] of the in-edges of a directed graph, or null
  WB_POINTER(const uint32_t) loops;      // bitmap of vertices with an edge to themselves, or null
  WB_POINTER(const uint64_t) read;       // the offsets of the lists that this step reads: one of the two above
  WB_POINTER(uint64_t) degree;           // [vertices]: edges to vertices that remain; of a peeled vertex its core number
  WB_POINTER(uint32_t) remaining;        // bitmap of vertices that were not peeled when the level began
  WB_POINTER(uint32_t) peeled;           // bitmap of vertices that begin a level
  WB_POINTER(const void) queue;          // items to peel
  WB_POINTER(void) queue_next;           // items whose turn comes next
  WB_POINTER(void) in_queue_next;        // their in-lists
  uint64_t items;                        // in `queue`
  uint64_t level;                        // core number of the vertices that are peeled
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
  uint64_t vertices;
} wb_core;

// --- clustering coefficients -----------------------------------------------------------------------------------------

// Sums that a step reports.
enum wb_clustering_sum {
  WB_CLUSTERING_FOUND = 0,    // arcs between neighbours of a vertex, of all vertices
  WB_CLUSTERING_SCANNED = 1,  // edges read
  WB_CLUSTERING_TAKEN = 2     // vertices that blocks have taken in this step, and some past the last
};

// Parameters of a step.
typedef struct wb_clustering {
  WB_POINTER(const uint64_t) offset;     // [vertices + 1]
  WB_POINTER(const uint64_t) in_offset;  // [vertices + 1] of the in-edges of a directed graph, or null
  WB_POINTER(const uint32_t) loops;      // bitmap of vertices with an edge to themselves, or null
  WB_POINTER(uint64_t) neighbours;       // [vertices]: distinct neighbours of each vertex in either direction, of a directed graph
  WB_POINTER(uint64_t) arcs;             // [vertices]: arcs between them; edges in an undirected graph
  WB_POINTER(uint32_t) marks;            // two bits for each vertex, for each block that works; all 0 between vertices
  WB_POINTER(void) lists;                // for each warp that works a set of WB_GRAPH_MARKER_SLOTS identifiers
  WB_POINTER(uint64_t) pairs;            // for each warp that works a set of WB_GRAPH_MARKER_SLOTS pairs, of a directed graph
  WB_POINTER(uint64_t) turn;             // for each block that works the vertex that it takes next
  WB_POINTER(double) coefficient;        // [vertices]
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
  uint64_t vertices;
  uint64_t first;  // vertices first..last are taken in this step
  uint64_t last;
  uint64_t near_first;  // with those of their neighbours that are from near_first to near_last, whose lists are read
  uint64_t near_last;
  uint32_t blocks;  // that work
  uint32_t reserved;
} wb_clustering;

// --- label propagation -----------------------------------------------------------------------------------------------

// Sums that a step reports.
enum wb_cdlp_sum {
  WB_CDLP_CHANGED = 0,  // vertices whose label changed
  WB_CDLP_SCANNED = 1,  // edges read
  WB_CDLP_LABELS = 2    // labels that a vertex has
};

// Parameters of a step. A batch is a range of vertices whose tables fit into the work space together.
typedef struct wb_cdlp {
  WB_POINTER(const uint64_t) offset;      // [vertices + 1] of the lists that the kernel reads
  WB_POINTER(const uint64_t) out_offset;  // [vertices + 1] of the out-lists
  WB_POINTER(const uint64_t) in_offset;   // likewise of the in-lists of a directed graph, or null
  WB_POINTER(const void) tile;            // for each tile from `edges_from` on the vertex of its first edge
  WB_POINTER(void) label;                 // an identifier for each vertex
  WB_POINTER(const uint32_t) outside;     // [vertices]: the number that each vertex has outside, its first label; or null
  WB_POINTER(uint64_t) best;              // [vertices]: the most frequent label so far and its count; all bits set between steps
  WB_POINTER(void) table;                 // slots of the batch; all bits set between batches
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
  uint64_t vertices;
  uint64_t first;       // first vertex of the batch
  uint64_t last;        // the vertex behind its last one
  uint64_t edges_from;  // first edge of the first tile of the batch
  uint64_t edges_to;    // the edge behind the last one of the batch
  uint32_t label_bits;  // of a word of `best`
  uint32_t backward;    // sweep the edges from the end
} wb_cdlp;

// --- strongly connected components -----------------------------------------------------------------------------------

// Sums that a step reports. `least` of the counters is the word of the pivot, and all bits are set if there is none.
enum wb_strong_sum {
  WB_STRONG_ITEMS = 0,   // items of the next queue
  WB_STRONG_FOUND = 1,   // vertices that got their component; of the last step, components
  WB_STRONG_SCANNED = 2  // edges read
};

// Parameters of a step.
typedef struct wb_strong {
  WB_POINTER(const uint64_t) offset;     // [vertices + 1], of the direction in which the step walks
  WB_POINTER(const uint64_t) in_offset;  // [vertices + 1] of the in-edges
  WB_POINTER(void) root;                 // for each vertex a member of its component, or the largest identifier while there is none
  WB_POINTER(void) group;                // for each vertex its colour in the round before
  WB_POINTER(void) colour;               // an identifier for each vertex
  WB_POINTER(uint32_t) stamp;            // [vertices]: the step for which a vertex was last queued
  WB_POINTER(uint32_t) leaves;           // bitmap of vertices that an edge of their group leaves
  WB_POINTER(uint32_t) entered;          // bitmap of vertices that an edge of their group enters
  WB_POINTER(const void) queue;          // items to walk from
  WB_POINTER(void) queue_next;           // items found
  uint64_t items;                        // in `queue`
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
  uint64_t vertices;
  uint64_t pivot;        // the only vertex whose colour spreads, or `vertices` for all
  uint32_t vertex_bits;  // of the word of the pivot
  uint32_t round;        // number of the step, for `stamp`
  uint32_t seed;         // of the order of the colours
  uint32_t marks;        // not 0 if the step fills `leaves` and `entered`
} wb_strong;

// --- betweenness centrality ------------------------------------------------------------------------------------------

// Sums that a step reports.
enum wb_betweenness_sum {
  WB_BETWEENNESS_ITEMS = 0,    // items of the next queue
  WB_BETWEENNESS_FOUND = 1,    // vertices found
  WB_BETWEENNESS_SCANNED = 2,  // edges read
  WB_BETWEENNESS_OVERFLOW = 3  // edges to vertices whose number of paths is infinite
};

// Parameters of a step.
typedef struct wb_betweenness {
  WB_POINTER(const uint64_t) offset;  // [vertices + 1]
  WB_POINTER(uint32_t) depth;         // [vertices]
  WB_POINTER(double) paths;           // [vertices]: number of shortest paths from the source
  WB_POINTER(double) dependency;      // [vertices]: of the source on each vertex
  WB_POINTER(double) score;           // [vertices]: sum of the dependencies of all sources
  WB_POINTER(const void) queue;       // items of a level
  WB_POINTER(void) queue_next;        // items found
  uint64_t items;                     // in `queue`
  WB_POINTER(wb_graph_counters) sums;
  WB_POINTER(wb_graph_report) report;
  uint64_t vertices;
  uint64_t source;
  uint32_t level;  // depth of the neighbours that the step finds or sums over
  uint32_t reserved;
} wb_betweenness;

#ifdef __cplusplus
static_assert(sizeof(wb_graph_counters) == 64, "wb_graph_counters");
static_assert(sizeof(wb_graph_report) == 64, "wb_graph_report");
static_assert(sizeof(wb_bfs) == 128, "wb_bfs");
static_assert(sizeof(wb_multi_bfs) == 192, "wb_multi_bfs");
static_assert(sizeof(wb_queue_order) == 64, "wb_queue_order");
static_assert(sizeof(wb_order) == 40, "wb_order");
static_assert(sizeof(wb_partition_counters) == 128, "wb_partition_counters");
static_assert(sizeof(wb_partition_header) == 64, "wb_partition_header");
static_assert(sizeof(wb_partition_report) == 128, "wb_partition_report");
static_assert(sizeof(wb_partition) == 240, "wb_partition");
static_assert(sizeof(wb_mirrors_counters) == 128, "wb_mirrors_counters");
static_assert(sizeof(wb_mirrors_header) == 128, "wb_mirrors_header");
static_assert(sizeof(wb_mirrors) == 216, "wb_mirrors");
static_assert(sizeof(wb_claims) == 72, "wb_claims");
static_assert(sizeof(wb_sssp) == 248, "wb_sssp");
static_assert(sizeof(wb_components) == 88, "wb_components");
static_assert(sizeof(wb_pagerank) == 128, "wb_pagerank");
static_assert(sizeof(wb_near) == 56, "wb_near");
static_assert(sizeof(wb_near_copy) == 64, "wb_near_copy");
static_assert(sizeof(wb_triangles) == 104, "wb_triangles");
static_assert(sizeof(wb_core) == 120, "wb_core");
static_assert(sizeof(wb_clustering) == 144, "wb_clustering");
static_assert(sizeof(wb_cdlp) == 128, "wb_cdlp");
static_assert(sizeof(wb_strong) == 136, "wb_strong");
static_assert(sizeof(wb_betweenness) == 104, "wb_betweenness");
#endif
