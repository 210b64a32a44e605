//! Sequence numbers that wrap: CmdSN, StatSN, DataSN and R2TSN.
//!
//! RFC 7143 section 4.2.2.1 compares them by serial number arithmetic (RFC 1982, SERIAL_BITS = 32): a number is
//! less than another if the shorter path around the circle from it to the other leads upwards. Two numbers
//! half a circle apart are not comparable; here neither is then less than the other.

use derive_more::Display;

/// A 32-bit sequence number. It has no total order, so it is not `Ord`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display)]
pub struct Sn(pub u32);

impl Sn {
    /// The number after this one.
    pub fn next(self) -> Sn {
        self.plus(1)
    }

    /// The number `n` steps after this one.
    pub fn plus(self, n: u32) -> Sn {
        Sn(self.0.wrapping_add(n))
    }

    /// The number `n` steps before this one.
    pub fn minus(self, n: u32) -> Sn {
        Sn(self.0.wrapping_sub(n))
    }

    /// Steps upwards from this number to `later`. Meaningful if `self.le(later)`; otherwise it is the longer
    /// path around the circle.
    pub fn distance(self, later: Sn) -> u32 {
        later.0.wrapping_sub(self.0)
    }

    /// Whether this number comes before `other`.
    pub fn lt(self, other: Sn) -> bool {
        let ahead = self.distance(other);
        ahead != 0 && ahead < HALF_CIRCLE
    }

    /// Whether this number comes before `other`, or is it.
    pub fn le(self, other: Sn) -> bool {
        self.distance(other) < HALF_CIRCLE
    }
}

/// RFC 1982: 2^(SERIAL_BITS - 1).
const HALF_CIRCLE: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_survives_the_wrap() {
        assert!(Sn(0xffff_ffff).lt(Sn(0)));
        assert!(Sn(0xffff_fff0).lt(Sn(16)));
        assert!(!Sn(0).lt(Sn(0xffff_ffff)));
        assert_eq!(Sn(0xffff_ffff).next(), Sn(0));
        assert_eq!(Sn(0xffff_fffe).distance(Sn(2)), 4);
    }

    #[test]
    fn numbers_half_a_circle_apart_are_not_comparable() {
        assert!(!Sn(0).lt(Sn(HALF_CIRCLE)));
        assert!(!Sn(HALF_CIRCLE).lt(Sn(0)));
    }

    proptest! {
        #[test]
        fn a_step_of_less_than_half_a_circle_goes_up(start: u32, step in 1..HALF_CIRCLE) {
            let (before, after) = (Sn(start), Sn(start).plus(step));
            prop_assert!(before.lt(after) && before.le(after) && !after.lt(before) && !after.le(before));
            prop_assert_eq!(before.distance(after), step);
            prop_assert_eq!(after.minus(step), before);
        }

        #[test]
        fn a_number_is_not_less_than_itself(sn: u32) {
            prop_assert!(!Sn(sn).lt(Sn(sn)) && Sn(sn).le(Sn(sn)));
        }
    }
}
