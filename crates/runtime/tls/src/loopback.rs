//! The two ends of the self-test, in one process over loopback. The private key is in every copy of the program, so this certificate
//! proves nothing to anybody: its name is one that no host can have (RFC 6761 section 6.4), and nobody else believes its CA.

use crate::credentials::{Client, CredentialsError, Server};

/// What the certificate is for.
const NAME: &str = "selftest.invalid";
// `loopback/make.sh` makes them.
const CA: &[u8] = include_bytes!("loopback/ca-cert.pem");
const CERTIFICATE: &[u8] = include_bytes!("loopback/server-cert.pem");
const KEY: &[u8] = include_bytes!("loopback/server-key.pem");

/// The server's end.
///
/// # Errors
/// Of a copy with other files.
pub fn server() -> Result<Server, CredentialsError> {
    Server::new(CERTIFICATE, KEY, None)
}

/// The client's end, which believes that server only.
///
/// # Errors
/// As [`server`].
pub fn client() -> Result<Client, CredentialsError> {
    Client::new(NAME, CA, None)
}
