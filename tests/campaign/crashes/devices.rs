//! Devices of a recording: their number, how they belong together, and the back end that writes their files.

use super::recorder::Recorder;
use crate::random::Random;
use std::fs::File;
use std::path::{Path, PathBuf};
use warpbell::engine::Engine;
use warpbell::nvme::qtest::{self, QtestConfig, QtestNamespace};
use warpbell::storage::{Drive, OverwritePolicy, Volume};

/// Bytes of each device.
pub(super) const BYTES: u64 = 3 << 20;
/// Memory of QEMU's controller for queues and data.
const QEMU_RAM: u64 = 64 << 20;

/// Back end that writes the file of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackEnd {
    Pwrite,
    Uring,
    Mmap,
    Qemu,
}

impl BackEnd {
    pub(super) const ALL: [Self; 4] = [Self::Pwrite, Self::Uring, Self::Mmap, Self::Qemu];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pwrite => "pwrite",
            Self::Uring => "io_uring",
            Self::Mmap => "mmap",
            Self::Qemu => "QEMU",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Uring => "io=uring",
            Self::Mmap => "io=mmap",
            Self::Pwrite | Self::Qemu => "io=pread",
        }
    }
}

/// Number and kind of the devices of a volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) devices: usize,
    pub(super) replicated: bool,
    pub(super) page_checksums: bool,
    block: u32,
}

impl Shape {
    pub(super) fn of(random: &mut Random, copies_only: bool) -> Self {
        let replicated = copies_only || random.once_in(2);
        let devices = if replicated { 2 + random.below(2) as usize } else { 1 + random.below(2) as usize };
        Self { devices, replicated, page_checksums: random.once_in(2), block: random.of(&[512, 512, 4096]) }
    }

    /// Opens the volume.
    pub(super) fn open(
        self,
        engine: &Engine,
        paths: &[PathBuf],
        back_end: BackEnd,
        recorder: Option<&Recorder>,
        overwrites: bool,
    ) -> Result<Volume, String> {
        let mut drives = Vec::new();
        for (i, path) in paths.iter().enumerate() {
            // Entries of QEMU's log are put among the events of the others: those of two QEMUs would have no order.
            drives.push(match recorder.filter(|_| back_end == BackEnd::Qemu && i == 0 && !overwrites) {
                Some(recorder) => logged_by_qemu(path, self.block, recorder)?,
                None => {
                    let spec = format!("soft:{},threads=1,block={},{}", path.display(), self.block, back_end.option());
                    let policy = OverwritePolicy::to_destroy([path]);
                    let drive = if overwrites { Drive::create(&spec, BYTES, &policy) } else { Drive::open(&spec) };
                    drive.map_err(|e| e.to_string())?
                }
            });
        }
        let builder = Volume::on(engine, drives).replicated(self.replicated).chunk(4096).queues(2).depth(16);
        let builder = if self.page_checksums { builder.page_checksums(true) } else { builder };
        builder.build().map_err(|e| format!("the volume does not open: {e}"))
    }
}

/// Opens QEMU's controller over a file, with a log of its writes beside the file.
fn logged_by_qemu(path: &Path, block: u32, recorder: &Recorder) -> Result<Drive, String> {
    let log = path.with_extension("log");
    File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
    recorder.follow(0, &log).map_err(|e| format!("{}: {e}", log.display()))?;
    let mut namespace = QtestNamespace::new(path).block_bytes(block);
    let log = log.display().to_string().replace(',', ",,");
    namespace.drive_options =
        vec!["driver=blklogwrites".to_owned(), "log.driver=file".to_owned(), format!("log.filename={log}")];
    let config = QtestConfig::new(namespace).ram_bytes(QEMU_RAM);
    Drive::attach(qtest::start(config).map_err(|e| e.to_string())?, None).map_err(|e| e.to_string())
}

/// Returns true if QEMU is there.
pub(super) fn has_qemu() -> bool {
    let program = std::env::var_os("WARPBELL_QEMU").unwrap_or_else(|| "qemu-system-x86_64".into());
    std::process::Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success())
}
