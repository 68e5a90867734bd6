//! Signatures of block devices: file systems, volume managers, encryption and partition tables write them at fixed
//! places.

use std::fmt;

/// Number of bytes at each end of a device that contain all known signatures.
pub const SIGNED_BYTES: usize = 1 << 20;

/// Kind of content that a device's signature shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature(&'static str);

/// Offset, bytes, name. The order matters if one format embeds another: the mark of a boot sector comes last.
const AT_THE_START: &[(usize, &[u8], &str)] = &[
    (512, b"EFI PART", "a GUID partition table"),
    (4096, b"EFI PART", "a GUID partition table"),
    (0, b"LUKS\xba\xbe", "a LUKS encrypted volume"),
    (0x218, b"LVM2 001", "an LVM2 physical volume"),
    (0x18, b"LVM2 001", "an LVM2 physical volume"),
    (0x418, b"LVM2 001", "an LVM2 physical volume"),
    (0x618, b"LVM2 001", "an LVM2 physical volume"),
    (0, &MD_MAGIC, "a member of an md array"),
    (4096, &MD_MAGIC, "a member of an md array"),
    (0x438, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x10040, b"_BHRfS_M", "a Btrfs file system"),
    (0x400, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    (4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca], "a bcache device"),
    (4096 + 24, &[0xc6, 0x85, 0x73, 0xf6, 0x66, 0xce, 0x90, 0xa9], "a bcachefs file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (4086, b"SWAP-SPACE", "swap space"),
    (65526, b"SWAPSPACE2", "swap space"),
    (0x10000, &[0x01, 0x16, 0x19, 0x70], "a GFS2 file system"),
    (0x2000, b"OCFSV2", "an OCFS2 file system"),
    (0x10034, b"ReIsEr", "a ReiserFS file system"),
    (0x8000, b"JFS1", "a JFS file system"),
    (0x8001, b"CD001", "an ISO 9660 file system"),
    (0, b"hsqs", "a SquashFS file system"),
    (0x400, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS file system"),
    (0, b"bluestore block device", "a Ceph BlueStore"),
    (0, b"dmvdo001", "a VDO volume"),
    (3, b"-FVE-FS-", "a BitLocker volume"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0x36, b"FAT12   ", "a FAT file system"),
    (0x36, b"FAT16   ", "a FAT file system"),
    (0x52, b"FAT32   ", "a FAT file system"),
    (510, &[0x55, 0xaa], "a boot sector or MBR partition table"),
];

/// Range of the uberblocks of ZFS, any of which may be the newest: the second half of the first label (256 KiB).
const ZFS_UBERBLOCKS: std::ops::Range<usize> = 128 << 10..256 << 10;
/// Alignment of the uberblocks of ZFS in bytes.
const ZFS_STEP: usize = 1 << 10;
const ZFS_MAGIC: u64 = 0x00ba_b10c;
const MD_MAGIC: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];

impl Signature {
    /// Searches for a signature. `head` and `tail` are the first and the last bytes of a device of `bytes` bytes:
    /// [`SIGNED_BYTES`] each, or all bytes of a smaller device.
    pub fn find(head: &[u8], tail: &[u8], bytes: u64) -> Option<Self> {
        let signed = |at: &usize, magic: &[u8]| head.get(*at..at + magic.len()) == Some(magic);
        let start = AT_THE_START.iter().find(|(at, magic, _)| signed(at, magic)).map(|s| Self(s.2));
        start.or_else(|| Self::zfs(head)).or_else(|| Self::at_the_end(tail, bytes))
    }

    fn zfs(head: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_ne_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let is_uberblock = |at: usize| word(at).is_some_and(|w| w == ZFS_MAGIC || w.swap_bytes() == ZFS_MAGIC);
        ZFS_UBERBLOCKS.step_by(ZFS_STEP).any(is_uberblock).then_some(Self("a member of a ZFS pool"))
    }

    fn at_the_end(tail: &[u8], bytes: u64) -> Option<Self> {
        let first = bytes.checked_sub(tail.len() as u64)?;
        let at = |place: u64, magic: &[u8]| {
            let offset = usize::try_from(place.checked_sub(first)?).ok()?;
            (tail.get(offset..offset.checked_add(magic.len())?)? == magic).then_some(())
        };
        // The metadata of md 1.0 is 8 KiB before the end, at a multiple of 4 KiB; of md 0.90 in the last whole 64 KiB
        // (md(4)).
        let v1 = bytes.checked_sub(8 << 10).map(|p| p & !0xfff).and_then(|p| at(p, &MD_MAGIC));
        let v0 = (bytes & !0xffff).checked_sub(64 << 10).and_then(|p| at(p, &MD_MAGIC));
        if v1.or(v0).is_some() {
            return Some(Self("a member of an md array"));
        }
        let backup = [512, 4096].into_iter().find_map(|block| at(bytes.checked_sub(block)?, b"EFI PART"));
        backup.map(|()| Self("a GUID partition table"))
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(at: usize, magic: &[u8]) -> String {
        let mut head = vec![0; SIGNED_BYTES];
        head[at..at + magic.len()].copy_from_slice(magic);
        Signature::find(&head, &[], 1 << 40).map_or_else(String::new, |s| s.to_string())
    }

    #[test]
    fn what_lies_at_the_start_is_named() {
        assert!(found(0x438, &[0x53, 0xef]).contains("ext4"));
        assert!(found(0x10040, b"_BHRfS_M").contains("Btrfs"));
        assert!(found(200 << 10, &ZFS_MAGIC.to_be_bytes()).contains("ZFS"));
        assert!(found(512, b"EFI PART").contains("GUID"));
        assert_eq!(found(700, b"EFI PART"), "");
        assert_eq!(Signature::find(&[], &[], 0), None);
    }

    #[test]
    fn a_file_system_is_told_from_its_boot_sector() {
        let mut head = vec![0; 4096];
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert!(Signature::find(&head, &[], 4096).unwrap().to_string().contains("MBR"));
        head[3..11].copy_from_slice(b"NTFS    ");
        assert!(Signature::find(&head, &[], 4096).unwrap().to_string().contains("NTFS"));
    }

    #[test]
    fn what_lies_at_the_end_is_named() {
        let bytes = (1u64 << 40) + 5 * 512;
        let tail = |place: u64, magic: &[u8]| {
            let mut t = vec![0; SIGNED_BYTES];
            let at = (place - (bytes - SIGNED_BYTES as u64)) as usize;
            t[at..at + magic.len()].copy_from_slice(magic);
            Signature::find(&[], &t, bytes).map(|s| s.to_string())
        };
        assert!(tail((bytes - 8192) & !4095, &MD_MAGIC).unwrap().contains("md"));
        assert!(tail((bytes & !0xffff) - 65536, &MD_MAGIC).unwrap().contains("md"));
        assert!(tail(bytes - 512, b"EFI PART").unwrap().contains("GUID"));
        assert_eq!(tail(bytes - 1024, b"EFI PART"), None);
    }

    proptest! {
        #[test]
        fn no_content_panics(head in prop::collection::vec(any::<u8>(), 0..9000), bytes: u64) {
            let _ = Signature::find(&head, &head, bytes);
            let _ = Signature::find(&head, &head, head.len() as u64);
        }
    }
}
