//! Tests `bench kv`: KV caches that kernels store and load.

use super::program::*;

fn kv(args: &str) -> std::process::Output {
    let few = "bench kv --engine cpu --layers 2 --kv-heads 2 --head-dim 64 --runs 1";
    warpbell(&format!("{few} {args}").split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>())
}

#[test]
fn pages_are_stored_and_loaded_on_devices_of_all_kinds() {
    let folder = folder();
    let file = format!("--device soft:{}", folder.path().join("kv.img").display());
    for device in
        ["", "--device soft:mem:8M --device soft:mem:8M", "--device soft:mem,block=4096 --landing bounce", &file]
    {
        let o = kv(&format!("--tokens 100 {device}"));
        assert!(o.status.success(), "{device}: {}", stderr(&o));
        let text = stdout(&o);
        mentions(&text, &["tokens 112", "store", "load", "all data verified"]);
    }
    // The file can be measured again: the store was removed.
    let o = kv(&format!("--tokens 100 {file}"));
    assert!(o.status.success(), "{}", stderr(&o));
}

#[test]
fn a_request_that_is_partly_stored_moves_its_beginning() {
    let folder = folder();
    let report = folder.path().join("kv.json");
    let o = kv(&format!("--tokens 160 --hit 0,30,100 --bs 4k --json {}", name(&report)));
    assert!(o.status.success(), "{}", stderr(&o));
    let object = 2 * 2 * 16 * 2 * 64 * 2;
    let rows = json(&report)["results"].as_array().unwrap().clone();
    let moved: Vec<u64> = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
    assert_eq!(moved, [0, 0, 3 * object, 3 * object, 10 * object, 10 * object]);
}

#[test]
fn points_before_one_that_fails_are_in_the_report() {
    let folder = folder();
    let report = folder.path().join("kv.json");
    let o = kv(&format!("--tokens 32 --bs 4k,100 --json {}", name(&report)));
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["commands of 0 bytes; give 512"]);
    assert_eq!(json(&report)["results"].as_array().unwrap().len(), 2);
}

#[test]
fn damaged_data_is_an_error() {
    let o = kv("--tokens 160 --bs 4k --device soft:mem:8M,corrupt=read:every:20");
    assert_eq!(o.status.code(), Some(1), "{}", stdout(&o));
    mentions(&stderr(&o), &["are damaged: checksum"]);
}
