//! FORMAT UNIT (SBC-3 5.3): writes zeros to every block, and deallocates the blocks of thin volumes.
//!
//! There is neither protection information nor a defect list, so all that may be asked for is a format as it
//! is: with FMTDATA zero, or with a parameter list that names no defects. Protection types, defects and
//! initialization patterns are refused.

use scsi::{Condition, SenseKey, asc};

use crate::command::Call;
use crate::failure::Failure;
use crate::medium_operation::{self, Method, OperationKind};
use crate::plan::Plan;

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let length = parameter_list_length(call)?;
    medium_operation::permitted(call)?;
    let by = call.nexus.id;
    call.receive_and_start(length, move |unit, list| {
        let immediate = length > 0 && immediate(&list, length as usize)?;
        let method = if unit.thin() { Method::Erase } else { Method::Zero };
        medium_operation::start(unit, by, OperationKind::Format, immediate, vec![method])
    })
}

/// The length of the parameter list header. A command that destroys all data is refused if any field of its
/// CDB is not supported.
fn parameter_list_length(call: &Call<'_>) -> Result<u32, Condition> {
    let cdb = call.cdb;
    if cdb.byte(1) & FMTPINFO != 0 {
        return Err(Condition::invalid_bit(1, 7));
    }
    // Vendor specific, the interleave of SBC-2, and FFMT of SBC-4: a fast format would leave what was
    // written.
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

/// Whether the header (SBC-3 tables 32 and 33) asks for an answer before the end. DPRY, DCRT and STPF say
/// what is to be done about defects and about lists of them that cannot be read, and there are none.
fn immediate(list: &[u8], length: usize) -> Result<bool, Condition> {
    let header = list.get(..length).ok_or(Condition::parameter_list_length())?;
    let flags = header[1];
    let invalid = |byte: u16, bit: u8| {
        Err(Condition::new(SenseKey::IllegalRequest, asc::INVALID_FIELD_IN_PARAMETER_LIST).at_field(
            false,
            byte,
            Some(bit),
        ))
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
    let defects_at = if length == LONG_HEADER_BYTES as usize { 4 } else { 2 };
    // P_I_INFORMATION and PROTECTION INTERVAL EXPONENT.
    if defects_at == 4 && header[3] != 0 {
        return invalid(3, 7);
    }
    if header[defects_at..].iter().any(|&byte| byte != 0) {
        return Err(Condition::invalid_parameter(defects_at as u16));
    }
    Ok(flags & IMMED != 0)
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
const IMMED: u8 = 0x02;
