//! Tests of specifications as a whole.

use super::*;
use proptest::prelude::*;

fn read(text: &str) -> DeviceSpec {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn refused(text: &str) -> String {
    text.parse::<DeviceSpec>().unwrap_err().to_string()
}

#[test]
fn the_documentation_has_this_grammar_and_all_options() {
    let (code, documentation) = (include_str!("mod.rs"), include_str!("../../docs/devices.md"));
    let remote = include_str!("../../docs/fabrics.md");
    let grammar = code.lines().skip_while(|l| *l != "/// ```text").skip(1).take_while(|l| *l != "/// ```");
    let grammar: String = grammar.map(|l| format!("{}\n", l.trim_start_matches("/// "))).collect();
    assert!(grammar.starts_with("device ") && documentation.contains(&grammar), "{grammar}");
    for Keyword { key, .. } in [option::SOFT, option::QTEST, option::NVME, option::NVMF].into_iter().flatten() {
        let forms = [format!("`{key}`"), format!("`{key}=")];
        assert!(forms.iter().any(|form| documentation.contains(form) || remote.contains(form)), "{key}");
    }
}

#[test]
fn names_are_memory_files_or_controllers() {
    let memory = |bytes| Name::Memory { bytes };
    let remote = |host: &str, port, subsystem: &str| {
        Name::Remote(RemoteName {
            transport: FabricsTransport::Tcp,
            address: PortAddress { host: host.to_owned(), port },
            subsystem: subsystem.to_owned(),
        })
    };
    for (text, name) in [
        ("soft:mem", memory(None)),
        ("soft:mem:64M,block=4096", memory(Some(64 << 20))),
        ("soft:mem:1T", memory(Some(1 << 40))),
        ("soft:mem:512", memory(Some(512))),
        ("soft:edges.img", Name::SoftFile("edges.img".into())),
        ("soft:memory.img", Name::SoftFile("memory.img".into())),
        ("soft:file:mem:64M", Name::SoftFile("mem:64M".into())),
        ("soft:file:nonsense=1", Name::SoftFile("nonsense=1".into())),
        (r"soft:a\,b.img,block=4096", Name::SoftFile("a,b.img".into())),
        (r"qtest:a\,b\c.img,block=4096", Name::QtestFile(r"a,b\c.img".into())),
        ("qtest:mem:1G", Name::QtestFile("mem:1G".into())),
        ("nvme:0000:65:00.0,api=group", Name::Controller("0000:65:00.0".into())),
        ("nvmf:tcp://10.0.0.2/nqn.a:b,nsid=2", remote("10.0.0.2", 4420, "nqn.a:b")),
        (r"nvmf:tcp://[::1]:9/a\,b", remote("::1", 9, "a,b")),
        ("nvme: Samsung SSD 990 PRO 2TB ", Name::Controller("Samsung SSD 990 PRO 2TB".into())),
    ] {
        assert_eq!(read(text).name(), &name, "{text}");
    }
}

#[test]
fn what_is_wrong_is_told() {
    for (text, said) in [
        ("edges.img", "it names no kind of device; there are soft:mem[:SIZE], soft:FILE, "),
        ("scsi:0000:65:00.0", "there is no kind of device `scsi`; there are soft:mem"),
        ("sotf:a.img", "options after commas; did you mean `soft`?"),
        ("soft:", "it names no memory and no file; write mem, mem:SIZE or"),
        ("soft:file:,block=512", "it names no memory and no file"),
        ("soft:,block=512", "it names no memory and no file"),
        ("qtest:", "it names no image file"),
        ("nvme: ,api=cdev", "it names no controller; write its address, nvmeN"),
        ("nvmf:,nsid=1", "it names no subsystem; write tcp://"),
        ("nvmf:fc://h/n", "`fc://h/n`: expected tcp://HOST:PORT/NQN"),
        ("nvmf:tcp://h/n,block=512", "there is no option `block`; there are adapter=, ctrl-loss-tmo=, "),
        ("soft:mem:many", "`mem:many`: expected a size such as 512, 64k, 256M or 8G"),
        ("soft:mem:+5", "`mem:+5`: expected a size"),
        ("soft:mem:99999999999T", "expected a size"),
        ("soft:mem,colour=red", "there is no option `colour`; there are block=, corrupt=, direct, "),
        ("soft:mem,", "there is no option ``"),
        ("nvme:nvme0,block=512", "there is no option `block`; there are api=, nsid=, unsafe-no-iommu"),
    ] {
        assert!(refused(text).contains(said), "{text}: {}", refused(text));
    }
    let name = OsStr::from_bytes(b"nvme:\xff");
    assert!(DeviceSpec::from_os_str(name).unwrap_err().to_string().starts_with(r"`\xff`: a controller's"));
}

#[test]
fn what_is_printed_is_canonical() {
    for (text, printed) in [
        ("soft:mem:1024M", "soft:mem:1G"),
        ("soft:mem:1MiB,seed=1", "soft:mem:1M,seed=1"),
        ("soft:mem:1025M", "soft:mem:1025M"),
        ("soft:mem:0", "soft:mem:0"),
        ("soft:file:a.img", "soft:a.img"),
        ("soft:file:men:1G", "soft:file:men:1G"),
        (r"soft:a\b.img", r"soft:a\\b.img"),
        (r"qtest:a\,b,blkdebug=c\\d", r"qtest:a\,b,blkdebug=c\\d"),
        ("nvme: X ,unsafe-no-iommu", "nvme:X,unsafe-no-iommu"),
    ] {
        assert_eq!(read(text).to_string(), printed, "{text}");
    }
    let name = OsStr::from_bytes(b"soft:a\xff.img");
    assert_eq!(DeviceSpec::from_os_str(name).unwrap().to_string(), r"soft:a\xff.img");
}

#[test]
fn options_are_set_and_removed() {
    let mut spec = read("soft:mem,corrupt=1,seed=2,corrupt=3");
    spec.set("corrupt", Some("4".as_ref())).unwrap();
    spec.set("reorder", None).unwrap();
    assert_eq!(spec.to_string(), "soft:mem,corrupt=4,seed=2,reorder");
    assert_eq!(spec.remove("seed").unwrap().value(), Some("2".as_ref()));
    assert_eq!(spec.remove("seed"), None);
    for (key, value) in [("fast", None), ("seed", None), ("seed", Some("")), ("direct", Some("1"))] {
        assert!(spec.set(key, value.map(OsStr::new)).is_err(), "{key}");
    }
    assert_eq!(spec.to_string(), "soft:mem,corrupt=4,reorder");
}

#[test]
fn files_of_a_stripe_are_numbered_and_memory_is_not() {
    for (text, number, numbered) in [
        ("soft:mem", 1, "soft:mem"),
        ("soft:mem:1G,block=4096", 1, "soft:mem:1G,block=4096"),
        ("soft:/data/edges.img", 2, "soft:/data/edges.img.2"),
        (r"soft:a\,b.img,io=mmap", 0, r"soft:a\,b.img.0,io=mmap"),
        ("qtest:memory.img,file=b,blkdebug=c", 3, "qtest:memory.img.3,file=b.3,blkdebug=c"),
        ("nvme:nvme0", 1, "nvme:nvme0"),
    ] {
        assert_eq!(read(text).numbered(number).to_string(), numbered);
    }
}

#[test]
fn numbers_of_pes_stand_in_names_and_values() {
    let spec = read("qtest:{pe}/a-{pe}.img,serial=S{pe},queues=2");
    assert!(spec.has_pe());
    let of = spec.for_pe(12);
    assert_eq!(of.to_string(), "qtest:12/a-12.img,serial=S12,queues=2");
    assert!(!of.has_pe() && !DeviceSpec::memory().has_pe());
    assert_eq!(read("nvme:nvme{pe}").for_pe(0).to_string(), "nvme:nvme0");
    assert_eq!(for_pe(OsStr::from_bytes(b"a\xff{pe}\xff"), 7).as_bytes(), b"a\xff7\xff");
}

/// Generates bytes of names and values, including all characters with a meaning.
fn bytes() -> impl Strategy<Value = OsString> {
    let part = prop_oneof![
        prop::sample::select(vec![",", "\\", ":", "=", "{pe}", "\\x", "ff", "mem", "file:", "block", "é", " ", "1G"])
            .prop_map(|s| s.as_bytes().to_vec()),
        any::<u8>().prop_map(|b| vec![b]),
    ];
    prop::collection::vec(part, 1..8).prop_map(|parts| OsString::from_vec(parts.concat()))
}

fn specs() -> impl Strategy<Value = DeviceSpec> {
    let controller = bytes().prop_filter_map("a controller's name", |b| {
        let name = b.to_string_lossy().trim().to_owned();
        (!name.is_empty()).then_some(Name::Controller(name))
    });
    let name = prop_oneof![
        prop::option::of(any::<u64>()).prop_map(|bytes| Name::Memory { bytes }),
        (0u64..4096, 0u32..50).prop_map(|(n, shift)| Name::Memory { bytes: Some(n << shift) }),
        bytes().prop_map(|b| Name::SoftFile(b.into())),
        bytes().prop_map(|b| Name::QtestFile(b.into())),
        controller,
        (prop::sample::select(vec!["h", "10.0.0.2", "{pe}.a", "::1", "é"]), 1u16.., bytes()).prop_map(
            |(host, port, name)| {
                let subsystem = name.to_string_lossy().into_owned();
                let address = PortAddress { host: host.to_owned(), port };
                Name::Remote(RemoteName { transport: FabricsTransport::Soft, address, subsystem })
            }
        ),
    ];
    let options = prop::collection::vec((any::<prop::sample::Index>(), bytes()), 0..6);
    (name, options).prop_map(|(name, options)| {
        let mut spec = DeviceSpec { name, options: Vec::new() };
        for (index, value) in options {
            let key = index.get(spec.name.scheme().options()).key;
            if spec.set(key, Some(&value)).is_err() {
                spec.set(key, None).unwrap();
            }
        }
        spec
    })
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(spec in specs()) {
        let text = spec.to_string();
        prop_assert_eq!(text.parse::<DeviceSpec>(), Ok(spec), "{}", text);
    }

    #[test]
    fn what_is_read_prints_as_one_text(scheme in "(soft:|soft:mem|soft:file:|qtest:|nvme:|nvmf:|nvmf:tcp://|nvmf:tcp://h/|)", rest in bytes()) {
        let mut text = OsString::from(scheme);
        text.push(rest);
        if let Ok(spec) = DeviceSpec::from_os_str(&text) {
            let printed = spec.to_string();
            let again = printed.parse::<DeviceSpec>();
            prop_assert_eq!(again.as_ref().map(ToString::to_string), Ok(printed));
            prop_assert_eq!(again, Ok(spec));
        }
    }

    #[test]
    fn edits_keep_specifications_readable(spec in specs(), number in any::<u32>(), pe in any::<usize>()) {
        for edited in [spec.clone().numbered(number), spec.for_pe(pe)] {
            prop_assert_eq!(edited.to_string().parse(), Ok(edited));
        }
    }
}
