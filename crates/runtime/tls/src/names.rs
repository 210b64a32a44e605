//! The names in a certificate: its subject's common name, and its DNS names.

use rustls::pki_types::CertificateDer;

/// The common name of its subject (RFC 5280 4.1.2.6) and the DNS names of its extension (4.2.1.6). A certificate that
/// cannot be read has none.
pub(crate) fn of_certificate(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = webpki::EndEntityCert::try_from(certificate) else { return Vec::new() };
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
/// The types of a DirectoryString that are UTF-8 as they are; the others are out of use (RFC 5280 4.1.2.4).
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
/// id-at-commonName, 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// The values of the common name in a Name, in DER without its own header.
fn common_names(subject: &[u8]) -> impl Iterator<Item = String> {
    let sets = Elements(subject).filter(|(tag, _)| *tag == SET);
    let attributes = sets.flat_map(|(_, set)| Elements(set)).filter(|(tag, _)| *tag == SEQUENCE);
    attributes.filter_map(|(_, attribute)| {
        let mut parts = Elements(attribute);
        parts.next().filter(|part| *part == (OBJECT_IDENTIFIER, &COMMON_NAME[..]))?;
        let (_, text) = parts.next().filter(|(tag, _)| [UTF8_STRING, PRINTABLE_STRING].contains(tag))?;
        String::from_utf8(text.to_vec()).ok()
    })
}

/// The elements of a constructed value in DER: tag and content. What is malformed ends them.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let [tag, length, rest @ ..] = std::mem::take(&mut self.0) else { return None };
        let (length, rest) = match *length {
            short @ 0..=0x7f => (usize::from(short), rest),
            0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// C=DE, O=x, CN=host1, CN=zwei as `openssl req` writes them.
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
