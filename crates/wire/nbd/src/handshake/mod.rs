//! Both sides of the handshake (section "Fixed newstyle negotiation"), and their common part: options and
//! replies (sections "Option types" and "Option reply types").

use num_enum::TryFromPrimitive;

pub use client::{ClientHandshake, ClientStep, Refused};
pub use server::{Handshake, Step, TlsMode, Violation};

mod client;
mod server;

/// Length of the greeting in bytes.
pub const GREETING_BYTES: usize = 18;

const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const ALLOCATION: &str = "base:allocation";
/// The server's number for a connection's name. BLOCK_STATUS does not use it.
const CHANNEL_CONTEXT: u32 = 2;
const VOLUME_CONTEXT: u32 = 3;

/// Reads numbers and strings from the start of the remaining bytes.
struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    pub(super) fn two(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(super) fn four(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn eight(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// A string that is preceded by its 32-bit length.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        let length = self.four()? as usize;
        let (string, rest) = self
            .0
            .split_at_checked(length)
            .filter(|_| length <= STRING_BYTES_MAX)?;
        self.0 = rest;
        std::str::from_utf8(string).ok()
    }
}

/// Maximum length of a string in bytes (section "Strings").
pub const STRING_BYTES_MAX: usize = 4096;

/// A client's request during the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(u32)]
pub enum OptionCode {
    /// Start with this export, or close the connection: there is no error reply.
    ExportName = 1,
    /// End the handshake.
    Abort = 2,
    /// List the names of all exports.
    List = 3,
    /// Start TLS.
    StartTls = 5,
    /// Request information on an export.
    Info = 6,
    /// Request information on an export, and start with it.
    Go = 7,
    /// Use replies in chunks.
    StructuredReply = 8,
    /// List the metadata contexts of an export.
    ListMetaContext = 9,
    /// Use these metadata contexts.
    SetMetaContext = 10,
    /// Use headers with 64-bit lengths.
    ExtendedHeaders = 11,
}

/// A server's reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(u32)]
pub enum ReplyCode {
    /// The option was executed. This is the last reply to it.
    Ack = 1,
    /// An export: the length of its name, its name, its description.
    Server = 2,
    /// An [`Info`] of an export.
    Info = 3,
    /// A metadata context: its number, its name.
    MetaContext = 4,
    /// The option is unknown.
    ErrUnsup = (1 << 31) + 1,
    /// The server does not allow the option.
    ErrPolicy = (1 << 31) + 2,
    /// The option's data, or its position in the sequence of options, is invalid.
    ErrInvalid = (1 << 31) + 3,
    /// The server's platform does not support the option.
    ErrPlatform = (1 << 31) + 4,
    /// The client must start TLS first.
    ErrTlsReqd = (1 << 31) + 5,
    /// There is no such export.
    ErrUnknown = (1 << 31) + 6,
    /// The server is shutting down.
    ErrShutdown = (1 << 31) + 7,
    /// The client must request block sizes first.
    ErrBlockSizeReqd = (1 << 31) + 8,
    /// The option, or its answer, is too long.
    ErrTooBig = (1 << 31) + 9,
    /// Extended headers are required.
    ErrExtHeaderReqd = (1 << 31) + 10,
}

/// An information item of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(u16)]
pub enum Info {
    /// Its size and its transmission flags; always sent.
    Export = 0,
    /// Its listed name.
    Name = 1,
    /// Its description.
    Description = 2,
    /// Its block sizes.
    BlockSize = 3,
}
