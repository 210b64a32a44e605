//! EXTENDED COPY and RECEIVE COPY RESULTS (SPC-4 6.3, 6.4, 6.18 to 6.20): copying blocks from one logical
//! unit to another, or within one, without passing through an initiator.
//!
//! Only the part of the standard that hosts use is supported: a list identifier of one byte (LID1), copy
//! sources and destinations named by their designation descriptor (E4h), and segments from block device to
//! block device (02h). A list is checked completely before the first block is copied. The copy then holds one
//! piece of 1 MiB at a time, and ends if its command is aborted.
//!
//! [`results`] records the results of copies.

use std::sync::Arc;

use block::{Buffer, Durability, Extent};
use scsi::{
    Condition, CopyList, CopySegment, CopyTarget, ListIdUsage, OperatingParameters, SenseKey, asc,
};
use volume::{Access, Requester};

use crate::access::{DeviceAccess, PIECE_BYTES, give_way};
use crate::command::call::Call;
use crate::failure::Failure;
use crate::nexus::{NexusId, NexusName};
use crate::plan::{Outcome, Plan, SiblingUnits};
use crate::unit::LogicalUnit;

pub(crate) mod results;

use self::results::{Progress, Status};

/// Limits of one parameter list. A list that just exceeds the limits of both kinds of descriptors is also
/// longer than [`DESCRIPTOR_BYTES_MAX`]. The limits therefore determine which of the three errors is
/// reported, which libiscsi tests.
const TARGETS_MAX: usize = 8;
const SEGMENTS_MAX: usize = 64;
const DESCRIPTOR_BYTES_MAX: usize =
    TARGETS_MAX * CopyTarget::BYTES + SEGMENTS_MAX * CopySegment::BYTES;

/// The limits as reported to initiators.
pub(crate) fn limits() -> OperatingParameters {
    OperatingParameters {
        targets_max: TARGETS_MAX as u16,
        segments_max: SEGMENTS_MAX as u16,
        descriptor_bytes_max: DESCRIPTOR_BYTES_MAX as u32,
        total_copies_max: results::COPIES_MAX as u16,
        copies_max: u8::MAX,
        granularity_exponent: 9, // of the smallest possible block
        ..OperatingParameters::default()
    }
}

/// Plans EXTENDED COPY(LID1).
pub(crate) fn plan_copy(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let length = call.cdb.u32(10) as usize;
    if length == 0 {
        return call.good(); // SPC-4 6.3.1: not an error, and nothing is copied.
    }
    if !(CopyList::HEADER_BYTES..=CopyList::HEADER_BYTES + DESCRIPTOR_BYTES_MAX).contains(&length) {
        return Err(Condition::parameter_list_length().into());
    }
    let by = call.nexus.id;
    let luns = Arc::clone(call.command.luns);
    call.receive(length as u32, PIECE_BYTES as usize, move |access, bytes| {
        // The copy starts here, not on its first poll, so that all its units have a record of it from now on.
        let copy = Copy::begin(&access, by, &*luns, length, &bytes);
        async move { copy?.run().await }
    })
}

/// Plans RECEIVE COPY RESULTS, COPY STATUS(LID1).
pub(crate) fn plan_status(call: &mut Call<'_>) -> Result<Plan, Failure> {
    let id = call.nexus.id;
    let data = call
        .unit
        .look(|state| state.copies.status(id, call.cdb.byte(2)));
    call.parameter_data(data.ok_or(Condition::invalid_field(2))?, call.cdb.u32(10))
}

/// Plans RECEIVE COPY RESULTS, OPERATING PARAMETERS.
pub(crate) fn plan_operating_parameters(call: &mut Call<'_>) -> Result<Plan, Failure> {
    call.parameter_data(limits().write_all(), call.cdb.u32(10))
}

/// A copy whose segments have all been checked: a copy that must fail does not start.
struct Copy {
    by: NexusName,
    steps: Vec<Step>,
    record: Record,
}

/// A segment whose units have been found, with extents within them.
struct Step {
    source: DeviceAccess,
    from: Extent,
    destination: DeviceAccess,
    to: Extent,
}

impl Copy {
    /// Reads and checks a parameter list, and records the units that it uses.
    fn begin(
        access: &DeviceAccess,
        by: NexusId,
        luns: &dyn SiblingUnits,
        length: usize,
        bytes: &Buffer,
    ) -> Result<Copy, Failure> {
        let list = CopyList::parse(bytes, length, &limits())?;
        let name = access
            .look(|state| state.name(by).cloned())
            .ok_or(Failure::ReservationConflict)?;
        let mut others = Vec::new();
        let ends = list
            .targets
            .iter()
            .enumerate()
            .map(|target| end(access, luns, target, &mut others));
        let ends = ends.collect::<Result<Vec<_>, _>>()?;
        let requester = Requester {
            attachment: by,
            path: &name,
        };
        let steps = list
            .segments
            .iter()
            .map(|segment| step(segment, &ends, &requester));
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        let record = Record::begin(access, by, &list)?;
        access.uses(others);
        Ok(Copy {
            by: name,
            steps,
            record,
        })
    }

    async fn run(self) -> Result<Outcome, Failure> {
        let mut progress = Progress::default();
        for step in &self.steps {
            self.copy(step, &mut progress).await?;
            progress.segments += 1;
            self.record.proceed(progress);
        }
        self.record.succeed();
        Ok(Outcome::default())
    }

    /// Copies in pieces. Source and destination are never locked together: two locks could wait for each
    /// other through a third. A reservation, write protection or a fence may have been set since the last
    /// piece. Both units are therefore checked for each piece, after the last wait before its write.
    async fn copy(&self, step: &Step, progress: &mut Progress) -> Result<(), Failure> {
        let Step {
            source,
            destination,
            ..
        } = step;
        let by = Requester {
            attachment: self.record.by,
            path: &self.by,
        };
        let shift = destination.device().geometry().block_size.shift();
        let mut done = 0;
        for from in source.pieces(step.from) {
            let bytes = source.device().geometry().length(from);
            debug_assert_eq!(
                bytes >> shift << shift,
                bytes,
                "whole blocks of the destination"
            );
            let data = {
                let _shared = source.locks().share(from).await;
                source.admits(&by, Access::Read).map_err(third_party)?;
                source.fetch(from).await.map_err(third_party)?
            };
            let to = Extent::new(step.to.lba.0 + (done >> shift), bytes >> shift);
            let _shared = destination.locks().share(to).await;
            destination
                .admits(&by, Access::Write)
                .map_err(third_party)?;
            let durability = destination.copy_durability();
            destination
                .store(to, data.share(), durability)
                .await
                .map_err(third_party)?;
            done += bytes;
            progress.bytes += bytes;
            self.record.proceed(*progress);
            give_way().await;
        }
        Ok(())
    }
}

/// Access to the logical unit that a target descriptor names. `None` if there is no such unit, which is an
/// error only if a segment uses the descriptor. A unit other than the command's own is one of `others`.
fn end(
    access: &DeviceAccess,
    luns: &dyn SiblingUnits,
    (number, target): (usize, &CopyTarget),
    others: &mut Vec<Arc<LogicalUnit>>,
) -> Result<Option<DeviceAccess>, Condition> {
    let found = match access.identity().has_designator(&target.designator) {
        true => Some(Arc::clone(access)),
        false => luns.by_designator(&target.designator),
    };
    let Some(unit) = found.filter(|_| !target.null) else {
        return Ok(None);
    };
    let block_bytes = unit.device().geometry().block_size.bytes();
    if target.block_bytes != 0 && target.block_bytes != block_bytes {
        return Err(CopyTarget::wrong_block_length(number));
    }
    if Arc::ptr_eq(&unit, access) {
        return Ok(Some(access.to(unit, 0)));
    }
    let known = others.iter().position(|other| Arc::ptr_eq(other, &unit));
    let index = known.unwrap_or_else(|| {
        others.push(Arc::clone(&unit));
        others.len() - 1
    });
    Ok(Some(access.to(unit, index + 1)))
}

fn step(
    segment: &CopySegment,
    ends: &[Option<DeviceAccess>],
    by: &Requester<'_>,
) -> Result<Step, Failure> {
    let end = |index: u16| {
        ends.get(usize::from(index))
            .cloned()
            .flatten()
            .ok_or(aborted(asc::UNREACHABLE_COPY_TARGET))
    };
    let (source, destination) = (end(segment.source)?, end(segment.destination)?);
    let (from, to) = extents(segment, &source, &destination)?;
    source.admits(by, Access::Read)?;
    destination.admits(by, Access::Write)?;
    Ok(Step {
        source,
        from,
        destination,
        to,
    })
}

/// Returns the extents to copy, in blocks of the source and of the destination.
fn extents(
    segment: &CopySegment,
    source: &LogicalUnit,
    destination: &LogicalUnit,
) -> Result<(Extent, Extent), Condition> {
    let (source, destination) = (source.device().geometry(), destination.device().geometry());
    let counted = if segment.destination_counts {
        destination
    } else {
        source
    };
    let bytes = u64::from(segment.blocks) << counted.block_size.shift();
    // Data that does not fill whole blocks would need CAT and PAD, which initiators do not use.
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

/// Returns the error of a copy whose source or destination failed (SPC-4 6.3.3). Lack of space is reported as
/// such, because the host of a thin volume needs to see it.
fn third_party(failure: Failure) -> Failure {
    match failure {
        Failure::Check(condition) if condition.key == SenseKey::DataProtect => failure,
        Failure::Check(_) => aborted(asc::THIRD_PARTY_DEVICE_FAILURE).into(),
        Failure::ReservationConflict => failure,
    }
}

impl LogicalUnit {
    /// Checks whether a copy on behalf of this nexus may access the logical unit.
    fn admits(&self, by: &Requester<'_>, access: Access) -> Result<(), Failure> {
        self.look(|state| {
            state.admits(by, access)?;
            state.ready()?;
            if access == Access::Write {
                state.writable()?;
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

/// The record of this copy for RECEIVE COPY RESULTS. If it is dropped before [`Record::succeed`], by an error
/// or an abort, it reports a failure.
struct Record {
    unit: Arc<LogicalUnit>,
    by: NexusId,
    id: u8,
    usage: ListIdUsage,
}

impl Record {
    fn begin(unit: &Arc<LogicalUnit>, by: NexusId, list: &CopyList) -> Result<Record, Failure> {
        if list.usage != ListIdUsage::None {
            unit.note(|state| state.copies.begin(by, list.id))?;
        }
        Ok(Record {
            unit: Arc::clone(unit),
            by,
            id: list.id,
            usage: list.usage,
        })
    }

    fn proceed(&self, progress: Progress) {
        if self.usage != ListIdUsage::None {
            self.unit
                .note(|state| state.copies.proceed(self.by, self.id, progress));
        }
    }

    fn succeed(self) {
        self.end(Status::Completed);
    }

    /// Records the end of the copy, unless an end has been recorded already.
    fn end(&self, status: Status) {
        match self.usage {
            ListIdUsage::Hold => self
                .unit
                .note(|state| state.copies.end(self.by, self.id, status)),
            ListIdUsage::Discard => self
                .unit
                .note(|state| state.copies.forget(self.by, self.id)),
            ListIdUsage::None => {}
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.end(Status::CompletedWithErrors);
    }
}
