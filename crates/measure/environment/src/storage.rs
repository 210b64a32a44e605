//! Facts about the storage, as the storage reports them.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use backends::location::Location;
use bench::record::{Fact, Group};
use block::BlockDevice;
use foreign::printable;
use inspect::disk::Disk;
use iscsi_client::Unit;
use readable::figures::grouped;
use volume::spec::Bytes;

use super::fact;
use super::system::System;

/// Returns facts about a logical unit from SCSI, or about a file or block device from the kernel.
pub(super) async fn facts(
    system: &System,
    place: &Location,
    device: &dyn BlockDevice,
    unit: Option<&Unit>,
) -> Vec<Fact> {
    if let Some(unit) = unit {
        return of_unit(unit).await;
    }
    let path = match place {
        Location::Path(path) => Some(path.as_path()),
        Location::Volume(spec) => spec.path(),
        Location::Lun(_) => None,
    };
    let under = path.into_iter().flat_map(|path| of_path(system, path));
    of_place(place)
        .into_iter()
        .chain(under)
        .chain(of_device(device))
        .collect()
}

fn known(name: &str, value: impl Into<String>) -> Fact {
    fact(Group::Storage, name, value, None)
}

/// Returns facts about a logical unit. Facts whose queries fail are omitted, since they do not affect the
/// measurement.
async fn of_unit(unit: &Unit) -> Vec<Fact> {
    let mut facts = Vec::new();
    if let Ok(inquiry) = unit.inquiry().await {
        let product = [inquiry.vendor, inquiry.product, inquiry.revision].join(" ");
        facts.push(known("product", printable(&product)));
    }
    if let Ok(disk) = Disk::look(unit).await {
        facts.extend(
            disk.rows()
                .into_iter()
                .map(|(name, value)| known(name, value)),
        );
    }
    facts
}

fn of_place(place: &Location) -> Option<Fact> {
    match place {
        Location::Volume(spec) => Some(known("volume", spec.to_string())),
        Location::Path(_) | Location::Lun(_) => None,
    }
}

fn of_device(device: &dyn BlockDevice) -> [Fact; 3] {
    let (geometry, profile) = (device.geometry(), device.profile());
    let (blocks, block_bytes) = (grouped(geometry.blocks.0), geometry.block_size.bytes());
    let cache = match (profile.volatile_cache, profile.durable) {
        (true, _) => "write cache on: writes are durable after a flush",
        (false, true) => "write cache off: writes are durable immediately",
        (false, false) => "volatile: it is memory",
    };
    [
        known(
            "capacity",
            format!(
                "{}, {blocks} blocks of {block_bytes} bytes",
                Bytes(geometry.bytes())
            ),
        ),
        known("cache", cache),
        known("thin", if profile.thin { "yes" } else { "no" }),
    ]
}

/// Returns the file system of a file, or facts about the disk of a block device.
fn of_path(system: &System, path: &Path) -> Vec<Fact> {
    let Ok(metadata) = path.metadata() else {
        return Vec::new();
    };
    if metadata.file_type().is_block_device() {
        return of_disk(system, metadata.rdev());
    }
    // The table contains the device numbers of all mounted file systems, including those without a device.
    let mounts = system.text("proc/self/mountinfo").unwrap_or_default();
    let mounted = file_system(&mounts, metadata.dev());
    let mut facts: Vec<Fact> = mounted
        .map(|text| known("file system", printable(&text)))
        .into_iter()
        .collect();
    facts.extend(of_disk(system, metadata.dev()));
    facts
}

/// Returns the type and source of the file system with this device number, from the lines of
/// `/proc/self/mountinfo` (proc_pid_mountinfo(5)): `36 35 98:0 /root /mount options [optional ...] - type
/// source options`.
fn file_system(mounts: &str, device: u64) -> Option<String> {
    let number = numbers(device);
    let line = mounts
        .lines()
        .find(|line| line.split(' ').nth(2) == Some(&number))?;
    let (_, behind) = line.split_once(" - ")?;
    let mut fields = behind.split(' ');
    Some(format!("{} on {}", fields.next()?, fields.next()?))
}

fn numbers(device: u64) -> String {
    format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    )
}

/// Returns facts about a disk, or about the disk of a partition, if the kernel has one with this number.
fn of_disk(system: &System, device: u64) -> Vec<Fact> {
    let here = format!("sys/dev/block/{}", numbers(device));
    let folder = if system.has(format!("{here}/partition")) {
        format!("{here}/..")
    } else {
        here
    };
    let text = |file: &str| system.text(format!("{folder}/{file}"));
    let medium = |text: String| {
        if text == "1" {
            "rotational"
        } else {
            "solid state"
        }
    };
    let cache = |text: String| {
        if text == "write back" {
            "write cache on"
        } else {
            "write cache off"
        }
    };
    let rows = [
        ("disk", text("device/model")),
        (
            "medium",
            text("queue/rotational").map(|text| medium(text).to_owned()),
        ),
        (
            "disk's cache",
            text("queue/write_cache").map(|text| cache(text).to_owned()),
        ),
        ("scheduler", text("queue/scheduler").as_deref().map(chosen)),
    ];
    let told = rows
        .into_iter()
        .filter_map(|(name, value)| Some(known(name, printable(&value?))));
    told.collect()
}

/// Returns the value in brackets, as in `[none] mq-deadline`.
fn chosen(all: &str) -> String {
    let inside = all
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(all, |(chosen, _)| chosen).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::system::TestSystem;
    use super::*;

    #[test]
    fn a_file_system_is_found_by_its_device() {
        let mounts = "22 27 0:21 / /proc rw - proc proc rw\n\
                      30 1 259:3 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p3 rw\n";
        assert_eq!(
            file_system(mounts, rustix::fs::makedev(259, 3)).as_deref(),
            Some("ext4 on /dev/nvme0n1p3")
        );
        assert_eq!(file_system(mounts, rustix::fs::makedev(259, 4)), None);
        assert_eq!(
            file_system("30 1 259:3 / / rw - ext4", rustix::fs::makedev(259, 3)),
            None
        );
    }

    #[test]
    fn a_partition_is_on_a_disk() {
        let made = TestSystem::with(&[
            ("sys/block/sda/queue/rotational", "1\n"),
            ("sys/block/sda/queue/write_cache", "write back\n"),
            ("sys/block/sda/queue/scheduler", "none [mq-deadline]\n"),
            ("sys/block/sda/sda1/partition", "1\n"),
            ("sys/dev/block/8:1", "->../../block/sda/sda1"),
        ]);
        let facts = of_disk(&made.system, rustix::fs::makedev(8, 1));
        let values: Vec<&str> = facts.iter().map(|fact| fact.value.as_str()).collect();
        assert_eq!(values, ["rotational", "write cache on", "mq-deadline"]);
    }
}
