//! Partition tables: GUID (UEFI 2.10, chapter 5) and the master boot record.

use super::ends::Ends;
use super::{Detail, Recognised};

/// The partition tables. `has_boot_sector`: the first sector belongs to a file system.
pub(super) fn found(ends: &Ends, has_boot_sector: bool) -> Vec<Recognised> {
    if let Some(count) = guid_partitions(ends) {
        return vec![with_partitions("a GPT partition table", count)];
    }
    if has_second_guid_header(ends) {
        return vec![Recognised::new("the second copy of a GPT partition table, without the first")];
    }
    if has_boot_sector { Vec::new() } else { master_boot_record(ends).into_iter().collect() }
}

fn with_partitions(what: &'static str, count: usize) -> Recognised {
    Recognised { what, detail: Some(Detail::Partitions(count)) }
}

const GUID_MAGIC: &[u8] = b"EFI PART";

/// Entries that are in use. The header is in the second block, and an image of a disk with other blocks has
/// it where those would be.
fn guid_partitions(ends: &Ends) -> Option<usize> {
    /// More than any tool makes: 128 is usual.
    const ENTRIES_MAX: u64 = 1024;
    let sizes = [ends.block_bytes, 512, 4096];
    let block = sizes.into_iter().find(|block| ends.has(*block, GUID_MAGIC))?;
    let first = ends.u64_le(block + 72).unwrap_or(0).checked_mul(block);
    let count = u64::from(ends.u32_le(block + 80).unwrap_or(0)).min(ENTRIES_MAX);
    let length = u64::from(ends.u32_le(block + 84).unwrap_or(0));
    // The partition type GUID comes first in an entry; zero is an unused one.
    let in_use = |index: u64| {
        let kind = first.and_then(|first| ends.get(first.checked_add(index * length)?, 16));
        kind.is_some_and(|kind| kind.iter().any(|byte| *byte != 0))
    };
    Some(if length < 128 { 0 } else { (0..count).filter(|index| in_use(*index)).count() })
}

/// In the last block. What made the first unreadable may have spared it, and with it everything on the disk.
fn has_second_guid_header(ends: &Ends) -> bool {
    [ends.block_bytes, 512, 4096]
        .into_iter()
        .filter_map(|block| ends.device_bytes().checked_sub(block))
        .any(|last| ends.has(last, GUID_MAGIC))
}

/// Four entries of 16 bytes, each with a boot flag, which is 0 or 80h in a table and anything in other data.
fn master_boot_record(ends: &Ends) -> Option<Recognised> {
    const BOOT_FLAG: usize = 0;
    const KIND: usize = 4;
    if !ends.has(510, &[0x55, 0xaa]) {
        return None;
    }
    let entries: Vec<&[u8]> = ends.get(446, 64)?.chunks(16).collect();
    let is_table = entries.iter().all(|entry| matches!(entry[BOOT_FLAG], 0 | 0x80));
    let partitions = entries.iter().filter(|entry| entry[KIND] != 0).count();
    Some(if is_table && partitions > 0 {
        with_partitions("an MBR partition table", partitions)
    } else {
        Recognised::new("a boot sector")
    })
}
