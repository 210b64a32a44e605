//! Replies (sections "Simple reply message", "Structured reply chunk message" and "Extended headers").

use derive_more::Display;

use crate::flags::reply::DONE;
use crate::handshake::STRING_BYTES_MAX;
use crate::request::{Command, Errno, ReplyForm, Request, Session};

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_MAGIC: u32 = 0x6e8a_278c;

const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const OFFSET_HOLE: u16 = 2;
const BLOCK_STATUS: u16 = 5;
const BLOCK_STATUS_EXT: u16 = 6;
const ERROR: u16 = 1 << 15 | 1;

/// The number of the single metadata context, `base:allocation`.
pub const ALLOCATION_CONTEXT: u32 = 1;
/// Maximum number of extents in a reply that a client must accept (section "NBD_REPLY_TYPE_BLOCK_STATUS_EXT").
pub const REPLY_EXTENTS_MAX: usize = 1 << 20;
/// Maximum accepted payload with extents, in bytes.
const EXTENTS_BYTES_MAX: u64 = 8 + 16 * REPLY_EXTENTS_MAX as u64;
/// Maximum payload of an error: its text, and an offset.
const ERROR_BYTES_MAX: u64 = 6 + STRING_BYTES_MAX as u64 + 8;

/// An extent in the reply to BLOCK_STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStatus {
    /// Its length in bytes, at least 1.
    pub bytes: u64,
    /// Its state ([`flags::allocation`](crate::flags::allocation)).
    pub state: u32,
}

impl Session {
    /// Appends the whole reply to a request that has succeeded and has no data to return.
    #[inline]
    pub fn succeed(&self, request: &Request, out: &mut Vec<u8>) {
        match self.form {
            ReplyForm::Structured if self.needs_chunks(request) => {
                self.chunk(request, NONE, 0, out)
            }
            ReplyForm::Simple | ReplyForm::Structured => simple(request, 0, out),
            ReplyForm::Extended => self.chunk(request, NONE, 0, out),
        }
    }

    /// Appends the whole reply to a request that has failed. `text` is a human-readable reason, which clients
    /// without chunks do not get.
    pub fn fail(&self, request: &Request, error: Errno, text: &str, out: &mut Vec<u8>) {
        if self.form == ReplyForm::Simple {
            return simple(request, error as u32, out);
        }
        let text = &text.as_bytes()[..text.floor_char_boundary(STRING_BYTES_MAX)];
        self.chunk(request, ERROR, 6 + text.len() as u64, out);
        out.extend((error as u32).to_be_bytes());
        out.extend((text.len() as u16).to_be_bytes());
        out.extend(text);
    }

    /// Appends the header of the reply to a read. All data of the read must follow it.
    #[inline]
    pub fn read_header(&self, request: &Request, out: &mut Vec<u8>) {
        match self.form {
            ReplyForm::Simple => simple(request, 0, out),
            // A chunk of data has at least one byte.
            _ if request.length == 0 => self.succeed(request, out),
            ReplyForm::Structured | ReplyForm::Extended => {
                self.chunk(request, OFFSET_DATA, 8 + request.length, out);
                out.extend(request.offset.to_be_bytes());
            }
        }
    }

    /// Appends the whole reply to BLOCK_STATUS: at least one extent, and at most [`REPLY_EXTENTS_MAX`].
    /// Without extended headers, the reply ends at the first extent that is too long for it, and this extent
    /// is shortened.
    pub fn block_status(&self, request: &Request, extents: &[BlockStatus], out: &mut Vec<u8>) {
        debug_assert!(
            (1..=REPLY_EXTENTS_MAX).contains(&extents.len()),
            "{} extents",
            extents.len()
        );
        let longest =
            u64::from(u32::MAX) & !u64::from(self.export.block_sizes.preferred.max(1) - 1);
        match self.form {
            ReplyForm::Extended => {
                self.chunk(
                    request,
                    BLOCK_STATUS_EXT,
                    8 + 16 * extents.len() as u64,
                    out,
                );
                out.extend(ALLOCATION_CONTEXT.to_be_bytes());
                out.extend((extents.len() as u32).to_be_bytes());
                for extent in extents {
                    out.extend(extent.bytes.to_be_bytes());
                    out.extend(u64::from(extent.state).to_be_bytes());
                }
            }
            ReplyForm::Simple | ReplyForm::Structured => {
                let too_long = extents.iter().position(|extent| extent.bytes > longest);
                let extents = too_long.map_or(extents, |last| &extents[..=last]);
                self.chunk(request, BLOCK_STATUS, 4 + 8 * extents.len() as u64, out);
                out.extend(ALLOCATION_CONTEXT.to_be_bytes());
                for extent in extents {
                    out.extend((extent.bytes.min(longest) as u32).to_be_bytes());
                    out.extend(extent.state.to_be_bytes());
                }
            }
        }
    }

    /// Whether a request must not be answered with a simple reply: a read, or a command with special chunks
    /// (section "Structured reply chunk message").
    fn needs_chunks(&self, request: &Request) -> bool {
        matches!(
            request.command(),
            Some(Command::Read | Command::BlockStatus)
        )
    }

    /// Appends the header of the only chunk of a reply, before a payload of this length.
    #[inline]
    fn chunk(&self, request: &Request, kind: u16, payload_bytes: u64, out: &mut Vec<u8>) {
        debug_assert!(
            self.form != ReplyForm::Simple,
            "a chunk for a client without chunks"
        );
        debug_assert!(
            self.form == ReplyForm::Extended || payload_bytes < 1 << 32,
            "a length beyond its field"
        );
        let extended = self.form == ReplyForm::Extended;
        out.extend(
            if extended {
                EXTENDED_MAGIC
            } else {
                STRUCTURED_MAGIC
            }
            .to_be_bytes(),
        );
        out.extend(DONE.to_be_bytes());
        out.extend(kind.to_be_bytes());
        out.extend(request.cookie.to_be_bytes());
        if extended {
            out.extend(request.offset.to_be_bytes());
            out.extend(payload_bytes.to_be_bytes());
        } else {
            out.extend((payload_bytes as u32).to_be_bytes());
        }
    }
}

#[inline]
fn simple(request: &Request, error: u32, out: &mut Vec<u8>) {
    out.extend(SIMPLE_MAGIC.to_be_bytes());
    out.extend(error.to_be_bytes());
    out.extend(request.cookie.to_be_bytes());
}

/// The header of a reply, or of a chunk of one; a payload may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request that it answers.
    pub cookie: u64,
    /// It is the last reply to the request.
    pub is_last: bool,
    /// Its content.
    pub chunk: Chunk,
}

/// The content of a reply or of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// A simple reply for a successful request: all data of a read follows.
    Simple,
    /// The request has succeeded, unless an earlier chunk reported an error.
    None,
    /// Data follows.
    Data {
        /// Offset of the data in the export, in bytes.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// A part of the export reads as zeros.
    Hole {
        /// Its first byte.
        offset: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// Extents follow ([`Session::extents`]).
    BlockStatus {
        /// Length in bytes.
        bytes: u64,
    },
    /// The request has failed. A human-readable text follows, and more that may be dropped.
    Error {
        /// The error: an [`Errno`], if known.
        error: u32,
        /// Number of bytes that follow.
        text_bytes: u64,
    },
}

/// The server has violated the protocol, and the start of the next reply is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum BadReply {
    /// The magic number is wrong.
    #[display("a reply starts with 0x{_0:08x}")]
    Magic(u32),
    /// The chunk type is unknown, or its length is invalid.
    #[display("a chunk of type {kind} has {bytes} bytes")]
    Chunk {
        /// Its type.
        kind: u16,
        /// The length of its payload in bytes.
        bytes: u64,
    },
}

impl Reply {
    /// The header at the start of `bytes`, and its length; `None` if it is incomplete.
    ///
    /// # Errors
    /// The bytes are not a header of a reply.
    #[inline]
    pub fn parse(form: ReplyForm, bytes: &[u8]) -> Result<Option<(Reply, usize)>, BadReply> {
        let Some(magic) = bytes.first_chunk().map(|magic| u32::from_be_bytes(*magic)) else {
            return Ok(None);
        };
        match (magic, form) {
            (SIMPLE_MAGIC, ReplyForm::Simple | ReplyForm::Structured) => Ok(Reply::simple(bytes)),
            (STRUCTURED_MAGIC, ReplyForm::Structured) => Reply::chunk(bytes, 20),
            (EXTENDED_MAGIC, ReplyForm::Extended) => Reply::chunk(bytes, 32),
            _ => Err(BadReply::Magic(magic)),
        }
    }

    fn simple(bytes: &[u8]) -> Option<(Reply, usize)> {
        let fixed = bytes.first_chunk::<16>()?;
        let chunk = match number(&fixed[4..8]) as u32 {
            0 => Chunk::Simple,
            error => Chunk::Error {
                error,
                text_bytes: 0,
            },
        };
        Some((
            Reply {
                cookie: number(&fixed[8..16]),
                is_last: true,
                chunk,
            },
            16,
        ))
    }

    fn chunk(bytes: &[u8], header_bytes: usize) -> Result<Option<(Reply, usize)>, BadReply> {
        let Some(header) = bytes.get(..header_bytes) else {
            return Ok(None);
        };
        let (flags, kind) = (number(&header[4..6]) as u16, number(&header[6..8]) as u16);
        let length = number(if header_bytes == 32 {
            &header[24..32]
        } else {
            &header[16..20]
        });
        let (cookie, is_last) = (number(&header[8..16]), flags & DONE != 0);
        let bad = BadReply::Chunk {
            kind,
            bytes: length,
        };
        // Bytes of the payload that are parsed here; the caller reads the rest.
        let fixed_bytes = match kind {
            NONE if length == 0 && is_last => 0,
            OFFSET_DATA if length > 8 => 8,
            OFFSET_HOLE if length == 12 => 12,
            BLOCK_STATUS | BLOCK_STATUS_EXT if (5..=EXTENTS_BYTES_MAX).contains(&length) => 0,
            // Unknown types of errors start like the known ones.
            _ if kind >> 15 == 1 && (6..=ERROR_BYTES_MAX).contains(&length) => 6,
            _ => return Err(bad),
        };
        let Some(fixed) = bytes[header_bytes..].get(..fixed_bytes) else {
            return Ok(None);
        };
        let chunk = match kind {
            NONE => Chunk::None,
            OFFSET_DATA => Chunk::Data {
                offset: number(fixed),
                bytes: length - 8,
            },
            OFFSET_HOLE => Chunk::Hole {
                offset: number(&fixed[..8]),
                bytes: number(&fixed[8..]),
            },
            BLOCK_STATUS | BLOCK_STATUS_EXT => Chunk::BlockStatus { bytes: length },
            _ => Chunk::Error {
                error: number(&fixed[..4]) as u32,
                text_bytes: length - 6,
            },
        };
        Ok(Some((
            Reply {
                cookie,
                is_last,
                chunk,
            },
            header_bytes + fixed_bytes,
        )))
    }
}

impl Session {
    /// The extents in the payload of a [`Chunk::BlockStatus`] for `base:allocation`; empty if they belong to
    /// another context. `None` if the payload is malformed.
    pub fn extents(&self, payload: &[u8]) -> Option<Vec<BlockStatus>> {
        let (context, rest) = payload.split_first_chunk::<4>()?;
        let (rest, size) = match self.form {
            ReplyForm::Extended => (rest.get(4..)?, 16),
            ReplyForm::Simple | ReplyForm::Structured => (rest, 8),
        };
        if rest.is_empty() || rest.len() % size != 0 {
            return None;
        }
        if Some(u32::from_be_bytes(*context)) != self.allocation {
            return Some(Vec::new());
        }
        let extent = |extent: &[u8]| {
            let (bytes, state) = extent.split_at(size / 2);
            BlockStatus {
                bytes: number(bytes),
                state: number(state) as u32,
            }
        };
        Some(rest.chunks_exact(size).map(extent).collect())
    }
}

/// A big-endian number of up to eight bytes.
#[inline]
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
