//! Tables of a session, used by both the target and the initiator: its tasks by number, and its connections.
//! A generation distinguishes a reused number from its earlier use.
//!
//! A lookup costs an index operation and a comparison. A table allocates memory only when the number of
//! concurrent tasks exceeds its previous maximum.

/// Identifies an entry: its slot, and the generation of that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Entries by [`Key`].
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    tenant: Option<T>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| self.grow());
        let slot = &mut self.slots[index as usize];
        debug_assert!(slot.tenant.is_none(), "a free place is empty");
        slot.generation = slot.generation.wrapping_add(1);
        slot.tenant = Some(value);
        Key {
            index,
            generation: slot.generation,
        }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.tenant.take()?;
        debug_assert!(self.free.len() < self.slots.len(), "a place is freed twice");
        self.free.push(key.index);
        Some(value)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        slot.tenant
            .as_ref()
            .filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        slot.tenant
            .as_mut()
            .filter(|_| slot.generation == key.generation)
    }

    /// Removes an entry that is no longer needed; returns whether it existed.
    pub(crate) fn discard(&mut self, key: Key) -> bool {
        // Drops the entry in place, because it is large and moving it would copy it.
        let Some(slot) = self.slots.get_mut(key.index as usize) else {
            return false;
        };
        let is_there = slot.generation == key.generation && slot.tenant.is_some();
        if is_there {
            slot.tenant = None;
            self.free.push(key.index);
        }
        is_there
    }

    /// The entry currently in a slot, whatever its generation.
    pub(crate) fn at(&self, index: u32) -> Option<(Key, &T)> {
        let slot = self.slots.get(index as usize)?;
        let key = Key {
            index,
            generation: slot.generation,
        };
        slot.tenant.as_ref().map(|value| (key, value))
    }

    /// The entry currently in a slot, mutable.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<(Key, &mut T)> {
        let slot = self.slots.get_mut(index as usize)?;
        let key = Key {
            index,
            generation: slot.generation,
        };
        slot.tenant.as_mut().map(|value| (key, value))
    }

    /// All entries, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        (0u32..).zip(&self.slots).filter_map(|(index, slot)| {
            let key = Key {
                index,
                generation: slot.generation,
            };
            slot.tenant.as_ref().map(|value| (key, value))
        })
    }

    /// All entries, by slot, mutable.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        (0u32..).zip(&mut self.slots).filter_map(|(index, slot)| {
            let key = Key {
                index,
                generation: slot.generation,
            };
            slot.tenant.as_mut().map(|value| (key, value))
        })
    }

    fn grow(&mut self) -> u32 {
        // The callers' tables are bounded by the command window, far below 2^32.
        let index = self.slots.len() as u32;
        self.slots.push(Slot {
            generation: 0,
            tenant: None,
        });
        index
    }
}

/// A connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    index: u16,
    generation: u16,
}

impl ConnectionId {
    /// An index unique among the connections of the session.
    pub fn index(self) -> usize {
        usize::from(self.index)
    }
}

/// A connection that stores its identifier.
pub(crate) trait Identified {
    fn id(&self) -> ConnectionId;
}

/// Connections by index. An index is reused after its connection is removed.
#[derive(Debug)]
pub(crate) struct Connections<C> {
    slots: Vec<Option<C>>,
    /// Distinguishes successive connections with the same index.
    generation: u16,
}

impl<C: Identified> Connections<C> {
    pub(crate) fn new() -> Connections<C> {
        Connections {
            slots: Vec::new(),
            generation: 0,
        }
    }

    pub(crate) fn add(&mut self, connection: impl FnOnce(ConnectionId) -> C) -> ConnectionId {
        let free = self.slots.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.generation = self.generation.wrapping_add(1);
        // MaxConnections is a 16-bit number, and the login enforces it.
        debug_assert!(
            u16::try_from(index).is_ok(),
            "more connections than a session may have"
        );
        let id = ConnectionId {
            index: index as u16,
            generation: self.generation,
        };
        self.slots[index] = Some(connection(id));
        id
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<C> {
        self.slots
            .get_mut(id.index())?
            .take_if(|connection| connection.id() == id)
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&C> {
        self.slots
            .get(id.index())?
            .as_ref()
            .filter(|connection| connection.id() == id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut C> {
        self.slots
            .get_mut(id.index())?
            .as_mut()
            .filter(|connection| connection.id() == id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> + Clone {
        self.slots.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.slots.iter_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_used_again_does_not_answer_to_its_old_key() {
        let mut slab = Slab::new();
        let old = slab.insert("old");
        assert_eq!(slab.remove(old), Some("old"));
        let new = slab.insert("new");
        assert_eq!((old.index, slab.get(old)), (new.index, None));
        assert_eq!(slab.remove(old), None);
        assert_eq!((slab.get(new), slab.len()), (Some(&"new"), 1));
    }

    #[test]
    fn places_are_used_again_before_new_ones_are_made() {
        let mut slab = Slab::new();
        for round in 0..100 {
            let key = slab.insert(round);
            assert_eq!(key.index, 0);
            slab.remove(key);
        }
        assert_eq!(slab.iter().count(), 0);
    }
}
