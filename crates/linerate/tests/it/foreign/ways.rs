//! Paths to a target, and observers: IPv6, redirection, the wire decoded by tshark, and the command line.

use iscsi_client::{Portal, discover};

use super::san::{SECRET, San, USER};
use super::{Disk, Make, Needs, for_each, open, round_trip, with_each};
use crate::capture::watched_port;
use crate::program::linerate;
use crate::remote::{in_a_world, random};
use crate::server::{Server, has_ipv6};

#[test]
fn a_target_is_reached_by_ipv6() {
    if !has_ipv6() {
        return eprintln!("skipped: the loopback has no IPv6 address here");
    }
    with_each(Needs::Nothing, async |san| {
        let lun = open(&san.url(Disk::Plain, "").replace("127.0.0.1", "[::1]")).await;
        round_trip(&lun, 0, 64, 1).await;
        lun.close().await;
    });
}

/// Neither tgt (as configured by Debian) nor istgt redirects; Linerate redirects to any of them.
#[test]
fn a_login_follows_where_it_is_sent() {
    for_each(Needs::Nothing, |san| {
        let (name, lun) = san.place(Disk::Plain);
        for permanent in [false, true] {
            let text = format!(
                "[[target]]\nname = \"{name}\"\n[target.redirect]\naddress = \"127.0.0.1:{}\"\npermanent = {permanent}\n",
                san.port()
            );
            let sender = or_skip!(Server::configured(&text));
            in_a_world(async {
                let lun = open(&format!("iscsi://127.0.0.1:{}/{name}/{lun}", sender.port())).await;
                round_trip(&lun, 0, 64, 1).await;
                lun.close().await;
            });
        }
    });
}

/// Runs a few operations of every kind.
async fn everything(san: &San) {
    let (portal, settings) =
        Portal::parse(&format!("iscsi://127.0.0.1:{}", san.port())).expect("a portal");
    discover(&portal, &settings, random).await.expect("targets");
    for query in [
        "?congestion=cubic",
        "?immediate-data=no&initial-r2t=yes&max-burst=4096",
        "?max-segment=512",
    ] {
        for disk in [Disk::Plain, Disk::FourKi, Disk::Narrow] {
            let lun = open(&san.url(disk, query)).await;
            for blocks in [1, 9, 129, 700] {
                round_trip(&lun, 1, blocks, blocks).await;
            }
            lun.close().await;
        }
    }
    let hash = if san.make() == Make::Tgt {
        "?chap=md5"
    } else {
        ""
    };
    let lun = open(&san.url_as(&format!("{USER}%{SECRET}@"), Disk::Locked, hash)).await;
    round_trip(&lun, 0, 8, 1).await;
    lun.close().await;
    san.allow_digests("CRC32C", "CRC32C");
    let lun = open(&san.url(Disk::Plain, "?header-digest=crc32c&data-digest=crc32c")).await;
    round_trip(&lun, 0, 200, 1).await;
    lun.close().await;
    san.allow_digests("None", "None");
}

#[test]
fn what_goes_over_the_wire_is_what_tshark_expects() {
    for_each(Needs::Nothing, |san| {
        watched_port(san.port(), || in_a_world(everything(san)))
    });
}

#[test]
fn the_command_line_finds_and_describes_every_disk() {
    for_each(Needs::Nothing, |san| {
        let portal = format!("127.0.0.1:{}", san.port());
        let said = linerate(&["discover", &portal]).expect_success();
        let (name, _) = san.place(Disk::Plain);
        assert!(said.contains(&name) && said.contains(&portal), "{said}");
        let url = san.url(Disk::Plain, "");
        let said = linerate(&["scsi", "inquiry", &url]).expect_success();
        assert!(said.to_lowercase().contains("disk"), "{said}");
        linerate(&["scsi", "vpd", &url]).expect_success();
        linerate(&[
            "bench",
            "--seconds",
            "1",
            "--read",
            "50",
            "--verify",
            "--allow-write",
            "--yes",
            &url,
        ])
        .expect_success();
    });
}
