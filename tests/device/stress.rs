//! Stress tests of the device library: queues, send queues and calls at warp width 4 under ThreadSanitizer; tables and graphs too in
//! `.ci/run stress`. The long tests run every program of `tests/device` at each width, plain and under ThreadSanitizer, and for longer.
//! They are in one file, so that programs are compiled and run side by side, as many as there are test threads.

use crate::harness;

/// The queue core, on local controllers, on remote ones, and on those whose commands waiting threads execute. Arguments: a seed, the
/// kind, and a scale of the number of rounds.
mod queue {
    stress_tests! { "queue_stress.cpp":
        ; long:
        briefly_under_thread_sanitizer_at_width_4: sanitized(4) ["1 local", "1 remote", "1 assisted"],
        at_width_1: plain(1) ["1 local", "1 remote", "1 assisted"],
        at_width_4: plain(4) ["1 local 3", "1 remote 3", "1 assisted 3"],
        at_width_32: plain(32) ["1 local", "1 remote", "1 assisted"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["1 local", "1 remote", "1 assisted"],
        under_thread_sanitizer_at_width_4: sanitized(4) ["1 local 3", "1 remote 3", "1 assisted 3"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["1 local", "1 remote", "1 assisted"],
    }
}

/// Send queues of RDMA adapters. Arguments: a seed, and a scale of the number of rounds.
mod send_queue {
    stress_tests! { "send_queue_stress.cpp":
        ; long:
        briefly_under_thread_sanitizer_at_width_4: sanitized(4) ["1"],
        at_width_1: plain(1) ["1"],
        at_width_4: plain(4) ["1 2"],
        at_width_32: plain(32) ["1"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["1"],
        under_thread_sanitizer_at_width_4: sanitized(4) ["1 2"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["1"],
    }
}

/// The page cache and the array. Arguments: a scale of the number of steps (lanes are threads: 32 of them are slow on
/// two cores).
mod cache {
    stress_tests! { "cache_stress.cpp":
        ; long:
        at_width_1: plain(1) ["8"],
        at_width_4: plain(4) ["6"],
        at_width_32: plain(32) ["2"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["8"],
        under_thread_sanitizer_at_width_4: sanitized(4) ["6"],
        briefly_under_thread_sanitizer_at_width_32: sanitized(32) ["1"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["2"],
    }
}

/// Tables: batches with duplicates, row caches, writes beside gathers. Arguments: a scale of the number of rounds.
mod table {
    stress_tests! { "table_stress.cpp":
        ; long:
        briefly_under_thread_sanitizer_at_width_4: sanitized(4) ["1"],
        at_width_1: plain(1) ["8"],
        at_width_4: plain(4) ["10"],
        at_width_32: plain(32) ["1"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["4"],
        under_thread_sanitizer_at_width_4: sanitized(4) ["5"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["1"],
    }
}

/// The calls of a world by loads and stores; over adapters with a completion ring, with flushes behind landed data, and
/// with collapsed completions. In `both`, some PEs are on one data path and some on the other.
mod calls {
    stress_tests! { "shmem_stress.cpp":
        briefly_under_thread_sanitizer_at_width_4: sanitized(4) ["both"],
        ; long:
        at_width_1: plain(1) ["stores", "network", "flushed", "collapsed", "both"],
        at_width_4: plain(4) ["stores", "network", "flushed", "collapsed", "both"],
        at_width_32: plain(32) ["stores", "network", "flushed", "collapsed", "both"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["stores", "network", "both"],
        under_thread_sanitizer_at_width_4: sanitized(4) ["stores", "network", "both"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["stores", "network", "both"],
        refusals_without_undefined_behaviour: defined(1) ["stores refused", "network refused", "both refused"],
    }
}

/// Batches of puts, on the same data paths.
mod batches {
    stress_tests! { "batch_stress.cpp":
        at_width_1: plain(1) ["stores", "network", "flushed", "collapsed", "both"],
        briefly_under_thread_sanitizer_at_width_4: sanitized(4) ["network"],
        ; long:
        at_width_4: plain(4) ["stores", "network", "flushed", "collapsed", "both"],
        at_width_32: plain(32) ["stores", "network", "both"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["stores", "network", "both"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["network", "both"],
    }
}

/// Collectives of teams. Arguments: by loads and stores, over adapters, or some members on each data path; and a scale
/// of the number of rounds.
mod collectives {
    stress_tests! { "collective_stress.cpp":
        ; long:
        at_width_1: plain(1) ["stores 4", "network 4", "both 4"],
        at_width_4: plain(4) ["stores 2", "network 2", "both 2"],
        at_width_32: plain(32) ["stores 1", "network 1", "both 1"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["stores 4", "both 4"],
        under_thread_sanitizer_at_width_4: sanitized(4) ["stores 2", "both 2"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["stores 1", "both 1"],
    }
}

/// The graph kernels with many threads at once. Arguments: vertices, fewer for more lanes. All other tests of the
/// algorithms run width 1 without the sanitizer.
mod graph {
    stress_tests! { "graph_stress.cpp":
        ; long:
        briefly_under_thread_sanitizer_at_width_4: sanitized(4) ["100"],
        at_width_4: plain(4) ["3000"],
        at_width_32: plain(32) ["40"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["3000"],
        under_thread_sanitizer_at_width_4: sanitized(4) ["300"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["24"],
    }
}

/// Triangles, clustering coefficients and cores. Arguments: vertices.
mod neighbourhood {
    stress_tests! { "neighbourhood_stress.cpp":
        ; long:
        briefly_under_thread_sanitizer_at_width_4: sanitized(4) ["100"],
        at_width_4: plain(4) ["600"],
        at_width_32: plain(32) ["40"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["3000"],
        under_thread_sanitizer_at_width_4: sanitized(4) ["300"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["24"],
    }
}

/// Searches over several PEs. Arguments: vertices.
mod partitioned {
    stress_tests! { "partition_stress.cpp":
        ; long:
        at_width_1: plain(1) ["2400"],
        at_width_4: plain(4) ["600"],
        at_width_32: plain(32) ["36"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["900"],
        under_thread_sanitizer_at_width_4: sanitized(4) ["150"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["30"],
    }
}

/// Exchanges between PEs that have the values of all vertices. Arguments: vertices, rounds.
mod mirrors {
    stress_tests! { "mirrors_stress.cpp":
        ; long:
        briefly_under_thread_sanitizer_at_width_4: sanitized(4) ["150", "1"],
        at_width_1: plain(1) ["5000", "20"],
        at_width_4: plain(4) ["2000", "3"],
        at_width_32: plain(32) ["400", "1"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["3000", "10"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["60", "1"],
    }
}

/// Transfers between objects of a volume and segments of memory. Arguments: a seed, and a number of rounds.
mod segments {
    stress_tests! { "segments_stress.cpp":
        ; long:
        briefly_under_thread_sanitizer_at_width_4: sanitized(4) ["1"],
        at_width_1: plain(1) ["1 20"],
        at_width_4: plain(4) ["1 4"],
        at_width_32: plain(32) ["1 2"],
        under_thread_sanitizer_at_width_1: sanitized(1) ["2 8"],
        under_thread_sanitizer_at_width_4: sanitized(4) ["2 2"],
        under_thread_sanitizer_at_width_32: sanitized(32) ["2"],
    }
}

/// Tests that programs that hang are ended, and that their output is kept.
#[test]
fn a_program_that_hangs_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let mut hangs = std::process::Command::new("sh");
    hangs.args(["-c", "echo so far, so good; exec sleep 3600"]);
    let said = harness::output_within(std::time::Duration::from_secs(3), &mut hangs, folder.path()).unwrap_err();
    assert_eq!(said, "so far, so good\n");
}
