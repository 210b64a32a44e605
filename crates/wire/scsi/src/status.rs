//! SCSI status codes (SAM-5 table 44): how a command ended.

/// The command completed successfully.
pub const GOOD: u8 = 0x00;
/// The command failed; the sense data states the reason.
pub const CHECK_CONDITION: u8 = 0x02;
/// The command completed successfully, and its condition is met; used by PRE-FETCH.
pub const CONDITION_MET: u8 = 0x04;
/// The target is busy; the initiator retries later.
pub const BUSY: u8 = 0x08;
/// Another initiator has reserved the logical unit.
pub const RESERVATION_CONFLICT: u8 = 0x18;
/// The task set is full.
pub const TASK_SET_FULL: u8 = 0x28;
/// Another initiator's command aborted this one.
pub const TASK_ABORTED: u8 = 0x40;

/// The status byte of a completed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// The command completed successfully.
    Good = GOOD,
    /// The command failed; the sense data states the reason.
    CheckCondition = CHECK_CONDITION,
    /// The command completed successfully, and its condition is met. We never send this status: GOOD is
    /// sufficient for PRE-FETCH.
    ConditionMet = CONDITION_MET,
    /// Try again later.
    Busy = BUSY,
    /// Another initiator holds a reservation that forbids the command.
    ReservationConflict = RESERVATION_CONFLICT,
    /// The task set is full.
    TaskSetFull = TASK_SET_FULL,
    /// Another initiator aborted the command (control mode page, TAS).
    TaskAborted = TASK_ABORTED,
}

impl Status {
    /// The byte on the wire.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// A status as text (SAM-5 table 45).
pub fn status_words(status: u8) -> &'static str {
    match status {
        GOOD => "good",
        CHECK_CONDITION => "check condition without sense data",
        CONDITION_MET => "condition met",
        BUSY => "busy",
        RESERVATION_CONFLICT => "reservation conflict: another initiator has reserved it",
        TASK_SET_FULL => "task set full",
        0x30 => "ACA active",
        TASK_ABORTED => "aborted on behalf of another initiator",
        _ => "unknown status",
    }
}
