//! SCSI commands by name, as methods of a [`Unit`], and their answers as values and in words.
//!
//! One file per family of commands. Responses are decoded by `scsi` from untrusted bytes: missing bytes read
//! as zero where the standard allows a target to return fewer, and are refused as [`VerbError::Nonsense`]
//! where they are required. Other commands can be sent by [`Unit::command`].
//!
//! A command is retried after a unit attention, and for a few seconds while the target is busy. If the
//! session is lost, a command that changes anything ends with [`VerbError::Lost`]: it may or may not have
//! been carried out.

mod blocks;
mod copy;
mod identity;
mod inquiry;
mod lists;
mod medium;
mod modes;
mod reservations;

use std::fmt;
use std::time::Duration;

use block::{Buffer, Slice};
use scsi::{Sense, cdb::Cdb, status};

use crate::error::{CommandError, refusal};
use crate::session::CommandSpec;
use crate::tasks::{Status, Transfer};
use crate::unit::Unit;

pub use blocks::{Compared, LbaRun, WriteSame};
pub(crate) use blocks::{lba_runs, unmap_lists};
pub use copy::{ExtendedCopy, ExtendedCopyError, extended_copy};
pub use identity::Identity;
pub use medium::{Sanitize, SanitizeManner};
pub use modes::ModeFieldError;
pub use reservations::PersistentReserve;
pub use scsi::{
    AccessState, Association, BlockDescriptor, BlockLimits, CacheGeneration, Capacity, CommandSupport,
    CommandTimeouts, Designator, Field, Inquiry, LbaStatus, LunAddress, LunSelection, ModePage, ModeValues,
    Modes, Name, Policy, Port, PortGroup, Provisioning, RegisteredKeys, Registration, Reservation,
    ReservationCapabilities, ReservationType, StartStop, SupportedCommand, TransportId,
    UnknownReservationType, Vpd, VpdContent, command_name, device_type, page_name, standard_name,
};

/// Why a command was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbError {
    /// It is unknown whether it was carried out.
    Lost(CommandError),
    /// The target said no.
    Refused {
        /// The command, by the standard's name.
        name: &'static str,
        /// Its status (SAM-5 table 45).
        status: u8,
        /// What the target said with it.
        sense: Option<Sense>,
    },
    /// The target said RESERVATION CONFLICT, since the session has registered its key in another portal group
    /// than the one it has moved to.
    Orphaned(&'static str),
    /// The answer to this command means nothing.
    Nonsense(&'static str),
    /// The command has no room for what it is to say: a block beyond what it can address, too many at once.
    OutOfRange(&'static str),
}

impl VerbError {
    /// Whether the target does not know the command, or not what was asked of it.
    pub fn is_unsupported(&self) -> bool {
        // ILLEGAL REQUEST: INVALID COMMAND OPERATION CODE, INVALID FIELD IN CDB or IN PARAMETER LIST.
        matches!(self, VerbError::Refused { sense: Some(Sense { key: 5, code: 0x20 | 0x24 | 0x26, .. }), .. })
    }
}

impl fmt::Display for VerbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VerbError::Lost(error) => error.fmt(f),
            VerbError::Refused { name, status, sense } => {
                write!(f, "the target refused {name}: {}", refusal(*status, *sense))
            }
            VerbError::Orphaned(name) => write!(
                f,
                "the target refused {name}: RESERVATION CONFLICT; the key was registered in another portal \
                 group, which the session has left, and has to be registered again"
            ),
            VerbError::Nonsense(name) => write!(f, "the answer to {name} makes no sense"),
            VerbError::OutOfRange(name) => write!(f, "{name} cannot say that: a number is too large for it"),
        }
    }
}

impl std::error::Error for VerbError {}

impl From<CommandError> for VerbError {
    fn from(error: CommandError) -> VerbError {
        VerbError::Lost(error)
    }
}

/// Unit attentions queue up, one for each thing that has happened; a new session finds a few. A target that
/// is busy is asked as often, which is some five seconds.
const TRIES: u32 = 12;
const PAUSE_FIRST: Duration = Duration::from_millis(8);
const PAUSE_LONGEST: Duration = Duration::from_secs(1);

impl Unit {
    /// Has a command carried out that moves no data.
    pub(crate) async fn carry_out(&self, name: &'static str, cdb: Cdb) -> Result<(), VerbError> {
        self.within_its_time(self.until_done(name, cdb, Transfer::None)).await.map(drop)
    }

    /// Has a command carried out that takes parameters, or blocks.
    pub(crate) async fn tell(&self, name: &'static str, cdb: Cdb, data: Slice) -> Result<(), VerbError> {
        self.within_its_time(self.until_done(name, cdb, Transfer::Out(data))).await.map(drop)
    }

    /// Ends `work` of a request when the request's time is up.
    async fn within_its_time<T>(
        &self,
        work: impl Future<Output = Result<T, VerbError>>,
    ) -> Result<T, VerbError> {
        let limit = self.target().timeouts().request();
        reactor::timeout(limit, work).await.unwrap_or(Err(VerbError::Lost(CommandError::TimedOut)))
    }

    /// Has a command carried out that answers with at most `bytes`, and gives those that came. It asks and
    /// changes nothing, so it is sent again when its session was lost, or somebody's reset ended it.
    pub(crate) async fn ask(&self, name: &'static str, cdb: Cdb, bytes: usize) -> Result<Buffer, VerbError> {
        self.within_its_time(self.ask_again(name, cdb, bytes)).await
    }

    async fn ask_again(&self, name: &'static str, cdb: Cdb, bytes: usize) -> Result<Buffer, VerbError> {
        let mut tries = TRIES;
        loop {
            let transfer = Transfer::into_all_of(Buffer::zeroed(bytes));
            match self.until_done(name, cdb, transfer).await {
                Ok((status, Transfer::In { mut buffer, .. })) => {
                    buffer.truncate(status.in_bytes);
                    return Ok(buffer);
                }
                Ok((_, Transfer::None | Transfer::Out(_))) => return Err(VerbError::Nonsense(name)),
                Err(VerbError::Lost(
                    CommandError::ConnectionLost | CommandError::Aborted | CommandError::Reinstated,
                )) if tries > 0 => self.target().usable(None).await?,
                Err(error) => return Err(error),
            }
            tries -= 1;
        }
    }

    /// Asks for `first` bytes and, if the header of what comes says that there are more, for all: those that
    /// `whole` counts, up to `most`.
    pub(crate) async fn ask_all(
        &self,
        name: &'static str,
        cdb: impl Fn(u32) -> Cdb,
        first: u32,
        most: u32,
        whole: impl Fn(&[u8]) -> u64,
    ) -> Result<Buffer, VerbError> {
        let answer = self.ask(name, cdb(first), first as usize).await?;
        match u32::try_from(whole(&answer)).unwrap_or(u32::MAX).min(most) {
            all if all > first => self.ask(name, cdb(all), all as usize).await,
            _ => Ok(answer),
        }
    }

    /// Sends a command again for as long as it has only been put off. It is meant for the session there is
    /// now: what answers at the LUN in another one may be another device.
    async fn until_done(
        &self,
        name: &'static str,
        cdb: Cdb,
        mut transfer: Transfer,
    ) -> Result<(Status, Transfer), VerbError> {
        let (mut pause, mut tries) = (PAUSE_FIRST, TRIES);
        let epoch = Some(self.target().reinstatements());
        loop {
            let spec = CommandSpec { lun: self.lun(), cdb, transfer, epoch, waits_for_end: false };
            let ended = self.target().attempt(spec).await;
            let answer = ended.outcome?;
            transfer = ended.transfer;
            let sense = Sense::parse(&answer.sense);
            match disposition(answer.status, sense) {
                Disposition::Done => return Ok((answer, transfer)),
                Disposition::RetryNow if tries > 0 => {}
                Disposition::RetryLater if tries > 0 => {
                    reactor::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_LONGEST);
                }
                _ if answer.status == status::RESERVATION_CONFLICT
                    && self.target().has_orphaned_registration(self.lun()) =>
                {
                    return Err(VerbError::Orphaned(name));
                }
                Disposition::RetryNow | Disposition::RetryLater | Disposition::Refused => {
                    return Err(VerbError::Refused { name, status: answer.status, sense });
                }
            }
            tries -= 1;
        }
    }
}

/// What to do after a response.
#[derive(Debug, PartialEq, Eq)]
enum Disposition {
    Done,
    RetryNow,
    RetryLater,
    Refused,
}

fn disposition(answered: u8, sense: Option<Sense>) -> Disposition {
    match (answered, sense) {
        (status::GOOD | status::CONDITION_MET, _) => Disposition::Done,
        // It was carried out, and there is something to tell.
        (status::CHECK_CONDITION, Some(sense)) if sense.was_carried_out() => Disposition::Done,
        // A unit attention and an error of an earlier command are reported instead of carrying this one out.
        (status::CHECK_CONDITION, Some(sense)) if sense.is_unit_attention() || sense.deferred => {
            Disposition::RetryNow
        }
        (status::BUSY | status::TASK_SET_FULL, _) => Disposition::RetryLater,
        _ => Disposition::Refused,
    }
}

/// The parameters of a command, ready to be sent.
pub(crate) fn parameters(bytes: &[u8]) -> Slice {
    let mut buffer = Buffer::zeroed(bytes.len());
    buffer.copy_from_slice(bytes);
    buffer.share()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sense(key: u8) -> Option<Sense> {
        Some(Sense { key, ..Sense::default() })
    }

    #[test]
    fn what_is_only_put_off_is_sent_again() {
        assert_eq!(disposition(status::CHECK_CONDITION, sense(6)), Disposition::RetryNow);
        assert_eq!(disposition(status::BUSY, None), Disposition::RetryLater);
        assert_eq!(disposition(status::TASK_SET_FULL, None), Disposition::RetryLater);
    }

    #[test]
    fn what_is_refused_stays_refused() {
        assert_eq!(disposition(status::CHECK_CONDITION, sense(5)), Disposition::Refused);
        assert_eq!(disposition(status::CHECK_CONDITION, None), Disposition::Refused);
        assert_eq!(disposition(status::RESERVATION_CONFLICT, None), Disposition::Refused);
    }

    #[test]
    fn a_recovered_error_is_no_refusal() {
        assert_eq!(disposition(status::CHECK_CONDITION, sense(1)), Disposition::Done);
    }
}
