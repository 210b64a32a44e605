//! Accounts: discovery and CHAP.

use iscsi::login::LoginFailure;
use iscsi::pdu::LoginStatus;
use iscsi_client::{OpenError, Portal, discover};

use super::san::{SECRET, San, TARGET_SECRET, TARGET_USER, USER};
use super::{Disk, Make, Needs, open, round_trip, try_open, with_each};
use crate::remote::random;

/// The hash algorithm to request from a target. tgt 1.0.85 selects SHA-1 from the initiator's list by a
/// number that now means SHA-256, and fails.
fn hash(san: &San) -> &'static str {
    if san.make() == Make::Tgt {
        "?chap=md5"
    } else {
        "?"
    }
}

fn refused_with(outcome: Result<impl Sized, OpenError>, status: LoginStatus) {
    match outcome.err() {
        Some(OpenError::Login {
            why: LoginFailure::Refused(said),
            ..
        }) => assert_eq!(said, status),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_wrong_secret_is_an_authentication_failure() {
    with_each(Needs::Nothing, async |san| {
        for account in ["joe%not the secret@", "jim%the joe secret@"] {
            let outcome = try_open(&san.url_as(account, Disk::Locked, hash(san))).await;
            refused_with(outcome, LoginStatus::AuthenticationFailure);
        }
    });
}

#[test]
fn who_proves_nothing_is_not_let_in() {
    with_each(Needs::Nothing, async |san| {
        let outcome = try_open(&san.url(Disk::Locked, "")).await;
        assert!(
            matches!(outcome, Err(OpenError::Login { .. })),
            "{:?}",
            outcome.err()
        );
    });
}

#[test]
fn a_target_that_does_not_know_its_own_secret_is_not_believed() {
    with_each(Needs::Nothing, async |san| {
        let account = format!("{USER}%{SECRET}@");
        for other in [("san", "not its secret"), ("saw", TARGET_SECRET)] {
            let query = format!(
                "{}&target-user={}&target-secret={}",
                hash(san),
                other.0,
                other.1
            );
            match try_open(&san.url_as(&account, Disk::Locked, &query))
                .await
                .err()
            {
                Some(OpenError::Login {
                    why: LoginFailure::Chap(_),
                    ..
                }) => {}
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn both_prove_who_they_are() {
    with_each(Needs::Nothing, async |san| {
        let account = format!("{USER}%{SECRET}@");
        let mutual = format!(
            "{}&target-user={TARGET_USER}&target-secret={TARGET_SECRET}",
            hash(san)
        );
        for query in [hash(san), &mutual] {
            let lun = open(&san.url_as(&account, Disk::Locked, query)).await;
            round_trip(&lun, 0, 64, 1).await;
            lun.close().await;
        }
    });
}

#[test]
fn each_hash_is_good_for_a_login() {
    with_each(Needs::StrongHash, async |san| {
        let account = format!("{USER}%{SECRET}@");
        for hash in ["sha3-256", "sha256", "sha1", "md5"] {
            let query =
                format!("?chap={hash}&target-user={TARGET_USER}&target-secret={TARGET_SECRET}");
            open(&san.url_as(&account, Disk::Locked, &query))
                .await
                .close()
                .await;
        }
    });
}

#[test]
fn a_target_that_is_not_there_is_not_found() {
    with_each(Needs::Nothing, async |san| {
        let url = san.url(Disk::Plain, "").replace(":disks/", ":nobody/");
        refused_with(try_open(&url).await, LoginStatus::NotFound);
    });
}

#[test]
fn discovery_names_every_target_and_where_it_is() {
    with_each(Needs::Nothing, async |san| {
        let (portal, settings) =
            Portal::parse(&format!("iscsi://127.0.0.1:{}", san.port())).expect("a portal");
        let found = discover(&portal, &settings, random).await.expect("targets");
        for disk in [Disk::Plain, Disk::FourKi, Disk::Locked] {
            let (name, _) = san.place(disk);
            let target = found
                .iter()
                .find(|target| target.name == name)
                .expect("every target");
            let here = format!("127.0.0.1:{}", san.port());
            assert!(
                target
                    .addresses
                    .iter()
                    .any(|address| address.starts_with(&here)),
                "{target:?}"
            );
        }
    });
}
