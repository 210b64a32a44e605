//! Which commands a reservation stops (SPC-4 tables 48 and 49, SBC-3 table 13, SPC-2 5.5).

use super::{NexusName, Registrations};
use crate::unit::Reserved;

impl Registrations {
    /// Whether the persistent reservation lets `nexus` carry out a command of this class.
    pub(crate) fn allows(&self, nexus: &NexusName, class: Reserved) -> bool {
        let Some(reservation) = self.reservation() else {
            return true;
        };
        match class {
            Reserved::Never | Reserved::Status | Reserved::Own => true,
            Reserved::Read if reservation.kind.others_may_read() => true,
            Reserved::Read | Reserved::Write if reservation.kind.registrants_have_access() => {
                self.key_of(nexus).is_some()
            }
            Reserved::Read | Reserved::Write => self.holds(nexus),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{key, nexus};
    use super::*;
    use scsi::ReservationType;

    /// SPC-4 table 49: type, then what a registered and an unregistered nexus may do beside the holder.
    #[test]
    fn each_type_lets_in_whom_the_table_says() {
        use ReservationType::*;
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
                state.register(&nexus(who), &super::super::change::Register::new(key(who.into()))).unwrap();
            }
            state.reserve(&nexus(1), 1, kind).unwrap();
            let seen = [
                state.allows(&nexus(2), Reserved::Read),
                state.allows(&nexus(2), Reserved::Write),
                state.allows(&nexus(3), Reserved::Read),
                state.allows(&nexus(3), Reserved::Write),
            ];
            assert_eq!(seen, expected, "{kind:?}");
            assert!(state.allows(&nexus(1), Reserved::Write), "{kind:?}");
            assert!(state.allows(&nexus(3), Reserved::Status), "{kind:?}");
        }
    }

    #[test]
    fn without_a_reservation_everything_passes() {
        let mut state = Registrations::default();
        state.register(&nexus(1), &super::super::change::Register::new(key(1))).unwrap();
        assert!(state.allows(&nexus(2), Reserved::Write));
    }
}
