//! REPORT LUNS (SPC-4 6.33), the REPORT LUNS well-known logical unit, and replies at LUNs without a logical
//! unit.

use scsi::{Condition, LunList, REPORT_LUNS_WELL_KNOWN, SenseFormat, SenseKey, asc};

use super::Call;
use super::inquiry;
use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::plan::{CommandIn, DataIn, Plan, Reply, SiblingUnits};

pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let cdb = call.cdb;
    let data = inventory(cdb, call.command.luns.as_ref())?;
    let plan = call.parameter_data(data, cdb.u32(6))?;
    // SPC-3 6.21: "The execution of a REPORT LUNS command by any valid and installed logical unit shall clear the
    // REPORTED LUNS DATA HAS CHANGED unit attention condition for all logical units of that target with respect to the
    // requesting initiator."
    call.command.luns.luns_reported();
    Ok(plan)
}

/// The reply to a command for a LUN at which this nexus sees no logical unit (SPC-4 5.7, SAM-5 5.13).
pub fn absent(command: &CommandIn<'_>) -> Reply {
    let unsupported = Condition::new(SenseKey::IllegalRequest, asc::LOGICAL_UNIT_NOT_SUPPORTED);
    answer(command, NO_DEVICE, unsupported)
}

/// The reply of the logical unit at [`REPORT_LUNS_WELL_KNOWN`].
pub fn well_known(command: &CommandIn<'_>) -> Reply {
    if Cdb(command.cdb).opcode() == 0x00 {
        return Reply::good(0);
    }
    let unsupported = Condition::new(SenseKey::IllegalRequest, asc::INVALID_COMMAND_OPERATION_CODE);
    answer(command, WELL_KNOWN_DEVICE, unsupported)
}

/// The three commands that are answered anywhere.
fn answer(command: &CommandIn<'_>, device: u8, otherwise: Condition) -> Reply {
    let (cdb, luns) = (Cdb(command.cdb), command.luns.as_ref());
    let (data, allocation_length) = match cdb.opcode() {
        0x12 => (inquiry::without_device(cdb, device), u32::from(cdb.u16(3))),
        REPORT_LUNS => (inventory(cdb, luns), cdb.u32(6)),
        0x03 => (Ok(sense(cdb, device, &otherwise)), u32::from(cdb.byte(4))),
        _ => (Err(otherwise), 0),
    };
    match data.and_then(|data| command.returns_data().map(|()| data)) {
        Ok(mut data) => {
            data.truncate(allocation_length as usize);
            if cdb.opcode() == REPORT_LUNS {
                luns.luns_reported();
            }
            Reply::data(DataIn::Bytes(data), command.data_in_bytes)
        }
        Err(condition) => Reply::check(&condition, SenseFormat::Fixed),
    }
}

/// REQUEST SENSE at a LUN without logical unit says so in the parameter data, with GOOD (SPC-4 6.39).
fn sense(cdb: Cdb<'_>, device: u8, absent: &Condition) -> Vec<u8> {
    let format = if cdb.bit(1, 0) { SenseFormat::Descriptor } else { SenseFormat::Fixed };
    let nothing = Condition::new(SenseKey::NoSense, asc::NO_ADDITIONAL_SENSE_INFORMATION);
    let condition = if device == NO_DEVICE { absent } else { &nothing };
    condition.encode(format).bytes().to_vec()
}

/// The LUN list that SELECT REPORT asks for.
fn inventory(cdb: Cdb<'_>, luns: &dyn SiblingUnits) -> Result<Vec<u8>, Condition> {
    let list = match cdb.byte(2) {
        0x00 => luns.luns(),
        0x01 => vec![REPORT_LUNS_WELL_KNOWN],
        0x02 => [luns.luns(), vec![REPORT_LUNS_WELL_KNOWN]].concat(),
        _ => return Err(Condition::invalid_field(2)),
    };
    Ok(LunList { luns: list }.write())
}

const REPORT_LUNS: u8 = 0xa0;
/// PERIPHERAL QUALIFIER 011b, device type 1Fh: nothing can be here.
const NO_DEVICE: u8 = 0x7f;
/// Device type 1Eh: well-known logical unit.
const WELL_KNOWN_DEVICE: u8 = 0x1e;
