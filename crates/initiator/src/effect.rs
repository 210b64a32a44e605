//! What a command leaves behind, by its operation code: whether it may be sent twice, and what a flush must follow.

/// What a command does to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing. Sent twice, or late, it does no harm.
    None,
    /// It changes blocks of its logical unit, perhaps in a volatile cache only.
    Cached,
    /// The same, and the blocks are on stable storage when it ends: FUA.
    Stable,
    /// It changes blocks of any logical unit of the target: EXTENDED COPY.
    Anywhere,
    /// It registers a key for persistent reservations.
    Registers,
    /// It ends the registration.
    Unregisters,
    /// It changes something else, or is not known here.
    Other,
}

impl Effect {
    /// By the operation code (SPC-4 and SBC-4), by the service action of those that share one, and for registrations by the
    /// data that the command sends.
    pub(crate) fn of(cdb: &[u8], sent: &[u8]) -> Effect {
        let Some(&operation) = cdb.first() else { return Effect::Other };
        let flag = |at: usize| cdb.get(at).is_some_and(|byte| byte & FUA != 0);
        let written = |stable: bool| if stable { Effect::Stable } else { Effect::Cached };
        match operation {
            // READ, and what else only asks.
            0x08 | 0x28 | 0xa8 | 0x88 => Effect::None,
            // WRITE(10), (12), (16), COMPARE AND WRITE, ORWRITE, WRITE ATOMIC
            0x2a | 0xaa | 0x8a | 0x89 | 0x8b | 0x9c => written(flag(1)),
            // WRITE(6), WRITE AND VERIFY, WRITE SAME, UNMAP, XDWRITE, XPWRITE, XDWRITEREAD, WRITE LONG
            0x0a | 0x2e | 0xae | 0x8e | 0x41 | 0x93 | 0x42 | 0x50 | 0x51 | 0x53 | 0x3f | 0x9f => {
                Effect::Cached
            }
            // TEST UNIT READY, REQUEST SENSE, INQUIRY, MODE SENSE, READ CAPACITY, VERIFY, PRE-FETCH, SYNCHRONIZE CACHE,
            // READ BUFFER, LOG SENSE, PERSISTENT RESERVE IN, RECEIVE COPY RESULTS, SERVICE ACTION IN, REPORT LUNS,
            // MAINTENANCE IN
            0x00 | 0x03 | 0x12 | 0x1a | 0x5a | 0x25 | 0x2f | 0x8f | 0xaf | 0x34 | 0x90 | 0x35 | 0x91
            | 0x3c | 0x4d | 0x5e | 0x84 | 0x9e | 0xa0 | 0xa3 => Effect::None,
            0x83 => Effect::Anywhere,
            0x5f => Effect::of_reservation(cdb, sent),
            0x7f => match cdb.get(8..10) {
                Some([0x00, 0x09 | 0x0a]) => Effect::None, // READ(32), VERIFY(32)
                Some([0x00, 0x0b]) => written(flag(10)),   // WRITE(32)
                Some([0x00, 0x0c..=0x0e | 0x04..=0x07]) => Effect::Cached,
                _ => Effect::Other,
            },
            _ => Effect::Other,
        }
    }

    /// PERSISTENT RESERVE OUT (SPC-4 6.16): REGISTER and REGISTER AND IGNORE EXISTING KEY, where a key of zero ends the
    /// registration, and CLEAR.
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

/// FUA, in the byte of flags.
const FUA: u8 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdb;

    fn of(cdb: &[u8]) -> Effect {
        Effect::of(cdb, &[])
    }

    #[test]
    fn a_registration_is_told_by_its_key() {
        let register =
            |action: u8, key: u8| Effect::of(&[0x5f, action], &[[0; 15].as_slice(), &[key]].concat());
        assert_eq!((register(0, 1), register(6, 1)), (Effect::Registers, Effect::Registers));
        assert_eq!((register(0, 0), register(3, 1)), (Effect::Unregisters, Effect::Unregisters));
        assert_eq!((register(1, 1), of(&[0x5f])), (Effect::Other, Effect::Other));
    }

    #[test]
    fn writes_are_told_from_stable_writes_and_from_questions() {
        assert_eq!(of(&cdb::write_16(0, 1, false)), Effect::Cached);
        assert_eq!(of(&cdb::write_16(0, 1, true)), Effect::Stable);
        assert_eq!(of(&cdb::write_10(0, 1, true).unwrap()), Effect::Stable);
        assert_eq!(of(&cdb::write_same_16(0, 1, true)), Effect::Cached, "that bit is UNMAP");
        assert_eq!(of(&cdb::unmap(false, 24)), Effect::Cached);
        assert_eq!(of(&cdb::extended_copy(16)), Effect::Anywhere);
        for asks in [cdb::read_16(0, 1), cdb::synchronize_cache(), cdb::test_unit_ready()] {
            assert_eq!(of(&asks), Effect::None);
        }
        assert_eq!(of(&[0xc0; 16]), Effect::Other, "a vendor's own");
        assert_eq!(of(&[]), Effect::Other);
    }
}
