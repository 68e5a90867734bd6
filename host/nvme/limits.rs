//! Limits of one command, beyond MDTS (NVM Command Set 1.1, 4.1.5.2).

use super::controller::{Controller, Ready};
use super::{Namespace, NvmeError};
use crate::wire::nvme::{IDENTIFY_BYTES, SqEntry, admin, cns};

/// Version that introduced the NVM command set's Identify data structure.
const SINCE: (u16, u8, u8) = (1, 4, 0);

/// Limits of commands that move no data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandLimits {
    /// Bytes of one Write Zeroes; `None` if not limited.
    write_zeroes: Option<u64>,
    /// Ranges of one Dataset Management; 0 if not limited.
    ranges: u8,
    /// Blocks of each range; 0 if not limited.
    range_blocks: u32,
    /// Blocks of all ranges together; 0 if not limited.
    deallocate_blocks: u64,
}

impl CommandLimits {
    fn new(bytes: &[u8], page_shift: u32, mdts: Option<u64>) -> Self {
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let number = |at: usize, count: usize| (at..at + count).rev().fold(0u64, |n, i| n << 8 | u64::from(byte(i)));
        let write_zeroes = match byte(1) {
            // 0 in the field: older controllers then mean MDTS. A controller without MDTS has no limit here either.
            0 => mdts,
            shift => 1u64.checked_shl(u32::from(shift) + page_shift),
        };
        Self { write_zeroes, ranges: byte(3), range_blocks: number(4, 4) as u32, deallocate_blocks: number(8, 8) }
    }

    /// Returns the largest number of blocks that one Write Zeroes should name.
    pub fn write_zeroes_blocks(&self, namespace: &Namespace) -> u64 {
        self.write_zeroes.map_or(u64::MAX, |bytes| bytes >> namespace.block_shift())
    }

    /// Returns the largest number of ranges that one Dataset Management may name.
    pub fn ranges(&self) -> usize {
        if self.ranges == 0 { usize::MAX } else { self.ranges.into() }
    }

    /// Returns the largest number of blocks in one range of a Dataset Management.
    pub fn range_blocks(&self) -> u64 {
        if self.range_blocks == 0 { u32::MAX.into() } else { self.range_blocks.into() }
    }

    /// Returns the largest number of blocks in all ranges of a Dataset Management together.
    pub fn deallocate_blocks(&self) -> u64 {
        if self.deallocate_blocks == 0 { u64::MAX } else { self.deallocate_blocks }
    }
}

impl Controller<Ready> {
    /// Returns the limits of one command. The first call reads them from the controller.
    ///
    /// # Errors
    /// As any admin command, except [`NvmeError::Command`]: see [`Controller::feature`].
    pub fn limits(&self) -> Result<CommandLimits, NvmeError> {
        if let Some(known) = self.state.limits.get() {
            return Ok(*known);
        }
        let mut bytes = vec![0; IDENTIFY_BYTES];
        if self.version() >= SINCE && !self.core.quirks.no_namespace_list {
            let entry =
                SqEntry { cdw10: u32::from(cns::COMMAND_SET_CONTROLLER), ..SqEntry::new(admin::IDENTIFY, 0, 0) };
            match self.admin_read(entry, &mut bytes, "controller, NVM command set") {
                // The data structure is optional before version 2.0.
                Err(e) if e.status().is_none() => return Err(e),
                Err(_) => bytes.fill(0),
                Ok(()) => {}
            }
        }
        let limits = CommandLimits::new(&bytes, self.cap().min_page_shift(), self.max_data_transfer());
        Ok(*self.state.limits.get_or_init(|| limits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_where_the_specification_has_them() {
        let none = CommandLimits::new(&[], 12, None);
        assert_eq!((none.ranges(), none.range_blocks()), (usize::MAX, u32::MAX.into()));
        assert_eq!((none.write_zeroes, none.deallocate_blocks()), (None, u64::MAX));
        let mut b = [0u8; 16];
        (b[1], b[3], b[4], b[9]) = (3, 8, 100, 1);
        let some = CommandLimits::new(&b, 12, Some(1 << 17));
        assert_eq!((some.write_zeroes, some.ranges(), some.range_blocks()), (Some(32 << 10), 8, 100));
        assert_eq!(some.deallocate_blocks(), 256);
        assert_eq!(CommandLimits::new(&[], 12, Some(1 << 17)).write_zeroes, Some(1 << 17));
    }
}
