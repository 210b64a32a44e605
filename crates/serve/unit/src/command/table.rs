//! The table of commands.

use super::*;
use crate::copy::{results, run};
use crate::mode::command as mode;
use crate::persistent::command as persistent;
use crate::{format, reserve, sanitize};

/// Every command, in ascending order of operation code and service action: REPORT SUPPORTED OPERATION CODES
/// lists them as they stand here.
pub(crate) static TABLE: &[Command] = &[
    Command::new("TEST UNIT READY", &[0x00, 0, 0, 0, 0, NACA], ready::plan).needs_medium(),
    Command::new("REQUEST SENSE", &[0x03, 0x01, 0, 0, 0xff, NACA], request_sense::plan).always(),
    // It asks by itself whether the medium is there and may be written, as SANITIZE does.
    Command::new("FORMAT UNIT", &[0x04, 0xff, 0, 0, 0, NACA], format::plan)
        .reserved(Reserved::Write)
        .takes(60, 3600),
    Command::new("READ(6)", &[0x08, 0x1f, 0xff, 0xff, 0xff, NACA], read::plan).reads(),
    Command::new("WRITE(6)", &[0x0a, 0x1f, 0xff, 0xff, 0xff, NACA], write::plan).writes(),
    Command::new("INQUIRY", &[0x12, 0x01, 0xff, 0xff, 0xff, NACA], inquiry::plan).always(),
    Command::new("MODE SELECT(6)", &[0x15, 0x13, 0, 0, 0xff, NACA], mode::plan_select)
        .reserved(Reserved::Write),
    Command::new("RESERVE(6)", &[0x16, 0x13, 0, 0, 0, NACA], reserve::plan_reserve).reserved(Reserved::Own),
    Command::new("RELEASE(6)", &[0x17, 0x13, 0, 0, 0, NACA], reserve::plan_release).reserved(Reserved::Own),
    Command::new("MODE SENSE(6)", &[0x1a, 0x08, 0xff, 0xff, 0xff, NACA], mode::plan_sense)
        .reserved(Reserved::Read),
    // It asks by itself what reservations think of stopping, and the next of preventing.
    Command::new("START STOP UNIT", &[0x1b, 0x01, 0, 0x0f, 0xf7, NACA], removal::plan_start_stop)
        .reserved(Reserved::Never)
        .takes(1, 60),
    Command::new(
        "RECEIVE DIAGNOSTIC RESULTS",
        &[0x1c, 0x01, 0xff, 0xff, 0xff, NACA],
        diagnostic::plan_receive,
    )
    .reserved(Reserved::Write),
    // It asks by itself whether there is a medium to test.
    Command::new("SEND DIAGNOSTIC", &[0x1d, 0xe4, 0, 0xff, 0xff, NACA], diagnostic::plan_send)
        .reserved(Reserved::Write)
        .takes(1, 60),
    Command::new("PREVENT ALLOW MEDIUM REMOVAL", &[0x1e, 0, 0, 0, 0x03, NACA], removal::plan_prevent)
        .reserved(Reserved::Never),
    Command::new("READ CAPACITY(10)", &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, NACA], capacity::plan_10)
        .needs_medium()
        .reserved(Reserved::Never),
    Command::new("READ(10)", &ten(0x28, 0xf8), read::plan).reads(),
    Command::new("WRITE(10)", &ten(0x2a, 0xf8), write::plan).writes(),
    Command::new("WRITE AND VERIFY(10)", &ten(0x2e, 0xf6), verify::plan_write).writes(),
    Command::new("VERIFY(10)", &ten(0x2f, 0xf6), verify::plan).reads().takes(1, 60),
    Command::new("PRE-FETCH(10)", &ten(0x34, 0x02), cache::plan_prefetch).reads(),
    Command::new("SYNCHRONIZE CACHE(10)", &ten(0x35, 0x02), cache::plan_synchronize)
        .needs_medium()
        .reserved(Reserved::Write)
        .takes(1, 60),
    Command::new("READ DEFECT DATA(10)", &[0x37, 0, 0x1f, 0, 0, 0, 0, 0xff, 0xff, NACA], defects::plan_10)
        .reads(),
    Command::new("WRITE SAME(10)", &ten(0x41, 0xfe), write_same::plan).writes().takes(1, 60),
    Command::new("UNMAP", &[0x42, 0x01, 0, 0, 0, 0, 0, 0xff, 0xff, NACA], unmap::plan)
        .writes()
        .takes(1, 60)
        .if_thin(),
    sanitize("SANITIZE, OVERWRITE", &[0x48, 0xa1, 0, 0, 0, 0, 0, 0xff, 0xff, NACA], sanitize::plan_overwrite),
    sanitize("SANITIZE, BLOCK ERASE", &[0x48, 0xa2, 0, 0, 0, 0, 0, 0xff, 0xff, NACA], sanitize::plan_erase)
        .if_thin(),
    sanitize(
        "SANITIZE, CRYPTOGRAPHIC ERASE",
        &[0x48, 0xa3, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
        sanitize::plan_erase,
    )
    .if_forgetful(),
    sanitize(
        "SANITIZE, EXIT FAILURE MODE",
        &[0x48, 0x1f, 0, 0, 0, 0, 0, 0xff, 0xff, NACA],
        sanitize::plan_exit_failure_mode,
    ),
    Command::new("LOG SENSE", &[0x4d, 0x03, 0x3f, 0xff, 0, 0xff, 0xff, 0xff, 0xff, NACA], log_sense::plan)
        .reserved(Reserved::Never),
    Command::new("MODE SELECT(10)", &[0x55, 0x13, 0, 0, 0, 0, 0, 0xff, 0xff, NACA], mode::plan_select)
        .reserved(Reserved::Write),
    Command::new("RESERVE(10)", &[0x56, 0x13, 0, 0, 0, 0, 0, 0, 0, NACA], reserve::plan_reserve)
        .reserved(Reserved::Own),
    Command::new("RELEASE(10)", &[0x57, 0x13, 0, 0, 0, 0, 0, 0, 0, NACA], reserve::plan_release)
        .reserved(Reserved::Own),
    Command::new("MODE SENSE(10)", &[0x5a, 0x18, 0xff, 0xff, 0, 0, 0, 0xff, 0xff, NACA], mode::plan_sense)
        .reserved(Reserved::Read),
    persistent_in("PERSISTENT RESERVE IN, READ KEYS", &[0x5e, 0, 0, 0, 0, 0, 0, 0xff, 0xff, NACA]),
    persistent_in("PERSISTENT RESERVE IN, READ RESERVATION", &[0x5e, 1, 0, 0, 0, 0, 0, 0xff, 0xff, NACA]),
    persistent_in("PERSISTENT RESERVE IN, REPORT CAPABILITIES", &[0x5e, 2, 0, 0, 0, 0, 0, 0xff, 0xff, NACA]),
    persistent_in("PERSISTENT RESERVE IN, READ FULL STATUS", &[0x5e, 3, 0, 0, 0, 0, 0, 0xff, 0xff, NACA]),
    persistent_out("PERSISTENT RESERVE OUT, REGISTER", &[0x5f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out("PERSISTENT RESERVE OUT, RESERVE", &[0x5f, 1, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out("PERSISTENT RESERVE OUT, RELEASE", &[0x5f, 2, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out("PERSISTENT RESERVE OUT, CLEAR", &[0x5f, 3, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out("PERSISTENT RESERVE OUT, PREEMPT", &[0x5f, 4, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA]),
    persistent_out(
        "PERSISTENT RESERVE OUT, PREEMPT AND ABORT",
        &[0x5f, 5, 0xff, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    persistent_out(
        "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY",
        &[0x5f, 6, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    persistent_out(
        "PERSISTENT RESERVE OUT, REGISTER AND MOVE",
        &[0x5f, 7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, NACA],
    ),
    Command::new(
        "EXTENDED COPY(LID1)",
        &[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        run::plan,
    )
    .action()
    .reserved(Reserved::Write)
    .takes(1, 120),
    Command::new(
        "RECEIVE COPY RESULTS, COPY STATUS(LID1)",
        &[0x84, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        results::plan_status,
    )
    .action(),
    Command::new(
        "RECEIVE COPY RESULTS, OPERATING PARAMETERS",
        &[0x84, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        results::plan_operating_parameters,
    )
    .action(),
    Command::new("READ(16)", &sixteen(0x88, 0xf8), read::plan).reads(),
    Command::new(
        "COMPARE AND WRITE",
        &[0x89, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0xff, 0, NACA],
        atomic::plan_compare_and_write,
    )
    .writes(),
    Command::new("WRITE(16)", &sixteen(0x8a, 0xf8), write::plan).writes(),
    Command::new("ORWRITE(16)", &sixteen(0x8b, 0xf8), atomic::plan_or_write).writes(),
    Command::new("WRITE AND VERIFY(16)", &sixteen(0x8e, 0xf6), verify::plan_write).writes(),
    Command::new("VERIFY(16)", &sixteen(0x8f, 0xf6), verify::plan).reads().takes(1, 60),
    Command::new("PRE-FETCH(16)", &sixteen(0x90, 0x02), cache::plan_prefetch).reads(),
    Command::new("SYNCHRONIZE CACHE(16)", &sixteen(0x91, 0x02), cache::plan_synchronize)
        .needs_medium()
        .reserved(Reserved::Write)
        .takes(1, 60),
    Command::new("WRITE SAME(16)", &sixteen(0x93, 0xff), write_same::plan).writes().takes(1, 60),
    Command::new("WRITE ATOMIC(16)", &sixteen(0x9c, 0xf8), atomic::plan_write_atomic).writes(),
    Command::new(
        "READ CAPACITY(16)",
        &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        capacity::plan_16,
    )
    .action()
    .needs_medium()
    .reserved(Reserved::Never),
    Command::new(
        "GET LBA STATUS",
        &[0x9e, 0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        lba_status::plan,
    )
    .action()
    .reads(),
    Command::new("REPORT LUNS", &[0xa0, 0, 0xff, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA], luns::plan)
        .always(),
    Command::new(
        "REPORT TARGET PORT GROUPS",
        &[0xa3, 0xea, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        report::plan_target_port_groups,
    )
    .action(),
    Command::new(
        "REPORT SUPPORTED OPERATION CODES",
        &[0xa3, 0x0c, 0x87, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        report::plan_operation_codes,
    )
    .action()
    .reserved(Reserved::Read),
    Command::new(
        "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS",
        &[0xa3, 0x0d, 0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        report::plan_task_management,
    )
    .action()
    .reserved(Reserved::Read),
    Command::new("READ(12)", &twelve(0xa8, 0xf8), read::plan).reads(),
    Command::new("WRITE(12)", &twelve(0xaa, 0xf8), write::plan).writes(),
    Command::new("WRITE AND VERIFY(12)", &twelve(0xae, 0xf6), verify::plan_write).writes(),
    Command::new("VERIFY(12)", &twelve(0xaf, 0xf6), verify::plan).reads().takes(1, 60),
    Command::new(
        "READ DEFECT DATA(12)",
        &[0xb7, 0x1f, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, NACA],
        defects::plan_12,
    )
    .reads(),
];

/// It asks by itself whether the medium is there and may be written: that the last one failed is no obstacle.
const fn sanitize(name: &'static str, usage: &'static [u8], plan: Planner) -> Command {
    Command::new(name, usage, plan).action().reserved(Reserved::Write).takes(60, 3600)
}

/// They look at the reservations, so reservations do not stop them.
const fn persistent_in(name: &'static str, usage: &'static [u8]) -> Command {
    Command::new(name, usage, persistent::plan_in).action().reserved(Reserved::Own)
}

const fn persistent_out(name: &'static str, usage: &'static [u8]) -> Command {
    Command::new(name, usage, persistent::plan_out).action().reserved(Reserved::Own)
}

/// The bit of the CONTROL byte that is looked at.
const NACA: u8 = 0x04;

/// CDBs of which flags in byte 1, LBA and length are looked at.
const fn ten(opcode: u8, flags: u8) -> [u8; 10] {
    [opcode, flags, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, NACA]
}

const fn twelve(opcode: u8, flags: u8) -> [u8; 12] {
    [opcode, flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA]
}

const fn sixteen(opcode: u8, flags: u8) -> [u8; 16] {
    [opcode, flags, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, NACA]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_names_no_command_twice() {
        let keys: Vec<_> = TABLE.iter().map(|command| (command.opcode, command.service_action)).collect();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:x?}");
    }

    #[test]
    fn an_operation_code_has_service_actions_for_all_of_its_commands_or_for_none() {
        for pair in TABLE.windows(2).filter(|pair| pair[0].opcode == pair[1].opcode) {
            assert!(pair.iter().all(|command| command.service_action.is_some()), "{}", pair[0].name);
        }
    }

    #[test]
    fn usage_data_are_as_long_as_the_group_code_says() {
        for command in TABLE {
            let length = match command.opcode >> 5 {
                0 => 6,
                1 | 2 => 10,
                4 => 16,
                5 => 12,
                _ => panic!("{} has no group", command.name),
            };
            assert_eq!(command.usage.len(), length, "{}", command.name);
        }
    }
}
