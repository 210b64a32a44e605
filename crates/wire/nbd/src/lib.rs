//! NBD, the network block device protocol, without I/O.
//!
//! The standard is `doc/proto.md` of the NBD project; comments name its sections. Numbers on the wire are
//! big-endian.
//!
//! ```text
//!   server                                   client
//!     │ greeting ──────────────────────────────► │
//!     │ ◄──────────────────────────── client flags │   Handshake
//!     │ ◄── option ── replies ──► … until GO      │
//!     │ ◄──────────────────── Request [payload] │   Session
//!     │ reply header [payload] ───────────────► │
//! ```
//!
//! - [`Handshake`] is the server's side of the negotiation, and [`ClientHandshake`] is the client's. Both
//!   process received bytes, return bytes to send, and finally return a [`Session`].
//! - A [`Request`] is parsed from its header; [`Session::check`] returns the error for a request that
//!   violates the standard.
//! - Replies are written by a [`Session`], in one of three forms ([`ReplyForm`]), and parsed as [`Reply`].
//!
//! Payload does not pass through this crate: the driver of a state machine transfers it.

mod export;
pub mod flags;
mod handshake;
mod reply;
mod request;

pub use export::{BlockSizes, ChannelName, Export, Exports, PAYLOAD_BYTES_MAX};
pub use handshake::{
    ClientHandshake, ClientStep, GREETING_BYTES, Handshake, Info, OptionCode, Refused, ReplyCode,
    STRING_BYTES_MAX, Step, TlsMode, Violation,
};
pub use reply::{ALLOCATION_CONTEXT, BadReply, BlockStatus, Chunk, REPLY_EXTENTS_MAX, Reply};
pub use request::{
    BadMagic, Command, EXTENDED_REQUEST_BYTES, Errno, REQUEST_BYTES, ReplyForm, Request, Session,
};
