//! The state of a logical unit, except its blocks.
//!
//! ```text
//!   Loaded  ── START=0, fixed medium ─────────────► Stopped
//!   Stopped ── START=1, or a reset ───────────────► Loaded
//!   Loaded  ── START=0 LOEJ=1, removable medium ──► Ejected
//!   Ejected ── START=1 LOEJ=1 ────────────────────► Loaded
//! ```
//!
//! The volume counts lost acknowledged writes. This module records the number reported to each nexus
//! ([`Departed`] for detached nexuses). Any nexus may have written the lost data, or read it and relied on
//! it, so a loss is reported to each: its flushes fail with MEDIUM ERROR, WRITE ERROR until the initiator has
//! acknowledged one of these responses. Sending a response is not enough, because it can be lost with its
//! connection, or discarded with an aborted task. If two flushes are outstanding, both fail. A loss is not
//! reported to a nexus that first attaches after the loss, unless its initiator may have used an earlier server
//! process ([`Volume::presumed_reported`]). It is reported to a nexus that was attached before the loss and
//! attaches again, because its initiator continues the writes of the lost session.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use block::{Blocks, DeviceError, Geometry};
use scsi::{Condition, SenseFormat, SenseKey, asc};
use volume::{Access, Departed, Requester, Volume, WriteProtection};

use crate::copy::results::Copies;
use crate::failure::{self, Failure};
use crate::medium_operation::Operations;
use crate::mode::Pages;
use crate::nexus::{
    Attention, Attentions, Counters, NexusId, NexusName, SessionTraits, Traffic, View,
};

/// The state of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Loaded,
    /// Stopped by START STOP UNIT. Only in a unit with a fixed medium.
    Stopped,
    /// Ejected by START STOP UNIT. Only in a unit with a removable medium.
    Ejected,
}

/// An I_T nexus that uses the logical unit.
pub(crate) struct Attached {
    pub(crate) id: NexusId,
    pub(crate) name: NexusName,
    pub(crate) attentions: Attentions,
    /// Whether the nexus prevents medium removal (PREVENT ALLOW MEDIUM REMOVAL, SPC-4 6.14).
    pub(crate) prevents_removal: bool,
    pub(crate) counters: Arc<Counters>,
    /// The count of lost acknowledged writes that was reported to this nexus.
    pub(crate) losses_told: u64,
}

/// The whole state, protected by the unit's lock.
pub(crate) struct UnitState {
    pub(crate) volume: Arc<Volume>,
    pub(crate) nexuses: Vec<Attached>,
    pub(crate) departed: Departed<DetachedNexus>,
    pub(crate) medium: Medium,
    pub(crate) modes: Pages,
    /// Results for RECEIVE COPY RESULTS.
    pub(crate) copies: Copies,
    /// Traffic of detached nexuses.
    pub(crate) past_traffic: Traffic,
    /// SANITIZE or FORMAT UNIT.
    pub(crate) operations: Operations,
    /// The size of the device last reported to nexuses.
    pub(crate) blocks_told: Blocks,
}

impl UnitState {
    pub(crate) fn new(volume: Arc<Volume>, modes: Pages) -> UnitState {
        UnitState {
            blocks_told: volume.device().geometry().blocks,
            volume,
            nexuses: Vec::new(),
            departed: Departed::default(),
            medium: Medium::Loaded,
            modes,
            copies: Copies::default(),
            past_traffic: Traffic::default(),
            operations: Operations::default(),
        }
    }

    pub(crate) fn attach(
        &mut self,
        id: NexusId,
        name: NexusName,
        counters: Arc<Counters>,
        now: Instant,
    ) {
        debug_assert!(self.name(id).is_none(), "nexus ids are unique");
        let attentions = Attentions::default();
        let losses_told = self.losses_told(&name, now);
        self.nexuses.push(Attached {
            id,
            name,
            attentions,
            prevents_removal: false,
            counters,
            losses_told,
        });
        self.raise(id, Attention::PowerOn);
    }

    /// I_T nexus loss: releases everything that belongs to the nexus.
    pub(crate) fn detach(&mut self, id: NexusId, session: &SessionTraits) {
        let at = self.nexuses.iter().position(|nexus| nexus.id == id);
        debug_assert!(at.is_some(), "a nexus is attached until it is dropped");
        if let Some(at) = at {
            let nexus = self.nexuses.remove(at);
            self.past_traffic = self.past_traffic.plus(nexus.counters.traffic());
            if !session.never_returns() {
                self.note_departure(&nexus, session.now());
            }
        }
        self.volume.end_reservation(Some(id));
        self.copies.forget_all(id);
    }

    fn note_departure(&mut self, nexus: &Attached, now: Instant) {
        let name = DetachedNexus::of(&nexus.name);
        let before = self.departed.take(|gone| gone.name == name.name);
        let told = before.map_or(nexus.losses_told, |before| before.min(nexus.losses_told));
        let host = name.host;
        self.departed
            .note(name, told, now, |gone| gone.host == host);
    }

    /// Returns the traffic since the unit was created.
    pub(crate) fn traffic(&self) -> Traffic {
        let present = self.nexuses.iter().map(|nexus| nexus.counters.traffic());
        present.fold(self.past_traffic, Traffic::plus)
    }

    /// Resets the logical unit. A stopped medium is started; an ejected medium stays ejected. Persistent
    /// reservations are kept.
    pub(crate) fn reset(&mut self) {
        for nexus in &mut self.nexuses {
            nexus.prevents_removal = false;
        }
        self.volume.end_reservation(None);
        self.start();
        self.modes.reset();
        self.volume.set_write_protected(self.modes.write_protect());
        self.raise_all(Attention::BusDeviceReset);
    }

    /// Enters the stopped power condition (SPC-4 5.12), if there is a medium.
    pub(crate) fn stop(&mut self) {
        debug_assert_ne!(
            self.medium,
            Medium::Ejected,
            "a fixed medium is not ejected"
        );
        if self.medium == Medium::Loaded {
            self.medium = Medium::Stopped;
        }
    }

    /// Leaves the stopped power condition.
    pub(crate) fn start(&mut self) {
        if self.medium == Medium::Stopped {
            self.medium = Medium::Loaded;
        }
    }

    pub(crate) fn nexus(&mut self, id: NexusId) -> Option<&mut Attached> {
        self.nexuses.iter_mut().find(|nexus| nexus.id == id)
    }

    pub(crate) fn raise(&mut self, id: NexusId, attention: Attention) {
        if let Some(nexus) = self.nexus(id) {
            nexus.attentions.raise(attention);
        }
    }

    pub(crate) fn raise_all(&mut self, attention: Attention) {
        self.nexuses
            .iter_mut()
            .for_each(|nexus| nexus.attentions.raise(attention));
    }

    pub(crate) fn raise_others(&mut self, than: NexusId, attention: Attention) {
        let others = self.nexuses.iter_mut().filter(|nexus| nexus.id != than);
        others.for_each(|nexus| nexus.attentions.raise(attention));
    }

    pub(crate) fn is_raised(&self, id: NexusId, attention: Attention) -> bool {
        self.nexuses
            .iter()
            .any(|nexus| nexus.id == id && nexus.attentions.has(attention))
    }

    pub(crate) fn clear(&mut self, id: NexusId, attention: Attention) {
        if let Some(nexus) = self.nexus(id) {
            nexus.attentions.clear(attention);
        }
    }

    pub(crate) fn take_attention(&mut self, id: NexusId) -> Option<Attention> {
        self.nexus(id)?.attentions.take()
    }

    pub(crate) fn sense_format(&self) -> SenseFormat {
        if self.modes.descriptor_sense() {
            SenseFormat::Descriptor
        } else {
            SenseFormat::Fixed
        }
    }

    /// Returns an error if a command cannot use the medium.
    pub(crate) fn ready(&self) -> Result<(), Condition> {
        self.accessible()?;
        self.operations.passable()
    }

    /// Returns an error if the medium is stopped or ejected, or the volume is fenced.
    pub(crate) fn accessible(&self) -> Result<(), Condition> {
        match self.medium {
            _ if self.volume.is_taken_over() => Err(failure::condition(DeviceError::Fenced)),
            _ if self.volume.is_fenced() => {
                Err(Condition::new(SenseKey::NotReady, asc::BECOMING_READY))
            }
            Medium::Ejected => Err(Condition::new(SenseKey::NotReady, asc::MEDIUM_NOT_PRESENT)),
            Medium::Stopped => Err(Condition::new(
                SenseKey::NotReady,
                asc::INITIALIZING_COMMAND_REQUIRED,
            )),
            Medium::Loaded => Ok(()),
        }
    }

    /// Returns an error if the medium is write protected.
    pub(crate) fn writable(&self) -> Result<(), Condition> {
        let protected = |code| Err(Condition::new(SenseKey::DataProtect, code));
        match self.volume.write_protection() {
            Some(WriteProtection::Permanent) => protected(asc::WRITE_PROTECTED),
            Some(WriteProtection::Software) => protected(asc::SOFTWARE_WRITE_PROTECTED),
            None => Ok(()),
        }
    }

    /// Checks whether the reservations allow this nexus to execute a command of this class. A detached nexus
    /// may neither read nor write.
    pub(crate) fn reserved(&self, id: NexusId, class: Reserved) -> Result<(), Failure> {
        let permits = |access| {
            self.requester(id)
                .is_some_and(|requester| self.volume.reservations_permit(&requester, access))
        };
        let is_permitted = match class {
            Reserved::Never | Reserved::Own => true,
            Reserved::Status => self.volume.reserved_by().is_none_or(|holder| holder == id),
            Reserved::Read => permits(Access::Read),
            Reserved::Write => permits(Access::Write),
        };
        if is_permitted {
            Ok(())
        } else {
            Err(Failure::ReservationConflict)
        }
    }

    /// Checks a command that accesses this logical unit but was received by another one. The requester is
    /// identified by its nexus name, because it need not be attached here.
    pub(crate) fn admits(&self, by: &Requester<'_>, access: Access) -> Result<(), Failure> {
        let here = self
            .nexuses
            .iter()
            .find(|nexus| nexus.name.is(by.path))
            .map(|nexus| nexus.id);
        let requester = Requester {
            attachment: here.unwrap_or(by.attachment),
            ..*by
        };
        let is_permitted = self.volume.reservations_permit(&requester, access);
        if is_permitted {
            Ok(())
        } else {
            Err(Failure::ReservationConflict)
        }
    }

    /// Returns the [`Requester`] that represents this nexus to the volume; `None` if it is not attached.
    pub(crate) fn requester(&self, id: NexusId) -> Option<Requester<'_>> {
        self.name(id).map(|path| Requester {
            attachment: id,
            path,
        })
    }

    pub(crate) fn name(&self, id: NexusId) -> Option<&NexusName> {
        self.nexuses
            .iter()
            .find(|nexus| nexus.id == id)
            .map(|nexus| &nexus.name)
    }

    /// Returns the cached view of a nexus, valid until the generation changes.
    pub(crate) fn view(&self, id: NexusId, geometry: Geometry, generation: u64) -> View {
        let quiet = self
            .nexuses
            .iter()
            .find(|nexus| nexus.id == id && nexus.attentions.is_empty());
        let requester = quiet.map(|nexus| Requester {
            attachment: id,
            path: &nexus.name,
        });
        let requester = requester.filter(|_| self.ready().is_ok());
        let permits = |access| {
            requester.is_some_and(|requester| self.volume.permits(&requester, access).is_ok())
        };
        View {
            generation,
            geometry,
            reads: permits(Access::Read),
            writes: permits(Access::Write),
            volatile_cache: self.volume.device().profile().volatile_cache,
            write_through: !self.modes.write_cache(),
            format: self.sense_format(),
        }
    }
}

/// The kinds of conflict between a command and reservations (SPC-4 table 66, SBC-3 table 13; SPC-2 tables 9
/// and B.1 for RESERVE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// Allowed under any reservation: INQUIRY, READ CAPACITY, REPORT LUNS, REQUEST SENSE.
    Never,
    /// Allowed under persistent reservations, conflicts with RESERVE: TEST UNIT READY.
    Status,
    /// Conflicts with an exclusive access reservation of another nexus.
    Read,
    /// Conflicts with any reservation of another nexus.
    Write,
    /// The command makes its own check: RESERVE, RELEASE, PERSISTENT RESERVE IN and OUT.
    Own,
}

/// A detached nexus, identified by hashes of its names, because the names can be 500 bytes long. If two
/// nexuses have the same hash, a loss may be reported to one of them twice.
pub(crate) struct DetachedNexus {
    name: u64,
    initiator: u64,
    /// The host: the initiator port without its qualifier.
    host: u64,
}

impl UnitState {
    /// Returns the count reported to a nexus with this name, if it was attached before. Otherwise returns the
    /// count reported to its initiator port through another target port, because the initiator may have been
    /// redirected from that port. If it may have used an earlier server process, the count is lower.
    fn losses_told(&mut self, name: &NexusName, now: Instant) -> u64 {
        let present = |is_meant: &dyn Fn(&NexusName) -> bool| {
            let meant = self.nexuses.iter().filter(|nexus| is_meant(&nexus.name));
            meant.map(|nexus| nexus.losses_told).min()
        };
        let (same, elsewhere) = (
            present(&|other| other == name),
            present(&|other| other.host == name.host),
        );
        let name = DetachedNexus::of(name);
        let known = self
            .departed
            .take(|gone| gone.name == name.name)
            .into_iter()
            .chain(same)
            .min();
        // Some of the forgotten entries may belong to the initiator.
        let by_initiator = self
            .departed
            .lowest(|gone| gone.initiator == name.initiator);
        let presumed = self.volume.presumed_reported(now);
        known.unwrap_or_else(|| {
            let forgotten = self.departed.forgotten(now, |gone| gone.host == name.host);
            let told = [by_initiator, forgotten, elsewhere];
            told.into_iter().flatten().fold(presumed, u64::min)
        })
    }
}

impl DetachedNexus {
    fn of(name: &NexusName) -> DetachedNexus {
        DetachedNexus {
            name: hash(name),
            initiator: hash(&name.host),
            host: hash(&name.host.name),
        }
    }
}

/// Returns a hash that is the same in every process, so that simulations are reproducible.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
