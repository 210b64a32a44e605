//! Execution of ATA commands on a volume.
//!
//! Commands for whole blocks share their blocks with other commands, as all reads and writes of all front
//! ends do. A volume may have larger blocks than sectors: a write of part of a block excludes other commands,
//! because it reads the block and writes it back.

use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Instant;

use aoe::{
    Ata, AtaError, AtaOperation, Body, ErrorCode, Frame, Header, Identity, SECTOR_BYTES,
    TrimRanges, WriteCache,
};
use block::{Allocation, BlockDevice, Buffer, DeviceError, Durability, Extent, bytewise};
use front_end_core::{Charge, Operation, Span, Ticket, Traffic, Unserved};
use reactor::{DatagramAddress, MacAddress};
use volume::{Access, Denied, Reported as _, RequestKind};

use crate::front_end::{CoreShelves, CoreSlot, Interface, OutFrame, Station};
use crate::history::{Head, Verdict};

/// The model reported by IDENTIFY DEVICE.
const MODEL: &str = "LINERATE VIRTUAL-DISK";
/// Maximum number of sectors of ranges in one DATA SET MANAGEMENT.
const TRIM_SECTORS_MAX: u16 = 1;

/// Before a repeated TRIM is acknowledged, allocated blocks are compared with zeros, in ranges up to this
/// length.
const ZEROS_READ_MAX: usize = 1 << 20;

/// Random keys for the fingerprints of changes, so that a host cannot create two changes with the same
/// fingerprint.
static FINGERPRINTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A command that is being executed.
struct Command {
    slot: Rc<CoreSlot>,
    station: Rc<Station>,
    by: Interface,
    header: Header,
    ata: Ata,
    begin: Instant,
    /// The fingerprint of a change; `None` for other commands.
    fingerprint: Option<u64>,
}

/// The content of the medium after a change.
enum Content {
    /// These bytes.
    Data(Range<u64>, Buffer),
    /// Zeros in these ranges of sectors, as pairs of start and number.
    Zeros(Vec<(u64, u64)>),
}

impl Content {
    /// Memory needed for a comparison with the medium.
    fn bytes_read(&self) -> usize {
        match self {
            Content::Data(_, data) => data.len(),
            Content::Zeros(_) => ZEROS_READ_MAX,
        }
    }
}

/// The error of a command, as sent in the reply.
#[derive(Clone, Copy)]
enum Failed {
    /// The device reports this error in its registers.
    Ata(AtaError),
    /// The device has failed.
    Fault,
    /// The server rejects the command at the level of AoE.
    Aoe(ErrorCode),
    /// There is no reply, so the host retransmits the command.
    Dropped,
}

impl CoreShelves {
    pub(crate) fn command(
        self: &Rc<Self>,
        slot: &Rc<CoreSlot>,
        from: MacAddress,
        by: &Interface,
        header: &Header,
        ata: &Ata,
        data: &[u8],
    ) {
        let Some(station) = self.station(slot, from) else {
            return;
        };
        let command = Command {
            slot: Rc::clone(slot),
            station,
            by: by.clone(),
            header: *header,
            ata: *ata,
            begin: reactor::now(),
            fingerprint: None,
        };
        let operation = ata.operation();
        if operation != AtaOperation::Identify && !slot.serves(from) {
            return command.end(Err(Failed::Aoe(ErrorCode::Reserved)), &[], None);
        }
        let sectors_max = u32::from(by.sectors_max);
        match operation {
            AtaOperation::Identify if ata.count != 1 => command.refuse(),
            AtaOperation::Identify => {
                let sector = slot.identity().bytes();
                command.end(Ok(()), &sector, None);
            }
            AtaOperation::CheckPower => {
                // The count indicates the active state (ACS-3 section 7.2).
                let answer = Ata {
                    count: 0xff,
                    ..ata.done()
                };
                command.send(Body::Ata(answer, &[]), None, None);
            }
            AtaOperation::Read { sectors, .. } | AtaOperation::Write { sectors, .. }
                if sectors > sectors_max =>
            {
                command.refuse();
            }
            AtaOperation::Trim { sectors } if sectors > u32::from(TRIM_SECTORS_MAX) => {
                command.refuse()
            }
            AtaOperation::Write { sectors, .. } | AtaOperation::Trim { sectors }
                if data.len() < sectors as usize * SECTOR_BYTES =>
            {
                command.refuse();
            }
            AtaOperation::Read { lba, sectors } => self.read(command, lba, sectors),
            AtaOperation::Write {
                lba,
                sectors,
                is_durable,
            } => {
                let data = &data[..sectors as usize * SECTOR_BYTES];
                self.write(command, lba, data, is_durable);
            }
            AtaOperation::Flush => self.spawn(command, None, async |command, ticket| {
                command.flush(ticket).await
            }),
            AtaOperation::Trim { sectors } => {
                let data = &data[..sectors as usize * SECTOR_BYTES];
                let ranges: Vec<(u64, u64)> = TrimRanges::new(data).collect();
                let zeros = || Content::Zeros(ranges.clone());
                let Some(command) = self.first(command, data, zeros) else {
                    return;
                };
                self.spawn(command, None, async move |command, ticket| {
                    command.trim(&ranges, ticket).await
                });
            }
            AtaOperation::Unsupported => {
                command.end(Err(Failed::Ata(AtaError::Aborted)), &[], None)
            }
        }
    }

    fn read(self: &Rc<Self>, command: Command, lba: u64, sectors: u32) {
        let Some(range) = command.slot.range(lba, u64::from(sectors)) else {
            return command.end(Err(Failed::Ata(AtaError::NoSector)), &[], None);
        };
        if let Some(answer) = command.read_from_memory(&range) {
            command.count(Ok(()));
            return command.by.answer(command.station.address, answer);
        }
        let Some(charge) = self
            .memory
            .take(Buffer::memory_bytes(sectors as usize * SECTOR_BYTES))
        else {
            return;
        };
        if let Some(buffer) = command.read_from_cache(&range) {
            return command.end(Ok(()), &buffer, Some(charge));
        }
        let Some((ticket, running)) = command.start(self) else {
            return;
        };
        drop(reactor::spawn(async move {
            let read = command.fetch(&range, ticket).await;
            command.station.end_task();
            drop(running);
            match read {
                Ok((buffer, part)) => command.end(Ok(()), &buffer[part], Some(charge)),
                Err(failed) => command.end(Err(failed), &[], None),
            }
        }));
    }

    fn write(self: &Rc<Self>, command: Command, lba: u64, data: &[u8], is_durable: bool) {
        debug_assert_eq!(data.len() % SECTOR_BYTES, 0, "whole sectors");
        let sectors = data.len() as u64 / SECTOR_BYTES as u64;
        let Some(range) = command.slot.range(lba, sectors) else {
            return command.end(Err(Failed::Ata(AtaError::NoSector)), &[], None);
        };
        if command.slot.settings().read_only {
            return command.end(Err(Failed::Ata(AtaError::Aborted)), &[], None);
        }
        let written = || Content::Data(range.clone(), Buffer::from(data));
        let Some(command) = self.first(command, data, written) else {
            return;
        };
        if !is_durable && command.write_now(&range, data) {
            return command.end(Ok(()), &[], None);
        }
        let Some(charge) = self.memory.take(Buffer::memory_bytes(data.len())) else {
            return command.end(Err(Failed::Dropped), &[], None);
        };
        let data = Buffer::from(data).share();
        self.spawn(command, Some(charge), async move |command, ticket| {
            command.write(range, data, is_durable, ticket).await
        });
    }

    /// Returns the change if it must be executed. If this station has sent it before, answers or drops it
    /// here.
    ///
    /// The tag, registers and data do not distinguish a repetition from a new change that reuses the tag.
    /// While the medium contains `content`, both may be acknowledged. Otherwise a newer change has replaced
    /// it: an old copy must not be executed, but a new change must be. In this case the frame is dropped, so
    /// that the host repeats it. [`crate::history`] treats the repeated frame as new once no copy can still
    /// be in transit.
    fn first(
        self: &Rc<Self>,
        mut command: Command,
        data: &[u8],
        content: impl FnOnce() -> Content,
    ) -> Option<Command> {
        debug_assert!(command.fingerprint.is_none(), "a change is recorded once");
        let registers = (
            command.ata.lba,
            command.ata.count,
            command.ata.command_or_status,
        );
        let fingerprint = FINGERPRINTS.hash_one((registers, data));
        let verdict = command.station.writes.borrow_mut().begin(
            command.begin,
            command.header.tag,
            fingerprint,
        );
        match verdict {
            Verdict::Running => return None,
            Verdict::Done(answer) => self.answer_copy(command, content(), answer),
            Verdict::New => {
                command.fingerprint = Some(fingerprint);
                return Some(command);
            }
        }
        None
    }

    /// Repeats the reply to a change if the medium still contains its `content`.
    fn answer_copy(self: &Rc<Self>, command: Command, content: Content, answer: Head) {
        debug_assert!(
            command.fingerprint.is_none(),
            "a copy must not end the record of the original"
        );
        let Some(charge) = self.memory.take(Buffer::memory_bytes(content.bytes_read())) else {
            return command.end(Err(Failed::Dropped), &[], None);
        };
        let Some((ticket, running)) = command.start(self) else {
            return;
        };
        drop(reactor::spawn(async move {
            let holds = command.holds(&content, ticket).await.unwrap_or(false);
            command.station.end_task();
            drop((running, charge));
            if !holds {
                return command.end(Err(Failed::Dropped), &[], None);
            }
            command
                .station
                .writes
                .borrow_mut()
                .repeated(command.header.tag, &answer);
            command.by.answer(command.station.address, answer.to_vec());
        }));
    }

    /// Executes a command that returns no data as a task.
    fn spawn<F>(self: &Rc<Self>, command: Command, charge: Option<Charge>, work: F)
    where
        F: AsyncFnOnce(&Command, Ticket) -> Result<(), Failed> + 'static,
    {
        let Some((ticket, running)) = command.start(self) else {
            return;
        };
        drop(reactor::spawn(async move {
            let done = work(&command, ticket).await;
            command.station.end_task();
            drop(running);
            command.end(done, &[], charge);
        }));
    }
}

impl Command {
    /// Counts the command's new task. `None` if the station already has too many tasks; the command is then
    /// not answered.
    fn start(&self, core: &CoreShelves) -> Option<(Ticket, Rc<()>)> {
        if self.station.running.get() >= usize::from(core.commands_max()) {
            self.forget_write(None);
            return None;
        }
        self.station.begin_task();
        self.slot.tally.note_wait();
        Some((
            self.slot.requests.accept(),
            Rc::clone(&self.slot.running.borrow()),
        ))
    }

    fn refuse(&self) {
        self.end(Err(Failed::Aoe(ErrorCode::BadArgument)), &[], None);
    }

    /// Sends the reply to the command, with the data of a read.
    fn end(&self, done: Result<(), Failed>, data: &[u8], charge: Option<Charge>) {
        debug_assert!(
            done.is_ok() || data.is_empty(),
            "only a success returns data"
        );
        self.count(done.as_ref().map_err(|failed| failed.name()).copied());
        let (ata, error) = match done {
            Ok(()) => (self.ata.done(), None),
            Err(Failed::Ata(error)) => (self.ata.failed(error), None),
            Err(Failed::Fault) => (self.ata.faulted(), None),
            Err(Failed::Aoe(error)) => (self.ata, Some(error)),
            Err(Failed::Dropped) => return self.forget_write(None),
        };
        let answer = self.send(Body::Ata(ata, data), error, charge);
        self.forget_write(answer);
    }

    /// Records the change as executed with this reply, or as never started.
    fn forget_write(&self, answer: Option<Head>) {
        if let Some(fingerprint) = self.fingerprint {
            self.station.writes.borrow_mut().end(
                reactor::now(),
                self.header.tag,
                fingerprint,
                answer,
            );
        }
    }

    /// Sends a reply. Returns its header and registers.
    fn send(
        &self,
        body: Body<'_>,
        error: Option<ErrorCode>,
        charge: Option<Charge>,
    ) -> Option<Head> {
        let payload = Frame {
            header: self.header.answer(self.slot.address, error),
            body,
        }
        .write();
        let head = payload.first_chunk().copied();
        let to = DatagramAddress::Ethernet(self.station.address);
        self.by.outgoing.push(OutFrame {
            to,
            payload,
            _charge: charge,
        });
        head
    }

    fn count(&self, done: Result<(), &'static str>) {
        let (operation, bytes) = match self.ata.operation() {
            AtaOperation::Read { sectors, .. } => (Operation::Read, sectors),
            AtaOperation::Write { sectors, .. } => (Operation::Write, sectors),
            AtaOperation::Flush => (Operation::Flush, 0),
            AtaOperation::Trim { .. } => (Operation::Unmap, 0),
            AtaOperation::Identify | AtaOperation::CheckPower | AtaOperation::Unsupported => {
                (Operation::Other, 0)
            }
        };
        let bytes = if done.is_ok() {
            u64::from(bytes) * SECTOR_BYTES as u64
        } else {
            0
        };
        let (read, written) = if operation == Operation::Read {
            (bytes, 0)
        } else {
            (0, bytes)
        };
        let moved = Traffic {
            commands: 1,
            read_bytes: read,
            written_bytes: written,
            window_full: 0,
        };
        self.station
            .traffic
            .set(self.station.traffic.get().plus(moved));
        self.slot.tally.moved(read, written);
        self.slot
            .tally
            .record(operation, Span::new(self.begin, reactor::now()));
        if let Err(name) = done {
            self.slot.tally.failed(operation, name);
        }
    }

    fn device(&self) -> &dyn BlockDevice {
        &**self.slot.volume.device()
    }

    fn covering(&self, range: &Range<u64>) -> Result<Extent, DeviceError> {
        bytewise::covering(self.device(), range)
    }

    fn is_whole(&self, range: &Range<u64>) -> bool {
        let block = u64::from(self.device().geometry().block_size.bytes());
        (range.start | range.end) & (block - 1) == 0
    }

    /// Returns the position of the bytes within the blocks that contain them.
    fn part(&self, range: &Range<u64>, covering: Extent) -> Range<usize> {
        debug_assert!(
            self.device().geometry().offset(covering) <= range.start,
            "the blocks cover the bytes"
        );
        let skipped = (range.start - self.device().geometry().offset(covering)) as usize;
        debug_assert!(
            skipped as u64 + range.end - range.start <= self.device().geometry().length(covering),
            "the blocks cover the last byte"
        );
        skipped..skipped + (range.end - range.start) as usize
    }

    /// Reads blocks that are in memory.
    fn read_from_memory(&self, range: &Range<u64>) -> Option<Vec<u8>> {
        let extent = self.covering(range).ok()?;
        let _turn = self.slot.volume.range_locks().try_share(extent)?;
        self.slot.requests.permits(Access::Read).ok()?;
        let (region, part) = (self.device().memory(extent)?, self.part(range, extent));
        let header = self.header.answer(self.slot.address, None);
        let mut answer = Frame {
            header,
            body: Body::Ata(self.ata.done(), &[]),
        }
        .write();
        let at = answer.len();
        answer.resize(at + part.len(), 0);
        region.load(part.start, &mut answer[at..]);
        Some(answer)
    }

    /// Reads whole blocks from the page cache, if it contains them.
    fn read_from_cache(&self, range: &Range<u64>) -> Option<Buffer> {
        let extent = self.covering(range).ok().filter(|_| self.is_whole(range))?;
        let _turn = self.slot.volume.range_locks().try_share(extent)?;
        self.slot.requests.permits(Access::Read).ok()?;
        let mut buffer = Buffer::recycled((range.end - range.start) as usize);
        self.device()
            .read_nowait(extent, &mut buffer)
            .then_some(buffer)
    }

    /// Writes whole blocks without waiting for a device. Returns false if it would have to wait; a part may
    /// then have been written, and the caller must call [`Command::write`].
    fn write_now(&self, range: &Range<u64>, data: &[u8]) -> bool {
        let Ok(extent) = self.covering(range) else {
            return false;
        };
        let Some(_turn) = self.slot.volume.range_locks().try_share(extent) else {
            return false;
        };
        if !self.is_whole(range) || self.slot.requests.permits(Access::Write).is_err() {
            return false;
        }
        debug_assert_eq!(
            self.device().geometry().length(extent),
            data.len() as u64,
            "whole blocks of data"
        );
        if let Some(mut blocks) = self.device().memory_to_write(extent) {
            blocks.put(0, data);
            return true;
        }
        self.device().write_nowait(extent, data)
    }

    async fn fetch(
        &self,
        range: &Range<u64>,
        ticket: Ticket,
    ) -> Result<(Buffer, Range<usize>), Failed> {
        let (extent, requests) = (self.covering(range)?, &self.slot.requests);
        let locks = self.slot.volume.range_locks();
        let _turn = requests
            .wait(ticket, Access::Read, locks.share(extent))
            .await?;
        let length = self.device().geometry().length(extent) as usize;
        let read = || self.device().read(extent, Buffer::recycled(length));
        let buffer = requests.ask(ticket, RequestKind::Read, None, read).await?;
        Ok((buffer, self.part(range, extent)))
    }

    /// Whether the medium contains the result of a change.
    async fn holds(&self, content: &Content, ticket: Ticket) -> Result<bool, Failed> {
        match content {
            Content::Data(range, data) => {
                let (buffer, part) = self.fetch(range, ticket).await?;
                Ok(buffer[part] == data[..])
            }
            Content::Zeros(ranges) => {
                for &(lba, sectors) in ranges {
                    let range = self
                        .slot
                        .range(lba, sectors)
                        .ok_or(Failed::Ata(AtaError::NoSector))?;
                    if !self.holds_zeros(&range, ticket).await? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Whether bytes read as zeros. Returns false if this could only be determined by a long read.
    async fn holds_zeros(&self, range: &Range<u64>, ticket: Ticket) -> Result<bool, Failed> {
        let extent = self.covering(range)?;
        let allocation = || self.device().allocation(extent, 1);
        let runs = self
            .slot
            .requests
            .ask(ticket, RequestKind::Read, None, allocation)
            .await?;
        if runs.first().is_some_and(|run| {
            run.allocation != Allocation::Mapped && run.extent.blocks >= extent.blocks
        }) {
            return Ok(true);
        }
        if range.end - range.start > ZEROS_READ_MAX as u64 {
            return Ok(false);
        }
        let (buffer, part) = self.fetch(range, ticket).await?;
        Ok(buffer[part].iter().all(|byte| *byte == 0))
    }

    async fn write(
        &self,
        range: Range<u64>,
        data: block::Slice,
        is_durable: bool,
        ticket: Ticket,
    ) -> Result<(), Failed> {
        debug_assert_eq!(data.len() as u64, range.end - range.start);
        let (extent, requests, device) =
            (self.covering(&range)?, &self.slot.requests, self.device());
        let (volume, before) = (&self.slot.volume, self.slot.volume.lost_writes());
        let locks = volume.range_locks();
        match self.is_whole(&range) {
            true => {
                let _turn = requests
                    .wait(ticket, Access::Write, locks.share(extent))
                    .await?;
                let write = || device.write(extent, data, Durability::Cached);
                requests
                    .ask(ticket, RequestKind::Change, Some(extent), write)
                    .await?;
            }
            false => {
                let _turn = requests
                    .wait(ticket, Access::Write, locks.exclude(extent))
                    .await?;
                let write = || bytewise::write(device, range.start, data);
                requests
                    .ask(ticket, RequestKind::Change, Some(extent), write)
                    .await?;
            }
        }
        if is_durable {
            requests
                .ask(ticket, RequestKind::Flush, None, || volume.settle(before))
                .await?;
        }
        Ok(())
    }

    /// Flushes all changes that have been acknowledged to any station.
    async fn flush(&self, ticket: Ticket) -> Result<(), Failed> {
        let (volume, at_start) = (&self.slot.volume, self.station.told.get().count());
        let flushed = self
            .slot
            .requests
            .ask(ticket, RequestKind::Flush, None, || volume.flush())
            .await;
        // This reply, and the replies to copies of this command, count as the report of a loss, whatever the
        // result of the device's flush.
        let mut told = self.station.told.get();
        let is_told = told.report(
            reactor::now(),
            self.header.tag,
            at_start,
            volume.lost_writes(),
        );
        self.station.told.set(told);
        if is_told {
            Err(Failed::Fault)
        } else {
            Ok(flushed?)
        }
    }

    /// Deallocates whole blocks, and zeroes the remaining bytes at the edges, as IDENTIFY DEVICE guarantees.
    async fn trim(&self, ranges: &[(u64, u64)], ticket: Ticket) -> Result<(), Failed> {
        if self.slot.settings().read_only || !self.device().profile().thin {
            return Err(Failed::Ata(AtaError::Aborted));
        }
        for &(lba, sectors) in ranges {
            let range = self
                .slot
                .range(lba, sectors)
                .ok_or(Failed::Ata(AtaError::NoSector))?;
            let (extent, requests) = (self.covering(&range)?, &self.slot.requests);
            let locks = self.slot.volume.range_locks();
            let _turn = requests
                .wait(ticket, Access::Write, locks.exclude(extent))
                .await?;
            let zero = || bytewise::zero(self.device(), range);
            requests
                .ask(ticket, RequestKind::Change, Some(extent), zero)
                .await?;
        }
        Ok(())
    }
}

impl CoreSlot {
    /// The number of 512-byte sectors, whatever the volume's block size.
    fn sectors(&self) -> u64 {
        self.volume.device().geometry().bytes() / SECTOR_BYTES as u64
    }

    /// Returns the byte range of some sectors, if they exist.
    fn range(&self, lba: u64, sectors: u64) -> Option<Range<u64>> {
        let end = lba
            .checked_add(sectors)
            .filter(|end| *end <= self.sectors())?;
        Some(lba * SECTOR_BYTES as u64..end * SECTOR_BYTES as u64)
    }

    fn identity(&self) -> Identity {
        let volume = &self.volume;
        let (geometry, profile) = (volume.device().geometry(), volume.device().profile());
        let physical = u64::from(geometry.block_size.bytes()) << geometry.physical_exponent;
        Identity {
            model: MODEL.to_owned(),
            serial: self.address.to_string(),
            firmware: env!("CARGO_PKG_VERSION").to_owned(),
            sectors: self.sectors(),
            is_extended: true,
            has_flush: true,
            has_flush_ext: true,
            // A RAM volume also loses acknowledged data if its server ends.
            write_cache: if profile.volatile_cache || !profile.durable {
                WriteCache::On
            } else {
                WriteCache::Off
            },
            trims: profile.thin,
            trim_sectors_max: TRIM_SECTORS_MAX,
            physical_exponent: (physical / SECTOR_BYTES as u64).trailing_zeros() as u8,
            is_solid_state: profile.solid_state,
        }
    }
}

impl Failed {
    /// The name of the failure for monitoring.
    fn name(&self) -> &'static str {
        match self {
            Failed::Ata(AtaError::Aborted) => "aborted",
            Failed::Ata(AtaError::NoSector) => "no_sector",
            Failed::Ata(AtaError::Uncorrectable) => "uncorrectable",
            Failed::Fault => "device_fault",
            Failed::Aoe(ErrorCode::Reserved) => "reserved",
            Failed::Aoe(ErrorCode::Unavailable) => "unavailable",
            Failed::Aoe(_) => "bad_argument",
            Failed::Dropped => "dropped",
        }
    }
}

impl From<Unserved> for Failed {
    fn from(unserved: Unserved) -> Failed {
        match unserved {
            Unserved::Denied(Denied::Reserved) => Failed::Aoe(ErrorCode::Reserved),
            Unserved::Denied(Denied::WriteProtected) => Failed::Ata(AtaError::Aborted),
            Unserved::Denied(Denied::Fenced) => Failed::Aoe(ErrorCode::Unavailable),
            Unserved::Aborted => Failed::Aoe(ErrorCode::Unavailable),
            Unserved::Failed(error) => error.into(),
        }
    }
}

impl From<DeviceError> for Failed {
    fn from(error: DeviceError) -> Failed {
        match error {
            DeviceError::OutOfRange => Failed::Ata(AtaError::NoSector),
            DeviceError::Unsupported | DeviceError::ReadOnly => Failed::Ata(AtaError::Aborted),
            DeviceError::Unreadable(_) => Failed::Ata(AtaError::Uncorrectable),
            DeviceError::Reserved => Failed::Aoe(ErrorCode::Reserved),
            DeviceError::NoSpace
            | DeviceError::Unwritable(_)
            | DeviceError::WritesLost
            | DeviceError::Unsettled => Failed::Fault,
            DeviceError::NotReady
            | DeviceError::Fenced
            | DeviceError::TimedOut
            | DeviceError::Cancelled => Failed::Aoe(ErrorCode::Unavailable),
        }
    }
}
