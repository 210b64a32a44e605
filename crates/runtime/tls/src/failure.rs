//! Errors in TLS handshakes and encrypted streams.

use std::{fmt, io};

use foreign::Text;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// Why TLS failed.
#[derive(Debug)]
pub enum Failure {
    /// The underlying stream failed, or ended during the handshake.
    Socket(io::Error),
    /// One end rejected the other, or violated the protocol.
    Tls(Error),
}

impl std::error::Error for Failure {}

impl Failure {
    /// Whether the peer requires a certificate, and none was presented.
    pub fn is_missing_certificate(&self) -> bool {
        let alert = AlertDescription::CertificateRequired;
        matches!(self, Failure::Tls(Error::AlertReceived(received)) if *received == alert)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Socket(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Tls(error)
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> io::Error {
        match failure {
            Failure::Socket(error) => error,
            failure @ Failure::Tls(_) => io::Error::new(io::ErrorKind::InvalidData, failure),
        }
    }
}

/// Each message names the check that failed.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = match self {
            Failure::Socket(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return f.write_str("TLS: the peer closed the connection during the handshake");
            }
            Failure::Socket(error) => return write!(f, "TLS: {error}"),
            Failure::Tls(error) => error,
        };
        f.write_str("TLS: ")?;
        match error {
            Error::InvalidCertificate(error) => certificate(error, f),
            Error::NoCertificatesPresented => {
                f.write_str("no certificate: the peer did not present the required certificate")
            }
            Error::AlertReceived(alert) => refused(*alert, f),
            Error::InvalidMessage(_) => {
                f.write_str("the received data is not TLS, or is corrupted")
            }
            Error::DecryptError => {
                f.write_str("the received data was modified in transit, or is not TLS")
            }
            Error::PeerIncompatible(
                PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                | PeerIncompatible::SupportedVersionsExtensionRequired
                | PeerIncompatible::Tls13RequiredForQuic
                | PeerIncompatible::ServerDoesNotSupportTls12Or13
                | PeerIncompatible::Tls12NotOffered
                | PeerIncompatible::Tls12NotOfferedOrEnabled,
            ) => f.write_str("the peer does not support TLS 1.3"),
            error => f.write_str(&foreign::printable(&error.to_string())),
        }
    }
}

/// Extracts the plain name from rustls's notation of a certificate name: `DnsName("san1")` or
/// `IpAddress(192.0.2.1)`.
fn plain(name: &str) -> &str {
    let inner = name
        .split_once('(')
        .and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

/// Describes a failure of the peer's certificate.
fn certificate(error: &CertificateError, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match error {
        CertificateError::UnknownIssuer => {
            f.write_str("unknown CA: the peer's certificate is not signed by a CA that is trusted here")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            f.write_str("expired: the peer's certificate has expired")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => f.write_str(
            "not yet valid: the peer's certificate is not valid yet, or the clock of this machine is wrong",
        ),
        CertificateError::NotValidForName => f.write_str("wrong name: the certificate is for another host"),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented = if presented.is_empty() {
                "no host".to_owned()
            } else {
                presented.iter().map(|name| plain(name)).collect::<Vec<_>>().join(", ")
            };
            let presented = Text::from(presented);
            write!(f, "wrong name: the certificate is for {presented}, not for {}", expected.to_str())
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            f.write_str("wrong purpose: the peer's certificate is not valid for its side of the connection")
        }
        CertificateError::BadSignature => f.write_str("bad signature: the peer's certificate is invalid"),
        error => write!(f, "the peer's certificate: {}", foreign::printable(&error.to_string())),
    }
}

/// Describes an alert from the peer.
fn refused(alert: AlertDescription, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let why = match alert {
        AlertDescription::UnknownCA => {
            "unknown CA: the peer does not trust the CA of our certificate"
        }
        AlertDescription::CertificateExpired => "expired: the peer rejects our certificate",
        AlertDescription::CertificateRevoked => "revoked: the peer rejects our certificate",
        AlertDescription::CertificateRequired => {
            "no certificate: the peer requires one, but none was presented"
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::AccessDenied => {
            return write!(f, "the peer rejects our certificate ({alert:?})");
        }
        AlertDescription::ProtocolVersion => "the peer does not support TLS 1.3",
        alert => return write!(f, "the peer rejects the connection ({alert:?})"),
    };
    f.write_str(why)
}

#[cfg(test)]
mod tests {
    use rustls::CertificateError;
    use rustls::pki_types::ServerName;

    use super::{Failure, plain};

    #[test]
    fn names_are_shown_as_they_are_written() {
        assert_eq!(plain("DnsName(\"san1.example\")"), "san1.example");
        assert_eq!(plain("IpAddress(192.0.2.1)"), "192.0.2.1");
        assert_eq!(plain("san1"), "san1");
    }

    /// The names in a certificate are chosen by the peer, so they may be long and contain control characters.
    #[test]
    fn names_in_a_certificate_are_shown_escaped_and_cut() {
        let expected = ServerName::try_from("san1").expect("a name");
        let name = |name: &str| {
            let presented = vec![name.to_owned()];
            CertificateError::NotValidForNameContext {
                expected: expected.clone(),
                presented,
            }
        };
        let said = |error: CertificateError| Failure::Tls(error.into()).to_string();
        let forged = said(name("x\ndata verified\u{202e}"));
        assert_eq!(
            forged,
            "TLS: wrong name: the certificate is for x\\ndata verified\\u{202e}, not for san1"
        );
        assert!(said(name(&"x".repeat(60_000))).len() < 400);
    }
}
