//! ATA over Ethernet as a front end: volumes at shelf and slot, on interfaces.
//!
//! ```text
//!   interface ──► core: one batch of frames ──► slot ──► config, mask, reserve: answered at once
//!       ▲                                        └─────► carry_out: an ATA command on the volume
//!       └────────── one batch of answers ◄────────────── at once, or as a task that awaits the device
//! ```
//!
//! - [`Aoe`] is what all cores share: the slots, and what hosts have set in them (`slot`).
//! - `front_end` receives and sends, on the first core. Nothing is kept of a host but how many commands it has outstanding, and which
//!   writes it has had carried out.
//! - `history` is why a write that was sent again is not carried out again: the network may have kept the copy until after a newer
//!   write of the same sectors. And it is which lost writes a station knows of.
//! - `carry_out` is what a command does to a volume.
//!
//! AoE has neither sessions nor proof of who sends: a station is its MAC address, which any host of the Ethernet can assume. What cannot be
//! answered now (too many commands outstanding, no memory) is dropped, and hosts send it again.

mod carry_out;
mod front_end;
mod history;
mod slot;

pub use front_end::{AOE, Aoe, StationStatus};
pub use slot::{Config, Limits, Slot};
