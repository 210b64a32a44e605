//! A session as `iscsi_client` sees it: what carries SCSI commands.

use std::sync::Arc;

use hyperscsi::{DATA_BYTES_MAX, Function, FunctionResult};
use iscsi_client::carrier::{Answer, Carrier};
use iscsi_client::{CommandError, CommandSpec, Ended, Lun, Management, Nexus, TaskManagementResult};
use reactor::Resident;

use crate::session::{Session, Shared};

/// A session from any thread.
pub(crate) struct HyperScsi {
    pub(crate) session: Resident<Session>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) nexus: Nexus,
}

/// The same, as [`iscsi_client::RemoteTarget`] holds it.
pub(crate) struct Carried(pub(crate) Arc<HyperScsi>);

impl Carrier for Carried {
    fn carry(&self, command: CommandSpec) -> Answer<'_, Ended> {
        match self.0.session.here() {
            Some(session) => Box::pin(session.request(command)),
            None => Box::pin(async {
                let ended = self.0.session.ask(|session| session.request(command)).await;
                ended.unwrap_or(Ended::unfinished(CommandError::ConnectionLost))
            }),
        }
    }

    fn manage(&self, management: Management) -> Answer<'_, Result<TaskManagementResult, CommandError>> {
        let (function, lun) = function(management);
        Box::pin(async move {
            let managed = self.0.session.with(async move |session| {
                let mut answer = session.manage(function, lun)?;
                let answered = reactor::timeout(session.reset_time(), answer.recv()).await;
                let result =
                    answered.map_err(|_| CommandError::TimedOut)?.ok_or(CommandError::ConnectionLost)?;
                Ok(meaning(result))
            });
            managed.await.unwrap_or(Err(CommandError::ConnectionLost))
        })
    }

    fn usable(&self) -> Answer<'_, Result<(), CommandError>> {
        Box::pin(async {
            let usable = self.0.session.with(async |session| session.usable().await).await;
            usable.unwrap_or(Err(CommandError::ConnectionLost))
        })
    }

    fn quiesced(&self) -> Answer<'_, Result<(), CommandError>> {
        Box::pin(async {
            let quiesced = self.0.session.with(async |session| {
                reactor::catch_up().await;
                session.quiesced().await
            });
            let quiesced = quiesced.await;
            quiesced.unwrap_or(Err(CommandError::ConnectionLost))
        })
    }

    fn close(&self) -> Answer<'_, ()> {
        // A thread that does not respond has ended, with the session.
        Box::pin(async {
            let _ = self.0.session.with(async |session| session.close().await).await;
        })
    }

    fn reinstatements(&self) -> u64 {
        self.0.shared.reinstatements()
    }

    fn is_lost(&self) -> bool {
        self.0.shared.is_lost()
    }

    fn replayed(&self) {
        self.0.shared.replayed();
    }

    fn data_bytes_max(&self) -> usize {
        DATA_BYTES_MAX
    }

    fn nexus(&self) -> Nexus {
        self.0.nexus.clone()
    }
}

/// The protocol has the functions of iSCSI under iSCSI's numbers.
fn function(management: Management) -> (Function, Lun) {
    let (code, lun) = match management {
        Management::AbortTaskSet(lun) => (2, lun),
        Management::ClearAca(lun) => (3, lun),
        Management::ClearTaskSet(lun) => (4, lun),
        Management::LogicalUnitReset(lun) => (5, lun),
        Management::TargetWarmReset => (6, Lun(0)),
        Management::TargetColdReset => (7, Lun(0)),
        Management::QueryTaskSet(lun) => (10, lun),
        Management::ITNexusReset(lun) => (11, lun),
        Management::QueryAsynchronousEvent(lun) => (12, lun),
    };
    (Function::from(code), lun)
}

fn meaning(result: FunctionResult) -> TaskManagementResult {
    match result {
        FunctionResult::Complete => TaskManagementResult::FunctionComplete,
        FunctionResult::Succeeded => TaskManagementResult::FunctionSucceeded,
        FunctionResult::Rejected => TaskManagementResult::FunctionRejected,
        FunctionResult::IncorrectLun => TaskManagementResult::LunDoesNotExist,
    }
}
