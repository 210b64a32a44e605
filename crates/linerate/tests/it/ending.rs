//! Shutdown of a server: initiators are asked to log out, outstanding commands complete first, and nothing
//! keeps the process alive.

use iscsi::login::{InitiatorEvent, LoginFailure};
use iscsi::pdu::{AsyncEvent, LoginStatus};

use crate::peer::{BLOCK, Moves, Peer, initiator, write_10};
use crate::program::says;
use crate::server::Server;
use crate::wire::{NoLogin, PATIENCE};

const SLOW_OR_WORSE: &str = r#"
[volume.disk]
spec = "fault:[ram:16MiB]"
[[target]]
name = "iqn.2026-01.io.linerate:disk"
lun = [{ lun = 0, volume = "disk" }]
"#;

fn fault(server: &Server, mode: &str) {
    server
        .ask(&["server", "fault", "disk", mode])
        .expect_success();
}

#[test]
fn initiators_are_asked_to_log_out_and_commands_end_first() {
    let mut server = or_skip!(Server::configured(SLOW_OR_WORSE));
    let mut peer = Peer::attach(&server, "disk", 1);
    fault(&server, "slow=1s");
    let write = peer.begin(0, &write_10(0, BLOCK, false), Moves::Out(vec![1; BLOCK]));
    server.signal("TERM");
    let message = peer.message();
    assert_eq!(message.event, AsyncEvent::LogoutRequested);
    assert!(
        message.parameters[2] > 0,
        "Parameter3: seconds to the logout (section 11.9)"
    );
    assert!(
        peer.answer(write).is_good(),
        "what was in flight ends as ever"
    );
    peer.log_out();
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn who_does_not_log_out_keeps_nobody() {
    let mut server = or_skip!(Server::configured(SLOW_OR_WORSE));
    let mut peer = Peer::attach(&server, "disk", 1);
    assert_eq!(server.end().code(), Some(0));
    assert!(peer.hear_the_end(PATIENCE));
}

#[test]
fn while_it_ends_a_server_asks_new_initiators_to_try_again() {
    let mut server = or_skip!(Server::configured(SLOW_OR_WORSE));
    let mut peer = Peer::attach(&server, "disk", 1);
    server.signal("TERM");
    peer.message();
    let refused = Peer::log_in(&server, initiator(Some(&server.target_name("disk")), 2));
    let Err(NoLogin::Told(event)) = refused else {
        panic!("{refused:?}")
    };
    let expected = InitiatorEvent::Failed(LoginFailure::Refused(LoginStatus::ServiceUnavailable));
    assert_eq!(*event, expected, "0301h, which is worth another try");
    peer.log_out();
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = or_skip!(Server::configured(SLOW_OR_WORSE));
    let mut peer = Peer::attach(&server, "disk", 1);
    fault(&server, "hang");
    peer.begin(0, &write_10(0, BLOCK, false), Moves::Out(vec![1; BLOCK]));
    server.signal("TERM");
    peer.message();
    server.signal("TERM");
    assert_eq!(server.ended().code(), Some(1));
    let log = server.log();
    says(
        &log,
        &["second signal: shutting down immediately; outstanding commands are lost"],
    );
    assert!(
        !log.contains("could not flush"),
        "it has waited for the volume: {log}"
    );
}
