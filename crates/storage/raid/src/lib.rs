//! RAID 0, 1, 5, 6 and 10: a block device over block devices.
//!
//! A member is any [`block::BlockDevice`]: memory, a file, a remote LUN, another RAID set. This crate knows no
//! network, no file and no clock; where it must wait or continue without its requester, it is given a
//! [`block::Sleeper`] and a [`block::Spawner`].
//!
//! Reading order: [`Level`] and [`Layout`] (where a block lies), [`MemberState`] and [`MetadataStore`] (which members
//! may be read, and how that is remembered), [`parity`].

mod layout;
mod member;
pub mod parity;

pub use layout::{BadLayout, Layout, Level, MEMBERS_MAX, Piece, Strip};
pub use member::{MemberState, MemberStates, MetadataStore};
