//! PDUs on their way out: as many as fit go with one send.

use std::collections::VecDeque;
use std::io;

use iscsi::pdu::{BHS_BYTES, Bhs};
use reactor::{OutSlice, Stream};

use crate::raw::unless_blocked;

/// PDUs in the order of the wire.
#[derive(Debug)]
pub(super) struct Wire {
    staged: VecDeque<Staged>,
    /// Bytes of the first of them that were sent.
    sent: usize,
}

#[derive(Debug)]
struct Staged {
    bhs: Bhs,
    data: Data,
}

/// What follows a header, in whole words.
#[derive(Debug)]
pub(super) enum Data {
    Own(Vec<u8>),
    /// A part of a memory that the sender knows: where, and how many bytes.
    Part(usize, usize),
}

/// PDUs of one send: a header and data each, and a world takes 64 pieces at a time.
const STAGED_MAX: usize = 32;

impl Wire {
    pub(super) fn new() -> Wire {
        Wire { staged: VecDeque::with_capacity(STAGED_MAX), sent: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    /// Whether one more would not go with the same send.
    pub(super) fn is_full(&self) -> bool {
        self.staged.len() >= STAGED_MAX
    }

    pub(super) fn push(&mut self, bhs: Bhs, data: Data) {
        self.staged.push_back(Staged { bhs, data });
    }

    /// Sends once, with what `part` finds in the memory. Whether anything went.
    pub(super) fn send<'m>(
        &mut self,
        stream: &dyn Stream,
        part: impl Fn(usize, usize) -> OutSlice<'m>,
    ) -> io::Result<bool> {
        let Some(bytes) = unless_blocked(self.write(stream, part))? else { return Ok(false) };
        self.sent += bytes;
        while let Some(first) = self.staged.front().filter(|first| first.bytes() <= self.sent) {
            self.sent -= first.bytes();
            self.staged.pop_front();
        }
        Ok(true)
    }

    fn write<'m>(
        &self,
        stream: &dyn Stream,
        part: impl Fn(usize, usize) -> OutSlice<'m>,
    ) -> io::Result<usize> {
        let mut slices = [const { OutSlice::Bytes(&[]) }; 2 * STAGED_MAX];
        let mut skip = self.sent;
        for (staged, pair) in self.staged.iter().zip(slices.chunks_exact_mut(2)) {
            let in_header = skip.min(BHS_BYTES);
            let in_data = skip - in_header;
            pair[0] = OutSlice::Bytes(&staged.bhs.0[in_header..]);
            pair[1] = match &staged.data {
                Data::Own(data) => OutSlice::Bytes(&data[in_data..]),
                Data::Part(at, bytes) => part(at + in_data, bytes - in_data),
            };
            skip = 0;
        }
        stream.try_write(&slices[..2 * self.staged.len().min(STAGED_MAX)])
    }
}

impl Staged {
    fn bytes(&self) -> usize {
        BHS_BYTES
            + match &self.data {
                Data::Own(data) => data.len(),
                Data::Part(_, bytes) => *bytes,
            }
    }
}
