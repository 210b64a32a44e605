//! Commands that report state:
//!
//! - TEST UNIT READY (SPC-4 6.47), REQUEST SENSE (6.39)
//! - READ CAPACITY(10) and (16) (SBC-3 5.15 and 5.16), READ DEFECT DATA(10) and (12) (5.17 and 5.18)
//! - REPORT LUNS (SPC-4 6.33), REPORT TARGET PORT GROUPS (6.37)
//!
//! Also the REPORT LUNS well-known logical unit, and replies at LUNs without a logical unit.

use scsi::{
    AccessState, Capacity, Condition, LunList, PortGroup, REPORT_LUNS_WELL_KNOWN, SenseFormat,
    SenseKey, asc,
};

use super::inquiry;
use crate::cdb::Cdb;
use crate::command::call::Call;
use crate::failure::Failure;
use crate::plan::{CommandIn, DataIn, Plan, Reply, SiblingUnits};

/// Plans TEST UNIT READY: `LogicalUnit::admit` has already made all the checks.
pub(crate) fn plan_ready(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.good()
}

/// Plans REQUEST SENSE. Errors are reported with their commands (autosense), so REQUEST SENSE returns pending
/// unit attentions and pollable sense data.
pub(crate) fn plan_request_sense(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.command.returns_data()?; // before the attention is taken
    let format = if call.cdb.bit(1, 0) {
        SenseFormat::Descriptor
    } else {
        SenseFormat::Fixed
    };
    let allocation_length = u32::from(call.cdb.byte(4));
    let unit = call.unit;
    let condition = unit
        .take_attention(call.nexus.id)
        .unwrap_or_else(|| unit.look(|state| pollable(state.ready())));
    call.parameter_data(condition.encode(format).bytes().to_vec(), allocation_length)
}

/// Sense data that can be polled (SPC-4 5.11.2): the reason why the unit is not ready, or no additional
/// sense.
fn pollable(ready: Result<(), Condition>) -> Condition {
    ready.err().unwrap_or(Condition::new(
        SenseKey::NoSense,
        asc::NO_ADDITIONAL_SENSE_INFORMATION,
    ))
}

pub(crate) fn plan_capacity_10(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.parameter_data(capacity(call).write_10().to_vec(), 8)
}

pub(crate) fn plan_capacity_16(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.parameter_data(capacity(call).write_16().to_vec(), call.cdb.u32(10))
}

fn capacity(call: &Call<'_>) -> Capacity {
    let (geometry, thin) = (call.geometry(), call.unit.thin());
    Capacity {
        blocks: geometry.blocks.0,
        block_bytes: geometry.block_size.bytes(),
        physical_exponent: geometry.physical_exponent,
        lowest_aligned: 0,
        protection_type: None,
        thin,
        read_zeros: thin,
        long_commands: true,
    }
}

/// Plans READ DEFECT DATA(10). Both defect lists are valid and empty.
pub(crate) fn plan_defects_10(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let header = vec![0, call.cdb.byte(2) & DEFECT_REQUEST, 0, 0];
    call.parameter_data(header, u32::from(call.cdb.u16(7)))
}

pub(crate) fn plan_defects_12(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let header = vec![0, call.cdb.byte(1) & DEFECT_REQUEST, 0, 0, 0, 0, 0, 0];
    call.parameter_data(header, call.cdb.u32(6))
}

/// REQ_PLIST, REQ_GLIST and DEFECT LIST FORMAT, which the header returns in the same bits.
const DEFECT_REQUEST: u8 = 0x1f;

pub(crate) fn plan_luns(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let cdb = call.cdb;
    let data = inventory(cdb, call.command.luns.as_ref())?;
    let plan = call.parameter_data(data, cdb.u32(6))?;
    // SPC-3 6.21: "The execution of a REPORT LUNS command by any valid and installed logical unit shall clear
    // the REPORTED LUNS DATA HAS CHANGED unit attention condition for all logical units of that target with
    // respect to the requesting initiator."
    call.command.luns.luns_reported();
    Ok(plan)
}

/// Returns the reply to a command for a LUN at which this nexus sees no logical unit (SPC-4 5.7, SAM-5 5.13).
pub fn absent(command: &CommandIn<'_>) -> Reply {
    let unsupported = Condition::new(SenseKey::IllegalRequest, asc::LOGICAL_UNIT_NOT_SUPPORTED);
    answer(command, NO_DEVICE, unsupported)
}

/// Returns the reply of the logical unit at [`REPORT_LUNS_WELL_KNOWN`].
pub fn well_known(command: &CommandIn<'_>) -> Reply {
    if Cdb(command.cdb).opcode() == 0x00 {
        return Reply::good(0);
    }
    let unsupported = Condition::new(
        SenseKey::IllegalRequest,
        asc::INVALID_COMMAND_OPERATION_CODE,
    );
    answer(command, WELL_KNOWN_DEVICE, unsupported)
}

/// Replies to INQUIRY, REPORT LUNS and REQUEST SENSE, which are valid at any LUN. Any other command fails
/// with the error `otherwise`.
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

/// Returns the parameter data of a REQUEST SENSE at a LUN without a logical unit. The status is GOOD, and the
/// data reports that the logical unit is absent (SPC-4 6.39).
fn sense(cdb: Cdb<'_>, device: u8, absent: &Condition) -> Vec<u8> {
    let format = if cdb.bit(1, 0) {
        SenseFormat::Descriptor
    } else {
        SenseFormat::Fixed
    };
    let nothing = Condition::new(SenseKey::NoSense, asc::NO_ADDITIONAL_SENSE_INFORMATION);
    let condition = if device == NO_DEVICE {
        absent
    } else {
        &nothing
    };
    condition.encode(format).bytes().to_vec()
}

/// Returns the LUN list selected by SELECT REPORT.
fn inventory(cdb: Cdb<'_>, luns: &dyn SiblingUnits) -> Result<Vec<u8>, Condition> {
    let list = match cdb.byte(2) {
        0x00 => luns.luns(),
        0x01 => vec![REPORT_LUNS_WELL_KNOWN],
        0x02 => [luns.luns(), vec![REPORT_LUNS_WELL_KNOWN]].concat(),
        _ => return Err(Condition::invalid_field(2)),
    };
    Ok(LunList { luns: list }.write())
}

/// Plans REPORT TARGET PORT GROUPS: there is one group, active/optimized on all its ports.
pub(crate) fn plan_target_port_groups(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let extended = match call.cdb.byte(1) >> 5 {
        0 => false,
        1 => true,
        _ => return Err(Condition::invalid_bit(1, 7).into()),
    };
    let mut ports: Vec<u16> = call.unit.look(|state| {
        state
            .nexuses
            .iter()
            .map(|nexus| nexus.name.service.relative_port)
            .collect()
    });
    ports.sort_unstable();
    ports.dedup();
    let group = PortGroup {
        group: inquiry::TARGET_PORT_GROUP_ID,
        preferred: false,
        state: AccessState::ActiveOptimized,
        // No other state is ever reported: ESXi and Windows mishandle standby.
        supported: vec![AccessState::ActiveOptimized],
        status: 0,
        ports,
    };
    call.parameter_data(PortGroup::write_list(&[group], extended), call.cdb.u32(6))
}

const REPORT_LUNS: u8 = 0xa0;
/// PERIPHERAL QUALIFIER 011b, device type 1Fh: no device is supported here.
const NO_DEVICE: u8 = 0x7f;
/// Device type 1Eh: well-known logical unit.
const WELL_KNOWN_DEVICE: u8 = 0x1e;
