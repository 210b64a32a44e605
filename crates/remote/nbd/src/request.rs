//! A request, as it can be sent more than once, and what it returns.

use std::cell::RefCell;
use std::ops::Range;

use block::{Buffer, PAGE_BYTES, Slice};
use failover::{Content, Kind};
use nbd::flags::command;
use nbd::{BlockStatus, Command};

/// A request, as another thread can hand it over.
pub(crate) struct Asked {
    pub(crate) kind: Command,
    pub(crate) flags: u16,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) data: Option<Slice>,
    /// The caller's, of a read, on its way to the link's thread: other requests there can have it until the data come. These go to
    /// the buffer that was used last, which is in the processor's cache.
    pub(crate) buffer: RefCell<Option<Buffer>>,
}

/// What a request has returned.
pub(crate) struct Returned {
    pub(crate) buffer: Option<Buffer>,
    pub(crate) extents: Vec<BlockStatus>,
}

impl Asked {
    /// A request without data.
    pub(crate) fn order(kind: Command, flags: u16, (offset, length): (u64, u64)) -> Asked {
        Asked { kind, flags, offset, length, data: None, buffer: RefCell::default() }
    }
}

impl Clone for Asked {
    fn clone(&self) -> Asked {
        let Asked { kind, flags, offset, length, ref data, .. } = *self;
        Asked { kind, flags, offset, length, data: data.clone(), buffer: RefCell::default() }
    }
}

impl failover::Request for Asked {
    fn kind(&self) -> Kind {
        match self.kind {
            Command::Write | Command::WriteZeroes | Command::Trim => Kind::Change {
                range: self.offset..self.offset.saturating_add(self.length),
                is_durable: self.flags & command::FUA != 0,
            },
            Command::Flush => Kind::Flush,
            Command::Read | Command::Disconnect | Command::Cache | Command::BlockStatus => Kind::Read,
        }
    }

    fn bytes(&self) -> u64 {
        match self.kind {
            Command::Read | Command::Write => self.length,
            _ => 0,
        }
    }

    fn content(&self) -> Option<Content<&[u8]>> {
        match self.kind {
            Command::Write => self.data.as_deref().map(Content::Write),
            Command::WriteZeroes => Some(Content::Zeroes { may_unmap: self.flags & command::NO_HOLE == 0 }),
            Command::Trim => Some(Content::Unmap),
            Command::Read | Command::Disconnect | Command::Flush | Command::Cache | Command::BlockStatus => {
                None
            }
        }
    }
}

impl failover::Part for Asked {
    fn part(&self, range: Range<u64>) -> Asked {
        let (from, length) = ((range.start - self.offset) as usize, range.end - range.start);
        let data = self.data.as_ref().map(|data| Buffer::from(&data[from..from + length as usize]).share());
        Asked { data, ..Asked::order(self.kind, self.flags, (range.start, length)) }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Asked>() + self.data.as_ref().map_or(0, |data| data.len().next_multiple_of(PAGE_BYTES))
    }
}
