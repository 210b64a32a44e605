//! NBD clients: a URL in, a block device out.
//!
//! ```text
//!   Url ── open ──► n × (connect, handshake) ──► RemoteExport: BlockDevice
//!                                                   │ the connection with the fewest requests
//!                                                   ▼
//!                                              Link ──► socket      one task each, on the thread that opened it
//! ```
//!
//! - [`Url`] is `nbd://HOST[:PORT]/EXPORT`, with options.
//! - `link` is one connection: requests that wait for their answers, and the task that moves bytes.
//! - [`RemoteExport`] makes block requests of them. Extended headers and structured replies are used where the
//!   server offers them.
//!
//! A connection that is lost, or a server that does not answer in time, ends the device: every later request
//! fails, and the next flush reports that writes may be lost. Nothing is sent twice.

mod export;
mod link;
mod open;
mod receive;
mod url;

pub use export::RemoteExport;
pub use nbd::{Refused, ReplyForm, flags};
pub use open::{OpenError, open};
pub use url::{Options, PORT, Url, UrlError};
