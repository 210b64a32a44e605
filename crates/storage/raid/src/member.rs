//! Which members hold their data, and who remembers it.

use std::sync::Arc;

use block::{BlockDevice, Pending};

use crate::layout::Layout;
use crate::lost::LostBlocks;
use crate::sums::Summed;

/// The strips of a member.
#[derive(Clone)]
pub enum MemberDevice {
    /// What is read is right.
    Plain(Arc<dyn BlockDevice>),
    /// What is read is compared with its checksum.
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

/// What a member holds.
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
    /// Blocks that members do not have, although their state says so.
    pub lost: LostBlocks,
}

impl MemberStates {
    /// All `members` in sync.
    pub fn in_sync(members: usize) -> MemberStates {
        MemberStates { members: vec![MemberState::InSync; members], lost: LostBlocks::default() }
    }

    /// Which members lack data: what [`crate::Layout::survives`] takes.
    pub fn lacking(&self) -> Vec<bool> {
        self.members.iter().map(|state| *state != MemberState::InSync).collect()
    }
}

/// Remembers the states of the members across restarts.
///
/// A set records that a member has failed before it acknowledges the first write that the member missed. After
/// a restart the set must be assembled with the states recorded last, so that a stale member is not read.
pub trait MetadataStore: Send + Sync {
    /// Ends once `states` are on stable storage: on so many members that every later assembly finds them. An
    /// error takes the set out of service. Calls do not overlap, and come in order.
    fn record(&self, states: &MemberStates) -> Pending<'_, ()>;

    /// The same, once for each assembly: when nothing refuses the set any more and before anything of it is written, and of a new set once
    /// its journal or bitmap is there. A member that is missing has failed from then on.
    fn start(&self, states: &MemberStates) -> Pending<'_, ()> {
        self.record(states)
    }

    /// Records whether the second bitmap, which is on stable storage, has all regions that members not in sync have missed since they
    /// failed. Later records repeat it. Returns whether that is recorded now: false if it is not known since when they have failed.
    fn missed_is_noted(&self, is_noted: bool) -> Pending<'_, bool>;

    /// Ends once it is on stable storage, as states are, that the journal is on the members from now on, and its own device not of the set
    /// any more. A store that cannot record that keeps the set from it.
    fn journal_on_members(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Err(block::DeviceError::Unsupported)))
    }
}

impl MemberStates {
    /// The states of a new set whose members may hold anything. With parity as many members as there are parity strips
    /// are rebuilt from the others, which makes all parity right; RAID 1 and 10 begin with a write-intent bitmap in which
    /// every region may differ.
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
