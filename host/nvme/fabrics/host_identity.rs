//! Identity of this host towards targets: NQN and identifier, from the files that nvme-cli uses.

use super::FabricsError;
use crate::wire::nvme::fabrics::nqn_complaint;
use std::path::Path;

/// Prefix of a name that is made of a UUID (NVMe Base 2.1, 4.7).
const UUID_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";
const FOLDER: &str = "/etc/nvme";

/// Name and identifier of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Host NQN.
    pub nqn: String,
    /// Host Identifier.
    pub id: [u8; 16],
}

impl HostIdentity {
    /// Reads `/etc/nvme/hostnqn` and `/etc/nvme/hostid`. Generates a name for this process if the first file does not
    /// exist. An identifier without a file is the UUID in the name, if it has one.
    ///
    /// # Errors
    /// [`FabricsError::Identity`] if a file has other contents; [`FabricsError::System`] without random bytes.
    #[cfg(feature = "internals")]
    pub fn of_system() -> Result<Self, FabricsError> {
        Self::in_folder(Path::new(FOLDER), None, None)
    }

    /// As [`HostIdentity::of_system`], with a name and an identifier that replace those of the files.
    ///
    /// # Errors
    /// As [`HostIdentity::of_system`], and [`FabricsError::Options`] for an invalid name.
    pub fn with(nqn: Option<&str>, id: Option<[u8; 16]>) -> Result<Self, FabricsError> {
        Self::in_folder(Path::new(FOLDER), nqn, id)
    }

    fn in_folder(folder: &Path, nqn: Option<&str>, id: Option<[u8; 16]>) -> Result<Self, FabricsError> {
        let random = || {
            let mut b = crate::random::bytes::<16>()
                .map_err(|source| FabricsError::System { what: "random bytes for a host NQN", source })?;
            // Version 4, variant of RFC 9562.
            (b[6], b[8]) = (b[6] & 0x0f | 0x40, b[8] & 0x3f | 0x80);
            Ok::<_, FabricsError>(b)
        };
        let name_file = folder.join("hostnqn");
        let nqn = match nqn {
            Some(nqn) => match nqn_complaint(nqn) {
                Some(reason) => return Err(FabricsError::Options { reason: format!("host NQN `{nqn}`: {reason}") }),
                None => nqn.to_owned(),
            },
            None => match line(&name_file)? {
                Some(nqn) => match nqn_complaint(&nqn) {
                    Some(reason) => return Err(FabricsError::Identity { path: name_file, reason }),
                    None => nqn,
                },
                None => format!("{UUID_PREFIX}{}", uuid_text(&random()?)),
            },
        };
        let id_file = folder.join("hostid");
        let id = match id {
            Some(id) => id,
            None => match line(&id_file)? {
                Some(text) => parse_uuid(&text).ok_or_else(|| FabricsError::Identity {
                    path: id_file,
                    reason: format!("`{text}` is not a UUID; `uuidgen` makes one"),
                })?,
                None => match nqn.strip_prefix(UUID_PREFIX).and_then(parse_uuid) {
                    Some(id) => id,
                    None => random()?,
                },
            },
        };
        Ok(Self { nqn, id })
    }
}

/// Returns the first line of a file, or `None` if the file does not exist or is empty.
fn line(path: &Path) -> Result<Option<String>, FabricsError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().next().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty())),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(FabricsError::Identity { path: path.to_owned(), reason: e.to_string() }),
    }
}

/// Parses a UUID: 32 hexadecimal digits, with or without hyphens.
pub(crate) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut id = [0; 16];
    for (to, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *to = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

/// Returns the text of a UUID.
pub fn uuid_text(id: &[u8; 16]) -> String {
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_before_generated_names_and_options_before_files() {
        let folder = tempfile::tempdir().unwrap();
        let of = |nqn, id| HostIdentity::in_folder(folder.path(), nqn, id);
        let made = of(None, None).unwrap();
        assert_eq!(made.nqn, format!("{UUID_PREFIX}{}", uuid_text(&made.id)));
        assert_ne!(of(None, None).unwrap(), made);
        std::fs::write(folder.path().join("hostnqn"), "nqn.2014-08.org.example:a\n").unwrap();
        std::fs::write(folder.path().join("hostid"), "00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        let read = of(None, None).unwrap();
        assert_eq!((read.nqn.as_str(), read.id[1], read.id[15]), ("nqn.2014-08.org.example:a", 0x11, 0xff));
        let given = of(Some("nqn.b"), Some([7; 16])).unwrap();
        assert_eq!((given.nqn.as_str(), given.id), ("nqn.b", [7; 16]));
        std::fs::write(folder.path().join("hostid"), "hello").unwrap();
        assert!(of(None, None).unwrap_err().to_string().contains("`hello` is not a UUID"));
        assert!(matches!(of(Some(""), None), Err(FabricsError::Options { .. })));
    }
}
