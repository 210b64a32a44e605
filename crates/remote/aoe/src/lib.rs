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
//! - [`discover`] asks who is there; [`open`] asks one, and finds out how long frames may be.
//! - `session` sends commands, again if they are not answered, and matches answers by their tags. It also searches
//!   for a device that answers nothing any more: the station may be another now.
//! - [`RemoteAoe`] makes block requests of them.
//!
//! A write that is sent again may be carried out twice, and the second time late: in a network, or by a server that does not remember what
//! it has done. Such a write keeps newer writes of its sectors waiting until no copy can arrive any more ([`Options::quarantine`]).

mod device;
mod session;
mod url;

pub use device::{OpenError, RemoteAoe, discover, open};
pub use session::{Counters, Found};
pub use url::{KEYS, Options, SCHEME, Url, UrlError};
