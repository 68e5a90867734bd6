//! Points of `bench rdma`: each combination of the values that options list. Sizes are rows of a point.

use crate::args::RdmaArgs;
use crate::bench::sweep::{Change, Dimension, Lists, distinct};
use crate::output::Failure;
use crate::workloads::rdma::{ALL_SIZES, Setting};
use serde_json::{Map, Value};
use warpbell::units::Bytes;

/// Settings of all points, in the order in which both sides measure them.
pub struct Points {
    settings: Vec<Setting>,
    /// Options with several values.
    swept: Vec<&'static str>,
}

impl Points {
    /// Reads the lists of the arguments, and checks each combination.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there are too many points, or one cannot be measured.
    pub fn of(args: &RdmaArgs) -> Result<Self, Failure> {
        let lists: Lists<Change<Setting>> = Lists::new(vec![
            Dimension::setting("qp", &args.qp, |s: &mut Setting, n| s.queue_pairs = n),
            Dimension::setting("tx-depth", &args.tx_depth, |s, n| s.tx_depth = n),
            Dimension::setting("post-list", &args.post_list, |s, n| s.post_list = n),
            Dimension::setting("cq-mod", &args.cq_mod, |s, n| s.cq_mod = n),
            Dimension::setting("inline-size", &args.inline_size, |s, bytes: Bytes| s.inline_bytes = bytes.0),
        ]);
        // A post list replaces the option for completions, which then makes equal settings.
        let settings = distinct(lists.settings(&base(args))?.into_iter().map(Setting::with_defaults));
        settings.iter().try_for_each(Setting::check).map_err(|e| Failure::Usage(e.to_string()))?;
        let is_one = |option: &&str| distinct(settings.iter().map(|s| value(s, option))).len() < 2;
        let swept = lists.swept().into_iter().filter(|option| !is_one(option)).collect();
        Ok(Self { settings, swept })
    }

    /// Returns the settings of all points: at least one.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Returns the names of the options that have several values.
    pub fn swept(&self) -> Vec<&'static str> {
        let has_sizes = self.settings.iter().any(|setting| setting.sizes.len() > 1);
        self.swept.iter().copied().chain(has_sizes.then_some("size")).collect()
    }

    /// Returns the words that name a point among the others. `None` if there is one point.
    pub fn title(&self, setting: &Setting) -> Option<String> {
        let words: Vec<String> =
            self.swept.iter().map(|option| format!("{option} {}", value(setting, option))).collect();
        (!words.is_empty()).then(|| words.join("  "))
    }

    /// Returns the parameters that all points have in common, as a report has them.
    ///
    /// # Errors
    /// [`serde_json::Error`] if a setting cannot be serialised.
    pub fn common(&self) -> serde_json::Result<Value> {
        let maps = self.settings.iter().map(|setting| serde_json::from_value(serde_json::to_value(setting)?));
        let maps: Vec<Map<String, Value>> = maps.collect::<serde_json::Result<_>>()?;
        let mut common = maps.first().cloned().unwrap_or_default();
        common.retain(|key, value| maps.iter().all(|other| other.get(key) == Some(value)));
        Ok(common.into())
    }
}

/// Returns an option's value at a point.
fn value(setting: &Setting, option: &str) -> u64 {
    match option {
        "qp" => setting.queue_pairs.into(),
        "inline-size" => setting.inline_bytes,
        "tx-depth" => setting.tx_depth.into(),
        "post-list" => setting.post_list.into(),
        _ => setting.cq_mod.into(),
    }
}

/// Returns the setting of the options that take no lists, and sizes.
fn base(args: &RdmaArgs) -> Setting {
    let mut s = Setting::new(args.test);
    if !args.size.is_empty() {
        s.sizes = args.size.iter().map(|size| size.0).collect();
    }
    if args.all {
        s.sizes = ALL_SIZES.map(|log| 1 << log).collect();
    }
    s.iterations = args.iters.unwrap_or(s.iterations);
    s.duration = args.duration;
    s.atomic = args.atomic_type;
    s.bidirectional = args.bidirectional;
    s.no_peak = args.no_peak;
    s.report_gbits = args.report_gbits;
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchCommand, Cli, Command};
    use clap::Parser;
    use serde_json::json;

    fn points(args: &[&str]) -> Result<Points, Failure> {
        match Cli::try_parse_from(["warpbell", "bench", "rdma"].iter().chain(args)).unwrap().command {
            Command::Bench(BenchCommand::Rdma(args)) => Points::of(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_combination_is_a_point() {
        let points =
            points(&["write_bw", "-q", "1,2", "-t", "16,128", "-l", "1,4", "-I", "0,28", "-s", "8,64"]).unwrap();
        assert_eq!(points.swept(), ["qp", "tx-depth", "post-list", "inline-size", "size"]);
        assert_eq!(points.settings().len(), 16);
        let (second, third) = (&points.settings()[1], &points.settings()[2]);
        assert_eq!((second.post_list, second.cq_mod, third.post_list, third.cq_mod), (1, 16, 4, 4));
        assert_eq!(points.title(second).unwrap(), "qp 1  tx-depth 16  post-list 1  inline-size 28");
        let common = points.common().unwrap();
        assert_eq!(
            (&common["message_bytes"], common.get("cq_mod"), common.get("tx_depth")),
            (&json!([8, 64]), None, None)
        );
    }

    #[test]
    fn one_point_has_perftests_defaults_and_no_title() {
        let one = points(&["write_bw"]).unwrap();
        assert_eq!((one.settings().len(), one.swept().len(), one.title(&one.settings()[0])), (1, 0, None));
        assert_eq!(one.common().unwrap()["tx_depth"], 128);
        let latency = points(&["write_lat", "-I", "0,28"]).unwrap();
        assert_eq!(latency.swept(), ["inline-size"]);
        assert_eq!(points(&["write_lat"]).unwrap().settings()[0].inline_bytes, 28);
    }

    #[test]
    fn combinations_that_come_to_the_same_setting_are_one_point() {
        let lists = points(&["write_bw", "-l", "1,8", "-Q", "4,100"]).unwrap();
        let values: Vec<(u32, u32)> = lists.settings().iter().map(|s| (s.post_list, s.cq_mod)).collect();
        assert_eq!(values, [(1, 4), (1, 100), (8, 8)]);
        let replaced = points(&["write_bw", "-l", "8", "-Q", "4,100"]).unwrap();
        assert_eq!((replaced.settings().len(), replaced.swept().len()), (1, 0));
    }

    #[test]
    fn a_combination_that_cannot_be_measured_is_refused() {
        for (args, said) in [
            (&["write_bw", "-t", "128,16", "-l", "1,32"][..], "a post list of 32 messages with a depth of 16"),
            (&["write_lat", "-q", "1,2"], "leave --qp out"),
            (&["write_bw", "-I", "28,64"], "64 bytes of inline data"),
            (&["write_bw", "-Q", "100,0"], "a completion every 0 messages"),
        ] {
            match points(args) {
                Err(Failure::Usage(text)) => assert!(text.contains(said), "{text}"),
                other => panic!("{args:?}: {:?}", other.map(|points| points.settings)),
            }
        }
    }
}
