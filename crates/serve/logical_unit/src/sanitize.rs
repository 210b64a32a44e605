//! SANITIZE (SBC-4 5.31, 4.11): makes all data ever written unreadable.
//!
//! CRYPTOGRAPHIC ERASE would change an encryption key, and there is none. It is offered only where
//! deallocation has the same effect, on volumes in memory; it is refused for files, whose old blocks may
//! remain on the disk below.

use block::{Buffer, Slice};
use scsi::Condition;

use crate::command::Call;
use crate::failure::Failure;
use crate::medium_operation::{self, Method, OperationKind};
use crate::plan::Plan;
use crate::unit::LogicalUnit;

/// SANITIZE, OVERWRITE.
pub(crate) fn plan_overwrite(call: &mut Call<'_>) -> Result<Plan, Failure> {
    reserved_fields(call)?;
    medium_operation::permitted(call)?;
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
    medium_operation::permitted(call)?;
    no_parameters(call)?;
    set_off(call, 0, |_, _| Ok(vec![Method::Erase]))
}

/// SANITIZE, EXIT FAILURE MODE.
pub(crate) fn plan_exit_failure_mode(call: &mut Call<'_>) -> Result<Plan, Failure> {
    reserved_fields(call)?;
    no_parameters(call)?;
    call.unit.change(|state| state.operations.exit_failure_mode())?;
    call.good()
}

/// A command that destroys all data is refused if any field of its CDB is not supported.
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

/// Receives the parameter list, if any, and starts the operation.
fn set_off(
    call: &Call<'_>,
    length: u32,
    methods: impl FnOnce(&LogicalUnit, &Buffer) -> Result<Vec<Method>, Condition> + Send + 'static,
) -> Result<Plan, Failure> {
    let (immediate, may_exit) = (call.cdb.bit(1, IMMED), call.cdb.bit(1, AUSE));
    let (by, kind) = (call.nexus.id, OperationKind::Sanitize { may_exit });
    call.receive_and_start(length, move |unit, list| {
        let methods = methods(&unit, &list)?;
        medium_operation::start(unit, by, kind, immediate, methods)
    })
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

/// A buffer in which each block is filled with the repeated pattern, which restarts at each block.
fn filled(pattern: &[u8], block_bytes: usize, medium_bytes: u64) -> Slice {
    let mut buffer = Buffer::recycled(PIECE_BYTES.min(medium_bytes).max(block_bytes as u64) as usize);
    for block in buffer.chunks_mut(block_bytes) {
        block.iter_mut().zip(pattern.iter().cycle()).for_each(|(to, from)| *to = *from);
    }
    buffer.share()
}

const IMMED: u8 = 7;
/// Allow unrestricted sanitize exit.
const AUSE: u8 = 5;
const HEADER_BYTES: usize = 4;
/// The length of one write; the buffer is shared by all passes.
const PIECE_BYTES: u64 = 1 << 20;

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
