//! Tracks which acknowledged writes are not yet covered by a flush, and whether the device may have lost any
//! of them.
//!
//! If a device with a volatile cache loses power, or its server is killed, the writes acknowledged since the
//! last flush are lost. The next flush nevertheless succeeds, because the cache is empty. A client that uses
//! such a device over a network keeps running, and must detect the loss. So the client, whatever its
//! protocol, keeps a ledger for each device, which determines the results of its flushes.
//!
//! ```text
//!   write, flush ended, loss                         nothing is lost
//!   write, loss, flush ended                         the flush fails with WritesLost; the next one succeeds
//!   flush started, write, flush ended, loss          the write is lost, as the flush started before it
//!   write, A and B started, loss, A and B ended      both flushes fail: both started before the report
//!   write, the flush fails with NoSpace              the next flush fails with WritesLost
//! ```
//!
//! NoSpace does not count as the report of the loss that it causes: programs such as QEMU wait for space and
//! repeat the flush, which must not succeed without the lost data.
//!
//! The protocol determines which events may lose writes. The client detects them; the ledger only counts
//! them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{BlockDevice, DeviceError, Pending};
use crate::forward;
use crate::losses::LossCounter;

/// The writes of one user of one device.
#[derive(Debug)]
pub struct FlushLedger {
    /// The number of the next flush, which will cover all writes so far.
    next: u64,
    /// The number of the first flush that covers the last acknowledged write; 0 if there is no unflushed
    /// write.
    written: u64,
    /// The highest number of a successful flush.
    flushed: u64,
    /// The known losses of unflushed writes.
    losses: LossCounter,
    /// Number of losses reported to the user.
    reported: u64,
}

/// An outstanding flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the flush is not covered until it has ended"]
pub struct Flush {
    number: u64,
    /// Number of losses reported to the user when the flush started.
    reported: u64,
}

/// The start of a write that must be durable when it completes. A flush after the write ensures this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StableWrite {
    losses: u64,
}

impl Default for FlushLedger {
    fn default() -> FlushLedger {
        FlushLedger::counting(LossCounter::default())
    }
}

impl FlushLedger {
    /// Creates a ledger with this counter. Others may count losses of acknowledged writes there directly; the
    /// next flush reports them.
    pub fn counting(losses: LossCounter) -> FlushLedger {
        let reported = losses.get().count();
        FlushLedger {
            next: 1,
            written: 0,
            flushed: 0,
            losses,
            reported,
        }
    }

    /// Returns the counter of losses, for [`BlockDevice::losses`](crate::BlockDevice::losses).
    pub fn losses(&self) -> LossCounter {
        self.losses.clone()
    }

    fn lost(&self) -> u64 {
        self.losses.get().count()
    }

    /// Records that a write was acknowledged and may be in a volatile cache.
    pub fn note_write(&mut self) {
        self.written = self.next;
    }

    /// Returns whether there is an acknowledged write that no successful flush covers.
    pub fn has_unflushed(&self) -> bool {
        self.written > self.flushed
    }

    /// Records that the device may have lost its cache. Returns true if unflushed writes may have been lost
    /// with it.
    pub fn note_loss(&mut self) -> bool {
        let lost = self.has_unflushed();
        if lost {
            self.losses.count();
            self.written = 0; // the next loss can only affect later writes
        }
        lost
    }

    /// Starts a flush, which covers the writes recorded before.
    pub fn begin_flush(&mut self) -> Flush {
        let flush = Flush {
            number: self.next,
            reported: self.reported,
        };
        debug_assert!(
            self.written <= self.next && self.flushed < self.next,
            "{self:?}"
        );
        self.next += 1;
        flush
    }

    /// Ends a flush with the device's result. Returns the result for the caller, which may report a loss.
    pub fn end_flush(
        &mut self,
        flush: Flush,
        answer: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let answer = self.note_answer(flush, answer);
        self.report(flush, answer)
    }

    /// Returns the result of a flush for the caller, which may report a loss. The device's result must
    /// already have been [recorded](Self::note_answer), even if the caller no longer waited for it.
    pub fn report(
        &mut self,
        flush: Flush,
        answer: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        debug_assert!(
            flush.number < self.next && flush.reported <= self.reported,
            "a flush of this ledger"
        );
        let ended = match answer {
            Ok(()) if self.lost() > flush.reported => Err(DeviceError::WritesLost),
            ended => ended,
        };
        if ended == Err(DeviceError::WritesLost) {
            self.reported = self.lost();
        }
        ended
    }

    /// Starts a write that must be durable when it completes.
    pub fn begin_stable_write(&self) -> StableWrite {
        StableWrite {
            losses: self.lost(),
        }
    }

    /// Ends the flush after a stable write, and returns the result for the writer. It reports only losses
    /// since the write started. Flushes report all losses, including these.
    pub fn end_stable_write(
        &mut self,
        write: StableWrite,
        flush: Flush,
        answer: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.note_answer(flush, answer)?;
        if self.has_lost_since(write) {
            Err(DeviceError::WritesLost)
        } else {
            Ok(())
        }
    }

    /// Returns whether there have been losses since a stable write started.
    pub fn has_lost_since(&self, write: StableWrite) -> bool {
        debug_assert!(write.losses <= self.lost(), "losses only grow");
        self.lost() > write.losses
    }

    /// Records the device's result of a flush, without reporting a loss to the user. Unless
    /// [`report`](Self::report) follows, the next flush to start reports it. A device that could not flush
    /// its cache may have dropped the data, and may report that only once. So a failure affects every
    /// concurrent flush.
    pub fn note_answer(
        &mut self,
        flush: Flush,
        answer: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        match answer {
            Ok(()) => self.flushed = self.flushed.max(flush.number),
            Err(DeviceError::Unwritable(_) | DeviceError::WritesLost) => {
                self.losses.count();
                return Err(DeviceError::WritesLost);
            }
            Err(DeviceError::NoSpace) => self.losses.count(),
            Err(_) => {} // whether data was flushed is unknown, but nothing indicates a loss
        }
        answer
    }
}

/// Any device, as used by one user. A flush fails with [`DeviceError::WritesLost`] if the device has lost
/// acknowledged writes since the last report of a loss to this user. The device may have returned its error
/// to another request. All flushes that started before a report fail, because concurrent flushes may be for
/// different writes.
pub struct SingleUser<D> {
    inner: D,
    /// Number of losses reported to the user.
    reported: AtomicU64,
}

impl<D: BlockDevice> SingleUser<D> {
    /// Wraps `inner` for a user that has not written anything yet.
    pub fn new(inner: D) -> SingleUser<D> {
        let reported = AtomicU64::new(inner.losses().count());
        SingleUser { inner, reported }
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn reported(&self) -> u64 {
        self.reported.load(Ordering::Acquire)
    }

    /// Returns the result for a request that started when `reported` losses had been reported, and for which
    /// the device returned `ended`.
    fn report(&self, reported: u64, ended: Result<(), DeviceError>) -> Result<(), DeviceError> {
        match ended {
            Err(DeviceError::NoSpace) => return ended, // the next flush reports the loss
            Err(error) if !error.is_loss() => return ended,
            Ok(()) | Err(_) => {}
        }
        let losses = self.inner.losses().count();
        debug_assert!(losses >= reported, "losses only grow");
        self.reported.fetch_max(losses, Ordering::AcqRel);
        if losses > reported {
            ended.and(Err(DeviceError::WritesLost))
        } else {
            ended
        }
    }
}

impl<D: BlockDevice> BlockDevice for SingleUser<D> {
    forward!(self => self.inner; geometry, length_bytes, profile, memory, memory_to_write, read_nowait, write_nowait, read, write, losses, unmap, write_zeroes, allocation, space, allocated_bytes, refresh, grow, take_os_error, quiesced);

    fn flush(&self) -> Pending<'_, ()> {
        let reported = self.reported();
        // The user has received the reports, and nothing above the user records them.
        self.inner.losses_recorded(reported);
        Box::pin(async move { self.report(reported, self.inner.flush().await) })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::buffer::Buffer;
    use crate::buffered::{Buffered, Window};
    use crate::device::Durability;
    use crate::extent::Extent;
    use crate::fault::{Fault, FaultAction, FaultControl, Requests, Rule};
    use crate::testing::{LocalSpawner, ManualClock, Memory, end, poll, ready};

    use super::*;
    use proptest::prelude::*;

    const LOST: Result<(), DeviceError> = Err(DeviceError::WritesLost);

    fn flush(ledger: &mut FlushLedger) -> Result<(), DeviceError> {
        let flush = ledger.begin_flush();
        ledger.end_flush(flush, Ok(()))
    }

    #[test]
    fn lost_writes_fail_the_next_flush_once() {
        let mut ledger = FlushLedger::default();
        ledger.note_write();
        assert!(ledger.note_loss());
        assert_eq!((flush(&mut ledger), flush(&mut ledger)), (LOST, Ok(())));
    }

    #[test]
    fn nothing_is_lost_where_nothing_was_unflushed() {
        let mut ledger = FlushLedger::default();
        assert!(!ledger.note_loss());
        ledger.note_write();
        assert_eq!(flush(&mut ledger), Ok(()));
        assert!(!ledger.note_loss());
        assert_eq!(flush(&mut ledger), Ok(()));
    }

    #[test]
    fn a_write_beside_a_flush_waits_for_the_next_one() {
        let mut ledger = FlushLedger::default();
        let under_way = ledger.begin_flush();
        ledger.note_write();
        assert_eq!(ledger.end_flush(under_way, Ok(())), Ok(()));
        assert!(ledger.note_loss());
        assert_eq!(flush(&mut ledger), LOST);
    }

    #[test]
    fn all_flushes_that_began_before_anybody_was_told_fail() {
        let mut ledger = FlushLedger::default();
        ledger.note_write();
        let both = [ledger.begin_flush(), ledger.begin_flush()];
        ledger.note_loss();
        assert_eq!(
            both.map(|flush| ledger.end_flush(flush, Ok(()))),
            [LOST, LOST]
        );
        assert_eq!(flush(&mut ledger), Ok(()));
    }

    /// Two concurrent fdatasync calls, of which one returned EIO and the other 0.
    #[test]
    fn a_device_that_fails_one_of_two_flushes_has_failed_both() {
        let mut ledger = FlushLedger::default();
        ledger.note_write();
        let [failed, passed] = [ledger.begin_flush(), ledger.begin_flush()];
        let error = Err(DeviceError::Unwritable(crate::Lba(0)));
        assert_eq!(ledger.end_flush(failed, error), LOST);
        assert_eq!(ledger.end_flush(passed, Ok(())), LOST);
        assert_eq!(flush(&mut ledger), Ok(()));
    }

    /// The caller dropped the first flush before the reply arrived.
    #[test]
    fn a_flush_that_fails_for_nobody_fails_the_next_one() {
        let mut ledger = FlushLedger::default();
        ledger.note_write();
        let (abandoned, beside) = (ledger.begin_flush(), ledger.begin_flush());
        assert_eq!(
            ledger.note_answer(abandoned, Err(DeviceError::Unwritable(crate::Lba(0)))),
            LOST
        );
        assert_eq!(
            ledger.note_answer(beside, Ok(())),
            Ok(()),
            "nobody waits for this one either"
        );
        assert_eq!((flush(&mut ledger), flush(&mut ledger)), (LOST, Ok(())));
    }

    #[test]
    fn a_flush_without_an_answer_leaves_the_writes_to_the_next() {
        let mut ledger = FlushLedger::default();
        ledger.note_write();
        let unanswered = ledger.begin_flush();
        assert_eq!(
            ledger.end_flush(unanswered, Err(DeviceError::NotReady)),
            Err(DeviceError::NotReady)
        );
        ledger.note_loss();
        assert_eq!(flush(&mut ledger), LOST);
    }

    #[test]
    fn a_stable_write_tells_of_losses_since_it_began_and_leaves_them_to_flushes() {
        let mut ledger = FlushLedger::default();
        ledger.note_write();
        ledger.note_loss();
        for (loses, reported) in [(false, Ok(())), (true, LOST)] {
            let write = ledger.begin_stable_write();
            ledger.note_write();
            if loses {
                ledger.note_loss();
            }
            let behind = ledger.begin_flush();
            assert_eq!(ledger.end_stable_write(write, behind, Ok(())), reported);
        }
        assert_eq!((flush(&mut ledger), flush(&mut ledger)), (LOST, Ok(())));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write,
        Loss,
        Begin,
        /// Completes one of the outstanding flushes.
        End(prop::sample::Index, Result<(), DeviceError>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let answer = prop_oneof![
            4 => Just(Ok(())),
            1 => Just(Err(DeviceError::TimedOut)),
            1 => Just(Err(DeviceError::Unwritable(crate::Lba(0)))),
        ];
        prop_oneof![
            Just(Step::Write),
            Just(Step::Loss),
            Just(Step::Begin),
            (any::<prop::sample::Index>(), answer)
                .prop_map(|(which, answer)| Step::End(which, answer)),
        ]
    }

    /// The state of each write.
    #[derive(Default)]
    struct Model {
        /// For each write, whether it may be lost.
        writes: Vec<bool>,
        /// Number of writes that a successful flush has made durable.
        durable: usize,
        /// For each flush that reported a loss, the number of writes before the report.
        reported: Vec<usize>,
    }

    proptest! {
        /// After a successful flush, every earlier write is durable, except writes whose loss was reported.
        #[test]
        fn no_flush_succeeds_over_a_loss_that_was_not_told(steps in prop::collection::vec(step(), 0..60)) {
            let (mut ledger, mut model) = (FlushLedger::default(), Model::default());
            let mut under_way: Vec<(Flush, usize)> = Vec::new();
            for step in steps {
                match step {
                    Step::Write => {
                        ledger.note_write();
                        model.writes.push(false);
                    }
                    Step::Loss => {
                        ledger.note_loss();
                        let durable = model.durable.min(model.writes.len());
                        model.writes[durable..].fill(true);
                    }
                    Step::Begin => under_way.push((ledger.begin_flush(), model.writes.len())),
                    Step::End(..) if under_way.is_empty() => {}
                    Step::End(which, answer) => {
                        let (flush, covered) = under_way.remove(which.index(under_way.len()));
                        let reported = model.reported.last().copied().unwrap_or(0);
                        let untold_loss = model.writes[..covered].iter().skip(reported).any(|lost| *lost);
                        let ended = ledger.end_flush(flush, answer);
                        match ended {
                            Ok(()) => {
                                prop_assert!(!untold_loss && answer.is_ok());
                                model.durable = model.durable.max(covered);
                            }
                            Err(DeviceError::WritesLost) => model.reported.push(model.writes.len()),
                            Err(error) => prop_assert_eq!(answer, Err(error)),
                        }
                    }
                }
            }
        }

        /// If the device has neither lost writes nor returned an error, no loss is reported.
        #[test]
        fn nobody_is_told_of_a_loss_that_did_not_happen(steps in prop::collection::vec(step(), 0..60)) {
            let mut ledger = FlushLedger::default();
            let mut under_way = Vec::new();
            for step in steps {
                match step {
                    Step::Write => ledger.note_write(),
                    Step::Begin => under_way.push(ledger.begin_flush()),
                    Step::End(which, Ok(())) if !under_way.is_empty() => {
                        let flush = under_way.remove(which.index(under_way.len()));
                        prop_assert_eq!(ledger.end_flush(flush, Ok(())), Ok(()));
                    }
                    Step::Loss | Step::End(..) => {}
                }
            }
        }
    }

    #[test]
    fn what_was_lost_without_his_knowledge_is_told_once() {
        let control = FaultControl::default();
        let clock = Arc::new(ManualClock::default());
        let failing = Fault::new(Memory::new(64), clock as _, control.clone());
        let window = Window {
            bytes: 512,
            request_bytes: 512,
        };
        let device = SingleUser::new(Buffered::new(failing, window, Arc::new(LocalSpawner)));
        let write = |durability| {
            end(device.write(Extent::new(0, 1), Buffer::zeroed(512).share(), durability))
        };
        for stable in [false, true] {
            let action = FaultAction::Fail(DeviceError::NoSpace);
            control.set([Rule {
                requests: Requests::Writes,
                within: None,
                action,
            }]);
            assert_eq!(write(Durability::Cached), Ok(()));
            control.pass();
            if stable {
                assert_eq!(
                    write(Durability::Stable),
                    Ok(()),
                    "its own data is not lost"
                );
            }
            assert_eq!((end(device.flush()), end(device.flush())), (LOST, Ok(())));
        }
    }

    /// A flush that fails for lack of space is repeated once there is space.
    #[test]
    fn a_full_device_is_not_the_report_of_what_it_has_lost() {
        let mut ledger = FlushLedger::default();
        ledger.note_write();
        let flush = ledger.begin_flush();
        assert_eq!(
            ledger.end_flush(flush, Err(DeviceError::NoSpace)),
            Err(DeviceError::NoSpace)
        );
        for told in [LOST, Ok(())] {
            let flush = ledger.begin_flush();
            assert_eq!(ledger.end_flush(flush, Ok(())), told);
        }

        let control = FaultControl::default();
        let clock = Arc::new(ManualClock::default());
        let device = SingleUser::new(Fault::new(Memory::new(64), clock as _, control.clone()));
        control.fail(DeviceError::NoSpace);
        assert_eq!(ready(device.flush()), Err(DeviceError::NoSpace));
        control.pass();
        assert_eq!(
            (ready(device.flush()), ready(device.flush())),
            (LOST, Ok(()))
        );
    }

    /// Regression: of two concurrent flushes, only the flush that completed first reported the loss.
    #[test]
    fn flushes_that_began_before_the_loss_was_reported_report_it_too() {
        let control = FaultControl::default();
        let clock = Arc::new(ManualClock::default());
        let device = SingleUser::new(Fault::new(Memory::new(64), clock as _, control.clone()));
        let stable = || {
            device.write(
                Extent::new(0, 1),
                Buffer::zeroed(512).share(),
                Durability::Stable,
            )
        };
        for (second_is_a_write, reported) in [(false, LOST), (true, Ok(()))] {
            control.fail(DeviceError::NoSpace);
            ready(device.inner().flush()).expect_err("another user's flush loses writes");
            control.hang();
            let mut first = device.flush();
            let mut second = if second_is_a_write {
                stable()
            } else {
                device.flush()
            };
            assert!(poll(first.as_mut()).is_none() && poll(second.as_mut()).is_none());
            control.pass();
            // The flush that started last completes first.
            assert_eq!(
                (poll(second.as_mut()), poll(first.as_mut())),
                (Some(reported), Some(LOST))
            );
            assert_eq!((ready(device.flush()), ready(stable())), (Ok(()), Ok(())));
        }
    }
}
