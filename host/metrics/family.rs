//! Names, kinds and meanings of all counters.

/// Kind of a value, as Prometheus names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A value that only grows while its object lives.
    Counter,
    /// A value that rises and falls.
    Gauge,
}

impl Kind {
    /// Returns the kind's name in the text format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

/// Values of one name, which differ by their labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Family {
    /// The name. It ends with the unit, and with `_total` if it is a counter.
    pub name: &'static str,
    /// Kind of the values.
    pub kind: Kind,
    /// Meaning, in one line.
    pub help: &'static str,
}

macro_rules! families {
    ($($id:ident $kind:ident $name:literal $help:literal)*) => {
        $(pub(crate) static $id: Family = Family { name: concat!("warpbell_", $name), kind: Kind::$kind, help: $help };)*
        /// All families, in the order in which [`Snapshot::to_text`](super::Snapshot::to_text) prints them.
        pub static FAMILIES: &[Family] = &[$(Family { name: concat!("warpbell_", $name), kind: Kind::$kind, help: $help }),*];
    };
}

families! {
    UPTIME Gauge "uptime_seconds" "Seconds since the process began to count."
    UNREADABLE Gauge "unreadable_objects" "Objects whose counters cannot be read now; their values are the last ones."
    ENGINE Gauge "engine_info" "1 for each engine, with its kind."
    VOLUME_COMMANDS Counter "volume_commands_total" "Read and write commands that kernels submitted."
    VOLUME_BYTES Counter "volume_bytes_total" "Bytes of these commands."
    VOLUME_ERRORS Counter "volume_errors_total" "Operations of kernels that failed."
    VOLUME_DOORBELLS Counter "volume_doorbells_total" "Stores of kernels to submission doorbells."
    VOLUME_REDIRECTS Counter "volume_redirects_total" "Reads that one copy failed and another one completed."
    VOLUME_REPAIRS Counter "volume_repaired_blocks_total" "Blocks that were written back to a copy that could not read them."
    QUEUE_SUBMITTED Counter "queue_submitted_total" "Commands that kernels submitted to a queue pair."
    QUEUE_IN_FLIGHT Gauge "queue_in_flight" "Commands whose completion no kernel has consumed."
    QUEUE_DEPTH Gauge "queue_depth" "Entries of a queue."
    CACHE_HITS Counter "cache_hits_total" "Accesses that found their page in a page cache of the volume."
    CACHE_MISSES Counter "cache_misses_total" "Accesses that did not find their page."
    CACHE_FILLS Counter "cache_fills_total" "Pages that page caches read."
    CACHE_EVICTIONS Counter "cache_evictions_total" "Valid pages that page caches replaced."
    CACHE_WRITE_BACKS Counter "cache_write_backs_total" "Dirty pages that page caches wrote."
    CACHE_PREFETCHES Counter "cache_prefetches_total" "Pages that were requested ahead of their use."
    CACHE_RETRIES Counter "cache_retries_total" "Optimistic reads of a page that were repeated."
    TABLE_ROWS Counter "table_rows_total" "Rows that were gathered, by the tier where they were found."
    TABLE_ADMISSIONS Counter "table_admissions_total" "Rows that entered a row cache."
    TABLE_RETRIES Counter "table_retries_total" "Hits in a row cache whose frame was given away meanwhile."
    TABLE_WRITTEN Counter "table_written_rows_total" "Rows that were written."
    WORLD_PES Gauge "world_pes" "Number of PEs of the world."
    WORLD_LOST Gauge "world_lost" "1 if a rank of the world is lost."
    WORLD_POSTED Counter "world_posted_blocks_total" "Blocks of 64 bytes of work requests that kernels posted to a connection."
    WORLD_IN_FLIGHT Gauge "world_in_flight_blocks" "Posted blocks that are not known to be complete."
    WORLD_FAILED Gauge "world_connection_failed" "1 if the connection has failed."
}
