//! Both sides of the handshake (section "Fixed newstyle negotiation"), and what both speak: options and their replies
//! (sections "Option types" and "Option reply types").

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
/// The number that the server gives a connection's name. BLOCK_STATUS has nothing to say of it.
const CHANNEL_CONTEXT: u32 = 2;
const VOLUME_CONTEXT: u32 = 3;

/// Numbers and strings from the front of some bytes.
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

    /// A string behind its length of 32 bits.
    pub(super) fn string(&mut self) -> Option<&'a str> {
        let length = self.four()? as usize;
        let (string, rest) = self.0.split_at_checked(length).filter(|_| length <= STRING_BYTES_MAX)?;
        self.0 = rest;
        std::str::from_utf8(string).ok()
    }
}

/// The longest string that the standard allows (section "Strings"), in bytes.
pub const STRING_BYTES_MAX: usize = 4096;

/// What a client asks for during the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(u32)]
pub enum OptionCode {
    /// Begin with this export, or end: there is no reply that says why not.
    ExportName = 1,
    /// End.
    Abort = 2,
    /// The names of all exports.
    List = 3,
    /// Begin TLS.
    StartTls = 5,
    /// What an export is like.
    Info = 6,
    /// The same, and begin with it.
    Go = 7,
    /// Replies in chunks.
    StructuredReply = 8,
    /// Which metadata contexts an export has.
    ListMetaContext = 9,
    /// Use these metadata contexts.
    SetMetaContext = 10,
    /// Headers with lengths of 64 bits.
    ExtendedHeaders = 11,
}

/// What a server answers to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(u32)]
pub enum ReplyCode {
    /// The option was carried out; the last reply to it.
    Ack = 1,
    /// An export: the length of its name, its name, its description.
    Server = 2,
    /// An [`Info`] of an export.
    Info = 3,
    /// A metadata context: its number, its name.
    MetaContext = 4,
    /// The option is unknown.
    ErrUnsup = (1 << 31) + 1,
    /// The server does not allow it.
    ErrPolicy = (1 << 31) + 2,
    /// Its data, or its place in the sequence of options, are wrong.
    ErrInvalid = (1 << 31) + 3,
    /// The server's platform cannot do it.
    ErrPlatform = (1 << 31) + 4,
    /// TLS must come first.
    ErrTlsReqd = (1 << 31) + 5,
    /// There is no such export.
    ErrUnknown = (1 << 31) + 6,
    /// The server ends.
    ErrShutdown = (1 << 31) + 7,
    /// The client must ask for block sizes first.
    ErrBlockSizeReqd = (1 << 31) + 8,
    /// The option, or its answer, is too long.
    ErrTooBig = (1 << 31) + 9,
    /// Extended headers are required.
    ErrExtHeaderReqd = (1 << 31) + 10,
}

/// A piece of information of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, TryFromPrimitive)]
#[repr(u16)]
pub enum Info {
    /// Its size and its transmission flags; always sent.
    Export = 0,
    /// Its name as it is listed.
    Name = 1,
    /// Its description.
    Description = 2,
    /// Its block sizes.
    BlockSize = 3,
}
