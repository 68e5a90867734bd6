//! Configuration of QEMU's NVMe model, and its text form.

use super::QtestError;
use crate::setters::setters;
use crate::spec::{DeviceSpec, NO_NAMESPACE, Name, Scheme, SpecError, number, size};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Sizes of a logical block that QEMU supports.
const BLOCKS: [u32; 4] = [512, 1024, 2048, 4096];
/// Largest number of metadata bytes per block: more than any drive has.
const MOST_METADATA: u16 = 128;
const DEFAULT_RAM: u64 = 256 << 20;
/// Up to this size, q35 keeps RAM in one range from 0. It splits more RAM around the hole below 4 GiB.
pub(super) const MAX_RAM: u64 = 2 << 30;
const MIN_RAM: u64 = 16 << 20;

/// One namespace: a raw image file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QtestNamespace {
    /// Image file.
    pub file: PathBuf,
    /// Size of a logical block in bytes: 512, 1024, 2048 or 4096.
    pub block_bytes: u32,
    /// Metadata bytes per block. The driver refuses namespaces that have any.
    pub metadata_bytes: u16,
    /// blkdebug configuration, which injects errors at chosen sectors of 512 bytes.
    pub blkdebug: Option<PathBuf>,
    /// Further `-drive` options, as in `throttling.iops-total=1`.
    pub drive_options: Vec<String>,
}

impl QtestNamespace {
    /// Creates a namespace from an image, with blocks of 512 bytes.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), block_bytes: 512, metadata_bytes: 0, blkdebug: None, drive_options: Vec::new() }
    }

    /// Sets the block size in bytes.
    #[cfg(feature = "internals")]
    pub fn block_bytes(self, block_bytes: u32) -> Self {
        Self { block_bytes, ..self }
    }
}

/// Configuration of QEMU's NVMe model: its namespaces and sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QtestConfig {
    /// Namespaces, numbered from 1.
    pub namespaces: Vec<QtestNamespace>,
    /// Size of QEMU's RAM in bytes, which holds queues and data.
    pub ram_bytes: u64,
    /// Number of I/O queue pairs of the controller. QEMU's default is 64.
    pub max_queues: Option<u16>,
    /// Largest transfer as a power of two of 4096 bytes. QEMU's default is 7, which is 512 KiB.
    pub mdts: Option<u8>,
    /// Serial number.
    pub serial: String,
    /// Further `-device nvme` options, as in `cmb_size_mb=16`.
    pub controller_options: Vec<String>,
    /// Path of QEMU. `None` stands for WARPBELL_QEMU, or otherwise `qemu-system-x86_64` on PATH.
    pub qemu: Option<PathBuf>,
}

setters!(QtestConfig {
    namespaces: Vec<QtestNamespace>,
    ram_bytes: u64,
    max_queues: Option<u16>,
    mdts: Option<u8>,
    serial: String,
    controller_options: Vec<String>,
    qemu: Option<PathBuf>,
});

impl QtestConfig {
    /// Creates a configuration with one namespace.
    pub fn new(namespace: QtestNamespace) -> Self {
        Self {
            namespaces: vec![namespace],
            ram_bytes: DEFAULT_RAM,
            max_queues: None,
            mdts: None,
            serial: "WARPBELL".to_owned(),
            controller_options: Vec::new(),
            qemu: None,
        }
    }

    /// Parses the part of a device's name that follows `qtest:`:
    /// `FILE[,block=512|4096][,metadata=N][,blkdebug=FILE][,throttle-iops=N][,file=FILE...][,ram=256M][,queues=N][,mdts=N][,serial=TEXT]`.
    ///
    /// `file=` begins a further namespace. The options up to `throttle-iops=` that follow it belong to that namespace.
    /// Sizes take k, M, G and T. [`DeviceSpec`] says how commas in names are written.
    ///
    /// # Errors
    /// Those of [`DeviceSpec::of`], and [`SpecError::BadOption`] if a value does not fit its option.
    #[cfg(feature = "internals")]
    pub fn parse(spec: &str) -> Result<Self, SpecError> {
        Self::try_from(&DeviceSpec::of(Scheme::Qtest, spec.as_ref())?)
    }

    /// Checks the configuration, because QEMU's own errors are less clear.
    pub(super) fn check(&self) -> Result<(), QtestError> {
        let bad = |reason: String| Err(QtestError::Config { reason });
        if self.namespaces.is_empty() {
            return bad("there is no namespace; name an image file".to_owned());
        }
        if !(MIN_RAM..=MAX_RAM).contains(&self.ram_bytes) || !self.ram_bytes.is_multiple_of(1 << 20) {
            let (least, most) = (MIN_RAM >> 20, MAX_RAM >> 20);
            return bad(format!("{} bytes of RAM: use {least} to {most} MiB, in whole MiB", self.ram_bytes));
        }
        if self.max_queues == Some(0) {
            return bad("0 queues; the controller has at least one".to_owned());
        }
        for n in &self.namespaces {
            if !BLOCKS.contains(&n.block_bytes) {
                let (file, bytes) = (n.file.display(), n.block_bytes);
                return bad(format!("{file}: blocks of {bytes} bytes: use 512, 1024, 2048 or 4096"));
            }
            for file in std::iter::once(&n.file).chain(&n.blkdebug) {
                let length =
                    std::fs::metadata(file).map_err(|source| QtestError::File { file: file.clone(), source })?.len();
                if file == &n.file && length < u64::from(n.block_bytes) {
                    return bad(format!(
                        "{}: {length} bytes are less than one block of {}; make it larger with truncate -s 64M",
                        file.display(),
                        n.block_bytes
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns QEMU's arguments. `ram` and `socket` are the descriptors that QEMU inherits.
    pub(super) fn arguments(&self, ram: i32, socket: i32) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        let mut add = |list: &[&str]| args.extend(list.iter().map(OsString::from));
        // TCG, stopped from the start: no guest instruction ever runs, only the device model does.
        add(&[
            "-machine",
            "q35,accel=tcg,memory-backend=ram",
            "-S",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
        ]);
        add(&["-m", &format!("{}", self.ram_bytes >> 20)]);
        add(&[
            "-object",
            &format!("memory-backend-file,id=ram,size={},mem-path=/proc/self/fd/{ram},share=on", self.ram_bytes),
        ]);
        // `-qtest chardev:` accepts only a character device of this name.
        add(&["-chardev", &format!("socket,id=qtest,fd={socket}"), "-qtest", "chardev:qtest", "-qtest-log", "none"]);
        let mut controller = format!("nvme,id=nvme0,addr={:02x}.0,serial={}", super::PCI_SLOT, escape(&self.serial));
        if let Some(n) = self.max_queues {
            // One interrupt vector for each pair and one for the admin queue, as drives have. QEMU 7.2 and 10.0 grant as
            // many pairs with fewer vectors, too.
            controller += &format!(",max_ioqpairs={n},msix_qsize={}", u32::from(n).saturating_add(1).min(2048));
        }
        if let Some(n) = self.mdts {
            controller += &format!(",mdts={n}");
        }
        for option in &self.controller_options {
            controller += &format!(",{option}");
        }
        add(&["-device", &controller]);
        for (i, n) in self.namespaces.iter().enumerate() {
            let mut drive = OsString::from(format!("if=none,id=d{i},driver=raw"));
            let mut path = |key: &str, file: &Path| {
                drive.push(format!(",{key}="));
                drive.push(escape_path(file));
            };
            match &n.blkdebug {
                None => path("file.filename", &n.file),
                Some(config) => {
                    path("file.config", config);
                    path("file.image.filename", &n.file);
                }
            }
            drive.push(match n.blkdebug {
                None => ",file.driver=file",
                Some(_) => ",file.driver=blkdebug,file.image.driver=file",
            });
            for option in &n.drive_options {
                drive.push(format!(",{option}"));
            }
            args.extend(["-drive".into(), drive]);
            let (nsid, block, metadata) = (i + 1, n.block_bytes, n.metadata_bytes);
            let mut device = format!(
                "nvme-ns,drive=d{i},bus=nvme0,nsid={nsid},logical_block_size={block},physical_block_size={block}"
            );
            if metadata != 0 {
                device += &format!(",ms={metadata}");
            }
            args.extend(["-device".into(), device.into()]);
        }
        args
    }
}

impl TryFrom<&DeviceSpec> for QtestConfig {
    type Error = SpecError;

    /// Parses the name and the options of a `qtest:` specification, as [`QtestConfig::parse`] does.
    fn try_from(spec: &DeviceSpec) -> Result<Self, SpecError> {
        let Name::QtestFile(file) = spec.name() else { return Err(spec.other_scheme(Scheme::Qtest)) };
        let mut config = Self { namespaces: Vec::new(), ..Self::new(QtestNamespace::new(file)) };
        let mut namespace = QtestNamespace::new(file);
        for option in spec.options() {
            match option.key() {
                "file" => {
                    let next = QtestNamespace::new(option.path());
                    config.namespaces.push(std::mem::replace(&mut namespace, next));
                }
                "block" => {
                    let known = |t: &str| size(t).and_then(|b| u32::try_from(b).ok()).filter(|b| BLOCKS.contains(b));
                    namespace.block_bytes = option.read(known)?;
                }
                "metadata" => namespace.metadata_bytes = option.read(|t| number(t).filter(|n| *n <= MOST_METADATA))?,
                "throttle-iops" => {
                    let iops: u32 = option.read(number)?;
                    namespace.drive_options.push(format!("throttling.iops-total={iops}"));
                }
                "blkdebug" => namespace.blkdebug = Some(option.path()),
                "ram" => config.ram_bytes = option.read(size)?,
                "queues" => config.max_queues = Some(option.read(number)?),
                "mdts" => config.mdts = Some(option.read(number)?),
                "serial" => config.serial = option.read(|t| Some(t.to_owned()))?,
                _ => return Err(option.refuse(NO_NAMESPACE)),
            }
        }
        config.namespaces.push(namespace);
        Ok(config)
    }
}

/// Doubles commas: QEMU's option syntax requires it for commas in values.
fn escape(text: &str) -> String {
    text.replace(',', ",,")
}

fn escape_path(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = path.as_os_str().as_bytes();
    let doubled = bytes.iter().flat_map(|&b| std::iter::repeat_n(b, if b == b',' { 2 } else { 1 }));
    OsString::from_vec(doubled.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_spec_with_everything() {
        let c = QtestConfig::parse(
            "a.img,block=4096,ram=64M,queues=3,mdts=5,serial=X,file=b.img,blkdebug=e.conf,metadata=8,throttle-iops=1",
        )
        .unwrap();
        assert_eq!(c.namespaces.len(), 2);
        assert_eq!((c.namespaces[0].file.as_path(), c.namespaces[0].block_bytes), (Path::new("a.img"), 4096));
        assert_eq!(c.namespaces[1].block_bytes, 512);
        assert_eq!(c.namespaces[1].blkdebug.as_deref(), Some(Path::new("e.conf")));
        assert_eq!((c.namespaces[0].metadata_bytes, c.namespaces[1].metadata_bytes), (0, 8));
        assert_eq!(c.namespaces[1].drive_options, ["throttling.iops-total=1"]);
        assert_eq!((c.ram_bytes, c.max_queues, c.mdts, c.serial.as_str()), (64 << 20, Some(3), Some(5), "X"));
        assert_eq!(QtestConfig::parse("a.img").unwrap(), QtestConfig::new(QtestNamespace::new("a.img")));
    }

    #[test]
    fn names_may_hold_commas() {
        let c = QtestConfig::parse(r"a\,b\c.img,block=4096").unwrap();
        assert_eq!((c.namespaces[0].file.to_str(), c.namespaces[0].block_bytes), (Some(r"a,b\c.img"), 4096));
    }

    #[test]
    fn wrong_specs_say_what_is_wrong() {
        for (spec, word) in [
            ("", "names no image file"),
            ("a,block=8192", "512, 1024, 2048 or 4096"),
            ("a,ram=lots", "`ram=lots`: expected a size"),
            ("a,queues=70000", "0 to 65535"),
            ("a,depth=4", "no option `depth`"),
            ("a,block", "`block`: it needs a value: 512, 1024"),
            ("a,block=", "`block=`: it needs a value: 512, 1024"),
            ("a,nsid=2", "`nsid=2`: it selects one namespace"),
        ] {
            let text = QtestConfig::parse(spec).unwrap_err().to_string();
            assert!(text.contains(word), "{spec}: {text}");
        }
    }

    #[test]
    fn what_cannot_be_started_is_refused_first() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let with = |f: &dyn Fn(&mut QtestConfig)| {
            let mut c = QtestConfig::new(QtestNamespace::new(image.path()));
            f(&mut c);
            c.check().unwrap_err().to_string()
        };
        assert!(with(&|_| ()).contains("less than one block"));
        image.as_file().set_len(4096).unwrap();
        assert!(with(&|c| c.ram_bytes = 4 << 30).contains("2048 MiB"));
        assert!(with(&|c| c.namespaces[0].file = "/nowhere/at/all".into()).contains("/nowhere/at/all"));
        assert!(with(&|c| c.namespaces.clear()).contains("no namespace"));
        assert!(with(&|c| c.max_queues = Some(0)).contains("at least one"));
    }

    #[test]
    fn commas_in_names_are_doubled() {
        let c = QtestConfig::new(QtestNamespace::new("x,y.img"));
        assert!(c.arguments(3, 4).iter().any(|a| a.to_string_lossy().contains("file.filename=x,,y.img,")));
    }

    proptest! {
        #[test]
        fn no_spec_panics(spec in ".{0,60}") {
            let _ = QtestConfig::parse(&spec);
        }
    }
}
