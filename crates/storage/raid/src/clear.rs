//! Unmap and write zeroes.

use std::ops::Range;
use std::sync::Arc;

use block::{Buffer, DeviceError, Durability, Extent};

use crate::MemberState;
use crate::journal::Change;
use crate::layout::Piece;
use crate::members::Member;
use crate::operations::{all, first_error};
use crate::set::{Protection, Set};

/// Stripes that are cleared by one operation.
const STRIPES_AT_ONCE: u64 = 1024;
/// Where a member knows no write of zeros, it is written so many bytes at a time.
const ZEROS_BYTES: u64 = 256 << 10;

impl Set {
    /// Makes blocks read as zeros; with `may_unmap` by deallocating them where that is possible.
    pub(crate) async fn clear(self: &Arc<Self>, extent: Extent, may_unmap: bool) -> Result<(), DeviceError> {
        self.check_write(extent, None)?;
        let stripe_blocks = self.layout.stripe_blocks();
        let end = extent.lba.0 + extent.blocks.0;
        let mut at = extent.lba.0;
        while at < end {
            let stripe = at / stripe_blocks;
            let whole = (end / stripe_blocks).saturating_sub(stripe);
            if at.is_multiple_of(stripe_blocks) && whole > 0 {
                let stripes = whole.min(STRIPES_AT_ONCE).min(self.rest_of_region(stripe));
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

    async fn clear_whole(&self, stripe: u64, stripes: u64, may_unmap: bool) -> Result<(), DeviceError> {
        let (first, blocks) = (self.layout.stripe_extent(stripe).lba, stripes * self.layout.stripe_blocks());
        let _locked = self.locks.exclude(Extent::new(first.0, blocks)).await;
        let (mut stripe, end) = (stripe, stripe + stripes);
        while stripe < end {
            // Up to where a member is rebuilt, all of these stripes have the same members.
            let states = self.members.states();
            let rebuilt = states.members.iter().filter_map(|state| match state {
                MemberState::Rebuilding { done } if *done > stripe => Some(*done),
                _ => None,
            });
            let stripes = rebuilt.fold(end, u64::min) - stripe;
            let holds = |member: &usize| states.members[*member].holds(stripe);
            let members = (0..self.layout.members()).filter(holds).collect();
            let change = Change::Clear { stripe, stripes, members, may_unmap };
            self.carry_out(change, Durability::Cached).await?;
            stripe += stripes;
        }
        Ok(())
    }

    /// Makes all strips that these members have of some stripes zeros, parity too: that of zeros is zero.
    pub(crate) async fn clear_stripes(
        &self,
        stripes: Range<u64>,
        members: &[usize],
        may_unmap: bool,
    ) -> Result<(), DeviceError> {
        let members = members.iter().map(|index| self.clear_of(*index, stripes.clone(), may_unmap));
        first_error(all(members).await).map(drop)
    }

    /// Clears what one member holds of some stripes.
    async fn clear_of(&self, index: usize, stripes: Range<u64>, may_unmap: bool) -> Result<(), DeviceError> {
        let mut run: Option<Extent> = None;
        for stripe in stripes {
            let Some(strip) = self.layout.strip_of(stripe, index) else { continue };
            if self.members.holder(index, stripe).is_none() {
                continue;
            }
            let (_, extent) = self.place(stripe, strip, &(0..self.layout.strip_blocks()));
            run = match run {
                Some(before) if before.end() == Some(extent.lba) => {
                    Some(Extent::new(before.lba.0, before.blocks.0 + extent.blocks.0))
                }
                // Strips of a member that follow each other lie beside each other, but for those it does not hold.
                Some(before) => {
                    self.clear_extent(index, before, may_unmap).await?;
                    Some(extent)
                }
                None => Some(extent),
            };
        }
        match run {
            Some(run) => self.clear_extent(index, run, may_unmap).await,
            None => Ok(()),
        }
    }

    async fn clear_extent(&self, index: usize, extent: Extent, may_unmap: bool) -> Result<(), DeviceError> {
        let Some(member) = self.members.present(index) else { return Ok(()) };
        self.members.check_ownership()?;
        let landing = self.members.landing();
        let result = zero(&member, extent, may_unmap).await;
        landing.end();
        match result {
            Ok(()) => {
                self.members.wrote(index, extent);
                Ok(())
            }
            Err(error) => self.members.write_failed(&member, error).await,
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
    /// Its columns, in blocks from the start of the strip.
    pub(crate) fn columns(&self) -> Range<u64> {
        self.column..self.column + self.blocks
    }
}
