//! I_T nexuses: pairs of an initiator port and a target port (SAM-5 4.6).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use block::Geometry;
use scsi::SenseFormat;
pub(crate) use volume::HostPath as NexusName;
pub use volume::{AttachmentId as NexusId, HostPort as InitiatorPort, ServicePort as TargetPort};

use crate::unit::LogicalUnit;

/// An I_T nexus at a logical unit; a session holds one per LUN. Dropping it is an I_T nexus loss, which
/// releases what belongs to the nexus.
pub struct Nexus {
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) id: NexusId,
    pub(crate) view: View,
    pub(crate) counters: Arc<Counters>,
}

/// Traffic counters of a nexus. Only its session writes them, so counting takes no lock; other threads read
/// them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    blocks_sent: AtomicU64,
    blocks_received: AtomicU64,
}

/// Totals of reads and writes (LOG SENSE, page 19h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Blocks sent for read commands.
    pub blocks_sent: u64,
    /// Blocks received for write commands.
    pub blocks_received: u64,
}

impl Counters {
    pub(crate) fn count_read(&self, blocks: u64) {
        add(&self.reads, 1);
        add(&self.blocks_sent, blocks);
    }

    pub(crate) fn count_write(&self, blocks: u64) {
        add(&self.writes, 1);
        add(&self.blocks_received, blocks);
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            blocks_sent: self.blocks_sent.load(Ordering::Relaxed),
            blocks_received: self.blocks_received.load(Ordering::Relaxed),
        }
    }
}

/// For one writer only: a plain addition, which costs a fraction of an atomic one.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

impl Traffic {
    pub(crate) fn plus(self, other: Traffic) -> Traffic {
        Traffic {
            reads: self.reads.wrapping_add(other.reads),
            writes: self.writes.wrapping_add(other.writes),
            blocks_sent: self.blocks_sent.wrapping_add(other.blocks_sent),
            blocks_received: self.blocks_received.wrapping_add(other.blocks_received),
        }
    }
}

/// The cached result of the checks for reads and writes, valid as long as the unit's generation is unchanged.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) generation: u64,
    pub(crate) geometry: Geometry,
    /// Reads pass without further checks: no unit attention, no reservation, medium ready, no fence.
    pub(crate) reads: bool,
    /// Writes pass without further checks: also no write protection.
    pub(crate) writes: bool,
    /// The device has a volatile write cache, so FUA differs from an ordinary write.
    pub(crate) volatile_cache: bool,
    /// The write cache is switched off (caching mode page, WCE = 0): every write is stable.
    pub(crate) write_through: bool,
    pub(crate) format: SenseFormat,
}

impl Nexus {
    /// Its id in task management and in [`crate::Effect`]s.
    pub fn id(&self) -> NexusId {
        self.id
    }

    /// The logical unit it leads to.
    pub fn unit(&self) -> &Arc<LogicalUnit> {
        &self.unit
    }

    /// The configured format of sense data, for those that the front end makes itself.
    pub fn sense_format(&self) -> SenseFormat {
        self.unit.look(|state| state.sense_format())
    }
}

impl View {
    /// No unit is ever in this generation.
    pub(crate) const NONE: u64 = u64::MAX;
}

impl Drop for Nexus {
    fn drop(&mut self) {
        self.unit.detach(self.id);
    }
}
