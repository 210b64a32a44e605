//! Connections that break, networks that deliver late, targets that die: while somebody writes and reads, and knows
//! what every read must give.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent};
use initiator::RemoteLun;

use super::load::Load;
use super::san::{San, images};
use super::{Disk, Needs, can, for_each, open, round_trip, stamped};
use crate::proxy::Proxy;
use crate::remote::in_a_world;
use crate::server::Server;

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// Long enough for every place to have been written.
const A_WHILE: Duration = Duration::from_millis(500);

const FOUR: &str = "?connections=4&congestion=cubic&nop-interval=1";

/// So many of four connections were begun again, and no others.
fn replaced(san: &San, proxy: &Proxy, connections: usize) {
    if can(san.make(), Needs::LogoutOfAnother) {
        assert_eq!(proxy.connections(), 4 + connections);
    }
}

#[test]
fn one_connection_of_four_is_cut_and_comes_back() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let load = Load::begin(&san.url_by(&proxy, Disk::Plain, FOUR), seconds(4));
        sleep(A_WHILE);
        proxy.cut(2);
        load.end();
        replaced(san, &proxy, 1);
    });
}

#[test]
fn one_connection_of_four_is_cut_in_the_middle_of_a_pdu() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let load = Load::begin(&san.url_by(&proxy, Disk::Plain, FOUR), seconds(5));
        for number in [1, 2, 3] {
            sleep(A_WHILE);
            proxy.cut_after(number, 100_003);
        }
        load.end();
        replaced(san, &proxy, 3);
    });
}

#[test]
fn one_connection_of_four_is_late_and_is_waited_for() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let query = FOUR.replace("nop-interval=1", "nop-interval=5");
        let load = Load::begin(&san.url_by(&proxy, Disk::Plain, &query), seconds(5));
        sleep(A_WHILE);
        proxy.hold(1);
        sleep(seconds(2));
        proxy.release(1);
        load.end();
        assert_eq!(proxy.connections(), 4, "two seconds are no reason to give a connection up");
    });
}

#[test]
fn one_slow_connection_of_four_is_no_lost_one() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let query = FOUR.replace("nop-interval=1", "nop-interval=5");
        let load = Load::begin(&san.url_by(&proxy, Disk::Plain, &query), seconds(4));
        proxy.slow(2, 3000, Duration::from_millis(5));
        load.end();
        assert_eq!(proxy.connections(), 4);
    });
}

/// What was held up arrives when it has long been written again by another connection, and written over.
#[test]
fn what_arrives_seconds_late_on_one_connection_of_four_changes_nothing() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let load = Load::begin(&san.url_by(&proxy, Disk::Plain, FOUR), seconds(9));
        sleep(A_WHILE);
        proxy.hold(3);
        sleep(seconds(5));
        proxy.release(3);
        load.end();
        replaced(san, &proxy, 1);
    });
}

#[test]
fn a_connection_that_swallows_everything_is_left() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let load = Load::begin(&san.url_by(&proxy, Disk::Plain, FOUR), seconds(7));
        sleep(A_WHILE);
        proxy.swallow(0);
        load.end();
        replaced(san, &proxy, 1);
    });
}

#[test]
fn all_four_are_cut_and_the_session_begins_again() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let load = Load::begin(&san.url_by(&proxy, Disk::Plain, FOUR), seconds(5));
        for _ in 0..2 {
            sleep(A_WHILE);
            proxy.cut_all();
        }
        load.end();
    });
}

#[test]
fn a_session_of_one_connection_begins_again() {
    for_each(Needs::Nothing, |san| {
        let proxy = Proxy::to(san.port());
        let load = Load::begin(&san.url_by(&proxy, Disk::Plain, "?congestion=cubic"), seconds(5));
        sleep(A_WHILE);
        proxy.cut(0);
        sleep(seconds(2));
        proxy.cut_after(1, 50_001);
        load.end();
        assert_eq!(proxy.connections(), 3);
    });
}

/// With one connection, what is late can only be overtaken by the login that reinstates the session; and that makes
/// the target end the old one first (RFC 7143 section 6.3.5).
#[test]
fn what_arrives_behind_a_reinstatement_changes_nothing() {
    for_each(Needs::Nothing, |san| {
        let proxy = Proxy::to(san.port());
        let query = "?congestion=cubic&nop-interval=1";
        let load = Load::begin(&san.url_by(&proxy, Disk::Plain, query), seconds(9));
        sleep(A_WHILE);
        proxy.hold(0);
        sleep(seconds(5));
        proxy.release(0);
        load.end();
        assert_eq!(proxy.connections(), 2);
    });
}

#[test]
fn a_target_that_is_killed_is_waited_for() {
    for_each(Needs::Nothing, |san| {
        let load = Load::begin(&san.url(Disk::Plain, "?congestion=cubic"), seconds(8));
        sleep(A_WHILE);
        san.kill();
        sleep(seconds(1));
        san.restart();
        load.end();
    });
}

#[test]
fn a_target_that_stands_still_is_waited_for() {
    for_each(Needs::Nothing, |san| {
        let load = Load::begin(&san.url(Disk::Plain, "?congestion=cubic&nop-interval=1"), seconds(8));
        sleep(A_WHILE);
        san.signal("STOP");
        sleep(seconds(4));
        san.signal("CONT");
        load.end();
    });
}

#[test]
fn a_door_that_is_closed_for_a_while_is_knocked_at_again() {
    for_each(Needs::Nothing, |san| {
        let proxy = Proxy::to(san.port());
        let load = Load::begin(&san.url_by(&proxy, Disk::Plain, "?congestion=cubic"), seconds(8));
        sleep(A_WHILE);
        proxy.close();
        proxy.cut_all();
        sleep(seconds(2));
        proxy.open();
        load.end();
    });
}

#[test]
fn four_connections_to_a_target_that_is_killed_again_and_again() {
    for_each(Needs::Connections, |san| {
        let load = Load::begin(&san.url(Disk::Plain, FOUR), seconds(12));
        for _ in 0..3 {
            sleep(A_WHILE);
            san.kill();
            san.restart();
            sleep(seconds(2));
        }
        load.end();
    });
}

/// Reads a block, in a time that is more than anybody is told to wait.
async fn read(lun: &RemoteLun) -> Result<Buffer, DeviceError> {
    let read = lun.read(Extent::new(0, 8), Buffer::recycled(4096));
    reactor::timeout(seconds(20), read).await.expect("an answer, whatever it is")
}

/// Reads until that works, as somebody does who does not give up.
async fn until_it_is_back(lun: &RemoteLun) {
    for _ in 0..100 {
        if read(lun).await.is_ok() {
            return;
        }
        reactor::sleep(Duration::from_millis(200)).await;
    }
    panic!("no service any more");
}

#[test]
fn a_target_that_is_away_for_too_long_is_an_error_until_it_is_back() {
    for_each(Needs::Nothing, |san| {
        in_a_world(async {
            let lun = open(&san.url(Disk::Plain, "?reconnect-time=1")).await;
            round_trip(&lun, 0, 64, 1).await;
            san.kill();
            for _ in 0..3 {
                assert_eq!(read(&lun).await.err(), Some(DeviceError::NotReady));
            }
            san.restart();
            until_it_is_back(&lun).await;
            round_trip(&lun, 0, 64, 2).await;
            lun.close().await;
        });
    });
}

/// A server with one disk of two, for whoever knows the secret.
fn locked(disk: &str, secret: &str, images: &Path) -> String {
    let images = images.display();
    format!(
        "[volume.one]\nspec = \"file:{images}/one\"\n[volume.two]\nspec = \"file:{images}/two\"\n\
         [[target]]\nname = \"iqn.2026-01.io.linerate:disk\"\nlun = [{{ lun = 0, volume = \"{disk}\" }}]\n\
         [[target.chap.account]]\nuser = \"joe\"\nsecret = \"{secret}\"\n"
    )
}

const SECRET: &str = "correct-horse-battery";

fn url_with_secret(server: &Server, query: &str) -> String {
    server.url("disk").replace("iscsi://", &format!("iscsi://joe%{SECRET}@")) + query
}

#[test]
fn a_target_that_comes_back_with_another_secret_gets_no_requests() {
    let images = images(&["one", "two"]);
    let Some(mut server) = Server::configured(&locked("one", SECRET, images.path())) else { return };
    in_a_world(async {
        let lun = open(&url_with_secret(&server, "?reconnect-time=2")).await;
        round_trip(&lun, 0, 64, 1).await;
        server.kill();
        server.reconfigure(&locked("one", "another-horse-battery", images.path()));
        server.restart();
        assert_eq!(read(&lun).await.err(), Some(DeviceError::NotReady));
        server.kill();
        server.reconfigure(&locked("one", SECRET, images.path()));
        server.restart();
        until_it_is_back(&lun).await;
        lun.close().await;
    });
}

#[test]
fn another_disk_at_the_same_lun_is_never_written_to() {
    let images = images(&["one", "two"]);
    let Some(mut server) = Server::configured(&locked("one", SECRET, images.path())) else { return };
    in_a_world(async {
        let lun = open(&url_with_secret(&server, "?reconnect-time=2")).await;
        round_trip(&lun, 0, 64, 1).await;
        server.kill();
        server.reconfigure(&locked("two", SECRET, images.path()));
        server.restart();
        for _ in 0..3 {
            let written = lun.write(Extent::new(0, 8), stamped(&lun, 0, 8, 2), Durability::Stable).await;
            assert_eq!(written, Err(DeviceError::NotReady));
            assert_eq!(read(&lun).await.err(), Some(DeviceError::NotReady));
        }
        lun.close().await;
    });
    let other = std::fs::read(images.path().join("two")).expect("its image");
    assert!(other.iter().all(|byte| *byte == 0), "nothing has been written to the other disk");
}
