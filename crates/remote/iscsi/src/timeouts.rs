//! Timeouts, and the escalation when they expire.
//!
//! A command that does not end is escalated by one [`EscalationStep`] at a time: its requester gets an error,
//! the target is asked to abort the task, then to reset its logical unit, then itself; at last the session is
//! dropped and reinstated, which ends all tasks. Each step has the timeout of the settings. SAM-5 leaves the
//! order to initiators; this is that of open-iscsi's error handler.

use std::time::Duration;

use crate::settings::Settings;

/// The timeouts of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) command: Duration,
    /// How often a block device sends a command that does not end in time.
    pub(crate) tries: u32,
    pub(crate) abort: Duration,
    pub(crate) reset: Duration,
    /// How long requests wait for a lost session.
    pub(crate) reconnect: Duration,
}

/// Steps of the escalation for a command that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EscalationStep {
    /// None: its timeout has not expired.
    Wait,
    AbortTask,
    LogicalUnitReset,
    TargetReset,
    LeaveSession,
}

impl Timeouts {
    pub(crate) fn new(settings: &Settings) -> Timeouts {
        Timeouts {
            command: settings.command_time,
            tries: settings.command_tries.unwrap_or(1),
            abort: settings.abort_time,
            reset: settings.reset_time,
            reconnect: settings.reconnect_time,
        }
    }

    /// The timeout of a step.
    pub(crate) fn time_limit(&self, step: EscalationStep) -> Duration {
        match step {
            EscalationStep::Wait => self.command,
            EscalationStep::AbortTask => self.abort,
            EscalationStep::LogicalUnitReset | EscalationStep::TargetReset | EscalationStep::LeaveSession => {
                self.reset
            }
        }
    }
}

impl EscalationStep {
    /// The next step. The last is repeated: a session that does not end when dropped is dropped again.
    pub(crate) fn next(self) -> EscalationStep {
        match self {
            EscalationStep::Wait => EscalationStep::AbortTask,
            EscalationStep::AbortTask => EscalationStep::LogicalUnitReset,
            EscalationStep::LogicalUnitReset => EscalationStep::TargetReset,
            EscalationStep::TargetReset | EscalationStep::LeaveSession => EscalationStep::LeaveSession,
        }
    }
}
