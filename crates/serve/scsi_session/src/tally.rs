//! The names of SCSI commands and responses in monitoring. `front_end_core` has the counters.

use front_end_core::Operation;
use logical_unit::{SenseData, SenseKey, Status, asc};

/// Returns the operation of a command with this operation code.
pub(crate) fn operation(code: u8) -> Operation {
    BY_CODE[usize::from(code)]
}

/// The operation of each operation code: a table lookup costs less than comparisons.
const BY_CODE: [Operation; 256] = {
    let mut table = [Operation::Other; 256];
    let mut at = 0;
    while at < 256 {
        table[at] = match at {
            0x08 | 0x28 | 0x88 | 0xa8 => Operation::Read,
            0x0a | 0x2a | 0x8a | 0xaa | 0x2e | 0x8e | 0xae | 0x9c => Operation::Write,
            0x35 | 0x91 => Operation::Flush,
            0x42 => Operation::Unmap,
            0x89 => Operation::CompareAndWrite,
            0x41 | 0x93 => Operation::WriteSame,
            0x83 => Operation::ExtendedCopy,
            _ => Operation::Other,
        };
        at += 1;
    }
    table
};

/// The outcome of an answer, for statistics.
pub(crate) enum Failure {
    /// GOOD.
    None,
    /// A unit attention of this kind.
    UnitAttention(&'static str),
    /// Any other failure, of this kind.
    Of(&'static str),
}

/// Classifies an answer by its status and sense data.
pub(crate) fn failure(status: Status, sense: Option<&SenseData>) -> Failure {
    match (status, sense) {
        (Status::Good | Status::ConditionMet, _) => Failure::None,
        (Status::Busy, _) => Failure::Of("busy"),
        (Status::ReservationConflict, _) => Failure::Of("reservation_conflict"),
        (Status::TaskSetFull, _) => Failure::Of("task_set_full"),
        (Status::TaskAborted, _) => Failure::Of("task_aborted"),
        (Status::CheckCondition, None) => Failure::Of("other"),
        (Status::CheckCondition, Some(sense)) if sense.key() == SenseKey::UnitAttention as u8 => {
            Failure::UnitAttention(attention(sense.asc()))
        }
        (Status::CheckCondition, Some(sense)) => Failure::Of(sense_key(sense.key())),
    }
}

fn sense_key(key: u8) -> &'static str {
    match key {
        key if key == SenseKey::NotReady as u8 => "not_ready",
        key if key == SenseKey::MediumError as u8 => "medium_error",
        key if key == SenseKey::HardwareError as u8 => "hardware_error",
        key if key == SenseKey::IllegalRequest as u8 => "illegal_request",
        key if key == SenseKey::DataProtect as u8 => "data_protect",
        key if key == SenseKey::AbortedCommand as u8 => "aborted_command",
        key if key == SenseKey::Miscompare as u8 => "miscompare",
        _ => "other",
    }
}

fn attention(code: u16) -> &'static str {
    match code {
        asc::POWER_ON_OR_RESET => "power_on",
        asc::BUS_DEVICE_RESET => "reset",
        asc::MEDIUM_MAY_HAVE_CHANGED => "medium_changed",
        asc::REPORTED_LUNS_DATA_CHANGED => "luns_changed",
        asc::INQUIRY_DATA_CHANGED => "inquiry_changed",
        asc::CAPACITY_DATA_CHANGED => "capacity_changed",
        asc::MODE_PARAMETERS_CHANGED => "mode_parameters_changed",
        asc::RESERVATIONS_PREEMPTED => "reservations_preempted",
        asc::RESERVATIONS_RELEASED => "reservations_released",
        asc::REGISTRATIONS_PREEMPTED => "registrations_preempted",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_its_codes() {
        for (code, name) in [
            (0x28, "read"),
            (0x8a, "write"),
            (0x91, "flush"),
            (0x42, "unmap"),
            (0x89, "caw"),
            (0x93, "write_same"),
            (0x83, "xcopy"),
            (0x12, "other"),
        ] {
            assert_eq!(operation(code).name(), name);
        }
    }

    #[test]
    fn what_an_initiator_is_told_has_its_kind() {
        use logical_unit::{Condition, Reply, SenseFormat};
        let kind = |reply: &Reply| match failure(reply.status, reply.sense.as_ref()) {
            Failure::None => "none".to_owned(),
            Failure::UnitAttention(kind) => format!("attention {kind}"),
            Failure::Of(kind) => kind.to_owned(),
        };
        let check = |key, code| Reply::check(&Condition::new(key, code), SenseFormat::Descriptor);
        assert_eq!(kind(&Reply::status(Status::Busy)), "busy");
        assert_eq!(
            kind(&check(SenseKey::UnitAttention, asc::CAPACITY_DATA_CHANGED)),
            "attention capacity_changed"
        );
        assert_eq!(kind(&check(SenseKey::MediumError, 0x1100)), "medium_error");
        assert_eq!(kind(&Reply::status(Status::Good)), "none");
    }
}
