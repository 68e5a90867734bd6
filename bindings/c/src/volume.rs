//! Volumes: devices whose blocks kernels and the host read and write.

use crate::engine::{as_json, wb_engine_t};
use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::options::{self, Options, owned_text};
use crate::pointer::{In, Out, Owned, Text};
use serde_json::json;
use std::ffi::{c_char, c_void};
use std::fmt::Display;
use std::str::FromStr;
use warpbell::engine::abi::{Stats as wb_stats, VolumeView as wb_volume_view};
use warpbell::storage::{Drive, DriveSpec, OverwritePolicy, Stats, Volume, VolumeBuilder};

/// Devices with queues to which kernels submit commands. `wb_volume_open` and `wb_volume_create` make it.
pub struct wb_volume_t {
    _private: (),
}

object!(wb_volume_t: Volume, "volume");

/// A switch of options: as the library chooses.
pub const WB_DEFAULT: u32 = 0;
/// A switch of options: on.
pub const WB_ON: u32 = 1;
/// A switch of options: off.
pub const WB_OFF: u32 = 2;

/// Options of `wb_volume_open` and `wb_volume_create`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_volume_options {
    /// `sizeof(wb_volume_options)`.
    pub size: usize,
    /// Memory to which devices write data: `auto`, `direct` or `bounce`; null for `auto`.
    pub landing: Text,
    /// Memory of the queues: `auto`, `host`, `gpu` or `cmb`; null for `auto`.
    pub queue_memory: Text,
    /// Writer of the doorbells: `auto`, `gpu` or `cpu`; null for `auto`.
    pub doorbell: Text,
    /// Backend by which devices get addresses for GPU memory, such as `dmabuf-import`; null for `auto`.
    pub mapping: Text,
    /// Queue pairs on each device; 0 for a number that suits engine and controller.
    pub queues: u32,
    /// Entries of each queue: a power of two, 2 or more; 0 for the default.
    pub depth: u32,
    /// Stripe unit of several devices in bytes; 0 for 128 KiB. A stored volume is opened with the one that it has.
    pub chunk_bytes: u64,
    /// Bytes that one command must be able to move; 0 for 4096, or as `for_segments` has it.
    pub transfer_bytes: usize,
    /// 1 makes every device hold all blocks; otherwise several devices are striped.
    pub replicated: u32,
    /// Checksums for each 4096 bytes of arrays: `WB_ON` stores them, `WB_OFF` ignores them, `WB_DEFAULT` stores arrays as
    /// those before them and uses stored checksums.
    pub page_checksums: u32,
    /// Limit of one wait inside a kernel and of one command of the host, for the whole engine; 0 for the engine's.
    pub deadline_seconds: f64,
    /// 1 opens files of `soft` devices for reading alone. `wb_volume_create` refuses it.
    pub read_only: u32,
    /// 1 suits the queues to segment queues and KV stores, where `transfer_bytes` and `depth` are 0: commands of 128 KiB, or what the
    /// devices take, and on a GPU 16 entries.
    pub for_segments: u32,
    /// Files and devices that `wb_volume_create` may overwrite although they hold data that is not warpbell's; or null.
    pub overwrite: In<Text>,
    /// Number of them.
    pub overwrite_count: usize,
}

// SAFETY: numbers and pointers; the size comes first.
unsafe impl Options for wb_volume_options {
    const NAME: &str = "wb_volume_options";
}

/// Parses a word of the options; null is `None`.
fn word<T: FromStr<Err: Display>>(text: Text, name: &str) -> Result<Option<T>, Error> {
    let parsed = text.optional(name)?.map(str::parse).transpose();
    parsed.map_err(|e: T::Err| Error::argument(format!("`{name}`: {e}")))
}

/// Returns a switch of the options, or `None` for the default.
pub(crate) fn switch(value: u32, name: &str) -> Result<Option<bool>, Error> {
    match value {
        WB_DEFAULT => Ok(None),
        WB_ON => Ok(Some(true)),
        WB_OFF => Ok(Some(false)),
        other => Err(Error::argument(format!("`{name}` is {other}; use WB_DEFAULT, WB_ON or WB_OFF"))),
    }
}

fn apply(mut builder: VolumeBuilder, options: &wb_volume_options) -> Result<VolumeBuilder, Error> {
    if let Some(landing) = word(options.landing, "landing")? {
        builder = builder.landing(landing);
    }
    if let Some(memory) = word(options.queue_memory, "queue_memory")? {
        builder = builder.queue_memory(memory);
    }
    if let Some(doorbell) = word(options.doorbell, "doorbell")? {
        builder = builder.doorbell(doorbell);
    }
    if let Some(mapping) = word(options.mapping, "mapping")? {
        builder = builder.mapping(mapping);
    }
    if options.queues != 0 {
        builder = builder.queues(options.queues);
    }
    if options.depth != 0 {
        builder = builder.depth(options.depth);
    }
    if options.chunk_bytes != 0 {
        builder = builder.chunk(options.chunk_bytes);
    }
    if options.transfer_bytes != 0 {
        builder = builder.transfer(options.transfer_bytes);
    }
    if let Some(wanted) = switch(options.page_checksums, "page_checksums")? {
        builder = builder.page_checksums(wanted);
    }
    if let Some(deadline) = options::seconds(options.deadline_seconds, "deadline_seconds")? {
        builder = builder.deadline(deadline);
    }
    Ok(builder.replicated(options.replicated != 0).for_segments(options.for_segments != 0))
}

fn make(
    engine: In<wb_engine_t>,
    devices: (In<Text>, usize),
    options: In<wb_volume_options>,
    drive: impl Fn(&DriveSpec, &wb_volume_options) -> Result<Drive, Error>,
) -> Result<Volume, Error> {
    let engine = engine.get()?;
    let options = options.read()?;
    let mut specs = Vec::new();
    for device in devices.0.list(devices.1, "devices")? {
        let mut spec: DriveSpec = device.text("an entry of devices")?.parse()?;
        if options.read_only != 0 {
            spec.set_read_only();
        }
        specs.push(spec);
    }
    DriveSpec::check_distinct(&specs)?;
    let drives = specs.iter().map(|spec| drive(spec, &options)).collect::<Result<Vec<_>, _>>()?;
    Ok(apply(Volume::on(engine, drives), &options)?.build()?)
}

/// Opens existing devices as a volume. Creates no file.
///
/// @param devices Device specifications such as `soft:graph.img`, `soft:mem:1G` or `nvme:0000:65:00.0`, in the order in
///   which data was stored on them.
/// @param count Number of devices. Several are striped, or hold copies (`wb_volume_options.replicated`).
/// @param options Options, or null for the defaults.
/// @param volume Receives the volume, with one reference.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` for a specification or an option that is wrong; `WB_ERR_NOT_FOUND` if a file or
///   controller does not exist; `WB_ERR_UNSUPPORTED` if a chosen data path is not available; `WB_ERR_IO` if a device fails;
///   `WB_ERR_TIMEOUT` if one does not respond.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_open(
    engine: In<wb_engine_t>,
    devices: In<Text>,
    count: usize,
    options: In<wb_volume_options>,
    volume: Out<*mut wb_volume_t>,
) -> wb_code {
    guard(|| {
        volume.check("volume")?;
        let made = make(engine, (devices, count), options, |spec, _| Ok(spec.open()?))?;
        volume.give(made)
    })
}

/// Opens devices as a volume to store data on. Files that do not exist are created, and memory without a size gets one.
///
/// A file that exists, or the namespace of a drive, is taken if it is warpbell's own or empty, or if
/// `wb_volume_options.overwrite` names it. A new file gets its name with the first array or graph that is stored, or by
/// `wb_volume_keep`; otherwise nothing of it remains.
///
/// @param devices Device specifications, as for `wb_volume_open`.
/// @param count Number of devices.
/// @param bytes_each Bytes of each new file or memory. `wb_volume_bytes_for` returns those that an array needs.
/// @param options Options, or null for the defaults.
/// @param volume Receives the volume, with one reference.
/// @return As `wb_volume_open`; `WB_ERR_EXISTS` if a device holds data that is not warpbell's, or the system uses it;
///   `WB_ERR_SPACE` if the file system is full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_create(
    engine: In<wb_engine_t>,
    devices: In<Text>,
    count: usize,
    bytes_each: u64,
    options: In<wb_volume_options>,
    volume: Out<*mut wb_volume_t>,
) -> wb_code {
    guard(|| {
        volume.check("volume")?;
        let create = |spec: &DriveSpec, options: &wb_volume_options| {
            if options.read_only != 0 {
                return Err(Error::argument("`read_only` is set; data cannot be stored then: use wb_volume_open"));
            }
            let paths = options.overwrite.list(options.overwrite_count, "overwrite")?;
            let paths = paths.iter().map(|path| path.text("an entry of overwrite"));
            let policy = OverwritePolicy::to_destroy(paths.collect::<Result<Vec<_>, _>>()?);
            Ok(spec.create(bytes_each, &policy)?)
        };
        let made = make(engine, (devices, count), options, create)?;
        volume.give(made)
    })
}

/// Gives files that `wb_volume_create` made their names, before anything is stored.
///
/// @return `WB_OK`; `WB_ERR_IO` if a file of that name has appeared meanwhile, or the file system fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_keep(volume: In<wb_volume_t>) -> wb_code {
    guard(|| Ok(volume.get()?.keep()?))
}

/// Adds a reference to a volume.
///
/// @return The volume; null with an error if it is no volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_retain(volume: Owned<wb_volume_t>) -> *mut wb_volume_t {
    volume.retain()
}

/// Gives a reference to a volume back. Caches, arrays, graphs and runs keep the volume that they use; the devices close
/// after the last of them.
///
/// @param volume The volume; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_release(volume: Owned<wb_volume_t>) {
    volume.release()
}

/// Describes a volume as JSON: data path with the reasons for it, devices, sizes, queues, copies that are left out.
///
/// @param json Receives the text. Free it with `wb_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_info(volume: In<wb_volume_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let v = volume.get()?;
        let devices: Vec<_> = (0..v.devices() as usize).filter_map(|i| v.device_name(i)).collect();
        let facts = json!({
            "name": v.name(), "path": v.path(), "devices": devices,
            "bytes": v.bytes(), "blocks": v.blocks(), "block_bytes": v.block_bytes(),
            "queues": v.queues(), "depth": v.depth(), "max_transfer_bytes": v.max_transfer_bytes(),
            "chunk_bytes": v.chunk_bytes(), "replicated": v.is_replicated(), "in_memory": v.is_in_memory(),
            "redundancy": v.redundancy()?,
        });
        json.write("json", owned_text(as_json(&facts)?))
    })
}

/// Returns the size of a volume in bytes.
///
/// @param bytes Receives the size: the bytes of a block times the number of blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_bytes(volume: In<wb_volume_t>, bytes: Out<u64>) -> wb_code {
    guard(|| {
        let found = volume.get()?.bytes();
        bytes.write("bytes", found)
    })
}

/// Returns the size of a logical block in bytes: 512 to 4096.
///
/// @param bytes Receives the size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_block_bytes(volume: In<wb_volume_t>, bytes: Out<u32>) -> wb_code {
    guard(|| {
        let found = volume.get()?.block_bytes() as u32;
        bytes.write("bytes", found)
    })
}

/// Returns the form in which kernels get a volume: `volume_ref` of `volume.cuh` is made from it.
///
/// @param view Receives the view. It is valid while the program or a run holds the volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_get_view(volume: In<wb_volume_t>, view: Out<wb_volume_view>) -> wb_code {
    guard(|| {
        let found = volume.get()?.view();
        view.write("view", found)
    })
}

/// Reads bytes of a volume into memory of the host.
///
/// @param offset First byte of the volume; any number.
/// @param data Destination.
/// @param bytes Number of bytes.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the range lies outside the volume; `WB_ERR_IO` if a device fails the command;
///   `WB_ERR_TIMEOUT` if one does not respond; `WB_ERR_UNSUPPORTED` if running kernels have all queue pairs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_read(
    volume: In<wb_volume_t>,
    offset: u64,
    mut data: Out<c_void>,
    bytes: usize,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        Ok(volume.get()?.read_bytes(offset, data)?)
    })
}

/// Writes bytes of the host's memory to a volume. They are on the medium after `wb_volume_flush`. Caches do not notice.
///
/// @param offset First byte of the volume; any number. Nothing else may write to a block that the range covers in part.
/// @param data Source.
/// @param bytes Number of bytes.
/// @return As `wb_volume_read`; `WB_ERR_SPACE` if the file system below a device is full.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_write(
    volume: In<wb_volume_t>,
    offset: u64,
    data: In<c_void>,
    bytes: usize,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        Ok(volume.get()?.write_bytes(offset, data)?)
    })
}

/// Makes completed writes durable, and records which stored arrays have changed. `wb_cache_flush` includes it.
///
/// @return `WB_OK`; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_flush(volume: In<wb_volume_t>) -> wb_code {
    guard(|| Ok(volume.get()?.flush()?))
}

/// Checks the state of all devices. After a run that ended with time-outs, the error is the reason.
///
/// @return `WB_OK`; `WB_ERR_IO` if a controller is gone, has failed, or has lost its queues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_check(volume: In<wb_volume_t>) -> wb_code {
    guard(|| Ok(volume.get()?.check()?))
}

/// Makes a volume usable again after a run that ended with time-outs, or after its controller failed. Stops runs in flight
/// first, which other threads then finish or release.
///
/// @param json Receives a report: runs that were stopped, the steps taken on each device, pages of caches. Free it with
///   `wb_string_free`. May be null.
/// @return `WB_OK`; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a controller cannot be recovered; `WB_ERR_UNSUPPORTED` if a run is
///   neither finished nor released within ten seconds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_recover(volume: In<wb_volume_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        let done = volume.get()?.recover()?;
        if json.is_null() {
            return Ok(());
        }
        let report = json!({
            "stopped_runs": done.stopped_runs,
            "devices": done.devices.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "pages_emptied": done.pages_emptied, "pages_dirty": done.pages_dirty,
        });
        json.write("json", owned_text(as_json(&report)?))
    })
}

/// Sets the limit of one wait inside a kernel and of one command of the host, for the whole engine.
///
/// @param seconds The limit; 0 for the default of 10 s.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_set_deadline(volume: In<wb_volume_t>, seconds: f64) -> wb_code {
    guard(|| {
        let deadline = options::seconds(seconds, "seconds")?.unwrap_or(warpbell::engine::DEFAULT_DEADLINE);
        Ok(volume.get()?.set_deadline(deadline)?)
    })
}

/// Returns the counters of a volume and its caches, since the volume was opened or `wb_volume_reset_stats`.
///
/// @param stats Receives the counters. Those of two calls differ by what happened in between.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_stats(volume: In<wb_volume_t>, stats: Out<wb_stats>) -> wb_code {
    guard(|| {
        let found = volume.get()?.stats()?;
        stats.write("stats", counters(&found))
    })
}

/// Returns counters in the form of the header.
pub(crate) fn counters(s: &Stats) -> wb_stats {
    wb_stats {
        reads: s.reads,
        read_bytes: s.read_bytes,
        writes: s.writes,
        write_bytes: s.write_bytes,
        hits: s.hits,
        misses: s.misses,
        fills: s.fills,
        write_backs: s.write_backs,
        evictions: s.evictions,
        prefetches: s.prefetches,
        retries: s.retries,
        doorbells: s.doorbells,
        errors: s.errors,
        redirects: s.redirects,
        repairs: s.repairs,
        reserved: [0],
    }
}

/// Sets all counters of a volume to 0.
///
/// @note Not while kernels run: counts of that time may be lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_volume_reset_stats(volume: In<wb_volume_t>) -> wb_code {
    guard(|| Ok(volume.get()?.reset_stats()?))
}
