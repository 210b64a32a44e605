//! `linerate scsi VERB URL`: one SCSI command, by its name, and the answer in words or as JSON.
//!
//! What asks is in [`inspect`]; here are [`blocks`] (which writes), [`modes`], [`reservations`], [`sanitize`], and [`raw`], which
//! sends what has no verb.

mod blocks;
mod modes;
mod raw;
mod reservations;
mod sanitize;
mod unit;

use clap::Subcommand;
use initiator::verbs::{PersistentReserve, StartStop};
use initiator::{Lun, Management, TaskManagementResult, Unit};
use inspect::commands;

use self::blocks::{CompareArguments, ExtentArguments, StatusArguments, VpdArguments, WriteSameArguments};
use self::modes::ModesArguments;
use self::raw::RawArguments;
use self::reservations::{KeyArguments, PreemptArguments, RegisterArguments, ReserveArguments};
use self::sanitize::SanitizeArguments;
use self::unit::{AskArguments, UnitArguments};
use crate::failure::{Failure, Kind};
use crate::output::say;

/// Sends one SCSI command to a LUN and tells the answer
#[derive(Debug, clap::Args)]
pub(crate) struct ScsiArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// INQUIRY: who made it, and what it is
    Inquiry(AskArguments),
    /// INQUIRY: vital product data, the list of pages or one of them
    Vpd(VpdArguments),
    /// TEST UNIT READY: whether it can read and write
    Ready(UnitArguments),
    /// REQUEST SENSE: what it has to say of its own accord, such as how far an operation is
    Sense(AskArguments),
    /// MODE SENSE: how it is set, all pages or one; MODE SELECT with --set
    Modes(ModesArguments),
    /// READ CAPACITY: how many blocks there are, and how long they are
    Capacity(AskArguments),
    /// GET LBA STATUS: which blocks take space
    LbaStatus(StatusArguments),
    /// REPORT LUNS: what the target shows us
    Luns(AskArguments),
    /// REPORT TARGET PORT GROUPS: by which ports it is best reached (ALUA)
    PortGroups(AskArguments),
    /// REPORT SUPPORTED OPERATION CODES: which commands it knows
    Opcodes(AskArguments),
    /// PERSISTENT RESERVE IN: who is registered, and who has reserved it
    Registrations(AskArguments),
    /// PERSISTENT RESERVE OUT: registers us with a key, in place of one before
    Register(RegisterArguments),
    /// PERSISTENT RESERVE OUT: ends our registration, and our reservation with it
    Unregister(KeyArguments),
    /// PERSISTENT RESERVE OUT: reserves it
    Reserve(ReserveArguments),
    /// PERSISTENT RESERVE OUT: ends our reservation
    Release(KeyArguments),
    /// PERSISTENT RESERVE OUT: ends the reservation and all registrations
    Clear(KeyArguments),
    /// PERSISTENT RESERVE OUT: ends the registrations of another key, and takes its reservation
    Preempt(PreemptArguments),
    /// UNMAP: gives blocks back; asks first if something is on the LUN
    Unmap(ExtentArguments),
    /// WRITE SAME: writes one block to many places; asks first if something is on the LUN
    WriteSame(WriteSameArguments),
    /// COMPARE AND WRITE: replaces blocks if they are what is expected, in one step
    CompareAndWrite(CompareArguments),
    /// SANITIZE: makes everything that was ever written unreadable; asks first
    Sanitize(SanitizeArguments),
    /// SYNCHRONIZE CACHE: everything written so far onto stable storage
    Sync(UnitArguments),
    /// START STOP UNIT: makes the medium ready
    Start(UnitArguments),
    /// START STOP UNIT: flushes the cache and stops the medium
    Stop(UnitArguments),
    /// ABORT TASK SET: ends this session's commands on the LUN
    AbortTaskSet(UnitArguments),
    /// CLEAR TASK SET: ends all sessions' commands on the LUN
    ClearTaskSet(UnitArguments),
    /// LOGICAL UNIT RESET: ends all commands on the LUN, and resets it
    ResetLun(UnitArguments),
    /// TARGET WARM RESET: resets all of the target's LUNs
    ResetTarget(UnitArguments),
    /// Any command, by its bytes
    Raw(RawArguments),
}

/// Runs the command.
pub(crate) fn run(arguments: &ScsiArguments) -> Result<(), Failure> {
    match &arguments.verb {
        Verb::Inquiry(asked) => asked.ask(commands::inquiry),
        Verb::Vpd(asked) => {
            asked.ask.ask(async |unit| commands::vpd(unit, asked.page.unwrap_or(0), asked.hex).await)
        }
        Verb::Ready(asked) => asked.carry_out(Unit::test_unit_ready).map(|()| say("ready\n")),
        Verb::Sense(asked) => asked.ask(commands::sense),
        Verb::Modes(asked) => asked.run(),
        Verb::Capacity(asked) => asked.ask(commands::capacity),
        Verb::LbaStatus(asked) => {
            asked.ask.ask(async |unit| commands::lba_status(unit, asked.lba, asked.count).await)
        }
        Verb::Luns(asked) => asked.ask(commands::luns),
        Verb::PortGroups(asked) => asked.ask(commands::port_groups),
        Verb::Opcodes(asked) => asked.ask(commands::opcodes),
        Verb::Registrations(asked) => asked.ask(inspect::reservations::registrations),
        Verb::Register(RegisterArguments { ours, persist }) => {
            ours.reserve(PersistentReserve::RegisterAndIgnoreExistingKey {
                new_key: ours.key,
                persist: *persist,
            })
        }
        Verb::Unregister(ours) => {
            ours.reserve(PersistentReserve::Register { key: ours.key, new_key: 0, persist: false })
        }
        Verb::Reserve(ReserveArguments { ours, kind }) => {
            ours.reserve(PersistentReserve::Reserve { key: ours.key, kind: *kind })
        }
        Verb::Release(ours) => ours.release(),
        Verb::Clear(ours) => ours.reserve(PersistentReserve::Clear { key: ours.key }),
        Verb::Preempt(asked) => asked.run(),
        Verb::Unmap(asked) => asked.unmap(),
        Verb::WriteSame(asked) => asked.run(),
        Verb::CompareAndWrite(asked) => asked.run(),
        Verb::Sanitize(asked) => asked.run(),
        Verb::Sync(asked) => asked.carry_out(Unit::synchronize_cache),
        Verb::Start(asked) => asked.carry_out(async |unit| unit.start_stop(StartStop::Start).await),
        Verb::Stop(asked) => asked.carry_out(async |unit| unit.start_stop(StartStop::Stop).await),
        Verb::AbortTaskSet(asked) => manage(asked, Management::AbortTaskSet),
        Verb::ClearTaskSet(asked) => manage(asked, Management::ClearTaskSet),
        Verb::ResetLun(asked) => manage(asked, Management::LogicalUnitReset),
        Verb::ResetTarget(asked) => manage(asked, |_| Management::TargetWarmReset),
        Verb::Raw(asked) => asked.run(),
    }
}

fn manage(asked: &UnitArguments, function: impl Fn(Lun) -> Management) -> Result<(), Failure> {
    asked.with(async |unit| {
        let management = function(unit.lun());
        match unit.target().manage(management).await? {
            TaskManagementResult::FunctionComplete | TaskManagementResult::FunctionSucceeded => Ok(()),
            refused @ TaskManagementResult::LunDoesNotExist => {
                Err(Failure::new(Kind::NotFound, format_args!("{management}: {refused}")))
            }
            refused => Err(Failure::failed(format_args!("{management}: {refused}"))),
        }
    })
}
