//! Maintenance, a stripe at a time: rebuilding a member, synchronising what may differ after a crash, scrubbing.
//!
//! Each step excludes writes of its stripe and leaves the others alone. The caller decides how fast steps follow each
//! other.

use std::sync::Arc;

use block::{BlockDevice, Buffer, DeviceError, Durability, Permit, Slice};

use crate::journal::{Change, Part};
use crate::locks::Locked;
use crate::members::{Member, Unread};
use crate::operations::all;
use crate::parity::{add_to_q, xor_into};
use crate::plan::{Method, Plan, Stripe, parity_of, recover};
use crate::set::{Protection, Set};
use crate::{Layout, MemberState};

/// How far a rebuild or a synchronisation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Stripes that are done: of the set for a rebuild, of the region that may differ for a synchronisation.
    pub done: u64,
    /// Stripes in all.
    pub total: u64,
    /// Bytes that the step has read and written.
    pub moved_bytes: u64,
}

/// What a scrub has found in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrubbed {
    /// All strips can be read and fit each other.
    Right,
    /// A member lacks its strip: there is nothing to compare with.
    Degraded,
    /// Strips could not be read.
    Unreadable {
        /// They were written anew.
        is_repaired: bool,
    },
    /// The strips do not fit each other.
    Mismatch {
        /// They do now.
        is_repaired: bool,
    },
}

/// A rebuild records how far it is after so many bytes of a member, and at the latest after so many stripes.
const BYTES_PER_RECORD: u64 = 16 << 20;
const STRIPES_PER_RECORD: u64 = 256;

impl Set {
    async fn lock_stripe(&self, stripe: u64) -> (Permit, Locked) {
        let permit = self.permits.take().await;
        (permit, self.locks.exclude(self.layout.stripe_extent(stripe)).await)
    }

    fn strip_bytes(&self) -> u64 {
        self.bytes(self.layout.strip_blocks()) as u64
    }

    /// Rebuilds the next stripe of a member. `None` once it is in sync.
    pub(crate) async fn rebuild_step(self: Arc<Self>, index: usize) -> Result<Option<Progress>, DeviceError> {
        let total = self.members.layout().stripes();
        let member = self.members.present(index).ok_or(DeviceError::NotReady)?;
        let MemberState::Rebuilding { mut done } = self.members.states().members[index] else {
            return Ok(None);
        };
        let mut moved_bytes = 0;
        while done < total {
            let Some(strip) = self.layout.strip_of(done, index) else {
                done += 1; // of a stripe of which it has nothing
                continue;
            };
            let _locked = self.lock_stripe(done).await;
            self.members.check_service()?;
            let content = self.content_of(done, strip).await?;
            let (_, extent) = self.place(done, strip, &(0..self.layout.strip_blocks()));
            let landing = self.members.landing();
            let result = member.device.write(extent, content.share(), Durability::Cached).await;
            landing.end();
            if let Err(error) = result {
                self.members.write_failed(&member, error).await?;
                return Err(error);
            }
            moved_bytes = self.strip_bytes() * (self.layout.data_strips() as u64 + 1);
            done += 1;
            self.members.advance(&member, done);
            break;
        }
        self.record_progress(&member, done).await?;
        Ok(Some(Progress { done, total, moved_bytes }))
    }

    async fn record_progress(&self, member: &Member, done: u64) -> Result<(), DeviceError> {
        let total = self.members.layout().stripes();
        if done == total {
            self.members.advance(member, done);
            self.synchronise_again();
        }
        if done == total
            || done.is_multiple_of((BYTES_PER_RECORD / self.strip_bytes()).clamp(1, STRIPES_PER_RECORD))
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
        // What is rebuilt, synchronised or scrubbed knows how long the set is.
        let _alone = self.locks.exclude(self.whole()).await;
        self.members.check_service()?;
        if let Protection::Intent(intent) = &self.protection {
            intent.grow(layout.stripes())?;
        }
        self.members.grow(&layout, devices)
    }

    /// Ends the set; see [`RaidDevice::close`](crate::RaidDevice::close).
    pub(crate) async fn close(self: Arc<Self>) -> Result<(), DeviceError> {
        let _alone = self.locks.exclude(self.whole()).await;
        self.members.check_service()?;
        for member in self.members.all_present() {
            if matches!(self.members.states().members[member.index], MemberState::Rebuilding { .. }) {
                self.members.secure(&member).await?;
            }
        }
        match &self.protection {
            Protection::Journal(journal) => journal.empty(None).await?,
            Protection::Intent(intent) => {
                let ((begun, _), flush) = (intent.activity(), intent.flush_begins());
                self.members.flush().await?;
                intent.settled(begun, flush).await;
            }
            Protection::Nothing => self.members.flush().await?,
        }
        self.members.leave_service();
        Ok(())
    }

    /// What a strip must have in it, by the others.
    async fn content_of(&self, stripe: u64, strip: usize) -> Result<Buffer, DeviceError> {
        let columns = 0..self.layout.strip_blocks();
        if self.has_sums && self.is_unsynced(stripe) {
            return self.chosen_copies(stripe, &columns).await;
        }
        if !self.layout.has_parity() {
            let mut others = vec![strip];
            let mut error = DeviceError::NotReady;
            while let Some(copy) = self.fastest_copy(stripe, &others) {
                match self.read_strip(stripe, copy, &columns).await {
                    Ok(content) => return Ok(content),
                    Err(Unread::Lacking) => {}
                    Err(Unread::Bad(why)) => {
                        error = why;
                        others.push(copy);
                    }
                }
            }
            return Err(error);
        }
        let data = self.layout.data_strips();
        let plan =
            |stripe: &Stripe| stripe.recovery().map(|reads| Plan { method: Method::Reconstruct, reads });
        let mut gathered = self.gather(stripe, &columns, vec![strip], plan).await?;
        let length = self.bytes(self.layout.strip_blocks());
        recover(&mut gathered.strips, data, length);
        if strip < data {
            return gathered.strips[strip].take().ok_or(DeviceError::NotReady);
        }
        let all: Vec<&[u8]> = gathered.strips[..data].iter().filter_map(Option::as_deref).collect();
        let parity = parity_of(&all, self.layout.level().parity_strips(), length);
        parity.into_iter().nth(strip - data).ok_or(DeviceError::NotReady)
    }

    /// Regions with a stripe that could not be synchronised are looked at once more.
    pub(crate) fn synchronise_again(&self) {
        if let Protection::Intent(intent) = &self.protection {
            intent.try_again();
        }
    }

    /// Synchronises the first region that may differ since before the assembly. `None` once there is none.
    pub(crate) async fn synchronise_step(
        self: Arc<Self>,
        done: u64,
    ) -> Result<Option<Progress>, DeviceError> {
        let Protection::Intent(intent) = &self.protection else { return Ok(None) };
        let Some(stripes) = intent.first_unsynced() else { return Ok(None) };
        let total = stripes.end - stripes.start;
        let stripe = stripes.start + done.min(total - 1);
        let is_done = {
            let _locked = self.lock_stripe(stripe).await;
            self.members.check_service()?;
            self.synchronise(stripe).await?
        };
        if !is_done {
            // What is behind it in its region would not help that.
            intent.set_aside(stripes.start);
        }
        let done = if is_done { (done + 1).min(total) } else { total };
        if is_done && done == total {
            self.members.flush().await?;
            intent.synchronised(stripes.start);
        }
        let moved_bytes = self.strip_bytes() * self.layout.strips() as u64;
        Ok(Some(Progress { done, total, moved_bytes }))
    }

    /// Makes the copies of a stripe equal, or its parity fit its data; false if that cannot be. The caller has locked it.
    pub(crate) async fn synchronise(&self, stripe: u64) -> Result<bool, DeviceError> {
        let columns = 0..self.layout.strip_blocks();
        let parts: Vec<(usize, Slice)> = if self.layout.has_parity() {
            let data = self.layout.data_strips();
            let plan = |stripe: &Stripe| {
                // What lacks cannot be recovered by parity that may be wrong.
                let reads = (0..data).collect::<Vec<_>>();
                let is_whole = reads.iter().all(|strip| stripe.readable[*strip]);
                is_whole.then_some(Plan { method: Method::Reconstruct, reads })
            };
            let Ok(gathered) = self.gather(stripe, &columns, Vec::new(), plan).await else {
                return Ok(false);
            };
            let all: Vec<&[u8]> = gathered.strips[..data].iter().filter_map(Option::as_deref).collect();
            let length = self.bytes(self.layout.strip_blocks());
            let parity = parity_of(&all, self.layout.level().parity_strips(), length);
            parity.into_iter().enumerate().map(|(at, parity)| (data + at, parity.share())).collect()
        } else if self.has_sums {
            // All of them: a block that is right may have a checksum that is not.
            let Ok(data) = self.chosen_copies(stripe, &columns).await.map(Buffer::share) else {
                return Ok(false);
            };
            (0..self.layout.strips()).map(|copy| (copy, data.clone())).collect()
        } else {
            let mut bad = Vec::new();
            let (copy, data) = loop {
                let Some(copy) =
                    (0..self.layout.strips()).find(|copy| !bad.contains(copy) && self.is_held(stripe, *copy))
                else {
                    return Ok(false);
                };
                match self.read_strip(stripe, copy, &columns).await {
                    Ok(data) => break (copy, data.share()),
                    Err(_) => bad.push(copy),
                }
            };
            (0..self.layout.strips())
                .filter(|other| *other != copy)
                .map(|other| (other, data.clone()))
                .collect()
        };
        for (strip, data) in parts {
            let (member, extent) = self.place(stripe, strip, &columns);
            self.members.write(member, stripe, extent, data, Durability::Cached).await?;
        }
        self.members.recorded().await?;
        Ok(true)
    }

    /// Compares the strips of a stripe.
    pub(crate) async fn scrub_step(
        self: Arc<Self>,
        stripe: u64,
        repairs: bool,
    ) -> Result<Scrubbed, DeviceError> {
        let _locked = self.lock_stripe(stripe).await;
        self.members.check_service()?;
        // What does not fit yet repairs nothing.
        let repairs = repairs && (!self.is_unsynced(stripe) || self.synchronise(stripe).await?);
        let columns = 0..self.layout.strip_blocks();
        let count = self.layout.strips();
        let results = all((0..count).map(|strip| self.read_strip(stripe, strip, &columns))).await;
        if results.iter().any(|result| matches!(result, Err(Unread::Lacking))) {
            return Ok(Scrubbed::Degraded);
        }
        let bad: Vec<usize> = (0..count).filter(|strip| results[*strip].is_err()).collect();
        if !bad.is_empty() {
            let mut is_repaired = repairs;
            for strip in bad.into_iter().filter(|_| repairs) {
                match self.content_of(stripe, strip).await {
                    Ok(content) => self.rewrite(stripe, strip, content.share()).await?,
                    // Too many strips of it: the stripe is lost, and the others are looked at.
                    Err(DeviceError::Unreadable(_)) => is_repaired = false,
                    Err(error) => return Err(error),
                }
            }
            return Ok(Scrubbed::Unreadable { is_repaired });
        }
        let strips: Vec<Buffer> = results.into_iter().flatten().collect();
        let wrong = if self.layout.has_parity() { self.wrong_strips(&strips) } else { wrong_copies(&strips) };
        if wrong.is_empty() {
            return Ok(Scrubbed::Right);
        }
        if repairs {
            for (strip, content) in wrong {
                self.rewrite(stripe, strip, content.share()).await?;
            }
        }
        Ok(Scrubbed::Mismatch { is_repaired: repairs })
    }

    /// Repairs a stripe of a set whose journal was discarded, with the data as they are where nothing tells what they were:
    /// of each column, what lacks or does not fit its checksum is recovered if it can be; otherwise data blocks are taken as they are, and
    /// so is parity for those that lack. Parity is made to fit, Q of a degraded RAID 6 too, and all that is held has its checksum then.
    pub(crate) async fn accept_step(self: Arc<Self>, stripe: u64) -> Result<Scrubbed, DeviceError> {
        let found = Arc::clone(&self).scrub_step(stripe, true).await?;
        let is_left = matches!(found, Scrubbed::Degraded | Scrubbed::Unreadable { is_repaired: false });
        if !is_left || !self.layout.has_parity() {
            return Ok(found);
        }
        let _locked = self.lock_stripe(stripe).await;
        let columns = 0..self.layout.strip_blocks();
        let mut strips: Vec<Option<(Buffer, Vec<bool>)>> = Vec::new();
        for strip in 0..self.layout.strips() {
            let (member, extent) = self.place(stripe, strip, &columns);
            let buffer = Buffer::recycled(self.bytes(extent.blocks.0));
            match self.members.read_and_judge(member, stripe, extent, buffer).await {
                Ok(read) => strips.push(Some(read)),
                Err(Unread::Lacking) => strips.push(None),
                // A medium error is none that a crash has left.
                Err(Unread::Bad(DeviceError::Unreadable(_))) => return Ok(found),
                Err(Unread::Bad(error)) => return Err(error),
            }
        }
        let is_changed = accept(&mut strips, self.layout.data_strips(), self.bytes(1));
        let Some(is_changed) = is_changed else { return Ok(found) };
        for (strip, (content, is_changed)) in strips.into_iter().zip(is_changed).enumerate() {
            if let (Some((content, _)), true) = (content, is_changed) {
                self.rewrite(stripe, strip, content.share()).await?;
            }
        }
        Ok(if found == Scrubbed::Degraded { found } else { Scrubbed::Unreadable { is_repaired: true } })
    }

    /// Protected as any write: a record of before, replayed over a strip that was changed beside the journal, would make
    /// the stripe unfit again.
    async fn rewrite(&self, stripe: u64, strip: usize, data: Slice) -> Result<(), DeviceError> {
        let parts = vec![Part { strip, column: 0, data }];
        self.carry_out(Change::Update { stripe, parts, derived: 0 }, Durability::Cached).await
    }

    /// The strips of a stripe with parity that do not fit, with what they should have in them. RAID 6 finds the one
    /// strip that is wrong; otherwise the data are taken to be right.
    fn wrong_strips(&self, strips: &[Buffer]) -> Vec<(usize, Buffer)> {
        let data = self.layout.data_strips();
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
        let wrong =
            parity.into_iter().zip(&differences).enumerate().filter(|(_, (_, found))| !is_zero(found));
        wrong.map(|(at, (right, _))| (data + at, right)).collect()
    }
}

/// The copies that differ from what most have; of two, the second.
fn wrong_copies(copies: &[Buffer]) -> Vec<(usize, Buffer)> {
    let votes = |candidate: &Buffer| copies.iter().filter(|copy| copy[..] == candidate[..]).count();
    // The first of those with most votes.
    let right = copies.iter().rev().max_by_key(|copy| votes(copy));
    let Some(right) = right else { return Vec::new() };
    let wrong = copies.iter().enumerate().filter(|(_, copy)| copy[..] != right[..]);
    wrong.map(|(at, _)| (at, Buffer::from(&right[..]))).collect()
}

/// Makes the blocks of a stripe fit each other; those that lack are `None`, and of each block it is known whether it fits its checksum. Returns which
/// strips are to be written; `None`, with nothing changed, if too much lacks. Pure.
fn accept(strips: &mut [Option<(Buffer, Vec<bool>)>], data: usize, block_bytes: usize) -> Option<Vec<bool>> {
    let columns = strips.iter().flatten().next()?.1.len();
    let mut is_changed = vec![false; strips.len()];
    let mut accepted: Vec<Vec<Buffer>> = Vec::new();
    for column in 0..columns {
        let bytes = column * block_bytes..(column + 1) * block_bytes;
        let block = |strip: &Option<(Buffer, Vec<bool>)>, as_it_is: bool| {
            let (content, fits) = strip.as_ref()?;
            (as_it_is || fits[column]).then(|| Buffer::from(&content[bytes.clone()]))
        };
        let mut blocks: Vec<Option<Buffer>> = strips.iter().map(|strip| block(strip, false)).collect();
        if !recover(&mut blocks, data, block_bytes) {
            blocks = strips.iter().map(|strip| block(strip, true)).collect();
            if !recover(&mut blocks, data, block_bytes) {
                return None;
            }
        }
        let content: Vec<&[u8]> = blocks[..data].iter().filter_map(Option::as_deref).collect();
        let parity = parity_of(&content, strips.len() - data, block_bytes);
        blocks.truncate(data);
        accepted.push(blocks.into_iter().flatten().chain(parity).collect());
    }
    for (strip, held) in strips.iter_mut().enumerate() {
        let Some((content, fits)) = held else { continue };
        for (column, blocks) in accepted.iter().enumerate() {
            let old = &mut content[column * block_bytes..(column + 1) * block_bytes];
            is_changed[strip] |= !fits[column] || *old != blocks[strip][..];
            old.copy_from_slice(&blocks[strip]);
        }
    }
    Some(is_changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_majority_of_copies_is_right() {
        let copies: Vec<Buffer> = [1, 2, 2].iter().map(|byte| Buffer::from(&[*byte; 4][..])).collect();
        let wrong = wrong_copies(&copies);
        assert_eq!((wrong.len(), wrong[0].0, wrong[0].1[0]), (1, 0, 2));
        let wrong = wrong_copies(&copies[..2]);
        assert_eq!((wrong.len(), wrong[0].0, wrong[0].1[0]), (1, 1, 1));
    }
}
