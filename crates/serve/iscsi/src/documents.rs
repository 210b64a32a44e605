//! Tests that the fixed limits in the security document match the code.

use std::time::Duration;

use iscsi::login::{LOGIN_DATA_BYTES_MAX, LOGIN_PDUS_MAX, LOGIN_TEXT_BYTES_MAX};
use iscsi::negotiate::{Parameters, SessionType};
use iscsi::pdu::Sn;
use iscsi::target::SessionConfig;

use crate::admission::{DISCOVERY_MEMORY_BYTES_MAX, LOGIN_MEMORY_BYTES_MAX};
use crate::link::SLOW;
use crate::slow_peers::PATIENCE;
use crate::{directory, refusal};

const SECURITY: &str = include_str!("../../../../docs/security.md");

fn kib(bytes: usize) -> String {
    match bytes >> 10 {
        kib if kib >= 1024 => format!("{} MiB", kib >> 10),
        kib => format!("{kib} KiB"),
    }
}

fn s(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

#[test]
fn the_document_about_security_has_the_figures_of_the_code() {
    let session = SessionConfig::new(Parameters::defaults(SessionType::Normal), Sn(0));
    let waits = format!("{}, {}", s(refusal::FIRST_WAIT), s(refusal::WAIT_MAX));
    let lines = format!(
        "{}, {}",
        front_end_core::LINES_MAX,
        front_end_core::ALL_LINES_MAX
    );
    for (what, figure) in [
        ("memory for one of them", kib(LOGIN_MEMORY_BYTES_MAX)),
        ("data of one login PDU", kib(LOGIN_DATA_BYTES_MAX)),
        (
            "text of one login request, all its PDUs together",
            kib(LOGIN_TEXT_BYTES_MAX),
        ),
        ("PDUs of one login", LOGIN_PDUS_MAX.to_string()),
        (
            "memory for one of them, without the response to SendTargets",
            kib(DISCOVERY_MEMORY_BYTES_MAX),
        ),
        (
            "part of that response that is in memory, for any number of targets",
            kib(directory::PART_BYTES_MAX),
        ),
        (
            "commands in its window",
            SessionConfig::DISCOVERY_WINDOW.to_string(),
        ),
        (
            "wrong secrets for a user from one address before logins are delayed",
            refusal::FREE_FAILURES.to_string(),
        ),
        ("first and longest delay", waits),
        (
            "time after which wrong secrets are forgotten",
            s(refusal::FORGOTTEN),
        ),
        (
            "combinations of address, target and user for which they are remembered",
            refusal::ENTRIES_MAX.to_string(),
        ),
        (
            &format!(
                "log lines about one address, and about all, in {}",
                s(front_end_core::WINDOW)
            ),
            lines,
        ),
        (
            "immediate commands and functions, in addition",
            session.immediate_max.to_string(),
        ),
        (
            "of that, data that arrived out of order",
            kib(session.staged_bytes_max),
        ),
        (
            "unsent responses to pings and texts on one connection",
            kib(session.unsent_bytes_max),
        ),
        ("text of one exchange", kib(session.text_bytes_max)),
        (
            "time after which a slow peer's blocks are released to waiting peers",
            s(SLOW),
        ),
        (
            "time after which a slow peer's connection is closed if others need its memory",
            s(PATIENCE),
        ),
    ] {
        let row = format!("\n| {what} | {figure} |");
        assert!(SECURITY.contains(&row), "docs/security.md has no {row}");
    }
}
