//! Causes behind the target: a slow medium, slow flushes, and unaligned writes.

use model::Direction;

use super::words;
use crate::case::Case;
use crate::causes::Found;
use crate::layers::median;
use crate::{Cause, Gain, Known, Remedy, Where, patterns};

// The storage behind the target is slow: each access takes long, or the rate of accesses is limited.

/// The minimum time of a slow access, in addition to the time of TEST UNIT READY. A solid-state disk takes a
/// tenth of this time, and a hard disk ten times as long.
const ACCESS_MIN_S: f64 = 0.001;

/// The minimum time of an access, as a multiple of a NOP's, from which the medium is slow although this machine has no
/// CPU time.
const STARVED_MIN: f64 = 5.0;

pub(crate) fn medium(case: &Case<'_>) -> Option<Found> {
    if case.symptoms.stalls.is_some() {
        return None;
    }
    let load = case.load();
    let what = if load.direction == Direction::Read {
        "read"
    } else {
        "write"
    };
    let (access_s, transfer_s) = (access_s(case), transfer_s(case));
    // Without CPU time, all times are long: only an access that takes several times as long as a NOP stands out.
    if case.symptoms.starved() && access_s < STARVED_MIN * case.layers.exchange_s() {
        return None;
    }
    let (gain, because) = match case.symptoms.medium_full {
        true => full(case, what, access_s),
        // With jitter, longer requests take longer: the last of their packets arrives late.
        false if access_s >= ACCESS_MIN_S.max(case.layers.jitter_s) => slow(case, what, access_s),
        false if transfer_s >= ACCESS_MIN_S => slow_to_transfer(case, what, transfer_s),
        false => return None,
    };
    Some(Found {
        cause: Cause::Medium,
        because,
        gain,
        remedies: remedies(),
        trial: None,
    })
}

/// Returns the time of an access in addition to the time of any command, in seconds.
fn access_s(case: &Case<'_>) -> f64 {
    let flush_s = if case.load().durable {
        case.layers.flush_s
    } else {
        0.0
    };
    let short_s = if case.layers.short_of_a_block(case.load()) {
        case.layers.short_s
    } else {
        0.0
    };
    case.setting.path.command_s - case.layers.dispatch_s() - flush_s - short_s
}

/// Returns the time that the data of a single request takes at the medium, in addition to the link. It is zero unless
/// deeper loads of the direction fill the medium at about this rate.
fn transfer_s(case: &Case<'_>) -> f64 {
    let full_per_s = (0..case.evidence.loads.len())
        .filter_map(|index| Case::of(case.evidence, case.layers, case.ceiling, index))
        .filter(|other| other.load().direction == case.load().direction)
        .filter(|other| other.symptoms.medium_full)
        .map(|other| other.rate.value)
        .fold(0.0, f64::max);
    let path = &case.setting.path;
    let Some(copy_per_s) = path
        .copy_per_s
        .filter(|copy_per_s| SAME.contains(&(copy_per_s / full_per_s)))
    else {
        return 0.0;
    };
    let bytes = f64::from(case.load().block_bytes);
    bytes / copy_per_s - path.payload_per_s.map_or(0.0, |payload| bytes / payload)
}

/// The range of ratios of two rates that have the same cause.
const SAME: std::ops::Range<f64> = 0.67..1.5;

fn slow_to_transfer(case: &Case<'_>, what: &str, transfer_s: f64) -> (Gain, Vec<String>) {
    let gain = case.gain_of(|setting| {
        setting.path.command_s -= access_s(case).max(0.0);
        setting.path.copy_per_s = setting.path.payload_per_s;
    });
    let because = vec![
        format!(
            "Deeper loads reach only the rate at which the data of a single {what} arrives, although {} passes them: \
             this is the rate of the medium.",
            case.shortest().replacen('A', "a", 1),
        ),
        format!(
            "A single {what} takes {}, of which its data takes {} at the medium.",
            words::time(case.service_s()),
            words::time(transfer_s)
        ),
    ];
    (gain, because)
}

fn slow(case: &Case<'_>, what: &str, access_s: f64) -> (Gain, Vec<String>) {
    let gain = case.gain_of(|setting| {
        setting.path.command_s -= access_s;
        // The time to transfer data cannot be distinguished from the variation of a slow access, so assume
        // the link's rate.
        setting.path.copy_per_s = setting.path.payload_per_s.or(setting.path.copy_per_s);
    });
    let quick = match (&case.evidence.nbd, case.layers.nop) {
        (None, _) => format!(
            "A NOP takes {}, and TEST UNIT READY {}: the network and the target are fast.",
            words::time(case.layers.exchange_s()),
            words::time(case.layers.exchange_s() + case.layers.dispatch_s()),
        ),
        (Some(_), Some(nop)) => {
            format!(
                "A BLOCK_STATUS takes {}: the network and the server are fast.",
                words::time(nop.value)
            )
        }
        (Some(_), None) => {
            format!(
                "The round trip takes {}: the network is fast.",
                words::time(case.layers.exchange_s())
            )
        }
    };
    let because = vec![
        quick,
        format!(
            "A {what} of one block takes {} longer, because it waits for the medium.",
            words::time(access_s)
        ),
    ];
    (gain, because)
}

fn full(case: &Case<'_>, what: &str, access_s: f64) -> (Gain, Vec<String>) {
    // A medium with a limited rate also delays single requests.
    let gain = case.gain_without(|setting| {
        setting.path.medium_per_s = None;
        setting.path.command_s -= if access_s >= ACCESS_MIN_S {
            access_s
        } else {
            0.0
        };
    });
    let because = vec![
        format!(
            "At a queue depth of {}, each {what} takes {}, but a single one takes {}: the requests wait for \
             each other, at {} or {} per second.",
            case.load().depth,
            words::time(case.service_s()),
            words::time(case.modelled_alone_s()),
            words::rate(case.rate.value),
            words::number(case.rate.value / f64::from(case.load().block_bytes)),
        ),
        format!(
            "During the load, {} takes {}: requests are queued neither in the network nor in the {}, but at \
             the medium.",
            case.shortest().replacen('A', "a", 1),
            words::time(case.layers.probe_s() + case.symptoms.nop_queue_s.unwrap_or(0.0).max(0.0)),
            case.server(),
        ),
    ];
    (gain, because)
}

fn remedies() -> Vec<Remedy> {
    vec![
        Where::Target.remedy(
            "check the disks behind the target: run iostat -x 1 there (r_await, w_await, %util); look for a \
             degraded or rebuilding RAID, a nearly full pool, or a rate limit (QoS) of this volume",
        ),
        Where::Target.remedy(
            "put the volume on faster disks, or a cache in front of them (bcache, dm-cache, an SSD for ZFS: \
             L2ARC for reads, SLOG for writes)",
        ),
        Where::Linerate.remedy(
            "remove delay: or limit: from the volume, if it has one; file: with direct=off uses the host's \
             page cache",
        ),
        Where::Lio
            .remedy("use a fileio backstore with write_back=true, or a block backstore on faster disks"),
        Where::Tgt.remedy(
            "omit direct and sync from --bsoflags, to use the host's page cache; for fast disks, use \
             --bstype aio",
        ),
        Where::Application.remedy(
            "increase the queue depth, if the volume has many disks: each can then process a request",
        ),
    ]
}

// Requests make no progress at times: a disk that recovers from an error, a controller that flushes its cache, a
// snapshot, a path that fails over.

/// The minimum share of the time without progress. Without it, the rate would be 15 % higher.
const STALLED_MIN: f64 = 0.13;
/// A stall that delays a NOP by this share of its length affects NOPs.
const NOP_MIN: f64 = 0.5;

pub(crate) fn stalls(case: &Case<'_>) -> Option<Found> {
    let (share, longest_s) = patterns::stood_still(&case.run.service)?;
    if share < STALLED_MIN || case.symptoms.stalls.is_some() || case.symptoms.starved() {
        return None;
    }
    let nop_s = match &case.run.nop {
        Known::Measured(nop) => Some(nop.times.max_ns() as f64 / 1e9),
        Known::Unknown(_) => None,
    };
    let shortest = case.shortest();
    let because = vec![
        format!(
            "Half of the requests took {} or less, but the longest took {}; {} of the time, requests made no progress.",
            words::time(case.run.service.quantile_ns(0.5) as f64 / 1e9),
            words::time(longest_s),
            words::share(share),
        ),
        match nop_s {
            Some(nop_s) if nop_s >= NOP_MIN * longest_s => format!(
                "{shortest} took up to {}: the network or the whole {} stopped as well.",
                words::time(nop_s),
                case.server(),
            ),
            Some(nop_s) => format!(
                "{shortest} took at most {}: the network and the {} responded, and only the storage stopped.",
                words::time(nop_s),
                case.server(),
            ),
            None => "Whether the network or the storage stopped was not measured.".to_owned(),
        },
    ];
    let remedies = vec![
        Where::Target.remedy(
            "look in the kernel log for resets and timeouts of disks and controllers (dmesg), at SMART for reallocated \
             and pending sectors, and for work at regular intervals: snapshots, scrubs, trims, cache flushes \
             (iostat -x 1 during a stall)",
        ),
        Where::Kernel.remedy(
            "if many dirty pages are written together: lower vm.dirty_bytes and vm.dirty_background_bytes on the host \
             with the disks",
        ),
        Where::Network.remedy("if NOPs stop as well: look for failovers, spanning tree changes and flapping ports"),
    ];
    Some(Found {
        cause: Cause::Stalls,
        because,
        gain: case.gain(1.0 / (1.0 - share)),
        remedies,
        trial: None,
    })
}

// It takes long to make writes durable. Every commit of a database waits for this.

/// The minimum time of a slow flush. A solid-state disk without power-loss protection takes 1 to 4 ms; a hard
/// disk needs one or two revolutions.
const FLUSH_MIN_S: f64 = 0.005;

pub(crate) fn flush(case: &Case<'_>) -> Option<Found> {
    let (load, flush_s) = (case.load(), case.layers.flush_s);
    if load.direction != Direction::Write || !load.durable || flush_s < FLUSH_MIN_S {
        return None;
    }
    if case.symptoms.starved() && flush_s < STARVED_MIN * case.layers.exchange_s() {
        return None;
    }
    let gain = case
        .gain_of(|setting| setting.path.command_s = (setting.path.command_s - flush_s).max(0.0));
    let plain_s = case
        .layers
        .alone_s(Direction::Write, load.block_bytes)
        .unwrap_or_default();
    let because = vec![
        format!(
            "A write takes {}; a write to stable storage takes {}.",
            words::time(plain_s),
            words::time(plain_s + flush_s)
        ),
        format!(
            "At a queue depth of {1}, the rate is {0} durable writes per second.",
            words::number(case.rate.value / f64::from(load.block_bytes)),
            load.depth
        ),
    ];
    let remedies = vec![
        Where::Target.remedy(
            "add a write cache that survives a power failure (a RAID controller with a battery, disks with \
             capacitors), or such a log device (ZFS: SLOG)",
        ),
        Where::Target.remedy(
            "if the disks have such a cache and the target still flushes: configure it (mdadm and dm: nothing to set; ZFS: zfs_nocacheflush; LVM on a controller: write-through in \
             /sys/block/DISK/queue/write_cache)",
        ),
        Where::Linerate.remedy("remove delay: with flush= from the volume, if it has one"),
        Where::Lio.remedy(
            "emulate_write_cache and emulate_fua_write determine how the backstore flushes; disabling them is safe \
             only with a protected cache",
        ),
        Where::Application.remedy(
            "use fewer, larger commits (group commit; PostgreSQL: commit_delay; MySQL: \
             innodb_flush_log_at_trx_commit), or concurrent commits",
        ),
    ];
    Some(Found {
        cause: Cause::Flush,
        because,
        gain,
        remedies,
        trial: None,
    })
}

// Writes are shorter than the physical block, so each is a read-modify-write.

/// A short write does additional work if it takes at least this much longer than a full-block write.
const MORE_MIN: f64 = 0.3;

pub(crate) fn misalignment(case: &Case<'_>) -> Option<Found> {
    let ladder = &case.evidence.ladder;
    let (short, whole) = (median(&ladder.short_write)?, median(&ladder.write)?);
    if !case.layers.short_of_a_block(case.load())
        || short.low < whole.high.max(whole.value * (1.0 + MORE_MIN))
    {
        return None;
    }
    let storage = &case.evidence.storage;
    let more_s = short.value - whole.value;
    let gain =
        case.gain_of(|setting| setting.path.command_s = (setting.path.command_s - more_s).max(0.0));
    let physical = words::size(f64::from(storage.physical_block_bytes));
    let because = vec![
        format!(
            "The physical block size is {physical}; a write of {} takes {}, but a write of a whole block \
             takes {}.",
            words::size(f64::from(storage.block_bytes)),
            words::time(short.value),
            words::time(whole.value),
        ),
        format!(
            "Writes of {} do not cover whole physical blocks: the device reads, modifies and rewrites each \
             block.",
            words::size(f64::from(case.load().block_bytes)),
        ),
    ];
    let remedies = vec![
        Where::Application.remedy(format!(
            "write whole multiples of {physical} at offsets that are multiples of it (databases: page \
                 and log block size; file systems: block size of {physical} or more)"
        )),
        Where::Kernel.remedy(format!(
            "start partitions at multiples of 1 MiB (parted -a optimal), mkfs.xfs -s size={0}, mkfs.ext4 -b \
             {0}",
            storage.physical_block_bytes.max(4096)
        )),
        Where::Windows.remedy(
            "fsutil fsinfo sectorInfo DRIVE shows whether the partition is aligned; format with an \
             allocation unit of 4096 bytes or more",
        ),
        Where::Target.remedy(
            "use a volume whose logical blocks are as long as its physical blocks, for systems that support \
             this (4Kn)",
        ),
        Where::Linerate.remedy("?block=4096, for a new volume"),
        Where::Esxi.remedy(
            "VMFS 6 aligns automatically; a virtual disk from an old guest may be misaligned: check its partition \
             table",
        ),
    ];
    // There is no trial. Longer requests would be a different load, whose higher rate is not the gain of a
    // fix.
    Some(Found {
        cause: Cause::Misalignment,
        because,
        gain,
        remedies,
        trial: None,
    })
}
