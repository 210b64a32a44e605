//! Asynchronous messages (RFC 7143 section 11.9).

use std::time::Duration;

use iscsi::initiator::Event;
use iscsi::pdu::{AsyncEvent, Lun};
use iscsi::target::{self, CloseReason, Notice};

use crate::disk::SENSE;
use crate::pair::{Pair, Setup};

fn told(notice: Notice<'_>) -> (AsyncEvent, Lun, [u16; 3], Vec<u8>, Pair) {
    let mut setup = Setup::new();
    setup.parameters.default_time2wait_s = 4;
    setup.parameters.default_time2retain_s = 0;
    let mut pair = setup.build();
    let id = pair.wires[0].target;
    pair.target.notify(pair.now, id, notice);
    pair.deliver();
    let Some(Event::Message { message, sense, .. }) = pair.initiator_events.pop() else {
        panic!("no message")
    };
    (
        message.event,
        message.lun,
        message.parameters,
        sense.into_vec(),
        pair,
    )
}

#[test]
fn a_scsi_event_brings_its_sense_data() {
    let (event, lun, _, sense, _) = told(Notice::Scsi {
        lun: Lun(7),
        sense: SENSE,
    });
    assert_eq!((event, lun, &sense[..]), (AsyncEvent::Scsi, Lun(7), SENSE));
}

#[test]
fn times_are_told_in_seconds() {
    let (event, _, parameters, ..) = told(Notice::LogoutRequested {
        within: Duration::from_secs(9),
    });
    assert_eq!(
        (event, parameters),
        (AsyncEvent::LogoutRequested, [0, 0, 9])
    );
    let (event, _, parameters, ..) = told(Notice::NegotiationRequested {
        within: Duration::from_secs(1 << 40),
    });
    assert_eq!(
        (event, parameters),
        (AsyncEvent::NegotiationRequested, [0, 0, u16::MAX])
    );
}

#[test]
fn a_dropped_connection_is_closed_behind_the_message() {
    for (notice, event) in [
        (Notice::ConnectionDropped, AsyncEvent::ConnectionDropped),
        (Notice::SessionDropped, AsyncEvent::SessionDropped),
    ] {
        let (told_event, _, parameters, _, pair) = told(notice);
        assert_eq!((told_event, parameters), (event, [0, 4, 0]));
        let close = |event: &target::Event| {
            matches!(
                event,
                target::Event::Close {
                    reason: CloseReason::Dropped,
                    ..
                }
            )
        };
        assert!(pair.target_events.iter().any(close));
    }
}

#[test]
fn ended_tasks_are_told_by_their_lun() {
    let (event, lun, ..) = told(Notice::TasksTerminated { lun: Lun(2) });
    assert_eq!((event, lun), (AsyncEvent::TasksTerminated, Lun(2)));
}
