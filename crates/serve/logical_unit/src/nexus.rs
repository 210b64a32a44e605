//! The state of an I_T nexus, a pair of an initiator port and a target port (SAM-5 4.6): its names, its
//! traffic, the cached result of its checks, and its unit attentions. Unit attentions are conditions reported
//! to an initiator before its next command is executed (SAM-5 5.14).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use block::Geometry;
use scsi::{Condition, SenseFormat, SenseKey, asc};
pub(crate) use volume::HostPath as NexusName;
pub use volume::{AttachmentId as NexusId, HostPort as InitiatorPort, ServicePort as TargetPort};

/// The properties of a session that its commands depend on. The nexuses of the session at all LUNs share
/// them.
#[derive(Debug)]
pub struct SessionTraits {
    /// The ports of its nexuses.
    pub ports: NexusName,
    clock: fn() -> Instant,
    has_logged_out: AtomicBool,
}

impl SessionTraits {
    /// Creates the traits of a session between these ports. `clock` tells when its nexuses end.
    pub fn new(
        initiator: InitiatorPort,
        target_port: TargetPort,
        clock: fn() -> Instant,
    ) -> SessionTraits {
        SessionTraits {
            ports: NexusName {
                host: initiator,
                service: target_port,
            },
            clock,
            has_logged_out: AtomicBool::new(false),
        }
    }

    /// Records that the initiator has ended the session on its own initiative.
    pub fn log_out(&self) {
        self.has_logged_out.store(true, Ordering::Release);
    }

    pub(crate) fn now(&self) -> Instant {
        (self.clock)()
    }

    /// Whether a later session is of another initiator port, because the initiator has logged out, and has
    /// chosen its ISID at random (RFC 7143 11.12.5: type 10b in the upper bits of the first byte).
    pub(crate) fn never_returns(&self) -> bool {
        let is_random = self.ports.host.qualifier[0] >> 6 == 0b10;
        is_random && self.has_logged_out.load(Ordering::Acquire)
    }
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

/// Adds to a counter that has only one writer: a plain addition costs a fraction of an atomic one.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(count),
        Ordering::Relaxed,
    );
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
    /// Whether reads need no further checks: there is no unit attention and no reservation, the medium is
    /// ready, and the volume is not fenced.
    pub(crate) reads: bool,
    /// Whether writes need no further checks: as for reads, and the medium is not write protected.
    pub(crate) writes: bool,
    /// Whether the device has a volatile write cache, so that FUA differs from an ordinary write.
    pub(crate) volatile_cache: bool,
    /// Whether the write cache is switched off (caching mode page, WCE = 0), so that every write is stable.
    pub(crate) write_through: bool,
    pub(crate) format: SenseFormat,
}

/// A generation that no unit ever reaches.
pub(crate) const NO_GENERATION: u64 = u64::MAX;

/// A cause of a unit attention. Pending causes are reported in the order of this list, not in the order of
/// their arrival, so that resets come before changes of a single property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Attention {
    PowerOn,
    BusDeviceReset,
    MediumChanged,
    ReportedLunsChanged,
    InquiryChanged,
    CapacityChanged,
    ModeParametersChanged,
    ReservationsPreempted,
    ReservationsReleased,
    RegistrationsPreempted,
}

impl Attention {
    pub(crate) fn condition(self) -> Condition {
        let code = match self {
            Attention::PowerOn => asc::POWER_ON_OR_RESET,
            Attention::BusDeviceReset => asc::BUS_DEVICE_RESET,
            Attention::MediumChanged => asc::MEDIUM_MAY_HAVE_CHANGED,
            Attention::ReportedLunsChanged => asc::REPORTED_LUNS_DATA_CHANGED,
            Attention::InquiryChanged => asc::INQUIRY_DATA_CHANGED,
            Attention::CapacityChanged => asc::CAPACITY_DATA_CHANGED,
            Attention::ModeParametersChanged => asc::MODE_PARAMETERS_CHANGED,
            Attention::ReservationsPreempted => asc::RESERVATIONS_PREEMPTED,
            Attention::ReservationsReleased => asc::RESERVATIONS_RELEASED,
            Attention::RegistrationsPreempted => asc::REGISTRATIONS_PREEMPTED,
        };
        Condition::new(SenseKey::UnitAttention, code)
    }
}

/// The pending unit attentions of one I_T nexus. Each cause is pending at most once.
#[derive(Debug, Default)]
pub(crate) struct Attentions {
    waiting: Vec<Attention>,
}

impl Attentions {
    pub(crate) fn raise(&mut self, attention: Attention) {
        if let Err(place) = self.waiting.binary_search(&attention) {
            self.waiting.insert(place, attention);
        }
        debug_assert!(
            self.waiting.is_sorted_by(|one, next| one < next),
            "each cause once, in order"
        );
    }

    /// Removes and returns the next cause to report.
    pub(crate) fn take(&mut self) -> Option<Attention> {
        (!self.waiting.is_empty()).then(|| self.waiting.remove(0))
    }

    pub(crate) fn clear(&mut self, attention: Attention) {
        self.waiting.retain(|waiting| *waiting != attention);
    }

    pub(crate) fn has(&self, attention: Attention) -> bool {
        self.waiting.contains(&attention)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_importance_and_repetitions_are_dropped() {
        let mut attentions = Attentions::default();
        for attention in [
            Attention::CapacityChanged,
            Attention::PowerOn,
            Attention::CapacityChanged,
        ] {
            attentions.raise(attention);
        }
        assert_eq!(attentions.take(), Some(Attention::PowerOn));
        assert_eq!(attentions.take(), Some(Attention::CapacityChanged));
        assert_eq!(attentions.take(), None);
    }
}
