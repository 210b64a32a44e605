//! RAID 0, 1, 5, 6 and 10: a block device over block devices.
//!
//! A member can be any [`block::BlockDevice`]: memory, a file, a remote LUN or another RAID set. This crate
//! does not depend on a network, files or a clock. It waits through a [`block::Sleeper`], and uses a
//! [`block::Spawner`] to continue operations whose requests were dropped.
//!
//! ```text
//!   request ──► pieces (Layout) ──► lock ──► plan (reads needed) ──► journal or bitmap ──► members
//!                                                                       (durable first)
//! ```
//!
//! Reading order:
//!
//! - [`Level`] and [`Layout`]: where a block lies
//! - [`MemberState`] and [`MetadataStore`]: which members may be read, and how this is recorded
//! - [`Assembly`] and [`RaidDevice`]: the set
//! - [`superblock`]: the record of a set on its members
//! - [`choose`]: which disks form a set
//! - [`disks`]: the parts of disks that form an [`Assembly`], and writing their superblocks
//!
//! Internal modules:
//!
//! - `plan` and [`parity`]: pure functions
//! - `journal` and `intent`: protection from the write hole
//! - `members`: the consequences of a failure
//! - `lost`: blocks that cannot be reconstructed
//! - `sums`: detection of silent corruption
//! - `read`, `write`, `merge`, `clear`, `repair`

mod area;
mod assembly;
pub mod choose;
mod concurrency;
mod device;
pub mod disks;
mod intent;
mod journal;
mod layout;
mod lost;
mod member;
mod members;
mod merge;
pub mod parity;
mod plan;
mod read;
mod repair;
mod set;
mod sums;
pub mod superblock;
mod write;

pub use area::AreaCopy;
pub use assembly::{
    Assembly, AssemblyError, Missed, Origin, ProtectionAreas, has_journal, journal_blocks_min,
    newer_journal, obstacle,
};
pub use device::{RaidDevice, Status};
pub use layout::{BadLayout, Layout, Level, MEMBERS_MAX, Piece, Strip};
pub use lost::{LOST_MAX, LostBlocks};
pub use member::{MemberDevice, MemberState, MemberStates, MetadataStore};
pub use members::Vacancy;
pub use repair::{Progress, Scrubbed};
pub use sums::Summed;
