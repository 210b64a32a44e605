//! The certificate and key of an endpoint, and the CAs that it trusts.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The credentials of a server: its certificate, and the CAs of the clients that it accepts.
#[derive(Clone)]
pub struct Server {
    pub(crate) config: Arc<ServerConfig>,
    asks_clients: bool,
}

/// The credentials of a client: the CAs of the servers that it trusts, and its own certificate, if any.
#[derive(Clone)]
pub struct Client {
    pub(crate) config: Arc<ClientConfig>,
    /// The name that the certificate of the server must contain.
    pub(crate) name: ServerName<'static>,
}

/// An invalid certificate, key or name. The text is a complete message without the file name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialsError {
    /// Invalid certificates.
    Certificate(String),
    /// An invalid private key, or one that does not match the certificate.
    Key(String),
    /// Invalid CA certificates.
    Ca(String),
    /// A server name that is neither a DNS name nor an IP address.
    Name(String),
}

impl std::error::Error for CredentialsError {}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialsError::Certificate(why)
            | CredentialsError::Key(why)
            | CredentialsError::Ca(why) => f.write_str(why),
            CredentialsError::Name(name) => {
                write!(f, "`{name}` is neither a DNS name nor an IP address")
            }
        }
    }
}

impl Server {
    /// Parses a server's credentials from PEM: a certificate with its chain, its private key, and optionally
    /// the CAs of clients. If the CAs are given, every client must present a certificate.
    ///
    /// # Errors
    /// One of the arguments is invalid.
    pub fn new(
        certificates: &[u8],
        key: &[u8],
        client_cas: Option<&[u8]>,
    ) -> Result<Server, CredentialsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| CredentialsError::Key(error.to_string()))?;
        let builder = match client_cas {
            None => builder.with_no_client_auth(),
            Some(cas) => {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots(cas)?, provider()).build();
                let verifier = verifier.map_err(|error| CredentialsError::Ca(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config = builder.with_single_cert(chain(certificates)?, private_key(key)?);
        let mut config = config.map_err(unfit)?;
        // Do not let clients resume sessions: the server would not check whether the client's certificate has
        // expired since the full handshake.
        config.send_tls13_tickets = 0;
        Ok(Server {
            config: Arc::new(config),
            asks_clients: client_cas.is_some(),
        })
    }

    /// Whether every client must present a certificate. The client's names are taken from it.
    pub fn asks_clients(&self) -> bool {
        self.asks_clients
    }
}

impl Client {
    /// Parses a client's credentials from PEM: the CAs of servers, and optionally a certificate with its
    /// private key, for servers that request one. The server's certificate must contain `name`, a DNS name or
    /// an IP address.
    ///
    /// # Errors
    /// One of the arguments is invalid.
    pub fn new(
        name: &str,
        cas: &[u8],
        own: Option<(&[u8], &[u8])>,
    ) -> Result<Client, CredentialsError> {
        let server = ServerName::try_from(name.to_owned());
        let server = server.map_err(|_| CredentialsError::Name(name.to_owned()))?;
        let verifier = WebPkiServerVerifier::builder_with_provider(roots(cas)?, provider()).build();
        let verifier = verifier.map_err(|error| CredentialsError::Ca(error.to_string()))?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(VERSIONS)
            .map_err(|error| CredentialsError::Key(error.to_string()))?
            .with_webpki_verifier(verifier);
        let mut config = match own {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => builder
                .with_client_auth_cert(chain(certificates)?, private_key(key)?)
                .map_err(unfit)?,
        };
        config.resumption = rustls::client::Resumption::disabled();
        Ok(Client {
            config: Arc::new(config),
            name: server,
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("asks_clients", &self.asks_clients)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Whether a server certificate can contain this name.
pub fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    certificates(text).map_err(CredentialsError::Certificate)
}

fn roots(text: &[u8]) -> Result<Arc<RootCertStore>, CredentialsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(text).map_err(CredentialsError::Ca)? {
        let unusable =
            |error| CredentialsError::Ca(format!("a certificate in it is unusable: {error}"));
        roots.add(certificate).map_err(unusable)?;
    }
    Ok(Arc::new(roots))
}

/// Parses certificates from PEM. It is an error if there are none.
fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
    let all = all.map_err(|error| format!("the file is not valid PEM: {error}"))?;
    match all.is_empty() {
        false => Ok(all),
        true => Err("the file has no certificate (-----BEGIN CERTIFICATE-----)".to_owned()),
    }
}

fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, CredentialsError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        CredentialsError::Key(match error {
            pem::Error::NoItemsFound if is_encrypted(text) => {
                "the private key is encrypted; decrypt it with `openssl pkey -in FILE`".to_owned()
            }
            pem::Error::NoItemsFound => {
                "the file has no private key (-----BEGIN PRIVATE KEY-----)".to_owned()
            }
            error => format!("the file is not valid PEM: {error}"),
        })
    })
}

fn is_encrypted(text: &[u8]) -> bool {
    let mark = b"ENCRYPTED PRIVATE KEY-----";
    text.windows(mark.len()).any(|window| window == mark)
}

/// Converts the error for a certificate and key that do not match or are not supported.
fn unfit(error: rustls::Error) -> CredentialsError {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            CredentialsError::Key("the private key does not match the certificate".to_owned())
        }
        rustls::Error::InvalidCertificate(error) => CredentialsError::Certificate(
            // rustls has no variant for this error of webpki.
            match error.to_string().contains("UnsupportedCertVersion") {
                true => "the first certificate is of X.509 version 1; create it with an extension, such as \
                         subjectAltName, so that it is of version 3"
                    .to_owned(),
                false => format!("the first certificate is unusable: {error}"),
            },
        ),
        error => CredentialsError::Key(format!("the private key is unusable: {error}")),
    }
}

/// Returns the common names of a certificate's subject (RFC 5280 4.1.2.6) and the DNS names in its
/// subjectAltName extension (4.2.1.6). Returns no names if the certificate is malformed.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let mut names: Vec<String> = common_names(certificate.subject()).collect();
    for name in certificate.valid_dns_names() {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The DirectoryString types whose bytes are valid UTF-8. The other types are obsolete (RFC 5280 4.1.2.4).
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// Returns the common names in an X.501 Name, given as the content of its DER encoding.
fn common_names(subject: &[u8]) -> impl Iterator<Item = String> {
    let sets = Elements(subject).filter(|(tag, _)| *tag == SET);
    let attributes = sets
        .flat_map(|(_, set)| Elements(set))
        .filter(|(tag, _)| *tag == SEQUENCE);
    attributes.filter_map(|(_, attribute)| {
        let mut parts = Elements(attribute);
        parts
            .next()
            .filter(|part| *part == (OBJECT_IDENTIFIER, &COMMON_NAME[..]))?;
        let (_, text) = parts
            .next()
            .filter(|(tag, _)| [UTF8_STRING, PRINTABLE_STRING].contains(tag))?;
        String::from_utf8(text.to_vec()).ok()
    })
}

/// Iterates over the elements of a constructed DER value, as tag and content. Stops at malformed data.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, length, rest @ ..] = std::mem::take(&mut self.0) else {
            return None;
        };
        let (length, rest) = match *length {
            short @ 0..=0x7f => (usize::from(short), rest),
            0x81 => rest
                .split_first()
                .map(|(length, rest)| (usize::from(*length), rest))?,
            0x82 => rest
                .split_first_chunk()
                .map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?,
            _ => return None,
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }
}

pub mod loopback {
    //! The credentials of the self-test, which runs both ends in one process over loopback. Every copy of the
    //! program contains the private key, so this certificate does not authenticate anything. That is
    //! harmless: no host can have its name (RFC 6761 section 6.4), and nothing else trusts its CA.

    use super::{Client, CredentialsError, Server};

    /// The name in the certificate.
    const NAME: &str = "selftest.invalid";
    // Generated by `loopback/make.sh`.
    const CA: &[u8] = include_bytes!("loopback/ca-cert.pem");
    const CERTIFICATE: &[u8] = include_bytes!("loopback/server-cert.pem");
    const KEY: &[u8] = include_bytes!("loopback/server-key.pem");

    /// The credentials of the server.
    ///
    /// # Errors
    /// If the built-in files are invalid.
    pub fn server() -> Result<Server, CredentialsError> {
        Server::new(CERTIFICATE, KEY, None)
    }

    /// The credentials of the client, which trusts only that server.
    ///
    /// # Errors
    /// The same as for [`server`].
    pub fn client() -> Result<Client, CredentialsError> {
        Client::new(NAME, CA, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C=DE, O=x, CN=host1, CN=zwei as encoded by `openssl req`.
    const SUBJECT: &[u8] =
        b"\x31\x0b\x30\x09\x06\x03\x55\x04\x06\x13\x02DE\x31\x0a\x30\x08\x06\x03\x55\x04\x0a\x0c\x01x\
        \x31\x0e\x30\x0c\x06\x03\x55\x04\x03\x0c\x05host1\x31\x0d\x30\x0b\x06\x03\x55\x04\x03\x13\x04zwei";

    #[test]
    fn common_names_are_found() {
        assert_eq!(common_names(SUBJECT).collect::<Vec<_>>(), ["host1", "zwei"]);
    }

    #[test]
    fn a_malformed_subject_has_fewer_names() {
        for end in 0..SUBJECT.len() {
            assert!(common_names(&SUBJECT[..end]).count() < 2);
        }
        for at in 0..SUBJECT.len() {
            let mut changed = SUBJECT.to_vec();
            changed[at] = 0xff;
            let _ = common_names(&changed).count();
        }
    }
}
