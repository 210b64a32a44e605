//! Writes to a set, and zeroing and unmapping its blocks.

use std::ops::Range;
use std::sync::Arc;

use block::{Buffer, DeviceError, Durability, Extent, Slice};

use crate::concurrency::{try_all, windows};
use crate::journal::record::{Change, Part};
use crate::layout::Piece;
use crate::member::MemberState;
use crate::members::{Cause, Member};
use crate::merge::{Batch, StripeWrite};
use crate::plan::{Method, Segment, Stripe, modify_parity, parity_of, recover, segments};
use crate::set::{Protection, Set, halves};

/// Maximum number of stripes (without parity: strips) of one request that are written concurrently.
const AT_ONCE: usize = 16;

impl Set {
    pub(crate) async fn write(
        self: &Arc<Self>,
        extent: Extent,
        data: Slice,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        self.check_write(extent, Some(data.len()))?;
        if self.layout.has_parity() {
            let writes = self.stripe_writes(extent, &data);
            let runs = writes.into_iter().map(|write| {
                let set = Arc::clone(self);
                self.operations
                    .run(async move { set.write_stripe(write, durability).await })
            });
            return windows(runs, AT_ONCE).await;
        }
        let runs = self.layout.pieces(extent).filter_map(|piece| {
            let start = self.bytes(piece.offset);
            let data = data.part(start..start + self.bytes(piece.blocks))?;
            let set = Arc::clone(self);
            Some(
                self.operations
                    .run(async move { set.write_copies(piece, data, durability).await }),
            )
        });
        windows(runs, AT_ONCE).await
    }

    fn stripe_writes(&self, extent: Extent, data: &Slice) -> Vec<StripeWrite> {
        let stripe_blocks = self.layout.stripe_blocks();
        let end = extent.lba.0 + extent.blocks.0;
        let stripes = extent.lba.0 / stripe_blocks..end.div_ceil(stripe_blocks);
        let write = |stripe: u64| {
            let start = stripe * stripe_blocks;
            let (from, to) = (extent.lba.0.max(start), end.min(start + stripe_blocks));
            let data = data.part(self.bytes(from - extent.lba.0)..self.bytes(to - extent.lba.0))?;
            Some(StripeWrite {
                stripe,
                blocks: from - start..to - start,
                data,
            })
        };
        stripes.filter_map(write).collect()
    }

    async fn write_copies(
        &self,
        piece: Piece,
        data: Slice,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let start = self.layout.stripe_extent(piece.stripe).lba.0;
        let _locked = self
            .locks
            .exclude(Extent::new(start + piece.column, piece.blocks))
            .await;
        let copies = 0..self.layout.strips();
        let parts: Vec<Part> = copies
            .filter(|copy| self.is_held(piece.stripe, *copy))
            .map(|strip| Part {
                strip,
                column: piece.column,
                data: data.clone(),
            })
            .collect();
        if parts.is_empty() {
            return Err(DeviceError::NotReady);
        }
        self.carry_out(
            Change::Update {
                stripe: piece.stripe,
                parts,
                derived: 0,
            },
            durability,
        )
        .await
    }

    async fn write_stripe(
        &self,
        write: StripeWrite,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let stripe = write.stripe;
        let waiting = self.waiting_writes.add(write, durability);
        let _permit = self.permits.take().await;
        let _locked = self.locks.exclude(self.layout.stripe_extent(stripe)).await;
        let batch = match waiting.take(self.bytes(1)) {
            Ok(batch) => batch,
            Err(result) => return result,
        };
        let result = self.write_batch(stripe, &batch).await;
        batch.end(result);
        result
    }

    async fn write_batch(&self, stripe: u64, batch: &Batch) -> Result<(), DeviceError> {
        let are_apart = |pair: &[StripeWrite]| pair[0].blocks.end < pair[1].blocks.start;
        debug_assert!(
            batch.writes.windows(2).all(are_apart),
            "no block is written twice"
        );
        debug_assert!(batch.writes.iter().all(|write| write.stripe == stripe));
        let mut parts: Vec<Part> = batch
            .writes
            .iter()
            .flat_map(|write| self.data_parts(write))
            .collect();
        let blocks: Vec<Range<u64>> = batch
            .writes
            .iter()
            .map(|write| write.blocks.clone())
            .collect();
        for segment in segments(
            &blocks,
            self.layout.strip_blocks(),
            self.layout.data_strips(),
        ) {
            match self.parity_parts(stripe, &batch.writes, &segment).await {
                Ok(parity) => parts.extend(parity),
                Err(DeviceError::Unreadable(_)) => {
                    parts.extend(
                        self.parity_beside_lost(stripe, &batch.writes, segment)
                            .await?,
                    );
                }
                Err(error) => return Err(error),
            }
        }
        parts.retain(|part| self.is_held(stripe, part.strip));
        let derived = self.derived(&parts);
        self.carry_out(
            Change::Update {
                stripe,
                parts,
                derived,
            },
            batch.durability,
        )
        .await
    }

    /// Protects a change, and applies it to the members. The caller must have locked its blocks.
    pub(crate) async fn carry_out(
        &self,
        change: Change,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        debug_assert!(
            *change.stripes().end() < self.members.layout().stripes(),
            "a change of the set"
        );
        // Wait until failures are recorded: if the change omits a strip because its member has failed, the
        // member must not count as in sync when the change is replayed.
        self.members.recorded().await?;
        let change = Arc::new(change);
        let protected = self.protect(&change).await?;
        let durability = match self.protection {
            // The write is already durable in the journal.
            Protection::Journal(_) => Durability::Cached,
            Protection::Intent(_) | Protection::Nothing => durability,
        };
        self.apply(&change, durability).await?;
        self.members.recorded().await?;
        protected.finish();
        self.members.settle_healed().await?;
        // Blocks that stay on the list because it is full, or because another call could not flush them, must be
        // readable from the other members.
        if !self.members.has_lost() || self.can_be_read(&change) {
            Ok(())
        } else if self.members.is_lost_list_full() {
            Err(DeviceError::NoSpace)
        } else {
            let first = self.layout.stripe_extent(*change.stripes().start());
            Err(DeviceError::Unwritable(first.lba))
        }
    }

    /// Whether the blocks of a change are readable, directly or by reconstruction. If the list of lost blocks
    /// is full, written blocks may remain on it.
    fn can_be_read(&self, change: &Change) -> bool {
        let lost = |stripe: u64, strip: usize, columns: &Range<u64>| {
            let (member, extent) = self.place(stripe, strip, columns);
            self.members.lost_of(member, extent).is_some()
        };
        // Check each block separately, because members may have lost blocks in different columns.
        let is_told = |stripe: u64, mut columns: Range<u64>| {
            columns.all(|column| {
                let column = column..column + 1;
                let lacks =
                    |strip: &usize| !self.is_held(stripe, *strip) || lost(stripe, *strip, &column);
                let lacking = (0..self.layout.strips()).filter(lacks).count();
                lacking <= self.layout.strips() - self.layout.data_strips()
            })
        };
        match change {
            Change::Update { stripe, parts, .. } => parts.iter().all(|part| {
                let blocks = part.data.len() as u64 >> self.geometry.block_size.shift();
                let columns = part.column..part.column + blocks;
                !self.is_held(*stripe, part.strip)
                    || !lost(*stripe, part.strip, &columns)
                    || is_told(*stripe, columns)
            }),
            Change::Clear {
                stripe,
                stripes,
                members,
                ..
            } => {
                let whole = 0..self.layout.strip_blocks();
                let is_lost = |index: &usize| {
                    let mut strips = (*stripe..stripe + stripes)
                        .filter_map(|stripe| Some((stripe, self.layout.strip_of(stripe, *index)?)))
                        .map(|(stripe, strip)| self.place(stripe, strip, &whole).1);
                    let Some(first) = strips.next() else {
                        return false;
                    };
                    let last = strips.next_back().unwrap_or(first);
                    let between =
                        Extent::new(first.lba.0, last.lba.0 + last.blocks.0 - first.lba.0);
                    self.members.lost_of(*index, between).is_some()
                };
                let is_right = |stripe: u64| {
                    let mut held =
                        (0..self.layout.strips()).filter(|strip| self.is_held(stripe, *strip));
                    !held.any(|strip| lost(stripe, strip, &whole)) || is_told(stripe, whole.clone())
                };
                !members.iter().any(is_lost) || (*stripe..stripe + stripes).all(is_right)
            }
        }
    }

    pub(crate) async fn apply(
        &self,
        change: &Change,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        match change {
            Change::Update { stripe, parts, .. } => {
                self.write_parts(*stripe, parts, durability).await
            }
            Change::Clear {
                stripe,
                stripes,
                members,
                may_unmap,
            } => {
                self.clear_stripes(*stripe..stripe + stripes, members, *may_unmap)
                    .await
            }
        }
    }

    fn data_parts(&self, write: &StripeWrite) -> Vec<Part> {
        let extent = Extent::new(write.blocks.start, write.blocks.end - write.blocks.start);
        // Compute the pieces for the first stripe; in other stripes, they are the same.
        let pieces = self.layout.pieces(extent);
        let part = |piece: Piece| {
            let start = self.bytes(piece.offset);
            let data = write.data.part(start..start + self.bytes(piece.blocks))?;
            Some(Part {
                strip: piece.strip,
                column: piece.column,
                data,
            })
        };
        pieces.filter_map(part).collect()
    }

    /// Returns the new parity of a segment in which too many blocks are unreadable, for the columns in which
    /// it can be computed. In the other columns, parity becomes lost too, until the unreadable blocks are
    /// written. The blocks that this write covers are intact afterwards.
    async fn parity_beside_lost(
        &self,
        stripe: u64,
        writes: &[StripeWrite],
        segment: Segment,
    ) -> Result<Vec<Part>, DeviceError> {
        // Data of a missing member exists only in parity, so parity must not become lost.
        let has_places = segment
            .written
            .iter()
            .all(|strip| self.is_held(stripe, *strip));
        let (mut parts, mut lost) = (Vec::new(), Vec::new());
        let mut segments = vec![segment];
        while let Some(segment) = segments.pop() {
            match self.parity_parts(stripe, writes, &segment).await {
                Ok(parity) => parts.extend(parity),
                Err(error @ DeviceError::Unreadable(_)) => match halves(&segment.columns) {
                    Some(halves) => {
                        segments.extend(halves.map(|columns| Segment {
                            columns,
                            ..segment.clone()
                        }));
                    }
                    None if has_places => lost.push(segment.columns),
                    None => return Err(error),
                },
                Err(error) => return Err(error),
            }
        }
        self.lose_parity(stripe, &lost).await?;
        Ok(parts)
    }

    /// Records the parity of these columns as lost, and resolves once the record is on stable storage.
    pub(crate) async fn lose_parity(
        &self,
        stripe: u64,
        columns: &[Range<u64>],
    ) -> Result<(), DeviceError> {
        debug_assert!(self.layout.has_parity());
        let parity = self.layout.data_strips()..self.layout.strips();
        let mut lost: Vec<(usize, Extent)> = Vec::new();
        for strip in parity.filter(|strip| self.is_held(stripe, *strip)) {
            for part in columns {
                let (member, extent) = self.place(stripe, strip, part);
                if self.members.lost_of(member, extent).is_none() {
                    lost.push((member, extent));
                }
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        // Empty the journal first: if an earlier record with this parity were replayed after a crash, the
        // replay would remove the parity from the list.
        if let Protection::Journal(journal) = &self.protection {
            journal.empty(None).await?;
        }
        for (member, extent) in lost {
            if !self.members.lose_all(member, extent) {
                return Err(DeviceError::Unreadable(extent.lba));
            }
        }
        self.members.recorded().await
    }

    /// Returns the new parity of a segment.
    async fn parity_parts(
        &self,
        stripe: u64,
        writes: &[StripeWrite],
        segment: &Segment,
    ) -> Result<Vec<Part>, DeviceError> {
        let Segment { columns, written } = segment;
        let data_strips = self.layout.data_strips();
        let length = self.bytes(columns.end - columns.start);
        debug_assert!(length > 0 && columns.end <= self.layout.strip_blocks());
        let new = |strip: usize| {
            let block = strip as u64 * self.layout.strip_blocks() + columns.start;
            let write = writes.iter().find(|write| write.blocks.contains(&block))?;
            let start = self.bytes(block - write.blocks.start);
            write.data.get(start..start + length)
        };
        let parity_is_right = !self.is_unsynced(stripe);
        let plan = |stripe: &Stripe| stripe.write(written, parity_is_right);
        let gathered = self.gather(stripe, columns, Vec::new(), None, plan).await?;
        let (method, mut strips) = (gathered.plan.method, gathered.strips);
        let parity: Vec<Option<Buffer>> = match method {
            Method::Modify => {
                let mut parity = strips.split_off(data_strips);
                for strip in written {
                    if let (Some(old), Some(new)) = (strips[*strip].take(), new(*strip)) {
                        modify_parity(&mut parity, *strip, old, new);
                    }
                }
                parity
            }
            Method::Reconstruct => {
                let is_kept = |strip: &usize| !written.contains(strip);
                let lacks = (0..data_strips)
                    .filter(is_kept)
                    .any(|strip| strips[strip].is_none());
                if lacks && !recover(&mut strips, data_strips, length) {
                    return Err(DeviceError::NotReady);
                }
                let data: Vec<&[u8]> = (0..data_strips)
                    .filter_map(|strip| match written.contains(&strip) {
                        true => new(strip),
                        false => strips[strip].as_deref(),
                    })
                    .collect();
                let parity = self.layout.level().parity_strips();
                parity_of(&data, parity, length)
                    .into_iter()
                    .map(Some)
                    .collect()
            }
        };
        let parts = parity.into_iter().enumerate().filter_map(|(at, parity)| {
            Some(Part {
                strip: data_strips + at,
                column: columns.start,
                data: parity?.share(),
            })
        });
        Ok(parts.collect())
    }
}

/// Maximum number of stripes that one operation clears.
const STRIPES_AT_ONCE: u64 = 1024;
/// Number of bytes per write of zeros to a member that does not support zeroing.
const ZEROS_BYTES: u64 = 256 << 10;

impl Set {
    /// Makes blocks read as zeros. With `may_unmap`, deallocates them where possible.
    pub(crate) async fn clear(
        self: &Arc<Self>,
        extent: Extent,
        may_unmap: bool,
    ) -> Result<(), DeviceError> {
        self.check_write(extent, None)?;
        let stripe_blocks = self.layout.stripe_blocks();
        let end = extent.lba.0 + extent.blocks.0;
        let mut at = extent.lba.0;
        while at < end {
            let stripe = at / stripe_blocks;
            let whole = (end / stripe_blocks).saturating_sub(stripe);
            if at.is_multiple_of(stripe_blocks) && whole > 0 {
                let stripes = whole.min(STRIPES_AT_ONCE).min(self.rest_of_region(stripe));
                debug_assert!(stripes > 0);
                let set = Arc::clone(self);
                let run = async move { set.clear_whole(stripe, stripes, may_unmap).await };
                self.operations.run(run).await?;
                at += stripes * stripe_blocks;
            } else {
                let part = Extent::new(at, end.min((stripe + 1) * stripe_blocks) - at);
                let zeros = Buffer::zeroed(self.bytes(part.blocks.0)).share();
                self.write(part, zeros, Durability::Cached).await?;
                at += part.blocks.0;
            }
        }
        Ok(())
    }

    fn rest_of_region(&self, stripe: u64) -> u64 {
        match &self.protection {
            Protection::Intent(intent) => intent.rest_of_region(stripe),
            Protection::Journal(_) | Protection::Nothing => u64::MAX,
        }
    }

    async fn clear_whole(
        &self,
        stripe: u64,
        stripes: u64,
        may_unmap: bool,
    ) -> Result<(), DeviceError> {
        let (first, blocks) = (
            self.layout.stripe_extent(stripe).lba,
            stripes * self.layout.stripe_blocks(),
        );
        let _locked = self.locks.exclude(Extent::new(first.0, blocks)).await;
        let (mut stripe, end) = (stripe, stripe + stripes);
        while stripe < end {
            // Stop at the progress of a rebuild, so that all stripes of an operation have the same members.
            let states = self.members.states();
            let rebuilt = states.members.iter().filter_map(|state| match state {
                MemberState::Rebuilding { done } if *done > stripe => Some(*done),
                _ => None,
            });
            let stripes = rebuilt.fold(end, u64::min) - stripe;
            debug_assert!(stripes > 0 && stripe + stripes <= end);
            let holds = |member: &usize| states.members[*member].holds(stripe);
            let members = (0..self.layout.members()).filter(holds).collect();
            let change = Change::Clear {
                stripe,
                stripes,
                members,
                may_unmap,
            };
            self.carry_out(change, Durability::Cached).await?;
            stripe += stripes;
        }
        Ok(())
    }

    /// Zeroes all strips of these members in some stripes, including parity, because the parity of zeros is
    /// zero.
    pub(crate) async fn clear_stripes(
        &self,
        stripes: Range<u64>,
        members: &[usize],
        may_unmap: bool,
    ) -> Result<(), DeviceError> {
        let members = members
            .iter()
            .map(|index| self.clear_of(*index, stripes.clone(), may_unmap));
        try_all(members).await.map(drop)
    }

    /// Clears one member's strips in some stripes.
    async fn clear_of(
        &self,
        index: usize,
        stripes: Range<u64>,
        may_unmap: bool,
    ) -> Result<(), DeviceError> {
        let mut run: Option<Extent> = None;
        for stripe in stripes {
            let Some(strip) = self.layout.strip_of(stripe, index) else {
                continue;
            };
            if self.members.holder(index, stripe).is_none() {
                continue;
            }
            let (_, extent) = self.place(stripe, strip, &(0..self.layout.strip_blocks()));
            run = match run {
                Some(before) if before.end() == Some(extent.lba) => {
                    Some(Extent::new(before.lba.0, before.blocks.0 + extent.blocks.0))
                }
                // Consecutive strips of a member are adjacent, unless the member has no strip in some of the
                // stripes.
                Some(before) => {
                    self.clear_extent(index, before, may_unmap, Cause::Write)
                        .await?;
                    Some(extent)
                }
                None => Some(extent),
            };
        }
        match run {
            Some(run) => self.clear_extent(index, run, may_unmap, Cause::Write).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn clear_extent(
        &self,
        index: usize,
        extent: Extent,
        may_unmap: bool,
        cause: fn(DeviceError) -> Cause,
    ) -> Result<(), DeviceError> {
        let Some(member) = self.members.present(index) else {
            return Ok(());
        };
        self.members.check_ownership()?;
        let before = member.before_write();
        let result = self.members.land(zero(&member, extent, may_unmap)).await;
        match result {
            Ok(()) => {
                self.members.wrote(&member, before, extent);
                Ok(())
            }
            Err(error) => self.members.fail(&member, cause(error)).await,
        }
    }
}

async fn zero(member: &Member, extent: Extent, may_unmap: bool) -> Result<(), DeviceError> {
    let device = &member.device;
    let result = match may_unmap && device.profile().thin {
        true => device.unmap(extent).await,
        false => device.write_zeroes(extent, may_unmap).await,
    };
    if result != Err(DeviceError::Unsupported) {
        return result;
    }
    let shift = device.geometry().block_size.shift();
    for part in extent.chunks(ZEROS_BYTES >> shift) {
        let zeros = Buffer::zeroed((part.blocks.0 << shift) as usize).share();
        device.write(part, zeros, Durability::Cached).await?;
    }
    Ok(())
}

impl Piece {
    /// Returns the part's columns, in blocks from the start of the strip.
    pub(crate) fn columns(&self) -> Range<u64> {
        self.column..self.column + self.blocks
    }
}
