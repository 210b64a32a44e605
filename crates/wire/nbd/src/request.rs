//! Requests (section "Request message", and "Extended headers"), the rules for them that follow from the
//! result of a handshake ([`Session`]), and error values in replies (section "Error values").

use derive_more::Display;
use num_enum::TryFromPrimitive;

use crate::export::{ChannelName, Export, PAYLOAD_BYTES_MAX};
use crate::flags::{command, transmission};

/// Length of a request's header in bytes.
pub const REQUEST_BYTES: usize = 28;
/// Length of a request's header with extended headers, in bytes.
pub const EXTENDED_REQUEST_BYTES: usize = 32;

const MAGIC: u32 = 0x2560_9513;
const EXTENDED_MAGIC: u32 = 0x21e4_1c71;

/// The command of a request (section "Request types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(u16)]
pub enum Command {
    /// Read.
    Read = 0,
    /// Write.
    Write = 1,
    /// End the session; there is no reply.
    Disconnect = 2,
    /// Flush all answered writes to stable storage.
    Flush = 3,
    /// Data is no longer needed.
    Trim = 4,
    /// Data will be needed soon.
    Cache = 5,
    /// Make blocks read as zeros.
    WriteZeroes = 6,
    /// Report which blocks are allocated.
    BlockStatus = 7,
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its flags ([`flags::command`](crate::flags::command)).
    pub flags: u16,
    /// The number of its command; [`Request::command`] returns a known one as a [`Command`].
    pub kind: u16,
    /// Identifies the request; the reply repeats it.
    pub cookie: u64,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

/// The magic number of a request is wrong, so the start of the next one is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("a request starts with 0x{_0:08x}")]
pub struct BadMagic(pub u32);

impl Request {
    /// Length of a header in bytes.
    pub fn header_bytes(form: ReplyForm) -> usize {
        match form {
            ReplyForm::Simple | ReplyForm::Structured => REQUEST_BYTES,
            ReplyForm::Extended => EXTENDED_REQUEST_BYTES,
        }
    }

    /// The header at the start of `bytes`; `None` if it is incomplete.
    ///
    /// # Errors
    /// The bytes are not a header. This is reported as soon as four bytes are available.
    #[inline]
    pub fn parse(form: ReplyForm, bytes: &[u8]) -> Result<Option<Request>, BadMagic> {
        let extended = form == ReplyForm::Extended;
        let Some(magic) = bytes.first_chunk().map(|magic| u32::from_be_bytes(*magic)) else {
            return Ok(None);
        };
        if magic != if extended { EXTENDED_MAGIC } else { MAGIC } {
            return Err(BadMagic(magic));
        }
        let Some(fixed) = bytes.first_chunk::<24>() else {
            return Ok(None);
        };
        let two = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let eight = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| fixed[at + i]));
        let length = match extended {
            true => bytes[24..]
                .first_chunk()
                .map(|length| u64::from_be_bytes(*length)),
            false => bytes[24..]
                .first_chunk()
                .map(|length| u32::from_be_bytes(*length).into()),
        };
        let request = |length| Request {
            flags: two(4),
            kind: two(6),
            cookie: eight(8),
            offset: eight(16),
            length,
        };
        Ok(length.map(request))
    }

    /// Appends the header. Without extended headers the length must be less than 2^32.
    pub fn write(&self, form: ReplyForm, out: &mut Vec<u8>) {
        debug_assert!(
            form == ReplyForm::Extended || self.length < 1 << 32,
            "a length beyond its field"
        );
        let extended = form == ReplyForm::Extended;
        out.extend(if extended { EXTENDED_MAGIC } else { MAGIC }.to_be_bytes());
        out.extend(self.flags.to_be_bytes());
        out.extend(self.kind.to_be_bytes());
        out.extend(self.cookie.to_be_bytes());
        out.extend(self.offset.to_be_bytes());
        match extended {
            true => out.extend(self.length.to_be_bytes()),
            false => out.extend((self.length as u32).to_be_bytes()),
        }
    }

    /// The command, if it is known.
    #[inline]
    pub fn command(&self) -> Option<Command> {
        Command::try_from(self.kind).ok()
    }

    /// Number of payload bytes that follow the header, whatever the result of the request.
    #[inline]
    pub fn payload_bytes(&self, form: ReplyForm) -> u64 {
        let announced = form == ReplyForm::Extended && self.flags & command::PAYLOAD_LEN != 0;
        // A write has data even without the flag that extended headers require.
        if announced || self.kind == Command::Write as u16 {
            self.length
        } else {
            0
        }
    }
}

/// The form of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplyForm {
    /// A status, and the data of a read.
    #[default]
    Simple,
    /// Replies in chunks.
    Structured,
    /// Replies in chunks with 64-bit lengths; requests have such lengths too.
    Extended,
}

/// The result of a successful handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The export, as reported to the client.
    pub export: Export,
    /// The form of requests and replies.
    pub form: ReplyForm,
    /// The number of the metadata context `base:allocation`, if the client may query it.
    pub allocation: Option<u32>,
    /// The connection's name among those of its client, if both sides support names.
    pub channel: Option<ChannelName>,
}

impl Session {
    /// Checks a request against the rules of the standard.
    ///
    /// # Errors
    /// The error to reply with, without executing the request (section "Error values").
    #[inline]
    pub fn check(&self, request: &Request) -> Result<Command, Errno> {
        let kind = request.command().ok_or(Errno::Einval)?;
        // A disconnect has no reply, so it cannot be refused.
        if kind == Command::Disconnect {
            return Ok(kind);
        }
        if request.flags & !self.flags_of(kind) != 0 {
            return Err(Errno::Einval);
        }
        let changes = matches!(kind, Command::Write | Command::Trim | Command::WriteZeroes);
        if changes && self.can(transmission::READ_ONLY) {
            return Err(Errno::Eperm);
        }
        let is_exposed = match kind {
            Command::Read | Command::Write | Command::Disconnect => true,
            Command::Flush => self.can(transmission::SEND_FLUSH),
            Command::Trim => self.can(transmission::SEND_TRIM),
            Command::Cache => self.can(transmission::SEND_CACHE),
            Command::WriteZeroes => self.can(transmission::SEND_WRITE_ZEROES),
            Command::BlockStatus => self.allocation.is_some(),
        };
        if !is_exposed {
            return Err(Errno::Einval);
        }
        match kind {
            Command::Flush => match (request.offset, request.length) {
                (0, 0) => Ok(kind),
                _ => Err(Errno::Einval),
            },
            _ => self.check_range(kind, request).map(|()| kind),
        }
    }

    fn check_range(&self, kind: Command, request: &Request) -> Result<(), Errno> {
        let end = request.offset.checked_add(request.length);
        if end.is_none_or(|end| end > self.export.bytes) {
            return Err(match kind {
                Command::Write | Command::WriteZeroes => Errno::Enospc,
                _ => Errno::Einval,
            });
        }
        debug_assert!(
            self.export.block_sizes.minimum.is_power_of_two(),
            "a block that the mask does not describe"
        );
        let unaligned =
            (request.offset | request.length) & u64::from(self.export.block_sizes.minimum - 1);
        let has_payload = matches!(kind, Command::Read | Command::Write);
        if unaligned != 0 || has_payload && request.length > u64::from(PAYLOAD_BYTES_MAX) {
            return Err(Errno::Einval);
        }
        Ok(())
    }

    /// The flags that a command may have.
    fn flags_of(&self, kind: Command) -> u16 {
        let chunks = self.form != ReplyForm::Simple;
        let fua = if self.can(transmission::SEND_FUA) {
            command::FUA
        } else {
            0
        };
        fua | match kind {
            Command::Read if chunks => command::DF,
            Command::Write if self.form == ReplyForm::Extended => command::PAYLOAD_LEN,
            Command::WriteZeroes if self.can(transmission::SEND_FAST_ZERO) => {
                command::NO_HOLE | command::FAST_ZERO
            }
            Command::WriteZeroes => command::NO_HOLE,
            Command::BlockStatus => command::REQ_ONE,
            _ => 0,
        }
    }

    fn can(&self, flag: u16) -> bool {
        self.export.flags & flag != 0
    }
}

/// Why a request failed: the numbers that the standard allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, TryFromPrimitive)]
#[repr(u32)]
pub enum Errno {
    /// The export is read-only, or reserved by another host.
    #[display("operation not permitted")]
    Eperm = 1,
    /// The device failed.
    #[display("input/output error")]
    Eio = 5,
    /// The server is out of memory.
    #[display("cannot allocate memory")]
    Enomem = 12,
    /// The request violates the standard.
    #[display("invalid argument")]
    Einval = 22,
    /// The storage is full, or a write goes past the end of the export.
    #[display("no space left on device")]
    Enospc = 28,
    /// A read is too long for a reply that must not be fragmented.
    #[display("value too large")]
    Eoverflow = 75,
    /// Zeros cannot be written faster than data.
    #[display("operation not supported")]
    Enotsup = 95,
    /// The server is shutting down.
    #[display("server is shutting down")]
    Eshutdown = 108,
}
