//! The keys of `[nbd]` that are about TLS: the files of certificates, which are read with the configuration.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use backends::secrets;
use tls::CredentialsError;

use crate::config::{Placed, Section, Unfit, one_of};

/// Longer than any bundle of CAs.
const CERTIFICATES_BYTES_MAX: u64 = 4 << 20;

/// How connections are encrypted.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    pub(super) served: nbd_server::Tls,
    /// What files hold, to be compared with what they hold later. A key changes with its certificate.
    certificates: Vec<u8>,
    client_cas: Option<Vec<u8>>,
}

/// Whether clients may, or must, encrypt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    Allowed,
    Required,
}

impl FromStr for Mode {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Mode, Unfit> {
        one_of("mode", text, &[("off", Mode::Off), ("allowed", Mode::Allowed), ("required", Mode::Required)])
    }
}

/// `None` if nothing is encrypted, or there are mistakes.
pub(super) fn read(section: &Section<'_>) -> Option<Tls> {
    let mode = section.parsed::<Mode>("tls");
    let certificate = section.text("tls-certificate");
    let key = section.text("tls-key");
    let client_ca = section.text("tls-client-ca");
    let is_meant = [&certificate, &key, &client_ca].iter().any(|file| file.is_some());
    match mode.as_ref().map(|mode| mode.value) {
        Some(Mode::Off) => return None,
        None if !is_meant => return None,
        _ => {}
    }
    let certificate = section.required("tls-certificate", certificate, "\"/etc/linerate/server.pem\"");
    let key = section.required("tls-key", key, "\"/etc/linerate/server.key\"");
    let (certificate, key) = (certificate?, key?);
    let certificates = contents(section, &certificate, certificates_of)?;
    let private_key = contents(section, &key, secrets::read_key)?;
    let client_cas = match &client_ca {
        None => None,
        Some(file) => Some(contents(section, file, certificates_of)?),
    };
    match tls::Server::new(&certificates, &private_key, client_cas.as_deref()) {
        Ok(server) => {
            let is_required = mode.is_none_or(|mode| mode.value == Mode::Required);
            Some(Tls { served: nbd_server::Tls { is_required, server }, certificates, client_cas })
        }
        Err(error) => {
            let file = match &error {
                CredentialsError::Certificate(_) => &certificate,
                CredentialsError::Ca(_) => client_ca.as_ref().unwrap_or(&certificate),
                CredentialsError::Key(_) | CredentialsError::Name(_) => &key,
            };
            section.mistakes.add(file.at.clone(), format!("{}: {error}", file.value));
            None
        }
    }
}

/// What a file holds that a key names.
fn contents<T>(
    section: &Section<'_>,
    file: &Placed<&str>,
    read: impl FnOnce(&Path) -> io::Result<T>,
) -> Option<T> {
    let read = read(Path::new(file.value));
    let unread =
        |error| section.mistakes.add(file.at.clone(), format!("cannot read {}: {error}", file.value));
    read.map_err(unread).ok()
}

fn certificates_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(CERTIFICATES_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > CERTIFICATES_BYTES_MAX {
        false => Ok(bytes),
        true => Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long to hold certificates")),
    }
}

/// What is different, a line each.
pub(super) fn changes(now: Option<&Tls>, wanted: Option<&Tls>) -> Vec<String> {
    let mode = |tls: &Tls| if tls.served.is_required { "required" } else { "allowed" };
    match (now, wanted) {
        (None, None) => Vec::new(),
        (None, Some(after)) => vec![format!("+ NBD TLS, {}", mode(after))],
        (Some(_), None) => vec!["- NBD TLS".to_owned()],
        (Some(before), Some(after)) => {
            let differences = [
                (before.served.is_required != after.served.is_required, "tls"),
                (before.certificates != after.certificates, "tls-certificate"),
                (before.client_cas != after.client_cas, "tls-client-ca"),
            ];
            let differs = differences.iter().filter(|(differs, _)| *differs);
            differs.map(|(_, key)| format!("~ NBD TLS: {key}")).collect()
        }
    }
}
