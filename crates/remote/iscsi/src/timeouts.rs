//! How long everything may take, and what is done when it takes longer.
//!
//! A command that does not end is climbed after, a [`EscalationStep`] at a time: its waiter is told, the target is asked to
//! abort it, then to reset its logical unit, then itself; at last the session is left and begun again, which ends
//! all there is. Each rung has the time that the settings give it. SAM-5 leaves the order to initiators; it is what
//! open-iscsi's error handler does.

use std::time::Duration;

use crate::settings::Settings;

/// The times of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) command: Duration,
    /// How often a block device's command is sent that does not end in its time.
    pub(crate) tries: u32,
    pub(crate) abort: Duration,
    pub(crate) reset: Duration,
    /// How long requests wait for a lost session.
    pub(crate) reconnect: Duration,
}

/// What is done about a command that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EscalationStep {
    /// Nothing: it has its time.
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

    /// How long a rung has time to work.
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
    /// The one above it. There is none above the last: a session that does not end when it is left is left again.
    pub(crate) fn next(self) -> EscalationStep {
        match self {
            EscalationStep::Wait => EscalationStep::AbortTask,
            EscalationStep::AbortTask => EscalationStep::LogicalUnitReset,
            EscalationStep::LogicalUnitReset => EscalationStep::TargetReset,
            EscalationStep::TargetReset | EscalationStep::LeaveSession => EscalationStep::LeaveSession,
        }
    }
}
