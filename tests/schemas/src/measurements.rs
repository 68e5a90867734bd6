//! Reports of `bench` and `compare`.

use crate::program::{folder, name, warpbell};
use crate::validator::{check, has, measured, report, report_of};

/// A short measurement of a small device.
const NVME: &str = "bench nvme --runtime 10ms --size 256K";

#[test]
fn devices_are_measured_with_every_option_that_adds_a_key() {
    let plain = measured(&format!("{NVME} --runs 2"));
    has(&plain, &["/results/0/runs/1/read/latency/percentiles_ns/99.9", "/results/0/job/bytes"]);
    let swept = measured(&format!("{NVME} --rw randrw,write --bs 4k,8k --iodepth 1,2 --verify"));
    has(&swept, &["/config/swept/2", "/results/7/runs/0/write", "/results/0/runs/0/read"]);
    let timed = measured(&format!("{NVME} --rw rw --time-series 1ms --rate 100M/ --ramp-time 5ms"));
    let keys = ["interval_ns", "rate/read_bytes_per_s", "ramp_ns"].map(|key| format!("/results/0/job/{key}"));
    has(&timed, &keys.each_ref().map(String::as_str));
    has(&timed, &["/results/0/runs/0/write/time_series/mean_latency_ns"]);
    let split = "--rw randrw --bssplit 4k/60:8k/40,4k/100 --random-distribution zipf:1.1 --numjobs 2 --io-size 64k";
    let split = measured(&format!("{NVME} {split} --norandommap"));
    has(&split, &["/results/0/job/bssplit", "/results/0/job/distribution", "/results/0/job/io_bytes"]);
}

#[test]
fn jobs_of_a_file_and_a_program_in_turn_are_described() {
    let folder = folder();
    let [job, other] = ["a.fio", "other.json"].map(|file| folder.path().join(file));
    std::fs::write(&job, "[a]\nfilename=x\nsize=64k\n[b]\nstonewall\nrw=read:4k\nfilename=x\n").unwrap();
    let jobs = report(&format!("bench nvme --engine cpu --device soft:mem:1M --job {}", name(&job)));
    has(&jobs, &["/results/1/name", "/results/1/job/skip_bytes", "/results/1/group", "/results/1/device"]);
    has(&jobs, &["/results/0/runs/0/started_ns"]);
    std::fs::write(&job, "[global]\nfilename=x\nsize=64k\ngroup_reporting\n[a]\n[b]\nrw=randread\n").unwrap();
    let group = report(&format!("bench nvme --engine cpu --device soft:mem:1M --job {}", name(&job)));
    has(&group, &["/results/0/jobs/1"]);
    let own = format!("{NVME} --engine cpu --output-format fio-json --json {}", name(&other));
    assert!(warpbell(&own.split(' ').collect::<Vec<_>>()).status.success());
    let in_turn = measured(&format!("{NVME} --beside cat<{}", name(&other)));
    has(&in_turn, &["/results/0/beside/pairs/0/ratio"]);
}

#[test]
fn a_rate_that_becomes_steady_ends_a_measurement() {
    let limits = "--steady-state iops:1000% --steady-state-duration 20ms";
    // A busy machine may give the kernel no time for a window.
    let steady = measured(&format!("bench nvme --runtime 20s --size 256K {limits}"));
    has(&steady, &["/results/0/job/steady_state", "/results/0/runs/0/steadiness/mean_per_s"]);
}

#[test]
fn copies_of_a_device_are_described() {
    let whole = measured(&format!("{NVME} --rw randrw --replicate --device soft:mem:1M --device soft:mem:1M"));
    has(&whole, &["/path/redundancy/copies"]);
    let modelled = measured(&format!("{NVME} --device soft:mem:1M,model=tests/common/slow_drive.toml"));
    has(&modelled, &["/path/models/0"]);
    let lost = "--replicate --device soft:mem:1M --device soft:mem:1M,disappear=after:30 --deadline 1s";
    has(&measured(&format!("{NVME} {lost}")), &["/path/redundancy/lost/0/reason"]);
}

#[test]
fn the_queue_core_posts_and_the_cache_are_measured() {
    let queue = measured("bench queue --queues 1,2 --depth 64,128 --submitters 1,2 --commands 100 --runs 2");
    has(&queue, &["/config/swept/2", "/results/7/submitters"]);
    measured("bench array --size 1M --runs 2");
    for more in ["--blocks 1,2", "--blueflame --collapsed --inline --inlined", "--capsules"] {
        let posts = measured(&format!("bench post --depth 64 --posts 100 --iters 50 --runs 1 {more}"));
        has(&posts, &["/results/rates/0", "/results/latencies/0"]);
    }
}

#[test]
fn caches_of_keys_and_values_are_stored_and_loaded() {
    let few = "bench kv --layers 2 --kv-heads 2 --head-dim 64 --runs 2";
    let report = measured(&format!("{few} --tokens 16,48 --hit 50,100 --bs 4k,8k"));
    has(&report, &["/config/swept/2", "/results/15/first_layer_seconds/median"]);
    has(&measured(&format!("{few} --replicate --device soft:mem:16M --device soft:mem:16M")), &["/path/redundancy"]);
}

#[test]
fn gathers_are_measured() {
    let few = "bench gather --rows 3000 --batch 500 --batches 2 --runs 2";
    has(&measured(&format!("{few} --overlap")), &["/results/0/overlap/both_ns", "/results/0/runs/1/from/rows"]);
    measured(&format!("{few} --cache 20% --host-cache 30% --hot 10% --indices zipf:0.99"));
    let swept = measured(&format!("{few} --row-size 512,4k --iodepth 1,64"));
    has(&swept, &["/config/swept/1", "/results/3/job/iodepth", "/results/3/runs/1/latency"]);
    let copies = measured(&format!("{few} --replicate --device soft:mem:16M --device soft:mem:16M"));
    has(&copies, &["/path/redundancy"]);
    measured("bench gather --shape kv --rows 100 --batch 50 --runtime 10ms --runs 1 --iodepth 8");
    has(&measured("bench gather --shape gids --rows 16384 --batch 50 --batches 1 --runs 1"), &["/config/fanout/0"]);
}

#[test]
fn transfers_between_pes_are_measured() {
    let all = measured("bench shmem all --pes 2 -b 8 -e 4k -f 512 -n 10 -w 2 --window 4k --runs 1");
    has(&all, &["/config/settings/14/test", "/results/rows/0/time_ns/median", "/results/engines/1"]);
    let raw = measured("bench shmem put_latency --pes 2 -b 8 -e 8 -n 20 --runs 2 --raw");
    has(&raw, &["/results/rows/0/p99_9_ns", "/results/rows/0/raw/p50_ns"]);
    let soft = measured("bench shmem put_bw --pes 2 -e 64 -f 64 -n 10 --runs 1 --transport soft");
    has(&soft, &["/results/transport/network/adapter/link"]);
    let buffer = measured("bench shmem get_bw --pes 2 -e 64 -f 64 -n 10 --runs 1 --copy buffer");
    assert!(buffer["results"]["rows"].as_array().unwrap().iter().all(|row| row["copy"] == "buffer"), "{buffer}");
    let swept = measured("bench shmem put_bw --pes 2 -e 64 -f 8 -n 10 --runs 1 -c 1,2 -t 1,2");
    has(&swept, &["/config/swept/2", "/config/settings/3/threads", "/results/rows/7/blocks"]);
    measured("bench stream read --device soft:mem -n 3 --chained 10");
    measured("bench stream put --pes 2 -n 3 --chained 10");
}

#[test]
fn adapters_are_measured() {
    let tests =
        ["write_bw -s 2,4096 -n 20 -q 2 -b", "atomic_bw -n 20 -A CMP_AND_SWAP", "read_lat -n 20", "write_lat -D 20ms"];
    for test in tests {
        let report = measured(&format!("bench rdma {test} --transport soft"));
        has(&report, &["/results/1/rows/0/verified", "/results/1/job/cq_mod", "/config/setting/queue_pairs"]);
    }
    let lists = measured("bench rdma write_bw -s 2,64 -n 20 -q 1,2 -t 16,32 -l 1,4 -I 0,28 -Q 1,8 --transport soft");
    has(&lists, &["/config/swept/5", "/results/47/rows/1/wrong"]);
}

#[test]
fn reports_are_compared() {
    let folder = folder();
    let [a, b] = ["a.json", "b.json"].map(|file| folder.path().join(file));
    for (file, queues) in [(&a, "1,2"), (&b, "1,4")] {
        let report = measured(&format!("bench queue --queues {queues} --depth 64 --commands 100 --runs 2"));
        std::fs::write(file, report.to_string()).unwrap();
    }
    let compared = report(&format!("compare {} {} --tolerance 1000%", name(&a), name(&b)));
    has(&compared, &["/pairs/0/noise", "/only_a/0", "/only_b/0"]);
    // A figure that is worse has a report, too.
    let mut worse = crate::program::json(&a);
    worse["results"][0]["commands_per_s"] = serde_json::json!({ "min": 1.0, "median": 1.0, "max": 1.0 });
    check(&worse);
    std::fs::write(&b, worse.to_string()).unwrap();
    let compared = report_of(&format!("compare {} {}", name(&a), name(&b)), 1);
    assert!(compared["pairs"].as_array().unwrap().iter().any(|pair| pair["outcome"] == "worse"), "{compared}");
}
