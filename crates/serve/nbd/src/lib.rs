//! NBD as a front end: exports, their clients, and requests carried out on volumes.
//!
//! ```text
//!   accepted ── admission: handshake on the first core ──► the core with the fewest clients
//!                                                             │
//!      socket ──► connection: requests and their data ──► carry_out ── at once ──► answer ──► socket
//!                                                             └── as a task that awaits the device ─┘
//! ```
//!
//! - [`Nbd`] is what all cores share: the exports, and how many clients each core has.
//! - `front_end` drives [`nbd::Handshake`]; nothing of a client is trusted, and its time is bounded.
//! - `connection` moves bytes: one read, many requests; one vectored write, many answers.
//! - `carry_out` is what a request does to a volume. Requests with whole blocks are shared with others, those
//!   that change parts of blocks exclude others; each asks the volume's gate, has a deadline and can be
//!   aborted from other front ends ([`front_end_core::Requests`]).
//!
//! A client's writes and flushes are promised as in iSCSI: a flush covers what was answered on all connections
//! of the export (NBD_FLAG_CAN_MULTI_CONN), and acknowledged writes that are lost are reported once to each
//! connection that could rely on them.

mod carry_out;
mod channels;
mod client;
mod config;
mod connection;
mod front_end;

pub use client::{ClientStatus, NBD};
pub use config::{Config, Encryption, Export, Limits, Requester, Tls};
pub use front_end::Nbd;
pub use nbd::TlsMode;
