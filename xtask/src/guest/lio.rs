//! The kernel's iSCSI target (LIO) in the guest, and our initiator.

use std::fs;

use anyhow::{Result, ensure};

use super::Scene;
use super::world::{GUEST, World};

pub(super) const SCENES: &[Scene] = &[
    (
        "lio_holds_what_our_initiator_copies",
        lio_holds_what_our_initiator_copies,
    ),
    ("lio_checks_our_chap", lio_checks_our_chap),
    (
        "our_initiator_outlives_a_portal_of_lio_that_goes_and_comes",
        our_initiator_outlives_a_portal_of_lio_that_goes_and_comes,
    ),
];

const TARGET: &str = "iqn.2026-01.org.example:Lio-Disk";
const SECRET: &str = "twelve-bytes-and-more";

/// Functions for the guest's shell. `group` is the directory of the target portal group; `target` creates it, with a RAM disk
/// of 32 MiB.
const TOOLS: &str = "
root=/sys/kernel/config/target
group=$root/iscsi/iqn.2026-01.org.example:lio-disk/tpgt_1
portal=$group/np/10.77.0.2:3260
target() {
    modprobe target_core_mod; modprobe iscsi_target_mod
    grep -q configfs /proc/mounts || mount -t configfs configfs /sys/kernel/config
    [ ! -e $group ] || return 0
    mkdir -p $root/core/rd_mcp_0/disk
    echo rd_pages=8192 >$root/core/rd_mcp_0/disk/control
    echo 1 >$root/core/rd_mcp_0/disk/enable
    mkdir -p $root/iscsi
    mkdir -p $group
    mkdir -p $group/lun/lun_0
    ln -s $root/core/rd_mcp_0/disk $group/lun/lun_0/disk
    echo 0 >$group/attrib/authentication
    echo 0 >$group/attrib/demo_mode_write_protect
    echo 1 >$group/attrib/generate_node_acls
    mkdir -p $portal
    echo 1 >$group/enable
}
";

fn url(options: &str) -> String {
    format!("iscsi://{GUEST}/{}/0{options}", TARGET.to_lowercase())
}

fn lio_holds_what_our_initiator_copies(world: &mut World<'_>) -> Result<()> {
    world.guest.run(&format!("{TOOLS} target"))?;
    let (from, back) = (world.path("from.img"), world.path("back.img"));
    let content: Vec<u8> = (0..4_000_000_u32)
        .flat_map(|at| (at.wrapping_mul(2_654_435_761) >> 8).to_le_bytes())
        .collect();
    fs::write(&from, &content[..15 << 20])?;
    let told = world.linerate(&["discover", "--luns", GUEST])?;
    ensure!(
        told.contains(&TARGET.to_lowercase()) && told.contains("32MiB"),
        "{told}"
    );
    for options in ["", "?header-digest=crc32c&data-digest=crc32c"] {
        let url = url(options);
        world.linerate(&["copy", &from, &url, "--yes", "--raw", "--verify"])?;
        world.linerate(&["read", &url, "--output", &back, "--length", "15MiB"])?;
        ensure!(
            fs::read(&back)? == content[..15 << 20],
            "{url} has different data"
        );
        fs::remove_file(&back)?;
    }
    world.linerate(&["info", &url("")])?;
    Ok(())
}

fn lio_checks_our_chap(world: &mut World<'_>) -> Result<()> {
    world.guest.run(&format!(
        "{TOOLS} target
        echo -n alice >$group/auth/userid
        echo -n {SECRET} >$group/auth/password
        echo 1 >$group/attrib/authentication"
    ))?;
    let url = url("").replace("iscsi://", "iscsi://alice@");
    let login = |world: &World<'_>, secret: &str| {
        let mut command = world.command(&["scsi", "ready", &url]);
        command.env("LINERATE_SECRET", secret);
        command.output()
    };
    let (right, wrong) = (
        login(world, SECRET)?,
        login(world, "something-else-entirely")?,
    );
    world
        .guest
        .run(&format!("{TOOLS} echo 0 >$group/attrib/authentication"))?;
    ensure!(
        right.status.success(),
        "{}",
        String::from_utf8_lossy(&right.stderr)
    );
    ensure!(wrong.status.code() == Some(5), "{wrong:?}");
    Ok(())
}

fn our_initiator_outlives_a_portal_of_lio_that_goes_and_comes(world: &mut World<'_>) -> Result<()> {
    world.guest.run(&format!("{TOOLS} target"))?;
    let mut command = world.command(&[
        "bench",
        &url(""),
        "--verify",
        "--allow-write",
        "--yes",
        "--json",
        "--progress",
        "none",
    ]);
    command.args("--block 16KiB --read 50 --random 100 --depth 4 --seconds 12".split(' '));
    let load = std::thread::spawn(move || xtask::process::capture(command));
    for _ in 0..2 {
        // The initiator is logged in by now or is logging in. In both cases, its session is terminated.
        world.guest.run(&format!(
            "{TOOLS} sleep 2; echo 0 >$group/enable; sleep 1; echo 1 >$group/enable"
        ))?;
    }
    let told = load
        .join()
        .map_err(|_| anyhow::anyhow!("a thread panicked"))??;
    let told: serde_json::Value = serde_json::from_str(&told)?;
    ensure!(
        told["errors"] == 0 && told["mismatches"] == 0 && told["ios"].as_u64() > Some(0),
        "{told}"
    );
    Ok(())
}
