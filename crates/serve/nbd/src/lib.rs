//! NBD as a front end: exports, their clients, and the execution of requests on volumes.
//!
//! ```text
//!   accepted ── admission: handshake on the first core ──► the core with the fewest clients
//!                                                             │
//!      socket ──► connection: requests and their data ──► carry_out ── at once ──► answer ──► socket
//!                                                             └── as a task that awaits the device ─┘
//! ```
//!
//! - [`Nbd`] is shared by all cores: the exports, and the number of clients of each core.
//! - `front_end` drives [`nbd::Handshake`]. The client is not trusted, and the duration of the handshake is
//!   limited.
//! - `connection` moves bytes: one read for many requests; one vectored write for many replies.
//! - `carry_out` executes requests on a volume. Requests for whole blocks share their blocks with other
//!   requests; requests that change parts of blocks exclude other requests. Each request must be permitted by
//!   the volume, has a deadline, and can be aborted by other front ends ([`front_end_core::Requests`]).
//!
//! A client's writes and flushes have the same guarantees as in iSCSI. A flush covers writes acknowledged on
//! all connections of the export (NBD_FLAG_CAN_MULTI_CONN). `flushed` in `carry_out` determines the client's
//! reply if a flush fails; `reported` records the losses that were reported to each client.

mod carry_out;
mod channels;
mod client;
mod config;
mod connection;
mod front_end;
mod reported;

pub use client::{ClientStatus, NBD};
pub use config::{Config, Encryption, Export, Limits, Requester, Tls};
pub use front_end::Nbd;
pub use nbd::TlsMode;
