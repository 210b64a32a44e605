//! Protocol data units (RFC 7143 section 11): the forty-eight bytes of each header, taken apart and put together.
//!
//! One PDU per file, shared by both roles. A PDU's `parse` takes a [`Bhs`] and says which rule it breaks, if it
//! breaks one; its `emit` is the way back. What cannot be legal cannot be built. Data segments stay where they
//! are: a PDU knows how long its data is, not what it says. Checks that need a session (the command window, the
//! order of offsets) belong to the session.
//!
//! Fields that the standard reserves are not looked at and are sent as zero (section 11.1).

pub mod ahs;
mod any;
mod async_message;
mod bhs;
mod data_in;
mod data_out;
mod login_request;
mod login_response;
mod logout_request;
mod logout_response;
mod malformed;
mod nop_in;
mod nop_out;
mod opcode;
mod r2t;
mod reject;
mod residual;
#[cfg(test)]
mod round_trip;
mod scsi_command;
mod scsi_response;
mod snack_request;
mod tag;
mod task_management_request;
mod task_management_response;
mod text_request;
mod text_response;

pub use ahs::Ahs;
pub use any::Pdu;
pub use async_message::{AsyncEvent, AsyncMessage};
pub use bhs::{BHS_BYTES, Bhs, TargetNumbers, pad_bytes};
pub use data_in::{DataIn, DataInStatus};
pub use data_out::DataOut;
pub use login_request::{LoginRequest, Stage};
pub use login_response::{LoginResponse, LoginStatus};
pub use logout_request::{LogoutReason, LogoutRequest};
pub use logout_response::{LogoutResponse, LogoutResult};
pub use malformed::Malformed;
pub use nop_in::NopIn;
pub use nop_out::NopOut;
pub use opcode::Opcode;
pub use r2t::R2t;
pub use reject::{Reject, RejectReason};
pub use residual::Residual;
pub use scsi_command::{ScsiCommand, TaskAttribute};
pub use scsi_response::{Response, ScsiResponse};
pub use snack_request::{SnackKind, SnackRequest};
pub use tag::{Cid, Isid, Itt, Lun, Tsih, Ttt};
pub use task_management_request::{TaskManagementFunction, TaskManagementRequest};
pub use task_management_response::{TaskManagementResponse, TaskManagementResult};
pub use text_request::TextRequest;
pub use text_response::TextResponse;
