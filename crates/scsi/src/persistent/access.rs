//! Which commands a reservation stops (SPC-4 tables 48 and 49, SBC-3 table 13, SPC-2 5.5).

use super::{NexusName, Registrations};

/// What a command needs of the logical unit, as far as reservations go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Passes every reservation: INQUIRY, REPORT LUNS, REQUEST SENSE, READ CAPACITY, REPORT TARGET PORT GROUPS,
    /// RELEASE, and the likes that only tell of the device.
    Free,
    /// Passes persistent reservations but not another's RESERVE (SPC-2 5.5.1): TEST UNIT READY, MODE SENSE,
    /// REPORT SUPPORTED OPERATION CODES, READ DEFECT DATA and what else ALLOW COMMANDS 100b promises in REPORT
    /// CAPABILITIES; and PERSISTENT RESERVE IN and OUT, which have rules of their own.
    Probe,
    /// Looks at the medium: READ, VERIFY, PRE-FETCH, GET LBA STATUS.
    Read,
    /// Changes the medium or the logical unit: WRITE, UNMAP, MODE SELECT, EXTENDED COPY, SANITIZE.
    Write,
}

impl Registrations {
    /// Whether the persistent reservation lets `nexus` do this.
    pub(crate) fn allows(&self, nexus: &NexusName, access: Access) -> bool {
        let Some(reservation) = self.reservation() else {
            return true;
        };
        match access {
            Access::Free | Access::Probe => true,
            Access::Read if reservation.kind.others_may_read() => true,
            Access::Read | Access::Write if reservation.kind.registrants_have_access() => {
                self.key_of(nexus).is_some()
            }
            Access::Read | Access::Write => self.holds(nexus),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Type;
    use super::super::scene::{key, nexus};
    use super::*;

    /// SPC-4 table 49: type, then what a registered and an unregistered nexus may do beside the holder.
    #[test]
    fn each_type_lets_in_whom_the_table_says() {
        use Type::*;
        let rows = [
            // type                         registered      not registered
            //                              read   write    read   write
            (WriteExclusive, [true, false, true, false]),
            (ExclusiveAccess, [false, false, false, false]),
            (WriteExclusiveRegistrantsOnly, [true, true, true, false]),
            (ExclusiveAccessRegistrantsOnly, [true, true, false, false]),
            (WriteExclusiveAllRegistrants, [true, true, true, false]),
            (ExclusiveAccessAllRegistrants, [true, true, false, false]),
        ];
        for (kind, expected) in rows {
            let mut state = Registrations::default();
            for who in [1, 2] {
                state.register(&nexus(who), super::super::change::Register::new(key(who.into()))).unwrap();
            }
            state.reserve(&nexus(1), 1, kind).unwrap();
            let seen = [
                state.allows(&nexus(2), Access::Read),
                state.allows(&nexus(2), Access::Write),
                state.allows(&nexus(3), Access::Read),
                state.allows(&nexus(3), Access::Write),
            ];
            assert_eq!(seen, expected, "{kind:?}");
            assert!(state.allows(&nexus(1), Access::Write), "{kind:?}");
            assert!(state.allows(&nexus(3), Access::Probe), "{kind:?}");
        }
    }

    #[test]
    fn without_a_reservation_everything_passes() {
        let mut state = Registrations::default();
        state.register(&nexus(1), super::super::change::Register::new(key(1))).unwrap();
        assert!(state.allows(&nexus(2), Access::Write));
    }
}
