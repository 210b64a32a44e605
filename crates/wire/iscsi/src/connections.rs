//! The connections of a session, of either side.

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

/// A connection that knows its identifier.
pub(crate) trait Identified {
    fn id(&self) -> ConnectionId;
}

/// Connections by index. An index is reused after its connection is gone.
#[derive(Debug)]
pub(crate) struct Connections<C> {
    slots: Vec<Option<C>>,
    /// Distinguishes successive connections with the same index.
    generation: u16,
}

impl<C: Identified> Connections<C> {
    pub(crate) fn new() -> Connections<C> {
        Connections { slots: Vec::new(), generation: 0 }
    }

    pub(crate) fn add(&mut self, connection: impl FnOnce(ConnectionId) -> C) -> ConnectionId {
        let free = self.slots.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.generation = self.generation.wrapping_add(1);
        // MaxConnections is a 16-bit number, and the login enforces it.
        let id = ConnectionId { index: index as u16, generation: self.generation };
        self.slots[index] = Some(connection(id));
        id
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<C> {
        self.slots.get_mut(id.index())?.take_if(|connection| connection.id() == id)
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&C> {
        self.slots.get(id.index())?.as_ref().filter(|connection| connection.id() == id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut C> {
        self.slots.get_mut(id.index())?.as_mut().filter(|connection| connection.id() == id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &C> + Clone {
        self.slots.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut C> {
        self.slots.iter_mut().flatten()
    }
}
