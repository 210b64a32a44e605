//! Types of persistent reservations (SPC-4 5.13).

use std::fmt;
use std::str::FromStr;

use derive_more::Display;
use num_enum::TryFromPrimitive;

/// What a reservation keeps others from (SPC-4 table 61).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, TryFromPrimitive)]
#[repr(u8)]
pub enum ReservationType {
    /// Only the holder writes.
    #[display("write-exclusive")]
    WriteExclusive = 1,
    /// Only the holder reads or writes.
    #[display("exclusive-access")]
    ExclusiveAccess = 3,
    /// Only those that are registered write, and one of them holds it.
    #[display("write-exclusive-registrants-only")]
    WriteExclusiveRegistrantsOnly = 5,
    /// Only those that are registered read or write, and one of them holds it.
    #[display("exclusive-access-registrants-only")]
    ExclusiveAccessRegistrantsOnly = 6,
    /// Only those that are registered write, and all of them hold it.
    #[display("write-exclusive-all-registrants")]
    WriteExclusiveAllRegistrants = 7,
    /// Only those that are registered read or write, and all of them hold it.
    #[display("exclusive-access-all-registrants")]
    ExclusiveAccessAllRegistrants = 8,
}

impl ReservationType {
    /// All of them, for help texts.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// Its code.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Others may still read (SPC-4 table 65).
    pub fn others_may_read(self) -> bool {
        matches!(
            self,
            ReservationType::WriteExclusive
                | ReservationType::WriteExclusiveRegistrantsOnly
                | ReservationType::WriteExclusiveAllRegistrants
        )
    }
}

/// No type of reservation has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReservationType;

impl fmt::Display for UnknownReservationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no such type of reservation; those there are:")?;
        ReservationType::ALL.into_iter().try_for_each(|kind| write!(f, " {kind}"))
    }
}

impl std::error::Error for UnknownReservationType {}

impl FromStr for ReservationType {
    type Err = UnknownReservationType;

    fn from_str(name: &str) -> Result<ReservationType, UnknownReservationType> {
        ReservationType::ALL.into_iter().find(|kind| kind.to_string() == name).ok_or(UnknownReservationType)
    }
}
