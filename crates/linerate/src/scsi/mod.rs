//! `linerate scsi VERB URL`: one SCSI command, by its name, and the answer in words.
//!
//! [`inquiry`] asks what is there, [`tasks`] manages, [`raw`] sends what has no verb here. What a verb prints is an
//! [`Answer`]: words for people, or JSON.

mod answer;
mod inquiry;
mod medium;
mod raw;
mod tasks;
mod unit;

use clap::Subcommand;

use self::inquiry::{InquiryArguments, VpdArguments};
use self::raw::RawArguments;
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
