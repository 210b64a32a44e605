//! `linerate scsi VERB URL`: one SCSI command, by its name, and the answer in words.
//!
//! [`inquiry`], [`modes`], [`lists`] and [`blocks`] ask what is there, [`reservations`] keeps others out, [`medium`] and
//! [`sanitize`] are about the medium as a whole, [`tasks`] manages, [`raw`] sends what has no verb here. What a verb prints is an
//! [`Answer`]: words for people, or JSON.

mod answer;
mod blocks;
mod inquiry;
mod lists;
mod medium;
mod modes;
mod raw;
mod reservations;
mod sanitize;
mod tasks;
mod unit;

use clap::Subcommand;

pub(crate) use self::reservations::registered;

use self::blocks::{CompareArguments, ExtentArguments, StatusArguments, WriteSameArguments};
use self::inquiry::{InquiryArguments, VpdArguments};
use self::modes::ModesArguments;
use self::raw::RawArguments;
use self::reservations::{KeyArguments, PreemptArguments, RegisterArguments, ReserveArguments};
use self::sanitize::SanitizeArguments;
use self::tasks::Function;
use self::unit::{AskArguments, UnitArguments};
use crate::failure::Failure;

/// Sends one SCSI command to a LUN and tells the answer
#[derive(Debug, clap::Args)]
pub(crate) struct ScsiArguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// INQUIRY: who made it, and what it is
    Inquiry(InquiryArguments),
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
        Verb::Inquiry(asked) => inquiry::inquiry(asked),
        Verb::Vpd(asked) => inquiry::vpd(asked),
        Verb::Ready(asked) => medium::ready(asked),
        Verb::Sense(asked) => medium::sense(asked),
        Verb::Modes(asked) => modes::modes(asked),
        Verb::Capacity(asked) => blocks::capacity(asked),
        Verb::LbaStatus(asked) => blocks::lba_status(asked),
        Verb::Luns(asked) => lists::luns(asked),
        Verb::PortGroups(asked) => lists::port_groups(asked),
        Verb::Opcodes(asked) => lists::opcodes(asked),
        Verb::Registrations(asked) => reservations::registrations(asked),
        Verb::Register(asked) => reservations::register(asked),
        Verb::Unregister(asked) => reservations::unregister(asked),
        Verb::Reserve(asked) => reservations::reserve(asked),
        Verb::Release(asked) => reservations::release(asked),
        Verb::Clear(asked) => reservations::clear(asked),
        Verb::Preempt(asked) => reservations::preempt(asked),
        Verb::Unmap(asked) => blocks::unmap(asked),
        Verb::WriteSame(asked) => blocks::write_same(asked),
        Verb::CompareAndWrite(asked) => blocks::compare_and_write(asked),
        Verb::Sanitize(asked) => sanitize::sanitize(asked),
        Verb::Sync(asked) => medium::sync(asked),
        Verb::Start(asked) => medium::start(asked),
        Verb::Stop(asked) => medium::stop(asked),
        Verb::AbortTaskSet(asked) => tasks::manage(asked, Function::AbortTaskSet),
        Verb::ClearTaskSet(asked) => tasks::manage(asked, Function::ClearTaskSet),
        Verb::ResetLun(asked) => tasks::manage(asked, Function::ResetLun),
        Verb::ResetTarget(asked) => tasks::manage(asked, Function::ResetTarget),
        Verb::Raw(asked) => raw::run(asked),
    }
}
