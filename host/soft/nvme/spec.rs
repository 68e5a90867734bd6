//! Textual form of a configuration: the part of a specification after `soft:`.

use super::config::{Backing, FileIo, NamespaceConfig, SoftConfig};
use super::fault::{
    Access, Corruption, Latency, MediaError, Readiness, Selector, Shrink, SlowDrain, StuckQueue, TornWrite, Trigger,
};
use crate::soft::model::ModelSource;
use crate::spec::{DeviceSpec, NO_NAMESPACE, Name, Scheme, SpecError, SpecOption, number, size, time};
use std::ops::RangeInclusive;
use std::path::PathBuf;

fn range(text: &str) -> Option<RangeInclusive<u64>> {
    match text.split_once('-') {
        None => number(text).map(|n| n..=n),
        Some((a, b)) => {
            let (a, b) = (number(a)?, number(b)?);
            (a <= b).then_some(a..=b)
        }
    }
}

fn every(text: &str) -> Option<u64> {
    number(text.strip_prefix("every:")?).filter(|n| *n > 0)
}

fn selector(text: &str) -> Option<Selector> {
    every(text).map(Selector::Every).or_else(|| range(text).map(Selector::Blocks))
}

fn trigger(text: &str) -> Option<Trigger> {
    if let Some(n) = text.strip_prefix("after:") {
        return number(n).map(Trigger::After);
    }
    match text.strip_prefix("once:") {
        Some(n) => number(n).map(Trigger::Once),
        None => range(text).map(Trigger::Blocks),
    }
}

fn stuck(text: &str) -> Option<StuckQueue> {
    match text.strip_prefix("after:") {
        Some(n) => Some(StuckQueue { queue: None, after: number(n)? }),
        None => {
            let (queue, after) = text.split_once(":after:")?;
            Some(StuckQueue { queue: Some(number(queue)?), after: number(after)? })
        }
    }
}

fn latency(text: &str) -> Option<Latency> {
    if let Some(mean) = text.strip_prefix("exp:") {
        return time(mean).map(Latency::Exponential);
    }
    match text.split_once('-') {
        None => time(text).map(Latency::Fixed),
        Some((low, high)) => {
            let (low, high) = (time(low)?, time(high)?);
            (low <= high).then_some(Latency::Uniform(low, high))
        }
    }
}

/// Splits a leading `read:` or `write:` off.
fn access(text: &str) -> (Access, &str) {
    match text.split_once(':') {
        Some(("read", rest)) => (Access::Read, rest),
        Some(("write", rest)) => (Access::Write, rest),
        _ => (Access::Both, text),
    }
}

fn media_error(text: &str) -> Option<MediaError> {
    let (access, blocks) = access(text);
    Some(MediaError { blocks: range(blocks)?, access })
}

fn corruption(text: &str) -> Option<Corruption> {
    let (access, which) = access(text);
    Some(Corruption { which: selector(which)?, access })
}

fn torn(text: &str) -> Option<TornWrite> {
    let silent = text.strip_prefix("silent:");
    Some(TornWrite { which: selector(silent.unwrap_or(text))?, silent: silent.is_some() })
}

fn drain(text: &str) -> Option<SlowDrain> {
    let (queue, interval) = match text.split_once(':') {
        None => (None, text),
        Some((queue, interval)) => (Some(number(queue)?), interval),
    };
    Some(SlowDrain { queue, interval: time(interval)? })
}

fn shrink(text: &str) -> Option<Shrink> {
    let (blocks, after) = text.split_once(":after:")?;
    Some(Shrink { blocks: number(blocks)?, after: number(after)? })
}

fn file(path: PathBuf) -> Backing {
    Backing::File { path, io: FileIo::default(), direct: false }
}

impl TryFrom<&DeviceSpec> for SoftConfig {
    type Error = SpecError;

    /// Interprets the name and the options of a `soft:` specification, as [`SoftConfig::parse`] does.
    fn try_from(spec: &DeviceSpec) -> Result<Self, SpecError> {
        let backing = match spec.name() {
            Name::Memory { bytes } => Backing::Memory { bytes: *bytes },
            Name::SoftFile(path) => file(path.clone()),
            _ => return Err(spec.other_scheme(Scheme::Soft)),
        };
        let mut config = SoftConfig::from_namespaces(vec![NamespaceConfig::new(backing)]);
        let (mut block, mut io, mut direct, mut read_only, mut copies) = (None, None, false, false, 1usize);
        for option in spec.options() {
            let faults = &mut config.faults;
            match option.key() {
                "block" => block = Some(option.read(|t| size(t).filter(|s| [512, 4096].contains(s)))? as u32),
                "io" => {
                    let known = |t: &str| match t {
                        "uring" | "io_uring" => Some(FileIo::Uring),
                        "pread" => Some(FileIo::Pread),
                        "mmap" => Some(FileIo::Mmap),
                        _ => None,
                    };
                    io = Some(option.read(known)?);
                }
                "direct" => direct = true,
                "read-only" => read_only = true,
                "file" => config.namespaces.push(NamespaceConfig::new(file(option.path()))),
                "namespaces" => copies = option.read(|t| number(t).filter(|n| (1..=1024).contains(n)))?,
                "threads" => config.threads = Some(option.read(|t| number(t).filter(|n| (1..=1024).contains(n)))?),
                "entries" => config.max_queue_entries = option.read(number)?,
                "queues" => config.max_queue_pairs = option.read(number)?,
                "transfer" => config.max_transfer_bytes = option.read(|t| size(t)?.try_into().ok())?,
                "stride" => config.doorbell_stride = option.read(number)?,
                "ready-timeout" => config.ready_timeout = option.read(time)?,
                "streaming" => config.streaming = option.read(|t| t.parse().ok())?,
                "media-error" => faults.media_errors.push(option.read(media_error)?),
                "latency" => faults.latency = option.read(latency)?,
                "lose-completion" => faults.lose_completion = Some(option.read(selector)?),
                "wrong-phase" => faults.wrong_phase = Some(option.read(selector)?),
                "lose-doorbell" => faults.lose_doorbell = Some(option.read(every)?),
                "stuck-queue" => faults.stuck_queue = Some(option.read(stuck)?),
                "fatal" => faults.fatal = Some(option.read(trigger)?),
                "disappear" => faults.disappear = Some(option.read(trigger)?),
                "fail-flush" => faults.fail_flush = Some(option.read(every)?),
                "repeat-completion" => faults.repeat_completion = Some(option.read(selector)?),
                "torn-write" => faults.torn_write = Some(option.read(torn)?),
                "corrupt" => faults.corrupt.push(option.read(corruption)?),
                "slow-drain" => faults.slow_drain = Some(option.read(drain)?),
                "shrink" => faults.shrink = Some(option.read(shrink)?),
                "slow-ready" => faults.ready = Readiness::Slow(option.read(time)?),
                "never-ready" => faults.ready = Readiness::Never,
                "reorder" => faults.reorder = true,
                "seed" => faults.seed = option.read(number)?,
                "model" => {
                    let known = |text: &str| ModelSource::named(text).ok_or_else(|| ModelSource::unknown(text));
                    config.model = Some(option.read_or(known)?);
                }
                _ => return Err(option.refuse(NO_NAMESPACE)),
            }
        }
        let misplaced =
            |option: &str, reason: &str| Err(SpecError::BadOption { option: option.into(), reason: reason.into() });
        if let Some(model) = spec.options().iter().find(|option| option.key() == "model") {
            let sets = |option: &&SpecOption| ["entries", "latency", "queues", "transfer"].contains(&option.key());
            if let Some(both) = spec.options().iter().find(sets) {
                return Err(
                    both.refuse(format!("`{model}` sets this; leave it out, or change it in a file of your own"))
                );
            }
        }
        let files = config.namespaces.iter().any(|n| matches!(n.backing, Backing::File { .. }));
        for (option, given) in [("direct", direct), ("io", io.is_some()), ("read-only", read_only)] {
            if given && !files {
                return misplaced(option, "it applies to files, and there is none");
            }
        }
        if direct && io == Some(FileIo::Mmap) {
            return misplaced("direct", "it bypasses the page cache, and io=mmap uses it; choose one");
        }
        if files && copies > 1 {
            return misplaced("namespaces", "it applies to memory only; give another `file=FILE` for each file");
        }
        let one = config.namespaces[0].clone();
        config.namespaces.resize(copies.max(config.namespaces.len()), one);
        for n in &mut config.namespaces {
            n.block_bytes = block.unwrap_or(n.block_bytes);
            n.read_only = read_only;
            if let Backing::File { io: how, direct: d, .. } = &mut n.backing {
                (*how, *d) = (io.unwrap_or_default(), direct);
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fault::FaultPlan;
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn parse(spec: &str) -> Result<SoftConfig, SpecError> {
        SoftConfig::parse(spec)
    }

    fn backing(spec: &str) -> Backing {
        parse(spec).unwrap().namespaces[0].backing.clone()
    }

    #[test]
    fn memory_and_files() {
        assert_eq!(backing("mem"), Backing::Memory { bytes: None });
        assert_eq!(backing("mem:64M"), Backing::Memory { bytes: Some(64 << 20) });
        assert_eq!(backing("edges.img"), file("edges.img".into()));
        assert_eq!(backing(r"a\,b.img,block=4096"), file("a,b.img".into()));
        let c = parse("a.img,file=b.img,io=mmap,block=4096").unwrap();
        let expected = |p: &str| {
            let backing = Backing::File { path: p.into(), io: FileIo::Mmap, direct: false };
            NamespaceConfig::new(backing).block_bytes(4096)
        };
        assert_eq!(c.namespaces, [expected("a.img"), expected("b.img")]);
        assert_eq!(parse("mem:1M,namespaces=3").unwrap().namespaces.len(), 3);
    }

    #[test]
    fn faults_and_limits() {
        let c =
            parse("mem:64M,media-error=100-107,media-error=write:9,latency=20us,lose-completion=every:1000").unwrap();
        assert_eq!(c.faults.media_errors[0], MediaError { blocks: 100..=107, access: Access::Both });
        assert_eq!(c.faults.media_errors[1], MediaError { blocks: 9..=9, access: Access::Write });
        assert_eq!(c.faults.latency, Latency::Fixed(Duration::from_micros(20)));
        assert_eq!(c.faults.lose_completion, Some(Selector::Every(1000)));
        let c = parse("mem,threads=3,entries=64,queues=5,transfer=1M,stride=0,ready-timeout=1s,stuck-queue=2:after:7")
            .unwrap();
        assert_eq!((c.threads, c.max_queue_entries, c.max_queue_pairs), (Some(3), 64, 5));
        assert_eq!((c.max_transfer_bytes, c.doorbell_stride), (1 << 20, 0));
        assert_eq!(c.faults.stuck_queue, Some(StuckQueue { queue: Some(2), after: 7 }));
        assert_eq!(parse("mem,never-ready,reorder,seed=4").unwrap().faults.ready, Readiness::Never);
    }

    #[test]
    fn errors_say_what_would_do() {
        let text = |s: &str| parse(s).unwrap_err().to_string();
        assert_eq!(text("mem,block=1024"), "`block=1024`: expected 512 or 4096");
        assert!(text("mem,latency=5").contains("`latency=5`: expected a time such as 20us, a range of times"));
        assert_eq!(
            text("mem,nsid=2"),
            "`nsid=2`: it selects one namespace, but the whole controller is opened; leave it out"
        );
        assert_eq!(text("mem,io=pread"), "`io`: it applies to files, and there is none");
        let other = SoftConfig::try_from(&"qtest:a.img".parse::<DeviceSpec>().unwrap()).unwrap_err();
        assert_eq!(other.to_string(), "it is a device of the kind `qtest`, and `soft` was expected");
        for bad in [
            "mem,latency=9us-1us",
            "mem,latency=-1us",
            "mem,media-error=9-1",
            "mem,media-error=erase:1",
            "mem,lose-completion=every:0",
            "mem,threads=0",
            "mem,direct",
            "a.img,direct,io=mmap",
            "a.img,namespaces=2",
            "mem,namespaces=0",
            "mem,stuck-queue=5",
            "mem,latency=1e300s",
            "mem,fail-flush=2",
            "mem,repeat-completion=every:0",
            "mem,torn-write=loud:every:2",
            "mem,corrupt=erase:every:2",
            "mem,slow-drain=5",
            "mem,slow-drain=x:5ms",
            "mem,shrink=9",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_key_in_the_list_is_known() {
        let known = parse("mem,?").unwrap_err().to_string();
        let (_, known) = known.split_once("; there are ").unwrap();
        for key in known.split(", ") {
            let said = parse(&format!("a.img,{key}{}", if key.ends_with('=') { "?" } else { "" }));
            let left = matches!(&said, Err(e) if e.to_string().ends_with(NO_NAMESPACE));
            assert_eq!(left, key == "nsid=", "{key}: {said:?}");
        }
    }

    fn plans() -> impl Strategy<Value = FaultPlan> {
        let range = || (0u64..1000, 0u64..1000).prop_map(|(a, n)| a..=a + n);
        let time = || (0u64..2_000_000_000).prop_map(Duration::from_nanos);
        let selector =
            || prop::option::of(prop_oneof![(1u64..99).prop_map(Selector::Every), range().prop_map(Selector::Blocks)]);
        let trigger = || {
            prop::option::of(prop_oneof![
                (0u64..99).prop_map(Trigger::After),
                (1u64..99).prop_map(Trigger::Once),
                range().prop_map(Trigger::Blocks)
            ])
        };
        let access = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Both)];
        let media = (range(), access).prop_map(|(blocks, access)| MediaError { blocks, access });
        let latency = prop_oneof![
            Just(Latency::None),
            time().prop_map(Latency::Fixed),
            (time(), time()).prop_map(|(a, b)| Latency::Uniform(a, a + b)),
            time().prop_map(Latency::Exponential),
        ];
        let ready = prop_oneof![Just(Readiness::Prompt), Just(Readiness::Never), time().prop_map(Readiness::Slow)];
        let stuck = (prop::option::of(any::<u16>()), 0u64..9).prop_map(|(queue, after)| StuckQueue { queue, after });
        let which = || prop_oneof![(1u64..99).prop_map(Selector::Every), range().prop_map(Selector::Blocks)];
        let torn = (which(), any::<bool>()).prop_map(|(which, silent)| TornWrite { which, silent });
        let both = prop_oneof![Just(Access::Read), Just(Access::Write), Just(Access::Both)];
        let corruption = (which(), both).prop_map(|(which, access)| Corruption { which, access });
        let drain =
            (prop::option::of(any::<u16>()), time()).prop_map(|(queue, interval)| SlowDrain { queue, interval });
        let shrink = (any::<u64>(), 0u64..99).prop_map(|(blocks, after)| Shrink { blocks, after });
        (
            (any::<u64>(), prop::collection::vec(media, 0..3), latency, selector(), selector()),
            (prop::option::of(1u64..9), prop::option::of(stuck), trigger(), trigger(), ready, any::<bool>()),
            (
                prop::option::of(1u64..9),
                selector(),
                prop::option::of(torn),
                prop::collection::vec(corruption, 0..3),
                prop::option::of(drain),
                prop::option::of(shrink),
            ),
        )
            .prop_map(
                |(
                    (seed, media_errors, latency, a, b),
                    (lose_doorbell, stuck_queue, fatal, disappear, ready, reorder),
                    (fail_flush, repeat_completion, torn_write, corrupt, slow_drain, shrink),
                )| {
                    FaultPlan {
                        seed,
                        media_errors,
                        latency,
                        lose_completion: a,
                        wrong_phase: b,
                        lose_doorbell,
                        stuck_queue,
                        fatal,
                        disappear,
                        fail_flush,
                        repeat_completion,
                        torn_write,
                        corrupt,
                        slow_drain,
                        shrink,
                        ready,
                        reorder,
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn a_plan_reads_back_as_it_was_written(plan in plans()) {
            prop_assert_eq!(parse(&format!("mem{plan}")).unwrap().faults, plan);
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}") {
            let _ = parse(&text);
            let _ = parse(&format!("mem,{text}"));
        }
    }
}
