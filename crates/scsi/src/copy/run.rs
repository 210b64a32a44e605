//! EXTENDED COPY at work.

use std::sync::Arc;

use block::{Buffer, Durability, Extent};

use super::list::{List, Segment, Target, Usage};
use super::results::{Progress, Status};
use super::{DESCRIPTOR_BYTES_MAX, list};
use crate::command::Call;
use crate::failure::Failure;
use crate::nexus::NexusId;
use crate::persistent::NexusName;
use crate::plan::{Neighbours, Outcome, Plan};
use crate::sense::{Condition, SenseKey, asc};
use crate::unit::{LogicalUnit, Reserved, give_way};

/// EXTENDED COPY(LID1).
pub(crate) fn plan(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let length = call.cdb.u32(10) as usize;
    if length == 0 {
        return call.good(); // SPC-4 6.3.1: not an error, and nothing is copied.
    }
    if !(list::HEADER_BYTES..=list::HEADER_BYTES + DESCRIPTOR_BYTES_MAX).contains(&length) {
        return Err(Condition::parameter_list_length().into());
    }
    let by = call.nexus.id;
    let luns = Arc::clone(call.command.luns);
    call.receive(length as u32, move |unit, bytes| extended_copy(unit, by, luns, length, bytes))
}

async fn extended_copy(
    unit: Arc<LogicalUnit>,
    by: NexusId,
    luns: Arc<dyn Neighbours>,
    length: usize,
    bytes: Buffer,
) -> Result<Outcome, Failure> {
    let list = List::parse(&bytes, length)?;
    let steps = steps(&unit, by, &*luns, &list)?;
    let record = Record::begin(&unit, by, &list)?;
    let mut progress = Progress::default();
    for step in steps {
        step.copy(&record, &mut progress).await?;
        progress.segments += 1;
        record.proceed(progress);
    }
    record.succeed();
    Ok(Outcome::default())
}

/// A segment whose ends are found, with extents that lie within them.
struct Step {
    source: Arc<LogicalUnit>,
    from: Extent,
    destination: Arc<LogicalUnit>,
    to: Extent,
}

/// Checks all segments before the first is copied: what cannot end well does not begin.
fn steps(
    unit: &Arc<LogicalUnit>,
    by: NexusId,
    luns: &dyn Neighbours,
    list: &List,
) -> Result<Vec<Step>, Failure> {
    let name = unit.look(|state| state.name(by).cloned()).ok_or(Failure::ReservationConflict)?;
    let ends = list.targets.iter().map(|target| find(unit, luns, target)).collect::<Result<Vec<_>, _>>()?;
    list.segments.iter().map(|segment| step(segment, &ends, &name)).collect()
}

/// The logical unit that a target descriptor names; `None` if there is none, which matters once it is used.
fn find(
    unit: &Arc<LogicalUnit>,
    luns: &dyn Neighbours,
    target: &Target,
) -> Result<Option<Arc<LogicalUnit>>, Condition> {
    let found = match unit.identity().has_designator(&target.designator) {
        true => Some(Arc::clone(unit)),
        false => luns.by_designator(&target.designator),
    };
    let found = found.filter(|_| !target.null);
    let block_bytes = found.as_ref().map_or(0, |unit| unit.device().geometry().block_size.bytes());
    if found.is_some() && target.block_bytes != 0 && target.block_bytes != block_bytes {
        return Err(target.wrong_block_length());
    }
    Ok(found)
}

fn step(segment: &Segment, ends: &[Option<Arc<LogicalUnit>>], by: &NexusName) -> Result<Step, Failure> {
    let end = |index: u16| {
        ends.get(usize::from(index)).cloned().flatten().ok_or(aborted(asc::UNREACHABLE_COPY_TARGET))
    };
    let (source, destination) = (end(segment.source)?, end(segment.destination)?);
    let (from, to) = extents(segment, &source, &destination)?;
    source.admits(by, Reserved::Read)?;
    destination.admits(by, Reserved::Write)?;
    Ok(Step { source, from, destination, to })
}

/// What is copied, in the blocks of either end.
fn extents(
    segment: &Segment,
    source: &LogicalUnit,
    destination: &LogicalUnit,
) -> Result<(Extent, Extent), Condition> {
    let (source, destination) = (source.device().geometry(), destination.device().geometry());
    let counted = if segment.destination_counts { destination } else { source };
    let bytes = u64::from(segment.blocks) << counted.block_size.shift();
    // Data that do not fill whole blocks would need CAT and PAD; nobody asks for them.
    let inexact = aborted(asc::UNEXPECTED_INEXACT_SEGMENT);
    let from = Extent {
        lba: block::Lba(segment.source_lba),
        blocks: source.block_size.exact(bytes).ok_or(inexact)?,
    };
    let to = Extent {
        lba: block::Lba(segment.destination_lba),
        blocks: destination.block_size.exact(bytes).ok_or(inexact)?,
    };
    if !source.contains(from) || !destination.contains(to) {
        return Err(aborted(asc::NO_ADDITIONAL_SENSE_INFORMATION));
    }
    Ok((from, to))
}

fn aborted(code: u16) -> Condition {
    Condition::new(SenseKey::CopyAborted, code)
}

impl Step {
    /// Piece by piece. Neither end is locked while the other is worked on: two locks at once could wait for each
    /// other through a third.
    async fn copy(&self, record: &Record, progress: &mut Progress) -> Result<(), Failure> {
        let (source, destination) = (self.source.device().geometry(), self.destination.device().geometry());
        let mut done = 0;
        for from in self.source.pieces(self.from) {
            let bytes = source.length(from);
            let data = {
                let _shared = self.source.locks().share(from).await;
                self.source.fetch(from).await.map_err(third_party)?
            };
            let blocks = bytes >> destination.block_size.shift();
            let to = Extent::new(self.to.lba.0 + (done >> destination.block_size.shift()), blocks);
            let _shared = self.destination.locks().share(to).await;
            let durability = self.destination.copy_durability();
            self.destination.store(to, data.share(), durability).await.map_err(third_party)?;
            done += bytes;
            progress.bytes += bytes;
            record.proceed(*progress);
            give_way().await;
        }
        Ok(())
    }
}

/// An end of the copy failed (SPC-4 6.3.3). Lack of space is said as such: it is what a thin volume's host must
/// hear.
fn third_party(failure: Failure) -> Failure {
    match failure {
        Failure::Check(condition) if condition.key == SenseKey::DataProtect => failure,
        Failure::Check(_) => aborted(asc::THIRD_PARTY_DEVICE_FAILURE).into(),
        Failure::ReservationConflict => failure,
    }
}

impl LogicalUnit {
    /// Whether a copy on behalf of this nexus may read here, or write.
    fn admits(&self, by: &NexusName, class: Reserved) -> Result<(), Failure> {
        self.look(|state| {
            state.admits(by, class)?;
            state.ready()?;
            if class == Reserved::Write {
                state.writable(self.read_only())?;
            }
            Ok(())
        })
    }

    fn copy_durability(&self) -> Durability {
        match self.look(|state| state.modes.write_cache()) {
            true => Durability::Cached,
            false => Durability::Stable,
        }
    }
}

/// What RECEIVE COPY RESULTS will know of this copy. Dropped before [`Record::succeed`], by an error or because
/// the command was aborted, it says so.
struct Record {
    unit: Arc<LogicalUnit>,
    by: NexusId,
    id: u8,
    usage: Usage,
}

impl Record {
    fn begin(unit: &Arc<LogicalUnit>, by: NexusId, list: &List) -> Result<Record, Failure> {
        if list.usage != Usage::None {
            unit.note(|state| state.copies.begin(by, list.id))?;
        }
        Ok(Record { unit: Arc::clone(unit), by, id: list.id, usage: list.usage })
    }

    fn proceed(&self, progress: Progress) {
        if self.usage != Usage::None {
            self.unit.note(|state| state.copies.proceed(self.by, self.id, progress));
        }
    }

    fn succeed(self) {
        self.end(Status::Completed);
    }

    /// An end that is already told stays.
    fn end(&self, status: Status) {
        match self.usage {
            Usage::Hold => self.unit.note(|state| state.copies.end(self.by, self.id, status)),
            Usage::Discard => self.unit.note(|state| state.copies.forget(self.by, self.id)),
            Usage::None => {}
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.end(Status::CompletedWithErrors);
    }
}
