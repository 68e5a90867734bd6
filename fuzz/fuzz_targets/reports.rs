//! Reads arbitrary bytes as a report that `compare` and `chart` read, of this program or of another. It is rejected in one line, or
//! its figures are finite numbers or counted as missing.
//!
//! The first byte chooses a report, and the next four a part of it that the rest replaces: few other inputs are reports.
#![no_main]

use libfuzzer_sys::fuzz_target;

// Other parts of the module are for the program's commands.
#[allow(dead_code, unused_imports)]
#[path = "../../host/bin/reports/mod.rs"]
mod reports;
#[path = "../../host/bin/workloads/spread.rs"]
pub mod spread;
mod workloads {
    pub use super::spread;
}

const REPORTS: [&str; 6] = [
    r#"{"schema":1,"command":"bench nvme","config":{"runs":2,"job":{"rw":"randread","bytes":4096,"iodepth":8}},"environment":{"version":"1","engine":"cpu"},"path":{"device":"soft:mem"},"results":{"iops":{"min":1.0,"median":2.0,"max":3.0},"runs":[{"read":{"direction":"read","iops":10.0,"bytes_per_s":40960.0,"runtime_ns":1,"commands":5,"latency":{"mean_ns":9.5,"min_ns":1,"percentiles_ns":[[50.0,7],[99.0,9]]}}}]}}"#,
    r#"{"fio version":"fio-3.33","jobs":[{"jobname":"a","groupid":0,"error":0,"read":{"total_ios":5,"iops":10.0,"bw_bytes":40960,"clat_ns":{"percentile":{"50.000000":7,"99.000000":9}}},"write":{"total_ios":0,"iops":0.0,"bw_bytes":0},"job options":{"bs":"4k"}}]}"#,
    r#"{"version":1,"args":["all_reduce_perf","-b","8"],"nccl_version":23205,"results":[{"size":8,"count":2,"type":"float","redop":"sum","root":-1,"out_of_place":{"time":1.0,"alg_bw":1.0,"bus_bw":1.0,"nwrong":0},"in_place":{"time":1.0,"alg_bw":1.0,"bus_bw":1.0,"nwrong":0}}]}"#,
    r#"{"nvbandwidth":{"version":"v0.8","testcases":[{"name":"device_to_device_memcpy_read_ce","status":"Passed","bandwidth_matrix":[["N/A","367.1"],["366.9","N/A"]],"average":367.0}]}}"#,
    r#"{"test_info":{"test":"RDMA_Write_BW_Test","Device":"mlx5_0","Number_of_qps":1,"TX_depth":128},"results":{"MsgSize":65536,"n_iterations":5000,"BW_peak":190.0,"BW_average":189.0,"MsgRate":0.36}}"#,
    "IoType: READ XferType: GPUD Threads: 8 DataSetSize: 818796544/4096000(KiB) IOSize: 1024(KiB) Throughput: 6.5 GiB/sec, Avg_Latency: 1197.5 usecs ops: 799606 total_time 119.67 secs\n",
];

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, high, low, length, lines], rest)) = data.split_first_chunk() else { return };
    let Ok(rest) = std::str::from_utf8(rest) else { return };
    let report = REPORTS[usize::from(choice) % REPORTS.len()];
    // All of them are ASCII.
    let start = (usize::from(high) << 8 | usize::from(low)) % report.len();
    let end = (start + usize::from(length)).min(report.len());
    let text = format!("{}{}{rest}{}", "note\n".repeat(usize::from(lines % 3)), &report[..start], &report[end..]);
    match reports::of_text("a report", &text) {
        Ok(source) => {
            assert!(!source.figures.is_empty());
            for figure in &source.figures {
                assert!(figure.samples.middle().is_finite(), "{figure:?}");
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
});
