//! Tests of lost sessions and caches, slow portals and redirections, in virtual time.

use std::rc::Rc;
use std::time::Duration;

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, Losses};
use iscsi_client::{Portal, discover, open, open_paths};
use reactor::{now, sleep, timeout};

use crate::memory::{Breaks, Target, with_target};
use crate::scenes::counted;

const SECOND: Duration = Duration::from_secs(1);

async fn opened(url: &str) -> Rc<dyn BlockDevice> {
    let url = Target::url(url);
    match url.settings.paths.are_several() {
        true => Rc::new(open_paths(&url, counted).await.expect("sessions")),
        false => Rc::new(open(&url, counted).await.expect("a session")),
    }
}

async fn write(device: &dyn BlockDevice) {
    let data = Buffer::zeroed(512).share();
    device
        .write(Extent::new(0, 1), data, Durability::Cached)
        .await
        .expect("written");
}

/// A RAID set uses this doubt to choose among its members, because a read over a reinstated session may
/// return data without acknowledged writes. If one of two sessions is lost, the other may also read from the
/// new cache.
#[test]
fn a_device_whose_session_is_renewed_is_in_doubt_before_anything_is_read() {
    for (options, generation) in [("", 1), ("", 0), ("?sessions=2&journal=0", 1)] {
        with_target(async |target| {
            let device = opened(options).await;
            write(&*device).await;
            assert_eq!(device.losses(), Losses::NONE);
            target.generation.set(generation);
            target.end_connections(1);
            timeout(60 * SECOND, async {
                while !device.losses().is_in_doubt() {
                    assert_eq!(device.losses(), Losses::NONE, "the doubt comes first");
                    sleep(Duration::from_micros(100)).await;
                }
            })
            .await
            .expect("a doubt, without any request");
            assert_eq!(device.resolve_losses().await, Ok(()));
            assert_eq!(
                device.losses(),
                Losses::counted(generation.into()),
                "{options:?}"
            );
        });
    }
}

/// Regression: such a session was reinstated 15 times a second, forever, and its requests never ended,
/// because each was sent again in the next session.
#[test]
fn a_session_that_breaks_after_each_login_is_renewed_with_pauses_and_its_requests_end() {
    for breaks in [Breaks::AfterTheFirstAnswer, Breaks::AtRead] {
        with_target(async |target| {
            let device = opened("?command-time=5&reconnect-time=10s").await;
            target.breaks.set(breaks);
            target.end_connections(1);
            let (begun, before) = (now(), target.logins.get());
            while now() - begun < 60 * SECOND {
                let sent = now();
                let read = device.read(Extent::new(0, 1), Buffer::zeroed(512));
                let read = timeout(600 * SECOND, read).await.expect("an end");
                assert_eq!(read.map(drop), Err(DeviceError::NotReady));
                assert!(now() - sent < 32 * SECOND, "{breaks:?}: {:?}", now() - sent);
                sleep(Duration::from_millis(1)).await;
            }
            let logins = target.logins.get() - before;
            assert!(
                (10..40).contains(&logins),
                "{breaks:?}: {logins} logins in {:?}",
                now() - begun
            );
            // After a session that has lasted, the pauses start again with the shortest.
            target.breaks.set(Breaks::Never);
            sleep(20 * SECOND).await;
            target.end_connections(1);
            let before = target.logins.get();
            sleep(SECOND).await;
            assert_eq!(target.logins.get(), before + 1);
        });
    }
}

/// The documented time limit covers the login and the list of targets together.
#[test]
fn a_discovery_ends_within_its_time_whatever_is_slow() {
    for (delay, portal) in [
        (6, "iscsi://10.0.0.1"),
        (0, "iscsi://10.0.0.1"),
        (2, "iscsi://10.0.0.1?login-time=5"),
    ] {
        with_target(async |target| {
            target.login_delay.set(delay * SECOND);
            let (portal, settings) = Portal::parse(portal).expect("a portal");
            let begun = now();
            discover(&portal, &settings, counted)
                .await
                .expect_err("no list comes");
            assert_eq!(
                (now() - begun).as_secs(),
                settings.login_time.as_secs(),
                "{delay} s"
            );
        });
    }
}

#[test]
fn a_list_of_more_than_a_mebibyte_is_received() {
    with_target(async |target| {
        let name = |number| format!("iqn.2026-01.io.linerate.test:{}{number}", "x".repeat(100));
        let text: String = (0..20_000)
            .map(|number| format!("TargetName={}\0", name(number)))
            .collect();
        assert!(text.len() > 2 << 20);
        target.targets.replace(text);
        let (portal, settings) = Portal::parse("iscsi://10.0.0.1").expect("a portal");
        let found = discover(&portal, &settings, counted).await.expect("a list");
        assert_eq!((found.len(), &found[19_999].name), (20_000, &name(19_999)));
    });
}

/// Without the redirecting address, the user would search for an error at an address that is in no
/// configuration.
#[test]
fn an_error_after_a_redirection_names_who_has_redirected() {
    for to in ["10.0.0.7:3260,1", "not an address"] {
        with_target(async |target| {
            target.redirects_to.set(Some(to));
            let error = open(&Target::url(""), counted)
                .await
                .err()
                .expect("no target is there")
                .to_string();
            assert!(
                error.contains("10.0.0.1:3260 redirected the login to this address"),
                "{to}: {error}"
            );
        });
    }
}
