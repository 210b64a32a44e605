//! The table of commands.

use scsi::commands::*;

use super::*;
use crate::copy::{results, run};
use crate::mode::command as mode;
use crate::persistent::command as persistent;
use crate::{format, reserve, sanitize};

/// Every command, in ascending order of operation code and service action: REPORT SUPPORTED OPERATION CODES
/// lists them as they stand here.
pub(crate) static TABLE: &[Command] = &[
    Command::new(TEST_UNIT_READY, &[0, 0, 0, 0, NACA], ready::plan).needs_medium(),
    Command::new(REQUEST_SENSE, &[0x01, 0, 0, 0xff, NACA], request_sense::plan).always(),
    // It asks by itself whether the medium is there and may be written, as SANITIZE does.
    Command::new(FORMAT_UNIT, &[0x3f, 0, 0, 0, NACA], format::plan).reserved(Reserved::Write).takes(60, 3600),
    Command::new(READ_6, &[0x1f, 0xff, 0xff, 0xff, NACA], read::plan).reads(),
    Command::new(WRITE_6, &[0x1f, 0xff, 0xff, 0xff, NACA], write::plan).writes(),
    Command::new(INQUIRY, &[0x01, 0xff, 0xff, 0xff, NACA], inquiry::plan).always(),
    Command::new(MODE_SELECT_6, &[0x13, 0, 0, 0xff, NACA], mode::plan_select).reserved(Reserved::Write),
    Command::new(RESERVE_6, &[0x13, 0, 0, 0, NACA], reserve::plan_reserve).reserved(Reserved::Own),
    Command::new(RELEASE_6, &[0x13, 0, 0, 0, NACA], reserve::plan_release).reserved(Reserved::Own),
    Command::new(MODE_SENSE_6, &[0x08, 0xff, 0xff, 0xff, NACA], mode::plan_sense).reserved(Reserved::Read),
    // It asks by itself what reservations think of stopping, and the next of preventing.
    Command::new(START_STOP_UNIT, &[0x01, 0, 0x0f, 0xf7, NACA], removal::plan_start_stop)
        .reserved(Reserved::Never)
        .takes(1, 60),
    Command::new(RECEIVE_DIAGNOSTIC_RESULTS, &[0x01, 0xff, 0xff, 0xff, NACA], diagnostic::plan_receive)
        .reserved(Reserved::Write),
    // It asks by itself whether there is a medium to test.
    Command::new(SEND_DIAGNOSTIC, &[0xe4, 0, 0xff, 0xff, NACA], diagnostic::plan_send)
        .reserved(Reserved::Write)
        .takes(1, 60),
    Command::new(PREVENT_ALLOW_MEDIUM_REMOVAL, &[0, 0, 0, 0x03, NACA], removal::plan_prevent)
        .reserved(Reserved::Never),
    Command::new(READ_CAPACITY_10, &[0, 0, 0, 0, 0, 0, 0, 0, NACA], capacity::plan_10)
        .needs_medium()
        .reserved(Reserved::Never),
    Command::new(READ_10, &ten(0xf8), read::plan).reads(),
    Command::new(WRITE_10, &ten(0xf8), write::plan).writes(),
    Command::new(WRITE_AND_VERIFY_10, &ten(0xf6), verify::plan_write).writes(),
    Command::new(VERIFY_10, &ten(0xf6), verify::plan).reads().takes(1, 60),
    Command::new(PRE_FETCH_10, &ten(0x02), cache::plan_prefetch).reads(),
    Command::new(SYNCHRONIZE_CACHE_10, &ten(0x02), cache::plan_synchronize)
        .needs_medium()
        .reserved(Reserved::Write)
        .takes(1, 60),
    Command::new(READ_DEFECT_DATA_10, &[0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, NACA], defects::plan_10).reads(),
    Command::new(WRITE_SAME_10, &ten(0xfe), write_same::plan).writes().takes(1, 60),
    Command::new(UNMAP, &[0x01, 0, 0, 0, 0, 0, 0xff, 0xff, NACA], unmap::plan)
        .writes()
        .takes(1, 60)
        .if_thin(),
    sanitize(SANITIZE_OVERWRITE, &[0xa1, 0, 0, 0, 0, 0, 0xff, 0xff, NACA], sanitize::plan_overwrite),
    sanitize(SANITIZE_BLOCK_ERASE, &[0xa2, 0, 0, 0, 0, 0, 0xff, 0xff, NACA], sanitize::plan_erase).if_thin(),
    sanitize(SANITIZE_CRYPTOGRAPHIC_ERASE, &[0xa3, 0, 0, 0, 0, 0, 0xff, 0xff, NACA], sanitize::plan_erase)
        .if_volatile(),
    sanitize(
        SANITIZE_EXIT_FAILURE_MODE,
        &[0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
        sanitize::plan_exit_failure_mode,
    ),
    Command::new(LOG_SENSE, &[0x03, 0x3f, 0xff, 0, 0xff, 0xff, 0xff, 0xff, NACA], log_sense::plan)
        .reserved(Reserved::Never),
    Command::new(MODE_SELECT_10, &[0x13, 0, 0, 0, 0, 0, 0xff, 0xff, NACA], mode::plan_select)
        .reserved(Reserved::Write),
    Command::new(RESERVE_10, &[0x13, 0, 0, 0, 0, 0, 0, 0, NACA], reserve::plan_reserve)
        .reserved(Reserved::Own),
    Command::new(RELEASE_10, &[0x13, 0, 0, 0, 0, 0, 0, 0, NACA], reserve::plan_release)
        .reserved(Reserved::Own),
    Command::new(MODE_SENSE_10, &[0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, NACA], mode::plan_sense)
        .reserved(Reserved::Read),
    persistent_in(PERSISTENT_RESERVE_IN_READ_KEYS, &[0, 0, 0, 0, 0, 0, 0xff, 0xff, NACA]),
    persistent_in(PERSISTENT_RESERVE_IN_READ_RESERVATION, &[1, 0, 0, 0, 0, 0, 0xff, 0xff, NACA]),
    persistent_in(PERSISTENT_RESERVE_IN_REPORT_CAPABILITIES, &[2, 0, 0, 0, 0, 0, 0xff, 0xff, NACA]),
    persistent_in(PERSISTENT_RESERVE_IN_READ_FULL_STATUS, &[3, 0, 0, 0, 0, 0, 0xff, 0xff, NACA]),
    persistent_out(PERSISTENT_RESERVE_OUT_REGISTER, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out(PERSISTENT_RESERVE_OUT_RESERVE, &[1, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out(PERSISTENT_RESERVE_OUT_RELEASE, &[2, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out(PERSISTENT_RESERVE_OUT_CLEAR, &[3, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out(PERSISTENT_RESERVE_OUT_PREEMPT, &[4, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out(PERSISTENT_RESERVE_OUT_PREEMPT_AND_ABORT, &[5, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out(
        PERSISTENT_RESERVE_OUT_REGISTER_AND_IGNORE_EXISTING_KEY,
        &[6, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    persistent_out(PERSISTENT_RESERVE_OUT_REGISTER_AND_MOVE, &[7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    Command::new(
        EXTENDED_COPY_LID1,
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        run::plan,
    )
    .reserved(Reserved::Write)
    .takes(1, 120),
    Command::new(
        RECEIVE_COPY_STATUS_LID1,
        &[0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        results::plan_status,
    ),
    Command::new(
        RECEIVE_COPY_OPERATING_PARAMETERS,
        &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        results::plan_operating_parameters,
    ),
    Command::new(READ_16, &sixteen(0xf8), read::plan).reads(),
    Command::new(
        COMPARE_AND_WRITE,
        &[0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0, NACA],
        atomic::plan_compare_and_write,
    )
    .writes(),
    Command::new(WRITE_16, &sixteen(0xf8), write::plan).writes(),
    Command::new(ORWRITE_16, &sixteen(0xf8), atomic::plan_or_write).writes(),
    Command::new(WRITE_AND_VERIFY_16, &sixteen(0xf6), verify::plan_write).writes(),
    Command::new(VERIFY_16, &sixteen(0xf6), verify::plan).reads().takes(1, 60),
    Command::new(PRE_FETCH_16, &sixteen(0x02), cache::plan_prefetch).reads(),
    Command::new(SYNCHRONIZE_CACHE_16, &sixteen(0x02), cache::plan_synchronize)
        .needs_medium()
        .reserved(Reserved::Write)
        .takes(1, 60),
    Command::new(WRITE_SAME_16, &sixteen(0xff), write_same::plan).writes().takes(1, 60),
    Command::new(WRITE_ATOMIC_16, &sixteen(0xf8), atomic::plan_write_atomic).writes(),
    Command::new(
        READ_CAPACITY_16,
        &[0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        capacity::plan_16,
    )
    .needs_medium()
    .reserved(Reserved::Never),
    Command::new(
        GET_LBA_STATUS,
        &[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        lba_status::plan,
    )
    .reads(),
    Command::new(REPORT_LUNS, &[0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA], luns::plan).always(),
    Command::new(
        REPORT_TARGET_PORT_GROUPS,
        &[0xea, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        report::plan_target_port_groups,
    ),
    Command::new(
        REPORT_SUPPORTED_OPERATION_CODES,
        &[0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        report::plan_operation_codes,
    )
    .reserved(Reserved::Read),
    Command::new(
        REPORT_SUPPORTED_TASK_MANAGEMENT_FUNCTIONS,
        &[0x0d, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        report::plan_task_management,
    )
    .reserved(Reserved::Read),
    Command::new(READ_12, &twelve(0xf8), read::plan).reads(),
    Command::new(WRITE_12, &twelve(0xf8), write::plan).writes(),
    Command::new(WRITE_AND_VERIFY_12, &twelve(0xf6), verify::plan_write).writes(),
    Command::new(VERIFY_12, &twelve(0xf6), verify::plan).reads().takes(1, 60),
    Command::new(READ_DEFECT_DATA_12, &[0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA], defects::plan_12)
        .reads(),
];

/// It asks by itself whether the medium is there and may be written: that the last one failed is no obstacle.
const fn sanitize(command: CommandCode, usage: &'static [u8], plan: Planner) -> Command {
    Command::new(command, usage, plan).reserved(Reserved::Write).takes(60, 3600)
}

/// They look at the reservations, so reservations do not stop them.
const fn persistent_in(command: CommandCode, usage: &'static [u8]) -> Command {
    Command::new(command, usage, persistent::plan_in).reserved(Reserved::Own)
}

const fn persistent_out(command: CommandCode, usage: &'static [u8]) -> Command {
    Command::new(command, usage, persistent::plan_out).reserved(Reserved::Own)
}

/// The bit of the CONTROL byte that is looked at.
const NACA: u8 = 0x04;

/// CDBs of which flags in byte 1, LBA and length are looked at.
const fn ten(flags: u8) -> [u8; 9] {
    [flags, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, NACA]
}

const fn twelve(flags: u8) -> [u8; 11] {
    [flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA]
}

const fn sixteen(flags: u8) -> [u8; 15] {
    [flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_names_no_command_twice() {
        let keys: Vec<_> =
            TABLE.iter().map(|command| (command.kind.opcode, command.kind.service_action)).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:x?}");
    }

    #[test]
    fn an_operation_code_has_service_actions_for_all_of_its_commands_or_for_none() {
        for pair in TABLE.windows(2).filter(|pair| pair[0].kind.opcode == pair[1].kind.opcode) {
            assert!(
                pair.iter().all(|command| command.kind.service_action.is_some()),
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
            let action = command.kind.service_action.unwrap_or(command.usage[0] & 0x1f);
            assert_eq!(command.usage[0] & 0x1f, action, "{}", command.kind.name);
            assert_eq!(1 + command.usage.len(), length, "{}", command.kind.name);
        }
    }
}
