//! NBD clients: a URL in, a block device out.
//!
//! ```text
//!   Url ── open ──► paths ──► Channels of Links ──► RemoteExport: BlockDevice
//!                                │ balancing, failover, fencing: crate `failover`
//!                                ▼
//!                              Link ──► socket      one task each, on the thread that opened it
//! ```
//!
//! - [`Url`] is `nbd://HOST[:PORT]/EXPORT`, with options; `nbds` is for TLS, and `nbd+unix` for a Unix
//!   socket. The caller reads the URL's certificate files, and creates a [`tls::Client`] from them.
//! - `export` connects: the transport of the channels.
//! - `link` is one connection: outstanding requests, and the task that moves bytes.
//! - [`RemoteExport`] turns block requests into NBD requests. Extended headers and structured replies are
//!   used if the server supports them.

mod export;
mod link;
mod url;

pub use export::{Address, OpenError, Random, RemoteExport, list, open};
pub use failover::{ChannelStatus, ReplayRule, Status, Writers};
pub use link::ConnectionState;
pub use nbd::{Refused, ReplyForm, flags};
pub use url::{KEYS, Options, PORT, SCHEMES, TlsFiles, Url, UrlError};
