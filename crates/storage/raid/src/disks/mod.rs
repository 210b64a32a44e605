//! Splits disks into the parts of a set, and maintains the superblocks on its members. `growth` takes new
//! space of the disks into use.

mod growth;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{BlockDevice, Buffer, DeviceError, Durability, Extent, Lock, Part, Pending, bytewise};
use derive_more::{Display, Error};

use crate::area::AreaCopy;
use crate::assembly::{Missed, ProtectionAreas};
use crate::choose::{Candidate, FoundSet};
use crate::concurrency::{ExtentLocks, Locked};
use crate::intent::Intent;
use crate::layout::{Layout, Level};
use crate::member::{MemberDevice, MemberState, MemberStates, MetadataStore};
use crate::sums::Summed;
use crate::superblock::{
    Area, Areas, BadRecord, MemberRecord, NoSuperblock, SLOT_BYTES, SLOTS_END, ScrubRecord,
    SetRecord, Slot, Superblock, Uuid, read,
};

pub use growth::Growth;

/// A disk, and its display name.
#[derive(Clone)]
pub struct Disk {
    /// The name of the disk for display.
    pub name: String,
    /// The whole disk.
    pub device: Arc<dyn BlockDevice>,
}

/// Reads the superblocks of disks, in any order, for [`crate::choose::find`].
pub async fn look_at(disks: &[Disk]) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for Disk { name, device } in disks {
        let geometry = device.geometry();
        candidates.push(Candidate {
            name: name.clone(),
            bytes: geometry.bytes(),
            block_bytes: geometry.block_size.bytes(),
            superblock: read(device.as_ref())
                .await
                .map(|(superblock, _)| superblock),
        });
    }
    candidates
}

/// The areas of a member, each as a device.
#[derive(Clone)]
pub struct MemberParts {
    /// The member's strips.
    pub data: MemberDevice,
    /// The member's copy of the journal, if it has one. The copy is in reserve if the journal is on a
    /// separate device.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// The member's copy of the write-intent bitmap, if it has one.
    pub bitmap: Option<Arc<dyn BlockDevice>>,
}

impl MemberParts {
    /// Splits the disk of the member with this index into its parts.
    ///
    /// # Errors
    /// The disk is too short.
    pub fn new(
        set: &SetRecord,
        member: usize,
        disk: &Arc<dyn BlockDevice>,
    ) -> Result<MemberParts, DeviceError> {
        let areas = &set.areas;
        let copied = |area: Area| {
            if member < usize::from(set.area_copies) {
                area
            } else {
                Area::default()
            }
        };
        let data = part(disk, areas.data)?;
        Ok(MemberParts {
            data: match optional_part(disk, areas.checksums)? {
                Some(sums) => Arc::new(Summed::new(data, sums)?).into(),
                None => data.into(),
            },
            journal: optional_part(disk, copied(areas.journal))?,
            bitmap: optional_part(disk, copied(areas.bitmap))?,
        })
    }
}

/// The parts of a set that may be started.
pub struct OpenSet {
    /// The layout of the set.
    pub layout: Layout,
    /// The states of the members. Missing members count as failed.
    pub states: MemberStates,
    /// The members, in order; `None` for a missing member.
    pub members: Vec<Option<MemberParts>>,
    /// The journal's separate device, if there is one.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// Whether the journal device is lost, so that the set has no journal.
    pub is_journal_lost: bool,
    /// Whole disks that can replace a member ([`Records::replace`]).
    pub spares: Vec<(Uuid, Arc<dyn BlockDevice>)>,
    /// Writes the set's superblocks.
    pub records: Arc<Records>,
}

impl OpenSet {
    /// Returns the protection from the write hole: a journal if the set has areas for one, otherwise a
    /// bitmap.
    pub fn protection(&self) -> ProtectionAreas {
        let copies = |area: fn(&MemberParts) -> &Option<Arc<dyn BlockDevice>>| -> Vec<AreaCopy> {
            let of_members = self
                .members
                .iter()
                .enumerate()
                .filter_map(|(index, parts)| {
                    let device = area(parts.as_ref()?).clone()?;
                    Some(AreaCopy {
                        device,
                        member: Some(index),
                    })
                });
            of_members.collect()
        };
        let mut journal = copies(|parts| &parts.journal);
        journal.extend(self.journal.iter().map(|device| AreaCopy {
            device: Arc::clone(device),
            member: None,
        }));
        if self.layout.has_parity() && !journal.is_empty() {
            return ProtectionAreas::Journal(journal);
        }
        let bitmap = copies(|parts| &parts.bitmap);
        match bitmap.is_empty() || self.layout.level() == Level::Raid0 {
            true => ProtectionAreas::Nothing,
            false => ProtectionAreas::Bitmap {
                copies: bitmap,
                region_stripes: self.records.set().region_stripes,
            },
        }
    }

    /// Whether the regions that members not in sync have missed are known.
    pub fn missed(&self) -> Missed {
        let set = self.records.set();
        match (set.missed_from > 0, set.states().lacking().contains(&true)) {
            (true, _) => Missed::Noted,
            (false, true) => Missed::Unknown,
            (false, false) => Missed::Nothing,
        }
    }

    /// Whether the set was created but never started. Its [`Origin`](crate::Origin) is then not `Existing`.
    pub fn is_new(&self) -> bool {
        self.records.set().generation == FIRST_GENERATION
    }

    /// Returns the strips of each member.
    pub fn data(&self) -> Vec<Option<MemberDevice>> {
        let data = |parts: &Option<MemberParts>| parts.as_ref().map(|parts| parts.data.clone());
        self.members.iter().map(data).collect()
    }
}

/// The reason why a set cannot be created or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, Error)]
pub enum DiskError {
    /// The record is invalid.
    #[display("{_0}")]
    Record(#[error(not(source))] BadRecord),
    /// A disk failed.
    #[display("{_0}")]
    Device(#[error(not(source))] DeviceError),
}

impl From<BadRecord> for DiskError {
    fn from(error: BadRecord) -> DiskError {
        DiskError::Record(error)
    }
}

impl From<DeviceError> for DiskError {
    fn from(error: DeviceError) -> DiskError {
        DiskError::Device(error)
    }
}

/// Opens the parts of a set that was found without a refusal. `disks` must be the disks that were examined.
/// Nothing is written.
///
/// If the set exists, call [`Records::start`] before [`RaidDevice::assemble`](crate::RaidDevice::assemble),
/// which replays the journal: a missing member would miss the replay. If the set [is new](OpenSet::is_new),
/// call it after that, so that the set stays new until its journal or bitmap exists.
///
/// # Errors
/// A disk has shrunk since it was examined.
pub fn open(found: &FoundSet, disks: &[Disk]) -> Result<OpenSet, DiskError> {
    let set = &found.record;
    let layout = set.layout().map_err(BadRecord::Layout)?;
    let member = |(index, disk): (usize, &Option<usize>)| {
        disk.map(|disk| MemberParts::new(set, index, &disks[disk].device))
            .transpose()
    };
    let members = found.members.iter().enumerate().map(member);
    let journal = found
        .journal
        .map(|disk| part(&disks[disk].device, set.areas.journal))
        .transpose()?;
    let writers = found
        .disks()
        .map(|(uuid, disk)| Writer::new(uuid, Arc::clone(&disks[disk].device)));
    Ok(OpenSet {
        layout,
        states: found.states(),
        members: members.collect::<Result<_, DeviceError>>()?,
        journal,
        is_journal_lost: found.is_journal_lost,
        spares: found
            .spares
            .iter()
            .map(|(uuid, disk)| (*uuid, Arc::clone(&disks[*disk].device)))
            .collect(),
        records: Arc::new(Records {
            set: Lock::new(set.clone()),
            writers: Lock::new(writers.collect()),
            turns: Arc::default(),
            is_taken_over: AtomicBool::new(false),
            left_from: Lock::new((set.missed_from > 0).then_some(set.missed_from)),
        }),
    })
}

fn part(device: &Arc<dyn BlockDevice>, area: Area) -> Result<Arc<dyn BlockDevice>, DeviceError> {
    let block_size = device.geometry().block_size;
    let blocks = |bytes| block_size.exact(bytes).ok_or(DeviceError::OutOfRange);
    let extent = Extent::new(blocks(area.offset)?.0, blocks(area.bytes)?.0);
    Ok(Arc::new(Part::new(Arc::clone(device), extent)?))
}

fn optional_part(
    device: &Arc<dyn BlockDevice>,
    area: Area,
) -> Result<Option<Arc<dyn BlockDevice>>, DeviceError> {
    (area.bytes > 0).then(|| part(device, area)).transpose()
}

/// The generation of a set that was created and never started.
pub const FIRST_GENERATION: u64 = 1;

/// Turns disks into members of a new set by writing its first superblock to them. `disks` must be in the
/// order of [`SetRecord::uuids`]. Their content is lost, so the caller must ask for consent.
///
/// # Errors
/// The record is invalid, or a disk fails. In that case, some disks may be members of a set that cannot be
/// assembled.
pub async fn create(set: &SetRecord, disks: &[Disk]) -> Result<(), DiskError> {
    set.check()?;
    let first = SetRecord {
        generation: FIRST_GENERATION,
        ..set.clone()
    };
    for (uuid, Disk { device, .. }) in set.uuids().zip(disks) {
        let bytes = set.needed_bytes(uuid);
        if device.geometry().bytes() < bytes || device.geometry().block_size != set.block_size {
            return Err(DeviceError::OutOfRange.into());
        }
        if set.journal_device == Some(uuid) {
            bytewise::zero(device.as_ref(), 0..bytes).await?;
            device.flush().await?;
            continue;
        }
        zero_until_data(device.as_ref(), 0, set).await?;
        let are_zeros = set.clean && !set.states().lacking().contains(&true);
        if set.areas.checksums.bytes > 0 && !are_zeros {
            forget_sums(device.as_ref(), set.areas.checksums).await?;
        }
    }
    for (uuid, Disk { device, .. }) in first.uuids().zip(disks) {
        Writer::new(uuid, Arc::clone(device)).write(&first).await?;
    }
    Ok(())
}

/// Zeroes the space before the data, so that no earlier superblock, boot sector, journal, bitmap or checksum
/// is found. If the set has grown, its checksums are after the data, and are zeroed too.
async fn zero_until_data(
    device: &dyn BlockDevice,
    from: u64,
    set: &SetRecord,
) -> Result<(), DeviceError> {
    let Areas {
        data, checksums, ..
    } = set.areas;
    bytewise::zero(device, from..data.offset).await?;
    if checksums.offset >= data.offset {
        bytewise::zero(device, checksums.offset..checksums.offset + checksums.bytes).await?;
    }
    device.flush().await
}

/// Marks all checksums as unknown, because the content of a used disk's blocks is unknown.
async fn forget_sums(device: &dyn BlockDevice, area: Area) -> Result<(), DeviceError> {
    const AT_ONCE: u64 = 256 << 10;
    let extent = bytewise::covering(device, &(area.offset..area.offset + area.bytes))?;
    let geometry = device.geometry();
    for part in extent.chunks(AT_ONCE >> geometry.block_size.shift()) {
        let mut unknown = Buffer::recycled(geometry.length(part) as usize);
        unknown.fill(0xff);
        device
            .write(part, unknown.share(), Durability::Cached)
            .await?;
    }
    device.flush().await
}

/// Removes a disk from its set. Afterwards, neither slot contains a superblock.
///
/// # Errors
/// Errors of the disk.
pub async fn clear(device: &dyn BlockDevice) -> Result<(), DeviceError> {
    bytewise::zero(device, SLOT_BYTES..SLOTS_END).await?;
    device.flush().await
}

/// A disk to which superblocks are written.
struct Writer {
    uuid: Uuid,
    device: Arc<dyn BlockDevice>,
    /// Slot of the disk's newest superblock. `None` until the first write; `Some(None)` if there is no
    /// superblock.
    newest: Lock<Option<Option<Slot>>>,
}

impl Writer {
    fn new(uuid: Uuid, device: Arc<dyn BlockDevice>) -> Arc<Writer> {
        Arc::new(Writer {
            uuid,
            device,
            newest: Lock::new(None),
        })
    }

    /// Overwrites the older of the two superblocks. If that fails, the next one is written to the same slot,
    /// so that the intact superblock is never overwritten. The first call also writes the newer one again,
    /// which may be only in a cache: an earlier process may have failed to flush it. An invalid record, such
    /// as one longer than its slot, is not written.
    async fn write(&self, set: &SetRecord) -> Result<(), DeviceError> {
        set.check().map_err(|_| DeviceError::OutOfRange)?;
        let known = *self.newest.lock();
        let newest = match known {
            Some(newest) => newest,
            None => match read(self.device.as_ref()).await {
                Ok((found, slot)) => {
                    self.write_slot(slot, &found).await?;
                    Some(slot)
                }
                Err(NoSuperblock::Unreadable(error)) => return Err(error),
                Err(_) => None,
            },
        };
        *self.newest.lock() = Some(newest);
        let slot = newest.map_or(Slot::First, Slot::other);
        self.write_slot(
            slot,
            &Superblock {
                set: set.clone(),
                member: self.uuid,
            },
        )
        .await?;
        *self.newest.lock() = Some(Some(slot));
        Ok(())
    }

    async fn write_slot(&self, slot: Slot, superblock: &Superblock) -> Result<(), DeviceError> {
        let device = self.device.as_ref();
        let bytes = superblock.emit();
        let length = bytes
            .len()
            .next_multiple_of(device.geometry().block_size.bytes() as usize);
        let mut data = Buffer::zeroed(length);
        data[..bytes.len()].copy_from_slice(&bytes);
        let extent = bytewise::covering(device, &(slot.offset()..slot.offset() + length as u64))?;
        device.write(extent, data.share(), Durability::Stable).await
    }
}

/// The record of a set in use, which is stored in the superblocks on its disks.
pub struct Records {
    set: Lock<SetRecord>,
    writers: Lock<Vec<Arc<Writer>>>,
    /// The lock for writing: one record at a time, because two records derived from the same predecessor
    /// would have the same generation.
    turns: Arc<ExtentLocks>,
    /// Whether another host has taken over the set. It may have written newer records.
    is_taken_over: AtomicBool,
    /// A failed member with a record older than this generation is an old copy. Set when the first member
    /// fails; `None` if all members are in sync, or one of them has been replaced.
    left_from: Lock<Option<u64>>,
}

impl Records {
    /// Returns the newest record.
    pub fn set(&self) -> SetRecord {
        self.set.lock().clone()
    }

    async fn write_start(&self, states: &MemberStates) -> Result<(), DeviceError> {
        let _turn = self.turn().await;
        self.note_members_from(states);
        let mut next = self.set().next(states, false);
        // Skip a generation: a missing member may have a record with the next one, if there was a crash while
        // it was being written.
        next.generation += 1;
        let all_have_it = self.write(next).await?;
        // After this, a copy of a member that was made earlier can be recognised by its older record.
        let mut next = self.set().next(states, false);
        if all_have_it {
            next.in_use_from = self.set().generation;
        }
        self.write(next).await.map(drop)
    }

    /// Records a clean shutdown, after which no stripe is incomplete. Call this after the last write has been
    /// flushed.
    ///
    /// # Errors
    /// As [`MetadataStore::record`].
    pub async fn close(&self) -> Result<(), DeviceError> {
        self.write_next(true, |_| ()).await
    }

    /// Records that `disk` is now the member with this index, but does not contain its data yet. The disk's
    /// previous content is lost. The member gets the new `uuid`, so that the replaced disk is recognised if
    /// it returns. If `disk` was a spare, it no longer is one.
    ///
    /// # Errors
    /// As [`MetadataStore::record`]; [`DeviceError::OutOfRange`] if the disk is too small or has another
    /// block size, if there is no such member, or if the set already contains the UUID.
    pub async fn replace(
        &self,
        member: usize,
        uuid: Uuid,
        disk: Arc<dyn BlockDevice>,
    ) -> Result<(), DeviceError> {
        let change = |next: &mut SetRecord| {
            next.clean = false;
            next.spares.retain(|spare| *spare != uuid);
            let place = next
                .members
                .get_mut(member)
                .ok_or(DeviceError::OutOfRange)?;
            *place = MemberRecord::new(uuid, MemberState::Rebuilding { done: 0 });
            next.lost.remove_member(member);
            // A new disk has missed all writes, not only the writes to the regions in the second bitmap.
            next.missed_from = 0;
            Ok(())
        };
        self.write_with(change, uuid, disk).await
    }

    /// Records `disk` as a spare. Its previous content is lost.
    ///
    /// # Errors
    /// As [`Records::replace`]; [`DeviceError::OutOfRange`] if the set already has the maximum number of spares.
    pub async fn add_spare(
        &self,
        uuid: Uuid,
        disk: Arc<dyn BlockDevice>,
    ) -> Result<(), DeviceError> {
        let change = |next: &mut SetRecord| {
            next.spares.push(uuid);
            Ok(())
        };
        self.write_with(change, uuid, disk).await
    }

    /// Returns the record that the set would have if it used its disks completely; `None` if its areas cannot
    /// grow, or a disk is missing.
    pub fn grown(&self) -> Option<SetRecord> {
        let set = self.set();
        let disks: Vec<u64> = set
            .members
            .iter()
            .map(|member| Some(self.disk(member.uuid)?.geometry().bytes()))
            .collect::<Option<_>>()?;
        let grown = SetRecord {
            areas: growth::areas(&set, disks.into_iter().min()?)?,
            ..set.clone()
        };
        let bitmap_blocks = set.areas.bitmap.bytes >> set.block_size.shift();
        let stripes = grown.layout().ok()?.stripes();
        let block_bytes = set.block_size.bytes() as usize;
        let fits = bitmap_blocks == 0
            || Intent::blocks_needed(block_bytes, set.region_stripes, stripes) <= bitmap_blocks;
        (fits && stripes > set.layout().ok()?.stripes() && grown.check().is_ok()).then_some(grown)
    }

    /// Returns the whole disk of a member or spare.
    pub fn disk(&self, uuid: Uuid) -> Option<Arc<dyn BlockDevice>> {
        let writers = self.writers.lock();
        writers
            .iter()
            .find(|writer| writer.uuid == uuid)
            .map(|writer| Arc::clone(&writer.device))
    }

    /// Records that the set has these areas, which differ from the current ones in a longer data area or in
    /// the location of the checksums.
    ///
    /// # Errors
    /// As [`MetadataStore::record`]; [`DeviceError::OutOfRange`] if a member is not in sync or is too short.
    pub async fn grow(&self, areas: Areas) -> Result<(), DeviceError> {
        let _turn = self.turn().await;
        let set = self.set();
        let mut next = set.next(&set.states(), false);
        next.areas = areas;
        let is_long = |member: &MemberRecord| {
            let disk = self.disk(member.uuid);
            member.state == MemberState::InSync
                && disk.is_some_and(|disk| disk.geometry().bytes() >= areas.end())
        };
        if !next.members.iter().all(is_long) || next.check().is_err() {
            return Err(DeviceError::OutOfRange);
        }
        let result = self.write(next).await.map(drop);
        if result.is_err() {
            // If writing fails, the next record supersedes this one wherever it was written.
            self.set.lock().areas = set.areas;
        }
        result
    }

    /// Records the position of a scrub, or that no scrub is running. The scrub's repairs must already be on
    /// stable storage.
    ///
    /// # Errors
    /// As [`MetadataStore::record`].
    pub async fn scrubbed(&self, scrub: Option<ScrubRecord>) -> Result<(), DeviceError> {
        self.write_next(false, |next| next.scrub = scrub).await
    }

    /// Writes the current record again. The states are read when it is this record's turn, so a member that
    /// fails meanwhile stays failed.
    pub(crate) async fn repeat(&self) -> Result<(), DeviceError> {
        self.write_next(false, |_| ()).await
    }

    /// Releases the disk of a failed member, to which no further record is written.
    pub fn release(&self, member: usize) {
        let set = self.set();
        let failed = set
            .members
            .get(member)
            .filter(|member| member.state == MemberState::Failed);
        if let Some(failed) = failed {
            self.writers
                .lock()
                .retain(|writer| writer.uuid != failed.uuid);
        }
    }

    /// Stops recording, because another host has taken over a member. Every later record fails with
    /// [`DeviceError::Fenced`].
    pub fn taken_over(&self) {
        self.is_taken_over.store(true, Ordering::Release);
    }

    /// Whether writing a record has shown that another host has taken over a member.
    pub fn is_taken_over(&self) -> bool {
        self.is_taken_over.load(Ordering::Acquire)
    }

    async fn turn(&self) -> Locked {
        self.turns.exclude(Extent::new(0, 1)).await
    }

    /// Writes a record with the current states, modified by `change`.
    async fn write_next(
        &self,
        clean: bool,
        change: impl FnOnce(&mut SetRecord),
    ) -> Result<(), DeviceError> {
        let _turn = self.turn().await;
        let set = self.set();
        let mut next = set.next(&set.states(), clean);
        change(&mut next);
        self.write(next).await.map(drop)
    }

    /// Writes a changed record that includes the new disk `disk`, to all disks including `disk`.
    async fn write_with(
        &self,
        change: impl Fn(&mut SetRecord) -> Result<(), DeviceError>,
        uuid: Uuid,
        disk: Arc<dyn BlockDevice>,
    ) -> Result<(), DeviceError> {
        let changed = || {
            let set = self.set();
            let mut next = set.next(&set.states(), set.clean);
            change(&mut next)?;
            next.check()
                .map_err(|_| DeviceError::OutOfRange)
                .map(|()| next)
        };
        let (next, geometry) = (changed()?, disk.geometry());
        if geometry.bytes() < next.areas.end() || geometry.block_size != next.block_size {
            return Err(DeviceError::OutOfRange);
        }
        if self.is_taken_over() {
            return Err(DeviceError::Fenced);
        }
        // If the set already names the disk, as a spare or because of an earlier failed attempt, preserve its
        // superblock. Then the set can be started wherever this is interrupted.
        let from = if self.set().uuids().any(|known| known == uuid) {
            SLOTS_END
        } else {
            0
        };
        // Do this before taking the lock: it takes a long time, and the failure of a member must be recorded
        // meanwhile.
        zero_until_data(disk.as_ref(), from, &next).await?;
        let _turn = self.turn().await;
        let next = changed()?;
        if next.uuids_of_members().ne(self.set().uuids_of_members()) {
            // Reset this even if the record does not reach all members. It stays reset until all members are
            // in sync again.
            *self.left_from.lock() = None;
        }
        {
            let mut writers = self.writers.lock();
            writers.retain(|writer| {
                writer.uuid != uuid && next.uuids().any(|known| known == writer.uuid)
            });
            writers.push(Writer::new(uuid, disk));
        }
        self.write(next).await.map(drop)
    }

    /// Writes the record. On success, the members that have it can run the set without the others. Returns
    /// whether all members that have not failed have it.
    async fn write(&self, next: SetRecord) -> Result<bool, DeviceError> {
        if self.is_taken_over() {
            return Err(DeviceError::Fenced);
        }
        debug_assert!(
            next.generation > self.set.lock().generation,
            "generations only grow"
        );
        // A spare's record only identifies its set, so it does not have to be current. Write spares only if
        // they are affected, so that recording the progress of a rebuild does not wait for a hung spare.
        let concerns_spares = {
            let now = self.set.lock();
            now.spares != next.spares || now.areas != next.areas
        };
        let is_written =
            |writer: &Arc<Writer>| concerns_spares || !next.spares.contains(&writer.uuid);
        let writers: Vec<Arc<Writer>> = self
            .writers
            .lock()
            .iter()
            .filter(|writer| is_written(writer))
            .cloned()
            .collect();
        let mut lacking = vec![true; next.members.len()];
        let mut result = Ok(());
        for writer in &writers {
            let member = next
                .members
                .iter()
                .position(|member| member.uuid == writer.uuid);
            let state = member.map(|member| next.members[member].state);
            if state == Some(MemberState::Failed) {
                continue;
            }
            let written = writer.write(&next).await;
            let is_journal = next.journal_device == Some(writer.uuid);
            if let Err(error @ (DeviceError::Fenced | DeviceError::Reserved)) = written
                && (member.is_some() || is_journal)
            {
                // The disk and the set now belong to another host, so no further record is written. Some
                // members may have this record, so its generation must not be used again.
                *self.set.lock() = next;
                self.taken_over();
                return Err(error);
            }
            // A journal device without this record cannot be distinguished from an old copy.
            if let Some(member) = member {
                lacking[member] = written.is_err() || state != Some(MemberState::InSync);
            }
            if member.is_some() || is_journal {
                result = result.and(written);
            }
        }
        // The record is durable if the members that have it can run the set without the others. An assembly
        // that finds only the others is then refused, because it could not exclude that the set has continued
        // (`choose`).
        let is_durable = next.layout().is_ok_and(|layout| layout.survives(&lacking));
        // A record that could not be written may still be on some members, so its generation must not be used
        // again.
        *self.set.lock() = next;
        if is_durable {
            Ok(result.is_ok())
        } else {
            result.and(Err(DeviceError::NotReady))
        }
    }
}

impl Records {
    /// Records, before a member fails, the generation that every in-sync member has. If a member returns with
    /// an older record, it is an old copy. The first failure determines the value.
    fn note_members_from(&self, states: &MemberStates) {
        let mut from = self.left_from.lock();
        let set = self.set();
        if from.is_none()
            && !set.states().lacking().contains(&true)
            && states.lacking().contains(&true)
        {
            *from = Some(set.in_use_from.max(FIRST_GENERATION));
        }
        if !states.lacking().contains(&true) {
            *from = None;
        }
    }

    /// Records that a failed member has returned, and has missed only regions in the second bitmap. Returns
    /// false if it may have missed others.
    ///
    /// # Errors
    /// As [`MetadataStore::record`].
    pub async fn readd(
        &self,
        member: usize,
        disk: Arc<dyn BlockDevice>,
    ) -> Result<bool, DeviceError> {
        let Ok((found, _)) = read(disk.as_ref()).await else {
            return Ok(false);
        };
        let _turn = self.turn().await;
        let set = self.set();
        if !set.can_readd(member, &found) || set.members[member].state != MemberState::Failed {
            return Ok(false);
        }
        if disk.geometry().bytes() < set.areas.end() || disk.geometry().block_size != set.block_size
        {
            return Err(DeviceError::OutOfRange);
        }
        let mut states = set.states();
        states.members[member] = MemberState::Rebuilding { done: 0 };
        let next = set.next(&states, false);
        {
            let mut writers = self.writers.lock();
            writers.retain(|writer| writer.uuid != found.member);
            writers.push(Writer::new(found.member, disk));
        }
        self.write(next).await.map(|_| true)
    }
}

impl MetadataStore for Records {
    fn missed_is_noted(&self, is_noted: bool) -> Pending<'_, bool> {
        Box::pin(async move {
            let _turn = self.turn().await;
            let from = if is_noted {
                self.left_from.lock().unwrap_or(0)
            } else {
                0
            };
            let set = self.set();
            if set.missed_from != from {
                let next = SetRecord {
                    missed_from: from,
                    ..set.next(&set.states(), false)
                };
                self.write(next).await?;
            }
            Ok(self.set.lock().missed_from > 0)
        })
    }

    fn start(&self, states: &MemberStates) -> Pending<'_, ()> {
        let states = states.clone();
        Box::pin(async move { self.write_start(&states).await })
    }

    fn record(&self, states: &MemberStates) -> Pending<'_, ()> {
        let states = states.clone();
        Box::pin(async move {
            let _turn = self.turn().await;
            self.note_members_from(&states);
            let next = self.set().next(&states, false);
            self.write(next).await.map(drop)
        })
    }

    fn journal_on_members(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let _turn = self.turn().await;
            let set = self.set();
            let next = SetRecord {
                journal_device: None,
                ..set.next(&set.states(), false)
            };
            let device = set.journal_device;
            // No further record is written to the device. It can be recognised because its record is older
            // than the records of the members.
            self.writers
                .lock()
                .retain(|writer| Some(writer.uuid) != device);
            self.write(next).await.map(drop)
        })
    }
}

#[cfg(test)]
mod tests;
