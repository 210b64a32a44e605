//! What a running server answers on its control socket.

use target::{ConnectionStatus, Server, SessionStatus};

use super::volumes::Volumes;
use crate::control::{Connection, FaultMode, Reply, Request, Session};

/// Answers one request. Blocks for at most a second.
pub(super) fn to(request: &Request, server: &Server, volumes: &Volumes) -> Reply {
    match request {
        Request::Sessions => {
            Reply::Sessions { sessions: server.sessions().into_iter().map(session).collect() }
        }
        Request::Fault { volume, mode } => switch(volumes, volume, *mode),
    }
}

fn switch(volumes: &Volumes, name: &str, mode: FaultMode) -> Reply {
    let reason = match volumes.named(name).map(|volume| volume.switch(mode)) {
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
