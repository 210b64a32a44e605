//! Requests on the control socket of a running server, and their replies.

use target::{ConnectionStatus, SessionStatus};

use crate::control::{Connection, FaultMode, Reply, Request, Session};
use crate::live::{Live, ReloadOptions, Reloaded};
use backends::Failure;

impl Live {
    /// Handles one request. Blocks for at most a second, unless it changes the configuration.
    pub fn answer(&self, request: &Request) -> Reply {
        match request {
            Request::Sessions => {
                Reply::Sessions { sessions: self.sessions().into_iter().map(session).collect() }
            }
            Request::Volumes => Reply::Volumes { volumes: self.volumes() },
            Request::Metrics => Reply::Metrics { text: self.metrics() },
            Request::Reload { dry_run, force } => {
                reloaded(self.reload(ReloadOptions { dry_run: *dry_run, force: *force }))
            }
            Request::Change { change, dry_run, force } => {
                reloaded(self.change(change, ReloadOptions { dry_run: *dry_run, force: *force }))
            }
            Request::Fault { volume, mode } => switch(self, volume, *mode),
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

fn switch(live: &Live, name: &str, mode: FaultMode) -> Reply {
    let switched = live.now().volumes.named(name).map(|volume| volume.switch(mode));
    let reason = match switched {
        Some(true) => return Reply::Done,
        Some(false) => format!("volume {name} has no fault: layer; serve it as fault:[…] to make it fail"),
        None => format!("no volume named {name} is served"),
    };
    Reply::Refused { reason }
}

fn session(status: SessionStatus) -> Session {
    Session {
        initiator: status.initiator,
        user: status.user,
        isid: status.isid,
        tsih: status.tsih,
        target: status.target,
        age_seconds: status.age.as_secs_f64(),
        core: status.core,
        connections: status.connections.iter().map(connection).collect(),
        parameters: status.parameters,
        in_flight: status.in_flight,
        commands: status.traffic.commands,
        read_bytes: status.traffic.read_bytes,
        written_bytes: status.traffic.written_bytes,
    }
}

fn connection(status: &ConnectionStatus) -> Connection {
    Connection { cid: status.cid, peer: status.peer, local: status.local }
}
