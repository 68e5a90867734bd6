//! Files and block devices as destinations of data: the rules for overwriting, and new files that get their name only
//! when they are complete.

use crate::nvme::{Controller, HostQueue, HostQueueOptions, Namespace, Ready};
use crate::pci::{SIGNED_BYTES, Signature};
use crate::spec::{DeviceSpec, Name, Scheme};
use crate::storage::error::StorageError;
use crate::storage::format::{ARRAY_ALIGN, is_ours};
use std::ffi::CString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::NamedTempFile;

/// Files and devices that may be overwritten although they hold data that is not warpbell's.
///
/// # Examples
///
/// ```
/// use warpbell::storage::{Drive, OverwritePolicy};
///
/// let folder = tempfile::tempdir()?;
/// let file = folder.path().join("notes.txt");
/// std::fs::write(&file, vec![b'x'; 1 << 20])?;
/// let spec = format!("soft:{}", file.display());
/// // A file that holds other data is not overwritten ...
/// assert!(Drive::create(&spec, 1 << 20, &OverwritePolicy::none()).is_err());
/// // ... unless the policy names it.
/// Drive::create(&spec, 1 << 20, &OverwritePolicy::to_destroy([&file]))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct OverwritePolicy {
    named: Vec<PathBuf>,
    /// Devices that these may be the names of. A controller may be named without `nvme:`.
    devices: Vec<Name>,
}

impl OverwritePolicy {
    /// Allows overwriting only what is warpbell's own, or empty.
    pub fn none() -> Self {
        Self::default()
    }

    /// Allows overwriting these files and devices, too.
    pub fn to_destroy(paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        let named: Vec<PathBuf> = paths.into_iter().map(Into::into).collect();
        let read = |n: &PathBuf| {
            let text = n.as_os_str();
            [DeviceSpec::from_os_str(text), DeviceSpec::of(Scheme::Nvme, text)]
        };
        let devices = named.iter().flat_map(read).flatten().map(|spec| spec.name().clone()).collect();
        Self { named, devices }
    }

    /// Returns true if the policy names this device, with any options.
    pub(in crate::storage) fn names(&self, spec: &DeviceSpec) -> bool {
        self.devices.contains(spec.name())
    }

    pub(in crate::storage) fn covers(&self, path: &Path) -> bool {
        let real = |p: &Path| p.canonicalize().unwrap_or_else(|_| p.to_owned());
        self.named.iter().any(|n| real(n) == real(path))
    }
}

/// A destination that may be written to.
#[derive(Debug)]
pub(in crate::storage) enum Target {
    /// An existing file or device.
    Existing,
    /// A new file that has another name until [`NewFile::keep`].
    New(NewFile),
}

/// A file that is removed unless it is kept.
#[derive(Debug)]
pub(in crate::storage) struct NewFile {
    temporary: Temporary,
    path: PathBuf,
    wanted: PathBuf,
}

#[derive(Debug)]
enum Temporary {
    /// A file without a name. Nothing of it remains, however the process ends (open(2), O_TMPFILE).
    Unnamed(File),
    /// A hidden file, on file systems without unnamed files. A killed process leaves it behind. Nobody takes it for
    /// content, since it never has the requested name.
    Hidden(NamedTempFile),
}

impl NewFile {
    fn create(wanted: &Path, bytes: u64) -> Result<Self, StorageError> {
        let failed = |doing, source| StorageError::File { path: wanted.to_owned(), doing, source };
        if missing_folder(wanted).is_some() {
            return Err(missing(wanted));
        }
        let folder = folder_of(wanted);
        let name = wanted.file_name().ok_or_else(|| failed("creating it", io::ErrorKind::InvalidFilename.into()))?;
        let prefix = format!(".{}.", name.to_string_lossy());
        let (temporary, path) = match unnamed(folder) {
            Some(found) => found,
            None => {
                let hidden = tempfile::Builder::new()
                    .prefix(&prefix)
                    .suffix(".part")
                    .permissions(Permissions::from_mode(0o666))
                    .tempfile_in(folder)
                    .map_err(|e| failed("creating it", e))?;
                let path = hidden.path().to_owned();
                (Temporary::Hidden(hidden), path)
            }
        };
        let file = match &temporary {
            Temporary::Unnamed(file) => file,
            Temporary::Hidden(hidden) => hidden.as_file(),
        };
        file.set_len(bytes).map_err(|e| failed("giving it its size", e))?;
        Ok(Self { temporary, path, wanted: wanted.to_owned() })
    }

    /// Returns the path of the file before it gets its name.
    pub(in crate::storage) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name that the file will get.
    pub(in crate::storage) fn wanted(&self) -> &Path {
        &self.wanted
    }

    /// Gives the file its name, and syncs the folder so that the name is durable. Fails if a file of that name has
    /// appeared meanwhile.
    pub(in crate::storage) fn keep(self) -> Result<(), StorageError> {
        let Self { temporary, path, wanted } = self;
        let named = match temporary {
            Temporary::Unnamed(_) => link(&path, &wanted),
            Temporary::Hidden(hidden) => hidden.persist_noclobber(&wanted).map(drop).map_err(|e| e.error),
        };
        let kept = named.and_then(|()| File::open(folder_of(&wanted))?.sync_all());
        kept.map_err(|source| StorageError::File { path: wanted, doing: "giving the new file its name", source })
    }
}

/// Creates a file without a name in a folder, and returns a path by which other processes of this user reach it, too.
/// Returns `None` if the file system has no such files, or there is no `/proc`.
fn unnamed(folder: &Path) -> Option<(Temporary, PathBuf)> {
    let file = OpenOptions::new().read(true).write(true).mode(0o666).custom_flags(libc::O_TMPFILE).open(folder).ok()?;
    let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()));
    path.metadata().ok()?;
    Some((Temporary::Unnamed(file), path))
}

/// Gives the file at a path of `/proc` a name (linkat(2)).
fn link(path: &Path, wanted: &Path) -> io::Result<()> {
    let (from, to) = (CString::new(path.as_os_str().as_bytes())?, CString::new(wanted.as_os_str().as_bytes())?);
    // SAFETY: both names are zero-terminated and live during the call.
    let done =
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the folder of a file that may not exist yet.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns an error if a file that is to be opened does not exist.
pub(in crate::storage) fn check_exists(path: &Path) -> Result<(), StorageError> {
    match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(missing(path)),
        // The code that opens the file reports any other error.
        _ => Ok(()),
    }
}

/// Returns the folder of `path`, if that folder does not exist.
fn missing_folder(path: &Path) -> Option<&Path> {
    path.parent().filter(|p| !p.as_os_str().is_empty() && !p.exists())
}

/// Returns the error for a file that does not exist.
fn missing(path: &Path) -> StorageError {
    let reason = match (missing_folder(path), std::fs::read_link(path)) {
        (Some(folder), _) => {
            let folder = folder.display();
            format!("the folder {folder} does not exist; create it first (mkdir -p {folder})")
        }
        (None, Ok(to)) => format!("it is a symbolic link to {}, which does not exist; create that first", to.display()),
        (None, Err(_)) => {
            let path = path.display();
            format!(
                "it does not exist, and only operations that write create it; check its name, or create it first (truncate -s 1G {path})"
            )
        }
    };
    StorageError::Missing { path: path.to_owned(), reason }
}

/// Checks that `path` may be written to. Creates it with `bytes` bytes if it does not exist.
pub(in crate::storage) fn prepare(
    path: &Path,
    bytes: Option<u64>,
    policy: &OverwritePolicy,
) -> Result<Target, StorageError> {
    let failed = |doing, source| StorageError::File { path: path.to_owned(), doing, source };
    let kind = match std::fs::metadata(path) {
        Ok(m) => m.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound && path.symlink_metadata().is_err() => {
            let reason = || "it does not exist, and no size is given; create it first (truncate -s SIZE)".to_owned();
            let bytes =
                bytes.ok_or_else(|| StorageError::Spec { spec: path.display().to_string(), reason: reason() })?;
            return NewFile::create(path, bytes).map(Target::New);
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(missing(path)),
        Err(e) => return Err(failed("opening it", e)),
    };
    if kind.is_block_device() {
        // The kernel fails exclusive opens of devices that are mounted or held (open(2), O_EXCL without O_CREAT).
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path);
        match opened {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => return Err(StorageError::InUse(path.to_owned())),
            Err(e) => return Err(failed("opening it", e)),
            Ok(_) => {}
        }
    } else if !kind.is_file() {
        let found = "it is neither a regular file nor a block device".to_owned();
        return Err(StorageError::NotOurs { path: path.to_owned(), found });
    }
    if policy.covers(path) {
        return Ok(Target::Existing);
    }
    let mut file = File::open(path).map_err(|e| failed("opening it", e))?;
    match foreign(&mut file).map_err(|e| failed("reading its content", e))? {
        None => Ok(Target::Existing),
        Some(found) => Err(StorageError::NotOurs { path: path.to_owned(), found }),
    }
}

/// Returns an error if a namespace holds anything but a warpbell volume or zeros. A whole drive takes too long to read,
/// so only both its ends are. Every signature of a file system, a volume manager or a partition table lies there.
pub(in crate::storage) fn check_namespace(
    spec: &DeviceSpec,
    controller: &Arc<Controller<Ready>>,
    namespace: &Namespace,
    policy: &OverwritePolicy,
) -> Result<(), StorageError> {
    if policy.names(spec) {
        return Ok(());
    }
    let mut queue = HostQueue::create(controller, HostQueueOptions::default())?;
    let block = namespace.block_bytes() as u64;
    let blocks = (SIGNED_BYTES as u64).div_ceil(block).min(namespace.blocks());
    let read = |queue: &mut HostQueue<'_>, first: u64| {
        let mut bytes = vec![0; (blocks * block) as usize];
        queue.read(namespace, first, &mut bytes).map(|()| bytes)
    };
    let head = read(&mut queue, 0)?;
    if is_ours(&head) {
        return Ok(());
    }
    let refuse = |found: String| StorageError::NotOurs { path: spec.to_string().into(), found };
    let last = namespace.blocks() - blocks;
    let tail = read(&mut queue, last)?;
    if let Some(signature) = Signature::find(&head, &tail, namespace.bytes()) {
        return Err(refuse(format!("it holds {signature}")));
    }
    for (start, bytes) in [(0, &head), (last * block, &tail)] {
        if let Some(i) = bytes.iter().position(|b| *b != 0) {
            let first: Vec<String> = bytes[i..].iter().take(4).map(|b| format!("{b:02x}")).collect();
            let at = start + i as u64;
            return Err(refuse(format!("it holds data that is not warpbell's ({} at byte {at})", first.join(" "))));
        }
    }
    Ok(())
}

/// Returns a description of a file's data, if it is neither warpbell's nor zeros. Skips holes, so that large empty
/// files take no time.
fn foreign(file: &mut File) -> io::Result<Option<String>> {
    const HEAD: usize = 16;
    let mut head = Vec::with_capacity(HEAD);
    file.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
    if is_ours(&head) {
        return Ok(None);
    }
    let end = file.seek(SeekFrom::End(0))?;
    let mut buffer = vec![0u8; 1 << 20];
    let mut at = 0;
    while at < end {
        at = next_data(file, at).unwrap_or(at);
        if at >= end {
            break;
        }
        file.seek(SeekFrom::Start(at))?;
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        if let Some(i) = buffer[..n].iter().position(|b| *b != 0) {
            let bytes: Vec<String> = buffer[i..n].iter().take(4).map(|b| format!("{b:02x}")).collect();
            let found = format!("it holds data that is not warpbell's ({} at byte {})", bytes.join(" "), at + i as u64);
            return Ok(Some(found));
        }
        at += n as u64;
    }
    Ok(None)
}

/// Returns the first byte from `at` on that is not in a hole, or `u64::MAX` if only holes follow. Returns `None` where
/// the file system does not tell.
fn next_data(file: &File, at: u64) -> Option<u64> {
    // SAFETY: the call only moves the position of an open file.
    let found = unsafe { libc::lseek(file.as_raw_fd(), i64::try_from(at).ok()?, libc::SEEK_DATA) };
    match u64::try_from(found) {
        Ok(next) => Some(next),
        Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO) => Some(u64::MAX),
        Err(_) => None,
    }
}

/// Makes a regular file at least `bytes` bytes long.
pub(in crate::storage) fn grow(path: &Path, bytes: u64) -> Result<(), StorageError> {
    let file = match std::fs::metadata(path) {
        Ok(m) if m.is_file() && m.len() < bytes => OpenOptions::new().write(true).open(path),
        _ => return Ok(()),
    };
    let bytes = bytes.checked_next_multiple_of(ARRAY_ALIGN).unwrap_or(u64::MAX);
    let failed = |source| StorageError::File { path: path.to_owned(), doing: "making it larger", source };
    file.and_then(|f| f.set_len(bytes)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn files_grow_and_never_shrink() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes = || file.as_file().metadata().unwrap().len();
        grow(file.path(), 1).unwrap();
        let least = bytes();
        assert!(least > 0 && least.is_multiple_of(ARRAY_ALIGN));
        grow(file.path(), 3 * least).unwrap();
        grow(file.path(), least).unwrap();
        assert_eq!(bytes(), 3 * least);
        assert!(grow(file.path(), u64::MAX).unwrap_err().to_string().contains("making it larger"));
    }

    #[test]
    fn a_device_is_named_with_or_without_its_options() {
        let names = |named: &str, spec: &str| OverwritePolicy::to_destroy([named]).names(&spec.parse().unwrap());
        let spec = "nvme:0000:65:00.0,nsid=2";
        for named in ["nvme:0000:65:00.0", "0000:65:00.0", "0000:65:00.0,api=cdev", spec] {
            assert!(names(named, spec), "{named}");
        }
        for other in ["nvme:0000:65:00.1", "nvme:0000:65:00.0,fast", "soft:0000:65:00.0", "qtest:0000:65:00.0", ""] {
            assert!(!names(other, spec), "{other}");
        }
        assert!(names(r"soft:a\,b.img", r"soft:a\,b.img,block=4096") && !names("soft:a.img", "soft:b.img"));
    }

    #[test]
    fn a_new_file_appears_only_when_it_is_kept() {
        let dir = folder();
        let path = dir.path().join("graph.img");
        let Target::New(file) = prepare(&path, Some(8192), &OverwritePolicy::none()).unwrap() else {
            panic!("not new")
        };
        assert!(!path.exists());
        assert_eq!(fs::metadata(file.path()).unwrap().len(), 8192);
        let tells = matches!(file.temporary, Temporary::Hidden(_));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), usize::from(tells), "a killed process would leave it");
        drop(file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let Target::New(file) = prepare(&path, Some(8192), &OverwritePolicy::none()).unwrap() else {
            panic!("not new")
        };
        file.keep().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 8192);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_name_that_was_taken_meanwhile_is_left_alone() {
        let dir = folder();
        let path = dir.path().join("graph.img");
        let Target::New(file) = prepare(&path, Some(8192), &OverwritePolicy::none()).unwrap() else {
            panic!("not new")
        };
        fs::write(&path, b"somebody else's").unwrap();
        assert!(file.keep().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"somebody else's");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_empty_or_own_files_are_overwritten_without_a_policy() {
        let dir = folder();
        let path = dir.path().join("f");
        let allowed = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            prepare(&path, None, &OverwritePolicy::none()).map(|t| matches!(t, Target::Existing))
        };
        assert!(allowed(&[]).unwrap());
        assert!(allowed(&[0; 5000]).unwrap());
        assert!(allowed(b"warpbell, and whatever follows").unwrap());
        let mut late = vec![0; 3 << 20];
        late[(2 << 20) + 5] = 0xab;
        let text = allowed(&late).unwrap_err().to_string();
        assert!(text.contains("ab 00 00 00 at byte 2097157"), "{text}");
        assert!(prepare(&path, None, &OverwritePolicy::to_destroy([&path])).is_ok());
        assert!(prepare(&path, None, &OverwritePolicy::to_destroy([dir.path().join("g")])).is_err());
    }

    #[test]
    fn data_behind_a_hole_is_found() {
        let dir = folder();
        let path = dir.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 32).unwrap();
        assert!(prepare(&path, None, &OverwritePolicy::none()).is_ok());
        std::os::unix::fs::FileExt::write_all_at(&file, &[9], (1 << 32) - 1).unwrap();
        assert!(matches!(prepare(&path, None, &OverwritePolicy::none()), Err(StorageError::NotOurs { .. })));
    }

    #[test]
    fn folders_and_missing_sizes_are_refused() {
        let dir = folder();
        assert!(matches!(prepare(dir.path(), Some(1), &OverwritePolicy::none()), Err(StorageError::NotOurs { .. })));
        let missing = prepare(&dir.path().join("none"), None, &OverwritePolicy::none()).unwrap_err().to_string();
        assert!(missing.contains("does not exist") && missing.contains("truncate"), "{missing}");
        let folder = dir.path().join("a");
        let reason = format!("the folder {0} does not exist; create it first (mkdir -p {0})", folder.display());
        let no_folder = prepare(&folder.join("b"), Some(1), &OverwritePolicy::none()).unwrap_err().to_string();
        assert_eq!(no_folder, format!("{}: {reason}", folder.join("b").display()));
        assert_eq!(check_exists(&folder.join("b")).unwrap_err().to_string(), no_folder);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("gone", &link).unwrap();
        for refused in [prepare(&link, Some(1), &OverwritePolicy::none()).map(drop), check_exists(&link)] {
            assert!(refused.unwrap_err().to_string().contains("a symbolic link to gone"));
        }
    }
}
