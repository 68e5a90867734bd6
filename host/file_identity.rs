//! Identities of files, by which two names are known to lead to one file, and the signature of files that hold a volume.

#[cfg(feature = "internals")]
use std::fs::File;
#[cfg(feature = "internals")]
use std::io;
#[cfg(feature = "internals")]
use std::os::unix::fs::FileExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// First bytes of each superblock of a volume (`host/storage/contents/superblock.rs`).
pub(crate) const VOLUME_MAGIC: [u8; 8] = *b"warpbell";
/// First bytes of the two superblocks of a drive.
pub(crate) const VOLUME_SLOTS: [u64; 2] = [0, 32 << 10];
/// Largest version of a superblock that is taken for one. The word in this place of a text is larger.
#[cfg(feature = "internals")]
const LARGEST_VERSION: u32 = 0xffff;

/// Identity of a file or a block device, which does not depend on its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileIdentity {
    /// A file that exists: device number of its file system, and inode.
    Inode(u64, u64),
    /// A block device, by its device number.
    Block(u64),
    /// A file that does not exist, by its path.
    Place(PathBuf),
}

impl FileIdentity {
    /// Returns the identity of the file that `path` leads to, through symbolic links.
    pub fn of(path: &Path) -> Self {
        match path.metadata() {
            Ok(m) if m.file_type().is_block_device() => Self::Block(m.rdev()),
            Ok(m) => Self::Inode(m.dev(), m.ino()),
            Err(_) => Self::Place(place(path)),
        }
    }

    /// Returns the identity of a regular file or a block device that exists, or `None` for anything else.
    #[cfg(feature = "internals")]
    pub fn of_existing(path: &Path) -> Option<Self> {
        let kind = path.metadata().ok()?.file_type();
        (kind.is_file() || kind.is_block_device()).then(|| Self::of(path))
    }
}

/// Returns the canonical path of a file: absolute and without symbolic links. The file need not exist yet if its folder
/// does.
pub(crate) fn place(path: &Path) -> PathBuf {
    let folder = || path.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p });
    let in_folder = || Some(folder()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(in_folder).unwrap_or_else(|| path.to_owned())
}

/// Returns true if a regular file holds a volume with stored arrays, as either of its superblocks shows.
///
/// # Errors
/// [`io::Error`] if the file cannot be opened or read.
#[cfg(feature = "internals")]
pub(crate) fn holds_volume(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    for slot in VOLUME_SLOTS {
        let mut start = [0; 12];
        match file.read_exact_at(&mut start, slot) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => continue,
            Err(e) => return Err(e),
        }
        let (magic, version) = start.split_at(VOLUME_MAGIC.len());
        let version = u32::from_le_bytes(version.try_into().unwrap_or_default());
        if magic == VOLUME_MAGIC && version <= LARGEST_VERSION {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_does_not_depend_on_the_spelling() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::fs::write(real.join("x.img"), b"").unwrap();
        std::os::unix::fs::symlink("x.img", real.join("link")).unwrap();
        for spelled in ["x.img", "./x.img", "link", "../x/x.img"] {
            let spelled = spelled.replace("/x/", &format!("/{}/", real.file_name().unwrap().display()));
            assert_eq!(place(&folder.path().join(spelled)), real.join("x.img"));
        }
        assert_eq!(place(&folder.path().join("./new.img")), real.join("new.img"));
        assert_eq!(place(Path::new("/no/such/folder/new.img")), Path::new("/no/such/folder/new.img"));
    }

    #[test]
    fn links_lead_to_one_identity_and_copies_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("x"), b"x").unwrap();
        std::fs::copy(path("x"), path("copy")).unwrap();
        std::fs::hard_link(path("x"), path("hard")).unwrap();
        std::os::unix::fs::symlink("x", path("soft")).unwrap();
        let of = |name: &str| FileIdentity::of_existing(&path(name));
        assert!(of("x").is_some() && of("x") == of("hard") && of("x") == of("soft"));
        assert_ne!(of("x"), of("copy"));
        assert_eq!((of("new"), of(".")), (None, None));
        assert_eq!(FileIdentity::of(&path("new")), FileIdentity::of(&path("./new")));
    }

    #[test]
    fn a_volume_is_known_by_either_superblock_and_a_text_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let superblock = [&VOLUME_MAGIC[..], &2u32.to_le_bytes()].concat();
        let mut second = vec![0; 32 << 10];
        second.extend(&superblock);
        for (content, is_volume) in [
            (&superblock[..], true),
            (&second, true),
            (b"warpbell 0.1.0  engine cpu", false),
            (b"warpbell", false),
            (b"", false),
            (&[0; 64 << 10], false),
        ] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(holds_volume(&path).unwrap(), is_volume);
        }
    }
}
