//! The served volumes and their names, as versioned immutable snapshots. A change makes a new snapshot; users
//! of an old one keep what they use by `Arc`, never by index.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::Lock;

use crate::Volume;

/// The volumes that are served now.
pub struct Registry {
    current: Lock<Arc<Snapshot>>,
}

/// A snapshot of the served volumes.
#[derive(Debug, Default)]
pub struct Snapshot {
    version: u64,
    volumes: BTreeMap<String, Arc<Volume>>,
}

/// Volumes by name.
pub type NamedVolumes = Vec<(String, Arc<Volume>)>;

impl Registry {
    /// Serves these volumes first, as version 1.
    pub fn new(volumes: NamedVolumes) -> Registry {
        let snapshot = Snapshot { version: 1, volumes: volumes.into_iter().collect() };
        Registry { current: Lock::new(Arc::new(snapshot)) }
    }

    /// The current snapshot.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.lock())
    }

    /// Serves these volumes from now on, as the next version.
    pub fn replace(&self, volumes: NamedVolumes) {
        let mut current = self.current.lock();
        let version = current.version + 1;
        let before = std::mem::replace(
            &mut *current,
            Arc::new(Snapshot { version, volumes: volumes.into_iter().collect() }),
        );
        drop(current);
        drop(before); // may close volumes: not under the lock
    }
}

impl Snapshot {
    /// How many snapshots there were, this one included.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The volume of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Volume>> {
        self.volumes.get(name)
    }

    /// The first name of this volume.
    pub fn name_of(&self, volume: &Arc<Volume>) -> Option<&str> {
        self.iter().find(|(_, other)| Arc::ptr_eq(other, volume)).map(|(name, _)| name)
    }

    /// All of them, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Volume>)> {
        self.volumes.iter().map(|(name, volume)| (name.as_str(), volume))
    }

    /// Whether this volume is among them, under whatever name.
    pub fn contains(&self, volume: &Arc<Volume>) -> bool {
        self.name_of(volume).is_some()
    }
}

#[cfg(test)]
mod tests {
    use block::{BlockSize, Geometry, Null};

    use super::*;

    fn volume() -> Arc<Volume> {
        let block_size = BlockSize::B512;
        let blocks = block_size.exact(1 << 20).expect("whole blocks");
        let device = Null::new(Geometry { block_size, blocks, physical_exponent: 0 });
        Volume::new(Arc::new(device), Default::default()).expect("nothing was saved")
    }

    #[test]
    fn a_snapshot_stays_as_it_is_when_another_takes_its_place() {
        let (one, two) = (volume(), volume());
        let registry = Registry::new(vec![("one".to_owned(), Arc::clone(&one))]);
        let before = registry.snapshot();
        registry.replace(vec![("two".to_owned(), Arc::clone(&two))]);
        let after = registry.snapshot();
        assert_eq!((before.version(), after.version()), (1, 2));
        assert!(before.get("one").is_some() && before.contains(&one) && !before.contains(&two));
        assert!(after.get("one").is_none() && after.contains(&two));
        assert_eq!(after.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["two"]);
    }

    #[test]
    fn a_volume_is_closed_with_the_last_snapshot_that_has_it() {
        let one = volume();
        let gone = Arc::downgrade(&one);
        let registry = Registry::new(vec![("one".to_owned(), one)]);
        let before = registry.snapshot();
        registry.replace(Vec::new());
        assert!(gone.upgrade().is_some(), "somebody uses it");
        drop(before);
        assert!(gone.upgrade().is_none());
    }
}
