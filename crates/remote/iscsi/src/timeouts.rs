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
pub struct Timeouts {
    /// Of a command.
    pub command: Duration,
    /// How often a block device sends a command that does not end in time.
    pub tries: u32,
    /// Of its abortion.
    pub abort: Duration,
    /// Of a reset.
    pub reset: Duration,
    /// How long requests wait for a lost session.
    pub reconnect: Duration,
}

/// Steps of the escalation for a command that does not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EscalationStep {
    /// None: its timeout has not expired.
    Wait,
    /// ABORT TASK.
    AbortTask,
    /// LOGICAL UNIT RESET.
    LogicalUnitReset,
    /// TARGET WARM RESET.
    TargetReset,
    /// The session is begun again.
    LeaveSession,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts::new(&Settings::default())
    }
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

    /// The time that a request may take in all once its first try has failed: one outage, and its tries. Every wait of
    /// a request is under it, so a session that is lost again and again does not keep a request for ever.
    pub fn request(&self) -> Duration {
        let escalation = if self.tries > 1 { self.abort + self.reset * 3 } else { Duration::ZERO };
        self.reconnect.saturating_add((self.command + escalation).saturating_mul(self.tries.max(1)))
    }

    /// The timeout of a step.
    pub fn time_limit(&self, step: EscalationStep) -> Duration {
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
    pub fn next(self) -> EscalationStep {
        match self {
            EscalationStep::Wait => EscalationStep::AbortTask,
            EscalationStep::AbortTask => EscalationStep::LogicalUnitReset,
            EscalationStep::LogicalUnitReset => EscalationStep::TargetReset,
            EscalationStep::TargetReset | EscalationStep::LeaveSession => EscalationStep::LeaveSession,
        }
    }
}
