//! Slow peers of a session, and discovery sessions that last too long. The core's timer checks for them,
//! outside the path of commands. The deadlines of commands are in `scsi_session`.
//!
//! ```text
//!   waits for                         limit               then
//!   data of a WRITE                   1 s (`SLOW`)        redirected to a buffer, if others need the blocks
//!   the peer to read data of a READ   1 s (`SLOW`)        copied to a buffer, if others need the blocks
//!   the end of a discovery session    `discovery-time`    its connection is closed
//!   Data-Out that the peer owes       `send_stall`        its connection is closed
//!   a slow peer that holds memory     5 s (`PATIENCE`)    its connection is closed, if others need it
//! ```

use std::rc::Rc;
use std::time::{Duration, Instant};

use block::Buffer;
use front_end_core::Charge;
use iscsi::target::{ConnectionId, TaskId};
use reactor::Payload;
use scsi_session::{Observed, Receiving, Task, WaitingFor};

use crate::link::SLOW;
use crate::session::Landing;
use crate::session::Session;

/// A slow peer that has held memory for this time loses its connection if others need the memory.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

impl Session {
    /// Moves transfers of slow peers from the volume's memory to buffers if other commands wait for their
    /// blocks. An initiator that has failed during a transfer, or does not read its data, must not delay a
    /// COMPARE AND WRITE of another initiator. (ESXi waits eight seconds for this command.) If there is no
    /// memory for the buffer, the connection is cut.
    pub(crate) fn withdraw_slow_transfers(&mut self, now: Instant) {
        let (mut writes, mut reads) = (Vec::new(), Vec::new());
        for (task, Observed { since, .. }) in self.commands.observed() {
            if now.duration_since(since) <= SLOW {
                continue;
            }
            if self
                .commands
                .receiving(task.id)
                .is_some_and(|receiving| receiving.job.is_in_the_way())
            {
                writes.push(task.id);
            }
            let lock = task.outgoing().and_then(|outgoing| outgoing.lock.as_ref());
            if lock.is_some_and(block::Shared::is_contended) {
                reads.push(task.id);
            }
        }
        for id in writes {
            self.withdraw_write(id);
        }
        for id in reads {
            // The queued data belongs to the connection, which must copy it.
            if let Some(link) = self.link(id.connection()) {
                link.withdraw();
            }
        }
    }

    /// Redirects the missing blocks of a write to a buffer. If there is no memory for the buffer, the
    /// connection is cut.
    fn withdraw_write(&mut self, id: TaskId) {
        let Some(Landing::Memory { blocks, .. }) = self.landing(id) else {
            return;
        };
        let start = blocks.rest_start();
        let bytes = Buffer::memory_bytes(blocks.len() - start);
        if !self.commands.charge(id, bytes) {
            return self.cut_slow(id.connection());
        }
        let Some(Receiving { job, landing }) = self.commands.receiving_mut(id) else {
            return;
        };
        if let Landing::Memory { blocks, .. } = landing
            && let Some(buffer) = job.withdraw(blocks)
        {
            debug_assert_eq!(
                start + buffer.len(),
                blocks.len(),
                "the buffer is for the missing blocks"
            );
            *landing = Landing::Buffer { start, buffer };
        }
    }

    /// Memory for a copy of a connection's queued data.
    pub(crate) fn charge_copy(&self, bytes: usize) -> Option<Charge> {
        self.commands.budget.take(bytes)
    }

    /// Copies the data that a connection has not queued yet from the volume's memory, and unlocks the blocks;
    /// `None` if there is not enough memory.
    pub(crate) fn withdraw_reads(&mut self, id: ConnectionId) -> Option<()> {
        let is_on_the_medium = |task: &&Task<Session>| {
            task.id.connection() == id
                && task
                    .outgoing()
                    .is_some_and(|outgoing| outgoing.lock.is_some())
        };
        let tasks: Vec<TaskId> = self
            .commands
            .tasks()
            .filter(is_on_the_medium)
            .map(|task| task.id)
            .collect();
        for id in tasks {
            let bytes = self.payload(id).len();
            if !self.commands.charge(id, bytes) {
                return None;
            }
            let Some(outgoing) = self.commands.outgoing_mut(id) else {
                continue;
            };
            if let Payload::Memory(region) = &outgoing.payload {
                let mut copy = Buffer::recycled(region.len());
                region.load(0, &mut copy);
                outgoing.payload = Payload::Buffer(Rc::new(copy));
            }
            outgoing.lock = None;
        }
        Some(())
    }

    /// Ends a discovery session that has exceeded its time limit.
    pub(crate) fn end_discovery(&self, now: Instant) {
        if self.identity.target.is_some() {
            return;
        }
        let most = self.context.config().limits.discovery_time;
        if now.duration_since(self.identity.started) > most {
            self.links().for_each(|link| link.cut_late());
        }
    }

    /// Cuts the connections of peers that owe Data-Out and have sent none of it for `stall`.
    pub(crate) fn cut_stalled(&mut self, now: Instant, stall: Duration) {
        for (id, link) in self.links.iter().flatten() {
            let owed = self
                .commands
                .tasks()
                .filter(|task| task.id.connection() == *id && task.is_receiving());
            let received = owed
                .map(|task| 1 + u64::from(self.machine.data_received(task.id)))
                .reduce(u64::wrapping_add);
            if link
                .observe_owed(now, received)
                .is_some_and(|since| now.duration_since(since) > stall)
            {
                link.cut_slow();
            }
        }
    }

    /// Returns the connection whose slow peer has held memory longest (for a transfer, copies, a segment or
    /// early data), and the time since which it has held the memory. `None` if no peer has held memory for
    /// longer than [`PATIENCE`].
    pub(crate) fn slowest_holder(&self, now: Instant) -> Option<(Instant, ConnectionId)> {
        let held = self
            .commands
            .observed()
            .filter(|(task, Observed { stage, .. })| {
                let by_its_peer = matches!(stage, WaitingFor::Data | WaitingFor::Sending);
                task.holds_memory() && by_its_peer
            });
        let held = held.map(|(task, observed)| (observed.since, task.id.connection()));
        let copied = self
            .links
            .iter()
            .flatten()
            .filter_map(|(id, link)| Some((link.copies_since()?, *id)));
        let late = held
            .chain(copied)
            .chain(self.machine.oldest_staged())
            .filter(|(since, _)| now.duration_since(*since) > PATIENCE);
        late.min_by_key(|(since, _)| *since)
    }

    /// Ends a connection whose peer is too slow.
    pub(crate) fn cut_slow(&self, id: ConnectionId) {
        if let Some(link) = self.link(id) {
            link.cut_slow();
        }
    }
}
