//! Sessions as `linerate server sessions` is told of them.

use iscsi_server::{ConnectionStatus, ISCSI, SessionStatus};

use crate::control::{Connection, Session};

pub(super) fn session(status: SessionStatus) -> Session {
    Session {
        front_end: ISCSI.to_owned(),
        initiator: status.initiator,
        user: status.user,
        isid: Some(status.isid),
        tsih: Some(status.tsih),
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
    Connection { cid: Some(status.cid), peer: status.peer.into(), local: status.local.to_string() }
}
