//! Specifications of drives: `soft:mem:1G`, `soft:edges.img`, `qtest:disk.img`, `nvme:0000:65:00.0`,
//! `nvmf:tcp://10.0.0.2/nqn.2026-01.org.example:data`.

use super::nvme::NvmeSpec;
use super::soft::SoftDrive;
use super::target::{self, NewFile, OverwritePolicy, Target};
use super::{Drive, OpenController, naming};
use crate::file_identity::{FileIdentity, place};
use crate::nvme::Attachment;
use crate::nvme::fabrics::{FabricsConfig, FabricsError, FabricsTransport};
use crate::nvme::qtest::{self, QtestConfig};
use crate::pci::{FoundController, Sysfs, find};
use crate::spec::{DeviceSpec, Name, SpecError, number};
use crate::storage::error::StorageError;
use crate::storage::format::ARRAY_ALIGN;
use std::any::Any;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Specification of a device with parsed options. The device is not opened yet.
///
/// # Examples
///
/// ```
/// use std::ffi::OsStr;
/// use warpbell::storage::DriveSpec;
///
/// let spec = DriveSpec::named(OsStr::new("soft:mem,threads=2"))?;
/// assert_eq!(spec.spec().to_string(), "soft:mem,threads=2");
/// // An unknown option is an error that names the one that was meant.
/// let error = DriveSpec::named(OsStr::new("soft:mem,thread=2")).unwrap_err();
/// assert!(error.to_string().contains("threads"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DriveSpec {
    spec: DeviceSpec,
    config: Config,
    /// Namespace identifier, from 1.
    nsid: Option<NonZeroU32>,
}

#[derive(Clone, Debug)]
enum Config {
    Soft(SoftDrive),
    Qtest(Box<QtestConfig>),
    Nvme(NvmeSpec),
    Remote(Box<FabricsConfig>),
}

impl TryFrom<DeviceSpec> for DriveSpec {
    type Error = StorageError;

    /// Parses the options. `nsid=N` chooses a namespace; the default is the first. `soft` devices take the options of
    /// [`SoftConfig::parse`](crate::soft::nvme::SoftConfig::parse), `qtest` devices those of [`QtestConfig::parse`].
    /// `nvme` devices take `api=auto|group|cdev` and `unsafe-no-iommu`, `nvmf` devices the options of
    /// [`FabricsConfig::parse`].
    ///
    /// # Errors
    /// [`StorageError::Spec`] for an option that is unknown or has a bad value, and for the name of a namespace instead
    /// of a controller.
    fn try_from(spec: DeviceSpec) -> Result<Self, StorageError> {
        let bad = |reason: String| StorageError::Spec { spec: spec.to_string(), reason };
        let (config, nsid) = Config::read(&spec).map_err(|e| bad(e.to_string()))?;
        if let Name::Controller(name) = spec.name()
            && let Some(reason) = naming::namespace(&Sysfs::system(), name)
        {
            return Err(bad(reason));
        }
        Ok(Self { spec, config, nsid })
    }
}

impl FromStr for DriveSpec {
    type Err = StorageError;

    /// Parses a specification: [`DriveSpec::named`].
    ///
    /// # Errors
    /// As for [`DriveSpec::named`].
    fn from_str(text: &str) -> Result<Self, StorageError> {
        Self::named(text.as_ref())
    }
}

impl fmt::Display for DriveSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec.fmt(f)
    }
}

impl DriveSpec {
    /// Parses a specification in the grammar of [`DeviceSpec`].
    ///
    /// # Errors
    /// [`StorageError::Spec`]. If `text` is another name of a device of this machine, the message has the specification
    /// to write.
    pub fn named(text: &OsStr) -> Result<Self, StorageError> {
        let bad = |e| StorageError::Spec {
            spec: text.to_string_lossy().into_owned(),
            reason: naming::reason(&Sysfs::system(), text, &e),
        };
        DeviceSpec::from_os_str(text).map_err(bad)?.try_into()
    }

    /// Returns the specification.
    pub fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    /// Divides the default number of a software controller's service threads by `sharers`, the number of processes on
    /// this host that share the processors. Has no effect on other devices, or if the options set the number.
    #[cfg(feature = "internals")]
    pub fn share_processors(&mut self, sharers: usize) {
        if let Config::Soft(soft) = &mut self.config {
            soft.share_processors(sharers);
        }
    }

    /// Opens files of a software controller for reading alone, as other programs may then do, too.
    pub fn set_read_only(&mut self) {
        if let Config::Soft(soft) = &mut self.config {
            soft.set_read_only();
        }
    }

    /// Makes the regular file of a device that is not open at least `bytes` bytes long. Other devices stay as they are.
    ///
    /// # Errors
    /// [`StorageError::File`] if the file cannot be made larger.
    pub fn grow(&self, bytes: u64) -> Result<(), StorageError> {
        let path = self.config.clone().files().into_iter().nth(self.index()).flatten().map(|path| path.clone());
        path.map_or(Ok(()), |path| target::grow(&path, bytes))
    }

    /// Checks that no two specifications name the same device, however they are spelled: the same file, or the same
    /// namespace of a controller.
    ///
    /// # Errors
    /// [`StorageError::Twice`] for the first device that is named twice.
    pub fn check_distinct(specs: &[Self]) -> Result<(), StorageError> {
        let mut seen: HashMap<Identity, usize> = HashMap::new();
        for (i, spec) in specs.iter().enumerate() {
            for (identity, what) in spec.identities() {
                let Some(first) = seen.insert(identity, i) else { continue };
                let (device, first) = (spec.to_string(), specs[first].to_string());
                return Err(StorageError::Twice { device, first, what });
            }
        }
        Ok(())
    }

    /// Returns the identities that the device claims, each with a description.
    fn identities(&self) -> Vec<(Identity, String)> {
        if let Config::Nvme(spec) = &self.config {
            let nsid = self.nsid().unwrap_or(1);
            let name = match find(&Sysfs::system(), &spec.name) {
                Ok(FoundController::At(bdf)) => bdf.to_string(),
                _ => spec.name.clone(),
            };
            let what = format!("namespace {nsid} of {name}");
            return vec![(Identity::Namespace(name, nsid), what)];
        }
        if let Config::Remote(config) = &self.config {
            // Another name or address of the same machine is not recognized, unless it is the address of a path.
            let nsid = self.nsid().unwrap_or(1);
            let identity = |port: FabricsConfig| {
                let name = port.to_string();
                let what = format!("namespace {nsid} of {name}");
                (Identity::Namespace(name, nsid), what)
            };
            return config.for_each_port().map(identity).collect();
        }
        let identity = |path: &mut PathBuf| (Identity::File(FileIdentity::of(path)), place(path).display().to_string());
        self.config.clone().files().into_iter().flatten().map(identity).collect()
    }

    /// Opens an existing device. Creates no file.
    ///
    /// # Errors
    /// * [`StorageError::Spec`] if the options do not fit, or memory has no size.
    /// * [`StorageError::Missing`] if the file does not exist.
    /// * [`StorageError::Find`] or [`StorageError::Vfio`] if no controller matches the name, or it cannot be opened.
    /// * [`StorageError::Members`] if no controller has this serial number or model, or the controller has no
    ///   namespace.
    /// * [`StorageError::Fabrics`] if a target cannot be reached, or does not accept this host.
    /// * [`StorageError::Nvme`] if the controller cannot be enabled.
    pub fn open(&self) -> Result<Drive, StorageError> {
        self.needs_size()?;
        self.start(self.config.clone(), None)
    }

    /// Opens a device to store `bytes` bytes on. Memory without a size gets this size. A file that does not exist is
    /// created, under a temporary name until [`Drive::keep`]. An existing file or namespace is taken only if it is
    /// warpbell's own, is empty, or is named in `policy`.
    ///
    /// # Errors
    /// [`StorageError::NotOurs`] if the file or namespace holds other data; [`StorageError::InUse`] if the operating
    /// system uses the block device; [`StorageError::File`] if a file operation fails; [`StorageError::Option`] if
    /// `bytes` is close to 2^64; otherwise as for [`DriveSpec::open`].
    pub fn create(&self, bytes: u64, policy: &OverwritePolicy) -> Result<Drive, StorageError> {
        let too_large =
            || StorageError::Option("a device of more than 2^64 bytes was requested; use a smaller size".into());
        let bytes = bytes.max(1).checked_next_multiple_of(ARRAY_ALIGN).ok_or_else(too_large)?;
        let mut config = self.config.clone();
        let chosen = self.index();
        let (mut new, mut file) = (None, None);
        let mut consented = policy.names(&self.spec);
        if let Config::Soft(soft) = &mut config {
            soft.set_bytes(bytes);
        }
        for (i, path) in config.files().into_iter().enumerate() {
            // Writes go only to the chosen namespace.
            let Some(path) = path.filter(|_| i == chosen) else { continue };
            file = Some(path.clone());
            consented |= policy.covers(path);
            if let Target::New(made) = target::prepare(path, Some(bytes), policy)? {
                *path = made.path().to_owned();
                new = Some(made);
            }
        }
        if let (Config::Soft(soft), Some(file)) = (&mut config, &new) {
            soft.set_final_path(chosen, file.wanted().to_owned());
        }
        let on_namespace = matches!(config, Config::Nvme(_) | Config::Remote(_));
        let mut drive = self.start(config, new)?;
        if on_namespace {
            target::check_namespace(&self.spec, drive.controller(), drive.namespace(), policy)?;
        }
        (drive.file, drive.consented) = (file, consented);
        Ok(drive)
    }

    /// Opens only the controller, to inspect it. The state of its namespaces does not matter.
    ///
    /// # Errors
    /// As for [`DriveSpec::open`], apart from errors about namespaces.
    #[cfg(feature = "internals")]
    pub fn open_controller(&self) -> Result<OpenController, StorageError> {
        self.needs_size()?;
        self.controller(self.config.clone())
    }

    /// Returns the files and block devices that hold the data of the device's namespaces. They need not exist. Empty for
    /// memory and for controllers.
    pub fn files(&self) -> Vec<PathBuf> {
        self.config.clone().files().into_iter().flatten().map(|path| path.clone()).collect()
    }

    /// Returns the namespace identifier of the options, if they have one.
    pub fn nsid(&self) -> Option<u32> {
        self.nsid.map(NonZeroU32::get)
    }

    /// Returns the index of the chosen namespace (the first by default) among those that the options describe.
    fn index(&self) -> usize {
        self.nsid().map_or(0, |n| n as usize - 1)
    }

    fn needs_size(&self) -> Result<(), StorageError> {
        match &self.config {
            Config::Soft(soft) if soft.needs_bytes() => {
                let reason = "the size of the memory is missing: write it, as in soft:mem:1G".to_owned();
                Err(StorageError::Spec { spec: self.to_string(), reason })
            }
            _ => Ok(()),
        }
    }

    fn controller(&self, config: Config) -> Result<OpenController, StorageError> {
        let bad = |reason: String| StorageError::Spec { spec: self.to_string(), reason };
        config.clone().files().into_iter().flatten().try_for_each(|path| target::check_exists(path))?;
        let (controller, keeper): (_, Option<Arc<dyn Any + Send + Sync>>) = match config {
            Config::Soft(soft) => {
                let (attachment, keeper) = soft.start().map_err(bad)?;
                (Drive::enable(attachment)?, Some(keeper))
            }
            Config::Qtest(config) => (Drive::enable(qtest::start(*config).map_err(|e| bad(e.to_string()))?)?, None),
            Config::Nvme(spec) => (spec.open()?, None),
            Config::Remote(config) => (Drive::enable(remote(&config)?)?, None),
        };
        Ok(OpenController { controller, keeper })
    }

    fn start(&self, config: Config, new: Option<NewFile>) -> Result<Drive, StorageError> {
        let in_memory = config.is_memory(self.index());
        let OpenController { controller, keeper } = self.controller(config)?;
        let mut drive = Drive::on(controller, self.nsid())?;
        drive.name = self.to_string();
        drive.in_memory = in_memory;
        drive.new = new;
        drive.keeper = keeper;
        Ok(drive)
    }
}

impl Drive {
    /// Opens a device by its specification: [`DriveSpec::open`].
    ///
    /// # Errors
    /// As for [`DriveSpec::named`] and [`DriveSpec::open`].
    pub fn open(spec: &str) -> Result<Self, StorageError> {
        spec.parse::<DriveSpec>()?.open()
    }

    /// Opens a device to store `bytes` bytes on: [`DriveSpec::create`].
    ///
    /// # Errors
    /// As for [`DriveSpec::named`] and [`DriveSpec::create`].
    pub fn create(spec: &str, bytes: u64, policy: &OverwritePolicy) -> Result<Self, StorageError> {
        spec.parse::<DriveSpec>()?.create(bytes, policy)
    }
}

/// Connects to a subsystem of another machine.
fn remote(config: &FabricsConfig) -> Result<Attachment, FabricsError> {
    match config.transport {
        FabricsTransport::Tcp | FabricsTransport::Rdma => Ok(crate::remote::connect(config)?.attachment()),
        #[cfg(all(feature = "soft", feature = "shmem"))]
        FabricsTransport::Soft => Ok(crate::soft::target::connect(config)?.attachment()),
        #[cfg(not(all(feature = "soft", feature = "shmem")))]
        FabricsTransport::Soft => Err(FabricsError::Options {
            reason: "nvmf:soft needs software NICs: build with the features `soft` and `shmem`".to_owned(),
        }),
    }
}

/// An identity that no two devices share.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    /// A file or a block device.
    File(FileIdentity),
    /// A controller and the identifier of its namespace.
    Namespace(String, u32),
}

impl Config {
    /// Parses the options, and the namespace that they choose.
    fn read(spec: &DeviceSpec) -> Result<(Self, Option<NonZeroU32>), SpecError> {
        let mut rest = spec.clone();
        let nsid = rest.remove("nsid").map(|nsid| nsid.read(number)).transpose()?;
        let config = match rest.name() {
            Name::Memory { .. } | Name::SoftFile(_) => Self::Soft(SoftDrive::read(&rest)?),
            Name::QtestFile(_) => Self::Qtest(Box::new((&rest).try_into()?)),
            Name::Controller(name) => Self::Nvme(NvmeSpec::read(name, &rest)?),
            Name::Remote(_) => Self::Remote(Box::new((&rest).try_into()?)),
        };
        Ok((config, nsid))
    }

    /// Returns true if the namespace at this index is memory of this process.
    fn is_memory(&self, index: usize) -> bool {
        matches!(self, Self::Soft(soft) if soft.is_memory(index))
    }

    /// Returns the file of each namespace, in order.
    fn files(&mut self) -> Vec<Option<&mut PathBuf>> {
        match self {
            Self::Soft(soft) => soft.files(),
            Self::Qtest(config) => config.namespaces.iter_mut().map(|n| Some(&mut n.file)).collect(),
            Self::Nvme(_) | Self::Remote(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::{Remedies, Remedy};
    use proptest::prelude::*;

    #[cfg(not(feature = "soft"))]
    #[test]
    fn a_device_that_is_not_built_names_its_feature() {
        let said = "soft:mem:1M".parse::<DriveSpec>().unwrap_err().to_string();
        assert!(
            said.contains("soft:mem:1M") && said.contains("no software devices") && said.contains("feature `soft`"),
            "{said}"
        );
    }

    #[cfg(feature = "soft")]
    #[test]
    fn controllers_of_several_pes_share_the_processors() {
        let threads = |text: &str, sharers| {
            let mut spec: DriveSpec = text.parse().unwrap();
            spec.share_processors(sharers);
            let Config::Soft(soft) = &spec.config else { return None };
            soft.threads()
        };
        let alone = crate::soft::nvme::SoftConfig::parse("mem").unwrap().service_threads();
        assert_eq!(threads("soft:mem", 1), Some(alone));
        assert_eq!(threads("soft:mem:1G,block=4096", 1000), Some(1));
        assert_eq!(threads("soft:mem,threads=3", 4), Some(3));
        assert_eq!(threads("nvme:0000:01:00.0", 4), None);
    }

    fn refused(spec: &str) -> String {
        Drive::open(spec).unwrap_err().to_string()
    }

    #[test]
    fn a_drive_is_a_namespace_of_an_enabled_controller() {
        let d = Drive::open("soft:mem:2M,block=4096").unwrap();
        assert_eq!(d.to_string(), "soft:mem:2M,block=4096 (2.0 MiB, blocks of 4096 bytes)");
        let d = Drive::open("soft:mem:1M,namespaces=3,nsid=2").unwrap();
        assert_eq!((d.namespace().id(), d.bytes()), (2, 1 << 20));
    }

    #[test]
    fn what_cannot_be_opened_says_what_there_is() {
        assert!(refused("edges.img").contains("soft:FILE"));
        assert!(refused("scsi:0000:65:00.0").contains("no kind of device `scsi`; there are soft:mem"));
        assert!(refused("nvme:").contains("names no controller"));
        assert!(refused("nvme:ffff:ff:1f.7").contains("no controller is called `ffff:ff:1f.7`"));
        assert!(refused("soft:mem").contains("soft:mem:1G"));
        assert!(refused("soft:mem:1M,nsid=0").contains("numbered from 1"));
        assert!(refused("soft:mem:1M,nsid=7").contains('7'));
        assert!(refused("soft:mem:1M,colour=red").contains("colour"));
        assert!(refused("soft:/nowhere/at/all.img").contains("/nowhere/at/all.img"));
    }

    #[test]
    fn memory_without_a_size_gets_what_is_to_be_stored() {
        let d = Drive::create("soft:mem,block=4096", 100_000, &OverwritePolicy::none()).unwrap();
        assert_eq!(d.bytes(), 128 << 10);
        assert_eq!(Drive::create("soft:mem:1M", 100_000, &OverwritePolicy::none()).unwrap().bytes(), 1 << 20);
    }

    #[test]
    fn files_of_others_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("thesis.tex");
        std::fs::write(&path, vec![b'x'; 4096]).unwrap();
        let spec = format!("soft:{}", path.display());
        let e = Drive::create(&spec, 1024, &OverwritePolicy::none()).unwrap_err();
        assert!(e.to_string().contains("not warpbell's"), "{e}");
        assert_eq!(e.remedies()[1], Remedy::Overwrite(path.clone()));
        assert!(Drive::create(&spec, 1024, &OverwritePolicy::to_destroy([&path])).is_ok());
        assert_eq!(std::fs::read(&path).unwrap(), vec![b'x'; 4096]);
    }

    #[test]
    fn an_image_for_qemu_is_created_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk.img");
        match Drive::create(&format!("qtest:{},ram=64M", path.display()), 100_000, &OverwritePolicy::none()) {
            Ok(mut d) => {
                assert_eq!(d.bytes(), 128 << 10);
                assert!(!path.exists());
                d.keep().unwrap();
                assert_eq!(std::fs::metadata(&path).unwrap().len(), 128 << 10);
            }
            Err(e) => {
                assert!(e.to_string().contains("no QEMU"), "{e}");
                println!("SKIP: {e}");
            }
        }
    }

    #[test]
    fn the_namespace_is_taken_out_of_the_options() {
        let spec: DriveSpec = r"soft:a\,nsid=1.img,nsid=3,block=512".parse().unwrap();
        assert_eq!((spec.to_string().as_str(), spec.nsid()), (r"soft:a\,nsid=1.img,nsid=3,block=512", Some(3)));
        for none in ["0", "00", "-1", "x"] {
            assert!(refused(&format!("soft:mem,nsid={none}")).contains("numbered from 1"), "{none}");
        }
        assert_eq!("soft:mem".parse::<DriveSpec>().unwrap().nsid(), None);
    }

    proptest! {
        #[test]
        fn no_name_panics(spec in "(soft:|qtest:|nvme:|)[ -~é]{0,40}") {
            if let Ok(s) = spec.parse::<DriveSpec>() {
                prop_assert_eq!(s.to_string().parse::<DriveSpec>().unwrap().to_string(), s.to_string());
            }
        }
    }
}
