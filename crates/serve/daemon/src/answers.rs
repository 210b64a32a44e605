//! Requests on the control socket of a running server, and their replies.

use crate::control::{FaultMode, Reply, Request};
use crate::live::{Live, ReloadOptions, Reloaded};
use backends::Failure;
use front_end_core::AUDIT;

impl Live {
    /// Handles one request. Blocks for at most a second, unless it changes the configuration; the audit says `by` whom.
    pub fn answer(&self, request: &Request, by: &str) -> Reply {
        match request {
            Request::Sessions => Reply::Sessions { sessions: self.sessions() },
            Request::Targets => Reply::Targets { targets: self.targets() },
            Request::Drop { sessions, force } => match self.drop_sessions(sessions, *force) {
                Ok(0) => {
                    Reply::Refused { reason: format!("no session has the TSIH or the initiator {sessions}") }
                }
                Ok(sessions) => Reply::Dropped { sessions },
                Err(reason) => Reply::Refused { reason },
            },
            Request::Volumes => Reply::Volumes { volumes: self.volumes() },
            Request::Metrics => Reply::Metrics { text: self.metrics() },
            Request::Usage => Reply::Usage { text: self.usage() },
            Request::Reload { dry_run, force } => {
                reloaded(self.reload(ReloadOptions { dry_run: *dry_run, force: *force }, by))
            }
            Request::Change { change, dry_run, force } => {
                reloaded(self.change(change, ReloadOptions { dry_run: *dry_run, force: *force }, by))
            }
            Request::Raid { volume, set, order } => reloaded(self.raid(volume, *set, order, by)),
            Request::Fault { volume, mode } => switch(self, volume, *mode, by),
            Request::Events => Reply::Refused {
                reason: "events are told on the control socket, or by Live::events".to_owned(),
            },
        }
    }
}

fn reloaded(outcome: Result<Reloaded, Failure>) -> Reply {
    match outcome {
        Ok(Reloaded { changes, notes, failed }) => Reply::Reloaded { changes, notes, failed },
        Err(failure) => Reply::Refused { reason: failure.to_string() },
    }
}

fn switch(live: &Live, name: &str, mode: FaultMode, by: &str) -> Reply {
    let switched = live.now().volumes.named(name).map(|volume| volume.switch(mode));
    let reason = match switched {
        Some(true) => {
            tracing::info!(target: AUDIT, by, volume = name, ?mode, "fault");
            return Reply::Done;
        }
        Some(false) => format!("volume {name} has no fault: layer; serve it as fault:[…] to make it fail"),
        None => format!("no volume named {name} is served"),
    };
    Reply::Refused { reason }
}
