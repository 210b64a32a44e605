//! The kernel's NBD client, set up by nbd-client.

use anyhow::Result;

use super::Scene;
use super::world::{SERVER, World};

pub(super) const SCENES: &[Scene] = &[
    (
        "an_export_holds_ext4_by_four_connections",
        an_export_holds_ext4_by_four_connections,
    ),
    (
        "flushed_files_survive_a_server_that_is_killed",
        flushed_files_survive_a_server_that_is_killed,
    ),
];

fn an_export_holds_ext4_by_four_connections(world: &mut World<'_>) -> Result<()> {
    world.guest.run(&format!(
        "modprobe nbd nbds_max=1
        nbd-client -l {SERVER} | grep -x net
        nbd-client {SERVER} 10809 /dev/nbd0 -N net -C 4 -b 512
        [ $(netstat -tn | grep ':10809 .*ESTABLISHED' | wc -l) = 4 ]
        [ $(blockdev --getsize64 /dev/nbd0) = 67108864 ]
        mkfs.ext4 -q /dev/nbd0
        mount -o discard /dev/nbd0 /mnt
        for at in 0 1 2 3; do
            dd if=/dev/urandom of=/mnt/$at bs=64k count=32 conv=fsync 2>/dev/null &
        done
        wait
        sha256sum /mnt/? >/tmp/sum
        dd if=/dev/zero of=/mnt/gone bs=1M count=4 conv=fsync 2>/dev/null
        rm /mnt/gone
        fstrim /mnt
        umount /mnt
        nbd-client -d /dev/nbd0"
    ))?;
    world.guest.run(&format!(
        "nbd-client {SERVER} 10809 /dev/nbd0 -N net -C 2 -b 512
        mount /dev/nbd0 /mnt
        sha256sum -c /tmp/sum
        umount /mnt
        e2fsck -fn /dev/nbd0
        nbd-client -d /dev/nbd0"
    ))?;
    Ok(())
}

/// When its connection closes, the kernel's driver fails all requests and returns to `nbd-client -persist`,
/// which then exits (nbd-client 3.24, Linux 6.12). So the test connects the device again.
fn flushed_files_survive_a_server_that_is_killed(world: &mut World<'_>) -> Result<()> {
    world.guest.run(&format!(
        "modprobe nbd nbds_max=1
        nbd-client {SERVER} 10809 /dev/nbd0 -N net -C 2 -b 512
        mkfs.ext4 -q -F /dev/nbd0
        mount /dev/nbd0 /mnt
        dd if=/dev/urandom of=/mnt/flushed bs=64k count=32 conv=fsync 2>/dev/null
        sha256sum /mnt/flushed >/tmp/sum
        dd if=/dev/urandom of=/mnt/unflushed bs=64k count=32 2>/dev/null"
    ))?;
    world.kill_server();
    world
        .guest
        .run("! dd if=/dev/zero of=/mnt/lost bs=64k count=1 conv=fsync 2>/dev/null")?;
    world.start_server()?;
    world.guest.run(&format!(
        "umount /mnt
        nbd-client -d /dev/nbd0
        nbd-client {SERVER} 10809 /dev/nbd0 -N net -C 2 -b 512
        mount /dev/nbd0 /mnt
        sha256sum -c /tmp/sum
        dd if=/dev/urandom of=/mnt/later bs=64k count=32 conv=fsync 2>/dev/null
        umount /mnt
        e2fsck -fn /dev/nbd0
        nbd-client -d /dev/nbd0"
    ))?;
    Ok(())
}
