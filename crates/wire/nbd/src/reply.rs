//! Replies (sections "Simple reply message", "Structured reply chunk message" and "Extended headers").

use crate::command::{Command, Request};
use crate::error::Errno;
use crate::flags::reply::DONE;
use crate::option::STRING_BYTES_MAX;
use crate::session::{ReplyForm, Session};

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_MAGIC: u32 = 0x6e8a_278c;

const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const BLOCK_STATUS: u16 = 5;
const BLOCK_STATUS_EXT: u16 = 6;
const ERROR: u16 = 1 << 15 | 1;

/// The number of the one metadata context, `base:allocation`.
pub const ALLOCATION_CONTEXT: u32 = 1;
/// The most extents of one reply that a client must take (section "NBD_REPLY_TYPE_BLOCK_STATUS_EXT").
pub const REPLY_EXTENTS_MAX: usize = 1 << 20;
/// The longest header before the data of a read, in bytes.
pub const READ_HEADER_BYTES_MAX: usize = 40;

/// An extent in the answer to BLOCK_STATUS.
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
            ReplyForm::Structured if self.needs_chunks(request) => self.chunk(request, NONE, 0, out),
            ReplyForm::Simple | ReplyForm::Structured => simple(request, 0, out),
            ReplyForm::Extended => self.chunk(request, NONE, 0, out),
        }
    }

    /// Appends the whole reply to a request that has failed. `text` says why, for people; clients without
    /// chunks do not get it.
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

    /// Appends the header before the data of a read, all of which follow.
    #[inline]
    pub fn read_header(&self, request: &Request, out: &mut Vec<u8>) {
        match self.form {
            ReplyForm::Simple => simple(request, 0, out),
            // A chunk has at least a byte of data.
            _ if request.length == 0 => self.succeed(request, out),
            ReplyForm::Structured | ReplyForm::Extended => {
                self.chunk(request, OFFSET_DATA, 8 + request.length, out);
                out.extend(request.offset.to_be_bytes());
            }
        }
    }

    /// Appends the whole reply to BLOCK_STATUS: at least one extent, and at most [`REPLY_EXTENTS_MAX`].
    /// Without extended headers an extent that is too long for the reply is the last one, shortened.
    pub fn block_status(&self, request: &Request, extents: &[BlockStatus], out: &mut Vec<u8>) {
        let longest = u64::from(u32::MAX) & !u64::from(self.export.block_sizes.preferred.max(1) - 1);
        match self.form {
            ReplyForm::Extended => {
                self.chunk(request, BLOCK_STATUS_EXT, 8 + 16 * extents.len() as u64, out);
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

    /// Reads, and what has chunks of its own, may not be answered by a simple reply (section "Structured
    /// reply chunk message").
    fn needs_chunks(&self, request: &Request) -> bool {
        matches!(request.command(), Some(Command::Read | Command::BlockStatus))
    }

    /// The header of the one chunk of a reply, before a payload of this length.
    #[inline]
    fn chunk(&self, request: &Request, kind: u16, payload_bytes: u64, out: &mut Vec<u8>) {
        let extended = self.form == ReplyForm::Extended;
        out.extend(if extended { EXTENDED_MAGIC } else { STRUCTURED_MAGIC }.to_be_bytes());
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
