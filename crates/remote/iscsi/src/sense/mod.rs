//! What a status and its sense data mean for a block device, and what they say.

mod words;

use block::{DeviceError, Extent, Lba};

pub use words::{Pointer, status_words};

/// What a target says about a command it did not carry out (SPC-4 4.5), as far as anybody here asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sense {
    /// SENSE KEY.
    pub key: u8,
    /// ADDITIONAL SENSE CODE.
    pub code: u8,
    /// ADDITIONAL SENSE CODE QUALIFIER.
    pub qualifier: u8,
    /// INFORMATION, if it is valid: the block at fault, for errors of the medium.
    pub information: Option<u64>,
    /// SENSE KEY SPECIFIC, if it is valid: [`Sense::progress`] and [`Sense::pointer`] read it.
    pub specific: Option<[u8; 3]>,
    /// It is about an earlier command, one that had been answered already (SPC-4 4.5.5).
    pub deferred: bool,
}

impl Sense {
    /// Reads fixed or descriptor format; `None` if `bytes` are neither.
    pub fn parse(bytes: &[u8]) -> Option<Sense> {
        match bytes.first()? & 0x7f {
            form @ (0x70 | 0x71) => Some(Sense { deferred: form == 0x71, ..Sense::fixed(bytes) }),
            form @ (0x72 | 0x73) => Some(Sense { deferred: form == 0x73, ..Sense::descriptor(bytes) }),
            _ => None,
        }
    }

    /// Whether something happened to the LUN that every initiator is told once (SAM-5 5.14).
    pub(crate) fn is_unit_attention(self) -> bool {
        self.key == 0x6
    }

    /// Whether it is a unit attention after which the LUN may have another size: after a reset (29h), CAPACITY DATA
    /// HAS CHANGED (2Ah/09h) and INQUIRY DATA HAS CHANGED (3Fh/03h).
    pub(crate) fn tells_of_change(self) -> bool {
        self.is_unit_attention()
            && matches!((self.code, self.qualifier), (0x29, _) | (0x2a, 0x09) | (0x3f, 0x03))
    }

    /// Whether it is the unit attention MODE PARAMETERS CHANGED.
    pub(crate) fn tells_of_modes(self) -> bool {
        self.is_unit_attention() && (self.code, self.qualifier) == (0x2a, 0x01)
    }

    /// Whether it is an error of an earlier command, of which GOOD had been said.
    pub(crate) fn tells_of_lost_write(self) -> bool {
        self.deferred && !self.is_no_error()
    }

    /// Whether the storage behind the LUN has failed: MEDIUM ERROR, HARDWARE ERROR, or no space left. What was cached may have
    /// been dropped for it.
    pub(crate) fn is_storage_error(self) -> bool {
        matches!((self.key, self.code, self.qualifier), (0x3 | 0x4, _, _) | (0x7, 0x27, 0x07))
    }

    /// Whether it is a unit attention after which a volatile cache may be empty: a reset of the power or of the device
    /// (29h, but for 05h, 06h and 07h: another transceiver mode, and I_T NEXUS LOSS, which a target reports that has
    /// gone on meanwhile), or another medium (28h/00h).
    pub(crate) fn tells_of_reset(self) -> bool {
        let reset = matches!((self.code, self.qualifier), (0x28, 0x00) | (0x29, 0x00..=0x04 | 0x08..=0xff));
        self.is_unit_attention() && !self.deferred && reset
    }

    /// Whether the command was carried out all the same. With a deferred error none is (SPC-4 4.5.5).
    pub(crate) fn was_carried_out(self) -> bool {
        self.is_no_error() && !self.deferred
    }

    /// NO SENSE, RECOVERED ERROR.
    fn is_no_error(self) -> bool {
        matches!(self.key, 0x0 | 0x1)
    }

    /// SPC-4 4.5.3. A target may cut it short: what is missing reads as zero.
    fn fixed(bytes: &[u8]) -> Sense {
        let valid = byte(bytes, 0) & 0x80 != 0;
        let information = bytes.get(3..7).map(big_endian).filter(|_| valid);
        Sense {
            key: byte(bytes, 2) & 0x0f,
            code: byte(bytes, 12),
            qualifier: byte(bytes, 13),
            information,
            specific: bytes.get(15..).and_then(specific),
            deferred: false,
        }
    }

    /// SPC-4 4.5.2.
    fn descriptor(bytes: &[u8]) -> Sense {
        let descriptors = bytes.get(8..).unwrap_or_default();
        let valid = |body: &&[u8]| byte(body, 0) & 0x80 != 0;
        Sense {
            key: byte(bytes, 1) & 0x0f,
            code: byte(bytes, 2),
            qualifier: byte(bytes, 3),
            information: find(descriptors, 0).filter(valid).and_then(|body| body.get(2..10)).map(big_endian),
            specific: find(descriptors, 2).and_then(|body| specific(body.get(2..)?)),
            deferred: false,
        }
    }
}

/// SENSE KEY SPECIFIC, if its first bit, SKSV, says that it is one.
fn specific(bytes: &[u8]) -> Option<[u8; 3]> {
    bytes.first_chunk::<3>().copied().filter(|[flags, ..]| flags & 0x80 != 0)
}

/// What is behind the header of the descriptor of this type (SPC-4 table 29), in a list of them.
fn find(mut descriptors: &[u8], wanted: u8) -> Option<&[u8]> {
    while let [kind, length, rest @ ..] = descriptors {
        let body = rest.get(..usize::from(*length))?;
        if *kind == wanted {
            return Some(body);
        }
        descriptors = &rest[body.len()..];
    }
    None
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// SAM-5 table 45, those that occur.
pub mod status {
    /// The command was carried out.
    pub const GOOD: u8 = 0x00;
    /// It was not, and sense data tell why.
    pub const CHECK_CONDITION: u8 = 0x02;
    /// COMPARE AND WRITE and PRE-FETCH: carried out, with a yes.
    pub const CONDITION_MET: u8 = 0x04;
    /// Not now.
    pub const BUSY: u8 = 0x08;
    /// Another initiator has reserved the logical unit.
    pub const RESERVATION_CONFLICT: u8 = 0x18;
    /// No room for another command.
    pub const TASK_SET_FULL: u8 = 0x28;
    /// Another initiator's command aborted this one.
    pub const TASK_ABORTED: u8 = 0x40;
}

/// What to do about a command that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing: it is done.
    Done,
    /// Send it again: the target reported something else instead of doing it.
    Again,
    /// Send it again, after a while.
    AgainLater,
    /// Give up.
    Failed(DeviceError),
}

/// The one place where a SCSI status becomes a device's error. `extent` is what the command was about, and
/// `writing` whether it was to change it.
pub(crate) fn verdict(status: u8, sense: Option<Sense>, extent: Extent, writing: bool) -> Verdict {
    match status {
        status::GOOD | status::CONDITION_MET => Verdict::Done,
        status::CHECK_CONDITION => {
            sense.map_or(unexplained(extent, writing), |sense| of_sense(sense, extent, writing))
        }
        status::BUSY | status::TASK_SET_FULL => Verdict::AgainLater,
        status::TASK_ABORTED => Verdict::Again,
        status::RESERVATION_CONFLICT => Verdict::Failed(DeviceError::Reserved),
        // ACA ACTIVE and what SAM-5 has no name for: as long as another initiator wants it so, the device is not
        // ours to use.
        _ => Verdict::Failed(DeviceError::NotReady),
    }
}

/// CHECK CONDITION without sense data, which RFC 7143 section 11.4.7 does not allow and istgt sends, for instance to a
/// write onto a protected disk: nobody knows why, and certainly nothing was carried out.
fn unexplained(extent: Extent, writing: bool) -> Verdict {
    Verdict::Failed(of_the_medium(extent.lba, writing))
}

fn of_the_medium(lba: Lba, writing: bool) -> DeviceError {
    if writing { DeviceError::Unwritable(lba) } else { DeviceError::Unreadable(lba) }
}

fn of_sense(sense: Sense, extent: Extent, writing: bool) -> Verdict {
    if sense.was_carried_out() {
        return Verdict::Done;
    }
    if sense.deferred {
        return Verdict::Again; // it is about an earlier command, and was reported instead of carrying this one out
    }
    let lba = sense.information.map_or(extent.lba, Lba);
    let medium = of_the_medium(lba, writing);
    match (sense.key, sense.code, sense.qualifier) {
        (0x2, 0x04, 0x01) => Verdict::AgainLater, // becoming ready
        (0x2, _, _) => Verdict::Failed(DeviceError::NotReady),
        (0x5, 0x21, _) => Verdict::Failed(DeviceError::OutOfRange),
        (0x5, 0x25, _) => Verdict::Failed(DeviceError::NotReady), // the LUN is gone
        (0x5, _, _) => Verdict::Failed(DeviceError::Unsupported),
        (0x6, _, _) => Verdict::Again, // UNIT ATTENTION: reported instead of carrying the command out
        (0x7, 0x27, 0x07) => Verdict::Failed(DeviceError::NoSpace),
        (0x7, _, _) => Verdict::Failed(DeviceError::ReadOnly),
        (0xb, _, _) => Verdict::Again, // ABORTED COMMAND: "may be recovered by trying the command again"
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
        assert_eq!(check(&[0x70, 0, 0x06, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0], false), Verdict::Again);
    }

    #[test]
    fn a_deferred_error_is_no_answer_to_the_command_and_tells_of_lost_writes() {
        let fixed = |form, key, code| [form, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, 0];
        for (key, is_loss) in [(0x1, false), (0x3, true), (0x4, true)] {
            assert_eq!(check(&fixed(0x71, key, 0x0c), true), Verdict::Again);
            assert_eq!(Sense::parse(&fixed(0x71, key, 0x0c)).unwrap().tells_of_lost_write(), is_loss);
        }
        assert_eq!(check(&fixed(0x70, 0x1, 0), true), Verdict::Done);
        assert!(!Sense::parse(&fixed(0x70, 0x3, 0x0c)).unwrap().tells_of_lost_write());
    }

    #[test]
    fn a_reset_may_have_lost_a_cache_and_a_lost_nexus_has_not() {
        let loses = |code, qualifier| Sense { key: 6, code, qualifier, ..Sense::default() }.tells_of_reset();
        assert!((0..=4).all(|qualifier| loses(0x29, qualifier)));
        assert!(![5, 6, 7].into_iter().any(|qualifier| loses(0x29, qualifier)));
        assert!(loses(0x28, 0) && !loses(0x2a, 9) && !loses(0x3f, 0x0e));
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
