//! SCSI status codes (SAM-5 table 44): how a command ended.

/// The status byte of a completed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Done.
    Good = 0x00,
    /// Not done as asked; the sense data tell why.
    CheckCondition = 0x02,
    /// Done, and a condition that was asked for is met. We never send it: PRE-FETCH promises no more than GOOD.
    ConditionMet = 0x04,
    /// Try again later.
    Busy = 0x08,
    /// Another initiator holds a reservation that forbids it.
    ReservationConflict = 0x18,
    /// No room in the task set.
    TaskSetFull = 0x28,
    /// Another initiator aborted it (control mode page, TAS).
    TaskAborted = 0x40,
}

impl Status {
    /// The byte on the wire.
    pub fn code(self) -> u8 {
        self as u8
    }
}
