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
//! Aborting the command, a reset or the loss of the nexus do not stop an operation. While it runs, all
//! commands except INQUIRY, REPORT LUNS and REQUEST SENSE end with NOT READY and report its progress; after a
//! failure the medium is inaccessible until another operation succeeds. A restart of the process ends an
//! operation without a trace: volumes in memory are empty then, and for others the initiator, which has not
//! seen it end, must start it again.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::{Chunks, DeviceError, Durability, Extent, Slice};
use scsi::{Condition, SenseKey, asc};
use volume::RequestKind;

use crate::command::Call;
use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::plan::{Background, Ending, Outcome};
use crate::unit::{LogicalUnit, Reserved, UnitState, give_way};

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    /// SANITIZE.
    Sanitize {
        /// AUSE: should it fail, EXIT FAILURE MODE will do.
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

    /// What the command that began it is told if it fails.
    fn failed(self) -> u16 {
        match self {
            OperationKind::Sanitize { .. } => asc::SANITIZE_COMMAND_FAILED,
            OperationKind::Format => asc::FORMAT_COMMAND_FAILED,
        }
    }

    /// What later commands are told if it failed.
    fn has_failed(self) -> u16 {
        match self {
            OperationKind::Sanitize { .. } => asc::SANITIZE_COMMAND_FAILED,
            OperationKind::Format => asc::MEDIUM_FORMAT_CORRUPTED,
        }
    }
}

/// The operations of a logical unit: one runs at a time.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    state: OperationState,
    /// The generation of the unit's state in which the latest began.
    began_in: Option<u64>,
}

#[derive(Debug, Default)]
enum OperationState {
    /// None, or the last one succeeded.
    #[default]
    Idle,
    /// One is under way.
    Running {
        /// Which.
        kind: OperationKind,
        /// In 65,536ths.
        progress: u16,
    },
    /// The last one failed.
    Failed {
        /// Which.
        kind: OperationKind,
    },
}

impl Operations {
    /// An error while an operation runs, for every command.
    pub(crate) fn in_progress(&self) -> Result<(), Condition> {
        match &self.state {
            OperationState::Running { kind, progress } => {
                Err(Condition::new(SenseKey::NotReady, kind.in_progress()).with_progress(*progress))
            }
            OperationState::Idle | OperationState::Failed { .. } => Ok(()),
        }
    }

    /// An error while an operation runs or after it failed, for commands that need the medium.
    pub(crate) fn passable(&self) -> Result<(), Condition> {
        match &self.state {
            OperationState::Idle => Ok(()),
            OperationState::Running { .. } => self.in_progress(),
            OperationState::Failed { kind } => Err(Condition::new(SenseKey::MediumError, kind.has_failed())),
        }
    }

    /// An error for a command that would change the medium and was accepted in generation `accepted`, before
    /// the latest operation: its data would be on a medium that was reported as formatted or sanitized.
    pub(crate) fn none_since(&self, accepted: u64) -> Result<(), Condition> {
        match self.began_in {
            Some(began_in) if accepted <= began_in => {
                Err(Condition::new(SenseKey::AbortedCommand, asc::IO_PROCESS_TERMINATED))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Begins an operation in this generation. A SANITIZE that failed is not made good by a FORMAT UNIT
    /// (SBC-4 4.11.4).
    fn start(&mut self, kind: OperationKind, generation: u64) -> Result<(), Condition> {
        self.in_progress()?;
        if let (OperationKind::Format, OperationState::Failed { kind: OperationKind::Sanitize { .. } }) =
            (kind, &self.state)
        {
            self.passable()?;
        }
        *self =
            Operations { state: OperationState::Running { kind, progress: 0 }, began_in: Some(generation) };
        Ok(())
    }

    fn proceed(&mut self, done: u64, total: u64) {
        if let OperationState::Running { progress, .. } = &mut self.state {
            let share = u128::from(done) * 0x1_0000 / u128::from(total.max(1));
            *progress = u16::try_from(share).unwrap_or(u16::MAX);
        }
    }

    /// The operation that runs has ended.
    fn end(&mut self, succeeded: bool) {
        if let OperationState::Running { kind, .. } = self.state {
            self.state = if succeeded { OperationState::Idle } else { OperationState::Failed { kind } };
        }
    }

    /// EXIT FAILURE MODE. Without a failure of SANITIZE there is nothing to exit, which is no error.
    pub(crate) fn exit_failure_mode(&mut self) -> Result<(), Condition> {
        match self.state {
            OperationState::Failed { kind: OperationKind::Sanitize { may_exit: false } } => {
                Err(Condition::invalid_bit(1, 4))
            }
            OperationState::Failed { kind: OperationKind::Sanitize { may_exit: true } } => {
                self.state = OperationState::Idle;
                Ok(())
            }
            OperationState::Failed { kind: OperationKind::Format }
            | OperationState::Idle
            | OperationState::Running { .. } => Ok(()),
        }
    }
}

/// What a pass over the medium does to a piece of it.
pub(crate) enum Method {
    /// Write these bytes, which are as long as the largest piece.
    Fill(Slice),
    /// Give the space back.
    Erase,
    /// Write zeros, and keep the space.
    Zero,
}

/// Refuses an operation at once that [`start`] would refuse now.
pub(crate) fn permitted(call: &Call<'_>) -> Result<(), Condition> {
    call.unit.look(writable)
}

/// The medium is there and may be written. That the last operation failed is a reason for another.
fn writable(state: &UnitState) -> Result<(), Condition> {
    state.accessible()?;
    state.writable()
}

/// Begins an operation for the nexus `by`. Its parameter list may have come long after the command, so
/// everything that could forbid it is checked again. With `immediate` its command ends at once.
pub(crate) fn start(
    unit: Arc<LogicalUnit>,
    by: NexusId,
    kind: OperationKind,
    immediate: bool,
    methods: Vec<Method>,
) -> Result<(Background, Ending), Failure> {
    unit.change_in_generation(|state, generation| {
        state.reserved(by, Reserved::Write)?;
        writable(state)?;
        Ok::<_, Failure>(state.operations.start(kind, generation)?)
    })?;
    let completion = Rc::default();
    let operation = Operation { unit, succeeded: false, completion: Rc::clone(&completion) };
    let end: Ending = if immediate {
        Box::pin(async { Ok(Outcome::default()) })
    } else {
        Box::pin(async move {
            match poll_fn(|context| completion.borrow_mut().poll(context)).await {
                true => Ok(Outcome::default()),
                false => Err(Condition::new(SenseKey::MediumError, kind.failed()).into()),
            }
        })
    };
    Ok((Box::pin(operation.run(methods)), end))
}

/// How one operation ended, for the command that began it. The state of the logical unit does not tell: by
/// the time the command is polled, another core may have begun the next operation.
#[derive(Default)]
struct Completion {
    succeeded: Option<bool>,
    waiting: Option<Waker>,
}

impl Completion {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if let Some(succeeded) = self.succeeded {
            return Poll::Ready(succeeded);
        }
        self.waiting = Some(context.waker().clone());
        Poll::Pending
    }
}

/// An operation under way. It ends when this is dropped, and only then: after that another core may begin the
/// next.
struct Operation {
    unit: Arc<LogicalUnit>,
    succeeded: bool,
    completion: Rc<RefCell<Completion>>,
}

impl Operation {
    async fn run(mut self, methods: Vec<Method>) {
        self.succeeded = self.all_passes(&methods).await.is_ok();
    }

    async fn all_passes(&self, methods: &[Method]) -> Result<(), DeviceError> {
        let total = self.unit.device().geometry().blocks.0.saturating_mul(methods.len() as u64);
        let mut done = 0;
        for method in methods {
            for piece in self.pieces(method) {
                self.pass(method, piece).await?;
                done += piece.blocks.0;
                self.unit.note(|state| state.operations.proceed(done, total));
                give_way().await;
            }
            let flushed = self.unit.volume().flush().await;
            self.unit.volume().record_end(RequestKind::Flush, &flushed);
            flushed?;
        }
        Ok(())
    }

    /// The whole medium, in pieces.
    fn pieces(&self, method: &Method) -> Chunks {
        let geometry = self.unit.device().geometry();
        let bytes = match method {
            Method::Fill(data) => data.len() as u64,
            Method::Erase | Method::Zero => ERASE_BYTES,
        };
        Extent::new(0, geometry.blocks.0).chunks(bytes >> geometry.block_size.shift())
    }

    /// Waits for the commands that hold a range lock on the piece, then overwrites what they wrote. A command
    /// that was accepted before the operation and takes its lock later, because its data are still to come,
    /// is refused under that lock ([`Operations::none_since`]).
    async fn pass(&self, method: &Method, piece: Extent) -> Result<(), DeviceError> {
        let device = self.unit.device();
        let _alone = self.unit.locks().exclude(piece).await;
        let passed = match method {
            Method::Erase => device.unmap(piece).await,
            Method::Zero => device.write_zeroes(piece, false).await,
            Method::Fill(data) => {
                let length = device.geometry().length(piece) as usize;
                let data = data.part(0..length).ok_or(DeviceError::OutOfRange)?;
                device.write(piece, data, Durability::Cached).await
            }
        };
        self.unit.volume().record_end(RequestKind::Change, &passed);
        passed
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.unit.change(|state| state.operations.end(self.succeeded));
        let mut completion = self.completion.borrow_mut();
        completion.succeeded = Some(self.succeeded);
        let waiting = completion.waiting.take();
        drop(completion);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// One call to give space back, so that the progress of an erase can be seen.
const ERASE_BYTES: u64 = 64 << 20;

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
        assert_eq!(operations.in_progress().map_err(|condition| condition.specific), {
            Err(scsi::Specific::Progress(0x4000))
        });
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
            operations.start(OperationKind::Sanitize { may_exit }, 0).expect("nothing runs");
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
