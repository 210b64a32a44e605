//! Exchanges: commands, and everything else that has an Initiator Task Tag and awaits a response.
//!
//! For commands, this includes the data in both directions with the checks of the target's PDUs (RFC 7143
//! sections 11.7 and 11.8), and the time per phase. A command is in exactly one [`Phase`] at a time, and the
//! times of all phases add up to the total. Times are those passed by the driver: if it reads the clock once
//! per iteration, events of one iteration have the same time.

use std::time::{Duration, Instant};

use super::{ConnectionId, Fatal, LogoutScope, Phase, Times};
use crate::negotiate::Parameters;
use crate::pdu::{DataIn, Itt, Lun, R2t, Sn, TaskAttribute, TaskManagementFunction};
use crate::text::Assembly;

/// An outstanding request.
#[derive(Debug)]
pub(super) enum Exchange {
    Task(Task),
    Tmf(Tmf),
    Text(Text),
    /// `is_keepalive`: sent by the keepalive, without a waiting caller.
    Ping {
        connection: ConnectionId,
        is_keepalive: bool,
        /// Time of transmission.
        sent: Option<Instant>,
    },
    Logout {
        connection: ConnectionId,
        leaving: LogoutScope,
    },
}

/// A command.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) connection: ConnectionId,
    pub(super) lun: Lun,
    pub(super) attribute: TaskAttribute,
    pub(super) cdb: [u8; 16],
    /// Additional header segments: a long CDB, a bidirectional command's read length. Usually empty.
    pub(super) ahs: Box<[u8]>,
    /// `None` until it is sent.
    pub(super) cmd_sn: Option<Sn>,
    pub(super) outbound: Outbound,
    pub(super) inbound: Inbound,
    pub(super) clock: PhaseClock,
}

/// States of a command for [`crate::observed`]: no such command, and then each [`Phase`].
pub const TASK_STATES: [&str; 7] = [
    "not there",
    "queued",
    "sends data",
    "awaits an R2T",
    "awaits an answer",
    "takes data",
    "awaits its status",
];

/// Events of a command.
pub const TASK_EVENTS: [&str; 8] = [
    "Data-In",
    "R2T",
    "SCSI Response",
    "Reject",
    "ABORT TASK is asked for",
    "its connection is lost",
    "it was aborted",
    "the target cannot carry it out",
];

/// A task management function.
#[derive(Debug)]
pub(super) struct Tmf {
    pub(super) connection: ConnectionId,
    pub(super) function: TaskManagementFunction,
    pub(super) lun: Lun,
    pub(super) referenced: Option<Itt>,
    /// CmdSN of the function, which affects commands before it. `None` until it is sent.
    pub(super) cmd_sn: Option<Sn>,
    /// ABORT TASK: the CmdSN of the task.
    pub(super) ref_cmd_sn: Sn,
    /// It only plugs a gap in the CmdSNs; no caller waits for its response.
    pub(super) plugs_gap: bool,
}

/// A text exchange.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) connection: ConnectionId,
    pub(super) answer: Assembly,
}

impl Exchange {
    pub(super) fn connection(&self) -> ConnectionId {
        match self {
            Exchange::Task(task) => task.connection,
            Exchange::Tmf(tmf) => tmf.connection,
            Exchange::Text(text) => text.connection,
            Exchange::Ping { connection, .. } | Exchange::Logout { connection, .. } => *connection,
        }
    }
}

/// Data to the target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outbound {
    /// Total length.
    pub(super) length: u32,
    /// Length of the immediate data.
    pub(super) immediate: u32,
    /// End of the unsolicited data.
    pub(super) unsolicited_end: u32,
    /// The next R2TSN.
    next_r2t: Sn,
    /// Outstanding R2Ts.
    outstanding: u32,
    /// Bytes that may be sent: unsolicited, or requested. A target may request the same bytes twice.
    allowed: u64,
    /// Bytes transmitted.
    handed_out: u64,
}

/// Data from the target.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inbound {
    /// Expected length.
    pub(super) length: u32,
    /// All bytes before this offset have been announced.
    announced: u32,
    next_data_sn: Sn,
}

// Data of a command in both directions, and the checks of the target's PDUs (RFC 7143 sections 11.7 and
// 11.8).

/// A sequence of Data-Out PDUs: the unsolicited ones, or those for an R2T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) offset: u32,
    pub(super) end: u32,
    pub(super) data_sn: Sn,
}

impl Outbound {
    /// Plans as much unsolicited data as was negotiated. Section 4.2.5.2 requires this ("it MUST send the
    /// maximum"), and some targets rely on it.
    pub(super) fn new(length: u32, segment_max: u32, rules: &Parameters) -> Outbound {
        let first_burst = length.min(rules.first_burst_length);
        let immediate = if rules.immediate_data {
            first_burst.min(segment_max)
        } else {
            0
        };
        let unsolicited_end = if rules.initial_r2t {
            immediate
        } else {
            first_burst
        };
        debug_assert!(
            immediate <= unsolicited_end && unsolicited_end <= length,
            "more unsolicited data than available"
        );
        let allowed = u64::from(unsolicited_end);
        Outbound {
            length,
            immediate,
            unsolicited_end,
            allowed,
            ..Outbound::default()
        }
    }

    /// Whether unsolicited Data-Out PDUs follow the command.
    pub(super) fn has_unsolicited(&self) -> bool {
        self.unsolicited_end > self.immediate
    }

    pub(super) fn unsolicited(&self) -> Run {
        Run {
            offset: self.immediate,
            end: self.unsolicited_end,
            data_sn: Sn(0),
        }
    }

    /// The sequence requested by an R2T, if the R2T is valid.
    pub(super) fn handle_r2t(&mut self, pdu: &R2t, rules: &Parameters) -> Result<Run, Fatal> {
        let length = pdu.desired_data_transfer_length.get();
        let end = pdu
            .buffer_offset
            .checked_add(length)
            .filter(|&end| end <= self.length)
            .ok_or(Fatal::BadR2t)?;
        if length > rules.max_burst_length || pdu.r2t_sn != self.next_r2t {
            return Err(Fatal::BadR2t);
        }
        if self.outstanding >= u32::from(rules.max_outstanding_r2t.max(1)) {
            return Err(Fatal::TooManyR2ts);
        }
        self.outstanding += 1;
        self.allowed += u64::from(length);
        debug_assert!(
            self.outstanding <= u32::from(rules.max_outstanding_r2t.max(1)),
            "beyond MaxOutstandingR2T"
        );
        self.next_r2t = self.next_r2t.next();
        Ok(Run {
            offset: pdu.buffer_offset,
            end,
            data_sn: Sn(0),
        })
    }

    /// Notes that the driver has taken this many more bytes.
    pub(super) fn hand_out(&mut self, length: u32) {
        self.handed_out += u64::from(length);
        debug_assert!(self.handed_out <= self.allowed, "more data than requested");
    }

    /// Bytes that the driver has taken.
    pub(super) fn handed_out(&self) -> u64 {
        self.handed_out
    }

    /// The phase of the command with respect to its write data.
    pub(super) fn phase(&self) -> Phase {
        if self.handed_out < self.allowed {
            Phase::Sending
        } else if self.handed_out < u64::from(self.length) {
            Phase::R2t
        } else {
            Phase::Answer
        }
    }

    /// Notes that the driver has taken the last PDU for an R2T.
    pub(super) fn fulfilled(&mut self) {
        debug_assert!(self.outstanding > 0, "no R2T is outstanding");
        self.outstanding -= 1;
    }
}

impl Inbound {
    pub(super) fn new(length: u32) -> Inbound {
        Inbound {
            length,
            ..Inbound::default()
        }
    }

    /// Checks that a Data-In is the next valid one, and returns its offset. DataPDUInOrder and
    /// DataSequenceInOrder are Yes.
    #[inline]
    pub(super) fn take(&mut self, pdu: &DataIn) -> Result<u32, Fatal> {
        if pdu.buffer_offset != self.announced || pdu.data_sn != self.next_data_sn {
            return Err(Fatal::DataInOutOfOrder);
        }
        let end = self
            .announced
            .checked_add(pdu.data_segment_length)
            .filter(|&end| end <= self.length);
        self.announced = end.ok_or(Fatal::DataInBeyondEnd)?;
        debug_assert!(self.announced <= self.length, "beyond the read buffer");
        self.next_data_sn = self.next_data_sn.next();
        Ok(pdu.buffer_offset)
    }

    /// Whether all expected data has arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.announced == self.length
    }

    /// Bytes received.
    pub(super) fn bytes(&self) -> u32 {
        self.announced
    }
}

impl Run {
    /// Takes the next PDU off the front: its offset, length and DataSN, and whether it is the last.
    pub(super) fn take(&mut self, segment_max: u32) -> (u32, u32, Sn, bool) {
        debug_assert!(
            self.offset < self.end && segment_max > 0,
            "a sequence without data"
        );
        let (offset, data_sn) = (self.offset, self.data_sn);
        let length = (self.end - offset).min(segment_max);
        self.offset += length;
        self.data_sn = data_sn.next();
        (offset, length, data_sn, self.offset == self.end)
    }
}

/// The phase clock of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseClock {
    phase: Phase,
    since: Instant,
    times: Times,
}

impl PhaseClock {
    /// Starts the clock at submission.
    pub(super) fn new(now: Instant) -> PhaseClock {
        PhaseClock {
            phase: Phase::Queued,
            since: now,
            times: Times::default(),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    #[inline]
    pub(super) fn enter(&mut self, now: Instant, phase: Phase) {
        if phase != self.phase {
            self.pass(now);
            self.phase = phase;
        }
    }

    /// Notes that data was transmitted or requested.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, outbound: &Outbound) {
        self.enter(now, outbound.phase());
    }

    /// Notes that data has started to arrive. A bidirectional command that still has data to send stays in
    /// its current phase.
    #[inline]
    pub(super) fn data(&mut self, now: Instant, outbound: &Outbound) {
        if outbound.phase() == Phase::Answer {
            self.enter(now, Phase::Data);
        }
    }

    /// Notes that the last data has arrived.
    #[inline]
    pub(super) fn data_complete(&mut self, now: Instant) {
        if self.phase == Phase::Data {
            self.enter(now, Phase::Status);
        }
    }

    /// The times until now.
    #[inline]
    pub(super) fn stop(&mut self, now: Instant) -> Times {
        self.pass(now);
        self.times
    }

    #[inline]
    fn pass(&mut self, now: Instant) {
        // Avoids a subtraction, which takes 40 instructions: most events of a command occur in the same
        // iteration of the driver as another event, and so have the same time.
        if now != self.since {
            self.spend(now.saturating_duration_since(self.since));
            self.since = now;
        }
    }

    fn spend(&mut self, time: Duration) {
        let sum = &mut self.times.spent[self.phase as usize];
        *sum = sum.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}
