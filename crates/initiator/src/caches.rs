//! What block devices of a session have written and not yet flushed, where their logical units have volatile caches.
//!
//! The session's thread notes every command that ends, whoever sent it: a WRITE that was answered is known to be
//! unflushed before its waiter sees the answer, and a unit attention that tells of a reset counts also where a command
//! by name has taken it. Each device has a [`FlushLedger`] of its own, so that each is told.
//!
//! Most targets report a reset to every new I_T nexus, whether there was one or not, and some never report any. A report
//! counts as a loss, and so does a session that was begun again, unless the target tells the generation of its cache
//! (ours does, in VPD page C0h) and that has not changed.

use std::sync::Arc;

use block::{DeviceError, Flush, FlushLedger, Lock, LockGuard, StableWrite};
use iscsi::pdu::Lun;

use crate::effect::Effect;
use crate::error::CommandError;
use crate::sense::{Sense, status};
use crate::tasks::Status;
use crate::verbs::CacheGeneration;

/// The ledgers of a session's block devices.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    ledgers: Lock<Ledgers>,
}

#[derive(Debug, Default)]
struct Ledgers {
    next_key: u64,
    /// Few: those of one session.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    key: u64,
    lun: Lun,
    ledger: FlushLedger,
    /// What the target told last.
    generation: Option<CacheGeneration>,
    /// A reset was reported, and the generation not asked for since.
    is_in_doubt: bool,
}

/// The ledger of one device, until this is dropped.
#[derive(Debug)]
pub(crate) struct CachedWrites {
    caches: Arc<Caches>,
    key: u64,
}

/// What the end of a command means for what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    None,
    /// The command was carried out.
    Done,
    /// Acknowledged writes may be lost.
    Loss,
    /// The same, unless the generation of the cache is what it was.
    Reset,
}

impl Trace {
    pub(crate) fn of(outcome: &Result<Status, CommandError>) -> Trace {
        let Ok(answer) = outcome else { return Trace::None };
        match answer.status {
            status::GOOD => Trace::Done,
            _ => Sense::parse(&answer.sense).map_or(Trace::None, Trace::of_sense),
        }
    }

    fn of_sense(sense: Sense) -> Trace {
        match sense {
            _ if sense.was_carried_out() => Trace::Done,
            _ if sense.tells_of_lost_write() => Trace::Loss,
            _ if sense.tells_of_reset() => Trace::Reset,
            _ => Trace::None,
        }
    }
}

impl Caches {
    /// Keeps a ledger for a device from now on.
    pub(crate) fn watch(self: &Arc<Self>, lun: Lun, generation: Option<CacheGeneration>) -> CachedWrites {
        let mut ledgers = self.ledgers();
        let key = ledgers.next_key;
        ledgers.next_key += 1;
        ledgers.entries.push(Entry {
            key,
            lun,
            ledger: FlushLedger::default(),
            generation,
            is_in_doubt: false,
        });
        CachedWrites { caches: Arc::clone(self), key }
    }

    /// A command has ended.
    pub(crate) fn note(&self, lun: Lun, effect: Effect, trace: Trace) {
        let of_all = match (trace, effect) {
            (Trace::None, _) | (Trace::Done, Effect::None | Effect::Flush | Effect::Stable) => return,
            (Trace::Done, Effect::Registers | Effect::Unregisters | Effect::Other) => return,
            (Trace::Done, Effect::Anywhere) => true,
            (Trace::Done, Effect::Cached) | (Trace::Loss | Trace::Reset, _) => false,
        };
        let mut ledgers = self.ledgers();
        for entry in ledgers.entries.iter_mut().filter(|entry| of_all || entry.lun == lun) {
            entry.note(trace);
        }
    }

    /// A target has said something of a logical unit of its own accord.
    pub(crate) fn note_sense(&self, lun: Lun, sense: &[u8]) {
        if let Some(sense) = Sense::parse(sense) {
            self.note(lun, Effect::None, Trace::of_sense(sense));
        }
    }

    fn ledgers(&self) -> LockGuard<'_, Ledgers> {
        // Nobody panics while holding it: numbers are changed.
        self.ledgers.lock()
    }
}

impl Entry {
    fn note(&mut self, trace: Trace) {
        match trace {
            Trace::None => {}
            Trace::Done => self.ledger.note_write(),
            Trace::Reset if self.generation.is_some() => self.is_in_doubt = true,
            Trace::Loss | Trace::Reset => self.lose(),
        }
    }

    fn lose(&mut self) {
        if self.ledger.note_loss() {
            tracing::error!(lun = ?self.lun, "the target may have lost writes that it had acknowledged");
        }
    }

    /// What the target tells now. One that has told nothing may have been restarted and never say so.
    fn compare(&mut self, now: Option<CacheGeneration>) {
        self.is_in_doubt = false;
        if self.generation.is_none() || self.generation != now {
            self.lose();
        }
        self.generation = now;
    }
}

impl CachedWrites {
    /// Whether a reset was reported, so that it is to be found out whether the cache is what it was.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.with(|entry| entry.is_in_doubt)
    }

    /// The logical unit was not there for a while.
    pub(crate) fn note_reset(&self) {
        self.with(|entry| entry.note(Trace::Reset));
    }

    /// The target was asked for the generation of its cache, since the session was begun again or a reset was reported.
    pub(crate) fn compare(&self, now: Option<CacheGeneration>) {
        self.with(|entry| entry.compare(now));
    }

    pub(crate) fn begin_flush(&self) -> Flush {
        self.with(|entry| entry.ledger.begin_flush())
    }

    pub(crate) fn end_flush(&self, flush: Flush, answer: Result<(), DeviceError>) -> Result<(), DeviceError> {
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
        let mut ledgers = self.caches.ledgers();
        let entry = ledgers.entries.iter_mut().find(|entry| entry.key == self.key);
        act(entry.expect("it is there until this is dropped"))
    }
}

impl Drop for CachedWrites {
    fn drop(&mut self) {
        self.caches.ledgers().entries.retain(|entry| entry.key != self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Lun = Lun(0);
    const THERE: Lun = Lun(1 << 48);
    const LOST: Result<(), DeviceError> = Err(DeviceError::WritesLost);

    struct Scene {
        caches: Arc<Caches>,
        device: CachedWrites,
    }

    fn scene(generation: Option<u8>) -> Scene {
        let caches = Arc::<Caches>::default();
        let device = caches.watch(HERE, generation.and_then(generation_of));
        Scene { caches, device }
    }

    fn generation_of(byte: u8) -> Option<CacheGeneration> {
        CacheGeneration::parse(&[&b"\0\xc0\0\x1cLINERATE\x01\0\0\0"[..], &[byte; 16]].concat())
    }

    impl Scene {
        fn done(&self, lun: Lun, effect: Effect) {
            self.caches.note(lun, effect, Trace::Done);
        }

        fn reset(&self, lun: Lun) {
            self.caches.note(lun, Effect::None, Trace::Reset);
        }

        fn flush(&self) -> Result<(), DeviceError> {
            let flush = self.device.begin_flush();
            self.device.end_flush(flush, Ok(()))
        }
    }

    #[test]
    fn a_reset_loses_what_was_written_to_its_unit() {
        let scene = scene(None);
        scene.done(HERE, Effect::Cached);
        scene.reset(THERE);
        assert_eq!(scene.flush(), Ok(()));
        scene.done(HERE, Effect::Cached);
        scene.reset(HERE);
        assert_eq!((scene.flush(), scene.flush()), (LOST, Ok(())));
    }

    #[test]
    fn reads_stable_writes_and_other_units_leave_nothing_to_lose() {
        let scene = scene(None);
        scene.done(HERE, Effect::None);
        scene.done(HERE, Effect::Stable);
        scene.done(THERE, Effect::Cached);
        scene.reset(HERE);
        assert_eq!(scene.flush(), Ok(()));
    }

    #[test]
    fn a_copy_by_the_target_writes_to_any_unit() {
        let scene = scene(None);
        scene.done(THERE, Effect::Anywhere);
        scene.reset(HERE);
        assert_eq!(scene.flush(), LOST);
    }

    #[test]
    fn a_reset_with_the_same_cache_behind_it_loses_nothing() {
        for (now, expected) in [(Some(7), Ok(())), (Some(8), LOST), (None, LOST)] {
            let scene = scene(Some(7));
            scene.done(HERE, Effect::Cached);
            scene.reset(HERE);
            assert!(scene.device.is_in_doubt());
            scene.device.compare(now.and_then(generation_of));
            assert_eq!((scene.flush(), scene.device.is_in_doubt()), (expected, false), "{now:?}");
        }
    }

    /// Not every target reports POWER ON to a new nexus, not even behind a crash of its machine.
    #[test]
    fn a_session_that_is_begun_again_with_a_target_that_tells_nothing_may_have_lost_the_cache() {
        let scene = scene(None);
        scene.done(HERE, Effect::Cached);
        scene.device.compare(None);
        assert_eq!((scene.flush(), scene.flush()), (LOST, Ok(())));
        scene.device.compare(None);
        assert_eq!(scene.flush(), Ok(()), "nothing was written since");
    }

    #[test]
    fn every_device_of_a_session_is_told() {
        let scene = scene(None);
        let other = scene.caches.watch(HERE, None);
        scene.done(HERE, Effect::Cached);
        scene.reset(HERE);
        assert_eq!(scene.flush(), LOST);
        let flush = other.begin_flush();
        assert_eq!(other.end_flush(flush, Ok(())), LOST);
    }

    #[test]
    fn an_error_of_an_earlier_command_is_a_loss_whatever_the_generation() {
        let scene = scene(Some(7));
        scene.done(HERE, Effect::Cached);
        scene.caches.note_sense(HERE, &[0x71, 0, 0x03, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x0c, 0]);
        assert_eq!(scene.flush(), LOST);
    }
}
