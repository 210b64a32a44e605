//! The kernel's NBD client, set up by nbd-client.

use anyhow::Result;

use super::Scene;
use super::world::{SERVER, World};

pub(super) const SCENES: &[Scene] = &[
    ("an_export_holds_ext4_by_four_connections", an_export_holds_ext4_by_four_connections),
    ("a_client_reconnects_to_a_server_that_was_killed", a_client_reconnects_to_a_server_that_was_killed),
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

/// nbd-client reconnects only in its ioctl mode, which has one connection. The kernel fails requests that are sent without a
/// connection, so nothing is written meanwhile.
fn a_client_reconnects_to_a_server_that_was_killed(world: &mut World<'_>) -> Result<()> {
    world.guest.run(&format!(
        "nbd-client -nonetlink {SERVER} 10809 /dev/nbd0 -N net -b 512 -persist
        mkfs.ext4 -q -F /dev/nbd0
        mount /dev/nbd0 /mnt
        dd if=/dev/urandom of=/mnt/before bs=64k count=32 conv=fsync 2>/dev/null"
    ))?;
    world.kill_server();
    world.guest.run("until ! netstat -tn | grep ':10809 .*ESTABLISHED'; do sleep 0.2; done")?;
    world.start_server()?;
    world.guest.run(
        "until dd if=/dev/nbd0 of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null; do sleep 0.2; done
        dd if=/dev/urandom of=/mnt/after bs=64k count=32 conv=fsync 2>/dev/null
        sha256sum /mnt/before /mnt/after >/tmp/sum
        umount /mnt
        mount /dev/nbd0 /mnt
        sha256sum -c /tmp/sum
        umount /mnt
        e2fsck -fn /dev/nbd0
        nbd-client -d /dev/nbd0",
    )?;
    Ok(())
}
