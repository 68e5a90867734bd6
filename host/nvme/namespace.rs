//! Namespaces that kernels can address: blocks of 512 or 4096 bytes, nothing beside the data.

use super::NvmeError;
use crate::wire::nvme::identify::IdentifyNamespace;

/// log2 of the block sizes that are driven.
const BLOCK_SHIFTS: [u8; 2] = [9, 12];

/// An active namespace in a format that is driven.
#[derive(Clone, Debug)]
pub struct Namespace {
    nsid: u32,
    identify: IdentifyNamespace,
}

impl Namespace {
    pub(super) fn new(device: &str, nsid: u32, identify: IdentifyNamespace) -> Result<Self, NvmeError> {
        let format = identify.format();
        let reason = if format.metadata_bytes != 0 {
            format!("its blocks carry {} bytes of metadata", format.metadata_bytes)
        } else if identify.protection() != 0 {
            format!("it has end-to-end protection of type {}", identify.protection())
        } else if !BLOCK_SHIFTS.contains(&format.data_shift) {
            match 1u64.checked_shl(format.data_shift.into()) {
                Some(bytes) => format!("its blocks are {bytes} bytes"),
                None => format!("its block size is 2 to the power of {}", format.data_shift),
            }
        } else if identify
            .blocks()
            .checked_shl(format.data_shift.into())
            .is_none_or(|b| b >> format.data_shift != identify.blocks())
        {
            format!("its size of {} blocks is more than 64 bits of bytes", identify.blocks())
        } else {
            return Ok(Self { nsid, identify });
        };
        Err(NvmeError::Format { device: device.to_owned(), nsid, reason })
    }

    /// Its identifier.
    pub fn id(&self) -> u32 {
        self.nsid
    }

    /// Logical blocks.
    pub fn blocks(&self) -> u64 {
        self.identify.blocks()
    }

    /// log2 of the logical block size: 9 or 12.
    pub fn block_shift(&self) -> u32 {
        self.identify.format().data_shift.into()
    }

    /// Bytes in a logical block.
    pub fn block_bytes(&self) -> usize {
        1 << self.block_shift()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks() << self.block_shift()
    }

    /// The namespace refuses writes.
    pub fn write_protected(&self) -> bool {
        self.identify.write_protected()
    }

    /// The whole data structure.
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
    fn both_block_sizes_and_nothing_else() {
        let n = namespace(9, 0, 0).unwrap();
        assert_eq!((n.id(), n.blocks(), n.block_bytes(), n.bytes()), (3, 200, 512, 102_400));
        assert_eq!(namespace(12, 0, 0).unwrap().block_bytes(), 4096);
        for (refused, word) in [
            (namespace(9, 8, 0), "8 bytes of metadata"),
            (namespace(12, 0, 1), "protection of type 1"),
            (namespace(10, 0, 0), "1024 bytes"),
            (namespace(200, 0, 0), "power of 200"),
        ] {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("namespace 3") && text.contains(word), "{text}");
        }
    }
}
