//! TLS 1.3 around a stream of the reactor, by rustls, for every protocol that can begin it.
//!
//! ```text
//!   Box<dyn Stream> ── accept, connect: the handshake ──► TlsStream: Stream
//! ```
//!
//! - [`Server`] and [`Client`] are what an end proves itself with, and whom it believes: from the text of PEM files.
//! - [`accept`] and [`connect`] are the two sides of a handshake. Their time is the caller's to bound.
//! - [`TlsStream`] is a stream like any other afterwards; [`adopt`] takes it to another thread.
//! - [`loopback`] are both ends of a test in one process.
//! - [`Failure`] says which check of a certificate failed.
//!
//! Nothing here opens a file or knows a protocol above TLS. TLS 1.2 is left out: all of today's peers have 1.3.

mod credentials;
mod failure;
pub mod loopback;
mod session;
mod stream;

pub use credentials::{Client, CredentialsError, Server, is_server_name};
pub use failure::Failure;
pub use stream::{TlsStream, accept, adopt, connect};
