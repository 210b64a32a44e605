//! SANITIZE (SBC-4 5.31, 4.11): making all that was ever written unreadable.
//!
//! The operation belongs to the logical unit, not to the command that set it off: aborting the command, a reset
//! or the loss of the nexus do not stop it (SBC-4 4.11.2). While it runs, all commands but INQUIRY, REPORT LUNS
//! and REQUEST SENSE end with NOT READY and tell how far it is; if it fails, the medium stays out of reach until
//! another SANITIZE succeeds or, if AUSE allowed that, EXIT FAILURE MODE gives up.
//!
//! CRYPTOGRAPHIC ERASE would change a key, and we have none. It is offered only where the result is the same, on
//! volumes in memory, which forget what they give back; for a file, whose old blocks may live on in the disk under
//! it, it is refused. A restart of the process ends an operation without a trace: memory is gone by then, and for
//! other volumes the initiator, which has not seen the operation end, must set it off again.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::{Buffer, DeviceError, Durability, Extent, Slice};

use crate::command::Call;
use crate::failure::Failure;
use crate::plan::{Background, Ending, Outcome, Plan};
use crate::sense::{Condition, SenseKey, asc};
use crate::unit::{LogicalUnit, give_way};

/// Whether a sanitize operation has been or is being done.
#[derive(Debug, Default)]
pub(crate) enum Sanitize {
    /// None, or the last one succeeded.
    #[default]
    Idle,
    /// One is under way.
    Running {
        /// In 65,536ths.
        progress: u16,
        /// AUSE: should it fail, EXIT FAILURE MODE will do.
        may_exit: bool,
        /// The command that set it off, if it waits for the end.
        waiting: Option<Waker>,
    },
    /// The last one failed.
    Failed {
        /// As above.
        may_exit: bool,
    },
}

impl Sanitize {
    /// What stops every command while an operation runs.
    pub(crate) fn in_progress(&self) -> Result<(), Condition> {
        match self {
            Sanitize::Running { progress, .. } => {
                Err(Condition::new(SenseKey::NotReady, asc::SANITIZE_IN_PROGRESS).with_progress(*progress))
            }
            Sanitize::Idle | Sanitize::Failed { .. } => Ok(()),
        }
    }

    /// What stops a command that needs the medium.
    pub(crate) fn passable(&self) -> Result<(), Condition> {
        match self {
            Sanitize::Idle => Ok(()),
            Sanitize::Running { .. } => self.in_progress(),
            Sanitize::Failed { .. } => {
                Err(Condition::new(SenseKey::MediumError, asc::SANITIZE_COMMAND_FAILED))
            }
        }
    }

    fn start(&mut self, may_exit: bool) -> Result<(), Condition> {
        self.in_progress()?;
        *self = Sanitize::Running { progress: 0, may_exit, waiting: None };
        Ok(())
    }

    fn proceed(&mut self, done: u64, total: u64) {
        if let Sanitize::Running { progress, .. } = self {
            let share = u128::from(done) * 0x1_0000 / u128::from(total.max(1));
            *progress = u16::try_from(share).unwrap_or(u16::MAX);
        }
    }

    /// Returns whom to wake. An operation ends once; later words on it are not heard.
    fn end(&mut self, succeeded: bool) -> Option<Waker> {
        let Sanitize::Running { may_exit, waiting, .. } = self else {
            return None;
        };
        let (may_exit, waiting) = (*may_exit, waiting.take());
        *self = if succeeded { Sanitize::Idle } else { Sanitize::Failed { may_exit } };
        waiting
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Condition>> {
        if let Sanitize::Running { waiting, .. } = self {
            *waiting = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(self.passable())
    }

    /// EXIT FAILURE MODE. Without a failure there is nothing to exit, which is no error.
    fn exit_failure_mode(&mut self) -> Result<(), Condition> {
        match self {
            Sanitize::Failed { may_exit: false } => Err(Condition::invalid_bit(1, 4)),
            Sanitize::Failed { may_exit: true } => {
                *self = Sanitize::Idle;
                Ok(())
            }
            Sanitize::Idle | Sanitize::Running { .. } => Ok(()),
        }
    }
}

/// What a pass over the medium does to a piece of it.
enum Method {
    /// Write these bytes, which are as long as the largest piece.
    Fill(Slice),
    /// Give the space back.
    Erase,
}

/// SANITIZE, OVERWRITE.
pub(crate) fn plan_overwrite(call: &mut Call<'_>) -> Result<Plan, Failure> {
    reserved_fields(call)?;
    permitted(call)?;
    let block_bytes = call.geometry().block_size.bytes();
    let length = u32::from(call.cdb.u16(7));
    // A header and a pattern of one byte to one block.
    if !(HEADER_BYTES as u32 + 1..=HEADER_BYTES as u32 + block_bytes).contains(&length) {
        return Err(Condition::invalid_field(7).into());
    }
    set_off(call, length, move |unit, list| passes(unit, list, length as usize))
}

/// SANITIZE, BLOCK ERASE and CRYPTOGRAPHIC ERASE.
pub(crate) fn plan_erase(call: &mut Call<'_>) -> Result<Plan, Failure> {
    reserved_fields(call)?;
    permitted(call)?;
    no_parameters(call)?;
    set_off(call, 0, |_, _| Ok(vec![Method::Erase]))
}

/// SANITIZE, EXIT FAILURE MODE.
pub(crate) fn plan_exit_failure_mode(call: &mut Call<'_>) -> Result<Plan, Failure> {
    reserved_fields(call)?;
    no_parameters(call)?;
    call.unit.change(|state| state.sanitize.exit_failure_mode())?;
    call.good()
}

/// A command that destroys everything is taken only if all of it is understood.
fn reserved_fields(call: &Call<'_>) -> Result<(), Condition> {
    if call.cdb.bit(1, 6) {
        return Err(Condition::invalid_bit(1, 6));
    }
    match (2..=6).find(|&at| call.cdb.byte(at) != 0) {
        Some(at) => Err(Condition::invalid_field(at as u16)),
        None => Ok(()),
    }
}

fn no_parameters(call: &Call<'_>) -> Result<(), Condition> {
    if call.cdb.u16(7) == 0 { Ok(()) } else { Err(Condition::invalid_field(7)) }
}

/// The medium is there and may be written. That the last SANITIZE failed is a reason for this one.
fn permitted(call: &Call<'_>) -> Result<(), Condition> {
    call.unit.look(|state| {
        state.accessible()?;
        state.writable(call.unit.read_only())
    })
}

/// Receives the parameter list, if there is one, and starts the operation.
fn set_off(
    call: &Call<'_>,
    length: u32,
    methods: impl FnOnce(&LogicalUnit, &Buffer) -> Result<Vec<Method>, Condition> + Send + 'static,
) -> Result<Plan, Failure> {
    let (immediate, may_exit) = (call.cdb.bit(1, IMMED), call.cdb.bit(1, AUSE));
    let start = move |unit: Arc<LogicalUnit>, list: Buffer| -> Result<(Background, Ending), Failure> {
        let methods = methods(&unit, &list)?;
        unit.change(|state| state.sanitize.start(may_exit))?;
        let operation = Operation { unit: Arc::clone(&unit) };
        let end: Ending =
            if immediate { Box::pin(async { Ok(Outcome::default()) }) } else { Box::pin(ended(unit)) };
        Ok((Box::pin(operation.run(methods)), end))
    };
    call.receive_and_start(length, start)
}

async fn ended(unit: Arc<LogicalUnit>) -> Result<Outcome, Failure> {
    poll_fn(|context| unit.note(|state| state.sanitize.poll_end(context))).await?;
    Ok(Outcome::default())
}

/// The OVERWRITE parameter list (SBC-4 table 120): how often to write which bytes.
fn passes(unit: &LogicalUnit, list: &[u8], length: usize) -> Result<Vec<Method>, Condition> {
    let block_bytes = unit.device().geometry().block_size.bytes() as usize;
    let list = list.get(..length).ok_or(Condition::parameter_list_length())?;
    let (header, pattern) =
        list.split_first_chunk::<HEADER_BYTES>().ok_or(Condition::parameter_list_length())?;
    let announced = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let count = header[0] & 0x1f;
    if count == 0 {
        return Err(Condition::invalid_parameter(0).at_field(false, 0, Some(4)));
    }
    // TEST asks for patterns of the vendor's own.
    if header[0] & 0x60 != 0 {
        return Err(Condition::invalid_parameter(0).at_field(false, 0, Some(6)));
    }
    if announced == 0 || announced > block_bytes || announced > pattern.len() {
        return Err(Condition::invalid_parameter(2));
    }
    let invert = header[0] & 0x80 != 0;
    let filled = filled(&pattern[..announced], block_bytes, unit.device().geometry().bytes());
    let inverted: Slice = Buffer::from(&filled.iter().map(|byte| !byte).collect::<Vec<u8>>()[..]).share();
    let pass = |pass: u8| if invert && pass % 2 == 1 { inverted.clone() } else { filled.clone() };
    Ok((0..count).map(|number| Method::Fill(pass(number))).collect())
}

/// A piece of the medium in which each block holds the pattern over and over, begun anew with the block.
fn filled(pattern: &[u8], block_bytes: usize, medium_bytes: u64) -> Slice {
    let mut buffer = Buffer::recycled(PIECE_BYTES.min(medium_bytes).max(block_bytes as u64) as usize);
    for block in buffer.chunks_mut(block_bytes) {
        block.iter_mut().zip(pattern.iter().cycle()).for_each(|(to, from)| *to = *from);
    }
    buffer.share()
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
                self.unit.note(|state| state.sanitize.proceed(done, total));
                give_way().await;
            }
            self.unit.device().flush().await?;
        }
        Ok(())
    }

    /// The whole medium, in pieces.
    fn pieces(&self, method: &Method) -> impl Iterator<Item = Extent> + use<> {
        let geometry = self.unit.device().geometry();
        let bytes = match method {
            Method::Fill(data) => data.len() as u64,
            Method::Erase => ERASE_BYTES,
        };
        let (step, blocks) = ((bytes >> geometry.block_size.shift()).max(1), geometry.blocks.0);
        (0..blocks.div_ceil(step))
            .map(move |piece| Extent::new(piece * step, step.min(blocks - piece * step)))
    }

    /// Commands that were accepted before the operation may still be at work: it waits for them, piece by piece.
    async fn pass(&self, method: &Method, piece: Extent) -> Result<(), DeviceError> {
        let device = self.unit.device();
        let _alone = self.unit.locks().exclude(piece).await;
        match method {
            Method::Erase => device.unmap(piece).await,
            Method::Fill(data) => {
                let length = device.geometry().length(piece) as usize;
                let data = data.part(0..length).ok_or(DeviceError::OutOfRange)?;
                device.write(piece, data, Durability::Cached).await
            }
        }
    }

    fn end(&self, succeeded: bool) {
        let waiting = self.unit.change(|state| state.sanitize.end(succeeded));
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

const IMMED: u8 = 7;
/// Allow unrestricted sanitize exit.
const AUSE: u8 = 5;
const HEADER_BYTES: usize = 4;
/// One write: held in memory once, whatever the number of passes.
const PIECE_BYTES: u64 = 1 << 20;
/// One call to give space back, so that the progress of an erase can be seen.
const ERASE_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_ends_once() {
        let mut sanitize = Sanitize::default();
        sanitize.start(false).expect("nothing runs");
        assert!(sanitize.start(false).is_err());
        sanitize.proceed(1, 4);
        assert_eq!(sanitize.in_progress().map_err(|condition| condition.specific), {
            Err(crate::sense::Specific::Progress(0x4000))
        });
        sanitize.end(true);
        sanitize.end(false);
        assert_eq!(sanitize.passable(), Ok(()));
    }

    #[test]
    fn a_failure_is_left_by_the_exit_it_was_started_with() {
        for may_exit in [false, true] {
            let mut sanitize = Sanitize::default();
            sanitize.start(may_exit).expect("nothing runs");
            sanitize.end(false);
            assert_eq!(
                sanitize.passable().map_err(|condition| condition.asc),
                Err(asc::SANITIZE_COMMAND_FAILED)
            );
            assert_eq!(sanitize.exit_failure_mode().is_ok(), may_exit);
            assert_eq!(sanitize.passable().is_ok(), may_exit);
        }
    }

    #[test]
    fn a_pattern_begins_anew_with_each_block() {
        let filled = filled(&[1, 2, 3], 512, 1024);
        assert_eq!(filled.len(), 1024);
        assert_eq!(filled[510..514], [1, 2, 1, 2]);
    }
}
