//! Classification of commands by their operation code: effects, which determine how to retry and flush, and
//! classes for the statistics. This module also converts statuses to results of a block device, and tracks
//! the registrations that commands make.

use block::{DeviceError, Extent, Lba, Lock};
use iscsi::pdu::Lun;
use scsi::{Sense, status};

/// The effect of a command on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The command changes nothing. It may be executed twice, or late.
    None,
    /// The command changes nothing, and makes earlier writes durable: SYNCHRONIZE CACHE.
    Flush,
    /// The command changes blocks of its logical unit, possibly in a volatile cache only.
    Cached,
    /// The command changes blocks, which are on stable storage when it completes: FUA.
    Stable,
    /// The command may change blocks of any logical unit of the target: EXTENDED COPY.
    Anywhere,
    /// The command registers a key for persistent reservations.
    Registers,
    /// The command removes the registration.
    Unregisters,
    /// The command changes something else, or is unknown here.
    Other,
}

impl Effect {
    /// Classifies a command by its operation code (SPC-4 and SBC-4), by its service action if several
    /// commands share a code, and, for registrations, by the data sent.
    pub(crate) fn from_cdb(cdb: &[u8], sent: &[u8]) -> Effect {
        let Some(&operation) = cdb.first() else {
            return Effect::Other;
        };
        let flag = |at: usize| cdb.get(at).is_some_and(|byte| byte & FUA != 0);
        let written = |stable: bool| {
            if stable {
                Effect::Stable
            } else {
                Effect::Cached
            }
        };
        match operation {
            // READ(10), (16), the most frequent
            0x28 | 0x88 => Effect::None,
            // SYNCHRONIZE CACHE(10), (16)
            0x35 | 0x91 => Effect::Flush,
            // WRITE(10), (12), (16), COMPARE AND WRITE, ORWRITE, WRITE ATOMIC
            0x2a | 0xaa | 0x8a | 0x89 | 0x8b | 0x9c => written(flag(1)),
            // WRITE(6), WRITE AND VERIFY, WRITE SAME, UNMAP, XDWRITE, XPWRITE, XDWRITEREAD, WRITE LONG
            0x0a | 0x2e | 0xae | 0x8e | 0x41 | 0x93 | 0x42 | 0x50 | 0x51 | 0x53 | 0x3f | 0x9f => {
                Effect::Cached
            }
            0x83 => Effect::Anywhere,
            0x5f => Effect::of_reservation(cdb, sent),
            0x7f => match cdb.get(8..10) {
                Some([0x00, 0x0b]) => written(flag(10)), // WRITE(32)
                Some([0x00, 0x0c..=0x0e | 0x04..=0x07]) => Effect::Cached,
                _ if only_asks(cdb) => Effect::None,
                _ => Effect::Other,
            },
            _ if only_asks(cdb) => Effect::None,
            _ => Effect::Other,
        }
    }

    /// Returns whether the command changes something. Such a command must not be executed late, nor twice
    /// without precautions.
    pub(crate) fn changes_something(self) -> bool {
        !matches!(self, Effect::None | Effect::Flush)
    }

    /// Returns the effect of PERSISTENT RESERVE OUT (SPC-4 6.16). REGISTER and REGISTER AND IGNORE EXISTING
    /// KEY register a key, or remove the registration if the key is zero. CLEAR also removes it.
    fn of_reservation(cdb: &[u8], sent: &[u8]) -> Effect {
        match cdb.get(1).map(|byte| byte & 0x1f) {
            Some(0x00 | 0x06) => match sent.get(8..16) {
                Some(key) if key.iter().any(|byte| *byte != 0) => Effect::Registers,
                _ => Effect::Unregisters,
            },
            Some(0x03) => Effect::Unregisters,
            _ => Effect::Other,
        }
    }
}

/// Returns whether a command only reads, and changes neither the logical unit nor its data, according to its
/// operation code and service action (SPC-4, SBC-4, SSC-4 and MMC-6). Returns false for unknown commands, and
/// for a code that different device types define differently, because these may change something.
pub fn only_asks(cdb: &[u8]) -> bool {
    let action = || cdb.get(1).map(|byte| byte & 0x1f);
    match cdb.first() {
        Some(
            0x00 // TEST UNIT READY
            | 0x03 // REQUEST SENSE
            | 0x08 | 0x28 | 0xa8 | 0x88 // READ(6), (10), (12), (16)
            | 0x12 // INQUIRY
            | 0x1a | 0x5a // MODE SENSE(6), (10)
            | 0x1c // RECEIVE DIAGNOSTIC RESULTS
            | 0x23 // READ FORMAT CAPACITIES
            | 0x25 // READ CAPACITY(10)
            | 0x2f | 0xaf | 0x8f // VERIFY(10), (12), (16)
            | 0x34 | 0x90 // PRE-FETCH(10), (16)
            | 0x37 // READ DEFECT DATA(10)
            | 0x3c // READ BUFFER
            | 0x3e // READ LONG(10)
            | 0x43 // READ TOC
            | 0x46 // GET CONFIGURATION
            | 0x4a // GET EVENT STATUS NOTIFICATION
            | 0x4d // LOG SENSE
            | 0x52 // READ TRACK INFORMATION, XDREAD(10)
            | 0x5e // PERSISTENT RESERVE IN
            | 0x84 // RECEIVE COPY RESULTS
            | 0x8c // READ ATTRIBUTE
            | 0xa0 // REPORT LUNS
            | 0xa2 // SECURITY PROTOCOL IN
            | 0xa3, // MAINTENANCE IN
        ) => true,
        // READ CAPACITY(16), READ LONG(16), GET LBA STATUS, REPORT REFERRALS, GET STREAM STATUS, GET PHYSICAL
        // ELEMENT STATUS
        Some(0x9e) => matches!(action(), Some(0x10..=0x13 | 0x16 | 0x17)),
        // READ MEDIA SERIAL NUMBER
        Some(0xab) => action() == Some(0x01),
        // READ(32), VERIFY(32)
        Some(0x7f) => matches!(cdb.get(8..10), Some([0x00, 0x09 | 0x0a])),
        _ => false,
    }
}

/// The FUA bit, in the byte of flags.
const FUA: u8 = 1 << 3;

/// Properties of an outstanding command that are needed when it completes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    pub(crate) class: Class,
    pub(crate) effect: Effect,
    /// Time for which the command waited before its submission, in nanoseconds.
    pub(crate) waited_ns: u64,
}

// Classes of commands with separate latencies.

/// The class of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// READ of any length.
    Read,
    /// WRITE of any length, and WRITE AND VERIFY.
    Write,
    /// All other commands, including WRITE SAME and UNMAP, whose cost hardly depends on the number of bytes
    /// moved.
    Other,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 3] = [Class::Read, Class::Write, Class::Other];

    /// Classifies a command by the operation code (SBC-4 table 36), and for 7Fh by the service action.
    pub fn from_cdb(cdb: &[u8]) -> Class {
        match cdb {
            [0x08 | 0x28 | 0xa8 | 0x88, ..] => Class::Read,
            [0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e, ..] => Class::Write,
            [0x7f, _, _, _, _, _, _, _, 0x00, 0x09, ..] => Class::Read,
            [0x7f, _, _, _, _, _, _, _, 0x00, 0x0b | 0x0c, ..] => Class::Write,
            _ => Class::Other,
        }
    }
}

// The reservation keys that a session has registered. A registration belongs to one I_T nexus (SPC-4 5.13).
// When the session has moved to another portal group, its keys are not registered there, and its user must be
// informed.

/// The registrations made through a session.
#[derive(Debug, Default)]
pub(crate) struct Registrations(Lock<Lists>);

#[derive(Debug, Default)]
struct Lists {
    /// Units with a registration of the current nexus.
    present: Vec<Lun>,
    /// Units with a registration of a nexus that the session has left.
    orphaned: Vec<Lun>,
}

impl Registrations {
    /// Records an executed command.
    pub(crate) fn note(&self, lun: Lun, effect: Effect) {
        if !matches!(effect, Effect::Registers | Effect::Unregisters) {
            return;
        }
        let Lists { present, orphaned } = &mut *self.0.lock();
        present.retain(|registered| *registered != lun);
        orphaned.retain(|registered| *registered != lun);
        present.extend((effect == Effect::Registers).then_some(lun));
    }

    /// Records that the session has moved to another nexus. Returns the units whose registrations are no
    /// longer valid.
    pub(crate) fn moved(&self) -> Vec<Lun> {
        let Lists { present, orphaned } = &mut *self.0.lock();
        debug_assert!(
            present.iter().all(|lun| !orphaned.contains(lun)),
            "a registration is of one nexus"
        );
        orphaned.extend(&*present);
        std::mem::take(present)
    }

    /// Returns whether a registration with this unit is no longer valid.
    pub(crate) fn is_orphaned(&self, lun: Lun) -> bool {
        self.0.lock().orphaned.contains(&lun)
    }
}

// Maps a status and its sense data to a result of a block device.

/// The next step after a command has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The command succeeded.
    Done,
    /// Retry the command: the target reported an earlier event instead of executing it.
    Retry,
    /// Retry the command after a delay.
    RetryLater,
    /// The command failed with this error.
    Failed(DeviceError),
}

/// Determines how to proceed after a status. Only this function converts a SCSI status to a device error.
/// `extent` is the command's range, and `writing` is true if the command changes the range.
pub(crate) fn verdict(status: u8, sense: Option<Sense>, extent: Extent, writing: bool) -> Verdict {
    match status {
        status::GOOD | status::CONDITION_MET => Verdict::Done,
        status::CHECK_CONDITION => {
            // Without sense data, the cause is unknown, and the command counts as not executed. RFC 7143
            // section 11.4.7 does not allow a response without sense data, but istgt sends one, for instance
            // for a write to a protected disk.
            sense.map_or(
                Verdict::Failed(of_the_medium(extent.lba, writing)),
                |sense| from_sense(sense, extent, writing),
            )
        }
        status::BUSY | status::TASK_SET_FULL => Verdict::RetryLater,
        status::TASK_ABORTED => Verdict::Retry,
        status::RESERVATION_CONFLICT => Verdict::Failed(DeviceError::Reserved),
        // ACA ACTIVE, which another initiator has caused, and statuses that SAM-5 does not define.
        _ => Verdict::Failed(DeviceError::NotReady),
    }
}

fn of_the_medium(lba: Lba, writing: bool) -> DeviceError {
    if writing {
        DeviceError::Unwritable(lba)
    } else {
        DeviceError::Unreadable(lba)
    }
}

fn from_sense(sense: Sense, extent: Extent, writing: bool) -> Verdict {
    if sense.was_carried_out() {
        return Verdict::Done;
    }
    if sense.deferred {
        // This sense data concerns an earlier command, and was reported instead of executing this one.
        return Verdict::Retry;
    }
    let lba = sense.information.map_or(extent.lba, Lba);
    let medium = of_the_medium(lba, writing);
    match (sense.key, sense.code, sense.qualifier) {
        (0x2, 0x04, 0x01) => Verdict::RetryLater, // becoming ready
        (0x2, _, _) => Verdict::Failed(DeviceError::NotReady),
        (0x5, 0x21, _) => Verdict::Failed(DeviceError::OutOfRange),
        (0x5, 0x25, _) => Verdict::Failed(DeviceError::NotReady), // the LUN was removed
        (0x5, _, _) => Verdict::Failed(DeviceError::Unsupported),
        (0x6, _, _) => Verdict::Retry, // UNIT ATTENTION: reported instead of executing the command
        (0x7, 0x27, 0x07) => Verdict::Failed(DeviceError::NoSpace),
        (0x7, _, _) => Verdict::Failed(DeviceError::ReadOnly),
        (0xb, _, _) => Verdict::Retry, // ABORTED COMMAND: "may be recovered by trying the command again"
        _ => Verdict::Failed(medium),  // MEDIUM ERROR, HARDWARE ERROR, MISCOMPARE, vendors' own
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use scsi::cdb;

    use super::*;

    fn from_cdb(cdb: &[u8]) -> Effect {
        Effect::from_cdb(cdb, &[])
    }

    #[test]
    fn a_registration_is_told_by_its_key() {
        let register = |action: u8, key: u8| {
            Effect::from_cdb(&[0x5f, action], &[[0; 15].as_slice(), &[key]].concat())
        };
        assert_eq!(
            (register(0, 1), register(6, 1)),
            (Effect::Registers, Effect::Registers)
        );
        assert_eq!(
            (register(0, 0), register(3, 1)),
            (Effect::Unregisters, Effect::Unregisters)
        );
        assert_eq!(
            (register(1, 1), from_cdb(&[0x5f])),
            (Effect::Other, Effect::Other)
        );
    }

    #[test]
    fn writes_are_told_from_stable_writes_and_from_questions() {
        assert_eq!(from_cdb(&cdb::write_16(0, 1, false)), Effect::Cached);
        assert_eq!(from_cdb(&cdb::write_16(0, 1, true)), Effect::Stable);
        assert_eq!(
            from_cdb(&cdb::write_10(0, 1, true).unwrap()),
            Effect::Stable
        );
        assert_eq!(
            from_cdb(&cdb::write_same_16(0, 1, true)),
            Effect::Cached,
            "that bit is UNMAP"
        );
        assert_eq!(from_cdb(&cdb::unmap(false, 24)), Effect::Cached);
        assert_eq!(from_cdb(&cdb::extended_copy(16)), Effect::Anywhere);
        for asks in [
            cdb::read_16(0, 1),
            cdb::get_lba_status(0, 24),
            cdb::test_unit_ready(),
        ] {
            assert_eq!(from_cdb(&asks), Effect::None);
        }
        assert_eq!(from_cdb(&cdb::synchronize_cache()), Effect::Flush);
        for action in [0x14, 0x15, 0x18, 0x19] {
            assert_eq!(
                from_cdb(&[0x9e, action]),
                Effect::Other,
                "SERVICE ACTION IN(16) with {action:#04x}"
            );
        }
        assert_eq!(
            from_cdb(&[0x51; 10]),
            Effect::Cached,
            "XPWRITE(10), and READ DISC INFORMATION to others"
        );
        assert_eq!(from_cdb(&[0xc0; 16]), Effect::Other, "a vendor's own");
        assert_eq!(from_cdb(&[]), Effect::Other);
    }

    #[test]
    fn a_registration_is_orphaned_until_it_is_made_again() {
        let (registrations, lun) = (Registrations::default(), Lun(0));
        registrations.note(lun, Effect::Registers);
        assert!(!registrations.is_orphaned(lun));
        assert_eq!(registrations.moved(), [lun]);
        assert!(registrations.is_orphaned(lun));
        assert_eq!(registrations.moved(), [], "it was told");
        registrations.note(lun, Effect::Registers);
        assert!(!registrations.is_orphaned(lun));
    }

    #[test]
    fn who_has_unregistered_leaves_no_orphan() {
        let (registrations, lun) = (Registrations::default(), Lun(0));
        registrations.note(lun, Effect::Registers);
        registrations.note(lun, Effect::Cached);
        registrations.note(lun, Effect::Unregisters);
        assert_eq!(registrations.moved(), []);
    }

    const EXTENT: Extent = Extent {
        lba: Lba(100),
        blocks: block::Blocks(8),
    };

    fn check(sense: &[u8], writing: bool) -> Verdict {
        verdict(
            status::CHECK_CONDITION,
            Sense::parse(sense),
            EXTENT,
            writing,
        )
    }

    #[test]
    fn an_error_of_the_medium_names_the_block_the_target_named() {
        let mut fixed = [0u8; 18];
        (fixed[0], fixed[2], fixed[6], fixed[12]) = (0xf0, 0x03, 103, 0x11);
        assert_eq!(
            check(&fixed, false),
            Verdict::Failed(DeviceError::Unreadable(Lba(103)))
        );
        let descriptor = [
            0x72, 3, 0x0c, 0, 0, 0, 0, 12, 0, 10, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 104,
        ];
        assert_eq!(
            check(&descriptor, true),
            Verdict::Failed(DeviceError::Unwritable(Lba(104)))
        );
    }

    /// Regression: missing sense data was treated as NO SENSE, so a write that istgt had rejected counted as
    /// successful.
    #[test]
    fn a_failure_without_an_explanation_is_a_failure() {
        for sense in [&[][..], &[0; 18]] {
            assert_eq!(
                check(sense, true),
                Verdict::Failed(DeviceError::Unwritable(Lba(100)))
            );
        }
    }

    #[test]
    fn an_error_of_the_medium_without_a_block_is_at_the_first() {
        assert_eq!(
            check(&[0x70, 0, 0x03], false),
            Verdict::Failed(DeviceError::Unreadable(Lba(100)))
        );
    }

    #[test]
    fn a_unit_attention_is_no_answer_to_the_command() {
        assert_eq!(
            check(&[0x70, 0, 0x06, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x29, 0], false),
            Verdict::Retry
        );
    }

    #[test]
    fn a_deferred_error_is_no_answer_to_the_command_and_tells_of_lost_writes() {
        let fixed = |form, key, code| [form, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, code, 0];
        for (key, is_loss) in [(0x1, false), (0x3, true), (0x4, true)] {
            assert_eq!(check(&fixed(0x71, key, 0x0c), true), Verdict::Retry);
            assert_eq!(
                Sense::parse(&fixed(0x71, key, 0x0c))
                    .unwrap()
                    .tells_of_lost_write(),
                is_loss
            );
        }
        assert_eq!(check(&fixed(0x70, 0x1, 0), true), Verdict::Done);
        assert!(
            !Sense::parse(&fixed(0x70, 0x3, 0x0c))
                .unwrap()
                .tells_of_lost_write()
        );
    }

    #[test]
    fn a_full_thin_volume_is_told_from_a_protected_one() {
        let sense = |qualifier| [0x72, 0x07, 0x27, qualifier, 0, 0, 0, 0];
        assert_eq!(
            check(&sense(0x07), true),
            Verdict::Failed(DeviceError::NoSpace)
        );
        assert_eq!(
            check(&sense(0x00), true),
            Verdict::Failed(DeviceError::ReadOnly)
        );
    }

    proptest! {
        #[test]
        fn any_sense_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), writing: bool) {
            check(&bytes, writing);
        }
    }
}
