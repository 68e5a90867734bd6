//! Tests devices that already hold a stored graph.

use super::program::*;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;

/// Returns the arguments of a search over `graph` on these devices.
fn bfs<'a>(graph: &'a str, devices: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    let devices = devices.iter().flat_map(|d| ["--device", d]);
    ["graph", "bfs", graph, "--source", "1"].into_iter().chain(devices).chain(more.iter().copied()).collect()
}

fn device(path: &Path) -> String {
    format!("soft:{}", name(path))
}

#[test]
fn another_stored_graph_is_not_overwritten() {
    let folder = folder();
    let image = folder.path().join("x.img");
    let device = device(&image);
    succeeds(&bfs(UNIFORM, &[&device], &[]));
    let before = fs::read(&image).unwrap();
    let other = bfs("kron:8", &[&device], &[]);
    mentions(
        &fails(&other),
        &["x.img", "4,096 vertices", "130,616 stored edges", "nothing was written", "--yes-destroy"],
    );
    // Naming another file allows no overwriting.
    mentions(&fails(&bfs("kron:8", &[&device], &["--yes-destroy", "y.img"])), &["x.img"]);
    assert!(fs::read(&image).unwrap() == before, "the stored graph was changed");
    // As many vertices and edges, but different edges.
    let (a, b) = (write(&folder, "a.el", "1 2\n2 3\n"), write(&folder, "b.el", "1 3\n2 3\n"));
    let small = format!("soft:{}", name(&folder.path().join("small.img")));
    succeeds(&bfs(&a, &[&small], &[]));
    mentions(&fails(&bfs(&b, &[&small], &[])), &["small.img", "3 vertices"]);
    // A graph that is stored already may be stored again.
    succeeds(&bfs(&a, &[&small], &[]));
    succeeds(&bfs(UNIFORM, &[&device], &[]));
    succeeds(&["graph", "cc", UNIFORM, "--device", &device]);
    succeeds(&[other, vec!["--yes-destroy", name(&image)]].concat());
    assert!(fs::read(&image).unwrap() != before);
}

#[test]
fn weights_and_directed_graphs_are_compared_too() {
    let folder = folder();
    let image = folder.path().join("x.img");
    let device = device(&image);
    let sssp = |graph: &str| warpbell(&["graph", "sssp", graph, "--directed", "--source", "1", "--device", &device]);
    let (a, b) = (write(&folder, "a.wel", "1 2 3\n2 3 4\n"), write(&folder, "b.wel", "1 2 3\n2 3 5\n"));
    assert!(sssp(&a).status.success());
    let o = sssp(&b);
    assert_eq!(o.status.code(), Some(1), "other weights");
    mentions(&stderr(&o), &["x.img", "2 stored edges"]);
    assert!(sssp(&a).status.success());
}

#[test]
fn every_device_of_a_volume_is_looked_at() {
    let folder = folder();
    let image = |name: &str| device(&folder.path().join(name));
    let (a, b, c) = (image("a.img"), image("b.img"), image("c.img"));
    succeeds(&bfs("kron:8", &[&b], &[]));
    let before = fs::read(folder.path().join("b.img")).unwrap();
    for more in [&[][..], &["--replicate"]] {
        mentions(&fails(&bfs("kron:7", &[&a, &b], more)), &["b.img", "256 vertices", "--yes-destroy"]);
    }
    // The second device of a stripe holds its own graph, whatever the first holds.
    mentions(&fails(&bfs("kron:8", &[&b, &c], &["--pes", "2"])), &["b.img", "256 vertices"]);
    assert!(fs::read(folder.path().join("b.img")).unwrap() == before);
    assert!(!folder.path().join("c.img").exists(), "one PE stored its part although the other refused");
    let copies = bfs("kron:7", &[&a, &c], &["--replicate"]);
    succeeds(&copies);
    succeeds(&copies);
    mentions(&fails(&bfs("kron:6", &[&a, &c], &["--replicate"])), &["a.img"]);
}

#[test]
fn parts_of_a_graph_are_not_overwritten_by_those_of_another() {
    let folder = folder();
    let device = device(&folder.path().join("part-{pe}.img"));
    let parts = |graph| bfs(graph, &[&device], &["--pes", "2"]);
    succeeds(&parts("kron:8"));
    succeeds(&parts("kron:8"));
    let read = || ["part-0.img", "part-1.img"].map(|n| fs::read(folder.path().join(n)).unwrap());
    let before = read();
    mentions(&fails(&parts("kron:7")), &["part-0.img", "128 vertices", "--yes-destroy"]);
    assert!(read() == before);
    let policy = name(&folder.path().join("part-{pe}.img")).to_owned();
    succeeds(&[parts("kron:7"), vec!["--yes-destroy", &policy]].concat());
}

#[test]
fn a_file_that_can_grow_no_more_is_named_with_what_to_do() {
    let folder = folder();
    let image = folder.path().join("full.img");
    fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    let device = device(&image);
    let mut command = command(&bfs(UNIFORM, &[&device], &[]));
    // SAFETY: both calls are allowed between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: 256 << 10, rlim_max: 256 << 10 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        });
    }
    let o = command.output().unwrap();
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["full.img", "no more data can be written", "free", "file system"]);
}

/// Changes a byte of a file.
fn damage(image: &Path, at: usize) {
    let mut bytes = fs::read(image).unwrap();
    bytes[at] ^= 1;
    fs::write(image, bytes).unwrap();
}

#[test]
fn stored_arrays_are_verified() {
    let folder = folder();
    let image = folder.path().join("x.img");
    let device = device(&image);
    let verify = |more: &[&str]| warpbell(&[&["volume", "verify", &device], more].concat());
    mentions(&fails(&["volume", "verify", &device]), &["x.img", "does not exist"]);
    for checksums in [&["--page-checksums"][..], &[]] {
        succeeds(&bfs(UNIFORM, &[&device], &[&["--yes-destroy", name(&image)], checksums].concat()));
        let o = verify(&[]);
        mentions(&stdout(&o), &["array `offsets`", "array `neighbours`  522,464 bytes  intact", "read 555,240 bytes"]);
        assert!(o.status.success());
        let at = (128 << 10) + 512 * 700 + 3;
        damage(&image, at);
        let o = verify(&[]);
        assert_eq!(o.status.code(), Some(1));
        mentions(&stderr(&o), &["x.img", "1 of 2 arrays", "store the data again"]);
        mentions(&stdout(&o), &["array `neighbours`  522,464 bytes  damaged"]);
        let report: serde_json::Value = serde_json::from_str(&stdout(&verify(&["--json"]))).unwrap();
        assert_eq!((&report["command"], &report["intact"]), (&"volume verify".into(), &false.into()));
        assert_eq!(report["page_checksums"], !checksums.is_empty());
        let unit = at as u64 / 4096 * 4096;
        match checksums {
            [] => mentions(&stdout(&o), &["not located"]),
            _ => {
                mentions(
                    &stdout(&o),
                    &[&format!("damaged: `neighbours`, 4,096 bytes at byte {unit}, LBA {}", unit / 512)],
                );
                assert_eq!(report["damaged"][0]["offset"], unit);
            }
        }
    }
}

#[test]
fn a_damaged_copy_is_read_around_and_repaired() {
    let folder = folder();
    let images = ["a.img", "b.img"].map(|n| folder.path().join(n));
    let [a, b] = [&images[0], &images[1]].map(|i| device(i));
    let more = ["--replicate", "--page-checksums"];
    let verify = |more: &[&str]| warpbell(&[&["volume", "verify", &a, &b, "--replicate"], more].concat());
    succeeds(&bfs(UNIFORM, &[&a, &b], &more));
    damage(&images[1], 300_000);
    let o = verify(&[]);
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["1 of 4 arrays", "--repair"]);
    mentions(&stdout(&o), &["b.img  damaged", "b.img: wrong checksum"]);
    let o = verify(&["--repair"]);
    assert!(o.status.success());
    mentions(&stdout(&o), &["b.img  repaired", "4,096 bytes written again"]);
    assert!(verify(&[]).status.success());
    // A copy without superblocks does not count.
    let mut bytes = fs::read(&images[1]).unwrap();
    let whole = bytes.clone();
    bytes[..64 << 10].fill(0);
    fs::write(&images[1], bytes).unwrap();
    let o = verify(&[]);
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["b.img is left out and was not read: it lacks generation 1", "store the data again"]);
    fs::write(&images[1], whole).unwrap();
    mentions(&fails(&["volume", "verify", &a, "--repair"]), &["as 2 copies", "on one drive"]);
    // Opening it as another kind of volume fails, and nothing is written.
    mentions(&fails(&["volume", "verify", &b, &a, "--replicate"]), &["as drive 2 of 2"]);
}

#[test]
fn small_pages_and_page_checksums_do_not_go_together() {
    let folder = folder();
    let image = folder.path().join("x.img");
    let text = fails(&bfs(UNIFORM, &[&device(&image)], &["--page-checksums", "--page-size", "2k"]));
    mentions(&text, &["pages of 2048 bytes", "use a page of 4096 or more"]);
}
