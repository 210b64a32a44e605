//! RECEIVE COPY RESULTS: the results of copies, and their operating parameters (SPC-4 6.18 to 6.20).

use std::collections::VecDeque;

use scsi::{Condition, SenseKey, asc};

use crate::nexus::NexusId;

/// The copies with valid list identifiers, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    known: VecDeque<Copy>,
}

#[derive(Debug)]
struct Copy {
    by: NexusId,
    id: u8,
    status: Status,
    progress: Progress,
}

/// COPY MANAGER STATUS (SPC-4 table 248).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    InProgress = 0x00,
    Completed = 0x01,
    CompletedWithErrors = 0x02,
}

/// The progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) segments: u16,
    pub(crate) bytes: u64,
}

/// Maximum number of copies recorded; the oldest finished ones are discarded.
pub(super) const COPIES_MAX: usize = 256;

impl Copies {
    /// Records the start of a copy. No running copy may have the same list identifier (SPC-4 6.3.1); the
    /// results of a finished copy with this identifier are discarded.
    pub(crate) fn begin(&mut self, by: NexusId, id: u8) -> Result<(), Condition> {
        let busy = Condition::new(SenseKey::IllegalRequest, asc::OPERATION_IN_PROGRESS);
        if self
            .find(by, id)
            .is_some_and(|copy| copy.status == Status::InProgress)
        {
            return Err(busy);
        }
        self.forget(by, id);
        if self.known.len() >= COPIES_MAX {
            let over = self
                .known
                .iter()
                .position(|copy| copy.status != Status::InProgress);
            self.known.remove(over.ok_or(busy)?);
        }
        let progress = Progress::default();
        self.known.push_back(Copy {
            by,
            id,
            status: Status::InProgress,
            progress,
        });
        debug_assert!(self.known.len() <= COPIES_MAX);
        Ok(())
    }

    pub(crate) fn proceed(&mut self, by: NexusId, id: u8, progress: Progress) {
        if let Some(copy) = self.find(by, id) {
            copy.progress = progress;
        }
    }

    /// Records the end of a copy. Only the first call for a copy has an effect.
    pub(crate) fn end(&mut self, by: NexusId, id: u8, status: Status) {
        if let Some(copy) = self
            .find(by, id)
            .filter(|copy| copy.status == Status::InProgress)
        {
            copy.status = status;
        }
    }

    pub(crate) fn forget(&mut self, by: NexusId, id: u8) {
        self.known.retain(|copy| copy.by != by || copy.id != id);
    }

    /// Discards the results of a nexus that was lost.
    pub(crate) fn forget_all(&mut self, by: NexusId) {
        self.known.retain(|copy| copy.by != by);
    }

    fn find(&mut self, by: NexusId, id: u8) -> Option<&mut Copy> {
        self.known
            .iter_mut()
            .find(|copy| copy.by == by && copy.id == id)
    }

    /// COPY STATUS(LID1) parameter data (SPC-4 table 247).
    pub(crate) fn status(&self, by: NexusId, id: u8) -> Option<Vec<u8>> {
        let copy = self
            .known
            .iter()
            .find(|copy| copy.by == by && copy.id == id)?;
        let (units, count) = transfer_count(copy.progress.bytes);
        let [high, low] = copy.progress.segments.to_be_bytes();
        let mut data = vec![0, 0, 0, 8, copy.status as u8, high, low, units];
        data.extend(count.to_be_bytes());
        Some(data)
    }
}

/// TRANSFER COUNT UNITS and TRANSFER COUNT: bytes, or larger units if the count would be too large (SPC-4
/// table 249).
fn transfer_count(bytes: u64) -> (u8, u32) {
    let units = (0..6u8)
        .find(|&units| bytes >> (10 * u32::from(units)) <= u64::from(u32::MAX))
        .unwrap_or(6);
    (units, (bytes >> (10 * u32::from(units))) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_known_until_it_is_forgotten() {
        let mut copies = Copies::default();
        let (a, b) = (NexusId::next(), NexusId::next());
        copies.begin(a, 1).unwrap();
        copies.proceed(
            a,
            1,
            Progress {
                segments: 2,
                bytes: 0x1_0000,
            },
        );
        assert_eq!(
            copies.status(a, 1).unwrap(),
            [0, 0, 0, 8, 0, 0, 2, 0, 0, 1, 0, 0]
        );
        assert_eq!(copies.status(b, 1), None);
        copies.end(a, 1, Status::CompletedWithErrors);
        assert_eq!(copies.status(a, 1).unwrap()[4], 2);
        copies.forget_all(a);
        assert_eq!(copies.status(a, 1), None);
    }

    #[test]
    fn a_list_identifier_in_use_cannot_be_used_twice() {
        let mut copies = Copies::default();
        let by = NexusId::next();
        copies.begin(by, 1).unwrap();
        assert_eq!(
            copies.begin(by, 1).map_err(|condition| condition.asc),
            Err(asc::OPERATION_IN_PROGRESS)
        );
        copies.end(by, 1, Status::Completed);
        assert!(copies.begin(by, 1).is_ok());
    }

    #[test]
    fn the_oldest_that_are_over_give_way() {
        let mut copies = Copies::default();
        let by = NexusId::next();
        for id in 0..=255 {
            copies.begin(by, id).unwrap();
        }
        let other = NexusId::next();
        assert!(copies.begin(other, 0).is_err());
        copies.end(by, 7, Status::Completed);
        assert!(copies.begin(other, 0).is_ok());
        assert_eq!(copies.status(by, 7), None);
    }

    #[test]
    fn many_bytes_are_counted_in_larger_units() {
        assert_eq!(transfer_count(0xffff_ffff), (0, 0xffff_ffff));
        assert_eq!(transfer_count(1 << 32), (1, 1 << 22));
        assert_eq!(transfer_count(u64::MAX).0, 4);
    }
}
