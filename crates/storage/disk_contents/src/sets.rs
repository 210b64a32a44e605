//! Members of something larger: RAID sets, ours and those of Linux, volume groups of LVM2, pools of ZFS.

use super::ends::Ends;
use super::{Detail, Recognised, readable};

pub(super) fn found(ends: &Ends) -> Vec<Recognised> {
    [our_raid(ends), raid(ends), old_raid(ends), physical_volume(ends), zfs(ends)]
        .into_iter()
        .flatten()
        .collect()
}

fn member(what: &'static str, set: &[u8]) -> Recognised {
    Recognised { what, detail: readable(set).map(Detail::Set) }
}

/// Our superblocks, in one of two slots (`docs/raid-format.md`). The set's name is of the first that is there, even if it is
/// the older one or damaged: a disk with a trace of a set is not to be overwritten without asking.
fn our_raid(ends: &Ends) -> Option<Recognised> {
    let slots = [64 << 10, 128 << 10];
    let at = slots.into_iter().find(|at| ends.has(*at, b"LNRTRAID"))?;
    let name = ends.get(at + 168, 64).unwrap_or_default();
    let mut found = member("a member of a RAID set of linerate", name);
    if found.detail.is_none() {
        found.detail = ends.get(at + 32, 16).and_then(|uuid| uuid.first_chunk().copied()).map(Detail::Uuid);
    }
    Some(found)
}

const RAID_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();

/// md's superblocks of version 1: at the start (1.1), 4 KiB behind it (1.2), or 8 KiB before the end (1.0).
fn raid(ends: &Ends) -> Option<Recognised> {
    let last = ends.device_bytes().checked_sub(16 * 512).map(|at| at & !0xfff);
    let mut places = [Some(0), Some(4096), last].into_iter().flatten();
    let is_version_1 = |at: u64| ends.has(at, &RAID_MAGIC) && ends.u32_le(at + 4) == Some(1);
    let at = places.find(|at| is_version_1(*at))?;
    Some(member("a member of a Linux RAID set", ends.get(at + 32, 32)?))
}

/// Version 0.90: in the last whole 64 KiB, in the byte order of the machine that made it.
fn old_raid(ends: &Ends) -> Option<Recognised> {
    const PLACE: u64 = 64 << 10;
    let at = (ends.device_bytes() & !(PLACE - 1)).checked_sub(PLACE)?;
    let big_endian = 0xa92b_4efc_u32.to_be_bytes();
    let is_superblock =
        ends.has(at, &RAID_MAGIC) && ends.u32_le(at + 4) == Some(0) || ends.has(at, &big_endian);
    is_superblock.then(|| Recognised::new("a member of a Linux RAID set"))
}

/// The label is in one of the first four sectors; the identifier behind it is printed as LVM writes it.
fn physical_volume(ends: &Ends) -> Option<Recognised> {
    let is_label = |at: &u64| ends.has(*at, b"LABELONE") && ends.has(*at + 24, b"LVM2 001");
    [0, 512, 1024, 1536].iter().find(|at| is_label(at)).map(|_| Recognised::new("an LVM2 physical volume"))
}

/// Four labels of 256 KiB, two at each end; in each the ring of uberblocks, in slots of 1 KiB and more,
/// begins at 128 KiB. A pool that is a few seconds old has written some of them.
fn zfs(ends: &Ends) -> Option<Recognised> {
    const LABEL: u64 = 256 << 10;
    const RING: u64 = 128 << 10;
    let magic = 0x00ba_b10c_u64;
    let whole = ends.device_bytes() & !(LABEL - 1);
    let labels = [Some(0), Some(LABEL), whole.checked_sub(2 * LABEL), whole.checked_sub(LABEL)];
    let is_uberblock = |at: u64| ends.has(at, &magic.to_le_bytes()) || ends.has(at, &magic.to_be_bytes());
    let has_uberblock = |label: u64| (0..128).any(|slot| is_uberblock(label + RING + slot * 1024));
    labels.into_iter().flatten().any(has_uberblock).then(|| Recognised::new("a member of a ZFS pool"))
}
