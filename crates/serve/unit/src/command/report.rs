//! What the device server says about itself: REPORT SUPPORTED OPERATION CODES, REPORT SUPPORTED TASK MANAGEMENT
//! FUNCTIONS and REPORT TARGET PORT GROUPS (SPC-4 6.35, 6.36, 6.37).

use scsi::Condition;

use super::{Call, Command, Kind, commands, vpd};
use crate::failure::Failure;
use crate::plan::Plan;

pub(crate) fn plan_operation_codes(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let timeouts = call.cdb.bit(2, 7);
    let (opcode, service_action) = (call.cdb.byte(3), call.cdb.u16(4));
    let kind = call.unit.kind();
    let data = match call.cdb.byte(2) & 7 {
        0 => all_commands(kind, timeouts),
        option @ 1..=3 => one_command(find(kind, option, opcode, service_action)?, timeouts),
        _ => return Err(Condition::invalid_bit(2, 2).into()),
    };
    call.parameter_data(data, call.cdb.u32(6))
}

/// The command that REPORTING OPTIONS asks about (SPC-4 table 241): 1 by operation code, which must have no
/// service actions; 2 by both, and it must have them; 3 by both, whichever it has.
fn find(
    kind: Kind,
    option: u8,
    opcode: u8,
    service_action: u16,
) -> Result<Option<&'static Command>, Condition> {
    let mut of_opcode = commands(kind).filter(|command| command.opcode == opcode).peekable();
    let Some(first) = of_opcode.peek() else { return Ok(None) };
    match (option, first.service_action.is_some()) {
        (1, true) | (2, false) => Err(Condition::invalid_bit(2, 2)),
        (1, false) => Ok(of_opcode.next()),
        _ => Ok(of_opcode.find(|command| u16::from(command.service_action.unwrap_or(0)) == service_action)),
    }
}

fn all_commands(kind: Kind, timeouts: bool) -> Vec<u8> {
    let mut data = vec![0; 4];
    for command in commands(kind) {
        let servactv = u8::from(command.service_action.is_some());
        let ctdp = u8::from(timeouts) << 1;
        let service_action = command.service_action.unwrap_or(0);
        data.extend([command.opcode, 0, 0, service_action, 0, ctdp | servactv, 0, command.usage.len() as u8]);
        append_timeouts(&mut data, command, timeouts);
    }
    let length = (data.len() - 4) as u32;
    data[..4].copy_from_slice(&length.to_be_bytes());
    data
}

fn one_command(command: Option<&Command>, timeouts: bool) -> Vec<u8> {
    let Some(command) = command else { return vec![0, NOT_SUPPORTED, 0, 0] };
    let ctdp = u8::from(timeouts) << 7;
    let mut data = vec![0, ctdp | SUPPORTED, 0, command.usage.len() as u8];
    data.extend(command.usage);
    append_timeouts(&mut data, command, timeouts);
    data
}

/// The command timeouts descriptor (SPC-4 table 246), with RCTD.
fn append_timeouts(data: &mut Vec<u8>, command: &Command, timeouts: bool) {
    if timeouts {
        data.extend([0, 10, 0, 0]);
        data.extend(command.timeouts.nominal.to_be_bytes());
        data.extend(command.timeouts.recommended.to_be_bytes());
    }
}

/// All that RFC 7143 11.5 can carry, but CLEAR ACA: there is none to clear.
pub(crate) fn plan_task_management(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let extended = call.cdb.bit(2, 7);
    let mut data =
        vec![ABORT_TASK | ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET | TARGET_RESET, 0, 0, 0];
    if extended {
        data[3] = 12;
        data.extend([TIMEOUTS_VALID, 0, 0, 0]);
        data.extend(TASK_MANAGEMENT_TIMEOUT.to_be_bytes());
        data.extend(TASK_MANAGEMENT_TIMEOUT.to_be_bytes());
    }
    call.parameter_data(data, call.cdb.u32(6))
}

/// One group, active and optimized on all its ports.
pub(crate) fn plan_target_port_groups(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let extended = match call.cdb.byte(1) >> 5 {
        0 => false,
        1 => true,
        _ => return Err(Condition::invalid_bit(1, 7).into()),
    };
    let mut ports: Vec<u16> =
        call.unit.look(|state| state.nexuses.iter().map(|nexus| nexus.name.service.relative_port).collect());
    ports.sort_unstable();
    ports.dedup();
    ports.truncate(usize::from(u8::MAX));
    let mut body = if extended { vec![0x10, 0, 0, 0] } else { vec![] };
    let [high, low] = vpd::TARGET_PORT_GROUP_ID.to_be_bytes();
    body.extend([ACTIVE_OPTIMIZED, AO_SUP, high, low, 0, 0, 0, ports.len() as u8]);
    body.extend(ports.iter().flat_map(|port| [[0, 0], port.to_be_bytes()].concat()));
    let data = [&(body.len() as u32).to_be_bytes()[..], &body].concat();
    call.parameter_data(data, call.cdb.u32(6))
}

/// SUPPORT field: in conformance with a standard.
const SUPPORTED: u8 = 3;
const NOT_SUPPORTED: u8 = 1;

const ABORT_TASK: u8 = 0x80;
const ABORT_TASK_SET: u8 = 0x40;
const CLEAR_TASK_SET: u8 = 0x10;
const LOGICAL_UNIT_RESET: u8 = 0x08;
const TARGET_RESET: u8 = 0x02;
/// TMFTMOV.
const TIMEOUTS_VALID: u8 = 0x01;
/// In tenths of a second. A function is answered when what it ended is fenced, in five seconds at most.
const TASK_MANAGEMENT_TIMEOUT: u32 = 50;

const ACTIVE_OPTIMIZED: u8 = 0x00;
/// Of the access states, only active/optimized is ever reported: standby is mishandled by ESXi and Windows.
const AO_SUP: u8 = 0x01;
