//! PDUs whose data segments are being received, and requests other than SCSI commands.

use std::time::Instant;

use super::event::ConnectionId;
use crate::pdu::{LogoutRequest, NopOut, TaskManagementRequest, TextRequest};
use crate::serial::Sn;
use crate::slab::Key;

/// Action when a data segment has been received.
#[derive(Debug, Default)]
pub(super) enum Incoming {
    /// None.
    #[default]
    Nothing,
    /// Drop it.
    Dropped,
    /// It is immediate data.
    Immediate { key: Key, length: u32 },
    /// It belongs to a Data-Out.
    DataOut { key: Key, offset: u32, length: u32, is_final: bool },
    /// It completes a request.
    Request(Box<Request>),
}

/// A request with a CmdSN that is not a SCSI command.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) connection: ConnectionId,
    pub(super) since: Instant,
    pub(super) kind: RequestKind,
    /// Text or ping data.
    pub(super) data: Vec<u8>,
    pub(super) cmd_sn: Sn,
    pub(super) immediate: bool,
}

/// The type of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestKind {
    Nop(NopOut),
    Text(TextRequest),
    Tmf(TaskManagementRequest),
    Logout(LogoutRequest),
}
