//! Which members are current, and the store that records it.

use std::sync::Arc;

use block::{BlockDevice, Pending};

use crate::layout::Layout;
use crate::lost::LostBlocks;
use crate::sums::Summed;

/// The strips of a member.
#[derive(Clone)]
pub enum MemberDevice {
    /// Reads are trusted.
    Plain(Arc<dyn BlockDevice>),
    /// Reads are compared with their checksums.
    Summed(Arc<Summed>),
}

impl MemberDevice {
    /// The device.
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
    /// All of its data.
    InSync,
    /// The data of the stripes before this one; the others are being rebuilt, and are neither read nor written.
    Rebuilding {
        /// Number of stripes that are in sync, from the start of the set.
        done: u64,
    },
    /// Missing, or it missed a write: it is not read until it is rebuilt.
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
    /// One for each member.
    pub members: Vec<MemberState>,
    /// Blocks that members do not have, although their state implies it.
    pub lost: LostBlocks,
}

impl MemberStates {
    /// All `members` in sync.
    pub fn in_sync(members: usize) -> MemberStates {
        MemberStates { members: vec![MemberState::InSync; members], lost: LostBlocks::default() }
    }

    /// Which members are not in sync, for [`crate::Layout::survives`].
    pub fn lacking(&self) -> Vec<bool> {
        self.members.iter().map(|state| *state != MemberState::InSync).collect()
    }
}

/// Stores the states of the members across restarts.
///
/// A set records that a member has failed before it acknowledges the first write that the member missed. After
/// a restart the set must be assembled with the states recorded last, so that a stale member is not read.
pub trait MetadataStore: Send + Sync {
    /// Resolves once `states` are on stable storage, on enough members that every later assembly finds them.
    /// An error takes the set out of service. Calls are made in order and do not overlap.
    fn record(&self, states: &MemberStates) -> Pending<'_, ()>;

    /// Like `record`, but called once per assembly: after all checks have passed and before anything is
    /// written, or for a new set, once its journal or bitmap exists. After that, a missing member counts as
    /// failed.
    fn start(&self, states: &MemberStates) -> Pending<'_, ()> {
        self.record(states)
    }

    /// Records whether the second bitmap, which is on stable storage, has all regions that members not in sync have missed since they
    /// failed. Later records repeat this. Returns whether it is now recorded: false if it is unknown when
    /// they failed.
    fn missed_is_noted(&self, is_noted: bool) -> Pending<'_, bool>;

    /// Records that the journal is now on the members, and that its separate device no longer belongs to the
    /// set. Resolves once this is on stable storage, as for states. If a store cannot record it, the journal
    /// does not move.
    fn journal_on_members(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Err(block::DeviceError::Unsupported)))
    }
}

impl MemberStates {
    /// The states of a new set whose members have arbitrary content. With parity, one member per parity strip
    /// is rebuilt from the others, which makes all parity consistent. RAID 1 and 10 start with a write-intent
    /// bitmap in which every region may differ.
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
