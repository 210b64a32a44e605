//! Operations over the whole medium that belong to the logical unit, not to the command that started them:
//! SANITIZE (SBC-4 4.11) and FORMAT UNIT (SBC-3 5.3).
//!
//! ```text
//!   Idle    ── SANITIZE, FORMAT UNIT ──► Running
//!   Running ── succeeded ──────────────► Idle
//!   Running ── failed ─────────────────► Failed
//!   Failed  ── another operation ──────► Running
//!   Failed  ── EXIT FAILURE MODE ──────► Idle
//! ```
//!
//! An operation is not stopped by aborting its command, by a reset or by the loss of the nexus. While it
//! runs, all commands except INQUIRY, REPORT LUNS and REQUEST SENSE fail with NOT READY and report its
//! progress. After a failure the medium is inaccessible until another operation succeeds. A restart of the
//! process aborts an operation, and leaves no record of it. RAM volumes are then empty. For other volumes,
//! the initiator must start the operation again, because it has not received a completion.

use scsi::{Condition, SenseKey, asc};

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// SANITIZE.
    Sanitize {
        /// AUSE: whether EXIT FAILURE MODE is allowed after a failure.
        may_exit: bool,
    },
    /// FORMAT UNIT.
    Format,
}

impl OperationKind {
    fn in_progress(self) -> u16 {
        match self {
            OperationKind::Sanitize { .. } => asc::SANITIZE_IN_PROGRESS,
            OperationKind::Format => asc::FORMAT_IN_PROGRESS,
        }
    }

    /// The sense code for the command of this operation, if the operation fails.
    pub(crate) fn failed(self) -> u16 {
        match self {
            OperationKind::Sanitize { .. } => asc::SANITIZE_COMMAND_FAILED,
            OperationKind::Format => asc::FORMAT_COMMAND_FAILED,
        }
    }

    /// The sense code for later commands, if this operation failed.
    fn has_failed(self) -> u16 {
        match self {
            OperationKind::Sanitize { .. } => asc::SANITIZE_COMMAND_FAILED,
            OperationKind::Format => asc::MEDIUM_FORMAT_CORRUPTED,
        }
    }
}

/// The operations of a logical unit: only one runs at a time.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    state: OperationState,
    /// The generation of the unit's state in which the latest operation started.
    began_in: Option<u64>,
}

#[derive(Debug, Default)]
enum OperationState {
    /// No operation has run, or the last one succeeded.
    #[default]
    Idle,
    /// An operation is running.
    Running {
        /// The kind of the operation.
        kind: OperationKind,
        /// The completed part, in 65,536ths.
        progress: u16,
    },
    /// The last operation failed.
    Failed {
        /// The kind of the operation.
        kind: OperationKind,
    },
}

impl Operations {
    /// Returns an error if an operation is running.
    pub(crate) fn in_progress(&self) -> Result<(), Condition> {
        match &self.state {
            OperationState::Running { kind, progress } => {
                Err(Condition::new(SenseKey::NotReady, kind.in_progress()).with_progress(*progress))
            }
            OperationState::Idle | OperationState::Failed { .. } => Ok(()),
        }
    }

    /// Returns an error if an operation is running or the last one failed, for commands that need the medium.
    pub(crate) fn passable(&self) -> Result<(), Condition> {
        match &self.state {
            OperationState::Idle => Ok(()),
            OperationState::Running { .. } => self.in_progress(),
            OperationState::Failed { kind } => {
                Err(Condition::new(SenseKey::MediumError, kind.has_failed()))
            }
        }
    }

    /// Returns an error if the latest operation started after generation `accepted`. A command that was
    /// accepted in that generation must not change the medium: its data would be on a medium that was
    /// reported as formatted or sanitized.
    pub(crate) fn none_since(&self, accepted: u64) -> Result<(), Condition> {
        match self.began_in {
            Some(began_in) if accepted <= began_in => Err(Condition::new(
                SenseKey::AbortedCommand,
                asc::IO_PROCESS_TERMINATED,
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Starts an operation in generation `generation`. A FORMAT UNIT cannot repair a failed SANITIZE (SBC-4
    /// 4.11.4).
    pub(crate) fn start(&mut self, kind: OperationKind, generation: u64) -> Result<(), Condition> {
        self.in_progress()?;
        if let (
            OperationKind::Format,
            OperationState::Failed {
                kind: OperationKind::Sanitize { .. },
            },
        ) = (kind, &self.state)
        {
            self.passable()?;
        }
        debug_assert!(
            self.began_in.is_none_or(|before| before < generation),
            "generations only grow"
        );
        *self = Operations {
            state: OperationState::Running { kind, progress: 0 },
            began_in: Some(generation),
        };
        Ok(())
    }

    pub(crate) fn proceed(&mut self, done: u64, total: u64) {
        debug_assert!(
            matches!(self.state, OperationState::Running { .. }),
            "a running operation has not ended"
        );
        if let OperationState::Running { progress, .. } = &mut self.state {
            let share = u128::from(done) * 0x1_0000 / u128::from(total.max(1));
            *progress = u16::try_from(share).unwrap_or(u16::MAX);
        }
    }

    /// Records the end of the running operation.
    pub(crate) fn end(&mut self, succeeded: bool) {
        debug_assert!(
            matches!(self.state, OperationState::Running { .. }),
            "an operation ends once"
        );
        if let OperationState::Running { kind, .. } = self.state {
            self.state = if succeeded {
                OperationState::Idle
            } else {
                OperationState::Failed { kind }
            };
        }
    }

    /// EXIT FAILURE MODE. Without a failed SANITIZE there is nothing to exit, which is not an error.
    pub(crate) fn exit_failure_mode(&mut self) -> Result<(), Condition> {
        match self.state {
            OperationState::Failed {
                kind: OperationKind::Sanitize { may_exit: false },
            } => Err(Condition::invalid_bit(1, 4)),
            OperationState::Failed {
                kind: OperationKind::Sanitize { may_exit: true },
            } => {
                self.state = OperationState::Idle;
                Ok(())
            }
            OperationState::Failed {
                kind: OperationKind::Format,
            }
            | OperationState::Idle
            | OperationState::Running { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SANITIZE: OperationKind = OperationKind::Sanitize { may_exit: false };

    #[test]
    fn one_operation_runs_at_a_time() {
        let mut operations = Operations::default();
        operations.start(SANITIZE, 1).expect("nothing runs");
        assert!(operations.start(SANITIZE, 2).is_err());
        operations.proceed(1, 4);
        assert_eq!(
            operations
                .in_progress()
                .map_err(|condition| condition.specific),
            { Err(scsi::Specific::Progress(0x4000)) }
        );
        operations.end(true);
        assert_eq!(operations.passable(), Ok(()));
        operations.start(SANITIZE, 3).expect("the first has ended");
    }

    #[test]
    fn what_was_accepted_before_an_operation_began_is_refused_for_ever() {
        let mut operations = Operations::default();
        assert_eq!(operations.none_since(0), Ok(()));
        operations.start(SANITIZE, 7).expect("nothing runs");
        operations.end(true);
        assert!(operations.none_since(0).is_err() && operations.none_since(7).is_err());
        assert_eq!(operations.none_since(8), Ok(()));
        assert!(operations.exit_failure_mode().is_ok() && operations.none_since(7).is_err());
    }

    #[test]
    fn a_failure_is_left_by_the_exit_it_was_started_with() {
        for may_exit in [false, true] {
            let mut operations = Operations::default();
            operations
                .start(OperationKind::Sanitize { may_exit }, 0)
                .expect("nothing runs");
            operations.end(false);
            assert_eq!(
                operations.passable().map_err(|condition| condition.asc),
                Err(asc::SANITIZE_COMMAND_FAILED)
            );
            assert_eq!(operations.exit_failure_mode().is_ok(), may_exit);
            assert_eq!(operations.passable().is_ok(), may_exit);
        }
    }
}
