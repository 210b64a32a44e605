//! Errors of storage commands: one sentence, and a kind with an exit code.
//!
//! The exit codes are stable: `FailureKind::ALL` is their table, which `--help` and `docs/command-line.md`
//! print. If a target reported an error, the error determines the kind, and the sentence quotes it.

use std::fmt::{self, Display};
use std::io::{self, ErrorKind};

use block::DeviceError;
use failover::JournalFileError;
use iscsi::login::LoginFailure;
use iscsi::pdu::LoginStatus;
use iscsi_client::verbs::VerbError;
use iscsi_client::{CommandError, Ending, OpenError, Sense, status};

use crate::secrets;

/// The error of a command.
#[derive(Debug)]
pub struct Failure {
    kind: FailureKind,
    sentence: String,
    /// Whether the object is in use by another user.
    is_in_use: bool,
}

/// The kind of a failure, with its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// A failure without a specific kind.
    Failed,
    /// Refused before anything was done.
    Refused,
    /// No address, no connection, or a timeout.
    Unreachable,
    /// The login was refused.
    LoginRefused,
    /// The secret of the initiator or of the target is wrong or missing.
    Authentication,
    /// The target or the LUN does not exist.
    NotFound,
    /// Another initiator has reserved the LUN.
    Reserved,
    /// The LUN is write-protected.
    WriteProtected,
    /// The medium or the device failed.
    Device,
    /// The data check failed.
    Mismatch,
    /// No space is left.
    NoSpace,
    /// A comparison found a regression.
    Worse,
    /// A diagnosis with `--check` found a bottleneck.
    HeldBack,
    /// An import omitted something.
    Incomplete,
    /// The command was interrupted by a signal or by the caller.
    Interrupted,
}

impl FailureKind {
    const ALL: [FailureKind; 15] = [
        FailureKind::Failed,
        FailureKind::Refused,
        FailureKind::Unreachable,
        FailureKind::LoginRefused,
        FailureKind::Authentication,
        FailureKind::NotFound,
        FailureKind::Reserved,
        FailureKind::WriteProtected,
        FailureKind::Device,
        FailureKind::Mismatch,
        FailureKind::NoSpace,
        FailureKind::Worse,
        FailureKind::HeldBack,
        FailureKind::Incomplete,
        FailureKind::Interrupted,
    ];

    /// Returns the kind with this exit code; `Failed` for an unknown code.
    pub fn of_code(code: u8) -> FailureKind {
        FailureKind::ALL
            .into_iter()
            .find(|kind| kind.code().0 == code)
            .unwrap_or(FailureKind::Failed)
    }

    /// Returns the exit code and its meaning.
    const fn code(self) -> (u8, &'static str) {
        match self {
            FailureKind::Failed => (1, "failed during execution"),
            FailureKind::Refused => (
                2,
                "refused before anything was changed: arguments, configuration, volume, URL",
            ),
            FailureKind::Unreachable => (
                3,
                "unreachable: no address, no connection, no response in time",
            ),
            FailureKind::LoginRefused => (4, "the login was refused"),
            FailureKind::Authentication => (
                5,
                "authentication failed: a wrong or missing secret, on either side",
            ),
            FailureKind::NotFound => (6, "no such target, or no such LUN"),
            FailureKind::Reserved => (7, "another initiator has reserved the LUN"),
            FailureKind::WriteProtected => (8, "the LUN is write-protected"),
            FailureKind::Device => (9, "the medium or the device failed"),
            FailureKind::Mismatch => (10, "data check failed: mismatch, or degraded set"),
            FailureKind::NoSpace => (11, "no space left"),
            FailureKind::Worse => (
                12,
                "a comparison found a statistically significant regression",
            ),
            FailureKind::HeldBack => (13, "a diagnosis with --check found a bottleneck"),
            FailureKind::Incomplete => (14, "an import was incomplete; its output can be used"),
            // Shells report a command that was terminated by SIGINT with this code: 128 plus the signal
            // number.
            FailureKind::Interrupted => (130, "interrupted"),
        }
    }
}

/// Returns the table of exit codes for `--help`.
pub fn exit_codes() -> String {
    let rows = FailureKind::ALL.map(FailureKind::code);
    let rows = rows
        .iter()
        .map(|(code, meaning)| format!("\n  {code:>3}  {meaning}"));
    format!("Exit codes:\n    0  done{}", rows.collect::<String>())
}

impl Failure {
    /// Creates the failure of a request that cannot be executed as given. The sentence must name the remedy.
    pub fn refused(why: impl Display) -> Failure {
        Failure::new(FailureKind::Refused, why)
    }

    /// Creates the failure of a request that is refused because the object is in use.
    pub fn in_use(why: impl Display) -> Failure {
        Failure {
            is_in_use: true,
            ..Failure::refused(why)
        }
    }

    /// Creates a failure during execution that has no specific exit code.
    pub fn failed(why: impl Display) -> Failure {
        Failure::new(FailureKind::Failed, why)
    }

    /// Creates a failure of this kind. Secrets in its sentence are masked, whatever the sentence's source.
    pub fn new(kind: FailureKind, why: impl Display) -> Failure {
        Failure {
            kind,
            sentence: secrets::masked(&why.to_string()),
            is_in_use: kind == FailureKind::Reserved,
        }
    }

    /// Creates the failure for output that could not be written to standard output or to a file.
    pub fn unwritten(to: impl Display, error: &io::Error) -> Failure {
        let kind = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                FailureKind::NoSpace
            }
            _ => FailureKind::Failed,
        };
        Failure::new(kind, format_args!("cannot write to {to}: {error}"))
    }

    /// Creates the failure of a device operation, such as "cannot read block 7: …".
    pub fn device(doing: impl Display, error: DeviceError) -> Failure {
        Failure::new(of_device(error), format_args!("{doing}: {error}"))
    }

    /// Puts the name of the object concerned in front of the sentence.
    pub fn context(mut self, what: impl Display) -> Failure {
        self.sentence = format!("{what}: {}", self.sentence);
        self
    }

    /// Appends text to the sentence.
    pub fn and(mut self, more: impl Display) -> Failure {
        self.sentence += &format!("; {more}");
        self
    }

    /// Adds the reason to the failure of an unreachable device, and adopts the reason's kind.
    pub fn since(self, reason: &Failure) -> Failure {
        Failure {
            kind: reason.kind,
            ..self.and(reason)
        }
    }

    /// Returns whether a device failed, for any reason.
    pub fn is_device(&self) -> bool {
        self.kind == FailureKind::Device
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Returns the exit code of the failure's kind.
    pub fn code(&self) -> u8 {
        self.kind.code().0
    }

    /// Returns whether another path to the same target is worth trying.
    pub fn is_unreachable(&self) -> bool {
        self.kind == FailureKind::Unreachable
    }

    /// Returns whether the failure is a reservation conflict.
    pub fn is_conflict(&self) -> bool {
        self.kind == FailureKind::Reserved
    }

    /// Returns whether the object is in use: by another host, which has locked or reserved it, or by a
    /// process.
    pub fn is_in_use(&self) -> bool {
        self.is_in_use
    }

    /// Returns whether authentication failed.
    pub fn is_about_secrets(&self) -> bool {
        self.kind == FailureKind::Authentication
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

/// Returns the kind of a network interface error. An interface that is down can come up again; every other
/// error is an error in the arguments.
pub(crate) fn of_interface(error: &io::Error) -> FailureKind {
    match error.kind() {
        ErrorKind::NetworkDown => FailureKind::Unreachable,
        _ => FailureKind::Refused,
    }
}

/// Converts a back end's error, which may contain a failure of this crate.
impl From<volume::backend::OpenError> for Failure {
    fn from(error: volume::backend::OpenError) -> Failure {
        let is_in_use = matches!(
            error.downcast_ref(),
            Some(host::OpenError::AlreadyInUse { .. })
        );
        match error.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(error) => Failure {
                is_in_use,
                ..Failure::refused(error)
            },
        }
    }
}

impl From<disk_contents::Refused> for Failure {
    fn from(refused: disk_contents::Refused) -> Failure {
        let kind = match &refused {
            disk_contents::Refused::WriteProtected(_) => FailureKind::WriteProtected,
            disk_contents::Refused::Kept(sentence) => {
                return Failure::refused(format_args!("{sentence}; use --yes to overwrite it"));
            }
            disk_contents::Refused::Unreadable(_, error) => of_device(*error),
        };
        Failure::new(kind, refused)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        Failure::new(of_open(&error), error)
    }
}

impl From<VerbError> for Failure {
    fn from(error: VerbError) -> Failure {
        let kind = match &error {
            VerbError::Lost(error) => of_command(*error),
            VerbError::Refused { status, sense, .. } => of_answer(*status, *sense),
            VerbError::Orphaned(_) => FailureKind::Reserved,
            VerbError::Nonsense(_) => FailureKind::Failed,
            VerbError::OutOfRange(_) => FailureKind::Refused,
        };
        Failure::new(kind, error)
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Failure {
        Failure::new(of_command(error), error)
    }
}

pub(crate) fn of_open(error: &OpenError) -> FailureKind {
    match error {
        OpenError::Url(_)
        | OpenError::Name { .. }
        | OpenError::Secret { .. }
        | OpenError::SecretWithoutUser(_)
        | OpenError::SeveralPaths => FailureKind::Refused,
        // The congestion control algorithm is unknown: connecting to an address never returns "not found".
        OpenError::Connect { error, .. } if error.kind() == io::ErrorKind::NotFound => {
            FailureKind::Refused
        }
        OpenError::Resolve { .. }
        | OpenError::NoAddress(_)
        | OpenError::Connect { .. }
        | OpenError::LoginTimedOut(_)
        | OpenError::Redirected(_) => FailureKind::Unreachable,
        OpenError::AfterRedirection { error, .. } => of_open(error),
        OpenError::Broken { ending, .. } => of_ending(ending),
        OpenError::Login { why, .. } => of_login(why),
        OpenError::NoSuchLun(_) => FailureKind::NotFound,
        OpenError::Command { error, .. } => of_command(*error),
        OpenError::Refused { status, sense, .. } => of_answer(*status, *sense),
        OpenError::JournalFile(error) => of_journal_file(error),
        OpenError::AnotherGroup { .. }
        | OpenError::AnotherDevice { .. }
        | OpenError::NotADisk(_)
        | OpenError::BlockSize(_)
        | OpenError::Nonsense(_) => FailureKind::Failed,
    }
}

/// Returns the kind of a journal file error: the device rejected the replay, or the file cannot be used.
pub(crate) fn of_journal_file(error: &JournalFileError) -> FailureKind {
    match error {
        JournalFileError::Device(_, error, _) => of_device(*error),
        _ => FailureKind::Refused,
    }
}

/// Returns the kind for the reason why a connection ended. A network failure cannot be distinguished from an
/// unavailable peer, so both have the same kind. A protocol error proves that the peer is reachable.
fn of_ending(ending: &Ending) -> FailureKind {
    match ending {
        Ending::LoggedOut
        | Ending::Closed
        | Ending::Silent
        | Ending::Unresponsive
        | Ending::Io(_) => FailureKind::Unreachable,
        Ending::NotALogin
        | Ending::Nbd
        | Ending::HeaderDigest
        | Ending::Fatal(_)
        | Ending::NoPlace => FailureKind::Failed,
    }
}

fn of_login(why: &LoginFailure) -> FailureKind {
    match why {
        LoginFailure::Refused(LoginStatus::AuthenticationFailure)
        | LoginFailure::AuthMethod
        | LoginFailure::Chap(_) => FailureKind::Authentication,
        LoginFailure::Refused(LoginStatus::NotFound | LoginStatus::TargetRemoved) => {
            FailureKind::NotFound
        }
        LoginFailure::Refused(_) | LoginFailure::Unchecked | LoginFailure::Negotiation(_) => {
            FailureKind::LoginRefused
        }
        LoginFailure::Malformed(_)
        | LoginFailure::MalformedText(_)
        | LoginFailure::NotOurs
        | LoginFailure::OutOfTurn
        | LoginFailure::NoAddress
        | LoginFailure::TooManyRounds => FailureKind::Failed,
    }
}

fn of_command(error: CommandError) -> FailureKind {
    match error {
        CommandError::ConnectionLost | CommandError::TimedOut | CommandError::Unsettled => {
            FailureKind::Unreachable
        }
        CommandError::Rejected | CommandError::Aborted | CommandError::Reinstated => {
            FailureKind::Failed
        }
        CommandError::TooLong => FailureKind::Refused,
    }
}

/// Returns the kind of a failure, according to its status and sense data (SPC-4 4.5.6, sense keys).
pub fn of_answer(status: u8, sense: Option<Sense>) -> FailureKind {
    const NOT_READY: u8 = 0x2;
    const MEDIUM_ERROR: u8 = 0x3;
    const HARDWARE_ERROR: u8 = 0x4;
    const ILLEGAL_REQUEST: u8 = 0x5;
    const DATA_PROTECT: u8 = 0x7;
    const MISCOMPARE: u8 = 0xe;
    if status == status::RESERVATION_CONFLICT {
        return FailureKind::Reserved;
    }
    match sense.map(|sense| (sense.key, sense.code, sense.qualifier)) {
        Some((NOT_READY | MEDIUM_ERROR | HARDWARE_ERROR, ..)) => FailureKind::Device,
        Some((ILLEGAL_REQUEST, 0x25, _)) => FailureKind::NotFound, // LOGICAL UNIT NOT SUPPORTED
        Some((DATA_PROTECT, 0x27, 0x07)) => FailureKind::NoSpace, // SPACE ALLOCATION FAILED WRITE PROTECT
        Some((DATA_PROTECT, ..)) => FailureKind::WriteProtected,
        Some((MISCOMPARE, ..)) => FailureKind::Mismatch,
        _ => FailureKind::Failed,
    }
}

fn of_device(error: DeviceError) -> FailureKind {
    match error {
        DeviceError::ReadOnly => FailureKind::WriteProtected,
        DeviceError::NoSpace => FailureKind::NoSpace,
        DeviceError::Reserved => FailureKind::Reserved,
        DeviceError::TimedOut => FailureKind::Unreachable,
        DeviceError::Unreadable(_)
        | DeviceError::Unwritable(_)
        | DeviceError::NotReady
        | DeviceError::Fenced
        | DeviceError::WritesLost
        | DeviceError::Unsettled => FailureKind::Device,
        DeviceError::OutOfRange | DeviceError::Unsupported | DeviceError::Cancelled => {
            FailureKind::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sense(key: u8, code: u8, qualifier: u8) -> Option<Sense> {
        Some(Sense {
            key,
            code,
            qualifier,
            ..Sense::default()
        })
    }

    #[test]
    fn every_kind_has_a_code_of_its_own() {
        let codes = FailureKind::ALL.map(|kind| kind.code().0);
        assert!(codes.is_sorted_by(|one, next| one < next), "{codes:?}");
    }

    #[test]
    fn the_documentation_lists_every_exit_code() {
        let page = include_str!("../../../../docs/command-line.md");
        for (code, meaning) in FailureKind::ALL.map(FailureKind::code) {
            assert!(
                page.contains(&format!("| {code} | {meaning} |")),
                "{code}: {meaning}"
            );
        }
    }

    #[test]
    fn a_refused_login_is_told_by_its_status() {
        let kind = |status| of_login(&LoginFailure::Refused(status));
        assert_eq!(
            kind(LoginStatus::AuthenticationFailure),
            FailureKind::Authentication
        );
        assert_eq!(kind(LoginStatus::NotFound), FailureKind::NotFound);
        assert_eq!(
            kind(LoginStatus::AuthorizationFailure),
            FailureKind::LoginRefused
        );
        assert_eq!(
            kind(LoginStatus::ServiceUnavailable),
            FailureKind::LoginRefused
        );
    }

    #[test]
    fn a_refused_command_is_told_by_its_sense() {
        assert_eq!(
            of_answer(status::RESERVATION_CONFLICT, None),
            FailureKind::Reserved
        );
        assert_eq!(
            of_answer(status::CHECK_CONDITION, sense(7, 0x27, 0)),
            FailureKind::WriteProtected
        );
        assert_eq!(
            of_answer(status::CHECK_CONDITION, sense(7, 0x27, 7)),
            FailureKind::NoSpace
        );
        assert_eq!(
            of_answer(status::CHECK_CONDITION, sense(3, 0x11, 0)),
            FailureKind::Device
        );
        assert_eq!(
            of_answer(status::CHECK_CONDITION, sense(5, 0x25, 0)),
            FailureKind::NotFound
        );
        assert_eq!(
            of_answer(status::CHECK_CONDITION, sense(5, 0x24, 0)),
            FailureKind::Failed
        );
        assert_eq!(of_answer(status::BUSY, None), FailureKind::Failed);
    }
}
