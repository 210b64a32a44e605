//! Protocol data units (RFC 7143 section 11): parsing and building the forty-eight bytes of each header.
//!
//! Target and initiator share these types. Each PDU is defined by a table of its fields and their positions.
//! A PDU's `parse` takes a [`Bhs`], and fails with the rule that the header violates; its `emit` is the
//! inverse. PDUs that can never be valid cannot be built. Data segments are not copied: a PDU contains the
//! length of its data, not the content. Checks that need the state of a session (the command window, the
//! order of offsets) are made by the session.
//!
//! Reserved fields are ignored on reception and sent as zero (section 11.1).

pub mod ahs;
mod bhs;
mod command;
mod layout;
mod session;
#[cfg(test)]
mod tests;

pub use ahs::Ahs;
pub use bhs::{
    BHS_BYTES, Bhs, Cid, Isid, Itt, Lun, Malformed, Opcode, Sn, TargetNumbers, Tsih, Ttt, pad_bytes,
};
pub use command::{
    DataIn, DataInStatus, DataOut, R2t, Residual, Response, ScsiCommand, ScsiResponse,
    TaskAttribute, TaskManagementFunction, TaskManagementRequest, TaskManagementResponse,
    TaskManagementResult,
};
pub use session::{
    AsyncEvent, AsyncMessage, LoginRequest, LoginResponse, LoginStatus, LogoutReason,
    LogoutRequest, LogoutResponse, LogoutResult, NopIn, NopOut, Reject, RejectReason, SnackKind,
    SnackRequest, Stage, TextRequest, TextResponse,
};

macro_rules! any_pdu {
    ($($pdu:ident)*) => {
        /// A header of any type.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each variant is the PDU of its name")]
        pub enum Pdu {
            $($pdu($pdu),)*
        }

        impl Pdu {
            /// Parses a header of any type.
            pub fn parse(bhs: &Bhs) -> Result<Pdu, Malformed> {
                match bhs.opcode().ok_or(Malformed::UnknownOpcode)? {
                    $(Opcode::$pdu => $pdu::parse(bhs).map(Pdu::$pdu),)*
                }
            }

            /// Builds the header.
            pub fn emit(&self) -> Bhs {
                match self {
                    $(Pdu::$pdu(pdu) => pdu.emit(),)*
                }
            }
        }
    };
}

any_pdu! {
    NopOut ScsiCommand TaskManagementRequest LoginRequest TextRequest DataOut LogoutRequest SnackRequest
    NopIn ScsiResponse TaskManagementResponse LoginResponse TextResponse DataIn LogoutResponse R2t AsyncMessage Reject
}
