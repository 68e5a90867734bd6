//! Several threads look up, pin, reserve, commit and delete at once.

use super::*;

#[test]
fn threads_find_whole_objects_of_their_keys() {
    let v = Volume::on(&testing::cpu(), [Drive::open("soft:mem:4M").unwrap()]).build().unwrap();
    let store = create(&v, 120, 64);
    let rounds = 60;
    std::thread::scope(|scope| {
        for t in 0..4u32 {
            let store = store.clone();
            scope.spawn(move || {
                for round in 0..rounds {
                    let n = (t * 7 + round * 5) % 24;
                    let bytes = |n: u32| 4096 * (n as usize % 5 + 1) - 100;
                    // All data of a key is the same, whoever stores it.
                    match (t + round) % 4 {
                        0 | 1 => {
                            let (a, b) = (data(n, bytes(n)), data(n + 24, bytes(n + 24)));
                            store.write(&[(key(n), &a), (key(n + 24), &b)]).unwrap();
                        }
                        2 => drop(store.delete(&[key(n)]).unwrap()),
                        _ => drop(store.reserve(&[(key(n), 9000)]).unwrap()),
                    }
                    let _pins = store.pin(&keys(n..n + 2)).unwrap();
                    for n in [n, (n + 11) % 24 + 24] {
                        match read(&store, &key(n)) {
                            Ok(found) => assert!(found == data(n, bytes(n)), "object {n}"),
                            Err(e) => assert!(matches!(kv(e), KvError::Absent { .. })),
                        }
                    }
                }
            });
        }
    });
    check_space(&store);
    assert_eq!(store.stats().pinned, 0);
    let (before, stats) = (there(&store), store.stats());
    drop(store);
    let store = KvStore::open(&v, "s").unwrap();
    assert_eq!((there(&store), store.stats().free_bytes), (before, stats.free_bytes));
    assert!(store.verify().unwrap().is_empty() && store.stats().damaged_records == 0);
}
