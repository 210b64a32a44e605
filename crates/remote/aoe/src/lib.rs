//! Clients of ATA over Ethernet: a URL in, a block device out.
//!
//! ```text
//!   Url ── open ──► Session ◄── RemoteAoe: BlockDevice
//!                     │ window, retransmission (flow)
//!                     ▼
//!                   interface       one task, on the thread that opened it
//! ```
//!
//! - [`Url`] is `aoe://INTERFACE/SHELF.SLOT`, with options.
//! - [`discover`] queries all devices; [`open`] queries one, and determines the frame length.
//! - `session` sends commands, retransmits them without a reply, and matches replies by tag. It also searches
//!   for a device that no longer responds: its MAC address may have changed.
//! - [`RemoteAoe`] turns block requests into commands.
//!
//! A retransmitted write may be executed twice, and the second time late: the network may delay a copy, and
//! some servers keep no record of executed writes. Newer writes to the same sectors wait until no copy can
//! still arrive ([`Options::quarantine`]).

mod device;
mod session;
mod url;

pub use device::{OpenError, RemoteAoe, discover, open};
pub use session::{Counters, Found};
pub use url::{KEYS, Options, SCHEME, Url, UrlError};
