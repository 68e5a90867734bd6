//! Device specifications as users write them: `soft:mem:1G,block=4096`, `soft:edges.img`, `qtest:disk.img`,
//! `nvme:0000:65:00.0`, `nvmf:tcp://10.0.0.2/nqn.2026-01.org.example:data`.
//!
//! [`DeviceSpec`] is the only parser of their grammar. The types that open devices interpret the options:
//! [`SoftConfig`](crate::soft::nvme::SoftConfig), [`QtestConfig`](crate::nvme::qtest::QtestConfig),
//! [`FabricsConfig`](crate::nvme::fabrics::FabricsConfig) and [`DriveSpec`](crate::storage::DriveSpec).

mod error;
mod escape;
mod file_name;
mod option;
mod remote;
#[cfg(test)]
mod tests;
mod transport_id;

pub use error::SpecError;
pub(crate) use escape::fields;
internal!(option::SpecOption);
pub(crate) use option::{Keyword, NUMBER, TIME, flag, number, read_all, size, time, value};
#[cfg(feature = "internals")]
pub(crate) use remote::host_and_port;
internal!(remote::{FabricsTransport, PortAddress, RemoteName});

use escape::escape;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

/// Placeholder for the number of a PE in a specification.
pub const PE: &str = "{pe}";
/// Reason for rejecting `nsid=` if the specification stands for a whole controller.
pub(crate) const NO_NAMESPACE: &str = "it selects one namespace, but the whole controller is opened; leave it out";
/// Name of memory after `soft:`.
const MEMORY: &str = "mem";
/// Prefix of a file name that could be read as something else.
const FILE: &str = "file";

/// Kind of device: the word before the colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `soft`: the software controller.
    Soft,
    /// `qtest`: QEMU's controller.
    Qtest,
    /// `nvme`: a controller of this machine.
    Nvme,
    /// `nvmf`: a subsystem of another machine.
    Nvmf,
}

impl Scheme {
    fn word(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Qtest => "qtest",
            Self::Nvme => "nvme",
            Self::Nvmf => "nvmf",
        }
    }

    fn no_name(self) -> SpecError {
        let wanted = match self {
            Self::Soft => "memory and no file; write mem, mem:SIZE or the name of a file",
            Self::Qtest => "image file",
            Self::Nvme => "controller; write its address, nvmeN, serial number or model",
            Self::Nvmf => "subsystem; write tcp://HOST:PORT/NQN or rdma://HOST:PORT/NQN",
        };
        SpecError::NoName { wanted }
    }

    fn options(self) -> &'static [Keyword] {
        match self {
            Self::Soft => option::SOFT,
            Self::Qtest => option::QTEST,
            Self::Nvme => option::NVME,
            Self::Nvmf => option::NVMF,
        }
    }
}

/// Name part of a specification, without escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Memory behind the software controller.
    Memory {
        /// Size in bytes; `None` if the user of the device chooses the size.
        bytes: Option<u64>,
    },
    /// A file or a block device behind the software controller.
    SoftFile(PathBuf),
    /// A file behind QEMU's controller.
    QtestFile(PathBuf),
    /// Address, `nvmeN`, serial number or model of a controller of this machine.
    Controller(String),
    /// A subsystem of another machine.
    Remote(RemoteName),
}

/// Device specification: a kind of device, a name and options in their order. Parsing opens nothing and interprets no
/// value except a size of memory.
///
/// # Grammar
///
/// ```text
/// device     = "soft:" ( memory | [ "file:" ] file ) options
///            | "qtest:" file options
///            | "nvme:" controller options
///            | "nvmf:" ( "tcp" | "rdma" | "soft" ) "://" host [ ":" port ] "/" subsystem options
/// memory     = "mem" [ ":" size ]
/// options    = { "," key [ "=" value ] }
/// size       = digit { digit } [ "k" | "M" | "G" | "T" ]       (powers of 1,024)
/// file, controller, subsystem, value = character { character }
/// host       = a name, an IPv4 address, or an IPv6 address in brackets
/// character  = any byte but ","
///            | "\,"        a comma
///            | "\\"        a backslash
///            | "\x" H H    the byte with these hexadecimal digits, 80 to ff, which is not part of UTF-8 text
/// ```
///
/// Any other backslash stands for itself. A name needs `file:` if it is that of memory. It also needs `file:` if no
/// file has the name and it looks like an option or like `mem` misspelled. `docs/devices.md` lists the keys of each
/// kind, and which have a value. After `nvmf:` the address may also have the words of nvme-cli
/// (`rdma:traddr=HOST,trsvcid=PORT,subnqn=NQN`) or of SPDK (`trtype:RDMA traddr:HOST trsvcid:PORT subnqn:NQN`). A key
/// may be given once. `file=`, `media-error=`, `corrupt=` and `path=` may be given several times; `block=`, `metadata=`,
/// `throttle-iops=` and `blkdebug=` of `qtest` once for each file.
///
/// # Printing
///
/// A printed specification reads back as an equal one. Equal specifications print as the same text, whatever text they
/// were read from.
///
/// # Examples
///
/// ```
/// use warpbell::spec::{DeviceSpec, Name};
///
/// let mut spec: DeviceSpec = r"soft:runs\,2026-{pe}.img,io=mmap,seed=7".parse()?;
/// assert_eq!(spec.name(), &Name::SoftFile("runs,2026-{pe}.img".into()));
/// spec.set("io", Some("pread".as_ref()))?;
/// spec.remove("seed");
/// assert_eq!(spec.for_pe(3).numbered(0).to_string(), r"soft:runs\,2026-3.img.0,io=pread");
///
/// let memory: DeviceSpec = "soft:mem:1024M".parse()?;
/// assert!(memory.is_memory());
/// assert_eq!(memory.to_string(), "soft:mem:1G");
/// assert_eq!(DeviceSpec::memory().sized(4096).to_string(), "soft:mem:4k");
///
/// let e = "nvme:nvme0,fast".parse::<DeviceSpec>().unwrap_err();
/// assert_eq!(e.to_string(), "there is no option `fast`; there are api=, nsid=, unsafe-no-iommu");
/// # Ok::<(), warpbell::spec::SpecError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    name: Name,
    options: Vec<SpecOption>,
}

impl DeviceSpec {
    /// Creates a specification of the software controller with memory of no given size.
    pub fn memory() -> Self {
        Self { name: Name::Memory { bytes: None }, options: Vec::new() }
    }

    /// Parses a specification. Bytes that are not UTF-8 may stand for themselves.
    ///
    /// # Errors
    /// [`SpecError::NoScheme`] without a colon, [`SpecError::UnknownScheme`] if the word before the colon is no kind of
    /// device, and the errors of [`DeviceSpec::of`].
    pub fn from_os_str(text: &OsStr) -> Result<Self, SpecError> {
        let bytes = text.as_bytes();
        let colon = bytes.iter().position(|b| *b == b':').ok_or(SpecError::NoScheme)?;
        let word = &bytes[..colon];
        let scheme =
            [Scheme::Soft, Scheme::Qtest, Scheme::Nvme, Scheme::Nvmf].into_iter().find(|s| s.word().as_bytes() == word);
        let unknown = || SpecError::UnknownScheme { scheme: String::from_utf8_lossy(word).into_owned() };
        Self::of(scheme.ok_or_else(unknown)?, OsStr::from_bytes(&bytes[colon + 1..]))
    }

    /// Parses the part of a specification after the colon.
    ///
    /// # Errors
    /// * [`SpecError::NoName`] if `text` is empty or begins with a comma.
    /// * [`SpecError::NotAName`] if the name looks like an option or like `mem` misspelled, and no file has that name.
    /// * [`SpecError::UnknownOption`] if an option does not exist.
    /// * [`SpecError::BadOption`] if an option was given before, its value is missing, or it takes none; if the size of
    ///   memory is invalid; or if a controller's name is not UTF-8.
    pub fn of(scheme: Scheme, text: &OsStr) -> Result<Self, SpecError> {
        let mut fields = fields(text.as_bytes());
        if scheme == Scheme::Nvmf {
            transport_id::replace(&mut fields)?;
        }
        let mut fields = fields.into_iter();
        let name = Name::read(scheme, OsString::from_vec(fields.next().unwrap_or_default()))?;
        Ok(Self { name, options: read_all(fields, scheme.options())? })
    }

    /// Returns the name part.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the options in their order.
    pub fn options(&self) -> &[SpecOption] {
        &self.options
    }

    /// Returns true if the device is memory of this process.
    #[cfg(feature = "internals")]
    pub fn is_memory(&self) -> bool {
        matches!(self.name, Name::Memory { .. })
    }

    /// Gives memory without a size this size in bytes. Other devices stay as they are.
    #[cfg(feature = "internals")]
    pub fn sized(mut self, size: u64) -> Self {
        if let Name::Memory { bytes } = &mut self.name {
            bytes.get_or_insert(size);
        }
        self
    }

    /// Returns true if the device is a controller of this machine.
    #[cfg(feature = "internals")]
    pub fn is_controller(&self) -> bool {
        matches!(self.name, Name::Controller(_))
    }

    /// Sets the option to this value, or to no value. An existing option keeps its place and is given once afterwards.
    /// A new option is added at the end.
    ///
    /// # Errors
    /// [`SpecError::UnknownOption`] or [`SpecError::BadOption`], as in parsing. The specification then stays as it was.
    pub fn set(&mut self, key: &str, value: Option<&OsStr>) -> Result<(), SpecError> {
        let option = SpecOption::new(key, value.map(OsStr::to_owned), self.name.scheme().options())?;
        let place = self.options.iter().position(|o| o.key() == key).unwrap_or(self.options.len());
        self.remove(key);
        self.options.insert(place, option);
        Ok(())
    }

    /// Removes all occurrences of the option, and returns the last one.
    pub fn remove(&mut self, key: &str) -> Option<SpecOption> {
        self.options.extract_if(.., |o| o.key() == key).last()
    }

    /// Returns the specification of one member of a stripe: a point and the number are appended to each file's name.
    /// Memory and controllers stay as they are.
    pub fn numbered(mut self, number: u32) -> Self {
        let end = format!(".{number}");
        if let Name::SoftFile(path) | Name::QtestFile(path) = &mut self.name {
            path.as_mut_os_string().push(&end);
        }
        for option in self.options.iter_mut().filter(|o| o.key() == FILE) {
            option.value_mut().into_iter().for_each(|path| path.push(&end));
        }
        self
    }

    /// Returns true if the name or a value contains the placeholder [`PE`].
    #[cfg(feature = "internals")]
    pub fn has_pe(&self) -> bool {
        *self != self.clone().for_pe(0)
    }

    /// Returns the specification for one PE: its number replaces [`PE`] everywhere.
    pub fn for_pe(mut self, pe: usize) -> Self {
        match &mut self.name {
            Name::Memory { .. } => {}
            Name::SoftFile(path) | Name::QtestFile(path) => *path = for_pe(path.as_os_str(), pe).into(),
            Name::Controller(name) => *name = name.replace(PE, &pe.to_string()),
            Name::Remote(remote) => {
                for text in [&mut remote.address.host, &mut remote.subsystem] {
                    *text = text.replace(PE, &pe.to_string());
                }
            }
        }
        for value in self.options.iter_mut().filter_map(SpecOption::value_mut) {
            *value = for_pe(value, pe);
        }
        self
    }

    /// Returns the error of a specification whose kind is not `wanted`.
    pub(crate) fn other_scheme(&self, wanted: Scheme) -> SpecError {
        SpecError::OtherScheme { scheme: self.name.scheme().word(), wanted: wanted.word() }
    }
}

/// Returns `text` with [`PE`] replaced by the number of a PE.
pub fn for_pe(text: &OsStr, pe: usize) -> OsString {
    let mut out = OsString::new();
    for chunk in text.as_bytes().utf8_chunks() {
        out.push(chunk.valid().replace(PE, &pe.to_string()));
        out.push(OsStr::from_bytes(chunk.invalid()));
    }
    out
}

impl Name {
    fn read(scheme: Scheme, name: OsString) -> Result<Self, SpecError> {
        let bad = |reason: String| SpecError::BadOption { option: escape(&name), reason };
        let text = name.to_string_lossy();
        let read = match (scheme, text.split_once(':')) {
            (Scheme::Qtest, _) => Self::QtestFile(name.into()),
            (Scheme::Nvme, _) => {
                let not_utf8 = || bad("a controller's address, serial number and model are UTF-8".to_owned());
                Self::Controller(name.to_str().ok_or_else(not_utf8)?.trim().to_owned())
            }
            (Scheme::Nvmf, _) => {
                let utf8 =
                    name.to_str().ok_or_else(|| bad("addresses and names of subsystems are UTF-8".to_owned()))?;
                if utf8.is_empty() {
                    return Err(scheme.no_name());
                }
                Self::Remote(RemoteName::read(utf8).map_err(bad)?)
            }
            (Scheme::Soft, Some((MEMORY, text))) => {
                let bytes = size(text).ok_or_else(|| bad(format!("expected {}", option::SIZE)))?;
                Self::Memory { bytes: Some(bytes) }
            }
            (Scheme::Soft, None) if text == MEMORY => Self::Memory { bytes: None },
            (Scheme::Soft, Some((FILE, _))) => {
                Self::SoftFile(OsStr::from_bytes(&name.as_bytes()[FILE.len() + 1..]).into())
            }
            (Scheme::Soft, _) => {
                file_name::check(&name)?;
                Self::SoftFile(name.into())
            }
        };
        match &read {
            Self::SoftFile(path) | Self::QtestFile(path) if path.as_os_str().is_empty() => Err(scheme.no_name()),
            Self::Controller(name) if name.is_empty() => Err(scheme.no_name()),
            _ => Ok(read),
        }
    }

    fn scheme(&self) -> Scheme {
        match self {
            Self::Memory { .. } | Self::SoftFile(_) => Scheme::Soft,
            Self::QtestFile(_) => Scheme::Qtest,
            Self::Controller(_) => Scheme::Nvme,
            Self::Remote(_) => Scheme::Nvmf,
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = SpecError;

    /// Parses a specification as [`DeviceSpec::from_os_str`] does.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::from_os_str(text.as_ref())
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name.scheme().word(), self.name)?;
        self.options.iter().try_for_each(|option| write!(f, ",{option}"))
    }
}

impl fmt::Display for Name {
    /// Prints the name as it is written behind the colon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { bytes: None } => f.write_str(MEMORY),
            Self::Memory { bytes: Some(bytes) } => {
                let units = [(40, "T"), (30, "G"), (20, "M"), (10, "k")];
                let whole = units.into_iter().find(|(shift, _)| *bytes != 0 && bytes.is_multiple_of(1 << shift));
                let (shift, unit) = whole.unwrap_or((0, ""));
                write!(f, "{MEMORY}:{}{unit}", bytes >> shift)
            }
            Self::SoftFile(path) if file_name::needs_prefix(path.as_os_str()) => {
                write!(f, "{FILE}:{}", escape(path.as_os_str()))
            }
            Self::SoftFile(path) | Self::QtestFile(path) => f.write_str(&escape(path.as_os_str())),
            Self::Controller(name) => f.write_str(&escape(name.as_ref())),
            Self::Remote(remote) => remote.fmt(f),
        }
    }
}
