//! File systems, volumes and disk images that are known by a few bytes at a fixed place.

use super::ends::Ends;
use super::{Detail, Recognised};

/// Magic bytes at an offset, and their meaning.
struct Signature {
    at: u64,
    magic: &'static [u8],
    what: &'static str,
    /// Where a label stands, and how long it is at most.
    label: Option<(u64, usize)>,
}

const fn signature(at: u64, magic: &'static [u8], what: &'static str) -> Signature {
    Signature { at, magic, what, label: None }
}

const fn labelled(
    at: u64,
    magic: &'static [u8],
    what: &'static str,
    label_at: u64,
    label_bytes: usize,
) -> Signature {
    Signature { at, magic, what, label: Some((label_at, label_bytes)) }
}

/// As util-linux's libblkid and the formats' own documents place them.
const SIGNATURES: &[Signature] = &[
    labelled(0, b"XFSB", "an XFS file system", 108, 12),
    labelled(0x1_0040, b"_BHRfS_M", "a Btrfs file system", 0x1_012b, 256),
    signature(3, b"NTFS    ", "an NTFS file system"),
    signature(3, b"EXFAT   ", "an exFAT file system"),
    signature(3, b"ReFS\0\0\0\0", "a ReFS file system"),
    labelled(82, b"FAT32   ", "a FAT32 file system", 71, 11),
    labelled(54, b"FAT16   ", "a FAT16 file system", 43, 11),
    labelled(54, b"FAT12   ", "a FAT12 file system", 43, 11),
    signature(0x10_0000, &[0x0d, 0xd0, 0x01, 0xc0], "a VMFS file system"),
    labelled(0x8001, b"CD001", "an ISO 9660 file system", 0x8028, 32),
    signature(0x8001, b"BEA01", "a UDF file system"),
    signature(0x400, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system"),
    signature(0x400, b"H+\0\x04", "an HFS+ file system"),
    signature(0x400, b"HX\0\x05", "an HFS+ file system"),
    signature(32, b"NXSB", "an APFS container"),
    signature(0, b"hsqs", "a SquashFS file system"),
    signature(3, b"-FVE-FS-", "a BitLocker volume"),
    signature(0, b"LUKS\xba\xbe\0\x01", "a LUKS1 encrypted volume"),
    labelled(0, b"LUKS\xba\xbe\0\x02", "a LUKS2 encrypted volume", 24, 48),
    signature(0, b"bluestore block device\n", "a Ceph BlueStore device"),
    signature(0, b"QFI\xfb", "a QCOW2 image"),
    signature(0, b"KDMV", "a VMDK image"),
    signature(0, b"COWD", "a VMDK image"),
    signature(0, b"vhdxfile", "a VHDX image"),
    signature(0, b"conectix", "a VHD image"),
    signature(64, &[0x7f, 0x10, 0xda, 0xbe], "a VDI image"),
];

pub(super) fn found(ends: &Ends) -> Vec<Recognised> {
    let plain = SIGNATURES.iter().filter(|signature| ends.has(signature.at, signature.magic));
    let mut found: Vec<Recognised> = plain.map(|signature| recognise(signature, ends)).collect();
    found.extend(ext(ends));
    found.extend(swap(ends));
    found
}

/// Whether the first sector is a file system's: it then ends as a partition table does, and is none.
pub(super) fn in_the_boot_sector(ends: &Ends) -> bool {
    SIGNATURES.iter().any(|signature| signature.at < 510 && ends.has(signature.at, signature.magic))
}

fn recognise(signature: &Signature, ends: &Ends) -> Recognised {
    let label = signature.label.and_then(|(at, length)| ends.get(at, length));
    Recognised::labelled(signature.what, label.unwrap_or_default())
}

/// ext2, ext3 and ext4 share a superblock; which of them it is, its feature flags tell, as mount and blkid
/// see it.
fn ext(ends: &Ends) -> Option<Recognised> {
    const SUPERBLOCK: u64 = 1024;
    const MAGIC: u16 = 0xef53;
    const HAS_JOURNAL: u32 = 0x4;
    const JOURNAL_DEVICE: u32 = 0x8;
    /// Extents, 64 bit, flexible block groups.
    const EXT4_INCOMPATIBLE: u32 = 0x40 | 0x80 | 0x200;
    /// Huge files, group checksums, many links, large inodes, metadata checksums.
    const EXT4_READ_ONLY: u32 = 0x8 | 0x10 | 0x20 | 0x40 | 0x400;
    if ends.u16_le(SUPERBLOCK + 56)? != MAGIC {
        return None;
    }
    let compatible = ends.u32_le(SUPERBLOCK + 92)?;
    let incompatible = ends.u32_le(SUPERBLOCK + 96)?;
    let read_only = ends.u32_le(SUPERBLOCK + 100)?;
    let what = if incompatible & JOURNAL_DEVICE != 0 {
        "a journal of an ext4 file system"
    } else if incompatible & EXT4_INCOMPATIBLE != 0 || read_only & EXT4_READ_ONLY != 0 {
        "an ext4 file system"
    } else if compatible & HAS_JOURNAL != 0 {
        "an ext3 file system"
    } else {
        "an ext2 file system"
    };
    let mut found = Recognised::labelled(what, ends.get(SUPERBLOCK + 120, 16)?);
    if found.detail.is_none() {
        let uuid = ends.get(SUPERBLOCK + 104, 16)?.first_chunk()?;
        found.detail = Some(Detail::Uuid(*uuid));
    }
    Some(found)
}

/// The length of an ext or XFS file system by its superblock, if that is one which can be mounted.
pub(super) fn file_system_bytes(ends: &Ends) -> Option<u64> {
    let (blocks, block) = if ends.has(0, b"XFSB") {
        let block = u32::from_be_bytes(*ends.get(4, 4)?.first_chunk()?);
        let blocks = u64::from_be_bytes(*ends.get(8, 8)?.first_chunk()?);
        (blocks, Some(u64::from(block)).filter(|block| block.is_power_of_two() && *block >= 512))
    } else {
        ext(ends)?;
        const SUPERBLOCK: u64 = 1024;
        const IS_64_BIT: u32 = 0x80;
        let is_64_bit = ends.u32_le(SUPERBLOCK + 96)? & IS_64_BIT != 0;
        let high = if is_64_bit { ends.u32_le(SUPERBLOCK + 0x150)? } else { 0 };
        let exponent = ends.u32_le(SUPERBLOCK + 24)?;
        (
            u64::from(high) << 32 | u64::from(ends.u32_le(SUPERBLOCK + 4)?),
            (exponent <= 6).then(|| 1024 << exponent),
        )
    };
    // Of both kinds blocks are 64 KiB at most.
    let block = block.filter(|block| *block <= 64 << 10)?;
    blocks.checked_mul(block).filter(|bytes| *bytes > 0)
}

/// Its signature ends the first page, whose length is that of the machine which made it.
fn swap(ends: &Ends) -> Option<Recognised> {
    const LABEL_AT: u64 = 1024 + 28;
    let is_swap = |page: u64| ends.has(page - 10, b"SWAPSPACE2") || ends.has(page - 10, b"SWAP-SPACE");
    [4096, 8192, 16_384, 65_536].into_iter().find(|page| is_swap(*page))?;
    Some(Recognised::labelled("swap space", ends.get(LABEL_AT, 16)?))
}
