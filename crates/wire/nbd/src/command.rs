//! Requests (section "Request message", and "Extended headers").

use derive_more::Display;
use num_enum::TryFromPrimitive;

use crate::flags::command;
use crate::session::ReplyForm;

/// Length of a request's header in bytes.
pub const REQUEST_BYTES: usize = 28;
/// The same with extended headers.
pub const EXTENDED_REQUEST_BYTES: usize = 32;

const MAGIC: u32 = 0x2560_9513;
const EXTENDED_MAGIC: u32 = 0x21e4_1c71;

/// What a client wants done (section "Request types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(u16)]
pub enum Command {
    /// Read.
    Read = 0,
    /// Write.
    Write = 1,
    /// End the session; there is no reply.
    Disconnect = 2,
    /// Bring all answered writes to stable storage.
    Flush = 3,
    /// Data are no longer needed.
    Trim = 4,
    /// Data will be needed soon.
    Cache = 5,
    /// Make blocks read as zeros.
    WriteZeroes = 6,
    /// Which blocks are allocated.
    BlockStatus = 7,
}

/// The header of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its flags ([`flags::command`](crate::flags::command)).
    pub flags: u16,
    /// The number of its command; a [`Command`] if it is known ([`Request::command`]).
    pub kind: u16,
    /// The client's name for it, which the reply repeats.
    pub cookie: u64,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
}

/// What should be the header of a request is something else: there is no telling where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[display("a request that begins with 0x{_0:08x}")]
pub struct BadMagic(pub u32);

impl Request {
    /// Length of a header in bytes.
    pub fn header_bytes(form: ReplyForm) -> usize {
        match form {
            ReplyForm::Simple | ReplyForm::Structured => REQUEST_BYTES,
            ReplyForm::Extended => EXTENDED_REQUEST_BYTES,
        }
    }

    /// The header at the beginning of `bytes`; `None` if it is not complete.
    ///
    /// # Errors
    /// It is no header. This is said as soon as four bytes are there.
    #[inline]
    pub fn parse(form: ReplyForm, bytes: &[u8]) -> Result<Option<Request>, BadMagic> {
        let extended = form == ReplyForm::Extended;
        let Some(magic) = bytes.first_chunk().map(|magic| u32::from_be_bytes(*magic)) else {
            return Ok(None);
        };
        if magic != if extended { EXTENDED_MAGIC } else { MAGIC } {
            return Err(BadMagic(magic));
        }
        let Some(fixed) = bytes.first_chunk::<24>() else { return Ok(None) };
        let two = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let eight = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| fixed[at + i]));
        let length = match extended {
            true => bytes[24..].first_chunk().map(|length| u64::from_be_bytes(*length)),
            false => bytes[24..].first_chunk().map(|length| u32::from_be_bytes(*length).into()),
        };
        let request =
            |length| Request { flags: two(4), kind: two(6), cookie: eight(8), offset: eight(16), length };
        Ok(length.map(request))
    }

    /// Appends the header. Without extended headers the length must be less than 2^32.
    pub fn write(&self, form: ReplyForm, out: &mut Vec<u8>) {
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

    /// How many bytes of payload follow the header, whatever becomes of the request.
    #[inline]
    pub fn payload_bytes(&self, form: ReplyForm) -> u64 {
        let announced = form == ReplyForm::Extended && self.flags & command::PAYLOAD_LEN != 0;
        // A write has its data even if it does not say so, as it should with extended headers.
        if announced || self.kind == Command::Write as u16 { self.length } else { 0 }
    }
}
