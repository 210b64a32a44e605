//! The kernel's AoE driver, over Ethernet.

use anyhow::{Result, ensure};

use super::Scene;
use super::iscsi::WRITER;
use super::world::World;

pub(super) const SCENES: &[Scene] = &[(
    "a_slot_holds_ext4_over_a_server_that_is_killed",
    a_slot_holds_ext4_over_a_server_that_is_killed,
)];

fn a_slot_holds_ext4_over_a_server_that_is_killed(world: &mut World<'_>) -> Result<()> {
    world.guest.run(&format!(
        "{WRITER}
        modprobe aoe aoe_iflist=eth0 aoe_deadsecs=600
        until [ -e /dev/etherd/e7.1 ]; do echo >/dev/etherd/discover; sleep 0.5; done
        [ $(blockdev --getsize64 /dev/etherd/e7.1) = 33554432 ]
        mkfs.ext4 -q -F /dev/etherd/e7.1
        mount /dev/etherd/e7.1 /mnt
        write_files
        more_are_written 3"
    ))?;
    world.kill_server();
    world.start_server()?;
    let said = world.guest.run(&format!(
        "{WRITER}
        more_are_written 3
        stop_writing
        umount /mnt
        mount /dev/etherd/e7.1 /mnt
        verify_files
        umount /mnt
        e2fsck -fn /dev/etherd/e7.1
        dmesg | grep 'I/O error.*etherd' && exit 1
        echo e7.1 >/dev/etherd/flush
        rmmod aoe"
    ))?;
    ensure!(!said.contains("I/O error"), "{said}");
    Ok(())
}
