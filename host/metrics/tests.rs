use super::family::Kind;
use super::*;
use std::sync::mpsc::channel;
use std::time::Duration;

fn of<'a>(snapshot: &'a Snapshot, name: &str) -> Vec<&'a Sample> {
    snapshot.samples.iter().filter(|s| s.labels.values().any(|v| v == name)).collect()
}

#[test]
fn objects_are_read_while_they_live() {
    let mut n = 0;
    let registration = register("volume", "lives", move |to| {
        n += 1;
        to.add(&family::VOLUME_COMMANDS, &[("op", "read")], n);
        true
    });
    let (first, second) = (snapshot(), snapshot());
    assert_eq!((of(&first, "lives")[0].value, of(&second, "lives")[0].value), (1.0, 2.0));
    assert_eq!(of(&first, "lives")[0].label("op"), "read");
    drop(registration);
    assert!(of(&snapshot(), "lives").is_empty());
}

#[test]
fn values_that_cannot_be_read_are_the_last_ones() {
    let mut reads = 0;
    let _registration = register("volume", "unreadable", move |to| {
        reads += 1;
        to.add(&family::VOLUME_ERRORS, &[], 7);
        if reads > 1 {
            to.add(&family::VOLUME_ERRORS, &[], 8);
        }
        reads == 1
    });
    assert_eq!(of(&snapshot(), "unreadable").len(), 1);
    let now = snapshot();
    assert_eq!(of(&now, "unreadable").iter().map(|s| s.value).collect::<Vec<_>>(), [7.0]);
    let unreadable = now.samples.iter().find(|s| s.name == family::UNREADABLE.name).unwrap();
    assert!(unreadable.value >= 1.0);
}

#[test]
fn the_end_of_an_object_waits_for_its_reading() {
    let (entered, is_inside) = channel();
    let (leave, may_leave) = channel::<()>();
    let registration = register("volume", "slow", move |_| {
        entered.send(()).unwrap();
        may_leave.recv_timeout(Duration::from_secs(60)).is_ok()
    });
    std::thread::scope(|s| {
        s.spawn(snapshot);
        is_inside.recv_timeout(Duration::from_secs(60)).unwrap();
        let ended = s.spawn(|| drop(registration));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!ended.is_finished());
        leave.send(()).unwrap();
        ended.join().unwrap();
    });
}

#[test]
fn text_groups_families_and_escapes_labels() {
    let sample = |name: &'static str, label: &str, value| Sample {
        name: name.into(),
        labels: BTreeMap::from([("volume".into(), label.to_owned())]),
        value,
    };
    let text = Snapshot {
        uptime_s: 1.5,
        samples: vec![
            sample("warpbell_volume_errors_total", "a\"\\\n", 1.0),
            sample("warpbell_cache_hits_total", "x", 1e15),
            sample("warpbell_volume_errors_total", "b", 0.0),
        ],
    }
    .to_text();
    let values: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    assert_eq!(
        values,
        [
            "warpbell_uptime_seconds 1.5",
            r#"warpbell_volume_errors_total{volume="a\"\\\n"} 1"#,
            r#"warpbell_volume_errors_total{volume="b"} 0"#,
            r#"warpbell_cache_hits_total{volume="x"} 1000000000000000"#,
        ]
    );
    assert_eq!(text.matches("# TYPE warpbell_volume_errors_total counter\n").count(), 1);
}

#[test]
fn words_are_widened_over_laps_and_resets() {
    let mut wide = Wide::default();
    assert_eq!(wide.at(10), 10);
    assert_eq!(wide.at(1 << 31), 1 << 31);
    assert_eq!(wide.at(u32::MAX), u64::from(u32::MAX));
    assert_eq!(wide.at(4), u64::from(u32::MAX) + 5);
    assert_eq!(wide.at(0), u64::from(u32::MAX) + 5);
    assert_eq!(wide.at(3), u64::from(u32::MAX) + 8);
}

#[test]
fn names_follow_the_rules_of_prometheus() {
    for f in FAMILIES {
        let known = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(f.name.starts_with("warpbell_") && f.name.chars().all(known), "{}", f.name);
        assert_eq!(f.name.ends_with("_total"), f.kind == Kind::Counter, "{}", f.name);
        assert!(f.help.ends_with('.') && !f.help.contains('\n'), "{}", f.help);
    }
}

#[test]
fn the_manual_names_every_family() {
    let manual = include_str!("../../docs/operation.md");
    for f in FAMILIES {
        assert!(manual.contains(&format!("`{}`", f.name)), "{}", f.name);
    }
}
