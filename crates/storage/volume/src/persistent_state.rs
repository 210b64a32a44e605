//! What a volume keeps across restarts besides its blocks: bytes of the front end, and that acknowledged writes were lost.

use block::{DeviceError, Exclusive, Extent, Pending};

use crate::Volume;

/// Where a volume saves what must survive a restart: reservations, mode pages.
pub trait PersistentState: Send + Sync {
    /// Replaces what is saved; ends when the bytes are on stable storage.
    fn save<'a>(&'a self, bytes: Vec<u8>) -> Pending<'a, ()>;

    /// What was saved last, if anything.
    fn load(&self) -> Option<Vec<u8>>;

    /// Acknowledged writes are lost although the device's cache was not: the cache's generation must be another one from the
    /// next start on. Ends when that is certain, or cannot be.
    fn record_loss(&self) -> Pending<'_, ()>;
}

/// The right to change what is saved. Saving takes time, and one save must not overtake another: it is held from reading the
/// state in memory until both that and the saved one have changed.
pub struct SaveLock(#[expect(dead_code, reason = "held, not read")] Exclusive);

impl Volume {
    /// Waits for the right to change what is saved.
    pub async fn lock_to_save(&self) -> SaveLock {
        SaveLock(self.save_locks.exclude(Extent::new(0, 1)).await)
    }

    /// Replaces what is saved.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if this volume has no [`PersistentState`]; what [`PersistentState::save`] says otherwise.
    pub async fn save(&self, bytes: Vec<u8>, _lock: &SaveLock) -> Result<(), DeviceError> {
        match &self.persistent_state {
            Some(state) => state.save(bytes).await,
            None => Err(DeviceError::Unsupported),
        }
    }

    /// What was saved last, if anything.
    pub fn saved(&self) -> Option<Vec<u8>> {
        self.persistent_state.as_ref()?.load()
    }

    /// Whether anything can be saved.
    pub fn can_save(&self) -> bool {
        self.persistent_state.is_some()
    }
}
