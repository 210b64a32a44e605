//! Behaviour that is required of the initiator with any target, tested with tgt.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use block::{BlockDevice, Blocks, Buffer, DeviceError, Durability, Extent};
use failover::Channelled;
use iscsi::login::LoginFailure;
use iscsi::pdu::{LoginStatus, Residual};
use iscsi_client::{
    CommandError, Management, OpenError, Portal, RemoteLun, Transfer, Url, cdb, discover, open,
    open_target,
};
use reactor::block_on;

use crate::polled::Polled;
use crate::tgt::{BYTES, IN, NAME, OUT, Tgt};

#[test]
fn a_target_that_is_not_there_is_not_found() {
    with(Tgt::start(), async |tgt| {
        let url = tgt
            .url("", 1, "")
            .replace(NAME, "iqn.2026-01.io.linerate.test:nobody");
        let refused = try_open(&url).await.err();
        let expected = LoginFailure::Refused(LoginStatus::NotFound);
        assert!(
            matches!(refused, Some(OpenError::Login { why, .. }) if why == expected),
            "{refused:?}"
        );
    });
}

#[test]
fn a_port_where_nobody_listens_is_a_connection_refused() {
    run(async {
        let refused = try_open("iscsi://127.0.0.1:1/iqn.2026-01.io.linerate.test:x/0")
            .await
            .err();
        assert!(
            matches!(refused, Some(OpenError::Connect { .. })),
            "{refused:?}"
        );
    });
}

#[test]
fn a_lun_that_is_not_there_is_named() {
    with(Tgt::start(), async |tgt| {
        let refused = try_open(&tgt.url("", 7, "")).await.err();
        assert!(
            matches!(refused, Some(OpenError::NoSuchLun(7))),
            "{refused:?}"
        );
    });
}

#[test]
fn the_controller_that_tgt_has_as_lun_0_is_no_disk() {
    with(Tgt::start(), async |tgt| {
        let refused = try_open(&tgt.url("", 0, "")).await.err();
        assert!(
            matches!(refused, Some(OpenError::NotADisk(0x0c))),
            "{refused:?}"
        );
    });
}

#[test]
fn a_wrong_secret_is_an_authentication_failure() {
    with(Tgt::start().map(Tgt::with_accounts), async |tgt| {
        for account in ["joe%not his secret@", "jim%a secret of joe's@"] {
            let refused = try_open(&tgt.url(account, 1, "?chap=md5")).await.err();
            let expected = LoginFailure::Refused(LoginStatus::AuthenticationFailure);
            assert!(
                matches!(refused, Some(OpenError::Login { why, .. }) if why == expected),
                "{refused:?}"
            );
        }
    });
}

#[test]
fn both_sides_prove_who_they_are() {
    with(Tgt::start().map(Tgt::with_accounts), async |tgt| {
        let account = format!("{}%{}@", IN.0, IN.1);
        round_trip(&attach(&tgt.url(&account, 1, "?chap=md5")).await, 8).await;
        let mutual = format!("?chap=md5&target-user={}&target-secret={}", OUT.0, OUT.1);
        round_trip(&attach(&tgt.url(&account, 1, &mutual)).await, 8).await;
        let stranger = try_open(&tgt.url(
            &account,
            1,
            "?chap=md5&target-user=san&target-secret=another",
        ))
        .await
        .err();
        assert!(
            matches!(
                stranger,
                Some(OpenError::Login {
                    why: LoginFailure::Chap(_),
                    ..
                })
            ),
            "{stranger:?}"
        );
    });
}

#[test]
fn a_target_that_dies_ends_every_request_that_is_not_to_wait_for_it() {
    with(Tgt::start(), async |mut tgt| {
        let lun = Arc::new(attach(&tgt.url("", 1, "?reconnect-time=0")).await);
        let readers: Vec<_> = (0..16)
            .map(|_| {
                let lun = Arc::clone(&lun);
                reactor::spawn(async move {
                    loop {
                        if let Err(error) =
                            lun.read(Extent::new(0, 8), Buffer::recycled(4096)).await
                        {
                            return error;
                        }
                    }
                })
            })
            .collect();
        round_trip(&lun, 8).await;
        tgt.kill();
        for reader in readers {
            assert_eq!(reader.await, DeviceError::NotReady);
        }
        assert_eq!(lun.flush().await, Err(DeviceError::NotReady));
    });
}

#[test]
fn requests_wait_for_a_target_that_comes_back_and_are_carried_out() {
    with(Tgt::start(), async |mut tgt| {
        let lun = Arc::new(attach(&tgt.url("", 1, "")).await);
        let over = Rc::new(Cell::new(false));
        let writers: Vec<_> = (0..16u64)
            .map(|number| {
                let (lun, over) = (Arc::clone(&lun), Rc::clone(&over));
                reactor::spawn(async move {
                    for round in (0..).take_while(|_| !over.get()) {
                        let (extent, data) = (
                            Extent::new(number * 64, 64),
                            numbered(number + round, 64 * 512),
                        );
                        lun.write(extent, data.share(), Durability::Cached)
                            .await
                            .expect("written");
                        let read = lun
                            .read(extent, Buffer::recycled(64 * 512))
                            .await
                            .expect("read");
                        assert_eq!(*read, *numbered(number + round, 64 * 512));
                        reactor::sleep(Duration::from_millis(10)).await;
                    }
                })
            })
            .collect();
        for kills in 1..=2 {
            tgt.kill();
            tgt.start_again();
            while lun.target().reinstatements() < kills {
                reactor::sleep(Duration::from_millis(5)).await;
            }
        }
        over.set(true);
        for writer in writers {
            writer.await;
        }
        assert_eq!(lun.target().reinstatements(), 2);
    });
}

/// tgt reports a reset to every new nexus, so the initiator cannot determine whether tgt has kept its cache.
#[test]
fn what_no_flush_had_followed_is_lost_with_a_target_that_may_have_lost_its_cache() {
    with(Tgt::start(), async |mut tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        assert!(lun.profile().volatile_cache);
        lun.write(
            Extent::new(0, 8),
            numbered(1, 4096).share(),
            Durability::Cached,
        )
        .await
        .expect("written");
        tgt.kill();
        tgt.start_again();
        assert_eq!(lun.flush().await, Err(DeviceError::WritesLost));
        assert_eq!(lun.flush().await, Ok(()));
        tgt.kill();
        tgt.start_again();
        assert_eq!(lun.flush().await, Ok(()), "nothing was written since");
        assert_eq!(lun.target().reinstatements(), 2);
    });
}

/// With several sessions and a single writer, the initiator replays writes that tgt may have lost: after tgt
/// was killed, and after a reset, which tgt reports to every session.
#[test]
fn what_no_flush_had_followed_is_written_again_where_there_are_several_sessions() {
    with(Tgt::start(), async |mut tgt| {
        let url =
            Url::parse(&tgt.url("", 1, "?sessions=3&nop-interval=1&writers=one")).expect("a URL");
        let paths = iscsi_client::open_paths(&url, counted)
            .await
            .expect("a LUN");
        let write = async |number| {
            let data = numbered(number, 4096).share();
            paths
                .write(Extent::new(number * 8, 8), data, Durability::Cached)
                .await
                .expect("written");
        };
        let replays = async || paths.status().await.expect("on this thread").replays;
        write(1).await;
        tgt.kill();
        tgt.start_again();
        write(2).await;
        assert_eq!((replays().await, paths.flush().await), (1, Ok(())));
        write(3).await;
        let other = attach(&tgt.url("", 1, "")).await;
        let reset = Management::LogicalUnitReset(other.unit().lun());
        other.target().manage(reset).await.expect("an answer");
        assert_eq!(paths.flush().await, Ok(()));
        assert_eq!(replays().await, 2);
        for number in 1..=3 {
            let read = paths
                .read(Extent::new(number * 8, 8), Buffer::recycled(4096))
                .await
                .expect("read");
            assert_eq!(*read, *numbered(number, 4096));
        }
    });
}

#[test]
fn a_target_that_does_not_come_back_in_time_ends_every_request() {
    with(Tgt::start(), async |mut tgt| {
        let lun = attach(&tgt.url("", 1, "?reconnect-time=1")).await;
        tgt.kill();
        assert_eq!(lun.flush().await, Err(DeviceError::NotReady));
        tgt.start_again();
        // The initiator continues to log in. The target may become available only after every request has
        // timed out.
        while lun.flush().await.is_err() {
            reactor::sleep(Duration::from_millis(50)).await;
        }
        round_trip(&lun, 8).await;
    });
}

/// Regression, found with a server that was stopped (SIGSTOP) during heavy writes: the session ended only
/// when the server continued.
#[test]
fn a_target_that_takes_nothing_any_more_ends_every_request() {
    run(async {
        let port = crate::fake::deaf_portal();
        let url = format!("iscsi://127.0.0.1:{port}/{NAME}/0?nop-interval=1&reconnect-time=0");
        let url = Url::parse(&url).expect("a URL");
        let target = open_target(&url.portal, &url.target, &url.settings, counted)
            .await
            .expect("a session");
        let target = Arc::new(target);
        // The writes have more data than both sockets can buffer.
        let writes: Vec<_> = (0..60)
            .map(|_| {
                let (unit, data) = (target.unit(0), Buffer::zeroed(256 << 10).share());
                reactor::spawn(async move {
                    unit.command(cdb::write_16(0, 512, false), Transfer::Out(data))
                        .await
                        .map(drop)
                })
            })
            .collect();
        for write in writes {
            assert_eq!(write.await, Err(CommandError::ConnectionLost));
        }
    });
}

/// All connections of a session must be to portals of one portal group (RFC 7143 section 4.4.1).
#[test]
fn a_connection_to_another_portal_group_does_not_join_the_session() {
    let open = |tags| {
        run(async move {
            let url = format!(
                "iscsi://127.0.0.1:{}/{NAME}/0?connections=2&login-time=5",
                crate::fake::portal(tags)
            );
            let url = Url::parse(&url).expect("a URL");
            let target = open_target(&url.portal, &url.target, &url.settings, counted).await?;
            target.close().await;
            Ok::<_, OpenError>(())
        })
    };
    assert!(open(&[3, 3]).is_ok());
    let refused = open(&[3, 4]).expect_err("one session, two groups");
    assert!(
        matches!(
            refused,
            OpenError::AnotherGroup {
                session: 3,
                connection: 4,
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn requests_beyond_the_end_are_never_sent() {
    with(Tgt::start(), async |tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        let end = lun.geometry().blocks.0;
        let beyond = lun
            .read(Extent::new(end - 1, 2), Buffer::recycled(1024))
            .await;
        assert_eq!(beyond.err(), Some(DeviceError::OutOfRange));
    });
}

#[test]
fn the_shape_is_the_targets() {
    with(Tgt::start(), async |tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        assert_eq!(lun.geometry().bytes(), BYTES);
        assert!(!lun.profile().read_only);
    });
}

#[test]
fn data_come_back_whichever_way_they_travel() {
    with(Tgt::start(), async |tgt| {
        for query in [
            "",
            "?immediate-data=no&initial-r2t=no",
            "?immediate-data=no&initial-r2t=yes&max-burst=4096&first-burst=4096",
            "?initial-r2t=yes&max-outstanding-r2t=1&max-burst=16384",
            "?max-segment=512&max-burst=1536&first-burst=1024",
        ] {
            let lun = attach(&tgt.url("", 1, query)).await;
            for blocks in [1, 3, 8, 129, 1024, 4099] {
                round_trip(&lun, blocks).await;
            }
            lun.close().await;
        }
    });
}

#[test]
fn digests_protect_data_on_their_way() {
    for (header, data) in [("CRC32C", "None"), ("None", "CRC32C"), ("CRC32C", "CRC32C")] {
        with(
            Tgt::start().map(|tgt| tgt.with_digests(header, data)),
            async |tgt| {
                for more in ["", "&immediate-data=no", "&max-segment=512&initial-r2t=yes"] {
                    let query = format!("?header-digest={header}&data-digest={data}{more}");
                    let lun = attach(&tgt.url("", 1, &query)).await;
                    for blocks in [1, 8, 129, 1024] {
                        round_trip(&lun, blocks).await;
                    }
                }
            },
        );
    }
}

#[test]
fn a_digest_that_the_target_will_not_have_is_no_session() {
    with(Tgt::start(), async |tgt| {
        let refused = try_open(&tgt.url("", 1, "?header-digest=crc32c"))
            .await
            .err();
        assert!(
            matches!(
                refused,
                Some(OpenError::Login {
                    why: LoginFailure::Negotiation(_),
                    ..
                })
            ),
            "{refused:?}"
        );
    });
}

/// Regression: a request that had ended, but had not been polled yet, lost its response to the next one,
/// because the state machine had reused its index.
#[test]
fn many_requests_at_once_each_get_their_own_data() {
    with(Tgt::start(), async |tgt| {
        let lun = Arc::new(attach(&tgt.url("", 1, "")).await);
        let writers: Vec<_> = (0..200u64)
            .map(|number| {
                let lun = Arc::clone(&lun);
                reactor::spawn(async move {
                    let extent = Extent::new(number * 16, 16);
                    let data = numbered(number, 16 * 512);
                    lun.write(extent, data.share(), Durability::Cached)
                        .await
                        .expect("written");
                    let read = lun
                        .read(extent, Buffer::recycled(16 * 512))
                        .await
                        .expect("read");
                    assert_eq!(*read, *numbered(number, 16 * 512), "request {number}");
                })
            })
            .collect();
        for writer in writers {
            writer.await;
        }
    });
}

#[test]
fn a_dropped_request_leaves_the_session_in_order() {
    with(Tgt::start(), async |tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        for _ in 0..20 {
            let dropped = lun.read(Extent::new(0, 4096), Buffer::recycled(4096 * 512));
            let _ = reactor::timeout(Duration::ZERO, dropped).await;
        }
        lun.quiesced().await.expect("all ended");
        round_trip(&lun, 64).await;
    });
}

#[test]
fn a_lun_can_be_used_from_another_thread() {
    with(Tgt::start(), async |tgt| {
        let lun = Arc::new(attach(&tgt.url("", 1, "")).await);
        let (done, mut finished) = reactor::mailbox();
        let elsewhere = Arc::clone(&lun);
        let other = thread::spawn(move || {
            block_on(Polled::world(), async {
                round_trip(&elsewhere, 64).await;
                elsewhere.quiesced().await.expect("all ended");
            });
            done.send(()).expect("somebody waits");
        });
        finished.recv().await.expect("the other thread got through");
        other.join().expect("without a panic");
    });
}

#[test]
fn a_command_of_the_callers_own_is_answered_as_it_is() {
    with(Tgt::start(), async |tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        let long = Transfer::into_all_of(Buffer::zeroed(255));
        let inquiry = lun
            .command(cdb::inquiry(None, 255), long)
            .await
            .expect("answered");
        assert_eq!(inquiry.status, 0);
        assert!(inquiry.data.len() >= 36, "{} bytes", inquiry.data.len());
        let missing = 255 - inquiry.data.len() as u32;
        assert_eq!(inquiry.residual, Residual::Underflow(missing));

        let nonsense = lun
            .command([0xff; 16], Transfer::None)
            .await
            .expect("answered");
        let sense = nonsense.sense.expect("CHECK CONDITION has sense data");
        assert_eq!((nonsense.status, sense.key), (2, 5));
    });
}

#[test]
fn writes_of_zeros_and_flushes_are_carried_out() {
    with(Tgt::start(), async |tgt| {
        let lun = attach(&tgt.url("", 1, "")).await;
        round_trip(&lun, 64).await;
        lun.write_zeroes(Extent::new(8, 8), false)
            .await
            .expect("zeros");
        lun.flush().await.expect("flushed");
        let read = lun
            .read(Extent::new(0, 24), Buffer::recycled(24 * 512))
            .await
            .expect("read");
        assert!(read[8 * 512..16 * 512].iter().all(|byte| *byte == 0));
        assert!(read[..8 * 512].iter().any(|byte| *byte != 0));
    });
}

#[test]
fn discovery_finds_the_target_and_its_portal() {
    with(Tgt::start(), async |tgt| {
        let (portal, settings) = Portal::parse(&tgt.portal()).expect("a portal");
        let targets = discover(&portal, &settings, counted)
            .await
            .expect("targets");
        assert_eq!(
            targets
                .iter()
                .map(|target| target.name.as_str())
                .collect::<Vec<_>>(),
            [NAME]
        );
        let port = portal.port.to_string();
        assert!(
            targets[0]
                .addresses
                .iter()
                .any(|address| address.contains(&port)),
            "{targets:?}"
        );
    });
}

#[test]
fn a_closed_session_answers_nothing_more() {
    with(Tgt::start(), async |tgt| {
        let target = Arc::clone(attach(&tgt.url("", 1, "")).await.target());
        target.close().await;
        let late = target.lun(1).await.err();
        let lost = CommandError::ConnectionLost;
        assert!(
            matches!(late, Some(OpenError::Command { error, .. }) if error == lost),
            "{late:?}"
        );
    });
}

// --- helpers

pub(crate) fn run<T>(scene: impl Future<Output = T>) -> T {
    block_on(Polled::world(), scene)
}

pub(crate) fn with(tgt: Option<Tgt>, scene: impl AsyncFnOnce(Tgt)) {
    if let Some(tgt) = tgt {
        run(scene(tgt));
    }
}

async fn try_open(url: &str) -> Result<RemoteLun, OpenError> {
    open(&Url::parse(url).expect("a URL"), counted).await
}

pub(crate) async fn attach(url: &str) -> RemoteLun {
    try_open(url).await.expect("it opens")
}

/// Fills `bytes` with values that differ between sessions, but are the same in every run.
pub(crate) fn counted(bytes: &mut [u8]) {
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
    static NEXT: AtomicU8 = AtomicU8::new(1);
    bytes
        .iter_mut()
        .for_each(|byte| *byte = NEXT.fetch_add(1, Relaxed));
}

fn numbered(number: u64, bytes: usize) -> Buffer {
    let mut data = Buffer::zeroed(bytes);
    for (word, index) in data.chunks_exact_mut(8).zip(0u64..) {
        word.copy_from_slice(&(number << 32 | index).to_be_bytes());
    }
    data
}

pub(crate) async fn round_trip(lun: &RemoteLun, blocks: u64) {
    let bytes = blocks as usize * 512;
    for lba in [0, 17] {
        let extent = Extent {
            blocks: Blocks(blocks),
            ..Extent::new(lba, 0)
        };
        lun.write(
            extent,
            numbered(lba + blocks, bytes).share(),
            Durability::Stable,
        )
        .await
        .expect("written");
        let read = lun
            .read(extent, Buffer::recycled(bytes))
            .await
            .expect("read");
        assert_eq!(
            *read,
            *numbered(lba + blocks, bytes),
            "{blocks} blocks at {lba}"
        );
    }
}
