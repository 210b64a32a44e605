//! The persistent state of a volume besides its blocks: reservations, bytes of the front end, and a record of
//! lost acknowledged writes.

use block::{Exclusive, Extent, Pending};

use crate::Volume;
use crate::reservations::Registrations;
use crate::saved::Saved;

/// Different after each loss of acknowledged writes: a part of the cache generation that initiators compare.
pub type LossMark = [u8; 16];

/// Where a volume saves what must survive a restart: reservations, mode pages.
pub trait PersistentState: Send + Sync {
    /// Replaces what is saved; ends when the bytes are on stable storage.
    fn save<'a>(&'a self, bytes: Vec<u8>) -> Pending<'a, ()>;

    /// What was saved last, if anything.
    fn load(&self) -> Option<Vec<u8>>;

    /// The mark of the last loss of acknowledged writes that was recorded before this start; zeros if there was none.
    fn loss_mark(&self) -> LossMark;

    /// A mark that no loss has had.
    fn new_loss_mark(&self) -> LossMark;

    /// Records that acknowledged writes were lost although the device's cache survived: `mark` is that of the next start.
    /// Completes when that is on stable storage, or has failed.
    fn record_loss(&self, mark: LossMark) -> Pending<'_, ()>;
}

/// The lock for changes of the saved state. Saves must not overtake each other: it is held from reading the
/// state in memory until both copies have changed.
pub struct SaveLock(#[expect(dead_code, reason = "held, not read")] Exclusive);

/// What must survive a restart could not be saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsaved;

impl Volume {
    /// Waits for the lock for changes of the saved state.
    pub async fn lock_to_save(&self) -> SaveLock {
        SaveLock(self.save_locks.exclude(Extent::new(0, 1)).await)
    }

    /// Saves `next` in place of the reservations, unless a restart would see no difference. They take effect
    /// only by [`Volume::set_reservations`]: an acknowledged change is saved, and a change that could not be
    /// saved has no effect.
    ///
    /// # Errors
    /// Nothing has changed.
    pub async fn save_reservations(&self, next: &Registrations, lock: &SaveLock) -> Result<(), Unsaved> {
        let reservations = next.to_bytes();
        if reservations == self.reservations().to_bytes() {
            return Ok(());
        }
        let front_end = self.front_end_state();
        self.save(Saved { reservations, front_end }, lock).await
    }

    /// Saves these bytes in place of the front end's.
    ///
    /// # Errors
    /// Nothing has changed.
    pub async fn save_front_end_state(&self, bytes: Vec<u8>, lock: &SaveLock) -> Result<(), Unsaved> {
        let reservations = self.reservations().to_bytes();
        self.save(Saved { reservations, front_end: bytes.clone() }, lock).await?;
        self.set_front_end_state(bytes);
        Ok(())
    }

    /// What the front end has saved, empty if nothing.
    pub fn front_end_state(&self) -> Vec<u8> {
        self.front_end_state.lock().clone()
    }

    /// What the front end keeps, to be saved with whatever is saved next.
    pub fn set_front_end_state(&self, bytes: Vec<u8>) {
        *self.front_end_state.lock() = bytes;
    }

    async fn save(&self, saved: Saved, _lock: &SaveLock) -> Result<(), Unsaved> {
        let state = self.persistent_state.as_ref().ok_or(Unsaved)?;
        state.save(saved.to_bytes()).await.map_err(|_| Unsaved)
    }

    /// Whether anything can be saved.
    pub fn can_save(&self) -> bool {
        self.persistent_state.is_some()
    }
}
