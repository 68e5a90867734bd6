//! Tests `bench stream`: transfers between two kernels by the host, by a kernel and by the stream.

use super::program::*;
use serde_json::Value;

#[test]
fn three_ways_of_each_transfer_are_compared_and_verified() {
    for (test, more) in [
        ("read", &["--device", "soft:mem"][..]),
        ("write", &[]),
        ("put", &["--pes", "2"]),
        // More puts than a queue pair holds.
        ("put", &["--pes", "2", "--transport", "soft", "--chained", "300"]),
    ] {
        let base = ["bench", "stream", test, "--engine", "cpu", "-n", "3", "--bs", "8k"];
        let chained = if more.contains(&"--chained") { &[][..] } else { &["--chained", "70"] };
        let args = [&base, chained, more].concat();
        let text = succeeds(&args);
        let count = args[args.iter().position(|a| *a == "--chained").unwrap() + 1];
        mentions(&text, &[&format!("# {test}  bs 8 KiB  iters 3  chained {count}; all data verified"), "one transfer"]);
        let report: Value = serde_json::from_str(&succeeds(&[&args[..], &["--json", "-"]].concat())).unwrap();
        assert_eq!((&report["command"], &report["config"]["test"]), (&"bench stream".into(), &test.into()));
        let methods: Vec<_> = report["results"].as_array().unwrap().iter().map(|row| row["method"].clone()).collect();
        let none = (test != "put").then_some("none");
        assert_eq!(methods, none.into_iter().chain(["host", "kernel", "stream"]).collect::<Vec<_>>());
        assert!(report["results"].as_array().unwrap().iter().all(|row| row["chained_ns"].as_u64().unwrap() > 0));
    }
}

#[test]
fn transfers_that_cannot_be_are_refused() {
    let base = ["bench", "stream", "read", "--engine", "cpu"];
    mentions(&fails(&[&base[..], &["--bs", "100"]].concat()), &["100 bytes are not whole blocks of 512"]);
    let alone = ["bench", "stream", "put", "--engine", "cpu", "--pes", "1"];
    mentions(&fails(&alone), &["a put needs two PEs"]);
}
