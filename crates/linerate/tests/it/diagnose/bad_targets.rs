//! Tests with targets that reject, hang, fail or return wrong values. The affected layer must be unknown and
//! the other layers known, and the diagnosis must end in time.

use std::time::{Duration, Instant};

use iscsi::pdu::Opcode;

use super::meddler::{Fate, Meddle, Meddler, Pdu};
use super::{diagnose, evidence, median_us, why_not};
use crate::server::Server;

/// A target rejects an unsupported command with INVALID COMMAND OPERATION CODE.
const UNKNOWN_COMMAND: u8 = 0xff;
const TEST_UNIT_READY: u8 = 0x00;
const READ_16: u8 = 0x88;
const READ_CAPACITY_16: u8 = 0x9e;

/// A server, with a meddler in front of it.
fn scene<M: Meddle>(each: impl Fn() -> M + Send + 'static) -> (Server, Meddler, String) {
    let server = Server::serving(&["disk=ram:64MiB"]);
    let meddler = Meddler::before(server.port(), each);
    let url = meddler.url(&server.url("disk"), server.port());
    (server, meddler, url)
}

/// Rejects a command, once the session has queried the LUN.
struct Forbids(u8, bool);

impl Meddle for Forbids {
    fn to_target(&mut self, pdu: &mut Pdu) -> Fate {
        self.1 |= pdu.command() == Some(READ_CAPACITY_16);
        if self.1 && pdu.command() == Some(self.0) {
            pdu.bhs.set_u8(32, UNKNOWN_COMMAND);
        }
        Fate::Passes
    }
}

#[test]
fn a_command_that_is_refused_is_one_layer_less() {
    let (_server, _meddler, url) = scene(|| Forbids(TEST_UNIT_READY, false));
    let found = evidence(&url, &[]);
    assert!(!why_not(&found["ladder"]["test_unit_ready"]).is_empty());
    assert!(
        median_us(&found["ladder"]["cached_read"]) > 0.0
            && median_us(&found["ladder"]["nop"]) > 0.0
    );
}

#[test]
fn a_target_that_refuses_reads_leaves_what_is_above_them() {
    let (_server, _meddler, url) = scene(|| Forbids(READ_16, false));
    let found = evidence(&url, &[]);
    assert!(!why_not(&found["ladder"]["cached_read"]).is_empty());
    assert!(!why_not(&found["ladder"]["medium_read"]).is_empty());
    assert!(median_us(&found["ladder"]["test_unit_ready"]) > 0.0);
    let load = &found["loads"][0];
    assert!(
        load["errors"].as_u64() > Some(0) && load["first_failure"].is_string(),
        "{load}"
    );
}

/// Supports only NOPs without data, and rejects others as unknown.
struct NoPingData;

impl Meddle for NoPingData {
    fn to_target(&mut self, pdu: &mut Pdu) -> Fate {
        if pdu.is(Opcode::NopOut) && pdu.data_bytes() > 0 {
            pdu.bhs.set_u8(0, 0x5f);
        }
        Fate::Passes
    }
}

#[test]
fn a_ping_that_is_rejected_is_one_layer_less() {
    let (_server, meddler, url) = scene(|| NoPingData);
    let found = evidence(&url, &[]);
    assert!(
        why_not(&found["ladder"]["nop_with_data"][0][1]).contains("reject"),
        "{found}"
    );
    assert!(median_us(&found["ladder"]["nop"]) > 0.0);
    assert_eq!(found["long_packets"], serde_json::Value::Null);
    assert!(meddler.connections() > 0);
}

/// Responds to everything except a NOP with data.
struct ForgetsPingData;

impl Meddle for ForgetsPingData {
    fn to_target(&mut self, pdu: &mut Pdu) -> Fate {
        if pdu.is(Opcode::NopOut) && pdu.data_bytes() > 0 {
            Fate::Vanishes
        } else {
            Fate::Passes
        }
    }
}

#[test]
fn a_ping_that_is_never_answered_is_no_path_that_loses_long_packets() {
    let (_server, _meddler, url) = scene(|| ForgetsPingData);
    let found = evidence(&url, &[]);
    assert!(
        why_not(&found["ladder"]["nop_with_data"][2][1]).contains("no response"),
        "{found}"
    );
    assert_eq!(found["long_packets"], serde_json::Value::Null);
    assert!(median_us(&found["ladder"]["cached_read"]) > 0.0);
}

/// Returns other data than it received.
struct LyingEcho;

impl Meddle for LyingEcho {
    fn to_initiator(&mut self, pdu: &mut Pdu) -> Fate {
        if pdu.is(Opcode::NopIn) && !pdu.rest.is_empty() {
            pdu.rest[0] ^= 1;
        }
        Fate::Passes
    }
}

#[test]
fn a_ping_with_other_data_is_not_believed() {
    let (_server, _meddler, url) = scene(|| LyingEcho);
    let found = evidence(&url, &[]);
    assert!(
        why_not(&found["ladder"]["nop_with_data"][0][1]).contains("the returned data differs"),
        "{found}"
    );
    assert!(median_us(&found["ladder"]["medium_read"]) > 0.0);
}

/// Closes the connection at the READ with this number.
struct Dies(u32);

impl Meddle for Dies {
    fn to_target(&mut self, pdu: &mut Pdu) -> Fate {
        self.0 -= u32::from(pdu.command() == Some(READ_16));
        if self.0 == 0 {
            Fate::Ends
        } else {
            Fate::Passes
        }
    }
}

#[test]
fn a_session_that_is_dropped_is_made_again() {
    let (_server, meddler, url) = scene(|| Dies(40));
    let found = evidence(&url, &[]);
    assert!(meddler.connections() > 2, "it was");
    assert!(median_us(&found["ladder"]["nop"]) > 0.0);
    assert!(
        found["loads"]
            .as_array()
            .is_some_and(|loads| !loads.is_empty())
    );
}

#[test]
fn a_target_that_ends_every_session_soon_is_given_up_in_time() {
    let begun = Instant::now();
    let (_server, meddler, url) = scene(|| Dies(1));
    let found = evidence(&url, &[]);
    assert!(
        begun.elapsed() < Duration::from_secs(30),
        "{:?}",
        begun.elapsed()
    );
    assert!(meddler.connections() < 200);
    assert!(!why_not(&found["ladder"]["cached_read"]).is_empty());
}

/// Becomes unresponsive at the first READ longer than a block.
struct Mute;

impl Meddle for Mute {
    fn to_target(&mut self, pdu: &mut Pdu) -> Fate {
        let blocks = u32::from_be_bytes(pdu.bhs.0[42..46].try_into().expect("four bytes"));
        if pdu.command() == Some(READ_16) && blocks > 1 {
            Fate::Silences
        } else {
            Fate::Passes
        }
    }
}

#[test]
fn a_way_on_which_long_answers_never_come_is_told_in_time() {
    let begun = Instant::now();
    let (_server, _meddler, url) = scene(|| Mute);
    let found = evidence(&url, &[]);
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
    let lost = &found["long_packets"];
    assert!(
        lost["lost"]
            .as_str()
            .is_some_and(|lost| lost.contains("a READ of 65536 bytes")),
        "{lost}"
    );
    assert_eq!(
        lost["works_bytes"],
        serde_json::Value::Null,
        "shorter segments did not help"
    );
    assert!(
        median_us(&found["ladder"]["cached_read"]) > 0.0,
        "what is short works"
    );
}

/// Reports a wrong capacity. The value is the address of the last block.
struct Boasts(u64, bool);

impl Meddle for Boasts {
    fn to_target(&mut self, pdu: &mut Pdu) -> Fate {
        if pdu.command().is_some() {
            self.1 = pdu.command() == Some(READ_CAPACITY_16);
        }
        Fate::Passes
    }

    fn to_initiator(&mut self, pdu: &mut Pdu) -> Fate {
        if pdu.is(Opcode::DataIn) && self.1 {
            pdu.rest[..8].copy_from_slice(&self.0.to_be_bytes());
        }
        Fate::Passes
    }
}

#[test]
fn a_capacity_that_is_not_there_is_found_out_by_reading() {
    let (_server, _meddler, url) = scene(|| Boasts((1 << 40) - 1, false));
    let found = evidence(&url, &[]);
    assert!(!why_not(&found["ladder"]["medium_read"]).is_empty());
    assert!(median_us(&found["ladder"]["cached_read"]) > 0.0);
    let at_random = &found["loads"][1];
    assert!(at_random["errors"].as_u64() > Some(0), "{at_random}");
}

#[test]
fn a_capacity_of_nothing_ends_in_a_sentence() {
    let (_server, _meddler, url) = scene(|| Boasts(u64::MAX, false));
    let ended = diagnose(&url, &[]);
    assert!(!ended.said.contains("panic"), "{}", ended.said);
    let said = ended.expect_failure();
    assert!(
        said.starts_with("linerate: ") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn a_lun_of_one_block_has_few_layers() {
    let (_server, _meddler, url) = scene(|| Boasts(0, false));
    let found = evidence(&url, &[]);
    assert!(median_us(&found["ladder"]["cached_read"]) > 0.0);
    assert!(why_not(&found["ladder"]["cached_reads"][0][1]).contains("smaller"));
    assert_eq!(found["loads"].as_array().map(Vec::len), Some(0));
}

#[test]
fn nobody_there_is_told_by_its_exit_code() {
    let mut ended = diagnose("iscsi://127.0.0.1:1/iqn.2026-01.com.example:disk/0", &[]);
    assert_eq!(ended.status.code(), Some(3), "{}", ended.said);
    let server = Server::serving(&["disk=ram:1MiB"]);
    ended = diagnose(&server.url("other"), &[]);
    assert_eq!(ended.status.code(), Some(6), "{}", ended.said);
}
