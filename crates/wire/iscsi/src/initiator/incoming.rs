//! PDUs whose data segments are being received.

use crate::pdu::{AsyncMessage, Reject, Residual, Response, TextResponse};
use crate::slab::Key;

/// Action when a data segment has been received.
#[derive(Debug, Default)]
pub(super) enum Incoming {
    /// None.
    #[default]
    Nothing,
    /// Drop it.
    Dropped,
    /// It belongs to a Data-In; with the status, if it brought one.
    Data {
        key: Key,
        length: u32,
        done: Option<CommandStatus>,
    },
    /// It is sense data, or empty.
    Response(CommandStatus),
    Text(TextResponse, Key),
    /// It is the data of a ping response.
    PingResponse(Key),
    /// It belongs to an asynchronous message.
    Message(Box<AsyncMessage>),
    /// It is the rejected header.
    Reject(Reject),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CommandStatus {
    pub(super) key: Key,
    pub(super) response: Response,
    pub(super) status: u8,
    pub(super) residual: Residual,
    pub(super) read_residual: Residual,
}
