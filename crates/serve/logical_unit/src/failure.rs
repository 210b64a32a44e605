//! Command errors and their sense data.

use block::DeviceError;
use scsi::{Condition, SenseKey, asc};
use volume::Unsaved;

/// The status of a command that does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// CHECK CONDITION with this sense data.
    Check(Condition),
    /// RESERVATION CONFLICT, which has no sense data.
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

/// Returns the sense data for a device error.
///
/// A full thin pool is never reported as a medium error: ESXi pauses the virtual machine on 07/27/07, but the
/// virtual machine fails on sense key 03. A device that does not respond is reported as "becoming ready", for
/// which initiators wait; with other qualifiers they give up.
pub(crate) fn condition(error: DeviceError) -> Condition {
    match error {
        DeviceError::OutOfRange => Condition::new(SenseKey::IllegalRequest, asc::LBA_OUT_OF_RANGE),
        DeviceError::ReadOnly => Condition::new(SenseKey::DataProtect, asc::WRITE_PROTECTED),
        DeviceError::Unsupported => Condition::new(
            SenseKey::IllegalRequest,
            asc::INVALID_COMMAND_OPERATION_CODE,
        ),
        DeviceError::NoSpace => Condition::new(SenseKey::DataProtect, asc::SPACE_ALLOCATION_FAILED),
        DeviceError::Unreadable(lba) => {
            Condition::new(SenseKey::MediumError, asc::UNRECOVERED_READ_ERROR)
                .with_information(lba.0)
        }
        DeviceError::Unwritable(lba) => {
            Condition::new(SenseKey::MediumError, asc::WRITE_ERROR).with_information(lba.0)
        }
        // An initiator cannot clear a reservation that another host holds on the device behind a gateway. To
        // the initiator, the device is unavailable.
        DeviceError::NotReady | DeviceError::Reserved => {
            Condition::new(SenseKey::NotReady, asc::BECOMING_READY)
        }
        // Waiting does not help. A host with another path fails over to it.
        DeviceError::Fenced => {
            Condition::new(SenseKey::NotReady, asc::MANUAL_INTERVENTION_REQUIRED)
        }
        DeviceError::TimedOut => Condition::new(
            SenseKey::AbortedCommand,
            asc::COMMAND_TIMEOUT_DURING_PROCESSING,
        ),
        DeviceError::Cancelled => {
            Condition::new(SenseKey::AbortedCommand, asc::IO_PROCESS_TERMINATED)
        }
        // The sense data names no block, because it is unknown which writes are lost. Linux turns this error
        // into EIO and does not retry.
        DeviceError::WritesLost => Condition::new(SenseKey::MediumError, asc::WRITE_ERROR),
        // The initiator must not retry this command either: a retry could overwrite a newer write.
        DeviceError::Unsettled => {
            Condition::new(SenseKey::HardwareError, asc::INTERNAL_TARGET_FAILURE)
        }
    }
}
