//! Records issued and executed commands, and the results that each initiator received. Every guarantee of the
//! protocol is checked at the point where it could be violated.

use std::collections::BTreeMap;

/// The result of a command, as far as the initiator has received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Outstanding,
    Good,
    Aborted,
    /// Its session or its initiator is gone.
    Lost,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) host: u8,
    /// Number of the host's session.
    pub(crate) session: u32,
    pub(crate) block: u16,
    pub(crate) bytes: u32,
    pub(crate) is_write: bool,
    pub(crate) known: Known,
    pub(crate) executed: u32,
    /// For a read: content of the block when it was executed.
    pub(crate) found: u64,
}

#[derive(Default)]
pub(crate) struct Ledger {
    /// Commands by identifier, which increases in the order of issue.
    pub(crate) commands: BTreeMap<u64, Entry>,
    next: u64,
    /// The identifier of the latest write of each block; 0 before the first.
    pub(crate) disk: BTreeMap<u16, u64>,
    /// The newest session of each host with an executed command.
    newest: BTreeMap<u8, u32>,
    pub(crate) completed: u64,
    pub(crate) lost: u64,
    pub(crate) aborted: u64,
}

/// The data of a write.
pub(crate) fn pattern(id: u64, bytes: u32) -> Vec<u8> {
    let mut state = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

impl Ledger {
    pub(crate) fn issue(
        &mut self,
        host: u8,
        session: u32,
        block: u16,
        bytes: u32,
        is_write: bool,
    ) -> u64 {
        self.next += 1;
        let entry = Entry {
            host,
            session,
            block,
            bytes,
            is_write,
            known: Known::Outstanding,
            executed: 0,
            found: 0,
        };
        self.commands.insert(self.next, entry);
        self.next
    }

    /// Called when the target executes a command.
    pub(crate) fn execute(&mut self, id: u64, data: &[u8]) -> Vec<u8> {
        let held = self
            .commands
            .get(&id)
            .map_or(0, |entry| self.disk.get(&entry.block).copied().unwrap_or(0));
        let entry = self
            .commands
            .get_mut(&id)
            .expect("a command that was issued");
        entry.executed += 1;
        assert_eq!(entry.executed, 1, "command {id} is executed a second time");
        assert!(
            matches!(entry.known, Known::Outstanding | Known::Lost),
            "command {id} is executed after its initiator was told that it ended: {entry:?}"
        );
        let newest = self.newest.entry(entry.host).or_default();
        assert!(
            entry.session >= *newest,
            "command {id} of an old session is executed after a newer one"
        );
        *newest = entry.session;
        if !entry.is_write {
            entry.found = held;
            return pattern(held, entry.bytes);
        }
        assert!(
            held < id,
            "stale write: {id} overwrites {held} of block {}",
            entry.block
        );
        assert!(
            data == pattern(id, entry.bytes),
            "the data of command {id} were mixed up"
        );
        self.disk.insert(entry.block, id);
        Vec::new()
    }

    /// Called when a command succeeds at the initiator.
    pub(crate) fn complete(&mut self, id: u64, data: &[u8]) {
        let entry = self
            .commands
            .get_mut(&id)
            .expect("a command that was issued");
        assert_eq!(entry.known, Known::Outstanding, "command {id} ends twice");
        assert_eq!(
            entry.executed, 1,
            "command {id} succeeded and was not executed"
        );
        if !entry.is_write {
            assert!(
                data == pattern(entry.found, entry.bytes),
                "command {id} read something else"
            );
        }
        entry.known = Known::Good;
        self.completed += 1;
        self.commands.remove(&id);
    }

    pub(crate) fn abort(&mut self, id: u64) {
        let entry = self
            .commands
            .get_mut(&id)
            .expect("a command that was issued");
        assert_eq!(
            (entry.known, entry.executed),
            (Known::Outstanding, 0),
            "an aborted command has no effect"
        );
        entry.known = Known::Aborted;
        self.aborted += 1;
    }

    pub(crate) fn lose(&mut self, id: u64) {
        let entry = self
            .commands
            .get_mut(&id)
            .expect("a command that was issued");
        assert_eq!(entry.known, Known::Outstanding, "command {id} ends twice");
        entry.known = Known::Lost;
        self.lost += 1;
    }

    /// Called when a host is gone, which receives no more results.
    pub(crate) fn lose_all(&mut self, host: u8) {
        for entry in self.commands.values_mut() {
            if entry.host == host && entry.known == Known::Outstanding {
                entry.known = Known::Lost;
                self.lost += 1;
            }
        }
    }
}
