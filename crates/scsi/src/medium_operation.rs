//! Operations over the whole medium that belong to the logical unit, not to the command that began them: SANITIZE (SBC-4
//! 4.11) and FORMAT UNIT (SBC-3 5.3).
//!
//! Aborting the command, a reset or the loss of the nexus do not stop one. While it runs, all commands but INQUIRY, REPORT
//! LUNS and REQUEST SENSE end with NOT READY and tell how far it is; if it fails, the medium stays out of reach until another
//! succeeds. A restart of the process ends one without a trace: memory is gone by then, and for other volumes the initiator,
//! which has not seen it end, must begin it again.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::{DeviceError, Durability, Extent, Slice};

use crate::command::Call;
use crate::failure::Failure;
use crate::plan::{Background, Ending, Outcome};
use crate::sense::{Condition, SenseKey, asc};
use crate::unit::{LogicalUnit, RequestKind, give_way};

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

/// Whether an operation has been or is being done.
#[derive(Debug, Default)]
pub(crate) enum OperationState {
    /// None, or the last one succeeded.
    #[default]
    Idle,
    /// One is under way.
    Running {
        /// Which.
        kind: OperationKind,
        /// In 65,536ths.
        progress: u16,
        /// The command that began it, if it waits for the end.
        waiting: Option<Waker>,
    },
    /// The last one failed.
    Failed {
        /// Which.
        kind: OperationKind,
    },
}

impl OperationState {
    /// What stops every command while an operation runs.
    pub(crate) fn in_progress(&self) -> Result<(), Condition> {
        match self {
            OperationState::Running { kind, progress, .. } => {
                Err(Condition::new(SenseKey::NotReady, kind.in_progress()).with_progress(*progress))
            }
            OperationState::Idle | OperationState::Failed { .. } => Ok(()),
        }
    }

    /// What stops a command that needs the medium.
    pub(crate) fn passable(&self) -> Result<(), Condition> {
        match self {
            OperationState::Idle => Ok(()),
            OperationState::Running { .. } => self.in_progress(),
            OperationState::Failed { kind } => Err(Condition::new(SenseKey::MediumError, kind.has_failed())),
        }
    }

    /// A SANITIZE that failed is not made good by a FORMAT UNIT (SBC-4 4.11.4).
    fn start(&mut self, kind: OperationKind) -> Result<(), Condition> {
        self.in_progress()?;
        if let (OperationKind::Format, OperationState::Failed { kind: OperationKind::Sanitize { .. } }) =
            (kind, &self)
        {
            self.passable()?;
        }
        *self = OperationState::Running { kind, progress: 0, waiting: None };
        Ok(())
    }

    fn proceed(&mut self, done: u64, total: u64) {
        if let OperationState::Running { progress, .. } = self {
            let share = u128::from(done) * 0x1_0000 / u128::from(total.max(1));
            *progress = u16::try_from(share).unwrap_or(u16::MAX);
        }
    }

    /// Returns whom to wake. An operation ends once; later words on it are not heard.
    fn end(&mut self, succeeded: bool) -> Option<Waker> {
        let OperationState::Running { kind, waiting, .. } = self else {
            return None;
        };
        let (kind, waiting) = (*kind, waiting.take());
        *self = if succeeded { OperationState::Idle } else { OperationState::Failed { kind } };
        waiting
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Condition>> {
        match self {
            OperationState::Running { waiting, .. } => {
                *waiting = Some(context.waker().clone());
                Poll::Pending
            }
            OperationState::Failed { kind } => {
                Poll::Ready(Err(Condition::new(SenseKey::MediumError, kind.failed())))
            }
            OperationState::Idle => Poll::Ready(Ok(())),
        }
    }

    /// EXIT FAILURE MODE. Without a failure of SANITIZE there is nothing to exit, which is no error.
    pub(crate) fn exit_failure_mode(&mut self) -> Result<(), Condition> {
        match self {
            OperationState::Failed { kind: OperationKind::Sanitize { may_exit: false } } => {
                Err(Condition::invalid_bit(1, 4))
            }
            OperationState::Failed { kind: OperationKind::Sanitize { may_exit: true } } => {
                *self = OperationState::Idle;
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

/// The medium is there and may be written. That the last operation failed is a reason for another.
pub(crate) fn permitted(call: &Call<'_>) -> Result<(), Condition> {
    call.unit.look(|state| {
        state.accessible()?;
        state.writable(call.unit.read_only())
    })
}

/// Begins an operation. With `immediate` its command ends at once.
pub(crate) fn start(
    unit: Arc<LogicalUnit>,
    kind: OperationKind,
    immediate: bool,
    methods: Vec<Method>,
) -> Result<(Background, Ending), Failure> {
    unit.change(|state| state.operation.start(kind))?;
    let operation = Operation { unit: Arc::clone(&unit) };
    let end: Ending =
        if immediate { Box::pin(async { Ok(Outcome::default()) }) } else { Box::pin(ended(unit)) };
    Ok((Box::pin(operation.run(methods)), end))
}

async fn ended(unit: Arc<LogicalUnit>) -> Result<Outcome, Failure> {
    poll_fn(|context| unit.note(|state| state.operation.poll_end(context))).await?;
    Ok(Outcome::default())
}

/// An operation under way. Dropped before its end, it has failed.
struct Operation {
    unit: Arc<LogicalUnit>,
}

impl Operation {
    async fn run(self, methods: Vec<Method>) {
        let outcome = self.all_passes(&methods).await;
        self.end(outcome.is_ok());
    }

    async fn all_passes(&self, methods: &[Method]) -> Result<(), DeviceError> {
        let total = self.unit.device().geometry().blocks.0.saturating_mul(methods.len() as u64);
        let mut done = 0;
        for method in methods {
            for piece in self.pieces(method) {
                self.pass(method, piece).await?;
                done += piece.blocks.0;
                self.unit.note(|state| state.operation.proceed(done, total));
                give_way().await;
            }
            let flushed = self.unit.flush().await;
            self.unit.note_end(RequestKind::Flush, &flushed);
            flushed?;
        }
        Ok(())
    }

    /// The whole medium, in pieces.
    fn pieces(&self, method: &Method) -> impl Iterator<Item = Extent> + use<> {
        let geometry = self.unit.device().geometry();
        let bytes = match method {
            Method::Fill(data) => data.len() as u64,
            Method::Erase | Method::Zero => ERASE_BYTES,
        };
        let (step, blocks) = ((bytes >> geometry.block_size.shift()).max(1), geometry.blocks.0);
        (0..blocks.div_ceil(step))
            .map(move |piece| Extent::new(piece * step, step.min(blocks - piece * step)))
    }

    /// Commands that were accepted before the operation may still be at work: it waits for them, piece by piece.
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
        self.unit.note_end(RequestKind::Change, &passed);
        passed
    }

    fn end(&self, succeeded: bool) {
        let waiting = self.unit.change(|state| state.operation.end(succeeded));
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// One call to give space back, so that the progress of an erase can be seen.
const ERASE_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const SANITIZE: OperationKind = OperationKind::Sanitize { may_exit: false };

    #[test]
    fn an_operation_ends_once() {
        let mut state = OperationState::default();
        state.start(SANITIZE).expect("nothing runs");
        assert!(state.start(SANITIZE).is_err());
        state.proceed(1, 4);
        assert_eq!(state.in_progress().map_err(|condition| condition.specific), {
            Err(crate::sense::Specific::Progress(0x4000))
        });
        state.end(true);
        state.end(false);
        assert_eq!(state.passable(), Ok(()));
    }

    #[test]
    fn a_failure_is_left_by_the_exit_it_was_started_with() {
        for may_exit in [false, true] {
            let mut state = OperationState::default();
            state.start(OperationKind::Sanitize { may_exit }).expect("nothing runs");
            state.end(false);
            assert_eq!(
                state.passable().map_err(|condition| condition.asc),
                Err(asc::SANITIZE_COMMAND_FAILED)
            );
            assert_eq!(state.exit_failure_mode().is_ok(), may_exit);
            assert_eq!(state.passable().is_ok(), may_exit);
        }
    }
}
