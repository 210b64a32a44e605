//! The logical unit: a CDB in, block requests and a status out.
//!
//! [`LogicalUnit::begin`] plans a command at once; [`LogicalUnit::finish`] carries out the part that needs
//! data from the initiator or the device. Reads and writes have a fast path: one generation number stands for
//! everything that could forbid them (unit attentions, reservations, write protection, a fence). While it is
//! unchanged since this nexus last checked, they access nothing that is shared with other cores.

mod access;
mod finish;
mod front_end;
mod gate;
mod losses;
mod pieces;
mod state;

use std::fmt;
use std::sync::Arc;

use block::{BlockDevice, BlockSize, Blocks, Lock, Profile, RangeLocks};
use volume::{Damaged, Volume};

use crate::attention::Attention;
use crate::cdb::Cdb;
use crate::command::{self, Call, UnitTraits};
use crate::identity::{GivenNames, Identity};
use crate::mode::{Facts, Pages};
use crate::nexus::{Counters, InitiatorPort, Nexus, NexusId, TargetPort, Traffic, View};
use crate::plan::{CommandIn, Plan, Reply};

pub(crate) use access::{DeviceAccess, miscompare};
pub use access::{DeviceRequest, Watch};
pub use finish::AT_ONCE_BYTES_MAX;
pub use front_end::{Misdeclared, TransferFault};
pub(crate) use losses::Departed;
pub(crate) use pieces::{PIECE_BYTES, give_way};
pub(crate) use state::{Medium, Reserved, UnitState};

/// Options of a logical unit.
#[derive(Clone, Debug)]
pub struct LogicalUnitOptions {
    /// Its names.
    pub identity: Identity,
    /// The medium can be ejected and loaded (INQUIRY, RMB).
    pub removable: bool,
    /// Whether blocks can be deallocated; `None`: as the device reports.
    pub thin: Option<bool>,
}

/// What the standard INQUIRY data and the pages of vital product data derive from, but for the ports in use and the generation of
/// the cache. Two units with the same facts answer INQUIRY alike.
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

/// The SCSI face of a volume. All sessions of all cores and all targets that map it share one.
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
    /// A logical unit over `volume`, with its saved mode pages.
    ///
    /// # Errors
    /// What was saved is damaged.
    pub fn new(volume: Arc<Volume>, options: LogicalUnitOptions) -> Result<Arc<LogicalUnit>, Damaged> {
        let mut modes = Pages::new(Facts { volatile_cache: volume.device().profile().volatile_cache });
        modes.restore(&volume.front_end_state())?;
        volume.set_front_end_state(modes.to_bytes());
        volume.set_write_protected(modes.write_protect());
        let state = Lock::new(UnitState::new(Arc::clone(&volume), modes));
        Ok(Arc::new(LogicalUnit { volume, options, state }))
    }

    /// Attaches the nexus of an initiator port and a target port. Its first unit attention is POWER ON,
    /// RESET, OR BUS DEVICE RESET OCCURRED.
    pub fn attach(self: &Arc<Self>, initiator: InitiatorPort, target_port: TargetPort) -> Nexus {
        let id = NexusId::next();
        let (counters, losses) = (Arc::<Counters>::default(), self.volume.lost_writes());
        self.change(|state| state.attach(id, initiator, target_port, Arc::clone(&counters), losses));
        let geometry = self.device().geometry();
        let view = self.look(|state| state.view(id, geometry, View::NONE));
        Nexus { unit: Arc::clone(self), id, view, counters }
    }

    pub(crate) fn detach(&self, id: NexusId) {
        self.change(|state| state.detach(id));
    }

    /// Plans a command. Never blocks.
    pub fn begin(self: &Arc<Self>, nexus: &mut Nexus, command: &CommandIn<'_>) -> Plan {
        if nexus.view.generation != self.generation() {
            self.look_again(nexus);
        }
        let cdb = Cdb(command.cdb);
        let view = nexus.view;
        let mut call = Call { unit: self, nexus, view, cdb, command };
        let plan = match cdb.opcode() {
            0x08 | 0x28 | 0x88 | 0xa8 if view.reads && !cdb.naca() => command::read::plan(&mut call),
            0x0a | 0x2a | 0x8a | 0xaa if view.writes && !cdb.naca() => command::write::plan(&mut call),
            _ => self.admit(&mut call),
        };
        plan.unwrap_or_else(|failure| Plan::Reply(Reply::failure(failure, view.format)))
    }

    fn look_again(&self, nexus: &mut Nexus) {
        // Read first: a change after this line makes the view stale, never wrong.
        let generation = self.generation();
        let geometry = self.device().geometry();
        let id = nexus.id;
        nexus.view = self.look(|state| state.view(id, geometry, generation));
    }

    /// Logical unit reset (SAM-5 6.3.3), for task management. It is reported to all nexuses including the
    /// requester: an initiator with several paths must learn of it on each.
    pub fn reset(&self) {
        self.change(|state| state.reset());
    }

    /// If the device has grown since the last report, reports that to all nexuses and returns the new size.
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

    /// This nexus has read the list of LUNs, at this logical unit or another.
    pub fn luns_reported(&self, nexus: NexusId) {
        if self.look(|state| state.is_raised(nexus, Attention::ReportedLunsChanged)) {
            self.change(|state| state.clear(nexus, Attention::ReportedLunsChanged));
        }
    }

    /// Reports INQUIRY DATA HAS CHANGED to this nexus (SPC-4 6.6.1: "If INQUIRY data changes for any reason, the device server
    /// shall establish a unit attention condition for the initiator port associated with every I_T nexus").
    pub fn inquiry_changed(&self, nexus: NexusId) {
        self.change(|state| state.raise(nexus, Attention::InquiryChanged));
    }

    /// What INQUIRY tells of it.
    pub fn inquiry_facts(&self) -> InquiryFacts {
        let (geometry, profile) = (self.device().geometry(), self.device().profile());
        InquiryFacts {
            uuid: self.identity().uuid,
            given: self.identity().given.clone(),
            removable: self.options.removable,
            thin: self.thin(),
            block_size: geometry.block_size,
            physical_exponent: geometry.physical_exponent,
            // MODE SENSE tells that.
            profile: Profile { read_only: false, ..profile },
        }
    }

    /// The volume that it presents.
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

    /// What was read and written since it was made.
    pub fn traffic(&self) -> Traffic {
        self.look(|state| state.traffic())
    }

    /// How it presents itself.
    pub fn options(&self) -> &LogicalUnitOptions {
        &self.options
    }

    /// Whether blocks can be deallocated.
    pub(crate) fn thin(&self) -> bool {
        self.options.thin.unwrap_or_else(|| self.device().profile().thin)
    }

    /// The traits that determine which commands exist.
    pub(crate) fn traits(&self) -> UnitTraits {
        let thin = self.thin();
        UnitTraits { thin, volatile: thin && !self.device().profile().durable }
    }

    /// Changes the state and advances the generation, so that every nexus checks again before its next
    /// command.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut UnitState) -> T) -> T {
        self.change_in_generation(|state, _| change(state))
    }

    /// [`LogicalUnit::change`] for a change that needs the generation before it.
    pub(crate) fn change_in_generation<T>(&self, change: impl FnOnce(&mut UnitState, u64) -> T) -> T {
        // A panic while the lock was held left a state that is whole: its methods assign, they do not tear.
        // The volume's own lock comes after this one.
        let mut state = self.state.lock();
        // A fence advances the generation without this lock. A nexus that reads that later generation still
        // waits for the lock before it looks at the state, and so sees this change.
        let result = change(&mut state, self.generation());
        self.volume.advance_generation();
        result
    }

    /// Changes state that no cached view depends on, such as progress; the generation stays.
    pub(crate) fn note<T>(&self, note: impl FnOnce(&mut UnitState) -> T) -> T {
        note(&mut self.state.lock())
    }

    /// Reads the state.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&UnitState) -> T) -> T {
        look(&self.state.lock())
    }
}
