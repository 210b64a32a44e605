//! Errors of commands, and their sense data.

use block::DeviceError;
use scsi::{Condition, SenseKey, asc};
use volume::Unsaved;

/// The status of a command that does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// CHECK CONDITION with these sense data.
    Check(Condition),
    /// RESERVATION CONFLICT, which comes without sense data.
    ReservationConflict,
}

impl From<Condition> for Failure {
    fn from(condition: Condition) -> Failure {
        Failure::Check(condition)
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Failure {
        Failure::Check(condition(error))
    }
}

impl From<Unsaved> for Failure {
    fn from(_: Unsaved) -> Failure {
        Condition::new(SenseKey::HardwareError, asc::INTERNAL_TARGET_FAILURE).into()
    }
}

/// The sense data for a device error.
///
/// A full thin pool is never a medium error: ESXi pauses the virtual machine on 07/27/07 and loses it on 03.
/// A device that does not answer is reported as "becoming ready", for which initiators wait; at other
/// qualifiers they give up.
pub(crate) fn condition(error: DeviceError) -> Condition {
    match error {
        DeviceError::OutOfRange => Condition::new(SenseKey::IllegalRequest, asc::LBA_OUT_OF_RANGE),
        DeviceError::ReadOnly => Condition::new(SenseKey::DataProtect, asc::WRITE_PROTECTED),
        DeviceError::Unsupported => {
            Condition::new(SenseKey::IllegalRequest, asc::INVALID_COMMAND_OPERATION_CODE)
        }
        DeviceError::NoSpace => Condition::new(SenseKey::DataProtect, asc::SPACE_ALLOCATION_FAILED),
        DeviceError::Unreadable(lba) => {
            Condition::new(SenseKey::MediumError, asc::UNRECOVERED_READ_ERROR).with_information(lba.0)
        }
        DeviceError::Unwritable(lba) => {
            Condition::new(SenseKey::MediumError, asc::WRITE_ERROR).with_information(lba.0)
        }
        // A reservation behind a gateway is not the initiator's to clear: for it, the device is away.
        DeviceError::NotReady | DeviceError::Reserved => {
            Condition::new(SenseKey::NotReady, asc::BECOMING_READY)
        }
        // No waiting helps: a host with another path uses that.
        DeviceError::Fenced => Condition::new(SenseKey::NotReady, asc::MANUAL_INTERVENTION_REQUIRED),
        DeviceError::TimedOut => {
            Condition::new(SenseKey::AbortedCommand, asc::COMMAND_TIMEOUT_DURING_PROCESSING)
        }
        DeviceError::Cancelled => Condition::new(SenseKey::AbortedCommand, asc::IO_PROCESS_TERMINATED),
        // No block is named: which writes are lost is not known. Linux makes EIO of it, and does not try
        // again.
        DeviceError::WritesLost => Condition::new(SenseKey::MediumError, asc::WRITE_ERROR),
        // As little to be tried again: a newer write could be written over.
        DeviceError::Unsettled => Condition::new(SenseKey::HardwareError, asc::INTERNAL_TARGET_FAILURE),
    }
}
