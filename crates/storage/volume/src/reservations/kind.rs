//! Reservation types.

/// The type of a reservation: the six types that SCSI (SPC-4 table 61) and NVMe share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive,
    /// Only the holder reads or writes.
    ExclusiveAccess,
    /// Only those that are registered write, and one of them holds it.
    WriteExclusiveRegistrantsOnly,
    /// Only those that are registered read or write, and one of them holds it.
    ExclusiveAccessRegistrantsOnly,
    /// Only those that are registered write, and all of them hold it.
    WriteExclusiveAllRegistrants,
    /// Only those that are registered read or write, and all of them hold it.
    ExclusiveAccessAllRegistrants,
}

impl ReservationType {
    /// All of them.
    pub const ALL: [ReservationType; 6] = [
        ReservationType::WriteExclusive,
        ReservationType::ExclusiveAccess,
        ReservationType::WriteExclusiveRegistrantsOnly,
        ReservationType::ExclusiveAccessRegistrantsOnly,
        ReservationType::WriteExclusiveAllRegistrants,
        ReservationType::ExclusiveAccessAllRegistrants,
    ];

    /// Its number in what is saved. SCSI has the same numbers, NVMe others.
    pub fn code(self) -> u8 {
        match self {
            ReservationType::WriteExclusive => 1,
            ReservationType::ExclusiveAccess => 3,
            ReservationType::WriteExclusiveRegistrantsOnly => 5,
            ReservationType::ExclusiveAccessRegistrantsOnly => 6,
            ReservationType::WriteExclusiveAllRegistrants => 7,
            ReservationType::ExclusiveAccessAllRegistrants => 8,
        }
    }

    /// The kind that has this number.
    pub fn from_code(code: u8) -> Option<ReservationType> {
        ReservationType::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Every registered host is a holder.
    pub fn all_registrants(self) -> bool {
        matches!(
            self,
            ReservationType::WriteExclusiveAllRegistrants | ReservationType::ExclusiveAccessAllRegistrants
        )
    }

    /// Every registered host has access, whether it holds the reservation or not.
    pub fn registrants_have_access(self) -> bool {
        !matches!(self, ReservationType::WriteExclusive | ReservationType::ExclusiveAccess)
    }

    /// Others may still read.
    pub fn others_may_read(self) -> bool {
        matches!(
            self,
            ReservationType::WriteExclusive
                | ReservationType::WriteExclusiveRegistrantsOnly
                | ReservationType::WriteExclusiveAllRegistrants
        )
    }
}
