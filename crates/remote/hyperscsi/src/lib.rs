//! HyperSCSI clients: a URL in, a block device out.
//!
//! ```text
//!   Url ── open ──► iscsi_client::RemoteLun ── RemoteTarget ── Carrier (session)
//!                                                              │
//!                                     Session (session) ◄──────┘   one task, on the thread that opened it
//!                                        │ hyperscsi::Initiator
//!                                        ▼
//!                                     Link (link): endpoints of datagrams, and the paths over them
//! ```
//!
//! - [`Url`] is `hyperscsi://INTERFACE/TARGET/LUN` or `hyperscsi+udp://HOST/TARGET/LUN`, with options.
//! - [`discover`] lists the targets that respond; [`open`] and [`open_target`] log in.
//! - `link` finds the stations of a target and the maximum frame length.
//! - `session` submits commands to the protocol's state machine, and starts another session when one is lost.
//!   `inner` keeps these commands.
//!
//! `iscsi_client` defines LUNs and translates their requests into commands, for iSCSI as well as for this
//! protocol. The state machine provides paths, failover and exactly-once execution.

mod inner;
mod link;
mod session;
mod url;

pub use hyperscsi::{Counters, Refusal};
pub use link::{Found, OpenError, Random, discover};
pub use session::{
    Opened, PathStatus, SessionHandle, SessionStatus, closed, open, open_target, open_with_session,
};
pub use url::{KEYS, Options, Place, SCHEME, SCHEME_UDP, SCHEMES, UdpHost, Url, UrlError};
