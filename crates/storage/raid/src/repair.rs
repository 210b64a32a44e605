//! Maintenance, one stripe at a time: rebuild, resync after a crash, and scrub.
//!
//! Each step excludes only writes to its stripe. The caller determines the pace.

use std::ops::Range;
use std::sync::Arc;

use block::{Allocation, BlockDevice, Buffer, DeviceError, Durability, Extent, Permit, Run, Slice};

use crate::concurrency::{Locked, all, try_all};
use crate::journal::record::{Change, Part};
use crate::layout::Layout;
use crate::member::MemberState;
use crate::members::{Cause, Member, Unread};
use crate::parity::{add_to_q, xor_into};
use crate::plan::{Method, Plan, Stripe, parity_of, recover};
use crate::set::{Judged, Protection, Set, graver, halves};

/// Progress of a rebuild or resync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of stripes done. A rebuild counts from the start of the set, a resync from the start of the
    /// region.
    pub done: u64,
    /// Total number of stripes.
    pub total: u64,
    /// Number of bytes that the step has read and written.
    pub moved_bytes: u64,
}

/// The result of scrubbing a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrubbed {
    /// All strips are readable and consistent.
    Right,
    /// A member does not have its strip, so there is nothing to compare.
    Degraded,
    /// Some strips are unreadable.
    Unreadable {
        /// Whether they were rewritten.
        is_repaired: bool,
    },
    /// The strips are inconsistent.
    Mismatch {
        /// Whether the stripe was repaired.
        is_repaired: bool,
    },
}

enum Synchronised {
    Done,
    /// Some columns are unreadable, so the columns must be synchronised one by one.
    Unreadable,
    /// A member is missing, or the list of lost blocks is full.
    Impossible,
}

enum Accepted {
    Yes,
    /// Some columns are unreadable, so the columns must be accepted one by one.
    Unreadable,
    No,
}

/// A rebuild records its progress after it has processed this many bytes of a member, or `STRIPES_PER_RECORD`
/// stripes, whichever comes first.
const BYTES_PER_RECORD: u64 = 16 << 20;
const STRIPES_PER_RECORD: u64 = 256;
/// Maximum number of regions that one step of a rebuild skips.
const REGIONS_PER_STEP: u64 = 1024;

impl Set {
    pub(crate) async fn lock_stripe(&self, stripe: u64) -> (Permit, Locked) {
        let permit = self.permits.take().await;
        (
            permit,
            self.locks.exclude(self.layout.stripe_extent(stripe)).await,
        )
    }

    fn strip_bytes(&self) -> u64 {
        self.bytes(self.layout.strip_blocks()) as u64
    }

    /// Rebuilds the next stripe of a member. Returns `None` once the member is in sync.
    pub(crate) async fn rebuild_step(
        self: Arc<Self>,
        index: usize,
    ) -> Result<Option<Progress>, DeviceError> {
        let total = self.members.layout().stripes();
        let member = self.members.present(index).ok_or(DeviceError::NotReady)?;
        let MemberState::Rebuilding { mut done } = self.members.states().members[index] else {
            return Ok(None);
        };
        let mut moved_bytes = 0;
        let mut skipped = 0;
        while done < total {
            if skipped < REGIONS_PER_STEP
                && let Some(end) = self.skip_region(&member, done, total).await
            {
                (done, skipped) = (end, skipped + 1);
                continue;
            }
            let Some(strip) = self.layout.strip_of(done, index) else {
                done += 1; // the member has no strip in this stripe
                continue;
            };
            let _locked = self.lock_stripe(done).await;
            self.members.check_service()?;
            if !self.layout.has_parity() && self.is_unsynced(done) {
                // First synchronise the stripe, which preserves the copy that may have been read before.
                match self.synchronise(done, Durability::Cached).await {
                    // The last copy cannot be written, but it may be readable. The stripe stays unsynchronised.
                    Err(DeviceError::Unwritable(_)) => self.members.check_service()?,
                    result => drop(result?),
                }
            }
            let (content, lost) = self.salvage(done, strip, None).await?;
            let (_, extent) = self.place(done, strip, &(0..self.layout.strip_blocks()));
            let result = self
                .members
                .land(
                    member
                        .device
                        .write(extent, content.share(), Durability::Cached),
                )
                .await;
            if let Err(error) = result {
                self.members.write_failed(&member, error).await?;
                return Err(error);
            }
            if !self.members.lose(index, extent, &lost) {
                return Err(DeviceError::Unreadable(extent.lba));
            }
            moved_bytes = self.strip_bytes() * (self.layout.data_strips() as u64 + 1);
            done += 1;
            self.members.advance(&member, done);
            debug_assert!(done <= total);
            break;
        }
        self.record_progress(&member, done).await?;
        Ok(Some(Progress {
            done,
            total,
            moved_bytes,
        }))
    }

    /// If a re-added member has missed no write to this stripe's region, counts the region as rebuilt, and
    /// returns its end.
    async fn skip_region(&self, member: &Member, stripe: u64, total: u64) -> Option<u64> {
        let Protection::Intent(intent) = &self.protection else {
            return None;
        };
        if !self.members.is_readded(member.index) || intent.has_missed(stripe) {
            return None;
        }
        let end = (stripe + intent.rest_of_region(stripe)).min(total);
        debug_assert!(stripe < end);
        let (first, last) = (
            self.layout.stripe_extent(stripe),
            self.layout.stripe_extent(end - 1),
        );
        let region = Extent::new(first.lba.0, last.lba.0 + last.blocks.0 - first.lba.0);
        // Outstanding writes may omit this member, but they are recorded as missed. Writes that start later
        // see the new progress.
        let _locked = self.locks.exclude(region).await;
        if intent.has_missed(stripe) {
            return None;
        }
        self.members.advance(member, end);
        Some(end)
    }

    async fn record_progress(&self, member: &Member, done: u64) -> Result<(), DeviceError> {
        let total = self.members.layout().stripes();
        if done == total {
            self.members.advance(member, done);
            self.synchronise_again();
        }
        if done == total
            || done.is_multiple_of(
                (BYTES_PER_RECORD / self.strip_bytes()).clamp(1, STRIPES_PER_RECORD),
            )
        {
            self.members.secure(member).await?;
        }
        Ok(())
    }

    /// Grows the set; see [`RaidDevice::grow_to`](crate::RaidDevice::grow_to).
    pub(crate) async fn grow(
        self: Arc<Self>,
        layout: Layout,
        devices: Vec<Arc<dyn BlockDevice>>,
    ) -> Result<(), DeviceError> {
        // Exclude all requests, because rebuild, resync and scrub depend on the length of the set.
        let _alone = self.locks.exclude(self.whole()).await;
        self.members.check_service()?;
        if let Protection::Intent(intent) = &self.protection {
            intent.grow(layout.stripes())?;
        }
        self.members.grow(&layout, devices)
    }

    /// Closes the set; see [`RaidDevice::close`](crate::RaidDevice::close).
    pub(crate) async fn close(self: Arc<Self>) -> Result<(), DeviceError> {
        let _alone = self.locks.exclude(self.whole()).await;
        self.members.check_service()?;
        for member in self.members.all_present() {
            if matches!(
                self.members.states().members[member.index],
                MemberState::Rebuilding { .. }
            ) {
                self.members.secure(&member).await?;
            }
        }
        match &self.protection {
            Protection::Journal(journal) => journal.empty(None).await?,
            Protection::Intent(intent) => {
                let ((begun, _), flush) = (intent.activity(), intent.flush_begins());
                intent.secure_missed().await?;
                self.members.flush().await?;
                intent.settled(begun, flush).await;
            }
            Protection::Nothing => self.members.flush().await?,
        }
        self.members.settle_healed().await?;
        self.members.leave_service();
        Ok(())
    }

    /// Reconstructs a strip from the other strips of its stripe. Columns that cannot be reconstructed are
    /// filled with zeros, and are also returned as a list. If the strip's member has the strip but cannot
    /// read it, `own_error` is the error of that read.
    async fn salvage(
        &self,
        stripe: u64,
        strip: usize,
        own_error: Option<DeviceError>,
    ) -> Result<(Buffer, Vec<Range<u64>>), DeviceError> {
        let whole = 0..self.layout.strip_blocks();
        let first = match self
            .content_by_others(stripe, strip, &whole, own_error)
            .await
        {
            Err(DeviceError::Unreadable(_)) => halves(&whole),
            result => return result.map(|content| (content, Vec::new())),
        };
        debug_assert!(strip < self.layout.strips());
        let mut content = Buffer::zeroed(self.bytes(whole.end));
        let mut lost = if first.is_none() {
            vec![whole]
        } else {
            Vec::new()
        };
        let mut parts: Vec<Range<u64>> = first.into_iter().flatten().rev().collect();
        while let Some(columns) = parts.pop() {
            match self.content_of(stripe, strip, &columns).await {
                Ok(part) => content[self.bytes(columns.start)..self.bytes(columns.end)]
                    .copy_from_slice(&part),
                Err(DeviceError::Unreadable(_)) => match halves(&columns) {
                    Some([first, second]) => parts.extend([second, first]),
                    None => lost.push(columns),
                },
                Err(error) => return Err(error),
            }
        }
        Ok((content, lost))
    }

    /// Returns the content of some columns of a strip. Unreadable columns are reconstructed from the other
    /// strips.
    async fn content_of(
        &self,
        stripe: u64,
        strip: usize,
        columns: &Range<u64>,
    ) -> Result<Buffer, DeviceError> {
        let own_error = match self.read_strip(stripe, strip, columns).await {
            Ok(content) => return Ok(content),
            Err(Unread::Lacking) => None,
            Err(Unread::Bad(why)) => Some(why),
        };
        self.content_by_others(stripe, strip, columns, own_error)
            .await
    }

    /// Reconstructs some columns of a strip from the other strips. `own_error` is the error of the failed
    /// read of this strip.
    async fn content_by_others(
        &self,
        stripe: u64,
        strip: usize,
        columns: &Range<u64>,
        own_error: Option<DeviceError>,
    ) -> Result<Buffer, DeviceError> {
        if !self.layout.has_parity() {
            let mut others = vec![strip];
            let mut error = own_error;
            while let Some(copy) = self.fastest_copy(stripe, &others) {
                match self.read_strip(stripe, copy, columns).await {
                    Ok(content) => return Ok(content),
                    Err(Unread::Lacking) => {}
                    Err(Unread::Bad(why)) => {
                        error = Some(graver(error, why));
                        others.push(copy);
                    }
                }
            }
            return Err(error.unwrap_or(DeviceError::NotReady));
        }
        let data = self.layout.data_strips();
        let plan = |stripe: &Stripe| {
            stripe.recovery().map(|reads| Plan {
                method: Method::Reconstruct,
                reads,
            })
        };
        let mut gathered = self
            .gather(stripe, columns, vec![strip], own_error, plan)
            .await?;
        let length = self.bytes(columns.end - columns.start);
        recover(&mut gathered.strips, data, length);
        if strip < data {
            return gathered.strips[strip].take().ok_or(DeviceError::NotReady);
        }
        let all: Vec<&[u8]> = gathered.strips[..data]
            .iter()
            .filter_map(Option::as_deref)
            .collect();
        let parity = parity_of(&all, self.layout.level().parity_strips(), length);
        parity
            .into_iter()
            .nth(strip - data)
            .ok_or(DeviceError::NotReady)
    }

    /// Includes regions in synchronisation again that were excluded because a stripe could not be
    /// synchronised.
    pub(crate) fn synchronise_again(&self) {
        if let Protection::Intent(intent) = &self.protection {
            intent.try_again();
        }
    }

    /// Synchronises the next stripe of the first region that may have been inconsistent since before the
    /// assembly. Returns `None` once there is no such region.
    pub(crate) async fn synchronise_step(
        self: Arc<Self>,
        done: u64,
    ) -> Result<Option<Progress>, DeviceError> {
        let Protection::Intent(intent) = &self.protection else {
            return Ok(None);
        };
        let Some((stripes, done)) = intent.first_unsynced(done) else {
            return Ok(None);
        };
        let total = stripes.end - stripes.start;
        debug_assert!(total > 0, "a region has stripes");
        let stripe = stripes.start + done.min(total - 1);
        let is_done = {
            let _locked = self.lock_stripe(stripe).await;
            self.members.check_service()?;
            // Stripes that have been read are already synchronised.
            let result = match intent.is_unsynced(stripe) {
                true => self.synchronise(stripe, Durability::Cached).await,
                false => Ok(true),
            };
            match result {
                // A block of the last copy cannot be written.
                Err(DeviceError::Unwritable(_)) => {
                    self.members.check_service()?;
                    false
                }
                result => result?,
            }
        };
        if !is_done {
            // A stripe cannot be synchronised, so the region would stay unsynchronised whatever happens to
            // the rest of it.
            intent.set_aside(stripes.start);
        }
        let done = if is_done {
            (done + 1).min(total)
        } else {
            total
        };
        if is_done && done == total {
            self.members.flush().await?;
            intent.synchronised(stripes.start);
        }
        let moved_bytes = 2 * self.strip_bytes() * self.layout.strips() as u64;
        Ok(Some(Progress {
            done,
            total,
            moved_bytes,
        }))
    }

    /// Makes the copies of a stripe equal, or its parity match its data. Returns false if this is impossible.
    /// Unreadable blocks do not prevent synchronisation: these blocks, or their parity, are added to the list
    /// of lost blocks. The caller must hold the lock of the stripe.
    ///
    /// All strips are written, even those that read as they should. The process that wrote them may have been
    /// killed after a flush of their member failed, and before it recorded this. Linux keeps the content of a
    /// failed flush in its cache, where it reads as written, but no later flush stores it.
    pub(crate) async fn synchronise(
        &self,
        stripe: u64,
        durability: Durability,
    ) -> Result<bool, DeviceError> {
        let mut is_done = true;
        let whole = 0..self.layout.strip_blocks();
        let mut parts = vec![whole];
        while let Some(columns) = parts.pop() {
            let result = match self.layout.has_parity() {
                true => self.synchronise_parity(stripe, &columns).await?,
                false => {
                    self.synchronise_copies(stripe, &columns, durability)
                        .await?
                }
            };
            match (result, halves(&columns)) {
                (Synchronised::Done, _) => {}
                (Synchronised::Unreadable, Some([first, second])) => parts.extend([second, first]),
                (Synchronised::Unreadable | Synchronised::Impossible, _) => is_done = false,
            }
        }
        self.members.recorded().await?;
        self.members.settle_healed().await?;
        debug_assert!(stripe < self.members.layout().stripes());
        // A copy in a cache may be lost, so the stripe counts as synchronised only if the copy is on stable
        // storage.
        let is_stable = durability == Durability::Stable || self.layout.has_parity();
        if let (true, true, Protection::Intent(intent)) = (is_done, is_stable, &self.protection) {
            intent.synchronised_one(stripe);
        }
        Ok(is_done)
    }

    async fn synchronise_parity(
        &self,
        stripe: u64,
        columns: &Range<u64>,
    ) -> Result<Synchronised, DeviceError> {
        let data = self.layout.data_strips();
        // If a strip is missing, it cannot be reconstructed, because parity may be wrong.
        if !(0..data).all(|strip| self.is_held(stripe, strip)) {
            return Ok(Synchronised::Impossible);
        }
        let plan = |stripe: &Stripe| {
            let reads = (0..data).collect::<Vec<_>>();
            let is_whole = reads.iter().all(|strip| stripe.readable[*strip]);
            is_whole.then_some(Plan {
                method: Method::Reconstruct,
                reads,
            })
        };
        let gathered = match self.gather(stripe, columns, Vec::new(), None, plan).await {
            Ok(gathered) => gathered,
            Err(DeviceError::Unreadable(_)) if columns.end - columns.start > 1 => {
                return Ok(Synchronised::Unreadable);
            }
            Err(DeviceError::Unreadable(_)) => {
                return self.synchronise_beside_lost(stripe, columns).await;
            }
            Err(_) => return Ok(Synchronised::Impossible),
        };
        let all: Vec<&[u8]> = gathered.strips[..data]
            .iter()
            .filter_map(Option::as_deref)
            .collect();
        let length = self.bytes(columns.end - columns.start);
        let parity = parity_of(&all, self.layout.level().parity_strips(), length);
        let strips = gathered
            .strips
            .into_iter()
            .take(data)
            .flatten()
            .chain(parity)
            .enumerate();
        let writes = strips.map(|(strip, content)| {
            self.write_again(stripe, strip, columns, content.share(), Durability::Cached)
        });
        try_all(writes).await?;
        Ok(Synchronised::Done)
    }

    /// Synchronises a column with unreadable data: its parity is lost, and the readable data is written again.
    async fn synchronise_beside_lost(
        &self,
        stripe: u64,
        column: &Range<u64>,
    ) -> Result<Synchronised, DeviceError> {
        debug_assert_eq!(column.end - column.start, 1);
        match self.lose_parity(stripe, std::slice::from_ref(column)).await {
            Ok(()) => {}
            Err(DeviceError::Unreadable(_)) => return Ok(Synchronised::Impossible),
            Err(error) => return Err(error),
        }
        for strip in 0..self.layout.data_strips() {
            match self.read_strip(stripe, strip, column).await {
                Ok(content) => {
                    self.write_again(stripe, strip, column, content.share(), Durability::Cached)
                        .await?;
                }
                Err(Unread::Bad(DeviceError::Unreadable(_))) => {}
                Err(Unread::Lacking | Unread::Bad(_)) => return Ok(Synchronised::Impossible),
            }
        }
        Ok(Synchronised::Done)
    }

    async fn synchronise_copies(
        &self,
        stripe: u64,
        columns: &Range<u64>,
        durability: Durability,
    ) -> Result<Synchronised, DeviceError> {
        let Ok(copies) = self.judged_copies(stripe, columns).await else {
            return Ok(Synchronised::Impossible);
        };
        let are_all_read = copies.iter().all(|(_, read)| read.is_some());
        if copies.is_empty() {
            return Ok(Synchronised::Impossible);
        }
        if !are_all_read && columns.end - columns.start > 1 {
            return Ok(Synchronised::Unreadable);
        }
        let Some(data) = self.chosen(&copies).map(Buffer::share) else {
            // Even if another copy becomes readable later, the first copy determines the content.
            for (copy, _) in &copies[1..] {
                let (member, extent) = self.place(stripe, *copy, columns);
                if !self.members.lose_all(member, extent) {
                    return Ok(Synchronised::Impossible);
                }
            }
            return Ok(Synchronised::Done);
        };
        let writes = copies
            .iter()
            .map(|(copy, _)| self.write_again(stripe, *copy, columns, data.clone(), durability));
        try_all(writes).await?;
        Ok(Synchronised::Done)
    }

    /// Writes columns of a strip whose member may already contain `data`. A hole that reads as zeros stays a
    /// hole.
    async fn write_again(
        &self,
        stripe: u64,
        strip: usize,
        columns: &Range<u64>,
        data: Slice,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let (index, extent) = self.place(stripe, strip, columns);
        if let Some(member) = self.members.holder(index, stripe)
            && data.iter().all(|byte| *byte == 0)
            && is_hole(&member, extent).await
        {
            self.clear_extent(index, extent, true, Cause::Rewrite)
                .await?;
            return match durability {
                Durability::Cached => Ok(()),
                Durability::Stable => self.members.flush_one(member).await,
            };
        }
        self.members
            .write(index, stripe, extent, data, durability, Cause::Rewrite)
            .await
    }

    /// Reads all copies on members that have the stripe. An unreadable copy is `None`.
    async fn judged_copies(
        &self,
        stripe: u64,
        columns: &Range<u64>,
    ) -> Result<Vec<(usize, Option<Judged>)>, DeviceError> {
        let held: Vec<usize> = (0..self.layout.strips())
            .filter(|copy| self.is_held(stripe, *copy))
            .collect();
        let results = all(held
            .iter()
            .map(|copy| self.judge_strip(stripe, *copy, columns)))
        .await;
        let mut copies = Vec::new();
        for (copy, result) in held.into_iter().zip(results) {
            match result {
                Ok(read) => copies.push((copy, Some(read))),
                Err(Unread::Lacking) => {}
                Err(Unread::Bad(DeviceError::Unreadable(_))) => copies.push((copy, None)),
                Err(Unread::Bad(error)) => return Err(error),
            }
        }
        Ok(copies)
    }

    /// Chooses for each block the first copy that matches its checksum, or the first copy if none does. The
    /// choice does not change until the block is written.
    fn chosen(&self, copies: &[(usize, Option<Judged>)]) -> Option<Buffer> {
        let block_bytes = self.bytes(1);
        let mut chosen: Option<Judged> = None;
        for (content, fits) in copies.iter().filter_map(|(_, read)| read.as_ref()) {
            let (best, best_fits) =
                chosen.get_or_insert_with(|| (Buffer::from(&content[..]), fits.clone()));
            let blocks = best
                .chunks_exact_mut(block_bytes)
                .zip(content.chunks_exact(block_bytes));
            for ((to, from), (is_right, fits)) in blocks.zip(best_fits.iter_mut().zip(fits)) {
                if *fits && !*is_right {
                    to.copy_from_slice(from);
                    *is_right = true;
                }
            }
        }
        chosen.map(|(data, _)| data)
    }

    /// Reads a stripe whose copies may differ but cannot be synchronised.
    pub(crate) async fn read_chosen(
        &self,
        stripe: u64,
        columns: &Range<u64>,
    ) -> Result<Buffer, DeviceError> {
        let copies = self.judged_copies(stripe, columns).await?;
        let (_, extent) = self.place(stripe, 0, columns);
        let error = if copies.is_empty() {
            DeviceError::NotReady
        } else {
            DeviceError::Unreadable(extent.lba)
        };
        self.chosen(&copies).ok_or(error)
    }

    /// Compares the strips of a stripe, and repairs them if requested.
    pub(crate) async fn scrub_step(
        self: Arc<Self>,
        stripe: u64,
        repairs: bool,
    ) -> Result<Scrubbed, DeviceError> {
        let _locked = self.lock_stripe(stripe).await;
        self.members.check_service()?;
        // Before repairs, synchronise the stripe: an unsynchronised stripe cannot be used for repairs.
        let repairs = repairs
            && (!self.is_unsynced(stripe) || self.synchronise(stripe, Durability::Cached).await?);
        let columns = 0..self.layout.strip_blocks();
        let count = self.layout.strips();
        let is_unsynced = self.is_unsynced(stripe);
        let results =
            all((0..count).map(|strip| self.read_to_compare(stripe, strip, is_unsynced))).await;
        if results
            .iter()
            .any(|result| matches!(result, Err(Unread::Lacking)))
        {
            return Ok(Scrubbed::Degraded);
        }
        let why = |(strip, result): (usize, &Result<_, Unread>)| match result {
            Err(Unread::Bad(error)) => Some((strip, *error)),
            Ok(_) | Err(Unread::Lacking) => None,
        };
        let bad: Vec<(usize, DeviceError)> = results.iter().enumerate().filter_map(why).collect();
        if !bad.is_empty() {
            let mut is_repaired = repairs;
            for (strip, why) in bad.into_iter().filter(|_| repairs) {
                let (content, lost) = self.salvage(stripe, strip, Some(why)).await?;
                let content = content.share();
                let mut from = columns.start;
                // Columns that are lost in too many strips stay lost. Compare the others.
                let end = columns.end..columns.end;
                for lost in lost.iter().chain([&end]) {
                    if let Some(data) = content.part(self.bytes(from)..self.bytes(lost.start))
                        && from < lost.start
                    {
                        match self.rewrite(stripe, strip, from, data).await {
                            // The list of lost blocks is full.
                            Err(DeviceError::NoSpace) => is_repaired = false,
                            result => result?,
                        }
                    }
                    from = lost.end;
                }
                is_repaired &= lost.is_empty();
            }
            return Ok(Scrubbed::Unreadable { is_repaired });
        }
        if results.iter().flatten().any(|(_, fits)| !fits) {
            // In an unsynchronised stripe, blocks and their checksums may have been written when the crash
            // occurred.
            return Ok(Scrubbed::Mismatch { is_repaired: false });
        }
        let strips: Vec<Buffer> = results
            .into_iter()
            .flatten()
            .map(|(content, _)| content)
            .collect();
        let wrong = if self.layout.has_parity() {
            self.wrong_strips(&strips)
        } else {
            wrong_copies(&strips)
        };
        if wrong.is_empty() {
            return Ok(Scrubbed::Right);
        }
        if repairs {
            for (strip, content) in wrong {
                self.rewrite(stripe, strip, 0, content.share()).await?;
            }
        }
        Ok(Scrubbed::Mismatch {
            is_repaired: repairs,
        })
    }

    /// Reads a strip, and returns whether all of its blocks match their checksums. In an unsynchronised
    /// stripe, the read succeeds even if blocks do not match.
    async fn read_to_compare(
        &self,
        stripe: u64,
        strip: usize,
        is_unsynced: bool,
    ) -> Result<(Buffer, bool), Unread> {
        let columns = 0..self.layout.strip_blocks();
        if !is_unsynced {
            return self
                .read_strip(stripe, strip, &columns)
                .await
                .map(|content| (content, true));
        }
        let (content, fits) = self.judge_strip(stripe, strip, &columns).await?;
        Ok((content, fits.into_iter().all(|fits| fits)))
    }

    /// Repairs a stripe of a set whose journal was discarded. In each column, blocks that are missing or do
    /// not match their checksum are reconstructed if possible. Otherwise, data blocks are accepted unchanged.
    /// Parity is also accepted unchanged if it represents missing blocks. Then parity is recomputed,
    /// including Q of a degraded RAID 6, and all checksums are updated. Columns with unreadable blocks are not
    /// accepted, because a crash does not cause medium errors.
    ///
    /// All blocks are written, even those that read as they should, as in [`Set::synchronise`].
    pub(crate) async fn accept_step(self: Arc<Self>, stripe: u64) -> Result<Scrubbed, DeviceError> {
        let found = Arc::clone(&self).scrub_step(stripe, true).await?;
        if !self.layout.has_parity() {
            return Ok(found);
        }
        let _locked = self.lock_stripe(stripe).await;
        self.members.check_service()?;
        let mut are_accepted = true;
        let whole = 0..self.layout.strip_blocks();
        let mut parts = vec![whole];
        while let Some(columns) = parts.pop() {
            match (
                self.accept_columns(stripe, &columns).await?,
                halves(&columns),
            ) {
                (Accepted::Yes, _) => {}
                (Accepted::Unreadable, Some([first, second])) => parts.extend([second, first]),
                (Accepted::Unreadable | Accepted::No, _) => are_accepted = false,
            }
        }
        Ok(match found {
            Scrubbed::Unreadable { .. } => Scrubbed::Unreadable {
                is_repaired: are_accepted,
            },
            found => found,
        })
    }

    async fn accept_columns(
        &self,
        stripe: u64,
        columns: &Range<u64>,
    ) -> Result<Accepted, DeviceError> {
        let mut strips: Vec<Option<Judged>> = Vec::new();
        let mut is_one_bad = false;
        for strip in 0..self.layout.strips() {
            match self.judge_strip(stripe, strip, columns).await {
                Ok(read) => strips.push(Some(read)),
                Err(Unread::Lacking) => strips.push(None),
                Err(Unread::Bad(DeviceError::Unreadable(_))) if columns.end - columns.start > 1 => {
                    return Ok(Accepted::Unreadable);
                }
                Err(Unread::Bad(DeviceError::Unreadable(_))) => {
                    is_one_bad = true;
                    strips.push(None);
                }
                Err(Unread::Bad(error)) => return Err(error),
            }
        }
        let is_accepted =
            !is_one_bad && accept(&mut strips, self.layout.data_strips(), self.bytes(1));
        let change = if !is_one_bad && self.are_holes(stripe, columns, &strips).await {
            Change::Clear {
                stripe,
                stripes: 1,
                members: (0..self.layout.members())
                    .filter(|member| self.members.holds(*member, stripe))
                    .collect(),
                may_unmap: true,
            }
        } else {
            let part = |(strip, read): (usize, Option<Judged>)| {
                let (content, fits) = read?;
                // A block that is not accepted may not match its checksum, which is not changed then.
                (is_accepted || fits.iter().all(|fits| *fits)).then(|| Part {
                    strip,
                    column: columns.start,
                    data: content.share(),
                })
            };
            let parts: Vec<Part> = strips.into_iter().enumerate().filter_map(part).collect();
            if parts.is_empty() {
                return Ok(Accepted::No);
            }
            let derived = self.derived(&parts);
            Change::Update {
                stripe,
                parts,
                derived,
            }
        };
        self.carry_out(change, Durability::Cached).await?;
        Ok(if is_accepted {
            Accepted::Yes
        } else {
            Accepted::No
        })
    }

    /// Whether the whole stripe reads as zeros and is deallocated.
    async fn are_holes(
        &self,
        stripe: u64,
        columns: &Range<u64>,
        strips: &[Option<Judged>],
    ) -> bool {
        let is_zero = |(content, _): &Judged| content.iter().all(|byte| *byte == 0);
        if columns.end - columns.start < self.layout.strip_blocks()
            || !strips.iter().flatten().all(is_zero)
        {
            return false;
        }
        for strip in 0..self.layout.strips() {
            let (index, extent) = self.place(stripe, strip, columns);
            if let Some(member) = self.members.holder(index, stripe)
                && !is_hole(&member, extent).await
            {
                return false;
            }
        }
        true
    }

    /// Rewrites a part of a strip. The rewrite is protected like any other write: if a strip were changed
    /// without the journal, the replay of an earlier record would make the stripe inconsistent again.
    async fn rewrite(
        &self,
        stripe: u64,
        strip: usize,
        column: u64,
        data: Slice,
    ) -> Result<(), DeviceError> {
        let parts = vec![Part {
            strip,
            column,
            data,
        }];
        self.carry_out(
            Change::Update {
                stripe,
                parts,
                derived: 0,
            },
            Durability::Cached,
        )
        .await
    }

    /// Returns the inconsistent strips of a stripe with parity, and their correct content. RAID 6 identifies
    /// a single wrong strip; otherwise the data is assumed to be right.
    fn wrong_strips(&self, strips: &[Buffer]) -> Vec<(usize, Buffer)> {
        let data = self.layout.data_strips();
        debug_assert_eq!(strips.len(), self.layout.strips(), "all strips were read");
        let length = strips.first().map_or(0, |strip| strip.len());
        let all: Vec<&[u8]> = strips[..data].iter().map(|strip| &strip[..]).collect();
        let parity = parity_of(&all, strips.len() - data, length);
        let mut differences = Vec::new();
        for (right, found) in parity.iter().zip(&strips[data..]) {
            let mut difference = Buffer::from(&right[..]);
            xor_into(&mut difference, found);
            differences.push(difference);
        }
        let is_zero = |difference: &Buffer| difference.iter().all(|byte| *byte == 0);
        if let [p, q] = &differences[..]
            && !is_zero(p)
            && !is_zero(q)
        {
            let mut effect = Buffer::recycled(length);
            for (strip, content) in strips[..data].iter().enumerate() {
                effect.fill(0);
                add_to_q(&mut effect, p, strip);
                if effect[..] == q[..] {
                    let mut right = Buffer::from(&content[..]);
                    xor_into(&mut right, p);
                    return vec![(strip, right)];
                }
            }
        }
        let wrong = parity
            .into_iter()
            .zip(&differences)
            .enumerate()
            .filter(|(_, (_, found))| !is_zero(found));
        wrong.map(|(at, (right, _))| (data + at, right)).collect()
    }
}

async fn is_hole(member: &Member, extent: Extent) -> bool {
    let runs = member.device.allocation(extent, 1).await;
    let is_hole =
        |run: &Run| run.allocation == Allocation::Deallocated && run.extent.end() >= extent.end();
    runs.is_ok_and(|runs| runs.first().is_some_and(is_hole))
}

/// Returns the copies that differ from the majority. Of two different copies, returns the second.
fn wrong_copies(copies: &[Buffer]) -> Vec<(usize, Buffer)> {
    let votes = |candidate: &Buffer| {
        copies
            .iter()
            .filter(|copy| copy[..] == candidate[..])
            .count()
    };
    // The first copy among those with the most votes.
    let right = copies.iter().rev().max_by_key(|copy| votes(copy));
    let Some(right) = right else {
        return Vec::new();
    };
    let wrong = copies
        .iter()
        .enumerate()
        .filter(|(_, copy)| copy[..] != right[..]);
    wrong
        .map(|(at, _)| (at, Buffer::from(&right[..])))
        .collect()
}

/// Makes the blocks of a stripe consistent in memory. Missing strips are `None`; for each block of the
/// others, a flag tells whether the block matches its checksum. If too many strips are missing, returns false
/// and changes nothing.
fn accept(strips: &mut [Option<Judged>], data: usize, block_bytes: usize) -> bool {
    let Some((_, fits)) = strips.iter().flatten().next() else {
        return false;
    };
    let columns = fits.len();
    let is_whole =
        |(content, fits): &Judged| fits.len() == columns && content.len() == columns * block_bytes;
    debug_assert!(
        strips.iter().flatten().all(is_whole),
        "whole blocks, of each of which it is known whether it fits"
    );
    let mut accepted: Vec<Vec<Buffer>> = Vec::new();
    for column in 0..columns {
        let bytes = column * block_bytes..(column + 1) * block_bytes;
        let block = |strip: &Option<Judged>, as_it_is: bool| {
            let (content, fits) = strip.as_ref()?;
            (as_it_is || fits[column]).then(|| Buffer::from(&content[bytes.clone()]))
        };
        let mut blocks: Vec<Option<Buffer>> =
            strips.iter().map(|strip| block(strip, false)).collect();
        if !recover(&mut blocks, data, block_bytes) {
            blocks = strips.iter().map(|strip| block(strip, true)).collect();
            if !recover(&mut blocks, data, block_bytes) {
                return false;
            }
        }
        let content: Vec<&[u8]> = blocks[..data].iter().filter_map(Option::as_deref).collect();
        let parity = parity_of(&content, strips.len() - data, block_bytes);
        blocks.truncate(data);
        accepted.push(blocks.into_iter().flatten().chain(parity).collect());
    }
    for (strip, held) in strips.iter_mut().enumerate() {
        let Some((content, _)) = held else {
            continue;
        };
        for (column, blocks) in accepted.iter().enumerate() {
            content[column * block_bytes..(column + 1) * block_bytes]
                .copy_from_slice(&blocks[strip]);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_majority_of_copies_is_right() {
        let copies: Vec<Buffer> = [1, 2, 2]
            .iter()
            .map(|byte| Buffer::from(&[*byte; 4][..]))
            .collect();
        let wrong = wrong_copies(&copies);
        assert_eq!((wrong.len(), wrong[0].0, wrong[0].1[0]), (1, 0, 2));
        let wrong = wrong_copies(&copies[..2]);
        assert_eq!((wrong.len(), wrong[0].0, wrong[0].1[0]), (1, 1, 1));
    }
}
