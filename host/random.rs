//! Random bytes from the system: for secrets, and for numbers that must not repeat.

use std::io;

/// That many of them, or the system's reason.
pub(crate) fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let rest = &mut bytes[filled..];
        // SAFETY: the call writes at most the length given into memory that is borrowed for it.
        let n = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(n) {
            Ok(n) => filled += n,
            Err(_) => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
    Ok(bytes)
}

/// The same as hexadecimal digits, two for each byte.
pub(crate) fn hex<const N: usize>() -> io::Result<String> {
    Ok(bytes::<N>()?.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_differ_and_fill_all() {
        assert_ne!(bytes::<32>().unwrap(), bytes::<32>().unwrap());
        let digits = hex::<300>().unwrap();
        assert!(digits.len() == 600 && digits.chars().all(|c| c.is_ascii_hexdigit()));
        // None of many tries leaves the last byte at 0 but by chance: once in 256^8.
        assert!((0..8).any(|_| bytes::<300>().unwrap()[299] != 0));
    }
}
