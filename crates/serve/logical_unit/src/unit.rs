//! The logical unit ([`LogicalUnit`]): its volume, its state and its I_T nexuses ([`Nexus`]).
//!
//! The generation of the volume counts every change that could forbid a command (unit attentions,
//! reservations, write protection, a fence). While the generation is unchanged since the last check of a
//! nexus, reads and writes of that nexus access no state that is shared with other cores (`carry_out`).

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use block::{BlockDevice, BlockSize, Blocks, Lock, Profile, RangeLocks};
use scsi::{Condition, SenseFormat};
use volume::{Damaged, RequestKind, Volume};

use crate::identity::{GivenNames, Identity};
use crate::mode::{Facts, Pages};
use crate::nexus::{Attention, Counters, NO_GENERATION, NexusId, SessionTraits, Traffic, View};
use crate::state::UnitState;

/// Options of a logical unit.
#[derive(Clone, Debug)]
pub struct LogicalUnitOptions {
    /// Its names.
    pub identity: Identity,
    /// Whether the medium can be ejected and loaded (INQUIRY, RMB).
    pub removable: bool,
    /// Whether blocks can be deallocated. `None` selects the value that the device reports.
    pub thin: Option<bool>,
}

/// The properties that determine the standard INQUIRY data and the VPD pages, except the ports in use and the
/// generation of the cache. Two units with the same facts return the same INQUIRY data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InquiryFacts {
    uuid: [u8; 16],
    given: GivenNames,
    removable: bool,
    thin: bool,
    block_size: BlockSize,
    physical_exponent: u8,
    profile: Profile,
}

/// Properties of a logical unit that determine which commands exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitTraits {
    pub(crate) thin: bool,
    pub(crate) volatile: bool,
}

/// An I_T nexus at a logical unit; a session has one per LUN. Dropping it is an I_T nexus loss, which
/// releases everything that belongs to the nexus.
pub struct Nexus {
    pub(crate) unit: Arc<LogicalUnit>,
    pub(crate) id: NexusId,
    pub(crate) session: Arc<SessionTraits>,
    pub(crate) view: View,
    pub(crate) counters: Arc<Counters>,
}

/// The SCSI interface of a volume. All sessions, on all cores, and all targets that map the volume share one
/// logical unit.
pub struct LogicalUnit {
    volume: Arc<Volume>,
    options: LogicalUnitOptions,
    state: Lock<UnitState>,
}

impl fmt::Debug for LogicalUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogicalUnit({})", self.options.identity.serial())
    }
}

impl LogicalUnit {
    /// Creates a logical unit over `volume`, and restores its saved mode pages.
    ///
    /// # Errors
    /// The saved state is damaged.
    pub fn new(
        volume: Arc<Volume>,
        options: LogicalUnitOptions,
    ) -> Result<Arc<LogicalUnit>, Damaged> {
        let mut modes = Pages::new(Facts {
            volatile_cache: volume.device().profile().volatile_cache,
        });
        modes.restore(&volume.front_end_state())?;
        volume.set_front_end_state(modes.to_bytes());
        volume.set_write_protected(modes.write_protect());
        let state = Lock::new(UnitState::new(Arc::clone(&volume), modes));
        Ok(Arc::new(LogicalUnit {
            volume,
            options,
            state,
        }))
    }

    /// Attaches the nexus of a session, at the time `now`. Its first unit attention is POWER ON, RESET, OR BUS
    /// DEVICE RESET OCCURRED.
    pub fn attach(self: &Arc<Self>, session: Arc<SessionTraits>, now: Instant) -> Nexus {
        let id = NexusId::next();
        let counters = Arc::<Counters>::default();
        self.change(|state| state.attach(id, session.ports.clone(), Arc::clone(&counters), now));
        let geometry = self.device().geometry();
        let view = self.look(|state| state.view(id, geometry, NO_GENERATION));
        Nexus {
            unit: Arc::clone(self),
            id,
            session,
            view,
            counters,
        }
    }

    pub(crate) fn detach(&self, id: NexusId, session: &SessionTraits) {
        self.change(|state| state.detach(id, session));
    }

    /// Resets the logical unit (SAM-5 6.3.3), for task management. The reset is reported to all nexuses
    /// including the requester, because an initiator with several paths must be notified on each path.
    pub fn reset(&self) {
        self.change(|state| state.reset());
    }

    /// If the device has grown since the last report, reports the growth to all nexuses and returns the new
    /// size.
    pub fn tell_growth(&self) -> Option<Blocks> {
        let blocks = self.device().geometry().blocks;
        let told = self.note(|state| std::mem::replace(&mut state.blocks_told, blocks));
        (told < blocks).then(|| {
            self.capacity_changed();
            blocks
        })
    }

    /// Reports CAPACITY DATA HAS CHANGED to all nexuses.
    pub fn capacity_changed(&self) {
        self.change(|state| state.raise_all(Attention::CapacityChanged));
    }

    /// Reports REPORTED LUNS DATA HAS CHANGED to this nexus.
    pub fn luns_changed(&self, nexus: NexusId) {
        self.change(|state| state.raise(nexus, Attention::ReportedLunsChanged));
    }

    /// Records that this nexus has read the list of LUNs, at this logical unit or another.
    pub fn luns_reported(&self, nexus: NexusId) {
        if self.look(|state| state.is_raised(nexus, Attention::ReportedLunsChanged)) {
            self.change(|state| state.clear(nexus, Attention::ReportedLunsChanged));
        }
    }

    /// Reports INQUIRY DATA HAS CHANGED to this nexus (SPC-4 6.6.1: "If INQUIRY data changes for any reason,
    /// the device server shall establish a unit attention condition for the initiator port associated with
    /// every I_T nexus").
    pub fn inquiry_changed(&self, nexus: NexusId) {
        self.change(|state| state.raise(nexus, Attention::InquiryChanged));
    }

    /// The facts that determine the INQUIRY data.
    pub fn inquiry_facts(&self) -> InquiryFacts {
        let (geometry, profile) = (self.device().geometry(), self.device().profile());
        InquiryFacts {
            uuid: self.identity().uuid,
            given: self.identity().given.clone(),
            removable: self.options.removable,
            thin: self.thin(),
            block_size: geometry.block_size,
            physical_exponent: geometry.physical_exponent,
            // MODE SENSE reports write protection, INQUIRY does not.
            profile: Profile {
                read_only: false,
                ..profile
            },
        }
    }

    /// Its volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    pub(crate) fn device(&self) -> &Arc<dyn BlockDevice> {
        self.volume.device()
    }

    pub(crate) fn locks(&self) -> &Arc<RangeLocks> {
        self.volume.range_locks()
    }

    /// The generation of the state that [`LogicalUnit::change`] changes.
    pub(crate) fn generation(&self) -> u64 {
        self.volume.generation()
    }

    /// Its names.
    pub fn identity(&self) -> &Identity {
        &self.options.identity
    }

    /// Returns the traffic since the unit was created.
    pub fn traffic(&self) -> Traffic {
        self.look(|state| state.traffic())
    }

    /// Its options.
    pub fn options(&self) -> &LogicalUnitOptions {
        &self.options
    }

    /// Whether blocks can be deallocated.
    pub(crate) fn thin(&self) -> bool {
        self.options
            .thin
            .unwrap_or_else(|| self.device().profile().thin)
    }

    /// The traits that determine which commands exist.
    pub(crate) fn traits(&self) -> UnitTraits {
        let thin = self.thin();
        UnitTraits {
            thin,
            volatile: thin && !self.device().profile().durable,
        }
    }

    /// Changes the state and advances the generation, so that every nexus checks again before its next
    /// command.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut UnitState) -> T) -> T {
        self.change_in_generation(|state, _| change(state))
    }

    /// [`LogicalUnit::change`] for a change that needs the previous generation.
    pub(crate) fn change_in_generation<T>(
        &self,
        change: impl FnOnce(&mut UnitState, u64) -> T,
    ) -> T {
        // A panic while the lock is held leaves a consistent state, because the methods only assign complete
        // values. The volume's own lock is taken after this lock.
        let mut state = self.state.lock();
        // A fence advances the generation without this lock. A nexus that reads that later generation still
        // waits for the lock before it reads the state, and therefore sees this change.
        let before = self.generation();
        let result = change(&mut state, before);
        self.volume.advance_generation();
        debug_assert!(self.generation() > before, "every nexus checks again");
        result
    }

    /// Changes state that no cached view depends on, such as progress. Does not advance the generation.
    pub(crate) fn note<T>(&self, note: impl FnOnce(&mut UnitState) -> T) -> T {
        note(&mut self.state.lock())
    }

    /// Reads the state.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&UnitState) -> T) -> T {
        look(&self.state.lock())
    }

    /// Checks again, before a device request of a command that was accepted in generation `accepted`, whether
    /// the medium still permits a request of this kind: the data of the command may have arrived much later.
    /// Reservations are not checked again: a command that did not conflict when it was accepted is not
    /// affected by later ones (SPC-4 5.12.1).
    ///
    /// A caller that will change blocks holds their range lock, so this check misses no SANITIZE or FORMAT
    /// UNIT. An operation that starts after this check waits for that lock and then overwrites the blocks. An
    /// operation that held the range earlier changed the generation before it took its own lock.
    #[inline]
    pub(crate) fn still_permits(&self, accepted: u64, kind: RequestKind) -> Result<(), Condition> {
        if self.generation() == accepted {
            Ok(())
        } else {
            self.permits_now(accepted, kind)
        }
    }

    #[cold]
    fn permits_now(&self, accepted: u64, kind: RequestKind) -> Result<(), Condition> {
        self.look(|state| match kind {
            RequestKind::Read => state.ready(),
            RequestKind::Change => {
                state.ready()?;
                state.writable()?;
                state.operations.none_since(accepted)
            }
            RequestKind::Flush | RequestKind::Inspect => Ok(()),
        })
    }

    /// Takes the next unit attention of the caller's nexus.
    pub(crate) fn take_attention(&self, id: NexusId) -> Option<Condition> {
        let quiet = |state: &UnitState| {
            state
                .nexuses
                .iter()
                .all(|nexus| nexus.id != id || nexus.attentions.is_empty())
        };
        if self.look(quiet) {
            return None;
        }
        self.change(|state| state.take_attention(id))
            .map(|attention| attention.condition())
    }

    /// Returns the number of losses that were reported to this nexus; `None` if it is not attached.
    pub(crate) fn losses_told(&self, nexus: NexusId) -> Option<u64> {
        if self.volume().lost_writes() == 0 {
            return Some(0);
        }
        self.look(|state| {
            let nexus = state.nexuses.iter().find(|attached| attached.id == nexus);
            nexus.map(|nexus| nexus.losses_told)
        })
    }
}

impl Nexus {
    /// The identifier of the nexus in task management and in [`crate::Effect`]s.
    pub fn id(&self) -> NexusId {
        self.id
    }

    /// Its logical unit.
    pub fn unit(&self) -> &Arc<LogicalUnit> {
        &self.unit
    }

    /// The configured format of sense data, for responses that the front end creates itself.
    pub fn sense_format(&self) -> SenseFormat {
        self.unit.look(|state| state.sense_format())
    }

    /// Records that the initiator has acknowledged a response that reported this count of losses
    /// ([`super::Watch::reported_losses`]).
    pub fn note_told(&self, losses: u64) {
        debug_assert!(
            losses <= self.unit.volume.lost_writes(),
            "reports do not exceed the losses"
        );
        self.unit.note(|state| {
            if let Some(nexus) = state.nexus(self.id) {
                nexus.losses_told = nexus.losses_told.max(losses);
            }
        });
    }
}

impl Drop for Nexus {
    fn drop(&mut self) {
        self.unit.detach(self.id, &self.session);
    }
}
