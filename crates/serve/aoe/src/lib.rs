//! ATA over Ethernet as a front end: volumes at addresses of shelf and slot, on network interfaces.
//!
//! ```text
//!   interface ──► core: one batch of frames ──► slot ──► config, mask, reserve: answered at once
//!       ▲                                        └─────► carry_out: an ATA command on the volume
//!       └────────── one batch of answers ◄────────────── at once, or as a task that awaits the device
//! ```
//!
//! - [`Aoe`] is shared by all cores: the slots, and the settings that hosts have made in them (`slot`).
//! - `front_end` receives and sends frames, on the first core. The only state kept for a host is the number
//!   of its outstanding commands, and a record of its executed writes.
//! - `history` prevents retransmitted writes from being executed again: the network may have delayed a copy
//!   until after a newer write of the same sectors. It also records which lost writes a station has been
//!   notified of.
//! - `carry_out` executes a command on a volume.
//!
//! AoE has neither sessions nor authentication: a station is identified by its MAC address, which any host on
//! the Ethernet can use. Commands that cannot be executed now (too many commands outstanding, no memory) are
//! dropped, and hosts retransmit them.

mod carry_out;
mod front_end;
mod history;
mod slot;

pub use front_end::{AOE, Aoe, StationStatus};
pub use slot::{Config, Limits, Slot};
