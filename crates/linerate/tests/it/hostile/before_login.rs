//! Attacks before the login is complete.

use std::time::{Duration, Instant};

use iscsi::pdu::{LoginResponse, LoginStatus};

use super::{INTRODUCTION, SHORT_LOGIN, Siege, ends_earlier, login, ping, with_and_without};
use crate::program::until;
use crate::wire::{Heard, PATIENCE, Wire};

#[test]
fn who_does_not_log_in_is_shown_the_door() {
    let siege = or_skip!(Siege::begin(""));
    for garbage in [
        vec![0xa5; 4096],
        vec![0xff; 48],
        vec![0; 48],
        (0..=255).collect(),
        b"GET / HTTP/1.1\r\n\r\n".repeat(8),
    ] {
        let mut wire = siege.wire();
        wire.send_bytes(&garbage)
            .expect("a connection that is open");
        assert_eq!(
            wire.hear_the_end(),
            0,
            "section 4.2.3: terminated, without a word: {:02x?}",
            &garbage[..8]
        );
    }
    siege.holds();
}

#[test]
fn a_login_that_does_not_end_is_ended() {
    let sieges = or_skip!(with_and_without(SHORT_LOGIN));
    let half = |siege: &Siege| {
        let mut half = siege.wire();
        half.send_bytes(&login(1, false, 0).0[..20])
            .expect("a connection that is open");
        half
    };
    let begin = Instant::now();
    ends_earlier(&sieges, half, |_, wire| wire.is_closed());
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(900), "{took:?}");
    ends_earlier(&sieges, Siege::wire, |_, wire| wire.is_closed());
    sieges.into_iter().for_each(Siege::holds);
}

#[test]
fn a_crowd_that_says_nothing_leaves_room_for_others() {
    const MOST: usize = 50;
    let limits = format!("login-time = \"1h\"\nconnections-per-address = {MOST}");
    let siege = or_skip!(Siege::begin(&limits));
    let mut open: Vec<Wire> = Vec::new();
    for _ in 0..20 {
        open.extend((0..50).map(|_| siege.wire()));
        open.retain_mut(|wire| !wire.is_closed());
    }
    until("no more are open than may be", || {
        open.retain_mut(|wire| !wire.is_closed());
        open.len() <= MOST
    });
    siege.holds();
    drop(open);
}

#[test]
fn a_login_text_without_end_is_refused() {
    let siege = or_skip!(Siege::begin(""));
    let mut wire = siege.wire();
    let text = vec![b'x'; 8192];
    for _ in 0..100 {
        wire.send(&login(1, true, text.len()), &text)
            .expect("a connection that is open");
        let Heard::Pdu(bhs, _) = wire.hear(PATIENCE) else {
            panic!("closed without a status")
        };
        match LoginResponse::parse(&bhs).expect("a login response").status {
            LoginStatus::Success => {}
            status => {
                assert_eq!(status, LoginStatus::InitiatorError);
                wire.hear_the_end();
                return siege.holds();
            }
        }
    }
    panic!("800 KiB of login text were taken");
}

#[test]
fn a_login_that_announces_sixteen_megabytes_is_refused() {
    let siege = or_skip!(Siege::begin(""));
    // Send it as the first request and, in another login, as the second one. Regression: the second request
    // was accepted as one without text.
    for begun in [false, true] {
        let mut wire = siege.wire();
        if begun {
            wire.send(&login(1, false, INTRODUCTION.len()), INTRODUCTION)
                .expect("a connection that is open");
            assert!(matches!(wire.hear(PATIENCE), Heard::Pdu(..)));
        }
        wire.send_bytes(&login(1, false, 0xff_ffff).0)
            .expect("a connection that is open");
        let Heard::Pdu(bhs, _) = wire.hear(PATIENCE) else {
            panic!("closed without a status")
        };
        assert_eq!(
            LoginResponse::parse(&bhs).map(|pdu| pdu.status),
            Ok(LoginStatus::InitiatorError)
        );
        wire.hear_the_end();
    }
    siege.holds();
}

#[test]
fn other_pdus_have_no_place_in_a_login() {
    let siege = or_skip!(Siege::begin(""));
    let mut wire = siege.wire();
    wire.send(&login(1, false, INTRODUCTION.len()), INTRODUCTION)
        .expect("a connection that is open");
    assert!(matches!(wire.hear(PATIENCE), Heard::Pdu(..)));
    wire.send(&ping(None).emit(), &[])
        .expect("a connection that is open");
    let Heard::Pdu(bhs, _) = wire.hear(PATIENCE) else {
        panic!("closed without a status")
    };
    assert_eq!(
        LoginResponse::parse(&bhs).map(|pdu| pdu.status),
        Ok(LoginStatus::InvalidDuringLogin)
    );
    wire.hear_the_end();
    siege.holds();
}
