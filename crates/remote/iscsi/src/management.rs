//! Task management functions requested by a caller (SAM-5 clause 7, RFC 7143 section 11.5).
//!
//! Those of the session itself, to abort a dropped command, are not waited for: the end of the command is
//! their result.

use derive_more::Display;

use iscsi::initiator::TmfId;
use iscsi::pdu::{Lun, TaskManagementFunction as Function, TaskManagementResult};
use reactor::{Receiver, Sender, mailbox};

/// A task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Management {
    /// Ends all commands of this session on a logical unit.
    #[display("ABORT TASK SET")]
    AbortTaskSet(Lun),
    /// Ends all commands of all sessions on a logical unit.
    #[display("CLEAR TASK SET")]
    ClearTaskSet(Lun),
    /// Ends an auto contingent allegiance.
    #[display("CLEAR ACA")]
    ClearAca(Lun),
    /// Ends all commands on a logical unit and resets it to its power-on state. Persistent reservations stay,
    /// those by RESERVE(6) do not.
    #[display("LOGICAL UNIT RESET")]
    LogicalUnitReset(Lun),
    /// Resets all logical units.
    #[display("TARGET WARM RESET")]
    TargetWarmReset,
    /// Resets all logical units and ends all sessions, this one too.
    #[display("TARGET COLD RESET")]
    TargetColdReset,
    /// Queries whether any command of this session is outstanding on a logical unit (RFC 7144).
    #[display("QUERY TASK SET")]
    QueryTaskSet(Lun),
    /// Queries whether a unit attention is pending on a logical unit (RFC 7144).
    #[display("QUERY ASYNCHRONOUS EVENT")]
    QueryAsynchronousEvent(Lun),
    /// Ends all commands of this session on a logical unit, and its reservation by RESERVE(6) (RFC 7144).
    #[display("I_T NEXUS RESET")]
    ITNexusReset(Lun),
}

impl Management {
    pub(crate) fn function(self) -> Function {
        match self {
            Management::AbortTaskSet(_) => Function::AbortTaskSet,
            Management::ClearTaskSet(_) => Function::ClearTaskSet,
            Management::ClearAca(_) => Function::ClearAca,
            Management::LogicalUnitReset(_) => Function::LogicalUnitReset,
            Management::TargetWarmReset => Function::TargetWarmReset,
            Management::TargetColdReset => Function::TargetColdReset,
            Management::QueryTaskSet(_) => Function::QueryTaskSet,
            Management::QueryAsynchronousEvent(_) => Function::QueryAsynchronousEvent,
            Management::ITNexusReset(_) => Function::ITNexusReset,
        }
    }

    /// "Reserved" for the functions that concern the whole target (RFC 7143 section 11.5.3).
    pub(crate) fn lun(self) -> Lun {
        match self {
            Management::AbortTaskSet(lun)
            | Management::ClearTaskSet(lun)
            | Management::ClearAca(lun)
            | Management::LogicalUnitReset(lun)
            | Management::QueryTaskSet(lun)
            | Management::QueryAsynchronousEvent(lun)
            | Management::ITNexusReset(lun) => lun,
            Management::TargetWarmReset | Management::TargetColdReset => Lun(0),
        }
    }
}

/// Outstanding functions with a waiting caller.
#[derive(Default)]
pub(crate) struct Functions(Vec<(TmfId, Sender<TaskManagementResult>)>);

impl Functions {
    pub(crate) fn asked(&mut self, tmf: TmfId) -> Receiver<TaskManagementResult> {
        let (sender, receiver) = mailbox();
        self.0.push((tmf, sender));
        receiver
    }

    /// Completes a function; without a result the receiver is closed.
    pub(crate) fn answered(&mut self, tmf: TmfId, result: Option<TaskManagementResult>) {
        let Some(place) = self.0.iter().position(|(asked, _)| *asked == tmf) else { return };
        let (_, sender) = self.0.swap_remove(place);
        if let Some(result) = result {
            // The caller was dropped.
            let _ = sender.send(result);
        }
    }
}
