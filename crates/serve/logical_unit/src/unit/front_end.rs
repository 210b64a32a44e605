//! Replies to commands that the front end ends: their transfer failed, or they were aborted.

use block::DeviceError;
use scsi::{Condition, SenseKey, asc};

use crate::failure;
use crate::plan::Reply;
use crate::unit::LogicalUnit;

/// Why the data of a command did not arrive. The sense data are those of RFC 7143 section 11.4.7.2, the sense
/// key is always ABORTED COMMAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferFault {
    /// A digest did not match.
    Digest,
    /// Data that were not requested, or not negotiated.
    UnexpectedUnsolicited,
    /// Less than was announced.
    NotEnoughUnsolicited,
}

/// Errors in the declaration of a command by its transport, regardless of the CDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misdeclared {
    /// It moves data both ways: no command of ours does.
    BothDirections,
    /// Its task attribute is ACA. There never is an auto contingent allegiance here (NORMACA is zero).
    Aca,
}

impl LogicalUnit {
    /// The reply to a command whose data did not arrive.
    pub fn transfer_failed(&self, fault: TransferFault) -> Reply {
        let code = match fault {
            TransferFault::Digest => asc::PROTOCOL_SERVICE_CRC_ERROR,
            TransferFault::UnexpectedUnsolicited => asc::UNEXPECTED_UNSOLICITED_DATA,
            TransferFault::NotEnoughUnsolicited => asc::NOT_ENOUGH_UNSOLICITED_DATA,
        };
        self.refuse(&Condition::new(SenseKey::AbortedCommand, code))
    }

    /// The reply to a command that was aborted during a device request.
    pub fn gave_up(&self, error: DeviceError) -> Reply {
        self.refuse(&failure::condition(error))
    }

    /// The reply to a command with an invalid declaration.
    pub fn misdeclared(&self, fault: Misdeclared) -> Reply {
        self.refuse(&match fault {
            Misdeclared::BothDirections => Condition::INVALID_INFORMATION_UNIT,
            // SAM-5 8.9.
            Misdeclared::Aca => Condition::new(SenseKey::IllegalRequest, asc::INVALID_MESSAGE_ERROR),
        })
    }

    fn refuse(&self, condition: &Condition) -> Reply {
        Reply::check(condition, self.look(|state| state.sense_format()))
    }
}
