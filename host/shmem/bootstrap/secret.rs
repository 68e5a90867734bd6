//! The secret that the ranks of one world share.

use super::{BootstrapError, Environment};
use crate::handshake::keyed;
use hmac::Mac;
use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// The smallest number of bytes of a secret: 128 bits, so that nobody can guess it from a recorded greeting.
const SHORTEST: usize = 16;
/// The largest number of bytes of a secret.
const LONGEST: usize = 4096;

/// The error for a secret that is too short or too long. The field is its number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret of {0} bytes: it must have {SHORTEST} to {LONGEST}")]
pub struct SecretLength(pub usize);

/// A shared secret. Its `Debug` output does not show it.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Creates a secret of `bytes`.
    ///
    /// # Errors
    ///
    /// [`SecretLength`] unless `bytes` has 16 to 4,096 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, SecretLength> {
        match bytes.len() {
            SHORTEST..=LONGEST => Ok(Self(bytes.into())),
            n => Err(SecretLength(n)),
        }
    }

    /// Generates a secret with the system's random source, as text for an environment variable.
    ///
    /// # Errors
    /// [`BootstrapError::System`] if the system has no random bytes.
    pub fn generate() -> Result<String, BootstrapError> {
        crate::random::hex::<32>().map_err(|e| BootstrapError::system("no random bytes from the system", &e))
    }

    /// Returns the secret in `WARPBELL_SECRET`, or in the file that `WARPBELL_SECRET_FILE` names. Returns `None` if
    /// neither variable is set.
    ///
    /// # Errors
    /// - [`BootstrapError::BadSecret`] if both variables are set, or `WARPBELL_SECRET` is too short or too long.
    /// - [`BootstrapError::SecretFile`] if the file cannot be read, other users can read or change it, or its secret is
    ///   too short or too long.
    pub fn find(environment: &Environment) -> Result<Option<Self>, BootstrapError> {
        const VALUE: &str = "WARPBELL_SECRET";
        const FILE: &str = "WARPBELL_SECRET_FILE";
        let bad = |reason| BootstrapError::BadSecret { variable: VALUE, reason };
        match (environment.get(VALUE), environment.get(FILE)) {
            (Some(_), Some(_)) => Err(bad(format!("{FILE} is set as well; unset one of them"))),
            // Removes white space at the ends, which files and shells add unnoticed.
            (Some(value), None) => Self::new(value.trim().as_bytes()).map(Some).map_err(|e| bad(e.to_string())),
            (None, Some(path)) => Self::read(Path::new(path)).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Reads a file that only this user or root owns and can change, and that only groups of this user can read.
    fn read(path: &Path) -> Result<Self, BootstrapError> {
        let failed = |reason: String| BootstrapError::SecretFile { path: path.to_owned(), reason };
        let io = |e: std::io::Error| failed(e.to_string());
        let file = std::fs::File::open(path).map_err(io)?;
        let about = file.metadata().map_err(io)?;
        if !about.is_file() {
            return Err(failed("it is not a file".to_owned()));
        }
        check_rights(about.uid(), about.gid(), about.mode() & 0o777, &Process::this()).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(LONGEST as u64 + 2).read_to_end(&mut bytes).map_err(io)?;
        Self::new(bytes.trim_ascii()).map_err(|e| failed(e.to_string()))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Derives a key for a purpose: HMAC-SHA256 of the purpose. Each purpose has a different key.
    pub fn key(&self, purpose: &str) -> [u8; 32] {
        let mac = keyed(&self.0).chain_update(b"warpbell key for ").chain_update(purpose.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

/// The user and groups that a process runs as.
struct Process {
    user: u32,
    groups: Vec<u32>,
}

impl Process {
    fn this() -> Self {
        // SAFETY: these calls return numbers; the first call of `getgroups` only counts.
        let (user, group, count) =
            unsafe { (libc::geteuid(), libc::getegid(), libc::getgroups(0, std::ptr::null_mut())) };
        let mut groups = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: space for as many groups as were counted. If there are more now, the call writes none and fails.
        let count = unsafe { libc::getgroups(groups.len() as libc::c_int, groups.as_mut_ptr()) };
        groups.truncate(usize::try_from(count).unwrap_or(0));
        groups.push(group);
        Self { user, groups }
    }
}

/// Checks that a file with this owner, group and mode can hold a secret of the process.
fn check_rights(owner: u32, group: u32, mode: u32, process: &Process) -> Result<(), String> {
    if owner != 0 && owner != process.user {
        return Err(format!(
            "user {owner} owns it, who can change it; this process runs as user {}: chown it",
            process.user
        ));
    }
    if mode & 0o006 != 0 {
        return Err(format!("every user can read or change it (mode {mode:03o}): chmod 600 it"));
    }
    if mode & 0o020 != 0 {
        return Err(format!("its group {group} can change it (mode {mode:03o}): chmod 600 it"));
    }
    if mode & 0o040 != 0 && !process.groups.contains(&group) {
        return Err(format!("group {group} can read it (mode {mode:03o}), and this user is not in it: chmod 600 it"));
    }
    Ok(())
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Returns bytes of the system's random source.
pub(super) fn random<const N: usize>() -> Result<[u8; N], BootstrapError> {
    crate::random::bytes().map_err(|e| BootstrapError::system("no random bytes from the system", &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn find(pairs: &[(&str, &str)]) -> Result<Option<Secret>, BootstrapError> {
        Secret::find(&pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect())
    }

    #[test]
    fn a_file_that_others_can_read_or_change_is_refused() {
        let process = Process { user: 1000, groups: vec![1000, 44] };
        let check = |owner, group, mode| check_rights(owner, group, mode, &process);
        for (owner, group, mode) in
            [(1000, 1000, 0o600), (1000, 44, 0o640), (0, 44, 0o640), (0, 0, 0o600), (1000, 7, 0o400)]
        {
            assert_eq!(check(owner, group, mode), Ok(()), "{owner} {group} {mode:o}");
        }
        for (owner, group, mode, why) in [
            (1001, 1000, 0o600, "user 1001 owns it"),
            (1001, 44, 0o040, "this process runs as user 1000"),
            (1000, 44, 0o660, "its group 44 can change it (mode 660)"),
            (1000, 7, 0o640, "group 7 can read it (mode 640)"),
            (1000, 1000, 0o644, "every user"),
        ] {
            let told = check(owner, group, mode).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
        assert!(!Process::this().groups.is_empty());
    }

    #[test]
    fn it_comes_from_a_variable_or_a_file() {
        assert!(find(&[]).unwrap().is_none());
        let value = find(&[("WARPBELL_SECRET", " 0123456789abcdef\n")]).unwrap().unwrap();
        assert_eq!(value.bytes(), b"0123456789abcdef");

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        let name = path.to_str().unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let file = find(&[("WARPBELL_SECRET_FILE", name)]).unwrap().unwrap();
        assert_eq!(file.bytes(), value.bytes());

        for mode in [0o644, 0o602] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let e = find(&[("WARPBELL_SECRET_FILE", name)]).unwrap_err().to_string();
            assert!(e.contains(name) && e.contains("chmod 600") && e.contains(&format!("{mode:o}")), "{e}");
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        for (pairs, word) in [
            (&[("WARPBELL_SECRET", "tooshort")][..], "8 bytes: it must have 16 to 4096"),
            (&[("WARPBELL_SECRET", "")], "0 bytes"),
            (&[("WARPBELL_SECRET", &"x".repeat(5000))], "5000 bytes"),
            (&[("WARPBELL_SECRET", "0123456789abcdef"), ("WARPBELL_SECRET_FILE", "/x")], "unset one"),
            (&[("WARPBELL_SECRET_FILE", "/nowhere/secret")], "/nowhere/secret"),
            (&[("WARPBELL_SECRET_FILE", folder.path().to_str().unwrap())], "not a file"),
        ] {
            let e = find(pairs).unwrap_err().to_string();
            assert!(e.contains(word) && !e.contains("tooshort") && !e.contains("0123"), "{e}");
        }
        let secret = find(&[("WARPBELL_SECRET", "0123456789abcdef")]).unwrap().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
    }

    #[test]
    fn each_purpose_has_a_key_of_its_own() {
        let (a, b) = (Secret::new(&[1; 16]).unwrap(), Secret::new(&[2; 100]).unwrap());
        assert_eq!(a.key("nic"), Secret::new(&[1; 16]).unwrap().key("nic"));
        assert!(a.key("nic") != a.key("nick") && a.key("nic") != b.key("nic"));
    }

    #[test]
    fn generated_ones_differ_and_are_long_enough() {
        let (a, b) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert!(a != b && a.len() == 64 && a.bytes().all(|c| c.is_ascii_hexdigit()));
        Secret::new(a.as_bytes()).unwrap();
    }
}
