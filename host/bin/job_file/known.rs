//! Options of fio 3.33, and the treatment of each: applied to a job, said by another option of `bench nvme`, or not
//! applied for a reason.

use super::error::Fault;
use super::given::Given;
use std::fmt;

/// Treatment of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// The job has its value.
    Applied,
    /// It says nothing about accesses by kernels, for this reason.
    NotApplicable(&'static str),
    /// An option of `bench nvme` says it.
    Option(&'static str),
    /// It changes what fio does, and `bench nvme` does not do it.
    NotDone(&'static str),
    /// A job with it is another kind of job.
    Refused(&'static str),
}

impl fmt::Display for Treatment {
    /// Prints the treatment as a reason in a list of options that are not applied.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applied => f.write_str("applied"),
            Self::NotApplicable(reason) => write!(f, "not applicable here: {reason}"),
            Self::Option(option) => write!(f, "said by {option}"),
            Self::NotDone(reason) => write!(f, "not done here: {reason}"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
        }
    }
}

/// Form of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Any text.
    Text,
    /// Any text, or nothing.
    Any,
    /// One or several numbers.
    Number,
    /// 0 or 1.
    Boolean,
    /// Nothing, or 0 or 1.
    Flag,
}

/// Option of fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Main name, under which fio reports the value.
    pub name: &'static str,
    /// Other name.
    pub alias: Option<&'static str>,
    /// Form of its value.
    pub form: Form,
    /// Treatment.
    pub treatment: Treatment,
    /// Values with which the option changes nothing, separated by blanks.
    idle: &'static str,
}

impl Known {
    /// Returns the treatment with this value. A value that changes nothing is not applicable.
    pub fn treatment_of(&self, value: Option<&str>) -> Treatment {
        let is_idle = value.is_some_and(|value| self.idle.split(' ').any(|idle| idle == value));
        match self.treatment {
            Treatment::NotDone(_) | Treatment::Refused(_) if is_idle => {
                Treatment::NotApplicable("this value changes nothing")
            }
            treatment => treatment,
        }
    }
}

impl Form {
    /// Checks that a value has this form.
    ///
    /// # Errors
    /// It has another one.
    pub fn check(self, given: &mut Given<'_>) -> Result<(), Fault> {
        match self {
            Self::Any => Ok(()),
            Self::Text => given.text().map(drop),
            Self::Number => given.numbers(),
            Self::Boolean => given.boolean().map(drop),
            Self::Flag => given.flag().map(drop),
        }
    }
}

/// Returns the option of fio with this name or alias.
pub fn find(key: &str) -> Option<Known> {
    all().find(|known| known.name == key || known.alias == Some(key))
}

/// Returns all options, those of I/O engines excepted.
pub fn all() -> impl Iterator<Item = Known> {
    GROUPS.iter().flat_map(|(treatment, rows)| {
        rows.iter().map(|(form, names, idle)| {
            let (name, alias) = names.split_once(' ').map_or((*names, None), |(name, alias)| (name, Some(alias)));
            Known { name, alias, form: *form, treatment: *treatment, idle }
        })
    })
}

use Form::{Any, Boolean, Flag, Number, Text};
use Treatment::{Applied, NotApplicable, NotDone, Option as By, Refused};

/// Form, name with an alias, and values that change nothing.
type Row = (Form, &'static str, &'static str);

/// Options by their treatment.
const GROUPS: &[(Treatment, &[Row])] = &[
    (
        Applied,
        &[
            (Text, "description", ""),
            (Text, "name", ""),
            (Text, "filename", ""),
            (Text, "directory", ""),
            (Text, "rw readwrite", ""),
            (Number, "bs blocksize", ""),
            (Text, "bsrange blocksize_range", ""),
            (Text, "bssplit", ""),
            (Number, "iodepth", ""),
            (Number, "size", ""),
            (Number, "filesize", ""),
            (Number, "offset fileoffset", ""),
            (Number, "io_size io_limit", ""),
            (Number, "number_ios", ""),
            (Number, "loops", ""),
            (Number, "numjobs", ""),
            (Number, "runtime timeout", ""),
            (Flag, "time_based", ""),
            (Number, "ramp_time", ""),
            (Number, "startdelay", ""),
            (Number, "rwmixread", ""),
            (Number, "rwmixwrite", ""),
            (Number, "rate", ""),
            (Number, "rate_iops", ""),
            (Text, "random_distribution", ""),
            (Flag, "norandommap", ""),
            (Number, "randseed", ""),
            (Boolean, "randrepeat", ""),
            (Text, "verify", ""),
            (Boolean, "do_verify", ""),
            (Text, "verify_pattern", ""),
            (Flag, "group_reporting", ""),
            (Flag, "stonewall wait_for_previous", ""),
            (Flag, "new_group", ""),
            (Text, "percentile_list", ""),
            (Text, "steadystate ss", ""),
            (Number, "steadystate_duration ss_dur", ""),
            (Number, "steadystate_ramp_time ss_ramp", ""),
            (Text, "kb_base", ""),
        ],
    ),
    (
        NotApplicable("kernels submit commands and wait for them"),
        &[
            (Text, "ioengine", ""),
            (Flag, "thread", ""),
            (Number, "iodepth_batch iodepth_batch_submit", ""),
            (Number, "iodepth_batch_complete_min iodepth_batch_complete", ""),
            (Number, "iodepth_batch_complete_max", ""),
            (Number, "iodepth_low", ""),
            (Text, "io_submit_mode", ""),
            (Text, "clocksource", ""),
            (Number, "gtod_cpu", ""),
            (Boolean, "gtod_reduce", ""),
        ],
    ),
    (
        NotApplicable("the engine places its own threads"),
        &[
            (Number, "cpumask", ""),
            (Text, "cpus_allowed", ""),
            (Text, "cpus_allowed_policy", ""),
            (Text, "numa_cpu_nodes", ""),
            (Text, "numa_mem_policy", ""),
            (Text, "nice", ""),
            (Number, "prio", ""),
            (Number, "prioclass", ""),
            (Text, "ioscheduler", ""),
            (Text, "cgroup", ""),
            (Boolean, "cgroup_nodelete", ""),
            (Number, "cgroup_weight", ""),
            (Number, "uid", ""),
            (Number, "gid", ""),
            (Number, "lockmem", ""),
        ],
    ),
    (
        NotApplicable("the engine allocates the memory of commands"),
        &[(Text, "mem iomem", ""), (Number, "iomem_align mem_align", ""), (Number, "hugepage-size", "")],
    ),
    (
        NotApplicable("no page cache is between kernels and the device"),
        &[
            (Boolean, "direct", ""),
            (Boolean, "buffered", ""),
            (Boolean, "atomic", ""),
            (Boolean, "invalidate", ""),
            (Boolean, "pre_read", ""),
            (Text, "fadvise_hint", ""),
        ],
    ),
    (
        NotApplicable("a device is opened as --device says, and no job creates, grows or removes a file"),
        &[
            (Text, "fallocate", ""),
            (Boolean, "create_serialize", ""),
            (Boolean, "create_fsync", ""),
            (Boolean, "create_on_open", ""),
            (Boolean, "allow_file_create", ""),
            (Boolean, "overwrite", ""),
            (Text, "lockfile", ""),
            (Number, "openfiles", ""),
            (Boolean, "unlink", ""),
            (Boolean, "unlink_each_loop", ""),
            (Boolean, "unique_filename", ""),
        ],
    ),
    (By("--yes-destroy DEVICE"), &[(Boolean, "allow_mounted_write", "")]),
    (By("--engine gpu:N"), &[(Number, "gpu_dev_id", "")]),
    (
        NotApplicable("no log over time is written"),
        &[
            (Any, "write_bw_log", ""),
            (Any, "write_lat_log", ""),
            (Any, "write_iops_log", ""),
            (Any, "write_hist_log", ""),
            (Boolean, "per_job_logs", ""),
            (Number, "bwavgtime", ""),
            (Number, "iopsavgtime", ""),
            (Number, "log_entries", ""),
            (Number, "log_avg_msec", ""),
            (Number, "log_hist_msec", ""),
            (Number, "log_hist_coarseness", ""),
            (Boolean, "log_max_value", ""),
            (Boolean, "log_offset", ""),
            (Boolean, "log_prio", ""),
            (Number, "log_compression", ""),
            (Text, "log_compression_cpus", ""),
            (Boolean, "log_store_compressed", ""),
            (Boolean, "log_unix_epoch", ""),
            (Boolean, "log_alternate_epoch", ""),
            (Number, "log_alternate_epoch_clock_id", ""),
        ],
    ),
    (
        NotApplicable("the report has one form"),
        &[
            (Boolean, "block_error_percentiles", ""),
            (Boolean, "stats", ""),
            (Boolean, "clat_percentiles", ""),
            (Boolean, "lat_percentiles", ""),
            (Boolean, "slat_percentiles", ""),
            (Number, "significant_figures", ""),
            (Boolean, "disk_util", ""),
            (Boolean, "disable_lat", ""),
            (Boolean, "disable_clat", ""),
            (Boolean, "disable_slat", ""),
            (Boolean, "disable_bw_measurement disable_bw", ""),
            (Text, "unified_rw_reporting", ""),
            (Text, "unit_base", ""),
        ],
    ),
    (
        NotApplicable("a command that fails ends the measurement"),
        &[
            (Text, "continue_on_error", ""),
            (Text, "ignore_error", ""),
            (Boolean, "error_dump", ""),
            (Flag, "exitall_on_error", ""),
        ],
    ),
    (
        NotApplicable("blocks are checked by the pattern of bench nvme --verify"),
        &[
            (Boolean, "verify_fatal", ""),
            (Boolean, "verify_dump", ""),
            (Number, "verify_async", ""),
            (Text, "verify_async_cpus", ""),
            (Number, "verify_interval", ""),
            (Number, "verify_offset", ""),
            (Number, "verify_backlog", ""),
            (Number, "verify_backlog_batch", ""),
            (Boolean, "verify_state_load", ""),
            (Boolean, "verify_state_save", ""),
            (Boolean, "experimental_verify", ""),
        ],
    ),
    (
        NotApplicable("no record of accesses is written or replayed"),
        &[
            (Text, "write_iolog", ""),
            (Boolean, "read_iolog_chunked", ""),
            (Boolean, "replay_no_stall", ""),
            (Text, "replay_redirect", ""),
            (Number, "replay_scale", ""),
            (Number, "replay_align", ""),
            (Number, "replay_time_scale", ""),
            (Text, "replay_skip", ""),
            (Text, "merge_blktrace_file", ""),
            (Text, "merge_blktrace_scalars", ""),
            (Text, "merge_blktrace_iters", ""),
        ],
    ),
    (
        NotApplicable("an option of a profile, and ignored by fio without one"),
        &[
            (Text, "block", ""),
            (Text, "numruns", ""),
            (Text, "dir", ""),
            (Text, "threads", ""),
            (Text, "device-names", ""),
            (Text, "load", ""),
            (Text, "test-duration", ""),
            (Text, "threads-per-queue", ""),
            (Text, "read-req-num-512-blocks", ""),
            (Text, "large-block-op-kbytes", ""),
            (Text, "prep", ""),
        ],
    ),
    (
        NotApplicable("deprecated, and ignored by fio, too"),
        &[(Text, "verifysort", ""), (Text, "verifysort_nr", ""), (Text, "flow_watermark", "")],
    ),
    (
        NotDone("no flush is between the writes"),
        &[
            (Number, "fsync", "0"),
            (Number, "fdatasync", "0"),
            (Boolean, "end_fsync", "0"),
            (Boolean, "fsync_on_close", "0"),
            (Number, "write_barrier", "0"),
            (Text, "sync_file_range", ""),
            (Text, "sync", "0 none"),
        ],
    ),
    (
        NotDone("no idle time is between commands"),
        &[
            (Number, "thinktime", "0"),
            (Number, "thinktime_spin", "0"),
            (Number, "thinktime_blocks", "1"),
            (Text, "thinktime_blocks_type", "complete"),
            (Number, "thinktime_iotime", "0"),
        ],
    ),
    (
        NotDone("a job goes on with any rate and any latency, and at an even pace"),
        &[
            (Number, "rate_min ratemin", "0"),
            (Number, "rate_iops_min", "0"),
            (Text, "rate_process", "linear"),
            (Number, "rate_cycle ratecycle", "1000"),
            (Boolean, "rate_ignore_thinktime", "0"),
            (Number, "max_latency", "0"),
            (Number, "latency_target", "0"),
            (Number, "latency_window", "0"),
            (Text, "latency_percentile", "100"),
            (Boolean, "latency_run", "0"),
        ],
    ),
    (
        NotDone("each job runs to its own end, and waits for none but by stonewall"),
        &[
            (Text, "wait_for", ""),
            (Flag, "exitall", "0"),
            (Text, "exit_what", "group"),
            (Number, "flow", "0"),
            (Number, "flow_id", "0"),
            (Number, "flow_sleep", "0"),
        ],
    ),
    (
        NotDone("a job accesses the files of filename, or one that has its name"),
        &[
            (Number, "nrfiles nr_files", "1"),
            (Text, "file_service_type", "roundrobin"),
            (Boolean, "file_append", "0"),
            (Boolean, "fill_device fill_fs", "0"),
            (Text, "filename_format", "$jobname.$jobnum.$filenum"),
        ],
    ),
    (
        NotDone("places and sizes are chosen without it"),
        &[
            (Number, "offset_increment", "0 0%"),
            (Number, "offset_align", "0"),
            (Number, "ba blockalign", ""),
            (Flag, "bs_unaligned blocksize_unaligned", "0"),
            (Boolean, "bs_is_seq_rand", "0"),
            (Number, "percentage_random", "100"),
            (Text, "rw_sequencer", "sequential"),
            (Text, "random_generator", "tausworthe"),
            (Boolean, "softrandommap", "0"),
            (Boolean, "allrandrepeat", "0"),
        ],
    ),
    (
        NotDone("zones of a device are not handled"),
        &[
            (Number, "zonesize", "0"),
            (Number, "zonecapacity", "0"),
            (Number, "zonerange", "0"),
            (Number, "zoneskip", "0"),
            (Boolean, "read_beyond_wp", "0"),
            (Number, "max_open_zones", "0"),
            (Number, "job_max_open_zones", "0"),
            (Boolean, "ignore_zone_limits", "0"),
            (Text, "zone_reset_threshold", ""),
            (Text, "zone_reset_frequency", ""),
        ],
    ),
    (
        NotDone("kernels send no trims"),
        &[
            (Number, "trim_percentage", "0"),
            (Boolean, "trim_verify_zero", "0"),
            (Number, "trim_backlog", "0"),
            (Number, "trim_backlog_batch", "0"),
        ],
    ),
    (
        NotDone("blocks have the content that bench nvme writes"),
        &[
            (Flag, "zero_buffers", "0"),
            (Flag, "refill_buffers", "0"),
            (Boolean, "scramble_buffers", "0 1"),
            (Text, "buffer_pattern", ""),
            (Number, "buffer_compress_percentage", "0"),
            (Number, "buffer_compress_chunk", "512"),
            (Number, "dedupe_percentage", "0"),
            (Boolean, "dedupe_global", "0"),
            (Text, "dedupe_mode", "repeat"),
            (Number, "dedupe_working_set_percentage", "5"),
            (Text, "write_hint", "none"),
        ],
    ),
    (NotDone("commands in flight may access the same blocks"), &[(Boolean, "serialize_overlap", "0")]),
    (NotDone("no program is started"), &[(Text, "exec_prerun", ""), (Text, "exec_postrun", "")]),
    (
        Refused("it replays a record of accesses; leave this job out, or write rw, bs and size instead"),
        &[(Text, "read_iolog", "")],
    ),
    (Refused("it makes other jobs than the file says; write them as sections"), &[(Text, "profile", "")]),
    (Refused("the job would only create its files; leave it out"), &[(Boolean, "create_only", "0")]),
    (
        Refused("the job would check the data of another run; write rw=read with verify, or leave it out"),
        &[(Flag, "verify_only", "0")],
    ),
    (Refused("it names all files of a folder; write them in filename"), &[(Text, "opendir", "")]),
    (
        Refused("zones of a device are not handled; leave this job out, or write offset and size"),
        &[(Text, "zonemode", "none")],
    ),
    (
        Refused("fio 3.33 refuses it as deprecated; leave it out"),
        &[(Text, "percentage_sequential", ""), (Text, "rwmixcycle", "")],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_aliases_are_unique_and_lead_to_one_option() {
        let mut seen = BTreeSet::new();
        for known in all() {
            for name in [Some(known.name), known.alias].into_iter().flatten() {
                assert!(seen.insert(name), "{name} is there twice");
                assert_eq!(find(name).map(|found| found.name), Some(known.name));
            }
        }
        // As many as fio 3.33 has: deprecated ones, 11 of profiles and that of its CUDA builds included.
        assert_eq!(seen.len(), 259);
        assert_eq!(find("readwrite").map(|known| known.name), Some("rw"));
        assert_eq!(find("RW"), None);
    }

    #[test]
    fn a_value_that_changes_nothing_is_not_missed() {
        let treatment = |key: &str, value| find(key).map(|known| known.treatment_of(value));
        let idle = Some(Treatment::NotApplicable("this value changes nothing"));
        for (key, value) in
            [("fsync", "0"), ("sync", "none"), ("sync", "0"), ("zonemode", "none"), ("create_only", "0")]
        {
            assert_eq!(treatment(key, Some(value)), idle, "{key}={value}");
        }
        let text = |key: &str, value| treatment(key, value).map(|t| t.to_string()).unwrap_or_default();
        assert_eq!(text("fsync", Some("1")), "not done here: no flush is between the writes");
        assert_eq!(text("ioengine", Some("libaio")), "not applicable here: kernels submit commands and wait for them");
        assert_eq!(text("gpu_dev_id", Some("0")), "said by --engine gpu:N");
        assert!(text("verify_only", None).starts_with("refused: the job would check"));
    }
}
