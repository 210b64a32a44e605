//! Tests of sessions that are lost and reconnect to another portal group of their target. This creates
//! another I_T nexus, and the old nexus keeps its tasks until it is reinstated itself (RFC 7143 4.4.2,
//! 6.3.5).

use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent};
use iscsi_client::RemoteLun;
use iscsi_client::verbs::{PersistentReserve, ReservationType, VerbError};

use crate::program::{PATIENCE, linerate, says};
use crate::proxy::{Proxy, Towards};
use crate::remote::{attached, in_a_world};
use crate::server::{Server, free_port};

const NAME: &str = "iqn.2026-01.io.linerate:disk";
const EXTENT: Extent = Extent {
    lba: block::Lba(64),
    blocks: block::Blocks(8),
};

/// One target at two portals, and a proxy in front of the first of them.
struct San {
    server: Server,
    proxy: Proxy,
    other_port: u16,
}

impl San {
    /// Starts a target with portals in these groups.
    fn with_groups(groups: [u16; 2]) -> Option<San> {
        let [first, second] = groups;
        let other_port = free_port();
        let server = Server::configured(&format!(
            "[[portal]]\nlisten = \"127.0.0.1:{{port}}\"\ngroup = {first}\n\
             [[portal]]\nlisten = \"127.0.0.1:{other_port}\"\ngroup = {second}\n\
             [volume.disk]\nspec = \"ram:1MiB\"\n\
             [[target]]\nname = \"{NAME}\"\nlun = [{{ lun = 0, volume = \"disk\" }}]\n"
        ))?;
        let proxy = Proxy::to(server.port());
        Some(San {
            server,
            proxy,
            other_port,
        })
    }

    fn url(&self, port: u16, query: &str) -> String {
        format!("iscsi://127.0.0.1:{port}/{NAME}/0{query}")
    }

    fn url_by_proxy(&self, query: &str) -> String {
        self.url(self.proxy.port(), query)
    }

    /// The data that another initiator reads.
    async fn found(&self) -> u8 {
        let lun = attached(&self.url(self.other_port, "")).await;
        let read = lun.read(EXTENT, Buffer::zeroed(4096)).await.expect("read");
        assert!(read.iter().all(|byte| *byte == read[0]));
        lun.close().await;
        read[0]
    }
}

async fn write(lun: &RemoteLun, byte: u8) -> Result<(), DeviceError> {
    lun.write(
        EXTENT,
        Buffer::from(&[byte; 4096][..]).share(),
        Durability::Cached,
    )
    .await
}

/// Starts a write, which the network holds up.
async fn held_up(
    san: &San,
    lun: &Arc<RemoteLun>,
    byte: u8,
) -> reactor::JoinHandle<Result<(), DeviceError>> {
    let (before, lun) = (san.proxy.bytes_of(0, Towards::Target), Arc::clone(lun));
    san.proxy.hold(0);
    let write = reactor::spawn(async move { write(&lun, byte).await });
    until_bytes(san, Towards::Target, before + 4096).await;
    write
}

/// Lets the held data arrive, and waits until the target has responded.
async fn arrives(san: &San) {
    let before = san.proxy.bytes_of(0, Towards::Initiator);
    san.proxy.release(0);
    until_bytes(san, Towards::Initiator, before + 1).await;
}

/// Waits until the first connection has received this total number of bytes in this direction.
async fn until_bytes(san: &San, towards: Towards, bytes: u64) {
    let deadline = Instant::now() + PATIENCE;
    while san.proxy.bytes_of(0, towards) < bytes {
        assert!(
            Instant::now() < deadline,
            "{bytes} bytes towards the {towards:?} never come"
        );
        reactor::sleep(Duration::from_millis(1)).await; // the proxy has no event for this
    }
}

/// Regression: the write was sent again to the other group, a newer write followed, and then the first copy
/// arrived.
#[test]
fn a_write_that_was_held_up_never_lands_on_a_newer_one() {
    let san = or_skip!(San::with_groups([1, 2]));
    in_a_world(async {
        let lun = Arc::new(attached(&san.url_by_proxy("?nop-interval=1")).await);
        write(&lun, 1).await.expect("written");
        let old = held_up(&san, &lun, 2).await;
        san.proxy.lead_to(san.other_port);
        let (old, newer) = (old.await, write(&lun, 3).await);
        arrives(&san).await;
        let found = san.found().await;
        let expected: &[u8] = match (old, newer) {
            (_, Ok(())) => &[3],
            (Ok(()), Err(_)) => &[2],
            (Err(_), Err(_)) => &[1, 2],
        };
        assert!(
            expected.contains(&found),
            "the writes ended as {old:?} and {newer:?}, and there is {found}"
        );
        assert_eq!(
            (old, newer),
            (Err(DeviceError::Unsettled), Err(DeviceError::Unsettled))
        );
        lun.target().close().await;
    });
}

#[test]
fn other_blocks_go_on_in_the_other_group_and_these_once_the_old_nexus_has_ended() {
    let san = or_skip!(San::with_groups([1, 2]));
    in_a_world(async {
        let lun = Arc::new(attached(&san.url_by_proxy("?nop-interval=1")).await);
        let old = held_up(&san, &lun, 2).await;
        san.proxy.lead_to(san.other_port);
        assert_eq!(old.await, Err(DeviceError::Unsettled));
        let read = |lba| lun.read(Extent::new(lba, 1), Buffer::zeroed(512));
        assert!(read(0).await.is_ok() && read(EXTENT.lba.0 + 8).await.is_ok());
        assert_eq!(
            read(EXTENT.lba.0 + 7).await.err(),
            Some(DeviceError::Unsettled)
        );
        assert_eq!(lun.quiesced().await, Err(DeviceError::Unsettled));
        // A login in the first group ends all outstanding commands there.
        san.proxy.lead_to(san.server.port());
        san.proxy.cut(1);
        assert!(read(0).await.is_ok());
        write(&lun, 3).await.expect("written");
        lun.quiesced().await.expect("all has ended");
        assert_eq!((san.found().await, lun.target().reinstatements()), (3, 2));
        lun.target().close().await;
    });
}

/// The write's caller got an error before the session was restored. Regression: a newer write was executed,
/// and then the first one.
#[test]
fn a_write_that_failed_while_the_session_was_lost_never_lands_on_a_newer_one() {
    let san = or_skip!(San::with_groups([1, 2]));
    in_a_world(async {
        let lun = Arc::new(attached(&san.url_by_proxy("?nop-interval=1&reconnect-time=1")).await);
        write(&lun, 1).await.expect("written");
        san.proxy.close();
        let old = held_up(&san, &lun, 2).await;
        assert_eq!(old.await, Err(DeviceError::NotReady));
        san.proxy.lead_to(san.other_port);
        san.proxy.open();
        while lun
            .read(Extent::new(0, 1), Buffer::zeroed(512))
            .await
            .is_err()
        {
            reactor::sleep(Duration::from_millis(20)).await;
        }
        let newer = write(&lun, 3).await;
        arrives(&san).await;
        assert_eq!((newer, san.found().await), (Err(DeviceError::Unsettled), 2));
        lun.target().close().await;
    });
}

#[test]
fn another_portal_of_the_same_group_reinstates_the_session() {
    let san = or_skip!(San::with_groups([7, 7]));
    in_a_world(async {
        let lun = Arc::new(attached(&san.url_by_proxy("?nop-interval=1")).await);
        let old = held_up(&san, &lun, 2).await;
        san.proxy.lead_to(san.other_port);
        assert_eq!((old.await, write(&lun, 3).await), (Ok(()), Ok(())));
        san.proxy.release(0); // no response: the target has ended that connection
        assert_eq!(san.found().await, 3);
        lun.target().close().await;
    });
}

#[test]
fn reads_are_asked_again_in_the_other_group() {
    let san = or_skip!(San::with_groups([1, 2]));
    in_a_world(async {
        let lun = Arc::new(attached(&san.url_by_proxy("?nop-interval=1")).await);
        write(&lun, 1).await.expect("written");
        san.proxy.hold(0);
        san.proxy.lead_to(san.other_port);
        let read = lun.read(EXTENT, Buffer::zeroed(4096)).await.expect("read");
        assert_eq!(
            (read[0], lun.target().nexus().target_portal_group_tag),
            (1, Some(2))
        );
        write(&lun, 2)
            .await
            .expect("nothing was under way that changes anything");
        lun.target().close().await;
    });
}

/// The first portal is still reachable, so the old nexus can be ended, and the write waits for this.
#[test]
fn a_write_is_sent_again_once_a_login_at_the_old_portal_has_ended_the_first_one() {
    let san = or_skip!(San::with_groups([1, 2]));
    let to = |port: u16| {
        format!(
            "[[target]]\nname = \"{NAME}\"\n[target.redirect]\naddress = \"127.0.0.1:{port}\"\npermanent = false\n"
        )
    };
    let mut sender = or_skip!(Server::configured(&to(san.proxy.port())));
    in_a_world(async {
        let lun = Arc::new(attached(&san.url(sender.port(), "?nop-interval=1")).await);
        let old = held_up(&san, &lun, 2).await;
        sender.kill();
        sender.reconfigure(&to(san.other_port));
        sender.restart();
        assert_eq!((old.await, write(&lun, 3).await), (Ok(()), Ok(())));
        assert_eq!(lun.target().nexus().target_portal_group_tag, Some(2));
        san.proxy.release(0);
        lun.quiesced().await.expect("all has ended");
        assert_eq!(san.found().await, 3);
        lun.target().close().await;
    });
}

/// Regression: a connection that never succeeded was retried forever, so the old nexus was never ended, and
/// writes waited without a limit.
#[test]
fn the_old_nexus_is_ended_although_the_session_lacks_a_connection() {
    let san = or_skip!(San::with_groups([1, 2]));
    let to = |port: u16| {
        format!(
            "[[target]]\nname = \"{NAME}\"\n[target.redirect]\naddress = \"127.0.0.1:{port}\"\npermanent = false\n"
        )
    };
    let mut sender = or_skip!(Server::configured(&to(san.proxy.port())));
    let elsewhere = Proxy::to(san.other_port);
    in_a_world(async {
        let lun =
            Arc::new(attached(&san.url(sender.port(), "?nop-interval=1&connections=2")).await);
        san.proxy.hold(1);
        let old = held_up(&san, &lun, 2).await;
        sender.kill();
        sender.reconfigure(&to(elsewhere.port()));
        elsewhere.open_once();
        sender.restart();
        let old = reactor::timeout(Duration::from_secs(60), old)
            .await
            .expect("a login at the old portal");
        assert_eq!(old, Ok(()), "sent again, as the first copy has ended");
        assert_eq!(lun.target().nexus().target_portal_group_tag, Some(2));
        lun.quiesced().await.expect("all has ended");
        assert!(
            elsewhere.turned_away() > 0,
            "the second connection is still missing"
        );
        elsewhere.open();
        while lun
            .target()
            .statistics()
            .await
            .expect("a session")
            .connections
            .len()
            < 2
        {
            reactor::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(san.found().await, 2);
        lun.target().close().await;
    });
}

const KEY: u64 = 0xabc;

#[test]
fn a_registration_that_was_left_behind_is_told() {
    let san = or_skip!(San::with_groups([1, 2]));
    let kind = ReservationType::WriteExclusive;
    let register = PersistentReserve::RegisterAndIgnoreExistingKey {
        new_key: KEY,
        persist: false,
    };
    in_a_world(async {
        let lun = attached(&san.url_by_proxy("")).await;
        let unit = lun.unit();
        unit.persistent_reserve(register).await.expect("registered");
        unit.persistent_reserve(PersistentReserve::Reserve { key: KEY, kind })
            .await
            .expect("reserved");
        write(&lun, 1).await.expect("by the holder");
        san.proxy.lead_to(san.other_port);
        san.proxy.cut(0);
        lun.read(EXTENT, Buffer::zeroed(4096))
            .await
            .expect("it lets others read");
        assert_eq!(write(&lun, 2).await, Err(DeviceError::Reserved));
        assert!(lun.target().has_orphaned_registration(unit.lun()));
        let release = PersistentReserve::Release { key: KEY, kind };
        assert_eq!(
            unit.persistent_reserve(release).await,
            Err(VerbError::Orphaned("PERSISTENT RESERVE OUT"))
        );
        let left = unit.registrations_elsewhere().await.expect("told");
        assert_eq!(
            left.iter()
                .map(|registration| registration.key)
                .collect::<Vec<_>>(),
            [KEY]
        );
        unit.persistent_reserve(register)
            .await
            .expect("registered here, too");
        assert!(!lun.target().has_orphaned_registration(unit.lun()));
        lun.close().await;
    });
}

#[test]
fn a_key_that_is_registered_in_another_portal_group_is_named_by_the_command_line() {
    let san = or_skip!(San::with_groups([1, 2]));
    let [first, second] = [san.server.port(), san.other_port].map(|port| san.url(port, ""));
    linerate(&["scsi", "register", &first, "--key", "abc"]).expect_success();
    let ended = linerate(&["scsi", "reserve", &second, "--key", "abc"]);
    assert_eq!(ended.status.code(), Some(7), "{}", ended.said);
    says(
        &ended.said,
        &[
            "the key is registered at port 1 of the target",
            "(portal group 2)",
        ],
    );
}
