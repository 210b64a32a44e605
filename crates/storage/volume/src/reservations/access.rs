//! Accesses that a reservation forbids (SPC-4 tables 48 and 49).

use super::Registrations;
use crate::requester::{Access, HostPath};

impl Registrations {
    /// Whether the reservation, if any, permits `path` this access.
    pub fn permit(&self, path: &HostPath, access: Access) -> bool {
        let Some(reservation) = &self.reservation else {
            return true;
        };
        match access {
            Access::Read if reservation.kind.others_may_read() => true,
            Access::Read | Access::Write if reservation.kind.registrants_have_access() => {
                self.key_of(path).is_some()
            }
            Access::Read | Access::Write => self.holds(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scene::{key, path};
    use super::super::{Register, ReservationType};
    use super::*;

    /// SPC-4 table 49: type, then what a registered and an unregistered path may do beside the holder.
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
                state.register(&path(who), &Register::new(key(who.into()))).unwrap();
            }
            state.reserve(&path(1), 1, kind).unwrap();
            let seen = [
                state.permit(&path(2), Access::Read),
                state.permit(&path(2), Access::Write),
                state.permit(&path(3), Access::Read),
                state.permit(&path(3), Access::Write),
            ];
            assert_eq!(seen, expected, "{kind:?}");
            assert!(state.permit(&path(1), Access::Write), "{kind:?}");
        }
    }

    #[test]
    fn without_a_reservation_everything_passes() {
        let mut state = Registrations::default();
        state.register(&path(1), &Register::new(key(1))).unwrap();
        assert!(state.permit(&path(2), Access::Write));
    }
}
