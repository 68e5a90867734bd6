//! Namespaces that kernels can address: blocks of 512 to 4096 bytes without metadata.

use super::NvmeError;
use crate::wire::nvme::identify::IdentifyNamespace;
#[cfg(feature = "internals")]
use crate::wire::nvme::identify::LbaFormat;

/// log2 of the supported block sizes: from the smallest NVMe block to a memory page.
const BLOCK_SHIFTS: std::ops::RangeInclusive<u8> = 9..=12;

/// Returns the reason why a namespace cannot be used, or `None` if it can.
pub(super) fn obstacle(identify: &IdentifyNamespace) -> Option<String> {
    let format = identify.format();
    if format.metadata_bytes != 0 {
        return Some(format!("its blocks carry {} bytes of metadata", format.metadata_bytes));
    }
    if identify.protection() != 0 {
        return Some(format!("it has end-to-end protection of type {}", identify.protection()));
    }
    if !BLOCK_SHIFTS.contains(&format.data_shift) {
        return Some(match 1u64.checked_shl(format.data_shift.into()) {
            Some(bytes) => format!("its blocks are {bytes} bytes"),
            None => format!("its block size is 2 to the power of {}", format.data_shift),
        });
    }
    let bytes = identify.blocks().checked_shl(format.data_shift.into());
    if bytes.is_none_or(|b| b >> format.data_shift != identify.blocks()) {
        return Some(format!("its size of {} blocks is more than 64 bits of bytes", identify.blocks()));
    }
    None
}

/// Returns true if the driver supports this format.
#[cfg(feature = "internals")]
fn is_driven(format: &LbaFormat) -> bool {
    format.metadata_bytes == 0 && BLOCK_SHIFTS.contains(&format.data_shift)
}

/// Result of [`check_format`] for a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg(feature = "internals")]
pub struct FormatCheck {
    /// Reason why the namespace cannot be used; `None` if it can.
    pub obstacle: Option<String>,
    /// Indices of its supported formats: largest blocks first, then by performance.
    pub better: Vec<usize>,
}

/// Checks whether a namespace can be used in its current format, and lists its formats that can be used.
#[cfg(feature = "internals")]
pub fn check_format(identify: &IdentifyNamespace) -> FormatCheck {
    let formats = identify.formats();
    let mut better: Vec<usize> = (0..formats.len()).filter(|&i| is_driven(&formats[i])).collect();
    better.sort_by_key(|&i| (std::cmp::Reverse(formats[i].data_shift), formats[i].performance));
    FormatCheck { obstacle: obstacle(identify), better }
}

/// An active namespace in a supported format.
#[derive(Clone, Debug)]
pub struct Namespace {
    nsid: u32,
    identify: IdentifyNamespace,
}

impl Namespace {
    pub(super) fn new(device: &str, nsid: u32, identify: IdentifyNamespace) -> Result<Self, NvmeError> {
        match obstacle(&identify) {
            None => Ok(Self { nsid, identify }),
            Some(reason) => Err(NvmeError::Format { device: device.to_owned(), nsid, reason }),
        }
    }

    /// Returns the namespace identifier.
    pub fn id(&self) -> u32 {
        self.nsid
    }

    /// Returns the number of logical blocks.
    pub fn blocks(&self) -> u64 {
        self.identify.blocks()
    }

    /// Returns log2 of the logical block size: 9 to 12.
    pub fn block_shift(&self) -> u32 {
        self.identify.format().data_shift.into()
    }

    /// Returns the logical block size in bytes.
    pub fn block_bytes(&self) -> usize {
        1 << self.block_shift()
    }

    /// Returns the size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks() << self.block_shift()
    }

    /// Returns true if the namespace refuses writes.
    pub fn write_protected(&self) -> bool {
        self.identify.write_protected()
    }

    /// Returns the Identify Namespace data.
    pub fn identify(&self) -> &IdentifyNamespace {
        &self.identify
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::IDENTIFY_BYTES;

    fn namespace(shift: u8, metadata: u16, protection: u8) -> Result<Namespace, NvmeError> {
        let mut b = vec![0u8; IDENTIFY_BYTES];
        b[0] = 200;
        b[29] = protection;
        b[128..132].copy_from_slice(&(u32::from(shift) << 16 | u32::from(metadata)).to_le_bytes());
        Namespace::new("d", 3, IdentifyNamespace::new(&b))
    }

    #[test]
    fn blocks_from_512_to_4096_bytes_and_nothing_else() {
        let n = namespace(9, 0, 0).unwrap();
        assert_eq!((n.id(), n.blocks(), n.block_bytes(), n.bytes()), (3, 200, 512, 102_400));
        for shift in 9..=12 {
            assert_eq!(namespace(shift, 0, 0).unwrap().block_bytes(), 1 << shift);
        }
        for (refused, word) in [
            (namespace(9, 8, 0), "8 bytes of metadata"),
            (namespace(12, 0, 1), "protection of type 1"),
            (namespace(8, 0, 0), "256 bytes"),
            (namespace(13, 0, 0), "8192 bytes"),
            (namespace(200, 0, 0), "power of 200"),
        ] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("namespace 3") && text.contains(word), "{text}");
        }
    }

    #[test]
    fn the_formats_that_would_do_are_named() {
        let mut b = vec![0u8; IDENTIFY_BYTES];
        b[0] = 200;
        (b[25], b[26]) = (4, 1);
        // 512; 512 + 8; 4096 of performance 2; 4096 of performance 1; 8192.
        for (i, word) in [9 << 16, 9 << 16 | 8, 12 << 16 | 2 << 24, 12 << 16 | 1 << 24, 13 << 16].iter().enumerate() {
            b[128 + 4 * i..132 + 4 * i].copy_from_slice(&u32::to_le_bytes(*word));
        }
        let check = check_format(&IdentifyNamespace::new(&b));
        assert_eq!(check.obstacle.as_deref(), Some("its blocks carry 8 bytes of metadata"));
        assert_eq!(check.better, [3, 2, 0]);
        b[26] = 0;
        assert_eq!(check_format(&IdentifyNamespace::new(&b)).obstacle, None);
    }
}
