//! The members of a set: which of them may be read, requests to them, and the consequences of a failure.
//!
//! A member that fails a request is marked failed if all data survives without it. The failure reaches stable
//! storage ([`MetadataStore`]) before any write that the member missed is acknowledged, so the member is not
//! read after a restart. A member that has lost acknowledged writes ([`BlockDevice::losses`]) is treated in
//! the same way, because its content is stale. Data from a member is used only once it is certain that the
//! member has not lost writes. A member in doubt may return stale data, which the next partial block write
//! would copy to the others.
//!
//! A member that another host has taken over ([`DeviceError::Fenced`], [`DeviceError::Reserved`]) is not
//! marked failed: the other host may be running the set, and continuing without the member would cause split
//! brain. The whole set is taken out of service, even for reads, and no record is written.
//!
//! If data would be lost without the member, the member stays in the set, and its error is returned. With
//! parity, a failed write then takes the set out of service, because the stripe's parity, and data
//! reconstructed from it, may be wrong. The next assembly replays the journal. Without parity, blocks that were
//! written shortly before are synchronised ([`Members::times_stayed`]): the member's cache and its stable
//! storage may differ.

mod lost;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, Lba, Lock, Losses, Operations, Sleeper,
    Slice,
};

use crate::concurrency::{ExtentLocks, try_all};
use crate::layout::Layout;
use crate::lost::LOST_RECORDED_MAX;
use crate::member::{MemberDevice, MemberState, MemberStates, MetadataStore};
use crate::sums::Summed;

use lost::Lost;

pub(crate) struct Members {
    layout: Layout,
    /// Number of strips of a member, which is higher than in `layout` if the set has grown.
    rows: AtomicU64,
    slots: Lock<Vec<Slot>>,
    metadata: Arc<dyn MetadataStore>,
    operations: Arc<Operations>,
    sleeper: Arc<dyn Sleeper>,
    out_of_service: AtomicBool,
    /// The first member that failed although the set cannot run without it, and its error.
    stopped_by: Lock<Option<(usize, DeviceError)>>,
    /// Whether another host has taken over a member.
    is_taken_over: AtomicBool,
    /// Number of state changes, and the number of these that have been recorded.
    changed: AtomicU64,
    recorded: AtomicU64,
    recording: Arc<ExtentLocks>,
    /// Number of losses reported by members without which the set could not run, up to the time of their
    /// current baselines.
    losses: AtomicU64,
    /// Number of times that a member stayed in the set although it may not have stored its unflushed blocks.
    stayed: AtomicU64,
    /// Whether `lost` has entries. Each request checks this.
    has_lost: AtomicBool,
    lost: Lock<Lost>,
    /// The lock for settling healed blocks, which one task at a time does.
    settling: Arc<ExtentLocks>,
}

struct Slot {
    device: Option<Arc<dyn BlockDevice>>,
    /// The device with its checksums, if its blocks have checksums.
    summed: Option<Arc<Summed>>,
    state: MemberState,
    /// Whether a member that is being rebuilt has missed only regions in the second bitmap.
    is_readded: bool,
    /// Number of rebuilt stripes that are on the stable storage of a member that is being rebuilt.
    secured: u64,
    /// Number of devices that have been in this slot, plus the number of requests to remove a device.
    incarnation: u64,
    /// The member's loss count when it was last known to be in sync. The losses of a member in doubt differ
    /// from every count.
    losses: Losses,
    /// The member's loss count when it last stayed in the set after a loss, or was last in sync.
    losses_noticed: u64,
    /// Average duration of a read in nanoseconds, and the number of outstanding reads.
    latency_ns: u64,
    reads: u64,
}

/// A device in a slot.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) index: usize,
    incarnation: u64,
    losses: Losses,
    pub(crate) device: Arc<dyn BlockDevice>,
    summed: Option<Arc<Summed>>,
}

/// The vacant slot of a failed member. It accepts one device, unless the member is removed manually first.
pub struct Vacancy {
    pub(crate) member: usize,
    incarnation: u64,
}

/// Identifies the period during which a device is a member, until it fails or is removed.
pub(crate) struct Incarnation {
    member: usize,
    number: u64,
}

/// The reason why a member is marked failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
    Read(DeviceError),
    /// A failed write or flush.
    Write(DeviceError),
    /// A failed write to a stripe that is unsynchronised, and stays so.
    Rewrite(DeviceError),
    LostWrites,
}

/// The reason why a strip was not read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unread {
    /// The member does not have the strip, or has failed.
    Lacking,
    /// The blocks are unreadable, and the member stays in the set.
    Bad(DeviceError),
}

impl Members {
    pub(crate) fn new(
        layout: Layout,
        devices: Vec<Option<MemberDevice>>,
        states: &MemberStates,
        metadata: Arc<dyn MetadataStore>,
        operations: Arc<Operations>,
        sleeper: Arc<dyn Sleeper>,
    ) -> Members {
        let slot = |(member, state): (Option<MemberDevice>, &MemberState)| {
            let state = if member.is_some() {
                *state
            } else {
                MemberState::Failed
            };
            let summed = member.as_ref().and_then(MemberDevice::summed);
            let device = member.map(|member| member.device());
            let secured = if let MemberState::Rebuilding { done } = state {
                done
            } else {
                0
            };
            let losses = device.as_ref().map_or(Losses::NONE, known_losses);
            let is_readded = false;
            Slot {
                device,
                summed,
                state,
                is_readded,
                secured,
                incarnation: 0,
                losses,
                losses_noticed: losses.count(),
                latency_ns: 0,
                reads: 0,
            }
        };
        debug_assert_eq!(
            devices.len(),
            layout.members(),
            "a device, or none, for each member"
        );
        debug_assert_eq!(
            states.members.len(),
            layout.members(),
            "a state for each member"
        );
        let slots: Vec<Slot> = devices.into_iter().zip(&states.members).map(slot).collect();
        // If a member was in sync and is now missing, it has failed, which must be recorded.
        let changed = slots
            .iter()
            .zip(&states.members)
            .any(|(slot, state)| slot.state != *state);
        Members {
            layout,
            rows: AtomicU64::new(layout.rows()),
            slots: Lock::new(slots),
            metadata,
            operations,
            sleeper,
            out_of_service: AtomicBool::new(false),
            stopped_by: Lock::default(),
            is_taken_over: AtomicBool::new(false),
            changed: AtomicU64::new(changed.into()),
            recorded: AtomicU64::new(0),
            recording: Arc::default(),
            losses: AtomicU64::new(0),
            stayed: AtomicU64::new(0),
            has_lost: AtomicBool::new(!states.lost.is_empty()),
            lost: Lock::new(Lost {
                blocks: states.lost.clone(),
                ..Lost::default()
            }),
            settling: Arc::default(),
        }
    }

    /// Returns the layout at the current size of the set.
    pub(crate) fn layout(&self) -> Layout {
        self.layout.with_rows(self.rows.load(Ordering::Acquire))
    }

    /// Switches to longer devices for the same members, to match the longer layout. Fails with
    /// [`DeviceError::OutOfRange`] if a member has no space for more checksums.
    pub(crate) fn grow(
        &self,
        layout: &Layout,
        devices: Vec<Arc<dyn BlockDevice>>,
    ) -> Result<(), DeviceError> {
        let mut slots = self.slots.lock();
        let blocks = layout.member_blocks().0;
        if slots
            .iter()
            .filter_map(|slot| slot.summed.as_ref())
            .any(|summed| !summed.has_room(blocks))
        {
            return Err(DeviceError::OutOfRange);
        }
        debug_assert!(
            layout.rows() >= self.rows.load(Ordering::Acquire),
            "a set only grows"
        );
        debug_assert_eq!(devices.len(), slots.len());
        for (slot, device) in slots
            .iter_mut()
            .zip(devices)
            .filter(|(slot, _)| slot.device.is_some())
        {
            match &slot.summed {
                Some(summed) => summed.lengthen(device),
                None => slot.device = Some(device),
            }
        }
        self.rows.store(layout.rows(), Ordering::Release);
        Ok(())
    }

    /// Returns the checksums of a member, unless it has failed.
    pub(crate) fn summed(&self, index: usize) -> Option<Arc<Summed>> {
        self.present(index).and_then(|member| member.summed)
    }

    /// Whether any member has a volatile cache.
    pub(crate) fn have_volatile_caches(&self) -> bool {
        let slots = self.slots.lock();
        slots
            .iter()
            .filter_map(|slot| slot.device.as_ref())
            .any(|device| device.profile().volatile_cache)
    }

    /// Returns the states in memory.
    pub(crate) fn states(&self) -> MemberStates {
        let members = self.slots.lock().iter().map(|slot| slot.state).collect();
        MemberStates {
            members,
            lost: self.lost.lock().blocks.clone(),
        }
    }

    /// Fails if the set is out of service.
    pub(crate) fn check_service(&self) -> Result<(), DeviceError> {
        self.check_ownership()?;
        if self.out_of_service.load(Ordering::Acquire) {
            Err(DeviceError::NotReady)
        } else {
            Ok(())
        }
    }

    /// Fails if another host has taken over a member. Outstanding requests call this too, so that they stop.
    pub(crate) fn check_ownership(&self) -> Result<(), DeviceError> {
        if self.is_taken_over.load(Ordering::Acquire) {
            Err(DeviceError::Fenced)
        } else {
            Ok(())
        }
    }

    /// Takes the set out of service if this error means that another host has taken over a member.
    pub(crate) fn note_ownership(&self, error: DeviceError) -> Result<(), DeviceError> {
        if matches!(error, DeviceError::Fenced | DeviceError::Reserved) {
            self.is_taken_over.store(true, Ordering::Release);
            self.leave_service();
        }
        self.check_ownership()
    }

    /// Returns the member whose error has stopped the set, or would have stopped it if it had parity.
    pub(crate) fn stopped_by(&self) -> Option<(usize, DeviceError)> {
        *self.stopped_by.lock()
    }

    /// Runs a change to completion. If this future is dropped together with its thread, the change may still
    /// reach the medium later and overwrite newer data, so the set is taken out of service.
    pub(crate) async fn land<T>(&self, change: impl Future<Output = T>) -> T {
        let mut landing = Landing {
            members: self,
            has_landed: false,
        };
        let result = change.await;
        landing.has_landed = true;
        result
    }

    pub(crate) fn leave_service(&self) {
        self.out_of_service.store(true, Ordering::Release);
    }

    /// Returns the member, if its strip in this stripe is current.
    pub(crate) fn holder(&self, index: usize, stripe: u64) -> Option<Member> {
        let slots = self.slots.lock();
        slots
            .get(index)?
            .member(index)
            .filter(|_| slots[index].state.holds(stripe))
    }

    /// Returns the member, unless it has failed.
    pub(crate) fn present(&self, index: usize) -> Option<Member> {
        let slots = self.slots.lock();
        slots
            .get(index)?
            .member(index)
            .filter(|_| slots[index].state != MemberState::Failed)
    }

    /// Returns all members that have not failed.
    pub(crate) fn all_present(&self) -> Vec<Member> {
        (0..self.layout.members())
            .filter_map(|index| self.present(index))
            .collect()
    }

    /// Whether this device is still a member.
    pub(crate) fn is_present(&self, member: &Member) -> bool {
        let slots = self.slots.lock();
        let is_it = |slot: &Slot| {
            slot.incarnation == member.incarnation && slot.state != MemberState::Failed
        };
        slots.get(member.index).is_some_and(is_it)
    }

    /// Whether the member's strip in this stripe is current.
    pub(crate) fn holds(&self, index: usize, stripe: u64) -> bool {
        let slots = self.slots.lock();
        slots
            .get(index)
            .is_some_and(|slot| slot.device.is_some() && slot.state.holds(stripe))
    }

    /// Returns the member that is likely to complete a read of a copy of this stripe first: the member with
    /// the lowest product of latency and outstanding reads. With each read, the recorded latency of the other
    /// members decays, so that a slow member is tried again. The slower it was, the longer this takes.
    pub(crate) fn fastest(
        &self,
        stripe: u64,
        candidates: impl Iterator<Item = usize>,
    ) -> Option<usize> {
        let mut slots = self.slots.lock();
        let holding: Vec<usize> = candidates
            .filter(|index| slots[*index].state.holds(stripe))
            .collect();
        let best = holding.iter().copied().min_by_key(|index| {
            let slot = &slots[*index];
            (slot.latency_ns.saturating_mul(slot.reads + 1), slot.reads)
        })?;
        for other in holding.into_iter().filter(|other| *other != best) {
            slots[other].latency_ns -= slots[other].latency_ns / 256;
        }
        Some(best)
    }

    /// Reads a part of a member's strip in this stripe.
    pub(crate) async fn read(
        self: &Arc<Self>,
        index: usize,
        stripe: u64,
        extent: Extent,
        buffer: Buffer,
    ) -> Result<Buffer, Unread> {
        self.debug_check(extent, buffer.len());
        let member = self.holder(index, stripe).ok_or(Unread::Lacking)?;
        self.check_ownership().map_err(Unread::Bad)?;
        if let Some(lost) = self.lost_of(index, extent) {
            return Err(Unread::Bad(lost));
        }
        let result = {
            let _timed = TimedRead::begin(self, &member);
            member.device.read(extent, buffer).await
        };
        self.judged(&member, result).await
    }

    /// Like `read`, but accepts blocks that do not match their checksums, and returns for each block whether
    /// it matches.
    pub(crate) async fn read_and_judge(
        self: &Arc<Self>,
        index: usize,
        stripe: u64,
        extent: Extent,
        buffer: Buffer,
    ) -> Result<(Buffer, Vec<bool>), Unread> {
        self.debug_check(extent, buffer.len());
        let member = self.holder(index, stripe).ok_or(Unread::Lacking)?;
        self.check_ownership().map_err(Unread::Bad)?;
        if let Some(lost) = self.lost_of(index, extent) {
            return Err(Unread::Bad(lost));
        }
        let result = match &member.summed {
            Some(summed) => summed.read_and_judge(extent, buffer).await,
            None => {
                let buffer = member.device.read(extent, buffer).await;
                buffer.map(|buffer| (buffer, vec![true; extent.blocks.0 as usize]))
            }
        };
        self.judged(&member, result).await
    }

    /// Checks that a request is within a member's data area, and that its buffer has the same length.
    fn debug_check(&self, extent: Extent, length: usize) {
        debug_assert!(
            extent.lba.0 + extent.blocks.0 <= self.layout().member_blocks().0,
            "{extent:?}"
        );
        debug_assert_eq!(
            extent.blocks.0 << self.layout.block_size().shift(),
            length as u64
        );
    }

    /// Handles the result of a read.
    async fn judged<T>(
        self: &Arc<Self>,
        member: &Member,
        result: Result<T, DeviceError>,
    ) -> Result<T, Unread> {
        let result = match result {
            Ok(read) => Ok(read),
            Err(error @ DeviceError::Unreadable(_)) => Err(Unread::Bad(error)),
            Err(error) => return Err(self.unread(member, Cause::Read(error)).await),
        };
        match member.has_lost_nothing().await {
            Ok(true) => return result,
            Ok(false) => {}
            // It cannot be determined whether the member has lost writes.
            Err(error) => return Err(self.unread(member, Cause::Read(error)).await),
        }
        // Handle lost writes even if the read failed: a block whose write was lost may not match its
        // checksum.
        match self.unread(member, Cause::LostWrites).await {
            Unread::Lacking if self.is_present(member) => result,
            unread => Err(unread),
        }
    }

    /// Handles a failed read from a member.
    async fn unread(self: &Arc<Self>, member: &Member, cause: Cause) -> Unread {
        self.fail(member, cause)
            .await
            .map_or_else(Unread::Bad, |()| Unread::Lacking)
    }

    /// Writes a part of a member's strip in this stripe, if the member has the strip. On success, the member
    /// has the write or has been marked failed. The caller must then call [`Members::recorded`]. `cause` is the
    /// cause of the failure if the write fails.
    pub(crate) async fn write(
        self: &Arc<Self>,
        index: usize,
        stripe: u64,
        extent: Extent,
        data: Slice,
        durability: Durability,
        cause: fn(DeviceError) -> Cause,
    ) -> Result<(), DeviceError> {
        self.debug_check(extent, data.len());
        let Some(member) = self.holder(index, stripe) else {
            return Ok(());
        };
        self.check_ownership()?;
        let before = member.before_write();
        let result = self
            .land(member.device.write(extent, data, durability))
            .await;
        match result {
            Ok(()) => {
                self.wrote(&member, before, extent);
                Ok(())
            }
            Err(error) => self.fail(&member, cause(error)).await,
        }
    }

    /// Handles a failed write to a member. On success, the set continues without the member.
    pub(crate) async fn write_failed(
        self: &Arc<Self>,
        member: &Member,
        error: DeviceError,
    ) -> Result<(), DeviceError> {
        self.fail(member, Cause::Write(error)).await
    }

    /// Flushes all members to stable storage. Members that cannot be flushed are marked failed.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<(), DeviceError> {
        try_all(
            self.all_present()
                .into_iter()
                .map(|member| self.flush_one(member)),
        )
        .await?;
        self.recorded().await
    }

    /// Flushes a member to stable storage. If it cannot be flushed, it is marked failed.
    pub(crate) async fn flush_one(self: &Arc<Self>, member: Member) -> Result<(), DeviceError> {
        let before = member.device.losses().count();
        if let Err(error) = block::flush_now(&*member.device).await {
            return self.write_failed(&member, error).await;
        }
        let after = match certain_losses(&*member.device).await {
            Ok(losses) if losses == member.losses.count() => return Ok(()),
            Ok(losses) => losses,
            Err(error) => return self.write_failed(&member, error).await,
        };
        self.fail(&member, Cause::LostWrites).await?;
        // If a member stays in the set although it has lost writes during the flush, the flush fails. Earlier
        // losses are only counted.
        if self.is_present(&member) && after != before {
            Err(DeviceError::WritesLost)
        } else {
            Ok(())
        }
    }

    /// Returns the number of checksum mismatches that reads have found on each member.
    pub(crate) fn wrong_blocks(&self) -> Vec<u64> {
        let slots = self.slots.lock();
        slots
            .iter()
            .map(|slot| slot.summed.as_ref().map_or(0, |summed| summed.wrong()))
            .collect()
    }

    /// Returns the losses of members that the set cannot run without.
    pub(crate) fn losses(&self) -> Losses {
        self.losses_of(&self.slots.lock())
    }

    fn losses_of(&self, slots: &[Slot]) -> Losses {
        Losses::counted(self.losses.load(Ordering::Acquire)).and(self.needed_losses(slots))
    }

    /// Lets the members delete their records of losses, if the user has recorded this many losses of the set. A
    /// member that the set can run without has only losses from before it was known to be in sync.
    pub(crate) fn losses_recorded(&self, count: u64) {
        let slots = self.slots.lock();
        let present = (0..slots.len()).filter(|at| slots[*at].state != MemberState::Failed);
        let recorded: Vec<(&Arc<dyn BlockDevice>, u64)> = present
            .filter_map(|at| {
                let device = slots[at].device.as_ref()?;
                let known = match self.survives_without(&slots, at) {
                    true => slots[at].losses,
                    false => device.losses(),
                };
                Some((device, known.count()))
            })
            .collect();
        // Read this last, so that it includes all losses above.
        if self.losses_of(&slots).count() <= count {
            recorded
                .into_iter()
                .for_each(|(device, losses)| device.losses_recorded(losses));
        }
    }

    fn needed_losses(&self, slots: &[Slot]) -> Losses {
        let needed = slots
            .iter()
            .enumerate()
            .filter(|(index, _)| !self.survives_without(slots, *index));
        let lost = |slot: &Slot| {
            slot.device
                .as_ref()
                .map_or(Losses::NONE, |device| device.losses().since(slot.losses))
        };
        let needed = needed.filter(|(_, slot)| slot.state != MemberState::Failed);
        needed
            .map(|(_, slot)| lost(slot))
            .fold(Losses::NONE, Losses::and)
    }

    /// Determines whether members in doubt have lost writes. A member that cannot report its losses is marked
    /// failed.
    pub(crate) async fn resolve_losses(self: &Arc<Self>) -> Result<(), DeviceError> {
        for member in self.all_present() {
            if let Err(error) = certain_losses(&*member.device).await {
                self.fail(&member, Cause::Read(error)).await?;
            }
        }
        Ok(())
    }

    fn survives_without(&self, slots: &[Slot], index: usize) -> bool {
        let lacks = |(at, slot): (usize, &Slot)| at == index || slot.state != MemberState::InSync;
        self.layout
            .survives(&slots.iter().enumerate().map(lacks).collect::<Vec<_>>())
    }

    /// If the set survives without a member, marks the member failed and records the failure. For other
    /// members, see the module's comment.
    pub(crate) async fn fail(
        self: &Arc<Self>,
        member: &Member,
        cause: Cause,
    ) -> Result<(), DeviceError> {
        {
            let mut slots = self.slots.lock();
            let slot = &slots[member.index];
            let is_news =
                slot.incarnation == member.incarnation && slot.state != MemberState::Failed;
            if let (true, Cause::Read(error) | Cause::Write(error) | Cause::Rewrite(error)) =
                (is_news, cause)
            {
                self.note_ownership(error)?;
            }
            if is_news && !self.survives_without(&slots, member.index) {
                return self.not_survived(&mut slots[member.index], member.index, cause);
            }
            if is_news {
                slots[member.index].state = MemberState::Failed;
                debug_assert!(
                    self.survives_without(&slots, member.index),
                    "all data is still present"
                );
                self.changed.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.recorded().await
    }

    fn not_survived(
        &self,
        slot: &mut Slot,
        member: usize,
        cause: Cause,
    ) -> Result<(), DeviceError> {
        let error = match cause {
            Cause::Read(error) | Cause::Write(error) | Cause::Rewrite(error) => error,
            Cause::LostWrites => DeviceError::WritesLost,
        };
        self.stopped_by.lock().get_or_insert((member, error));
        match cause {
            Cause::Read(_) | Cause::Rewrite(_) => {}
            Cause::Write(_) => drop(self.stayed.fetch_add(1, Ordering::AcqRel)),
            Cause::LostWrites => self.notice_losses(slot),
        }
        match cause {
            Cause::Read(error) => Err(error),
            Cause::Write(error) | Cause::Rewrite(error) => {
                if self.layout.has_parity() {
                    self.leave_service();
                }
                Err(error)
            }
            Cause::LostWrites if self.layout.has_parity() => {
                self.leave_service();
                Err(DeviceError::NotReady)
            }
            // The losses are counted, as for any single device.
            Cause::LostWrites => Ok(()),
        }
    }

    /// Counts the new losses of a member that stays in the set.
    fn notice_losses(&self, slot: &mut Slot) {
        let losses = slot
            .device
            .as_ref()
            .map_or(0, |device| device.losses().count());
        if std::mem::replace(&mut slot.losses_noticed, losses) != losses {
            self.stayed.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Returns the number of times that a member stayed in the set after a failed write or flush, or a loss.
    /// Blocks that were not flushed before the last one may differ between the members, or between a member's
    /// cache and its stable storage.
    pub(crate) fn times_stayed(&self) -> u64 {
        self.stayed.load(Ordering::Acquire)
    }

    /// Marks a member failed at the user's request. Returns false if data would be lost without it.
    pub(crate) async fn fail_by_hand(self: &Arc<Self>, index: usize) -> Result<bool, DeviceError> {
        {
            let mut slots = self.slots.lock();
            if !self.survives_without(&slots, index) {
                return Ok(false);
            }
            let slot = &mut slots[index];
            if slot.state != MemberState::Failed {
                slot.state = MemberState::Failed;
                self.changed.fetch_add(1, Ordering::AcqRel);
            }
            (slot.device, slot.summed) = (None, None);
            // If a device is being added in this slot, it is not used.
            slot.incarnation += 1;
        }
        self.recorded().await.map(|()| true)
    }

    /// Drops the device of a member that is not in sync, marks the member failed, and records the failure.
    /// Otherwise, the record might still describe the member as rebuilding, although its device could not be
    /// put in the slot. Returns false if the member is in sync.
    pub(crate) async fn release(self: &Arc<Self>, index: usize) -> Result<bool, DeviceError> {
        {
            let mut slots = self.slots.lock();
            let slot = &mut slots[index];
            if slot.state == MemberState::InSync {
                return Ok(false);
            }
            slot.state = MemberState::Failed;
            (slot.device, slot.summed) = (None, None);
            self.changed.fetch_add(1, Ordering::AcqRel);
        }
        self.recorded().await.map(|()| true)
    }

    /// Returns the slot of a member, if the member has failed.
    pub(crate) fn vacancy(&self, index: usize) -> Option<Vacancy> {
        let slots = self.slots.lock();
        let slot = slots
            .get(index)
            .filter(|slot| slot.state == MemberState::Failed)?;
        debug_assert!(index < self.layout.members());
        Some(Vacancy {
            member: index,
            incarnation: slot.incarnation,
        })
    }

    /// Records that members that are being rebuilt have missed only regions in the second bitmap.
    pub(crate) fn rebuild_in_part(&self) {
        for slot in self.slots.lock().iter_mut() {
            slot.is_readded = matches!(slot.state, MemberState::Rebuilding { .. });
        }
    }

    /// Whether the member is being rebuilt and has missed only regions in the second bitmap.
    pub(crate) fn is_readded(&self, index: usize) -> bool {
        self.slots
            .lock()
            .get(index)
            .is_some_and(|slot| slot.is_readded)
    }

    /// Whether a member is not in sync.
    pub(crate) fn is_one_lacking(&self) -> bool {
        self.slots
            .lock()
            .iter()
            .any(|slot| slot.state != MemberState::InSync)
    }

    /// Records whether the second bitmap contains all regions that members have missed. Returns the recorded
    /// value.
    pub(crate) async fn record_missed(&self, is_noted: bool) -> Result<bool, DeviceError> {
        let _turn = self.recording.exclude(Extent::new(0, 1)).await;
        self.check_service()?;
        let result = self.land(self.metadata.missed_is_noted(is_noted)).await;
        result.inspect_err(|error| {
            self.leave_service();
            let _ = self.note_ownership(*error);
        })
    }

    /// Puts a device in the slot of a failed member, to be rebuilt. If `is_readded`, it is the device that
    /// had failed, and has missed only regions in the second bitmap. Returns `None` if the member was removed
    /// manually since the vacancy was requested.
    pub(crate) async fn replace(
        self: &Arc<Self>,
        Vacancy {
            member: index,
            incarnation,
        }: Vacancy,
        member: MemberDevice,
        is_readded: bool,
    ) -> Result<Option<Incarnation>, DeviceError> {
        let device = member.device();
        let losses = known_losses(&device);
        let put = {
            let mut slots = self.slots.lock();
            let slot = &mut slots[index];
            if slot.state != MemberState::Failed || slot.incarnation != incarnation {
                return Ok(None);
            }
            slot.losses = losses;
            slot.losses_noticed = losses.count();
            slot.device = Some(Arc::clone(&device));
            slot.summed = member.summed();
            slot.state = MemberState::Rebuilding { done: 0 };
            debug_assert!(losses.count() <= device.losses().count());
            slot.is_readded = is_readded;
            (slot.secured, slot.latency_ns) = (0, 0);
            slot.incarnation += 1;
            let put = Incarnation {
                member: index,
                number: slot.incarnation,
            };
            // A re-added device keeps its lost blocks until they are rebuilt or written.
            if !is_readded {
                let mut lost = self.lost.lock();
                let Lost {
                    blocks,
                    healed,
                    settling,
                    ..
                } = &mut *lost;
                blocks.remove_member(index);
                [healed, settling]
                    .into_iter()
                    .for_each(|list| list.remove_member(index));
                lost.was_full = false;
                self.has_lost.store(!lost.is_empty(), Ordering::Release);
            }
            self.changed.fetch_add(1, Ordering::AcqRel);
            put
        };
        self.recorded().await?;
        // The superblock says that the member is rebuilt, so its earlier losses do not matter.
        device.losses_recorded(losses.count());
        Ok(Some(put))
    }

    pub(crate) fn has(&self, put: &Incarnation) -> bool {
        let slots = self.slots.lock();
        let slot = &slots[put.member];
        slot.incarnation == put.number && slot.state != MemberState::Failed
    }

    /// Records in memory that all stripes of a rebuilding member before `done` are current. The caller must
    /// exclude writes to the last of them.
    pub(crate) fn advance(&self, member: &Member, done: u64) {
        debug_assert!(
            done <= self.layout().stripes(),
            "a rebuild does not exceed the stripes"
        );
        let mut slots = self.slots.lock();
        let slot = &mut slots[member.index];
        if let MemberState::Rebuilding { done: before } = slot.state
            && slot.incarnation == member.incarnation
        {
            // If two steps run concurrently, the slower one must not move the progress back.
            slot.state = MemberState::Rebuilding {
                done: before.max(done),
            };
        }
    }

    /// Records the rebuild progress of a member. A completely rebuilt member becomes in sync.
    pub(crate) async fn secure(self: &Arc<Self>, member: &Member) -> Result<(), DeviceError> {
        self.secure_rebuilt().await;
        {
            let mut slots = self.slots.lock();
            let slot = &slots[member.index];
            let is_whole = slot.secured == self.layout().stripes();
            if slot.incarnation == member.incarnation
                && is_whole
                && matches!(slot.state, MemberState::Rebuilding { .. })
            {
                // Members without which the set could not run until now start with a new baseline of losses.
                let needed: Vec<usize> = (0..slots.len())
                    .filter(|index| !self.survives_without(&slots, *index))
                    .collect();
                self.losses
                    .fetch_add(self.needed_losses(&slots).count(), Ordering::AcqRel);
                for index in needed {
                    self.notice_losses(&mut slots[index]);
                    slots[index].losses = slots[index]
                        .device
                        .as_ref()
                        .map_or(Losses::NONE, known_losses);
                }
                slots[member.index].state = MemberState::InSync;
            }
        }
        self.changed.fetch_add(1, Ordering::AcqRel);
        self.recorded().await
    }

    /// Flushes rebuilding members, so that their recorded progress is on stable storage. A member that cannot
    /// be flushed is marked failed; no data is lost without it.
    async fn secure_rebuilt(&self) {
        for member in self.all_present() {
            let MemberState::Rebuilding { done } = self.slots.lock()[member.index].state else {
                continue;
            };
            let flushed = member.device.flush().await;
            if flushed.is_err_and(|error| self.note_ownership(error).is_err()) {
                return;
            }
            let is_secure = flushed.is_ok() && member.has_lost_nothing().await == Ok(true);
            let mut slots = self.slots.lock();
            let slot = &mut slots[member.index];
            match (slot.incarnation == member.incarnation, is_secure) {
                // A concurrent step may have recorded more progress.
                (true, true) => slot.secured = slot.secured.max(done),
                (true, false) => slot.state = MemberState::Failed,
                (false, _) => {}
            }
        }
    }

    /// Resolves once the current states are recorded.
    pub(crate) async fn recorded(self: &Arc<Self>) -> Result<(), DeviceError> {
        let wanted = self.changed.load(Ordering::Acquire);
        if self.recorded.load(Ordering::Acquire) < wanted {
            let members = Arc::clone(self);
            self.operations
                .run(async move { members.record(wanted).await })
                .await?;
        }
        self.check_service()
    }

    /// Resolves once the start of the set is recorded with the current states.
    pub(crate) async fn started(&self) -> Result<(), DeviceError> {
        let _turn = self.recording.exclude(Extent::new(0, 1)).await;
        self.check_ownership()?;
        let (states, number) = self.recordable();
        let result = self.land(self.metadata.start(&states)).await;
        result?;
        self.recorded.fetch_max(number, Ordering::AcqRel);
        Ok(())
    }

    /// Returns the current states in the form to record, and the number of their last change.
    fn recordable(&self) -> (MemberStates, u64) {
        let slots = self.slots.lock();
        let number = self.changed.load(Ordering::Acquire);
        debug_assert!(
            self.recorded.load(Ordering::Acquire) <= number,
            "only changes are recorded"
        );
        let secured = |slot: &Slot| match slot.state {
            MemberState::Rebuilding { .. } => MemberState::Rebuilding { done: slot.secured },
            state => state,
        };
        let members = slots.iter().map(secured).collect();
        let lost = self.lost.lock().recorded();
        debug_assert!(
            lost.extents() <= LOST_RECORDED_MAX,
            "a record has space for all lost blocks"
        );
        (MemberStates { members, lost }, number)
    }

    /// Records that the journal is now on the members. If it is uncertain whether the record was written, the
    /// set is taken out of service.
    pub(crate) async fn record_journal_on_members(&self) -> Result<(), DeviceError> {
        let _turn = self.recording.exclude(Extent::new(0, 1)).await;
        self.check_ownership()?;
        let result = self.land(self.metadata.journal_on_members()).await;
        result.inspect_err(|error| {
            self.leave_service();
            let _ = self.note_ownership(*error);
        })
    }

    async fn record(&self, wanted: u64) -> Result<(), DeviceError> {
        let _turn = self.recording.exclude(Extent::new(0, 1)).await;
        if self.recorded.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        self.secure_rebuilt().await;
        self.check_ownership()?;
        let (states, number) = self.recordable();
        let result = self.land(self.metadata.record(&states)).await;
        if let Err(error) = result {
            self.leave_service();
            self.note_ownership(error)?;
            return Err(DeviceError::NotReady);
        }
        self.recorded.fetch_max(number, Ordering::AcqRel);
        Ok(())
    }
}

impl Member {
    /// Whether it is certain, without querying the device, that the member has not lost writes since it was
    /// known to be in sync. False for a member in doubt.
    pub(crate) fn is_certain(&self) -> bool {
        self.device.losses() == self.losses
    }

    /// Whether the member has not lost writes since it was known to be in sync. Queries a member in doubt.
    async fn has_lost_nothing(&self) -> Result<bool, DeviceError> {
        Ok(self.is_certain() || certain_losses(&*self.device).await? == self.losses.count())
    }
}

/// Returns the known losses, as if the device were not in doubt. If the device has lost more writes, its next
/// read or flush detects the loss.
fn known_losses(device: &Arc<dyn BlockDevice>) -> Losses {
    Losses::counted(device.losses().count())
}

/// Returns the losses of a device. Queries the device if it is in doubt.
pub(crate) async fn certain_losses(device: &dyn BlockDevice) -> Result<u64, DeviceError> {
    for _ in 0..DOUBTS_MAX {
        let losses = device.losses();
        if !losses.is_in_doubt() {
            return Ok(losses.count());
        }
        device.resolve_losses().await?;
    }
    Err(DeviceError::NotReady)
}

/// Maximum number of queries, so that this does not wait forever for a server that restarts during every
/// query.
const DOUBTS_MAX: u32 = 8;

impl Slot {
    fn member(&self, index: usize) -> Option<Member> {
        let device = Arc::clone(self.device.as_ref()?);
        let summed = self.summed.clone();
        Some(Member {
            index,
            incarnation: self.incarnation,
            losses: self.losses,
            device,
            summed,
        })
    }
}

/// An outstanding change ([`Members::land`]).
struct Landing<'a> {
    members: &'a Members,
    has_landed: bool,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        if !self.has_landed {
            self.members.leave_service();
        }
    }
}

/// An outstanding read, which [`Members::fastest`] takes into account.
struct TimedRead<'a> {
    members: &'a Members,
    index: usize,
    start: std::time::Instant,
}

impl TimedRead<'_> {
    fn begin<'a>(members: &'a Members, member: &Member) -> TimedRead<'a> {
        members.slots.lock()[member.index].reads += 1;
        TimedRead {
            members,
            index: member.index,
            start: members.sleeper.now(),
        }
    }
}

impl Drop for TimedRead<'_> {
    fn drop(&mut self) {
        let time = self
            .members
            .sleeper
            .now()
            .saturating_duration_since(self.start);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        let mut slots = self.members.slots.lock();
        let slot = &mut slots[self.index];
        debug_assert!(slot.reads > 0, "a read ends once");
        slot.reads = slot.reads.saturating_sub(1);
        // A moving average over about 8 reads.
        slot.latency_ns = if slot.latency_ns == 0 {
            ns
        } else {
            slot.latency_ns / 8 * 7 + ns / 8
        };
    }
}

/// Converts a member's error to an error of the set. The error occurred at `extent`, which contains the set's
/// blocks from `lba` on.
pub(crate) fn in_set(error: DeviceError, extent: Extent, lba: u64) -> DeviceError {
    let translated = |Lba(at)| match at.checked_sub(extent.lba.0) {
        Some(offset) if offset < extent.blocks.0 => Lba(lba + offset),
        _ => Lba(lba),
    };
    error.map_lba(translated)
}
