//! SCSI commands by name, as methods of a [`Unit`], with decoded and human-readable responses.
//!
//! The crate `scsi` decodes responses, which are untrusted. Where the standard allows a target to return
//! fewer bytes, missing bytes read as zero. Where the bytes are required, the response is rejected as
//! [`VerbError::Nonsense`]. Other commands can be sent with [`Unit::command`].
//!
//! A command is retried after a unit attention, and for a few seconds while the target is busy. If the
//! session is lost, a command that changes anything fails with [`VerbError::Lost`], because it may or may not
//! have been executed.

mod blocks;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use block::{Buffer, Slice};
use derive_more::Display;
use iscsi::pdu::{Lun, Residual};
use scsi::cdb::{self, Cdb};
use scsi::fields::{u16_at, u32_at};
use scsi::{LunList, ModeForm, PS, Sense, mode_field, status};

use crate::error::{CommandError, refusal};
use crate::remote_target::RemoteTarget;
use crate::tasks::{CommandEnd, CommandSpec, Status, Transfer};

pub use blocks::{
    Compared, ExtendedCopy, ExtendedCopyError, LbaRun, PersistentReserve, WriteSame, extended_copy,
};
pub use scsi::{
    AccessState, Association, BlockDescriptor, BlockLimits, CacheGeneration, Capacity,
    CommandSupport, CommandTimeouts, Designator, Field, Inquiry, LbaStatus, LunAddress,
    LunSelection, ModePage, ModeValues, Modes, Name, Policy, Port, PortGroup, Provisioning,
    RegisteredKeys, Registration, Reservation, ReservationCapabilities, ReservationType, StartStop,
    SupportedCommand, TransportId, UnknownReservationType, Vpd, VpdContent, command_name,
    device_type, page_name, standard_name,
};

pub(crate) use blocks::{lba_runs, unmap_lists};

/// The reason why a command was not executed, or may not have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum VerbError {
    /// It is unknown whether the command was executed.
    Lost(CommandError),
    /// The target rejected the command.
    #[display("the target refused {name}: {}", refusal(*status, *sense))]
    Refused {
        /// The command's name in the standard.
        name: &'static str,
        /// The command's status (SAM-5 table 45).
        status: u8,
        /// The sense data returned with the status.
        sense: Option<Sense>,
    },
    /// The target reported RESERVATION CONFLICT because the session has moved to another portal group than
    /// the one in which it registered its key.
    #[display(
        "the target refused {_0}: RESERVATION CONFLICT; the key was registered in a portal group that \
         the session has left, and must be registered again"
    )]
    Orphaned(&'static str),
    /// The response to this command is invalid.
    #[display("the response to {_0} is invalid")]
    Nonsense(&'static str),
    /// A parameter is too large for the command, such as a block beyond the command's address range, or too
    /// many blocks.
    #[display("a number is too large for {_0}")]
    OutOfRange(&'static str),
}

impl VerbError {
    /// Returns whether the target does not support the command or one of its parameters.
    pub fn is_unsupported(&self) -> bool {
        // ILLEGAL REQUEST with INVALID COMMAND OPERATION CODE, INVALID FIELD IN CDB, or INVALID FIELD IN
        // PARAMETER LIST.
        matches!(
            self,
            VerbError::Refused {
                sense: Some(Sense {
                    key: 5,
                    code: 0x20 | 0x24 | 0x26,
                    ..
                }),
                ..
            }
        )
    }
}

impl std::error::Error for VerbError {}

impl From<CommandError> for VerbError {
    fn from(error: CommandError) -> VerbError {
        VerbError::Lost(error)
    }
}

/// Maximum number of tries. Several unit attentions can be pending, one for each event, and a new session
/// usually receives a few. A busy target is retried for about five seconds.
const TRIES: u32 = 12;
const PAUSE_FIRST: Duration = Duration::from_millis(8);
const PAUSE_LONGEST: Duration = Duration::from_secs(1);

impl Unit {
    /// Sends a command that moves no data.
    pub(crate) async fn carry_out(&self, name: &'static str, cdb: Cdb) -> Result<(), VerbError> {
        self.within_its_time(self.until_done(name, cdb, Transfer::None))
            .await
            .map(drop)
    }

    /// Sends a command with parameters or blocks.
    pub(crate) async fn tell(
        &self,
        name: &'static str,
        cdb: Cdb,
        data: Slice,
    ) -> Result<(), VerbError> {
        self.within_its_time(self.until_done(name, cdb, Transfer::Out(data)))
            .await
            .map(drop)
    }

    /// Stops `work` at the request timeout.
    async fn within_its_time<T>(
        &self,
        work: impl Future<Output = Result<T, VerbError>>,
    ) -> Result<T, VerbError> {
        let limit = self.target().timeouts().request();
        reactor::timeout(limit, work)
            .await
            .unwrap_or(Err(VerbError::Lost(CommandError::TimedOut)))
    }

    /// Sends a command that returns up to `bytes` bytes, and returns the data received. The command must not
    /// change anything, because it is resent if its session was lost or another initiator's reset aborted it.
    pub(crate) async fn ask(
        &self,
        name: &'static str,
        cdb: Cdb,
        bytes: usize,
    ) -> Result<Buffer, VerbError> {
        self.within_its_time(self.ask_again(name, cdb, bytes)).await
    }

    async fn ask_again(
        &self,
        name: &'static str,
        cdb: Cdb,
        bytes: usize,
    ) -> Result<Buffer, VerbError> {
        let mut tries = TRIES;
        loop {
            let transfer = Transfer::into_all_of(Buffer::zeroed(bytes));
            match self.until_done(name, cdb, transfer).await {
                Ok((status, Transfer::In { mut buffer, .. })) => {
                    buffer.truncate(status.in_bytes);
                    return Ok(buffer);
                }
                Ok((_, Transfer::None | Transfer::Out(_))) => {
                    return Err(VerbError::Nonsense(name));
                }
                Err(VerbError::Lost(
                    CommandError::ConnectionLost | CommandError::Aborted | CommandError::Reinstated,
                )) if tries > 0 => self.target().usable(None).await?,
                Err(error) => return Err(error),
            }
            tries -= 1;
        }
    }

    /// Requests `first` bytes. If the header shows that the response is longer, requests the whole response:
    /// the number of bytes that `whole` returns, up to `most`.
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

    /// Resends a command while the target defers it, but only in the current session, because the LUN may map
    /// to a different device in another session.
    async fn until_done(
        &self,
        name: &'static str,
        cdb: Cdb,
        mut transfer: Transfer,
    ) -> Result<(Status, Transfer), VerbError> {
        let (mut pause, mut tries) = (PAUSE_FIRST, TRIES);
        let epoch = Some(self.target().reinstatements());
        loop {
            let spec = CommandSpec {
                lun: self.lun(),
                cdb,
                transfer,
                epoch,
                waits_for_end: false,
            };
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
                    return Err(VerbError::Refused {
                        name,
                        status: answer.status,
                        sense,
                    });
                }
            }
            tries -= 1;
        }
    }
}

/// The action after a response.
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
        // The command was executed, and the sense data is informational.
        (status::CHECK_CONDITION, Some(sense)) if sense.was_carried_out() => Disposition::Done,
        // The target reported a unit attention or an earlier command's error instead of executing this
        // command.
        (status::CHECK_CONDITION, Some(sense)) if sense.is_unit_attention() || sense.deferred => {
            Disposition::RetryNow
        }
        (status::BUSY | status::TASK_SET_FULL, _) => Disposition::RetryLater,
        _ => Disposition::Refused,
    }
}

/// Returns the parameters of a command, ready to be sent.
pub(crate) fn parameters(bytes: &[u8]) -> Slice {
    let mut buffer = Buffer::zeroed(bytes.len());
    buffer.copy_from_slice(bytes);
    buffer.share()
}

// A logical unit of a target, of any device type, identified only by its address.
//
// A [`Unit`] is independent of the device type: commands are sent unchanged. It also has methods for named
// SCSI commands with decoded results ([`crate::verbs`]).

/// A logical unit of a target, to which commands can be sent. It keeps the session open. A clone refers to
/// the same unit.
#[derive(Clone)]
pub struct Unit {
    target: Arc<RemoteTarget>,
    lun: Lun,
}

/// The target's response to a command.
#[derive(Debug)]
pub struct CommandResult {
    /// The SCSI status (SAM-5 table 45).
    pub status: u8,
    /// The sense data, if there is any.
    pub sense: Option<Sense>,
    /// The data received; empty if none was requested.
    pub data: Buffer,
    /// The residual count: the difference between the expected and the transferred length.
    pub residual: Residual,
}

impl Unit {
    /// Creates the unit at an address of `target`. The address may have any form that SAM-5 defines.
    pub fn new(target: Arc<RemoteTarget>, lun: Lun) -> Unit {
        Unit { target, lun }
    }

    /// Returns the session through which the unit is reached.
    pub fn target(&self) -> &Arc<RemoteTarget> {
        &self.target
    }

    /// Returns the unit's address, in the form in which it is sent.
    pub fn lun(&self) -> Lun {
        self.lun
    }

    /// Sends a command unchanged, and returns the target's response, whatever its status. The command is not
    /// retried.
    pub async fn command(
        &self,
        cdb: Cdb,
        transfer: Transfer,
    ) -> Result<CommandResult, CommandError> {
        let spec = CommandSpec {
            lun: self.lun,
            cdb,
            transfer,
            epoch: None,
            waits_for_end: false,
        };
        let CommandEnd {
            outcome, transfer, ..
        } = self.target.attempt(spec).await;
        let status = outcome?;
        let data = match transfer {
            Transfer::In { mut buffer, range } => {
                buffer.copy_within(
                    range.start..range.start + status.in_bytes.min(range.len()),
                    0,
                );
                buffer.truncate(status.in_bytes);
                buffer
            }
            Transfer::None | Transfer::Out(_) => Buffer::recycled(0),
        };
        let sense = Sense::parse(&status.sense);
        Ok(CommandResult {
            status: status.status,
            sense,
            data,
            residual: status.residual,
        })
    }
}

impl RemoteTarget {
    /// Returns the logical unit of this number, of any device type.
    pub fn unit(self: &Arc<Self>, number: u16) -> Unit {
        Unit::new(
            Arc::clone(self),
            Lun(LunAddress::Number(number.into()).write()),
        )
    }

    /// Returns the unit at the address that the target reports for this number. Numbers below 256 fit into
    /// one byte. For larger numbers, targets use different formats, and some accept only their own format:
    /// LIO reports 256 as 0100h, other targets as 4100h.
    pub async fn reported_unit(self: &Arc<Self>, number: u16) -> Unit {
        let usual = self.unit(number);
        if number < 0x100 {
            return usual;
        }
        // If the target does not support REPORT LUNS, the usual form is used.
        let luns = self
            .unit(0)
            .report_luns(LunSelection::Ordinary)
            .await
            .unwrap_or_default();
        reported(&luns, number).map_or(usual, |lun| Unit::new(Arc::clone(self), lun))
    }
}

/// Returns the reported address of the logical unit with this number.
fn reported(luns: &[Lun], number: u16) -> Option<Lun> {
    let wanted = LunAddress::Number(number.into());
    luns.iter()
        .copied()
        .find(|lun| LunAddress::parse(lun.0) == wanted)
}

// INQUIRY (SPC-4 6.6): the standard data, and vital product data.

const NAME: &str = "INQUIRY";
/// Length of the first request, which is enough for the pages of most disks. A longer page is requested
/// again. Old targets support only the low byte of the allocation length.
const PAGE_BYTES: u32 = 255;

impl Unit {
    /// Requests the standard INQUIRY data. A target returns it for any LUN, and while the unit is not ready.
    pub async fn inquiry(&self) -> Result<Inquiry, VerbError> {
        let data = self
            .ask(
                NAME,
                cdb::inquiry(None, Inquiry::BYTES as u16),
                Inquiry::BYTES,
            )
            .await?;
        Inquiry::parse(&data).ok_or(VerbError::Nonsense(NAME))
    }

    /// Requests a page.
    pub async fn vpd(&self, code: u8) -> Result<Vpd, VerbError> {
        let cdb = |bytes| cdb::inquiry(Some(code), bytes as u16);
        let whole = |answer: &[u8]| 4 + u64::from(u16_at(answer, 2));
        let data = self
            .ask_all(NAME, cdb, PAGE_BYTES, u32::from(u16::MAX), whole)
            .await?;
        Vpd::parse(code, &data).ok_or(VerbError::Nonsense(NAME))
    }

    /// Returns the codes of the supported pages.
    pub async fn vpd_pages(&self) -> Result<Vec<u8>, VerbError> {
        match self.vpd(0).await?.content {
            VpdContent::Pages(pages) => Ok(pages),
            _ => Err(VerbError::Nonsense(NAME)),
        }
    }

    /// Requests the Block Limits page. If the target does not have the page, returns no limits.
    pub async fn block_limits(&self) -> Result<BlockLimits, VerbError> {
        self.bytes_of(0xb0)
            .await
            .map(|page| BlockLimits::parse(&page))
    }

    /// Requests the Logical Block Provisioning page. If the target does not have the page, returns no
    /// features.
    pub async fn provisioning(&self) -> Result<Provisioning, VerbError> {
        self.bytes_of(0xb2)
            .await
            .map(|page| Provisioning::parse(&page))
    }

    /// Returns the bytes of a page, or an empty vector if the target does not have the page.
    async fn bytes_of(&self, code: u8) -> Result<Vec<u8>, VerbError> {
        match self.vpd(code).await {
            Ok(page) => Ok(page.bytes),
            Err(error) if error.is_unsupported() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

// The identity of a logical unit, by which it is recognised after a reconnect.

/// Identifies a logical unit. Equal identities mean the same unit, as far as can be determined; a unit whose
/// name has changed is treated as a different unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The names of the logical unit in its Device Identification page.
    Designators(BTreeSet<Name>),
    /// The unit's serial number, if it has no designators.
    Serial(String),
    /// The unit provides neither.
    Unknown,
}

impl Identity {
    fn from_designators(designators: Vec<Designator>) -> Option<Identity> {
        let unit = designators
            .into_iter()
            .filter(|one| one.association == Association::LogicalUnit);
        // A group contains several units, so its name does not identify a unit.
        let names: BTreeSet<Name> = unit
            .map(|one| one.name)
            .filter(|name| !matches!(name, Name::LogicalUnitGroup(_)))
            .collect();
        (!names.is_empty()).then_some(Identity::Designators(names))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Identity::Designators(names) => {
                let words: Vec<String> = names.iter().map(Name::to_string).collect();
                f.write_str(&words.join(", "))
            }
            Identity::Serial(serial) => write!(f, "serial number {serial}"),
            Identity::Unknown => write!(f, "a device without a name"),
        }
    }
}

impl Unit {
    /// Requests the unit's names or, if it has none, its serial number. It is not an error if the unit has
    /// neither.
    pub async fn identity(&self) -> Result<Identity, VerbError> {
        let pages = self.vpd_pages().await.or_else(unless_refused)?;
        self.identity_by(&pages).await
    }

    /// Like [`Unit::identity`], for a known list of supported VPD pages.
    pub(crate) async fn identity_by(&self, pages: &[u8]) -> Result<Identity, VerbError> {
        if pages.contains(&0x83)
            && let VpdContent::Designators(designators) = self.content(0x83).await?
            && let Some(identity) = Identity::from_designators(designators)
        {
            return Ok(identity);
        }
        if pages.contains(&0x80)
            && let VpdContent::SerialNumber(serial) = self.content(0x80).await?
            && !serial.is_empty()
        {
            return Ok(Identity::Serial(serial));
        }
        Ok(Identity::Unknown)
    }

    /// Returns the content of a page, or empty content if the target rejects the request.
    async fn content(&self, page: u8) -> Result<VpdContent, VerbError> {
        self.vpd(page)
            .await
            .map(|page| page.content)
            .or_else(unless_refused)
    }
}

/// Converts a rejection to an empty result. Other errors, such as a lost connection, are returned.
fn unless_refused<T: Default>(error: VerbError) -> Result<T, VerbError> {
    match error {
        VerbError::Refused { .. } | VerbError::Orphaned(_) | VerbError::Nonsense(_) => {
            Ok(T::default())
        }
        VerbError::Lost(_) | VerbError::OutOfRange(_) => Err(error),
    }
}

// Lists that a target reports: LUNs, target port groups, supported commands.

const OPCODES: &str = "REPORT SUPPORTED OPERATION CODES";
/// Number of LUNs requested first.
const LUNS_FIRST: u32 = 255;
/// Maximum number of LUNs requested. The two bytes of an address allow only 16,384 LUNs per target.
const LUNS_MOST: u32 = 0x1_0000;

impl Unit {
    /// Returns the logical units that the target reports to this initiator (REPORT LUNS). The command can be
    /// sent to any LUN of the target, usually to LUN 0.
    pub async fn report_luns(&self, which: LunSelection) -> Result<Vec<Lun>, VerbError> {
        let name = "REPORT LUNS";
        let cdb = |bytes| cdb::report_luns_of(which, bytes);
        let whole = |answer: &[u8]| 8 + u64::from(u32_at(answer, 0));
        let answer = self
            .ask_all(name, cdb, 8 + 8 * LUNS_FIRST, 8 + 8 * LUNS_MOST, whole)
            .await?;
        let list = LunList::parse(&answer).ok_or(VerbError::Nonsense(name))?;
        Ok(list.luns.into_iter().map(Lun).collect())
    }

    /// Returns the target port groups (REPORT TARGET PORT GROUPS). A target whose INQUIRY data has TPGS 0
    /// need not support it.
    pub async fn target_port_groups(&self) -> Result<Vec<PortGroup>, VerbError> {
        let name = "REPORT TARGET PORT GROUPS";
        let answer = self
            .ask_all(name, cdb::report_target_port_groups, 1024, 1 << 20, whole)
            .await?;
        PortGroup::parse_list(&answer).ok_or(VerbError::Nonsense(name))
    }

    /// Returns all commands that the logical unit supports (REPORT SUPPORTED OPERATION CODES).
    pub async fn supported_commands(&self) -> Result<Vec<SupportedCommand>, VerbError> {
        let answer = self
            .ask_all(OPCODES, cdb::report_supported_opcodes, 4096, 1 << 16, whole)
            .await?;
        SupportedCommand::parse_list(&answer).ok_or(VerbError::Nonsense(OPCODES))
    }

    /// Returns whether the unit supports a command. A service action must be given for commands that have
    /// one, and only for these.
    pub async fn command_support(
        &self,
        opcode: u8,
        service_action: Option<u16>,
    ) -> Result<CommandSupport, VerbError> {
        let bytes = CommandSupport::BYTES_MAX;
        let answer = self
            .ask(
                OPCODES,
                cdb::report_one_opcode(opcode, service_action, bytes),
                bytes as usize,
            )
            .await?;
        CommandSupport::parse(&answer).ok_or(VerbError::Nonsense(OPCODES))
    }
}

/// Returns the total length of a response that starts with its length. The length excludes the length field
/// itself.
fn whole(answer: &[u8]) -> u64 {
    4 + u64::from(u32_at(answer, 0))
}

// Commands on the whole medium: TEST UNIT READY, START STOP UNIT, SYNCHRONIZE CACHE, VERIFY, SANITIZE.

/// The action of SANITIZE (SBC-4 5.31).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sanitize {
    /// OVERWRITE: writes a pattern over everything.
    Overwrite {
        /// The pattern, which is repeated to fill a block. It must not be longer than a block.
        pattern: Vec<u8>,
        /// The number of passes, 1 to 31.
        passes: u8,
        /// INVERT: every other pass writes the pattern's complement.
        invert: bool,
    },
    /// BLOCK ERASE: uses the medium's erase function.
    BlockErase,
    /// CRYPTOGRAPHIC ERASE: changes the key.
    CryptographicErase,
    /// EXIT FAILURE MODE: makes a medium usable again after a failed sanitize operation, if that was allowed.
    ExitFailureMode,
}

/// The options of SANITIZE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SanitizeManner {
    /// IMMED: whether the target responds immediately. REQUEST SENSE then reports the progress. Otherwise,
    /// the target responds at the end of the operation, and the command usually times out.
    pub immediate: bool,
    /// AUSE: whether EXIT FAILURE MODE may make the medium usable again if the operation fails.
    pub unrestricted_exit: bool,
}

impl Sanitize {
    /// Returns the command and its parameters.
    fn encode(&self, manner: SanitizeManner) -> Option<(Cdb, Vec<u8>)> {
        let (action, list) = match self {
            Sanitize::Overwrite {
                pattern,
                passes,
                invert,
            } => {
                let length = u16::try_from(pattern.len())
                    .ok()
                    .filter(|length| *length > 0)?;
                let passes = (1..=31).contains(passes).then_some(*passes)?;
                let [high, low] = length.to_be_bytes();
                let header = [u8::from(*invert) << 7 | passes, 0, high, low];
                (1, [&header[..], pattern].concat())
            }
            Sanitize::BlockErase => (2, Vec::new()),
            Sanitize::CryptographicErase => (3, Vec::new()),
            Sanitize::ExitFailureMode => (0x1f, Vec::new()),
        };
        let flags = u8::from(manner.immediate) << 7 | u8::from(manner.unrestricted_exit) << 5;
        Some((
            cdb::sanitize(flags | action, u16::try_from(list.len()).ok()?),
            list,
        ))
    }
}

impl Unit {
    /// TEST UNIT READY: succeeds if the unit can access its medium.
    pub async fn test_unit_ready(&self) -> Result<(), VerbError> {
        self.carry_out("TEST UNIT READY", cdb::test_unit_ready())
            .await
    }

    /// Returns the unit's current state, such as the progress of an operation (REQUEST SENSE); `None` if the
    /// response contains no sense data.
    pub async fn request_sense(&self) -> Result<Option<Sense>, VerbError> {
        let data = self
            .ask("REQUEST SENSE", cdb::request_sense(252), 252)
            .await?;
        Ok(Sense::parse(&data))
    }

    /// Sends START STOP UNIT. Completes when the operation is done.
    pub async fn start_stop(&self, what: StartStop) -> Result<(), VerbError> {
        self.carry_out("START STOP UNIT", cdb::start_stop(what))
            .await
    }

    /// Sends SYNCHRONIZE CACHE for the whole medium.
    pub async fn synchronize_cache(&self) -> Result<(), VerbError> {
        self.carry_out("SYNCHRONIZE CACHE", cdb::synchronize_cache())
            .await
    }

    /// VERIFY: checks that the medium is readable, without comparing data.
    pub async fn verify(&self, lba: u64, blocks: u32) -> Result<(), VerbError> {
        self.carry_out("VERIFY", cdb::verify_16(lba, blocks)).await
    }

    /// SANITIZE: permanently makes all data ever written unreadable. Does not ask for confirmation.
    pub async fn sanitize(&self, what: &Sanitize, manner: SanitizeManner) -> Result<(), VerbError> {
        let name = "SANITIZE";
        let (cdb, list) = what.encode(manner).ok_or(VerbError::OutOfRange(name))?;
        if list.is_empty() {
            return self.carry_out(name, cdb).await;
        }
        self.tell(name, cdb, parameters(&list)).await
    }
}

// MODE SENSE and MODE SELECT (SPC-4 6.10 to 6.13).

/// The reason why a mode field was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Display)]
pub enum ModeFieldError {
    /// No known page has a field of this name.
    #[display("no known mode page has such a field")]
    Unknown,
    /// The target does not have the page, or its page ends before the field.
    #[display("the target does not have this field")]
    Missing,
    /// The value is too large for the field.
    #[display("the value is too large for the field")]
    TooLarge,
    /// The target does not allow the field to be changed.
    #[display("the target does not allow changes of this field")]
    Fixed,
    /// A command failed.
    Verb(VerbError),
}

impl std::error::Error for ModeFieldError {}

impl From<VerbError> for ModeFieldError {
    fn from(error: VerbError) -> ModeFieldError {
        ModeFieldError::Verb(error)
    }
}

const SENSE: &str = "MODE SENSE";
const SELECT: &str = "MODE SELECT";
/// Length of the request. It is enough for all pages of a disk, which take a few hundred bytes.
const BYTES: u16 = 4096;
/// The codes for all pages and for all subpages.
const ALL: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

impl Unit {
    /// Returns all mode pages and subpages (MODE SENSE), or only all pages if the target does not support
    /// subpages.
    pub async fn modes(&self, values: ModeValues) -> Result<Modes, VerbError> {
        match self.mode_sense(ALL, ALL_SUBPAGES, values).await {
            Err(error) if error.is_unsupported() => self.mode_sense(ALL, 0, values).await,
            other => other,
        }
    }

    /// Returns one mode page (MODE SENSE).
    pub async fn mode_sense(
        &self,
        page: u8,
        subpage: u8,
        values: ModeValues,
    ) -> Result<Modes, VerbError> {
        let (form, answer) = self.mode_bytes(page, subpage, values).await?;
        Modes::parse(form, &answer).ok_or(VerbError::Nonsense(SENSE))
    }

    /// Sets a field by its name, such as `WCE` or `SWP`. With `save`, the value persists across a reset. The
    /// page's other fields keep their values.
    pub async fn set_mode_field(
        &self,
        name: &str,
        value: u64,
        save: bool,
    ) -> Result<(), ModeFieldError> {
        let (code, subpage, at) = mode_field(name).ok_or(ModeFieldError::Unknown)?;
        let mut changeable = self.one_page(code, subpage, ModeValues::Changeable).await?;
        if at.read(&changeable.bytes).ok_or(ModeFieldError::Missing)? == 0 {
            return Err(ModeFieldError::Fixed);
        }
        at.write(&mut changeable.bytes, value)
            .ok_or(ModeFieldError::TooLarge)?;
        let mut page = self.one_page(code, subpage, ModeValues::Current).await?;
        at.write(&mut page.bytes, value)
            .ok_or(ModeFieldError::Missing)?;
        Ok(self.mode_select(&page, save).await?)
    }

    /// MODE SELECT: sends a whole page.
    pub async fn mode_select(&self, page: &ModePage, save: bool) -> Result<(), VerbError> {
        match self.select_by(ModeForm::Ten, page, save).await {
            Err(error) if error.is_unsupported() => self.select_by(ModeForm::Six, page, save).await,
            other => other,
        }
    }

    async fn select_by(
        &self,
        form: ModeForm,
        page: &ModePage,
        save: bool,
    ) -> Result<(), VerbError> {
        // The header is all zeros: MODE DATA LENGTH is reserved in MODE SELECT, and no block descriptor
        // follows.
        let mut list = vec![0; form.header_bytes()];
        list.extend(&page.bytes);
        // The PS bit is reserved in MODE SELECT.
        list[form.header_bytes()] &= !PS;
        let too_long = VerbError::OutOfRange(SELECT);
        let cdb = match form {
            ModeForm::Ten => {
                u16::try_from(list.len()).map(|bytes| cdb::mode_select_10(save, bytes))
            }
            ModeForm::Six => u8::try_from(list.len()).map(|bytes| cdb::mode_select_6(save, bytes)),
        };
        self.tell(SELECT, cdb.map_err(|_| too_long)?, parameters(&list))
            .await
    }

    async fn one_page(
        &self,
        code: u8,
        subpage: u8,
        values: ModeValues,
    ) -> Result<ModePage, ModeFieldError> {
        let modes = match self.mode_sense(code, subpage, values).await {
            Err(error) if error.is_unsupported() => return Err(ModeFieldError::Missing),
            modes => modes?,
        };
        let wanted = |page: &ModePage| (page.code, page.subpage) == (code, subpage);
        modes
            .pages
            .into_iter()
            .find(wanted)
            .ok_or(ModeFieldError::Missing)
    }

    async fn mode_bytes(
        &self,
        page: u8,
        subpage: u8,
        values: ModeValues,
    ) -> Result<(ModeForm, Buffer), VerbError> {
        let page = page | (values as u8) << 6;
        match self
            .ask(
                SENSE,
                cdb::mode_sense_10(page, subpage, BYTES),
                usize::from(BYTES),
            )
            .await
        {
            Ok(answer) => Ok((ModeForm::Ten, answer)),
            // Try the short form after any rejection, because istgt reports no reason.
            Err(VerbError::Refused { .. }) => {
                let answer = self
                    .ask(SENSE, cdb::mode_sense_6(page, subpage, u8::MAX), 255)
                    .await?;
                Ok((ModeForm::Six, answer))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sense(key: u8) -> Option<Sense> {
        Some(Sense {
            key,
            ..Sense::default()
        })
    }

    #[test]
    fn what_is_only_put_off_is_sent_again() {
        assert_eq!(
            disposition(status::CHECK_CONDITION, sense(6)),
            Disposition::RetryNow
        );
        assert_eq!(disposition(status::BUSY, None), Disposition::RetryLater);
        assert_eq!(
            disposition(status::TASK_SET_FULL, None),
            Disposition::RetryLater
        );
    }

    #[test]
    fn what_is_refused_stays_refused() {
        assert_eq!(
            disposition(status::CHECK_CONDITION, sense(5)),
            Disposition::Refused
        );
        assert_eq!(
            disposition(status::CHECK_CONDITION, None),
            Disposition::Refused
        );
        assert_eq!(
            disposition(status::RESERVATION_CONFLICT, None),
            Disposition::Refused
        );
    }

    #[test]
    fn a_recovered_error_is_no_refusal() {
        assert_eq!(
            disposition(status::CHECK_CONDITION, sense(1)),
            Disposition::Done
        );
    }

    #[test]
    fn a_logical_unit_has_the_address_that_its_target_reports() {
        let [lio, flat, extended] = [0x0100 << 48, 0x4101 << 48, 0xd200_0102_0000_0000].map(Lun);
        let luns = [Lun(0), lio, flat, extended];
        let found = [256, 257, 258, 259, 0].map(|number| reported(&luns, number));
        assert_eq!(
            found,
            [Some(lio), Some(flat), Some(extended), None, Some(Lun(0))]
        );
    }

    #[test]
    fn a_unit_may_be_used_from_any_thread() {
        fn anywhere<T: Send + Sync + Clone>() {}
        anywhere::<Unit>();
    }

    fn designator(association: Association, name: Name) -> Designator {
        Designator {
            association,
            protocol: None,
            name,
        }
    }

    #[test]
    fn a_unit_is_known_by_its_own_names_and_not_by_its_port() {
        let naa = Name::Naa(vec![0x60; 16]);
        let by_port = |port| {
            Identity::from_designators(vec![
                designator(Association::LogicalUnit, naa.clone()),
                designator(Association::TargetPort, Name::RelativeTargetPort(port)),
            ])
        };
        assert_eq!(by_port(1), by_port(2));
        assert!(
            Identity::from_designators(vec![designator(
                Association::TargetPort,
                Name::RelativeTargetPort(1)
            )])
            .is_none()
        );
    }

    #[test]
    fn the_order_of_names_does_not_matter_and_their_number_does() {
        let known = |names: &[u8]| {
            let of_unit =
                |name: &u8| designator(Association::LogicalUnit, Name::Eui64(vec![*name; 8]));
            Identity::from_designators(names.iter().map(of_unit).collect())
        };
        assert_eq!(known(&[1, 2]), known(&[2, 1]));
        assert_ne!(known(&[1]), known(&[1, 2]));
    }

    #[test]
    fn an_overwrite_carries_its_pattern() {
        let overwrite = Sanitize::Overwrite {
            pattern: vec![0xa5, 0x5a],
            passes: 3,
            invert: true,
        };
        let manner = SanitizeManner {
            immediate: true,
            unrestricted_exit: true,
        };
        let (cdb, list) = overwrite.encode(manner).unwrap();
        assert_eq!(
            (cdb[..2].to_vec(), cdb[7..9].to_vec()),
            (vec![0x48, 0xa1], vec![0, 6])
        );
        assert_eq!(list, [0x83, 0, 0, 2, 0xa5, 0x5a]);
    }

    #[test]
    fn an_overwrite_without_a_pattern_or_a_pass_cannot_be_said() {
        let overwrite = |pattern: &[u8], passes| {
            Sanitize::Overwrite {
                pattern: pattern.to_vec(),
                passes,
                invert: false,
            }
            .encode(SanitizeManner::default())
        };
        assert!(overwrite(&[], 1).is_none());
        assert!(overwrite(&[0], 0).is_none());
        assert!(overwrite(&[0], 32).is_none());
        assert!(overwrite(&vec![0; 70_000], 1).is_none());
    }
}
