//! Tests in virtual time of the messages that the initiator sends, rejects and logs when it opens a LUN.

use std::rc::Rc;

use block::BlockDevice;
use iscsi_client::{Url, open};
use testkit::logged;

use crate::memory::{Target, with_target};
use crate::scenes::counted;

async fn refusal() -> String {
    open(&Target::url(""), counted)
        .await
        .err()
        .expect("no such LUN here")
        .to_string()
}

/// Regression: names were converted to lower case, so targets that compare bytes (tgt, ceph-iscsi) did not
/// find them.
#[test]
fn names_are_sent_as_they_are_in_the_url() {
    let initiator = "iqn.1993-08.org.debian:01:ABC";
    for (name, warning) in [
        ("iqn.2026-01.com.example:DISK", false),
        ("Target-911data", true),
    ] {
        let scene = async |target: Rc<Target>| {
            let url = format!("iscsi://10.0.0.1:3260/{name}/0?initiator={initiator}");
            let lun = open(&Url::parse(&url).expect("a URL"), counted)
                .await
                .expect("a LUN");
            let texts = target.login_texts.borrow().clone();
            let sent: Vec<&str> = texts
                .split('\0')
                .filter(|pair| pair.contains("Name="))
                .collect();
            assert_eq!(
                sent,
                [
                    format!("InitiatorName={initiator}"),
                    format!("TargetName={name}")
                ]
            );
            lun.close().await;
        };
        let ((), log) = logged(|| with_target(scene));
        assert_eq!(
            log.contains("does not have the standard form"),
            warning,
            "{log}"
        );
    }
}

#[test]
fn blocks_that_are_no_power_of_two_are_named() {
    with_target(async |target| {
        target.block_bytes.set(520);
        let expected = "the LUN has blocks of 520 bytes; only powers of two from 512 are supported";
        assert_eq!(refusal().await, expected);
    });
}

/// UNMAP is a hint, so only WRITE SAME makes a thin device.
#[test]
fn a_thin_lun_that_is_thick_through_this_device_is_logged() {
    let (lbpu, lbpws) = (0x80, 0x40);
    for (provisioning, is_logged) in [(lbpu | lbpws, false), (lbpu, true)] {
        let scene = async |target: Rc<Target>| {
            target.provisioning.set(provisioning);
            let lun = open(&Target::url(""), counted).await.expect("a LUN");
            assert_eq!(lun.profile().thin, !is_logged);
        };
        let ((), log) = logged(|| with_target(scene));
        assert_eq!(
            log.contains("it is used as a thick LUN"),
            is_logged,
            "{log}"
        );
    }
}

/// Regression: the host in such an address was printed, including its line end.
#[test]
fn an_address_of_a_redirection_forges_no_line() {
    for address in ["a\ndata verified", "a\u{202e}b:1", "[fe80::1%\n]:1"] {
        with_target(async |target| {
            target.redirects_to.set(Some(address));
            let said = refusal().await;
            assert!(
                said.contains("redirected the login to this address"),
                "{said}"
            );
            assert!(
                said.chars().all(|c| !c.is_control() && c != '\u{202e}'),
                "{said:?}"
            );
        });
    }
}
