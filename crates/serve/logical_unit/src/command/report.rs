//! REPORT SUPPORTED OPERATION CODES, REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS and REPORT TARGET PORT GROUPS
//! (SPC-4 6.35, 6.36, 6.37).

use scsi::{AccessState, CommandSupport, Condition, PortGroup, SupportedCommand};

use super::{Call, Command, UnitTraits, commands, vpd};
use crate::failure::Failure;
use crate::plan::Plan;

pub(crate) fn plan_operation_codes(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let timeouts = call.cdb.bit(2, 7);
    let (opcode, service_action) = (call.cdb.byte(3), call.cdb.u16(4));
    let traits = call.unit.traits();
    let data = match call.cdb.byte(2) & 7 {
        0 => all_commands(traits, timeouts),
        option @ 1..=3 => one_command(find(traits, option, opcode, service_action)?, timeouts),
        _ => return Err(Condition::invalid_bit(2, 2).into()),
    };
    call.parameter_data(data, call.cdb.u32(6))
}

/// The command that REPORTING OPTIONS asks about (SPC-4 table 241): 1 by operation code, which must have no
/// service actions; 2 by both, and it must have them; 3 by both, whichever it has.
fn find(
    traits: UnitTraits,
    option: u8,
    opcode: u8,
    service_action: u16,
) -> Result<Option<&'static Command>, Condition> {
    let mut of_opcode = commands(traits).filter(|command| command.kind.opcode == opcode).peekable();
    let Some(first) = of_opcode.peek() else { return Ok(None) };
    match (option, first.kind.service_action.is_some()) {
        (1, true) | (2, false) => Err(Condition::invalid_bit(2, 2)),
        (1, false) => Ok(of_opcode.next()),
        _ => {
            Ok(of_opcode
                .find(|command| u16::from(command.kind.service_action.unwrap_or(0)) == service_action))
        }
    }
}

fn all_commands(traits: UnitTraits, timeouts: bool) -> Vec<u8> {
    SupportedCommand::write_list(commands(traits).map(|command| SupportedCommand {
        opcode: command.kind.opcode,
        service_action: command.kind.service_action.map(u16::from),
        cdb_bytes: 1 + command.usage.len() as u16,
        timeouts: timeouts.then_some(command.timeouts),
    }))
}

fn one_command(command: Option<&Command>, timeouts: bool) -> Vec<u8> {
    let Some(command) = command else { return CommandSupport::No.write() };
    let usage = [&[command.kind.opcode], command.usage].concat();
    let timeouts = timeouts.then_some(command.timeouts);
    CommandSupport::Yes { as_in_the_standard: true, usage, timeouts }.write()
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
    let group = PortGroup {
        group: vpd::TARGET_PORT_GROUP_ID,
        preferred: false,
        state: AccessState::ActiveOptimized,
        // No other is ever reported: standby is mishandled by ESXi and Windows.
        supported: vec![AccessState::ActiveOptimized],
        status: 0,
        ports,
    };
    call.parameter_data(PortGroup::write_list(&[group], extended), call.cdb.u32(6))
}

const ABORT_TASK: u8 = 0x80;
const ABORT_TASK_SET: u8 = 0x40;
const CLEAR_TASK_SET: u8 = 0x10;
const LOGICAL_UNIT_RESET: u8 = 0x08;
const TARGET_RESET: u8 = 0x02;
/// TMFTMOV.
const TIMEOUTS_VALID: u8 = 0x01;
/// In tenths of a second. A function is answered when what it ended is fenced, in five seconds at most.
const TASK_MANAGEMENT_TIMEOUT: u32 = 50;
