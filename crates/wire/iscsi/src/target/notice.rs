//! Asynchronous messages (RFC 7143 section 11.9).

use std::time::{Duration, Instant};

use super::Session;
use super::connection::{CloseAfter, PreparedPdu};
use super::event::{CloseReason, ConnectionId};
use crate::pdu::{AsyncEvent, AsyncMessage, Lun, TargetNumbers};

/// An asynchronous message to an initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A SCSI event, with its sense data.
    Scsi {
        /// The logical unit concerned.
        lun: Lun,
        /// Sense data, at most 65,533 bytes.
        sense: &'a [u8],
    },
    /// Log this connection out within that time (whole seconds, at most 65,535); it is closed otherwise.
    LogoutRequested {
        /// The time.
        within: Duration,
    },
    /// This connection is dropped, and closed after the message.
    ConnectionDropped,
    /// All connections of the session are dropped; this one is closed after the message.
    SessionDropped,
    /// Renegotiate parameters within that time.
    NegotiationRequested {
        /// The time.
        within: Duration,
    },
    /// The session's tasks on this logical unit are being terminated.
    TasksTerminated {
        /// The logical unit.
        lun: Lun,
    },
}

impl Session {
    /// Requests a logout on every connection. Commands are served until then, or until the deadline, when
    /// [`super::Event::Close`] ends it: QEMU and others have commands outstanding when they are asked.
    pub fn request_logout(&mut self, now: Instant, within: Duration) {
        let all: Vec<ConnectionId> = self.connections().map(|(id, _)| id).collect();
        for id in all {
            self.notify(now, id, Notice::LogoutRequested { within });
        }
    }

    /// Sends an asynchronous message on a connection.
    pub fn notify(&mut self, now: Instant, id: ConnectionId, notice: Notice<'_>) {
        let times =
            [self.config.parameters.default_time2wait_s, self.config.parameters.default_time2retain_s];
        let Some(connection) = self.connection_mut(id).filter(|connection| !connection.logged_out) else {
            return;
        };
        if let Notice::LogoutRequested { within } = notice {
            connection.logout_by = now.checked_add(within);
        }
        let data = notice.sense_segment();
        let message = notice.message(connection.cid.0, times, data.len() as u32);
        let then = notice.closes().then_some(CloseAfter::One(id, CloseReason::Dropped));
        connection.queue(PreparedPdu { bhs: message.emit(), data, is_status: true, then });
    }
}

impl Notice<'_> {
    fn message(&self, cid: u16, [wait, retain]: [u16; 2], data_segment_length: u32) -> AsyncMessage {
        let (event, lun, parameters) = match *self {
            Notice::Scsi { lun, .. } => (AsyncEvent::Scsi, lun, [0; 3]),
            Notice::LogoutRequested { within } => {
                (AsyncEvent::LogoutRequested, Lun(0), [0, 0, seconds(within)])
            }
            Notice::ConnectionDropped => (AsyncEvent::ConnectionDropped, Lun(0), [cid, wait, retain]),
            Notice::SessionDropped => (AsyncEvent::SessionDropped, Lun(0), [0, wait, retain]),
            Notice::NegotiationRequested { within } => {
                (AsyncEvent::NegotiationRequested, Lun(0), [0, 0, seconds(within)])
            }
            Notice::TasksTerminated { lun } => (AsyncEvent::TasksTerminated, lun, [0; 3]),
        };
        AsyncMessage {
            lun,
            numbers: TargetNumbers::default(),
            event,
            vendor_code: 0,
            parameters,
            data_segment_length,
        }
    }

    /// Sense data after their length in two bytes (section 11.9.4).
    fn sense_segment(&self) -> Vec<u8> {
        let Notice::Scsi { sense, .. } = self else { return Vec::new() };
        let length = u16::try_from(sense.len()).unwrap_or(u16::MAX - 2);
        [&length.to_be_bytes(), &sense[..usize::from(length)]].concat()
    }

    fn closes(&self) -> bool {
        matches!(self, Notice::ConnectionDropped | Notice::SessionDropped)
    }
}

fn seconds(time: Duration) -> u16 {
    u16::try_from(time.as_secs()).unwrap_or(u16::MAX)
}
