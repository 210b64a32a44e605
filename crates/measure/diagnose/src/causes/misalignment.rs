//! Writes that are shorter than the physical block: each is read, changed and written back.

use super::Found;
use crate::case::Case;
use crate::layers::median;
use crate::{Cause, Where, words};

/// A short write that takes a third more than a whole one does something else beside.
const MORE_MIN: f64 = 0.3;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let ladder = &case.evidence.ladder;
    let (short, whole) = (median(&ladder.short_write)?, median(&ladder.write)?);
    if !case.layers.short_of_a_block(case.load())
        || short.low < whole.high.max(whole.value * (1.0 + MORE_MIN))
    {
        return None;
    }
    let storage = &case.evidence.storage;
    let more_s = short.value - whole.value;
    let gain = case.gain_of(|setting| setting.path.command_s = (setting.path.command_s - more_s).max(0.0));
    let physical = words::size(f64::from(storage.physical_block_bytes));
    let because = vec![
        format!(
            "The physical block is {physical} long; a write of {} takes {}, and one of a whole block {}.",
            words::size(f64::from(storage.block_bytes)),
            words::time(short.value),
            words::time(whole.value),
        ),
        format!(
            "Writes of {} are no whole number of blocks: each is read, changed and written back.",
            words::size(f64::from(case.load().block_bytes)),
        ),
    ];
    let remedies = vec![
        Where::Application.remedy(format!(
            "write in whole multiples of {physical} at places that are multiples of it (databases: page \
                 and log block size; file systems: block size of {physical} or more)"
        )),
        Where::Kernel.remedy(format!(
            "begin partitions at multiples of 1 MiB (parted -a optimal), mkfs.xfs -s size={0}, mkfs.ext4 \
                 -b {0}",
            storage.physical_block_bytes.max(4096)
        )),
        Where::Windows.remedy(
            "fsutil fsinfo sectorInfo DRIVE: shows whether the partition is aligned; format with an \
             allocation unit of 4096 or more",
        ),
        Where::Target.remedy(
            "a volume with logical blocks as long as the physical ones, for systems that can use them (4Kn)",
        ),
        Where::Linerate.remedy("?block=4096 on the volume, for a new one"),
        Where::Esxi.remedy(
            "VMFS 6 aligns by itself; a virtual disk from an old guest may not: check its partition table",
        ),
    ];
    // Longer requests would be another load: what they move more is not what mending brings.
    Some(Found { cause: Cause::Misalignment, because, gain, remedies, trial: None })
}
