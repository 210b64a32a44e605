//! `linerate scsi VERB URL` sends one SCSI command, given by its name, and prints the response, decoded or as
//! JSON.
//!
//! The crate [`inspect`] implements the queries. This module implements commands that write, commands without
//! a verb ([`blocks`]), and [`settings`].

mod blocks;
mod settings;
mod unit;

use clap::Subcommand;
use inspect::commands;
use iscsi_client::verbs::{PersistentReserve, StartStop};
use iscsi_client::{Lun, Management, TaskManagementResult, Unit};

use self::blocks::{
    CompareArguments, ExtentArguments, StatusArguments, VpdArguments, WriteSameArguments,
};
use self::unit::UnitArguments;
use crate::failure::{Failure, FailureKind};
use crate::output::say;
use crate::scsi::blocks::{RawArguments, SanitizeArguments};
use crate::scsi::settings::{
    KeyArguments, ModesArguments, PreemptArguments, RegisterArguments, ReserveArguments,
};

#[derive(Debug, clap::Args)]
pub(crate) struct ScsiArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// INQUIRY: vendor, product and type
    Inquiry(UnitArguments),
    /// INQUIRY: vital product data, all pages or one
    Vpd(VpdArguments),
    /// TEST UNIT READY: readiness to read and write
    Ready(UnitArguments),
    /// REQUEST SENSE: pending sense data, such as the progress of an operation
    Sense(UnitArguments),
    /// MODE SENSE: mode pages, all or one; MODE SELECT with --set
    Modes(ModesArguments),
    /// READ CAPACITY: number and size of blocks
    Capacity(UnitArguments),
    /// GET LBA STATUS: allocated blocks
    LbaStatus(StatusArguments),
    /// REPORT LUNS: LUNs of the target
    Luns(UnitArguments),
    /// REPORT TARGET PORT GROUPS: preferred ports (ALUA)
    PortGroups(UnitArguments),
    /// REPORT SUPPORTED OPERATION CODES: supported commands
    Opcodes(UnitArguments),
    /// PERSISTENT RESERVE IN: registrations and the reservation
    Registrations(UnitArguments),
    /// PERSISTENT RESERVE OUT: register a key, replacing an earlier one
    Register(RegisterArguments),
    /// PERSISTENT RESERVE OUT: remove our registration, and our reservation with it
    Unregister(KeyArguments),
    /// PERSISTENT RESERVE OUT: reserve the LUN
    Reserve(ReserveArguments),
    /// PERSISTENT RESERVE OUT: release our reservation
    Release(KeyArguments),
    /// PERSISTENT RESERVE OUT: clear the reservation and all registrations
    Clear(KeyArguments),
    /// PERSISTENT RESERVE OUT: remove the registrations of another key, and take over its reservation
    Preempt(PreemptArguments),
    /// UNMAP: deallocate blocks; asks for confirmation if the LUN is not empty
    Unmap(ExtentArguments),
    /// WRITE SAME: write one block to many addresses; asks for confirmation if the LUN is not empty
    WriteSame(WriteSameArguments),
    /// COMPARE AND WRITE: atomically replace blocks if they have the expected content
    #[command(
        override_usage = "linerate scsi compare-and-write [OPTIONS] --expect <FILE>\n           --write <FILE> <URL> <LBA>"
    )]
    CompareAndWrite(CompareArguments),
    /// SANITIZE: make all previously written data unreadable; asks for confirmation
    #[command(
        override_usage = "linerate scsi sanitize [OPTIONS] <URL> <--overwrite|\n           --block-erase|--crypto-erase|--exit-failure-mode>"
    )]
    Sanitize(SanitizeArguments),
    /// SYNCHRONIZE CACHE: flush everything to stable storage
    Sync(UnitArguments),
    /// START STOP UNIT: start the medium
    Start(UnitArguments),
    /// START STOP UNIT: flush the cache and stop the medium
    Stop(UnitArguments),
    /// ABORT TASK SET: abort this session's commands on the LUN
    AbortTaskSet(UnitArguments),
    /// CLEAR TASK SET: abort all sessions' commands on the LUN
    ClearTaskSet(UnitArguments),
    /// LOGICAL UNIT RESET: abort all commands on the LUN, and reset it
    ResetLun(UnitArguments),
    /// TARGET WARM RESET: reset all LUNs of the target
    ResetTarget(UnitArguments),
    /// Send a command as raw bytes
    Raw(RawArguments),
}

/// Runs the command.
pub(crate) fn run(arguments: &ScsiArguments) -> Result<(), Failure> {
    match &arguments.verb {
        Verb::Inquiry(asked) => asked.ask(commands::inquiry),
        Verb::Vpd(asked) => asked
            .ask
            .ask(async |unit| commands::vpd(unit, asked.page.unwrap_or(0), asked.hex).await),
        Verb::Ready(asked) => {
            asked.carry_out("ready", Unit::test_unit_ready)?;
            if !asked.json {
                say("ready\n");
            }
            Ok(())
        }
        Verb::Sense(asked) => asked.ask(commands::sense),
        Verb::Modes(asked) => asked.run(),
        Verb::Capacity(asked) => asked.ask(commands::capacity),
        Verb::LbaStatus(asked) => asked
            .ask
            .ask(async |unit| commands::lba_status(unit, asked.lba, asked.count).await),
        Verb::Luns(asked) => asked.ask(commands::luns),
        Verb::PortGroups(asked) => asked.ask(commands::port_groups),
        Verb::Opcodes(asked) => asked.ask(commands::opcodes),
        Verb::Registrations(asked) => asked.ask(commands::registrations),
        Verb::Register(RegisterArguments { ours, persist }) => ours.reserve(
            "register",
            PersistentReserve::RegisterAndIgnoreExistingKey {
                new_key: ours.key,
                persist: *persist,
            },
        ),
        Verb::Unregister(ours) => ours.reserve(
            "unregister",
            PersistentReserve::Register {
                key: ours.key,
                new_key: 0,
                persist: false,
            },
        ),
        Verb::Reserve(ReserveArguments { ours, kind }) => ours.reserve(
            "reserve",
            PersistentReserve::Reserve {
                key: ours.key,
                kind: *kind,
            },
        ),
        Verb::Release(ours) => ours.release(),
        Verb::Clear(ours) => ours.reserve("clear", PersistentReserve::Clear { key: ours.key }),
        Verb::Preempt(asked) => asked.run(),
        Verb::Unmap(asked) => asked.unmap(),
        Verb::WriteSame(asked) => asked.run(),
        Verb::CompareAndWrite(asked) => asked.run(),
        Verb::Sanitize(asked) => asked.run(),
        Verb::Sync(asked) => asked.carry_out("sync", Unit::synchronize_cache),
        Verb::Start(asked) => asked.carry_out("start", async |unit| {
            unit.start_stop(StartStop::Start).await
        }),
        Verb::Stop(asked) => {
            asked.carry_out("stop", async |unit| unit.start_stop(StartStop::Stop).await)
        }
        Verb::AbortTaskSet(asked) => manage("abort-task-set", asked, Management::AbortTaskSet),
        Verb::ClearTaskSet(asked) => manage("clear-task-set", asked, Management::ClearTaskSet),
        Verb::ResetLun(asked) => manage("reset-lun", asked, Management::LogicalUnitReset),
        Verb::ResetTarget(asked) => manage("reset-target", asked, |_| Management::TargetWarmReset),
        Verb::Raw(asked) => asked.run(),
    }
}

fn manage(
    verb: &'static str,
    asked: &UnitArguments,
    function: impl Fn(Lun) -> Management,
) -> Result<(), Failure> {
    asked.carry_out(verb, async |unit| {
        let management = function(unit.lun());
        match unit.target().manage(management).await? {
            TaskManagementResult::FunctionComplete | TaskManagementResult::FunctionSucceeded => {
                Ok(())
            }
            refused @ TaskManagementResult::LunDoesNotExist => Err(Failure::new(
                FailureKind::NotFound,
                format_args!("{management}: {refused}"),
            )),
            refused => Err(Failure::failed(format_args!("{management}: {refused}"))),
        }
    })
}
