//! The kernel's iSCSI initiator on our LUNs: open-iscsi, sd, file systems, SG commands, and dm-multipath over two sessions.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use anyhow::{Result, ensure};

use super::Scene;
use super::world::{SERVER, World};

pub(super) const SCENES: &[Scene] = &[
    (
        "a_disk_holds_ext4_over_logout_and_login",
        a_disk_holds_ext4_over_logout_and_login,
    ),
    ("xfs_grows_with_its_lun", xfs_grows_with_its_lun),
    (
        "the_kernel_takes_a_lun_for_what_it_is",
        the_kernel_takes_a_lun_for_what_it_is,
    ),
    (
        "discarded_blocks_leave_the_file",
        discarded_blocks_leave_the_file,
    ),
    (
        "a_reservation_keeps_the_guest_out",
        a_reservation_keeps_the_guest_out,
    ),
    (
        "files_survive_a_server_that_is_killed_under_writes",
        files_survive_a_server_that_is_killed_under_writes,
    ),
    (
        "multipath_fails_over_and_back",
        multipath_fails_over_and_back,
    ),
];

const DISKS: &str = "iqn.2026-01.io.linerate:disks";
const SCRATCH: &str = "iqn.2026-01.io.linerate:scratch";

/// Functions for the guest's shell. `login TARGET` logs in through the first portal, and `logout` ends all sessions. `disk LUN`
/// waits for a LUN and prints its device; `disks LUN` prints all of its paths.
const TOOLS: &str = r#"
await() { while ! eval "$1" >/dev/null 2>&1; do sleep 0.1; done; }
discover() {
    modprobe iscsi_tcp; modprobe sd_mod; modprobe sg
    pidof iscsid >/dev/null || iscsid
    await 'iscsiadm -m session 2>&1 | grep "No active\|tcp:"'
    iscsiadm -m discovery -t sendtargets -p 10.77.0.1:3260 >/dev/null
}
login() { discover; iscsiadm -m node -T "$1" -p 10.77.0.1:3260 --login >/dev/null; }
logout() { iscsiadm -m node --logout >/dev/null; iscsiadm -m node -o delete >/dev/null; }
disks() { ls -d /sys/class/scsi_device/*:$1/device/block/* 2>/dev/null | sed 's,.*/,/dev/,'; }
disk() { await "disks $1 | grep dev"; disks $1 | head -n 1; }
states() { cat /sys/class/iscsi_session/*/state | sort -u; }
"#;

/// Shell functions for a load. `write_files` writes flushed files to /mnt until /tmp/stop exists, and records their checksums.
/// `more_are_written N` waits for N more files, `stop_writing` stops the load, and `verify_files` compares the checksums.
pub(super) const WRITER: &str = r#"
write_files() {
    rm -f /tmp/stop /tmp/ended; mkdir -p /tmp/sums; rm -f /tmp/sums/*; echo 0 >/tmp/count
    ( i=0
      while [ ! -e /tmp/stop ]; do
          name=file$((i % 12))
          dd if=/dev/urandom of=/tmp/new bs=64k count=2 2>/dev/null
          sum=$(sha256sum </tmp/new)
          dd if=/tmp/new of=/mnt/$name bs=64k conv=fsync 2>/dev/null || { echo "$name was not written" >>/tmp/ended; break; }
          echo "$sum" | sed "s,-,/mnt/$name," >/tmp/sums/$name
          i=$((i + 1)); echo $i >/tmp/count
      done
      echo ended >>/tmp/ended ) >/dev/null 2>&1 &
}
more_are_written() {
    local before=$(cat /tmp/count)
    until [ $(cat /tmp/count) -ge $((before + $1)) ] || [ -e /tmp/ended ]; do sleep 0.1; done
    [ ! -e /tmp/ended ] || { cat /tmp/ended; dmesg | tail -n 20; return 1; }
}
stop_writing() { touch /tmp/stop; until [ -e /tmp/ended ]; do sleep 0.1; done; [ "$(cat /tmp/ended)" = ended ]; }
verify_files() { cat /tmp/sums/* | sha256sum -c >/tmp/verified || { grep -v OK /tmp/verified; return 1; }; }
"#;

impl World<'_> {
    /// Runs a script with [`TOOLS`] and [`WRITER`].
    fn initiator(&mut self, script: &str) -> Result<String> {
        self.guest.run(&format!("{TOOLS}{WRITER}\n{script}"))
    }
}

fn a_disk_holds_ext4_over_logout_and_login(world: &mut World<'_>) -> Result<()> {
    world.initiator(&format!(
        "login {DISKS}
        disk=$(disk 0)
        mkfs.ext4 -q $disk
        mount $disk /mnt
        seq 1 200000 >/mnt/numbers
        sha256sum /mnt/numbers >/tmp/sum
        umount /mnt
        logout"
    ))?;
    world.initiator(&format!(
        "login {DISKS}
        disk=$(disk 0)
        mount $disk /mnt
        sha256sum -c /tmp/sum
        umount /mnt
        e2fsck -fn $disk
        logout"
    ))?;
    Ok(())
}

fn xfs_grows_with_its_lun(world: &mut World<'_>) -> Result<()> {
    world.initiator(&format!(
        "login {DISKS}
        modprobe xfs
        disk=$(disk 1)
        mkfs.xfs -q $disk
        mount -t xfs $disk /mnt
        seq 1 100000 >/mnt/numbers
        sha256sum /mnt/numbers >/tmp/sum"
    ))?;
    world.order(&["resize", "large", "384MiB"])?;
    world.initiator(
        "disk=$(disk 1)
        iscsiadm -m session --rescan >/dev/null
        await \"[ $(blockdev --getsize64 $disk) = 402653184 ]\"
        before=$(stat -f -c %b /mnt)
        xfs_growfs /mnt >/dev/null
        [ $(stat -f -c %b /mnt) -gt $before ]
        sha256sum -c /tmp/sum
        umount /mnt
        xfs_repair -n $disk
        logout",
    )?;
    Ok(())
}

fn the_kernel_takes_a_lun_for_what_it_is(world: &mut World<'_>) -> Result<()> {
    let said = world.initiator(&format!(
        "login {SCRATCH}
        disk=$(disk 0)
        queue=/sys/block/${{disk#/dev/}}/queue
        await \"[ -e $queue/discard_max_bytes ]\"
        for name in logical_block_size write_cache fua discard_max_bytes write_zeroes_max_bytes; do
            echo $name $(cat $queue/$name)
        done
        echo provisioning $(cat /sys/class/scsi_disk/*/provisioning_mode)
        sg_inq $disk
        for page in 0x0 sn di mpp bl bdc lbpv; do sg_vpd --page=$page $disk; done
        sg_luns $disk
        sg_readcap --16 $disk
        sg_opcodes $disk
        sg_verify --lba=0 --count=128 $disk
        sg_sync $disk
        sg_turs $disk"
    ))?;
    for line in [
        "logical_block_size 512",
        "write_cache write back",
        "fua 1",
        "LINERATE",
        "Logical block provisioning: lbpme=1",
    ] {
        ensure!(said.contains(line), "{line}: {said}");
    }
    for empty in [
        "discard_max_bytes 0\n",
        "write_zeroes_max_bytes 0\n",
        "provisioning full",
    ] {
        ensure!(!said.contains(empty), "{empty}: {said}");
    }
    // Compares 512 bytes of zeros, and writes 512 other bytes.
    let said = world.initiator(
        "disk=$(disk 0)
        sg_write_same --16 --lba=0 --num=64 --in=/dev/zero --xferlen=512 $disk
        dd if=/dev/zero of=/tmp/both bs=512 count=1 2>/dev/null
        yes linerate | dd bs=512 count=1 iflag=fullblock 2>/dev/null >>/tmp/both
        sg_compare_and_write --in=/tmp/both --lba=8 --num=1 --xferlen=1024 $disk
        dd if=$disk bs=512 skip=8 count=1 iflag=direct 2>/dev/null | head -c 8; echo
        sg_compare_and_write --in=/tmp/both --lba=8 --num=1 --xferlen=1024 $disk && echo twice
        sg_reset --device $disk
        sg_turs --number=3 $disk || sg_turs $disk
        dd if=$disk of=/dev/null bs=64k count=16 iflag=direct 2>/dev/null
        logout",
    )?;
    ensure!(said.contains("linerate"), "{said}");
    ensure!(
        !said.contains("twice"),
        "a comparison with old data succeeded: {said}"
    );
    Ok(())
}

fn discarded_blocks_leave_the_file(world: &mut World<'_>) -> Result<()> {
    world.initiator(&format!(
        "login {SCRATCH}
        disk=$(disk 0)
        dd if=/dev/urandom of=$disk bs=1M count=16 oflag=direct 2>/dev/null"
    ))?;
    let held = |world: &World<'_>| -> Result<u64> {
        Ok(fs::metadata(world.path("scratch.img"))?.blocks() * 512)
    };
    ensure!(held(world)? >= 16 << 20, "{} bytes", held(world)?);
    world.initiator(
        "disk=$(disk 0)
        blkdiscard $disk
        cmp -n 16777216 $disk /dev/zero
        logout",
    )?;
    ensure!(
        held(world)? < 1 << 20,
        "{} bytes are still allocated",
        held(world)?
    );
    Ok(())
}

fn a_reservation_keeps_the_guest_out(world: &mut World<'_>) -> Result<()> {
    let url = format!("iscsi://{SERVER}/{SCRATCH}/0");
    world.initiator(&format!(
        "login {SCRATCH}
        disk=$(disk 0)
        sg_persist --out --register --param-sark=abc $disk
        sg_persist --out --reserve --param-rk=abc --prout-type=1 $disk
        dd if=/dev/zero of=$disk bs=4k count=1 oflag=direct 2>/dev/null"
    ))?;
    let told = world.linerate(&["scsi", "registrations", &url])?;
    ensure!(
        told.contains("key abc") && told.contains("holds the reservation"),
        "{told}"
    );
    world.linerate(&["scsi", "register", &url, "--key", "def"])?;
    world.linerate(&["scsi", "preempt", &url, "--key", "def", "--victim", "abc"])?;
    // The first command receives the unit attention for the preemption, and sd retries the command.
    let said = world.initiator(
        "disk=$(disk 0)
        if dd if=/dev/zero of=$disk bs=4k count=1 oflag=direct 2>/dev/null; then echo written; fi
        dd if=$disk of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null
        sg_persist --in --read-keys $disk
        sg_persist --in --read-reservation $disk",
    )?;
    ensure!(
        !said.contains("written"),
        "a write succeeded despite another's reservation: {said}"
    );
    ensure!(said.contains("0xdef") && !said.contains("0xabc"), "{said}");
    world.linerate(&["scsi", "clear", &url, "--key", "def"])?;
    world.initiator(
        "disk=$(disk 0)
        dd if=/dev/zero of=$disk bs=4k count=1 oflag=direct 2>/dev/null
        logout",
    )?;
    Ok(())
}

fn files_survive_a_server_that_is_killed_under_writes(world: &mut World<'_>) -> Result<()> {
    world.initiator(&format!(
        "login {DISKS}
        disk=$(disk 0)
        mkfs.ext4 -q -F $disk
        mount $disk /mnt
        write_files
        more_are_written 3"
    ))?;
    for _ in 0..2 {
        world.kill_server();
        world.initiator("await 'states | grep -v LOGGED_IN'")?;
        world.start_server()?;
        world.initiator("more_are_written 3")?;
    }
    let said = world.initiator(
        "disk=$(disk 0)
        stop_writing
        umount /mnt
        mount $disk /mnt
        verify_files
        umount /mnt
        e2fsck -fn $disk
        dmesg | grep -c 'I/O error' || true
        logout",
    )?;
    ensure!(
        said.lines().any(|line| line == "0"),
        "the file system got errors: {said}"
    );
    Ok(())
}

fn multipath_fails_over_and_back(world: &mut World<'_>) -> Result<()> {
    // The kernel detects a link that drops everything by a timeout: it sends a NOP-Out after 2 s, and fails
    // requests 5 s after the response is due.
    world.initiator(&format!(
        "discover
        for setting in conn[0].timeo.noop_out_interval=2 conn[0].timeo.noop_out_timeout=5 session.timeo.replacement_timeout=5; do
            iscsiadm -m node -T {SCRATCH} -o update -n node.${{setting%=*}} -v ${{setting#*=}}
        done
        iscsiadm -m node -T {SCRATCH} --login >/dev/null
        await '[ $(disks 0 | wc -l) = 2 ]'
        [ $(disks 0 | while read path; do cat /sys/block/${{path#/dev/}}/device/wwid; done | sort -u | wc -l) = 1 ]
        modprobe dm-multipath; modprobe dm-round-robin
        paths=$(disks 0 | while read path; do echo \"$(cat /sys/block/${{path#/dev/}}/dev) 100\"; done)
        size=$(blockdev --getsz $(disk 0))
        echo 0 $size multipath 1 queue_if_no_path 0 1 1 round-robin 0 2 1 $paths | dmsetup create both
        dmsetup mknodes
        mkfs.ext4 -q -F /dev/mapper/both
        mount /dev/mapper/both /mnt
        write_files
        more_are_written 3"
    ))?;
    // Normally multipathd checks and reinstates failed paths. Here the scene does so, once the session is logged in again.
    let back = "await '[ \"$(states)\" = LOGGED_IN ]'
        for path in $(disks 0); do
            await \"[ $(cat /sys/block/${path#/dev/}/device/state) = running ]\"
            dmsetup message both 0 \"reinstate_path $(cat /sys/block/${path#/dev/}/dev)\"
        done
        more_are_written 3";
    for link in [0, 1] {
        world.set_link(link, false)?;
        world.initiator("await 'dmsetup status both | grep \" F \"'; more_are_written 3")?;
        world.set_link(link, true)?;
        world.initiator(back)?;
    }
    world.kill_server();
    world.initiator(
        "await '! dmsetup status both | grep \" A 0 [0-9]* *$\" && ! states | grep LOGGED_IN'",
    )?;
    world.start_server()?;
    world.initiator(back)?;
    world.initiator(
        "stop_writing
        umount /mnt
        mount /dev/mapper/both /mnt
        verify_files
        umount /mnt
        e2fsck -fn /dev/mapper/both
        dmsetup remove both
        logout",
    )?;
    Ok(())
}
