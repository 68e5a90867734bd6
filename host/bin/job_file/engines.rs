//! Options that only some I/O engines of fio 3.33 have. None is applied, because kernels submit the commands.

/// I/O engine of a job without `ioengine`.
pub const DEFAULT: &str = "psync";

/// I/O engines that complete a command before they return: fio keeps one in flight, whatever `iodepth` says.
const SYNCHRONOUS: &[&str] =
    &["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "libcufile", "libpmem", "dev-dax", "pmemblk"];

/// I/O engines, and the options that they have in common. An engine may be in several rows.
const ROWS: &[(&[&str], &[&str])] = &[
    (&["io_uring", "io_uring_cmd", "pvsync2", "sg", "xnvme"], &["hipri"]),
    (&["io_uring", "io_uring_cmd", "pvsync2"], &["uncached"]),
    (&["io_uring", "io_uring_cmd", "pvsync2", "libaio"], &["nowait"]),
    (&["pvsync2"], &["hipri_percentage"]),
    (&["io_uring", "io_uring_cmd", "libaio"], &["cmdprio_percentage", "cmdprio_class", "cmdprio", "cmdprio_bssplit"]),
    (
        &["io_uring", "io_uring_cmd"],
        &["fixedbufs", "registerfiles", "sqthread_poll_cpu", "nonvectored", "force_async", "cmd_type"],
    ),
    (&["io_uring", "io_uring_cmd", "xnvme"], &["sqthread_poll"]),
    (&["xnvme"], &["xnvme_be", "xnvme_async", "xnvme_sync", "xnvme_admin", "xnvme_dev_nsid", "xnvme_iovec"]),
    (&["libaio"], &["userspace_reap"]),
    (&["libcufile"], &["gpu_dev_ids", "cuda_io"]),
    (&["mmap"], &["thp"]),
    (&["sg"], &["readfua", "writefua", "sg_write_mode", "stream_id"]),
    (&["mtd"], &["skip_bad"]),
    (&["nbd"], &["uri"]),
    (&["cpuio"], &["cpuload", "cpumode", "cpuchunks", "exit_on_io_done"]),
    (&["exec"], &["program", "arguments", "grace_time", "std_redirect"]),
    (&["filecreate", "filestat", "filedelete"], &["stat_type"]),
    (&["e4defrag"], &["donorname", "inplace"]),
    (&["gfapi", "gfapi_async"], &["volume", "brick", "single-instance"]),
    (&["net", "netsplice", "rdma", "libhdfs"], &["hostname"]),
    (&["net", "netsplice", "rdma", "libhdfs"], &["port"]),
    (
        &["net", "netsplice"],
        &["protocol", "proto", "nodelay", "listen", "pingpong", "interface", "ttl", "window_size", "mss"],
    ),
    (&["rdma"], &["bindname", "verb", "proto"]),
    (&["rados", "rbd", "dfs"], &["pool"]),
    (&["rados", "rbd"], &["clustername", "clientname", "busy_poll"]),
    (&["rados"], &["conf", "touch_objects"]),
    (&["rbd"], &["rbdname"]),
    (&["dfs"], &["cont", "chunk_size", "object_class", "svcl"]),
    (
        &["http"],
        &[
            "https",
            "http_host",
            "http_user",
            "http_pass",
            "http_s3_key",
            "http_s3_keyid",
            "http_swift_auth_token",
            "http_s3_region",
            "http_s3_sse_customer_key",
            "http_s3_sse_customer_algorithm",
            "http_s3_storage_class",
            "http_mode",
            "http_verbose",
        ],
    ),
    (&["libhdfs"], &["namenode", "hdfsdirectory", "chunck_size", "single_instance", "hdfs_use_direct"]),
    (&["libiscsi"], &["initiator"]),
    (&["nfs"], &["nfs_url"]),
    (&["windowsaio"], &["no_completion_thread"]),
    (
        &["librpma_apm_client", "librpma_gpspm_client", "librpma_apm_server", "librpma_gpspm_server"],
        &["serverip", "port", "direct_write_to_pmem", "busy_wait_polling"],
    ),
];

/// Returns true if the I/O engine keeps one command in flight.
pub fn is_synchronous(engine: &str) -> bool {
    SYNCHRONOUS.contains(&engine)
}

/// Returns the engines that have an option of this name, and the name; `None` if none has it.
pub fn having(key: &str) -> Option<(&'static str, Vec<&'static str>)> {
    let rows = ROWS.iter().filter_map(|(engines, options)| Some((engines, options.iter().find(|o| **o == key)?)));
    let (mut name, mut all) = (None, Vec::new());
    for (engines, option) in rows {
        name = Some(*option);
        all.extend(engines.iter().copied());
    }
    Some((name?, all))
}

/// Returns the names of all options of engines.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().flat_map(|(_, options)| options.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_file::known;

    #[test]
    fn options_belong_to_engines() {
        assert_eq!(having("gpu_dev_ids"), Some(("gpu_dev_ids", vec!["libcufile"])));
        assert_eq!(having("proto").map(|(_, engines)| engines), Some(vec!["net", "netsplice", "rdma"]));
        assert_eq!(having("hipri_percentages"), None);
        assert!(is_synchronous(DEFAULT) && !is_synchronous("io_uring"));
        assert_eq!(names().find(|name| known::find(name).is_some()), None, "an option of all engines");
    }
}
