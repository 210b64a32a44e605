//! Messages of a session: commands, task management and their replies (opcodes 0x00 and 0x01).
//!
//! ```text
//!  request  0 function │ 1 flags │ 2 CDB length u16 │ 4 number u64 │ 12 LUN │ 20 data-in bytes u32 │ 24 CDB │ data
//!  function 0 function │ 1 code  │ 2 zero u16       │ 4 number u64 │ 12 LUN │ 20 referenced number u64
//!  reply    0 function │ 1 status│ 2 sense length u16│ 4 number u64 │ 12 residual i64 │ 20 sense │ data
//!  done     0 function │ 1 result│ 2 zero u16       │ 4 number u64
//! ```
//!
//! Byte 0 is the kind: 1 for a command and its reply, 2 for a function and its reply. All integers are
//! big-endian. A number identifies a request of the initiator, whether a command or a function. Each request
//! is executed once. The flags of a command are its task attribute; other bits are zero. The residual is
//! described at [`Response`].

use num_enum::{FromPrimitive, IntoPrimitive, TryFromPrimitive};

use crate::frame::{Opcode, Payload};
use crate::transport::Message;

/// Bytes before the CDB of a command.
const COMMAND_HEAD: usize = 24;
/// Bytes before the sense data of a reply.
const REPLY_HEAD: usize = 20;
/// Length of a function.
const FUNCTION_BYTES: usize = 28;
/// Length of a function's reply.
const DONE_BYTES: usize = 12;

/// Maximum CDB length (SPC-4: 8 + 252).
pub const CDB_BYTES_MAX: usize = 260;
/// Maximum length of sense data (SPC-4 4.5.1).
pub const SENSE_BYTES_MAX: usize = 252;
/// Maximum data length of a command in each direction.
pub const DATA_BYTES_MAX: usize = 1 << 20;
/// Maximum length of a message, which is the maximum length of a command. A reply is shorter.
pub(crate) const MESSAGE_BYTES_MAX: usize = DATA_BYTES_MAX + CDB_BYTES_MAX + COMMAND_HEAD;

/// The kinds of messages.
const COMMAND: u8 = 1;
const TASK_MANAGEMENT: u8 = 2;

/// The bits of the task attribute in the flags.
const ATTRIBUTE: u8 = 0x07;

/// A task attribute (SAM-5), numbered as in iSCSI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, TryFromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum TaskAttribute {
    /// The default of the device server.
    Untagged = 0,
    /// In any order among other simple tasks.
    #[default]
    Simple = 1,
    /// After all earlier tasks, before all later ones.
    Ordered = 2,
    /// Before all others.
    HeadOfQueue = 3,
    /// To clear an auto contingent allegiance.
    Aca = 4,
}

/// A task management function (SAM-5 chapter 7), numbered as in iSCSI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum Function {
    /// Abort one task.
    AbortTask = 1,
    /// Abort all tasks of this session on a logical unit.
    AbortTaskSet = 2,
    /// Abort all tasks on a logical unit.
    ClearTaskSet = 4,
    /// Reset a logical unit.
    LogicalUnitReset = 5,
    /// Reset all logical units.
    TargetReset = 6,
    /// Query whether the task exists.
    QueryTask = 9,
    /// Query whether any task of this session exists.
    QueryTaskSet = 10,
    /// End all outstanding requests of this session.
    ITNexusReset = 11,
    /// An unknown function.
    #[num_enum(catch_all)]
    Other(u8),
}

impl Function {
    /// Whether the function ends all earlier commands, at least those of this session, on one logical unit or
    /// on all. `None` if it does not. ABORT TASK ends a single command, and is handled separately.
    pub(crate) fn ends_commands(self) -> Option<Everywhere> {
        match self {
            Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset => {
                Some(Everywhere(false))
            }
            Function::TargetReset | Function::ITNexusReset => Some(Everywhere(true)),
            Function::AbortTask
            | Function::QueryTask
            | Function::QueryTaskSet
            | Function::Other(_) => None,
        }
    }
}

/// Whether a function concerns all logical units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Everywhere(pub(crate) bool);

/// The result of a task management function (SAM-5 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, TryFromPrimitive, IntoPrimitive)]
#[repr(u8)]
pub enum FunctionResult {
    /// FUNCTION COMPLETE; for a query: there is no such task.
    Complete = 0,
    /// FUNCTION SUCCEEDED: the task exists.
    Succeeded = 1,
    /// FUNCTION REJECTED: the target does not support the function.
    Rejected = 2,
    /// INCORRECT LOGICAL UNIT NUMBER.
    IncorrectLun = 3,
}

/// A SCSI command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The logical unit's address, in the eight-byte form of SAM-5.
    pub lun: [u8; 8],
    /// The task attribute.
    pub attribute: TaskAttribute,
    /// The CDB, 1 to [`CDB_BYTES_MAX`] bytes.
    pub cdb: Vec<u8>,
    /// Size in bytes of the initiator's buffer for data, up to [`DATA_BYTES_MAX`].
    pub data_in_bytes: u32,
    /// Data from the initiator, up to [`DATA_BYTES_MAX`] bytes.
    pub data_out: Payload,
}

/// The result of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status (SAM-5 5.3.1).
    pub status: u8,
    /// Bytes that the command requested beyond the initiator's expectation; negative if fewer.
    pub residual: i64,
    /// Sense data, at most [`SENSE_BYTES_MAX`] bytes.
    pub sense: Vec<u8>,
    /// Data for the initiator, which must not exceed its buffer. The initiator checks this limit, but
    /// decoding does not.
    pub data: Payload,
}

impl Response {
    /// TASK ABORTED: a task management function ended the command.
    pub fn task_aborted() -> Response {
        Response {
            status: 0x40,
            ..Response::default()
        }
    }
}

/// A message of an initiator. `referenced` is the number of the task, for a function that concerns one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Command {
        number: u64,
        command: Command,
    },
    TaskManagement {
        number: u64,
        function: Function,
        lun: [u8; 8],
        referenced: u64,
    },
}

/// A message of a target. `Done` is the reply to a function.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Response { number: u64, response: Response },
    Done { number: u64, result: FunctionResult },
}

/// The part of a message after its head.
fn behind(bytes: Vec<u8>, head: usize) -> Payload {
    let end = bytes.len();
    debug_assert!(head <= end, "a head beyond the message");
    if head == end {
        Payload::default()
    } else {
        Payload::from(bytes).part(head..end)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|chunk| u64::from_be_bytes(*chunk))
}

impl Request {
    /// Decodes a message. `None` if it violates the format or a length limit. An unknown function is
    /// [`Function::Other`].
    pub(crate) fn parse(bytes: Vec<u8>) -> Option<Request> {
        let [kind, flags, high, low] = *bytes.first_chunk()?;
        let (length, number) = (u16::from_be_bytes([high, low]), u64_at(&bytes, 4)?);
        let lun = *bytes.get(12..)?.first_chunk()?;
        match kind {
            COMMAND => {
                let room = bytes
                    .get(20..)?
                    .first_chunk()
                    .map(|chunk| u32::from_be_bytes(*chunk))?;
                let data = COMMAND_HEAD + usize::from(length);
                let is_right = flags & !ATTRIBUTE == 0
                    && usize::from(length) <= CDB_BYTES_MAX
                    && length > 0
                    && data <= bytes.len()
                    && bytes.len() - data <= DATA_BYTES_MAX
                    && room as usize <= DATA_BYTES_MAX;
                let attribute = TaskAttribute::try_from(flags).ok().filter(|_| is_right)?;
                let cdb = bytes[COMMAND_HEAD..data].to_vec();
                let data_out = behind(bytes, data);
                let command = Command {
                    lun,
                    attribute,
                    cdb,
                    data_in_bytes: room,
                    data_out,
                };
                Some(Request::Command { number, command })
            }
            TASK_MANAGEMENT if bytes.len() == FUNCTION_BYTES && length == 0 => {
                let referenced = u64_at(&bytes, 20)?;
                Some(Request::TaskManagement {
                    number,
                    function: Function::from(flags),
                    lun,
                    referenced,
                })
            }
            _ => None,
        }
    }

    pub(crate) fn message(self) -> Message {
        let (head, data, control) = match self {
            Request::Command { number, command } => {
                debug_assert!(
                    (1..=CDB_BYTES_MAX).contains(&command.cdb.len()),
                    "a CDB of no valid length"
                );
                debug_assert!(command.data_out.len() <= DATA_BYTES_MAX, "too much data");
                let mut head = Vec::with_capacity(COMMAND_HEAD + command.cdb.len());
                head.extend([COMMAND, command.attribute.into()]);
                head.extend_from_slice(&(command.cdb.len() as u16).to_be_bytes());
                head.extend_from_slice(&number.to_be_bytes());
                head.extend_from_slice(&command.lun);
                head.extend_from_slice(&command.data_in_bytes.to_be_bytes());
                head.extend_from_slice(&command.cdb);
                (head, command.data_out, false)
            }
            Request::TaskManagement {
                number,
                function,
                lun,
                referenced,
            } => {
                let mut head = Vec::with_capacity(FUNCTION_BYTES);
                head.extend([TASK_MANAGEMENT, function.into(), 0, 0]);
                head.extend_from_slice(&number.to_be_bytes());
                head.extend_from_slice(&lun);
                head.extend_from_slice(&referenced.to_be_bytes());
                (head, Payload::default(), true)
            }
        };
        Message {
            opcode: Opcode::Request,
            control,
            head,
            data,
            receipt: None,
        }
    }
}

impl Reply {
    /// Decodes a message. `None` if it is malformed.
    pub(crate) fn parse(bytes: Vec<u8>) -> Option<Reply> {
        let [kind, status, high, low] = *bytes.first_chunk()?;
        let (length, number) = (u16::from_be_bytes([high, low]), u64_at(&bytes, 4)?);
        match kind {
            COMMAND => {
                let residual = u64_at(&bytes, 12)? as i64;
                let data = REPLY_HEAD + usize::from(length);
                if usize::from(length) > SENSE_BYTES_MAX || data > bytes.len() {
                    return None;
                }
                let sense = bytes[REPLY_HEAD..data].to_vec();
                let data = behind(bytes, data);
                Some(Reply::Response {
                    number,
                    response: Response {
                        status,
                        residual,
                        sense,
                        data,
                    },
                })
            }
            TASK_MANAGEMENT if bytes.len() == DONE_BYTES && length == 0 => Some(Reply::Done {
                number,
                result: FunctionResult::try_from(status).ok()?,
            }),
            _ => None,
        }
    }

    pub(crate) fn message(self) -> Message {
        let (head, data, control) = match self {
            Reply::Response { number, response } => {
                debug_assert!(
                    response.sense.len() <= SENSE_BYTES_MAX,
                    "too much sense data"
                );
                let mut head = Vec::with_capacity(REPLY_HEAD + response.sense.len());
                head.extend([COMMAND, response.status]);
                head.extend_from_slice(&(response.sense.len() as u16).to_be_bytes());
                head.extend_from_slice(&number.to_be_bytes());
                head.extend_from_slice(&response.residual.to_be_bytes());
                head.extend_from_slice(&response.sense);
                (head, response.data, false)
            }
            Reply::Done { number, result } => {
                let mut head = Vec::with_capacity(DONE_BYTES);
                head.extend([TASK_MANAGEMENT, result.into(), 0, 0]);
                head.extend_from_slice(&number.to_be_bytes());
                (head, Payload::default(), true)
            }
        };
        Message {
            opcode: Opcode::Reply,
            control,
            head,
            data,
            receipt: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(message: &Message) -> Vec<u8> {
        [&message.head[..], &message.data].concat()
    }

    /// Written out by hand from docs/hyperscsi-format.md.
    #[test]
    fn golden_bytes() {
        let command = Command {
            lun: [0, 1, 0, 0, 0, 0, 0, 0],
            attribute: TaskAttribute::Ordered,
            cdb: vec![0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0],
            data_in_bytes: 0x0102,
            data_out: vec![0xaa, 0xbb].into(),
        };
        let bytes = [
            &[
                1, 2, 0, 10, 0, 0, 0, 0, 0, 0, 0, 7, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2,
            ][..],
            &[0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0, 0xaa, 0xbb],
        ];
        let request = Request::Command { number: 7, command };
        assert_eq!(Request::parse(bytes.concat()).as_ref(), Some(&request));
        assert_eq!(written(&request.message()), bytes.concat());

        let lun = [0, 1, 0, 0, 0, 0, 0, 0];
        let abort = Request::TaskManagement {
            number: 8,
            function: Function::AbortTask,
            lun,
            referenced: 7,
        };
        let bytes = [
            2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7,
        ]
        .to_vec();
        assert_eq!(Request::parse(bytes.clone()).as_ref(), Some(&abort));
        assert_eq!(written(&abort.message()), bytes);

        let response = Response {
            status: 2,
            residual: -3,
            sense: vec![0x70],
            data: vec![5].into(),
        };
        let bytes = [
            &[1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7][..],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfd, 0x70, 5],
        ];
        let reply = Reply::Response {
            number: 7,
            response,
        };
        assert_eq!(Reply::parse(bytes.concat()).as_ref(), Some(&reply));
        assert_eq!(written(&reply.message()), bytes.concat());

        let done = Reply::Done {
            number: 8,
            result: FunctionResult::Complete,
        };
        assert_eq!(
            written(&done.message()),
            [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]
        );
    }

    #[test]
    fn what_breaks_a_rule_is_no_request() {
        let good = written(
            &Request::Command {
                number: 1,
                command: Command {
                    cdb: vec![0; 6],
                    ..Command::default()
                },
            }
            .message(),
        );
        assert!(Request::parse(good.clone()).is_some());
        for length in 0..good.len() {
            assert_eq!(
                Request::parse(good[..length].to_vec()),
                None,
                "{length} bytes"
            );
        }
        for (at, value, what) in [
            (0, 3, "an unknown function"),
            (1, 5, "an unknown attribute"),
            (1, 0x80, "an unknown flag"),
            (2, 2, "a CDB of 518 bytes"),
            (3, 0, "no CDB"),
            (20, 1, "16 MiB of data"),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            bad.resize(bad.len() + 600, 0);
            assert_eq!(Request::parse(bad), None, "{what}");
        }
        let mut giant = good;
        giant.resize(COMMAND_HEAD + 6 + DATA_BYTES_MAX + 1, 0);
        assert_eq!(Request::parse(giant), None);
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_the_same(
            kind in 1u8..3,
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            small: bool,
        ) {
            let mut bytes = bytes;
            if let [first, flags, high, ..] = &mut bytes[..] {
                (*first, *high) = (kind, 0);
                if small {
                    *flags %= 5;
                }
            }
            if bytes.len() > 24 {
                bytes[20..22].fill(0);
            }
            if let Some(request) = Request::parse(bytes.clone()) {
                prop_assert_eq!(written(&request.message()), bytes.clone());
            }
            if let Some(reply) = Reply::parse(bytes.clone()) {
                prop_assert_eq!(written(&reply.message()), bytes);
            }
        }
    }
}
