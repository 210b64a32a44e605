//! Unflushed writes of a session's block devices, for logical units with volatile caches.
//!
//! The session's thread records the result of every command, from any sender. An acknowledged WRITE is
//! recorded as unflushed before its requester receives the status. A unit attention that reports a reset is
//! recorded, whichever command receives it. Each device has its own [`FlushLedger`], so that a loss is
//! reported to each device.
//!
//! A storage error in the response to a flush, or to a write with FUA, may be the only report of lost writes.
//! A target reports the loss only once per I_T nexus, in the response to the first such command, even if
//! another user of the nexus wrote the data. The error therefore counts as a loss for all devices of the
//! unit.
//!
//! Most targets report a reset to every new I_T nexus, even if no reset occurred, and some never report a
//! reset. A report or a reinstated session counts as a loss, unless the target reports the generation of its
//! cache and the generation has not changed. Linerate's target reports it in VPD page C0h. From the report or
//! the reinstatement until the generation is read, the device is in doubt ([`Losses::is_in_doubt`]): data
//! read in this period may not include all acknowledged writes.

use std::sync::Arc;

use block::{DeviceError, Doubts, Flush, FlushLedger, Lock, LossCounter, Losses, StableWrite};
use iscsi::pdu::Lun;
use scsi::{CacheGeneration, LunAddress, Sense, status};

use crate::effect::Effect;
use crate::error::CommandError;
use crate::tasks::Status;

/// The ledgers of a session's block devices.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    ledgers: Lock<Ledgers>,
}

#[derive(Debug, Default)]
struct Ledgers {
    next_key: u64,
    /// The ledgers. There are few, because they belong to one session.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    key: u64,
    lun: Lun,
    /// The ledger. It is in doubt if the generation was not read since the session was reinstated, since a
    /// reset was reported, or since a flush received no response.
    ledger: FlushLedger,
    /// Whether the target reports a write-through cache. Writes are recorded even then, because the cache
    /// mode may change.
    write_through: bool,
    /// The number of reported changes of mode parameters. `asked_at` is that number when `write_through` was
    /// last read.
    mode_changes: u64,
    asked_at: u64,
    /// The generation last reported by the target.
    generation: Option<CacheGeneration>,
    /// The number of reported resets, and of reported losses of writes.
    resets: u64,
    losses: u64,
}

/// The ledger of one device. Dropping this removes the ledger.
#[derive(Debug)]
pub(crate) struct CachedWrites {
    caches: Arc<Caches>,
    key: u64,
    losses: LossCounter,
}

/// The effect of a command's result on unflushed writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheEffect {
    None,
    /// The command was executed.
    Done,
    /// Acknowledged writes are lost.
    Loss,
    /// Acknowledged writes may be lost, if the command was a flush or a write with FUA.
    StorageError,
    /// Acknowledged writes may be lost, unless the generation of the cache is unchanged.
    Reset,
    /// Mode parameters have changed, so there may be a volatile cache now.
    Modes,
    /// No response was received.
    Unanswered,
}

impl CacheEffect {
    pub(crate) fn from_outcome(outcome: &Result<Status, CommandError>) -> CacheEffect {
        let Ok(answer) = outcome else {
            return CacheEffect::Unanswered;
        };
        match answer.status {
            status::GOOD => CacheEffect::Done,
            _ => Sense::parse(&answer.sense).map_or(CacheEffect::None, CacheEffect::from_sense),
        }
    }

    fn from_sense(sense: Sense) -> CacheEffect {
        match sense {
            _ if sense.was_carried_out() => CacheEffect::Done,
            _ if sense.tells_of_lost_write() => CacheEffect::Loss,
            _ if sense.tells_of_reset() => CacheEffect::Reset,
            _ if sense.tells_of_modes() => CacheEffect::Modes,
            _ if sense.is_storage_error() => CacheEffect::StorageError,
            _ => CacheEffect::None,
        }
    }
}

impl Caches {
    /// Adds a ledger for a device. The state of the device's cache is unknown.
    pub(crate) fn watch(self: &Arc<Self>, lun: Lun) -> CachedWrites {
        let mut ledgers = self.ledgers.lock();
        let key = ledgers.next_key;
        ledgers.next_key += 1;
        let ledger = FlushLedger::default();
        let counter = ledger.losses();
        debug_assert!(
            ledgers.entries.last().is_none_or(|last| last.key < key),
            "keys are not used twice"
        );
        ledgers.entries.push(Entry {
            key,
            lun,
            ledger,
            write_through: false,
            mode_changes: 0,
            asked_at: 0,
            generation: None,
            resets: 0,
            losses: 0,
        });
        CachedWrites {
            caches: Arc::clone(self),
            key,
            losses: counter,
        }
    }

    /// Records that the session was reinstated. The target may have been restarted. Call this before the
    /// first command of the new session is sent.
    pub(crate) fn renewed(&self) {
        self.ledgers.lock().entries.iter().for_each(Entry::doubt);
    }

    /// Records the result of a command.
    pub(crate) fn note(&self, lun: Lun, effect: Effect, trace: CacheEffect) {
        let makes_durable = matches!(effect, Effect::Flush | Effect::Stable);
        let of_all = match (trace, effect) {
            (CacheEffect::Done, Effect::Anywhere) => true,
            (CacheEffect::Done, Effect::Cached)
            | (CacheEffect::Loss | CacheEffect::Reset | CacheEffect::Modes, _) => false,
            (CacheEffect::StorageError | CacheEffect::Unanswered, _) if makes_durable => false,
            (
                CacheEffect::None
                | CacheEffect::Done
                | CacheEffect::StorageError
                | CacheEffect::Unanswered,
                _,
            ) => return,
        };
        let mut ledgers = self.ledgers.lock();
        for entry in ledgers
            .entries
            .iter_mut()
            .filter(|entry| of_all || entry.lun == lun)
        {
            entry.note(trace);
        }
    }

    /// Records the sense data of an asynchronous event.
    pub(crate) fn note_sense(&self, lun: Lun, sense: &[u8]) {
        if let Some(sense) = Sense::parse(sense) {
            self.note(lun, Effect::None, CacheEffect::from_sense(sense));
        }
    }
}

impl Entry {
    fn note(&mut self, trace: CacheEffect) {
        match trace {
            CacheEffect::None => {}
            CacheEffect::Done => self.ledger.note_write(),
            CacheEffect::Modes => {
                self.mode_changes += 1;
                self.write_through = false; // until the mode parameters are read again
            }
            // Without a generation, a doubt could not be resolved.
            CacheEffect::Unanswered if self.generation.is_none() => {}
            CacheEffect::Unanswered => self.doubt(),
            CacheEffect::Reset => {
                self.resets += 1;
                match self.generation {
                    Some(_) => self.doubt(),
                    None => self.lose_cache(),
                }
            }
            CacheEffect::StorageError => {
                self.lose_cache();
                // If the generation has changed because of this loss, the change must not count as another
                // loss later.
                if self.generation.is_some() {
                    self.doubt();
                }
            }
            CacheEffect::Loss => self.lose(),
        }
    }

    fn doubt(&self) {
        self.ledger.losses().doubt();
    }

    fn lose(&mut self) {
        self.losses += 1;
        if self.ledger.note_loss() {
            let lun = LunAddress::parse(self.lun.0);
            tracing::error!(%lun, "the target may have lost acknowledged writes");
        }
    }

    fn lose_cache(&mut self) {
        if !self.write_through {
            self.lose();
        }
    }

    /// Compares the current generation, which was requested after the doubts `asked_after`, with the last
    /// one. A target that reports no generation may have been restarted without reporting the restart.
    fn compare(&mut self, asked_after: Doubts, now: Option<CacheGeneration>) {
        let losses = self.ledger.losses();
        if losses.doubts() != asked_after {
            return; // the response may be older than the latest doubt, so it proves nothing
        }
        if self.generation.is_none() || self.generation != now {
            self.lose_cache();
        }
        self.generation = now;
        losses.resolve(asked_after); // leaves later doubts unresolved
    }
}

impl CachedWrites {
    /// Returns whether the generation of the cache must be read.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.losses().is_in_doubt()
    }

    /// Returns the doubts so far. Call this before the generation is read.
    pub(crate) fn doubts(&self) -> Doubts {
        self.losses.doubts()
    }

    /// Returns the losses of unflushed writes.
    pub(crate) fn losses(&self) -> Losses {
        self.losses.get()
    }

    /// Records that the logical unit was unavailable for a while, which counts like a reset.
    pub(crate) fn note_reset(&self) {
        self.with(|entry| entry.note(CacheEffect::Reset));
    }

    /// Compares the generation that was read after a report of a reset, or after a flush without a response.
    /// Has no effect if another doubt was raised after the request.
    pub(crate) fn compare(&self, asked_after: Doubts, now: Option<CacheGeneration>) {
        self.with(|entry| entry.compare(asked_after, now));
    }

    /// Returns the number of reported changes of mode parameters. Call this before reading the mode
    /// parameters.
    pub(crate) fn mode_changes(&self) -> u64 {
        self.with(|entry| entry.mode_changes)
    }

    /// Returns whether a change of the mode parameters was reported since they were read.
    pub(crate) fn are_modes_in_doubt(&self) -> bool {
        self.with(|entry| entry.mode_changes != entry.asked_at)
    }

    /// Records the result of reading the mode parameters. `asked_at` is the number of reported changes before
    /// the request.
    pub(crate) fn note_modes(&self, asked_at: u64, write_through: bool) {
        self.with(|entry| {
            debug_assert!(
                asked_at <= entry.mode_changes,
                "changes are counted upwards"
            );
            entry.asked_at = asked_at;
            entry.write_through = write_through && asked_at == entry.mode_changes;
        });
    }

    /// Returns the number of reported resets, and of reported losses of writes.
    pub(crate) fn events(&self) -> (u64, u64) {
        self.with(|entry| (entry.resets, entry.losses))
    }

    /// Returns the generation that was read last.
    pub(crate) fn generation(&self) -> Option<CacheGeneration> {
        self.with(|entry| entry.generation)
    }

    /// Records the generation of a new device's cache.
    pub(crate) fn note_generation(&self, generation: Option<CacheGeneration>) {
        self.with(|entry| entry.generation = generation);
    }

    /// Records the cache mode and the generation that were read after the session was reinstated. Earlier
    /// writes are on stable storage if the target reported a write-through cache both before and after the
    /// reinstatement.
    pub(crate) fn look_again(
        &self,
        (asked_at, asked_after): (u64, Doubts),
        write_through: bool,
        generation: Option<CacheGeneration>,
    ) {
        self.with(|entry| {
            entry.write_through &= write_through;
            entry.compare(asked_after, generation);
        });
        self.note_modes(asked_at, write_through);
    }

    pub(crate) fn begin_flush(&self) -> Flush {
        self.with(|entry| entry.ledger.begin_flush())
    }

    pub(crate) fn end_flush(
        &self,
        flush: Flush,
        answer: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.with(|entry| entry.ledger.end_flush(flush, answer))
    }

    pub(crate) fn begin_stable_write(&self) -> StableWrite {
        self.with(|entry| entry.ledger.begin_stable_write())
    }

    pub(crate) fn end_stable_write(
        &self,
        write: StableWrite,
        flush: Flush,
        answer: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.with(|entry| entry.ledger.end_stable_write(write, flush, answer))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Entry) -> T) -> T {
        let mut ledgers = self.caches.ledgers.lock();
        let entry = ledgers
            .entries
            .iter_mut()
            .find(|entry| entry.key == self.key);
        act(entry.expect("it is there until this is dropped"))
    }
}

impl Drop for CachedWrites {
    fn drop(&mut self) {
        self.caches
            .ledgers
            .lock()
            .entries
            .retain(|entry| entry.key != self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL_SESSIONS: Lun = Lun(0);
    const THERE: Lun = Lun(1 << 48);
    const LOST: Result<(), DeviceError> = Err(DeviceError::WritesLost);

    struct Scene {
        caches: Arc<Caches>,
        device: CachedWrites,
    }

    fn scene(generation: Option<u8>) -> Scene {
        let caches = Arc::<Caches>::default();
        let device = caches.watch(LOCAL_SESSIONS);
        device.note_generation(generation.and_then(generation_of));
        Scene { caches, device }
    }

    fn generation_of(byte: u8) -> Option<CacheGeneration> {
        CacheGeneration::parse(&[&b"\0\xc0\0\x1cLINERATE\x01\0\0\0"[..], &[byte; 16]].concat())
    }

    impl Scene {
        fn done(&self, lun: Lun, effect: Effect) {
            self.caches.note(lun, effect, CacheEffect::Done);
        }

        fn reset(&self, lun: Lun) {
            self.caches.note(lun, Effect::None, CacheEffect::Reset);
        }

        /// Reads the generation. No event occurs between the request and the response.
        fn compare(&self, now: Option<CacheGeneration>) {
            self.device.compare(self.device.doubts(), now);
        }

        fn flush(&self) -> Result<(), DeviceError> {
            let flush = self.device.begin_flush();
            self.device.end_flush(flush, Ok(()))
        }
    }

    #[test]
    fn a_reset_loses_what_was_written_to_its_unit() {
        let scene = scene(None);
        scene.done(LOCAL_SESSIONS, Effect::Cached);
        scene.reset(THERE);
        assert_eq!(scene.flush(), Ok(()));
        scene.done(LOCAL_SESSIONS, Effect::Cached);
        scene.reset(LOCAL_SESSIONS);
        assert_eq!((scene.flush(), scene.flush()), (LOST, Ok(())));
    }

    /// Regression: the log once had `Lun(281474976710656)`.
    #[test]
    fn a_loss_is_logged_with_the_number_of_its_lun() {
        let caches = Arc::<Caches>::default();
        let _device = caches.watch(THERE);
        let lose = || {
            caches.note(THERE, Effect::Cached, CacheEffect::Done);
            caches.note(THERE, Effect::None, CacheEffect::Reset);
        };
        let ((), log) = testkit::logged(lose);
        assert!(
            log.trim_end()
                .ends_with("the target may have lost acknowledged writes lun=1"),
            "{log}"
        );
    }

    #[test]
    fn reads_stable_writes_and_other_units_leave_nothing_to_lose() {
        let scene = scene(None);
        scene.done(LOCAL_SESSIONS, Effect::None);
        scene.done(LOCAL_SESSIONS, Effect::Stable);
        scene.done(THERE, Effect::Cached);
        scene.reset(LOCAL_SESSIONS);
        assert_eq!(scene.flush(), Ok(()));
    }

    #[test]
    fn a_copy_by_the_target_writes_to_any_unit() {
        let scene = scene(None);
        scene.done(THERE, Effect::Anywhere);
        scene.reset(LOCAL_SESSIONS);
        assert_eq!(scene.flush(), LOST);
    }

    #[test]
    fn a_reset_with_the_same_cache_behind_it_loses_nothing() {
        for (now, expected) in [(Some(7), Ok(())), (Some(8), LOST), (None, LOST)] {
            let scene = scene(Some(7));
            scene.done(LOCAL_SESSIONS, Effect::Cached);
            scene.reset(LOCAL_SESSIONS);
            assert!(scene.device.is_in_doubt());
            scene.compare(now.and_then(generation_of));
            assert_eq!(
                (scene.flush(), scene.device.is_in_doubt()),
                (expected, false),
                "{now:?}"
            );
        }
    }

    /// The response with the generation arrived before the session was reinstated, and is compared
    /// afterwards.
    #[test]
    fn a_generation_from_before_a_doubt_does_not_resolve_it() {
        for (before, now, expected) in [(7, 7, Ok(())), (7, 8, LOST), (6, 7, Ok(()))] {
            let scene = scene(Some(7));
            scene.done(LOCAL_SESSIONS, Effect::Cached);
            scene.reset(LOCAL_SESSIONS);
            let asked_after = scene.device.doubts();
            scene.caches.renewed();
            scene.device.compare(asked_after, generation_of(before));
            assert!(scene.device.is_in_doubt(), "its answer is older");
            scene.compare(generation_of(now));
            assert_eq!(
                (scene.flush(), scene.device.is_in_doubt()),
                (expected, false),
                "{before}, {now}"
            );
        }
    }

    /// Some targets do not report POWER ON to a new nexus, not even after a crash.
    #[test]
    fn a_session_that_is_begun_again_with_a_target_that_tells_nothing_may_have_lost_the_cache() {
        let scene = scene(None);
        scene.done(LOCAL_SESSIONS, Effect::Cached);
        scene.compare(None);
        assert_eq!((scene.flush(), scene.flush()), (LOST, Ok(())));
        scene.compare(None);
        assert_eq!(scene.flush(), Ok(()), "nothing was written since");
    }

    #[test]
    fn every_device_of_a_session_is_told() {
        let scene = scene(None);
        let other = scene.caches.watch(LOCAL_SESSIONS);
        scene.done(LOCAL_SESSIONS, Effect::Cached);
        scene.reset(LOCAL_SESSIONS);
        assert_eq!(scene.flush(), LOST);
        let flush = other.begin_flush();
        assert_eq!(other.end_flush(flush, Ok(())), LOST);
    }

    fn answered(sense: &[u8]) -> CacheEffect {
        let status = status::CHECK_CONDITION;
        CacheEffect::from_outcome(&Ok(Status {
            status,
            sense: sense.into(),
            in_bytes: 0,
            residual: iscsi::pdu::Residual::None,
        }))
    }

    const WRITE_ERROR: [u8; 14] = [0x70, 0, 0x03, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x0c, 0];
    const MODE_PARAMETERS_CHANGED: [u8; 14] =
        [0x70, 0, 0x06, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x2a, 0x01];

    /// Regression: a target reports a loss once per nexus, here to a stable write. Another user of the
    /// session had written the lost data, and its next flush succeeded.
    #[test]
    fn a_stable_write_that_is_told_of_lost_writes_fails_the_next_flush() {
        for effect in [Effect::Stable, Effect::Flush] {
            let scene = scene(Some(7));
            scene.done(LOCAL_SESSIONS, Effect::Cached);
            scene
                .caches
                .note(LOCAL_SESSIONS, effect, answered(&WRITE_ERROR));
            assert!(scene.device.is_in_doubt());
            scene.compare(generation_of(8)); // a flush compares the generation before it completes
            assert_eq!((scene.flush(), scene.flush()), (LOST, Ok(())), "{effect:?}");
        }
        let scene = scene(Some(7));
        scene.done(LOCAL_SESSIONS, Effect::Cached);
        scene
            .caches
            .note(LOCAL_SESSIONS, Effect::Cached, answered(&WRITE_ERROR));
        assert_eq!(
            scene.flush(),
            Ok(()),
            "that write was never acknowledged, and no other is concerned"
        );
    }

    #[test]
    fn a_flush_whose_answer_is_lost_has_the_generation_compared() {
        for (now, expected) in [(7, Ok(())), (8, LOST)] {
            let scene = scene(Some(7));
            scene.done(LOCAL_SESSIONS, Effect::Cached);
            scene.caches.note(
                LOCAL_SESSIONS,
                Effect::None,
                CacheEffect::from_outcome(&Err(CommandError::ConnectionLost)),
            );
            assert!(!scene.device.is_in_doubt());
            scene.caches.note(
                LOCAL_SESSIONS,
                Effect::Flush,
                CacheEffect::from_outcome(&Err(CommandError::ConnectionLost)),
            );
            assert!(scene.device.is_in_doubt());
            scene.compare(generation_of(now));
            assert_eq!(scene.flush(), expected);
        }
        let scene = scene(None);
        scene.caches.note(
            LOCAL_SESSIONS,
            Effect::Flush,
            CacheEffect::from_outcome(&Err(CommandError::ConnectionLost)),
        );
        assert!(!scene.device.is_in_doubt(), "there is nothing to compare");
    }

    #[test]
    fn what_is_on_stable_storage_is_not_lost_until_a_cache_is_switched_on() {
        let scene = scene(None);
        scene.device.note_modes(0, true);
        scene.done(LOCAL_SESSIONS, Effect::Cached);
        scene.reset(LOCAL_SESSIONS);
        scene
            .device
            .look_again((0, scene.device.doubts()), true, None);
        assert_eq!(scene.flush(), Ok(()));
        // Any command may receive the report, while other commands are outstanding.
        scene.caches.note(
            LOCAL_SESSIONS,
            Effect::None,
            answered(&MODE_PARAMETERS_CHANGED),
        );
        scene.done(LOCAL_SESSIONS, Effect::Cached);
        scene.reset(LOCAL_SESSIONS);
        assert_eq!(scene.flush(), LOST);
    }

    #[test]
    fn an_answer_about_modes_that_is_out_of_date_does_not_count() {
        let scene = scene(None);
        scene.device.note_modes(0, true);
        assert!(!scene.device.are_modes_in_doubt());
        scene.caches.note(
            LOCAL_SESSIONS,
            Effect::None,
            answered(&MODE_PARAMETERS_CHANGED),
        );
        let asked_at = scene.device.mode_changes();
        scene.caches.note(
            LOCAL_SESSIONS,
            Effect::None,
            answered(&MODE_PARAMETERS_CHANGED),
        );
        scene.device.note_modes(asked_at, true);
        assert!(scene.device.are_modes_in_doubt(), "it has changed since");
        scene.done(LOCAL_SESSIONS, Effect::Cached);
        scene.reset(LOCAL_SESSIONS);
        assert_eq!(scene.flush(), LOST);
        scene.device.note_modes(scene.device.mode_changes(), true);
        scene.done(LOCAL_SESSIONS, Effect::Cached);
        scene.reset(LOCAL_SESSIONS);
        assert_eq!(
            (scene.flush(), scene.device.are_modes_in_doubt()),
            (Ok(()), false)
        );
    }

    #[test]
    fn an_error_of_an_earlier_command_is_a_loss_whatever_the_generation() {
        let scene = scene(Some(7));
        scene.done(LOCAL_SESSIONS, Effect::Cached);
        scene.caches.note_sense(
            LOCAL_SESSIONS,
            &[0x71, 0, 0x03, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x0c, 0],
        );
        assert_eq!(scene.flush(), LOST);
    }
}
