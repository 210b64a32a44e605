//! Recognises the content of a disk by the bytes at its two ends: partition tables, file systems, volumes,
//! disk images and RAID members. Most have a few known bytes at a fixed offset.

use std::fmt;

use block::{BlockDevice, Blocks, Buffer, DeviceError, Extent, Lba};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recognised {
    /// The name with its article, for example "an ext4 file system".
    pub(super) what: &'static str,
    detail: Option<Detail>,
}

/// A detail that identifies the item.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Detail {
    Partitions(usize),
    Label(String),
    /// The set to which this member belongs.
    Set(String),
    Uuid([u8; 16]),
}

impl Recognised {
    fn new(what: &'static str) -> Recognised {
        Recognised { what, detail: None }
    }

    /// An item with its label, if it has a readable one.
    fn labelled(what: &'static str, label: &[u8]) -> Recognised {
        Recognised {
            what,
            detail: readable(label).map(Detail::Label),
        }
    }
}

/// Returns a label for display: the text up to the first zero byte, trimmed and without control characters.
/// `None` if nothing is left.
fn readable(label: &[u8]) -> Option<String> {
    let text = label.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let shown: String = text
        .trim()
        .chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect();
    (!shown.is_empty()).then_some(shown)
}

impl fmt::Display for Recognised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match &self.detail {
            None => Ok(()),
            Some(Detail::Partitions(1)) => f.write_str(" with 1 partition"),
            Some(Detail::Partitions(count)) => write!(f, " with {count} partitions"),
            Some(Detail::Label(label)) => write!(f, " (label {label})"),
            Some(Detail::Set(name)) => write!(f, " (of {name})"),
            Some(Detail::Uuid(uuid)) => {
                let number = u128::from_be_bytes(*uuid);
                let [b, c, d] = [80, 64, 48].map(|bits| number >> bits & 0xffff);
                let (a, e) = (number >> 96, number & 0xffff_ffff_ffff);
                write!(f, " (UUID {a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x})")
            }
        }
    }
}

/// Returns all recognised items. If nothing is recognised, but an end is not zero, returns an item of unknown
/// type.
pub(super) fn found(ends: &Ends) -> Vec<Recognised> {
    let mut found = partition_tables(ends);
    found.extend(at_fixed_places(ends));
    found.extend(members_of_sets(ends));
    if found.is_empty() && !ends.are_zero() {
        found.push(Recognised::new("data of an unknown kind"));
    }
    found
}

/// Magic bytes at an offset, and the format that they identify.
struct Signature {
    at: u64,
    magic: &'static [u8],
    what: &'static str,
    /// Offset and maximum length of the label.
    label: Option<(u64, usize)>,
}

const fn signature(at: u64, magic: &'static [u8], what: &'static str) -> Signature {
    Signature {
        at,
        magic,
        what,
        label: None,
    }
}

const fn labelled(
    at: u64,
    magic: &'static [u8],
    what: &'static str,
    label_at: u64,
    label_bytes: usize,
) -> Signature {
    Signature {
        at,
        magic,
        what,
        label: Some((label_at, label_bytes)),
    }
}

/// Known signatures, from libblkid (util-linux) and from the formats' documentation.
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

fn at_fixed_places(ends: &Ends) -> Vec<Recognised> {
    let plain = SIGNATURES
        .iter()
        .filter(|signature| ends.has(signature.at, signature.magic));
    let plain = plain.map(|signature| {
        let label = signature
            .label
            .and_then(|(at, length)| ends.get(at, length));
        Recognised::labelled(signature.what, label.unwrap_or_default())
    });
    plain.chain(ext(ends)).chain(swap(ends)).collect()
}

/// Recognises ext2, ext3 and ext4. They share a superblock format, and are distinguished by its feature
/// flags, as in mount and blkid.
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

/// Returns the length of an ext or XFS file system according to its superblock, if the values there are
/// valid.
pub(super) fn file_system_bytes(ends: &Ends) -> Option<u64> {
    let (blocks, block) = if ends.has(0, b"XFSB") {
        let block = u32::from_be_bytes(*ends.get(4, 4)?.first_chunk()?);
        let blocks = u64::from_be_bytes(*ends.get(8, 8)?.first_chunk()?);
        (
            blocks,
            Some(u64::from(block)).filter(|block| block.is_power_of_two() && *block >= 512),
        )
    } else {
        ext(ends)?;
        const SUPERBLOCK: u64 = 1024;
        const IS_64_BIT: u32 = 0x80;
        let is_64_bit = ends.u32_le(SUPERBLOCK + 96)? & IS_64_BIT != 0;
        let high = if is_64_bit {
            ends.u32_le(SUPERBLOCK + 0x150)?
        } else {
            0
        };
        let exponent = ends.u32_le(SUPERBLOCK + 24)?;
        (
            u64::from(high) << 32 | u64::from(ends.u32_le(SUPERBLOCK + 4)?),
            (exponent <= 6).then(|| 1024 << exponent),
        )
    };
    // Both formats have blocks of at most 64 KiB.
    let block = block.filter(|block| *block <= 64 << 10)?;
    blocks.checked_mul(block).filter(|bytes| *bytes > 0)
}

/// Recognises swap. The signature is at the end of the first page, whose size depends on the machine that
/// created the swap.
fn swap(ends: &Ends) -> Option<Recognised> {
    const LABEL_AT: u64 = 1024 + 28;
    let is_swap =
        |page: u64| ends.has(page - 10, b"SWAPSPACE2") || ends.has(page - 10, b"SWAP-SPACE");
    [4096, 8192, 16_384, 65_536]
        .into_iter()
        .find(|page| is_swap(*page))?;
    Some(Recognised::labelled("swap space", ends.get(LABEL_AT, 16)?))
}

fn partition_tables(ends: &Ends) -> Vec<Recognised> {
    if let Some(count) = guid_partitions(ends) {
        return vec![with_partitions("a GPT partition table", count)];
    }
    if has_second_guid_header(ends) {
        return vec![Recognised::new(
            "the second copy of a GPT partition table, without the first",
        )];
    }
    // The first sector of a file system may end with the signature of a partition table.
    let is_of_a_file_system = SIGNATURES
        .iter()
        .any(|signature| signature.at < 510 && ends.has(signature.at, signature.magic));
    if is_of_a_file_system {
        Vec::new()
    } else {
        master_boot_record(ends).into_iter().collect()
    }
}

fn with_partitions(what: &'static str, count: usize) -> Recognised {
    Recognised {
        what,
        detail: Some(Detail::Partitions(count)),
    }
}

const GUID_MAGIC: &[u8] = b"EFI PART";

/// Returns the number of used entries in a GPT. The header is in the second block. In the image of a disk
/// with another block size, that block size determines the header's offset.
fn guid_partitions(ends: &Ends) -> Option<usize> {
    /// Maximum number of entries that is accepted. It is larger than the number that any tool creates; 128 is
    /// usual.
    const ENTRIES_MAX: u64 = 1024;
    let sizes = [ends.block_bytes, 512, 4096];
    let block = sizes
        .into_iter()
        .find(|block| ends.has(*block, GUID_MAGIC))?;
    let first = ends.u64_le(block + 72).unwrap_or(0).checked_mul(block);
    let count = u64::from(ends.u32_le(block + 80).unwrap_or(0)).min(ENTRIES_MAX);
    let length = u64::from(ends.u32_le(block + 84).unwrap_or(0));
    // The partition type GUID comes first in an entry; zero marks an unused entry.
    let in_use = |index: u64| {
        let kind = first.and_then(|first| ends.get(first.checked_add(index * length)?, 16));
        kind.is_some_and(|kind| kind.iter().any(|byte| *byte != 0))
    };
    Some(if length < 128 {
        0
    } else {
        (0..count).filter(|index| in_use(*index)).count()
    })
}

/// Whether the last block contains the backup GPT header. If the first header is damaged, the backup header
/// and all data on the disk may still be intact.
fn has_second_guid_header(ends: &Ends) -> bool {
    [ends.block_bytes, 512, 4096]
        .into_iter()
        .filter_map(|block| ends.device_bytes.checked_sub(block))
        .any(|last| ends.has(last, GUID_MAGIC))
}

/// Recognises a master boot record: four entries of 16 bytes, in each of which the boot flag is 0 or 80h. In
/// other data, that byte can have any value.
fn master_boot_record(ends: &Ends) -> Option<Recognised> {
    const BOOT_FLAG: usize = 0;
    const KIND: usize = 4;
    if !ends.has(510, &[0x55, 0xaa]) {
        return None;
    }
    let entries: Vec<&[u8]> = ends.get(446, 64)?.chunks(16).collect();
    let is_table = entries
        .iter()
        .all(|entry| matches!(entry[BOOT_FLAG], 0 | 0x80));
    let partitions = entries.iter().filter(|entry| entry[KIND] != 0).count();
    Some(if is_table && partitions > 0 {
        with_partitions("an MBR partition table", partitions)
    } else {
        Recognised::new("a boot sector")
    })
}

fn members_of_sets(ends: &Ends) -> Vec<Recognised> {
    [
        our_raid(ends),
        raid(ends),
        old_raid(ends),
        physical_volume(ends),
        zfs(ends),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn member(what: &'static str, set: &[u8]) -> Recognised {
    Recognised {
        what,
        detail: readable(set).map(Detail::Set),
    }
}

/// Recognises our superblocks, which are in two slots (`docs/raid-format.md`). The set's name is taken from
/// the first superblock found, even if that is older than the other one, or damaged: a disk with any trace of
/// a set must not be overwritten without consent.
fn our_raid(ends: &Ends) -> Option<Recognised> {
    let slots = [64 << 10, 128 << 10];
    let at = slots.into_iter().find(|at| ends.has(*at, b"LNRTRAID"))?;
    let name = ends.get(at + 168, 64).unwrap_or_default();
    let mut found = member("a member of a Linerate RAID set", name);
    if found.detail.is_none() {
        found.detail = ends
            .get(at + 32, 16)
            .and_then(|uuid| uuid.first_chunk().copied())
            .map(Detail::Uuid);
    }
    Some(found)
}

const RAID_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

/// Recognises md superblocks of version 1: at the start (1.1), at 4 KiB (1.2), or about 8 KiB before the end
/// (1.0).
fn raid(ends: &Ends) -> Option<Recognised> {
    let last = ends
        .device_bytes
        .checked_sub(16 * 512)
        .map(|at| at & !0xfff);
    let mut places = [Some(0), Some(4096), last].into_iter().flatten();
    let is_version_1 = |at: u64| ends.has(at, &RAID_MAGIC) && ends.u32_le(at + 4) == Some(1);
    let at = places.find(|at| is_version_1(*at))?;
    Some(member(
        "a member of a Linux RAID set",
        ends.get(at + 32, 32)?,
    ))
}

/// Recognises md superblocks of version 0.90: in the last whole 64 KiB, in the byte order of the machine that
/// created the set.
fn old_raid(ends: &Ends) -> Option<Recognised> {
    const PLACE: u64 = 64 << 10;
    let at = (ends.device_bytes & !(PLACE - 1)).checked_sub(PLACE)?;
    let big_endian = 0xa92b_4efc_u32.to_be_bytes();
    let is_superblock =
        ends.has(at, &RAID_MAGIC) && ends.u32_le(at + 4) == Some(0) || ends.has(at, &big_endian);
    is_superblock.then(|| Recognised::new("a member of a Linux RAID set"))
}

/// Recognises an LVM physical volume. Its label is in one of the first four sectors. The identifier after the
/// label is displayed in LVM's notation.
fn physical_volume(ends: &Ends) -> Option<Recognised> {
    let is_label = |at: &u64| ends.has(*at, b"LABELONE") && ends.has(*at + 24, b"LVM2 001");
    [0, 512, 1024, 1536]
        .iter()
        .find(|at| is_label(at))
        .map(|_| Recognised::new("an LVM2 physical volume"))
}

/// Recognises ZFS, which has four labels of 256 KiB, two at each end. In each label, a ring of uberblocks
/// begins at 128 KiB, in slots of 1 KiB or more. A pool writes some uberblocks within a few seconds of its
/// creation.
fn zfs(ends: &Ends) -> Option<Recognised> {
    const LABEL: u64 = 256 << 10;
    const RING: u64 = 128 << 10;
    let magic = 0x00ba_b10c_u64;
    let whole = ends.device_bytes & !(LABEL - 1);
    debug_assert!(whole <= ends.device_bytes);
    let labels = [
        Some(0),
        Some(LABEL),
        whole.checked_sub(2 * LABEL),
        whole.checked_sub(LABEL),
    ];
    let is_uberblock =
        |at: u64| ends.has(at, &magic.to_le_bytes()) || ends.has(at, &magic.to_be_bytes());
    let has_uberblock = |label: u64| (0..128).any(|slot| is_uberblock(label + RING + slot * 1024));
    labels
        .into_iter()
        .flatten()
        .any(has_uberblock)
        .then(|| Recognised::new("a member of a ZFS pool"))
}

/// The first and the last bytes of a device, with their offsets. On a small device, the two overlap.
pub(super) struct Ends {
    head: Vec<u8>,
    tail: Vec<u8>,
    device_bytes: u64,
    /// The block size of the device, which partition tables also use.
    block_bytes: u64,
}

/// Number of bytes at the start. The VMFS signature is 1 MiB after the start; those of all other formats are
/// nearer to it.
const HEAD_BYTES: u64 = 2 << 20;
/// Number of bytes at the end. The last two ZFS labels take 512 KiB; all other formats take less.
const TAIL_BYTES: u64 = 1 << 20;

impl Ends {
    pub(super) async fn read(device: &dyn BlockDevice) -> Result<Ends, DeviceError> {
        let geometry = device.geometry();
        let blocks = |bytes: u64| (bytes >> geometry.block_size.shift()).min(geometry.blocks.0);
        let (head, tail) = (blocks(HEAD_BYTES), blocks(TAIL_BYTES));
        debug_assert!(head <= geometry.blocks.0 && tail <= geometry.blocks.0);
        Ok(Ends {
            head: read_in_steps(device, Extent::new(0, head)).await?,
            tail: read_in_steps(device, Extent::new(geometry.blocks.0 - tail, tail)).await?,
            device_bytes: geometry.bytes(),
            block_bytes: u64::from(geometry.block_size.bytes()),
        })
    }

    /// Creates the ends of a device whose content is in memory.
    pub(super) fn new(bytes: &[u8], block_bytes: u64) -> Ends {
        let tail = bytes.len().saturating_sub(TAIL_BYTES as usize);
        debug_assert!(block_bytes.is_power_of_two());
        Ends {
            head: bytes[..bytes.len().min(HEAD_BYTES as usize)].to_vec(),
            tail: bytes[tail..].to_vec(),
            device_bytes: bytes.len() as u64,
            block_bytes,
        }
    }

    /// Returns the `length` bytes at offset `at` of the device, if they are within one of its ends.
    fn get(&self, at: u64, length: usize) -> Option<&[u8]> {
        let tail_start = self.device_bytes - self.tail.len() as u64;
        debug_assert!(self.head.len() as u64 <= self.device_bytes);
        let within = |bytes: &'_ [u8], start: u64| -> Option<std::ops::Range<usize>> {
            let from = usize::try_from(at.checked_sub(start)?).ok()?;
            let range = from..from.checked_add(length)?;
            (range.end <= bytes.len()).then_some(range)
        };
        let head = within(&self.head, 0).map(|range| &self.head[range]);
        head.or_else(|| within(&self.tail, tail_start).map(|range| &self.tail[range]))
    }

    /// Whether `magic` is at that offset.
    fn has(&self, at: u64, magic: &[u8]) -> bool {
        self.get(at, magic.len()) == Some(magic)
    }

    fn u16_le(&self, at: u64) -> Option<u16> {
        Some(u16::from_le_bytes(*self.get(at, 2)?.first_chunk()?))
    }

    fn u32_le(&self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(*self.get(at, 4)?.first_chunk()?))
    }

    fn u64_le(&self, at: u64) -> Option<u64> {
        Some(u64::from_le_bytes(*self.get(at, 8)?.first_chunk()?))
    }

    fn are_zero(&self) -> bool {
        [&self.head, &self.tail]
            .iter()
            .all(|end| end.iter().all(|byte| *byte == 0))
    }
}

async fn read_in_steps(device: &dyn BlockDevice, all: Extent) -> Result<Vec<u8>, DeviceError> {
    let (geometry, mut bytes) = (device.geometry(), Vec::new());
    let step = (STEP_BYTES >> geometry.block_size.shift()).max(1);
    for at in (0..all.blocks.0).step_by(step as usize) {
        let piece = Extent {
            lba: Lba(all.lba.0 + at),
            blocks: Blocks(step.min(all.blocks.0 - at)),
        };
        let buffer = Buffer::recycled(geometry.length(piece) as usize);
        bytes.extend_from_slice(&device.read(piece, buffer).await?);
    }
    debug_assert_eq!(bytes.len() as u64, geometry.length(all));
    Ok(bytes)
}

/// Size of one read, which most devices support.
const STEP_BYTES: u64 = 512 << 10;
