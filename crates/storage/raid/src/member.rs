//! The states of members, and the store that records them.

use std::sync::Arc;

use block::{BlockDevice, Pending};

use crate::layout::Layout;
use crate::lost::LostBlocks;
use crate::sums::Summed;

/// The strips of a member.
#[derive(Clone)]
pub enum MemberDevice {
    /// A device without checksums, whose reads are trusted.
    Plain(Arc<dyn BlockDevice>),
    /// A device with checksums, with which reads are compared.
    Summed(Arc<Summed>),
}

impl MemberDevice {
    /// Returns the device.
    pub fn device(&self) -> Arc<dyn BlockDevice> {
        match self {
            MemberDevice::Plain(device) => Arc::clone(device),
            MemberDevice::Summed(device) => Arc::clone(device) as _,
        }
    }

    pub(crate) fn summed(&self) -> Option<Arc<Summed>> {
        match self {
            MemberDevice::Plain(_) => None,
            MemberDevice::Summed(device) => Some(Arc::clone(device)),
        }
    }
}

impl From<Arc<dyn BlockDevice>> for MemberDevice {
    fn from(device: Arc<dyn BlockDevice>) -> MemberDevice {
        MemberDevice::Plain(device)
    }
}

impl From<Arc<Summed>> for MemberDevice {
    fn from(device: Arc<Summed>) -> MemberDevice {
        MemberDevice::Summed(device)
    }
}

/// The state of a member's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// The member has all of its data.
    InSync,
    /// The member has its data in the first `done` stripes. The others are still to be rebuilt, and are
    /// neither read nor written.
    Rebuilding {
        /// Number of stripes that are in sync, from the start of the set.
        done: u64,
    },
    /// The member is missing, or has missed a write. It is not read until it is rebuilt.
    Failed,
}

impl MemberState {
    /// Whether the member's strip of this stripe is current.
    pub fn holds(self, stripe: u64) -> bool {
        match self {
            MemberState::InSync => true,
            MemberState::Rebuilding { done } => stripe < done,
            MemberState::Failed => false,
        }
    }
}

/// The states of all members, by their index in the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStates {
    /// The state of each member.
    pub members: Vec<MemberState>,
    /// Blocks that members do not have, although their states imply that they do.
    pub lost: LostBlocks,
}

impl MemberStates {
    /// Creates states in which all `members` are in sync.
    pub fn in_sync(members: usize) -> MemberStates {
        MemberStates {
            members: vec![MemberState::InSync; members],
            lost: LostBlocks::default(),
        }
    }

    /// Returns which members are not in sync, for [`crate::Layout::survives`].
    pub fn lacking(&self) -> Vec<bool> {
        self.members
            .iter()
            .map(|state| *state != MemberState::InSync)
            .collect()
    }
}

/// A store that preserves the states of the members across restarts.
///
/// A set records that a member has failed before it acknowledges the first write that the member has missed.
/// After a restart, the set must be assembled with the states recorded last, so that a stale member is not
/// read.
pub trait MetadataStore: Send + Sync {
    /// Records `states`. Resolves once they are on stable storage, on enough members that every later
    /// assembly finds them. An error takes the set out of service. Calls are made in order and do not
    /// overlap.
    fn record(&self, states: &MemberStates) -> Pending<'_, ()>;

    /// Like `record`, but called once per assembly. For an existing set, it is called after all checks have
    /// passed and before anything is written; for a new set, when its journal or bitmap exists. After that, a
    /// missing member counts as failed.
    fn start(&self, states: &MemberStates) -> Pending<'_, ()> {
        self.record(states)
    }

    /// Records whether the second bitmap, which is on stable storage, contains all regions that members not
    /// in sync have missed since they failed. Later records repeat this. Returns the recorded value, which is
    /// false if it is unknown when the members failed.
    fn missed_is_noted(&self, is_noted: bool) -> Pending<'_, bool>;

    /// Records that the journal is now on the members, and that its separate device no longer belongs to the
    /// set. Resolves once this is on stable storage, as for states. If a store cannot record this, the
    /// journal does not move.
    fn journal_on_members(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Err(block::DeviceError::Unsupported)))
    }
}

impl MemberStates {
    /// Returns the states of a new set whose members have arbitrary content. With parity, one member per
    /// parity strip is rebuilt from the others, which makes all stripes consistent. RAID 1 and 10 start with
    /// a write-intent bitmap that marks every region.
    pub fn of_new_set(layout: &Layout) -> MemberStates {
        let mut states = MemberStates::in_sync(layout.members());
        let rebuilt = layout.level().parity_strips();
        states
            .members
            .iter_mut()
            .rev()
            .take(rebuilt)
            .for_each(|state| *state = MemberState::Rebuilding { done: 0 });
        states
    }
}
