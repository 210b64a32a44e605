//! Making writes durable is slow: every commit of a database waits for it.

use super::Found;
use crate::case::Case;
use crate::{Cause, Where, words};
use model::Direction;

/// A solid state disk without a capacitor flushes in 1 to 4 ms; a hard disk takes a turn or two.
const FLUSH_MIN_S: f64 = 0.005;

pub(crate) fn find(case: &Case<'_>) -> Option<Found> {
    let (load, flush_s) = (case.load(), case.layers.flush_s);
    if load.direction != Direction::Write || !load.durable || flush_s < FLUSH_MIN_S || case.signs.starved() {
        return None;
    }
    let gain = case.gain_of(|setting| setting.path.command_s = (setting.path.command_s - flush_s).max(0.0));
    let plain_s = case.layers.alone_s(Direction::Write, load.block_bytes).unwrap_or_default();
    let because = vec![
        format!(
            "A write takes {}, and one that is on stable storage when it ends {}.",
            words::time(plain_s),
            words::time(plain_s + flush_s)
        ),
        format!(
            "Durable writes come to {} a second, {} at once.",
            words::number(case.rate.value / f64::from(load.block_bytes)),
            load.depth
        ),
    ];
    let remedies = vec![
        Where::Target.remedy(
            "a write cache that survives a power failure (a RAID controller's with a battery, disks with \
             capacitors), or a log device of that kind (ZFS: SLOG)",
        ),
        Where::Target.remedy(
            "if the disks have such a cache and the target flushes all the same: tell it (mdadm and dm: \
             nothing to set; ZFS: zfs_nocacheflush; LVM on a controller: write-through in \
             /sys/block/DISK/queue/write_cache)",
        ),
        Where::Linerate.remedy("delay: with flush= around the volume, if there is one"),
        Where::Lio.remedy(
            "emulate_write_cache and emulate_fua_write say how the backstore flushes; only a protected cache \
             makes turning them off safe",
        ),
        Where::Application.remedy(
            "fewer, larger commits: group commit (PostgreSQL: commit_delay; MySQL: \
             innodb_flush_log_at_trx_commit), or several of them at once",
        ),
    ];
    Some(Found { cause: Cause::Flush, because, gain, remedies, trial: None })
}
