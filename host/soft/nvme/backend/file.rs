//! Store of blocks in a file or on a block device.

use super::super::SoftError;
use super::super::config::FileIo;
use super::cut::Watch;
use super::{MAX_VECTORS, Ring, advance, check_size, size_text};
use crate::file_identity::place;
use crate::pci::{Sysfs, lock_holder};
use crate::this_host::take;
use crate::wire::nvme::{Status, status};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size in bytes of the pieces of a mapping. Each piece is brought into the page cache at its first use.
const PIECE: u64 = 2 << 20;
/// Alignment for O_DIRECT if the file system does not report it: sectors of any disk, pages of any memory.
const DIRECT_ALIGN: usize = 4096;
/// Size in bytes of the pieces in which zeros are written if the file system cannot punch holes.
const ZEROS: usize = 64 << 10;

/// A file or a block device that holds a namespace.
#[derive(Debug)]
pub(in super::super) struct FileStore {
    file: File,
    path: PathBuf,
    /// Path that the file has or will have; see [`place`].
    place: PathBuf,
    bytes: u64,
    /// Current length in bytes, less than `bytes` once the file was shortened.
    present: AtomicU64,
    read_only: bool,
    io: FileIo,
    /// Alignment of memory and offsets that O_DIRECT requires; 1 for access through the page cache.
    align: usize,
    map: Option<Map>,
}

/// A shared read-only mapping of the page cache.
#[derive(Debug)]
struct Map {
    /// Watch for truncation. Must be dropped before the mapping is removed.
    watch: ManuallyDrop<Watch>,
    base: NonNull<u8>,
    bytes: usize,
    /// One bit for each populated piece.
    populated: Box<[AtomicU64]>,
}

// SAFETY: the store owns the mapping, and only raw copies read it.
unsafe impl Send for Map {}
// SAFETY: only raw copies read the mapping, which threads may make at the same time.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: dropped only here.
        unsafe { ManuallyDrop::drop(&mut self.watch) };
        // SAFETY: created in `Map::new`, and not used after the store.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Map {
    fn new(file: &File, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let p =
            unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        let base =
            NonNull::new(p.cast::<u8>()).filter(|_| p != libc::MAP_FAILED).ok_or_else(io::Error::last_os_error)?;
        let words = bytes.div_ceil(PIECE).div_ceil(64) as usize;
        let watch = Watch::new(base.as_ptr() as usize, length).inspect_err(|_| {
            // SAFETY: the mapping created above, which nothing uses yet.
            unsafe { libc::munmap(p, length) };
        })?;
        Ok(Self {
            watch: ManuallyDrop::new(watch),
            base,
            bytes: length,
            populated: (0..words).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    #[inline]
    fn is_populated(&self, piece: u64) -> bool {
        self.populated[(piece / 64) as usize].load(Ordering::Relaxed) >> (piece % 64) & 1 != 0
    }

    /// Reads a piece into the page cache. A read error is returned here, where a plain load would raise SIGBUS.
    #[cold]
    fn populate(&self, piece: u64) -> io::Result<()> {
        let start = piece * PIECE;
        let bytes = (self.bytes as u64 - start).min(PIECE) as usize;
        let at = self.base.as_ptr().wrapping_add(start as usize);
        // SAFETY: the range lies within the mapping; MADV_POPULATE_READ changes no contents.
        if unsafe { libc::madvise(at.cast(), bytes, libc::MADV_POPULATE_READ) } != 0 {
            let e = io::Error::last_os_error();
            // Kernels before 5.14 return EINVAL, because they cannot populate. Plain loads then fault the pages in.
            if e.raw_os_error() != Some(libc::EINVAL) {
                return Err(e);
            }
        }
        self.populated[(piece / 64) as usize].fetch_or(1 << (piece % 64), Ordering::Relaxed);
        Ok(())
    }
}

/// Access to a file.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Access {
    pub io: FileIo,
    /// True to bypass the page cache.
    pub direct: bool,
    pub read_only: bool,
}

impl FileStore {
    pub(in super::super) fn open(path: &Path, access: Access, block: u32) -> Result<Self, SoftError> {
        let Access { io, direct, read_only } = access;
        let failed = |action: &'static str| {
            let path = path.to_path_buf();
            move |source| SoftError::File { path, action, source }
        };
        // Checked before opening: opening a FIFO would wait for a writer, and a directory has no blocks.
        let kind = std::fs::metadata(path).map_err(failed("reading its attributes"))?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(SoftError::NotAFile { path: path.to_path_buf() });
        }
        let flags = libc::O_CLOEXEC | if direct { libc::O_DIRECT } else { 0 };
        let open = |write| OpenOptions::new().read(true).write(write).custom_flags(flags).open(path);
        let (file, read_only) = match open(!read_only) {
            Ok(f) => (f, read_only),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS)) => {
                (open(false).map_err(failed("opening it"))?, true)
            }
            Err(e) if direct && e.raw_os_error() == Some(libc::EINVAL) => {
                return Err(SoftError::Direct {
                    path: path.to_path_buf(),
                    reason: "its file system has no O_DIRECT; leave `direct` out".into(),
                });
            }
            Err(e) => return Err(failed("opening it")(e)),
        };
        // Readers may share a file; a writer needs it alone.
        let lock = if read_only { libc::LOCK_SH } else { libc::LOCK_EX };
        // SAFETY: the descriptor is open.
        let attempt = || match unsafe { libc::flock(file.as_raw_fd(), lock | libc::LOCK_NB) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        take(attempt, |e| e.raw_os_error() == Some(libc::EWOULDBLOCK)).map_err(|e| match e.raw_os_error() {
            Some(libc::EWOULDBLOCK) => {
                let holder = lock_holder(&Sysfs::system(), path).unwrap_or_else(|| "another controller".to_owned());
                SoftError::Locked { path: path.to_path_buf(), holder }
            }
            _ => failed("locking it")(e),
        })?;
        let bytes = length(&file).map_err(failed("reading its size"))?;
        check_size(&path.display().to_string(), bytes, block)?;
        let align = if direct { direct_alignment(&file) } else { 1 };
        if align > block as usize && direct_offset(&file) > block as usize {
            return Err(SoftError::Direct {
                path: path.to_path_buf(),
                reason: format!("O_DIRECT needs blocks of {} bytes, not {block}; use block=4096", direct_offset(&file)),
            });
        }
        let map = match io {
            FileIo::Mmap => Some(Map::new(&file, bytes).map_err(failed("mapping it"))?),
            _ => None,
        };
        let io = match io {
            FileIo::Uring => match Ring::new() {
                Ok(_) => FileIo::Uring,
                Err(e) => {
                    tracing::debug!(path = %path.display(), "no io_uring ({e}); using preadv2 and pwritev2");
                    FileIo::Pread
                }
            },
            other => other,
        };
        let (path, place) = (path.to_path_buf(), place(path));
        Ok(Self { file, path, place, bytes, present: AtomicU64::new(bytes), read_only, io, align, map })
    }

    /// Sets the path that the file will have: messages name it, not the path of the file that has no name yet.
    pub(in super::super) fn known_as(mut self, path: &Path) -> Self {
        self.path = path.to_path_buf();
        self.place = place(path);
        self
    }

    pub(in super::super) fn place(&self) -> &Path {
        &self.place
    }

    pub(in super::super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(in super::super) fn read_only(&self) -> bool {
        self.read_only
    }

    pub(in super::super) fn wants_ring(&self) -> bool {
        self.io == FileIo::Uring
    }

    pub(in super::super) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub(in super::super) fn describe(&self) -> String {
        let io = match self.io {
            FileIo::Uring => "io_uring",
            FileIo::Pread => "pread",
            FileIo::Mmap => "mmap",
        };
        let direct = if self.align > 1 { ", direct" } else { "" };
        let read_only = if self.read_only { ", read-only" } else { "" };
        format!("file {} {} ({io}{direct}{read_only})", self.path.display(), size_text(self.bytes))
    }

    /// Returns the first byte of the mapping, if there is one.
    #[inline]
    pub(in super::super) fn mapping(&self) -> Option<*const u8> {
        self.map.as_ref().map(|m| m.base.as_ptr().cast_const())
    }

    /// Returns the address at which bytes can be read by plain loads, or `None` without a mapping.
    #[inline]
    pub(in super::super) fn mapped(&self, offset: u64, bytes: usize) -> Result<Option<*const u8>, Status> {
        let Some(map) = &self.map else { return Ok(None) };
        let end = offset + bytes as u64;
        if end > self.present.load(Ordering::Relaxed) {
            return Err(status::UNRECOVERED_READ_ERROR);
        }
        for piece in offset / PIECE..=(end - 1) / PIECE {
            if !map.is_populated(piece) {
                self.check();
                if end > self.present.load(Ordering::Relaxed) || map.populate(piece).is_err() {
                    return Err(status::UNRECOVERED_READ_ERROR);
                }
            }
        }
        // SAFETY: `end` is at most `present`, which never exceeds the length of the mapping.
        Ok(Some(unsafe { map.base.as_ptr().add(offset as usize) }))
    }

    /// Fails if some of the bytes that were just read through the mapping no longer existed.
    #[inline]
    pub(in super::super) fn check_read(&self, offset: u64, bytes: usize) -> Result<(), Status> {
        match self.map.as_ref().and_then(|m| m.watch.missing()) {
            Some(missing) if offset + bytes as u64 > missing as u64 => Err(status::UNRECOVERED_READ_ERROR),
            _ => Ok(()),
        }
    }

    /// Checks whether the file has become shorter, so that reads beyond its end fail without accessing the mapping.
    pub(in super::super) fn check(&self) {
        if self.map.is_some()
            && let Ok(meta) = self.file.metadata()
            && meta.is_file()
        {
            let now = meta.len().min(self.bytes);
            if self.present.swap(now, Ordering::Relaxed) > now {
                tracing::error!(path = %self.path.display(), "the file was truncated from {} to {now} bytes", self.bytes);
            }
        }
    }

    /// Returns true if the kernel accepts these buffers for this file as they are.
    pub(in super::super) fn takes(&self, vectors: &[libc::iovec]) -> bool {
        self.align == 1
            || vectors
                .iter()
                .all(|v| (v.iov_base as usize).is_multiple_of(self.align) && v.iov_len.is_multiple_of(self.align))
    }

    /// Reads into the vectors, and consumes them.
    ///
    /// # Safety
    /// Each vector must name writable memory.
    pub(in super::super) unsafe fn read(&self, vectors: &mut Vec<libc::iovec>, offset: u64) -> io::Result<()> {
        if !self.takes(vectors) {
            // SAFETY: this function's caller makes the same promise.
            return unsafe { self.aligned(vectors, offset, false, false) };
        }
        // SAFETY: this function's caller makes the same promise.
        unsafe { self.transfer(vectors, offset, false, false) }
    }

    /// Writes from the vectors, and consumes them. With `durable`, waits until the data is on the medium.
    ///
    /// # Safety
    /// Each vector must name readable memory.
    pub(in super::super) unsafe fn write(
        &self,
        vectors: &mut Vec<libc::iovec>,
        offset: u64,
        durable: bool,
    ) -> io::Result<()> {
        if !self.takes(vectors) {
            // SAFETY: this function's caller makes the same promise.
            return unsafe { self.aligned(vectors, offset, true, durable) };
        }
        // SAFETY: this function's caller makes the same promise.
        unsafe { self.transfer(vectors, offset, true, durable) }
    }

    /// Transfers all vectors by as many system calls as needed.
    ///
    /// # Safety
    /// Each vector must name memory that is readable (`write`) or writable (otherwise).
    unsafe fn transfer(
        &self,
        vectors: &mut Vec<libc::iovec>,
        mut offset: u64,
        write: bool,
        durable: bool,
    ) -> io::Result<()> {
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        while !vectors.is_empty() {
            let count = vectors.len().min(MAX_VECTORS) as libc::c_int;
            let at = offset as libc::off_t;
            // SAFETY: there are `count` vectors, and the caller vouches for the memory that they name.
            let n = unsafe {
                match write {
                    true => libc::pwritev2(self.fd(), vectors.as_ptr(), count, at, flags),
                    false => libc::preadv2(self.fd(), vectors.as_ptr(), count, at, 0),
                }
            };
            match n {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n if n < 0 => {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        return Err(e);
                    }
                }
                n => {
                    offset += n as u64;
                    advance(vectors, n as usize);
                }
            }
        }
        Ok(())
    }

    /// Transfers through an aligned buffer, for pages whose alignment O_DIRECT does not allow.
    ///
    /// # Safety
    /// As [`FileStore::transfer`].
    unsafe fn aligned(&self, vectors: &[libc::iovec], offset: u64, write: bool, durable: bool) -> io::Result<()> {
        let bytes: usize = vectors.iter().map(|v| v.iov_len).sum();
        let mut buffer = vec![0u8; bytes.next_multiple_of(self.align) + self.align];
        let start = buffer.as_mut_ptr().align_offset(self.align);
        let base = buffer[start..start + bytes].as_mut_ptr();
        let whole = || vec![libc::iovec { iov_base: base.cast(), iov_len: bytes }];
        let copy = |into: bool| {
            let mut at = 0;
            for v in vectors.iter() {
                let (here, there) = (base.wrapping_add(at), v.iov_base.cast::<u8>());
                let (from, to) = if into { (there, here) } else { (here, there) };
                // SAFETY: the vectors have `bytes` bytes in total, as the buffer does. The caller vouches for their
                // memory.
                unsafe { std::ptr::copy_nonoverlapping(from, to, v.iov_len) };
                at += v.iov_len;
            }
        };
        if write {
            copy(true);
            // SAFETY: this function owns the buffer.
            unsafe { self.transfer(&mut whole(), offset, true, durable) }
        } else {
            // SAFETY: this function owns the buffer.
            unsafe { self.transfer(&mut whole(), offset, false, false) }?;
            copy(false);
            Ok(())
        }
    }

    pub(in super::super) fn zero(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is open, and the call takes no pointers.
        if unsafe { libc::fallocate(self.fd(), mode, offset as libc::off_t, bytes as libc::off_t) } == 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        if !matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV)) {
            return Err(e);
        }
        let mut zeros = vec![0u8; ZEROS + DIRECT_ALIGN];
        let start = zeros.as_mut_ptr().align_offset(DIRECT_ALIGN);
        let mut at = offset;
        while at < offset + bytes {
            let n = (offset + bytes - at).min(ZEROS as u64) as usize;
            self.file.write_all_at(&zeros[start..start + n], at)?;
            at += n as u64;
        }
        Ok(())
    }

    pub(in super::super) fn flush(&self) -> io::Result<()> {
        if self.read_only { Ok(()) } else { self.file.sync_data() }
    }
}

/// Returns the length of a regular file or a block device in bytes.
fn length(file: &File) -> io::Result<u64> {
    let meta = file.metadata()?;
    if meta.is_file() {
        return Ok(meta.len());
    }
    let mut f = file;
    f.seek(SeekFrom::End(0))
}

fn statx(file: &File) -> Option<libc::statx> {
    let mut s = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH stands for the descriptor; `s` is large enough.
    let r = unsafe {
        libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN, s.as_mut_ptr())
    };
    // SAFETY: all fields are integers, for which zero is valid.
    let s = unsafe { s.assume_init() };
    (r == 0 && s.stx_mask & libc::STATX_DIOALIGN != 0 && s.stx_dio_offset_align > 0).then_some(s)
}

/// Returns the alignment of memory and lengths for O_DIRECT.
fn direct_alignment(file: &File) -> usize {
    statx(file).map_or(DIRECT_ALIGN, |s| s.stx_dio_mem_align.max(s.stx_dio_offset_align) as usize)
}

/// Returns the alignment of file offsets for O_DIRECT.
fn direct_offset(file: &File) -> usize {
    statx(file).map_or(512, |s| s.stx_dio_offset_align as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_under_a_mapping_is_an_error_and_no_signal() {
        const BYTES: u64 = 1 << 20;
        let named = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(named.path(), vec![0x5a; BYTES as usize]).unwrap();
        let store = FileStore::open(named.path(), Access { io: FileIo::Mmap, ..Access::default() }, 512).unwrap();
        let at = |offset: u64| store.mapped(offset, 4096).unwrap().unwrap();
        let (first, last) = (at(0), at(BYTES - 4096));
        // SAFETY: the mapping is live, and pages beyond the end of the file are replaced by zeros.
        let byte = |p: *const u8| unsafe { p.read_volatile() };
        assert_eq!((byte(first), byte(last)), (0x5a, 0x5a));
        named.as_file().set_len(8192).unwrap();
        assert_eq!(store.check_read(BYTES - 4096, 4096), Ok(()), "nobody has looked yet");
        assert_eq!((byte(first), byte(last)), (0x5a, 0));
        assert_eq!(store.check_read(BYTES - 4096, 4096), Err(status::UNRECOVERED_READ_ERROR));
        assert_eq!(store.check_read(0, 4096), Ok(()));
        // The file's new bytes are not those that were cut off, so the zeros stay.
        named.as_file().set_len(BYTES).unwrap();
        assert_eq!(store.check_read(BYTES - 4096, 4096), Err(status::UNRECOVERED_READ_ERROR));
        assert_eq!(byte(at(4096)), 0x5a);
    }
}
