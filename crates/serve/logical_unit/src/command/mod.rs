//! The table of commands, with one module per family of commands. Also the commands that report the table:
//! REPORT SUPPORTED OPERATION CODES and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4 6.35, 6.36).
//!
//! The table contains the common properties of each command: the evaluated CDB bits and the timeouts (both
//! for REPORT SUPPORTED OPERATION CODES), its conflicts with reservations, and its preconditions. The
//! command's planner does the rest.

pub(crate) mod atomic;
pub(crate) mod call;
pub(crate) mod diagnostic;
pub(crate) mod inquiry;
pub(crate) mod provisioning;
pub(crate) mod read_write;
pub(crate) mod removal;
pub(crate) mod report;

use scsi::commands::*;
use scsi::{CommandSupport, Condition, SenseKey, SupportedCommand, asc};

use crate::cdb::Cdb;
use crate::command::call::{Call, Command, Planner};
use crate::failure::Failure;
use crate::mode::{select, sense};
use crate::plan::Plan;
use crate::state::Reserved;
use crate::unit::UnitTraits;
use crate::{copy, reservations, sanitize};

/// Every command, in ascending order of operation code and service action, which is also the order of REPORT
/// SUPPORTED OPERATION CODES.
static TABLE: &[Command] = &[
    Command::new(TEST_UNIT_READY, &[0, 0, 0, 0, NACA], report::plan_ready).needs_medium(),
    Command::new(
        REQUEST_SENSE,
        &[0x01, 0, 0, 0xff, NACA],
        report::plan_request_sense,
    )
    .always(),
    // Its planner checks that the medium is present and writable, as for SANITIZE.
    Command::new(FORMAT_UNIT, &[0x3f, 0, 0, 0, NACA], sanitize::plan_format)
        .reserved(Reserved::Write)
        .takes(60, 3600),
    Command::new(
        READ_6,
        &[0x1f, 0xff, 0xff, 0xff, NACA],
        read_write::plan_read,
    )
    .reads(),
    Command::new(
        WRITE_6,
        &[0x1f, 0xff, 0xff, 0xff, NACA],
        read_write::plan_write,
    )
    .writes(),
    Command::new(
        INQUIRY,
        &[0x01, 0xff, 0xff, 0xff, NACA],
        inquiry::plan_inquiry,
    )
    .always(),
    Command::new(
        MODE_SELECT_6,
        &[0x13, 0, 0, 0xff, NACA],
        select::plan_select,
    )
    .reserved(Reserved::Write),
    Command::new(
        RESERVE_6,
        &[0x13, 0, 0, 0, NACA],
        reservations::plan_reserve,
    )
    .reserved(Reserved::Own),
    Command::new(
        RELEASE_6,
        &[0x13, 0, 0, 0, NACA],
        reservations::plan_release,
    )
    .reserved(Reserved::Own),
    Command::new(
        MODE_SENSE_6,
        &[0x08, 0xff, 0xff, 0xff, NACA],
        sense::plan_sense,
    )
    .reserved(Reserved::Read),
    // Its planner checks whether reservations allow stopping; the planner of the next command checks whether
    // they allow preventing removal.
    Command::new(
        START_STOP_UNIT,
        &[0x01, 0, 0x0f, 0xf7, NACA],
        removal::plan_start_stop,
    )
    .reserved(Reserved::Never)
    .takes(1, 60),
    Command::new(
        RECEIVE_DIAGNOSTIC_RESULTS,
        &[0x01, 0xff, 0xff, 0xff, NACA],
        diagnostic::plan_receive,
    )
    .reserved(Reserved::Write),
    // Its planner checks whether there is a medium to test.
    Command::new(
        SEND_DIAGNOSTIC,
        &[0xe4, 0, 0xff, 0xff, NACA],
        diagnostic::plan_send,
    )
    .reserved(Reserved::Write)
    .takes(1, 60),
    Command::new(
        PREVENT_ALLOW_MEDIUM_REMOVAL,
        &[0, 0, 0, 0x03, NACA],
        removal::plan_prevent,
    )
    .reserved(Reserved::Never),
    Command::new(
        READ_CAPACITY_10,
        &[0, 0, 0, 0, 0, 0, 0, 0, NACA],
        report::plan_capacity_10,
    )
    .needs_medium()
    .reserved(Reserved::Never),
    Command::new(READ_10, &ten(0xf8), read_write::plan_read).reads(),
    Command::new(WRITE_10, &ten(0xf8), read_write::plan_write).writes(),
    Command::new(
        WRITE_AND_VERIFY_10,
        &ten(0xf6),
        read_write::plan_write_and_verify,
    )
    .writes(),
    Command::new(VERIFY_10, &ten(0xf6), read_write::plan_verify)
        .reads()
        .takes(1, 60),
    Command::new(PRE_FETCH_10, &ten(0x02), read_write::plan_prefetch).reads(),
    Command::new(
        SYNCHRONIZE_CACHE_10,
        &ten(0x02),
        read_write::plan_synchronize,
    )
    .needs_medium()
    .reserved(Reserved::Write)
    .takes(1, 60),
    Command::new(
        READ_DEFECT_DATA_10,
        &[0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, NACA],
        report::plan_defects_10,
    )
    .reads(),
    Command::new(WRITE_SAME_10, &ten(0xfe), provisioning::plan_write_same)
        .writes()
        .takes(1, 60),
    Command::new(
        UNMAP,
        &[0x01, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
        provisioning::plan_unmap,
    )
    .writes()
    .takes(1, 60)
    .if_thin(),
    sanitize(
        SANITIZE_OVERWRITE,
        &[0xa1, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
        sanitize::plan_overwrite,
    ),
    sanitize(
        SANITIZE_BLOCK_ERASE,
        &[0xa2, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
        sanitize::plan_erase,
    )
    .if_thin(),
    sanitize(
        SANITIZE_CRYPTOGRAPHIC_ERASE,
        &[0xa3, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
        sanitize::plan_erase,
    )
    .if_volatile(),
    sanitize(
        SANITIZE_EXIT_FAILURE_MODE,
        &[0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
        sanitize::plan_exit_failure_mode,
    ),
    Command::new(
        LOG_SENSE,
        &[0x03, 0x3f, 0xff, 0, 0xff, 0xff, 0xff, 0xff, NACA],
        diagnostic::plan_log_sense,
    )
    .reserved(Reserved::Never),
    Command::new(
        MODE_SELECT_10,
        &[0x13, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
        select::plan_select,
    )
    .reserved(Reserved::Write),
    Command::new(
        RESERVE_10,
        &[0x13, 0, 0, 0, 0, 0, 0, 0, NACA],
        reservations::plan_reserve,
    )
    .reserved(Reserved::Own),
    Command::new(
        RELEASE_10,
        &[0x13, 0, 0, 0, 0, 0, 0, 0, NACA],
        reservations::plan_release,
    )
    .reserved(Reserved::Own),
    Command::new(
        MODE_SENSE_10,
        &[0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, NACA],
        sense::plan_sense,
    )
    .reserved(Reserved::Read),
    persistent_in(
        PERSISTENT_RESERVE_IN_READ_KEYS,
        &[0, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
    ),
    persistent_in(
        PERSISTENT_RESERVE_IN_READ_RESERVATION,
        &[1, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
    ),
    persistent_in(
        PERSISTENT_RESERVE_IN_REPORT_CAPABILITIES,
        &[2, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
    ),
    persistent_in(
        PERSISTENT_RESERVE_IN_READ_FULL_STATUS,
        &[3, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
    ),
    persistent_out(
        PERSISTENT_RESERVE_OUT_REGISTER,
        &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    persistent_out(
        PERSISTENT_RESERVE_OUT_RESERVE,
        &[1, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    persistent_out(
        PERSISTENT_RESERVE_OUT_RELEASE,
        &[2, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    persistent_out(
        PERSISTENT_RESERVE_OUT_CLEAR,
        &[3, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    persistent_out(
        PERSISTENT_RESERVE_OUT_PREEMPT,
        &[4, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    persistent_out(
        PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT,
        &[5, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    persistent_out(
        PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE_EXISTING_KEY,
        &[6, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    persistent_out(
        PERSISTENT_RESERVE_OUT_REGISTER_AND_MOVE,
        &[7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    Command::new(
        EXTENDED_COPY_LID1,
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        copy::plan_copy,
    )
    .reserved(Reserved::Write)
    .takes(1, 120),
    Command::new(
        RECEIVE_COPY_STATUS_LID1,
        &[
            0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA,
        ],
        copy::plan_status,
    ),
    Command::new(
        RECEIVE_COPY_OPERATING_PARAMETERS,
        &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        copy::plan_operating_parameters,
    ),
    Command::new(READ_16, &sixteen(0xf8), read_write::plan_read).reads(),
    Command::new(
        COMPARE_AND_WRITE,
        &[
            0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0, NACA,
        ],
        atomic::plan_compare_and_write,
    )
    .writes(),
    Command::new(WRITE_16, &sixteen(0xf8), read_write::plan_write).writes(),
    Command::new(ORWRITE_16, &sixteen(0xf8), atomic::plan_or_write).writes(),
    Command::new(
        WRITE_AND_VERIFY_16,
        &sixteen(0xf6),
        read_write::plan_write_and_verify,
    )
    .writes(),
    Command::new(VERIFY_16, &sixteen(0xf6), read_write::plan_verify)
        .reads()
        .takes(1, 60),
    Command::new(PRE_FETCH_16, &sixteen(0x02), read_write::plan_prefetch).reads(),
    Command::new(
        SYNCHRONIZE_CACHE_16,
        &sixteen(0x02),
        read_write::plan_synchronize,
    )
    .needs_medium()
    .reserved(Reserved::Write)
    .takes(1, 60),
    Command::new(WRITE_SAME_16, &sixteen(0xff), provisioning::plan_write_same)
        .writes()
        .takes(1, 60),
    Command::new(WRITE_ATOMIC_16, &sixteen(0xf8), atomic::plan_write_atomic).writes(),
    Command::new(
        READ_CAPACITY_16,
        &[
            0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA,
        ],
        report::plan_capacity_16,
    )
    .needs_medium()
    .reserved(Reserved::Never),
    Command::new(
        GET_LBA_STATUS,
        &[
            0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA,
        ],
        provisioning::plan_lba_status,
    )
    .reads(),
    Command::new(
        REPORT_LUNS,
        &[0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        report::plan_luns,
    )
    .always(),
    Command::new(
        REPORT_TARGET_PORT_GROUPS,
        &[0xea, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        report::plan_target_port_groups,
    ),
    Command::new(
        REPORT_SUPPORTED_OPERATION_CODES,
        &[
            0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA,
        ],
        plan_operation_codes,
    )
    .reserved(Reserved::Read),
    Command::new(
        REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS,
        &[0x0d, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        plan_task_management,
    )
    .reserved(Reserved::Read),
    Command::new(READ_12, &twelve(0xf8), read_write::plan_read).reads(),
    Command::new(WRITE_12, &twelve(0xf8), read_write::plan_write).writes(),
    Command::new(
        WRITE_AND_VERIFY_12,
        &twelve(0xf6),
        read_write::plan_write_and_verify,
    )
    .writes(),
    Command::new(VERIFY_12, &twelve(0xf6), read_write::plan_verify)
        .reads()
        .takes(1, 60),
    Command::new(
        READ_DEFECT_DATA_12,
        &[0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        report::plan_defects_12,
    )
    .reads(),
];

/// Creates a SANITIZE command. Its planner checks that the medium is present and writable. A failure of the
/// last operation does not prevent it.
const fn sanitize(command: CommandCode, usage: &'static [u8], plan: Planner) -> Command {
    Command::new(command, usage, plan)
        .reserved(Reserved::Write)
        .takes(60, 3600)
}

/// Creates a PERSISTENT RESERVE IN command. It only reads reservations, so it never conflicts with them.
const fn persistent_in(command: CommandCode, usage: &'static [u8]) -> Command {
    Command::new(command, usage, reservations::plan_in).reserved(Reserved::Own)
}

const fn persistent_out(command: CommandCode, usage: &'static [u8]) -> Command {
    Command::new(command, usage, reservations::plan_out).reserved(Reserved::Own)
}

/// The evaluated bit of the CONTROL byte.
const NACA: u8 = 0x04;

/// CDB usage data of a 10-byte command with these flags in byte 1, an LBA and a length.
const fn ten(flags: u8) -> [u8; 9] {
    [flags, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, NACA]
}

const fn twelve(flags: u8) -> [u8; 11] {
    [
        flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA,
    ]
}

const fn sixteen(flags: u8) -> [u8; 15] {
    [
        flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA,
    ]
}

/// Returns the commands supported by a logical unit with these traits.
pub(crate) fn commands(traits: UnitTraits) -> impl Iterator<Item = &'static Command> {
    TABLE
        .iter()
        .filter(move |command| command.exists.on(traits))
}

/// Returns the command for this CDB, or an error that points at the invalid field.
pub(crate) fn find(cdb: Cdb<'_>, traits: UnitTraits) -> Result<&'static Command, Condition> {
    let mut opcode_known = false;
    for command in commands(traits).filter(|command| command.kind.opcode == cdb.opcode()) {
        match command.kind.service_action {
            Some(action) if action != cdb.byte(1) & 0x1f => opcode_known = true,
            _ => return Ok(command),
        }
    }
    // SERVICE ACTION is bits 4..0 of byte 1.
    let service_action = Condition::invalid_bit(1, 4);
    let opcode = Condition::new(
        SenseKey::IllegalRequest,
        asc::INVALID_COMMAND_OPERATION_CODE,
    );
    Err(if opcode_known { service_action } else { opcode })
}

pub(crate) fn plan_operation_codes(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let timeouts = call.cdb.bit(2, 7);
    let (opcode, service_action) = (call.cdb.byte(3), call.cdb.u16(4));
    let traits = call.unit.traits();
    let data = match call.cdb.byte(2) & 7 {
        0 => all_commands(traits, timeouts),
        option @ 1..=3 => one_command(asked_for(traits, option, opcode, service_action)?, timeouts),
        _ => return Err(Condition::invalid_bit(2, 2).into()),
    };
    call.parameter_data(data, call.cdb.u32(6))
}

/// Returns the command selected by REPORTING OPTIONS (SPC-4 table 241): 1 selects by operation code, which
/// must have no service actions. 2 selects by operation code and service action. 3 selects like 1 or 2,
/// depending on whether the operation code has service actions.
fn asked_for(
    traits: UnitTraits,
    option: u8,
    opcode: u8,
    service_action: u16,
) -> Result<Option<&'static Command>, Condition> {
    let mut of_opcode = commands(traits)
        .filter(|command| command.kind.opcode == opcode)
        .peekable();
    let Some(first) = of_opcode.peek() else {
        return Ok(None);
    };
    match (option, first.kind.service_action.is_some()) {
        (1, true) | (2, false) => Err(Condition::invalid_bit(2, 2)),
        (1, false) => Ok(of_opcode.next()),
        _ => Ok(of_opcode
            .find(|command| u16::from(command.kind.service_action.unwrap_or(0)) == service_action)),
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
    let Some(command) = command else {
        return CommandSupport::No.write();
    };
    let usage = [&[command.kind.opcode], command.usage].concat();
    let timeouts = timeouts.then_some(command.timeouts);
    CommandSupport::Yes {
        as_in_the_standard: true,
        usage,
        timeouts,
    }
    .write()
}

/// Plans REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS. It reports all functions of RFC 7143 11.5, except CLEAR
/// ACA: there is no ACA to clear.
pub(crate) fn plan_task_management(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let extended = call.cdb.bit(2, 7);
    let mut data = vec![
        ABORT_TASK | ABORT_TASK_SET | CLEAR_TASK_SET | LOGICAL_UNIT_RESET | TARGET_RESET,
        0,
        0,
        0,
    ];
    if extended {
        data[3] = 12;
        data.extend([TIMEOUTS_VALID, 0, 0, 0]);
        data.extend(TASK_MANAGEMENT_TIMEOUT.to_be_bytes());
        data.extend(TASK_MANAGEMENT_TIMEOUT.to_be_bytes());
    }
    call.parameter_data(data, call.cdb.u32(6))
}

const ABORT_TASK: u8 = 0x80;
const ABORT_TASK_SET: u8 = 0x40;
const CLEAR_TASK_SET: u8 = 0x10;
const LOGICAL_UNIT_RESET: u8 = 0x08;
const TARGET_RESET: u8 = 0x02;
/// TMFTMOV.
const TIMEOUTS_VALID: u8 = 0x01;
/// The timeout of a task management function, in tenths of a second. Its response is sent once the commands
/// that it aborted can no longer have an effect, which takes five seconds at most.
const TASK_MANAGEMENT_TIMEOUT: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_names_no_command_twice() {
        let keys: Vec<_> = TABLE
            .iter()
            .map(|command| (command.kind.opcode, command.kind.service_action))
            .collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:x?}");
    }

    #[test]
    fn an_operation_code_has_service_actions_for_all_of_its_commands_or_for_none() {
        for pair in TABLE
            .windows(2)
            .filter(|pair| pair[0].kind.opcode == pair[1].kind.opcode)
        {
            assert!(
                pair.iter()
                    .all(|command| command.kind.service_action.is_some()),
                "{}",
                pair[0].kind.name
            );
        }
    }

    #[test]
    fn usage_data_are_as_long_as_the_group_code_says() {
        for command in TABLE {
            let length = match command.kind.opcode >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                _ => panic!("{} has no group", command.kind.name),
            };
            let action = command
                .kind
                .service_action
                .unwrap_or(command.usage[0] & 0x1f);
            assert_eq!(command.usage[0] & 0x1f, action, "{}", command.kind.name);
            assert_eq!(1 + command.usage.len(), length, "{}", command.kind.name);
        }
    }
}
