//! Broken connections, late packets and killed targets, under a load that verifies every read.
//!
//! Only scenes about idle connections depend on a clock. `keepalive` in the tests of `iscsi` checks the
//! timeouts on a virtual clock.

use std::path::Path;
use std::time::Duration;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent};
use iscsi_client::RemoteLun;

use super::load::Load;
use super::san::{San, images};
use super::{Disk, Needs, can, for_each, open, round_trip, stamped};
use crate::program::{PATIENCE, until};
use crate::proxy::{Proxy, Towards};
use crate::remote::in_a_world;
use crate::server::Server;

/// Settings with which nothing times out because the machine is slow.
const NEVER: &str =
    "&congestion=cubic&nop-interval=3600&login-time=3600&command-time=3600&reconnect-time=3600";
/// Settings with which an unresponsive connection is detected early. On a slow machine, this may be a
/// different connection from the scene's. A command is sent again after a minute, because istgt sometimes
/// never completes a command that was outstanding when a connection was replaced.
const SOON: &str = "&congestion=cubic&nop-interval=1&login-time=3600&command-time=60&command-tries=10&reconnect-time=3600";

/// Starts a load in a session with this number of connections and these settings, through the proxy.
fn begin(san: &San, proxy: &Proxy, connections: u16, terms: &str) -> Load {
    Load::begin(&san.url_by(
        proxy,
        Disk::Plain,
        &format!("?connections={connections}{terms}"),
    ))
}

/// Runs a scene with a load, which must continue before and after it.
fn under_load(
    needs: Needs,
    connections: u16,
    terms: &str,
    scene: impl Fn(&mut San, &Proxy, &Load),
) {
    for_each(needs, |san| {
        let proxy = Proxy::to(san.port());
        let load = begin(san, &proxy, connections, terms);
        load.goes_on();
        scene(san, &proxy, &load);
        load.goes_on();
        load.end();
    });
}

/// Waits until there have been at least this number of connections. There can be more, because the whole
/// session is reinstated if a target cannot replace a single connection.
fn until_replaced(proxy: &Proxy, connections: usize) {
    until("another connection", || proxy.connections() >= connections);
}

/// Checks that there have been exactly this number of connections, if lost connections are replaced
/// individually.
fn replaced(san: &San, proxy: &Proxy, connections: usize) {
    if can(san.make(), Needs::LogoutOfAnother) {
        assert_eq!(proxy.connections(), connections);
    }
}

#[test]
fn one_connection_of_four_is_cut_and_comes_back() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let load = begin(san, &proxy, 4, NEVER);
        load.goes_on();
        proxy.cut(2);
        until_replaced(&proxy, 5);
        load.goes_on();
        load.end();
        replaced(san, &proxy, 5);
    });
}

#[test]
fn one_connection_of_four_is_cut_in_the_middle_of_a_pdu() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let load = begin(san, &proxy, 4, NEVER);
        for round in 0..3 {
            load.goes_on();
            let newest = proxy.connections();
            proxy.cut_after(newest - 1, 100_003);
            // If the whole session is reinstated, its other connections may still be opening from the last
            // round.
            until("the cut", || proxy.is_cut(newest - 1));
            until_replaced(&proxy, newest + 1);
            load.goes_on();
            replaced(san, &proxy, 5 + round);
        }
        load.end();
    });
}

#[test]
fn one_connection_of_four_is_late_and_is_waited_for() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let load = begin(san, &proxy, 4, NEVER);
        load.goes_on();
        // Responses continue. Otherwise every command would have arrived, and the other connections could
        // continue forever.
        proxy.hold_towards_target(1);
        until("something that is late", || {
            proxy.held(1, Towards::Target) > 0
        });
        load.stands_still(); // commands are executed in order
        proxy.release(1);
        load.goes_on();
        load.end();
        assert_eq!(
            proxy.connections(),
            4,
            "to be late is no reason to be given up"
        );
    });
}

#[test]
fn one_slow_connection_of_four_is_no_lost_one() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let load = begin(san, &proxy, 4, NEVER);
        proxy.slow(2, 3000, Duration::from_millis(5));
        load.goes_on();
        load.end();
        assert_eq!(proxy.connections(), 4);
    });
}

/// Delayed data arrives long after it was written again over another connection, and overwritten.
#[test]
fn what_arrives_late_on_a_connection_that_was_replaced_changes_nothing() {
    under_load(Needs::Connections, 4, SOON, |_, proxy, load| {
        proxy.hold(3);
        until_replaced(proxy, 5);
        load.goes_on();
        proxy.release(3);
    });
}

#[test]
fn a_connection_that_swallows_everything_is_left() {
    under_load(Needs::Connections, 4, SOON, |_, proxy, _| {
        proxy.swallow(0);
        until_replaced(proxy, 5);
    });
}

#[test]
fn all_four_are_cut_and_the_session_begins_again() {
    for_each(Needs::Connections, |san| {
        let proxy = Proxy::to(san.port());
        let load = begin(san, &proxy, 4, NEVER);
        for _ in 0..2 {
            load.goes_on();
            proxy.cut_all();
        }
        load.goes_on();
        load.end();
    });
}

#[test]
fn a_session_of_one_connection_begins_again() {
    for_each(Needs::Nothing, |san| {
        let proxy = Proxy::to(san.port());
        let load = begin(san, &proxy, 1, NEVER);
        load.goes_on();
        proxy.cut(0);
        load.goes_on();
        proxy.cut_after(1, 50_001);
        until("the cut", || proxy.is_cut(1));
        until_replaced(&proxy, 3);
        load.goes_on();
        load.end();
        assert_eq!(proxy.connections(), 3);
    });
}

/// With one connection, only the login that reinstates the session can overtake late data, and it makes the
/// target end the old session first (RFC 7143 section 6.3.5).
#[test]
fn what_arrives_behind_a_reinstatement_changes_nothing() {
    under_load(Needs::Nothing, 1, SOON, |_, proxy, load| {
        proxy.hold(0);
        until_replaced(proxy, 2);
        load.goes_on();
        proxy.release(0);
    });
}

#[test]
fn a_target_that_is_killed_is_waited_for() {
    for_each(Needs::Nothing, |san| {
        let load = Load::begin(&san.url(Disk::Plain, &format!("?connections=1{NEVER}")));
        load.goes_on();
        san.kill();
        load.stands_still();
        san.restart();
        load.goes_on();
        load.end();
    });
}

#[test]
fn a_target_that_stands_still_is_waited_for() {
    under_load(Needs::Nothing, 1, SOON, |san, proxy, _| {
        san.signal("STOP");
        until("a login that is not answered", || proxy.connections() > 1);
        san.signal("CONT");
    });
}

#[test]
fn a_door_that_is_closed_for_a_while_is_knocked_at_again() {
    under_load(Needs::Nothing, 1, NEVER, |_, proxy, _| {
        proxy.close();
        proxy.cut_all();
        until("a few who knock", || proxy.turned_away() > 2);
        proxy.open();
    });
}

#[test]
fn four_connections_to_a_target_that_is_killed_again_and_again() {
    for_each(Needs::Connections, |san| {
        let load = Load::begin(&san.url(Disk::Plain, &format!("?connections=4{NEVER}")));
        for _ in 0..3 {
            load.goes_on();
            san.kill();
            san.restart();
        }
        load.goes_on();
        load.end();
    });
}

/// Reads a block, with a timeout longer than the target's longest wait.
async fn read(lun: &RemoteLun) -> Result<Buffer, DeviceError> {
    let read = lun.read(Extent::new(0, 8), Buffer::recycled(4096));
    reactor::timeout(PATIENCE, read)
        .await
        .expect("an answer, whatever it is")
}

/// Repeats a read until it succeeds.
async fn until_it_is_back(lun: &RemoteLun) {
    let begun = reactor::now();
    while read(lun).await.is_err() {
        assert!(reactor::now() - begun < PATIENCE, "no service any more");
        reactor::sleep(Duration::from_millis(50)).await;
    }
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

/// A server with one disk of two, for users with the secret.
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
    server
        .url("disk")
        .replace("iscsi://", &format!("iscsi://joe%{SECRET}@"))
        + query
}

#[test]
fn a_target_that_comes_back_with_another_secret_gets_no_requests() {
    let images = images(&["one", "two"]);
    let mut server = or_skip!(Server::configured(&locked("one", SECRET, images.path())));
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
    let mut server = or_skip!(Server::configured(&locked("one", SECRET, images.path())));
    in_a_world(async {
        let lun = open(&url_with_secret(&server, "?reconnect-time=2")).await;
        round_trip(&lun, 0, 64, 1).await;
        server.kill();
        server.reconfigure(&locked("two", SECRET, images.path()));
        server.restart();
        for _ in 0..3 {
            let written = lun
                .write(
                    Extent::new(0, 8),
                    stamped(&lun, 0, 8, 2),
                    Durability::Stable,
                )
                .await;
            assert_eq!(written, Err(DeviceError::NotReady));
            assert_eq!(read(&lun).await.err(), Some(DeviceError::NotReady));
        }
        lun.close().await;
    });
    let other = std::fs::read(images.path().join("two")).expect("its image");
    assert!(
        other.iter().all(|byte| *byte == 0),
        "nothing has been written to the other disk"
    );
}
