//! A file of acknowledged changes that no flush has covered. These changes survive if this process is killed.
//!
//! ```text
//!   0        4096                                             4096 + capacity
//!   │ header │ … free … │ record │ record │ record │ … free … │      a ring
//!                        ▲ tail: everything before is flushed  ▲ head: found by reading up to the first incomplete record
//! ```
//!
//! A record is appended after the server has acknowledged a change, and before the user's request completes.
//! Likewise, the tail moves after the server has acknowledged a flush, and before the user's request
//! completes. Both writes go to the page cache, which survives the end of the process but not a crash of the
//! host. The header therefore contains the boot ID. After a failed write, the file accepts no further
//! changes.
//!
//! An *anchor* is a range of blocks, with a checksum of its content, whose content is known to be durable: it
//! was flushed, or was already on the device when the file was started. An anchor is removed before a change
//! to its blocks is sent. When a file is [replayed](recovery), anchors that no longer match show that another
//! client has written.
//!
//! The header also records an [`UnreportedLoss`], so that a kill of this process does not hide the loss from
//! the user of the device.

pub(crate) mod recovery;

use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crc_fast::crc32_iscsi;
use derive_more::Display;

use crate::journal::Writers;

/// The content of a range after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content<D> {
    /// The written data.
    Write(D),
    /// Zeros.
    Zeroes {
        /// Whether the blocks may be deallocated.
        may_unmap: bool,
    },
    /// The content of a deallocated block.
    Unmap,
}

impl Content<&[u8]> {
    /// Whether data read from a range matches this content. After a deallocation, any data matches:
    /// deallocated blocks read as zeros or have undefined content, so a user cannot rely on it.
    pub fn is_shown_by(&self, read: &[u8]) -> bool {
        match self {
            Content::Write(data) => *data == read,
            Content::Zeroes { .. } => read.iter().all(|byte| *byte == 0),
            Content::Unmap => true,
        }
    }
}

/// How unflushed changes from an earlier process are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayRule {
    /// Replay the changes, unless there is evidence that another client has written or that some changes are
    /// missing.
    #[default]
    Auto,
    /// Replay the changes in any case.
    Force,
    /// Drop the changes.
    Discard,
}

impl ReplayRule {
    /// Parses the word used in URLs.
    pub fn parse(text: &str) -> Option<ReplayRule> {
        match text {
            "auto" => Some(ReplayRule::Auto),
            "force" => Some(ReplayRule::Force),
            "discard" => Some(ReplayRule::Discard),
            _ => None,
        }
    }
}

/// The device that a file belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The device's unique name.
    pub identity: String,
    /// The device's capacity in bytes.
    pub bytes: u64,
    /// Which other hosts write to the device.
    pub writers: Writers,
}

/// Why a file cannot be used.
#[derive(Debug, Display)]
pub enum JournalFileError {
    /// An I/O error.
    #[display("journal file {}: {_1}", _0.display())]
    System(PathBuf, io::Error),
    /// Another process uses the file.
    #[display("journal file {}: in use by another process, or another volume of this one", _0.display())]
    InUse(PathBuf),
    /// The file is not a journal file.
    #[display("journal file {}: not a journal file; name one that does not exist, or an empty one", _0.display())]
    Foreign(PathBuf),
    /// The device has no unique name.
    #[display("journal file {}: the device has no identifier to associate the file with", _0.display())]
    Nameless(PathBuf),
    /// The header is damaged.
    #[display("journal file {}: its header is damaged; remove the file to discard its content", _0.display())]
    Damaged(PathBuf),
    /// The file belongs to another device, or its device has become smaller.
    #[display(
        "journal file {}: it belongs to {_1} ({_2} bytes), but this device is {_3} ({_4} bytes)",
        _0.display()
    )]
    AnotherDevice(PathBuf, String, u64, String, u64),
    /// Replaying the file's changes might destroy data.
    #[display(
        "journal file {}: {_1} acknowledged changes differ from the server's data or may be lost, and are not \
         replayed: {_2}. To write them, use journal-replay=force; to discard them, use journal-replay=discard",
        _0.display()
    )]
    Refused(PathBuf, usize, Doubt),
    /// The server rejected a read or write that processing the file requires.
    #[display("journal file {}: {_1} at byte {_2} of the device; no change was discarded", _0.display())]
    Device(PathBuf, block::DeviceError, u64),
}

impl std::error::Error for JournalFileError {}

/// Why changes are not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
pub enum Doubt {
    /// The host was restarted.
    #[display("this host has restarted since then, so the file may lack later changes")]
    Boot,
    /// The server has not lost the changes: its run is the same.
    #[display("the server has lost nothing since then, so another client has written these blocks")]
    SameStart,
    /// Blocks that were known to be durable have changed.
    #[display("flushed blocks have also changed, so another client has written to the device")]
    Anchors,
    /// Other hosts may write, so the cause cannot be determined.
    #[display(
        "with writers=several, other hosts also write here, and may have replaced these changes"
    )]
    Several,
    /// There are no anchors to check.
    #[display("the file has no flushed blocks that show whether another client has written")]
    NoAnchors,
}

/// The file of one device, used by one process at a time.
#[derive(Debug)]
pub(crate) struct JournalFile {
    path: PathBuf,
    file: File,
    header: Header,
    /// Position of the next record. See [`Header::tail`] for positions.
    head: u64,
    /// Blocks that become anchors when a flush covers their records, each with the end of its record.
    candidates: Vec<(u64, Anchor)>,
    /// Index of the anchor to replace next.
    turn: usize,
    /// Whether a write to the file has failed. If so, all later changes fail.
    has_failed: bool,
    /// A buffer in which records are assembled.
    buffer: Vec<u8>,
}

/// Maximum number of blocks that become anchors from one flush to the next.
const CANDIDATES_MAX: usize = 8;
/// Maximum length of an anchor in bytes.
const ANCHOR_BYTES: usize = 4096;
/// Maximum data that is copied into the buffer. A record with more data is written with two system calls,
/// which are cheaper than the copy.
const COPIED_BYTES_MAX: usize = 16 << 10;

impl JournalFile {
    /// Opens the file, or creates it with space for `capacity` bytes of records. An existing file keeps its
    /// size.
    ///
    /// # Errors
    /// The file cannot be used, or belongs to another device.
    fn open(path: &Path, owner: &Owner, capacity: u64) -> Result<JournalFile, JournalFileError> {
        let system = |error| JournalFileError::System(path.to_owned(), error);
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = file.open(path).map_err(system)?;
        let metadata = file.metadata().map_err(system)?;
        if !metadata.is_file() {
            return Err(JournalFileError::Foreign(path.to_owned()));
        }
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => JournalFileError::InUse(path.to_owned()),
            TryLockError::Error(error) => system(error),
        })?;
        let fresh = Header {
            capacity,
            tail: 0,
            salt: RandomState::new().hash_one(0),
            boot: NEVER_USED,
            start: None, // set after the records have been processed
            loss: UnreportedLoss::None,
            bytes: owner.bytes,
            identity: shortened(&owner.identity),
            anchors: Vec::new(),
        };
        let (header, is_allocated) = match metadata.len() {
            0 => (fresh, false),
            length => {
                let mut page = [0; HEADER_BYTES];
                file.read_exact_at(&mut page, 0)
                    .map_err(|_| JournalFileError::Foreign(path.to_owned()))?;
                let there = match Header::parse(&page) {
                    Some(header) => header,
                    None if is_ours(&page) => {
                        return Err(JournalFileError::Damaged(path.to_owned()));
                    }
                    None => return Err(JournalFileError::Foreign(path.to_owned())),
                };
                let is_allocated = length >= HEADER_BYTES as u64 + there.capacity;
                if !is_allocated && there.was_used() {
                    return Err(JournalFileError::Damaged(path.to_owned()));
                }
                if there.identity != fresh.identity || owner.bytes < there.bytes {
                    return Err(JournalFileError::AnotherDevice(
                        path.to_owned(),
                        there.identity,
                        there.bytes,
                        fresh.identity,
                        owner.bytes,
                    ));
                }
                (there, is_allocated)
            }
        };
        let mut journal = JournalFile {
            path: path.to_owned(),
            file,
            head: header.tail,
            header,
            candidates: Vec::new(),
            turn: 0,
            has_failed: false,
            buffer: Vec::new(),
        };
        if !is_allocated {
            journal.allocate().map_err(system)?;
        }
        Ok(journal)
    }

    /// The end of the records that a flush sent now would cover, for [`Self::flushed`].
    pub(crate) fn mark(&self) -> u64 {
        self.head
    }

    /// Whether a flush is due, so that there is space when it is needed.
    pub(crate) fn is_half_full(&self) -> bool {
        self.head - self.header.tail > self.header.capacity / 2
    }

    /// Whether the file has no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.header.tail
    }

    /// Must be called before a change to the bytes of `range` is sent. Removes the anchors in the range. If
    /// the file has an earlier change to these bytes (`is_over_another`), also appends a record that the new
    /// change was sent: until it is acknowledged or flushed, the content of the bytes is undetermined.
    /// Returns false if there is no space for the record.
    pub(crate) fn will_change(
        &mut self,
        range: &Range<u64>,
        is_over_another: bool,
    ) -> io::Result<bool> {
        self.working()?;
        let is_apart = |anchor: &Anchor| !anchor.overlaps(range);
        self.candidates.retain(|(_, anchor)| is_apart(anchor));
        let before = self.header.anchors.len();
        self.header.anchors.retain(is_apart);
        if self.header.anchors.len() < before {
            self.write_header()?;
        }
        if is_over_another {
            self.append_record(range, Kind::Sent, &[])
        } else {
            Ok(true)
        }
    }

    /// Records an acknowledged change. A change without content is durable, and makes earlier records of its
    /// bytes obsolete. Returns false, and records nothing, if there is no space. The caller must then flush.
    pub(crate) fn append(
        &mut self,
        range: &Range<u64>,
        content: Option<&Content<&[u8]>>,
    ) -> io::Result<bool> {
        let data: &[u8] = match content {
            Some(Content::Write(data)) => data,
            _ => &[],
        };
        let is_apart = |anchor: &Anchor| !anchor.overlaps(range);
        debug_assert!(
            self.header.anchors.iter().all(is_apart)
                && self.candidates.iter().all(|(_, anchor)| is_apart(anchor)),
            "an anchor ends before its blocks change"
        );
        let is_appended = self.append_record(range, kind(content), data)?;
        if is_appended && !data.is_empty() && self.candidates.len() < CANDIDATES_MAX {
            let place = &data[..data.len().min(ANCHOR_BYTES)];
            self.candidates
                .push((self.head, Anchor::new(range.start, place)));
            debug_assert!(
                self.candidates.is_sorted_by_key(|(end, _)| *end),
                "records are appended in order"
            );
        }
        Ok(is_appended)
    }

    fn append_record(&mut self, range: &Range<u64>, kind: Kind, data: &[u8]) -> io::Result<bool> {
        self.working()?;
        if range.is_empty() {
            return Ok(true); // the change is empty
        }
        let length = if kind == Kind::Write {
            range.end - range.start
        } else {
            0
        };
        debug_assert_eq!(
            data.len() as u64,
            length,
            "the data of a write is its bytes, and nothing else has data"
        );
        let bytes = (RECORD_BYTES + data.len()) as u64;
        let position = self.header.place(self.head, bytes);
        debug_assert!(position >= self.head, "positions only grow");
        if position + bytes - self.header.tail > self.header.capacity {
            return Ok(false);
        }
        debug_assert!(
            position % self.header.capacity + bytes <= self.header.capacity,
            "a record is contiguous in the ring"
        );
        let record = Record {
            position,
            range: range.clone(),
            kind,
            data_bytes: data.len(),
        };
        self.buffer.clear();
        self.buffer.extend(record.header(self.header.salt, data));
        let mut offset = self.header.offset(position);
        if data.len() <= COPIED_BYTES_MAX {
            self.buffer.extend_from_slice(data);
        }
        let mut written = self.file.write_all_at(&self.buffer, offset);
        if data.len() > COPIED_BYTES_MAX {
            offset += RECORD_BYTES as u64;
            written = written.and_then(|()| self.file.write_all_at(data, offset));
        }
        self.done(written)?;
        self.head = position + bytes;
        debug_assert!(
            self.head - self.header.tail <= self.header.capacity,
            "no record overwrites another one"
        );
        Ok(true)
    }

    /// Records that acknowledged changes may be lost and that the user has not recorded this yet. No
    /// block changed so far becomes an anchor: after a failed flush, Linux keeps the data in its cache, where
    /// it reads as written and no later flush stores it.
    pub(crate) fn note_loss(&mut self) -> io::Result<()> {
        self.candidates.clear();
        let loss = if self.is_empty() {
            UnreportedLoss::Dropped
        } else {
            UnreportedLoss::InFile
        };
        self.set_loss(self.header.loss.max(loss))
    }

    /// Records that the user has recorded all losses.
    pub(crate) fn loss_recorded(&mut self) -> io::Result<()> {
        self.set_loss(UnreportedLoss::None)
    }

    /// Whether changes that are no longer in the file were lost, and the user was not told.
    pub(crate) fn has_dropped_unreported(&self) -> bool {
        self.header.loss == UnreportedLoss::Dropped
    }

    /// Drops the records before this mark after a failed flush. Only the loss stays recorded, until it is
    /// reported.
    pub(crate) fn drop_lost(&mut self, mark: u64) -> io::Result<()> {
        if self.header.loss != UnreportedLoss::None {
            self.set_loss(UnreportedLoss::Dropped)?;
        }
        self.flushed(mark)
    }

    fn set_loss(&mut self, loss: UnreportedLoss) -> io::Result<()> {
        if self.header.loss == loss {
            return Ok(());
        }
        self.working()?;
        self.header.loss = loss;
        self.write_header()
    }

    /// Records the success of a flush that covers everything before this mark. An older mark has no effect.
    pub(crate) fn flushed(&mut self, mark: u64) -> io::Result<()> {
        if mark <= self.header.tail {
            return Ok(());
        }
        self.working()?;
        if self.header.loss != UnreportedLoss::None {
            self.header.loss = UnreportedLoss::Dropped; // the lost changes may be among them
        }
        debug_assert!(mark <= self.head, "a flush covers the appended records");
        debug_assert!(
            self.candidates.iter().all(|(end, _)| *end <= self.head),
            "a candidate is the block of an appended record"
        );
        self.header.tail = mark;
        let (covered, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.candidates)
            .into_iter()
            .partition(|(end, _)| *end <= mark);
        self.candidates = rest;
        for (_, anchor) in covered {
            self.turn = self.header.replace_anchor(self.turn, anchor);
        }
        self.write_header()
    }

    /// Records the server's run whose cache contains all changes in the file. Must be called only after this
    /// was verified: if the server's run is still the same, the next process attributes any difference to
    /// another client.
    pub(crate) fn set_start(&mut self, start: Option<u128>) -> io::Result<()> {
        if self.header.start == start {
            return Ok(());
        }
        self.working()?;
        self.header.start = start;
        self.write_header()
    }

    /// Empties the file after its records have been processed. Also records the boot, the size of the device,
    /// the server's run and the current anchors. The lost changes in the file are stored, replaced or discarded
    /// now; the loss of others still has to be reported.
    fn begin(
        &mut self,
        owner: &Owner,
        start: Option<u128>,
        anchors: Vec<Anchor>,
    ) -> io::Result<()> {
        self.header.tail = self.head;
        if self.header.loss == UnreportedLoss::InFile {
            self.header.loss = UnreportedLoss::None;
        }
        self.header.boot = boot()?;
        self.header.bytes = owner.bytes;
        self.header.start = start;
        self.header.anchors = anchors;
        self.candidates.clear();
        self.write_header()
    }

    /// Reads the records that no flush has covered, in order. The next record is appended after them. An
    /// incomplete record ends the sequence without an error, because its change was not acknowledged to the
    /// user.
    fn read(&mut self, mut each: impl FnMut(Record, &[u8])) -> io::Result<()> {
        let mut at = self.header.tail;
        while let Some((record, data)) = self.record_at(at)? {
            at = record.end();
            each(record, &data);
        }
        self.head = at;
        Ok(())
    }

    /// Reads the record at this position or, if there is none, at the start of the next lap. Returns `None`
    /// after the last record.
    fn record_at(&self, at: u64) -> io::Result<Option<(Record, Vec<u8>)>> {
        let limit = self.header.tail.saturating_add(self.header.capacity);
        for position in [at, self.header.next_lap(at)] {
            let room =
                (self.header.next_lap(position) - position).min(limit.saturating_sub(position));
            if room < RECORD_BYTES as u64 {
                continue;
            }
            let mut header = [0; RECORD_BYTES];
            self.file
                .read_exact_at(&mut header, self.header.offset(position))?;
            let Some(record) = Record::parse(&header, self.header.salt, position) else {
                continue;
            };
            if (record.data_bytes as u64) > room - RECORD_BYTES as u64 {
                continue;
            }
            let mut data = vec![0; record.data_bytes];
            self.file.read_exact_at(
                &mut data,
                self.header.offset(position) + RECORD_BYTES as u64,
            )?;
            if record.header(self.header.salt, &data) == header {
                return Ok(Some((record, data)));
            }
        }
        Ok(None)
    }

    /// Allocates the file's whole space, so that a later write cannot fail because the file system is full.
    /// After a failure, the file is empty again.
    fn allocate(&mut self) -> io::Result<()> {
        let zeros = vec![0; 1 << 20];
        let (mut at, end) = (
            HEADER_BYTES as u64,
            HEADER_BYTES as u64 + self.header.capacity,
        );
        // Write the header first, so that the file is recognised even if the process is killed during the
        // allocation.
        let mut allocated = self.write_header();
        while at < end && allocated.is_ok() {
            let piece = &zeros[..zeros.len().min((end - at) as usize)];
            allocated = self.file.write_all_at(piece, at);
            at += piece.len() as u64;
        }
        // Without this sync, a file that was used could be too short after a crash of the host.
        let allocated = allocated.and_then(|()| self.file.sync_all());
        if allocated.is_err() {
            let _ = self.file.set_len(0); // no record is lost: the file was never used
        }
        allocated
    }

    fn write_header(&mut self) -> io::Result<()> {
        let written = self.file.write_all_at(&self.header.page(), 0);
        self.done(written)
    }

    /// Returns the result of a write, and records a failure. After a failure, no further changes are allowed,
    /// because the file would not contain them.
    fn done(&mut self, done: io::Result<()>) -> io::Result<()> {
        if let Err(error) = &done {
            self.has_failed = true;
            tracing::error!(
                path = %self.path.display(),
                %error,
                "the journal file cannot be written: all further changes fail"
            );
        }
        done
    }

    /// Fails if an earlier write has failed.
    fn working(&self) -> io::Result<()> {
        match self.has_failed {
            true => Err(io::Error::other(
                "an earlier write to the journal file has failed",
            )),
            false => Ok(()),
        }
    }
}

/// The value of [`Header::boot`] until [`JournalFile::begin`] is called.
const NEVER_USED: u128 = 0;

/// The ID of this boot (proc(5), `/proc/sys/kernel/random/boot_id`).
fn boot() -> io::Result<u128> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.trim().chars().filter(|digit| *digit != '-').collect();
    u128::from_str_radix(&digits, 16).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// CRC-32C of the concatenated parts.
fn checksum(parts: &[&[u8]]) -> u32 {
    match parts {
        [one] => crc32_iscsi(one),
        parts => {
            let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
            parts.iter().for_each(|part| digest.update(part));
            digest.finalize() as u32
        }
    }
}

#[cfg(test)]
mod tests;

// The first page of a journal file. All numbers in the file are little-endian.

/// Length of the header in bytes: one page, because a write of one page is atomic even if the process is
/// killed during the write.
pub(crate) const HEADER_BYTES: usize = 4096;
/// The start of the header; the last two digits are the format's version.
const MAGIC: &[u8; 8] = b"LNRJNL01";
/// Maximum number of anchors.
const ANCHORS_MAX: usize = 64;
/// In the header's flags: whether the server's run is known. The bits from [`LOSS_SHIFT`] on are the loss.
const HAS_START: u32 = 1;
const LOSS_SHIFT: u32 = 1;
const LOSSES: [UnreportedLoss; 3] = [
    UnreportedLoss::None,
    UnreportedLoss::InFile,
    UnreportedLoss::Dropped,
];
/// Maximum length of an identity in bytes.
const IDENTITY_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Size of the ring in bytes.
    pub(crate) capacity: u64,
    /// The position of the first record that no flush has covered. Positions only increase: each offset in
    /// the ring has one position per lap.
    pub(crate) tail: u64,
    /// A random number that is chosen when the file is created and stored in each record, so that user data
    /// never looks like a record.
    pub(crate) salt: u64,
    /// The ID of the boot during which the journal began, or [`NEVER_USED`].
    pub(crate) boot: u128,
    /// The server's run: see [`JournalFile::set_start`]. `None` if it is unknown.
    pub(crate) start: Option<u128>,
    /// The loss of acknowledged changes that the user was not told.
    pub(crate) loss: UnreportedLoss,
    /// The device's capacity.
    pub(crate) bytes: u64,
    /// The device's unique name, [shortened] if necessary.
    pub(crate) identity: String,
    pub(crate) anchors: Vec<Anchor>,
}

/// A loss of acknowledged changes whose report the user has not received, or not yet recorded. It only grows
/// until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnreportedLoss {
    /// There is none.
    #[default]
    None,
    /// All lost changes are in the file, so that a replay can store them.
    InFile,
    /// Lost changes are no longer in the file.
    Dropped,
}

/// A range of the device, in bytes, with a checksum of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) start: u64,
    pub(crate) length: u32,
    pub(crate) checksum: u32,
}

impl Anchor {
    pub(crate) fn new(start: u64, data: &[u8]) -> Anchor {
        Anchor {
            start,
            length: data.len() as u32,
            checksum: checksum(&[data]),
        }
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.start..self.start.saturating_add(self.length.into())
    }

    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.start < range.end && range.start < self.range().end
    }
}

impl Header {
    pub(crate) fn offset(&self, position: u64) -> u64 {
        HEADER_BYTES as u64 + position % self.capacity
    }

    /// The next position at the start of the ring; always after `position`.
    pub(crate) fn next_lap(&self, position: u64) -> u64 {
        (position / self.capacity + 1).saturating_mul(self.capacity)
    }

    /// The position of the next record of this length. A record must be contiguous, so it may have to start
    /// with the next lap.
    pub(crate) fn place(&self, head: u64, bytes: u64) -> u64 {
        if head % self.capacity + bytes > self.capacity {
            self.next_lap(head)
        } else {
            head
        }
    }

    /// Adds an anchor, replacing one if there is no space. Returns the next index to replace.
    pub(crate) fn replace_anchor(&mut self, turn: usize, anchor: Anchor) -> usize {
        if self.anchors.len() < ANCHORS_MAX {
            self.anchors.push(anchor);
            return turn;
        }
        debug_assert_eq!(self.anchors.len(), ANCHORS_MAX);
        self.anchors[turn % ANCHORS_MAX] = anchor;
        (turn + 1) % ANCHORS_MAX
    }

    pub(crate) fn page(&self) -> [u8; HEADER_BYTES] {
        debug_assert!(self.anchors.len() <= ANCHORS_MAX);
        debug_assert!(
            self.identity.len() <= IDENTITY_BYTES_MAX,
            "a long identity was shortened"
        );
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend(MAGIC);
        for number in [self.capacity, self.tail, self.salt, self.bytes] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.boot.to_le_bytes());
        let flags =
            (self.loss as u32) << LOSS_SHIFT | if self.start.is_some() { HAS_START } else { 0 };
        out.extend(flags.to_le_bytes());
        out.extend(self.start.unwrap_or_default().to_le_bytes());
        out.extend((self.identity.len() as u32).to_le_bytes());
        out.extend(self.identity.as_bytes());
        out.extend((self.anchors.len() as u32).to_le_bytes());
        for anchor in &self.anchors {
            out.extend(anchor.start.to_le_bytes());
            out.extend(anchor.length.to_le_bytes());
            out.extend(anchor.checksum.to_le_bytes());
        }
        let mut page = [0; HEADER_BYTES];
        page[..out.len()].copy_from_slice(&out);
        let end = HEADER_BYTES - 4;
        let sum = checksum(&[&page[..end]]);
        page[end..].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// Whether [`JournalFile::begin`] has written this header, which it does before the first record is
    /// appended.
    fn was_used(&self) -> bool {
        self.boot != NEVER_USED
    }

    /// Parses a header. Returns `None` if the page is not a header, or is damaged.
    pub(crate) fn parse(page: &[u8; HEADER_BYTES]) -> Option<Header> {
        let (body, sum) = page.split_at(HEADER_BYTES - 4);
        if !is_ours(page) || checksum(&[body]).to_le_bytes() != sum {
            return None;
        }
        let mut rest = &body[MAGIC.len()..];
        let [capacity, tail, salt, bytes] = [
            take(&mut rest)?,
            take(&mut rest)?,
            take(&mut rest)?,
            take(&mut rest)?,
        ]
        .map(u64::from_le_bytes);
        let boot = u128::from_le_bytes(take(&mut rest)?);
        let flags = u32::from_le_bytes(take(&mut rest)?);
        let loss = LOSSES
            .into_iter()
            .find(|loss| *loss as u32 == flags >> LOSS_SHIFT)?;
        let start = Some(u128::from_le_bytes(take(&mut rest)?)).filter(|_| flags & HAS_START != 0);
        let length = u32::from_le_bytes(take(&mut rest)?) as usize;
        let (identity, after) = rest.split_at_checked(length)?;
        let identity = String::from_utf8(identity.to_vec()).ok()?;
        rest = after;
        let count = u32::from_le_bytes(take(&mut rest)?) as usize;
        let mut anchors = Vec::new();
        for _ in 0..Some(count).filter(|count| *count <= ANCHORS_MAX)? {
            let start = u64::from_le_bytes(take(&mut rest)?);
            let [length, checksum] = [take(&mut rest)?, take(&mut rest)?].map(u32::from_le_bytes);
            anchors.push(Anchor {
                start,
                length,
                checksum,
            });
        }
        (capacity > 0).then_some(Header {
            capacity,
            tail,
            salt,
            boot,
            start,
            loss,
            bytes,
            identity,
            anchors,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

/// Whether a page starts with the header's magic number.
pub(crate) fn is_ours(page: &[u8; HEADER_BYTES]) -> bool {
    page.starts_with(MAGIC)
}

/// Shortens an identity to fit the header: a checksum replaces the end of a long one.
pub(crate) fn shortened(identity: &str) -> String {
    if identity.len() <= IDENTITY_BYTES_MAX {
        return identity.to_owned();
    }
    let cut = identity.floor_char_boundary(IDENTITY_BYTES_MAX - 16);
    format!(
        "{}… {:08x}",
        &identity[..cut],
        checksum(&[identity.as_bytes()])
    )
}

// A change in the ring: a header, followed by the data of a write.

/// Size of a record's header in bytes.
pub(crate) const RECORD_BYTES: usize = 48;
/// Length of the part of the header that the checksum covers. The checksum is the last field.
const SUMMED: usize = RECORD_BYTES - 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) position: u64,
    /// The changed bytes of the device.
    pub(crate) range: Range<u64>,
    pub(crate) kind: Kind,
    /// Length of the data after the header: the length of the range for a write, otherwise 0.
    pub(crate) data_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write = 1,
    Zeroes = 2,
    /// Zeros that may be deallocated.
    ZeroesOrHoles = 3,
    Unmap = 4,
    /// A durable change: earlier changes to its bytes must not be replayed.
    Durable = 5,
    /// A change to bytes with an acknowledged change was sent, and may have been executed.
    Sent = 6,
}

const KINDS: [Kind; 6] = [
    Kind::Write,
    Kind::Zeroes,
    Kind::ZeroesOrHoles,
    Kind::Unmap,
    Kind::Durable,
    Kind::Sent,
];

pub(crate) fn kind(content: Option<&Content<&[u8]>>) -> Kind {
    match content {
        Some(Content::Write(_)) => Kind::Write,
        Some(Content::Zeroes { may_unmap: false }) => Kind::Zeroes,
        Some(Content::Zeroes { may_unmap: true }) => Kind::ZeroesOrHoles,
        Some(Content::Unmap) => Kind::Unmap,
        None => Kind::Durable,
    }
}

impl Record {
    /// The position after the record.
    pub(crate) fn end(&self) -> u64 {
        self.position + (RECORD_BYTES + self.data_bytes) as u64
    }

    pub(crate) fn header(&self, salt: u64, data: &[u8]) -> [u8; RECORD_BYTES] {
        let mut header = [0; RECORD_BYTES];
        let numbers = [salt, self.position, self.range.start, self.range.end];
        for (field, number) in header.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        header[32..36].copy_from_slice(&(self.kind as u32).to_le_bytes());
        header[36..40].copy_from_slice(&(self.data_bytes as u32).to_le_bytes());
        let sum = checksum(&[&header[..SUMMED], data]);
        header[SUMMED..].copy_from_slice(&sum.to_le_bytes());
        header
    }

    /// Parses a record's header, if it belongs to this position. Does not verify the checksum, which also
    /// covers the data.
    pub(crate) fn parse(header: &[u8; RECORD_BYTES], salt: u64, position: u64) -> Option<Record> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let range = u64_at(16)?..u64_at(24)?;
        let kind = u32_at(32)?;
        let kind = KINDS.into_iter().find(|one| *one as u32 == kind)?;
        let data_bytes = u32_at(36)? as usize;
        let is_whole =
            kind != Kind::Write || range.end.checked_sub(range.start) == Some(data_bytes as u64);
        let is_here = u64_at(0)? == salt && u64_at(8)? == position;
        (is_here && is_whole && range.start < range.end).then_some(Record {
            position,
            range,
            kind,
            data_bytes,
        })
    }
}
