//! Files that results are written to. They are checked before the work begins, and replaced as a whole or not at all.
//!
//! Only regular files are replaced. Pipes, terminals and other devices are written in place. So is a descriptor of this
//! process (`-`, `/dev/stdout`, `/dev/fd/N`): the output continues at the descriptor's current position.

use crate::failure::{ErrorKind, Failure};
use crate::file_identity::{FileIdentity, holds_volume};
use crate::remedy::Remedies;
use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Name that stands for standard output.
const STANDARD_OUTPUT: &str = "-";
/// Largest number of symbolic links that are followed in a row: Linux's own limit.
const MAX_LINKS: usize = 40;
/// Size of the write buffer in bytes.
const GATHER: usize = 1 << 20;

/// Error of opening or writing a [`Destination`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DestinationError {
    /// The file cannot be created or opened for writing.
    #[error("{}: cannot be written: {source}; name a file in a folder that exists and is writable", path.display())]
    Create {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The path is a folder.
    #[error("{}: is a folder; name a file", path.display())]
    Folder {
        /// The path.
        path: PathBuf,
    },
    /// The path is a block device or a socket.
    #[error("{}: is {what}, which is not written as a file; name a file", path.display())]
    Kind {
        /// The path.
        path: PathBuf,
        /// Description of its kind, as in `a socket`.
        what: &'static str,
    },
    /// The path is a symbolic link into another folder.
    #[error("{}: is a symbolic link out of its folder, to {}, which is not replaced by way of it; name {} itself", path.display(), target.display(), target.display())]
    Link {
        /// The link.
        path: PathBuf,
        /// Path that the link leads to.
        target: PathBuf,
    },
    /// The file is standard output or standard error of this process, whose lines would be lost.
    #[error("{}: is the file that {stream} goes to, whose lines would be lost; name another file, or `-` for standard output", path.display())]
    InUse {
        /// Path of the file.
        path: PathBuf,
        /// `standard output` or `standard error`.
        stream: &'static str,
    },
    /// The file holds a volume with stored arrays, which would be lost.
    #[error("{}: holds a warpbell volume, which would be lost; name another file, or remove this one first", path.display())]
    Volume {
        /// Path of the file.
        path: PathBuf,
    },
    /// Writing failed after the destination was opened.
    #[error("{}: writing failed: {source}{}{}", path.display(), if *.left { "" } else { "; nothing was left behind" }, remedy(source))]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
        /// True if part of the output may remain: in a pipe, a device or a descriptor.
        left: bool,
    },
}

impl Remedies for DestinationError {}

impl Failure for DestinationError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Create { .. } | Self::Write { .. } => ErrorKind::Io,
            Self::Folder { .. } | Self::Kind { .. } | Self::Link { .. } | Self::InUse { .. } => ErrorKind::Argument,
            Self::Volume { .. } => ErrorKind::Exists,
        }
    }
}

impl DestinationError {
    /// Returns true if the reader of a pipe has closed it.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space, or name a file elsewhere",
        io::ErrorKind::FileTooLarge => "; raise the limit of file sizes (ulimit -f), or name a file elsewhere",
        _ => "",
    }
}

/// A file, pipe, device or descriptor that was found writable. Nothing is written before [`Destination::write`].
#[derive(Debug)]
pub struct Destination {
    named: PathBuf,
    to: To,
}

#[derive(Debug)]
enum To {
    /// Copy of a descriptor of this process, and the number of the original.
    Descriptor(File, RawFd),
    /// Path of a named pipe or a character device.
    Special(PathBuf),
    /// Path of a regular file, which need not exist yet. The folder is canonical, and the last component is no link.
    File(PathBuf),
}

impl Destination {
    /// Checks that `path` can be written and resolves its links. `-` is standard output.
    ///
    /// # Errors
    ///
    /// - [`DestinationError::Create`] if the file or descriptor cannot be opened for writing.
    /// - [`DestinationError::Folder`] or [`DestinationError::Kind`] if the path is no file, pipe or character device.
    /// - [`DestinationError::Link`] if the path is a symbolic link into another folder.
    /// - [`DestinationError::InUse`] if the file is standard output or standard error of this process.
    /// - [`DestinationError::Volume`] if the file holds a volume.
    pub fn open(path: &Path) -> Result<Self, DestinationError> {
        let failed = |source| DestinationError::Create { path: path.to_owned(), source };
        let to = match descriptor(path) {
            Some(number) => {
                no_volume(path, Path::new(&format!("/proc/self/fd/{number}")))?;
                To::Descriptor(duplicate(number).map_err(failed)?, number)
            }
            None => match fs::metadata(path) {
                Ok(found) if found.is_dir() => return Err(DestinationError::Folder { path: path.to_owned() }),
                Ok(found) if !found.is_file() => special(path, &found)?,
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
                found => regular(path, found.ok().as_ref())?,
            },
        };
        Ok(Self { named: path.to_owned(), to })
    }

    /// Returns true if this is standard output, under any name.
    pub fn is_standard_output(&self) -> bool {
        matches!(self.to, To::Descriptor(_, libc::STDOUT_FILENO))
    }

    /// Returns true if both are the same file, pipe or descriptor. Returns false for character devices such as
    /// `/dev/null`, which two destinations may share, unless both are the same descriptor.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.to, &other.to) {
            (To::Descriptor(_, a), To::Descriptor(_, b)) if a == b => true,
            (To::File(a), To::File(b)) if a == b => true,
            _ => self.identity().is_some_and(|own| Some(own) == other.identity()),
        }
    }

    /// Returns the identity of the file or pipe, or `None` if it is a character device.
    pub fn identity(&self) -> Option<FileIdentity> {
        let found = match &self.to {
            To::Descriptor(file, _) => file.metadata().ok()?,
            To::Special(path) => fs::metadata(path).ok()?,
            To::File(path) => return Some(FileIdentity::of(path)),
        };
        (!found.file_type().is_char_device()).then(|| FileIdentity::Inode(found.dev(), found.ino()))
    }

    /// Writes the output of `fill`. A regular file replaces an older one of its name only after all output is written.
    ///
    /// # Errors
    ///
    /// [`DestinationError::Write`] if writing, or `fill`, fails. A regular file is then unchanged, and no part of the
    /// new one remains.
    pub fn write(self, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), DestinationError> {
        let Self { named, to } = self;
        let left = !matches!(to, To::File(_));
        let written = match to {
            To::Descriptor(file, _) => buffered(&file, fill),
            To::Special(path) => OpenOptions::new().write(true).open(path).and_then(|file| buffered(&file, fill)),
            To::File(path) => temporary(&path).and_then(|file| {
                buffered(file.as_file(), fill)?;
                file.persist(&path).map(drop).map_err(|e| e.error)
            }),
        };
        written.map_err(|source| DestinationError::Write { path: named, source, left })
    }
}

fn buffered(file: &File, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(GATHER, file);
    fill(&mut out)?;
    out.flush()
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Creates a temporary file in the folder of `path`. Dropping the file removes it.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    // The user's umask restricts the mode, as for any new file.
    builder.prefix(".warpbell-").suffix(".part").permissions(Permissions::from_mode(0o666));
    builder.tempfile_in(folder(path))
}

/// Returns the descriptor of this process that a path such as `/dev/stdout` or `/dev/fd/3` names. Opening such a path
/// instead would start at the beginning of its file.
fn descriptor(path: &Path) -> Option<RawFd> {
    if path == Path::new(STANDARD_OUTPUT) {
        return Some(libc::STDOUT_FILENO);
    }
    let own = Path::new("/proc").join(std::process::id().to_string());
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        let folder = folder(&at).canonicalize().ok()?;
        if folder.starts_with(&own) && folder.ends_with("fd") {
            return at.file_name()?.to_str()?.parse().ok();
        }
        at = folder.join(fs::read_link(&at).ok()?);
    }
    None
}

/// Duplicates a descriptor. Fails if it is not open for writing.
fn duplicate(number: RawFd) -> io::Result<File> {
    // SAFETY: both calls accept any number and fail for one that is not open.
    let (mode, copy) = unsafe { (libc::fcntl(number, libc::F_GETFL), libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0)) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was created just now and has no other owner.
    let file = unsafe { File::from_raw_fd(copy) };
    match mode & libc::O_ACCMODE {
        libc::O_RDONLY => Err(io::Error::other("the descriptor is open for reading only")),
        _ => Ok(file),
    }
}

/// Checks a named pipe or a character device. `write` opens it later: opening a pipe blocks until it has a reader.
fn special(path: &Path, found: &Metadata) -> Result<To, DestinationError> {
    let kind = found.file_type();
    if !kind.is_fifo() && !kind.is_char_device() {
        let what = if kind.is_block_device() { "a block device" } else { "a socket" };
        return Err(DestinationError::Kind { path: path.to_owned(), what });
    }
    let name = CString::new(path.as_os_str().as_bytes());
    let writable = name.map_err(io::Error::from).and_then(|name| {
        // SAFETY: the name ends in a zero and lives for the call.
        if unsafe { libc::access(name.as_ptr(), libc::W_OK) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    });
    writable.map_err(|source| DestinationError::Create { path: path.to_owned(), source })?;
    Ok(To::Special(path.to_owned()))
}

/// Resolves a regular file that exists (`there` has its metadata) or can be created.
fn regular(path: &Path, there: Option<&Metadata>) -> Result<To, DestinationError> {
    let failed = |source| DestinationError::Create { path: path.to_owned(), source };
    let mut at = path.to_owned();
    for _ in 0..MAX_LINKS {
        let own = folder(&at).canonicalize().map_err(failed)?;
        let Ok(link) = fs::read_link(&at) else {
            let name = at.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
            let target = own.join(name);
            if let Some(found) = there {
                not_a_stream(path, found)?;
                no_volume(path, &target)?;
                // An existing file is replaced only if it is writable.
                OpenOptions::new().write(true).open(&target).map_err(failed)?;
            }
            temporary(&target).map_err(failed)?;
            return Ok(To::File(target));
        };
        at = own.join(link);
        if folder(&at).canonicalize().ok() != Some(own) {
            return Err(DestinationError::Link { path: path.to_owned(), target: at });
        }
    }
    Err(failed(io::Error::from_raw_os_error(libc::ELOOP)))
}

/// Returns an error if `file`, which the user has called `path`, is a regular file with a volume.
fn no_volume(path: &Path, file: &Path) -> Result<(), DestinationError> {
    // A file that cannot be read is written as before: only what is known to be a volume is kept.
    match fs::metadata(file).is_ok_and(|m| m.is_file()) && holds_volume(file).unwrap_or(false) {
        true => Err(DestinationError::Volume { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Returns an error if the file is standard output or standard error of this process.
fn not_a_stream(path: &Path, found: &Metadata) -> Result<(), DestinationError> {
    let (out, error) = (io::stdout(), io::stderr());
    for (stream, fd) in [("standard output", out.as_fd()), ("standard error", error.as_fd())] {
        let file = fd.try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
        if file.is_ok_and(|m| (m.dev(), m.ino()) == (found.dev(), found.ino())) {
            return Err(DestinationError::InUse { path: path.to_owned(), stream });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, SeekFrom};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    fn put(path: &Path, text: &str) -> Result<(), DestinationError> {
        Destination::open(path)?.write(|out| out.write_all(text.as_bytes()))
    }

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let half = |to: Destination| {
            to.write(|out| {
                out.write_all(&vec![b'x'; 2 * GATHER])?;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            })
        };
        let error = half(Destination::open(&path).unwrap()).unwrap_err().to_string();
        assert!(error.contains("nothing was left behind; free some space"), "{error}");
        assert_eq!(names(folder.path()), 0, "a check or a failure leaves nothing");
        put(&path, "old").unwrap();
        assert!(half(Destination::open(&path).unwrap()).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        put(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(folder.path()), 1);
    }

    #[test]
    fn a_descriptor_goes_on_where_it_stands() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"log\n").unwrap();
        let number = file.as_raw_fd();
        for path in
            [format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}"), format!("/proc/thread-self/fd/{number}")]
        {
            put(Path::new(&path), "more\n").unwrap();
        }
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "log\nmore\nmore\nmore\n");
        assert!(put(Path::new("/dev/fd/987654"), "").unwrap_err().to_string().contains("cannot be written"));
        let reader = File::open("/proc/self/status").unwrap();
        let error = Destination::open(Path::new(&format!("/dev/fd/{}", reader.as_raw_fd()))).unwrap_err().to_string();
        assert!(error.contains("for reading only"), "{error}");
    }

    #[test]
    fn pipes_and_devices_are_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let name = CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends in a zero and lives for the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let to = Destination::open(&pipe).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        to.write(|out| out.write_all(b"through")).unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        put(Path::new("/dev/null"), "gone").unwrap();
        let error = put(Path::new("/dev/full"), "x").unwrap_err().to_string();
        assert!(error.starts_with("/dev/full: writing failed: ") && error.contains("free some space"), "{error}");
        assert!(!error.contains("left behind"), "{error}");
    }

    #[test]
    fn links_are_followed_within_their_folder() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = |name: &str| here.path().join(name);
        fs::write(path("real"), "old").unwrap();
        symlink(path("real"), path("absolute")).unwrap();
        symlink("./absolute", path("twice")).unwrap();
        symlink("not-yet", path("dangling")).unwrap();
        for (link, file) in [("absolute", "real"), ("twice", "real"), ("dangling", "not-yet")] {
            put(&path(link), link).unwrap();
            assert!(fs::symlink_metadata(path(link)).unwrap().is_symlink());
            assert_eq!(fs::read_to_string(path(file)).unwrap(), link);
        }
        let precious = there.path().join("precious");
        symlink(&precious, path("away")).unwrap();
        for there_is_one in [false, true] {
            let error = put(&path("away"), "x").unwrap_err();
            assert!(matches!(&error, DestinationError::Link { target, .. } if *target == precious), "{error}");
            assert_eq!(precious.exists(), there_is_one);
            fs::write(&precious, "p").unwrap();
        }
        symlink("circle", path("circle")).unwrap();
        assert!(put(&path("circle"), "x").is_err());
    }

    #[test]
    fn one_place_is_known_by_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let same = |a: &Path, b: &Path| Destination::open(a).unwrap().is_same(&Destination::open(b).unwrap());
        symlink("new", path("link")).unwrap();
        assert!(same(&path("new"), &path("./new")) && same(&path("new"), &path("link")));
        assert!(!same(&path("new"), &path("other")));
        fs::write(path("new"), "").unwrap();
        fs::hard_link(path("new"), path("hard")).unwrap();
        assert!(same(&path("new"), &path("hard")));
        assert!(same(Path::new("-"), Path::new("/dev/stdout")));
        assert!(!same(Path::new("/dev/null"), Path::new("/dev/null")));
    }

    #[test]
    fn a_volume_is_not_replaced_under_any_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let volume = [b"warpbell", &2u32.to_le_bytes()[..], &[0; 4096]].concat();
        fs::write(path("v.img"), &volume).unwrap();
        symlink("v.img", path("soft")).unwrap();
        fs::hard_link(path("v.img"), path("hard")).unwrap();
        let open = OpenOptions::new().append(true).open(path("v.img")).unwrap();
        let descriptor = PathBuf::from(format!("/dev/fd/{}", open.as_raw_fd()));
        for name in [path("v.img"), path("soft"), path("hard"), descriptor] {
            let error = Destination::open(&name).unwrap_err();
            assert!(matches!(error, DestinationError::Volume { .. }), "{error}");
        }
        assert_eq!(fs::read(path("v.img")).unwrap(), volume);
    }

    #[test]
    fn paths_that_cannot_be_written_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let error = Destination::open(&folder.path().join("missing/out")).unwrap_err().to_string();
        assert!(error.contains("missing/out: cannot be written") && error.contains("a folder that exists"), "{error}");
        assert!(matches!(Destination::open(folder.path()), Err(DestinationError::Folder { .. })));
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        let error = Destination::open(&folder.path().join("socket")).unwrap_err();
        assert!(matches!(error, DestinationError::Kind { what: "a socket", .. }), "{error}");
    }
}
