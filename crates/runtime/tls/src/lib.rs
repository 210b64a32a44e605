//! TLS 1.3 over a stream of the reactor, with rustls, for every protocol that supports it.
//!
//! ```text
//!   Box<dyn Stream> ── accept, connect: the handshake ──► TlsStream: Stream
//! ```
//!
//! - [`Server`] and [`Client`] hold the certificate and key of an endpoint and the CAs that it trusts, parsed
//!   from PEM.
//! - [`accept`] and [`connect`] are the two sides of a handshake. The caller sets a timeout.
//! - [`TlsStream`] is a stream like any other; [`adopt`] moves it to another thread.
//! - [`loopback`] contains the credentials of both ends for a test in one process.
//! - [`Failure`] states which check of a certificate failed.
//!
//! This crate does not open files, and does not depend on any protocol above TLS. TLS 1.2 is not supported,
//! because all current peers support TLS 1.3.

mod credentials;
mod failure;
mod session;
mod stream;

pub use credentials::{Client, CredentialsError, Server, is_server_name, loopback};
pub use failure::Failure;
pub use stream::{TlsStream, accept, adopt, connect};
