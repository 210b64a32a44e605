//! The set as a block device.

use std::sync::Arc;

use block::{
    Allocation, BlockDevice, Buffer, DeviceError, Durability, Extent, Geometry, Losses, Pending,
    Profile, Run, Slice,
};

use crate::area::Area;
use crate::layout::Layout;
use crate::member::{MemberDevice, MemberStates};
use crate::members::{Cause, Vacancy};
use crate::repair::{Progress, Scrubbed};
use crate::set::{Protection, Set};
use crate::sums::Summed;

/// Maximum number of pieces that one allocation query examines.
const PIECES_OF_ALLOCATION: usize = 64;

/// A RAID set.
pub struct RaidDevice {
    pub(crate) set: Arc<Set>,
}

/// The status of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The states of the members.
    pub states: MemberStates,
    /// Whether requests are refused until the set is assembled again, for one of these reasons:
    ///
    /// - data could be wrong;
    /// - a state could not be recorded;
    /// - a change was dropped before it completed;
    /// - another host has taken over a member;
    /// - the set was closed or [retired](RaidDevice::retire).
    pub is_out_of_service: bool,
    /// The first member that has failed although the set cannot run without it, and its error. If a write
    /// failed or was lost, a set with parity is out of service. Otherwise the set continues.
    pub stopped_by: Option<(usize, DeviceError)>,
    /// Whether another host has taken over a member. It may be running the set, so this host must not write
    /// to the members any more.
    pub is_taken_over: bool,
    /// Number of copies of the journal in use, if the set has a journal. Without a copy, writes fail.
    pub journal_copies: Option<usize>,
    /// Whether the journal is on a separate device. If the device fails, the journal moves to the members.
    pub is_journal_on_device: bool,
    /// Number of checksum mismatches that reads have found on each member since it joined this assembly.
    /// Where possible, these blocks were reconstructed from the other members and rewritten.
    pub wrong_blocks: Vec<u64>,
    /// Number of regions that members not in sync have missed. `None` if the superblocks do not record that
    /// these members have missed no other regions.
    pub missed_regions: Option<u64>,
    /// Number of regions that may be inconsistent, and await resynchronisation: after a crash, since the set
    /// was created, or because a member without which the set cannot run has not stored them.
    pub unsynced_regions: u64,
    /// Number of lost blocks of each member: blocks that could not be reconstructed when the member was
    /// rebuilt or synchronised. If this has become possible, these blocks are read from the other members;
    /// otherwise they are unreadable until they are written.
    pub lost_blocks: Vec<u64>,
    /// Whether a rebuild or resync is waiting at a block for which the list of lost blocks has no free entry.
    pub is_lost_list_full: bool,
}

impl RaidDevice {
    /// Returns the layout.
    pub fn layout(&self) -> Layout {
        self.set.members.layout()
    }

    /// Returns the current status of the set.
    pub fn status(&self) -> Status {
        let (journal_copies, unsynced_regions) = match &self.set.protection {
            Protection::Journal(journal) => (
                Some(if journal.has_failed() {
                    0
                } else {
                    journal.copies()
                }),
                0,
            ),
            Protection::Intent(intent) => (None, intent.unsynced()),
            Protection::Nothing => (None, 0),
        };
        Status {
            states: self.set.members.states(),
            is_out_of_service: self.set.members.check_service().is_err(),
            stopped_by: self.set.members.stopped_by(),
            is_taken_over: self.set.members.check_ownership().is_err(),
            journal_copies,
            is_journal_on_device: matches!(&self.set.protection, Protection::Journal(journal) if journal.is_on_device()),
            wrong_blocks: self.set.members.wrong_blocks(),
            unsynced_regions,
            missed_regions: match &self.set.protection {
                Protection::Intent(intent) => intent.missed_regions(),
                Protection::Journal(_) | Protection::Nothing => None,
            },
            lost_blocks: self.set.members.lost_blocks(),
            is_lost_list_full: self.set.members.is_lost_list_full(),
        }
    }

    /// Marks a member failed at the user's request, and releases its device. If the member returns, it is
    /// rebuilt completely, even if it had failed before this call. Returns [`DeviceError::Unsupported`] if
    /// data would be lost without the member.
    pub fn fail(&self, member: usize) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check_member(member)?;
            if !self.set.members.fail_by_hand(member).await? {
                return Err(DeviceError::Unsupported);
            }
            if let Protection::Intent(intent) = &self.set.protection {
                intent.forget_missed().await?;
            }
            self.set
                .protection
                .area()
                .into_iter()
                .for_each(Area::release_failed);
            Ok(())
        })
    }

    /// Releases the device of a member that is not in sync, and records the member as failed. The record of
    /// the regions that it has missed is kept, so that the same device can be [added
    /// again](RaidDevice::readd). Returns [`DeviceError::Unsupported`] if the member is in sync.
    pub fn release(&self, member: usize) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check_member(member)?;
            if !self.set.members.release(member).await? {
                return Err(DeviceError::Unsupported);
            }
            self.set
                .protection
                .area()
                .into_iter()
                .for_each(Area::release_failed);
            Ok(())
        })
    }

    /// Returns the slot of a failed member, for [`RaidDevice::replace`] and [`RaidDevice::readd`]. Call this
    /// before anything is recorded about the new device: if the member is [removed](RaidDevice::fail) after
    /// this call, the slot does not accept the device. Returns [`DeviceError::Unsupported`] if the member has
    /// not failed.
    pub fn vacancy(&self, member: usize) -> Result<Vacancy, DeviceError> {
        self.check_member(member)?;
        self.set
            .members
            .vacancy(member)
            .ok_or(DeviceError::Unsupported)
    }

    /// Replaces a failed member with a device, which [`RaidDevice::rebuild_step`] then rebuilds. `area` is
    /// the member's copy of the journal or bitmap, if it is to have one. Its previous content is overwritten.
    ///
    /// Returns [`DeviceError::OutOfRange`] if the device or the area is too small. Returns
    /// [`DeviceError::Unsupported`] if the block size is different, if the member was removed after the call
    /// of [`RaidDevice::vacancy`], or if only the device or only the other members have checksums.
    pub fn replace(
        &self,
        vacancy: Vacancy,
        device: impl Into<MemberDevice>,
        area: Option<Arc<dyn BlockDevice>>,
    ) -> Pending<'_, ()> {
        self.put_in_place(vacancy, device.into(), area, false)
    }

    /// Re-adds the device of a failed member, which has missed only regions in the second bitmap
    /// ([`Records::readd`](crate::disks::Records::readd)).
    pub fn readd(
        &self,
        vacancy: Vacancy,
        device: impl Into<MemberDevice>,
        area: Option<Arc<dyn BlockDevice>>,
    ) -> Pending<'_, ()> {
        self.put_in_place(vacancy, device.into(), area, true)
    }

    fn put_in_place(
        &self,
        vacancy: Vacancy,
        device: MemberDevice,
        area: Option<Arc<dyn BlockDevice>>,
        is_readded: bool,
    ) -> Pending<'_, ()> {
        Box::pin(async move {
            self.check_member(vacancy.member)?;
            if device.summed().is_some() != self.set.has_sums {
                return Err(DeviceError::Unsupported);
            }
            let geometry = device.device().geometry();
            if geometry.block_size != self.set.geometry.block_size {
                return Err(DeviceError::Unsupported);
            }
            if geometry.blocks < self.layout().member_blocks() {
                return Err(DeviceError::OutOfRange);
            }
            self.run(|set| set.replace(vacancy, device, area, is_readded))
                .await
        })
    }

    /// Rebuilds the next stripe of a member that was replaced. Returns `None` once the member is in sync. The
    /// progress is recorded periodically, so that a rebuild resumes after a restart. The caller must run only
    /// one step at a time per member.
    pub fn rebuild_step(&self, member: usize) -> Pending<'_, Option<Progress>> {
        Box::pin(async move {
            self.check_member(member)?;
            self.run(|set| set.rebuild_step(member)).await
        })
    }

    /// Synchronises the next stripe that may be inconsistent after a crash. Returns `None` if there is none.
    /// `done` is the value from the previous [`Progress`], or 0 on the first call and after a region is
    /// finished.
    pub fn synchronise_step(&self, done: u64) -> Pending<'_, Option<Progress>> {
        Box::pin(async move { self.run(|set| set.synchronise_step(done)).await })
    }

    /// Makes [`RaidDevice::synchronise_step`] retry regions in which a stripe could not be synchronised, for
    /// example because of an unreadable sector, which may have been written since.
    pub fn synchronise_again(&self) {
        self.set.synchronise_again();
    }

    /// Whether a stripe awaits resynchronisation: its copies, or its data and parity, may differ
    /// ([`Status::unsynced_regions`]).
    pub fn is_unsynced(&self, stripe: u64) -> bool {
        self.set.is_unsynced(stripe)
    }

    /// Clears the write-intent bitmap if nothing was written since the call that returned `known`, so that a
    /// set that was idle before a crash has nothing to synchronise. Returns the value to pass as `known` to
    /// the next call. Also records the regions that out-of-sync members have missed.
    pub fn settle(&self, known: u64) -> Pending<'_, u64> {
        Box::pin(async move {
            let Protection::Intent(intent) = &self.set.protection else {
                return Ok(0);
            };
            intent.secure_missed().await?;
            let (begun, is_noted) = intent.activity();
            if begun == known && is_noted {
                self.set.members.check_service()?;
                let flush = intent.flush_begins();
                self.set.members.flush().await?;
                intent.settled(begun, flush).await;
            }
            Ok(begun)
        })
    }

    /// Grows the set to `layout`, which must differ from the current layout only in longer members. `devices`
    /// are the same members at their new length. From the old layout's [`Layout::free_from`] on, they must
    /// read as zeros, so that strips are consistent. If blocks have checksums, those of the new blocks must
    /// be 0.
    ///
    /// Returns [`DeviceError::OutOfRange`] if a member, its checksums or the bitmap is too short, and
    /// [`DeviceError::Unsupported`] if the layout differs in anything else.
    pub fn grow_to(&self, layout: Layout, devices: Vec<Arc<dyn BlockDevice>>) -> Pending<'_, ()> {
        Box::pin(async move {
            let now = self.layout();
            if layout.with_rows(now.rows()) != now || layout.rows() < now.rows() {
                return Err(DeviceError::Unsupported);
            }
            let is_short =
                |device: &Arc<dyn BlockDevice>| device.geometry().blocks < layout.member_blocks();
            if devices.len() != layout.members() || devices.iter().any(is_short) {
                return Err(DeviceError::OutOfRange);
            }
            self.run(|set| set.grow(layout, devices)).await
        })
    }

    pub(crate) fn summed(&self, member: usize) -> Result<Arc<Summed>, DeviceError> {
        self.set.members.summed(member).ok_or(DeviceError::NotReady)
    }

    /// Retires a failed set before its members are assembled again. From now on, no request starts that could
    /// change a member. [`BlockDevice::quiesced`] resolves only after all requests that have started have
    /// completed.
    pub fn retire(&self) {
        self.set.members.leave_service();
        self.set.operations.end();
    }

    /// Closes the set. Once no request is outstanding, flushes the members, and leaves the journal or bitmap
    /// without incomplete stripes. Later requests fail.
    pub fn close(&self) -> Pending<'_, ()> {
        Box::pin(async move { self.run(|set| set.close()).await })
    }

    /// Reads and compares all strips of a stripe. With `repairs`, rewrites unreadable strips and makes the
    /// others consistent; otherwise writes nothing. Stripes are numbered from 0 to one below
    /// [`Layout::stripes`].
    pub fn scrub_step(&self, stripe: u64, repairs: bool) -> Pending<'_, Scrubbed> {
        Box::pin(async move {
            if stripe >= self.layout().stripes() {
                return Err(DeviceError::OutOfRange);
            }
            self.run(|set| set.scrub_step(stripe, repairs)).await
        })
    }

    /// Repairs a stripe of a set whose journal was discarded, like [`RaidDevice::scrub_step`]. In addition, a
    /// data block that does not match its checksum and cannot be reconstructed is accepted unchanged, and Q
    /// of a degraded RAID 6 is recomputed.
    pub fn accept_step(&self, stripe: u64) -> Pending<'_, Scrubbed> {
        Box::pin(async move {
            if stripe >= self.layout().stripes() {
                return Err(DeviceError::OutOfRange);
            }
            self.run(|set| set.accept_step(stripe)).await
        })
    }

    /// Like [`BlockDevice::read`], for a set that may be dropped during the read.
    pub fn read_shared(&self, extent: Extent, buffer: Buffer) -> Pending<'static, Buffer> {
        let set = Arc::clone(&self.set);
        Box::pin(async move { set.read(extent, buffer).await })
    }

    /// Like [`BlockDevice::write`], for a set that may be dropped during the write.
    pub fn write_shared(
        &self,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> Pending<'static, ()> {
        let set = Arc::clone(&self.set);
        Box::pin(async move { set.write(extent, data, durability).await })
    }

    fn run<T: 'static, F: Future<Output = Result<T, DeviceError>> + 'static>(
        &self,
        operation: impl FnOnce(Arc<Set>) -> F,
    ) -> impl Future<Output = Result<T, DeviceError>> {
        self.set.operations.run(operation(Arc::clone(&self.set)))
    }

    fn check_member(&self, member: usize) -> Result<(), DeviceError> {
        self.set.members.check_service()?;
        if member < self.set.layout.members() {
            Ok(())
        } else {
            Err(DeviceError::OutOfRange)
        }
    }

    async fn runs(&self, extent: Extent, runs_max: usize) -> Result<Vec<Run>, DeviceError> {
        let set = &self.set;
        set.check(extent, None)?;
        let mut runs: Vec<Run> = Vec::new();
        for piece in set.layout.pieces(extent).take(PIECES_OF_ALLOCATION) {
            let copy = if set.layout.has_parity() {
                Some(piece.strip)
            } else {
                set.fastest_copy(piece.stripe, &[])
            };
            let place = copy.map(|copy| set.place(piece.stripe, copy, &piece.columns()));
            let member = place.and_then(|(index, extent)| {
                Some((set.members.holder(index, piece.stripe)?, extent))
            });
            let start = extent.lba.0 + piece.offset;
            let all = |allocation| Run {
                extent: Extent::new(start, piece.blocks),
                allocation,
            };
            let found: Vec<Run> = match member {
                None => vec![all(Allocation::Mapped)],
                Some((member, on_member)) => {
                    match member.device.allocation(on_member, runs_max).await {
                        Ok(found) => {
                            let shift = |run: Run| Run {
                                extent: Extent::new(
                                    start + (run.extent.lba.0 - on_member.lba.0),
                                    run.extent.blocks.0,
                                ),
                                ..run
                            };
                            found.into_iter().map(shift).collect()
                        }
                        Err(error) => {
                            // A failed allocation query alone does not mark a member failed. But mark an
                            // unresponsive member failed, so that later queries do not wait for it again.
                            if matches!(error, DeviceError::NotReady | DeviceError::TimedOut) {
                                let _ = set.members.fail(&member, Cause::Read(error)).await;
                            }
                            vec![all(Allocation::Mapped)]
                        }
                    }
                }
            };
            let covered: u64 = found.iter().map(|run| run.extent.blocks.0).sum();
            for run in found {
                let is_full = runs.len() >= runs_max.max(1);
                match runs.last_mut() {
                    Some(last) if last.allocation == run.allocation => {
                        last.extent.blocks.0 += run.extent.blocks.0
                    }
                    _ if is_full => return Ok(runs),
                    _ => runs.push(run),
                }
            }
            if covered < piece.blocks {
                break;
            }
        }
        Ok(runs)
    }
}

impl BlockDevice for RaidDevice {
    fn geometry(&self) -> Geometry {
        self.set.geometry()
    }

    fn profile(&self) -> Profile {
        self.set.profile
    }

    fn read_nowait(&self, extent: Extent, buffer: &mut [u8]) -> bool {
        self.set.read_nowait(extent, buffer)
    }

    fn read(&self, extent: Extent, buffer: Buffer) -> Pending<'_, Buffer> {
        Box::pin(self.set.read(extent, buffer))
    }

    fn write(&self, extent: Extent, data: Slice, durability: Durability) -> Pending<'_, ()> {
        Box::pin(self.set.write(extent, data, durability))
    }

    /// Flushes the set. With a journal, acknowledged writes are already on stable storage, so this only waits
    /// until the current states are recorded.
    fn flush(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.set.members.check_service()?;
            match &self.set.protection {
                Protection::Journal(_) => self.set.members.recorded().await,
                Protection::Nothing => self.set.members.flush().await,
                Protection::Intent(intent) => {
                    let flush = intent.flush_begins();
                    self.set.members.flush().await?;
                    intent.flushed(flush).await;
                    Ok(())
                }
            }
        })
    }

    /// Returns the losses of members that the set cannot run without. Any other member that loses writes is
    /// marked failed instead.
    fn losses(&self) -> Losses {
        self.set.members.losses()
    }

    fn resolve_losses(&self) -> Pending<'_, ()> {
        Box::pin(self.set.members.resolve_losses())
    }

    fn losses_recorded(&self, count: u64) {
        self.set.members.losses_recorded(count);
    }

    fn unmap(&self, extent: Extent) -> Pending<'_, ()> {
        Box::pin(async move {
            self.set.check_write(extent, None)?;
            // If no member is thin, deallocation has no effect.
            if self.set.profile.thin {
                self.set.clear(extent, true).await
            } else {
                Ok(())
            }
        })
    }

    fn write_zeroes(&self, extent: Extent, may_unmap: bool) -> Pending<'_, ()> {
        Box::pin(self.set.clear(extent, may_unmap))
    }

    fn allocation(&self, extent: Extent, runs_max: usize) -> Pending<'_, Vec<Run>> {
        Box::pin(self.runs(extent, runs_max))
    }

    fn take_os_error(&self) -> Option<i32> {
        self.set
            .members
            .all_present()
            .iter()
            .find_map(|member| member.device.take_os_error())
    }

    fn quiesced(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            self.set.operations.quiesced().await;
            for member in self.set.members.all_present() {
                // Ignore an error, because the member fails when it is next used.
                let _ = member.device.quiesced().await;
            }
            Ok(())
        })
    }
}
