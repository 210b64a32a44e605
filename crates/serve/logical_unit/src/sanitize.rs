//! The commands for operations on the whole medium, and the execution of these operations. SANITIZE (SBC-4
//! 5.31, 4.11) makes all data ever written unreadable. FORMAT UNIT (SBC-3 5.3) writes zeros to every block,
//! and deallocates the blocks of thin volumes. Their state is in `medium_operation`.
//!
//! CRYPTOGRAPHIC ERASE would change an encryption key, but volumes have no key. It is offered only on RAM
//! volumes, where deallocation has the same effect. It is rejected for files, whose old blocks may remain on
//! the underlying disk.
//!
//! Volumes have neither protection information nor a defect list. FORMAT UNIT is therefore accepted only with
//! FMTDATA zero, or with a parameter list that names no defects. Protection types, defects and initialization
//! patterns are rejected.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use block::{Buffer, Chunks, DeviceError, Durability, Extent, Slice};
use scsi::{Condition, SenseKey, asc};
use volume::RequestKind;

use crate::access::give_way;
use crate::command::call::Call;
use crate::failure::Failure;
use crate::medium_operation::OperationKind;
use crate::nexus::NexusId;
use crate::plan::{Background, Ending, Outcome, Plan};
use crate::state::{Reserved, UnitState};
use crate::unit::LogicalUnit;

/// Plans SANITIZE, OVERWRITE.
pub(crate) fn plan_overwrite(call: &mut Call<'_>) -> Result<Plan, Failure> {
    reserved_fields(call)?;
    permitted(call)?;
    let block_bytes = call.geometry().block_size.bytes();
    let length = u32::from(call.cdb.u16(7));
    // The parameter list is a header and a pattern, which is between one byte and one block long.
    if !(HEADER_BYTES as u32 + 1..=HEADER_BYTES as u32 + block_bytes).contains(&length) {
        return Err(Condition::invalid_field(7).into());
    }
    set_off(call, length, move |unit, list| {
        passes(unit, list, length as usize)
    })
}

/// Plans SANITIZE, BLOCK ERASE and CRYPTOGRAPHIC ERASE.
pub(crate) fn plan_erase(call: &mut Call<'_>) -> Result<Plan, Failure> {
    reserved_fields(call)?;
    permitted(call)?;
    no_parameters(call)?;
    set_off(call, 0, |_, _| Ok(vec![Method::Erase]))
}

/// Plans SANITIZE, EXIT FAILURE MODE.
pub(crate) fn plan_exit_failure_mode(call: &mut Call<'_>) -> Result<Plan, Failure> {
    reserved_fields(call)?;
    no_parameters(call)?;
    call.unit
        .change(|state| state.operations.exit_failure_mode())?;
    call.good()
}

/// Rejects a CDB with any unsupported field, because the command destroys all data.
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
    if call.cdb.u16(7) == 0 {
        Ok(())
    } else {
        Err(Condition::invalid_field(7))
    }
}

/// Receives the parameter list, if any, and starts the operation.
fn set_off(
    call: &Call<'_>,
    length: u32,
    methods: impl FnOnce(&LogicalUnit, &Buffer) -> Result<Vec<Method>, Condition> + Send + 'static,
) -> Result<Plan, Failure> {
    let (immediate, may_exit) = (call.cdb.bit(1, SANITIZE_IMMED), call.cdb.bit(1, AUSE));
    let (by, kind) = (call.nexus.id, OperationKind::Sanitize { may_exit });
    call.receive_and_start(length, move |unit, list| {
        let methods = methods(&unit, &list)?;
        start(unit, by, kind, immediate, methods)
    })
}

/// Parses the OVERWRITE parameter list (SBC-4 table 120), which contains the number of passes and the
/// pattern.
fn passes(unit: &LogicalUnit, list: &[u8], length: usize) -> Result<Vec<Method>, Condition> {
    let block_bytes = unit.device().geometry().block_size.bytes() as usize;
    let list = list
        .get(..length)
        .ok_or(Condition::parameter_list_length())?;
    let (header, pattern) = list
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or(Condition::parameter_list_length())?;
    let announced = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let count = header[0] & 0x1f;
    if count == 0 {
        return Err(Condition::invalid_parameter(0).at_field(false, 0, Some(4)));
    }
    // TEST requests vendor-specific patterns.
    if header[0] & 0x60 != 0 {
        return Err(Condition::invalid_parameter(0).at_field(false, 0, Some(6)));
    }
    if announced == 0 || announced > block_bytes || announced > pattern.len() {
        return Err(Condition::invalid_parameter(2));
    }
    let invert = header[0] & 0x80 != 0;
    let filled = filled(
        &pattern[..announced],
        block_bytes,
        unit.device().geometry().bytes(),
    );
    let inverted: Slice =
        Buffer::from(&filled.iter().map(|byte| !byte).collect::<Vec<u8>>()[..]).share();
    let pass = |pass: u8| {
        if invert && pass % 2 == 1 {
            inverted.clone()
        } else {
            filled.clone()
        }
    };
    Ok((0..count)
        .map(|number| Method::Fill(pass(number)))
        .collect())
}

/// Creates a buffer in which each block is filled with the repeated pattern, which restarts at each block.
fn filled(pattern: &[u8], block_bytes: usize, medium_bytes: u64) -> Slice {
    let mut buffer =
        Buffer::recycled(PIECE_BYTES.min(medium_bytes).max(block_bytes as u64) as usize);
    for block in buffer.chunks_mut(block_bytes) {
        block
            .iter_mut()
            .zip(pattern.iter().cycle())
            .for_each(|(to, from)| *to = *from);
    }
    buffer.share()
}

const SANITIZE_IMMED: u8 = 7;
/// Allow unrestricted sanitize exit.
const AUSE: u8 = 5;
const HEADER_BYTES: usize = 4;
/// The length of one write. All passes share a buffer of this length.
const PIECE_BYTES: u64 = 1 << 20;

pub(crate) fn plan_format(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let length = parameter_list_length(call)?;
    permitted(call)?;
    let by = call.nexus.id;
    call.receive_and_start(length, move |unit, list| {
        let immediate = length > 0 && immediate(&list, length as usize)?;
        let method = if unit.thin() {
            Method::Erase
        } else {
            Method::Zero
        };
        start(unit, by, OperationKind::Format, immediate, vec![method])
    })
}

/// Returns the length of the parameter list header. Rejects a CDB with any unsupported field, because the
/// command destroys all data.
fn parameter_list_length(call: &Call<'_>) -> Result<u32, Condition> {
    let cdb = call.cdb;
    if cdb.byte(1) & FMTPINFO != 0 {
        return Err(Condition::invalid_bit(1, 7));
    }
    // Vendor specific, the interleave of SBC-2, and FFMT of SBC-4: a fast format would not overwrite existing
    // data.
    if let Some(at) = (2..=4).find(|&at| cdb.byte(at) != 0) {
        return Err(Condition::invalid_field(at as u16));
    }
    let defect_list_format = cdb.byte(1) & DEFECT_LIST_FORMAT;
    match (cdb.bit(1, FMTDATA), cdb.bit(1, LONGLIST)) {
        (false, _) if defect_list_format != 0 => Err(Condition::invalid_bit(1, 2)),
        (false, _) => Ok(0),
        // Reserved.
        (true, _) if defect_list_format == DEFECT_LIST_FORMAT => Err(Condition::invalid_bit(1, 2)),
        (true, false) => Ok(SHORT_HEADER_BYTES),
        (true, true) => Ok(LONG_HEADER_BYTES),
    }
}

/// Whether the header (SBC-3 tables 32 and 33) requests an immediate response. DPRY, DCRT and STPF concern
/// defects and unreadable defect lists, which volumes do not have.
fn immediate(list: &[u8], length: usize) -> Result<bool, Condition> {
    let header = list
        .get(..length)
        .ok_or(Condition::parameter_list_length())?;
    let flags = header[1];
    let invalid = |byte: u16, bit: u8| {
        Err(Condition::new(
            SenseKey::IllegalRequest,
            asc::INVALID_FIELD_IN_PARAMETER_LIST,
        )
        .at_field(false, byte, Some(bit)))
    };
    if header[0] & PROTECTION_FIELD_USAGE != 0 {
        return invalid(0, 2);
    }
    if flags & IP != 0 {
        return invalid(1, 3);
    }
    if flags & FOV == 0 && flags & NEEDS_FOV != 0 {
        return invalid(1, 7);
    }
    let defects_at = if length == LONG_HEADER_BYTES as usize {
        4
    } else {
        2
    };
    // P_I_INFORMATION and PROTECTION INTERVAL EXPONENT.
    if defects_at == 4 && header[3] != 0 {
        return invalid(3, 7);
    }
    if header[defects_at..].iter().any(|&byte| byte != 0) {
        return Err(Condition::invalid_parameter(defects_at as u16));
    }
    Ok(flags & FORMAT_IMMED != 0)
}

const FMTPINFO: u8 = 0xc0;
const LONGLIST: u8 = 5;
const FMTDATA: u8 = 4;
const DEFECT_LIST_FORMAT: u8 = 0x07;

const SHORT_HEADER_BYTES: u32 = 4;
const LONG_HEADER_BYTES: u32 = 8;
const PROTECTION_FIELD_USAGE: u8 = 0x07;
/// Format options valid.
const FOV: u8 = 0x80;
/// DPRY, DCRT and STPF, which must be zero unless FOV is one.
const NEEDS_FOV: u8 = 0x70;
/// An initialization pattern follows.
const IP: u8 = 0x08;
const FORMAT_IMMED: u8 = 0x02;

/// The action of a pass on each piece of the medium.
pub(crate) enum Method {
    /// Write these bytes, which are as long as the largest piece.
    Fill(Slice),
    /// Deallocate the blocks.
    Erase,
    /// Write zeros, and keep the blocks allocated.
    Zero,
}

/// Rejects an operation immediately if [`start`] would reject it now.
pub(crate) fn permitted(call: &Call<'_>) -> Result<(), Condition> {
    call.unit.look(writable)
}

/// Returns an error unless the medium is present and writable. A failure of the last operation is not an
/// error here, because another operation can make the medium accessible again.
fn writable(state: &UnitState) -> Result<(), Condition> {
    state.accessible()?;
    state.writable()
}

/// Starts an operation for the nexus `by`. Its parameter list may have arrived long after the command, so
/// every condition is checked again. With `immediate`, the command completes without waiting for the
/// operation.
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
    let operation = Operation {
        unit,
        succeeded: false,
        completion: Rc::clone(&completion),
    };
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

/// The outcome of one operation, for the command that started it. The state of the logical unit does not
/// provide it: by the time the command is polled, another core may have started the next operation.
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

/// A running operation. It ends only when this value is dropped; after that, another core may start the next
/// operation.
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
        let total = self
            .unit
            .device()
            .geometry()
            .blocks
            .0
            .saturating_mul(methods.len() as u64);
        let mut done = 0;
        for method in methods {
            for piece in self.pieces(method) {
                self.pass(method, piece).await?;
                done += piece.blocks.0;
                self.unit
                    .note(|state| state.operations.proceed(done, total));
                give_way().await;
            }
            let flushed = self.unit.volume().flush().await;
            self.unit.volume().record_end(RequestKind::Flush, &flushed);
            flushed?;
        }
        Ok(())
    }

    /// Returns the whole medium, in pieces.
    fn pieces(&self, method: &Method) -> Chunks {
        let geometry = self.unit.device().geometry();
        let bytes = match method {
            Method::Fill(data) => data.len() as u64,
            Method::Erase | Method::Zero => ERASE_BYTES,
        };
        Extent::new(0, geometry.blocks.0).chunks(bytes >> geometry.block_size.shift())
    }

    /// Waits for the commands that hold a range lock on the piece, then processes the piece. A command that
    /// was accepted before the operation may take its lock later, once its data has arrived. Such a command
    /// is rejected under its lock ([`Operations::none_since`]).
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
        self.unit
            .change(|state| state.operations.end(self.succeeded));
        let mut completion = self.completion.borrow_mut();
        completion.succeeded = Some(self.succeeded);
        let waiting = completion.waiting.take();
        drop(completion);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Size of one deallocation, so that the progress of an erase is visible.
const ERASE_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_begins_anew_with_each_block() {
        let filled = filled(&[1, 2, 3], 512, 1024);
        assert_eq!(filled.len(), 1024);
        assert_eq!(filled[510..514], [1, 2, 1, 2]);
    }
}
