//! The rest of a session: login, logout, text, NOP, and a target's unsolicited messages and rejections.

use derive_more::Display;
use num_enum::{FromPrimitive, IntoPrimitive, TryFromPrimitive};

use super::bhs::{Bhs, Cid, Isid, Itt, Lun, Malformed, Opcode, TargetNumbers, Tsih, Ttt};
use super::layout::{CONTINUE, DATA_LENGTH, FINAL, Field, IMMEDIATE, Place, codes, pdus};
use crate::pdu::bhs::Sn;

pdus! {
    /// Starts or continues a login (section 11.12).
    ///
    /// Its data segment is keys and values: [`crate::text`].
    LoginRequest(Bhs::expect, of_login) {
        /// C: the text continues in the next request.
        continues: bool = LoginContinue,
        /// CSG: the stage of this request.
        stage: Stage = CurrentStage,
        /// T and NSG: the stage to which the initiator is ready to move, if any.
        transit_to: Option<Stage> = NextStage,
        version_max: u8 = 2,
        version_min: u8 = 3,
        isid: Isid = 8,
        /// TSIH: zero for a new session.
        tsih: Tsih = 14,
        /// Initiator Task Tag, the same in all requests of a login.
        itt: Itt = 16,
        cid: Cid = 20,
        /// CmdSN of the first command; the same in all requests of a login.
        cmd_sn: Sn = 24,
        /// ExpStatSN. In the first request, if it reinstates a lost connection: the ExpStatSN of that
        /// connection.
        exp_stat_sn: Sn = 28,
        /// Text, in bytes without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }

    /// Continues, completes or refuses a login (section 11.13).
    ///
    /// Its data segment is keys and values: [`crate::text`].
    LoginResponse(Bhs::expect, Bhs::new) {
        /// C: the text continues in the next response.
        continues: bool = LoginContinue,
        /// CSG: the stage of the request that this answers.
        stage: Stage = CurrentStage,
        /// T and NSG: the new stage of the login, if it changes.
        transit_to: Option<Stage> = NextStage,
        version_max: u8 = 2,
        version_active: u8 = 3,
        /// As in the request.
        isid: Isid = 8,
        /// TSIH: in the last response, the session's; in earlier ones, as in the request.
        tsih: Tsih = 14,
        itt: Itt = 16,
        numbers: TargetNumbers = 24,
        status: LoginStatus = 36,
        /// Text, in bytes without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }

    /// Logout of this connection, another, or the session (section 11.14).
    LogoutRequest(Bhs::expect_no_data, Bhs::new) {
        /// I: immediate delivery, outside the CmdSN order.
        immediate: bool = IMMEDIATE,
        reason: LogoutReason = 1,
        itt: Itt = 16,
        /// The connection to close; meaningless if the session is to be closed.
        cid: Cid = 20,
        cmd_sn: Sn = 24,
        exp_stat_sn: Sn = 28,
    }

    /// Result of a logout (section 11.15).
    LogoutResponse(Bhs::expect_no_data, Bhs::new) {
        result: LogoutResult = 2,
        itt: Itt = 16,
        numbers: TargetNumbers = 24,
        /// Time2Wait: seconds before reassigning tasks or reconnecting.
        time2wait_s: u16 = 40,
        /// Time2Retain: seconds after that during which tasks are kept.
        time2retain_s: u16 = 42,
    }

    /// Keys and values from the initiator, in full feature phase (section 11.10).
    ///
    /// Its data segment is keys and values: [`crate::text`].
    TextRequest(expect_text, Bhs::new) {
        /// I: immediate delivery, outside the CmdSN order.
        immediate: bool = IMMEDIATE,
        /// F: the initiator has no more text.
        is_final: bool = FINAL,
        /// C: the text continues in the next request.
        continues: bool = CONTINUE,
        /// The LUN of the response that this continues, if any.
        lun: Lun = 8,
        /// Initiator Task Tag, which identifies the exchange.
        itt: Itt = 16,
        /// The tag of the response that this continues; none starts a new exchange.
        ttt: Option<Ttt> = 20,
        cmd_sn: Sn = 24,
        exp_stat_sn: Sn = 28,
        /// Text, in bytes without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }

    /// Keys and values from the target, in full feature phase (section 11.11).
    ///
    /// Its data segment is keys and values: [`crate::text`].
    TextResponse(expect_text, Bhs::new) {
        /// F: the target has no more text, and the exchange is over.
        is_final: bool = FINAL,
        /// C: the text continues in the next response.
        continues: bool = CONTINUE,
        /// A logical unit, for the initiator to repeat if the exchange continues.
        lun: Lun = 8,
        /// Initiator Task Tag, which identifies the exchange.
        itt: Itt = 16,
        /// The tag for continuing; none if the exchange is over.
        ttt: Option<Ttt> = 20,
        numbers: TargetNumbers = 24,
        /// Text, in bytes without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }

    /// A ping, or the response to the target's ping (section 11.18).
    ///
    /// Its data segment is ping data, for the target to send back.
    NopOut(Bhs::expect, Bhs::new) {
        /// I: immediate delivery, outside the CmdSN order.
        immediate: bool = IMMEDIATE,
        /// The LUN of the NOP-In that this answers, if any.
        lun: Lun = 8,
        /// The tag of the ping; none if no response is requested.
        itt: Option<Itt> = 16,
        /// Target Transfer Tag of the NOP-In that this answers; none for a ping of the initiator.
        ttt: Option<Ttt> = 20,
        cmd_sn: Sn = 24,
        exp_stat_sn: Sn = 28,
        /// Ping data, in bytes without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }

    /// A ping, the response to the initiator's ping, or an update of the command window (section 11.19).
    ///
    /// Its data segment is the ping data of the NOP-Out that it answers.
    NopIn(Bhs::expect, Bhs::new) {
        /// A logical unit, to be repeated in the response, if one is requested.
        lun: Lun = 8,
        /// Initiator Task Tag of the ping that this answers; none for a ping of the target.
        itt: Option<Itt> = 16,
        /// The tag of the ping; none if no response is requested.
        ttt: Option<Ttt> = 20,
        /// StatSN if it answers a ping; otherwise the next StatSN, which is not consumed. ExpCmdSN and MaxCmdSN.
        numbers: TargetNumbers = 24,
        /// Ping data, in bytes without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }

    /// An asynchronous event (section 11.9).
    ///
    /// Its data segment is sense data for [`AsyncEvent::Scsi`].
    AsyncMessage(expect_no_task, of_no_task) {
        /// The logical unit, for events that apply to one.
        lun: Lun = 8,
        numbers: TargetNumbers = 24,
        event: AsyncEvent = 36,
        /// The vendor's code, for vendor-specific events.
        vendor_code: u8 = 37,
        /// Parameter1 to Parameter3, whose meaning depends on the event. Dropped connections: the CID, the
        /// seconds to wait before reconnecting, and the seconds during which tasks are kept. Logout request:
        /// Parameter3 is the seconds until the logout.
        parameters: [u16; 3] = 38,
        /// Sense data, in bytes without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }

    /// A request for retransmission, or an acknowledgement (section 11.16).
    SnackRequest(Bhs::expect_no_data, Bhs::new) {
        /// The kind of the missing or acknowledged PDUs.
        kind: SnackKind = 1,
        /// The LUN of the Data-In that requested an acknowledgement.
        lun: Lun = 8,
        /// The task; none for status and acknowledgements.
        itt: Option<Itt> = 16,
        /// The Data-In's Target Transfer Tag, or the SNACK Tag, by kind; 0xffffffff for none.
        tag: u32 = 20,
        exp_stat_sn: Sn = 28,
        /// BegRun: the first missing number; acknowledgements: the next expected one.
        first: Sn = 40,
        /// RunLength: the number of PDUs; zero for all PDUs from `first` on.
        run_length: u32 = 44,
    }

    /// Rejection of a PDU (section 11.17).
    ///
    /// Its data segment is the header of the rejected PDU.
    Reject(expect_no_task, of_no_task) {
        reason: RejectReason = 2,
        numbers: TargetNumbers = 24,
        /// For a rejected acknowledgement or SNACK: the next DataSN or R2TSN.
        data_sn: Sn = 36,
        /// The rejected header, in bytes without padding.
        data_segment_length: u32 = DATA_LENGTH,
    }
}

/// Stages of a login (section 11.12.3); number 2 is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoPrimitive, TryFromPrimitive)]
#[repr(u8)]
pub enum Stage {
    /// Authentication.
    SecurityNegotiation = 0,
    /// Negotiation of parameters.
    OperationalNegotiation = 1,
    /// Full feature phase.
    FullFeature = 3,
}

/// Status-Class, the upper byte, and Status-Detail (section 11.13.5).
#[expect(
    missing_docs,
    reason = "where a variant has no more to say than it displays"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, FromPrimitive, IntoPrimitive)]
#[display("{_variant} ({:04x})", u16::from(*self))]
#[repr(u16)]
pub enum LoginStatus {
    #[display("success")]
    Success = 0x0000,
    #[display("the target has moved temporarily")]
    TargetMovedTemporarily = 0x0101,
    #[display("the target has moved permanently")]
    TargetMovedPermanently = 0x0102,
    #[display("initiator error")]
    InitiatorError = 0x0200,
    #[display("the initiator could not be authenticated")]
    AuthenticationFailure = 0x0201,
    #[display("the initiator is not allowed to use this target")]
    AuthorizationFailure = 0x0202,
    #[display("there is no such target, or it does not admit this initiator")]
    NotFound = 0x0203,
    #[display("the target has been removed")]
    TargetRemoved = 0x0204,
    #[display("no common iSCSI version")]
    UnsupportedVersion = 0x0205,
    #[display("too many connections in this session")]
    TooManyConnections = 0x0206,
    #[display("a parameter is missing, such as a name")]
    MissingParameter = 0x0207,
    #[display("the session cannot include this connection")]
    CannotIncludeInSession = 0x0208,
    #[display("sessions of this type are not supported")]
    SessionTypeNotSupported = 0x0209,
    #[display("the session does not exist")]
    SessionDoesNotExist = 0x020a,
    #[display("the request is invalid during login")]
    InvalidDuringLogin = 0x020b,
    #[display("the target failed")]
    TargetError = 0x0300,
    #[display("the target is temporarily unavailable; try again")]
    ServiceUnavailable = 0x0301,
    #[display("the target is out of resources")]
    OutOfResources = 0x0302,
    #[display("unknown status")]
    #[num_enum(catch_all)]
    Other(u16),
}

/// Reason Code (section 11.14.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u8)]
pub enum LogoutReason {
    /// Close all connections, and end the session's commands.
    CloseSession = 0,
    /// Close the named connection, and end its commands.
    CloseConnection = 1,
    /// Remove the named connection, but keep its commands for reassignment (ErrorRecoveryLevel 2).
    RemoveForRecovery = 2,
}

/// Response codes of a logout (section 11.15.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum LogoutResult {
    /// Closed.
    Success = 0,
    /// No such connection.
    CidNotFound = 1,
    /// Connection recovery not supported (ErrorRecoveryLevel below 2).
    RecoveryNotSupported = 2,
    /// Cleanup failed.
    CleanupFailed = 3,
    /// Any other number.
    #[num_enum(catch_all)]
    Other(u8),
}

/// Event codes (section 11.9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum AsyncEvent {
    /// A SCSI event, with sense data.
    Scsi = 0,
    /// Log out this connection within Parameter3 seconds.
    LogoutRequested = 1,
    /// The connection named in Parameter1 will be dropped.
    ConnectionDropped = 2,
    /// All connections of the session will be dropped.
    SessionDropped = 3,
    /// Renegotiate parameters within Parameter3 seconds.
    NegotiationRequested = 4,
    /// The session's tasks on this logical unit are being terminated.
    TasksTerminated = 5,
    /// 255, or any undefined number.
    #[num_enum(catch_all)]
    Other(u8),
}

/// SNACK types (section 11.16.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u8)]
pub enum SnackKind {
    /// Data-In or R2T PDUs are missing.
    DataOrR2t = 0,
    /// Statuses are missing.
    Status = 1,
    /// Data-In PDUs have arrived.
    DataAck = 2,
    /// Data-In PDUs are missing, and may be split differently.
    RData = 3,
}

/// Reason codes (section 11.17.1).
#[expect(missing_docs, reason = "the names are the standard's")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum RejectReason {
    /// Data digest error; the PDU may be retransmitted.
    DataDigestError = 2,
    SnackReject = 3,
    ProtocolError = 4,
    /// Command not supported, or not in this type of session.
    CommandNotSupported = 5,
    ImmediateCommandReject = 6,
    TaskInProgress = 7,
    InvalidDataAck = 8,
    InvalidPduField = 9,
    /// Out of Target Transfer Tags (long operation reject).
    LongOperationReject = 10,
    WaitingForLogout = 12,
    /// Any other number; 11 is deprecated.
    #[num_enum(catch_all)]
    Other(u8),
}

codes! {
    LogoutReason: 0x7f else Malformed::ReservedLogoutReason,
    LogoutResult: 0xff,
    AsyncEvent: 0xff,
    SnackKind: 0x0f else Malformed::ReservedSnackKind,
    RejectReason: 0xff,
}

impl Field for LoginStatus {
    fn read(bhs: &Bhs, at: usize) -> Result<LoginStatus, Malformed> {
        Ok(LoginStatus::from(bhs.u16(at)))
    }

    fn write(self, bhs: &mut Bhs, at: usize) {
        bhs.set_u16(at, self.into());
    }
}

/// CSG, in byte 1.
struct CurrentStage;

/// T and NSG, in byte 1. "T=1 and C=1" contradict each other (section 11.12.2), and a login only moves forward.
struct NextStage;

/// C, in byte 1.
struct LoginContinue;

impl Place<Stage> for CurrentStage {
    fn read(&self, bhs: &Bhs) -> Result<Stage, Malformed> {
        match stage(login_flags(bhs) >> 2)? {
            Stage::FullFeature => Err(Malformed::BackwardStage),
            stage => Ok(stage),
        }
    }

    fn write(&self, stage: Stage, bhs: &mut Bhs) {
        bhs.set_u8(1, bhs.u8(1) | (stage as u8) << 2);
    }
}

impl Place<Option<Stage>> for NextStage {
    fn read(&self, bhs: &Bhs) -> Result<Option<Stage>, Malformed> {
        let flags = login_flags(bhs);
        if flags & TRANSIT == 0 {
            return Ok(None);
        }
        let next = stage(flags)?;
        match (bhs.has(CONTINUE), next > stage(flags >> 2)?) {
            (true, _) => Err(Malformed::ContinueAndFinal),
            (false, false) => Err(Malformed::BackwardStage),
            (false, true) => Ok(Some(next)),
        }
    }

    fn write(&self, next: Option<Stage>, bhs: &mut Bhs) {
        let transit = next.map_or(0, |next| TRANSIT | next as u8);
        bhs.set_u8(1, bhs.u8(1) & !TRANSIT | transit);
    }
}

impl Place<bool> for LoginContinue {
    fn read(&self, bhs: &Bhs) -> Result<bool, Malformed> {
        Ok(login_flags(bhs) & CONTINUE.mask != 0)
    }

    fn write(&self, continues: bool, bhs: &mut Bhs) {
        bhs.set(CONTINUE, continues);
    }
}

/// Byte 1 of a login PDU. In a refusal the stages are meaningless and ignored (section 11.13).
fn login_flags(bhs: &Bhs) -> u8 {
    let is_refusal =
        bhs.opcode() == Some(Opcode::LoginResponse) && bhs.u16(36) != LoginStatus::Success.into();
    if is_refusal { 0 } else { bhs.u8(1) }
}

/// The stage in the lower two bits.
fn stage(bits: u8) -> Result<Stage, Malformed> {
    Stage::try_from(bits & 3).map_err(|_| Malformed::ReservedStage)
}

/// An empty login request, which is always immediate. In received requests, the I bit is ignored.
fn of_login(opcode: Opcode) -> Bhs {
    let mut bhs = Bhs::new(opcode);
    bhs.set(IMMEDIATE, true);
    bhs
}

/// An empty header without a task tag. An asynchronous event belongs to no task, and the tag of a rejected
/// PDU is in the rejected header, which is the data segment.
fn of_no_task(opcode: Opcode) -> Bhs {
    let mut bhs = Bhs::new(opcode);
    None::<Itt>.write(&mut bhs, 16);
    bhs
}

fn expect_no_task(bhs: &Bhs, opcode: Opcode) -> Result<(), Malformed> {
    bhs.expect(opcode)?;
    Option::<Itt>::read(bhs, 16)?.map_or(Ok(()), |_| Err(Malformed::UnexpectedItt))
}

fn expect_text(bhs: &Bhs, opcode: Opcode) -> Result<(), Malformed> {
    bhs.expect(opcode)?;
    if bhs.has(FINAL) && bhs.has(CONTINUE) {
        Err(Malformed::ContinueAndFinal)
    } else {
        Ok(())
    }
}

impl Malformed {
    /// The reason code of a target's Reject in full feature phase (section 11.17.1).
    pub fn reject_reason(self) -> RejectReason {
        match self {
            Malformed::UnknownOpcode | Malformed::WrongOpcode => RejectReason::CommandNotSupported,
            Malformed::UnsolicitedDataWithoutWrite
            | Malformed::StatusWithoutFinal
            | Malformed::ContinueAndFinal
            | Malformed::BackwardStage
            | Malformed::UnexpectedData
            | Malformed::UnexpectedAhs => RejectReason::ProtocolError,
            Malformed::ReservedItt
            | Malformed::ReservedTtt
            | Malformed::UnexpectedItt
            | Malformed::AhsLength
            | Malformed::AhsRepeated
            | Malformed::ReservedAttribute
            | Malformed::ContradictoryResidual
            | Malformed::ReservedResponse
            | Malformed::EmptyR2t
            | Malformed::ReservedStage
            | Malformed::ReservedLogoutReason
            | Malformed::ReservedSnackKind => RejectReason::InvalidPduField,
        }
    }
}

const TRANSIT: u8 = 0x80;
