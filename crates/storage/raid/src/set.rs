//! The state that all requests to a set share, and access to the strips of a stripe.

use std::ops::Range;
use std::sync::Arc;

use block::{
    BlockDevice, Buffer, DeviceError, Durability, Extent, Geometry, Lba, Operations, Permits,
    Profile, Slice,
};

use crate::area::{Area, AreaCopy};
use crate::concurrency::{ExtentLocks, all, try_all};
use crate::intent::{Intent, Marked};
use crate::journal::record::{Change, Part};
use crate::journal::{Journal, Recorded};
use crate::layout::Layout;
use crate::member::MemberDevice;
use crate::members::{Cause, Members, Unread, Vacancy};
use crate::merge::WaitingWrites;
use crate::plan::{Plan, Stripe, parity_of};

/// Number of blocks of a new area that one write erases.
const ERASED_BLOCKS: u64 = 256;

pub(crate) struct Set {
    pub(crate) layout: Layout,
    /// The geometry at assembly. For the current one, see [`Set::geometry`].
    pub(crate) geometry: Geometry,
    pub(crate) profile: Profile,
    /// Whether blocks have checksums.
    pub(crate) has_sums: bool,
    pub(crate) members: Arc<Members>,
    /// Locks on blocks of the set. A computation over a whole stripe locks the stripe exclusively, or shares
    /// it.
    pub(crate) locks: Arc<ExtentLocks>,
    pub(crate) waiting_writes: WaitingWrites,
    /// Limits the number of operations that have buffers for strips.
    pub(crate) permits: Arc<Permits>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) protection: Protection,
}

/// The protection against inconsistency if a crash interrupts writes.
pub(crate) enum Protection {
    Journal(Arc<Journal>),
    Intent(Arc<Intent>),
    Nothing,
}

impl Protection {
    /// Returns the area of the journal or bitmap, if there is one.
    pub(crate) fn area(&self) -> Option<&Area> {
        match self {
            Protection::Journal(journal) => Some(journal.area()),
            Protection::Intent(intent) => Some(intent.area()),
            Protection::Nothing => None,
        }
    }
}

/// Blocks, and for each block whether it matches its checksum.
pub(crate) type Judged = (Buffer, Vec<bool>);

/// A write that is protected until [`Protected::finish`].
pub(crate) enum Protected {
    Recorded(Recorded),
    Marked(Marked),
    Nothing,
}

impl Protected {
    /// Ends the protection of a write. Each member must have executed the write or be recorded as failed.
    pub(crate) fn finish(self) {
        match self {
            Protected::Recorded(recorded) => recorded.applied(),
            Protected::Marked(marked) => drop(marked),
            Protected::Nothing => {}
        }
    }
}

/// Chooses among the errors of several members. The result is a medium error only if all errors are medium
/// errors, because only then does a block count as lost.
pub(crate) fn graver(known: Option<DeviceError>, new: DeviceError) -> DeviceError {
    match known {
        Some(known) if !matches!(known, DeviceError::Unreadable(_)) => known,
        _ => new,
    }
}

/// Splits columns of a stripe into two halves, to narrow down unreadable blocks. Returns `None` for a single
/// column.
pub(crate) fn halves(columns: &Range<u64>) -> Option<[Range<u64>; 2]> {
    debug_assert!(!columns.is_empty());
    let middle = columns.start + (columns.end - columns.start) / 2;
    (columns.end - columns.start > 1).then_some([columns.start..middle, middle..columns.end])
}

/// The strips of some columns of a stripe, as read according to a plan.
pub(crate) struct Gathered {
    pub(crate) plan: Plan,
    /// The strips that were read: data, P, Q.
    pub(crate) strips: Vec<Option<Buffer>>,
    /// Strips that are unreadable although members have them.
    pub(crate) bad: Vec<usize>,
}

impl Set {
    pub(crate) fn bytes(&self, blocks: u64) -> usize {
        (blocks << self.geometry.block_size.shift()) as usize
    }

    /// Returns the geometry at the current size of the set.
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry {
            blocks: self.members.layout().blocks(),
            ..self.geometry
        }
    }

    pub(crate) fn whole(&self) -> Extent {
        Extent {
            lba: Lba(0),
            blocks: self.geometry().blocks,
        }
    }

    pub(crate) fn check(&self, extent: Extent, length: Option<usize>) -> Result<(), DeviceError> {
        self.geometry().check(extent, length)?;
        self.members.check_service()
    }

    pub(crate) fn check_write(
        &self,
        extent: Extent,
        length: Option<usize>,
    ) -> Result<(), DeviceError> {
        self.check(extent, length)?;
        if self.profile.read_only {
            Err(DeviceError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Returns the location of columns of a strip: the member, and the blocks there.
    pub(crate) fn place(&self, stripe: u64, strip: usize, columns: &Range<u64>) -> (usize, Extent) {
        debug_assert!(
            columns.start <= columns.end && columns.end <= self.layout.strip_blocks(),
            "{columns:?}"
        );
        let place = self.layout.strip(stripe, strip);
        (
            place.member,
            Extent::new(place.lba + columns.start, columns.end - columns.start),
        )
    }

    pub(crate) fn is_held(&self, stripe: u64, strip: usize) -> bool {
        self.members
            .holds(self.layout.strip(stripe, strip).member, stripe)
    }

    /// Whether the copies of a stripe, or its data and parity, may have been inconsistent since before the
    /// assembly.
    pub(crate) fn is_unsynced(&self, stripe: u64) -> bool {
        matches!(&self.protection, Protection::Intent(intent) if intent.is_unsynced(stripe))
    }

    /// Reads the strips that `plan` requires for some columns. If strips turn out to be unreadable, they
    /// count as missing, and `plan` is called again. The strips in `bad` are already known to be unreadable,
    /// with this error. The caller must have locked the stripe.
    pub(crate) async fn gather(
        &self,
        stripe: u64,
        columns: &Range<u64>,
        mut bad: Vec<usize>,
        mut error: Option<DeviceError>,
        plan: impl Fn(&Stripe) -> Option<Plan>,
    ) -> Result<Gathered, DeviceError> {
        let count = self.layout.strips();
        let mut strips: Vec<Option<Buffer>> = (0..count).map(|_| None).collect();
        loop {
            let held: Vec<bool> = (0..count)
                .map(|strip| self.is_held(stripe, strip))
                .collect();
            let readable = held
                .iter()
                .enumerate()
                .map(|(strip, held)| *held && !bad.contains(&strip))
                .collect();
            let Some(plan) = plan(&Stripe {
                data: self.layout.data_strips(),
                held,
                readable,
            }) else {
                return Err(error.unwrap_or(DeviceError::NotReady));
            };
            debug_assert!(
                plan.reads
                    .iter()
                    .all(|strip| *strip < count && !bad.contains(strip))
            );
            let missing: Vec<usize> = plan
                .reads
                .iter()
                .copied()
                .filter(|strip| strips[*strip].is_none())
                .collect();
            if missing.is_empty() {
                return Ok(Gathered { plan, strips, bad });
            }
            let results = all(missing
                .iter()
                .map(|strip| self.read_strip(stripe, *strip, columns)))
            .await;
            for (strip, result) in missing.into_iter().zip(results) {
                match result {
                    Ok(buffer) => strips[strip] = Some(buffer),
                    Err(Unread::Lacking) => {}
                    Err(Unread::Bad(why)) => {
                        error = Some(graver(error, why));
                        bad.push(strip);
                    }
                }
            }
        }
    }

    pub(crate) async fn read_strip(
        &self,
        stripe: u64,
        strip: usize,
        columns: &Range<u64>,
    ) -> Result<Buffer, Unread> {
        let (member, extent) = self.place(stripe, strip, columns);
        let buffer = Buffer::recycled(self.bytes(extent.blocks.0));
        self.members.read(member, stripe, extent, buffer).await
    }

    /// Reads columns of a strip even if blocks do not match their checksums. Returns for each block whether
    /// it matches.
    pub(crate) async fn judge_strip(
        &self,
        stripe: u64,
        strip: usize,
        columns: &Range<u64>,
    ) -> Result<Judged, Unread> {
        let (member, extent) = self.place(stripe, strip, columns);
        let buffer = Buffer::recycled(self.bytes(extent.blocks.0));
        self.members
            .read_and_judge(member, stripe, extent, buffer)
            .await
    }

    /// Writes columns of a strip, if a member has it.
    pub(crate) async fn write_strip(
        &self,
        stripe: u64,
        strip: usize,
        columns: &Range<u64>,
        data: Slice,
        durability: Durability,
    ) -> Result<(), DeviceError> {
        let (member, extent) = self.place(stripe, strip, columns);
        self.members
            .write(member, stripe, extent, data, durability, Cause::Write)
            .await
    }

    /// Protects a write, and resolves once the members may be written.
    pub(crate) async fn protect(&self, change: &Arc<Change>) -> Result<Protected, DeviceError> {
        match &self.protection {
            Protection::Journal(journal) => journal
                .record(Arc::clone(change))
                .await
                .map(Protected::Recorded),
            Protection::Intent(intent) => {
                intent.begin(change.stripes()).await.map(Protected::Marked)
            }
            Protection::Nothing => Ok(Protected::Nothing),
        }
    }

    /// Writes parts of a stripe to the members that have the strips.
    pub(crate) async fn write_parts(
        &self,
        stripe: u64,
        parts: &[Part],
        durability: Durability,
    ) -> Result<(), DeviceError> {
        debug_assert!(
            parts
                .iter()
                .all(|part| !part.data.is_empty() && part.data.len() % self.bytes(1) == 0)
        );
        let writes = parts.iter().map(|part| {
            let blocks = part.data.len() as u64 >> self.geometry.block_size.shift();
            let (member, extent) =
                self.place(stripe, part.strip, &(part.column..part.column + blocks));
            self.members.write(
                member,
                stripe,
                extent,
                part.data.clone(),
                durability,
                Cause::Write,
            )
        });
        try_all(writes).await.map(drop)
    }
}

impl Set {
    /// Returns the number of parts at the end that can be computed from the parts before them. These are the
    /// parity parts, if the other parts contain all data of the stripe.
    pub(crate) fn derived(&self, parts: &[Part]) -> usize {
        let length = self.bytes(self.layout.strip_blocks());
        let data = self.layout.data_strips();
        let is_whole =
            |(strip, part): (usize, &Part)| part.strip == strip && part.data.len() == length;
        let are_whole = parts.len() >= data && parts[..data].iter().enumerate().all(is_whole);
        if are_whole { parts.len() - data } else { 0 }
    }

    /// Adds the parity that can be computed to a change that was read from a journal and checked.
    pub(crate) fn with_parity(&self, mut change: Change) -> Change {
        let Change::Update { parts, .. } = &mut change else {
            return change;
        };
        if parts.iter().any(|part| part.data.is_empty()) {
            let (data, parity) = parts.split_at_mut(self.layout.data_strips());
            let data: Vec<&[u8]> = data.iter().map(|part| &part.data[..]).collect();
            let length = self.bytes(self.layout.strip_blocks());
            let derived = parity_of(&data, self.layout.level().parity_strips(), length);
            for (strip, content) in (self.layout.data_strips()..).zip(derived) {
                if let Some(part) = parity.iter_mut().find(|part| part.strip == strip) {
                    part.data = content.share();
                }
            }
        }
        change
    }

    pub(crate) async fn replace(
        self: Arc<Self>,
        vacancy: Vacancy,
        device: MemberDevice,
        area: Option<Arc<dyn BlockDevice>>,
        is_readded: bool,
    ) -> Result<(), DeviceError> {
        let copy = area.map(|device| AreaCopy {
            device,
            member: Some(vacancy.member),
        });
        if let (Some(kept), Some(copy)) = (self.protection.area(), &copy) {
            if !kept.fits(&*copy.device) {
                return Err(DeviceError::OutOfRange);
            }
            // Erase the area, so that no journal or bitmap of another set is found in it.
            let blocks = kept.blocks();
            debug_assert!(blocks <= copy.device.geometry().blocks.0);
            let erased = self.members.land(async {
                for part in Extent::new(0, blocks).chunks(ERASED_BLOCKS) {
                    let zeros = Buffer::zeroed(self.bytes(part.blocks.0)).share();
                    copy.device.write(part, zeros, Durability::Stable).await?;
                }
                Ok(())
            });
            erased.await?;
        }
        let put = {
            // The journal may have records from before the failure, with strips of this member that later
            // records did not update. Replaying them over rebuilt strips would undo the rebuild. So add the
            // member while no write is outstanding and the journal is empty.
            let _alone = self.locks.exclude(self.whole()).await;
            if let Protection::Journal(journal) = &self.protection {
                journal.empty(None).await?;
            }
            if let (Protection::Intent(intent), false) = (&self.protection, is_readded) {
                // The new disk does not contain data.
                intent.miss_all();
            }
            self.members
                .replace(vacancy, device, is_readded)
                .await?
                .ok_or(DeviceError::Unsupported)?
        };
        match (&self.protection, copy) {
            (Protection::Journal(journal), Some(copy)) => journal.empty(Some(copy)).await?,
            (Protection::Intent(intent), Some(copy)) => intent.join(&copy).await?,
            _ => {}
        }
        // The member may have been removed while the copy was written.
        if self.members.has(&put) {
            Ok(())
        } else {
            Err(DeviceError::Unsupported)
        }
    }

    /// Whether a change that was read from a journal belongs to this set.
    pub(crate) fn check_change(&self, change: &Change) -> Result<(), DeviceError> {
        let (strips, columns) = (self.layout.strips(), self.layout.strip_blocks());
        let blocks = |part: &Part| part.data.len() as u64 >> self.geometry.block_size.shift();
        let fits = |part: &Part| part.strip < strips && part.column + blocks(part) <= columns;
        let is_legal = match change {
            Change::Update { parts, .. } => {
                let given = parts.len() - self.derived(parts);
                let (given, derived) = parts.split_at(given);
                let follows = |part: &Part| part.strip >= self.layout.data_strips();
                given.iter().all(|part| fits(part) && !part.data.is_empty())
                    && derived.iter().all(|part| fits(part) && follows(part))
            }
            Change::Clear {
                stripe,
                stripes,
                members,
                ..
            } => {
                let are_members = members.iter().all(|member| *member < self.layout.members());
                are_members && *stripes > 0 && stripe.checked_add(*stripes).is_some()
            }
        };
        if is_legal && *change.stripes().end() < self.layout.stripes() {
            Ok(())
        } else {
            Err(DeviceError::OutOfRange)
        }
    }
}
