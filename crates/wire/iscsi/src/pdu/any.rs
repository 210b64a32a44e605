//! Any PDU: the dispatch from opcode to parser.

use super::*;

/// A header of any type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the PDU of its name")]
pub enum Pdu {
    NopOut(NopOut),
    ScsiCommand(ScsiCommand),
    TaskManagementRequest(TaskManagementRequest),
    LoginRequest(LoginRequest),
    TextRequest(TextRequest),
    DataOut(DataOut),
    LogoutRequest(LogoutRequest),
    SnackRequest(SnackRequest),
    NopIn(NopIn),
    ScsiResponse(ScsiResponse),
    TaskManagementResponse(TaskManagementResponse),
    LoginResponse(LoginResponse),
    TextResponse(TextResponse),
    DataIn(DataIn),
    LogoutResponse(LogoutResponse),
    R2t(R2t),
    AsyncMessage(AsyncMessage),
    Reject(Reject),
}

impl Pdu {
    /// Parses a header of any type.
    pub fn parse(bhs: &Bhs) -> Result<Pdu, Malformed> {
        Ok(match bhs.opcode().ok_or(Malformed::UnknownOpcode)? {
            Opcode::NopOut => Pdu::NopOut(NopOut::parse(bhs)?),
            Opcode::ScsiCommand => Pdu::ScsiCommand(ScsiCommand::parse(bhs)?),
            Opcode::TaskManagementRequest => Pdu::TaskManagementRequest(TaskManagementRequest::parse(bhs)?),
            Opcode::LoginRequest => Pdu::LoginRequest(LoginRequest::parse(bhs)?),
            Opcode::TextRequest => Pdu::TextRequest(TextRequest::parse(bhs)?),
            Opcode::DataOut => Pdu::DataOut(DataOut::parse(bhs)?),
            Opcode::LogoutRequest => Pdu::LogoutRequest(LogoutRequest::parse(bhs)?),
            Opcode::SnackRequest => Pdu::SnackRequest(SnackRequest::parse(bhs)?),
            Opcode::NopIn => Pdu::NopIn(NopIn::parse(bhs)?),
            Opcode::ScsiResponse => Pdu::ScsiResponse(ScsiResponse::parse(bhs)?),
            Opcode::TaskManagementResponse => {
                Pdu::TaskManagementResponse(TaskManagementResponse::parse(bhs)?)
            }
            Opcode::LoginResponse => Pdu::LoginResponse(LoginResponse::parse(bhs)?),
            Opcode::TextResponse => Pdu::TextResponse(TextResponse::parse(bhs)?),
            Opcode::DataIn => Pdu::DataIn(DataIn::parse(bhs)?),
            Opcode::LogoutResponse => Pdu::LogoutResponse(LogoutResponse::parse(bhs)?),
            Opcode::R2t => Pdu::R2t(R2t::parse(bhs)?),
            Opcode::AsyncMessage => Pdu::AsyncMessage(AsyncMessage::parse(bhs)?),
            Opcode::Reject => Pdu::Reject(Reject::parse(bhs)?),
        })
    }

    /// Builds the header.
    pub fn emit(&self) -> Bhs {
        match self {
            Pdu::NopOut(pdu) => pdu.emit(),
            Pdu::ScsiCommand(pdu) => pdu.emit(),
            Pdu::TaskManagementRequest(pdu) => pdu.emit(),
            Pdu::LoginRequest(pdu) => pdu.emit(),
            Pdu::TextRequest(pdu) => pdu.emit(),
            Pdu::DataOut(pdu) => pdu.emit(),
            Pdu::LogoutRequest(pdu) => pdu.emit(),
            Pdu::SnackRequest(pdu) => pdu.emit(),
            Pdu::NopIn(pdu) => pdu.emit(),
            Pdu::ScsiResponse(pdu) => pdu.emit(),
            Pdu::TaskManagementResponse(pdu) => pdu.emit(),
            Pdu::LoginResponse(pdu) => pdu.emit(),
            Pdu::TextResponse(pdu) => pdu.emit(),
            Pdu::DataIn(pdu) => pdu.emit(),
            Pdu::LogoutResponse(pdu) => pdu.emit(),
            Pdu::R2t(pdu) => pdu.emit(),
            Pdu::AsyncMessage(pdu) => pdu.emit(),
            Pdu::Reject(pdu) => pdu.emit(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_unknown_opcode_is_no_pdu() {
        let mut bhs = Bhs::new(Opcode::NopOut);
        bhs.set_u8(0, 0x1c);
        assert_eq!(Pdu::parse(&bhs), Err(Malformed::UnknownOpcode));
    }

    proptest! {
        #[test]
        fn every_opcode_leads_to_its_own_pdu(number in 0u8..64) {
            let mut bhs = Bhs::new(Opcode::NopOut);
            bhs.set_u8(0, number);
            match Pdu::parse(&bhs) {
                Ok(pdu) => prop_assert_eq!(pdu.emit().opcode(), bhs.opcode()),
                Err(broken) => prop_assert_ne!(broken, Malformed::WrongOpcode),
            }
        }
    }
}
