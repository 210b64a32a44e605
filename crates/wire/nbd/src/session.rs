//! What a handshake ends with, and the rules for requests that follow from it.

use crate::channel::ChannelName;
use crate::command::{Command, Request};
use crate::error::Errno;
use crate::export::{Export, PAYLOAD_BYTES_MAX};
use crate::flags::{command, transmission};

/// The form of replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplyForm {
    /// A status, and the data of a read.
    #[default]
    Simple,
    /// Chunks.
    Structured,
    /// Chunks with lengths of 64 bits; requests have them, too.
    Extended,
}

/// A client and an export that have agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The export, as the client was told of it.
    pub export: Export,
    /// The form of requests and replies.
    pub form: ReplyForm,
    /// The number of `base:allocation`, if the client may ask for it.
    pub allocation: Option<u32>,
    /// The connection's name among those of its client, if both ends know of that.
    pub channel: Option<ChannelName>,
}

impl Session {
    /// Checks a request by the rules of the standard.
    ///
    /// # Errors
    /// What it must be answered with, without having any effect (section "Error values").
    #[inline]
    pub fn check(&self, request: &Request) -> Result<Command, Errno> {
        let kind = request.command().ok_or(Errno::Einval)?;
        // It has no reply, so that none can refuse it.
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
        let unaligned = (request.offset | request.length) & u64::from(self.export.block_sizes.minimum - 1);
        let has_payload = matches!(kind, Command::Read | Command::Write);
        if unaligned != 0 || has_payload && request.length > u64::from(PAYLOAD_BYTES_MAX) {
            return Err(Errno::Einval);
        }
        Ok(())
    }

    /// The flags that a command may have.
    fn flags_of(&self, kind: Command) -> u16 {
        let chunks = self.form != ReplyForm::Simple;
        let fua = if self.can(transmission::SEND_FUA) { command::FUA } else { 0 };
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
