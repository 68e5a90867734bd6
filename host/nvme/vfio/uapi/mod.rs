//! The kernel's structures, written by hand with the headers' names. Only those in use; their sizes are asserted.

pub(super) mod iommufd;
#[cfg(test)]
mod reference;
pub(super) mod vfio;

use bytemuck::Pod;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The ioctl type of both headers, `;`.
const TYPE: u32 = b';' as u32;

/// `_IO(';', number)`. Both interfaces put the length into the structure instead of the request number.
const fn io(number: u32) -> u32 {
    TYPE << 8 | number
}

/// A structure that belongs to one request.
///
/// # Safety
/// For this request, the kernel must write only to the structure, whose first field is its size. The kernel only reads
/// memory that the structure names by address, or the caller keeps that memory valid.
pub(super) unsafe trait Call: Pod {
    /// Number of the request.
    const REQUEST: u32;
}

/// Makes a request with its structure. Returns the result of the system call.
pub(super) fn call<C: Call>(fd: BorrowedFd<'_>, argument: &mut C) -> io::Result<i32> {
    // SAFETY: the implementation of `Call` promises that the kernel stays within the structure.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), C::REQUEST as _, std::ptr::from_mut(argument)) })
}

/// Makes a request whose argument is a plain number, or none.
pub(super) fn call_number(fd: BorrowedFd<'_>, request: u32, number: usize) -> io::Result<i32> {
    // SAFETY: the requests that are made this way take the number itself, not an address.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), request as _, number) })
}

/// Makes a request whose reply has capabilities behind the structure: once for the length
/// (`argsz`), once for the reply.
pub(super) fn call_growing<C: Call>(fd: BorrowedFd<'_>, argument: C) -> io::Result<Vec<u8>> {
    let mut length = size_of::<C>();
    // The kernel returns the length that it needs. If that grows meanwhile, the request is made once more.
    for _ in 0..3 {
        let mut words = vec![0u64; length.div_ceil(8)];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
        bytes[..size_of::<C>()].copy_from_slice(bytemuck::bytes_of(&argument));
        bytes[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        // SAFETY: the kernel writes at most `argsz` bytes, which is the length of the buffer, aligned to 8.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), C::REQUEST as _, bytes.as_mut_ptr()) })?;
        let wanted = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        if wanted <= length {
            return Ok(bytes.to_vec());
        }
        length = wanted;
    }
    Err(io::Error::other("the kernel kept asking for a longer buffer"))
}

fn check(result: libc::c_int) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Implements [`Call`] for structures whose first field is their size, and asserts the size.
macro_rules! calls {
    ($($name:ident $size:literal = $request:expr;)*) => {$(
        const _: () = assert!(size_of::<$name>() == $size);
        // SAFETY: the layout is the header's, its size is asserted, and the kernel writes no more than that.
        unsafe impl $crate::nvme::vfio::uapi::Call for $name {
            const REQUEST: u32 = $request;
        }
        impl $name {
            /// Creates a structure of zeros, except for the size in the first field.
            pub(in crate::nvme::vfio) fn new() -> Self {
                let mut all: Self = bytemuck::Zeroable::zeroed();
                let size = (size_of::<Self>() as u32).to_ne_bytes();
                bytemuck::bytes_of_mut(&mut all)[..4].copy_from_slice(&size);
                all
            }
        }
    )*};
}
use calls;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_headers_numbers() {
        // `_IO(';', 100 + 8)` and `_IO(';', 0x85)`, expanded.
        assert_eq!(vfio::DeviceGetRegionInfo::REQUEST, 0x3b6c);
        assert_eq!(iommufd::IoasMap::REQUEST, 0x3b85);
        assert_eq!(vfio::IommuMapDma::REQUEST, 0x3b71);
        assert_eq!(vfio::DeviceBindIommufd::REQUEST, 0x3b76);
    }

    #[test]
    fn new_structures_say_their_size() {
        let info = vfio::DeviceGetInfo::new();
        assert_eq!((info.argsz, info.flags), (20, 0));
        assert_eq!(iommufd::IoasMap::new().size, 40);
    }

    #[test]
    fn a_request_that_a_file_does_not_know_is_an_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let fd = std::os::fd::AsFd::as_fd(&file);
        assert_eq!(call(fd, &mut vfio::DeviceGetInfo::new()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
        assert!(call_growing(fd, vfio::IommuGetInfo::new()).is_err());
        assert!(call_number(fd, vfio::VFIO_GET_API_VERSION, 0).is_err());
    }
}
