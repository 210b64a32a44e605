//! The effect of a command, by its operation code: whether it may be sent twice, and whether a flush must
//! follow.

/// The effect of a command on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// None. Harmless when executed twice, or late.
    None,
    /// None, and it makes earlier writes durable: SYNCHRONIZE CACHE.
    Flush,
    /// It changes blocks of its logical unit, possibly in a volatile cache only.
    Cached,
    /// It changes blocks, which are on stable storage at its end: FUA.
    Stable,
    /// It changes blocks of any logical unit of the target: EXTENDED COPY.
    Anywhere,
    /// It registers a key for persistent reservations.
    Registers,
    /// It ends the registration.
    Unregisters,
    /// It changes something else, or is unknown here.
    Other,
}

impl Effect {
    /// By the operation code (SPC-4 and SBC-4), by the service action of those that share one, and for
    /// registrations by the data that the command sends.
    pub(crate) fn from_cdb(cdb: &[u8], sent: &[u8]) -> Effect {
        let Some(&operation) = cdb.first() else { return Effect::Other };
        let flag = |at: usize| cdb.get(at).is_some_and(|byte| byte & FUA != 0);
        let written = |stable: bool| if stable { Effect::Stable } else { Effect::Cached };
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

    /// Whether the command changes something, so that it must not be executed late or twice unconditionally.
    pub(crate) fn changes_something(self) -> bool {
        !matches!(self, Effect::None | Effect::Flush)
    }

    /// PERSISTENT RESERVE OUT (SPC-4 6.16): REGISTER and REGISTER AND IGNORE EXISTING KEY, where a key of
    /// zero ends the registration, and CLEAR.
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

/// Whether a command, by its operation code and service action (SPC-4, SBC-4, SSC-4 and MMC-6), reads, and
/// changes nothing of the logical unit and its data. What is not known here may change something, and so may
/// a code that means different things to different kinds of devices.
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

/// FUA, in the byte of flags.
const FUA: u8 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;
    use scsi::cdb;

    fn from_cdb(cdb: &[u8]) -> Effect {
        Effect::from_cdb(cdb, &[])
    }

    #[test]
    fn a_registration_is_told_by_its_key() {
        let register =
            |action: u8, key: u8| Effect::from_cdb(&[0x5f, action], &[[0; 15].as_slice(), &[key]].concat());
        assert_eq!((register(0, 1), register(6, 1)), (Effect::Registers, Effect::Registers));
        assert_eq!((register(0, 0), register(3, 1)), (Effect::Unregisters, Effect::Unregisters));
        assert_eq!((register(1, 1), from_cdb(&[0x5f])), (Effect::Other, Effect::Other));
    }

    #[test]
    fn writes_are_told_from_stable_writes_and_from_questions() {
        assert_eq!(from_cdb(&cdb::write_16(0, 1, false)), Effect::Cached);
        assert_eq!(from_cdb(&cdb::write_16(0, 1, true)), Effect::Stable);
        assert_eq!(from_cdb(&cdb::write_10(0, 1, true).unwrap()), Effect::Stable);
        assert_eq!(from_cdb(&cdb::write_same_16(0, 1, true)), Effect::Cached, "that bit is UNMAP");
        assert_eq!(from_cdb(&cdb::unmap(false, 24)), Effect::Cached);
        assert_eq!(from_cdb(&cdb::extended_copy(16)), Effect::Anywhere);
        for asks in [cdb::read_16(0, 1), cdb::get_lba_status(0, 24), cdb::test_unit_ready()] {
            assert_eq!(from_cdb(&asks), Effect::None);
        }
        assert_eq!(from_cdb(&cdb::synchronize_cache()), Effect::Flush);
        for action in [0x14, 0x15, 0x18, 0x19] {
            assert_eq!(from_cdb(&[0x9e, action]), Effect::Other, "SERVICE ACTION IN(16) with {action:#04x}");
        }
        assert_eq!(from_cdb(&[0x51; 10]), Effect::Cached, "XPWRITE(10), and READ DISC INFORMATION to others");
        assert_eq!(from_cdb(&[0xc0; 16]), Effect::Other, "a vendor's own");
        assert_eq!(from_cdb(&[]), Effect::Other);
    }
}
