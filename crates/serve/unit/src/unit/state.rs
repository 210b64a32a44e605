//! What a logical unit remembers between commands, other than blocks.

use std::sync::Arc;

use block::{Blocks, Geometry};
use scsi::{Condition, SenseFormat, SenseKey, asc};
use volume::reservations::Registrations;
use volume::{Access, Volume};

use crate::attention::{Attention, Attentions};
use crate::copy::results::Copies;
use crate::failure::Failure;
use crate::medium_operation::Operations;
use crate::mode::Pages;
use crate::nexus::{Counters, InitiatorPort, NexusId, NexusName, TargetPort, Traffic, View};
use crate::unit::{Departed, LogicalUnit};

/// Whether there is a medium, and whether it can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Loaded,
    /// It is there, and START STOP UNIT has stopped it. Only in a unit whose medium cannot be ejected.
    Stopped,
    /// Only in a unit whose medium can be ejected.
    Ejected,
}

/// An I_T nexus that uses the logical unit.
pub(crate) struct Attached {
    pub(crate) id: NexusId,
    pub(crate) name: NexusName,
    pub(crate) attentions: Attentions,
    /// PREVENT ALLOW MEDIUM REMOVAL, per nexus (SPC-4 6.14).
    pub(crate) prevents_removal: bool,
    pub(crate) counters: Arc<Counters>,
    /// The losses of acknowledged writes that it has been told of.
    pub(crate) losses_told: u64,
}

/// All of it, behind the unit's lock.
pub(crate) struct State {
    volume: Arc<Volume>,
    pub(crate) nexuses: Vec<Attached>,
    pub(crate) departed: Departed,
    pub(crate) medium: Medium,
    pub(crate) modes: Pages,
    /// Persistent reservations.
    pub(crate) registrations: Registrations,
    /// The nexus that holds the logical unit by RESERVE.
    pub(crate) reserved_by: Option<NexusId>,
    /// What RECEIVE COPY RESULTS tells of.
    pub(crate) copies: Copies,
    /// Of nexuses that are gone.
    pub(crate) past_traffic: Traffic,
    /// SANITIZE or FORMAT UNIT.
    pub(crate) operations: Operations,
    /// The size of the device that nexuses know.
    pub(crate) blocks_told: Blocks,
}

impl State {
    pub(crate) fn new(volume: Arc<Volume>, modes: Pages, registrations: Registrations) -> State {
        State {
            blocks_told: volume.device().geometry().blocks,
            volume,
            nexuses: Vec::new(),
            departed: Departed::default(),
            medium: Medium::Loaded,
            modes,
            registrations,
            reserved_by: None,
            copies: Copies::default(),
            past_traffic: Traffic::default(),
            operations: Operations::default(),
        }
    }

    pub(crate) fn attach(
        &mut self,
        id: NexusId,
        initiator: InitiatorPort,
        target_port: TargetPort,
        counters: Arc<Counters>,
        losses: u64,
    ) {
        let attentions = Attentions::default();
        let name = NexusName { host: initiator, service: target_port };
        let losses_told = self.losses_told(&name).unwrap_or(losses);
        self.nexuses.push(Attached { id, name, attentions, prevents_removal: false, counters, losses_told });
        self.raise(id, Attention::PowerOn);
    }

    /// I_T nexus loss: what lives with the nexus ends.
    pub(crate) fn detach(&mut self, id: NexusId) {
        if let Some(at) = self.nexuses.iter().position(|nexus| nexus.id == id) {
            let nexus = self.nexuses.remove(at);
            self.past_traffic = self.past_traffic.plus(nexus.counters.traffic());
            self.departed.note(&nexus.name, nexus.losses_told);
        }
        self.release_reserve(id);
        self.copies.forget_all(id);
    }

    /// What was read and written since the unit was made.
    pub(crate) fn traffic(&self) -> Traffic {
        let present = self.nexuses.iter().map(|nexus| nexus.counters.traffic());
        present.fold(self.past_traffic, Traffic::plus)
    }

    /// Logical unit reset. The medium stays where it is, but no longer stopped; persistent reservations stay.
    pub(crate) fn reset(&mut self) {
        for nexus in &mut self.nexuses {
            nexus.prevents_removal = false;
        }
        self.reserved_by = None;
        self.start();
        self.modes.reset();
        self.raise_all(Attention::BusDeviceReset);
    }

    /// The stopped power condition begins (SPC-4 5.12), if there is a medium.
    pub(crate) fn stop(&mut self) {
        if self.medium == Medium::Loaded {
            self.medium = Medium::Stopped;
        }
    }

    /// It ends.
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
        self.nexuses.iter_mut().for_each(|nexus| nexus.attentions.raise(attention));
    }

    pub(crate) fn raise_others(&mut self, than: NexusId, attention: Attention) {
        let others = self.nexuses.iter_mut().filter(|nexus| nexus.id != than);
        others.for_each(|nexus| nexus.attentions.raise(attention));
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
        if self.modes.descriptor_sense() { SenseFormat::Descriptor } else { SenseFormat::Fixed }
    }

    /// Why a command cannot use the medium, if it cannot.
    pub(crate) fn ready(&self) -> Result<(), Condition> {
        self.accessible()?;
        self.operations.passable()
    }

    /// Whether there is a medium that runs, and a device that answers.
    pub(crate) fn accessible(&self) -> Result<(), Condition> {
        match self.medium {
            _ if self.volume.is_fenced() => Err(Condition::new(SenseKey::NotReady, asc::BECOMING_READY)),
            Medium::Ejected => Err(Condition::new(SenseKey::NotReady, asc::MEDIUM_NOT_PRESENT)),
            Medium::Stopped => Err(Condition::new(SenseKey::NotReady, asc::INITIALIZING_COMMAND_REQUIRED)),
            Medium::Loaded => Ok(()),
        }
    }

    /// Why nothing may be written, if it may not.
    pub(crate) fn writable(&self, read_only: bool) -> Result<(), Condition> {
        match (read_only, self.modes.write_protect()) {
            (true, _) => Err(Condition::new(SenseKey::DataProtect, asc::WRITE_PROTECTED)),
            (false, true) => Err(Condition::new(SenseKey::DataProtect, asc::SOFTWARE_WRITE_PROTECTED)),
            (false, false) => Ok(()),
        }
    }

    /// Whether the reservations there are let this nexus carry out a command of this class. RESERVE and
    /// persistent reservations exclude each other (SPC-2 5.5.1), so each can be asked by itself.
    pub(crate) fn reserved(&self, id: NexusId, class: Reserved) -> Result<(), Failure> {
        let free =
            class == Reserved::Never || self.passes_reserve(id, class) && self.passes_persistent(id, class);
        if free { Ok(()) } else { Err(Failure::ReservationConflict) }
    }

    /// The same for a command that reaches this logical unit through another one: by its nexus' name, which need
    /// not be attached here.
    pub(crate) fn admits(&self, name: &NexusName, class: Reserved) -> Result<(), Failure> {
        let here = self.nexuses.iter().find(|nexus| nexus.name.is(name)).map(|nexus| nexus.id);
        let free = self.reserved_by.is_none() || self.reserved_by == here;
        let free = free && class.access().is_none_or(|access| self.registrations.permit(name, access));
        if free { Ok(()) } else { Err(Failure::ReservationConflict) }
    }

    /// A nexus that is not attached any more passes nothing.
    fn passes_persistent(&self, id: NexusId, class: Reserved) -> bool {
        self.registrations.reservation().is_none()
            || self.name(id).is_some_and(|name| {
                class.access().is_none_or(|access| self.registrations.permit(name, access))
            })
    }

    pub(crate) fn name(&self, id: NexusId) -> Option<&NexusName> {
        self.nexuses.iter().find(|nexus| nexus.id == id).map(|nexus| &nexus.name)
    }

    /// What this nexus may take for granted until the state changes.
    pub(crate) fn view(&self, id: NexusId, geometry: Geometry, generation: u64, unit: &LogicalUnit) -> View {
        let quiet = self.nexuses.iter().any(|nexus| nexus.id == id && nexus.attentions.is_empty());
        let ready = quiet && self.ready().is_ok();
        let writable = self.writable(unit.read_only()).is_ok();
        let volatile_cache = unit.device().profile().volatile_cache;
        View {
            generation,
            geometry,
            reads: ready && self.reserved(id, Reserved::Read).is_ok(),
            writes: ready && writable && self.reserved(id, Reserved::Write).is_ok(),
            volatile_cache,
            write_through: !self.modes.write_cache(),
            format: self.sense_format(),
        }
    }
}

/// What reservations think of a command (SPC-4 table 66, SBC-3 table 13; SPC-2 tables 9 and B.1 for RESERVE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    /// Allowed under any reservation: INQUIRY, READ CAPACITY, REPORT LUNS, REQUEST SENSE.
    Never,
    /// Allowed under persistent reservations, conflicts with RESERVE: TEST UNIT READY.
    Status,
    /// Conflicts with an exclusive access reservation of others.
    Read,
    /// Conflicts with any reservation of others.
    Write,
    /// The command itself decides: RESERVE, RELEASE, PERSISTENT RESERVE IN and OUT.
    Own,
}

impl Reserved {
    /// What a persistent reservation may forbid of it, if anything.
    fn access(self) -> Option<Access> {
        match self {
            Reserved::Never | Reserved::Status | Reserved::Own => None,
            Reserved::Read => Some(Access::Read),
            Reserved::Write => Some(Access::Write),
        }
    }
}
