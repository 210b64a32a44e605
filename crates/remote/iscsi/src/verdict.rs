//! Mapping of a status and its sense data to a result of a block device.

use block::{DeviceError, Extent, Lba};
use scsi::{Sense, status};

/// What to do about a command that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing: it is done.
    Done,
    /// Send it again: the target reported something else instead of doing it.
    Retry,
    /// Send it again, after a while.
    RetryLater,
    /// Give up.
    Failed(DeviceError),
}

/// The one place where a SCSI status becomes a device's error. `extent` is what the command was about, and
/// `writing` whether it was to change it.
pub(crate) fn verdict(status: u8, sense: Option<Sense>, extent: Extent, writing: bool) -> Verdict {
    match status {
        status::GOOD | status::CONDITION_MET => Verdict::Done,
        status::CHECK_CONDITION => {
            sense.map_or(unexplained(extent, writing), |sense| from_sense(sense, extent, writing))
        }
        status::BUSY | status::TASK_SET_FULL => Verdict::RetryLater,
        status::TASK_ABORTED => Verdict::Retry,
        status::RESERVATION_CONFLICT => Verdict::Failed(DeviceError::Reserved),
        // ACA ACTIVE and what SAM-5 has no name for: as long as another initiator wants it so, the device is
        // not ours to use.
        _ => Verdict::Failed(DeviceError::NotReady),
    }
}

/// CHECK CONDITION without sense data, which RFC 7143 section 11.4.7 does not allow and istgt sends, for
/// instance to a write onto a protected disk: the cause is unknown, and nothing was carried out.
fn unexplained(extent: Extent, writing: bool) -> Verdict {
    Verdict::Failed(of_the_medium(extent.lba, writing))
}

fn of_the_medium(lba: Lba, writing: bool) -> DeviceError {
    if writing { DeviceError::Unwritable(lba) } else { DeviceError::Unreadable(lba) }
}

fn from_sense(sense: Sense, extent: Extent, writing: bool) -> Verdict {
    if sense.was_carried_out() {
        return Verdict::Done;
    }
    if sense.deferred {
        // It concerns an earlier command, and was reported instead of carrying out this one.
        return Verdict::Retry;
    }
    let lba = sense.information.map_or(extent.lba, Lba);
    let medium = of_the_medium(lba, writing);
    match (sense.key, sense.code, sense.qualifier) {
        (0x2, 0x04, 0x01) => Verdict::RetryLater, // becoming ready
        (0x2, _, _) => Verdict::Failed(DeviceError::NotReady),
        (0x5, 0x21, _) => Verdict::Failed(DeviceError::OutOfRange),
        (0x5, 0x25, _) => Verdict::Failed(DeviceError::NotReady), // the LUN is gone
        (0x5, _, _) => Verdict::Failed(DeviceError::Unsupported),
        (0x6, _, _) => Verdict::Retry, // UNIT ATTENTION: reported instead of carrying the command out
        (0x7, 0x27, 0x07) => Verdict::Failed(DeviceError::NoSpace),
        (0x7, _, _) => Verdict::Failed(DeviceError::ReadOnly),
        (0xb, _, _) => Verdict::Retry, // ABORTED COMMAND: "may be recovered by trying the command again"
        _ => Verdict::Failed(medium),  // MEDIUM ERROR, HARDWARE ERROR, MISCOMPARE, vendors' own
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXTENT: Extent = Extent { lba: Lba(100), blocks: block::Blocks(8) };

    fn check(sense: &[u8], writing: bool) -> Verdict {
        verdict(status::CHECK_CONDITION, Sense::parse(sense), EXTENT, writing)
    }

    #[test]
    fn an_error_of_the_medium_names_the_block_the_target_named() {
        let mut fixed = [0u8; 18];
        (fixed[0], fixed[2], fixed[6], fixed[12]) = (0xf0, 0x03, 103, 0x11);
        assert_eq!(check(&fixed, false), Verdict::Failed(DeviceError::Unreadable(Lba(103))));
        let descriptor = [0x72, 3, 0x0c, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 104];
        assert_eq!(check(&descriptor, true), Verdict::Failed(DeviceError::Unwritable(Lba(104))));
    }

    /// Once it was taken for NO SENSE, and a write that istgt had refused for one that was done.
    #[test]
    fn a_failure_without_an_explanation_is_a_failure() {
        for sense in [&[][..], &[0; 18]] {
            assert_eq!(check(sense, true), Verdict::Failed(DeviceError::Unwritable(Lba(100))));
        }
    }

    #[test]
    fn an_error_of_the_medium_without_a_block_is_at_the_first() {
        assert_eq!(check(&[0x70, 0, 0x03], false), Verdict::Failed(DeviceError::Unreadable(Lba(100))));
    }

    #[test]
    fn a_unit_attention_is_no_answer_to_the_command() {
        assert_eq!(check(&[0x70, 0, 0x06, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0], false), Verdict::Retry);
    }

    #[test]
    fn a_deferred_error_is_no_answer_to_the_command_and_tells_of_lost_writes() {
        let fixed = |form, key, code| [form, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, 0];
        for (key, is_loss) in [(0x1, false), (0x3, true), (0x4, true)] {
            assert_eq!(check(&fixed(0x71, key, 0x0c), true), Verdict::Retry);
            assert_eq!(Sense::parse(&fixed(0x71, key, 0x0c)).unwrap().tells_of_lost_write(), is_loss);
        }
        assert_eq!(check(&fixed(0x70, 0x1, 0), true), Verdict::Done);
        assert!(!Sense::parse(&fixed(0x70, 0x3, 0x0c)).unwrap().tells_of_lost_write());
    }

    #[test]
    fn a_full_thin_volume_is_told_from_a_protected_one() {
        let sense = |qualifier| [0x72, 0x07, 0x27, qualifier, 0, 0, 0, 0];
        assert_eq!(check(&sense(0x07), true), Verdict::Failed(DeviceError::NoSpace));
        assert_eq!(check(&sense(0x00), true), Verdict::Failed(DeviceError::ReadOnly));
    }

    proptest! {
        #[test]
        fn any_sense_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), writing: bool) {
            check(&bytes, writing);
        }
    }
}
