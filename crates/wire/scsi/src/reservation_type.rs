//! Types of persistent reservations (SPC-4 5.13).

use std::fmt;
use std::str::FromStr;

/// What a reservation keeps others from (SPC-4 table 61).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationType {
    /// 1: only the holder writes.
    WriteExclusive,
    /// 3: only the holder reads or writes.
    ExclusiveAccess,
    /// 5: only those that are registered write, and one of them holds it.
    WriteExclusiveRegistrantsOnly,
    /// 6: only those that are registered read or write, and one of them holds it.
    ExclusiveAccessRegistrantsOnly,
    /// 7: only those that are registered write, and all of them hold it.
    WriteExclusiveAllRegistrants,
    /// 8: only those that are registered read or write, and all of them hold it.
    ExclusiveAccessAllRegistrants,
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

    /// Its code and its name.
    const fn words(self) -> (u8, &'static str) {
        match self {
            ReservationType::WriteExclusive => (1, "write-exclusive"),
            ReservationType::ExclusiveAccess => (3, "exclusive-access"),
            ReservationType::WriteExclusiveRegistrantsOnly => (5, "write-exclusive-registrants-only"),
            ReservationType::ExclusiveAccessRegistrantsOnly => (6, "exclusive-access-registrants-only"),
            ReservationType::WriteExclusiveAllRegistrants => (7, "write-exclusive-all-registrants"),
            ReservationType::ExclusiveAccessAllRegistrants => (8, "exclusive-access-all-registrants"),
        }
    }

    /// The type of this code; `None` for those that are obsolete or reserved.
    pub fn new(code: u8) -> Option<ReservationType> {
        ReservationType::ALL.into_iter().find(|kind| kind.words().0 == code)
    }

    /// Its code.
    pub fn code(self) -> u8 {
        self.words().0
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

impl fmt::Display for ReservationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words().1)
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
        ReservationType::ALL.into_iter().find(|kind| kind.words().1 == name).ok_or(UnknownReservationType)
    }
}
